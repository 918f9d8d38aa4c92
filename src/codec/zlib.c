/*
 * `zlib` (numcodecs; v2 only): one zlib stream (RFC 1950). Also the inflater that gzip and blosc
 * use.
 */
#include "codec/inner.h"

#include <zlib.h>

#define PIECE ((size_t) 1 << 30)	/* zlib counts in unsigned int */

/* The thread's inflater, ready for a new stream. NULL when memory is gone. */
static z_stream *
inflater(TbScratch *scratch, int window_bits)
{
	if (scratch->inflater != NULL)
		return inflateReset2(scratch->inflater, window_bits) == Z_OK ? scratch->inflater : NULL;
	scratch->inflater = tb_calloc(1, sizeof(*scratch->inflater));
	if (scratch->inflater == NULL)
		return NULL;
	if (inflateInit2(scratch->inflater, window_bits) != Z_OK)
	{
		tb_free(scratch->inflater);
		scratch->inflater = NULL;
	}
	return scratch->inflater;
}

/* Decode one stream (or gzip member); input may remain. errors: CORRUPT, NOMEM. */
TbStatus
tb_inflate(TbScratch *scratch, int window_bits, TbFlow *flow)
{
	z_stream   *z = inflater(scratch, window_bits);
	uint8_t		nowhere;
	size_t		moved;
	int			rc;

	if (z == NULL)
		return TB_E_NOMEM;
	if (flow->dst == NULL)
		flow->dst = &nowhere;
	do
	{
		size_t		in = flow->src_left < PIECE ? flow->src_left : PIECE;
		size_t		room = flow->dst_left < PIECE ? flow->dst_left : PIECE;
		bool		all = in == flow->src_left && room == flow->dst_left;

		z->next_in = (Bytef *) flow->src;
		z->avail_in = (uInt) in;
		z->next_out = flow->dst;
		z->avail_out = (uInt) room;
		/* Z_FINISH: everything is in memory, so that zlib need not keep a window of its own. */
		rc = inflate(z, all ? Z_FINISH : Z_NO_FLUSH);
		moved = (in - z->avail_in) + (room - z->avail_out);
		flow->src += in - z->avail_in;
		flow->src_left -= in - z->avail_in;
		flow->dst += room - z->avail_out;
		flow->dst_left -= room - z->avail_out;
	} while (rc == Z_OK && moved > 0);

	if (rc == Z_STREAM_END)
		return TB_OK;
	if (rc == Z_MEM_ERROR)
		return TB_E_NOMEM;
	if (rc == Z_DATA_ERROR && z->msg != NULL)
		flow->why = z->msg;
	else if (rc == Z_NEED_DICT)
		flow->why = "stream needs a dictionary";
	else
		flow->why = flow->dst_left == 0 ? "more bytes than the chunk holds" : "stream ends early";
	return TB_E_CORRUPT;
}

static TbStatus
zlib_decode(const void *state, const uint8_t *src, size_t src_len, TbCodecOut *out, TbError *err)
{
	TbFlow		flow = {.src = src, .src_left = src_len};
	size_t		room;
	TbStatus	status = tb_out_begin(out, &flow.dst, &flow.dst_left, err);

	if (status != TB_OK)
		return status;
	room = flow.dst_left;
	status = tb_inflate(out->scratch, TB_INFLATE_ZLIB, &flow);
	if (status != TB_OK)
		return tb_codec_failed(err, status, "zlib", flow.why);
	if (flow.src_left > 0)
		return tb_codec_corrupt(err, "zlib", "%zu bytes after the stream", flow.src_left);
	return tb_out_end(out, room - flow.dst_left, "zlib", err);
}

const TbCodec tb_codec_zlib = {
	.v2_id = "zlib",
	.kind = TB_BYTES_TO_BYTES,
	.decode_bytes = zlib_decode,
};
