/* Error records, the allocator's counters and hook, element types. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <string.h>

static void
test_fail_fills_anew(void **state)
{
	TbError		err;

	memset(&err, 0x7f, sizeof(err));
	assert_int_equal(tb_fail(&err, TB_E_CORRUPT, "chunk is %s", "corrupt"), TB_E_CORRUPT);
	assert_int_equal(err.code, TB_E_CORRUPT);
	assert_string_equal(err.message, "chunk is corrupt");
	assert_string_equal(err.detail, "");
	assert_string_equal(err.hint, "");
	assert_false(err.retryable);
	assert_int_equal(err.http_status, 0);
	assert_int_equal(err.sys_errno, 0);
	assert_int_equal(err.retry_after_ms, -1);
	assert_int_equal(tb_fail(NULL, TB_E_RANGE, "x"), TB_E_RANGE);
	tb_error_detail(NULL, "x");
	tb_error_hint(NULL, "x");
	tb_error_clear(NULL);
}

static void
test_detail_and_hint(void **state)
{
	TbError		err;
	char		big[2000];

	tb_fail(&err, TB_E_IO, "m");
	tb_error_detail(&err, "object %d", 1);
	tb_error_detail(&err, "block %d", 2);
	assert_string_equal(err.detail, "object 1; block 2");
	tb_error_hint(&err, "one");
	tb_error_hint(&err, "two");
	assert_string_equal(err.hint, "two");

	/* an argument that points into the record itself */
	tb_fail(&err, TB_E_IO, "again: %s", err.detail);
	assert_string_equal(err.message, "again: object 1; block 2");

	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	tb_fail(&err, TB_E_IO, "%s", big);
	assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
	for (int i = 0; i < 3; i++)
		tb_error_detail(&err, "%s", big);
	assert_int_equal(strlen(err.detail), sizeof(err.detail) - 1);
}

static void
test_text_is_clean(void **state)
{
	TbError		err;
	char		text[800];

	tb_fail(&err, TB_E_IO, "a\r\nb\x1b[31m\xff\x7f" "c \xc3\xa9");
	assert_string_equal(err.message, "a??b?[31m??c \xc3\xa9");

	/* a character that would be cut in half is dropped, at every alignment */
	for (int shift = 0; shift < 4; shift++)
	{
		size_t		len = 0;

		memset(text, 'x', 8);
		for (len = (size_t) shift; len + 4 < sizeof(text); len += 4)
			memcpy(text + len, "\xf0\x9f\x98\x80", 4);
		text[len] = '\0';
		tb_fail(&err, TB_E_IO, "%s", text);
		assert_null(strchr(err.message, '?'));
		assert_true(strlen(err.message) > sizeof(err.message) - 5);
		tb_error_detail(&err, "%s", text);
		assert_null(strchr(err.detail, '?'));
		assert_true(strlen(err.detail) > sizeof(err.detail) - 5);
	}
}

static void
test_errno(void **state)
{
	static const struct
	{
		int			number;
		TbStatus	status;
	}			cases[] = {
		{ENOSPC, TB_E_NO_SPACE}, {EDQUOT, TB_E_NO_SPACE},
		{EACCES, TB_E_DENIED}, {EPERM, TB_E_DENIED},
		{ENOENT, TB_E_NOT_FOUND}, {ENOMEM, TB_E_NOMEM}, {EIO, TB_E_IO}, {EMFILE, TB_E_IO},
	};
	TbError		err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		assert_int_equal(tb_fail_errno(&err, cases[i].number, "open file", "a/b"), cases[i].status);
		assert_int_equal(err.code, cases[i].status);
		assert_int_equal(err.sys_errno, cases[i].number);
		assert_string_equal(err.message, "could not open file");
		assert_int_equal(strncmp(err.detail, "a/b: ", 5), 0);
	}
	tb_fail_errno(&err, ENOENT, "open file", NULL);
	assert_string_equal(err.detail, "No such file or directory");
	assert_int_equal(tb_fail_errno(NULL, ENOENT, "open file", NULL), TB_E_NOT_FOUND);
}

