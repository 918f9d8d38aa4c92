/*
 * Functions over tensors: what they are (shape, dtype...), single elements, parts, exact
 * statistics. The picture is preview.c.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "common/shortest_dec.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "pg/tensor.h"

PG_FUNCTION_INFO_V1(tensorbank_tensor_shape);
PG_FUNCTION_INFO_V1(tensorbank_tensor_dtype);
PG_FUNCTION_INFO_V1(tensorbank_tensor_ndim);
PG_FUNCTION_INFO_V1(tensorbank_tensor_size);
PG_FUNCTION_INFO_V1(tensorbank_tensor_npy);
PG_FUNCTION_INFO_V1(tensorbank_element);
PG_FUNCTION_INFO_V1(tensorbank_element_numeric);
PG_FUNCTION_INFO_V1(tensorbank_slice);
PG_FUNCTION_INFO_V1(tensorbank_tensor_stats);

/* Bytes handed to the statistics at a time, from an aligned copy. */
#define STATS_RUN_BYTES (512 * 1024)

Datum
tensorbank_tensor_shape(PG_FUNCTION_ARGS)
{
	TbNpy		npy;

	tbpg_tensor_header(PG_GETARG_DATUM(0), &npy);
	PG_RETURN_ARRAYTYPE_P(tbpg_extents_array(npy.ndim, npy.shape));
}

Datum
tensorbank_tensor_dtype(PG_FUNCTION_ARGS)
{
	TbNpy		npy;

	tbpg_tensor_header(PG_GETARG_DATUM(0), &npy);
	PG_RETURN_TEXT_P(cstring_to_text(tb_dtype_name(npy.dtype)));
}

Datum
tensorbank_tensor_ndim(PG_FUNCTION_ARGS)
{
	TbNpy		npy;

	tbpg_tensor_header(PG_GETARG_DATUM(0), &npy);
	PG_RETURN_INT32(npy.ndim);
}

Datum
tensorbank_tensor_size(PG_FUNCTION_ARGS)
{
	TbNpy		npy;

	tbpg_tensor_header(PG_GETARG_DATUM(0), &npy);
	PG_RETURN_INT64((int64) tbpg_tensor_elements(&npy));
}

/* The value is an NPY file already. */
Datum
tensorbank_tensor_npy(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}

static void
outside(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
			 errmsg("%s lies outside the tensor", what),
			 errhint("Indexes count from 0; tensorbank.shape() gives the lengths.")));
}

/* The element that the arguments name: bytes in buf. Of a toasted tensor only the header and the
 * element are brought. */
static TbDtype
find_element(FunctionCallInfo fcinfo, uint8_t buf[8])
{
	Datum		value = PG_GETARG_DATUM(0);
	ArrayType  *array = PG_NARGS() > 1 ? PG_GETARG_ARRAYTYPE_P(1) : construct_empty_array(INT8OID);
	TbNpy		npy;
	int64		index[TB_MAX_DIM];
	size_t		at = 0;
	size_t		width;
	struct varlena *part;

	tbpg_tensor_header(value, &npy);
	tbpg_extents_from_array(array, npy.ndim, "index", index);
	for (int d = 0; d < npy.ndim; d++)
	{
		if (index[d] < 0 || (uint64_t) index[d] >= npy.shape[d])
			outside("element");
		at = at * npy.shape[d] + (size_t) index[d];
	}
	width = tb_dtype_size(npy.dtype);
	part = tbpg_tensor_slice(value, (int32) (npy.header_bytes + at * width), (int32) width);
	if (VARSIZE_ANY_EXHDR(part) != width)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED), errmsg("stored tensor has the wrong size")));
	memcpy(buf, VARDATA_ANY(part), width);
	return npy.dtype;
}

/* As a double, refused where an integer would lose digits. */
Datum
tensorbank_element(PG_FUNCTION_ARGS)
{
	uint8_t		element[8];
	TbDtype		dtype = find_element(fcinfo, element);
	double		value = tb_element_double(dtype, element);
	uint64_t	bits;
	bool		exact = true;

	memcpy(&bits, element, sizeof(bits));
	if (dtype == TB_I64)
		exact = value < 0x1p63 && (int64_t) value == (int64_t) bits;
	else if (dtype == TB_U64)
		exact = value < 0x1p64 && (uint64_t) value == bits;
	if (!exact)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("%s element cannot be represented exactly as double precision",
							   tb_dtype_name(dtype)),
						errhint("Use tensorbank.element_numeric().")));
	PG_RETURN_FLOAT8(value);
}

