/*
 * The documents and names of an index: key of a grid, paths of arrays, zarr.json texts. And the one
 * table of stored arrays. The cutting of the grid is geometry.c, the bytes of shards are shard.c,
 * the head is head.c.
 */
#include "hsi/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const TbStoredInfo stored_table[TB_N_STORED] = {
	[TB_STORED_VALID] = {"valid", TB_STORED_COUNT, true, true},
	[TB_STORED_NAN] = {"nan", TB_STORED_COUNT, true, true},
	[TB_STORED_MISSING] = {"missing", TB_STORED_COUNT, true, true},
	[TB_STORED_MIN] = {"min", TB_STORED_VALUE, true, true},
	[TB_STORED_MAX] = {"max", TB_STORED_VALUE, true, true},
	[TB_STORED_SUM] = {"sum", TB_STORED_FLOAT, true, true},
	[TB_STORED_M2] = {"m2", TB_STORED_FLOAT, true, true},
	[TB_STORED_VERSION] = {"version", TB_STORED_COUNT, true, false},
	[TB_STORED_MIN_HI] = {"min_hi", TB_STORED_VALUE, false, true},
	[TB_STORED_MAX_LO] = {"max_lo", TB_STORED_VALUE, false, true},
	[TB_STORED_VALID_LO] = {"valid_lo", TB_STORED_COUNT, false, true},
	[TB_STORED_VALID_HI] = {"valid_hi", TB_STORED_COUNT, false, true},
	[TB_STORED_NAN_LO] = {"nan_lo", TB_STORED_COUNT, false, true},
	[TB_STORED_NAN_HI] = {"nan_hi", TB_STORED_COUNT, false, true},
	[TB_STORED_MISSING_LO] = {"missing_lo", TB_STORED_COUNT, false, true},
	[TB_STORED_MISSING_HI] = {"missing_hi", TB_STORED_COUNT, false, true},
	[TB_STORED_MEAN_LO] = {"mean_lo", TB_STORED_FLOAT, false, true},
	[TB_STORED_MEAN_HI] = {"mean_hi", TB_STORED_FLOAT, false, true},
	[TB_STORED_STD_LO] = {"std_lo", TB_STORED_FLOAT, false, true},
	[TB_STORED_STD_HI] = {"std_hi", TB_STORED_FLOAT, false, true},
	[TB_STORED_NULL] = {"null", TB_STORED_FLAG, false, true},
	[TB_STORED_STD_NULL] = {"std_null", TB_STORED_FLAG, false, true},
};

const TbStoredInfo *
tb_stored_info(TbStored stored)
{
	return &stored_table[stored];
}

/* Half floats go to disk as float32, which every reader has; booleans as 0 and 1. */
TbDtype
tb_stored_dtype(TbStored stored, TbDtype stat)
{
	switch (stored_table[stored].kind)
	{
		case TB_STORED_COUNT:
			return TB_U64;
		case TB_STORED_FLOAT:
			return TB_F64;
		case TB_STORED_FLAG:
			return TB_U8;
		case TB_STORED_VALUE:
			break;
	}
	return stat == TB_F16 ? TB_F32 : stat == TB_BOOL ? TB_U8 : stat;
}

/* ---- names ---- */

const char *
tb_hsi_array_path(const TbGridInfo *info, int array)
{
	const char *path = tb_array_meta(info->array[array])->path;
	const char *group = info->group != NULL ? info->group : "";
	size_t		skip = strlen(group);

	return skip > 0 && strncmp(path, group, skip) == 0 && path[skip] == '/' ? path + skip + 1
																			: path;
}

/* Dimension names joined by '_', at most room characters, of a kind that is safe in every store's
 * keys. */
static void
join_dims(const TbGridInfo *info, char *text, size_t room)
{
	size_t		at = 0;

	for (int a = 0; a < info->ndim; a++)
	{
		if (a > 0 && at + 1 < room)
			text[at++] = '_';
		for (const char *c = info->dim_name[a]; *c != '\0' && at + 1 < room; c++)
		{
			bool		plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
				(*c >= '0' && *c <= '9') || *c == '-';

			text[at++] = plain ? *c : '_';
		}
	}
	text[at] = '\0';
}

/* An index that lies with its data moves with them; one that lies elsewhere is of one source alone. */
const char *
tb_hsi_of(const TbSource *where, const TbSource *data)
{
	return strcmp(tb_source_url(where), tb_source_url(data)) == 0 ? NULL : tb_source_url(data);
}

