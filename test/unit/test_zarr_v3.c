/* zarr.json: arrays, groups, consolidated metadata, shards, extensions, and what is refused. */
#include "zarr_help.h"

#include <stdio.h>

#define BYTES "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}"
#define GRID(list) "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":" list "}}"
#define INDEX "[" BYTES ",{\"name\":\"crc32c\"}]"
#define SHARD(shape, codecs)                                                                       \
	"{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" shape                     \
	",\"codecs\":" codecs ",\"index_codecs\":" INDEX "}}"

/* The members of an array that a test does not care about. */
typedef struct Array
{
	const char *shape;
	const char *type;
	const char *grid;
	const char *key;
	const char *fill;
	const char *codecs;
	const char *more;
} Array;

static const Array plain = {
	"[4,6]", "\"int16\"", GRID("[2,3]"), "{\"name\":\"default\"}", "0", "[" BYTES "]", ""
};

static void
parse(const Array *array, TbNodes *nodes)
{
	char		text[4096];
	TbError		err;

	snprintf(text, sizeof(text),
			 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":%s,\"data_type\":%s,\"chunk_"
			 "grid\":%s,"
			 "\"chunk_key_encoding\":%s,\"fill_value\":%s,\"codecs\":%s%s}",
			 array->shape, array->type, array->grid, array->key, array->fill, array->codecs,
			 array->more);
	memset(nodes, 0, sizeof(*nodes));
	assert_int_equal(parse_v3("a/b", text, nodes, &err), TB_OK);
}

static void
reads_an_array(void **state)
{
	Array		array = plain;
	TbNodes		nodes;
	TbArrayMeta *meta;
	TbArrayMeta *copy;

	array.more = ",\"attributes\":{\"units\":\"hours since 1970-01-01 01:00\",\"scale_factor\":2},"
		"\"dimension_names\":[\"y\",\"x\"],\"storage_transformers\":[]";
	parse(&array, &nodes);
	meta = only_array(&nodes);
	copy = tb_array_meta_copy(meta);
	tb_nodes_free(&nodes);
	assert_string_equal(copy->path, "a/b");
	assert_int_equal(copy->zarr_format, 3);
	assert_int_equal(copy->ndim, 2);
	assert_sizes(copy->shape, 2, (uint64_t[]) {4, 6});
	assert_sizes(copy->grid_chunk, 2, (uint64_t[]) {2, 3});
	assert_sizes(copy->chunk, 2, (uint64_t[]) {2, 3});
	assert_int_equal(copy->dtype, TB_I16);
	assert_true(copy->has_dim_names);
	assert_string_equal(copy->dim_name[0], "y");
	assert_string_equal(copy->dim_name[1], "x");
	assert_false(copy->key_v2);
	assert_int_equal(copy->separator, '/');
	assert_int_equal(copy->n_shard_levels, 0);
	assert_true(copy->time.is_time);
	assert_int_equal(copy->time.epoch_us, INT64_C(3600000000));
	assert_true(copy->packing.scaled);
	assert_non_null(copy->attributes);
	assert_int_equal(tb_json_length(copy->codecs), 1);
	tb_array_meta_free(copy);
}

