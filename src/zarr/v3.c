/*
 * Zarr v3: zarr.json of arrays and groups, and consolidated metadata inside a group's. The codec
 * list is taken apart in v3_codecs.c, fill values are read in fill.c, sizes in meta.c.
 *
 * A document that is no zarr.json at all fails; an array or group that uses what is not supported
 * becomes a node with a status, so that the rest of a hierarchy can be used.
 *
 * source: Zarr v3 core specification (3.1), "array metadata", "group metadata"; zarr-python's
 * inline consolidated metadata.
 */
#include "zarr/parts.h"

#include <string.h>

static TbStatus
invalid(TbError *err, const char *reason)
{
	tb_fail(err, TB_E_INVALID, "array metadata is not valid");
	tb_error_detail(err, "%s", reason);
	return TB_E_INVALID;
}

static TbStatus
unsupported(TbError *err, const char *what, const char *name)
{
	tb_fail(err, TB_E_UNSUPPORTED, "%s is not supported", what);
	tb_error_detail(err, "%s \"%.100s\"", what, name);
	return TB_E_UNSUPPORTED;
}

bool
tb_extension(const TbJson *value, const char **name, TbJson **config)
{
	*config = NULL;
	if (tb_json_as_string(value, name))
		return true;
	if (!tb_json_get_string(value, "name", name))
		return false;
	(void) tb_json_get(value, "configuration", config);
	return true;
}

bool
tb_may_ignore(const TbJson *value)
{
	bool		must_understand;

	return tb_json_get_bool(value, "must_understand", &must_understand) && !must_understand;
}

/* Members beside the known ones must be said to be ignorable. errors: UNSUPPORTED. */
static TbStatus
check_members(const TbJson *doc, const char *const *known, TbError *err)
{
	for (size_t i = 0; i < tb_json_members(doc); i++)
	{
		TbJson	   *value;
		const char *name = tb_json_member(doc, i, &value);
		int			k = 0;

		while (known[k] != NULL && strcmp(known[k], name) != 0)
			k++;
		if (known[k] == NULL && !tb_may_ignore(value))
			return unsupported(err, "metadata extension", name);
	}
	return TB_OK;
}

static TbStatus
parse_dtype(const TbJson *doc, TbDtype *dtype, TbError *err)
{
	TbJson	   *value;
	TbJson	   *config;
	const char *name;

	if (!tb_json_get(doc, "data_type", &value) || !tb_extension(value, &name, &config))
		return invalid(err, "\"data_type\" has no name");
	*dtype = tb_dtype_parse(name);
	if (*dtype == TB_NONE || tb_json_members(config) > 0)
		return unsupported(err, "data type", name);
	return TB_OK;
}

static TbStatus
parse_grid(const TbJson *doc, TbArrayMeta *meta, TbError *err)
{
	TbJson	   *value;
	TbJson	   *config;
	TbJson	   *sizes;
	const char *name;

	if (!tb_json_get(doc, "chunk_grid", &value) || !tb_extension(value, &name, &config))
		return invalid(err, "\"chunk_grid\" has no name");
	if (strcmp(name, "regular") != 0)
		return unsupported(err, "chunk grid", name);
	if (!tb_json_get(config, "chunk_shape", &sizes))
		return invalid(err, "\"chunk_grid\" has no \"chunk_shape\"");
	return tb_sizes_parse(sizes, "chunk_shape", 1, &meta->ndim, meta->grid_chunk, err);
}

static TbStatus
parse_key_encoding(const TbJson *doc, TbArrayMeta *meta, TbError *err)
{
	TbJson	   *value;
	TbJson	   *config;
	TbJson	   *separator;
	const char *name;
	const char *text;

	if (!tb_json_get(doc, "chunk_key_encoding", &value) || !tb_extension(value, &name, &config))
		return invalid(err, "\"chunk_key_encoding\" has no name");
	if (strcmp(name, "default") != 0 && strcmp(name, "v2") != 0)
		return unsupported(err, "chunk key encoding", name);
	meta->key_v2 = name[0] == 'v';
	meta->separator = meta->key_v2 ? '.' : '/';
	if (!tb_json_get(config, "separator", &separator))
		return TB_OK;
	if (!tb_json_as_string(separator, &text) || (strcmp(text, "/") != 0 && strcmp(text, ".") != 0))
		return invalid(err, "\"separator\" is neither \"/\" nor \".\"");
	meta->separator = text[0];
	return TB_OK;
}

