/*
 * The parts of an array's metadata that v2 and v3 have in common: sizes, dimension names, and the
 * proof at the end that the array can be used. Every size is checked here, in constant memory,
 * before anything is made of it.
 */
#include "zarr/parts.h"

#include <string.h>

TbArrayMeta *
tb_array_meta_new(const char *path, int zarr_format)
{
	TbArrayMeta *meta = tb_calloc(1, sizeof(*meta));

	if (meta == NULL)
		return NULL;
	meta->zarr_format = zarr_format;
	meta->path = tb_strdup(path);
	if (meta->path == NULL)
	{
		tb_free(meta);
		return NULL;
	}
	return meta;
}

void
tb_array_meta_free(TbArrayMeta *meta)
{
	if (meta == NULL)
		return;
	tb_free(meta->path);
	for (int i = 0; i < TB_MAX_DIM; i++)
		tb_free(meta->dim_name[i]);
	tb_json_free(meta->codecs);
	tb_json_free(meta->attributes);
	tb_free(meta);
}

TbArrayMeta *
tb_array_meta_copy(const TbArrayMeta *meta)
{
	TbArrayMeta *copy = tb_malloc(sizeof(*copy));
	bool		whole = true;

	if (copy == NULL)
		return NULL;
	*copy = *meta;
	copy->codecs = tb_json_ref(meta->codecs);
	copy->attributes = tb_json_ref(meta->attributes);
	copy->path = tb_strdup(meta->path);
	whole = copy->path != NULL;
	for (int i = 0; i < TB_MAX_DIM; i++)
	{
		copy->dim_name[i] = meta->dim_name[i] == NULL ? NULL : tb_strdup(meta->dim_name[i]);
		whole = whole && (copy->dim_name[i] != NULL || meta->dim_name[i] == NULL);
	}
	if (whole)
		return copy;
	tb_array_meta_free(copy);
	return NULL;
}

/* One size of a list; a number below 0 or of 2^63 and more is out of range, whatever floor says. */
static TbStatus
parse_size(const TbJson *value, const char *member, int axis, uint64_t floor, uint64_t *size,
		   TbError *err)
{
	TbJsonType	type = tb_json_type(value);
	uint64_t	u;
	int64_t		i;

	if (tb_json_as_uint(value, &u) && u <= INT64_MAX && u >= floor)
	{
		*size = u;
		return TB_OK;
	}
	if (type == TB_JSON_INT && (!tb_json_as_int(value, &i) || i < 0))
	{
		tb_fail(err, TB_E_RANGE, "size in array metadata is out of range");
		tb_error_detail(err, "\"%s\", axis %d: not from 0 to 2^63 - 1", member, axis);
		return TB_E_RANGE;
	}
	if (type == TB_JSON_DOUBLE)
	{
		tb_fail(err, TB_E_RANGE, "size in array metadata is out of range");
		tb_error_detail(err, "\"%s\", axis %d: no integer from 0 to 2^63 - 1", member, axis);
		return TB_E_RANGE;
	}
	tb_fail(err, TB_E_INVALID, "array metadata is not valid");
	tb_error_detail(
		err, type == TB_JSON_INT ? "\"%s\", axis %d: 0 is no size" : "\"%s\", axis %d: no integer",
		member, axis);
	return TB_E_INVALID;
}

TbStatus
tb_sizes_parse(const TbJson *list, const char *member, uint64_t floor, int *ndim, uint64_t *sizes,
			   TbError *err)
{
	size_t		n = tb_json_length(list);

	if (tb_json_type(list) != TB_JSON_ARRAY)
	{
		tb_fail(err, TB_E_INVALID, "array metadata is not valid");
		tb_error_detail(err, "\"%s\" is no list", member);
		return TB_E_INVALID;
	}
	if (n > TB_MAX_DIM)
	{
		tb_fail(err, TB_E_LIMIT, "array has too many dimensions");
		tb_error_detail(err, "\"%s\" has %zu, at most %d are allowed", member, n, TB_MAX_DIM);
		return TB_E_LIMIT;
	}
	if (*ndim >= 0 && n != (size_t) *ndim)
	{
		tb_fail(err, TB_E_INVALID, "array metadata is not valid");
		tb_error_detail(err, "\"%s\" has %zu entries, the array %d dimensions", member, n, *ndim);
		return TB_E_INVALID;
	}
	*ndim = (int) n;
	for (size_t i = 0; i < n; i++)
	{
		TbStatus status = parse_size(tb_json_at(list, i), member, (int) i, floor, &sizes[i], err);

		if (status != TB_OK)
			return status;
	}
	return TB_OK;
}

