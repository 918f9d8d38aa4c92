/*
 * The end of a build: level 0 is read back part by part, whoever wrote it and when, merged into
 * level 1 and from there upwards in memory; then the levels are written and the complete index is
 * published. One array at a time; memory is that of its level 1.
 */
#include <math.h>
#include <string.h>

#include "hsi/stat.h"
#include "hsi/writer.h"

#define READ_AHEAD_NODES ((uint64_t) 1 << 18)	/* of parts that are read back: 56 bytes each */

static TbStatus
no_memory(TbError *err)
{
	return tb_fail(err, TB_E_NOMEM, "out of memory");
}

static TbClass
class_of(const TbHead *head, int array)
{
	TbDtype		stat = head->array[array].stat;

	return tb_dtype_is_float(stat) ? TB_CLASS_F64 : stat == TB_U64 ? TB_CLASS_U64 : TB_CLASS_I64;
}

/* ---- merging ---- */

/* Number of the node of a level that an index lies in, C order. */
static uint64_t
number_above(const TbGeometry *geo, int level, const uint64_t *index)
{
	uint64_t	number = 0;

	for (int a = 0; a < geo->ndim; a++)
		number = number * geo->shape[level][a] + index[a] / geo->fan[a];
	return number;
}

/* Move an index on within a box, C order. */
static void
next_index(int ndim, const TbBox *box, uint64_t *index)
{
	for (int a = ndim - 1; a >= 0; a--)
	{
		if (++index[a] < box->start[a] + box->count[a])
			return;
		index[a] = box->start[a];
	}
}

/* Merge the leaves of a part into level 1. value: per stored array of a leaf, C order over box. */
static void
merge_part(TbHsiWriter *writer, const TbBox *box, TbValue *const *value)
{
	const TbGeometry *geo = &writer->head->geo;
	TbClass		class = class_of(writer->head, writer->finish.array);
	uint64_t	n = tb_box_nodes(geo->ndim, box);
	uint64_t	index[TB_MAX_DIM];

	memcpy(index, box->start, sizeof(index));
	for (uint64_t i = 0; i < n; i++)
	{
		TbLeaf		leaf = {0};
		TbNodeStats node;

		for (int s = 0; s < TB_LEAF_STORED; s++)
			tb_leaf_set(&leaf, (TbStored) s, value[s][i]);
		tb_node_from_leaf(&node, &leaf, class);
		tb_node_merge(&writer->finish.node[number_above(geo, 1, index)], &node, class);
		next_index(geo->ndim, box, index);
	}
}

/* Merge a level into the next; both in C order. owns: *up is the caller's. */
static TbStatus
merge_level(const TbGeometry *geo, int level, TbClass class, const TbNodeStats *node,
			TbNodeStats **up, TbError *err)
{
	uint64_t	index[TB_MAX_DIM] = {0};
	TbBox		box = {{0}, {0}};

	memcpy(box.count, geo->shape[level], sizeof(box.count));
	*up = tb_calloc(geo->nodes[level + 1], sizeof(TbNodeStats));
	if (*up == NULL)
		return no_memory(err);
	for (uint64_t i = 0; i < geo->nodes[level]; i++)
	{
		tb_node_merge(&(*up)[number_above(geo, level + 1, index)], &node[i], class);
		next_index(geo->ndim, &box, index);
	}
	return TB_OK;
}

/* ---- writing ---- */

/* Where nothing is known a plain reader sees a gap. */
static TbValue
stored_value(const TbNodeStats *node, TbStored stored, TbDtype dtype)
{
	bool		is_std = stored == TB_STORED_STD_LO || stored == TB_STORED_STD_HI;
	TbStoredKind kind = tb_stored_info(stored)->kind;
	TbNulls		nulls = is_std ? node->std_null : node->null;
	bool		is_sum = stored == TB_STORED_SUM || stored == TB_STORED_M2;

	if (nulls == TB_NULLS_ALL && !is_sum && (kind == TB_STORED_VALUE || kind == TB_STORED_FLOAT))
		return tb_dtype_is_float(dtype) ? (TbValue) {.f64 = NAN} : (TbValue) {0};
	return tb_node_value(node, stored);
}

