/*
 * Content objects from files, which may come from anyone: every member is checked for type and
 * bounds.
 */
#include "dataset/file.h"

#include <string.h>

static TbStatus
bad(TbError *err, const char *what, const char *name)
{
	tb_fail(err, TB_E_CORRUPT, "dataset file is corrupt");
	tb_error_detail(err, "content: %s of \"%s\"", what, name);
	return TB_E_CORRUPT;
}

/* "shape" of a column or array; false where it is none. */
static bool
parse_shape(const TbJson *object, uint64_t *shape, int *ndim)
{
	TbJson	   *list;
	size_t		n;

	if (!tb_json_get(object, "shape", &list) || tb_json_type(list) != TB_JSON_ARRAY)
		return false;
	n = tb_json_length(list);
	if (n > TB_MAX_DIM)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!tb_json_as_uint(tb_json_at(list, i), &shape[i]))
			return false;
	*ndim = (int) n;
	return true;
}

static bool
parse_scalar_type(const char *type, TbScalarType *scalar)
{
	static const char *const types[] = {"tensor", "bool", "int8", "float8", "text"};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(type, types[i]) == 0)
		{
			*scalar = (TbScalarType) i;
			return true;
		}
	return false;
}

/* Bytes of one sample must fit into memory at all. */
static bool
sample_fits(const TbDatasetColumn *column)
{
	uint64_t	bytes = tb_dtype_size(column->dtype);

	for (int i = 0; i < column->ndim; i++)
		if (!tb_mul_u64(bytes, column->shape[i], &bytes) || bytes > (UINT64_C(1) << 46))
			return false;
	return true;
}

/* name is borrowed from the document. */
static bool
parse_column(const TbJson *object, TbDatasetColumn *column)
{
	const char *text;

	memset(column, 0, sizeof(*column));
	if (!tb_json_get_string(object, "name", &text))
		return false;
	column->name = (char *) text;
	if (!tb_json_get_string(object, "type", &text) || !parse_scalar_type(text, &column->scalar))
		return false;
	if (column->scalar != TB_SCALAR_NONE)
		return true;
	if (!tb_json_get_bool(object, "raw", &column->treatment.raw) ||
		!parse_shape(object, column->shape, &column->ndim))
		return false;
	if (!tb_json_get_string(object, "dtype", &text) ||
		(column->dtype = tb_dtype_parse(text)) == TB_NONE)
		return false;
	if (!tb_json_get_string(object, "cast", &text))
		return false;
	column->treatment.cast = tb_dtype_parse(text);
	return (column->treatment.cast != TB_NONE || strcmp(text, "none") == 0) && sample_fits(column);
}

static bool
parse_frame(const TbJson *list, TbFrame *frame)
{
	int64_t		min;
	int64_t		max;

	if (tb_json_type(list) != TB_JSON_ARRAY || tb_json_length(list) != 3 ||
		!tb_json_as_uint(tb_json_at(list, 1), &frame->step))
		return false;
	frame->any = true;
	if (!frame->is_signed)
		return tb_json_as_uint(tb_json_at(list, 0), &frame->min) && tb_json_as_uint(tb_json_at(list,
																							   2), &frame->max) &&
			frame->min <= frame->max;
	if (!tb_json_as_int(tb_json_at(list, 0), &min) || !tb_json_as_int(tb_json_at(list, 2), &max) ||
		min > max)
		return false;
	frame->min = (uint64_t) min;
	frame->max = (uint64_t) max;
	return true;
}

static bool
parse_frames(const TbJson *object, const TbDatasetColumn *column, TbFrame *frames)
{
	TbJson	   *list;
	int			n = tb_column_frames(column);

	if (!tb_json_get(object, "frames", &list) || tb_json_type(list) != TB_JSON_ARRAY ||
		tb_json_length(list) != (size_t) n)
		return false;
	for (int i = 0; i < n; i++)
		if (!parse_frame(tb_json_at(list, (size_t) i), &frames[i]))
			return false;
	return true;
}

