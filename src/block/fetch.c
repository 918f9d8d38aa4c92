/*
 * The face of fetches: opening, asking, the places of chunks, ending. What happens in between is in
 * fetch_run.c and fetch_shard.c. See fetch.h.
 */
#include "block/fetch.h"

#include <stdio.h>
#include <string.h>

static void
ready_run(TbTask *task)
{
	TbFetch    *fetch = (TbFetch *) ((char *) task - offsetof(TbFetch, ready_task));

	fetch->ready(fetch->ready_arg); /* may free the fetch */
}

/* Tell once that there is nothing to wait for; from the pump, never from inside the caller. */
static void
announce(TbFetch *fetch)
{
	if (fetch->ready == NULL || fetch->ready_called)
		return;
	fetch->ready_called = true;
	fetch->ready_task.run = ready_run;
	tb_loop_defer(fetch->engine->loop, &fetch->ready_task);
}

void
tb_fetch_settle(TbFetch *fetch, TbStatus status, const TbError *error)
{
	if (fetch->status != TB_AGAIN)
		return;
	fetch->status = status;
	if (error != NULL)
		fetch->error = *error;
	if (status != TB_OK)
		tb_fetch_cancel(fetch);
	announce(fetch);
}

void
tb_fetch_on_ready(TbFetch *fetch, void (*ready) (void *arg), void *arg)
{
	fetch->ready = ready;
	fetch->ready_arg = arg;
	if (fetch->status != TB_AGAIN)
		announce(fetch);
}

