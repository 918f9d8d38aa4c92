/* Chains: what the list may say, and the array codecs bytes and transpose against plain
 * definitions. */
#include "codec_help.h"

#include <pthread.h>

#define LITTLE "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"little\"}}"
#define BIG "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"big\"}}"

static void
test_registry(void **state)
{
	static const char *const v3[] = {"blosc", "bytes", "crc32c", "gzip", "transpose", "zstd"};
	static const char *const v2[] = {"blosc", "crc32c", "gzip", "lz4", "shuffle", "zlib", "zstd"};
	char		name[64];

	for (size_t i = 0; i < sizeof(v3) / sizeof(v3[0]); i++)
		assert_string_equal(tb_codec_find(v3[i])->name, v3[i]);
	for (size_t i = 0; i < sizeof(v2) / sizeof(v2[0]); i++)
	{
		assert_string_equal(tb_codec_find_v2(v2[i])->v2_id, v2[i]);
		snprintf(name, sizeof(name), "numcodecs.%s", v2[i]);
		assert_ptr_equal(tb_codec_find(name), tb_codec_find_v2(v2[i]));
	}
	assert_ptr_equal(tb_codec_find("endian"), tb_codec_find("bytes"));
	assert_null(tb_codec_find("lzma"));
	assert_null(tb_codec_find("zlib"));		/* has no name in v3 */
	assert_null(tb_codec_find("numcodecs."));
	assert_null(tb_codec_find("numcodecs.bytes"));
	assert_null(tb_codec_find(""));
	assert_null(tb_codec_find_v2("transpose"));
}

static void
test_bad_lists(void **state)
{
	static const struct
	{
		const char *list;
		TbStatus	status;
		const char *words;
	} cases[] = {
		{"[" LITTLE ", {\"name\": \"lzma\"}]", TB_E_UNSUPPORTED, "codec \"lzma\""},
		{"[" LITTLE ", {\"v2_id\": \"lzma\", \"configuration\": {}}]", TB_E_UNSUPPORTED,
		 "\"lzma\""},
		{"[" LITTLE ", \"zfpy\"]", TB_E_UNSUPPORTED, "codec \"zfpy\""},
		{"[" LITTLE ", {\"name\": \"x\", \"must_understand\": true}]", TB_E_UNSUPPORTED, "\"x\""},
		{"[{\"name\": \"sharding_indexed\"}]", TB_E_UNSUPPORTED, "sharding_indexed"},
		{"[]", TB_E_INVALID, "no codec makes bytes"},
		{"null", TB_E_INVALID, "no codec makes bytes"},
		{"{\"name\": \"bytes\"}", TB_E_INVALID, "no codec makes bytes"},
		{"[{\"name\": \"zstd\"}]", TB_E_INVALID, "before it is compressed"},
		{"[{\"name\": \"zstd\"}, " LITTLE "]", TB_E_INVALID, "before it is compressed"},
		{"[{\"name\": \"transpose\", \"configuration\": {\"order\": [0, 1]}}]", TB_E_INVALID,
		 "no codec makes bytes"},
		{"[" LITTLE ", " LITTLE "]", TB_E_INVALID, "more than one"},
		{"[" LITTLE ", {\"name\": \"transpose\", \"configuration\": {\"order\": [0, 1]}}]",
		 TB_E_INVALID, "stands behind"},
		{"[" LITTLE ", {\"name\": \"zstd\"}, " LITTLE "]", TB_E_INVALID, "stands behind"},
		{"[" LITTLE ", 7]", TB_E_INVALID, "no name"},
		{"[" LITTLE ", null]", TB_E_INVALID, "no name"},
		{"[" LITTLE ", {}]", TB_E_INVALID, "no name"},
		{"[" LITTLE ", {\"name\": 5}]", TB_E_INVALID, "no name"},
		{"[" LITTLE ", {\"name\": \"zstd\", \"configuration\": 5}]", TB_E_INVALID, "no object"},
		{"[{\"name\": \"bytes\"}]", TB_E_INVALID, "need \"endian\""},
		{"[{\"name\": \"bytes\", \"configuration\": {}}]", TB_E_INVALID, "need \"endian\""},
		{"[{\"name\": \"bytes\", \"configuration\": {\"endian\": \"middle\"}}]", TB_E_INVALID,
		 "neither"},
		{"[{\"name\": \"bytes\", \"configuration\": {\"endian\": 1}}]", TB_E_INVALID, "neither"},
		{"[" LITTLE ", {\"v2_id\": \"shuffle\", \"configuration\": {\"elementsize\": -1}}]",
		 TB_E_INVALID, "elementsize"},
		{"[" LITTLE ", {\"v2_id\": \"shuffle\", \"configuration\": {\"elementsize\": \"4\"}}]",
		 TB_E_INVALID, "elementsize"},
		{"[" LITTLE ", {\"v2_id\": \"shuffle\", \"configuration\": {\"elementsize\": 5}}]",
		 TB_E_INVALID, "multiple"},
		{"[" LITTLE ", {\"name\": \"numcodecs.crc32c\", \"configuration\": {\"location\": \"x\"}}]",
		 TB_E_INVALID, "location"},
	};
	uint64_t	shape[] = {3, 4};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		TbChain    *chain = NULL;
		TbError		err = {0};
		TbStatus	status = chain_try(cases[i].list, TB_I32, 2, shape, &chain, &err);

		if (status != cases[i].status || err.code != status ||
			strstr(err.detail, cases[i].words) == NULL)
			fail_msg("%s: %s (%s)", cases[i].list, tb_status_name(status), err.detail);
		assert_null(chain);
	}
}