/* One stored array of the shard that is written, from the level's nodes. */
static TbStatus
write_stored(TbHsiWriter *writer, const TbBox *box, TbStored stored, TbError *err)
{
	const TbHead *head = writer->head;
	const TbFinish *finish = &writer->finish;
	const uint64_t *shape = head->geo.shape[finish->level];
	TbDtype		dtype = tb_stored_dtype(stored, head->array[finish->array].stat);
	uint64_t	n = tb_box_nodes(head->ndim, box);
	TbValue    *value = tb_calloc(n, sizeof(TbValue));
	TbShardData data = {.level = finish->level, .box = box, .value = value, .dtype = dtype};
	uint64_t	index[TB_MAX_DIM];
	TbStatus	status;

	if (value == NULL)
		return no_memory(err);
	memcpy(index, box->start, sizeof(index));
	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	number = 0;

		for (int a = 0; a < head->ndim; a++)
			number = number * shape[a] + index[a];
		value[i] = stored_value(&finish->node[number], stored, dtype);
		next_index(head->ndim, box, index);
	}
	status = tb_write_object(writer, finish->array, stored, &data, err);
	tb_free(value);
	return status;
}

/* Every shard of the level, from where it stood. AGAIN while puts are full. */
static TbStatus
write_level(TbHsiWriter *writer, TbError *err)
{
	const TbGeometry *geo = &writer->head->geo;
	TbFinish   *finish = &writer->finish;
	const uint64_t *shape = geo->shape[finish->level];
	const uint64_t *shard = geo->shard[finish->level];
	TbBox		box = {{0}, {0}};
	int			a;

	do
	{
		for (a = 0; a < geo->ndim; a++)
		{
			uint64_t	rest = shape[a] - finish->start[a];

			box.start[a] = finish->start[a];
			box.count[a] = shard[a] < rest ? shard[a] : rest;
		}
		for (; finish->stored < TB_N_STORED; finish->stored++)
		{
			TbStatus	status;

			if (!tb_stored_info((TbStored) finish->stored)->inner)
				continue;
			if (tb_puts_full(&writer->puts))
				return TB_AGAIN;
			status = write_stored(writer, &box, (TbStored) finish->stored, err);
			if (status != TB_OK)
				return status;
		}
		finish->stored = 0;
		for (a = geo->ndim - 1; a >= 0; a--)
		{
			finish->start[a] += shard[a];
			if (finish->start[a] < shape[a])
				break;
			finish->start[a] = 0;
		}
	} while (a >= 0);
	return TB_OK;
}

/* Every level of the array whose level 1 is complete. */
static TbStatus
write_array(TbHsiWriter *writer, TbError *err)
{
	const TbGeometry *geo = &writer->head->geo;
	TbFinish   *finish = &writer->finish;
	TbClass		class = class_of(writer->head, finish->array);
	TbStatus	status = TB_OK;

	while (status == TB_OK && finish->level < geo->n_levels)
	{
		TbNodeStats *up = NULL;

		status = write_level(writer, err);
		if (status == TB_OK && finish->level + 1 < geo->n_levels)
			status = merge_level(geo, finish->level, class, finish->node, &up, err);
		if (status != TB_OK)
			break;
		tb_free(finish->node);
		finish->node = up;
		finish->level++;
	}
	return status;
}

/* ---- reading back ---- */

static TbStatus
open_arrays(TbHsiWriter *writer, TbError *err)
{
	const char *array = writer->head->array[writer->finish.array].path;
	TbStatus	status = TB_OK;

	for (int s = 0; s < TB_LEAF_STORED && status == TB_OK; s++)
	{
		char		path[TB_HSI_KEY_BYTES];

		if (writer->finish.zarr[s] == NULL)
		{
			if (!tb_hsi_stored_path(path, writer->root, 0, array, (TbStored) s))
				return tb_fail(err, TB_E_LIMIT, "key of the index is too long");
			status = tb_array_open(writer->where, path, 0, &writer->finish.zarr[s], err);
		}
	}
	for (int s = 0; s < TB_LEAF_STORED && status == TB_OK; s++)
		status = tb_array_poll(writer->finish.zarr[s], err);
	return status;
}

