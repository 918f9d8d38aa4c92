/*
 * Codecs and chains of them. A codec is one file with one const TbCodec and one line in registry.c;
 * nothing else knows it. Names and configurations are those of Zarr v3 and, as `v2_id`, of
 * numcodecs.
 *
 * Decoding runs against the order of the chain, each step into a buffer of known size: sizes are
 * worked out from the chunk's shape when the chain is opened, so hostile bytes can neither grow nor
 * shrink anything.
 */
#ifndef TB_CODEC_H
#define TB_CODEC_H

#include "base/base.h"

typedef enum TbCodecKind
{
	TB_ARRAY_TO_ARRAY,			/* transpose */
	TB_ARRAY_TO_BYTES,			/* bytes */
	TB_BYTES_TO_BYTES			/* zstd, gzip, blosc, crc32c, zlib, lz4, shuffle */
} TbCodecKind;

/* The array (or bytes) on the decoded side of a codec. */
typedef struct TbCodecSpace
{
	TbDtype		dtype;
	int			ndim;
	uint64_t	shape[TB_MAX_DIM];
	size_t		bytes;			/* decoded; SIZE_MAX: not known (between two byte codecs) */
} TbCodecSpace;

/* Scratch memory of one decoding thread, reused from chunk to chunk. */
typedef struct TbScratch TbScratch;
extern TbScratch *tb_scratch_new(void);
extern void tb_scratch_free(TbScratch *scratch);
/* The calling thread's own, made on first use and freed when the thread ends; NULL when memory is
 * gone. */
extern TbScratch *tb_scratch_mine(void);

/* What a bytes-to-bytes step writes to. exact: len is the size wanted, anything else is CORRUPT.
 * not exact: any size up to limit. */
typedef struct TbCodecOut
{
	uint8_t    *data;			/* exact: the target (borrowed). not exact: NULL */
	size_t		len;			/* exact: its size */
	TbBuf	   *grow;			/* not exact: a scratch buffer to fill, len set by the codec */
	size_t		limit;			/* not exact: cap in bytes */
	TbScratch  *scratch;		/* the decoding thread's (borrowed): contexts, work space */
} TbCodecOut;

typedef struct TbCodec
{
	const char *name;			/* Zarr v3 name; NULL: v2 only */
	const char *v2_id;			/* numcodecs id; NULL: v3 only */
	TbCodecKind kind;

	/* Prepare for chunks of decoded space `decoded`; set `encoded` (the space the next codec
	 * decodes to). config may be NULL. owns: *state is freed by close. errors: UNSUPPORTED,
	 * INVALID, NOMEM. */
	TbStatus	(*open) (const TbJson *config, const TbCodecSpace *decoded, TbCodecSpace *encoded,
					 void **state, TbError *err);
	void		(*close) (void *state);

	/* Array codecs: src holds exactly the encoded space, dst exactly the decoded one. */
	TbStatus	(*decode_array) (const void *state, const uint8_t *src, uint8_t *dst, TbError *err);
	/* Byte codecs. */
	TbStatus (*decode_bytes)(const void *state, const uint8_t *src, size_t src_len, TbCodecOut *out,
							 TbError *err);

	/* What follows may be left out (NULL, false). */

	/* True where decoding changes nothing: the step is skipped. */
	bool		(*is_identity) (const void *state);

	/* Byte codecs that only wrap their bytes: check, then tell where the decoded bytes lie inside
	 * src, so that none is copied. Used in place of decode_bytes. */
	TbStatus (*decode_view)(const void *state, const uint8_t *src, size_t src_len, size_t *offset,
							size_t *len, TbError *err);
	bool		in_place;		/* array codecs: decode_array may be called with src == dst */
} TbCodec;

/* NULL: not known. */
extern const TbCodec *tb_codec_find(const char *v3_name);
extern const TbCodec *tb_codec_find_v2(const char *id);

/* A prepared chain for one array: immutable once open, shared by threads. */
typedef struct TbChain TbChain;

/*
 * Open a chain for chunks of the given dtype and shape. codecs: JSON array of v3 codec objects
 * {name, configuration} in encoding order, holding exactly one array-to-bytes codec (never
 * sharding_indexed, which zarr/ takes apart). For v2 the caller gives the equivalent list made by
 * zarr/ with objects {v2_id, ...} for what has no v3 name. unknown codec -> UNSUPPORTED naming it;
 * unknown with "must_understand": false -> ignored. errors: also INVALID (22023), LIMIT (chunk over
 * the cap), NOMEM.
 */
extern TbStatus tb_chain_open(const TbJson *codecs, TbDtype dtype, int ndim, const uint64_t *shape,
							  TbChain **chain, TbError *err) TB_MUST_CHECK;
extern void tb_chain_free(TbChain *chain);

/* Bytes of one decoded chunk. */
extern size_t tb_chain_decoded_bytes(const TbChain *chain);

/* True where the encoded bytes are the decoded ones (only `bytes`, native order): data may land in
 * place. */
extern bool tb_chain_is_identity(const TbChain *chain);

/* Largest encoded size that can be right, or SIZE_MAX: caps whole-object reads. */
extern size_t tb_chain_encoded_limit(const TbChain *chain);

/* Human-readable "bytes, zstd(level 3)". owns: the chain. */
extern const char *tb_chain_describe(const TbChain *chain);

/* Decode src into dst (exactly tb_chain_decoded_bytes, C order, machine's byte order). thread: any,
 * one scratch a thread. errors: CORRUPT naming the codec, NOMEM. */
extern TbStatus tb_chain_decode(const TbChain *chain, const uint8_t *src, size_t src_len,
								uint8_t *dst, size_t dst_len, TbScratch *scratch,
								TbError *err) TB_MUST_CHECK;

#define TB_CHUNK_MAX_BYTES ((size_t) 1 << 31)	/* a decoded chunk may not be larger: LIMIT */

/* Encoders that our own files need (index, datasets): zstd at a level. owns: appended to out. */
extern TbStatus tb_zstd_encode(const void *src, size_t len, int level, TbBuf *out,
							   TbError *err) TB_MUST_CHECK;
extern TbStatus tb_zstd_decode(const void *src, size_t len, uint8_t *dst, size_t dst_len,
							   TbError *err) TB_MUST_CHECK;

#endif
