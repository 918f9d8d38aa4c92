/* .zarray, .zgroup, .zattrs and .zmetadata: types, codecs, dimension names, and what is refused. */
#include "zarr_help.h"

#include <stdio.h>

/* The members of an array that a test does not care about. */
typedef struct Array
{
	const char *shape;
	const char *chunks;
	const char *dtype;
	const char *order;
	const char *filters;
	const char *compressor;
	const char *fill;
	const char *more;
	const char *zattrs;
} Array;

static const Array plain = {
	"[4,6]", "[2,3]", "\"<i2\"", "\"C\"", "null", "null", "0", "", NULL
};

static void
parse(const Array *array, TbNodes *nodes)
{
	char		text[2048];
	TbError		err;

	snprintf(text, sizeof(text),
			 "{\"zarr_format\":2,\"shape\":%s,\"chunks\":%s,\"dtype\":%s,\"order\":%s,\"filters\":%"
			 "s,\"compressor\":%s,"
			 "\"fill_value\":%s%s}",
			 array->shape, array->chunks, array->dtype, array->order, array->filters,
			 array->compressor, array->fill, array->more);
	memset(nodes, 0, sizeof(*nodes));
	assert_int_equal(parse_v2("g/a", text, array->zattrs, nodes, &err), TB_OK);
}

static void
reads_an_array(void **state)
{
	Array		array = plain;
	TbNodes		nodes;
	TbArrayMeta *meta;

	array.zattrs = "{\"_ARRAY_DIMENSIONS\":[\"lat\",\"lon\"],\"units\":\"K\"}";
	parse(&array, &nodes);
	meta = only_array(&nodes);
	assert_int_equal(meta->zarr_format, 2);
	assert_string_equal(meta->path, "g/a");
	assert_int_equal(meta->dtype, TB_I16);
	assert_sizes(meta->shape, 2, (uint64_t[]) {4, 6});
	assert_sizes(meta->grid_chunk, 2, (uint64_t[]) {2, 3});
	assert_sizes(meta->chunk, 2, (uint64_t[]) {2, 3});
	assert_true(meta->key_v2);
	assert_int_equal(meta->separator, '.');
	assert_true(meta->has_dim_names);
	assert_string_equal(meta->dim_name[1], "lon");
	assert_false(meta->time.is_time);
	tb_nodes_free(&nodes);
	array.more = ",\"dimension_separator\":\"/\"";
	parse(&array, &nodes);
	assert_int_equal(only_array(&nodes)->separator, '/');
	tb_nodes_free(&nodes);
}

