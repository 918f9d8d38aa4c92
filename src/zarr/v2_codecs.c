/*
 * The codecs of a v2 array as a v3 list: order F is a transpose, the byte order of the type a
 * `bytes` codec, then filters in their order and the compressor. What numcodecs knows and v3 does
 * not keeps its id ("v2_id").
 *
 * source: Zarr v2 specification, "metadata"; numcodecs' configurations.
 */
#include "zarr/parts.h"

#include <string.h>

static TbStatus
no_memory(TbError *err)
{
	return tb_fail(err, TB_E_NOMEM, "out of memory");
}

/* The members of a numcodecs configuration, but for its id. */
static TbStatus
write_config(TbBuf *text, const TbJson *config, TbError *err)
{
	const char *separator = "";

	for (size_t i = 0; i < tb_json_members(config); i++)
	{
		TbJson	   *value;
		const char *name = tb_json_member(config, i, &value);
		const char *value_text;

		if (strcmp(name, "id") == 0)
			continue;
		value_text = tb_json_text(value);
		if (value_text == NULL || tb_buf_printf(text, "%s", separator) != TB_OK ||
			tb_json_quote(text, name) != TB_OK || tb_buf_printf(text, ":%s", value_text) != TB_OK)
			return no_memory(err);
		separator = ",";
	}
	return TB_OK;
}

/* Append one filter or compressor. errors: INVALID, UNSUPPORTED, NOMEM. */
static TbStatus
write_codec(TbBuf *text, const TbJson *config, const char *member, TbError *err)
{
	const TbCodec *codec;
	const char *id;
	TbStatus	status;

	if (!tb_json_get_string(config, "id", &id))
	{
		tb_fail(err, TB_E_INVALID, "array metadata is not valid");
		tb_error_detail(err, "\"%s\" has no \"id\"", member);
		return TB_E_INVALID;
	}
	codec = tb_codec_find_v2(id);
	if (codec == NULL || codec->kind != TB_BYTES_TO_BYTES)
	{
		tb_fail(err, TB_E_UNSUPPORTED, "codec is not supported");
		tb_error_detail(err, "codec \"%.100s\" in \"%s\"", id, member);
		return TB_E_UNSUPPORTED;
	}
	if (tb_buf_printf(text, ",{\"%s\":", codec->name != NULL ? "name" : "v2_id") != TB_OK ||
		tb_json_quote(text, codec->name != NULL ? codec->name : id) != TB_OK ||
		tb_buf_printf(text, ",\"configuration\":{") != TB_OK)
		return no_memory(err);
	status = write_config(text, config, err);
	if (status == TB_OK && tb_buf_printf(text, "}}") != TB_OK)
		return no_memory(err);
	return status;
}

/* "order": true where the elements of a chunk are in Fortran order. errors: INVALID. */
static TbStatus
parse_order(const TbJson *zarray, bool *fortran, TbError *err)
{
	const char *order = "C";
	TbJson	   *value;

	if (tb_json_get(zarray, "order", &value) &&
		(!tb_json_as_string(value, &order) || (strcmp(order, "C") != 0 && strcmp(order, "F") != 0)))
	{
		tb_fail(err, TB_E_INVALID, "array metadata is not valid");
		tb_error_detail(err, "\"order\" is neither \"C\" nor \"F\"");
		return TB_E_INVALID;
	}
	*fortran = order[0] == 'F';
	return TB_OK;
}

/* transpose and bytes. */
static TbStatus
write_array_codecs(TbBuf *text, const TbArrayMeta *meta, bool fortran, bool big_endian,
				   TbError *err)
{
	TbStatus	status = tb_buf_printf(text, "[");

	if (fortran && meta->ndim > 1)
	{
		if (status == TB_OK)
			status = tb_buf_printf(text, "{\"name\":\"transpose\",\"configuration\":{\"order\":[");
		for (int i = meta->ndim - 1; i >= 0 && status == TB_OK; i--)
			status = tb_buf_printf(text, i > 0 ? "%d," : "%d]}},", i);
	}
	if (status == TB_OK)
		status = tb_buf_printf(text, "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}",
							   big_endian ? "big" : "little");
	return status == TB_OK ? TB_OK : no_memory(err);
}

static TbStatus
write_list(TbBuf *text, const TbArrayMeta *meta, const TbJson *zarray, bool big_endian,
		   TbError *err)
{
	TbJson	   *filters;
	TbJson	   *compressor;
	bool		fortran;
	TbStatus	status = parse_order(zarray, &fortran, err);

	if (status == TB_OK)
		status = write_array_codecs(text, meta, fortran, big_endian, err);
	if (status == TB_OK && tb_json_get(zarray, "filters", &filters) && filters != NULL &&
		tb_json_type(filters) != TB_JSON_ARRAY)
	{
		tb_fail(err, TB_E_INVALID, "array metadata is not valid");
		tb_error_detail(err, "\"filters\" is neither null nor a list");
		return TB_E_INVALID;
	}
	for (size_t i = 0; status == TB_OK && i < tb_json_length(filters); i++)
		status = write_codec(text, tb_json_at(filters, i), "filters", err);
	if (status == TB_OK && tb_json_get(zarray, "compressor", &compressor) && compressor != NULL)
		status = write_codec(text, compressor, "compressor", err);
	if (status == TB_OK && tb_buf_printf(text, "]") != TB_OK)
		return no_memory(err);
	return status;
}

TbStatus
tb_v2_codecs(TbArrayMeta *meta, const TbJson *zarray, bool big_endian, TbError *err)
{
	TbBuf	   *text = tb_buf_new(256);
	TbStatus	status;

	memcpy(meta->chunk, meta->grid_chunk, sizeof(meta->chunk));
	if (text == NULL)
		return no_memory(err);
	status = write_list(text, meta, zarray, big_endian, err);
	if (status == TB_OK)
		status = tb_json_parse(text->data, text->len, &meta->codecs, err);
	tb_buf_unref(text);
	return status;
}