static void
test_bad_orders(void **state)
{
	static const char *const orders[] = {
		"[0]", "[0, 1, 2]", "[0, 0]", "[0, 2]", "[0, -1]", "[0, 1.5]", "[0, \"1\"]", "\"A\"",
		"\"\"", "5", "{}", "null", "[]", "[18446744073709551616, 0]",
	};
	uint64_t	shape[] = {3, 4};

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
	{
		char		list[256];
		TbChain    *chain;
		TbError		err = {0};

		snprintf(list, sizeof(list),
				 "[{\"name\": \"transpose\", \"configuration\": {\"order\": %s}}, " LITTLE "]",
				 orders[i]);
		assert_int_equal(chain_try(list, TB_I32, 2, shape, &chain, &err), TB_E_INVALID);
		assert_non_null(strstr(err.detail, "codec \"transpose\""));
	}
}

static void
test_sizes(void **state)
{
	uint64_t	shape[] = {(uint64_t) 1 << 33, (uint64_t) 1 << 33};
	uint64_t	half[] = {1u << 15, 1u << 14};
	TbChain    *chain;
	TbError		err = {0};
	char		many[2000] = "[" LITTLE;

	assert_int_equal(chain_try("[" LITTLE "]", TB_F64, 2, shape, &chain, &err), TB_E_LIMIT);
	assert_int_equal(chain_try("[" LITTLE "]", TB_U8, 1, shape, &chain, &err), TB_E_LIMIT);
	assert_int_equal(chain_try("[" LITTLE "]", TB_F64, 2, half, &chain, &err), TB_E_LIMIT);
	assert_int_equal(chain_try("[" LITTLE "]", TB_NONE, 1, half, &chain, &err), TB_E_INVALID);
	assert_int_equal(chain_try("[" LITTLE "]", TB_U8, -1, half, &chain, &err), TB_E_INVALID);
	assert_int_equal(chain_try("[" LITTLE "]", TB_U8, 33, half, &chain, &err), TB_E_INVALID);
	assert_int_equal(chain_try("[" LITTLE "]", TB_F32, 2, half, &chain, &err), TB_OK);
	assert_int_equal(tb_chain_decoded_bytes(chain), (size_t) 1 << 31);
	assert_int_equal(tb_chain_encoded_limit(chain), (size_t) 1 << 31);
	tb_chain_free(chain);
	for (int i = 0; i < 32; i++)
		strcat(many, ", \"crc32c\"");
	strcat(many, "]");
	assert_int_equal(chain_try(many, TB_F32, 2, half, &chain, &err), TB_E_LIMIT);
	tb_chain_free(NULL);
	tb_scratch_free(NULL);
}

