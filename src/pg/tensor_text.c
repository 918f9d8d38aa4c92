/*
 * The text form of a tensor: element type, shape, and the elements in nested braces, which
 * round-trips:
 *
 *	float32[2,3]{{1,2,3},{4,5,6}}	float64[]{1.5}	bool[2]{t,f}	float32[0,3]{}
 *
 * Floats are written in the shortest form that gives the same value back (NaN, Infinity,
 * -Infinity); the bits of a NaN are not kept. A tensor without elements is written with one empty
 * pair of braces.
 */
#include "postgres.h"

#include <errno.h>
#include <math.h>

#include "common/shortest_dec.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "pg/tensor.h"

/* ---- writing ---- */

/* Shortest decimal form of a half that reads back to the same half. */
static int
print_half(uint16_t half, char *out)
{
	float		value = tb_half_to_float(half);

	if (!isfinite(value))
		return float_to_shortest_decimal_buf(value, out);
	for (int digits = 1; digits < 6; digits++)
	{
		int			len = snprintf(out, 32, "%.*g", digits, (double) value);

		if (tb_float_to_half(strtof(out, NULL)) == half)
			return len;
	}
	return float_to_shortest_decimal_buf(value, out);
}

/* One element as text of at most 32 bytes. Returns its length. */
static int
print_element(TbDtype dtype, const uint8_t *element, char *out)
{
	uint16_t	half;
	uint64_t	u64;
	float		f32;
	double		f64;

	switch (dtype)
	{
		case TB_BOOL:
			out[0] = *element != 0 ? 't' : 'f';
			return 1;
		case TB_F16:
			memcpy(&half, element, sizeof(half));
			return print_half(half, out);
		case TB_F32:
			memcpy(&f32, element, sizeof(f32));
			return float_to_shortest_decimal_buf(f32, out);
		case TB_F64:
			memcpy(&f64, element, sizeof(f64));
			return double_to_shortest_decimal_buf(f64, out);
		case TB_U64:
			memcpy(&u64, element, sizeof(u64));
			return pg_ulltoa_n(u64, out);
		case TB_I64:
			memcpy(&u64, element, sizeof(u64));
			return pg_lltoa((int64) u64, out);
		default:
			/* exact: the other integers fit a double */
			return pg_lltoa((int64) tb_element_double(dtype, element), out);
	}
}

char *
tbpg_tensor_print(const TbpgTensor *tensor)
{
	const TbNpy *npy = &tensor->npy;
	size_t		width = tb_dtype_size(npy->dtype);
	size_t		elements = tbpg_tensor_elements(npy);
	uint64_t	index[TB_MAX_DIM] = {0};
	StringInfoData out;
	int			open = npy->ndim;	/* braces to open before the next element */

	initStringInfo(&out);
	appendStringInfo(&out, "%s[", tb_dtype_name(npy->dtype));
	for (int d = 0; d < npy->ndim; d++)
		appendStringInfo(&out, d > 0 ? ",%llu" : "%llu", (unsigned long long) npy->shape[d]);
	appendStringInfoChar(&out, ']');
	if (elements == 0 || npy->ndim == 0)
		appendStringInfoChar(&out, '{');
	for (size_t i = 0; i < elements; i++)
	{
		char		number[64];

		if ((i & 0xfffff) == 0)
			CHECK_FOR_INTERRUPTS();
		if (i > 0)
			appendStringInfoChar(&out, ',');
		for (; open > 0; open--)
			appendStringInfoChar(&out, '{');
		appendBinaryStringInfo(&out, number,
							   print_element(npy->dtype, tensor->data + i * width, number));
		for (int d = npy->ndim - 1; d >= 0 && ++index[d] == npy->shape[d]; d--)
		{
			index[d] = 0;
			appendStringInfoChar(&out, '}');
			open++;
		}
	}
	if (elements == 0 || npy->ndim == 0)
		appendStringInfoChar(&out, '}');
	return out.data;
}

