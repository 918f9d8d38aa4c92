/*
 * Shared loads: find a settled one young enough, join one in flight, or begin one. See load.h.
 * Proving a shard index is done here, once for all who wait; decoding chunks is chunk_cache.c's.
 */
#include "block/internal.h"

#include <string.h>

static void
waiter_remove(TbLoad *load, TbWaiter *waiter)
{
	if (!waiter->waiting)
		return;
	if (waiter->prev != NULL)
		waiter->prev->next = waiter->next;
	else
		load->waiters = waiter->next;
	if (waiter->next != NULL)
		waiter->next->prev = waiter->prev;
	waiter->prev = waiter->next = NULL;
	waiter->waiting = false;
}

/* What only a read in flight needs. */
static void
free_flight(TbLoad *load)
{
	tb_free(load->read);
	load->read = NULL;
	tb_free(load->object);
	load->object = NULL;
	tb_free(load->pinned);
	load->pinned = NULL;
	load->store = NULL;
	load->level = NULL;
}

void
tb_load_destroy(TbLruNode *node)
{
	TbLoad	   *load = (TbLoad *) node;

	if (load->read != NULL && load->store != NULL)
		tb_store_cancel(load->store, load->read);
	free_flight(load);
	tb_buf_unref(load->bytes);
	tb_engine_give_buf(load->engine, load->decoded);
	tb_free(load->error);
	tb_free(load);
}

static void
set_failed(TbLoad *load, TbStatus status, const TbError *error)
{
	load->status = status;
	load->error = tb_malloc(sizeof(TbError));
	if (load->error != NULL)
		*load->error = *error;
}

/* Take over what a finished read brought. */
static void
settle(TbLoad *load)
{
	TbRead	   *read = load->read;
	TbError		error;

	tb_error_clear(&error);
	load->loaded_ns = tb_now_ns();
	load->missing = read->status == TB_OK && read->missing;
	load->bytes = read->status == TB_OK ? tb_buf_keep(read->data) : NULL;	/* it may have come with others' */
	read->data = NULL;
	memcpy(load->version, read->version, sizeof(load->version));
	load->version[sizeof(load->version) - 1] = '\0';
	if (read->status != TB_OK)
	{
		set_failed(load, read->status, &read->error);
		return;
	}
	load->status = TB_OK;
	if (load->missing || load->bytes == NULL)
		return;
	load->n_bytes = load->bytes->len;
	load->version_hash = tb_hash64(load->version, strlen(load->version), 1);
	if (load->level != NULL)
	{
		uint64_t shard_bytes =
			load->shard_bytes != UINT64_MAX ? load->shard_bytes : read->object_size;
		TbStatus	status = tb_shard_index_check(load->level, load->bytes->data, load->bytes->len,
											   shard_bytes, &error);

		if (status != TB_OK)
			set_failed(load, status, &error);
	}
}

/* A damaged index may have been damaged on its way: ask once more before saying that it is. */
static bool
read_again(TbLoad *load)
{
	if (load->level == NULL || load->again || load->status != TB_E_CORRUPT || load->bytes == NULL)
		return false;
	load->again = true;
	tb_buf_unref(load->bytes);
	load->bytes = NULL;
	tb_free(load->error);
	load->error = NULL;
	load->status = TB_AGAIN;
	load->read->no_cache = true;
	tb_store_read(load->store, load->read);
	return true;
}

static void
read_done(TbRead *read)
{
	TbLoad	   *load = read->arg;

	settle(load);
	if (read_again(load))
		return;
	free_flight(load);
	if (load->node.cost == sizeof(*load))
		tb_lru_set_cost(load->cache, &load->node, sizeof(*load) + load->n_bytes);
	load->node.pins++;			/* stays while its waiters are told */
	if (load->status != TB_OK)
		tb_lru_drop(load->cache, &load->node);
	while (load->waiters != NULL)
	{
		TbWaiter   *waiter = load->waiters;

		waiter_remove(load, waiter);
		waiter->wake(waiter);
	}
	tb_lru_unpin(load->cache, &load->node);
}

static bool
fresh_enough(const TbLoad *load, const TbLoadSpec *spec)
{
	int64_t		age;

	if (load->status == TB_AGAIN)
		return true;
	if (__atomic_load_n(&load->damaged, __ATOMIC_RELAXED))
		return false;
	age = tb_now_ns() - load->loaded_ns;
	return age < (load->missing ? spec->missing_age_ns : spec->max_age_ns);
}

static TbLoad *
new_load(const TbLoadSpec *spec)
{
	TbLoad	   *load = tb_calloc(1, sizeof(*load));

	if (load == NULL)
		return NULL;
	load->engine = spec->source->engine;
	load->cache = spec->cache;
	load->status = TB_AGAIN;
	load->level = spec->level;
	load->shard_bytes = spec->shard_bytes;
	load->node.cost = sizeof(*load) + spec->cost;
	load->read = tb_calloc(1, sizeof(TbRead));
	load->object = tb_strdup(spec->object);
	if (spec->if_version != NULL && spec->if_version[0] != '\0')
		load->pinned = tb_strdup(spec->if_version);
	if (load->read != NULL && load->object != NULL &&
		(load->pinned != NULL || spec->if_version == NULL || spec->if_version[0] == '\0') &&
		tb_lru_insert(spec->cache, &load->node, spec->name, spec->name_len))
		return load;
	tb_load_destroy(&load->node);
	return NULL;
}

TbStatus
tb_load_get(const TbLoadSpec *spec, TbLoad **out, bool *began, TbError *err)
{
	TbLoad	   *load = (TbLoad *) tb_lru_find(spec->cache, spec->name, spec->name_len);

	*began = false;
	if (load != NULL)
	{
		if (fresh_enough(load, spec))
		{
			*out = load;
			return TB_OK;
		}
		tb_lru_drop(spec->cache, &load->node);
		tb_lru_unpin(spec->cache, &load->node);
	}
	load = new_load(spec);
	if (load == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	load->store = spec->source->store;
	load->read->key = load->object;
	load->read->kind = spec->kind;
	load->read->offset = spec->offset;
	load->read->length = spec->length;
	load->read->if_version = load->pinned;
	load->read->no_cache = spec->no_cache;
	load->read->done = read_done;
	load->read->arg = load;
	tb_store_read(load->store, load->read);
	*began = true;
	*out = load;
	return TB_OK;
}

void
tb_load_wait(TbLoad *load, TbWaiter *waiter)
{
	waiter->waiting = true;
	waiter->prev = NULL;
	waiter->next = load->waiters;
	if (load->waiters != NULL)
		load->waiters->prev = waiter;
	load->waiters = waiter;
}

void
tb_load_release(TbLoad *load, TbWaiter *waiter)
{
	if (waiter != NULL)
		waiter_remove(load, waiter);
	if (load->node.pins == 1 && load->status == TB_AGAIN)
		tb_lru_drop(load->cache, &load->node); /* nobody waits: unpinning destroys, which cancels */
	tb_lru_unpin(load->cache, &load->node);
}

void
tb_load_drop(TbLoad *load)
{
	tb_lru_drop(load->cache, &load->node);
}

TbStatus
tb_load_status(const TbLoad *load, TbError *err)
{
	if (load->status == TB_OK || load->status == TB_AGAIN)
		return load->status;
	if (load->error == NULL)
		return tb_fail(err, load->status, "cannot read object");
	if (err != NULL)
		*err = *load->error;
	return load->status;
}