static TbStatus
check_transformers(const TbJson *doc, TbError *err)
{
	TbJson	   *list;

	if (!tb_json_get(doc, "storage_transformers", &list))
		return TB_OK;
	for (size_t i = 0; i < tb_json_length(list); i++)
	{
		TbJson	   *value = tb_json_at(list, i);
		TbJson	   *config;
		const char *name;

		if (!tb_extension(value, &name, &config))
			return invalid(err, "a storage transformer has no name");
		if (!tb_may_ignore(value))
			return unsupported(err, "storage transformer", name);
	}
	return TB_OK;
}

static TbStatus
parse_dim_names(const TbJson *doc, TbArrayMeta *meta, TbError *err)
{
	TbJson	   *names;

	(void) tb_json_get(doc, "dimension_names", &names);
	if (names != NULL &&
		(tb_json_type(names) != TB_JSON_ARRAY || tb_json_length(names) != (size_t) meta->ndim))
		return invalid(err, "\"dimension_names\" is no list with a name for each dimension");
	for (size_t i = 0; i < tb_json_length(names); i++)
	{
		TbJsonType	type = tb_json_type(tb_json_at(names, i));

		if (type != TB_JSON_STRING && type != TB_JSON_NULL)
			return invalid(err, "\"dimension_names\" holds what is neither text nor null");
	}
	return tb_dims_name(meta, names, err);
}

static TbStatus
parse_array(const TbJson *doc, TbArrayMeta *meta, TbError *err)
{
	static const char *const known[] = {
		"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding",
		"fill_value", "codecs", "attributes", "storage_transformers", "dimension_names", NULL
	};
	TbJson	   *value;
	TbStatus	status = check_members(doc, known, err);

	meta->ndim = -1;
	if (status == TB_OK)
		status = tb_json_get(doc, "shape", &value)
					 ? tb_sizes_parse(value, "shape", 0, &meta->ndim, meta->shape, err)
					 : invalid(err, "\"shape\" is missing");
	if (status == TB_OK)
		status = parse_dtype(doc, &meta->dtype, err);
	if (status == TB_OK)
		status = parse_grid(doc, meta, err);
	if (status == TB_OK)
		status = parse_key_encoding(doc, meta, err);
	if (status == TB_OK)
		status = tb_json_get(doc, "fill_value", &value) ?
			tb_fill_parse(meta, value, err) : invalid(err, "\"fill_value\" is missing");
	if (status == TB_OK)
		status = check_transformers(doc, err);
	if (status == TB_OK)
		status = parse_dim_names(doc, meta, err);
	if (status == TB_OK && tb_json_get(doc, "attributes", &value))
		status = tb_attributes_take(&meta->attributes, value, err);
	if (status == TB_OK)
		status = tb_json_get(doc, "codecs", &value) ?
			tb_v3_codecs(meta, value, err) : invalid(err, "\"codecs\" is missing");
	return status == TB_OK ? tb_array_finish(meta, err) : status;
}

