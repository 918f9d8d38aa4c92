/*
 * Writing datasets: rows are collected a block at a time, so memory does not grow with the rows
 * but by what they take compressed. Their order is the caller's affair.
 */
#include "dataset/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ZSTD_LEVEL 6			/* beyond it, blocks of grids gain less than a hundredth */

struct TbDatasetWriter
{
	TbContent	content;
	TbColumnRows *rows;			/* owned; one a column: the block being filled */
	size_t		n_rows;			/* in it */
	TbBuf	   *raw;			/* owned; work space */
	TbBuf	   *index;			/* owned */
	TbBuf	   *data;			/* owned */
	TbSha256   *blocks;			/* owned; over the raw blocks so far */
};

static TbStatus
no_memory(TbError *err)
{
	return tb_fail(err, TB_E_NOMEM, "out of memory");
}

static bool
alloc_rows(const TbDatasetColumn *column, TbColumnRows *rows)
{
	int			n_values = column->scalar == TB_SCALAR_TEXT ? 0 : 1;

	if (column->scalar == TB_SCALAR_NONE)
		n_values += column->ndim;
	for (int i = 0; i < n_values; i++)
	{
		rows->value[i] = tb_calloc(TB_DATASET_BLOCK_ROWS, sizeof(uint64_t));
		if (rows->value[i] == NULL)
			return false;
	}
	if (column->scalar == TB_SCALAR_NONE)
		return true;
	rows->null = tb_calloc(TB_DATASET_BLOCK_ROWS, 1);
	if (rows->null == NULL || column->scalar != TB_SCALAR_TEXT)
		return rows->null != NULL;
	rows->text = tb_buf_new(0);
	rows->text_len = tb_calloc(TB_DATASET_BLOCK_ROWS, sizeof(uint32_t));
	return rows->text != NULL && rows->text_len != NULL;
}

static TbStatus
check_columns(const TbDatasetColumn *columns, int n_columns, TbError *err)
{
	bool		ok = n_columns >= 1 && n_columns <= TB_DATASET_MAX_COLUMNS;

	if (!ok)
	{
		tb_fail(err, TB_E_LIMIT, "number of columns is out of range");
		tb_error_detail(err, "%d, allowed are 1 to %d", n_columns, TB_DATASET_MAX_COLUMNS);
		return TB_E_LIMIT;
	}
	for (int i = 0; i < n_columns; i++)
	{
		const TbDatasetColumn *c = &columns[i];

		if (c->name == NULL || (c->scalar == TB_SCALAR_NONE &&
								(c->ndim < 0 || c->ndim > TB_MAX_DIM ||
								 tb_dtype_size(c->dtype) == 0)))
			return tb_fail(err, TB_E_INVALID, "dataset column has no name, type or shape");
	}
	return TB_OK;
}

/* owns: the caller, tb_dataset_writer_free; columns are copied. errors: LIMIT, INVALID, NOMEM. */
TbStatus
tb_dataset_writer_new(const TbDatasetColumn *columns, int n_columns, TbDatasetWriter **writer,
					  TbError *err)
{
	TbStatus	status = check_columns(columns, n_columns, err);
	TbDatasetWriter *w;
	bool		ok;

	*writer = NULL;
	if (status != TB_OK)
		return status;
	w = tb_calloc(1, sizeof(*w));
	if (w == NULL)
		return no_memory(err);
	w->content.block_rows = TB_DATASET_BLOCK_ROWS;
	w->raw = tb_buf_new(0);
	w->index = tb_buf_new(0);
	w->data = tb_buf_new(0);
	w->blocks = tb_sha256_new();
	ok = w->raw != NULL && w->index != NULL && w->data != NULL && w->blocks != NULL &&
		tb_content_add_columns(&w->content, columns, n_columns) &&
		(w->rows = tb_calloc((size_t) n_columns, sizeof(*w->rows))) != NULL;
	for (int i = 0; i < n_columns && ok; i++)
		ok = alloc_rows(&columns[i], &w->rows[i]);
	if (!ok)
	{
		tb_dataset_writer_free(w);
		return no_memory(err);
	}
	*writer = w;
	return TB_OK;
}

