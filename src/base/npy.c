/*
 * NPY headers, written as NumPy writes them and read as Python literals of the one shape that
 * NumPy makes: a dictionary with descr, fortran_order and shape. Nothing else of Python is
 * understood. The data behind the header is the caller's to check and to read.
 */
#include "base/npy.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define PREFIX_V1 10			/* magic, version, 16-bit length */
#define PREFIX_V2 12			/* magic, version, 32-bit length */
#define MAX_HEADER 65536		/* far above what 32 dimensions need */
#define ALIGN 64
#define SHAPE_TEXT (TB_MAX_DIM * 22 + 8)	/* 20 digits, comma, space */

/* Text of the shape as Python prints a tuple. Returns its length. */
static size_t
shape_text(const TbNpy *npy, char text[SHAPE_TEXT])
{
	size_t		used = 0;

	text[used++] = '(';
	for (int i = 0; i < npy->ndim; i++)
		used += (size_t) snprintf(text + used, SHAPE_TEXT - used, "%s%" PRIu64,
								  i > 0 ? ", " : "", npy->shape[i]);
	if (npy->ndim == 1)
		text[used++] = ',';
	text[used++] = ')';
	text[used] = '\0';
	return used;
}

/* Text of the dictionary, without the padding. Returns its length. */
static size_t
dict_text(const TbNpy *npy, char text[SHAPE_TEXT + 64])
{
	char		shape[SHAPE_TEXT];

	(void) shape_text(npy, shape);
	return (size_t) snprintf(text, SHAPE_TEXT + 64,
							 "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
							 tb_dtype_npy(npy->dtype), shape);
}

/* Product of shape and element size; false on overflow, also where a zero would hide it. */
static bool
data_bytes(TbNpy *npy)
{
	size_t		bytes = tb_dtype_size(npy->dtype);
	bool		empty = false;

	for (int i = 0; i < npy->ndim; i++)
	{
		if (npy->shape[i] > SIZE_MAX)
			return false;
		if (npy->shape[i] == 0)
			empty = true;
		else if (__builtin_mul_overflow(bytes, (size_t) npy->shape[i], &bytes))
			return false;
	}
	if (bytes > SIZE_MAX / 2 - MAX_HEADER)
		return false;
	npy->data_bytes = empty ? 0 : bytes;
	return true;
}

bool
tb_npy_layout(TbDtype dtype, int ndim, const uint64_t *shape, TbNpy *out)
{
	char		text[SHAPE_TEXT + 64];
	size_t		len;

	if (tb_dtype_size(dtype) == 0 || ndim < 0 || ndim > TB_MAX_DIM)
		return false;
	memset(out, 0, sizeof(*out));
	out->dtype = dtype;
	out->ndim = ndim;
	if (ndim > 0)
		memcpy(out->shape, shape, (size_t) ndim * sizeof(*shape));
	if (!data_bytes(out))
		return false;
	len = PREFIX_V1 + dict_text(out, text) + 1;
	out->header_bytes = (len + ALIGN - 1) / ALIGN * ALIGN;
	return true;
}

/* npy is one that tb_npy_layout filled. */
void
tb_npy_write_header(const TbNpy *npy, uint8_t *dst)
{
	char		text[SHAPE_TEXT + 64];
	size_t		len = dict_text(npy, text);
	size_t		rest = npy->header_bytes - PREFIX_V1;

	memcpy(dst, MAGIC, MAGIC_BYTES);
	dst[6] = 1;
	dst[7] = 0;
	dst[8] = (uint8_t) (rest & 0xff);
	dst[9] = (uint8_t) (rest >> 8);
	memcpy(dst + PREFIX_V1, text, len);
	memset(dst + PREFIX_V1 + len, ' ', rest - len - 1);
	dst[npy->header_bytes - 1] = '\n';
}

/* --- reading --- */

typedef struct Reader
{
	const char *at;
	const char *end;
	TbNpy	   *npy;
	bool		swapped;
	bool		fortran;
	TbError    *err;			/* borrowed; may be NULL */
} Reader;

