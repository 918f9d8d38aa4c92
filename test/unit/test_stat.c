/* Leaf statistics against a plain long double reference: every type, sentinels, NaN, infinities,
 * merging. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "hsi/stat.h"

static uint64_t seed = 1;

static uint64_t
rnd(void)
{
	seed += 0x9e3779b97f4a7c15u;
	return tb_mix64(seed);
}

static const TbDtype types[] = {
	TB_BOOL, TB_I8, TB_I16, TB_I32, TB_I64, TB_U8, TB_U16, TB_U32, TB_U64, TB_F16, TB_F32, TB_F64
};

static TbPacking
plain(TbDtype dtype)
{
	return (TbPacking) {.stored = dtype, .packed = dtype, .decoded = dtype, .stat = dtype};
}

static TbClass
class_of(const TbPacking *packing)
{
	TbArrayMeta meta = {.packing = *packing};

	return tb_stat_class(&meta);
}

/* One random element of a type; floats at times NaN, infinite or zero of either sign. */
static void
random_element(TbDtype dtype, bool infinite, uint8_t *at)
{
	uint64_t	bits = rnd();
	double		f = ((double) (int64_t) bits) * 0x1p-50;
	float		single;
	uint16_t	half;

	switch (bits % 23)
	{
		case 0:
			f = NAN;
			break;
		case 1:
			f = infinite ? (bits & 64 ? INFINITY : -INFINITY) : 0.0;
			break;
		case 2:
			f = bits & 64 ? 0.0 : -0.0;
			break;
	}
	if (dtype == TB_BOOL)
		*at = bits & 1;
	else if (dtype == TB_F64)
		memcpy(at, &f, sizeof(f));
	else if (dtype == TB_F32)
	{
		single = (float) f;
		memcpy(at, &single, sizeof(single));
	}
	else if (dtype == TB_F16)
	{
		half = tb_float_to_half((float) f);
		memcpy(at, &half, sizeof(half));
	}
	else
		memcpy(at, &bits, tb_dtype_size(dtype));
}

static long double
as_wide(TbDtype dtype, const uint8_t *at)
{
	int64_t		i;
	uint64_t	u;

	if (dtype == TB_I64)
	{
		memcpy(&i, at, 8);
		return i;
	}
	if (dtype == TB_U64)
	{
		memcpy(&u, at, 8);
		return u;
	}
	return tb_element_double(dtype, at);
}

static bool
reference_missing(const TbPacking *packing, const uint8_t *at)
{
	uint64_t	bits = 0;

	memcpy(&bits, at, tb_dtype_size(packing->packed));
	for (int i = 0; i < packing->n_sentinels; i++)
		if (packing->sentinel[i] == bits)
			return true;
	return false;
}

typedef struct Reference
{
	uint64_t	valid;
	uint64_t	nan;
	uint64_t	missing;
	long double min;
	long double max;
	long double mean;
	long double std;
} Reference;

static Reference
reference(const TbPacking *packing, const uint8_t *data, size_t n)
{
	Reference	r = {0};
	size_t		size = tb_dtype_size(packing->packed);
	long double sum = 0;
	long double squares = 0;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < n; i++)
		{
			long double v = as_wide(packing->packed, data + i * size);

			if (reference_missing(packing, data + i * size))
			{
				r.missing += pass == 0;
				continue;
			}
			if (isnan(v))
			{
				r.nan += pass == 0;
				continue;
			}
			if (pass == 1)
			{
				squares += (v - r.mean) * (v - r.mean);
				continue;
			}
			r.min = r.valid == 0 || v < r.min ? v : r.min;
			r.max = r.valid == 0 || v > r.max ? v : r.max;
			r.valid++;
			sum += v;
			r.mean = sum / (long double) r.valid;
		}
	r.std = sqrtl(squares / (long double) r.valid);
	return r;
}

static long double
value_wide(TbClass class, TbValue value)
{
	return class == TB_CLASS_F64 ? (long double) value.f64 :
		class == TB_CLASS_I64 ? (long double) value.i64 : (long double) value.u64;
}