/* Give an array its number, the next one; numbers do not depend on which rows use it. */
TbStatus
tb_dataset_writer_array(TbDatasetWriter *writer, const TbDatasetArray *array, uint32_t *id,
						TbError *err)
{
	if (array->ndim < 0 || array->ndim > TB_MAX_DIM || array->url == NULL || array->path == NULL ||
		tb_dtype_size(array->stored) == 0 || array->mask_fill < -1 || array->mask_fill > 1)
		return tb_fail(err, TB_E_INVALID, "dataset array has no url, path, type or shape");
	*id = (uint32_t) writer->content.n_arrays;
	return tb_content_add_array(&writer->content, array) ? TB_OK : no_memory(err);
}

/* Compress one column of the block into data and note it in the index. */
static TbStatus
flush_column(TbDatasetWriter *w, int i, TbError *err)
{
	uint8_t		entry[TB_DATASET_ENTRY_BYTES];
	size_t		start = w->data->len;
	size_t		stored;
	TbStatus	status;

	w->raw->len = 0;
	if (tb_block_encode(&w->content.columns[i], &w->rows[i], w->n_rows, w->raw) != TB_OK)
		return no_memory(err);
	if (w->raw->len > TB_DATASET_MAX_RAW)
	{
		tb_fail(err, TB_E_LIMIT, "texts of a dataset column are too long");
		tb_error_detail(err, "column \"%s\"", w->content.columns[i].name);
		return TB_E_LIMIT;
	}
	tb_sha256_add(w->blocks, w->raw->data, w->raw->len);
	status = tb_zstd_encode(w->raw->data, w->raw->len, ZSTD_LEVEL, w->data, err);
	if (status != TB_OK)
		return status;
	tb_put_u32(entry + 12, TB_BLOCK_ZSTD);
	if (w->data->len - start >= w->raw->len)
	{
		w->data->len = start;
		tb_put_u32(entry + 12, TB_BLOCK_PLAIN);
		if (tb_buf_append(w->data, w->raw->data, w->raw->len, SIZE_MAX) != TB_OK)
			return no_memory(err);
	}
	stored = w->data->len - start;
	tb_put_u32(entry, (uint32_t) stored);
	tb_put_u32(entry + 4, (uint32_t) w->raw->len);
	tb_put_u32(entry + 8, tb_crc32c(0, w->data->data + start, stored));
	return tb_buf_append(w->index, entry, sizeof(entry),
						 SIZE_MAX) == TB_OK ? TB_OK : no_memory(err);
}

static TbStatus
flush_block(TbDatasetWriter *w, TbError *err)
{
	TbStatus	status = TB_OK;

	if (w->n_rows == 0)
		return TB_OK;
	for (int i = 0; i < w->content.n_columns && status == TB_OK; i++)
	{
		status = flush_column(w, i, err);
		w->rows[i].any_null = false;
		if (w->rows[i].text != NULL)
			w->rows[i].text->len = 0;
	}
	w->n_rows = 0;
	if (status != TB_OK || w->data->len <= TB_DATASET_MAX_FILE)
		return status;
	return tb_fail(err, TB_E_LIMIT, "dataset is too large");
}

