/* Keys of stored objects. */
#include "zarr_help.h"

static void
follows_the_encodings(void **state)
{
	static const struct
	{
		const char *path;
		bool v2;
		char separator;
		int ndim;
		const char *want;
	} rows[] = {
		{"", false, '/', 3, "c/1/20/18446744073709551615"},
		{"a/b", false, '/', 2, "a/b/c/1/20"},
		{"a", false, '.', 2, "a/c.1.20"},
		{"a", false, '/', 0, "a/c"},
		{"", false, '.', 0, "c"},
		{"", true, '.', 3, "1.20.18446744073709551615"},
		{"a/b", true, '.', 1, "a/b/1"},
		{"a", true, '/', 2, "a/1/20"},
		{"a", true, '.', 0, "a/0"},
		{"", true, '/', 0, "0"},
	};
	const uint64_t index[] = {1, 20, UINT64_MAX};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		TbArrayMeta meta = {.path = (char *) (uintptr_t) rows[i].path,
							.ndim = rows[i].ndim,
							.key_v2 = rows[i].v2,
							.separator = rows[i].separator};
		size_t		need = strlen(rows[i].want) + 1;
		char		key[64];

		assert_true(tb_chunk_key(&meta, index, key, need));
		assert_string_equal(key, rows[i].want);
		/* each smaller buffer is refused and nothing is written behind it */
		for (size_t bytes = 0; bytes < need; bytes++)
		{
			memset(key, '#', sizeof(key));
			assert_false(tb_chunk_key(&meta, index, key, bytes));
			assert_int_equal(key[bytes], '#');
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(follows_the_encodings),
	};

	return cmocka_run_group_tests_name("zarr keys", tests, NULL, NULL);
}