static void
test_status_names(void **state)
{
	for (int i = TB_OK; i <= TB_E_INTERNAL; i++)
	{
		assert_string_not_equal(tb_status_name((TbStatus) i), "unknown");
		for (int j = TB_OK; j < i; j++)
			assert_string_not_equal(tb_status_name((TbStatus) i), tb_status_name((TbStatus) j));
	}
	assert_string_equal(tb_status_name((TbStatus) 9999), "unknown");
	assert_string_equal(tb_status_name((TbStatus) -1), "unknown");
}

static void
test_mem_counts(void **state)
{
	int64_t		before = tb_mem_live();
	void	   *a;
	void	   *b;
	char	   *text;

	(void) tb_mem_fail_after(0);
	a = tb_malloc(0);
	b = tb_calloc(3, 4);
	assert_non_null(a);
	assert_memory_equal(b, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
	b = tb_realloc(b, 100);
	assert_non_null(b);
	text = tb_asprintf("%d-%s", 7, "x");
	assert_string_equal(text, "7-x");
	assert_int_equal(tb_mem_live() - before, 3);
	assert_int_equal(tb_mem_fail_after(0), 4);
	tb_free(a);
	tb_free(b);
	tb_free(text);
	tb_free(NULL);
	text = tb_strndup("abcdef", 3);
	assert_string_equal(text, "abc");
	tb_free(text);
	text = tb_strdup("abc");
	assert_string_equal(text, "abc");
	tb_free(text);
	a = tb_realloc(NULL, 1);
	assert_int_equal(tb_mem_live() - before, 1);
	tb_free(a);
	a = tb_malloc_aligned(3);
	assert_int_equal((uintptr_t) a % TB_ALIGN, 0);
	tb_free(a);
	assert_int_equal(tb_mem_live(), before);
	assert_null(tb_calloc(SIZE_MAX / 2, 3));
	assert_null(tb_realloc_array(NULL, SIZE_MAX / 2, 3));
	assert_int_equal(tb_mem_live(), before);
}

static void
test_mem_hook(void **state)
{
	void	   *a;
	void	   *b;

	(void) tb_mem_fail_after(2);
	a = tb_malloc(1);
	assert_non_null(a);
	assert_null(tb_realloc(a, 100));
	b = tb_malloc(1);
	assert_non_null(b);
	assert_int_equal(tb_mem_fail_after(1), 3);
	assert_null(tb_asprintf("x"));
	tb_free(a);
	tb_free(b);
	assert_int_equal(tb_mem_fail_after(0), 1);
}

static void
test_checked_arithmetic(void **state)
{
	size_t		size = 5;
	uint64_t	u64 = 5;

	assert_false(tb_mul_size(SIZE_MAX, 2, &size));
	assert_int_equal(size, 5);
	assert_true(tb_mul_size(3, 4, &size));
	assert_int_equal(size, 12);
	assert_false(tb_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &u64));
	assert_false(tb_add_u64(UINT64_MAX, 1, &u64));
	assert_int_equal(u64, 5);
	assert_true(tb_add_u64(UINT64_MAX, 0, &u64));
	assert_true(u64 == UINT64_MAX);
}

static void
test_dtype_table(void **state)
{
	static const size_t sizes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8};

	for (int d = TB_BOOL; d <= TB_F64; d++)
	{
		TbDtype		dtype = (TbDtype) d;

		assert_int_equal(tb_dtype_size(dtype), sizes[d]);
		assert_int_equal(tb_dtype_parse(tb_dtype_name(dtype)), dtype);
		assert_int_equal(tb_dtype_npy(dtype)[2] - '0', sizes[d]);
		assert_int_equal(tb_dtype_is_float(dtype) + tb_dtype_is_integer(dtype), dtype != TB_BOOL);
	}
	assert_int_equal(tb_dtype_parse("complex64"), TB_NONE);
	assert_int_equal(tb_dtype_parse("none"), TB_NONE);
	assert_int_equal(tb_dtype_parse(""), TB_NONE);
	assert_int_equal(tb_dtype_size(TB_NONE), 0);
	assert_int_equal(tb_dtype_size((TbDtype) 99), 0);
	assert_true(tb_dtype_is_unsigned(TB_U8) && tb_dtype_is_unsigned(TB_U64));
	assert_false(tb_dtype_is_unsigned(TB_I64) || tb_dtype_is_unsigned(TB_F16));
}

