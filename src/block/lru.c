/*
 * The table behind the caches of this room: chained hashing, a list in order of use, eviction by
 * cost. Loads, chunks and arrays embed its node; nothing here knows what they are.
 */
#include "block/lru.h"

#include <string.h>

void
tb_lru_init(TbLru *lru, size_t budget, void (*destroy) (TbLruNode *node))
{
	memset(lru, 0, sizeof(*lru));
	lru->budget = budget;
	lru->destroy = destroy;
}

static void
list_remove(TbLru *lru, TbLruNode *node)
{
	if (node->older != NULL)
		node->older->newer = node->newer;
	else
		lru->oldest = node->newer;
	if (node->newer != NULL)
		node->newer->older = node->older;
	else
		lru->newest = node->older;
	node->older = node->newer = NULL;
}

static void
list_push_newest(TbLru *lru, TbLruNode *node)
{
	node->older = lru->newest;
	node->newer = NULL;
	if (lru->newest != NULL)
		lru->newest->newer = node;
	else
		lru->oldest = node;
	lru->newest = node;
}

/* Take a node out of table and list; its key stays its own until it is destroyed. */
static void
unlist(TbLru *lru, TbLruNode *node)
{
	TbLruNode **link = &lru->bucket[node->hash & (lru->n_buckets - 1)];

	while (*link != node)
		link = &(*link)->chain;
	*link = node->chain;
	node->chain = NULL;
	list_remove(lru, node);
	node->listed = false;
	lru->cost -= node->cost;
	lru->n--;
}

static void
destroy(TbLru *lru, TbLruNode *node)
{
	tb_free(node->key);
	node->key = NULL;
	lru->destroy(node);
}

void
tb_lru_clear(TbLru *lru)
{
	while (lru->oldest != NULL)
	{
		TbLruNode  *node = lru->oldest;

		unlist(lru, node);
		if (node->pins == 0)
			destroy(lru, node);
	}
}

void
tb_lru_fini(TbLru *lru)
{
	tb_lru_clear(lru);
	tb_free(lru->bucket);
	lru->bucket = NULL;
	lru->n_buckets = 0;
}

TbLruNode *
tb_lru_find(TbLru *lru, const void *key, size_t key_len)
{
	uint64_t	hash = tb_hash64(key, key_len, 0);
	TbLruNode  *node;

	if (lru->n_buckets == 0)
		return NULL;
	for (node = lru->bucket[hash & (lru->n_buckets - 1)]; node != NULL; node = node->chain)
	{
		if (node->hash != hash || node->key_len != key_len || memcmp(node->key, key, key_len) != 0)
			continue;
		list_remove(lru, node);
		list_push_newest(lru, node);
		node->pins++;
		return node;
	}
	return NULL;
}

/* Keep at most one node a bucket on average. A table that cannot grow only gets slower. */
static bool
grow(TbLru *lru)
{
	size_t		n_buckets = lru->n_buckets == 0 ? 64 : lru->n_buckets * 2;
	TbLruNode **bucket;

	if (lru->n < lru->n_buckets)
		return true;
	bucket = tb_calloc(n_buckets, sizeof(*bucket));
	if (bucket == NULL)
		return lru->n_buckets != 0;
	for (TbLruNode *node = lru->oldest; node != NULL; node = node->newer)
	{
		TbLruNode **slot = &bucket[node->hash & (n_buckets - 1)];

		node->chain = *slot;
		*slot = node;
	}
	tb_free(lru->bucket);
	lru->bucket = bucket;
	lru->n_buckets = n_buckets;
	return true;
}

/* Let go of the oldest unpinned nodes until the budget holds. */
static void
evict(TbLru *lru)
{
	TbLruNode  *node = lru->oldest;

	while (lru->cost > lru->budget && node != NULL)
	{
		TbLruNode  *newer = node->newer;

		if (node->pins == 0)
		{
			unlist(lru, node);
			destroy(lru, node);
		}
		node = newer;
	}
}

bool
tb_lru_insert(TbLru *lru, TbLruNode *node, const void *key, size_t key_len)
{
	TbLruNode **slot;

	if (!grow(lru))
		return false;
	node->key = tb_malloc(key_len > 0 ? key_len : 1);
	if (node->key == NULL)
		return false;
	memcpy(node->key, key, key_len);
	node->key_len = key_len;
	node->hash = tb_hash64(key, key_len, 0);
	node->pins = 1;
	node->listed = true;
	slot = &lru->bucket[node->hash & (lru->n_buckets - 1)];
	node->chain = *slot;
	*slot = node;
	list_push_newest(lru, node);
	lru->cost += node->cost;
	lru->n++;
	evict(lru);
	return true;
}

void
tb_lru_set_cost(TbLru *lru, TbLruNode *node, size_t cost)
{
	if (node->listed)
		lru->cost = lru->cost - node->cost + cost;
	node->cost = cost;
}

void
tb_lru_unpin(TbLru *lru, TbLruNode *node)
{
	if (--node->pins > 0)
		return;
	if (!node->listed)
		destroy(lru, node);
	else if (lru->cost > lru->budget)
		evict(lru);
}

void
tb_lru_drop(TbLru *lru, TbLruNode *node)
{
	if (node->listed)
		unlist(lru, node);
}
