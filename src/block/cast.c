/*
 * Converting elements between types: every source goes to one of int64, uint64 or double, every
 * target comes from one of these, so there are 12 + 3 * 12 short loops instead of 144. Rules: to
 * integers toward zero, as NumPy's astype; but a value the target cannot hold (also NaN in an
 * integer, a finite number that would become infinite) is an error, never a wrapped value. To bool:
 * not zero.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif

#include "block/internal.h"

#include <math.h>
#include <string.h>

#define STEP 512				/* elements at a time through the middle type */

typedef enum Middle
{
	MIDDLE_I64, MIDDLE_U64, MIDDLE_F64
} Middle;

static Middle
middle_of(TbDtype from)
{
	if (tb_dtype_is_float(from))
		return MIDDLE_F64;
	return from == TB_U64 ? MIDDLE_U64 : MIDDLE_I64;
}

/* Elements may stand anywhere in a buffer. */
#define UNALIGNED __attribute__((aligned(1), may_alias))
typedef int8_t ui8 UNALIGNED;
typedef int16_t ui16 UNALIGNED;
typedef int32_t ui32 UNALIGNED;
typedef int64_t ui64 UNALIGNED;
typedef uint8_t uu8 UNALIGNED;
typedef uint16_t uu16 UNALIGNED;
typedef uint32_t uu32 UNALIGNED;
typedef uint64_t uu64 UNALIGNED;
typedef float uf32 UNALIGNED;
typedef double uf64 UNALIGNED;

#define LOAD_CASE(dtype, type, member) \
		case dtype: \
			for (size_t i = 0; i < n; i++) \
				middle->member[i] = ((const type *) src)[i]; \
			break

typedef union MiddleRun
{
	int64_t		i64[STEP];
	uint64_t	u64[STEP];
	double		f64[STEP];
} MiddleRun;

static void
load_run(TbDtype from, const void *src, size_t n, MiddleRun *middle)
{
	switch (from)
	{
			LOAD_CASE(TB_I8, ui8, i64);
			LOAD_CASE(TB_I16, ui16, i64);
			LOAD_CASE(TB_I32, ui32, i64);
			LOAD_CASE(TB_I64, ui64, i64);
			LOAD_CASE(TB_U8, uu8, i64);
			LOAD_CASE(TB_U16, uu16, i64);
			LOAD_CASE(TB_U32, uu32, i64);
			LOAD_CASE(TB_U64, uu64, u64);
			LOAD_CASE(TB_F32, uf32, f64);
			LOAD_CASE(TB_F64, uf64, f64);
		case TB_BOOL:
			for (size_t i = 0; i < n; i++)
				middle->i64[i] = ((const uu8 *) src)[i] != 0;
			break;
		case TB_F16:
			for (size_t i = 0; i < n; i++)
				middle->f64[i] = (double) tb_half_to_float(((const uu16 *) src)[i]);
			break;
		case TB_NONE:
			break;
	}
}

/* Loops return the number of values that did not fit. */
#define STORE_INT(name, type, low, high) \
static size_t \
name##_from_i64(const int64_t *v, size_t n, void *dst) \
{ \
	size_t		bad = 0; \
	for (size_t i = 0; i < n; i++) \
	{ \
		bad += v[i] < (int64_t) (low) || ((int64_t) (high) >= 0 && v[i] > (int64_t) (high)); \
		((type *) dst)[i] = (type) v[i]; \
	} \
	return bad; \
} \
static size_t \
name##_from_u64(const uint64_t *v, size_t n, void *dst) \
{ \
	size_t		bad = 0; \
	for (size_t i = 0; i < n; i++) \
	{ \
		bad += v[i] > (uint64_t) (high); \
		((type *) dst)[i] = (type) v[i]; \
	} \
	return bad; \
} \
static size_t \
name##_from_f64(const double *v, size_t n, void *dst) \
{ \
	/* the upper border is exclusive and a power of two, so that it is exact as a double */ \
	const double upper = ((double) ((high) / 2 + 1)) * 2.0; \
	size_t		bad = 0; \
	for (size_t i = 0; i < n; i++) \
	{ \
		double		t = trunc(v[i]); \
		bool		fits = t >= (double) (low) && t < upper; \
		bad += !fits; \
		((type *) dst)[i] = fits ? (type) t : 0; \
	} \
	return bad; \
}

