/* Unpacking against the same arithmetic written one step at a time; casts at the borders of their
 * types. */
#include "block_help.h"

#include <math.h>

static const TbTreatment plain = {.raw = false, .cast = TB_NONE};

/* Rounded on its own: volatile keeps the compiler from joining steps. */
static double
scaled(double v, double scale, double offset)
{
	volatile double a = v * scale;
	volatile double b = a + offset;

	return b;
}

static float
scaled_f32(float v, float scale, float offset)
{
	volatile float a = v * scale;
	volatile float b = a + offset;

	return b;
}

static bool
same_f64(double a, double b)
{
	return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

static void
int16_to_f64(void **state)
{
	TbPacking p = {.stored = TB_I16,
				   .packed = TB_I16,
				   .decoded = TB_F64,
				   .stat = TB_F64,
				   .n_sentinels = 1,
				   .sentinel = {(uint16_t) -32767},
				   .scaled = true,
				   .scale = 0.0013,
				   .offset = 273.15};
	int16_t    *in = malloc(65536 * sizeof(int16_t));
	double	   *out = malloc(65536 * sizeof(double));

	for (int i = 0; i < 65536; i++)
		in[i] = (int16_t) (i - 32768);
	assert_int_equal(tb_unpack(&p, plain, in, 65536, out, NULL), TB_OK);
	for (int i = 0; i < 65536; i++)
		assert_true(same_f64(out[i], in[i] == -32767 ? NAN : scaled(in[i], p.scale, p.offset)));
	p.n_sentinels = 3;
	p.sentinel[1] = 5;
	p.sentinel[2] = (uint16_t) -1;
	assert_int_equal(tb_unpack(&p, plain, in, 65536, out, NULL), TB_OK);
	for (int i = 0; i < 65536; i++)
		assert_true(same_f64(out[i], in[i] == -32767 || in[i] == 5 || in[i] == -1
										 ? NAN
										 : scaled(in[i], p.scale, p.offset)));
	free(in);
	free(out);
}

static void
to_f32(void **state)
{
	TbPacking p = {.stored = TB_I8,
				   .packed = TB_U8,
				   .decoded = TB_F32,
				   .stat = TB_F32,
				   .n_sentinels = 1,
				   .sentinel = {255},
				   .scaled = true,
				   .scale = 0.1,
				   .offset = -3};
	int8_t		in[256];
	float		out[257];
	float	   *odd = (float *) ((uint8_t *) out + 1);

	for (int i = 0; i < 256; i++)
		in[i] = (int8_t) i;
	assert_int_equal(tb_unpack(&p, plain, in, 256, odd, NULL), TB_OK);
	for (int i = 0; i < 256; i++)
	{
		float		got;
		float		want = scaled_f32((float) i, (float) 0.1, -3);

		memcpy(&got, (uint8_t *) odd + i * 4, 4);
		assert_true(i == 255 ? isnan(got) : got == want);
	}
	/* 0 scaled by a negative number is -0.0 where there is no offset */
	p.scale = -1;
	p.offset = 0;
	in[0] = 0;
	assert_int_equal(tb_unpack(&p, plain, in, 1, out, NULL), TB_OK);
	assert_true(out[0] == 0 && signbit(out[0]));
	/* stored elements as they are */
	assert_int_equal(tb_unpack(&p, (TbTreatment){.raw = true}, in, 256, out, NULL), TB_OK);
	assert_memory_equal(in, out, 256);
}

/* Floats that are only masked keep every bit of what is not missing; sentinels are compared as
 * bits. */
static void
mask_only(void **state)
{
	TbPacking p = {.stored = TB_F32,
				   .packed = TB_F32,
				   .decoded = TB_F32,
				   .stat = TB_F32,
				   .n_sentinels = 2,
				   .sentinel = {0x60ad78ec, 0x7fc00001}}; /* 1e20f and a NaN with a payload */
	uint32_t	in[5] = {0x60ad78ec, 0x7fc00001, 0x7fc00002, 0x80000000, 0x3f800000};
	uint32_t	out[5];
	TbPacking half = {.stored = TB_F16,
					  .packed = TB_F16,
					  .decoded = TB_F16,
					  .stat = TB_F16,
					  .n_sentinels = 1,
					  .sentinel = {0x3c00}};
	uint16_t	half_in[2] = {0x3c00, 0x4000};
	uint16_t	half_out[2];

	assert_int_equal(tb_unpack(&p, plain, in, 5, out, NULL), TB_OK);
	assert_int_equal(out[0], 0x7fc00000);
	assert_int_equal(out[1], 0x7fc00000);
	assert_int_equal(out[2], 0x7fc00002);
	assert_int_equal(out[3], 0x80000000);
	assert_int_equal(out[4], 0x3f800000);
	assert_int_equal(tb_unpack(&half, plain, half_in, 2, half_out, NULL), TB_OK);
	assert_int_equal(half_out[0], 0x7e00);
	assert_int_equal(half_out[1], 0x4000);
}

/* Every packed type to both float types. */
static void
all_pairs(void **state)
{
	for (TbDtype from = TB_BOOL; from <= TB_F64; from++)
		for (TbDtype to = TB_F32; to <= TB_F64; to++)
		{
			TbPacking p = {.stored = from,
						   .packed = from,
						   .decoded = to,
						   .stat = to,
						   .scaled = true,
						   .scale = 0.3,
						   .offset = 7.7};
			double		one = 1;
			uint8_t		in[8];
			float		f;
			double		d;

			assert_int_equal(
				tb_unpack(&(TbPacking){.stored = TB_F64, .packed = TB_F64, .decoded = TB_F64},
						  (TbTreatment){.cast = from}, &one, 1, in, NULL),
				TB_OK);
			if (to == TB_F32)
			{
				assert_int_equal(tb_unpack(&p, plain, in, 1, &f, NULL), TB_OK);
				assert_true(f == scaled_f32(1, (float) 0.3, (float) 7.7));
			}
			else
			{
				assert_int_equal(tb_unpack(&p, plain, in, 1, &d, NULL), TB_OK);
				assert_true(d == scaled(1, 0.3, 7.7));
			}
		}
}

static TbStatus
cast_one(TbDtype from, const void *in, TbDtype to, void *out)
{
	TbPacking	p = {.stored = from, .packed = from, .decoded = from, .stat = from};

	return tb_unpack(&p, (TbTreatment){.cast = to}, in, 1, out, NULL);
}

static void
cast_borders(void **state)
{
	static const struct
	{
		TbDtype		to;
		double		fits;
		double		not;
	} f[] = {
		{TB_I8, 127.9, 128},
		{TB_I8, -128.9, -129},
		{TB_U8, 255.9, 256},
		{TB_U8, -0.9, -1},
		{TB_I16, 32767.5, 32768},
		{TB_I32, 2147483647.5, 2147483648.0},
		{TB_I64, 9223372036854774784.0, 9223372036854775808.0},
		{TB_I64, -9223372036854775808.0, -9223372036854777856.0},
		{TB_U64, 18446744073709549568.0, 18446744073709551616.0},
		{TB_U32, 4294967295.5, 4294967296.0},
		{TB_I32, 0, NAN},
		{TB_U64, 0, INFINITY},
		{TB_F32, 3.4e38, 3.5e38},
		{TB_F16, 65504, 65520},
	};
	int64_t		big = INT64_C(1) << 40;
	int64_t		negative = -1;
	uint64_t	huge = UINT64_MAX;
	double		nan_value = NAN;
	double		inf = INFINITY;
	uint64_t	out;
	int64_t		i64;
	float		f32;
	int8_t		i8;
	double		d = -1.9;

	for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); i++)
	{
		assert_int_equal(cast_one(TB_F64, &f[i].fits, f[i].to, &out), TB_OK);
		assert_int_equal(cast_one(TB_F64, &f[i].not, f[i].to, &out), TB_E_RANGE);
	}
	assert_int_equal(cast_one(TB_F64, &d, TB_I8, &i8), TB_OK);
	assert_int_equal(i8, -1);
	assert_int_equal(cast_one(TB_I64, &big, TB_I32, &out), TB_E_RANGE);
	assert_int_equal(cast_one(TB_I64, &negative, TB_U64, &out), TB_E_RANGE);
	assert_int_equal(cast_one(TB_U64, &huge, TB_I64, &out), TB_E_RANGE);
	assert_int_equal(cast_one(TB_U64, &huge, TB_U64, &out), TB_OK);
	assert_true(out == UINT64_MAX);
	assert_int_equal(cast_one(TB_I64, &big, TB_U64, &out), TB_OK);
	assert_true(out == (uint64_t) big);
	assert_int_equal(cast_one(TB_F64, &nan_value, TB_F32, &f32), TB_OK);
	assert_true(isnan(f32));
	assert_int_equal(cast_one(TB_F64, &inf, TB_F32, &f32), TB_OK);
	assert_true(isinf(f32));
	assert_int_equal(cast_one(TB_I64, &negative, TB_I64, &i64), TB_OK);
	assert_int_equal(i64, -1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(int16_to_f64),
		cmocka_unit_test(to_f32),
		cmocka_unit_test(mask_only),
		cmocka_unit_test(all_pairs),
		cmocka_unit_test(cast_borders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