/* Whatever the type: integers exactly, floats by their shortest decimal form. */
Datum
tensorbank_element_numeric(PG_FUNCTION_ARGS)
{
	uint8_t		element[8];
	TbDtype		dtype = find_element(fcinfo, element);
	double		value = tb_element_double(dtype, element);
	uint64_t	bits;
	char		digits[DOUBLE_SHORTEST_DECIMAL_LEN];

	memcpy(&bits, element, sizeof(bits));
	if (dtype == TB_F64)
		double_to_shortest_decimal_buf(value, digits);
	else if (tb_dtype_is_float(dtype))
		float_to_shortest_decimal_buf((float) value, digits);
	else if (dtype == TB_U64)
		digits[pg_ulltoa_n(bits, digits)] = '\0';
	else
		PG_RETURN_NUMERIC(int64_to_numeric(dtype == TB_I64 ? (int64) bits : (int64) value));
	PG_RETURN_DATUM(DirectFunctionCall3(numeric_in, CStringGetDatum(digits),
										ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

/* Copy a box out of a tensor, row of the last axis by row. */
static void
copy_box(const TbpgTensor *from, const int64 *start, const uint64_t *shape, size_t bytes,
		 uint8_t *to)
{
	int			ndim = from->npy.ndim;
	size_t		width = tb_dtype_size(from->npy.dtype);
	size_t		row = ndim > 0 ? shape[ndim - 1] * width : width;
	uint64_t	index[TB_MAX_DIM] = {0};

	for (size_t done = 0; done < bytes; done += row)
	{
		size_t		at = 0;

		CHECK_FOR_INTERRUPTS();
		for (int d = 0; d < ndim; d++)
			at = at * from->npy.shape[d] + (size_t) start[d] + index[d];
		memcpy(to + done, from->data + at * width, row);
		for (int d = ndim - 2; d >= 0 && ++index[d] == shape[d]; d--)
			index[d] = 0;
	}
}

Datum
tensorbank_slice(PG_FUNCTION_ARGS)
{
	TbpgTensor	tensor;
	int64		start[TB_MAX_DIM];
	int64		count[TB_MAX_DIM];
	uint64_t	shape[TB_MAX_DIM];
	struct varlena *part;
	uint8_t    *data;
	TbNpy		npy;

	tbpg_tensor_open(PG_GETARG_DATUM(0), &tensor);
	tbpg_extents_from_array(PG_GETARG_ARRAYTYPE_P(1), tensor.npy.ndim, "start", start);
	tbpg_extents_from_array(PG_GETARG_ARRAYTYPE_P(2), tensor.npy.ndim, "shape", count);
	for (int d = 0; d < tensor.npy.ndim; d++)
	{
		int64		length = (int64) tensor.npy.shape[d];

		if (start[d] < 0 || count[d] < 0 || start[d] > length || count[d] > length - start[d])
			outside("slice");
		shape[d] = (uint64_t) count[d];
	}
	part = tbpg_tensor_new(tensor.npy.dtype, tensor.npy.ndim, shape, 0, &data);
	if (!tb_npy_layout(tensor.npy.dtype, tensor.npy.ndim, shape, &npy))
		elog(ERROR, "slice is larger than its tensor");
	copy_box(&tensor, start, shape, npy.data_bytes, data);
	PG_RETURN_POINTER(part);
}

/* Collect the statistics of a tensor's elements as the index does it, from aligned copies. */
static void
collect(const TbpgTensor *tensor, TbLeaf *leaf)
{
	TbDtype		dtype = tensor->npy.dtype;
	TbPacking packing = {
		.stored = dtype, .packed = dtype, .decoded = dtype, .stat = dtype, .scale = 1};
	uint8_t    *run = palloc(Min(tensor->npy.data_bytes, STATS_RUN_BYTES) + 1);

	tb_leaf_begin(leaf);
	for (size_t done = 0; done < tensor->npy.data_bytes;)
	{
		size_t		bytes = Min(tensor->npy.data_bytes - done, STATS_RUN_BYTES);

		CHECK_FOR_INTERRUPTS();
		memcpy(run, tensor->data + done, bytes);
		tb_leaf_add(leaf, &packing, run, bytes / tb_dtype_size(dtype));
		done += bytes;
	}
	pfree(run);
}

/* (valid, nan, min, max, mean, std) over the elements that are not NaN. */
Datum
tensorbank_tensor_stats(PG_FUNCTION_ARGS)
{
	TbpgTensor	tensor;
	TbLeaf		leaf;
	TupleDesc	desc;
	Datum		values[6];
	bool		nulls[6] = {false};
	double		mean = 0;
	double		std = 0;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != 6)
		elog(ERROR, "result of stats is not its composite type");
	tbpg_tensor_open(PG_GETARG_DATUM(0), &tensor);
	collect(&tensor, &leaf);
	values[0] = Int64GetDatum((int64) leaf.valid);
	values[1] = Int64GetDatum((int64) leaf.nan);
	nulls[2] = nulls[3] = leaf.valid == 0;
	if (tb_dtype_is_float(tensor.npy.dtype))
	{
		values[2] = Float8GetDatum(leaf.min.f64);
		values[3] = Float8GetDatum(leaf.max.f64);
	}
	else if (tensor.npy.dtype == TB_U64)
	{
		values[2] = Float8GetDatum((double) leaf.min.u64);
		values[3] = Float8GetDatum((double) leaf.max.u64);
	}
	else
	{
		values[2] = Float8GetDatum((double) leaf.min.i64);
		values[3] = Float8GetDatum((double) leaf.max.i64);
	}
	nulls[4] = !tb_leaf_mean(&leaf, &mean);
	nulls[5] = !tb_leaf_std(&leaf, &std);
	values[4] = Float8GetDatum(mean);
	values[5] = Float8GetDatum(std);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
