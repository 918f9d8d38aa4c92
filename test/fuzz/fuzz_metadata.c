/*
 * Fuzz target: everything that parses metadata. Byte 0 chooses: zarr.json, .zarray with .zattrs
 * (divided by a zero byte), .zgroup, .zmetadata, a shard index, units of time. Whatever comes, an
 * answer comes: arrays that are said to be usable have sizes within the caps, keys, and a packing;
 * nothing is left allocated.
 */
#include "zarr/zarr.h"

#include <stdlib.h>
#include <string.h>

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool truth)
{
	if (!truth)
		abort();
}

static TbBuf *
buf_of(const uint8_t *data, size_t size)
{
	TbBuf	   *buf = tb_buf_new(size);

	require(buf != NULL && tb_buf_append(buf, data, size, SIZE_MAX) == TB_OK);
	return buf;
}

static void
check_array(const TbArrayMeta *meta)
{
	uint64_t	index[TB_MAX_DIM];
	size_t		key_bytes = strlen(meta->path) + 2 + TB_MAX_DIM * 21 + 1;
	char	   *key = malloc(key_bytes);
	size_t		chunk_bytes = tb_dtype_size(meta->dtype);
	TbArrayMeta *copy = tb_array_meta_copy(meta);

	require(key != NULL && copy != NULL && meta->ndim >= 0 && meta->ndim <= TB_MAX_DIM &&
			chunk_bytes > 0);
	for (int i = 0; i < meta->ndim; i++)
	{
		require(meta->shape[i] <= INT64_MAX && meta->chunk[i] > 0 &&
				meta->grid_chunk[i] % meta->chunk[i] == 0);
		require(meta->dim_name[i] != NULL && meta->dim_name[i][0] != '\0');
		for (int k = 0; k < i; k++)
			require(strcmp(meta->dim_name[i], meta->dim_name[k]) != 0);
		require(tb_mul_size(chunk_bytes, (size_t) meta->chunk[i], &chunk_bytes));
		index[i] = UINT64_MAX;
	}
	require(chunk_bytes <= TB_CHUNK_MAX_BYTES && meta->codecs != NULL);
	for (int i = 0; i < meta->n_shard_levels; i++)
		require(meta->shard[i].index_bytes >= meta->shard[i].n_entries * 16 &&
				meta->shard[i].n_entries > 0);
	require(meta->packing.decoded != TB_NONE && meta->packing.n_sentinels <= TB_MAX_SENTINELS);
	require(tb_dtype_size(meta->packing.packed) == tb_dtype_size(meta->dtype));
	require(tb_chunk_key(meta, index, key, key_bytes));
	tb_array_meta_free(copy);
	free(key);
}

static void
check_nodes(TbStatus status, TbNodes *nodes)
{
	require(status == TB_OK || nodes->n == 0);
	for (size_t i = 0; i < nodes->n; i++)
	{
		TbNode	   *node = &nodes->node[i];

		require(node->path != NULL && node->status == node->error.code);
		require((node->array != NULL) == (!node->is_group && node->status == TB_OK));
		if (node->array != NULL)
			check_array(node->array);
	}
	tb_nodes_free(nodes);
}

static void
parse_document(int kind, const uint8_t *data, size_t size)
{
	const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
	size_t		first = zero != NULL && kind < 3 ? (size_t) (zero - data) : size;
	TbBuf	   *main = buf_of(data, first);
	TbBuf	   *zattrs = first < size ? buf_of(data + first + 1, size - first - 1) : NULL;
	TbNodes		nodes = {0};
	bool		consolidated;
	TbError		err;
	TbStatus	status;

	if (kind == 0)
		status = tb_zarr_parse_v3("p", main, &nodes, &consolidated, &err);
	else if (kind == 1)
		status = tb_zarr_parse_v2_array("", main, zattrs, &nodes, &err);
	else if (kind == 2)
		status = tb_zarr_parse_v2_group("p", main, zattrs, &nodes, &err);
	else
		status = tb_zarr_parse_v2_consolidated("p", main, &nodes, &err);
	require(status == TB_OK || err.code == status);
	check_nodes(status, &nodes);
	tb_buf_unref(main);
	tb_buf_unref(zattrs);
}

/* Flags, the shard's size in two bytes, the index. What was proved keeps within the shard. */
static void
check_index(const uint8_t *data, size_t size)
{
	TbShardLevel level = {0};
	uint64_t	shard_bytes;
	TbError		err;

	if (size < 3)
		return;
	level.index_crc = (data[0] & 1) != 0;
	level.index_at_start = (data[0] & 2) != 0;
	level.index_big_endian = (data[0] & 4) != 0;
	shard_bytes = (data[0] & 8) != 0 ? UINT64_MAX : (uint64_t) data[1] << 8 | data[2];
	data += 3;
	size -= 3;
	level.n_entries = size / 16;
	level.index_bytes = level.n_entries * 16 + (level.index_crc ? 4 : 0);
	if (tb_shard_index_check(&level, data, size, shard_bytes, &err) != TB_OK)
		return;
	for (uint64_t i = 0; i < level.n_entries; i++)
	{
		TbShardEntry entry = tb_shard_index_entry(&level, data, i);

		require(entry.missing ||
				(entry.offset <= shard_bytes && entry.length <= shard_bytes - entry.offset));
	}
}

/* A value of eight bytes, then the units and, behind a zero byte, the calendar. */
static void
check_time(const uint8_t *data, size_t size)
{
	TbBuf	   *text;
	const char *calendar;
	TbTimeUnits units;
	double		value;
	int64_t		integer;
	int64_t		lo;
	int64_t		hi;

	if (size < 8)
		return;
	memcpy(&value, data, 8);
	memcpy(&integer, data, 8);
	text = buf_of(data + 8, size - 8);
	require(tb_buf_append(text, "\0", 2, SIZE_MAX) == TB_OK);
	calendar = (const char *) text->data + strlen((const char *) text->data) + 1;
	units = tb_time_units((const char *) text->data, calendar[0] != '\0' ? calendar : NULL);
	if (tb_time_instant(&units, value, &lo, &hi))
		require(lo == hi || lo + 1 == hi);
	if (tb_time_instant_int(&units, integer, &lo))
		require(units.is_time);
	tb_buf_unref(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int64_t		live = tb_mem_live();

	if (size == 0)
		return 0;
	switch (data[0] % 6)
	{
		case 4:
			check_index(data + 1, size - 1);
			break;
		case 5:
			check_time(data + 1, size - 1);
			break;
		default:
			parse_document(data[0] % 6, data + 1, size - 1);
			break;
	}
	require(tb_mem_live() == live);
	return 0;
}