/* ---- reading ---- */

typedef struct Scanner
{
	const char *text;			/* the whole, for messages */
	const char *at;
	TbDtype		dtype;
	int			ndim;
	uint64_t	shape[TB_MAX_DIM];
	uint8_t    *data;
	size_t		done;			/* elements stored */
} Scanner;

static void
malformed(const Scanner *scanner, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("malformed tensor literal"),
			 errdetail("%s At character %zu.", detail, (size_t) (scanner->at - scanner->text) + 1),
			 errhint("A tensor is written as in float32[2,3]{{1,2,3},{4,5,6}}.")));
}

static void
skip_space(Scanner *scanner)
{
	while (*scanner->at == ' ' || (*scanner->at >= '\t' && *scanner->at <= '\r'))
		scanner->at++;
}

static bool
accept(Scanner *scanner, char c)
{
	skip_space(scanner);
	if (*scanner->at != c)
		return false;
	scanner->at++;
	return true;
}

/* Element type and shape. */
static void
scan_head(Scanner *scanner)
{
	char		name[16];
	size_t		len;

	skip_space(scanner);
	len = strcspn(scanner->at, "[ \t\n");
	if (len == 0 || len >= sizeof(name))
		malformed(scanner, "An element type is expected.");
	memcpy(name, scanner->at, len);
	name[len] = '\0';
	scanner->dtype = tb_dtype_parse(name);
	if (scanner->dtype == TB_NONE)
		malformed(scanner, "The element type is not known.");
	scanner->at += len;
	if (!accept(scanner, '['))
		malformed(scanner, "The shape in brackets is expected.");
	while (!accept(scanner, ']'))
	{
		char	   *end;

		if (scanner->ndim > 0 && !accept(scanner, ','))
			malformed(scanner, "A comma or the end of the shape is expected.");
		skip_space(scanner);
		if (scanner->ndim == TB_MAX_DIM)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("tensor has too many dimensions"),
					 errdetail("At most %d are supported.", TB_MAX_DIM)));
		if (*scanner->at < '0' || *scanner->at > '9')
			malformed(scanner, "A length is expected.");
		errno = 0;
		scanner->shape[scanner->ndim] = strtoull(scanner->at, &end, 10);
		if (errno != 0 || scanner->shape[scanner->ndim] > INT64_MAX)
			ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
							errmsg("length of a tensor is out of range")));
		scanner->ndim++;
		scanner->at = end;
	}
}

static void
out_of_range(const Scanner *scanner)
{
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("value is out of range for element type %s", tb_dtype_name(scanner->dtype)),
			 errdetail("At character %zu.", (size_t) (scanner->at - scanner->text) + 1)));
}

/* A float: each width is parsed by its own routine, so that nothing is rounded twice. */
static const char *
scan_float(Scanner *scanner, uint8_t *dst)
{
	char	   *end;
	double		f64;
	float		f32;
	uint16_t	half;
	bool		infinite;

	errno = 0;
	if (scanner->dtype == TB_F64)
	{
		f64 = strtod(scanner->at, &end);
		memcpy(dst, &f64, sizeof(f64));
		infinite = isinf(f64);
		if (errno == ERANGE && (infinite || f64 == 0))
			out_of_range(scanner);
		return end;
	}
	f32 = strtof(scanner->at, &end);
	infinite = isinf(f32);
	if (errno == ERANGE && (infinite || f32 == 0))
		out_of_range(scanner);
	if (scanner->dtype == TB_F32)
	{
		memcpy(dst, &f32, sizeof(f32));
		return end;
	}
	half = tb_float_to_half(f32);
	if (!infinite && isinf(tb_half_to_float(half)))
		out_of_range(scanner);
	memcpy(dst, &half, sizeof(half));
	return end;
}

