/*
 * `blosc`: the container of c-blosc 1.x, read by bounded code of our own; the streams inside go to
 * liblz4, libzstd, zlib and the decoders of this room. Linked against no c-blosc, whose decoder
 * trusts too much.
 *
 *   0 version (2)   1 version of the inner format   2 flags   3 element size
 *   4 bytes decoded   8 bytes of a block   12 bytes of the container   (little-endian, 32 bits)
 *   16 offset of each block from the container's start, 32 bits each
 *   then each block: one stream, or one for each byte of an element; each behind its length
 *
 * A length equal to the decoded one marks a stream that is stored. The flag "memcpyed" says that
 * the whole is stored.
 *
 * The configuration only matters to writers: the container tells all that a reader needs.
 * source: c-blosc README_CHUNK_FORMAT.rst and the behaviour of c-blosc 1.21.
 */
#include "codec/inner.h"

#include <string.h>

#define NAME "blosc"
#define HEAD_BYTES 16
#define VERSION 2

#define FLAG_SHUFFLE 0x01
#define FLAG_STORED 0x02
#define FLAG_BITSHUFFLE 0x04
#define FLAG_RESERVED 0x08
#define FLAG_ONE_STREAM 0x10
#define FORMAT_SHIFT 5

#define MAX_STREAMS 16			/* blocks of larger elements are one stream, flag or not, */
#define MIN_STREAM 128			/* and so are those whose streams would be shorter than this */

typedef enum BloscFormat
{
	FORMAT_BLOSCLZ, FORMAT_LZ4, FORMAT_SNAPPY, FORMAT_ZLIB, FORMAT_ZSTD, FORMAT_END
} BloscFormat;

typedef enum Shuffle
{
	SHUFFLE_NONE, SHUFFLE_BYTES, SHUFFLE_BITS
} Shuffle;

/* A container whose header has been checked. */
typedef struct Container
{
	const uint8_t *src;			/* borrowed */
	size_t		src_len;
	uint8_t		flags;
	BloscFormat format;
	size_t		element_bytes;
	size_t		decoded_bytes;
	size_t		block_bytes;
	size_t		n_blocks;
	size_t		first;			/* offset behind the table of blocks */
} Container;

/* Read the header. room: most bytes it may claim to decode to. errors: CORRUPT. */
static TbStatus
read_head(Container *c, const uint8_t *src, size_t src_len, size_t room, TbError *err)
{
	size_t		told;

	if (src_len < HEAD_BYTES)
		return tb_codec_corrupt(err, NAME, "%zu bytes are too few for a header", src_len);
	c->src = src;
	c->src_len = src_len;
	c->flags = src[2];
	c->format = (BloscFormat) (c->flags >> FORMAT_SHIFT);
	c->element_bytes = src[3];
	c->decoded_bytes = load_u32_le(src + 4);
	c->block_bytes = load_u32_le(src + 8);
	told = load_u32_le(src + 12);
	if (src[0] != VERSION || (c->flags & FLAG_RESERVED) != 0)
		return tb_codec_corrupt(err, NAME, "version %d with flags %#x is not known", src[0],
								c->flags);
	if (told != src_len)
		return tb_codec_corrupt(err, NAME, "header tells %zu bytes of %zu", told, src_len);
	if (c->decoded_bytes > room)
		return tb_codec_corrupt(err, NAME, "header tells %zu decoded bytes, the chunk holds %zu",
								c->decoded_bytes, room);
	if (c->decoded_bytes == 0)
		return TB_OK;
	if (c->element_bytes == 0)
		return tb_codec_corrupt(err, NAME, "element size is 0");
	if (c->block_bytes == 0 || c->block_bytes > c->decoded_bytes)
		return tb_codec_corrupt(err, NAME, "block size is %zu of %zu bytes", c->block_bytes,
								c->decoded_bytes);
	if ((c->flags & FLAG_STORED) != 0)
	{
		if (src_len - HEAD_BYTES != c->decoded_bytes)
			return tb_codec_corrupt(err, NAME, "%zu bytes stored, header tells %zu",
									src_len - HEAD_BYTES, c->decoded_bytes);
		return TB_OK;
	}
	if (c->format >= FORMAT_END)
		return tb_codec_corrupt(err, NAME, "inner format %d is not known", (int) c->format);
	c->n_blocks = (c->decoded_bytes - 1) / c->block_bytes + 1;
	if (c->n_blocks > (src_len - HEAD_BYTES) / 4)
		return tb_codec_corrupt(err, NAME, "%zu blocks in %zu bytes", c->n_blocks, src_len);
	c->first = HEAD_BYTES + c->n_blocks * 4;
	return TB_OK;
}

/* Which shuffle a block has: single bytes have no byte shuffle, blocks below one element no bit
 * shuffle. */
static Shuffle
block_shuffle(const Container *c, size_t bytes)
{
	if ((c->flags & FLAG_SHUFFLE) != 0 && c->element_bytes > 1)
		return SHUFFLE_BYTES;
	if ((c->flags & FLAG_BITSHUFFLE) != 0 && bytes >= c->element_bytes)
		return SHUFFLE_BITS;
	return SHUFFLE_NONE;
}

/* How many streams a block has. whole: it is no shorter last one. */
static size_t
block_streams(const Container *c, bool whole)
{
	if ((c->flags & FLAG_ONE_STREAM) == 0 && whole && c->element_bytes <= MAX_STREAMS &&
		c->block_bytes / c->element_bytes >= MIN_STREAM)
		return c->element_bytes;
	return 1;
}

