/*
 * Bytes of the stored objects of an index: values to their type on disk and back, chunks (bytes,
 * zstd, crc32c) and shards with their index. source: Zarr v3 sharding_indexed 1.0, "binary shard
 * format".
 */
#include <math.h>
#include <string.h>

#include "hsi/format.h"

#define ZSTD_LEVEL 3
#define OBJECT_LIMIT ((size_t) 1 << 31)

#define UNPACK(type, member) \
	for (size_t i = 0; i < n; i++) \
	{ \
		type		e; \
		memcpy(&e, (const uint8_t *) packed + i * sizeof(e), sizeof(e)); \
		value[i].member = e; \
	} \
	break

#define PACK(type, member) \
	for (size_t i = 0; i < n; i++) \
	{ \
		type		e = (type) value[i].member; \
		memcpy((uint8_t *) packed + i * sizeof(e), &e, sizeof(e)); \
	} \
	break

void
tb_stored_unpack(TbDtype dtype, const void *packed, size_t n, TbValue *value)
{
	switch (dtype)
	{
		case TB_U8:
			UNPACK(uint8_t, i64);
		case TB_I8:
			UNPACK(int8_t, i64);
		case TB_I16:
			UNPACK(int16_t, i64);
		case TB_U16:
			UNPACK(uint16_t, i64);
		case TB_I32:
			UNPACK(int32_t, i64);
		case TB_U32:
			UNPACK(uint32_t, i64);
		case TB_I64:
			UNPACK(int64_t, i64);
		case TB_U64:
			UNPACK(uint64_t, u64);
		case TB_F32:
			UNPACK(float, f64);
		case TB_F64:
			UNPACK(double, f64);
		default:
			break;
	}
}

void
tb_stored_pack(TbDtype dtype, const TbValue *value, size_t n, void *packed)
{
	switch (dtype)
	{
		case TB_U8:
			PACK(uint8_t, i64);
		case TB_I8:
			PACK(int8_t, i64);
		case TB_I16:
			PACK(int16_t, i64);
		case TB_U16:
			PACK(uint16_t, i64);
		case TB_I32:
			PACK(int32_t, i64);
		case TB_U32:
			PACK(uint32_t, i64);
		case TB_I64:
			PACK(int64_t, i64);
		case TB_U64:
			PACK(uint64_t, u64);
		case TB_F32:
			PACK(float, f64);
		case TB_F64:
			PACK(double, f64);
		default:
			break;
	}
}

/* Where one chunk's nodes are found in the values of a box that holds it. */
typedef struct Chunk
{
	int			ndim;
	uint64_t	at[TB_MAX_DIM];		/* of the chunk, relative to the box */
	uint64_t	full[TB_MAX_DIM];	/* lengths of a whole chunk */
	uint64_t	count[TB_MAX_DIM];	/* of those, inside the box */
	uint64_t	box[TB_MAX_DIM];
} Chunk;

/* Copy the rows of a chunk out of the box; what lies beyond the box keeps its fill. */
static void
gather(const Chunk *chunk, int axis, const TbValue *from, TbValue *to)
{
	uint64_t	box_stride = 1;
	uint64_t	full_stride = 1;

	if (chunk->ndim == 0)
	{
		*to = *from;
		return;
	}
	for (int a = axis + 1; a < chunk->ndim; a++)
	{
		box_stride *= chunk->box[a];
		full_stride *= chunk->full[a];
	}
	from += chunk->at[axis] * box_stride;
	if (axis == chunk->ndim - 1)
	{
		memcpy(to, from, chunk->count[axis] * sizeof(*to));
		return;
	}
	for (uint64_t i = 0; i < chunk->count[axis]; i++)
		gather(chunk, axis + 1, from + i * box_stride, to + i * full_stride);
}

/* Append one chunk's encoded bytes: little-endian elements, zstd, crc32c. */
static TbStatus
encode_chunk(const TbValue *value, size_t n, TbDtype dtype, uint8_t *packed, TbBuf *out,
			 TbError *err)
{
	size_t		start = out->len;
	uint32_t	crc;
	TbStatus	status;

	tb_stored_pack(dtype, value, n, packed);
	status = tb_zstd_encode(packed, n * tb_dtype_size(dtype), ZSTD_LEVEL, out, err);
	if (status != TB_OK)
		return status;
	crc = tb_crc32c(0, out->data + start, out->len - start);
	return tb_buf_append(out, &crc, sizeof(crc), OBJECT_LIMIT);
}

