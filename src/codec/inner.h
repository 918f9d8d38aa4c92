/*
 * What the files of this room share and no other room sees: scratch memory, the helpers every byte
 * codec ends with, and the inner decoders that the blosc container uses beside the codecs of the
 * same name.
 */
#ifndef TB_CODEC_INNER_H
#define TB_CODEC_INNER_H

#include "codec/codec.h"

struct ZSTD_DCtx_s;
struct ZSTD_CCtx_s;
struct z_stream_s;

/* Contexts are made on first use and kept; buffers above a cap are given back after each chunk. */
struct TbScratch
{
	TbBuf	   *step[2];		/* owned: what passes between the steps of a chain, in turns */
	TbBuf	   *work[2];		/* owned: a codec's own, within one call */
	struct ZSTD_DCtx_s *zstd_decoder;	/* owned */
	struct ZSTD_CCtx_s *zstd_encoder;	/* owned */
	struct z_stream_s *inflater;	/* owned */
};

/* Make *slot a buffer of at least `bytes`, empty; its old content is lost. errors: NOMEM. */
extern TbStatus tb_scratch_reserve(TbBuf **slot, size_t bytes, TbError *err) TB_MUST_CHECK;

/* Give back buffers so large that an idle thread should not hold them. */
extern void tb_scratch_trim(TbScratch *scratch);

/* Where a byte codec writes: *dst with room for *room bytes (the exact size, or the limit). errors:
 * NOMEM. */
extern TbStatus tb_out_begin(TbCodecOut *out, uint8_t **dst, size_t *room,
							 TbError *err) TB_MUST_CHECK;

/* Take note of the bytes made. errors: CORRUPT where the size wanted is another. */
extern TbStatus tb_out_end(TbCodecOut *out, size_t made, const char *codec,
						   TbError *err) TB_MUST_CHECK;

/* The one error for bytes that contradict themselves; the reason goes to the detail. Returns
 * CORRUPT. */
extern TbStatus tb_codec_corrupt(TbError *err, const char *codec, const char *reason, ...)
	TB_PRINTF(3, 4);

/* The same for a status of an inner decoder: CORRUPT with its reason, or NOMEM. */
extern TbStatus tb_codec_failed(TbError *err, TbStatus status, const char *codec,
								const char *reason);

/* Bytes that an inner decoder still has to read and may still write; it moves both sides along. */
typedef struct TbFlow
{
	const uint8_t *src;
	size_t		src_left;
	uint8_t    *dst;
	size_t		dst_left;
	const char *why;			/* set with CORRUPT: a short constant reason */
} TbFlow;

/* Inner decoders. errors: CORRUPT, NOMEM. All but tb_inflate read their whole input. */
extern TbStatus tb_inflate(TbScratch *scratch, int window_bits, TbFlow *flow) TB_MUST_CHECK;
extern TbStatus tb_unzstd(TbScratch *scratch, TbFlow *flow) TB_MUST_CHECK;
extern TbStatus tb_unlz4(TbFlow *flow) TB_MUST_CHECK;
extern TbStatus tb_unblosclz(TbFlow *flow) TB_MUST_CHECK;
extern TbStatus tb_unsnappy(TbFlow *flow) TB_MUST_CHECK;

#define TB_INFLATE_ZLIB 15		/* zlib's windowBits for a zlib stream, and */
#define TB_INFLATE_GZIP 31		/* for one gzip member */

/* Undo byte shuffling: src holds `size` planes of len / size bytes; the rest beyond whole elements
 * is copied. src and dst do not overlap. */
extern void tb_unshuffle(size_t size, size_t len, const uint8_t *src, uint8_t *dst);

/* Undo blosc's bit shuffling; work holds len bytes. The three do not overlap. */
extern void tb_unbitshuffle(size_t size, size_t len, const uint8_t *src, uint8_t *dst,
							uint8_t *work);

/* Append "name" or "name(level 3, shuffle bitshuffle)" to a chain's description. errors: NOMEM. */
extern TbStatus tb_codec_describe(TbBuf *text, const char *name,
								  const TbJson *config) TB_MUST_CHECK;

static inline uint32_t
load_u32_le(const uint8_t *bytes)
{
	return (uint32_t) bytes[0] | (uint32_t) bytes[1] << 8 | (uint32_t) bytes[2] << 16 |
		   (uint32_t) bytes[3] << 24;
}

/* The codecs; registry.c lists them. */
extern const TbCodec tb_codec_blosc;
extern const TbCodec tb_codec_bytes;
extern const TbCodec tb_codec_crc32c;
extern const TbCodec tb_codec_gzip;
extern const TbCodec tb_codec_lz4;
extern const TbCodec tb_codec_shuffle;
extern const TbCodec tb_codec_transpose;
extern const TbCodec tb_codec_zlib;
extern const TbCodec tb_codec_zstd;

#endif