STORE_INT(i8, ui8, INT8_MIN, INT8_MAX)
STORE_INT(i16, ui16, INT16_MIN, INT16_MAX)
STORE_INT(i32, ui32, INT32_MIN, INT32_MAX)
STORE_INT(i64, ui64, INT64_MIN, INT64_MAX)
STORE_INT(u8, uu8, 0, UINT8_MAX)
STORE_INT(u16, uu16, 0, UINT16_MAX)
STORE_INT(u32, uu32, 0, UINT32_MAX)
STORE_INT(u64, uu64, 0, UINT64_MAX)

#define STORE_OTHER(suffix, vtype) \
static size_t \
f32_from_##suffix(const vtype *v, size_t n, void *dst) \
{ \
	size_t		bad = 0; \
	for (size_t i = 0; i < n; i++) \
	{ \
		float		f = (float) v[i]; \
		bad += isinf(f) && !isinf((double) v[i]); \
		((uf32 *) dst)[i] = f; \
	} \
	return bad; \
} \
static size_t \
f64_from_##suffix(const vtype *v, size_t n, void *dst) \
{ \
	for (size_t i = 0; i < n; i++) \
		((uf64 *) dst)[i] = (double) v[i]; \
	return 0; \
} \
static size_t \
f16_from_##suffix(const vtype *v, size_t n, void *dst) \
{ \
	size_t		bad = 0; \
	for (size_t i = 0; i < n; i++) \
	{ \
		uint16_t	half = tb_float_to_half((float) v[i]); \
		bad += (half & 0x7fff) == 0x7c00 && !isinf((double) v[i]); \
		((uu16 *) dst)[i] = half; \
	} \
	return bad; \
} \
static size_t \
bool_from_##suffix(const vtype *v, size_t n, void *dst) \
{ \
	for (size_t i = 0; i < n; i++) \
		((uu8 *) dst)[i] = v[i] != 0; \
	return 0; \
}

STORE_OTHER(i64, int64_t)
STORE_OTHER(u64, uint64_t)
STORE_OTHER(f64, double)

#define STORE_CASE(dtype, name) \
	case dtype: \
		return kind == MIDDLE_I64	? name##_from_i64(middle->i64, n, dst) \
			   : kind == MIDDLE_U64 ? name##_from_u64(middle->u64, n, dst) \
									: name##_from_f64(middle->f64, n, dst)

static size_t
store_run(TbDtype to, Middle kind, const MiddleRun *middle, size_t n, void *dst)
{
	switch (to)
	{
			STORE_CASE(TB_I8, i8);
			STORE_CASE(TB_I16, i16);
			STORE_CASE(TB_I32, i32);
			STORE_CASE(TB_I64, i64);
			STORE_CASE(TB_U8, u8);
			STORE_CASE(TB_U16, u16);
			STORE_CASE(TB_U32, u32);
			STORE_CASE(TB_U64, u64);
			STORE_CASE(TB_F16, f16);
			STORE_CASE(TB_F32, f32);
			STORE_CASE(TB_F64, f64);
			STORE_CASE(TB_BOOL, bool);
		case TB_NONE:
			break;
	}
	return n;
}

TbStatus
tb_cast(TbDtype from, const void *src, TbDtype to, void *dst, size_t n, TbError *err)
{
	const uint8_t *in = src;
	uint8_t    *out = dst;
	Middle		kind = middle_of(from);
	size_t		in_bytes = tb_dtype_size(from);
	size_t		out_bytes = tb_dtype_size(to);

	for (size_t at = 0; at < n; at += STEP)
	{
		size_t		run = n - at < STEP ? n - at : STEP;
		MiddleRun	middle;

		load_run(from, in + at * in_bytes, run, &middle);
		if (store_run(to, kind, &middle, run, out + at * out_bytes) == 0)
			continue;
		tb_fail(err, TB_E_RANGE, "value does not fit the type asked for");
		tb_error_detail(err, "from %s to %s", tb_dtype_name(from), tb_dtype_name(to));
		tb_error_hint(err, "Ask for a wider type.");
		return TB_E_RANGE;
	}
	return TB_OK;
}
