/*
 * Growth: when an array has grown along the dimension that grows, block numbers stay as they were,
 * and so do the parts that were full. A new build takes the old cutting of the grid and copies the
 * stored objects of those parts under its own name, so that only what is new has to be read from
 * the data. Parts at the old edge are left out: they get more blocks, and their last blocks get
 * more elements.
 */
#include "hsi/carry.h"

#include <stdio.h>
#include <string.h>

#include "hsi/index.h"

#define IN_FLIGHT 16
#define OBJECT_MAX ((uint64_t) 1 << 31)

typedef struct Copy
{
	TbRead		read;
	char		key[TB_HSI_KEY_BYTES];
	uint64_t	item;			/* object that is copied */
	bool		busy;
	bool		arrived;
} Copy;

struct TbCarry
{
	TbSource   *where;			/* owned reference */
	TbHead	   *old;			/* owned */
	char		old_root[TB_HSI_KEY_BYTES];
	uint64_t   *part;			/* owned; parts that still hold */
	bool	   *lost;			/* owned; per entry of part: an object could not be had */
	uint64_t	n_parts;
	uint64_t	next;			/* item to copy next: part, array, statistic */
	uint64_t	n_items;
	uint64_t	meta_item;		/* of the new level's metadata, next */
	bool		covered;		/* all is written; the head is next */
	bool		any;			/* that it covers */
	Copy		copy[IN_FLIGHT];
};

/* The part has the same blocks now as then, and they the same elements. */
static bool
still_holds(const TbHead *old, const TbHead *now, uint64_t part)
{
	TbBox		then_box;
	TbBox		now_box;

	if (!tb_head_has_part(old, part))
		return false;
	tb_geometry_part_box(&old->geo, part, &then_box);
	tb_geometry_part_box(&now->geo, part, &now_box);
	for (int a = 0; a < old->ndim; a++)
	{
		uint64_t	end = then_box.start[a] + then_box.count[a];
		uint64_t whole =
			old->shape[a] == now->shape[a] ? old->blocks[a] : old->shape[a] / old->cell[a];

		if (then_box.start[a] != now_box.start[a] || then_box.count[a] != now_box.count[a] ||
			end > whole)
			return false;
	}
	return true;
}

/* Old axis lengths are no larger than those of now: else the data is another. */
static bool
has_grown(const TbHead *old, const TbHead *now)
{
	for (int a = 0; a < old->ndim; a++)
		if (old->shape[a] > now->shape[a])
			return false;
	return true;
}

