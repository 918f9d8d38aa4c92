/*
 * TbLru: a table of embedded nodes by key that forgets the least recently used unpinned ones beyond
 * a budget. It owns keys and order; what a node holds is its owner's, told by `destroy`. thread:
 * the loop's.
 */
#ifndef TB_BLOCK_LRU_H
#define TB_BLOCK_LRU_H

#include "base/base.h"

typedef struct TbLruNode
{
	struct TbLruNode *chain;	/* same bucket */
	struct TbLruNode *older;
	struct TbLruNode *newer;
	uint64_t	hash;
	void	   *key;			/* owned */
	size_t		key_len;
	size_t		cost;
	int			pins;			/* users; never destroyed while there are some */
	bool		listed;			/* can be found */
} TbLruNode;

typedef struct TbLru
{
	TbLruNode **bucket;			/* owned; NULL until the first insert */
	size_t		n_buckets;		/* a power of two */
	size_t		n;
	TbLruNode  *oldest;
	TbLruNode  *newest;
	size_t		cost;
	size_t		budget;
	void		(*destroy) (TbLruNode *node);
} TbLru;

extern void tb_lru_init(TbLru *lru, size_t budget, void (*destroy) (TbLruNode *node));

/* Forget all; pinned nodes are destroyed when their last pin goes. The table may be used again. */
extern void tb_lru_clear(TbLru *lru);

/* Forget all and give the table's memory back. */
extern void tb_lru_fini(TbLru *lru);

/* NULL: not there. Makes the node the newest and pins it. */
extern TbLruNode *tb_lru_find(TbLru *lru, const void *key, size_t key_len);

/* Add a node (zeroed by the caller but for cost), pinned once; the key is copied. false: no memory.
 */
extern bool tb_lru_insert(TbLru *lru, TbLruNode *node, const void *key, size_t key_len);

/* What a node costs from now on; the caller holds a pin. */
extern void tb_lru_set_cost(TbLru *lru, TbLruNode *node, size_t cost);

/* Give a pin back; may destroy this node or others. */
extern void tb_lru_unpin(TbLru *lru, TbLruNode *node);

/* The node is no longer found; it is destroyed when its pins are gone. The caller holds a pin. */
extern void tb_lru_drop(TbLru *lru, TbLruNode *node);

#endif
