/* Streams and batches as JSON, and where a tensor lies: what the socket's replies are made of. */
#include "stream/session.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static TbStatus
print_shape(TbBuf *out, const uint64_t *first, const uint64_t *shape, int ndim)
{
	const char *comma = "";
	TbStatus	status = tb_buf_printf(out, "[");

	if (status == TB_OK && first != NULL)
	{
		status = tb_buf_printf(out, "%" PRIu64, *first);
		comma = ",";
	}
	for (int i = 0; i < ndim && status == TB_OK; i++)
	{
		status = tb_buf_printf(out, "%s%" PRIu64, comma, shape[i]);
		comma = ",";
	}
	return status == TB_OK ? tb_buf_printf(out, "]") : status;
}

static const char *
scalar_name(TbScalarType type)
{
	static const char *const names[] = {"tensor", "bool", "int8", "float8", "text"};

	return names[type];
}

/* Append [{"name","kind","dtype","shape"},...] of all columns. errors: NOMEM. */
TbStatus
tb_stream_print_columns(TbStream *stream, TbBuf *out)
{
	const TbDatasetColumn *columns;
	int			n = tb_dataset_columns(stream->dataset, &columns);
	TbStatus	status = tb_buf_printf(out, "[");

	for (int i = 0; i < n && status == TB_OK; i++)
	{
		bool		tensor = columns[i].scalar == TB_SCALAR_NONE;

		status = tb_buf_printf(out, "%s{\"name\":", i > 0 ? "," : "");
		if (status == TB_OK)
			status = tb_json_quote(out, columns[i].name);
		if (status == TB_OK)
			status = tb_buf_printf(out, ",\"kind\":\"%s\",\"dtype\":\"%s\",\"shape\":",
								   tensor ? "tensor" : "scalar",
								   tensor ? tb_dtype_name(columns[i].dtype) : scalar_name(columns[i].scalar));
		if (status == TB_OK)
			status = print_shape(out, NULL, columns[i].shape, tensor ? columns[i].ndim : 0);
		if (status == TB_OK)
			status = tb_buf_printf(out, "}");
	}
	return status == TB_OK ? tb_buf_printf(out, "]") : status;
}

static TbStatus
print_tensor(TbStream *stream, const TbBatch *batch, int tensor, TbBuf *out)
{
	const TbDatasetColumn *columns;
	const TbDatasetColumn *column;
	uint64_t	samples = batch->samples;
	TbHandle	handle = {.stream = stream->id, .slot = batch->slot, .tensor = (uint32_t) tensor,
	.generation = batch->generation};
	char		text[TB_HANDLE_TEXT];
	TbStatus	status;

	(void) tb_dataset_columns(stream->dataset, &columns);
	column = &columns[stream->tensors[tensor].column];
	memcpy(handle.epoch, stream->hub->epoch, sizeof(handle.epoch));
	tb_handle_print(&handle, text);
	status = tb_buf_printf(out, "%s{\"name\":", tensor > 0 ? "," : "");
	if (status == TB_OK)
		status = tb_json_quote(out, column->name);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"dtype\":\"%s\",\"shape\":", tb_dtype_name(column->dtype));
	if (status == TB_OK)
		status = print_shape(out, &samples, column->shape, column->ndim);
	if (status != TB_OK)
		return status;
	return tb_buf_printf(out, ",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"handle\":\"%s\"}",
						 tb_ring_offset(&stream->ring, batch->slot, tensor, 0),
						 samples * stream->tensors[tensor].sample_bytes, text);
}

/*
 * The shortest form that reads back as the same double; what JSON has no number for as text, as
 * PostgreSQL does.
 */