/* The sample must lie inside its array. */
static TbStatus
add_ref(TbDatasetWriter *w, int i, const TbDatasetCell *cell, TbError *err)
{
	const TbDatasetColumn *column = &w->content.columns[i];
	const TbDatasetArray *array;

	if (cell->null)
	{
		tb_fail(err, TB_E_NULL, "dataset sample is null");
		tb_error_detail(err, "column \"%s\", position %" PRIu64, column->name, w->content.rows);
		return TB_E_NULL;
	}
	if (cell->array >= (uint32_t) w->content.n_arrays)
		return tb_fail(err, TB_E_INVALID, "dataset sample has an array that is not known");
	array = &w->content.arrays[cell->array];
	if (array->ndim != column->ndim)
	{
		tb_fail(err, TB_E_SHAPE, "samples have different shapes");
		tb_error_detail(err, "column \"%s\", position %" PRIu64 ": %d dimensions, not %d",
						column->name, w->content.rows,
						array->ndim, column->ndim);
		return TB_E_SHAPE;
	}
	w->rows[i].value[0][w->n_rows] = cell->array;
	for (int d = 0; d < column->ndim; d++)
	{
		if (cell->start[d] > array->shape[d] || array->shape[d] - cell->start[d] < column->shape[d])
		{
			tb_fail(err, TB_E_RANGE, "dataset sample lies outside its array");
			tb_error_detail(err, "column \"%s\", position %" PRIu64 ", dimension %d", column->name,
							w->content.rows, d);
			return TB_E_RANGE;
		}
		w->rows[i].value[1 + d][w->n_rows] = cell->start[d];
		tb_frame_add(&w->content.frames[i][d], cell->start[d]);
	}
	return TB_OK;
}

static TbStatus
add_text(TbDatasetWriter *w, int i, const TbDatasetCell *cell, TbError *err)
{
	TbColumnRows *rows = &w->rows[i];

	rows->text_len[w->n_rows] = 0;
	if (cell->null)
		return TB_OK;
	if (cell->text_len > TB_DATASET_MAX_TEXT)
	{
		tb_fail(err, TB_E_LIMIT, "text in a dataset is too long");
		tb_error_detail(err, "column \"%s\", position %" PRIu64, w->content.columns[i].name,
						w->content.rows);
		return TB_E_LIMIT;
	}
	if (tb_buf_append(rows->text, cell->text, cell->text_len, SIZE_MAX) != TB_OK)
		return no_memory(err);
	rows->text_len[w->n_rows] = (uint32_t) cell->text_len;
	return TB_OK;
}

/* A null takes a value that is there already: it does not widen the frame. */
static TbStatus
add_scalar(TbDatasetWriter *w, int i, const TbDatasetCell *cell, TbError *err)
{
	const TbDatasetColumn *column = &w->content.columns[i];
	TbColumnRows *rows = &w->rows[i];
	uint64_t	value;

	rows->null[w->n_rows] = cell->null;
	rows->any_null |= cell->null;
	if (column->scalar == TB_SCALAR_TEXT)
		return add_text(w, i, cell, err);
	if (column->scalar == TB_SCALAR_FLOAT8)
	{
		memcpy(&value, &cell->f64, 8);
		rows->value[0][w->n_rows] = cell->null ? 0 : value;
		return TB_OK;
	}
	value = column->scalar == TB_SCALAR_BOOL ? cell->i64 != 0 : (uint64_t) cell->i64;
	if (cell->null)
		value = w->content.frames[i][0].any ? w->content.frames[i][0].min : 0;
	rows->value[0][w->n_rows] = value;
	tb_frame_add(&w->content.frames[i][0], value);
	return TB_OK;
}

/*
 * Append the next row. errors: NULL, SHAPE, RANGE, LIMIT, INVALID, NOMEM; the writer is of no use
 * after one.
 */
TbStatus
tb_dataset_writer_row(TbDatasetWriter *writer, const TbDatasetCell *cells, TbError *err)
{
	TbStatus	status = TB_OK;

	if (writer->content.rows == TB_DATASET_MAX_ROWS)
		return tb_fail(err, TB_E_LIMIT, "dataset has too many rows");
	for (int i = 0; i < writer->content.n_columns && status == TB_OK; i++)
		status = writer->content.columns[i].scalar == TB_SCALAR_NONE ?
			add_ref(writer, i, &cells[i], err) : add_scalar(writer, i, &cells[i], err);
	if (status != TB_OK)
		return status;
	writer->n_rows++;
	writer->content.rows++;
	return writer->n_rows == TB_DATASET_BLOCK_ROWS ? flush_block(writer, err) : TB_OK;
}

