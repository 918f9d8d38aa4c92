/*
 * Raw blocks: the values of one column in a run of rows as plain bytes, before compression and
 * inside the hash, so one sequence of values has one form. Differences begin anew in every block,
 * which makes blocks independent.
 */
#include "dataset/file.h"

#include <string.h>

/* ---- writing ---- */

/* First value, then differences. */
static TbStatus
encode_deltas(const uint64_t *values, size_t n, TbBuf *raw)
{
	uint64_t	before = 0;
	TbStatus	status = TB_OK;

	for (size_t i = 0; i < n && status == TB_OK; i++)
	{
		status = tb_varint_put(raw, tb_zigzag(values[i] - before));
		before = values[i];
	}
	return status;
}

/* A byte that says whether there are nulls, then one bit a row, lowest first, where there are. */
static TbStatus
encode_nulls(const TbColumnRows *rows, size_t n, TbBuf *raw)
{
	uint8_t		flag = rows->any_null ? 1 : 0;
	TbStatus	status = tb_buf_append(raw, &flag, 1, SIZE_MAX);

	for (size_t i = 0; rows->any_null && i < n && status == TB_OK; i += 8)
	{
		uint8_t		bits = 0;

		for (size_t b = 0; b < 8 && i + b < n; b++)
			bits |= (uint8_t) (rows->null[i + b] << b);
		status = tb_buf_append(raw, &bits, 1, SIZE_MAX);
	}
	return status;
}

/* All lowest bytes, then all second ones...: doubles compress better so. */
static TbStatus
encode_doubles(const uint64_t *values, size_t n, TbBuf *raw)
{
	TbStatus	status = tb_buf_reserve(raw, raw->len + 8 * n);

	for (int byte = 0; byte < 8 && status == TB_OK; byte++)
		for (size_t i = 0; i < n && status == TB_OK; i++)
		{
			uint8_t		one = (uint8_t) (values[i] >> 8 * byte);

			status = tb_buf_append(raw, &one, 1, SIZE_MAX);
		}
	return status;
}

static TbStatus
encode_texts(const TbColumnRows *rows, size_t n, TbBuf *raw)
{
	TbStatus	status = TB_OK;

	for (size_t i = 0; i < n && status == TB_OK; i++)
		status = tb_varint_put(raw, rows->text_len[i]);
	return status == TB_OK ? tb_buf_append(raw, rows->text->data, rows->text->len,
										   SIZE_MAX) : status;
}

/* Append the raw form of n rows. errors: NOMEM. */
TbStatus
tb_block_encode(const TbDatasetColumn *column, const TbColumnRows *rows, size_t n, TbBuf *raw)
{
	TbStatus	status = TB_OK;

	if (column->scalar == TB_SCALAR_NONE)
	{
		for (int i = 0; i <= column->ndim && status == TB_OK; i++)
			status = encode_deltas(rows->value[i], n, raw);
		return status;
	}
	status = encode_nulls(rows, n, raw);
	if (status != TB_OK)
		return status;
	if (column->scalar == TB_SCALAR_FLOAT8)
		return encode_doubles(rows->value[0], n, raw);
	if (column->scalar == TB_SCALAR_TEXT)
		return encode_texts(rows, n, raw);
	return encode_deltas(rows->value[0], n, raw);
}

/* ---- reading ---- */

static TbStatus
bad(TbError *err, const char *what, const TbDatasetColumn *column)
{
	tb_fail(err, TB_E_CORRUPT, "dataset file is corrupt");
	tb_error_detail(err, "%s in a block of column \"%s\"", what, column->name);
	return TB_E_CORRUPT;
}

static TbStatus
decode_deltas(const uint8_t **at, const uint8_t *end, size_t n, TbPacked *packed)
{
	uint64_t	value = 0;
	TbStatus	status = tb_packed_reserve(packed, n);

	for (size_t i = 0; i < n && status == TB_OK; i++)
	{
		uint64_t	difference;

		if (!tb_varint_get(at, end, &difference))
			return TB_E_CORRUPT;
		value += tb_unzigzag(difference);
		if (!tb_packed_push(packed, value))
			return TB_E_CORRUPT;
	}
	return status;
}

/* Nulls of rows [data->rows, data->rows + n). */
static TbStatus
decode_nulls(const uint8_t **at, const uint8_t *end, size_t n, TbColumnData *data)
{
	size_t		need = (size_t) ((data->rows + n) / 8 + 1);
	uint8_t		flag;

	if (*at == end || **at > 1)
		return TB_E_CORRUPT;
	flag = *(*at)++;
	if (flag == 0 && data->null == NULL)
		return TB_OK;
	if (need > data->null_cap)
	{
		size_t		cap = data->null_cap * 2 > need ? data->null_cap * 2 : need;
		uint8_t    *grown = tb_realloc(data->null, cap);

		if (grown == NULL)
			return TB_E_NOMEM;
		memset(grown + data->null_cap, 0, cap - data->null_cap);
		data->null = grown;
		data->null_cap = cap;
	}
	if (flag == 0)
		return TB_OK;
	if ((size_t) (end - *at) < (n + 7) / 8)
		return TB_E_CORRUPT;
	for (size_t i = 0; i < n; i++)
		if (((*at)[i / 8] >> i % 8 & 1) != 0)
			data->null[(data->rows + i) / 8] |= (uint8_t) (1u << (data->rows + i) % 8);
	*at += (n + 7) / 8;
	return TB_OK;
}

