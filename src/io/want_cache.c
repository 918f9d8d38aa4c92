/*
 * The cache on disk before the store: a want asks it first; what is not there is fetched and kept; what may be out
 * of date is asked for unless it is current. Each want has its own entry, whatever request brings it.
 *
 * Not asked: stores without connections, and those that cannot say who may see what they have.
 */
#include "io/store.h"

#include <string.h>

#include "io/cache.h"

typedef struct TbCached
{
	TbCacheGet	get;
	bool		waits;			/* the cache has not answered yet */
	bool		fetches;		/* others wait for what this want brings */
} TbCached;

/* Give the reader what the cache had. */
static void
use(TbWant *want)
{
	TbCacheGet *get = &want->cached->get;
	TbRead	   *read = want->read;

	read->status = TB_OK;
	tb_error_clear(&read->error);
	read->missing = false;
	read->data = get->data;
	get->data = NULL;
	read->object_size = get->object_size;
	memcpy(read->version, get->version, sizeof(read->version));
	tb_store_count(want->store, cache_hits, 1);
	tb_store_count(want->store, cache_bytes, read->data->len);
}

static void
answered(TbCacheGet *get)
{
	TbWant	   *want = get->arg;

	want->cached->waits = false;
	if (get->found == TB_CACHE_HIT)
	{
		use(want);
		tb_want_done(want);
		return;
	}
	want->cached->fetches = true;
	tb_want_send(want);
}

bool
tb_cached_ask(TbWant *want)
{
	TbStore    *store = want->store;
	TbCache    *cache = store->io->cache;
	uint8_t		scope[32];

	if (cache == NULL || !store->ops->connects || store->ops->scope == NULL)
		return false;
	want->cached = tb_calloc(1, sizeof(*want->cached));
	if (want->cached == NULL)
		return false;
	store->ops->scope(store, scope);
	tb_cache_key(scope, want->key, want->kind, want->offset, want->length, &want->cached->get.key);
	if (want->read->no_cache)
		return false;			/* what is brought takes the place of what is there */
	want->cached->get.if_version = want->if_version;
	want->cached->get.max_age_ms = store->io->options.cache_max_age_ms;
	want->cached->get.done = answered;
	want->cached->get.arg = want;
	want->cached->waits = true;
	tb_cache_get(cache, &want->cached->get);
	return true;
}

bool
tb_cached_waits(const TbWant *want)
{
	return want->cached != NULL && want->cached->waits;
}

const char *
tb_cached_version(const TbWant *want)
{
	const TbCacheGet *get = &want->cached->get;

	return get->data != NULL && get->version[0] != '\0' ? get->version : NULL;
}

void
tb_cached_ended(TbWant *want, const TbOp *op)
{
	TbCached   *cached = want->cached;
	TbCache    *cache = want->store->io->cache;
	TbRead	   *read = want->read;

	if (read->status == TB_OK && op->not_modified && cached->get.data != NULL)
	{
		tb_cache_touch(cache, &cached->get.key);
		use(want);
	}
	else if (read->data != NULL)
		tb_cache_put(cache, &cached->get.key, read->version, read->object_size, read->data);
	else if (cached->fetches)
		tb_cache_abandon(cache, &cached->get.key);
	cached->fetches = false;
}

void
tb_cached_free(TbWant *want)
{
	TbCached   *cached = want->cached;
	TbCache    *cache = want->store->io->cache;

	if (cached == NULL)
		return;
	if (cached->waits)
		tb_cache_cancel(cache, &cached->get);
	else if (cached->fetches)
		tb_cache_abandon(cache, &cached->get.key);
	tb_buf_unref(cached->get.data);
	tb_free(cached);
	want->cached = NULL;
}
