/*
 * Functions that make refs and tell about them: ref, crop, raw, as_type, shape... Those that look
 * at coordinates are in ref_region.c and ref_shift.c.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "pg/ref.h"
#include "pg/tensor.h"

PG_FUNCTION_INFO_V1(tensorbank_ref);
PG_FUNCTION_INFO_V1(tensorbank_crop);
PG_FUNCTION_INFO_V1(tensorbank_raw);
PG_FUNCTION_INFO_V1(tensorbank_as_type);
PG_FUNCTION_INFO_V1(tensorbank_ref_shape);
PG_FUNCTION_INFO_V1(tensorbank_ref_origin);
PG_FUNCTION_INFO_V1(tensorbank_ref_dtype);
PG_FUNCTION_INFO_V1(tensorbank_ref_ndim);
PG_FUNCTION_INFO_V1(tensorbank_ref_size);

/* The whole array of a column. */
Datum
tensorbank_ref(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(1));
	AttrNumber	attnum = get_attnum(relid, name);
	TbpgTable  *table;
	const TbArrayMeta *meta;
	TbTreatment none = {.raw = false, .cast = TB_NONE};
	TbRegion	region = {0};

	if (get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE && attnum <= 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column \"%s\" of foreign table \"%s\" does not exist", name,
							   get_rel_name(relid))));
	tbpg_ref_check_column(relid, attnum, GetUserId());
	table = tbpg_table(relid, GetUserId());
	if (attnum > table->natts || table->column[attnum - 1].role != TBPG_ARRAY)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column \"%s\" stands for no array", name)));
	meta = tb_array_meta(table->info->array[table->column[attnum - 1].index]);
	region.ndim = meta->ndim;
	memcpy(region.count, meta->shape, sizeof(uint64_t) * (size_t) meta->ndim);
	PG_RETURN_POINTER(tbpg_ref_make(relid, attnum, tb_treated_dtype(meta, none), &region));
}

/* A part, by start and shape relative to the ref; NULL where it is not all inside. Keeps the stamp:
 * it is within the row. */
Datum
tensorbank_crop(PG_FUNCTION_ARGS)
{
	TbpgRef    *ref = tbpg_ref_copy(PG_GETARG_TBREF(0), false);
	int64	   *at = tbpg_ref_start(ref);
	int64	   *length = tbpg_ref_count(ref);
	int64		start[TBPG_REF_MAX_DIM];
	int64		count[TBPG_REF_MAX_DIM];

	tbpg_extents_from_array(PG_GETARG_ARRAYTYPE_P(1), ref->ndim, "start", start);
	tbpg_extents_from_array(PG_GETARG_ARRAYTYPE_P(2), ref->ndim, "shape", count);
	for (int d = 0; d < ref->ndim; d++)
	{
		if (count[d] < 1)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("shape of a part must be positive in every dimension")));
		if (start[d] < 0 || start[d] > length[d] || count[d] > length[d] - start[d])
			PG_RETURN_NULL();
		at[d] += start[d];
		length[d] = count[d];
	}
	PG_RETURN_POINTER(ref);
}

/* Stored values: no mask, scale or offset. */
Datum
tensorbank_raw(PG_FUNCTION_ARGS)
{
	const TbpgRef *ref = PG_GETARG_TBREF(0);
	TbpgResolved resolved;
	TbTreatment treatment = {.raw = true, .cast = (TbDtype) ref->cast};

	tbpg_ref_resolve(ref, &resolved);
	PG_RETURN_POINTER(tbpg_ref_treated(ref, treatment,
									   tb_treated_dtype(tb_array_meta(resolved.array), treatment)));
}

/* Another element type, chosen by the caller. */
Datum
tensorbank_as_type(PG_FUNCTION_ARGS)
{
	const TbpgRef *ref = PG_GETARG_TBREF(0);
	TbTreatment treatment = {.raw = (ref->flags & TBPG_REF_RAW) != 0};

	treatment.cast = tbpg_dtype(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_RETURN_POINTER(tbpg_ref_treated(ref, treatment, treatment.cast));
}

Datum
tensorbank_ref_shape(PG_FUNCTION_ARGS)
{
	const TbpgRef *ref = PG_GETARG_TBREF(0);

	PG_RETURN_ARRAYTYPE_P(tbpg_extents_array(ref->ndim, (const uint64_t *) tbpg_ref_count_of(ref)));
}

Datum
tensorbank_ref_origin(PG_FUNCTION_ARGS)
{
	const TbpgRef *ref = PG_GETARG_TBREF(0);

	PG_RETURN_ARRAYTYPE_P(tbpg_extents_array(ref->ndim, (const uint64_t *) tbpg_ref_start_of(ref)));
}

Datum
tensorbank_ref_dtype(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(tb_dtype_name((TbDtype) PG_GETARG_TBREF(0)->dtype)));
}

Datum
tensorbank_ref_ndim(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(PG_GETARG_TBREF(0)->ndim);
}

/* Elements. */
Datum
tensorbank_ref_size(PG_FUNCTION_ARGS)
{
	const TbpgRef *ref = PG_GETARG_TBREF(0);
	int64		elements = 1;
	bool		overflow = false;

	for (int d = 0; d < ref->ndim; d++)
	{
		/* a zero anywhere makes it zero, whatever the others would overflow to */
		if (tbpg_ref_count_of(ref)[d] == 0)
			PG_RETURN_INT64(0);
		overflow |= __builtin_mul_overflow(elements, tbpg_ref_count_of(ref)[d], &elements);
	}
	if (overflow)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("number of elements is out of range for bigint")));
	PG_RETURN_INT64(elements);
}
