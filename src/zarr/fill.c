/*
 * Single elements in JSON, as fill values and sentinels are written: v3 and v2 spellings, what
 * xarray and NCZarr make of them, and nothing that would change a bit on the way.
 *
 * source: Zarr v3 core specification, "fill value"; Zarr v2, "fill value encoding"; xarray's
 * FillValueCoder (base64 of a little-endian double for all floating types).
 */
#include "zarr/parts.h"

#include <math.h>
#include <string.h>

#define MAX_BASE64_BYTES 8
#define MAX_NUMBER_TEXT 400		/* no number as text is longer */

/* Bits of an element from memory, in the low bytes. */
uint64_t
tb_element_load(TbDtype dtype, const void *element)
{
	uint8_t		u8;
	uint16_t	u16;
	uint32_t	u32;
	uint64_t	u64;

	switch (tb_dtype_size(dtype))
	{
		case 1:
			memcpy(&u8, element, sizeof(u8));
			return u8;
		case 2:
			memcpy(&u16, element, sizeof(u16));
			return u16;
		case 4:
			memcpy(&u32, element, sizeof(u32));
			return u32;
		default:
			memcpy(&u64, element, sizeof(u64));
			return u64;
	}
}

/* The reverse of tb_element_load. */
void
tb_element_store(TbDtype dtype, uint64_t bits, void *element)
{
	uint8_t		u8 = (uint8_t) bits;
	uint16_t	u16 = (uint16_t) bits;
	uint32_t	u32 = (uint32_t) bits;

	switch (tb_dtype_size(dtype))
	{
		case 1:
			memcpy(element, &u8, sizeof(u8));
			break;
		case 2:
			memcpy(element, &u16, sizeof(u16));
			break;
		case 4:
			memcpy(element, &u32, sizeof(u32));
			break;
		default:
			memcpy(element, &bits, sizeof(bits));
			break;
	}
}

/*
 * Nearest half of a double. Through float it would be rounded twice; rounding to odd in between
 * keeps the second rounding right. source: Boldo and Melquiond, "Emulation of FMA and correctly
 * rounded sums", 2008.
 */
static uint16_t
double_to_half(double value)
{
	float		narrow = (float) value;
	uint32_t	bits;

	memcpy(&bits, &narrow, sizeof(bits));
	if (isfinite(narrow) && (double) narrow != value)
	{
		if (fabs((double) narrow) > fabs(value))
			bits--;
		bits |= 1;
		memcpy(&narrow, &bits, sizeof(narrow));
	}
	return tb_float_to_half(narrow);
}

static TbElement
from_double(TbDtype dtype, double value, uint64_t *bits)
{
	float		narrow;
	uint32_t	u32;

	if (dtype == TB_F64)
	{
		memcpy(bits, &value, sizeof(*bits));
		return TB_ELEMENT_OK;
	}
	if (dtype == TB_F16)
	{
		*bits = double_to_half(value);
		return isfinite(value) && (*bits & 0x7fff) == 0x7c00 ? TB_ELEMENT_INFINITE : TB_ELEMENT_OK;
	}
	narrow = (float) value;
	memcpy(&u32, &narrow, sizeof(u32));
	*bits = u32;
	return isfinite(value) && isinf(narrow) ? TB_ELEMENT_INFINITE : TB_ELEMENT_OK;
}

/* An integer, or a double with an integral value. */
static TbElement
from_integer(TbDtype dtype, const TbJson *value, uint64_t *bits)
{
	unsigned int n_bits = (unsigned int) tb_dtype_size(dtype) * 8;
	uint64_t	u;
	int64_t		i;

	if (dtype == TB_BOOL)
	{
		if (!tb_json_as_uint(value, &u) || u > 1)
			return TB_ELEMENT_NO_FIT;
		*bits = u;
		return TB_ELEMENT_OK;
	}
	if (tb_dtype_is_unsigned(dtype))
	{
		if (!tb_json_as_uint(value, &u) || (n_bits < 64 && u >> n_bits != 0))
			return TB_ELEMENT_NO_FIT;
		*bits = u;
		return TB_ELEMENT_OK;
	}
	if (!tb_json_as_int(value, &i))
		return TB_ELEMENT_NO_FIT;
	if (n_bits < 64 && (i < -(INT64_C(1) << (n_bits - 1)) || i >= INT64_C(1) << (n_bits - 1)))
		return TB_ELEMENT_NO_FIT;
	*bits = n_bits < 64 ? (uint64_t) i & ((UINT64_C(1) << n_bits) - 1) : (uint64_t) i;
	return TB_ELEMENT_OK;
}

