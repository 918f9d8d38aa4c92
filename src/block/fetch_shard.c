/*
 * Shards of a fetch: reading their indexes (shared through the engine's cache, one request each
 * however many ask), what an index says of the parts inside, and beginning a shard again when it
 * changed under the fetch.
 *
 * All reads of one object carry the version its index had. Another version: the cached index is
 * dropped and the shard read anew, once; then the fetch fails with CHANGED. source: Zarr v3
 * sharding_indexed 1.0.
 */
#include "block/fetch.h"

#include <string.h>

#define INDEX_MAX_BYTES ((size_t) 256 << 20)
#define MISSING_AGE_NS \
	INT64_C(1000000000) /* an absent shard is asked for again soon: it may be written */

static void
fail_nomem(TbFetch *fetch)
{
	TbError		error;
	TbStatus	status = tb_fail(&error, TB_E_NOMEM, "out of memory");

	tb_fetch_settle(fetch, status, &error);
}

/* The name of a node's index in the cache. Inner indexes depend on the version of their object. */
static char *
index_name(const TbFetch *fetch, const TbShardNode *node)
{
	const TbSource *source = fetch->array->source;

	return tb_asprintf(
		"%llu %llu %d %llu %llx %s", (unsigned long long) source->id,
		(unsigned long long) source->generation, node->level, (unsigned long long) node->base,
		(unsigned long long) (node->level > 0 ? node->object->version_hash : 0), node->object->key);
}

/* Parts in the cell at index of a grid of shape unit (a multiple of the chunk). false: none in the
 * region. */
static bool
parts_of(const TbFetch *fetch, const uint64_t *unit, const uint64_t *index, TbBox *box)
{
	uint64_t	first[TB_MAX_DIM];
	uint64_t	n[TB_MAX_DIM];

	for (int d = 0; d < fetch->meta->ndim; d++)
	{
		n[d] = unit[d] / fetch->meta->chunk[d];
		first[d] = index[d] * n[d];
	}
	return tb_box_clip(&fetch->chunks, first, n, box);
}

static void
mark_missing(TbFetch *fetch, const uint64_t *unit, const uint64_t *index)
{
	TbBox		box;
	uint64_t	at[TB_MAX_DIM];

	if (!parts_of(fetch, unit, index, &box))
		return;
	for (uint64_t i = 0; i < box.total; i++)
	{
		tb_box_index(&box, i, at);
		fetch->part[tb_box_number(&fetch->chunks, at)].state = TB_PART_MISSING;
	}
}

static TbShardNode *
new_node(TbObject *object, int level, const uint64_t *index, int ndim)
{
	TbShardNode *node = tb_calloc(1, sizeof(*node));

	if (node == NULL)
		return NULL;
	node->object = object;
	node->level = level;
	node->length = UINT64_MAX;
	memcpy(node->index, index, (size_t) ndim * sizeof(*index));
	return node;
}

static void
push_node(TbFetch *fetch, TbShardNode *node)
{
	node->next = fetch->node;
	fetch->node = node;
}

/* An entry that is stored: a chunk to read, or a shard within the shard. */
static void
take_entry(TbFetch *fetch, const TbShardNode *node, const uint64_t *index, TbShardEntry entry)
{
	TbShardNode *inner;

	if (node->level + 1 == fetch->meta->n_shard_levels)
	{
		uint32_t	part = (uint32_t) tb_box_number(&fetch->chunks, index);

		if (entry.length > tb_chunk_limit(fetch->chain))
		{
			TbError		error;
			TbStatus status =
				tb_fail(&error, TB_E_CORRUPT, "chunk is larger than its array's metadata allows");

			tb_fetch_error_detail(fetch, node->object->key, part, &error);
			tb_fetch_settle(fetch, status, &error);
			return;
		}
		tb_fetch_place_part(fetch, part, node->object, node->base + entry.offset, entry.length);
		return;
	}
	inner = new_node(node->object, node->level + 1, index, fetch->meta->ndim);
	if (inner == NULL)
	{
		fail_nomem(fetch);
		return;
	}
	inner->base = node->base + entry.offset;
	inner->length = entry.length;
	push_node(fetch, inner);
}

/* Go through the entries of an index that the region touches. */
static void
spread(TbFetch *fetch, const TbShardNode *node, const TbLoad *load)
{
	const TbShardLevel *level = &fetch->meta->shard[node->level];
	int			ndim = fetch->meta->ndim;
	uint64_t	first[TB_MAX_DIM];
	uint64_t	n[TB_MAX_DIM];
	TbBox		entries;
	TbBox		box;

	for (int d = 0; d < ndim; d++)
	{
		n[d] = level->shard[d] / level->inner[d];
		first[d] = node->index[d] * n[d];
	}
	if (!tb_box_of(&fetch->region, level->inner, &entries) ||
		!tb_box_clip(&entries, first, n, &box))
		return;
	for (uint64_t i = 0; i < box.total && fetch->status == TB_AGAIN; i++)
	{
		uint64_t	index[TB_MAX_DIM];
		uint64_t	number = 0;
		TbShardEntry entry;

		tb_box_index(&box, i, index);
		for (int d = 0; d < ndim; d++)
			number = number * n[d] + (index[d] - first[d]);
		entry = tb_shard_index_entry(level, load->bytes->data, number);
		if (entry.missing)
			mark_missing(fetch, level->inner, index);
		else
			take_entry(fetch, node, index, entry);
	}
}

