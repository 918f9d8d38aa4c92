/*
 * Zarr v2: .zarray, .zgroup, .zattrs and .zmetadata, with what xarray and NCZarr add for dimension
 * names. The codecs are turned into a v3 list in v2_codecs.c.
 *
 * source: Zarr v2 specification; xarray's _ARRAY_DIMENSIONS; NetCDF-C's NCZarr specification
 * (dimension references in .zarray or .zattrs, with old and new spellings).
 */
#include "zarr/parts.h"

#include <string.h>

/* The two documents of an array or group. */
typedef struct Documents
{
	TbJson	   *main;			/* borrowed: .zarray or .zgroup */
	TbJson	   *attributes;		/* borrowed: .zattrs; NULL: none */
} Documents;

static TbStatus
invalid(TbError *err, const char *reason)
{
	tb_fail(err, TB_E_INVALID, "array metadata is not valid");
	tb_error_detail(err, "%s", reason);
	return TB_E_INVALID;
}

static TbStatus
unsupported_dtype(TbError *err, const char *name)
{
	tb_fail(err, TB_E_UNSUPPORTED, "data type is not supported");
	tb_error_detail(err, "data type \"%.100s\"", name);
	return TB_E_UNSUPPORTED;
}

/* A NumPy type string: byte order, kind, bytes. errors: UNSUPPORTED naming it, INVALID. */
static TbStatus
parse_dtype(const TbJson *zarray, TbDtype *dtype, bool *big_endian, TbError *err)
{
	TbJson	   *value;
	const char *text;

	if (!tb_json_get(zarray, "dtype", &value))
		return invalid(err, "\"dtype\" is missing");
	if (tb_json_type(value) == TB_JSON_ARRAY)
		return unsupported_dtype(err, "structured");
	if (!tb_json_as_string(value, &text))
		return invalid(err, "\"dtype\" is no text");
	if (text[0] != '<' && text[0] != '>' && text[0] != '|')
		return unsupported_dtype(err, text);
	*dtype = TB_NONE;
	for (int d = TB_BOOL; d <= TB_F64; d++)
		if (strcmp(text + 1, tb_dtype_npy((TbDtype) d) + 1) == 0)
			*dtype = (TbDtype) d;
	if (*dtype == TB_NONE)
		return unsupported_dtype(err, text);
	if (text[0] == '|' && tb_dtype_size(*dtype) > 1)
		return invalid(err, "\"dtype\" has no byte order");
	*big_endian = text[0] == '>';
	return TB_OK;
}

static TbStatus
parse_separator(const TbJson *zarray, TbArrayMeta *meta, TbError *err)
{
	TbJson	   *value;
	const char *text;

	meta->key_v2 = true;
	meta->separator = '.';
	if (!tb_json_get(zarray, "dimension_separator", &value) || value == NULL)
		return TB_OK;
	if (!tb_json_as_string(value, &text) || (strcmp(text, "/") != 0 && strcmp(text, ".") != 0))
		return invalid(err, "\"dimension_separator\" is neither \"/\" nor \".\"");
	meta->separator = text[0];
	return TB_OK;
}

static bool
names_each_axis(const TbJson *list, int ndim)
{
	const char *text;

	if (tb_json_type(list) != TB_JSON_ARRAY || tb_json_length(list) != (size_t) ndim)
		return false;
	for (int i = 0; i < ndim; i++)
		if (!tb_json_as_string(tb_json_at(list, (size_t) i), &text))
			return false;
	return true;
}

/*
 * NCZarr's references ("/group/lat"): a list of the last parts, owned by the caller; NULL: none (or
 * no memory).
 */