static void
test_describe(void **state)
{
	uint64_t	shape[] = {4, 6};
	TbChain *chain =
		chain_of("[{\"name\": \"transpose\", \"configuration\": {\"order\": [1, 0]}}, " BIG
				 ", {\"name\": \"blosc\", \"configuration\": {\"cname\": \"lz4\", "
				 "\"typesize\": 4, \"clevel\": 5}}, {\"name\": \"later\", "
				 "\"must_understand\": false}, {\"name\": \"zstd\", "
				 "\"configuration\": {\"level\": 3, \"checksum\": false}}, \"crc32c\"]",
				 TB_F32, 2, shape);

	assert_string_equal(tb_chain_describe(chain), "transpose(order [1,0]), bytes(endian big), "
						"blosc(cname lz4, clevel 5), zstd(level 3), crc32c");
	assert_false(tb_chain_is_identity(chain));
	assert_int_equal(tb_chain_decoded_bytes(chain), 96);
	assert_true(tb_chain_encoded_limit(chain) > 96 && tb_chain_encoded_limit(chain) < 1 << 20);
	tb_chain_free(chain);
	chain = chain_of("[" LITTLE "]", TB_F32, 2, shape);
	assert_string_equal(tb_chain_describe(chain), "bytes");
	tb_chain_free(chain);
	chain = chain_of("[" LITTLE ", {\"name\": \"crc32c\"}]", TB_F32, 2, shape);
	assert_int_equal(tb_chain_encoded_limit(chain), 100);
	tb_chain_free(chain);
}

/* Swap the bytes of n elements. */
static void
swap_all(uint8_t *bytes, size_t size, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		for (size_t j = 0; j < size / 2; j++)
		{
			uint8_t		b = bytes[i * size + j];

			bytes[i * size + j] = bytes[i * size + size - 1 - j];
			bytes[i * size + size - 1 - j] = b;
		}
	}
}

static void
test_byte_order(void **state)
{
	static const TbDtype types[] = {TB_I8, TB_U16, TB_F16, TB_F32, TB_I64, TB_F64};

	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
	{
		for (uint64_t n = 0; n < 70; n++)
		{
			size_t		size = tb_dtype_size(types[t]);
			TbChain    *native = chain_of("[" LITTLE "]", types[t], 1, &n);
			TbChain    *swapped = chain_of("[" BIG "]", types[t], 1, &n);
			uint8_t    *plain = gold_plain(1, n * size, 1234);
			uint8_t    *bytes = tight_copy(plain, n * size);

			assert_true(tb_chain_is_identity(native));
			assert_int_equal(tb_chain_is_identity(swapped), size == 1);
			expect_decoded(native, plain, n * size, plain);
			swap_all(bytes, size, n);
			expect_decoded(swapped, bytes, n * size, plain);
			expect_corrupt(native, plain, n * size + 1, "codec \"bytes\"");
			if (n > 0)
				expect_corrupt(swapped, plain, n * size - 1, "codec \"bytes\"");
			free(plain);
			free(bytes);
			tb_chain_free(native);
			tb_chain_free(swapped);
		}
	}
}

static void
test_bool(void **state)
{
	static const uint8_t bytes[] = {0, 1, 2, 255, 0};
	static const uint8_t plain[] = {0, 1, 1, 1, 0};
	uint64_t	n = sizeof(bytes);
	TbChain    *chain = chain_of("[{\"name\": \"bytes\"}]", TB_BOOL, 1, &n);

	expect_decoded(chain, bytes, sizeof(bytes), plain);
	assert_false(tb_chain_is_identity(chain));
	tb_chain_free(chain);
}

/* Element `index` of the encoded array, by the definition: encoded axis i is decoded axis order[i].
 */
static size_t
encoded_place(int ndim, const uint64_t *shape, const int *order, const uint64_t *index)
{
	size_t		at = 0;

	for (int i = 0; i < ndim; i++)
		at = at * shape[order[i]] + index[order[i]];
	return at;
}

static void
transpose_plain(int ndim, const uint64_t *shape, const int *order, size_t size,
				const uint8_t *plain, uint8_t *encoded)
{
	uint64_t	index[8] = {0};
	size_t		n = 1;

	for (int i = 0; i < ndim; i++)
		n *= shape[i];
	for (size_t at = 0; at < n; at++)
	{
		memcpy(encoded + encoded_place(ndim, shape, order, index) * size, plain + at * size, size);
		for (int i = ndim - 1; i >= 0 && ++index[i] == shape[i]; i--)
			index[i] = 0;
	}
}