/* An integer of the type's range, in decimal. */
static const char *
scan_integer(Scanner *scanner, uint8_t *dst)
{
	size_t		width = tb_dtype_size(scanner->dtype);
	char	   *end;
	uint64_t	bits;

	errno = 0;
	if (tb_dtype_is_unsigned(scanner->dtype))
	{
		bits = strtoull(scanner->at, &end, 10);
		if (end != scanner->at &&
			(errno != 0 || *scanner->at == '-' || (width < 8 && bits >> (8 * width) != 0)))
			out_of_range(scanner);
	}
	else
	{
		int64_t		value = strtoll(scanner->at, &end, 10);
		int64_t		max = (int64_t) (UINT64_MAX >> (65 - 8 * width));

		if (errno != 0 || value > max || value < -max - 1)
			out_of_range(scanner);
		bits = (uint64_t) value;
	}
	/* little-endian machines only, as the NPY form: the low bytes come first */
	memcpy(dst, &bits, width);
	return end;
}

static void
scan_element(Scanner *scanner)
{
	uint8_t    *dst = scanner->data + scanner->done * tb_dtype_size(scanner->dtype);
	const char *end;

	skip_space(scanner);
	if (scanner->dtype == TB_BOOL)
	{
		size_t len = strspn(scanner->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01");
		bool		value;

		if (!parse_bool_with_len(scanner->at, len, &value))
			malformed(scanner, "A truth value is expected.");
		*dst = value;
		end = scanner->at + len;
	}
	else if (tb_dtype_is_float(scanner->dtype))
		end = scan_float(scanner, dst);
	else
		end = scan_integer(scanner, dst);
	if (end == scanner->at)
		malformed(scanner, "A number is expected.");
	scanner->at = end;
	scanner->done++;
}

/* The braces and what they hold; level: axis of the braces just opened. */
static void
scan_body(Scanner *scanner, size_t elements)
{
	uint64_t	index[TB_MAX_DIM] = {0};
	int			open = scanner->ndim;

	while (scanner->done < elements)
	{
		if ((scanner->done & 0xfffff) == 0)
			CHECK_FOR_INTERRUPTS();
		if (scanner->done > 0 && !accept(scanner, ','))
			malformed(scanner, "The braces do not match the shape: a comma is expected.");
		for (; open > 0; open--)
			if (!accept(scanner, '{'))
				malformed(scanner,
						  "The braces do not match the shape: an opening brace is expected.");
		scan_element(scanner);
		for (int d = scanner->ndim - 1; d >= 0 && ++index[d] == scanner->shape[d]; d--)
		{
			index[d] = 0;
			if (!accept(scanner, '}'))
				malformed(scanner,
						  "The braces do not match the shape: a closing brace is expected.");
			open++;
		}
	}
}

struct varlena *
tbpg_tensor_scan(const char *literal)
{
	Scanner		scanner = {.text = literal, .at = literal};
	TbNpy		npy;
	struct varlena *value;
	bool		braces;

	scan_head(&scanner);
	/* every element takes a character and a separator: refuse a shape that the text cannot fill
	 * before memory is taken */
	if (tb_npy_layout(scanner.dtype, scanner.ndim, scanner.shape, &npy) &&
		tbpg_tensor_elements(&npy) > strlen(scanner.at) / 2 + 1 && npy.data_bytes <= MaxAllocSize)
		malformed(&scanner, "There are fewer elements than the shape announces.");
	value = tbpg_tensor_new(scanner.dtype, scanner.ndim, scanner.shape, 0, &scanner.data);
	tb_npy_layout(scanner.dtype, scanner.ndim, scanner.shape, &npy);
	braces = scanner.ndim == 0 || npy.data_bytes == 0;
	if (braces && !accept(&scanner, '{'))
		malformed(&scanner, "An opening brace is expected.");
	scan_body(&scanner, tbpg_tensor_elements(&npy));
	if (braces && !accept(&scanner, '}'))
		malformed(&scanner, "A closing brace is expected.");
	skip_space(&scanner);
	if (*scanner.at != '\0')
		malformed(&scanner, "There is text behind the tensor.");
	return value;
}