static TbStatus
malformed(Reader *reader, const char *what)
{
	tb_fail(reader->err, TB_E_INVALID, "malformed NPY header");
	tb_error_detail(reader->err, "%s", what);
	return TB_E_INVALID;
}

static void
skip_space(Reader *reader)
{
	while (reader->at < reader->end)
	{
		char		c = *reader->at;

		if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
			return;
		reader->at++;
	}
}

/* Take token, after white space; false where something else comes. */
static bool
accept_token(Reader *reader, const char *token)
{
	size_t		len = strlen(token);

	skip_space(reader);
	if ((size_t) (reader->end - reader->at) < len || memcmp(reader->at, token, len) != 0)
		return false;
	reader->at += len;
	return true;
}

/* A Python string without escapes, to text. */
static bool
read_string(Reader *reader, char *text, size_t size)
{
	char		quote;
	size_t		len = 0;

	skip_space(reader);
	if (reader->at == reader->end || (*reader->at != '\'' && *reader->at != '"'))
		return false;
	quote = *reader->at++;
	while (reader->at < reader->end && *reader->at != quote)
	{
		if (len + 1 >= size || *reader->at == '\\' || (unsigned char) *reader->at < 0x20)
			return false;
		text[len++] = *reader->at++;
	}
	if (reader->at == reader->end)
		return false;
	reader->at++;
	text[len] = '\0';
	return true;
}

/* NumPy's typestr: byte order, kind, size. */
static TbStatus
read_descr(Reader *reader)
{
	char		text[64];

	skip_space(reader);
	if (reader->at < reader->end && *reader->at == '[')
		return tb_fail(reader->err, TB_E_UNSUPPORTED, "structured NPY arrays are not supported");
	if (!read_string(reader, text, sizeof(text)))
		return malformed(reader, "descr is not a string");
	for (TbDtype dtype = TB_BOOL; text[0] != '\0' && dtype <= TB_F64; dtype++)
	{
		if (strcmp(text + 1, tb_dtype_npy(dtype) + 1) != 0)
			continue;
		if (strchr(tb_dtype_size(dtype) > 1 ? "<>=" : "|<>=", text[0]) == NULL)
			break;
		reader->npy->dtype = dtype;
		reader->swapped = text[0] == '>' && tb_dtype_size(dtype) > 1;
		return TB_OK;
	}
	tb_fail(reader->err, TB_E_UNSUPPORTED, "element type of NPY array is not supported");
	tb_error_detail(reader->err, "descr \"%s\"", text);
	return TB_E_UNSUPPORTED;
}

/* Digits, and the L that Python 2 wrote behind them. */
static bool
read_extent(Reader *reader, uint64_t *extent)
{
	uint64_t	value = 0;
	const char *start;

	skip_space(reader);
	start = reader->at;
	for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++)
		if (!tb_mul_u64(value, 10, &value) ||
			!tb_add_u64(value, (uint64_t) (*reader->at - '0'), &value))
			return false;
	if (reader->at == start)
		return false;
	if (reader->at < reader->end && *reader->at == 'L')
		reader->at++;
	*extent = value;
	return true;
}

static TbStatus
read_shape(Reader *reader)
{
	TbNpy	   *npy = reader->npy;

	if (!accept_token(reader, "("))
		return malformed(reader, "shape is not a tuple");
	for (npy->ndim = 0; !accept_token(reader, ")");)
	{
		bool		comma;

		if (npy->ndim == TB_MAX_DIM)
		{
			tb_fail(reader->err, TB_E_LIMIT, "too many dimensions in NPY array");
			tb_error_detail(reader->err, "at most %d are supported", TB_MAX_DIM);
			return TB_E_LIMIT;
		}
		if (!read_extent(reader, &npy->shape[npy->ndim]))
			return malformed(reader, "shape holds what is no extent");
		npy->ndim++;
		comma = accept_token(reader, ",");
		skip_space(reader);
		if (reader->at == reader->end)
			return malformed(reader, "shape is cut short");
		if (!comma && (npy->ndim == 1 || *reader->at != ')'))
			return malformed(reader, "shape is not a tuple");
	}
	return TB_OK;
}