static void
test_transpose(void **state)
{
	static const TbDtype types[] = {TB_U8, TB_I16, TB_F32, TB_F64};
	uint64_t	seed = 7;

	for (int round = 0; round < 4000; round++)
	{
		TbDtype		type = types[rng_next(&seed) % 4];
		size_t		size = tb_dtype_size(type);
		int			ndim = (int) (rng_next(&seed) % 6);
		uint64_t	shape[8];
		int			order[8];
		size_t		n = 1;
		char		list[512];
		int len = snprintf(list, sizeof(list),
						   "[{\"name\": \"transpose\", \"configuration\": "
						   "{\"order\": [");
		TbChain    *chain;
		uint8_t    *plain;
		uint8_t    *encoded;

		for (int i = 0; i < ndim; i++)
		{
			int			j = (int) (rng_next(&seed) % (uint64_t) (i + 1));

			shape[i] = 1 + rng_next(&seed) % (ndim < 3 ? 90 : 7);
			n *= shape[i];
			order[i] = order[j];
			order[j] = i;
		}
		for (int i = 0; i < ndim; i++)
			len += snprintf(list + len, sizeof(list) - (size_t) len, "%s%d", i > 0 ? ", " : "",
							order[i]);
		snprintf(list + len, sizeof(list) - (size_t) len, "]}}, " LITTLE "]");
		chain = chain_of(list, type, ndim, shape);
		plain = gold_plain(1, n * size, 1000u + (uint32_t) round);
		encoded = malloc(n * size);
		transpose_plain(ndim, shape, order, size, plain, encoded);
		expect_decoded(chain, encoded, n * size, plain);
		if (tb_chain_is_identity(chain))
			assert_memory_equal(plain, encoded, n * size);
		free(plain);
		free(encoded);
		tb_chain_free(chain);
	}
}

/* Two transposes undo each other; "F" turns a matrix; all of it with the other byte order. */
static void
test_transpose_twice(void **state)
{
	uint64_t	shape[] = {3, 4, 5};
	int			reversed[] = {2, 1, 0};
	uint8_t    *plain = gold_plain(1, 240, 1001);
	uint8_t    *encoded = malloc(240);
	TbChain    *chain;

	chain = chain_of("[{\"name\": \"transpose\", \"configuration\": {\"order\": [2, 0, 1]}}, "
					 "{\"name\": \"transpose\", \"configuration\": {\"order\": [1, 2, 0]}}, " LITTLE
					 "]",
					 TB_F32, 3, shape);
	expect_decoded(chain, plain, 240, plain);
	tb_chain_free(chain);
	transpose_plain(3, shape, reversed, 4, plain, encoded);
	swap_all(encoded, 4, 60);
	chain = chain_of("[{\"name\": \"transpose\", \"configuration\": {\"order\": \"F\"}}, " BIG "]",
					 TB_F32, 3, shape);
	expect_decoded(chain, encoded, 240, plain);
	tb_chain_free(chain);
	chain =
		chain_of("[{\"name\": \"transpose\", \"configuration\": {\"order\": \"C\"}}, " LITTLE "]",
				 TB_F32, 3, shape);
	assert_true(tb_chain_is_identity(chain));
	tb_chain_free(chain);
	shape[1] = 0;
	chain = chain_of("[{\"name\": \"transpose\", \"configuration\": {\"order\": \"F\"}}, " BIG "]",
					 TB_F32, 3, shape);
	expect_decoded(chain, "", 0, "");
	tb_chain_free(chain);
	free(plain);
	free(encoded);
}

static void *
ask_mine(void *arg)
{
	TbScratch  *mine = tb_scratch_mine();

	assert_ptr_equal(mine, tb_scratch_mine());
	*(TbScratch **) arg = mine;
	return NULL;
}

/* Each thread has its own scratch, and it goes with the thread. */
static void
test_scratch_mine(void **state)
{
	TbScratch  *mine = tb_scratch_mine();
	TbScratch  *other = NULL;
	int64_t		live = tb_mem_live();
	pthread_t	thread;

	assert_non_null(mine);
	assert_int_equal(pthread_create(&thread, NULL, ask_mine, &other), 0);
	pthread_join(thread, NULL);
	assert_non_null(other);
	assert_ptr_not_equal(mine, other);
	assert_int_equal(tb_mem_live(), live);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registry),
		cmocka_unit_test(test_bad_lists),
		cmocka_unit_test(test_bad_orders),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_describe),
		cmocka_unit_test(test_byte_order),
		cmocka_unit_test(test_bool),
		cmocka_unit_test(test_transpose),
		cmocka_unit_test(test_transpose_twice),
		cmocka_unit_test(test_scratch_mine),
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
