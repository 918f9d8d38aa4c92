/*
 * `lz4` (numcodecs; v2 only): the decoded size as a 32-bit little-endian number, then one LZ4
 * block.
 */
#include "codec/inner.h"

#include <limits.h>
#include <lz4.h>

#define HEAD_BYTES 4

/* Decode one LZ4 block, all of the input. errors: CORRUPT. */
TbStatus
tb_unlz4(TbFlow *flow)
{
	int			room = flow->dst_left > INT_MAX ? INT_MAX : (int) flow->dst_left;
	int			made = -1;

	if (flow->src_left <= INT_MAX && flow->src_left > 0)
		made = LZ4_decompress_safe((const char *) flow->src, (char *) flow->dst,
								   (int) flow->src_left, room);
	if (made < 0)
	{
		flow->why = "block is damaged or longer than the chunk";
		return TB_E_CORRUPT;
	}
	flow->src += flow->src_left;
	flow->src_left = 0;
	flow->dst += made;
	flow->dst_left -= made;
	return TB_OK;
}

static TbStatus
lz4_decode(const void *state, const uint8_t *src, size_t src_len, TbCodecOut *out, TbError *err)
{
	TbFlow		flow;
	size_t		room;
	size_t		told;
	uint8_t    *dst;
	TbStatus	status;

	if (src_len < HEAD_BYTES)
		return tb_codec_corrupt(err, "lz4", "%zu bytes are too few for a header", src_len);
	status = tb_out_begin(out, &dst, &room, err);
	if (status != TB_OK)
		return status;
	told = load_u32_le(src);
	if (told > room)
		return tb_codec_corrupt(err, "lz4", "header tells %zu bytes, the chunk holds %zu", told,
								room);
	flow = (TbFlow) {src + HEAD_BYTES, src_len - HEAD_BYTES, dst, told, NULL};
	status = tb_unlz4(&flow);
	if (status != TB_OK)
		return tb_codec_failed(err, status, "lz4", flow.why);
	if (flow.dst_left > 0)
		return tb_codec_corrupt(err, "lz4", "%zu bytes less than its header tells", flow.dst_left);
	return tb_out_end(out, told, "lz4", err);
}

const TbCodec tb_codec_lz4 = {
	.v2_id = "lz4",
	.kind = TB_BYTES_TO_BYTES,
	.decode_bytes = lz4_decode,
};
