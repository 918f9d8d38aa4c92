/* The blosc container: golden buffers of c-blosc, and headers, offsets and streams that lie. */
#include "codec_help.h"

#define BLOSC "[{\"name\": \"bytes\"}, {\"name\": \"blosc\"}]"

static void
put_u32(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t) (value >> (8 * i));
}

/* A container of one block and one stream. flags: with the format in bits 5 to 7. Caller frees. */
static uint8_t *
container(uint8_t flags, uint8_t element, size_t plain_len, const void *stream, size_t stream_len,
		  size_t *len)
{
	uint8_t    *c = malloc(24 + stream_len);

	assert_non_null(c);
	*len = 24 + stream_len;
	c[0] = 2;
	c[1] = 1;
	c[2] = flags;
	c[3] = element;
	put_u32(c + 4, (uint32_t) plain_len);
	put_u32(c + 8, (uint32_t) plain_len);
	put_u32(c + 12, (uint32_t) *len);
	put_u32(c + 16, 20);
	put_u32(c + 20, (uint32_t) stream_len);
	memcpy(c + 24, stream, stream_len);
	return c;
}

static void
test_golden(void **state)
{
	size_t		len;
	size_t		at = 0;
	uint8_t    *pack = read_data("blosc.pack", &len);
	int			n = 0;
	Gold		gold;

	while (gold_next(pack, len, &at, &gold))
	{
		TbChain    *chain = chain_bytes(BLOSC, gold.plain_len);
		uint8_t    *plain = gold_plain(gold.element, gold.plain_len, gold.seed);
		uint8_t    *out;
		TbError		err = {0};

		if (decode_tight(chain, gold.encoded, gold.encoded_len, &out, &err) != TB_OK)
			fail_msg("%s: %s (%s)", gold.label, err.message, err.detail);
		if (memcmp(out, plain, gold.plain_len) != 0)
			fail_msg("%s: other bytes", gold.label);
		free(out);
		free(plain);
		tb_chain_free(chain);
		n++;
	}
	free(pack);
	assert_int_equal(n, 190);
}

/* Chunks one byte larger or smaller than the container are corrupt. */
static void
test_other_size(void **state)
{
	size_t		len;
	size_t		at = 0;
	uint8_t    *pack = read_data("blosc.pack", &len);
	Gold		gold;

	while (gold_next(pack, len, &at, &gold))
	{
		TbChain    *more = chain_bytes(BLOSC, gold.plain_len + 1);
		TbChain    *less = chain_bytes(BLOSC, gold.plain_len - 1);

		expect_corrupt(more, gold.encoded, gold.encoded_len, "codec \"blosc\"");
		expect_corrupt(less, gold.encoded, gold.encoded_len, "codec \"blosc\"");
		tb_chain_free(more);
		tb_chain_free(less);
	}
	free(pack);
}

/* Every field of the header, set to what must not be believed. */
static void
test_header_lies(void **state)
{
	static const struct
	{
		size_t		at;
		uint32_t	value;
		bool		byte;
		const char *words;
	}			lies[] = {
		{0, 1, true, "version"}, {0, 5, true, "version"}, {2, 0x08, true, "flags"},
		{2, 0xa0, true, "inner format 5"}, {2, 0xff, true, "flags"}, {2, 0x02, true, "stored"},
		{3, 0, true, "element size is 0"}, {4, 0, false, "0 bytes"}, {4, 4001, false, "4001"},
		{4, UINT32_MAX, false, "4294967295"}, {4, 0x80000000u, false, "2147483648"},
		{8, 0, false, "block size is 0"}, {8, 1, false, "4000 blocks"},
		{8, 4001, false, "block size is 4001"}, {8, UINT32_MAX, false, "block size"},
		{8, 2000, false, "block"}, {12, 0, false, "header tells 0"},
		{12, UINT32_MAX, false, "header tells"}, {16, 0, false, "outside"},
		{16, 16, false, "outside"}, {16, 19, false, "outside"},
		{16, UINT32_MAX, false, "outside"}, {16, 0x80000000u, false, "outside"},
		{20, UINT32_MAX, false, "outside"}, {20, 0x80000000u, false, "outside"},
		{20, 0, false, "block 0 of 1"}, {20, 1, false, "block 0 of 1"},
	};
	uint8_t    *plain = gold_plain(4, 4000, 3);
	TbChain    *chain = chain_bytes(BLOSC, 4000);
	size_t		len;
	uint8_t    *good = container(0x10 | 1 << 5, 4, 4000, plain, 4000, &len);

	expect_decoded(chain, good, len, plain);
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
	{
		uint8_t    *bad = tight_copy(good, len);

		if (lies[i].byte)
			bad[lies[i].at] = (uint8_t) lies[i].value;
		else
			put_u32(bad + lies[i].at, lies[i].value);
		expect_corrupt(chain, bad, len, lies[i].words);
		free(bad);
	}
	for (size_t cut = 0; cut < 30; cut++)
	{
		expect_corrupt(chain, good, cut, "codec \"blosc\"");
		if (cut >= 16)
		{
			uint8_t    *bad = tight_copy(good, cut);

			put_u32(bad + 12, (uint32_t) cut);	/* a header that knows it was cut */
			expect_corrupt(chain, bad, cut, "codec \"blosc\"");
			free(bad);
		}
	}
	free(good);
	free(plain);
	tb_chain_free(chain);
}