/* Everything but the array's reference. errors: LIMIT, NOMEM. */
static TbStatus
prepare(TbFetch *fetch, TbError *err)
{
	const TbArrayMeta *meta = fetch->meta;
	size_t		path_bytes = strlen(meta->path);

	if (!tb_box_of(&fetch->region, meta->chunk, &fetch->chunks) ||
		!tb_box_of(&fetch->region, meta->grid_chunk, &fetch->objects) ||
		fetch->chunks.total > TB_FETCH_MAX_PARTS)
	{
		tb_fail(err, TB_E_LIMIT, "region has too many chunks");
		tb_error_detail(err, "array \"%.200s\", at most %llu", meta->path,
						(unsigned long long) TB_FETCH_MAX_PARTS);
		tb_error_hint(err, "Crop the region.");
		return TB_E_LIMIT;
	}
	/* a key: path, "c", and at most 20 digits and a separator a dimension */
	fetch->key_bytes = path_bytes + 21 * (size_t) meta->ndim + 16;
	fetch->key = tb_malloc(fetch->key_bytes);
	fetch->part =
		tb_calloc(fetch->chunks.total > 0 ? (size_t) fetch->chunks.total : 1, sizeof(TbPart));
	if (fetch->key == NULL || fetch->part == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	return TB_OK;
}

typedef enum OpenKind
{
	OPEN_READ, OPEN_SHARED, OPEN_LOCATE
} OpenKind;

/* *out stays without requests until it is advanced. */
static TbStatus
new_fetch(TbArray *array, const TbRegion *region, OpenKind kind, TbFetch **out, TbError *err)
{
	TbStatus	status = tb_array_poll(array, err);
	TbFetch    *fetch;

	if (status == TB_AGAIN)
		return tb_fail(err, TB_E_STATE, "array is not open yet");
	if (status == TB_OK)
		status = tb_region_check(tb_array_meta(array), region, err);
	if (status != TB_OK)
		return status;
	fetch = tb_calloc(1, sizeof(*fetch));
	if (fetch == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	fetch->array = tb_array_ref(array);
	fetch->meta = array->core->meta;
	fetch->chain = array->core->chain;
	fetch->engine = array->source->engine;
	fetch->store = array->source->store;
	fetch->region = *region;
	fetch->locate_only = kind == OPEN_LOCATE;
	fetch->share_all = kind == OPEN_SHARED;
	fetch->first_placed = fetch->last_placed = TB_NO_PART;
	fetch->status = TB_AGAIN;
	tb_error_clear(&fetch->error);
	status = prepare(fetch, err);
	if (status != TB_OK)
	{
		tb_fetch_free(fetch);
		return status;
	}
	*out = fetch;
	return TB_OK;
}

static TbStatus
open_fetch(TbArray *array, const TbRegion *region, OpenKind kind, TbFetch **out, TbError *err)
{
	TbStatus	status = new_fetch(array, region, kind, out, err);

	if (status == TB_OK)
		tb_fetch_advance(*out);
	return status;
}

TbStatus
tb_fetch_open(TbArray *array, const TbRegion *region, TbFetch **fetch, TbError *err)
{
	return open_fetch(array, region, OPEN_READ, fetch, err);
}

TbStatus
tb_fetch_open_into(TbArray *array, const TbRegion *region, TbTreatment treatment, void *dst, TbFetch **fetch,
				   TbError *err)
{
	TbStatus	status = new_fetch(array, region, OPEN_READ, fetch, err);
	TbUnpacker	unpacker;

	if (status != TB_OK)
		return status;
	if (tb_chain_is_identity((*fetch)->chain) &&
		tb_unpacker_init(&unpacker, &(*fetch)->meta->packing, treatment, NULL) == TB_OK && unpacker.plain)
		(*fetch)->into = dst;
	tb_fetch_advance(*fetch);
	return TB_OK;
}

TbStatus
tb_fetch_locate(TbArray *array, const TbRegion *region, TbFetch **fetch, TbError *err)
{
	return open_fetch(array, region, OPEN_LOCATE, fetch, err);
}

TbStatus
tb_fetch_open_shared(TbArray *array, const TbRegion *region, TbFetch **fetch, TbError *err)
{
	return open_fetch(array, region, OPEN_SHARED, fetch, err);
}

TbStatus
tb_fetch_poll(TbFetch *fetch, TbError *err)
{
	if (fetch->status != TB_OK && fetch->status != TB_AGAIN && err != NULL)
		*err = fetch->error;
	return fetch->status;
}

bool
tb_fetch_all_missing(const TbFetch *fetch)
{
	for (uint64_t i = 0; i < fetch->chunks.total; i++)
		if (fetch->part[i].state != TB_PART_MISSING)
			return false;
	return fetch->chunks.total > 0;
}

uint64_t
tb_fetch_bytes(const TbFetch *fetch)
{
	return fetch->bytes;
}

uint32_t
tb_fetch_requests(const TbFetch *fetch)
{
	return fetch->requests;
}

uint64_t
tb_fetch_version(const TbFetch *fetch)
{
	return fetch->version;
}

/* Number in fetch->objects of the stored object that part i lies in. */
static uint64_t
object_of(const TbFetch *fetch, uint64_t i)
{
	uint64_t	index[TB_MAX_DIM];

	if (fetch->meta->n_shard_levels == 0)
		return i;
	tb_box_index(&fetch->chunks, i, index);
	for (int d = 0; d < fetch->meta->ndim; d++)
		index[d] /= fetch->meta->grid_chunk[d] / fetch->meta->chunk[d];
	return tb_box_number(&fetch->objects, index);
}

bool
tb_fetch_object_key(const TbFetch *fetch, uint64_t number, char *key)
{
	uint64_t	index[TB_MAX_DIM];

	tb_box_index(&fetch->objects, number, index);
	return tb_chunk_key(fetch->meta, index, key, fetch->key_bytes);
}

bool
tb_fetch_place(const TbFetch *fetch, size_t i, TbPlace *place)
{
	const TbPart *part;

	if (i >= fetch->chunks.total)
		return false;
	part = &fetch->part[i];
	tb_box_index(&fetch->chunks, i, place->chunk);
	if (!tb_fetch_object_key(fetch, object_of(fetch, i), fetch->key))
		return false;
	place->key = fetch->key;
	place->missing = part->state == TB_PART_MISSING;
	place->offset = place->missing ? 0 : part->offset;
	place->length = place->missing ? 0 : part->length;
	return true;
}

void
tb_fetch_error_detail(const TbFetch *fetch, const char *key, uint32_t part, TbError *err)
{
	uint64_t	index[TB_MAX_DIM];
	char		text[160];
	size_t		at = 0;

	if (part == TB_NO_PART)
	{
		tb_error_detail(err, "array \"%.150s\", object \"%.200s\"", fetch->meta->path, key);
		return;
	}
	if (key == NULL)
		key = tb_fetch_object_key(fetch, object_of(fetch, part), fetch->key) ? fetch->key : "?";
	tb_box_index(&fetch->chunks, part, index);
	text[0] = '\0';
	for (int d = 0; d < fetch->meta->ndim && at + 24 < sizeof(text); d++)
		at += (size_t) snprintf(text + at, sizeof(text) - at, d == 0 ? "%llu" : ", %llu",
								(unsigned long long) index[d]);
	tb_error_detail(err, "array \"%.150s\", object \"%.200s\", chunk [%s]", fetch->meta->path, key,
					text);
}

static void
free_lists(TbFetch *fetch)
{
	while (fetch->node != NULL)
	{
		TbShardNode *node = fetch->node;

		fetch->node = node->next;
		tb_free(node);
	}
	while (fetch->object != NULL)
	{
		TbObject   *object = fetch->object;

		fetch->object = object->next;
		tb_free(object->key);
		tb_free(object);
	}
}

static void
free_parts(TbFetch *fetch)
{
	for (uint64_t i = 0; fetch->part != NULL && i < fetch->chunks.total; i++)
	{
		tb_buf_unref(fetch->part[i].bytes);
		if (fetch->part[i].load != NULL)
			tb_load_release(fetch->part[i].load, NULL);
	}
}

bool
tb_fetch_again(TbFetch *fetch)
{
	if (fetch->again || fetch->status != TB_OK || fetch->locate_only)
		return false;
	if (fetch->ready_called)
		tb_loop_undefer(fetch->engine->loop, &fetch->ready_task);
	free_parts(fetch);
	free_lists(fetch);
	memset(fetch->part, 0, (size_t) fetch->chunks.total * sizeof(TbPart));
	fetch->first_placed = fetch->last_placed = TB_NO_PART;
	fetch->cursor = 0;
	fetch->bytes = fetch->version = 0;
	fetch->ready = NULL;
	fetch->ready_called = false;
	fetch->again = true;
	fetch->status = TB_AGAIN;
	tb_fetch_advance(fetch);
	return true;
}

void
tb_fetch_free(TbFetch *fetch)
{
	if (fetch == NULL)
		return;
	if (fetch->ready_called)
		tb_loop_undefer(fetch->engine->loop, &fetch->ready_task);
	tb_fetch_cancel(fetch);
	for (int i = 0; i < fetch->n_slots; i++)
	{
		tb_free(fetch->slot[i]->key);
		tb_free(fetch->slot[i]);
	}
	free_parts(fetch);
	free_lists(fetch);
	tb_free(fetch->part);
	tb_free(fetch->key);
	tb_array_unref(fetch->array);
	tb_free(fetch);
}