/* Put header and sections together. owns: *file is the caller's. */
static TbStatus
assemble(TbDatasetWriter *w, const TbBuf *content, const char *meta, TbBuf **file)
{
	TbDatasetHeader header = {
		.content_bytes = content->len, .meta_bytes = strlen(meta), .index_bytes = w->index->len,
		.data_bytes = w->data->len, .content_crc = tb_crc32c(0, content->data, content->len),
		.meta_crc = tb_crc32c(0, meta, strlen(meta)), .index_crc = tb_crc32c(0, w->index->data,
																			 w->index->len)
	};
	size_t		total = TB_DATASET_HEADER_BYTES + content->len + strlen(meta) + w->index->len + w->data->len;
	TbBuf	   *out = tb_buf_new(total);

	if (out == NULL)
		return TB_E_NOMEM;
	tb_dataset_header_put(&header, out->data);
	out->len = TB_DATASET_HEADER_BYTES;
	if (tb_buf_append(out, content->data, content->len, total) != TB_OK ||
		tb_buf_append(out, meta, strlen(meta), total) != TB_OK ||
		tb_buf_append(out, w->index->data, w->index->len, total) != TB_OK ||
		tb_buf_append(out, w->data->data, w->data->len, total) != TB_OK)
	{
		tb_buf_unref(out);
		return TB_E_NOMEM;
	}
	*file = out;
	return TB_OK;
}

/*
 * Once, at the end. owns: *file is the caller's. errors: LIMIT (names and arrays over 64 MiB),
 * NOMEM.
 */
TbStatus
tb_dataset_writer_finish(TbDatasetWriter *writer, const char *meta, TbBuf **file, char hash[65],
						 TbError *err)
{
	TbStatus	status = flush_block(writer, err);
	TbBuf	   *content;

	*file = NULL;
	if (status != TB_OK)
		return status;
	if (writer->blocks == NULL)
		return tb_fail(err, TB_E_STATE, "dataset is finished");
	content = tb_buf_new(0);
	if (content == NULL || tb_content_print(&writer->content, content) != TB_OK)
		status = no_memory(err);
	else if (content->len > TB_DATASET_MAX_CONTENT || strlen(meta) > TB_DATASET_MAX_CONTENT)
		status = tb_fail(err, TB_E_LIMIT, "dataset has too many arrays");
	if (status == TB_OK)
	{
		status = tb_content_hash(content->data, content->len, writer->blocks, hash);
		writer->blocks = NULL;
		if (status == TB_OK)
			status = assemble(writer, content, meta, file);
		if (status != TB_OK)
			tb_fail(err, status, "cannot put the dataset together");
	}
	tb_buf_unref(content);
	return status;
}

void
tb_dataset_writer_free(TbDatasetWriter *writer)
{
	char		unused[65];

	if (writer == NULL)
		return;
	for (int i = 0; writer->rows != NULL && i < writer->content.n_columns; i++)
	{
		for (int v = 0; v <= TB_MAX_DIM; v++)
			tb_free(writer->rows[i].value[v]);
		tb_free(writer->rows[i].null);
		tb_free(writer->rows[i].text_len);
		tb_buf_unref(writer->rows[i].text);
	}
	tb_free(writer->rows);
	tb_buf_unref(writer->raw);
	tb_buf_unref(writer->index);
	tb_buf_unref(writer->data);
	if (writer->blocks != NULL)
		tb_sha256_finish(writer->blocks, unused);
	tb_content_free(&writer->content);
	tb_free(writer);
}

void
tb_dataset_key(const char *hash, char *key, size_t key_bytes)
{
	(void) snprintf(key, key_bytes, ".tensorbank/datasets/%s.tbd", hash);
}
