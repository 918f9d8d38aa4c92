/*
 * The content object: its memory, its one canonical text, and the hash. Parsing is in
 * content_parse.c.
 */
#include "dataset/file.h"

#include <inttypes.h>
#include <string.h>

int
tb_column_frames(const TbDatasetColumn *column)
{
	switch (column->scalar)
	{
		case TB_SCALAR_NONE:
			return column->ndim;
		case TB_SCALAR_BOOL:
		case TB_SCALAR_INT8:
			return 1;
		case TB_SCALAR_FLOAT8:
		case TB_SCALAR_TEXT:
			break;
	}
	return 0;
}

bool
tb_content_add_columns(TbContent *content, const TbDatasetColumn *columns, int n)
{
	content->columns = tb_calloc((size_t) n, sizeof(*columns));
	content->frames = tb_calloc((size_t) n, sizeof(*content->frames));
	if (content->columns == NULL || content->frames == NULL)
		return false;
	for (int i = 0; i < n; i++)
	{
		int			n_frames = tb_column_frames(&columns[i]);

		content->columns[i] = columns[i];
		content->columns[i].name = tb_strdup(columns[i].name);
		content->n_columns = i + 1;
		if (content->columns[i].name == NULL)
			return false;
		if (n_frames == 0)
			continue;
		content->frames[i] = tb_calloc((size_t) n_frames, sizeof(TbFrame));
		if (content->frames[i] == NULL)
			return false;
		for (int f = 0; f < n_frames; f++)
			content->frames[i][f].is_signed = columns[i].scalar != TB_SCALAR_NONE;
	}
	return true;
}

bool
tb_content_add_array(TbContent *content, const TbDatasetArray *array)
{
	TbDatasetArray *copy;

	if ((size_t) content->n_arrays == content->arrays_cap)
	{
		size_t		cap = content->arrays_cap > 0 ? content->arrays_cap * 2 : 8;
		TbDatasetArray *grown = tb_realloc_array(content->arrays, cap, sizeof(*grown));

		if (grown == NULL)
			return false;
		content->arrays = grown;
		content->arrays_cap = cap;
	}
	copy = &content->arrays[content->n_arrays];
	*copy = *array;
	copy->server = tb_strdup(array->server != NULL ? array->server : "");
	copy->url = tb_strdup(array->url);
	copy->path = tb_strdup(array->path);
	content->n_arrays++;
	return copy->server != NULL && copy->url != NULL && copy->path != NULL;
}

/* NULL members and half-filled lists are fine. */
void
tb_content_free(TbContent *content)
{
	for (int i = 0; i < content->n_columns; i++)
	{
		tb_free(content->columns[i].name);
		tb_free(content->frames[i]);
	}
	for (int i = 0; i < content->n_arrays; i++)
	{
		tb_free(content->arrays[i].server);
		tb_free(content->arrays[i].url);
		tb_free(content->arrays[i].path);
	}
	tb_free(content->columns);
	tb_free(content->frames);
	tb_free(content->arrays);
	memset(content, 0, sizeof(*content));
}

static TbStatus
print_shape(const uint64_t *shape, int ndim, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out, "\"shape\":[");

	for (int i = 0; i < ndim && status == TB_OK; i++)
		status = tb_buf_printf(out, "%s%" PRIu64, i > 0 ? "," : "", shape[i]);
	return status == TB_OK ? tb_buf_printf(out, "]") : status;
}

static TbStatus
print_frame(const TbFrame *frame, TbBuf *out)
{
	if (frame->is_signed)
		return tb_buf_printf(out, "[%" PRId64 ",%" PRIu64 ",%" PRId64 "]", (int64_t) frame->min,
							 frame->step,
							 (int64_t) frame->max);
	return tb_buf_printf(out, "[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", frame->min, frame->step,
						 frame->max);
}

static TbStatus
print_column(const TbDatasetColumn *column, const TbFrame *frames, TbBuf *out)
{
	static const char *const types[] = {"tensor", "bool", "int8", "float8", "text"};
	TbStatus	status = tb_buf_printf(out, "{\"name\":");

	if (status == TB_OK)
		status = tb_json_quote(out, column->name);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"type\":\"%s\"", types[column->scalar]);
	if (status == TB_OK && column->scalar == TB_SCALAR_NONE)
	{
		status = tb_buf_printf(out, ",\"dtype\":\"%s\",\"raw\":%s,\"cast\":\"%s\",",
							   tb_dtype_name(column->dtype),
							   column->treatment.raw ? "true" : "false", tb_dtype_name(column->treatment.cast));
		if (status == TB_OK)
			status = print_shape(column->shape, column->ndim, out);
	}
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"frames\":[");
	for (int i = 0; i < tb_column_frames(column) && status == TB_OK; i++)
	{
		if (i > 0)
			status = tb_buf_printf(out, ",");
		if (status == TB_OK)
			status = print_frame(&frames[i], out);
	}
	return status == TB_OK ? tb_buf_printf(out, "]}") : status;
}

static TbStatus
print_array(const TbDatasetArray *array, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out, "{\"server\":");

	if (status == TB_OK)
		status = tb_json_quote(out, array->server);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"url\":");
	if (status == TB_OK)
		status = tb_json_quote(out, array->url);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"path\":");
	if (status == TB_OK)
		status = tb_json_quote(out, array->path);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"mask_fill\":%d,\"dtype\":\"%s\",", array->mask_fill,
							   tb_dtype_name(array->stored));
	if (status == TB_OK)
		status = print_shape(array->shape, array->ndim, out);
	return status == TB_OK ? tb_buf_printf(out, "}") : status;
}

/*
 * Append the content's text: no spaces, members in this order, so that equal contents have equal
 * texts. errors: NOMEM.
 */
TbStatus
tb_content_print(const TbContent *content, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out,
									   "{\"rows\":%" PRIu64 ",\"block_rows\":%" PRIu64 ",\"columns\":[", content->rows,
									   content->block_rows);

	for (int i = 0; i < content->n_columns && status == TB_OK; i++)
	{
		if (i > 0)
			status = tb_buf_printf(out, ",");
		if (status == TB_OK)
			status = print_column(&content->columns[i], content->frames[i], out);
	}
	if (status == TB_OK)
		status = tb_buf_printf(out, "],\"arrays\":[");
	for (int i = 0; i < content->n_arrays && status == TB_OK; i++)
	{
		if (i > 0)
			status = tb_buf_printf(out, ",");
		if (status == TB_OK)
			status = print_array(&content->arrays[i], out);
	}
	return status == TB_OK ? tb_buf_printf(out, "]}") : status;
}

/* errors: NOMEM, INTERNAL (the library refuses). */
TbStatus
tb_content_hash(const void *content, size_t len, TbSha256 *blocks, char hash[65])
{
	static const char prefix[] = "tensorbank dataset 1\n";
	TbSha256   *sha = tb_sha256_new();
	char		blocks_hex[65];

	tb_sha256_finish(blocks, blocks_hex);
	if (sha == NULL)
		return TB_E_NOMEM;
	tb_sha256_add(sha, prefix, strlen(prefix));
	tb_sha256_add(sha, content, len);
	tb_sha256_add(sha, "\n", 1);
	tb_sha256_add(sha, blocks_hex, strlen(blocks_hex));
	tb_sha256_finish(sha, hash);
	return strlen(hash) == 64 && strlen(blocks_hex) == 64 ? TB_OK : TB_E_INTERNAL;
}
