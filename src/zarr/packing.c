/*
 * How stored elements become values: xarray's mask_and_scale, from the array's type and attributes.
 * Applying it to elements is block/'s.
 *
 * Which elements are missing: those equal to the attributes _FillValue and missing_value. Without a
 * _FillValue that is a value of the type, the fill_value of a v2 array counts where it is neither
 * null nor 0 and the array has dimension names: xarray, NCZarr and Kerchunk write it so. xarray
 * also masks 0, which turns real zeros into NaN.
 *
 * source: CF 1.10, 2.5.1 and 8.1; xarray, coding/variables.py (CFMaskCoder, CFScaleOffsetCoder).
 */
#include "zarr/parts.h"

#include <string.h>

/* A number, also as the only element of a list. */
static bool
get_number(const TbJson *attributes, const char *name, double *number)
{
	TbJson	   *value;

	if (!tb_json_get(attributes, name, &value))
		return false;
	if (tb_json_type(value) == TB_JSON_ARRAY && tb_json_length(value) == 1)
		value = tb_json_at(value, 0);
	return tb_json_as_double(value, number);
}

/*
 * Integers with _Unsigned are taken for the other signedness, bits unchanged. source: NetCDF users'
 * guide.
 */
static TbDtype
packed_type(const TbArrayMeta *meta)
{
	static const TbDtype to_unsigned[] = {TB_U8, TB_U16, TB_U32, TB_U64};
	static const TbDtype to_signed[] = {TB_I8, TB_I16, TB_I32, TB_I64};
	const char *text;

	if (!tb_json_get_string(meta->attributes, "_Unsigned", &text))
		return meta->dtype;
	if (strcmp(text, "true") == 0 && meta->dtype >= TB_I8 && meta->dtype <= TB_I64)
		return to_unsigned[meta->dtype - TB_I8];
	if (strcmp(text, "false") == 0 && tb_dtype_is_unsigned(meta->dtype))
		return to_signed[meta->dtype - TB_U8];
	return meta->dtype;
}

static TbStatus
add_bits(TbPacking *packing, uint64_t bits, TbError *err)
{
	for (int i = 0; i < packing->n_sentinels; i++)
		if (packing->sentinel[i] == bits)
			return TB_OK;
	if (packing->n_sentinels == TB_MAX_SENTINELS)
	{
		tb_fail(err, TB_E_LIMIT, "array has too many missing values");
		tb_error_detail(err, "at most %d different ones are allowed", TB_MAX_SENTINELS);
		return TB_E_LIMIT;
	}
	packing->sentinel[packing->n_sentinels++] = bits;
	return TB_OK;
}

/* Both zeros of a floating type are equal, so both are missing where one is. */
static TbStatus
add_sentinel(TbPacking *packing, uint64_t bits, TbError *err)
{
	uint64_t	sign = UINT64_C(1) << (tb_dtype_size(packing->packed) * 8 - 1);
	TbStatus	status = add_bits(packing, bits, err);

	if (status == TB_OK && tb_dtype_is_float(packing->packed) && (bits & ~sign) == 0)
		status = add_bits(packing, bits ^ sign, err);
	return status;
}

/*
 * One element of an attribute. With _Unsigned writers give it in either signedness. What is no
 * value of the type cannot be equal to any element and is left out, as in xarray.
 */
static TbStatus
add_from(TbPacking *packing, const TbJson *value, TbError *err)
{
	uint64_t	bits;

	if (tb_element_parse(packing->packed, value, false, &bits) != TB_ELEMENT_OK &&
		(packing->packed == packing->stored ||
		 tb_element_parse(packing->stored, value, false, &bits) != TB_ELEMENT_OK))
		return TB_OK;
	return add_sentinel(packing, bits, err);
}

/* An attribute with one value or a list of them. */
static TbStatus
add_attribute(TbPacking *packing, const TbJson *attributes, const char *name, TbError *err)
{
	TbJson	   *value;
	TbStatus	status = TB_OK;

	if (!tb_json_get(attributes, name, &value))
		return TB_OK;
	if (tb_json_type(value) != TB_JSON_ARRAY)
		return add_from(packing, value, err);
	for (size_t i = 0; i < tb_json_length(value) && status == TB_OK; i++)
		status = add_from(packing, tb_json_at(value, i), err);
	return status;
}

/*
 * True where the array's own fill value is one of the missing ones. explicit: _FillValue gave a
 * sentinel.
 */
static bool
fill_counts(const TbArrayMeta *meta, int mask_fill, bool explicit_fill)
{
	if (mask_fill >= 0)
		return mask_fill != 0 && !meta->fill_is_null;
	/* "not equal to 0" is also true of NaN */
	return meta->zarr_format == 2 && !meta->fill_is_null && meta->has_dim_names && !explicit_fill &&
		tb_element_double(meta->dtype, meta->fill) != 0;
}

/* Decoded type of what is masked but not scaled: one that has a NaN and room for small integers. */
static TbDtype
promoted_type(TbDtype packed)
{
	if (tb_dtype_is_float(packed))
		return packed;
	return tb_dtype_size(packed) <= 2 ? TB_F32 : TB_F64;
}

TbStatus
tb_packing_from(const TbArrayMeta *meta, int mask_fill, TbPacking *packing, TbError *err)
{
	TbPacking	made = {.stored = meta->dtype, .packed = packed_type(meta)};
	bool		has_scale = get_number(meta->attributes, "scale_factor", &made.scale);
	bool		has_offset = get_number(meta->attributes, "add_offset", &made.offset);
	TbStatus	status = add_attribute(&made, meta->attributes, "_FillValue", err);
	bool		explicit_fill = made.n_sentinels > 0;

	if (status == TB_OK)
		status = add_attribute(&made, meta->attributes, "missing_value", err);
	if (status == TB_OK && fill_counts(meta, mask_fill, explicit_fill))
		status = add_sentinel(&made, tb_element_load(meta->dtype, meta->fill), err);
	if (status != TB_OK)
		return status;
	/* neutral elements: a multiplication by 1 and the addition of -0 change no bit */
	if (!has_scale)
		made.scale = 1.0;
	if (!has_offset)
		made.offset = -0.0;
	made.scaled = has_scale || has_offset;
	if (made.scaled)
		made.decoded = TB_F64;
	else
		made.decoded = made.n_sentinels > 0 ? promoted_type(made.packed) : made.packed;
	made.stat = made.scaled ? made.decoded : made.packed;
	*packing = made;
	return TB_OK;
}