typedef struct Encoder
{
	const TbGeometry *geo;
	int			level;
	const TbBox *box;
	TbDtype		dtype;
	const TbValue *value;
	size_t		nodes;			/* in a whole chunk */
	TbValue    *plain;			/* owned; nodes of them */
	uint8_t    *packed;			/* owned */
	uint64_t   *index;			/* owned; 2 * n_entries, and room for the crc */
	size_t		n_entries;
} Encoder;

static TbStatus
encode_entry(const Encoder *encoder, size_t entry, TbBuf *out, TbError *err)
{
	const TbGeometry *geo = encoder->geo;
	TbValue		fill = {0};
	Chunk		chunk = {.ndim = geo->ndim};
	size_t		rest = entry;
	size_t		start = out->len;
	TbStatus	status;

	encoder->index[2 * entry] = encoder->index[2 * entry + 1] = UINT64_MAX;
	for (int a = geo->ndim - 1; a >= 0; a--)
	{
		uint64_t	n = geo->shard[encoder->level][a] / geo->chunk[encoder->level][a];

		chunk.full[a] = geo->chunk[encoder->level][a];
		chunk.box[a] = encoder->box->count[a];
		chunk.at[a] = rest % n * chunk.full[a];
		rest /= n;
		if (chunk.at[a] >= chunk.box[a])
			return TB_OK;		/* outside the array: a missing chunk */
		chunk.count[a] = chunk.box[a] - chunk.at[a];
		if (chunk.count[a] > chunk.full[a])
			chunk.count[a] = chunk.full[a];
	}
	if (tb_dtype_is_float(encoder->dtype))
		fill.f64 = NAN;
	for (size_t i = 0; i < encoder->nodes; i++)
		encoder->plain[i] = fill;
	gather(&chunk, 0, encoder->value, encoder->plain);
	status =
		encode_chunk(encoder->plain, encoder->nodes, encoder->dtype, encoder->packed, out, err);
	encoder->index[2 * entry] = start;
	encoder->index[2 * entry + 1] = out->len - start;
	return status;
}

static TbStatus
encode_all(const Encoder *encoder, TbBuf *out, TbError *err)
{
	uint32_t	crc;
	TbStatus	status = TB_OK;

	for (size_t i = 0; i < encoder->n_entries && status == TB_OK; i++)
		status = encode_entry(encoder, i, out, err);
	if (status != TB_OK || !tb_geometry_sharded(encoder->geo, encoder->level))
		return status;
	crc = tb_crc32c(0, encoder->index, encoder->n_entries * 16);
	status = tb_buf_append(out, encoder->index, encoder->n_entries * 16, OBJECT_LIMIT);
	return status != TB_OK ? status : tb_buf_append(out, &crc, sizeof(crc), OBJECT_LIMIT);
}

TbStatus
tb_hsi_encode(const TbGeometry *geo, const TbShardData *data, TbBuf *out, TbError *err)
{
	Encoder		encoder = {.geo = geo, .level = data->level, .box = data->box,
						   .dtype = data->dtype, .value = data->value};
	TbStatus	status;

	encoder.nodes = encoder.n_entries = 1;
	for (int a = 0; a < geo->ndim; a++)
	{
		encoder.nodes *= geo->chunk[data->level][a];
		encoder.n_entries *= geo->shard[data->level][a] / geo->chunk[data->level][a];
	}
	encoder.plain = tb_calloc(encoder.nodes, sizeof(TbValue));
	encoder.packed = tb_calloc(encoder.nodes, tb_dtype_size(data->dtype));
	encoder.index = tb_calloc(encoder.n_entries, 16);
	if (encoder.plain == NULL || encoder.packed == NULL || encoder.index == NULL)
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else
		status = encode_all(&encoder, out, err);
	tb_free(encoder.plain);
	tb_free(encoder.packed);
	tb_free(encoder.index);
	return status;
}