/*
 * Every half against ldexp, and back; then the points between neighbours, where rounding decides.
 */
static void
test_half(void **state)
{
	for (uint32_t h = 0; h < 0x10000; h++)
	{
		int			exponent = (int) (h >> 10 & 0x1f);
		double		fraction = h & 0x3ff;
		double		want = ldexp(exponent == 0 ? fraction : 1024 + fraction,
							 exponent == 0 ? -24 : exponent - 25);
		float		got = tb_half_to_float((uint16_t) h);

		if (exponent == 0x1f)
		{
			if (fraction != 0)
			{
				assert_true(isnan(got));
				assert_true(isnan(tb_half_to_float(tb_float_to_half(got))));
				continue;
			}
			want = (double) INFINITY;
		}
		assert_true((double) got == ((h & 0x8000) != 0 ? -want : want));
		assert_int_equal(signbit(got) != 0, h >> 15);
		assert_int_equal(tb_float_to_half(got), h);
	}
	for (uint32_t h = 0; h < 0x7c00; h++)
	{
		float		low = tb_half_to_float((uint16_t) h);
		float		high = h + 1 == 0x7c00 ? 65536.0f : tb_half_to_float((uint16_t) (h + 1));
		float		middle = (low + high) / 2;	/* exact in float */

		assert_int_equal(tb_float_to_half(middle), (h & 1) == 0 ? h : h + 1);
		assert_int_equal(tb_float_to_half(nextafterf(middle, 0)), h);
		assert_int_equal(tb_float_to_half(nextafterf(middle, INFINITY)), h + 1);
		assert_int_equal(tb_float_to_half(-middle), 0x8000 | ((h & 1) == 0 ? h : h + 1));
	}
	assert_int_equal(tb_float_to_half(1e30f), 0x7c00);
	assert_int_equal(tb_float_to_half(-INFINITY), 0xfc00);
	assert_int_equal(tb_float_to_half(1e-30f), 0);
}

static void
test_element_double(void **state)
{
	/* from an odd address, as chunks may have it */
	uint8_t		raw[9];

#define CHECK(dtype, type, value) \
	do { type v_ = (value); memcpy(raw + 1, &v_, sizeof(v_)); \
		assert_true(tb_element_double(dtype, raw + 1) == (double) v_); } while (0)
	CHECK(TB_BOOL, uint8_t, 1);
	CHECK(TB_I8, int8_t, -128);
	CHECK(TB_I16, int16_t, -32768);
	CHECK(TB_I32, int32_t, INT32_MIN);
	CHECK(TB_I64, int64_t, INT64_MIN);
	CHECK(TB_U8, uint8_t, 255);
	CHECK(TB_U16, uint16_t, 65535);
	CHECK(TB_U32, uint32_t, UINT32_MAX);
	CHECK(TB_U64, uint64_t, UINT64_MAX);
	CHECK(TB_F32, float, 1.5f);
	CHECK(TB_F64, double, -2.25);
	memcpy(raw + 1, "\x00\x3e", 2);
	assert_true(tb_element_double(TB_F16, raw + 1) == 1.5);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fail_fills_anew),
		cmocka_unit_test(test_detail_and_hint),
		cmocka_unit_test(test_text_is_clean),
		cmocka_unit_test(test_errno),
		cmocka_unit_test(test_status_names),
		cmocka_unit_test(test_mem_counts),
		cmocka_unit_test(test_mem_hook),
		cmocka_unit_test(test_checked_arithmetic),
		cmocka_unit_test(test_dtype_table),
		cmocka_unit_test(test_half),
		cmocka_unit_test(test_element_double),
	};

	return cmocka_run_group_tests_name("error, mem, dtype", tests, NULL, NULL);
}