/* Have the statistics of a part fetched. AGAIN, OK: they are here. */
static TbStatus
fetch_part(TbHsiWriter *writer, uint64_t part, TbError *err)
{
	TbFetch   **fetch = writer->finish.fetch[part % TB_PARTS_AHEAD];
	TbRegion	region = {.ndim = writer->head->ndim};
	bool		waiting = false;
	TbBox		box;

	tb_geometry_part_box(&writer->head->geo, part, &box);
	memcpy(region.start, box.start, sizeof(region.start));
	memcpy(region.count, box.count, sizeof(region.count));
	for (int s = 0; s < TB_LEAF_STORED; s++)
	{
		TbStatus	status = TB_OK;

		if (fetch[s] == NULL)
			status = tb_fetch_open(writer->finish.zarr[s], &region, &fetch[s], err);
		if (status == TB_OK)
			status = tb_fetch_poll(fetch[s], err);
		if (status != TB_OK && status != TB_AGAIN)
			return status;
		waiting = waiting || status == TB_AGAIN;
	}
	return waiting ? TB_AGAIN : TB_OK;
}

/* The part that is next, and as many behind it as fit a bound of memory: an answer takes its time. */
static TbStatus
fetch_parts(TbHsiWriter *writer, TbError *err)
{
	const TbGeometry *geo = &writer->head->geo;
	TbFinish   *finish = &writer->finish;
	TbStatus	status = fetch_part(writer, finish->part, err);
	TbBox		box;
	uint64_t	ahead;

	tb_geometry_part_box(geo, finish->part, &box);
	ahead = READ_AHEAD_NODES / tb_box_nodes(geo->ndim, &box);
	for (uint64_t k = 1; k < ahead && k < TB_PARTS_AHEAD && finish->part + k < geo->n_parts; k++)
	{
		/* how it goes is looked at when it is its turn */
		TbStatus	later = fetch_part(writer, finish->part + k, NULL);

		if (later != TB_OK && later != TB_AGAIN)
			break;
	}
	return status;
}

static TbStatus
decode_one(TbHsiWriter *writer, int stored, uint64_t n, TbValue **value, TbError *err)
{
	TbFetch    *fetch = writer->finish.fetch[writer->finish.part % TB_PARTS_AHEAD][stored];
	TbDtype		stat = writer->head->array[writer->finish.array].stat;
	TbDtype		dtype = tb_stored_dtype((TbStored) stored, stat);
	size_t		bytes = n * tb_dtype_size(dtype);
	TbTreatment raw = {.raw = true, .cast = TB_NONE};
	void	   *packed;
	TbStatus	status;

	if (tb_fetch_all_missing(fetch))
		return tb_fail(err, TB_E_INDEX_CORRUPT, "part of the index is missing");
	packed = tb_malloc(bytes);
	*value = tb_calloc(n, sizeof(TbValue));
	if (packed == NULL || *value == NULL)
		status = no_memory(err);
	else
		status = tb_fetch_decode(fetch, raw, packed, bytes, err);
	if (status == TB_OK)
		tb_stored_unpack(dtype, packed, n, *value);
	tb_free(packed);
	return status;
}

/* The part's statistics are here: decode and merge them. */
static TbStatus
take_part(TbHsiWriter *writer, const TbBox *box, TbError *err)
{
	TbValue    *value[TB_LEAF_STORED] = {NULL};
	TbFetch   **fetch = writer->finish.fetch[writer->finish.part % TB_PARTS_AHEAD];
	uint64_t	n = tb_box_nodes(writer->head->ndim, box);
	TbStatus	status = TB_OK;

	for (int s = 0; s < TB_LEAF_STORED && status == TB_OK; s++)
		status = decode_one(writer, s, n, &value[s], err);
	if (status == TB_OK)
		merge_part(writer, box, value);
	for (int s = 0; s < TB_LEAF_STORED; s++)
	{
		tb_free(value[s]);
		tb_fetch_free(fetch[s]);
		fetch[s] = NULL;
	}
	return status;
}

