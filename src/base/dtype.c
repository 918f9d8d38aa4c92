/* The table of element types, and half precision by hand (no compiler support assumed). */
#include "base/dtype.h"

#include <string.h>

typedef struct DtypeRow
{
	const char *name;			/* Zarr v3 */
	const char *npy;			/* NumPy's typestr, little-endian */
	size_t		size;
} DtypeRow;

static const DtypeRow rows[] = {
	[TB_NONE] = {"none", "", 0},
	[TB_BOOL] = {"bool", "|b1", 1},
	[TB_I8] = {"int8", "|i1", 1},
	[TB_I16] = {"int16", "<i2", 2},
	[TB_I32] = {"int32", "<i4", 4},
	[TB_I64] = {"int64", "<i8", 8},
	[TB_U8] = {"uint8", "|u1", 1},
	[TB_U16] = {"uint16", "<u2", 2},
	[TB_U32] = {"uint32", "<u4", 4},
	[TB_U64] = {"uint64", "<u8", 8},
	[TB_F16] = {"float16", "<f2", 2},
	[TB_F32] = {"float32", "<f4", 4},
	[TB_F64] = {"float64", "<f8", 8},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const DtypeRow *
row_of(TbDtype dtype)
{
	return (size_t) dtype < ROWS ? &rows[dtype] : &rows[TB_NONE];
}

size_t
tb_dtype_size(TbDtype dtype)
{
	return row_of(dtype)->size;
}

const char *
tb_dtype_name(TbDtype dtype)
{
	return row_of(dtype)->name;
}

TbDtype
tb_dtype_parse(const char *name)
{
	for (size_t i = TB_NONE + 1; i < ROWS; i++)
		if (strcmp(name, rows[i].name) == 0)
			return (TbDtype) i;
	return TB_NONE;
}

const char *
tb_dtype_npy(TbDtype dtype)
{
	return row_of(dtype)->npy;
}

/* Exact: every half is a float. source: IEEE 754-2019, section 3.4. */
float
tb_half_to_float(uint16_t half)
{
	uint32_t	sign = (uint32_t) (half & 0x8000) << 16;
	uint32_t	exponent = (half >> 10) & 0x1f;
	uint32_t	fraction = half & 0x3ff;
	uint32_t	bits;
	float		value;

	if (exponent == 0x1f)
		bits = sign | 0x7f800000 | fraction << 13;
	else if (exponent != 0)
		bits = sign | (exponent + 112) << 23 | fraction << 13;
	else if (fraction == 0)
		bits = sign;
	else
	{
		/* subnormal: shift the leading one to the hidden place */
		exponent = 113;
		while ((fraction & 0x400) == 0)
		{
			fraction <<= 1;
			exponent--;
		}
		bits = sign | exponent << 23 | (fraction & 0x3ff) << 13;
	}
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Round to nearest, ties to even; too large becomes infinity, NaN stays NaN. */
uint16_t
tb_float_to_half(float value)
{
	uint32_t	bits;
	uint32_t	magnitude;
	uint32_t	significand;
	uint32_t	half;
	uint32_t	rest;
	uint32_t	shift;
	uint16_t	sign;

	memcpy(&bits, &value, sizeof(bits));
	sign = (uint16_t) (bits >> 16 & 0x8000);
	magnitude = bits & 0x7fffffff;
	if (magnitude > 0x7f800000)
		return (uint16_t) (sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
	if (magnitude >= 0x47800000)	/* 65536 and above */
		return sign | 0x7c00;
	if (magnitude < 0x33000000)		/* below half of the smallest subnormal */
		return sign;
	if (magnitude >= 0x38800000)
	{
		/* normal: rebias; a carry of the rounding walks into the exponent, as it should */
		shift = 13;
		half = (magnitude - 0x38000000) >> shift;
		significand = magnitude;
	}
	else
	{
		shift = 126 - (magnitude >> 23);
		significand = (magnitude & 0x7fffff) | 0x800000;
		half = significand >> shift;
	}
	rest = significand & ((1u << shift) - 1);
	if (rest > 1u << (shift - 1) || (rest == 1u << (shift - 1) && (half & 1) != 0))
		half++;
	return (uint16_t) (sign | half);
}

#define AS_DOUBLE(type) \
	do { type v_; memcpy(&v_, element, sizeof(v_)); return (double) v_; } while (0)

/* One element of any alignment as a double; 64-bit integers beyond 2^53 are rounded. */
double
tb_element_double(TbDtype dtype, const void *element)
{
	uint16_t	half;

	switch (dtype)
	{
		case TB_NONE:
			return 0;
		case TB_BOOL:
			return *(const uint8_t *) element != 0;
		case TB_I8:
			AS_DOUBLE(int8_t);
		case TB_I16:
			AS_DOUBLE(int16_t);
		case TB_I32:
			AS_DOUBLE(int32_t);
		case TB_I64:
			AS_DOUBLE(int64_t);
		case TB_U8:
			AS_DOUBLE(uint8_t);
		case TB_U16:
			AS_DOUBLE(uint16_t);
		case TB_U32:
			AS_DOUBLE(uint32_t);
		case TB_U64:
			AS_DOUBLE(uint64_t);
		case TB_F16:
			memcpy(&half, element, sizeof(half));
			return (double) tb_half_to_float(half);
		case TB_F32:
			AS_DOUBLE(float);
		case TB_F64:
			AS_DOUBLE(double);
	}
	return 0;
}
