/* NPY headers: written as NumPy writes them, read in all its forms, refused when malformed. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

typedef struct Parsed
{
	TbNpy		npy;
	bool		swapped;
	bool		fortran;
	TbError		err;
	TbStatus	status;
} Parsed;

/* A header of the given version around dict, as other writers may make it. */
static Parsed
parse(int version, const char *dict)
{
	static uint8_t bytes[200000];
	size_t		len = strlen(dict);
	size_t		prefix = version == 1 ? 10 : 12;
	Parsed		parsed;
	uint8_t    *exact;

	memcpy(bytes, "\x93NUMPY", 6);
	bytes[6] = (uint8_t) version;
	bytes[7] = 0;
	for (size_t i = 8; i < prefix; i++)
		bytes[i] = (uint8_t) (len >> 8 * (i - 8));
	memcpy(bytes + prefix, dict, len);
	/* memory of the exact size: reading beyond it is seen by the sanitizer */
	exact = tb_malloc(prefix + len);
	memcpy(exact, bytes, prefix + len);
	memset(&parsed, 0x55, sizeof(parsed));
	parsed.status = tb_npy_parse(exact, prefix + len, &parsed.npy, &parsed.swapped, &parsed.fortran,
								 &parsed.err);
	tb_free(exact);
	return parsed;
}

