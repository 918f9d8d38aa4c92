/*
 * The end of a build: level 0 is read back part by part, whoever wrote it and when, merged into
 * level 1 and from there upwards in memory; then the levels are written and the complete index is
 * published. One array at a time; memory is that of its level 1.
 */
#include <math.h>
#include <string.h>

#include "hsi/stat.h"
#include "hsi/writer.h"

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

/* One shard of every stored array of a level. */
static TbStatus
write_shard(TbHsiWriter *writer, int level, const TbBox *box, const TbNodeStats *node, TbError *err)
{
	const TbHead *head = writer->head;
	int			array = writer->finish.array;
	uint64_t	n = tb_box_nodes(head->ndim, box);
	TbValue    *value = tb_calloc(n, sizeof(TbValue));
	TbShardData data = {.level = level, .box = box, .value = value};
	TbStatus	status = value == NULL ? no_memory(err) : TB_OK;

	for (int s = 0; s < TB_N_STORED && status == TB_OK; s++)
	{
		TbDtype		dtype = tb_stored_dtype((TbStored) s, head->array[array].stat);
		uint64_t	index[TB_MAX_DIM];

		if (!tb_stored_info((TbStored) s)->inner)
			continue;
		memcpy(index, box->start, sizeof(index));
		for (uint64_t i = 0; i < n; i++)
		{
			uint64_t	number = 0;

			for (int a = 0; a < head->ndim; a++)
				number = number * head->geo.shape[level][a] + index[a];
			value[i] = stored_value(&node[number], (TbStored) s, dtype);
			next_index(head->ndim, box, index);
		}
		data.dtype = dtype;
		status = tb_write_object(writer, array, (TbStored) s, &data, err);
	}
	tb_free(value);
	return status;
}

static TbStatus
write_level(TbHsiWriter *writer, int level, const TbNodeStats *node, TbError *err)
{
	const TbGeometry *geo = &writer->head->geo;
	TbBox		box = {{0}, {0}};
	TbStatus	status = TB_OK;
	int			a;

	do
	{
		for (a = 0; a < geo->ndim; a++)
		{
			uint64_t	rest = geo->shape[level][a] - box.start[a];

			box.count[a] = geo->shard[level][a] < rest ? geo->shard[level][a] : rest;
		}
		status = write_shard(writer, level, &box, node, err);
		for (a = geo->ndim - 1; a >= 0 && status == TB_OK; a--)
		{
			box.start[a] += geo->shard[level][a];
			if (box.start[a] < geo->shape[level][a])
				break;
			box.start[a] = 0;
		}
	} while (a >= 0 && status == TB_OK);
	return status;
}

/* Every level of the array whose level 1 is complete. */
static TbStatus
write_array(TbHsiWriter *writer, TbError *err)
{
	const TbGeometry *geo = &writer->head->geo;
	TbClass		class = class_of(writer->head, writer->finish.array);
	TbNodeStats *node = writer->finish.node;
	TbStatus	status = TB_OK;

	writer->finish.node = NULL;
	for (int k = 1; k < geo->n_levels && status == TB_OK; k++)
	{
		TbNodeStats *up = NULL;

		status = write_level(writer, k, node, err);
		if (status == TB_OK && k + 1 < geo->n_levels)
			status = merge_level(geo, k, class, node, &up, err);
		tb_free(node);
		node = up;
	}
	tb_free(node);
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

static TbStatus
open_fetches(TbHsiWriter *writer, const TbBox *box, TbError *err)
{
	TbRegion	region = {.ndim = writer->head->ndim};
	TbStatus	status = TB_OK;

	memcpy(region.start, box->start, sizeof(region.start));
	memcpy(region.count, box->count, sizeof(region.count));
	for (int s = 0; s < TB_LEAF_STORED && status == TB_OK; s++)
		if (writer->finish.fetch[s] == NULL)
			status = tb_fetch_open(writer->finish.zarr[s], &region, &writer->finish.fetch[s], err);
	for (int s = 0; s < TB_LEAF_STORED && status == TB_OK; s++)
		status = tb_fetch_poll(writer->finish.fetch[s], err);
	return status;
}

static TbStatus
decode_one(TbHsiWriter *writer, int stored, uint64_t n, TbValue **value, TbError *err)
{
	TbDtype		stat = writer->head->array[writer->finish.array].stat;
	TbDtype		dtype = tb_stored_dtype((TbStored) stored, stat);
	size_t		bytes = n * tb_dtype_size(dtype);
	TbTreatment raw = {.raw = true, .cast = TB_NONE};
	void	   *packed;
	TbStatus	status;

	if (tb_fetch_all_missing(writer->finish.fetch[stored]))
		return tb_fail(err, TB_E_INDEX_CORRUPT, "part of the index is missing");
	packed = tb_malloc(bytes);
	*value = tb_calloc(n, sizeof(TbValue));
	if (packed == NULL || *value == NULL)
		status = no_memory(err);
	else
		status = tb_fetch_decode(writer->finish.fetch[stored], raw, packed, bytes, err);
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
	uint64_t	n = tb_box_nodes(writer->head->ndim, box);
	TbStatus	status = TB_OK;

	for (int s = 0; s < TB_LEAF_STORED && status == TB_OK; s++)
		status = decode_one(writer, s, n, &value[s], err);
	if (status == TB_OK)
		merge_part(writer, box, value);
	for (int s = 0; s < TB_LEAF_STORED; s++)
	{
		tb_free(value[s]);
		tb_fetch_free(writer->finish.fetch[s]);
		writer->finish.fetch[s] = NULL;
	}
	return status;
}

static TbStatus
finish_array(TbHsiWriter *writer, TbError *err)
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
		status = open_fetches(writer, &box, err);
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
	return write_array(writer, err);
}

static TbStatus
begin(TbHsiWriter *writer, TbError *err)
{
	const TbGeometry *geo = &writer->head->geo;
	TbStatus	status = TB_OK;

	if (tb_head_parts_done(writer->head) != geo->n_parts)
		return tb_fail(err, TB_E_STATE, "the index lacks parts");
	for (int k = 1; k < geo->n_levels && status == TB_OK; k++)
		status = tb_write_level_json(writer, k, err);
	writer->finish.begun = status == TB_OK;
	/* With one level there is nothing to merge. */
	writer->finish.array = geo->n_levels == 1 ? writer->head->n_arrays : 0;
	return status;
}

TbStatus
tb_hsi_writer_finish(TbHsiWriter *writer, TbError *err)
{
	TbStatus	status = TB_OK;

	if (writer->head->complete)
		return TB_OK;
	if (!writer->finish.begun)
		status = begin(writer, err);
	while (status == TB_OK && writer->finish.array < writer->head->n_arrays)
	{
		status = finish_array(writer, err);
		if (status == TB_OK)
			writer->finish.array++;
	}
	if (status != TB_OK)
		return status;
	writer->head->complete = true;
	status = tb_write_head(writer, err);
	writer->head->complete = status == TB_OK;
	return status;
}
