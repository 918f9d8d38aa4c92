/*
 * The machine of a fetch: what to start next while the window has room, and what to do when a chunk
 * arrives.
 *
 *   objects -> (fetch_shard.c: index, nested indexes) -> placed parts -> reads -> parts here
 *
 * Everything is driven by the loop; no function here calls itself through a callback, as stores
 * never answer from inside a call.
 */
#include "block/fetch.h"

#include <string.h>

/* ---- slots ---- */

static TbSlot *
new_slot(TbFetch *fetch)
{
	TbSlot	   *slot;

	if (fetch->n_slots == TB_FETCH_WINDOW)
		return NULL;
	slot = tb_calloc(1, sizeof(*slot));
	if (slot == NULL)
		return NULL;
	slot->key = tb_malloc(fetch->key_bytes);
	if (slot->key == NULL)
	{
		tb_free(slot);
		return NULL;
	}
	slot->fetch = fetch;
	fetch->slot[fetch->n_slots++] = slot;
	return slot;
}

TbSlot *
tb_fetch_take_slot(TbFetch *fetch, TbSlotKind kind)
{
	TbSlot	   *slot = fetch->free_slot;

	if (slot != NULL)
		fetch->free_slot = slot->next_free;
	else
		slot = new_slot(fetch);
	if (slot == NULL)
		return NULL;
	slot->kind = kind;
	slot->part = TB_NO_PART;
	slot->waiter.arg = slot;
	fetch->in_flight++;
	return slot;
}

void
tb_fetch_give_slot(TbSlot *slot)
{
	TbFetch    *fetch = slot->fetch;

	if (slot->kind == TB_SLOT_READ)
	{
		if (slot->flying)
			tb_store_cancel(fetch->store, &slot->read);
		slot->flying = false;
		tb_buf_unref(slot->read.data);
		slot->read.data = NULL;
	}
	if (slot->load != NULL)
		tb_load_release(slot->load, &slot->waiter);
	slot->load = NULL;
	tb_free(slot->node);
	slot->node = NULL;
	slot->kind = TB_SLOT_FREE;
	slot->next_free = fetch->free_slot;
	fetch->free_slot = slot;
	fetch->in_flight--;
}

void
tb_fetch_cancel(TbFetch *fetch)
{
	for (int i = 0; i < fetch->n_slots; i++)
		if (fetch->slot[i]->kind != TB_SLOT_FREE)
			tb_fetch_give_slot(fetch->slot[i]);
}

/* ---- parts ---- */

void
tb_fetch_place_part(TbFetch *fetch, uint32_t number, TbObject *object, uint64_t offset,
					uint64_t length)
{
	TbPart	   *part = &fetch->part[number];

	part->object = object;
	part->offset = offset;
	part->length = length;
	part->state = TB_PART_PLACED;
	part->next = TB_NO_PART;
	if (fetch->last_placed == TB_NO_PART)
		fetch->first_placed = number;
	else
		fetch->part[fetch->last_placed].next = number;
	fetch->last_placed = number;
}

void
tb_fetch_add_version(TbFetch *fetch, const char *key, uint64_t version_hash, bool remove)
{
	uint64_t	mixed = tb_mix64(tb_hash64(key, strlen(key), 2) ^ version_hash);

	fetch->version += remove ? -mixed : mixed;
}

/* A chunk could not be read. part's slot is free again. */
static void
part_failed(TbFetch *fetch, uint32_t number, TbStatus status, const TbError *from)
{
	TbPart	   *part = &fetch->part[number];
	TbError		error = *from;

	if (status == TB_E_CHANGED && part->object != NULL)
	{
		tb_fetch_object_changed(fetch, part->object, number);
		return;
	}
	if (status == TB_E_LIMIT)
		status = tb_fail(&error, TB_E_CORRUPT, "chunk is larger than its array's metadata allows");
	tb_fetch_error_detail(fetch, part->object != NULL ? part->object->key : NULL, number, &error);
	tb_fetch_settle(fetch, status, &error);
}

/* The object of a chunk is not there: unwritten, or gone since its index was read. */
static void
part_missing(TbFetch *fetch, uint32_t number)
{
	TbPart	   *part = &fetch->part[number];

	if (part->object != NULL)
		tb_fetch_object_changed(fetch, part->object, number);
	else
		part->state = TB_PART_MISSING;
}

static void
read_done(TbRead *read)
{
	TbSlot	   *slot = read->arg;
	TbFetch    *fetch = slot->fetch;
	uint32_t	number = slot->part;
	TbPart	   *part = &fetch->part[number];

	slot->flying = false;
	if (read->status != TB_OK)
	{
		TbStatus	status = read->status;
		TbError		error = read->error;

		tb_fetch_give_slot(slot);
		part_failed(fetch, number, status, &error);
	}
	else if (read->missing)
	{
		tb_fetch_give_slot(slot);
		part_missing(fetch, number);
	}
	else
	{
		part->bytes = read->data;
		read->data = NULL;
		part->state = TB_PART_HERE;
		fetch->bytes += part->bytes->len;
		if (part->object == NULL)
			tb_fetch_add_version(fetch, read->key,
								 tb_hash64(read->version, strlen(read->version), 1), false);
		tb_fetch_give_slot(slot);
	}
	tb_fetch_advance(fetch);
}