static void
test_write(void **state)
{
	/* numpy.save writes the same bytes for these */
	static const struct
	{
		TbDtype		dtype;
		int			ndim;
		uint64_t	shape[3];
		const char *dict;
	}			cases[] = {
		{TB_F32, 2, {3, 4}, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"},
		{TB_BOOL, 1, {5}, "{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }"},
		{TB_I64, 0, {0}, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }"},
		{TB_U8, 3, {0, 1, 2}, "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 1, 2), }"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		TbNpy		npy;
		TbNpy		back;
		uint8_t		bytes[256];
		size_t		len = strlen(cases[i].dict);
		size_t		elements = 1;
		bool		swapped;
		bool		fortran;

		assert_true(tb_npy_layout(cases[i].dtype, cases[i].ndim, cases[i].shape, &npy));
		assert_int_equal(npy.header_bytes, 128);
		for (int d = 0; d < cases[i].ndim; d++)
			elements *= cases[i].shape[d];
		assert_int_equal(npy.data_bytes, elements * tb_dtype_size(cases[i].dtype));
		memset(bytes, 0xee, sizeof(bytes));
		tb_npy_write_header(&npy, bytes);
		assert_memory_equal(bytes, "\x93NUMPY\1\0\x76\0", 10);
		assert_memory_equal(bytes + 10, cases[i].dict, len);
		for (size_t at = 10 + len; at < 127; at++)
			assert_int_equal(bytes[at], ' ');
		assert_int_equal(bytes[127], '\n');
		assert_int_equal(bytes[128], 0xee);
		assert_int_equal(tb_npy_parse(bytes, 128, &back, &swapped, &fortran, NULL), TB_OK);
		assert_memory_equal(&back, &npy, sizeof(npy));
		assert_false(swapped || fortran);
	}
}

static void
test_layout_limits(void **state)
{
	uint64_t	big[TB_MAX_DIM];
	TbNpy		npy;
	TbNpy		back;
	static uint8_t bytes[4096];
	bool		swapped;
	bool		fortran;

	for (int i = 0; i < TB_MAX_DIM; i++)
		big[i] = UINT64_C(1) << 33;
	assert_false(tb_npy_layout(TB_F64, 2, big, &npy));
	assert_true(tb_npy_layout(TB_F64, 1, big, &npy));
	/* a zero does not hide that the rest overflows, wherever it stands */
	big[0] = 0;
	assert_false(tb_npy_layout(TB_F64, 3, big, &npy));
	big[0] = UINT64_MAX;
	assert_false(tb_npy_layout(TB_U8, 1, big, &npy));
	assert_false(tb_npy_layout(TB_NONE, 1, big, &npy));
	assert_false(tb_npy_layout(TB_U8, TB_MAX_DIM + 1, big, &npy));
	assert_false(tb_npy_layout(TB_U8, -1, big, &npy));

	/* the longest header: 32 dimensions */
	for (int i = 0; i < TB_MAX_DIM; i++)
		big[i] = 1;
	big[31] = UINT64_C(1000000000000000000);
	assert_true(tb_npy_layout(TB_U8, TB_MAX_DIM, big, &npy));
	assert_int_equal(npy.header_bytes % 64, 0);
	assert_true(npy.header_bytes <= sizeof(bytes));
	tb_npy_write_header(&npy, bytes);
	assert_int_equal(tb_npy_parse(bytes, npy.header_bytes, &back, &swapped, &fortran, NULL), TB_OK);
	assert_memory_equal(&back, &npy, sizeof(npy));
}

static void
test_read_forms(void **state)
{
	Parsed		p = parse(2, "{\"shape\":(2,3),\"fortran_order\":True,\"descr\":\">i2\"}   \n");

	assert_int_equal(p.status, TB_OK);
	assert_int_equal(p.npy.dtype, TB_I16);
	assert_int_equal(p.npy.ndim, 2);
	assert_int_equal(p.npy.shape[0] * 10 + p.npy.shape[1], 23);
	assert_true(p.swapped && p.fortran);
	assert_int_equal(p.npy.data_bytes, 12);

	p = parse(3, "{'descr': '>u1', 'fortran_order': False, 'shape': (7L,)}\n");
	assert_int_equal(p.status, TB_OK);
	assert_int_equal(p.npy.dtype, TB_U8);
	assert_false(p.swapped);	/* one byte has no order */
	assert_int_equal(p.npy.shape[0], 7);
	assert_int_equal(p.npy.header_bytes, 12 + 57);

	p = parse(1, "{'descr': '=f8', 'fortran_order': False, 'shape': ( 1 , 2 , ), }");
	assert_int_equal(p.status, TB_OK);
	assert_int_equal(p.npy.dtype, TB_F64);
	assert_int_equal(p.npy.ndim, 2);
	for (int d = TB_BOOL; d <= TB_F64; d++)
	{
		char	   *dict = tb_asprintf("{'descr': '%s', 'fortran_order': False, 'shape': (), }",
									   tb_dtype_npy((TbDtype) d));

		p = parse(1, dict);
		assert_int_equal(p.status, TB_OK);
		assert_int_equal(p.npy.dtype, d);
		tb_free(dict);
	}
}

static void
test_refused(void **state)
{
#define HEAD "{'descr': '<f4', 'fortran_order': False, 'shape': "
	static const struct
	{
		const char *dict;
		TbStatus	status;
	}			cases[] = {
		{"", TB_E_INVALID},
		{"{}", TB_E_INVALID},
		{"{'descr': '<f4', 'fortran_order': False}", TB_E_INVALID},
		{HEAD "(1,)", TB_E_INVALID},
		{HEAD "(1,)} x", TB_E_INVALID},
		{HEAD "(1,), 'shape': (1,)}", TB_E_INVALID},
		{HEAD "(1,), 'more': 1}", TB_E_INVALID},
		{HEAD "(1)}", TB_E_INVALID},
		{HEAD "1}", TB_E_INVALID},
		{HEAD "(1,", TB_E_INVALID},
		{HEAD "(1 2)}", TB_E_INVALID},
		{HEAD "(,)}", TB_E_INVALID},
		{HEAD "(-1,)}", TB_E_INVALID},
		{HEAD "(18446744073709551616,)}", TB_E_INVALID},
		{HEAD "(18446744073709551615,)}", TB_E_LIMIT},
		{HEAD "(4294967296, 4294967296)}", TB_E_LIMIT},
		{HEAD "(0, 4294967296, 4294967296)}", TB_E_LIMIT},
		{HEAD "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", TB_E_LIMIT},
		{"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", TB_E_UNSUPPORTED},
		{"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", TB_E_UNSUPPORTED},
		{"{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", TB_E_UNSUPPORTED},
		{"{'descr': '|f4', 'fortran_order': False, 'shape': (1,)}", TB_E_UNSUPPORTED},
		{"{'descr': '', 'fortran_order': False, 'shape': (1,)}", TB_E_UNSUPPORTED},
		{"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", TB_E_UNSUPPORTED},
		{"{'descr': 4, 'fortran_order': False, 'shape': (1,)}", TB_E_INVALID},
		{"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", TB_E_INVALID},
		{"{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}", TB_E_UNSUPPORTED},
		{"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (1,)}", TB_E_INVALID},
	};
	static char long_dict[70001];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		Parsed		p = parse(1, cases[i].dict);

		if (p.status != cases[i].status)
			fail_msg("%s: %s", cases[i].dict, tb_status_name(p.status));
		assert_int_equal(p.err.code, p.status);
	}
	assert_int_equal(parse(4, HEAD "(1,)}").status, TB_E_UNSUPPORTED);
	assert_int_equal(parse(0, HEAD "(1,)}").status, TB_E_UNSUPPORTED);
	memset(long_dict, ' ', sizeof(long_dict) - 1);
	memcpy(long_dict, HEAD "(1,)}", strlen(HEAD "(1,)}"));
	assert_int_equal(parse(2, long_dict).status, TB_E_LIMIT);
}

/* Every prefix of a good header is refused, and no read goes beyond it. */
static void
test_cut_short(void **state)
{
	uint64_t	shape[] = {3, 4};
	uint8_t		bytes[128];
	TbNpy		npy;
	bool		swapped;
	bool		fortran;

	assert_true(tb_npy_layout(TB_F32, 2, shape, &npy));
	tb_npy_write_header(&npy, bytes);
	for (size_t len = 0; len < 128; len++)
	{
		uint8_t    *exact = tb_malloc(len);

		memcpy(exact, bytes, len);
		assert_int_equal(tb_npy_parse(exact, len, &npy, &swapped, &fortran, NULL), TB_E_INVALID);
		tb_free(exact);
	}
	bytes[0] = 'x';
	assert_int_equal(tb_npy_parse(bytes, 128, &npy, &swapped, &fortran, NULL), TB_E_INVALID);
}

/* Any one byte changed gives a clean answer. */
static void
test_bytes_changed(void **state)
{
	uint64_t	shape[] = {3, 4};
	uint8_t		good[128];
	TbNpy		npy;
	bool		swapped;
	bool		fortran;
	int			refused = 0;

	assert_true(tb_npy_layout(TB_F32, 2, shape, &npy));
	tb_npy_write_header(&npy, good);
	for (size_t at = 0; at < 128; at++)
		for (int value = 0; value < 256; value++)
		{
			uint8_t		bytes[128];
			TbNpy		out;
			TbStatus	status;

			memcpy(bytes, good, 128);
			bytes[at] = (uint8_t) value;
			status = tb_npy_parse(bytes, 128, &out, &swapped, &fortran, NULL);
			if (status != TB_OK)
				refused++;
			else
				assert_true(out.ndim <= 2 && out.header_bytes <= 128);
		}
	assert_true(refused > 10000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_layout_limits),
		cmocka_unit_test(test_read_forms),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_cut_short),
		cmocka_unit_test(test_bytes_changed),
	};

	return cmocka_run_group_tests_name("npy", tests, NULL, NULL);
}