static bool
name_is_taken(const TbArrayMeta *meta, int axis, const char *name)
{
	for (int i = 0; i < meta->ndim; i++)
		if (i != axis && meta->dim_name[i] != NULL && strcmp(meta->dim_name[i], name) == 0)
			return true;
	return false;
}

/* Make a name of format (which takes the axis) that no other axis has, by adding underscores. */
static TbStatus
invent_name(TbArrayMeta *meta, int axis, const char *stem, TbError *err)
{
	char	   *name = tb_asprintf("%s_%d", stem, axis);

	while (name != NULL && name_is_taken(meta, axis, name))
	{
		char	   *longer = tb_asprintf("%s_", name);

		tb_free(name);
		name = longer;
	}
	if (name == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	tb_free(meta->dim_name[axis]);
	meta->dim_name[axis] = name;
	return TB_OK;
}

/*
 * Names given once stay as they are; of equal ones the first keeps its name and the others get
 * their axis behind it; an axis without a name is dim_<axis>. The same metadata always gives the
 * same names.
 */
TbStatus
tb_dims_name(TbArrayMeta *meta, const TbJson *names, TbError *err)
{
	const char *text;
	TbStatus	status = TB_OK;
	bool		repeated[TB_MAX_DIM] = {false};

	meta->has_dim_names = names != NULL && meta->ndim == 0;
	for (int i = 0; i < meta->ndim; i++)
	{
		if (!tb_json_as_string(tb_json_at(names, (size_t) i), &text) || text[0] == '\0')
			continue;
		meta->has_dim_names = true;
		repeated[i] = name_is_taken(meta, i, text);
		meta->dim_name[i] = tb_strdup(text);
		if (meta->dim_name[i] == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	for (int i = 0; i < meta->ndim && status == TB_OK; i++)
	{
		char	   *stem;

		if (meta->dim_name[i] == NULL)
			status = invent_name(meta, i, "dim", err);
		else if (repeated[i])
		{
			stem = tb_strdup(meta->dim_name[i]);
			status = stem == NULL ? tb_fail(err, TB_E_NOMEM, "out of memory")
								  : invent_name(meta, i, stem, err);
			tb_free(stem);
		}
	}
	return status;
}

TbStatus
tb_attributes_take(TbJson **attributes, TbJson *value, TbError *err)
{
	*attributes = NULL;
	if (value == NULL)
		return TB_OK;
	if (tb_json_type(value) != TB_JSON_OBJECT)
	{
		tb_fail(err, TB_E_INVALID, "metadata is not valid");
		tb_error_detail(err, "attributes are no object");
		return TB_E_INVALID;
	}
	*attributes = tb_json_ref(value);
	return TB_OK;
}

/* Bytes of one innermost chunk within the cap. */
static TbStatus
check_chunk_bytes(const TbArrayMeta *meta, TbError *err)
{
	size_t		bytes = tb_dtype_size(meta->dtype);

	for (int i = 0; i < meta->ndim; i++)
		if (meta->chunk[i] > TB_CHUNK_MAX_BYTES ||
			!tb_mul_size(bytes, (size_t) meta->chunk[i], &bytes) || bytes > TB_CHUNK_MAX_BYTES)
		{
			tb_fail(err, TB_E_LIMIT, "chunks of the array are too large");
			tb_error_detail(err, "at most %zu bytes are allowed", TB_CHUNK_MAX_BYTES);
			return TB_E_LIMIT;
		}
	return TB_OK;
}

/* Time of the values where the attributes give units of time. */
static TbTimeUnits
time_of(const TbArrayMeta *meta)
{
	TbTimeUnits none = {.is_time = false};
	const char *units;
	const char *calendar = NULL;
	TbJson	   *member;

	if (meta->dtype == TB_BOOL || !tb_json_get_string(meta->attributes, "units", &units))
		return none;
	if (tb_json_get(meta->attributes, "calendar", &member) && member != NULL &&
		!tb_json_as_string(member, &calendar))
		return none;
	return tb_time_units(units, calendar);
}

TbStatus
tb_array_finish(TbArrayMeta *meta, TbError *err)
{
	TbChain    *chain;
	TbStatus	status = check_chunk_bytes(meta, err);

	/* opened only to know now, while the array is listed, whether it can be read */
	if (status == TB_OK)
		status = tb_chain_open(meta->codecs, meta->dtype, meta->ndim, meta->chunk, &chain, err);
	if (status != TB_OK)
		return status;
	tb_chain_free(chain);
	meta->time = time_of(meta);
	return tb_packing_from(meta, -1, &meta->packing, err);
}