/* A split block must come out even: 1029 bytes are no 8 streams. */
static void
test_uneven_split(void **state)
{
	uint8_t		stream[1029] = {0};
	TbChain    *chain = chain_bytes(BLOSC, sizeof(stream));
	size_t		len;
	uint8_t    *bad = container(1 << 5, 8, sizeof(stream), stream, sizeof(stream), &len);

	expect_corrupt(chain, bad, len, "no whole elements");
	free(bad);
	tb_chain_free(chain);
}

/* No bytes at all: a bare header. */
static void
test_empty(void **state)
{
	uint8_t		head[16] = {2, 1, 0x01, 4};
	TbChain    *chain = chain_bytes(BLOSC, 0);

	put_u32(head + 12, 16);
	expect_decoded(chain, head, 16, "");
	tb_chain_free(chain);
	chain = chain_bytes(BLOSC, 4);
	expect_corrupt(chain, head, 16, "codec \"blosc\"");
	tb_chain_free(chain);
}

/*
 * c-blosc#405: a copy whose length is spelled in 8.4 million bytes of 255 wrapped the reference
 * decoder's 32-bit counter and wrote where it liked.
 */
static void
test_length_overflow(void **state)
{
	size_t		stream_len = 8421600;
	uint8_t    *stream = malloc(stream_len);
	TbChain    *chain = chain_bytes(BLOSC, 4000);
	size_t		len;
	uint8_t    *bad;

	assert_non_null(stream);
	memset(stream, 255, stream_len);
	stream[0] = 0;				/* one literal */
	stream[1] = 'x';
	stream[2] = 7 << 5;			/* a long copy */
	stream[stream_len - 2] = 0;
	stream[stream_len - 1] = 0;
	bad = container(0x10, 1, 4000, stream, stream_len, &len);
	expect_corrupt(chain, bad, len, "blosclz");
	free(bad);
	free(stream);
	tb_chain_free(chain);
}

/* BloscLZ by hand: literals, a run, an overlapping copy, a far copy, and each of them beyond
 * bounds. */
static void
test_blosclz(void **state)
{
	static const uint8_t near_copies[] = {
		2, 'a', 'b', 'c',		/* three literals */
		2 << 5, 2,				/* four bytes from 3 back: abca */
		7 << 5, 1, 0,			/* ten bytes from 1 back */
	};
	static const uint8_t bad[][6] = {
		{0, 'x', 2 << 5, 1, 0, 'y'},	/* from before the start */
		{31, 'x', 0, 0, 0, 0},	/* more literals than there are */
		{0, 'x', 7 << 5, 255, 255, 255},	/* ends inside a length */
		{0, 'x', 0, 'x', 2 << 5 | 31, 255},	/* ends inside a distance */
		{0, 'x', 7 << 5, 200, 0, 0},	/* longer than the room */
	};
	uint8_t		out[9000];
	uint8_t		far[8192 + 9 + 512];
	TbFlow		flow = {near_copies, sizeof(near_copies), out, 17, NULL};
	size_t		n = 0;

	assert_int_equal(tb_unblosclz(&flow), TB_OK);
	assert_int_equal(flow.dst_left, 0);
	assert_memory_equal(out, "abcabcaaaaaaaaaaa", 17);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		uint8_t    *tight = tight_copy(bad[i], sizeof(bad[i]));

		flow = (TbFlow) {tight, sizeof(bad[i]), out, 17, NULL};
		assert_int_equal(tb_unblosclz(&flow), TB_E_CORRUPT);
		free(tight);
	}
	for (int i = 0; i < 257; i++)		/* 257 * 32 = 8224 literals: 0 1 2 ... 31, with i */
	{
		far[n++] = 31;
		for (int j = 0; j < 32; j++)
			far[n++] = (uint8_t) (i + j);
		if (n + 33 + 6 > sizeof(far))
			break;
	}
	far[n++] = 1 << 5 | 31;		/* three bytes from 8192 + 0 back */
	far[n++] = 255;
	far[n++] = 0;
	far[n++] = 0;
	flow = (TbFlow) {far, n, out, sizeof(out), NULL};
	assert_int_equal(tb_unblosclz(&flow), TB_OK);
	n = (size_t) (flow.dst - out);
	assert_true(n > 8192);
	assert_memory_equal(out + n - 3, out + n - 3 - 8192, 3);
}