/* An index has been read, or not. Gives the slot back. */
static void
index_settled(TbSlot *slot)
{
	TbFetch    *fetch = slot->fetch;
	TbShardNode *node = slot->node;
	TbObject   *object = node->object;
	TbLoad	   *load = slot->load;
	TbError		error;
	TbStatus	status = tb_load_status(load, &error);

	slot->node = NULL;
	if (status == TB_OK && load->missing && node->level == 0)
		mark_missing(fetch, fetch->meta->grid_chunk, node->index);
	else if (status == TB_OK && !load->missing)
	{
		if (node->level == 0)
		{
			memcpy(object->version, load->version, sizeof(object->version));
			object->version_hash = load->version_hash;
			tb_fetch_add_version(fetch, object->key, object->version_hash, false);
		}
		spread(fetch, node, load);
	}
	else if (status == TB_OK || (status == TB_E_CHANGED && node->level > 0))
	{
		/* gone or changed since the outer index was read; the slot first, as all of the object's
		 * are given */
		slot->node = node;
		tb_fetch_give_slot(slot);
		tb_fetch_object_changed(fetch, object, TB_NO_PART);
		return;
	}
	else
	{
		tb_fetch_error_detail(fetch, object->key, TB_NO_PART, &error);
		tb_fetch_settle(fetch, status, &error);
		tb_free(node);
		return;					/* settling with an error gave every slot back */
	}
	tb_free(node);
	if (slot->kind != TB_SLOT_FREE)
		tb_fetch_give_slot(slot);
}

static void
index_wake(TbWaiter *waiter)
{
	TbSlot	   *slot = waiter->arg;
	TbFetch    *fetch = slot->fetch;

	if (slot->load->status == TB_OK)
		fetch->bytes += slot->load->n_bytes;
	index_settled(slot);
	tb_fetch_advance(fetch);
}

/* Where a node's index is. errors: CORRUPT, LIMIT. */
static TbStatus
index_range(const TbFetch *fetch, const TbShardNode *node, TbLoadSpec *spec, TbError *err)
{
	const TbShardLevel *level = &fetch->meta->shard[node->level];

	if (level->index_bytes > INDEX_MAX_BYTES)
		return tb_fail(err, TB_E_LIMIT, "shard index is too large");
	if (node->length < level->index_bytes)
		return tb_fail(err, TB_E_CORRUPT, "shard is shorter than its index");
	spec->length = level->index_bytes;
	spec->kind = TB_RANGE_AT;
	spec->offset = node->base;
	if (level->index_at_start)
		return TB_OK;
	if (node->length == UINT64_MAX)
		spec->kind = TB_RANGE_LAST;
	else
		spec->offset = node->base + (node->length - level->index_bytes);
	return TB_OK;
}

