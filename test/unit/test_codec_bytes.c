/* Byte codecs: buffers made by the plain libraries and by numcodecs, in every form a writer may
 * choose. */
#include "codec_help.h"

#include <lz4.h>
#include <zlib.h>
#include <zstd.h>

#define BYTES "[{\"name\": \"bytes\"}, "
#define PLAIN_LEN 4000

/* Bytes that a test builds up. */
typedef struct Made
{
	uint8_t		bytes[64 << 10];
	size_t		len;
} Made;

static void
add(Made *made, const void *bytes, size_t len)
{
	assert_true(made->len + len <= sizeof(made->bytes));
	memcpy(made->bytes + made->len, bytes, len);
	made->len += len;
}

/* One frame. with_size: the header tells the content size; window: its log, 0: as the library
 * likes. */
static void
add_zstd(Made *made, const void *src, size_t len, bool with_size, int window)
{
	ZSTD_CCtx  *ctx = ZSTD_createCCtx();
	ZSTD_inBuffer in = {src, len, 0};
	ZSTD_outBuffer out = {made->bytes + made->len, sizeof(made->bytes) - made->len, 0};

	ZSTD_CCtx_setParameter(ctx, ZSTD_c_contentSizeFlag, with_size);
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, 1);
	if (window > 0)
		ZSTD_CCtx_setParameter(ctx, ZSTD_c_windowLog, window);
	if (with_size)
		ZSTD_CCtx_setPledgedSrcSize(ctx, len);
	assert_int_equal(ZSTD_compressStream2(ctx, &out, &in, window > 0 ? ZSTD_e_flush : ZSTD_e_end),
					 0);
	if (window > 0)
		assert_int_equal(ZSTD_compressStream2(ctx, &out, &in, ZSTD_e_end), 0);
	made->len += out.pos;
	ZSTD_freeCCtx(ctx);
}

/* window_bits: 15 zlib, 31 gzip. */
static void
add_deflate(Made *made, const void *src, size_t len, int window_bits)
{
	z_stream	z = {0};

	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (Bytef *) src;
	z.avail_in = (uInt) len;
	z.next_out = made->bytes + made->len;
	z.avail_out = (uInt) (sizeof(made->bytes) - made->len);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	made->len += z.total_out;
	deflateEnd(&z);
}

static void
add_lz4(Made *made, const void *src, size_t len, uint32_t told)
{
	uint8_t		head[4] = {(uint8_t) told, (uint8_t) (told >> 8), (uint8_t) (told >> 16),
	(uint8_t) (told >> 24)};

	add(made, head, 4);
	made->len += (size_t) LZ4_compress_default(src, (char *) made->bytes + made->len, (int) len,
											   (int) (sizeof(made->bytes) - made->len));
}

static void
add_crc(Made *made, size_t from)
{
	uint32_t	crc = tb_crc32c(0, made->bytes + from, made->len - from);
	uint8_t		tail[4] = {(uint8_t) crc, (uint8_t) (crc >> 8), (uint8_t) (crc >> 16),
	(uint8_t) (crc >> 24)};

	add(made, tail, 4);
}

/* No prefix of good bytes is good, and neither are good bytes with one more. */
static void
expect_exact(const TbChain *chain, const Made *made, const char *words)
{
	Made		longer = *made;

	for (size_t cut = 0; cut < made->len; cut += cut < 40 || cut + 40 > made->len ? 1 : 17)
		expect_corrupt(chain, made->bytes, cut, words);
	add(&longer, "x", 1);
	expect_corrupt(chain, longer.bytes, longer.len, words);
}

static void
test_crc32c(void **state)
{
	uint8_t		zeros[32] = {0};
	uint64_t	seed = 3;
	uint8_t		bytes[300];

	assert_int_equal(tb_crc32c(0, "123456789", 9), 0xe3069283u);
	assert_int_equal(tb_crc32c(0, zeros, 32), 0x8a9136aau);	/* RFC 3720, B.4 */
	assert_int_equal(tb_crc32c(0, "", 0), 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t) rng_next(&seed);
	for (size_t i = 0; i <= sizeof(bytes); i++)
	{
		uint32_t	whole = tb_crc32c(0, bytes, sizeof(bytes));
		uint32_t	head = tb_crc32c(0, bytes, i);

		assert_int_equal(head, tb_crc32c_plain(0, bytes, i));
		assert_int_equal(whole, tb_crc32c(head, bytes + i, sizeof(bytes) - i));
		assert_int_equal(whole, tb_crc32c_plain(head, bytes + i, sizeof(bytes) - i));
	}
}