/* Append the array at path. errors: NOMEM. */
static TbStatus
add_array(const char *path, const TbJson *doc, TbNodes *nodes, TbError *err)
{
	TbError		reason;
	TbStatus	status;
	TbArrayMeta *meta = tb_array_meta_new(path, 3);

	if (meta == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	tb_error_clear(&reason);
	status = parse_array(doc, meta, &reason);
	if (status == TB_E_NOMEM)
	{
		tb_array_meta_free(meta);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	return tb_nodes_add_array(nodes, path, 3, meta, &reason, err);
}

/* Append the group at path, without what its consolidated metadata say. errors: NOMEM. */
static TbStatus
add_group(const char *path, const TbJson *doc, TbNodes *nodes, TbError *err)
{
	static const char *const known[] = {"zarr_format", "node_type", "attributes",
										"consolidated_metadata", NULL};
	TbError		reason;
	TbJson	   *attributes = NULL;
	TbJson	   *value;
	TbStatus	status;

	tb_error_clear(&reason);
	status = check_members(doc, known, &reason);
	if (status == TB_OK && tb_json_get(doc, "attributes", &value))
		status = tb_attributes_take(&attributes, value, &reason);
	(void) status;				/* it is in reason */
	return tb_nodes_add_group(nodes, path, 3, attributes, &reason, err);
}

/* What kind of node a zarr.json describes. errors: INVALID. */
static TbStatus
node_type(const TbJson *doc, bool *is_group, TbError *err)
{
	const char *type;
	int64_t		format;

	if (tb_json_get_int(doc, "zarr_format", &format) && format == 3 &&
		tb_json_get_string(doc, "node_type", &type) &&
		(strcmp(type, "group") == 0 || strcmp(type, "array") == 0))
	{
		*is_group = type[0] == 'g';
		return TB_OK;
	}
	tb_fail(err, TB_E_INVALID, "document is no zarr.json");
	tb_error_detail(err, "\"zarr_format\" 3 and \"node_type\" \"array\" or \"group\" are expected");
	return TB_E_INVALID;
}

/* One entry of consolidated metadata; a bad one becomes a node that says so. errors: NOMEM. */
static TbStatus
add_entry(const char *base, const char *relative, const TbJson *doc, TbNodes *nodes, TbError *err)
{
	TbError		reason;
	TbStatus	status = TB_OK;
	bool		is_group = false;
	char	   *path;

	if (relative[0] == '\0')
		return TB_OK;			/* the group itself, which is a node already */
	path = tb_path_join(base, relative);
	if (path == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	tb_error_clear(&reason);
	if (tb_path_valid(relative))
		status = node_type(doc, &is_group, &reason);
	else
		status = tb_fail(&reason, TB_E_INVALID, "path in consolidated metadata is not valid");
	if (status != TB_OK)
		status = tb_nodes_add_array(nodes, path, 3, NULL, &reason, err);
	else if (is_group)
		status = add_group(path, doc, nodes, err);
	else
		status = add_array(path, doc, nodes, err);
	tb_free(path);
	return status;
}

/* The nodes below a group, where its metadata hold them inline. */
static TbStatus
add_consolidated(const char *path, const TbJson *doc, TbNodes *nodes, bool *consolidated,
				 TbError *err)
{
	TbJson	   *value;
	TbJson	   *map;
	const char *kind = "inline";

	if (!tb_json_get(doc, "consolidated_metadata", &value) ||
		!tb_json_get(value, "metadata", &map) || tb_json_type(map) != TB_JSON_OBJECT)
		return TB_OK;
	(void) tb_json_get_string(value, "kind", &kind);
	if (strcmp(kind, "inline") != 0)
		return TB_OK;
	*consolidated = true;
	for (size_t i = 0; i < tb_json_members(map); i++)
	{
		TbJson	   *entry;
		const char *relative = tb_json_member(map, i, &entry);
		TbStatus	status = add_entry(path, relative, entry, nodes, err);

		if (status != TB_OK)
			return status;
	}
	return TB_OK;
}

/* On failure nodes are as they were. */
TbStatus
tb_zarr_parse_v3(const char *path, const TbBuf *zarr_json, TbNodes *nodes, bool *consolidated,
				 TbError *err)
{
	size_t		had = nodes->n;
	TbJson	   *doc;
	bool		is_group = false;
	TbStatus	status = tb_json_parse(zarr_json->data, zarr_json->len, &doc, err);

	*consolidated = false;
	if (status == TB_OK)
		status = node_type(doc, &is_group, err);
	if (status == TB_OK && is_group)
	{
		status = add_group(path, doc, nodes, err);
		if (status == TB_OK)
			status = add_consolidated(path, doc, nodes, consolidated, err);
	}
	else if (status == TB_OK)
		status = add_array(path, doc, nodes, err);
	tb_json_free(doc);
	if (status == TB_OK)
		return TB_OK;
	tb_nodes_cut(nodes, had);
	if (status != TB_E_NOMEM)
		tb_error_detail(err, "zarr.json of \"%.200s\"", TB_PATH_LABEL(path));
	return status;
}