static TbStatus
nczarr_names(const Documents *docs, int ndim, TbJson **names, TbError *err)
{
	static const char *const members[] = {"_NCZARR_ARRAY", "_nczarr_array"};
	static const char *const lists[] = {"dimrefs", "dimension_references"};
	TbJson	   *found = NULL;
	TbBuf	   *text;
	TbStatus	status;

	*names = NULL;
	for (int i = 0; i < 8 && !names_each_axis(found, ndim); i++)
	{
		TbJson	   *array;

		found = NULL;
		if (tb_json_get((i & 4) == 0 ? docs->main : docs->attributes, members[i & 1], &array))
			(void) tb_json_get(array, lists[i >> 1 & 1], &found);
	}
	if (!names_each_axis(found, ndim))
		return TB_OK;
	text = tb_buf_new(256);
	if (text == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_buf_printf(text, "[");
	for (int i = 0; i < ndim && status == TB_OK; i++)
	{
		const char *name = "";
		const char *slash;

		(void) tb_json_as_string(tb_json_at(found, (size_t) i), &name);
		slash = strrchr(name, '/');
		status = tb_buf_printf(text, i > 0 ? "," : "");
		if (status == TB_OK)
			status = tb_json_quote(text, slash != NULL ? slash + 1 : name);
	}
	if (status == TB_OK)
		status = tb_buf_printf(text, "]");
	if (status == TB_OK)
		status = tb_json_parse(text->data, text->len, names, err);
	else
		tb_fail(err, status, "out of memory");
	tb_buf_unref(text);
	return status;
}

/* xarray's names, else NCZarr's, else none. */
static TbStatus
name_dims(const Documents *docs, TbArrayMeta *meta, TbError *err)
{
	TbJson	   *names;
	TbStatus	status;

	if (tb_json_get(docs->attributes, "_ARRAY_DIMENSIONS", &names) &&
		names_each_axis(names, meta->ndim))
		return tb_dims_name(meta, names, err);
	status = nczarr_names(docs, meta->ndim, &names, err);
	if (status == TB_OK)
		status = tb_dims_name(meta, names, err);
	tb_json_free(names);
	return status;
}

static TbStatus
parse_array(const Documents *docs, TbArrayMeta *meta, TbError *err)
{
	TbJson	   *value;
	bool		big_endian = false;
	TbStatus	status;

	meta->ndim = -1;
	if (!tb_json_get(docs->main, "shape", &value))
		return invalid(err, "\"shape\" is missing");
	status = tb_sizes_parse(value, "shape", 0, &meta->ndim, meta->shape, err);
	if (status == TB_OK)
		status = parse_dtype(docs->main, &meta->dtype, &big_endian, err);
	if (status == TB_OK)
		status = tb_json_get(docs->main, "chunks", &value) ?
			tb_sizes_parse(value, "chunks", 1, &meta->ndim, meta->grid_chunk, err) :
			invalid(err, "\"chunks\" is missing");
	if (status == TB_OK)
		status = parse_separator(docs->main, meta, err);
	if (status == TB_OK)
	{
		(void) tb_json_get(docs->main, "fill_value", &value);	/* absent: as null */
		status = tb_fill_parse(meta, value, err);
	}
	if (status == TB_OK)
		status = tb_attributes_take(&meta->attributes, docs->attributes, err);
	if (status == TB_OK)
		status = name_dims(docs, meta, err);
	if (status == TB_OK)
		status = tb_v2_codecs(meta, docs->main, big_endian, err);
	return status == TB_OK ? tb_array_finish(meta, err) : status;
}

/* "zarr_format" 2 in an object. errors: INVALID. */
static TbStatus
check_format(const TbJson *doc, TbError *err)
{
	int64_t		format;

	if (tb_json_get_int(doc, "zarr_format", &format) && format == 2)
		return TB_OK;
	tb_fail(err, TB_E_INVALID, "document is no Zarr v2 metadata");
	tb_error_detail(err, "\"zarr_format\" 2 is expected");
	return TB_E_INVALID;
}

/* Append the array at path; what is wrong with it becomes its status. errors: NOMEM. */
static TbStatus
add_array(const char *path, const Documents *docs, TbNodes *nodes, TbError *err)
{
	TbError		reason;
	TbStatus	status;
	TbArrayMeta *meta = tb_array_meta_new(path, 2);

	if (meta == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	tb_error_clear(&reason);
	status = check_format(docs->main, &reason);
	if (status == TB_OK)
		status = parse_array(docs, meta, &reason);
	if (status == TB_E_NOMEM)
	{
		tb_array_meta_free(meta);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	return tb_nodes_add_array(nodes, path, 2, meta, &reason, err);
}

static TbStatus
add_group(const char *path, const Documents *docs, TbNodes *nodes, TbError *err)
{
	TbError		reason;
	TbJson	   *attributes = NULL;
	TbStatus	status;

	tb_error_clear(&reason);
	status = check_format(docs->main, &reason);
	if (status == TB_OK)
		status = tb_attributes_take(&attributes, docs->attributes, &reason);
	(void) status;				/* it is in reason */
	return tb_nodes_add_group(nodes, path, 2, attributes, &reason, err);
}

/* Parse the one or two documents of a node and append it. */
static TbStatus
parse_node(const char *path, const TbBuf *main, const TbBuf *zattrs, bool is_group, TbNodes *nodes,
		   TbError *err)
{
	Documents	docs = {NULL, NULL};
	const char *name = is_group ? ".zgroup" : ".zarray";
	TbStatus	status = tb_json_parse(main->data, main->len, &docs.main, err);

	if (status == TB_OK)
		status = check_format(docs.main, err);
	if (status == TB_OK && zattrs != NULL)
	{
		name = ".zattrs";
		status = tb_json_parse(zattrs->data, zattrs->len, &docs.attributes, err);
	}
	if (status != TB_OK && status != TB_E_NOMEM)
		tb_error_detail(err, "%s of \"%.200s\"", name, TB_PATH_LABEL(path));
	if (status == TB_OK)
		status = is_group ? add_group(path, &docs, nodes, err) : add_array(path, &docs, nodes, err);
	tb_json_free(docs.main);
	tb_json_free(docs.attributes);
	return status;
}

TbStatus
tb_zarr_parse_v2_array(const char *path, const TbBuf *zarray, const TbBuf *zattrs, TbNodes *nodes,
					   TbError *err)
{
	return parse_node(path, zarray, zattrs, false, nodes, err);
}

TbStatus
tb_zarr_parse_v2_group(const char *path, const TbBuf *zgroup, const TbBuf *zattrs, TbNodes *nodes,
					   TbError *err)
{
	return parse_node(path, zgroup, zattrs, true, nodes, err);
}

/*
 * Split a key of .zmetadata: *relative (fresh memory) is the node's path. False: not of that kind
 * (or no memory).
 */
static bool
node_of_key(const char *key, const char *suffix, char **relative)
{
	size_t		len = strlen(key);
	size_t		suffix_len = strlen(suffix);

	if (len < suffix_len || strcmp(key + len - suffix_len, suffix) != 0)
		return false;
	len -= suffix_len;
	if (len > 0 && key[len - 1] != '/')
		return false;
	*relative = tb_strndup(key, len > 0 ? len - 1 : 0);
	return true;
}

/* The .zattrs beside a node of .zmetadata; NULL: none. errors: NOMEM. */
static TbStatus
attributes_of(const TbJson *map, const char *relative, TbJson **attributes, TbError *err)
{
	char	   *key = tb_path_join(relative, ".zattrs");

	if (key == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	(void) tb_json_get(map, key, attributes);
	tb_free(key);
	return TB_OK;
}

/* One .zarray or .zgroup of .zmetadata, at relative below base. errors: NOMEM. */
static TbStatus
add_entry(const char *base, const char *relative, const Documents *docs, bool is_group,
		  TbNodes *nodes, TbError *err)
{
	char	   *path = tb_path_join(base, relative);
	TbStatus	status;

	if (path == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (!tb_path_valid(relative))
	{
		TbError		reason;

		tb_fail(&reason, TB_E_INVALID, "path in consolidated metadata is not valid");
		status = tb_nodes_add_array(nodes, path, 2, NULL, &reason, err);
	}
	else
		status = is_group ? add_group(path, docs, nodes, err) : add_array(path, docs, nodes, err);
	tb_free(path);
	return status;
}

static TbStatus
add_map(const char *base, const TbJson *map, TbNodes *nodes, TbError *err)
{
	for (size_t i = 0; i < tb_json_members(map); i++)
	{
		Documents	docs = {NULL, NULL};
		const char *key = tb_json_member(map, i, &docs.main);
		char	   *relative = NULL;
		bool		is_array = node_of_key(key, ".zarray", &relative);
		TbStatus	status;

		if (!is_array && !node_of_key(key, ".zgroup", &relative))
			continue;
		if (relative == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
		status = attributes_of(map, relative, &docs.attributes, err);
		if (status == TB_OK)
			status = add_entry(base, relative, &docs, !is_array, nodes, err);
		tb_free(relative);
		if (status != TB_OK)
			return status;
	}
	return TB_OK;
}

/* On failure nodes are as they were. */
TbStatus
tb_zarr_parse_v2_consolidated(const char *path, const TbBuf *zmetadata, TbNodes *nodes,
							  TbError *err)
{
	size_t		had = nodes->n;
	TbJson	   *doc;
	TbJson	   *map;
	int64_t		format;
	TbStatus	status = tb_json_parse(zmetadata->data, zmetadata->len, &doc, err);

	if (status == TB_OK &&
		(!tb_json_get_int(doc, "zarr_consolidated_format", &format) || format != 1 ||
		 !tb_json_get(doc, "metadata", &map) || tb_json_type(map) != TB_JSON_OBJECT))
	{
		status = tb_fail(err, TB_E_INVALID, "document is no consolidated metadata");
		tb_error_detail(err, "\"zarr_consolidated_format\" 1 and \"metadata\" are expected");
	}
	else if (status == TB_OK)
		status = add_map(path, map, nodes, err);
	tb_json_free(doc);
	if (status == TB_OK)
		return TB_OK;
	tb_nodes_cut(nodes, had);
	if (status != TB_E_NOMEM)
		tb_error_detail(err, ".zmetadata of \"%.200s\"", TB_PATH_LABEL(path));
	return status;
}
