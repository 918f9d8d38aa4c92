/*
 * The codec that appends a CRC-32C: four bytes, little-endian, behind the data (or, as numcodecs can
 * be told, before it). It never copies, it checks and narrows. source: Zarr v3 codecs, "crc32c" 1.0.
 */
#include "codec/inner.h"

#include <string.h>

#define CRC_BYTES 4

typedef struct CrcState
{
	bool		at_start;		/* numcodecs: "location" */
} CrcState;

static TbStatus
crc_open(const TbJson *config, const TbCodecSpace *decoded, TbCodecSpace *encoded, void **state,
		 TbError *err)
{
	const char *location = "end";
	CrcState   *crc;

	if (config != NULL)
		(void) tb_json_get_string(config, "location", &location);
	if (strcmp(location, "end") != 0 && strcmp(location, "start") != 0)
	{
		tb_fail(err, TB_E_INVALID, "codec configuration is not valid");
		tb_error_detail(err, "codec \"crc32c\": \"location\" is neither \"start\" nor \"end\"");
		return TB_E_INVALID;
	}
	crc = tb_calloc(1, sizeof(*crc));
	if (crc == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	crc->at_start = location[0] == 's';
	if (decoded->bytes != SIZE_MAX)
		encoded->bytes = decoded->bytes + CRC_BYTES;
	*state = crc;
	return TB_OK;
}

static TbStatus
crc_view(const void *state, const uint8_t *src, size_t src_len, size_t *offset, size_t *len,
		 TbError *err)
{
	bool		at_start = ((const CrcState *) state)->at_start;
	uint32_t	stored;
	uint32_t	found;

	if (src_len < CRC_BYTES)
		return tb_codec_corrupt(err, "crc32c", "%zu bytes are too few for a checksum", src_len);
	*offset = at_start ? CRC_BYTES : 0;
	*len = src_len - CRC_BYTES;
	stored = load_u32_le(at_start ? src : src + *len);
	found = tb_crc32c(0, src + *offset, *len);
	if (stored != found)
		return tb_codec_corrupt(err, "crc32c", "checksum is %08x, the bytes give %08x", stored,
								found);
	return TB_OK;
}

const TbCodec tb_codec_crc32c = {
	.name = "crc32c",
	.v2_id = "crc32c",
	.kind = TB_BYTES_TO_BYTES,
	.open = crc_open,
	.close = tb_free,
	.decode_view = crc_view,
};