static void
test_crc_codec(void **state)
{
	Made		made = {.len = 0};
	uint8_t    *plain = gold_plain(4, PLAIN_LEN, 1);
	TbChain    *chain = chain_bytes(BYTES "{\"name\": \"crc32c\"}]", PLAIN_LEN);
	TbChain    *start = chain_bytes(BYTES "{\"v2_id\": \"crc32c\", \"configuration\": "
									"{\"location\": \"start\"}}]", PLAIN_LEN);

	add(&made, plain, PLAIN_LEN);
	add_crc(&made, 0);
	expect_decoded(chain, made.bytes, made.len, plain);
	expect_exact(chain, &made, "codec \"crc32c\"");
	made.len = 4;				/* the checksum before the bytes */
	add(&made, plain, PLAIN_LEN);
	add_crc(&made, 4);
	memcpy(made.bytes, made.bytes + made.len - 4, 4);
	expect_decoded(start, made.bytes, made.len - 4, plain);
	made.bytes[77] ^= 4;
	expect_corrupt(start, made.bytes, made.len - 4, "checksum is");
	tb_chain_free(chain);
	tb_chain_free(start);
	free(plain);
}

static void
test_zstd(void **state)
{
	static const uint8_t skippable[] = {0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
	static const uint8_t legacy[] = {0x27, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0};
	uint8_t    *plain = gold_plain(4, PLAIN_LEN, 2);
	TbChain    *chain = chain_bytes(BYTES "{\"name\": \"zstd\"}]", PLAIN_LEN);
	Made		made = {.len = 0};

	add_zstd(&made, plain, PLAIN_LEN, true, 0);
	expect_decoded(chain, made.bytes, made.len, plain);
	expect_exact(chain, &made, "codec \"zstd\"");
	made.len = 0;
	add_zstd(&made, plain, PLAIN_LEN, false, 0);	/* the content size is not told */
	expect_decoded(chain, made.bytes, made.len, plain);
	expect_exact(chain, &made, "codec \"zstd\"");
	made.len = 0;
	add_zstd(&made, plain, PLAIN_LEN, false, 30);	/* a window of 1 GiB costs nothing */
	expect_decoded(chain, made.bytes, made.len, plain);
	made.len = 0;
	add(&made, skippable, sizeof(skippable));
	add_zstd(&made, plain, 1000, true, 0);
	add(&made, skippable, sizeof(skippable));
	add_zstd(&made, plain, 0, true, 0);
	add_zstd(&made, plain + 1000, PLAIN_LEN - 1000, false, 0);
	add(&made, skippable, sizeof(skippable));
	expect_decoded(chain, made.bytes, made.len, plain);
	add_zstd(&made, plain, 1, true, 0);		/* one byte too many, in a frame of its own */
	expect_corrupt(chain, made.bytes, made.len, "codec \"zstd\"");
	made.len = 0;
	add_zstd(&made, plain, PLAIN_LEN - 1, true, 0);
	expect_corrupt(chain, made.bytes, made.len, "3999 bytes where the chunk needs 4000");
	expect_corrupt(chain, legacy, sizeof(legacy), "no frame");
	tb_chain_free(chain);
	free(plain);
}

static void
test_zstd_own(void **state)
{
	uint8_t    *plain = gold_plain(8, PLAIN_LEN, 3);
	uint8_t    *out = malloc(PLAIN_LEN);
	TbBuf	   *buf = tb_buf_new(0);
	TbError		err = {0};

	assert_int_equal(tb_buf_append(buf, "head", 4, SIZE_MAX), TB_OK);
	assert_int_equal(tb_zstd_encode(plain, PLAIN_LEN, 3, buf, &err), TB_OK);
	assert_memory_equal(buf->data, "head", 4);
	assert_true(buf->len < PLAIN_LEN / 2);
	assert_int_equal(tb_zstd_decode(buf->data + 4, buf->len - 4, out, PLAIN_LEN, &err), TB_OK);
	assert_memory_equal(out, plain, PLAIN_LEN);
	assert_int_equal(tb_zstd_decode(buf->data + 4, buf->len - 4, out, PLAIN_LEN - 1, &err),
					 TB_E_CORRUPT);
	buf->data[buf->len - 1] ^= 1;	/* the checksum */
	assert_int_equal(tb_zstd_decode(buf->data + 4, buf->len - 4, out, PLAIN_LEN, &err),
					 TB_E_CORRUPT);
	buf->len = 0;
	assert_int_equal(tb_zstd_encode("", 0, 19, buf, &err), TB_OK);
	assert_int_equal(tb_zstd_decode(buf->data, buf->len, out, 0, &err), TB_OK);
	tb_buf_unref(buf);
	free(plain);
	free(out);
}

static void
test_gzip_zlib(void **state)
{
	uint8_t    *plain = gold_plain(4, PLAIN_LEN, 4);
	TbChain    *gzip = chain_bytes(BYTES "{\"name\": \"gzip\", \"configuration\": {\"level\": 5}}]",
								   PLAIN_LEN);
	TbChain *zlib =
		chain_bytes(BYTES "{\"v2_id\": \"zlib\", \"configuration\": {\"level\": 5}}]", PLAIN_LEN);
	Made		made = {.len = 0};

	add_deflate(&made, plain, PLAIN_LEN, 31);
	expect_decoded(gzip, made.bytes, made.len, plain);
	expect_exact(gzip, &made, "codec \"gzip\"");
	expect_corrupt(zlib, made.bytes, made.len, "codec \"zlib\"");
	add(&made, (uint8_t[5]) {0}, 5);	/* padding */
	expect_decoded(gzip, made.bytes, made.len, plain);
	made.len = 0;
	add_deflate(&made, plain, 1500, 31);
	add_deflate(&made, plain, 0, 31);
	add_deflate(&made, plain + 1500, PLAIN_LEN - 1500, 31);
	expect_decoded(gzip, made.bytes, made.len, plain);
	add_deflate(&made, plain, 1, 31);
	expect_corrupt(gzip, made.bytes, made.len, "more bytes than the chunk holds");
	made.len = 0;
	add_deflate(&made, plain, PLAIN_LEN - 1, 31);
	expect_corrupt(gzip, made.bytes, made.len, "3999 bytes");
	made.len = 0;
	add_deflate(&made, plain, PLAIN_LEN, 15);
	expect_decoded(zlib, made.bytes, made.len, plain);
	expect_exact(zlib, &made, "codec \"zlib\"");
	expect_corrupt(gzip, made.bytes, made.len, "codec \"gzip\"");
	tb_chain_free(gzip);
	tb_chain_free(zlib);
	free(plain);
}

static void
test_lz4(void **state)
{
	uint8_t    *plain = gold_plain(4, PLAIN_LEN, 5);
	TbChain    *chain = chain_bytes(BYTES "{\"v2_id\": \"lz4\"}]", PLAIN_LEN);
	Made		made = {.len = 0};

	add_lz4(&made, plain, PLAIN_LEN, PLAIN_LEN);
	expect_decoded(chain, made.bytes, made.len, plain);
	expect_exact(chain, &made, "codec \"lz4\"");
	for (uint32_t told = 0; told < 5; told++)
	{
		static const uint32_t lies[] = {0, PLAIN_LEN - 1, PLAIN_LEN + 1, 0x80000000u, 0xffffffffu};

		made.len = 0;
		add_lz4(&made, plain, PLAIN_LEN, lies[told]);
		expect_corrupt(chain, made.bytes, made.len, "codec \"lz4\"");
	}
	made.len = 0;
	add_lz4(&made, plain, PLAIN_LEN - 1, PLAIN_LEN);
	expect_corrupt(chain, made.bytes, made.len, "codec \"lz4\"");
	made.len = 0;
	add_lz4(&made, plain, PLAIN_LEN - 1, PLAIN_LEN - 1);
	expect_corrupt(chain, made.bytes, made.len, "codec \"lz4\"");
	tb_chain_free(chain);
	free(plain);
}

/* What numcodecs writes, under its v2 id and under the name that zarr-python gives it in v3. */
static void
test_numcodecs(void **state)
{
	size_t		len;
	size_t		at = 0;
	uint8_t    *pack = read_data("numcodecs.pack", &len);
	int			n = 0;
	Gold		gold;

	while (gold_next(pack, len, &at, &gold))
	{
		uint8_t    *plain = gold_plain(gold.element, gold.plain_len, gold.seed);
		char		list[256];
		TbChain    *chain;

		snprintf(list, sizeof(list), BYTES "{\"v2_id\": \"%s\", \"configuration\": {}}]",
				 gold.label);
		chain = chain_bytes(list, gold.plain_len);
		expect_decoded(chain, gold.encoded, gold.encoded_len, plain);
		tb_chain_free(chain);
		snprintf(list, sizeof(list), BYTES "{\"name\": \"numcodecs.%s\"}]", gold.label);
		chain = chain_bytes(list, gold.plain_len);
		expect_decoded(chain, gold.encoded, gold.encoded_len, plain);
		tb_chain_free(chain);
		free(plain);
		n++;
	}
	free(pack);
	assert_int_equal(n, 12);
}

static void
test_shuffle(void **state)
{
	uint8_t    *plain = gold_plain(1, 48, 1006);
	uint8_t		bytes[48];

	for (int size = 0; size <= 48; size++)
	{
		char		list[256];
		TbChain    *chain;
		int			n;

		if (size > 0 && 48 % size != 0)
			continue;
		n = 48 / (size == 0 ? 1 : size);
		for (int i = 0; i < 48; i++)
			bytes[size == 0 ? i : i % size * n + i / size] = plain[i];
		snprintf(list, sizeof(list), BYTES "{\"v2_id\": \"shuffle\", \"configuration\": "
				 "{\"elementsize\": %d}}]", size);
		chain = chain_bytes(list, 48);
		expect_decoded(chain, bytes, 48, plain);
		assert_int_equal(tb_chain_is_identity(chain), size <= 1);
		expect_corrupt(chain, bytes, 47, "codec \"shuffle\"");
		tb_chain_free(chain);
	}
	free(plain);
}

/* Sizes between two compressors are not known: found out, but never beyond the limit. */
static void
test_nested(void **state)
{
	uint8_t    *plain = gold_plain(4, PLAIN_LEN, 7);
	uint8_t    *zeros = calloc(1, 30 << 20);
	TbChain *chain = chain_bytes(BYTES "{\"name\": \"crc32c\"}, {\"name\": \"zstd\"}, {\"name\": "
									   "\"gzip\"}, {\"name\": \"crc32c\"}]",
								 PLAIN_LEN);
	Made		a = {.len = 0};
	Made		b = {.len = 0};

	add(&a, plain, PLAIN_LEN);
	add_crc(&a, 0);
	add_zstd(&b, a.bytes, a.len, false, 0);
	a.len = 0;
	add_deflate(&a, b.bytes, b.len, 31);
	add_crc(&a, 0);
	expect_decoded(chain, a.bytes, a.len, plain);
	expect_exact(chain, &a, "codec \"crc32c\"");
	a.len = 0;
	add_deflate(&a, zeros, 30 << 20, 31);	/* 30 kB that would become 30 MB */
	add_crc(&a, 0);
	expect_corrupt(chain, a.bytes, a.len, "more bytes than the chunk holds");
	tb_chain_free(chain);
	free(plain);
	free(zeros);
}

/* Shuffling what a compressor made: only a length told by the step before says whether it comes out
 * even. */
static void
test_shuffle_between(void **state)
{
	uint8_t    *plain = gold_plain(4, PLAIN_LEN, 9);
	uint32_t	n = PLAIN_LEN + 1;
	Made		a = {.len = 1};
	Made		b = {.len = 0};
	TbChain    *chain;

	while (a.len % 4 != 0)		/* shorten it until the LZ4 block is whole words */
	{
		a.len = 0;
		n--;
		add_lz4(&a, plain, n, n);
	}
	chain = chain_bytes(BYTES "{\"v2_id\": \"lz4\"}, {\"v2_id\": \"shuffle\"}, "
						"{\"v2_id\": \"zlib\"}]", n);
	for (size_t i = 0; i < a.len; i++)
		b.bytes[i % 4 * (a.len / 4) + i / 4] = a.bytes[i];
	b.len = a.len;
	a.len = 0;
	add_deflate(&a, b.bytes, b.len, 15);
	expect_decoded(chain, a.bytes, a.len, plain);
	a.len = 0;
	add_deflate(&a, b.bytes, b.len - 1, 15);
	expect_corrupt(chain, a.bytes, a.len, "codec \"shuffle\"");
	tb_chain_free(chain);
	free(plain);
}

/* All kinds of step in one chain: transpose, byte order, shuffle, two compressors, checksums. */
static void
test_long_chain(void **state)
{
	uint64_t	shape[] = {20, 50};
	uint8_t    *plain = gold_plain(4, PLAIN_LEN, 8);
	TbChain *chain = chain_of("[{\"name\": \"transpose\", \"configuration\": {\"order\": [1, 0]}}, "
							  "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"big\"}}, "
							  "{\"name\": \"crc32c\"}, {\"name\": \"gzip\"}, {\"name\": \"zstd\"}]",
							  TB_F32, 2, shape);
	Made		a = {.len = 0};
	Made		b = {.len = 0};

	for (size_t j = 0; j < 50; j++)
	{
		for (size_t i = 0; i < 20; i++)
		{
			const uint8_t *at = plain + (i * 50 + j) * 4;

			add(&a, (uint8_t[4]) {at[3], at[2], at[1], at[0]}, 4);
		}
	}
	add_crc(&a, 0);
	add_deflate(&b, a.bytes, a.len, 31);
	a.len = 0;
	add_zstd(&a, b.bytes, b.len, true, 0);
	expect_decoded(chain, a.bytes, a.len, plain);
	tb_chain_free(chain);
	free(plain);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc32c),
		cmocka_unit_test(test_crc_codec),
		cmocka_unit_test(test_zstd),
		cmocka_unit_test(test_zstd_own),
		cmocka_unit_test(test_gzip_zlib),
		cmocka_unit_test(test_lz4),
		cmocka_unit_test(test_numcodecs),
		cmocka_unit_test(test_shuffle),
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_shuffle_between),
		cmocka_unit_test(test_long_chain),
	};

	return cmocka_run_group_tests_name("codec bytes", tests, NULL, NULL);
}