static TbStatus
print_double(double value, TbBuf *out)
{
	char		text[40];

	if (isnan(value))
		return tb_buf_printf(out, "\"NaN\"");
	if (isinf(value))
		return tb_buf_printf(out, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
	for (int digits = 15; digits <= 17; digits++)
	{
		(void) snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	return tb_buf_printf(out, "%s", text);
}

static TbStatus
print_cell(const TbDatasetCell *cell, TbScalarType type, TbBuf *out)
{
	if (cell->null)
		return tb_buf_printf(out, "null");
	switch (type)
	{
		case TB_SCALAR_BOOL:
			return tb_buf_printf(out, cell->i64 != 0 ? "true" : "false");
		case TB_SCALAR_INT8:
			return tb_buf_printf(out, "%" PRId64, cell->i64);
		case TB_SCALAR_FLOAT8:
			return print_double(cell->f64, out);
		case TB_SCALAR_TEXT:
			return tb_json_quote(out, cell->text);	/* kept with a NUL after it */
		case TB_SCALAR_NONE:
			break;
	}
	return TB_E_INTERNAL;
}

/* Append "name":[one value a sample]. */
static TbStatus
print_scalar(TbStream *stream, const TbBatch *batch, int column, const TbDatasetColumn *columns,
			 TbBuf *out)
{
	TbStatus	status = tb_json_quote(out, columns[column].name);

	if (status == TB_OK)
		status = tb_buf_printf(out, ":[");
	for (uint32_t i = 0; i < batch->samples && status == TB_OK; i++)
	{
		tb_dataset_row(stream->dataset, stream->work[batch->slot].rows[i], stream->cells);
		if (i > 0)
			status = tb_buf_printf(out, ",");
		if (status == TB_OK)
			status = print_cell(&stream->cells[column], columns[column].scalar, out);
	}
	return status == TB_OK ? tb_buf_printf(out, "]") : status;
}

/*
 * Append the members of a batch that was handed out and is held: "batch":..,...,"state":"..".
 * errors: NOMEM.
 */
TbStatus
tb_stream_print_batch(TbStream *stream, const TbBatch *batch, TbBuf *out)
{
	const TbDatasetColumn *columns;
	int			n = tb_dataset_columns(stream->dataset, &columns);
	const char *comma = "";
	TbStatus	status = tb_buf_printf(out,
									   "\"batch\":%" PRIu64 ",\"slot\":%" PRIu32 ",\"generation\":%" PRIu64
									   ",\"samples\":%" PRIu32 ",\"padded\":%" PRIu32 ",\"tensors\":[",
									   batch->batch, batch->slot, batch->generation, batch->samples, batch->padded);

	for (int t = 0; t < stream->n_tensors && status == TB_OK; t++)
		status = print_tensor(stream, batch, t, out);
	if (status == TB_OK)
		status = tb_buf_printf(out, "],\"scalars\":{");
	for (int i = 0; i < n && status == TB_OK; i++)
	{
		if (columns[i].scalar == TB_SCALAR_NONE)
			continue;
		status = tb_buf_printf(out, "%s", comma);
		comma = ",";
		if (status == TB_OK)
			status = print_scalar(stream, batch, i, columns, out);
	}
	if (status == TB_OK)
		status = tb_buf_printf(out, "},\"state\":");
	return status == TB_OK ? tb_json_quote(out, batch->state) : status;
}

/* A tensor of a batch that the client holds. errors: HANDLE. */
TbStatus
tb_stream_place(TbStream *stream, const TbHandle *handle, TbTensorPlace *place, TbError *err)
{
	const TbDatasetColumn *columns;
	const TbDatasetColumn *column;

	if (!tb_ring_holds(&stream->ring, handle->slot, handle->generation) ||
		handle->tensor >= (uint32_t) stream->n_tensors)
		return tb_handle_fail(err);
	(void) tb_dataset_columns(stream->dataset, &columns);
	column = &columns[stream->tensors[handle->tensor].column];
	place->dtype = column->dtype;
	place->ndim = column->ndim + 1;
	place->shape[0] = stream->work[handle->slot].samples;
	memcpy(place->shape + 1, column->shape, sizeof(column->shape));
	place->offset = tb_ring_offset(&stream->ring, handle->slot, (int) handle->tensor, 0);
	place->bytes = place->shape[0] * stream->tensors[handle->tensor].sample_bytes;
	place->fd = stream->ring.mem.fd;
	return TB_OK;
}