static TbElement
from_number(TbDtype dtype, const TbJson *value, uint64_t *bits)
{
	double		d;

	if (!tb_dtype_is_float(dtype))
		return from_integer(dtype, value, bits);
	if (!tb_json_as_double(value, &d))
		return TB_ELEMENT_NO_VALUE;
	return from_double(dtype, d, bits);
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* "0x7fc00001": the bit pattern, all digits of the type. */
static TbElement
from_hex(TbDtype dtype, const char *digits, uint64_t *bits)
{
	uint64_t	pattern = 0;

	if (strlen(digits) != tb_dtype_size(dtype) * 2)
		return TB_ELEMENT_NO_FIT;
	for (; *digits != '\0'; digits++)
	{
		int			digit = hex_digit(*digits);

		if (digit < 0)
			return TB_ELEMENT_NO_VALUE;
		pattern = pattern << 4 | (uint64_t) digit;
	}
	*bits = pattern;
	return TB_ELEMENT_OK;
}

static int
base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/*
 * Up to MAX_BASE64_BYTES bytes with their padding as one little-endian number. source: RFC 4648
 * section 4.
 */
static bool
read_base64(const char *text, size_t *n_bytes, uint64_t *number)
{
	size_t		len = strnlen(text, MAX_BASE64_BYTES * 2);
	size_t pad = len > 0 && text[len - 1] == '=' ? (len > 1 && text[len - 2] == '=' ? 2 : 1) : 0;
	uint32_t	group = 0;
	size_t		n = 0;

	if (len == 0 || len % 4 != 0 || text[len] != '\0' || len / 4 * 3 - pad > MAX_BASE64_BYTES)
		return false;
	*n_bytes = len / 4 * 3 - pad;
	*number = 0;
	for (size_t i = 0; i < len; i++)
	{
		int			digit = i >= len - pad ? 0 : base64_digit(text[i]);

		if (digit < 0)
			return false;
		group = group << 6 | (uint32_t) digit;
		if (i % 4 != 3)
			continue;
		for (int shift = 16; shift >= 0; shift -= 8, n++)
		{
			if (n < *n_bytes)
				*number |= (uint64_t) (group >> shift & 0xff) << 8 * n;
			else if ((group >> shift & 0xff) != 0)
				return false;
		}
		group = 0;
	}
	return true;
}

static TbElement
from_base64(TbDtype dtype, const char *text, uint64_t *bits)
{
	size_t		n_bytes;
	uint64_t	number;
	double		d;

	if (!read_base64(text, &n_bytes, &number))
		return TB_ELEMENT_NO_VALUE;
	if (n_bytes == tb_dtype_size(dtype))
	{
		if (dtype == TB_BOOL && number > 1)
			return TB_ELEMENT_NO_FIT;
		*bits = number;
		return TB_ELEMENT_OK;
	}
	if (!tb_dtype_is_float(dtype) || n_bytes != sizeof(d))
		return TB_ELEMENT_NO_FIT;
	memcpy(&d, &number, sizeof(d));
	return from_double(dtype, d, bits);
}

static TbElement
from_text(TbDtype dtype, const char *text, bool base64_integers, uint64_t *bits)
{
	TbJson	   *number;
	TbElement	result;

	if (tb_dtype_is_float(dtype))
	{
		if (strcmp(text, "NaN") == 0)
			return from_double(dtype, (double) NAN, bits);
		if (strcmp(text, "Infinity") == 0)
			return from_double(dtype, (double) INFINITY, bits);
		if (strcmp(text, "-Infinity") == 0)
			return from_double(dtype, -(double) INFINITY, bits);
		if (strncmp(text, "0x", 2) == 0)
			return from_hex(dtype, text + 2, bits);
	}
	/* the reader of documents also reads a number that stands alone, exactly and in any locale */
	if (strnlen(text, MAX_NUMBER_TEXT) < MAX_NUMBER_TEXT &&
		tb_json_parse(text, strlen(text), &number, NULL) == TB_OK)
	{
		TbJsonType	type = tb_json_type(number);

		result = type == TB_JSON_INT || type == TB_JSON_DOUBLE ? from_number(dtype, number, bits)
															   : TB_ELEMENT_NO_VALUE;
		tb_json_free(number);
		return result;
	}
	if (tb_dtype_is_float(dtype) || base64_integers)
		return from_base64(dtype, text, bits);
	return TB_ELEMENT_NO_VALUE;
}

/* One element from any spelling; a list of one counts as its element. */
TbElement
tb_element_parse(TbDtype dtype, const TbJson *value, bool base64_integers, uint64_t *bits)
{
	const char *text;
	bool		flag;

	*bits = 0;
	if (tb_json_type(value) == TB_JSON_ARRAY && tb_json_length(value) == 1)
		value = tb_json_at(value, 0);
	switch (tb_json_type(value))
	{
		case TB_JSON_BOOL:
			if (dtype != TB_BOOL || !tb_json_as_bool(value, &flag))
				return TB_ELEMENT_NO_VALUE;
			*bits = flag;
			return TB_ELEMENT_OK;
		case TB_JSON_INT:
		case TB_JSON_DOUBLE:
			return from_number(dtype, value, bits);
		case TB_JSON_STRING:
			if (!tb_json_as_string(value, &text))
				return TB_ELEMENT_NO_VALUE;
			return from_text(dtype, text, base64_integers, bits);
		default:
			return TB_ELEMENT_NO_VALUE;
	}
}

/*
 * A finite number beyond a floating type becomes infinite, as NumPy has it (a float32 array with
 * float64's lowest number as its fill value). Null: chunks that were never written read as zeros,
 * as in zarr-python.
 */
TbStatus
tb_fill_parse(TbArrayMeta *meta, const TbJson *value, TbError *err)
{
	uint64_t	bits;
	TbElement	result;

	memset(meta->fill, 0, sizeof(meta->fill));
	meta->fill_is_null = tb_json_type(value) == TB_JSON_NULL;
	if (meta->fill_is_null)
		return TB_OK;
	result = tb_element_parse(meta->dtype, value, true, &bits);
	if (result == TB_ELEMENT_OK || result == TB_ELEMENT_INFINITE)
	{
		tb_element_store(meta->dtype, bits, meta->fill);
		return TB_OK;
	}
	tb_fail(err, TB_E_TEXT, "fill value does not fit the array's type");
	tb_error_detail(err, "\"fill_value\": %s, type %s",
					result == TB_ELEMENT_NO_FIT ? "a value of another width or range"
												: "no value of this type",
					tb_dtype_name(meta->dtype));
	return TB_E_TEXT;
}