static void
assert_leaf(const TbLeaf *leaf, TbClass class, const Reference *r, bool infinite)
{
	double		mean;
	double		std;
	bool		has_std;
	long double scale = fabsl(r->min) > fabsl(r->max) ? fabsl(r->min) : fabsl(r->max);

	assert_int_equal(leaf->valid, r->valid);
	assert_int_equal(leaf->nan, r->nan);
	assert_int_equal(leaf->missing, r->missing);
	assert_int_equal(tb_leaf_mean(leaf, &mean), r->valid > 0);
	has_std = tb_leaf_std(leaf, &std);
	if (r->valid == 0)
	{
		assert_false(has_std);
		return;
	}
	assert_true(value_wide(class, leaf->min) == r->min);
	assert_true(value_wide(class, leaf->max) == r->max);
	if (isinf(r->min) || isinf(r->max))
	{
		assert_true(infinite);
		assert_false(has_std);
		assert_true(isinf(mean) || isnan(mean));
		assert_int_equal(isnan(mean), isinf(r->min) && isinf(r->max) && r->min != r->max);
		return;
	}
	assert_true(has_std);
	assert_true(fabsl(mean - r->mean) <= 1e-14L * scale);
	assert_true(fabsl(std - r->std) <= 1e-12L * r->std + 1e-14L * scale);
}

/* Every type, many lengths, with and without sentinels, in one run and in pieces. */
static void
test_types(void **state)
{
	static const size_t lengths[] = {1, 2, 7, 8, 9, 1023, 1024, 1025, 5000, 40000};
	static uint8_t data[40000 * 8];

	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
			for (int variant = 0; variant < 4; variant++)
			{
				TbPacking	packing = plain(types[t]);
				size_t		size = tb_dtype_size(types[t]);
				size_t		n = lengths[l];
				size_t		cut = rnd() % (n + 1);
				Reference	r;
				TbLeaf		leaf;

				for (size_t i = 0; i < n; i++)
					random_element(types[t], variant & 1, data + i * size);
				if (variant & 2)
				{
					packing.n_sentinels = 2;
					for (int s = 0; s < 2; s++)
						memcpy(&packing.sentinel[s], data + (rnd() % n) * size, size);
				}
				r = reference(&packing, data, n);
				tb_leaf_begin(&leaf);
				tb_leaf_add(&leaf, &packing, data, n);
				assert_leaf(&leaf, class_of(&packing), &r, variant & 1);
				tb_leaf_begin(&leaf);
				tb_leaf_add(&leaf, &packing, data, cut);
				tb_leaf_add(&leaf, &packing, data + cut * size, n - cut);
				assert_leaf(&leaf, class_of(&packing), &r, variant & 1);
			}
}

static void
test_integer_extremes(void **state)
{
	int64_t		big[] = {INT64_MIN, INT64_MAX, 0, INT64_MAX - 1, INT64_MIN + 1};
	uint64_t	large[] = {UINT64_MAX, 1, UINT64_MAX - 1};
	TbPacking	packing = plain(TB_I64);
	TbLeaf		leaf;

	tb_leaf_begin(&leaf);
	tb_leaf_add(&leaf, &packing, big, 5);
	assert_true(leaf.min.i64 == INT64_MIN);
	assert_true(leaf.max.i64 == INT64_MAX);
	packing.n_sentinels = 2;
	packing.sentinel[0] = (uint64_t) INT64_MIN;
	packing.sentinel[1] = (uint64_t) INT64_MAX;
	tb_leaf_begin(&leaf);
	tb_leaf_add(&leaf, &packing, big, 5);
	assert_true(leaf.min.i64 == INT64_MIN + 1);
	assert_true(leaf.max.i64 == INT64_MAX - 1);
	assert_int_equal(leaf.missing, 2);
	packing = plain(TB_U64);
	tb_leaf_begin(&leaf);
	tb_leaf_add(&leaf, &packing, large, 3);
	assert_true(leaf.min.u64 == 1);
	assert_true(leaf.max.u64 == UINT64_MAX);
}

/* A float sentinel that is a NaN payload is missing; other NaN are counted as NaN. */
static void
test_nan_sentinel(void **state)
{
	uint32_t	bits[] = {0x7fc00001, 0x7fc00000, 0x3f800000, 0x7fc00001, 0xffc00000};
	TbPacking	packing = plain(TB_F32);
	TbLeaf		leaf;

	packing.n_sentinels = 1;
	packing.sentinel[0] = 0x7fc00001;
	tb_leaf_begin(&leaf);
	tb_leaf_add(&leaf, &packing, bits, 5);
	assert_int_equal(leaf.missing, 2);
	assert_int_equal(leaf.nan, 2);
	assert_int_equal(leaf.valid, 1);
	assert_true(leaf.min.f64 == 1 && leaf.max.f64 == 1);
}