/* Texts are borrowed from the document. */
static bool
parse_array(const TbJson *object, TbDatasetArray *array)
{
	const char *server;
	const char *url;
	const char *path;
	const char *dtype;
	int64_t		mask_fill;

	memset(array, 0, sizeof(*array));
	if (!tb_json_get_string(object, "server", &server) || !tb_json_get_string(object, "url",
																			  &url) ||
		!tb_json_get_string(object, "path", &path) || !tb_json_get_string(object, "dtype",
																		  &dtype) ||
		!tb_json_get_int(object, "mask_fill", &mask_fill) || !parse_shape(object, array->shape,
																		  &array->ndim))
		return false;
	if (mask_fill < -1 || mask_fill > 1)
		return false;
	array->server = (char *) server;
	array->url = (char *) url;
	array->path = (char *) path;
	array->mask_fill = (int) mask_fill;
	array->stored = tb_dtype_parse(dtype);
	return array->stored != TB_NONE;
}

static TbStatus
take_columns(const TbJson *list, TbContent *content, TbError *err)
{
	size_t		n = tb_json_length(list);
	TbDatasetColumn *columns;
	TbStatus	status = TB_OK;

	if (n == 0 || n > TB_DATASET_MAX_COLUMNS)
		return bad(err, "number", "columns");
	columns = tb_calloc(n, sizeof(*columns));
	if (columns == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (size_t i = 0; i < n && status == TB_OK; i++)
		if (!parse_column(tb_json_at(list, i), &columns[i]))
			status = bad(err, "member", "columns");
	if (status == TB_OK && !tb_content_add_columns(content, columns, (int) n))
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	for (size_t i = 0; i < n && status == TB_OK; i++)
		if (!parse_frames(tb_json_at(list, i), &columns[i], content->frames[i]))
			status = bad(err, "member", "frames");
	tb_free(columns);
	return status;
}

static TbStatus
take_arrays(const TbJson *list, TbContent *content, TbError *err)
{
	size_t		n = tb_json_length(list);

	for (size_t i = 0; i < n; i++)
	{
		TbDatasetArray array;

		if (!parse_array(tb_json_at(list, i), &array))
			return bad(err, "member", "arrays");
		if (!tb_content_add_array(content, &array))
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	return TB_OK;
}

/*
 * content is zeroed; whatever comes of it, tb_content_free frees it. errors: JSON, JSON_DUPLICATE,
 * LIMIT, CORRUPT, NOMEM.
 */
TbStatus
tb_content_parse(const uint8_t *text, size_t len, TbContent *content, TbError *err)
{
	TbJson	   *doc;
	TbJson	   *columns;
	TbJson	   *arrays;
	TbJson	   *rows;
	TbJson	   *block_rows;
	TbStatus	status = tb_json_parse(text, len, &doc, err);

	if (status != TB_OK)
		return status;
	if (!tb_json_get(doc, "columns", &columns) || !tb_json_get(doc, "arrays", &arrays) ||
		!tb_json_get(doc, "rows", &rows) || !tb_json_get(doc, "block_rows", &block_rows) ||
		tb_json_type(columns) != TB_JSON_ARRAY || tb_json_type(arrays) != TB_JSON_ARRAY)
		status = bad(err, "members", "content");
	else if (!tb_json_as_uint(rows, &content->rows) || content->rows > TB_DATASET_MAX_ROWS ||
			 !tb_json_as_uint(block_rows, &content->block_rows) || content->block_rows == 0 ||
			 content->block_rows > TB_DATASET_MAX_BLOCK_ROWS)
		status = bad(err, "number", "rows");
	if (status == TB_OK)
		status = take_columns(columns, content, err);
	if (status == TB_OK)
		status = take_arrays(arrays, content, err);
	tb_json_free(doc);
	return status;
}