/* Find or begin the load of a node's index. */
static TbStatus
get_index(TbFetch *fetch, const TbShardNode *node, TbLoad **load, bool *began, TbError *err)
{
	TbLoadSpec	spec = {.source = fetch->array->source,
					   .cache = &fetch->engine->indexes,
					   .object = node->object->key};
	TbStatus	status = index_range(fetch, node, &spec, err);
	char	   *name;

	if (status != TB_OK)
	{
		tb_fetch_error_detail(fetch, node->object->key, TB_NO_PART, err);
		return status;
	}
	name = index_name(fetch, node);
	if (name == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	spec.name = name;
	spec.name_len = strlen(name);
	spec.if_version = node->level > 0 ? node->object->version : NULL;
	spec.cost = (size_t) spec.length;
	spec.max_age_ns = fetch->engine->max_age_ns;
	spec.missing_age_ns = MISSING_AGE_NS;
	spec.level = &fetch->meta->shard[node->level];
	spec.shard_bytes = node->length;
	spec.no_cache = fetch->again || node->object->restarted;
	status = tb_load_get(&spec, load, began, err);
	tb_free(name);
	return status;
}

void
tb_fetch_start_node(TbFetch *fetch)
{
	TbSlot	   *slot = tb_fetch_take_slot(fetch, TB_SLOT_INDEX);
	TbError		error;
	TbStatus	status;
	bool		began;

	if (slot == NULL)
	{
		fail_nomem(fetch);
		return;
	}
	slot->node = fetch->node;
	fetch->node = slot->node->next;
	slot->node->next = NULL;
	status = get_index(fetch, slot->node, &slot->load, &began, &error);
	if (status != TB_OK)
	{
		tb_fetch_settle(fetch, status, &error);
		return;
	}
	fetch->requests += began;
	if (slot->load->status != TB_AGAIN)
	{
		index_settled(slot);
		return;
	}
	slot->waiter.wake = index_wake;
	tb_load_wait(slot->load, &slot->waiter);
}

void
tb_fetch_start_object(TbFetch *fetch)
{
	TbObject   *object = tb_calloc(1, sizeof(*object));
	uint64_t	index[TB_MAX_DIM];
	TbShardNode *node;

	if (object == NULL)
	{
		fail_nomem(fetch);
		return;
	}
	object->next = fetch->object;
	fetch->object = object;
	object->number = fetch->cursor++;
	tb_box_index(&fetch->objects, object->number, index);
	if (tb_fetch_object_key(fetch, object->number, fetch->key))
		object->key = tb_strdup(fetch->key);
	node = object->key != NULL ? new_node(object, 0, index, fetch->meta->ndim) : NULL;
	if (node == NULL)
	{
		fail_nomem(fetch);
		return;
	}
	push_node(fetch, node);
	tb_fetch_start_node(fetch);
}

/* ---- beginning a shard again ---- */

static void
cancel_object(TbFetch *fetch, const TbObject *object)
{
	TbShardNode **link = &fetch->node;

	for (int i = 0; i < fetch->n_slots; i++)
	{
		TbSlot	   *slot = fetch->slot[i];

		if (slot->kind == TB_SLOT_FREE)
			continue;
		if (slot->kind == TB_SLOT_INDEX ? slot->node != NULL && slot->node->object == object
			: fetch->part[slot->part].object == object)
			tb_fetch_give_slot(slot);
	}
	while (*link != NULL)
	{
		TbShardNode *node = *link;

		if (node->object != object)
		{
			link = &node->next;
			continue;
		}
		*link = node->next;
		tb_free(node);
	}
}

/* Forget what the old index said of the object's parts, also in the list of placed ones. */
static void
reset_parts(TbFetch *fetch, const TbObject *object, const uint64_t *index)
{
	uint32_t	placed = fetch->first_placed;
	TbBox		box;
	uint64_t	at[TB_MAX_DIM];

	fetch->first_placed = fetch->last_placed = TB_NO_PART;
	while (placed != TB_NO_PART)
	{
		TbPart		part = fetch->part[placed];

		if (part.object != object)
			tb_fetch_place_part(fetch, placed, part.object, part.offset, part.length);
		placed = part.next;
	}
	if (!parts_of(fetch, fetch->meta->grid_chunk, index, &box))
		return;
	for (uint64_t i = 0; i < box.total; i++)
	{
		TbPart	   *part;

		tb_box_index(&box, i, at);
		part = &fetch->part[tb_box_number(&fetch->chunks, at)];
		tb_buf_unref(part->bytes);
		if (part->load != NULL)
			tb_load_release(part->load, NULL);
		memset(part, 0, sizeof(*part));
	}
}

/* The cached outer index is the one that turned out to be old: nobody shall find it again. */
static void
drop_index(TbFetch *fetch, const TbShardNode *node)
{
	char	   *name = index_name(fetch, node);
	TbLru	   *cache = &fetch->engine->indexes;
	TbLoad	   *load = name != NULL ? (TbLoad *) tb_lru_find(cache, name, strlen(name)) : NULL;

	tb_free(name);
	if (load == NULL)
		return;
	if (load->status == TB_OK && load->version_hash == node->object->version_hash)
		tb_load_drop(load);
	tb_load_release(load, NULL);
}

void
tb_fetch_object_changed(TbFetch *fetch, TbObject *object, uint32_t part)
{
	uint64_t	index[TB_MAX_DIM];
	TbShardNode *node;

	if (object->restarted)
	{
		TbError		error;
		TbStatus	status = tb_fail(&error, TB_E_CHANGED, "object changed while it was read");

		tb_fetch_error_detail(fetch, object->key, part, &error);
		tb_error_hint(&error, "Run the statement again.");
		tb_fetch_settle(fetch, status, &error);
		return;
	}
	object->restarted = true;
	tb_box_index(&fetch->objects, object->number, index);
	cancel_object(fetch, object);
	reset_parts(fetch, object, index);
	tb_fetch_add_version(fetch, object->key, object->version_hash, true);
	node = new_node(object, 0, index, fetch->meta->ndim);
	if (node == NULL)
	{
		fail_nomem(fetch);
		return;
	}
	drop_index(fetch, node);
	push_node(fetch, node);
}