/* Packed int16: statistics are those of the float32 values that reading gives, bit for bit. */
static void
test_scaled(void **state)
{
	static int16_t data[5000];
	TbPacking	packing = {
		.stored = TB_I16, .packed = TB_I16, .decoded = TB_F32, .stat = TB_F32,
		.scaled = true, .scale = 0.01, .offset = 273.15, .n_sentinels = 1, .sentinel = {0x8000}
	};
	TbTreatment treatment = {.raw = false, .cast = TB_NONE};
	float		decoded[5000];
	float		lo = INFINITY;
	float		hi = -INFINITY;
	long double sum = 0;
	uint64_t	valid = 0;
	TbLeaf		leaf;

	for (size_t i = 0; i < 5000; i++)
		data[i] = i % 17 == 0 ? INT16_MIN : (int16_t) rnd();
	assert_int_equal(tb_unpack(&packing, treatment, data, 5000, decoded, NULL), TB_OK);
	for (size_t i = 0; i < 5000; i++)
		if (data[i] != INT16_MIN)
		{
			lo = decoded[i] < lo ? decoded[i] : lo;
			hi = decoded[i] > hi ? decoded[i] : hi;
			sum += decoded[i];
			valid++;
		}
	tb_leaf_begin(&leaf);
	tb_leaf_add(&leaf, &packing, data, 5000);
	assert_int_equal(leaf.valid, valid);
	assert_int_equal(leaf.missing, 5000 - valid);
	assert_int_equal(leaf.nan, 0);
	assert_true(leaf.min.f64 == lo && leaf.max.f64 == hi);
	assert_true(fabsl(leaf.sum - sum) <= 1e-13L * fabsl(sum));
}

/* Far from zero the naive formula loses everything; equal elements have no spread at all. */
static void
test_stable(void **state)
{
	static double data[1 << 20];
	TbPacking	packing = plain(TB_F64);
	TbLeaf		leaf;
	double		std;

	for (size_t i = 0; i < 1 << 20; i++)
		data[i] = 1e9 + (i % 2 == 0 ? 0.25 : -0.25);
	tb_leaf_begin(&leaf);
	tb_leaf_add(&leaf, &packing, data, 1 << 20);
	assert_true(tb_leaf_std(&leaf, &std));
	assert_true(fabs(std - 0.25) < 1e-9);
	for (size_t i = 0; i < 1 << 20; i++)
		data[i] = 0.1;
	tb_leaf_begin(&leaf);
	for (size_t i = 0; i < 1 << 20; i += 1000)
		tb_leaf_add(&leaf, &packing, data + i, (1 << 20) - i < 1000 ? (1 << 20) - i : 1000);
	assert_true(tb_leaf_std(&leaf, &std));
	assert_true(std == 0);
}

static void
test_value_cmp(void **state)
{
	TbValue		f = {.f64 = 0x1p63};
	TbValue		i = {.i64 = INT64_MAX};
	TbValue		u = {.u64 = UINT64_MAX};
	TbValue		nan = {.f64 = NAN};
	TbValue		inf = {.f64 = INFINITY};

	assert_true(tb_value_cmp(TB_CLASS_F64, f, TB_CLASS_I64, i) > 0);
	assert_true(tb_value_cmp(TB_CLASS_I64, i, TB_CLASS_F64, f) < 0);
	assert_true(tb_value_cmp(TB_CLASS_I64, i, TB_CLASS_U64, u) < 0);
	f.f64 = 0x1p64;
	assert_true(tb_value_cmp(TB_CLASS_U64, u, TB_CLASS_F64, f) < 0);
	f.f64 = -0x1p63;
	i.i64 = INT64_MIN;
	assert_int_equal(tb_value_cmp(TB_CLASS_F64, f, TB_CLASS_I64, i), 0);
	f.f64 = -0.5;
	i.i64 = 0;
	assert_true(tb_value_cmp(TB_CLASS_F64, f, TB_CLASS_I64, i) < 0);
	i.i64 = -1;
	assert_true(tb_value_cmp(TB_CLASS_F64, f, TB_CLASS_I64, i) > 0);
	assert_true(tb_value_cmp(TB_CLASS_F64, nan, TB_CLASS_U64, u) > 0);
	assert_true(tb_value_cmp(TB_CLASS_F64, nan, TB_CLASS_F64, inf) > 0);
	assert_int_equal(tb_value_cmp(TB_CLASS_F64, nan, TB_CLASS_F64, nan), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_integer_extremes),
		cmocka_unit_test(test_nan_sentinel),
		cmocka_unit_test(test_scaled),
		cmocka_unit_test(test_stable),
		cmocka_unit_test(test_value_cmp),
	};

	return cmocka_run_group_tests_name("stat", tests, NULL, NULL);
}