/* Snappy streams by hand: all kinds of items, then lies. */
static void
test_snappy(void **state)
{
	static const uint8_t good[] = {
		23,						/* decoded bytes */
		2 << 2, 'a', 'b', 'c',	/* three literals */
		0 << 2 | 1, 3,			/* four from 3 back */
		4 << 2 | 2, 1, 0,		/* five from 1 back */
		7 << 2 | 3, 12, 0, 0, 0,	/* eight from 12 back */
		60 << 2, 2, 'x', 'y', 'z',	/* three literals, the length in a byte */
	};
	static const uint8_t bad[][6] = {
		{20, 2 << 2, 'a', 'b', 'c', 0},	/* ends early */
		{4, 0 << 2, 'a', 2 << 2 | 2, 2, 0},	/* from before the start */
		{4, 0 << 2, 'a', 2 << 2 | 2, 0, 0},	/* from nowhere */
		{4, 0 << 2, 'a', 2 << 2 | 3, 1, 0},	/* ends inside a distance */
		{4, 63 << 2, 255, 255, 255, 255},	/* four thousand million literals */
		{255, 255, 255, 255, 255, 255},	/* a size without end */
		{24, 3 << 2, 'a', 'b', 'c', 'd'},	/* more than the room */
	};
	uint8_t		out[23];
	TbChain    *chain = chain_bytes(BLOSC, 23);
	TbFlow		flow;
	size_t		len;
	uint8_t    *c = container(0x10 | 2 << 5, 1, 23, good, sizeof(good), &len);

	expect_decoded(chain, c, len, "abcabcaaaaaaabcabcaaxyz");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		uint8_t    *tight = tight_copy(bad[i], sizeof(bad[i]));

		flow = (TbFlow) {tight, sizeof(bad[i]), out, sizeof(out), NULL};
		assert_int_equal(tb_unsnappy(&flow), TB_E_CORRUPT);
		free(tight);
	}
	free(c);
	tb_chain_free(chain);
}

/* Both unshuffles against the plain definition, for all sizes of element and many of block. */
static void
test_unshuffle(void **state)
{
	uint64_t	seed = 99;

	for (int round = 0; round < 3000; round++)
	{
		size_t		size = round < 1500 ? 1 + rng_next(&seed) % 17 : 1 + rng_next(&seed) % 255;
		size_t		len = rng_next(&seed) % 2100;
		size_t		n = len / size;
		uint8_t    *plain = malloc(len + 1);
		uint8_t    *bytes = malloc(len + 1);
		uint8_t    *bits = calloc(1, len + 1);
		uint8_t    *out = malloc(len > 0 ? len : 1);
		uint8_t    *work = malloc(len > 0 ? len : 1);

		for (size_t i = 0; i < len; i++)
			plain[i] = bytes[i] = (uint8_t) rng_next(&seed);
		for (size_t i = 0; i < n * size; i++)
			bytes[i % size * n + i / size] = plain[i];
		tb_unshuffle(size, len, bytes, out);
		assert_memory_equal(out, plain, len);

		memcpy(bits, plain, len);
		if (n % 8 == 0)
		{
			memset(bits, 0, n * size);
			for (size_t i = 0; i < n * size * 8; i++)
			{
				size_t		element = i / (size * 8);
				size_t		to = i % (size * 8) * n + element;

				bits[to / 8] |= (uint8_t) ((plain[i / 8] >> (i % 8) & 1) << (to % 8));
			}
		}
		tb_unbitshuffle(size, len, bits, out, work);
		assert_memory_equal(out, plain, len);
		free(plain);
		free(bytes);
		free(bits);
		free(out);
		free(work);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_other_size),
		cmocka_unit_test(test_header_lies),
		cmocka_unit_test(test_uneven_split),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_length_overflow),
		cmocka_unit_test(test_blosclz),
		cmocka_unit_test(test_snappy),
		cmocka_unit_test(test_unshuffle),
	};

	return cmocka_run_group_tests_name("blosc", tests, NULL, NULL);
}