/* A shared chunk has arrived: its slot's load becomes the part's. */
static void
chunk_settled(TbSlot *slot)
{
	TbFetch    *fetch = slot->fetch;
	uint32_t	number = slot->part;
	TbPart	   *part = &fetch->part[number];
	TbLoad	   *load = slot->load;

	if (load->status == TB_OK && !load->missing)
	{
		part->load = load;
		part->state = TB_PART_HERE;
		slot->load = NULL;
		if (part->object == NULL && tb_fetch_object_key(fetch, number, fetch->key))
			tb_fetch_add_version(fetch, fetch->key, load->version_hash, false);
		tb_fetch_give_slot(slot);
	}
	else
	{
		TbError		error;
		TbStatus	status = tb_load_status(load, &error);

		tb_fetch_give_slot(slot);
		if (status != TB_OK)
			part_failed(fetch, number, status, &error);
		else
			part_missing(fetch, number);
	}
}

static void
chunk_wake(TbWaiter *waiter)
{
	TbSlot	   *slot = waiter->arg;
	TbFetch    *fetch = slot->fetch;

	if (slot->load->status == TB_OK)
		fetch->bytes += slot->load->n_bytes;
	chunk_settled(slot);
	tb_fetch_advance(fetch);
}

/* Join or begin the shared load of a part. */
static void
start_shared(TbFetch *fetch, uint32_t number)
{
	TbSlot	   *slot = tb_fetch_take_slot(fetch, TB_SLOT_CHUNK);
	TbError		error;
	TbStatus	status;
	bool		began;

	if (slot == NULL)
	{
		status = tb_fail(&error, TB_E_NOMEM, "out of memory");
		tb_fetch_settle(fetch, status, &error);
		return;
	}
	slot->part = number;
	status = tb_chunk_get(fetch, number, &slot->load, &began, &error);
	if (status != TB_OK)
	{
		tb_fetch_settle(fetch, status, &error);
		return;
	}
	fetch->requests += began;
	if (slot->load->status != TB_AGAIN)
	{
		chunk_settled(slot);
		return;
	}
	slot->waiter.wake = chunk_wake;
	tb_load_wait(slot->load, &slot->waiter);
}

/* Have the bytes land where they are wanted, if they are in one piece there. */
static void
set_target(TbFetch *fetch, uint32_t number, TbRead *read)
{
	uint64_t	index[TB_MAX_DIM];

	tb_box_index(&fetch->chunks, number, index);
	read->into = tb_fetch_target(fetch, index);
	if (read->into != NULL)
		read->into_bytes = tb_chain_decoded_bytes(fetch->chain);
}

/* Read a part for this fetch alone. */
static void
start_read(TbFetch *fetch, uint32_t number)
{
	TbPart	   *part = &fetch->part[number];
	TbSlot	   *slot = tb_fetch_take_slot(fetch, TB_SLOT_READ);
	TbRead	   *read;

	if (slot == NULL)
	{
		TbError		error;
		TbStatus	status = tb_fail(&error, TB_E_NOMEM, "out of memory");

		tb_fetch_settle(fetch, status, &error);
		return;
	}
	slot->part = number;
	read = &slot->read;
	memset(read, 0, sizeof(*read));
	read->kind = TB_RANGE_WHOLE;
	read->length = tb_chunk_limit(fetch->chain);
	read->key = slot->key;
	if (part->object != NULL)
	{
		read->key = part->object->key;
		read->kind = TB_RANGE_AT;
		read->offset = part->offset;
		read->length = part->length;
		read->if_version = part->object->version[0] != '\0' ? part->object->version : NULL;
	}
	else if (!tb_fetch_object_key(fetch, number, slot->key))
		slot->key[0] = '\0';	/* cannot be: the buffer holds any key */
	if (fetch->into != NULL)
		set_target(fetch, number, read);
	read->no_cache = fetch->again;
	read->done = read_done;
	read->arg = slot;
	fetch->requests++;
	slot->flying = true;
	tb_store_read(fetch->store, read);
}

static void
start_part(TbFetch *fetch, uint32_t number)
{
	TbPart	   *part = &fetch->part[number];
	uint64_t	index[TB_MAX_DIM];

	part->state = TB_PART_READING;
	if (part->length == 0)
	{
		/* a chunk of no bytes: nothing to ask for, decoding will say what is wrong with it */
		part->bytes = tb_buf_new(0);
		part->state = TB_PART_HERE;
		if (part->bytes == NULL)
		{
			TbError		error;
			TbStatus	status = tb_fail(&error, TB_E_NOMEM, "out of memory");

			tb_fetch_settle(fetch, status, &error);
		}
		return;
	}
	tb_box_index(&fetch->chunks, number, index);
	if (tb_chunk_is_shared(fetch, index))
		start_shared(fetch, number);
	else
		start_read(fetch, number);
}

/* Take the first placed part off its list. */
static uint32_t
pop_placed(TbFetch *fetch)
{
	uint32_t	number = fetch->first_placed;

	fetch->first_placed = fetch->part[number].next;
	if (fetch->first_placed == TB_NO_PART)
		fetch->last_placed = TB_NO_PART;
	return number;
}

/* Begin one thing. false: nothing is left to begin. */
static bool
start_next(TbFetch *fetch)
{
	if (fetch->first_placed != TB_NO_PART && !fetch->locate_only)
		start_part(fetch, pop_placed(fetch));
	else if (fetch->node != NULL)
		tb_fetch_start_node(fetch);
	else if (fetch->cursor >= fetch->objects.total)
		return false;
	else if (fetch->meta->n_shard_levels > 0)
		tb_fetch_start_object(fetch);
	else
		tb_fetch_place_part(fetch, (uint32_t) fetch->cursor++, NULL, 0, UINT64_MAX);
	return true;
}

void
tb_fetch_advance(TbFetch *fetch)
{
	while (fetch->status == TB_AGAIN && fetch->in_flight < TB_FETCH_WINDOW)
		if (!start_next(fetch))
			break;
	if (fetch->status == TB_AGAIN && fetch->in_flight == 0)
		tb_fetch_settle(fetch, TB_OK, NULL);
}