static void
reads_types(void **state)
{
	static const struct
	{
		const char *dtype;
		TbDtype want;
		TbStatus status;
		const char *part;
	} rows[] = {
		{"\"|b1\"", TB_BOOL, TB_OK, ""},
		{"\"|i1\"", TB_I8, TB_OK, ""},
		{"\"<i2\"", TB_I16, TB_OK, ""},
		{"\">i4\"", TB_I32, TB_OK, ""},
		{"\"<i8\"", TB_I64, TB_OK, ""},
		{"\"|u1\"", TB_U8, TB_OK, ""},
		{"\">u1\"", TB_U8, TB_OK, ""},
		{"\"<u1\"", TB_U8, TB_OK, ""},
		{"\">u2\"", TB_U16, TB_OK, ""},
		{"\"<u4\"", TB_U32, TB_OK, ""},
		{"\">u8\"", TB_U64, TB_OK, ""},
		{"\"<f2\"", TB_F16, TB_OK, ""},
		{"\">f4\"", TB_F32, TB_OK, ""},
		{"\"<f8\"", TB_F64, TB_OK, ""},
		{"\"|i2\"", TB_NONE, TB_E_INVALID, "no byte order"},
		{"\"<M8[ns]\"", TB_NONE, TB_E_UNSUPPORTED, "data type \"<M8[ns]\""},
		{"\"|S5\"", TB_NONE, TB_E_UNSUPPORTED, "data type \"|S5\""},
		{"\"<U7\"", TB_NONE, TB_E_UNSUPPORTED, "data type \"<U7\""},
		{"\"|O\"", TB_NONE, TB_E_UNSUPPORTED, "data type \"|O\""},
		{"\"<c8\"", TB_NONE, TB_E_UNSUPPORTED, "data type \"<c8\""},
		{"\"<f16\"", TB_NONE, TB_E_UNSUPPORTED, "data type \"<f16\""},
		{"\"\"", TB_NONE, TB_E_UNSUPPORTED, "data type \"\""},
		{"\"float32\"", TB_NONE, TB_E_UNSUPPORTED, "data type \"float32\""},
		{"[[\"a\",\"<u2\"]]", TB_NONE, TB_E_UNSUPPORTED, "data type \"structured\""},
		{"4", TB_NONE, TB_E_INVALID, "dtype"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		Array		array = plain;
		TbNodes		nodes;

		array.dtype = rows[i].dtype;
		parse(&array, &nodes);
		if (rows[i].status != TB_OK)
		{
			assert_array_error(&nodes, rows[i].status, rows[i].part);
			continue;
		}
		assert_int_equal(only_array(&nodes)->dtype, rows[i].want);
		tb_nodes_free(&nodes);
	}
}

/*
 * The chain that a v2 array becomes, in words; and through it elements come out as they were put
 * in.
 */
static void
makes_codecs(void **state)
{
	static const struct
	{
		const char *dtype;
		const char *order;
		const char *filters;
		const char *compressor;
		const char *want[4];
	} rows[] = {
		{"\"<i2\"", "\"C\"", "null", "null", {"bytes"}},
		{"\"<i2\"", "\"C\"", "[]", "{\"id\":\"zstd\",\"level\":3}", {"bytes", "zstd"}},
		{"\"<i2\"",
		 "\"C\"",
		 "[{\"id\":\"shuffle\",\"elementsize\":2}]",
		 "{\"id\":\"zlib\",\"level\":1}",
		 {"bytes", "shuffle", "zlib"}},
		{"\"<i2\"",
		 "\"C\"",
		 "[{\"id\":\"shuffle\",\"elementsize\":2},{\"id\":\"zlib\"}]",
		 "null",
		 {"bytes", "shuffle", "zlib"}},
		{"\"<i2\"",
		 "\"F\"",
		 "null",
		 "{\"id\":\"blosc\",\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":1,\"blocksize\":0}",
		 {"transpose", "bytes", "blosc"}},
		{"\">i2\"",
		 "\"F\"",
		 "null",
		 "{\"id\":\"lz4\",\"acceleration\":1}",
		 {"transpose", "bytes", "lz4"}},
		{"\"<i2\"", "\"C\"", "null", "{\"id\":\"gzip\",\"level\":9}", {"bytes", "gzip"}},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		Array		array = plain;
		TbNodes		nodes;
		TbJson	   *codecs;
		size_t		n = 0;

		array.dtype = rows[i].dtype;
		array.order = rows[i].order;
		array.filters = rows[i].filters;
		array.compressor = rows[i].compressor;
		parse(&array, &nodes);
		codecs = only_array(&nodes)->codecs;
		for (; n < 4 && rows[i].want[n] != NULL; n++)
		{
			const char *name = "";

			assert_true(tb_json_get_string(tb_json_at(codecs, n), "name", &name) ||
						tb_json_get_string(tb_json_at(codecs, n), "v2_id", &name));
			assert_string_equal(name, rows[i].want[n]);
		}
		assert_int_equal(tb_json_length(codecs), n);
		tb_nodes_free(&nodes);
	}
}

static void
decodes_fortran_order(void **state)
{
	/* columns of {1 2 3; 4 5 6}, big-endian */
	static const uint8_t stored[] = {0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6};
	static const int16_t want[] = {1, 2, 3, 4, 5, 6};
	int16_t		got[6];
	Array		array = plain;
	TbNodes		nodes;
	TbArrayMeta *meta;
	TbChain    *chain;
	TbScratch  *scratch = tb_scratch_new();
	TbError		err;

	array.order = "\"F\"";
	array.dtype = "\">i2\"";
	parse(&array, &nodes);
	meta = only_array(&nodes);
	assert_int_equal(
		tb_chain_open(meta->codecs, meta->dtype, meta->ndim, meta->chunk, &chain, &err), TB_OK);
	assert_int_equal(
		tb_chain_decode(chain, stored, sizeof(stored), (uint8_t *) got, sizeof(got), scratch, &err),
		TB_OK);
	assert_memory_equal(got, want, sizeof(want));
	tb_chain_free(chain);
	tb_scratch_free(scratch);
	tb_nodes_free(&nodes);
}

static void
refuses_arrays(void **state)
{
	static const struct
	{
		const char *member;
		const char *value;
		TbStatus status;
		const char *part;
	} rows[] = {
		{"filters", "[{\"id\":\"delta\",\"dtype\":\"<i2\"}]", TB_E_UNSUPPORTED,
		 "codec \"delta\" in \"filters\""},
		{"filters", "[{\"id\":\"fixedscaleoffset\"}]", TB_E_UNSUPPORTED,
		 "codec \"fixedscaleoffset\""},
		{"filters", "[{\"id\":\"bytes\"}]", TB_E_UNSUPPORTED, "codec \"bytes\""},
		{"filters", "[{}]", TB_E_INVALID, "\"filters\" has no \"id\""},
		{"filters", "{\"id\":\"shuffle\"}", TB_E_INVALID, "\"filters\""},
		{"filters", "[{\"id\":\"shuffle\",\"elementsize\":-4}]", TB_E_INVALID, "shuffle"},
		{"compressor", "{\"id\":\"lzma\"}", TB_E_UNSUPPORTED, "codec \"lzma\" in \"compressor\""},
		{"compressor", "\"zlib\"", TB_E_INVALID, "\"compressor\" has no \"id\""},
		{"order", "\"K\"", TB_E_INVALID, "order"},
		{"chunks", "[0,3]", TB_E_INVALID, "\"chunks\", axis 0"},
		{"chunks", "[2]", TB_E_INVALID, "\"chunks\" has 1"},
		{"chunks", "null", TB_E_INVALID, "\"chunks\" is no list"},
		{"chunks", "[65536,65536]", TB_E_LIMIT, "2147483648"},
		{"shape", "[-4,6]", TB_E_RANGE, "\"shape\", axis 0"},
		{"more", ",\"dimension_separator\":\"-\"", TB_E_INVALID, "dimension_separator"},
		{"fill", "\"abc\"", TB_E_TEXT, "fill_value"},
		{"zattrs", "[1]", TB_E_INVALID, "attributes"},
		{"zattrs", "{\"missing_value\":[1,2,3,4,5,6,7,8,9]}", TB_E_LIMIT, "at most 8"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		Array		array = plain;
		TbNodes		nodes;
		const char *member = rows[i].member;
		const char **slot = strcmp(member, "filters") == 0		? &array.filters
							: strcmp(member, "compressor") == 0 ? &array.compressor
							: strcmp(member, "order") == 0		? &array.order
							: strcmp(member, "chunks") == 0		? &array.chunks
							: strcmp(member, "shape") == 0		? &array.shape
							: strcmp(member, "more") == 0		? &array.more
							: strcmp(member, "fill") == 0		? &array.fill
																: &array.zattrs;

		*slot = rows[i].value;
		parse(&array, &nodes);
		assert_array_error(&nodes, rows[i].status, rows[i].part);
	}
}

static void
names_dimensions(void **state)
{
	static const struct
	{
		const char *more;
		const char *zattrs;
		const char *want;
		bool has;
	} rows[] = {
		{"", "{\"_ARRAY_DIMENSIONS\":[\"y\",\"x\"]}", "y", true},
		{"", "{\"_ARRAY_DIMENSIONS\":[\"y\"]}", "dim_0", false},
		{"", "{\"_ARRAY_DIMENSIONS\":[\"y\",3]}", "dim_0", false},
		{"", NULL, "dim_0", false},
		{",\"_NCZARR_ARRAY\":{\"dimrefs\":[\"/g/lat\",\"/lon\"]}", NULL, "lat", true},
		{",\"_nczarr_array\":{\"dimrefs\":[\"/g/lat\",\"/lon\"]}", "{}", "lat", true},
		{"", "{\"_nczarr_array\":{\"dimrefs\":[\"/g/lat\",\"/lon\"]}}", "lat", true},
		{"", "{\"_nczarr_array\":{\"dimension_references\":[\"/g/lat\",\"/lon\"]}}", "lat", true},
		{",\"_NCZARR_ARRAY\":{\"dimrefs\":[\"/g/lat\"]}", NULL, "dim_0", false},
		{",\"_NCZARR_ARRAY\":{\"dimrefs\":[\"/g/lat\",\"/lon\"]}",
		 "{\"_ARRAY_DIMENSIONS\":[\"y\",\"x\"]}", "y", true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		Array		array = plain;
		TbNodes		nodes;

		array.more = rows[i].more;
		array.zattrs = rows[i].zattrs;
		parse(&array, &nodes);
		assert_string_equal(only_array(&nodes)->dim_name[0], rows[i].want);
		assert_int_equal(only_array(&nodes)->has_dim_names, rows[i].has);
		tb_nodes_free(&nodes);
	}
}

#define ZARRAY                                                                                     \
	"{\"zarr_format\":2,\"shape\":[2],\"chunks\":[2],\"dtype\":\"|u1\",\"order\":\"C\","           \
	"\"filters\":null,"                                                                            \
	"\"compressor\":null,\"fill_value\":0}"
#define ZMETADATA                                                                                  \
	"{\"zarr_consolidated_format\":1,\"metadata\":{\".zgroup\":{\"zarr_format\":2},\".zattrs\":{"  \
	"\"t\":1},"                                                                                    \
	"\"a/.zarray\":" ZARRAY                                                                        \
	",\"a/.zattrs\":{\"_ARRAY_DIMENSIONS\":[\"x\"]},\"g/.zgroup\":{\"zarr_format\":2},"            \
	"\"g/b/.zarray\":" ZARRAY ",\"..//.zarray\":" ZARRAY ",\"bad/.zarray\":{\"zarr_format\":2},"   \
	"\"odd.zarray\":{}}}"

static void
reads_consolidated(void **state)
{
	TbBuf	   *buf = text_buf(ZMETADATA);
	TbNodes		nodes = {0};
	TbError		err;

	assert_int_equal(tb_zarr_parse_v2_consolidated("top", buf, &nodes, &err), TB_OK);
	assert_int_equal(nodes.n, 6);
	assert_string_equal(nodes.node[0].path, "top");
	assert_true(nodes.node[0].is_group);
	assert_non_null(nodes.node[0].attributes);
	assert_string_equal(nodes.node[1].path, "top/a");
	assert_string_equal(nodes.node[1].array->dim_name[0], "x");
	assert_string_equal(nodes.node[2].path, "top/g");
	assert_true(nodes.node[2].is_group);
	assert_string_equal(nodes.node[3].path, "top/g/b");
	assert_false(nodes.node[3].array->has_dim_names);
	assert_int_equal(nodes.node[4].status, TB_E_INVALID);
	assert_contains(nodes.node[4].error.message, "path");
	assert_int_equal(nodes.node[5].status, TB_E_INVALID);
	tb_nodes_free(&nodes);
	tb_buf_unref(buf);
}

static void
reads_groups(void **state)
{
	TbBuf	   *zgroup = text_buf("{\"zarr_format\":2}");
	TbBuf	   *zattrs = text_buf("{\"title\":\"x\"}");
	TbNodes		nodes = {0};
	TbError		err;

	assert_int_equal(tb_zarr_parse_v2_group("", zgroup, zattrs, &nodes, &err), TB_OK);
	assert_int_equal(tb_zarr_parse_v2_group("h", zgroup, NULL, &nodes, &err), TB_OK);
	assert_int_equal(nodes.n, 2);
	assert_string_equal(nodes.node[0].path, "");
	assert_non_null(nodes.node[0].attributes);
	assert_null(nodes.node[1].attributes);
	tb_nodes_free(&nodes);
	tb_buf_unref(zgroup);
	tb_buf_unref(zattrs);
}

static void
refuses_documents(void **state)
{
	static const struct
	{
		const char *zarray;
		const char *zattrs;
		TbStatus status;
		const char *part;
	} rows[] = {
		{"", NULL, TB_E_JSON, ".zarray of \"p\""},
		{"{\"zarr_format\":3}", NULL, TB_E_INVALID, ".zarray of \"p\""},
		{"{\"zarr_format\":2}", "{", TB_E_JSON, ".zattrs of \"p\""},
		{"{\"zarr_format\":2}", "{\"a\":1,\"a\":2}", TB_E_JSON_DUPLICATE, ".zattrs of \"p\""},
	};
	TbBuf	   *buf = text_buf("{\"zarr_consolidated_format\":2,\"metadata\":{}}");
	TbNodes		nodes = {0};
	TbError		err;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		assert_int_equal(parse_v2("p", rows[i].zarray, rows[i].zattrs, &nodes, &err),
						 rows[i].status);
		assert_contains(err.detail, rows[i].part);
		assert_int_equal(nodes.n, 0);
	}
	assert_int_equal(tb_zarr_parse_v2_consolidated("p", buf, &nodes, &err), TB_E_INVALID);
	assert_contains(err.detail, ".zmetadata of \"p\"");
	tb_nodes_free(&nodes);
	tb_buf_unref(buf);
}

/* Each allocation failed once. */
static void
survives_lack_of_memory(void **state)
{
	TbBuf	   *buf = text_buf(ZMETADATA);
	TbBuf *zarray = text_buf(
		"{\"zarr_format\":2,\"shape\":[4,4],\"chunks\":[2,2],\"dtype\":\"<f4\",\"order\":\"F\","
		"\"filters\":[{\"id\":\"shuffle\",\"elementsize\":4}],\"compressor\":{\"id\":\"zlib\"},"
		"\"fill_value\":\"NaN\",\"_NCZARR_ARRAY\":{\"dimrefs\":[\"/y\",\"/y\"]}}");
	int64_t		before = tb_mem_live();

	for (int which = 0; which < 2; which++)
	{
		TbStatus	status = TB_E_NOMEM;

		for (uint64_t n = 1; status != TB_OK; n++)
		{
			TbNodes		nodes = {0};
			TbError		err;

			tb_mem_fail_after(n);
			status = which == 0 ? tb_zarr_parse_v2_consolidated("p", buf, &nodes, &err) :
				tb_zarr_parse_v2_array("p", zarray, NULL, &nodes, &err);
			tb_mem_fail_after(0);
			assert_true(status == TB_OK ||
						(status == TB_E_NOMEM && nodes.n == 0 && err.code == TB_E_NOMEM));
			if (status == TB_OK && which == 1)
			{
				TbArrayMeta *meta = only_array(&nodes);
				TbArrayMeta *copy = NULL;

				for (uint64_t m = 1; copy == NULL; m++)
				{
					int64_t		live = tb_mem_live();

					tb_mem_fail_after(m);
					copy = tb_array_meta_copy(meta);
					tb_mem_fail_after(0);
					assert_true(copy != NULL || tb_mem_live() == live);
				}
				tb_array_meta_free(copy);
			}
			tb_nodes_free(&nodes);
			assert_int_equal(tb_mem_live(), before);
			assert_true(n < 1000);
		}
	}
	tb_buf_unref(buf);
	tb_buf_unref(zarray);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(reads_an_array, nothing_left),
		cmocka_unit_test_teardown(reads_types, nothing_left),
		cmocka_unit_test_teardown(makes_codecs, nothing_left),
		cmocka_unit_test_teardown(decodes_fortran_order, nothing_left),
		cmocka_unit_test_teardown(refuses_arrays, nothing_left),
		cmocka_unit_test_teardown(names_dimensions, nothing_left),
		cmocka_unit_test_teardown(reads_consolidated, nothing_left),
		cmocka_unit_test_teardown(reads_groups, nothing_left),
		cmocka_unit_test_teardown(refuses_documents, nothing_left),
		cmocka_unit_test_teardown(survives_lack_of_memory, nothing_left),
	};

	return cmocka_run_group_tests_name("zarr v2", tests, NULL, NULL);
}
