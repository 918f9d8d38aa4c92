/*
 * `bytes`: array elements to bytes in one of the two byte orders. Native order is no work at all,
 * the other is swapped, in place where the chain can. Booleans are made 0 or 1, as memory wants
 * them. source: Zarr v3 codecs, "bytes" 1.0.
 */
#include "codec/inner.h"

#include <string.h>

#define NATIVE_IS_BIG (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

typedef enum BytesWork
{
	WORK_NONE, WORK_BOOL, WORK_SWAP2, WORK_SWAP4, WORK_SWAP8
} BytesWork;

typedef struct BytesState
{
	BytesWork	work;
	size_t		bytes;
} BytesState;

/* Read "endian". errors: INVALID where it is needed and not there, or no byte order. */
static TbStatus
parse_endian(const TbJson *config, size_t element_bytes, bool *big, TbError *err)
{
	TbJson	   *value = NULL;
	const char *text;

	*big = NATIVE_IS_BIG;
	if (config == NULL || !tb_json_get(config, "endian", &value) || value == NULL)
	{
		if (element_bytes == 1)
			return TB_OK;
		tb_fail(err, TB_E_INVALID, "codec has no byte order");
		tb_error_detail(err, "codec \"bytes\": elements of %zu bytes need \"endian\"",
						element_bytes);
		return TB_E_INVALID;
	}
	if (tb_json_as_string(value, &text) &&
		(strcmp(text, "little") == 0 || strcmp(text, "big") == 0))
	{
		*big = text[0] == 'b';
		return TB_OK;
	}
	tb_fail(err, TB_E_INVALID, "codec configuration is not valid");
	tb_error_detail(err, "codec \"bytes\": \"endian\" is neither \"little\" nor \"big\"");
	return TB_E_INVALID;
}

static TbStatus
bytes_open(const TbJson *config, const TbCodecSpace *decoded, TbCodecSpace *encoded, void **state,
		   TbError *err)
{
	size_t		element_bytes = tb_dtype_size(decoded->dtype);
	BytesState *bytes;
	bool		big;
	TbStatus	status = parse_endian(config, element_bytes, &big, err);

	if (status != TB_OK)
		return status;
	bytes = tb_calloc(1, sizeof(*bytes));
	if (bytes == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	bytes->bytes = decoded->bytes;
	if (decoded->dtype == TB_BOOL)
		bytes->work = WORK_BOOL;
	else if (element_bytes > 1 && big != NATIVE_IS_BIG)
		bytes->work = element_bytes == 2   ? WORK_SWAP2
					  : element_bytes == 4 ? WORK_SWAP4
										   : WORK_SWAP8;
	encoded->dtype = TB_U8;
	encoded->ndim = 1;
	encoded->shape[0] = decoded->bytes;
	encoded->bytes = decoded->bytes;
	*state = bytes;
	return TB_OK;
}

static bool
bytes_is_identity(const void *state)
{
	return ((const BytesState *) state)->work == WORK_NONE;
}

/* Neither side need be aligned: the loops go through memcpy, which compilers turn into plain loads.
 */
static void
swap2(const uint8_t *src, uint8_t *dst, size_t bytes)
{
	for (size_t i = 0; i + 2 <= bytes; i += 2)
	{
		uint16_t	v;

		memcpy(&v, src + i, sizeof(v));
		v = __builtin_bswap16(v);
		memcpy(dst + i, &v, sizeof(v));
	}
}

static void
swap4(const uint8_t *src, uint8_t *dst, size_t bytes)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4)
	{
		uint32_t	v;

		memcpy(&v, src + i, sizeof(v));
		v = __builtin_bswap32(v);
		memcpy(dst + i, &v, sizeof(v));
	}
}

static void
swap8(const uint8_t *src, uint8_t *dst, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8)
	{
		uint64_t	v;

		memcpy(&v, src + i, sizeof(v));
		v = __builtin_bswap64(v);
		memcpy(dst + i, &v, sizeof(v));
	}
}

/* src may be dst. */
static TbStatus
bytes_decode(const void *state, const uint8_t *src, uint8_t *dst, TbError *err)
{
	const BytesState *bytes = state;

	switch (bytes->work)
	{
		case WORK_NONE:
			if (src != dst)
				memcpy(dst, src, bytes->bytes);
			break;
		case WORK_BOOL:
			for (size_t i = 0; i < bytes->bytes; i++)
				dst[i] = src[i] != 0;
			break;
		case WORK_SWAP2:
			swap2(src, dst, bytes->bytes);
			break;
		case WORK_SWAP4:
			swap4(src, dst, bytes->bytes);
			break;
		case WORK_SWAP8:
			swap8(src, dst, bytes->bytes);
			break;
	}
	return TB_OK;
}

const TbCodec tb_codec_bytes = {
	.name = "bytes",
	.kind = TB_ARRAY_TO_BYTES,
	.open = bytes_open,
	.close = tb_free,
	.decode_array = bytes_decode,
	.is_identity = bytes_is_identity,
	.in_place = true,
};
