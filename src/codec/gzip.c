/*
 * `gzip`: RFC 1952 members, one or more. Zero bytes after the last are padding, as for gzip itself;
 * anything else there is an error.
 */
#include "codec/inner.h"

/* True where nothing but zeros is left. */
static bool
is_padding(const TbFlow *flow)
{
	for (size_t i = 0; i < flow->src_left; i++)
	{
		if (flow->src[i] != 0)
			return false;
	}
	return true;
}

static TbStatus
gzip_decode(const void *state, const uint8_t *src, size_t src_len, TbCodecOut *out, TbError *err)
{
	TbFlow		flow = {.src = src, .src_left = src_len};
	size_t		room;
	TbStatus	status = tb_out_begin(out, &flow.dst, &flow.dst_left, err);

	if (status != TB_OK)
		return status;
	room = flow.dst_left;
	do
	{
		status = tb_inflate(out->scratch, TB_INFLATE_GZIP, &flow);
		if (status != TB_OK)
			return tb_codec_failed(err, status, "gzip", flow.why);
	} while (!is_padding(&flow));
	return tb_out_end(out, room - flow.dst_left, "gzip", err);
}

const TbCodec tb_codec_gzip = {
	.name = "gzip",
	.v2_id = "gzip",
	.kind = TB_BYTES_TO_BYTES,
	.decode_bytes = gzip_decode,
};