/* Decode one stream to exactly flow->dst_left bytes. errors: CORRUPT, NOMEM. */
static TbStatus
decode_stream(const Container *c, TbScratch *scratch, TbFlow *flow)
{
	TbStatus	status;

	if (flow->src_left == flow->dst_left)
	{
		memcpy(flow->dst, flow->src, flow->dst_left);
		return TB_OK;
	}
	switch (c->format)
	{
		case FORMAT_BLOSCLZ:
			status = tb_unblosclz(flow);
			break;
		case FORMAT_LZ4:
			status = tb_unlz4(flow);
			break;
		case FORMAT_SNAPPY:
			status = tb_unsnappy(flow);
			break;
		case FORMAT_ZLIB:
			status = tb_inflate(scratch, TB_INFLATE_ZLIB, flow);
			break;
		default:
			status = tb_unzstd(scratch, flow);
			break;
	}
	if (status == TB_OK && (flow->dst_left > 0 || flow->src_left > 0))
	{
		flow->why = "stream and block differ in length";
		status = TB_E_CORRUPT;
	}
	return status;
}

/* Decode all streams of the block at `offset` to dst, `bytes` bytes. errors: CORRUPT, NOMEM. */
static TbStatus
decode_streams(const Container *c, TbScratch *scratch, size_t offset, TbFlow *block, size_t streams)
{
	size_t		each = block->dst_left / streams;

	block->why = "block lies outside the container";
	if (offset < c->first || offset > c->src_len)
		return TB_E_CORRUPT;
	if (each * streams != block->dst_left)
	{
		block->why = "block holds no whole elements";
		return TB_E_CORRUPT;
	}
	for (size_t j = 0; j < streams; j++)
	{
		TbFlow		flow = {.dst = block->dst + j * each, .dst_left = each};
		TbStatus	status;

		if (c->src_len - offset < 4)
			return TB_E_CORRUPT;
		flow.src = c->src + offset + 4;
		flow.src_left = load_u32_le(c->src + offset);
		if (flow.src_left > c->src_len - offset - 4)
			return TB_E_CORRUPT;
		offset += 4 + flow.src_left;
		status = decode_stream(c, scratch, &flow);
		if (status != TB_OK)
		{
			block->why = flow.why;
			return status;
		}
	}
	return TB_OK;
}

/* Decode block i to its place in dst. errors: CORRUPT, NOMEM. */
static TbStatus
decode_block(const Container *c, TbScratch *scratch, size_t i, uint8_t *dst, TbError *err)
{
	size_t		at = i * c->block_bytes;
	bool		whole = c->decoded_bytes - at >= c->block_bytes;
	size_t		bytes = whole ? c->block_bytes : c->decoded_bytes - at;
	Shuffle		shuffle = block_shuffle(c, bytes);
	uint8_t    *target = shuffle == SHUFFLE_NONE ? dst + at : scratch->work[0]->data;
	TbFlow		flow = {.dst = target, .dst_left = bytes};
	size_t		offset = load_u32_le(c->src + HEAD_BYTES + i * 4);
	TbStatus	status = decode_streams(c, scratch, offset, &flow, block_streams(c, whole));

	if (status == TB_E_NOMEM)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (status != TB_OK)
		return tb_codec_corrupt(err, NAME, "block %zu of %zu: %s", i, c->n_blocks, flow.why);
	if (shuffle == SHUFFLE_BYTES)
		tb_unshuffle(c->element_bytes, bytes, target, dst + at);
	else if (shuffle == SHUFFLE_BITS)
		tb_unbitshuffle(c->element_bytes, bytes, target, dst + at, scratch->work[1]->data);
	return TB_OK;
}

static TbStatus
blosc_decode(const void *state, const uint8_t *src, size_t src_len, TbCodecOut *out, TbError *err)
{
	Container	c = {0};
	uint8_t    *dst;
	size_t		room;
	TbStatus	status = tb_out_begin(out, &dst, &room, err);

	if (status == TB_OK)
		status = read_head(&c, src, src_len, room, err);
	if (status == TB_OK && out->grow == NULL && c.decoded_bytes != out->len)
		status = tb_out_end(out, c.decoded_bytes, NAME, err);	/* before any work: fails */
	if (status != TB_OK)
		return status;
	if (c.decoded_bytes > 0 && (c.flags & FLAG_STORED) != 0)
		memcpy(dst, src + HEAD_BYTES, c.decoded_bytes);
	else if (c.decoded_bytes > 0)
	{
		if ((c.flags & (FLAG_SHUFFLE | FLAG_BITSHUFFLE)) != 0)
			status = tb_scratch_reserve(&out->scratch->work[0], c.block_bytes, err);
		if (status == TB_OK && (c.flags & FLAG_BITSHUFFLE) != 0)
			status = tb_scratch_reserve(&out->scratch->work[1], c.block_bytes, err);
		for (size_t i = 0; status == TB_OK && i < c.n_blocks; i++)
			status = decode_block(&c, out->scratch, i, dst, err);
		if (status != TB_OK)
			return status;
	}
	return tb_out_end(out, c.decoded_bytes, NAME, err);
}

const TbCodec tb_codec_blosc = {
	.name = "blosc",
	.v2_id = "blosc",
	.kind = TB_BYTES_TO_BYTES,
	.decode_bytes = blosc_decode,
};