static TbStatus
list_parts(TbCarry *carry, const TbHead *now, TbError *err)
{
	uint64_t	n = tb_head_parts_done(carry->old);

	carry->part = tb_calloc(n + 1, sizeof(uint64_t));
	carry->lost = tb_calloc(n + 1, sizeof(bool));
	if (carry->part == NULL || carry->lost == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (size_t r = 0; r < carry->old->n_runs; r++)
		for (uint64_t part = carry->old->run[r].first; part < carry->old->run[r].end; part++)
			if (part < now->geo.n_parts && still_holds(carry->old, now, part))
				carry->part[carry->n_parts++] = part;
	return TB_OK;
}

/* Number of objects of a part: one per array and leaf statistic. */
static uint64_t
objects(const TbHead *head)
{
	return (uint64_t) head->n_arrays * (TB_STORED_VERSION + 1);
}

TbStatus
tb_carry_open(TbHsiWriter *writer, TbHead *old, TbError *err)
{
	const TbGridInfo *info = tb_grid_info(writer->grid);
	TbCarry    *carry = tb_calloc(1, sizeof(*carry));
	TbGeometry	geo = old->geo;
	TbStatus	status;

	if (carry == NULL)
	{
		tb_head_free(old);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	writer->carry = carry;
	carry->where = tb_source_ref(writer->where);
	carry->old = old;
	status = tb_head_make(info, writer->array, writer->n_arrays, writer->part_blocks, &writer->head,
						  err);
	if (status != TB_OK)
		return status;
	writer->head->serial = old->serial;
	if (strlen(writer->key) + TB_BUILD_BYTES + 1 >= sizeof(writer->root))
		return tb_fail(err, TB_E_LIMIT, "key of the index is too long");
	snprintf(carry->old_root, sizeof(carry->old_root), "%.*s/%s",
			 TB_HSI_KEY_BYTES - TB_BUILD_BYTES - 1, writer->key, old->build);
	snprintf(writer->root, sizeof(writer->root), "%.*s/%s", TB_HSI_KEY_BYTES - TB_BUILD_BYTES - 1,
			 writer->key, writer->head->build);
	for (int i = 0; i < writer->n_arrays; i++)
		writer->place[i] = i;
	if (!has_grown(old, writer->head) || !tb_geometry_finish(&geo, info->blocks))
		return TB_OK;			/* nothing to carry: an ordinary build */
	writer->head->geo = geo;
	status = list_parts(carry, writer->head, err);
	carry->n_items = carry->n_parts * objects(writer->head);
	return status;
}

/* Key of an item below one of the two roots. */
static TbStatus
item_key(const TbHsiWriter *writer, const char *root, uint64_t item, char *key, TbError *err)
{
	const TbHead *head = writer->head;
	uint64_t	in_part = item % objects(head);
	TbStored	stored = (TbStored) (in_part % (TB_STORED_VERSION + 1));
	TbBox		box;

	tb_geometry_part_box(&head->geo, writer->carry->part[item / objects(head)], &box);
	if (!tb_hsi_stored_path(key, root, 0, head->array[in_part / (TB_STORED_VERSION + 1)].path,
							stored))
		return tb_fail(err, TB_E_LIMIT, "key of the index is too long");
	return tb_object_key(key, &head->geo, 0, &box, key, err);
}

static void
arrived(TbRead *read)
{
	Copy	   *copy = read->arg;

	copy->arrived = true;
}

static TbStatus
start_copy(TbHsiWriter *writer, Copy *copy, TbError *err)
{
	TbCarry    *carry = writer->carry;
	TbStatus	status;

	copy->item = carry->next++;
	status = item_key(writer, carry->old_root, copy->item, copy->key, err);
	if (status != TB_OK)
		return status;
	copy->read = (TbRead) {
		.key = copy->key, .kind = TB_RANGE_WHOLE, .length = OBJECT_MAX, .done = arrived, .arg = copy
	};
	copy->arrived = false;
	copy->busy = true;
	tb_store_read(tb_source_store(carry->where), &copy->read);
	return TB_OK;
}

/* Put what has arrived; what is lost costs its part, which is then built anew. */
static TbStatus
end_copy(TbHsiWriter *writer, Copy *copy, TbError *err)
{
	TbCarry    *carry = writer->carry;
	TbStatus	status = copy->read.status;

	copy->busy = false;
	if (status == TB_OK && !copy->read.missing)
	{
		status = item_key(writer, writer->root, copy->item, copy->key, err);
		if (status == TB_OK)
			status = tb_puts_add(&writer->puts, tb_source_store(carry->where), copy->key, copy->read.data, err);
		tb_buf_unref(copy->read.data);
		return status;
	}
	if (status != TB_OK && !tb_index_is_damage(status))
	{
		if (err != NULL)
			*err = copy->read.error;
		return status;
	}
	carry->lost[copy->item / objects(writer->head)] = true;
	return TB_OK;
}

/* Count in the parts that are whole. */
static TbStatus
cover(TbHsiWriter *writer, TbError *err)
{
	TbCarry    *carry = writer->carry;

	for (uint64_t i = 0; i < carry->n_parts; i++)
	{
		if (carry->lost[i])
			continue;
		if (!tb_head_add_part(writer->head, carry->part[i]))
			return tb_fail(err, TB_E_NOMEM, "out of memory");
		carry->any = true;
	}
	carry->covered = true;
	return TB_OK;
}

/* Metadata, then as many copies as may be under way. AGAIN, OK: all is written. */
static TbStatus
copy_all(TbHsiWriter *writer, TbError *err)
{
	TbCarry    *carry = writer->carry;
	bool		busy = false;
	TbStatus	status = TB_OK;

	if (carry->n_items == 0)
		return TB_OK;
	if (!writer->described)
		status = tb_write_level_json(writer, 0, &carry->meta_item, err);
	for (int i = 0; i < IN_FLIGHT && status == TB_OK; i++)
	{
		Copy	   *copy = &carry->copy[i];

		if (copy->busy && copy->arrived && !tb_puts_full(&writer->puts))
			status = end_copy(writer, copy, err);
		if (status == TB_OK && !copy->busy && carry->next < carry->n_items)
			status = start_copy(writer, copy, err);
		busy = busy || copy->busy;
	}
	if (status == TB_OK && busy)
		return TB_AGAIN;
	if (status == TB_OK)
		status = tb_puts_wait(&writer->puts, err);
	writer->described = writer->described || status == TB_OK;
	return status;
}

TbStatus
tb_carry_poll(TbHsiWriter *writer, TbError *err)
{
	TbCarry    *carry = writer->carry;
	TbStatus	status = TB_OK;

	if (!carry->covered)
	{
		status = copy_all(writer, err);
		if (status == TB_OK)
			status = cover(writer, err);
	}
	if (status == TB_OK && carry->any)
		status = tb_write_head(writer, err);
	if (status != TB_OK)
		return status;
	tb_carry_free(carry);
	writer->carry = NULL;
	return TB_OK;
}

void
tb_carry_free(TbCarry *carry)
{
	if (carry == NULL)
		return;
	for (int i = 0; i < IN_FLIGHT; i++)
	{
		Copy	   *copy = &carry->copy[i];

		if (copy->busy && !copy->arrived)
			tb_store_cancel(tb_source_store(carry->where), &copy->read);
		else if (copy->busy)
			tb_buf_unref(copy->read.data);
	}
	tb_head_free(carry->old);
	tb_free(carry->part);
	tb_free(carry->lost);
	tb_source_unref(carry->where);
	tb_free(carry);
}
