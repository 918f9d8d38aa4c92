/*
 * Casts between tensor and SQL arrays. Values are exact or the cast fails with 22003: a float8[]
 * takes no integer that a double cannot hold, an int8[] no fraction, NaN or number beyond its
 * range. SQL arrays have at most six dimensions and none of length zero: a tensor without elements
 * becomes {}, one of rank 0 an array of one element.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "pg/tensor.h"

PG_FUNCTION_INFO_V1(tensorbank_tensor_to_float8);
PG_FUNCTION_INFO_V1(tensorbank_tensor_to_int8);
PG_FUNCTION_INFO_V1(tensorbank_tensor_from_array);

static void
inexact(TbDtype dtype, const char *target)
{
	ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					errmsg("%s element cannot be represented exactly as %s", tb_dtype_name(dtype),
						   target)));
}

/* An element as a double, exactly. */
static double
exact_double(TbDtype dtype, const uint8_t *element)
{
	double		value = tb_element_double(dtype, element);

	if (dtype == TB_I64)
	{
		int64_t		i64;

		memcpy(&i64, element, sizeof(i64));
		/* 2^63 does not fit back: the cast would be undefined */
		if (value >= 0x1p63 || (int64_t) value != i64)
			inexact(dtype, "double precision");
	}
	else if (dtype == TB_U64)
	{
		uint64_t	u64;

		memcpy(&u64, element, sizeof(u64));
		if (value >= 0x1p64 || (uint64_t) value != u64)
			inexact(dtype, "double precision");
	}
	return value;
}

/* An element as an int64, exactly. */
static int64
exact_int64(TbDtype dtype, const uint8_t *element)
{
	int64_t		i64;
	double		value;

	if (dtype == TB_I64 || dtype == TB_U64)
	{
		memcpy(&i64, element, sizeof(i64));
		if (dtype == TB_U64 && i64 < 0)
			inexact(dtype, "bigint");
		return i64;
	}
	value = tb_element_double(dtype, element);
	if (!(value >= -0x1p63 && value < 0x1p63) || value != trunc(value))
		inexact(dtype, "bigint");
	return (int64) value;
}

/* An array of the tensor's shape with 8-byte elements, uninitialised. */
static ArrayType *
array_like(const TbNpy *npy, Oid type)
{
	size_t		elements = tbpg_tensor_elements(npy);
	int			ndim = npy->ndim > 0 ? npy->ndim : 1;
	ArrayType  *array;
	size_t		size;

	if (elements == 0)
		return construct_empty_array(type);
	if (npy->ndim > MAXDIM)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("tensor has too many dimensions for an array"),
				 errdetail("It has %d, an array at most %d.", npy->ndim, MAXDIM),
				 errhint("Take elements with tensorbank.element(), or send it in binary form.")));
	if (elements > (MaxAllocSize - ARR_OVERHEAD_NONULLS(MAXDIM)) / 8)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("tensor has too many elements for an array"),
				 errhint("Take a smaller part with tensorbank.slice().")));
	size = ARR_OVERHEAD_NONULLS(ndim) + elements * 8;
	array = palloc(size);
	SET_VARSIZE(array, size);
	array->ndim = ndim;
	array->dataoffset = 0;
	array->elemtype = type;
	for (int d = 0; d < ndim; d++)
	{
		ARR_DIMS(array)[d] = npy->ndim > 0 ? (int) npy->shape[d] : 1;
		ARR_LBOUND(array)[d] = 1;
	}
	return array;
}

Datum
tensorbank_tensor_to_float8(PG_FUNCTION_ARGS)
{
	TbpgTensor	tensor;
	ArrayType  *array;
	float8	   *to;
	size_t		elements;
	size_t		width;

	tbpg_tensor_open(PG_GETARG_DATUM(0), &tensor);
	array = array_like(&tensor.npy, FLOAT8OID);
	elements = tbpg_tensor_elements(&tensor.npy);
	width = tb_dtype_size(tensor.npy.dtype);
	to = (float8 *) ARR_DATA_PTR(array);
	for (size_t i = 0; i < elements; i++)
		to[i] = exact_double(tensor.npy.dtype, tensor.data + i * width);
	PG_RETURN_ARRAYTYPE_P(array);
}

Datum
tensorbank_tensor_to_int8(PG_FUNCTION_ARGS)
{
	TbpgTensor	tensor;
	ArrayType  *array;
	int64	   *to;
	size_t		elements;
	size_t		width;

	tbpg_tensor_open(PG_GETARG_DATUM(0), &tensor);
	array = array_like(&tensor.npy, INT8OID);
	elements = tbpg_tensor_elements(&tensor.npy);
	width = tb_dtype_size(tensor.npy.dtype);
	to = (int64 *) ARR_DATA_PTR(array);
	for (size_t i = 0; i < elements; i++)
		to[i] = exact_int64(tensor.npy.dtype, tensor.data + i * width);
	PG_RETURN_ARRAYTYPE_P(array);
}

/* From float4[], float8[], int4[] or int8[]: their elements lie as a tensor's do. */
Datum
tensorbank_tensor_from_array(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(0);
	int			ndim = ARR_NDIM(array);
	uint64_t	shape[MAXDIM] = {0};
	TbDtype		dtype = TB_NONE;
	struct varlena *value;
	uint8_t    *data;
	int			elements = ArrayGetNItems(ndim, ARR_DIMS(array));

	switch (ARR_ELEMTYPE(array))
	{
		case FLOAT4OID:
			dtype = TB_F32;
			break;
		case FLOAT8OID:
			dtype = TB_F64;
			break;
		case INT4OID:
			dtype = TB_I32;
			break;
		case INT8OID:
			dtype = TB_I64;
			break;
		default:
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("array of type %s cannot become a tensor",
								   format_type_be(ARR_ELEMTYPE(array)))));
	}
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("array with NULL elements cannot become a tensor"),
				 errhint("Put NaN in the place of missing values.")));
	for (int d = 0; d < ndim; d++)
		shape[d] = (uint64_t) ARR_DIMS(array)[d];
	/* the empty array has no dimensions, but no tensor of rank 0 is empty */
	value = tbpg_tensor_new(dtype, ndim > 0 ? ndim : 1, shape, 0, &data);
	memcpy(data, ARR_DATA_PTR(array), (size_t) elements * tb_dtype_size(dtype));
	PG_RETURN_POINTER(value);
}
