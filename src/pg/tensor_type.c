/*
 * The type tensor: an n-dimensional array of numbers whose varlena holds exactly an NPY file.
 * What read() just made is sent as it is, receiving takes fixed element types only. Text form:
 * tensor_text.c; casts: tensor_cast.c; functions: tensor_func.c.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/expandeddatum.h"
#include "utils/memutils.h"

#include "pg/tensor.h"

/* Longest header that tb_npy_layout can give: 32 dimensions of 20 digits. */
#define MAX_HEADER_BYTES 1024

PG_FUNCTION_INFO_V1(tensorbank_tensor_in);
PG_FUNCTION_INFO_V1(tensorbank_tensor_out);
PG_FUNCTION_INFO_V1(tensorbank_tensor_recv);
PG_FUNCTION_INFO_V1(tensorbank_tensor_send);
PG_FUNCTION_INFO_V1(tensorbank_tensor_eq);
PG_FUNCTION_INFO_V1(tensorbank_tensor_ne);
PG_FUNCTION_INFO_V1(tensorbank_tensor_hash);
PG_FUNCTION_INFO_V1(tensorbank_tensor_hash_extended);
PG_FUNCTION_INFO_V1(tensorbank_tensor_from_bytea);

/* Parse the header of what this file wrote before. */
static void
parse_stored(const struct varlena *value, TbNpy *npy)
{
	TbError		err;
	bool		swapped;
	bool		fortran;

	TBPG_CHECK(tb_npy_parse((const uint8_t *) VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), npy,
							&swapped, &fortran, &err),
			   &err);
	if (swapped || fortran)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("stored tensor is not in canonical form")));
}

/* ---- values that read() made, not copied yet ---- */

typedef struct Expanded
{
	ExpandedObjectHeader header;
	struct varlena *flat;
} Expanded;

static Size
flat_size(ExpandedObjectHeader *header)
{
	return VARSIZE(((Expanded *) header)->flat);
}

static void
flatten_into(ExpandedObjectHeader *header, void *result, Size size)
{
	memcpy(result, ((Expanded *) header)->flat, size);
}

static const ExpandedObjectMethods expanded_methods = {
	.get_flat_size = flat_size,
	.flatten_into = flatten_into
};

Datum
tbpg_tensor_expanded(MemoryContext context, struct varlena *value)
{
	Expanded   *expanded = MemoryContextAlloc(context, sizeof(Expanded));

	EOH_init_header(&expanded->header, &expanded_methods, context);
	expanded->flat = value;
	return EOHPGetRODatum(&expanded->header);
}

/* The flat value inside one of our expanded objects, borrowed; NULL: the datum is none. */
static struct varlena *
flat_inside(Datum value)
{
	ExpandedObjectHeader *header;

	if (!VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
		return NULL;
	header = DatumGetEOHP(value);
	return header->eoh_methods == &expanded_methods ? ((Expanded *) header)->flat : NULL;
}

void
tbpg_tensor_open(Datum value, TbpgTensor *tensor)
{
	tensor->value = flat_inside(value);
	if (tensor->value == NULL)
		tensor->value = PG_DETOAST_DATUM_PACKED(value);
	parse_stored(tensor->value, &tensor->npy);
	if (tensor->npy.header_bytes + tensor->npy.data_bytes != VARSIZE_ANY_EXHDR(tensor->value))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED), errmsg("stored tensor has the wrong size")));
	tensor->data = (const uint8_t *) VARDATA_ANY(tensor->value) + tensor->npy.header_bytes;
}

void
tbpg_tensor_header(Datum value, TbNpy *npy)
{
	struct varlena *head = tbpg_tensor_slice(value, 0, MAX_HEADER_BYTES);

	parse_stored(head, npy);
	pfree(head);
}

struct varlena *
tbpg_tensor_slice(Datum value, int32 start, int32 bytes)
{
	struct varlena *flat = flat_inside(value);

	return PG_DETOAST_DATUM_SLICE(flat != NULL ? PointerGetDatum(flat) : value, start, bytes);
}

struct varlena *
tbpg_tensor_new(TbDtype dtype, int ndim, const uint64_t *shape, size_t spare, uint8_t **data)
{
	TbNpy		npy;
	struct varlena *value;
	size_t		size;

	if (!tb_npy_layout(dtype, ndim, shape, &npy) ||
		npy.data_bytes > MaxAllocSize - VARHDRSZ - npy.header_bytes - spare)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("tensor is too large"),
				 errdetail("A tensor can have at most %zu bytes.", (size_t) MaxAllocSize),
				 errhint("Take a smaller part with tensorbank.crop().")));
	size = VARHDRSZ + npy.header_bytes + npy.data_bytes;
	value = palloc(size + spare);
	SET_VARSIZE(value, size);
	tb_npy_write_header(&npy, (uint8_t *) VARDATA(value));
	*data = (uint8_t *) VARDATA(value) + npy.header_bytes;
	return value;
}

/* Copy one element of a known width, turned round where swap says so. */
static inline void
copy_element(uint8_t *dst, const uint8_t *src, size_t width, bool swap)
{
	if (!swap)
		memcpy(dst, src, width);
	else
		for (size_t i = 0; i < width; i++)
			dst[i] = src[width - 1 - i];
}