TbStatus
tb_hsi_key(const TbGridInfo *info, const char *of, char *key, size_t key_bytes, TbError *err)
{
	uint64_t	hash = TB_HSI_FORMAT;
	const char *group = info->group != NULL ? info->group : "";
	char		dims[64];
	int			n;

	for (int a = 0; a < info->ndim; a++)
	{
		uint64_t	shape = info->order[0] == a ? 0 : info->shape[a];
		uint64_t	order = (uint64_t) info->order[a];

		hash = tb_hash64(info->dim_name[a], strlen(info->dim_name[a]), hash);
		hash = tb_hash64(&shape, sizeof(shape), hash);
		hash = tb_hash64(&info->cell[a], sizeof(info->cell[a]), hash);
		hash = tb_hash64(&order, sizeof(order), hash);
	}
	if (of != NULL)
		hash = tb_hash64(of, strlen(of), hash);
	join_dims(info, dims, sizeof(dims));
	n = snprintf(key, key_bytes, ".tensorbank/hsi/%s%s%s-%016" PRIx64, group,
				 group[0] != '\0' ? "/" : "", dims, hash);
	if (n < 0 || (size_t) n >= key_bytes)
		return tb_fail(err, TB_E_LIMIT, "key of the index is too long");
	return TB_OK;
}

bool
tb_hsi_stored_path(char *path, const char *root, int level, const char *array, TbStored stored)
{
	int			n = snprintf(path, TB_HSI_KEY_BYTES, "%s/level_%d", root, level);
	size_t		at = (size_t) n;

	if (n < 0 || at >= TB_HSI_KEY_BYTES || array == NULL)
		return n >= 0 && at < TB_HSI_KEY_BYTES;
	if (at + 1 + strlen(array) >= TB_HSI_KEY_BYTES)
		return false;
	path[at++] = '/';
	for (; *array != '\0'; array++)
		path[at++] = *array == '/' ? '.' : *array;
	path[at] = '\0';
	if (stored == TB_N_STORED)
		return true;
	n = snprintf(path + at, TB_HSI_KEY_BYTES - at, "/%s", stored_table[stored].name);
	return n >= 0 && (size_t) n < TB_HSI_KEY_BYTES - at;
}

/* ---- zarr.json ---- */

TbStatus
tb_hsi_group_json(const char *attributes, TbBuf *out)
{
	return tb_buf_printf(out, "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":%s}\n",
						 attributes);
}

static TbStatus
print_numbers(TbBuf *out, const char *name, int n, const uint64_t *number)
{
	TbStatus	status = tb_buf_printf(out, "\"%s\":[", name);

	for (int i = 0; i < n && status == TB_OK; i++)
		status = tb_buf_printf(out, "%s%" PRIu64, i > 0 ? "," : "", number[i]);
	return status != TB_OK ? status : tb_buf_printf(out, "]");
}

/* crc32c is the last codec: zstd frames are written without a checksum of their own. */
static TbStatus
print_codecs(TbBuf *out, TbDtype dtype)
{
	const char *bytes = tb_dtype_size(dtype) > 1 ?
		"{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}" : "{\"name\":\"bytes\"}";

	return tb_buf_printf(out, "\"codecs\":[%s,{\"name\":\"zstd\",\"configuration\":"
						 "{\"level\":3,\"checksum\":false}},{\"name\":\"crc32c\"}]", bytes);
}

static TbStatus
print_sharding(const TbGeometry *geo, int level, TbDtype dtype, TbBuf *out)
{
	TbStatus	status;

	status = tb_buf_printf(out, "\"codecs\":[{\"name\":\"sharding_indexed\",\"configuration\":{");
	if (status == TB_OK)
		status = print_numbers(out, "chunk_shape", geo->ndim, geo->chunk[level]);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",");
	if (status == TB_OK)
		status = print_codecs(out, dtype);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":"
							   "{\"endian\":\"little\"}},{\"name\":\"crc32c\"}],"
							   "\"index_location\":\"end\"}}]");
	return status;
}

static TbStatus
print_dim_names(const TbGridInfo *info, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out, ",\"dimension_names\":[");

	for (int a = 0; a < info->ndim && status == TB_OK; a++)
	{
		if (a > 0)
			status = tb_buf_printf(out, ",");
		if (status == TB_OK)
			status = tb_json_quote(out, info->dim_name[a]);
	}
	return status != TB_OK ? status : tb_buf_printf(out, "]}\n");
}

TbStatus
tb_hsi_array_json(const TbGeometry *geo, int level, TbDtype dtype, const TbGridInfo *info,
				  TbBuf *out)
{
	TbStatus	status;

	status = tb_buf_printf(out, "{\"zarr_format\":3,\"node_type\":\"array\",\"attributes\":{},");
	if (status == TB_OK)
		status = print_numbers(out, "shape", geo->ndim, geo->shape[level]);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"data_type\":\"%s\",\"chunk_grid\":{\"name\":\"regular\","
							   "\"configuration\":{", tb_dtype_name(dtype));
	if (status == TB_OK)
		status = print_numbers(out, "chunk_shape", geo->ndim, geo->shard[level]);
	if (status == TB_OK)
		status = tb_buf_printf(out,
							   "}},\"chunk_key_encoding\":{\"name\":\"default\",\"configuration\":"
							   "{\"separator\":\"/\"}},\"fill_value\":%s,",
							   tb_dtype_is_float(dtype) ? "\"NaN\"" : "0");
	if (status == TB_OK)
		status = tb_geometry_sharded(geo, level) ? print_sharding(geo, level, dtype, out) :
			print_codecs(out, dtype);
	return status != TB_OK ? status : print_dim_names(info, out);
}