/* The dictionary: each of the three keys once, in any order. */
static TbStatus
read_dict(Reader *reader)
{
	static const char *const keys[] = {"descr", "fortran_order", "shape"};
	unsigned int seen = 0;

	if (!accept_token(reader, "{"))
		return malformed(reader, "not a dictionary");
	while (!accept_token(reader, "}"))
	{
		char		key[32];
		unsigned int which = 0;
		TbStatus	status = TB_OK;

		if (!read_string(reader, key, sizeof(key)) || !accept_token(reader, ":"))
			return malformed(reader, "a key is expected");
		while (which < 3 && strcmp(key, keys[which]) != 0)
			which++;
		if (which == 3 || (seen & 1u << which) != 0)
			return malformed(reader, "unknown or repeated key");
		seen |= 1u << which;
		if (which == 0)
			status = read_descr(reader);
		else if (which == 2)
			status = read_shape(reader);
		else if (accept_token(reader, "True"))
			reader->fortran = true;
		else if (!accept_token(reader, "False"))
			return malformed(reader, "fortran_order is no truth value");
		if (status != TB_OK)
			return status;
		if (!accept_token(reader, ",") && (reader->at == reader->end || *reader->at != '}'))
			return malformed(reader, "a comma or the end is expected");
	}
	skip_space(reader);
	if (reader->at != reader->end)
		return malformed(reader, "text behind the dictionary");
	return seen == 7 ? TB_OK : malformed(reader, "a key is missing");
}

/* Find where the dictionary lies: version and length. */
static TbStatus
read_prefix(Reader *reader, const uint8_t *bytes, size_t len)
{
	size_t		prefix;
	size_t		text_len;

	if (len < PREFIX_V1 || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0)
	{
		tb_fail(reader->err, TB_E_INVALID, "not in NPY format");
		tb_error_detail(reader->err, "the magic string is missing");
		return TB_E_INVALID;
	}
	if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
	{
		tb_fail(reader->err, TB_E_UNSUPPORTED, "NPY version is not supported");
		tb_error_detail(reader->err, "version %d.%d", bytes[6], bytes[7]);
		return TB_E_UNSUPPORTED;
	}
	prefix = bytes[6] == 1 ? PREFIX_V1 : PREFIX_V2;
	if (len < prefix)
		return malformed(reader, "header is cut short");
	text_len = bytes[8] | (size_t) bytes[9] << 8;
	if (prefix == PREFIX_V2)
		text_len |= (size_t) bytes[10] << 16 | (size_t) bytes[11] << 24;
	if (text_len > MAX_HEADER)
		return tb_fail(reader->err, TB_E_LIMIT, "NPY header is too long");
	if (text_len > len - prefix)
		return malformed(reader, "header is cut short");
	reader->at = (const char *) bytes + prefix;
	reader->end = reader->at + text_len;
	reader->npy->header_bytes = prefix + text_len;
	return TB_OK;
}

/*
 * out->header_bytes is where the data starts, in a foreign file maybe no multiple of 64. The data
 * itself may be absent: compare len with header_bytes + data_bytes.
 */
TbStatus
tb_npy_parse(const uint8_t *bytes, size_t len, TbNpy *out, bool *swapped, bool *fortran,
			 TbError *err)
{
	Reader		reader = {.npy = out, .err = err};
	TbStatus	status;

	memset(out, 0, sizeof(*out));
	*swapped = *fortran = false;
	status = read_prefix(&reader, bytes, len);
	if (status == TB_OK)
		status = read_dict(&reader);
	if (status != TB_OK)
		return status;
	if (!data_bytes(out))
		return tb_fail(err, TB_E_LIMIT, "NPY array is too large");
	*swapped = reader.swapped;
	*fortran = reader.fortran;
	return TB_OK;
}