/* Read all parts of the array back, into level 1. */
static TbStatus
read_array(TbHsiWriter *writer, TbError *err)
{
	const TbGeometry *geo = &writer->head->geo;
	TbFinish   *finish = &writer->finish;
	TbStatus	status = open_arrays(writer, err);

	if (status == TB_OK && finish->node == NULL)
	{
		finish->node = tb_calloc(geo->nodes[1], sizeof(TbNodeStats));
		finish->part = 0;
		status = finish->node == NULL ? no_memory(err) : TB_OK;
	}
	while (status == TB_OK && finish->part < geo->n_parts)
	{
		TbBox		box;

		tb_geometry_part_box(geo, finish->part, &box);
		status = fetch_parts(writer, err);
		if (status == TB_OK)
			status = take_part(writer, &box, err);
		if (status == TB_OK)
			finish->part++;
	}
	if (status != TB_OK)
		return status;
	for (int s = 0; s < TB_LEAF_STORED; s++)
	{
		tb_array_unref(finish->zarr[s]);
		finish->zarr[s] = NULL;
	}
	return TB_OK;
}

static TbStatus
finish_array(TbHsiWriter *writer, TbError *err)
{
	TbFinish   *finish = &writer->finish;
	TbStatus	status = TB_OK;

	if (finish->level == 0)
	{
		status = read_array(writer, err);
		finish->level = status == TB_OK ? 1 : 0;
	}
	if (status == TB_OK)
		status = write_array(writer, err);
	if (status == TB_OK)
		finish->level = 0;
	return status;
}

static TbStatus
begin(TbHsiWriter *writer, TbError *err)
{
	const TbGeometry *geo = &writer->head->geo;
	TbFinish   *finish = &writer->finish;
	TbStatus	status = TB_OK;

	if (tb_head_parts_done(writer->head) != geo->n_parts)
		return tb_fail(err, TB_E_STATE, "the index lacks parts");
	if (finish->meta_level == 0)
		finish->meta_level = 1;
	while (finish->meta_level < geo->n_levels)
	{
		status = tb_write_level_json(writer, finish->meta_level, &finish->item, err);
		if (status != TB_OK)
			return status;
		finish->meta_level++;
		finish->item = 0;
	}
	finish->begun = true;
	/* With one level there is nothing to merge. */
	finish->array = geo->n_levels == 1 ? writer->head->n_arrays : 0;
	return TB_OK;
}

/* All levels of all arrays, written. */
static TbStatus
write_all(TbHsiWriter *writer, TbError *err)
{
	TbStatus	status = TB_OK;

	if (!writer->finish.begun)
		status = begin(writer, err);
	while (status == TB_OK && writer->finish.array < writer->head->n_arrays)
	{
		status = finish_array(writer, err);
		if (status == TB_OK)
			writer->finish.array++;
	}
	return status == TB_OK ? tb_puts_wait(&writer->puts, err) : status;
}

TbStatus
tb_hsi_writer_finish(TbHsiWriter *writer, TbError *err)
{
	TbFinish   *finish = &writer->finish;
	TbStatus	status = TB_OK;

	if (writer->head->complete && !finish->publishing)
		return TB_OK;
	if (!finish->publishing)
	{
		status = write_all(writer, err);
		finish->publishing = status == TB_OK;
		writer->head->complete = status == TB_OK;
	}
	if (status == TB_OK)
		status = tb_write_head(writer, err);
	if (finish->publishing && status != TB_AGAIN)
	{
		finish->publishing = false;
		writer->head->complete = status == TB_OK;
	}
	return status;
}