static void
names_dimensions(void **state)
{
	static const struct { const char *names; const char *want[3]; bool has; } rows[] = {
		{",\"dimension_names\":[\"a\",null,\"a\"]", {"a", "dim_1", "a_2"}, true},
		{",\"dimension_names\":[\"dim_1\",null,\"\"]", {"dim_1", "dim_1_", "dim_2"}, true},
		{",\"dimension_names\":[\"a\",\"a\",\"a_1\"]", {"a", "a_1_", "a_1"}, true},
		{",\"dimension_names\":[null,null,null]", {"dim_0", "dim_1", "dim_2"}, false},
		{",\"dimension_names\":null", {"dim_0", "dim_1", "dim_2"}, false},
		{"", {"dim_0", "dim_1", "dim_2"}, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		Array		array = plain;
		TbNodes		nodes;
		TbArrayMeta *meta;

		array.shape = "[1,2,3]";
		array.grid = GRID("[1,1,1]");
		array.more = rows[i].names;
		parse(&array, &nodes);
		meta = only_array(&nodes);
		assert_int_equal(meta->has_dim_names, rows[i].has);
		for (int d = 0; d < 3; d++)
			assert_string_equal(meta->dim_name[d], rows[i].want[d]);
		tb_nodes_free(&nodes);
	}
}

static void
reads_shards(void **state)
{
	Array		array = plain;
	TbNodes		nodes;
	TbArrayMeta *meta;

	array.shape = "[100,100]";
	array.grid = GRID("[40,60]");
	array.codecs =
		"[" SHARD("[20,30]", "[" SHARD("[10,10]", "[" BYTES ",{\"name\":\"zstd\"}]") "]") "]";
	parse(&array, &nodes);
	meta = only_array(&nodes);
	assert_int_equal(meta->n_shard_levels, 2);
	assert_sizes(meta->grid_chunk, 2, (uint64_t[]) {40, 60});
	assert_sizes(meta->shard[0].shard, 2, (uint64_t[]) {40, 60});
	assert_sizes(meta->shard[0].inner, 2, (uint64_t[]) {20, 30});
	assert_sizes(meta->shard[1].shard, 2, (uint64_t[]) {20, 30});
	assert_sizes(meta->shard[1].inner, 2, (uint64_t[]) {10, 10});
	assert_sizes(meta->chunk, 2, (uint64_t[]) {10, 10});
	assert_int_equal(meta->shard[0].n_entries, 4);
	assert_int_equal(meta->shard[1].n_entries, 6);
	assert_int_equal(meta->shard[1].index_bytes, 6 * 16 + 4);
	assert_true(meta->shard[0].index_crc);
	assert_false(meta->shard[0].index_at_start);
	assert_false(meta->shard[0].index_big_endian);
	assert_int_equal(tb_json_length(meta->codecs), 2);
	tb_nodes_free(&nodes);

	array.codecs = "[{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[20,30],"
				   "\"index_location\":\"start\","
				   "\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"big\"}}],"
				   "\"codecs\":["
				   "{\"name\":\"transpose\",\"configuration\":{\"order\":[1,0]}}," BYTES "]}}]";
	parse(&array, &nodes);
	meta = only_array(&nodes);
	assert_true(meta->shard[0].index_at_start);
	assert_true(meta->shard[0].index_big_endian);
	assert_false(meta->shard[0].index_crc);
	assert_int_equal(meta->shard[0].index_bytes, 4 * 16);
	tb_nodes_free(&nodes);
}

static void
refuses_shards(void **state)
{
	static const struct { const char *codecs; TbStatus status; const char *part;
	} rows[] = {
		{"[{\"name\":\"transpose\",\"configuration\":{\"order\":[1,0]}}," SHARD("[1,1]",
																				"[" BYTES "]") "]",
		 TB_E_UNSUPPORTED, "codec \"transpose\" before"},
		{"[" SHARD("[1,1]", "[" BYTES "]") ",{\"name\":\"zstd\"}]", TB_E_UNSUPPORTED,
		 "codec \"zstd\" behind"},
		{"[" SHARD("[1,1]", "[" BYTES ",{\"name\":\"zfpy\"}]") "]", TB_E_UNSUPPORTED,
		 "codec \"zfpy\""},
		{"[" SHARD("[2,3]",
				   "[" SHARD("[2,3]", "[" SHARD("[2,3]", "[" SHARD("[1,1]", "[" BYTES
																			"]") "]") "]") "]") "]",
		 TB_E_UNSUPPORTED, "nested more than 3 times"},
		{"[" SHARD("[2,2]", "[" BYTES "]") "]", TB_E_INVALID, "axis 1"},
		{"[" SHARD("[0,1]", "[" BYTES "]") "]", TB_E_INVALID, "axis 0"},
		{"[" SHARD("[1]", "[" BYTES "]") "]", TB_E_INVALID, "1 entries"},
		{"[{\"name\":\"sharding_indexed\"}]", TB_E_INVALID, "chunk_shape"},
		{"[{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[1,1],\"codecs\":"
		 "[" BYTES "]}}]",
		 TB_E_INVALID, "index_codecs"},
		{"[{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[1,1],\"codecs\":"
		 "[" BYTES "],"
		 "\"index_codecs\":[" BYTES ",{\"name\":\"zstd\"}]}}]",
		 TB_E_UNSUPPORTED, "codec \"zstd\" in"},
		{"[{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[1,1],\"codecs\":"
		 "[" BYTES "],"
		 "\"index_codecs\":[" BYTES "],\"index_location\":\"middle\"}}]",
		 TB_E_INVALID, "index_location"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		Array		array = plain;
		TbNodes		nodes;

		array.codecs = rows[i].codecs;
		parse(&array, &nodes);
		assert_array_error(&nodes, rows[i].status, rows[i].part);
	}
}

/* Sizes that no machine holds cost nothing and are answered at once. */
static void
bounds_sizes(void **state)
{
	static const struct
	{
		const char *shape;
		const char *grid;
		const char *codecs;
		TbStatus status;
		const char *part;
	} rows[] = {
		{"[4611686018427387904,4611686018427387904]", GRID("[1,1]"), NULL, TB_OK, ""},
		{"[0,3]", GRID("[5,5]"), NULL, TB_OK, ""},
		{"[2,3]", GRID("[1000,1000]"), NULL, TB_OK, ""},
		{"[9223372036854775808,1]", GRID("[1,1]"), NULL, TB_E_RANGE, "\"shape\", axis 0"},
		{"[1,18446744073709551616]", GRID("[1,1]"), NULL, TB_E_RANGE, "\"shape\", axis 1"},
		{"[-1,1]", GRID("[1,1]"), NULL, TB_E_RANGE, "\"shape\", axis 0"},
		{"[1.5,1]", GRID("[1,1]"), NULL, TB_E_RANGE, "\"shape\", axis 0"},
		{"[\"1\",1]", GRID("[1,1]"), NULL, TB_E_INVALID, "\"shape\", axis 0"},
		{"{}", GRID("[1,1]"), NULL, TB_E_INVALID, "\"shape\" is no list"},
		{"[4,4]", GRID("[0,1]"), NULL, TB_E_INVALID, "\"chunk_shape\", axis 0"},
		{"[4,4]", GRID("[1]"), NULL, TB_E_INVALID, "\"chunk_shape\" has 1 entries"},
		{"[4,4]", GRID("[32768,32768]"), NULL, TB_OK, ""},
		{"[4,4]", GRID("[32769,32768]"), NULL, TB_E_LIMIT, "2147483648 bytes"},
		{"[4,4]", GRID("[4294967296,4294967296]"), NULL, TB_E_LIMIT, "2147483648 bytes"},
		{"[4,4]", GRID("[9223372036854775807,9223372036854775807]"), NULL, TB_E_LIMIT,
		 "2147483648 bytes"},
		{"[4,4]", GRID("[4294967296,4294967296]"), "[" SHARD("[1,1]", "[" BYTES "]") "]",
		 TB_E_LIMIT, "16777216"},
		{"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", GRID("[1,1]"), NULL,
		 TB_E_LIMIT, "has 33"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		Array		array = plain;
		TbNodes		nodes;

		array.shape = rows[i].shape;
		array.grid = rows[i].grid;
		if (rows[i].codecs != NULL)
			array.codecs = rows[i].codecs;
		parse(&array, &nodes);
		if (rows[i].status == TB_OK)
		{
			assert_int_equal(only_array(&nodes)->ndim, 2);
			tb_nodes_free(&nodes);
		}
		else
			assert_array_error(&nodes, rows[i].status, rows[i].part);
	}
}

static void
reads_scalars(void **state)
{
	Array		array = plain;
	TbNodes		nodes;

	array.shape = "[]";
	array.grid = GRID("[]");
	array.type = "{\"name\":\"float64\",\"configuration\":{}}";
	array.more = ",\"dimension_names\":[]";
	parse(&array, &nodes);
	assert_int_equal(only_array(&nodes)->ndim, 0);
	assert_true(only_array(&nodes)->has_dim_names);
	assert_int_equal(only_array(&nodes)->dtype, TB_F64);
	tb_nodes_free(&nodes);
}

static void
treats_extensions(void **state)
{
	static const struct
	{
		const char *member;
		const char *value;
		TbStatus status;
		const char *part;
	} rows[] = {
		{"more", ",\"future\":{\"must_understand\":false}", TB_OK, ""},
		{"more", ",\"future\":{\"name\":\"x\"}", TB_E_UNSUPPORTED, "metadata extension \"future\""},
		{"more", ",\"future\":1", TB_E_UNSUPPORTED, "metadata extension \"future\""},
		{"more", ",\"storage_transformers\":[{\"name\":\"swift\"}]", TB_E_UNSUPPORTED,
		 "storage transformer \"swift\""},
		{"more", ",\"storage_transformers\":[{\"name\":\"swift\",\"must_understand\":false}]",
		 TB_OK, ""},
		{"more", ",\"attributes\":[]", TB_E_INVALID, "attributes"},
		{"more", ",\"dimension_names\":[\"x\"]", TB_E_INVALID, "dimension_names"},
		{"more", ",\"dimension_names\":[\"x\",1]", TB_E_INVALID, "dimension_names"},
		{"type", "\"string\"", TB_E_UNSUPPORTED, "data type \"string\""},
		{"type", "{\"name\":\"numpy.datetime64\",\"configuration\":{\"unit\":\"s\"}}",
		 TB_E_UNSUPPORTED, "data type \"numpy.datetime64\""},
		{"type", "\"complex64\"", TB_E_UNSUPPORTED, "data type \"complex64\""},
		{"type", "\"none\"", TB_E_UNSUPPORTED, "data type \"none\""},
		{"type", "7", TB_E_INVALID, "data_type"},
		{"grid", "{\"name\":\"rectilinear\",\"configuration\":{}}", TB_E_UNSUPPORTED,
		 "chunk grid \"rectilinear\""},
		{"grid", "{\"name\":\"regular\"}", TB_E_INVALID, "chunk_shape"},
		{"key", "{\"name\":\"fancy\"}", TB_E_UNSUPPORTED, "chunk key encoding \"fancy\""},
		{"key", "{\"name\":\"v2\",\"configuration\":{\"separator\":\"|\"}}", TB_E_INVALID,
		 "separator"},
		{"codecs", "[" BYTES ",{\"name\":\"lzfse\"}]", TB_E_UNSUPPORTED, "codec \"lzfse\""},
		{"codecs", "[" BYTES ",{\"name\":\"lzfse\",\"must_understand\":false}]", TB_OK, ""},
		{"codecs", "[" BYTES ",\"crc32c\"]", TB_OK, ""},
		{"codecs", "[{\"name\":\"bytes\"}]", TB_E_INVALID, "\"bytes\""},
		{"codecs", "[]", TB_E_INVALID, "codec"},
		{"codecs", "[{}]", TB_E_INVALID, "codec"},
		{"codecs", "\"bytes\"", TB_E_INVALID, "codecs"},
		{"fill", "\"0x00\"", TB_E_TEXT, "fill_value"},
		{"fill", "70000", TB_E_TEXT, "int16"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		Array		array = plain;
		TbNodes		nodes;
		const char **member = rows[i].member[0] == 'm'	 ? &array.more
							  : rows[i].member[0] == 't' ? &array.type
							  : rows[i].member[0] == 'g' ? &array.grid
							  : rows[i].member[0] == 'k' ? &array.key
							  : rows[i].member[0] == 'f' ? &array.fill
														 : &array.codecs;

		*member = rows[i].value;
		parse(&array, &nodes);
		if (rows[i].status != TB_OK)
			assert_array_error(&nodes, rows[i].status, rows[i].part);
		else
		{
			only_array(&nodes);
			tb_nodes_free(&nodes);
		}
	}
	{
		Array		array = plain;
		TbNodes		nodes;

		/* one byte has no order to know */
		array.type = "\"uint8\"";
		array.codecs = "[{\"name\":\"bytes\"}]";
		parse(&array, &nodes);
		only_array(&nodes);
		tb_nodes_free(&nodes);
	}
}

#define SMALL                                                                                      \
	"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[2],\"data_type\":\"uint8\",\"chunk_"    \
	"grid\":" GRID("[2]") ",\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0,"       \
						  "\"codecs\":[\"bytes\"]}"

static void
reads_groups(void **state)
{
	TbNodes		nodes = {0};
	TbError		err;
	TbBuf *buf = text_buf(
		"{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{\"a\":1},\"consolidated_"
		"metadata\":"
		"{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{\"x\":" SMALL ",\"g\":"
		"{\"zarr_format\":3,\"node_type\":\"group\"},\"g/y\":" SMALL ",\"../up\":" SMALL
		",\"bad\":{\"zarr_format\":2}}}}");
	bool		consolidated;

	assert_int_equal(tb_zarr_parse_v3("base", buf, &nodes, &consolidated, &err), TB_OK);
	assert_true(consolidated);
	assert_int_equal(nodes.n, 6);
	assert_true(nodes.node[0].is_group);
	assert_string_equal(nodes.node[0].path, "base");
	assert_non_null(nodes.node[0].attributes);
	assert_string_equal(nodes.node[1].path, "base/x");
	assert_string_equal(nodes.node[1].array->path, "base/x");
	assert_string_equal(nodes.node[2].path, "base/g");
	assert_true(nodes.node[2].is_group);
	assert_string_equal(nodes.node[3].path, "base/g/y");
	assert_int_equal(nodes.node[4].status, TB_E_INVALID);
	assert_int_equal(nodes.node[5].status, TB_E_INVALID);
	tb_nodes_free(&nodes);
	assert_int_equal(tb_zarr_parse_v3("", buf, &nodes, &consolidated, &err), TB_OK);
	assert_string_equal(nodes.node[1].path, "x");
	tb_nodes_free(&nodes);
	tb_buf_unref(buf);
	buf = text_buf(
		"{\"zarr_format\":3,\"node_type\":\"group\",\"consolidated_metadata\":null,\"odd\":3}");
	assert_int_equal(tb_zarr_parse_v3("", buf, &nodes, &consolidated, &err), TB_OK);
	assert_false(consolidated);
	assert_int_equal(nodes.n, 1);
	assert_int_equal(nodes.node[0].status, TB_E_UNSUPPORTED);
	tb_nodes_free(&nodes);
	tb_buf_unref(buf);
}

static void
refuses_documents(void **state)
{
	static const struct { const char *text; TbStatus status;
	} rows[] = {
		{"", TB_E_JSON},
		{"[", TB_E_JSON},
		{"{\"zarr_format\":3,}", TB_E_JSON},
		{"[]", TB_E_INVALID},
		{"null", TB_E_INVALID},
		{"{}", TB_E_INVALID},
		{"{\"zarr_format\":2,\"node_type\":\"array\"}", TB_E_INVALID},
		{"{\"zarr_format\":3,\"node_type\":\"table\"}", TB_E_INVALID},
		{"{\"zarr_format\":3,\"zarr_format\":3,\"node_type\":\"group\"}", TB_E_JSON_DUPLICATE},
		{"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
		 TB_E_LIMIT},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		TbNodes		nodes = {0};
		TbError		err;

		assert_int_equal(parse_v3("p", rows[i].text, &nodes, &err), rows[i].status);
		assert_int_equal(nodes.n, 0);
		assert_contains(err.detail, "zarr.json of \"p\"");
		tb_nodes_free(&nodes);
	}
}

/* Each allocation failed once: memory is gone, nothing leaks, nothing is half there. */
static void
survives_lack_of_memory(void **state)
{
	TbBuf *buf = text_buf(
		"{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{},\"consolidated_metadata\":"
		"{\"metadata\":{\"x\":" SMALL ",\"g\":{\"zarr_format\":3,\"node_type\":\"group\"}}}}");
	TbStatus	status = TB_E_NOMEM;
	int64_t		before = tb_mem_live();

	for (uint64_t n = 1; status != TB_OK; n++)
	{
		TbNodes		nodes = {0};
		TbError		err;
		bool		consolidated;

		tb_mem_fail_after(n);
		status = tb_zarr_parse_v3("p", buf, &nodes, &consolidated, &err);
		tb_mem_fail_after(0);
		assert_true(status == TB_OK ||
					(status == TB_E_NOMEM && nodes.n == 0 && err.code == TB_E_NOMEM));
		tb_nodes_free(&nodes);
		assert_int_equal(tb_mem_live(), before);
		assert_true(n < 1000);
	}
	tb_buf_unref(buf);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(reads_an_array, nothing_left),
		cmocka_unit_test_teardown(names_dimensions, nothing_left),
		cmocka_unit_test_teardown(reads_shards, nothing_left),
		cmocka_unit_test_teardown(refuses_shards, nothing_left),
		cmocka_unit_test_teardown(bounds_sizes, nothing_left),
		cmocka_unit_test_teardown(reads_scalars, nothing_left),
		cmocka_unit_test_teardown(treats_extensions, nothing_left),
		cmocka_unit_test_teardown(reads_groups, nothing_left),
		cmocka_unit_test_teardown(refuses_documents, nothing_left),
		cmocka_unit_test_teardown(survives_lack_of_memory, nothing_left),
	};

	return cmocka_run_group_tests_name("zarr v3", tests, NULL, NULL);
}
