/*
 * `zstd`: RFC 8878 frames, one or more, skippable ones among them. Every frame is decoded in one
 * shot into a buffer of known room, so a frame without its content size is nothing special and no
 * window is ever allocated: neither size nor window claimed by a frame can cost memory. Also the
 * encoder for files of our own.
 */
#include "codec/inner.h"

#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

/* Frames of any other kind (the pre-1.0 formats that libzstd may have been built with) are refused.
 */
static bool
is_frame(const uint8_t *src, size_t len)
{
	uint32_t	magic;

	if (len < 4)
		return false;
	magic = load_u32_le(src);
	return magic == ZSTD_MAGICNUMBER ||
		(magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

static TbStatus
failed(TbFlow *flow, size_t code)
{
	if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
		return TB_E_NOMEM;
	flow->why = ZSTD_getErrorName(code);
	return TB_E_CORRUPT;
}

/* Decode all of the input. errors: CORRUPT (also for bytes that are no frame), NOMEM. */
TbStatus
tb_unzstd(TbScratch *scratch, TbFlow *flow)
{
	uint8_t		nowhere;

	if (scratch->zstd_decoder == NULL)
		scratch->zstd_decoder = ZSTD_createDCtx();
	if (scratch->zstd_decoder == NULL)
		return TB_E_NOMEM;
	if (flow->dst == NULL)
		flow->dst = &nowhere;
	while (flow->src_left > 0)
	{
		size_t		frame;
		size_t		made;

		if (!is_frame(flow->src, flow->src_left))
		{
			flow->why = "bytes that are no frame";
			return TB_E_CORRUPT;
		}
		frame = ZSTD_findFrameCompressedSize(flow->src, flow->src_left);
		if (ZSTD_isError(frame))
			return failed(flow, frame);
		made =
			ZSTD_decompressDCtx(scratch->zstd_decoder, flow->dst, flow->dst_left, flow->src, frame);
		if (ZSTD_isError(made))
			return failed(flow, made);
		flow->src += frame;
		flow->src_left -= frame;
		flow->dst += made;
		flow->dst_left -= made;
	}
	return TB_OK;
}

static TbStatus
zstd_decode(const void *state, const uint8_t *src, size_t src_len, TbCodecOut *out, TbError *err)
{
	TbFlow		flow = {.src = src, .src_left = src_len};
	size_t		room;
	TbStatus	status = tb_out_begin(out, &flow.dst, &flow.dst_left, err);

	if (status != TB_OK)
		return status;
	room = flow.dst_left;
	status = tb_unzstd(out->scratch, &flow);
	if (status != TB_OK)
		return tb_codec_failed(err, status, "zstd", flow.why);
	return tb_out_end(out, room - flow.dst_left, "zstd", err);
}

/* Append src, compressed as one frame with its size and a checksum, to out. errors: NOMEM. */
TbStatus
tb_zstd_encode(const void *src, size_t len, int level, TbBuf *out, TbError *err)
{
	TbScratch  *scratch = tb_scratch_mine();
	size_t		bound = ZSTD_compressBound(len);
	size_t		made;

	if (scratch != NULL && scratch->zstd_encoder == NULL)
		scratch->zstd_encoder = ZSTD_createCCtx();
	if (scratch == NULL || scratch->zstd_encoder == NULL || ZSTD_isError(bound) ||
		bound > SIZE_MAX - out->len || tb_buf_reserve(out, out->len + bound) != TB_OK)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	(void) ZSTD_CCtx_setParameter(scratch->zstd_encoder, ZSTD_c_compressionLevel, level);
	(void) ZSTD_CCtx_setParameter(scratch->zstd_encoder, ZSTD_c_checksumFlag, 1);
	made = ZSTD_compress2(scratch->zstd_encoder, out->data + out->len, bound, src, len);
	if (ZSTD_isError(made))
	{
		TbStatus code =
			ZSTD_getErrorCode(made) == ZSTD_error_memory_allocation ? TB_E_NOMEM : TB_E_INTERNAL;

		tb_fail(err, code, "data cannot be compressed");
		tb_error_detail(err, "codec \"zstd\": %s", ZSTD_getErrorName(made));
		return code;
	}
	out->len += made;
	return TB_OK;
}

/* Decode frames that must give exactly dst_len bytes. errors: CORRUPT, NOMEM. */
TbStatus
tb_zstd_decode(const void *src, size_t len, uint8_t *dst, size_t dst_len, TbError *err)
{
	TbCodecOut	out = {.data = dst, .len = dst_len, .scratch = tb_scratch_mine()};

	if (out.scratch == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	return zstd_decode(NULL, src, len, &out, err);
}

const TbCodec tb_codec_zstd = {
	.name = "zstd",
	.v2_id = "zstd",
	.kind = TB_BYTES_TO_BYTES,
	.decode_bytes = zstd_decode,
};