/* Bring foreign elements into machine and C order. */
static void
convert_elements(const TbNpy *npy, bool swapped, bool fortran, const uint8_t *src, uint8_t *dst)
{
	size_t		width = tb_dtype_size(npy->dtype);
	size_t		elements = tbpg_tensor_elements(npy);
	uint64_t	index[TB_MAX_DIM] = {0};
	size_t		stride[TB_MAX_DIM];
	size_t		at = 0;

	if (npy->ndim == 0 || npy->data_bytes == 0)
		fortran = false;
	for (int d = 0; fortran && d < npy->ndim; d++)
		stride[d] = d == 0 ? width : stride[d - 1] * npy->shape[d - 1];
	for (size_t i = 0; i < elements; i++)
	{
		if ((i & 0xfffff) == 0)
			CHECK_FOR_INTERRUPTS();
		copy_element(dst + i * width, src + (fortran ? at : i * width), width, swapped);
		/* next in C order: the last axis runs fastest */
		for (int d = npy->ndim - 1; fortran && d >= 0; d--)
		{
			at += stride[d];
			if (++index[d] < npy->shape[d])
				break;
			at -= stride[d] * npy->shape[d];
			index[d] = 0;
		}
	}
	if (npy->dtype == TB_BOOL)
		for (size_t i = 0; i < elements; i++)
			dst[i] = dst[i] != 0;
}

struct varlena *
tbpg_tensor_from_npy(const uint8_t *bytes, size_t len)
{
	TbError		err;
	TbNpy		npy;
	bool		swapped;
	bool		fortran;
	struct varlena *value;
	uint8_t    *data;

	TBPG_CHECK(tb_npy_parse(bytes, len, &npy, &swapped, &fortran, &err), &err);
	if (npy.header_bytes + npy.data_bytes != len)
		ereport(ERROR, (errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
						errmsg("NPY file has the wrong size"),
						errdetail("Its header announces %zu bytes of data, %zu follow.",
								  npy.data_bytes, len - npy.header_bytes)));
	value = tbpg_tensor_new(npy.dtype, npy.ndim, npy.shape, 0, &data);
	if (swapped || fortran || npy.dtype == TB_BOOL)
		convert_elements(&npy, swapped, fortran, bytes + npy.header_bytes, data);
	else
		memcpy(data, bytes + npy.header_bytes, npy.data_bytes);
	return value;
}

TbDtype
tbpg_dtype(const char *name)
{
	TbDtype		dtype = tb_dtype_parse(name);

	if (dtype == TB_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown element type \"%s\"", name),
				 errhint("Element types are bool, int8 to int64, uint8 to uint64, float16, float32 "
						 "and float64.")));
	return dtype;
}

ArrayType *
tbpg_extents_array(int ndim, const uint64_t *extents)
{
	Datum		values[TB_MAX_DIM];

	for (int d = 0; d < ndim; d++)
		values[d] = Int64GetDatum((int64) extents[d]);
	return construct_array(values, ndim, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
}

void
tbpg_extents_from_array(ArrayType *array, int ndim, const char *what, int64 *extents)
{
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

	if (array_contains_nulls(array))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("%s must not contain NULL", what)));
	if (ARR_NDIM(array) > 1 || n != ndim)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must have one value a dimension", what),
				 errdetail("There are %d dimensions and %d values.", ndim, n)));
	memcpy(extents, ARR_DATA_PTR(array), (size_t) n * sizeof(int64));
}

Datum
tensorbank_tensor_in(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(tbpg_tensor_scan(PG_GETARG_CSTRING(0)));
}

Datum
tensorbank_tensor_out(PG_FUNCTION_ARGS)
{
	TbpgTensor	tensor;

	tbpg_tensor_open(PG_GETARG_DATUM(0), &tensor);
	PG_RETURN_CSTRING(tbpg_tensor_print(&tensor));
}

Datum
tensorbank_tensor_recv(PG_FUNCTION_ARGS)
{
	StringInfo	message = (StringInfo) PG_GETARG_POINTER(0);
	size_t		len = (size_t) (message->len - message->cursor);

	PG_RETURN_POINTER(
		tbpg_tensor_from_npy((const uint8_t *) pq_getmsgbytes(message, (int) len), len));
}

Datum
tensorbank_tensor_send(PG_FUNCTION_ARGS)
{
	struct varlena *flat = flat_inside(PG_GETARG_DATUM(0));

	/* as bytea: the value is the message. Of a value inside a tuple or an array the caller may free what it gets. */
	if (flat != NULL)
		PG_RETURN_BYTEA_P(flat);
	PG_RETURN_BYTEA_P(PG_GETARG_BYTEA_P_COPY(0));
}

/* The cast from bytea. */
Datum
tensorbank_tensor_from_bytea(PG_FUNCTION_ARGS)
{
	bytea	   *bytes = PG_GETARG_BYTEA_PP(0);

	PG_RETURN_POINTER(
		tbpg_tensor_from_npy((const uint8_t *) VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes)));
}

/* Same element type, shape and bytes: the form is canonical, so the files are compared. */
static bool
tensors_equal(Datum left, Datum right)
{
	struct varlena *a;
	struct varlena *b;

	if (toast_raw_datum_size(left) != toast_raw_datum_size(right))
		return false;
	a = PG_DETOAST_DATUM_PACKED(left);
	b = PG_DETOAST_DATUM_PACKED(right);
	return memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

Datum
tensorbank_tensor_eq(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(tensors_equal(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)));
}

Datum
tensorbank_tensor_ne(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!tensors_equal(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)));
}

Datum
tensorbank_tensor_hash(PG_FUNCTION_ARGS)
{
	struct varlena *value = PG_DETOAST_DATUM_PACKED(PG_GETARG_DATUM(0));

	return hash_any((unsigned char *) VARDATA_ANY(value), (int) VARSIZE_ANY_EXHDR(value));
}

Datum
tensorbank_tensor_hash_extended(PG_FUNCTION_ARGS)
{
	struct varlena *value = PG_DETOAST_DATUM_PACKED(PG_GETARG_DATUM(0));

	return hash_any_extended((unsigned char *) VARDATA_ANY(value), (int) VARSIZE_ANY_EXHDR(value),
							 PG_GETARG_INT64(1));
}
