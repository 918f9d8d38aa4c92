/* Buffers: growing, limits, owners, memory gone. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

static void
test_append(void **state)
{
	int64_t		live = tb_mem_live();
	TbBuf	   *buf = tb_buf_new(0);

	assert_non_null(buf);
	assert_int_equal(buf->len, 0);
	assert_int_equal(tb_buf_append(buf, "abc", 3, 5), TB_OK);
	assert_int_equal(tb_buf_append(buf, "def", 3, 5), TB_E_LIMIT);
	assert_int_equal(tb_buf_append(buf, "de", 2, 5), TB_OK);
	assert_int_equal(tb_buf_append(buf, NULL, 0, 5), TB_OK);
	assert_int_equal(tb_buf_append(buf, "f", 1, 2), TB_E_LIMIT);
	assert_int_equal(tb_buf_append(buf, "f", SIZE_MAX, SIZE_MAX), TB_E_LIMIT);
	assert_int_equal(buf->len, 5);
	assert_memory_equal(buf->data, "abcde", 5);
	assert_true(buf->cap <= 5);
	for (int i = 0; i < 10000; i++)
	{
		uint8_t		byte = (uint8_t) i;

		assert_int_equal(tb_buf_append(buf, &byte, 1, 100000), TB_OK);
		assert_int_equal((uintptr_t) buf->data % 64, 0);
	}
	assert_int_equal(buf->len, 10005);
	assert_memory_equal(buf->data, "abcde", 5);
	for (int i = 0; i < 10000; i++)
		assert_int_equal(buf->data[5 + i], (uint8_t) i);
	tb_buf_unref(buf);
	assert_int_equal(tb_mem_live(), live);
}

static void
test_printf(void **state)
{
	TbBuf	   *buf = tb_buf_new(2);

	assert_int_equal(tb_buf_printf(buf, "%s", ""), TB_OK);
	assert_int_equal(buf->len, 0);
	assert_int_equal(tb_buf_printf(buf, "%d,", 12345), TB_OK);
	assert_int_equal(tb_buf_printf(buf, "%300s", "x"), TB_OK);
	assert_int_equal(buf->len, 306);
	assert_memory_equal(buf->data, "12345, ", 7);
	assert_int_equal(buf->data[305], 'x');
	tb_buf_unref(buf);
}

static void
test_refs(void **state)
{
	int64_t		live = tb_mem_live();
	TbBuf	   *buf = tb_buf_new(10);

	assert_ptr_equal(tb_buf_ref(buf), buf);
	assert_int_equal(buf->refs, 2);
	tb_buf_unref(buf);
	assert_int_equal(tb_mem_live(), live + 2);
	tb_buf_unref(buf);
	tb_buf_unref(NULL);
	assert_int_equal(tb_mem_live(), live);
}

static void
test_no_memory(void **state)
{
	int64_t		live = tb_mem_live();
	TbBuf	   *buf;

	for (uint64_t n = 1; n <= 2; n++)
	{
		(void) tb_mem_fail_after(n);
		assert_null(tb_buf_new(10));
		assert_int_equal(tb_mem_live(), live);
	}
	(void) tb_mem_fail_after(0);
	buf = tb_buf_new(2);
	assert_int_equal(tb_buf_append(buf, "ab", 2, 1000), TB_OK);
	(void) tb_mem_fail_after(1);
	assert_int_equal(tb_buf_append(buf, "cd", 2, 1000), TB_E_NOMEM);
	(void) tb_mem_fail_after(1);
	assert_int_equal(tb_buf_printf(buf, "cd"), TB_E_NOMEM);
	(void) tb_mem_fail_after(1);
	assert_int_equal(tb_buf_reserve(buf, 1000), TB_E_NOMEM);
	assert_int_equal(buf->len, 2);
	assert_memory_equal(buf->data, "ab", 2);
	(void) tb_mem_fail_after(0);
	tb_buf_unref(buf);
	assert_int_equal(tb_mem_live(), live);
}

/* What is kept does not keep a large whole with it; what is most of the whole is not copied. */
static void
keep_a_part(void **state)
{
	int64_t		live = tb_mem_live();
	TbBuf	   *whole = tb_buf_new(1000);
	TbBuf	   *small;
	TbBuf	   *large;
	TbBuf	   *kept;

	for (int i = 0; i < 1000; i++)
		whole->data[i] = (uint8_t) i;
	whole->len = 1000;
	small = tb_buf_slice(whole, 100, 50);
	large = tb_buf_slice(whole, 100, 800);
	assert_ptr_equal(tb_buf_keep(large), large);
	kept = tb_buf_keep(small);
	assert_null(kept->whole);
	assert_int_equal(kept->len, 50);
	assert_int_equal(kept->data[0], 100);
	assert_int_equal(kept->data[49], 149);
	assert_ptr_equal(tb_buf_keep(whole), whole);
	assert_null(tb_buf_keep(NULL));
	tb_buf_unref(large);
	tb_buf_unref(whole);
	assert_int_equal(kept->data[25], 125);
	tb_buf_unref(kept);
	assert_int_equal(tb_mem_live(), live);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_append),
		cmocka_unit_test(test_printf),
		cmocka_unit_test(test_refs),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(keep_a_part),
	};

	return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