/* Room for n further rows in the lists that have one entry a row. */
static TbStatus
grow_rows(TbColumnData *data, TbScalarType scalar, size_t n)
{
	uint64_t	need = data->rows + n;
	uint64_t	cap = data->rows_cap * 2 > need ? data->rows_cap * 2 : need;
	void	   *grown;

	if (need <= data->rows_cap)
		return TB_OK;
	grown = tb_realloc_array(scalar == TB_SCALAR_FLOAT8 ? (void *) data->f64 : (void *) data->text_end, cap, 8);
	if (grown == NULL)
		return TB_E_NOMEM;
	if (scalar == TB_SCALAR_FLOAT8)
		data->f64 = grown;
	else
		data->text_end = grown;
	data->rows_cap = cap;
	return TB_OK;
}

static TbStatus
decode_doubles(const uint8_t **at, const uint8_t *end, size_t n, TbColumnData *data)
{
	if ((size_t) (end - *at) < 8 * n)
		return TB_E_CORRUPT;
	if (grow_rows(data, TB_SCALAR_FLOAT8, n) != TB_OK)
		return TB_E_NOMEM;
	for (size_t i = 0; i < n; i++)
	{
		uint64_t	bits = 0;

		for (int byte = 0; byte < 8; byte++)
			bits |= (uint64_t) (*at)[(size_t) byte * n + i] << 8 * byte;
		memcpy(&data->f64[data->rows + i], &bits, 8);
	}
	*at += 8 * n;
	return TB_OK;
}

/* Texts go into JSON later: valid UTF-8 without NUL. */
static bool
is_text(const uint8_t *bytes, size_t len)
{
	while (len > 0)
	{
		size_t		step = *bytes == 0 ? 0 : tb_utf8_step(bytes, len);

		if (step == 0)
			return false;
		bytes += step;
		len -= step;
	}
	return true;
}

static TbStatus
decode_texts(const uint8_t **at, const uint8_t *end, size_t n, TbColumnData *data)
{
	const uint8_t *lengths = *at;
	uint64_t	total = 0;
	char	   *grown;

	if (grow_rows(data, TB_SCALAR_TEXT, n) != TB_OK)
		return TB_E_NOMEM;
	for (size_t i = 0; i < n; i++)
	{
		uint64_t	len;

		if (!tb_varint_get(at, end, &len) || len > TB_DATASET_MAX_TEXT)
			return TB_E_CORRUPT;
		total += len;
	}
	if ((uint64_t) (end - *at) < total)
		return TB_E_CORRUPT;
	grown = tb_realloc(data->text, data->text_bytes + total + n);
	if (grown == NULL)
		return TB_E_NOMEM;
	data->text = grown;
	for (size_t i = 0; i < n; i++)
	{
		uint64_t	len = 0;

		if (!tb_varint_get(&lengths, end, &len) || !is_text(*at, len))
			return TB_E_CORRUPT;
		memcpy(data->text + data->text_bytes, *at, len);
		*at += len;
		data->text_bytes += len;
		data->text[data->text_bytes] = '\0';
		data->text_end[data->rows + i] = data->text_bytes++;
	}
	return TB_OK;
}

/* Append n rows from their raw form, which must be used up exactly. errors: CORRUPT, NOMEM. */
TbStatus
tb_block_decode(const TbDatasetColumn *column, const uint8_t *raw, size_t len, size_t n,
				TbColumnData *data, TbError *err)
{
	const uint8_t *at = raw;
	const uint8_t *end = raw + len;
	TbStatus	status = TB_OK;

	if (column->scalar != TB_SCALAR_NONE)
		status = decode_nulls(&at, end, n, data);
	for (int i = 0; i < data->n_packed && status == TB_OK; i++)
		status = decode_deltas(&at, end, n, &data->packed[i]);
	if (status == TB_OK && column->scalar == TB_SCALAR_FLOAT8)
		status = decode_doubles(&at, end, n, data);
	if (status == TB_OK && column->scalar == TB_SCALAR_TEXT)
		status = decode_texts(&at, end, n, data);
	if (status == TB_OK && at != end)
		return bad(err, "more bytes than rows", column);
	if (status == TB_E_CORRUPT)
		return bad(err, "values that are none", column);
	if (status != TB_OK)
		return tb_fail(err, status, "out of memory");
	data->rows += n;
	return TB_OK;
}

/* data is freed by tb_column_data_free whatever comes of this. errors: NOMEM. */
TbStatus
tb_column_data_init(TbColumnData *data, const TbDatasetColumn *column, const TbFrame *frames,
					uint64_t n_arrays)
{
	TbFrame		arrays = {.any = true, .max = n_arrays > 0 ? n_arrays - 1 : 0, .step = 1};
	int			n = tb_column_frames(column);
	int			k = 0;

	memset(data, 0, sizeof(*data));
	if (column->scalar == TB_SCALAR_FLOAT8 || column->scalar == TB_SCALAR_TEXT)
		return TB_OK;
	data->packed = tb_calloc((size_t) n + 1, sizeof(*data->packed));
	if (data->packed == NULL)
		return TB_E_NOMEM;
	if (column->scalar == TB_SCALAR_NONE)
		tb_packed_init(&data->packed[k++], &arrays);
	for (int i = 0; i < n; i++)
		tb_packed_init(&data->packed[k++], &frames[i]);
	data->n_packed = k;
	return TB_OK;
}

void
tb_column_data_free(TbColumnData *data)
{
	for (int i = 0; i < data->n_packed; i++)
		tb_packed_free(&data->packed[i]);
	tb_free(data->packed);
	tb_free(data->null);
	tb_free(data->f64);
	tb_free(data->text);
	tb_free(data->text_end);
}
