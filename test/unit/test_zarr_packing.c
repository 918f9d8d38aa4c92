/* Packing: types, sentinels and scales as xarray has them, and the rule for fill values. */
#include "zarr_help.h"

#include <stdio.h>

typedef struct Row
{
	int			format;
	const char *type;
	const char *fill;
	const char *attributes;		/* members, also dimension names in v2 */
	TbDtype		packed;
	TbDtype		decoded;
	TbDtype		stat;
	int			n;
	uint64_t	sentinel[4];
	bool		scaled;
} Row;

#define DIMS "\"_ARRAY_DIMENSIONS\":[\"x\"]"

static const Row rows[] = {
	/* nothing to do */
	{3, "int16", "0", "", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "int16", "7", "", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{2, "int16", "null", DIMS, TB_I16, TB_I16, TB_I16, 0, {0}, false},
	/* masks alone */
	{3, "int8", "0", "\"_FillValue\":-1", TB_I8, TB_F32, TB_I8, 1, {0xff}, false},
	{3, "uint16", "0", "\"_FillValue\":65535", TB_U16, TB_F32, TB_U16, 1, {0xffff}, false},
	{3, "int32", "0", "\"missing_value\":-9999", TB_I32, TB_F64, TB_I32, 1, {0xffffd8f1}, false},
	{3,
	 "int64",
	 "0",
	 "\"_FillValue\":-9223372036854775808",
	 TB_I64,
	 TB_F64,
	 TB_I64,
	 1,
	 {0x8000000000000000},
	 false},
	{3,
	 "uint64",
	 "0",
	 "\"_FillValue\":18446744073709551615",
	 TB_U64,
	 TB_F64,
	 TB_U64,
	 1,
	 {UINT64_MAX},
	 false},
	{3, "float16", "0", "\"missing_value\":-1", TB_F16, TB_F16, TB_F16, 1, {0xbc00}, false},
	{3, "float32", "0", "\"missing_value\":1e20", TB_F32, TB_F32, TB_F32, 1, {0x60ad78ec}, false},
	{3,
	 "float64",
	 "0",
	 "\"missing_value\":1e20",
	 TB_F64,
	 TB_F64,
	 TB_F64,
	 1,
	 {0x4415af1d78b58c40},
	 false},
	{3, "float32", "0", "\"_FillValue\":\"NaN\"", TB_F32, TB_F32, TB_F32, 1, {0x7fc00000}, false},
	{3,
	 "float32",
	 "0",
	 "\"_FillValue\":\"0x7fc00001\"",
	 TB_F32,
	 TB_F32,
	 TB_F32,
	 1,
	 {0x7fc00001},
	 false},
	{3,
	 "float32",
	 "0",
	 "\"_FillValue\":\"AAAAAAAA+H8=\"",
	 TB_F32,
	 TB_F32,
	 TB_F32,
	 1,
	 {0x7fc00000},
	 false},
	{3,
	 "float64",
	 "0",
	 "\"_FillValue\":\"AAAAAAAAWUA=\"",
	 TB_F64,
	 TB_F64,
	 TB_F64,
	 1,
	 {0x4059000000000000},
	 false},
	{3, "float32", "0", "\"_FillValue\":0", TB_F32, TB_F32, TB_F32, 2, {0, 0x80000000}, false},
	{3, "bool", "false", "\"_FillValue\":true", TB_BOOL, TB_F32, TB_BOOL, 1, {1}, false},
	/* several at once, in lists, given twice, and what is no value of the type */
	{3,
	 "int16",
	 "0",
	 "\"_FillValue\":-1,\"missing_value\":[-1,5,7]",
	 TB_I16,
	 TB_F32,
	 TB_I16,
	 3,
	 {0xffff, 5, 7},
	 false},
	{3, "int16", "0", "\"_FillValue\":[3]", TB_I16, TB_F32, TB_I16, 1, {3}, false},
	{3, "int16", "0", "\"missing_value\":-9999.0", TB_I16, TB_F32, TB_I16, 1, {0xd8f1}, false},
	{3, "int16", "0", "\"missing_value\":\"-9999\"", TB_I16, TB_F32, TB_I16, 1, {0xd8f1}, false},
	{3, "int16", "0", "\"missing_value\":0.5", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "int16", "0", "\"missing_value\":\"n/a\"", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "int16", "0", "\"missing_value\":\"AQI=\"", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "int16", "0", "\"missing_value\":[100000,4]", TB_I16, TB_F32, TB_I16, 1, {4}, false},
	{3, "int16", "0", "\"missing_value\":NaN", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "int16", "0", "\"missing_value\":null", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "int16", "0", "\"missing_value\":[]", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "float32", "0", "\"missing_value\":1e300", TB_F32, TB_F32, TB_F32, 0, {0}, false},
	/* scales */
	{3, "int16", "0", "\"scale_factor\":0.5", TB_I16, TB_F64, TB_F64, 0, {0}, true},
	{3, "int16", "0", "\"add_offset\":[273.15]", TB_I16, TB_F64, TB_F64, 0, {0}, true},
	{3,
	 "float32",
	 "0",
	 "\"scale_factor\":2,\"_FillValue\":-1",
	 TB_F32,
	 TB_F64,
	 TB_F64,
	 1,
	 {0xbf800000},
	 true},
	{3, "int16", "0", "\"scale_factor\":\"0.5\"", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "int16", "0", "\"scale_factor\":[1,2]", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3, "int16", "0", "\"scale_factor\":null", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{3,
	 "int16",
	 "0",
	 "\"valid_min\":0,\"valid_range\":[0,5],\"actual_range\":[1,2]",
	 TB_I16,
	 TB_I16,
	 TB_I16,
	 0,
	 {0},
	 false},
	/* signedness */
	{3, "int8", "0", "\"_Unsigned\":\"true\"", TB_U8, TB_U8, TB_U8, 0, {0}, false},
	{3,
	 "int8",
	 "0",
	 "\"_Unsigned\":\"true\",\"_FillValue\":-1",
	 TB_U8,
	 TB_F32,
	 TB_U8,
	 1,
	 {0xff},
	 false},
	{3,
	 "int8",
	 "0",
	 "\"_Unsigned\":\"true\",\"_FillValue\":255",
	 TB_U8,
	 TB_F32,
	 TB_U8,
	 1,
	 {0xff},
	 false},
	{3,
	 "int32",
	 "0",
	 "\"_Unsigned\":\"true\",\"scale_factor\":0.5",
	 TB_U32,
	 TB_F64,
	 TB_F64,
	 0,
	 {0},
	 true},
	{3,
	 "uint16",
	 "0",
	 "\"_Unsigned\":\"false\",\"_FillValue\":65535",
	 TB_I16,
	 TB_F32,
	 TB_I16,
	 1,
	 {0xffff},
	 false},
	{3,
	 "int8",
	 "0",
	 "\"_Unsigned\":\"false\",\"_FillValue\":-128",
	 TB_I8,
	 TB_F32,
	 TB_I8,
	 1,
	 {0x80},
	 false},
	{3, "uint8", "0", "\"_Unsigned\":\"true\"", TB_U8, TB_U8, TB_U8, 0, {0}, false},
	{3, "float32", "0", "\"_Unsigned\":\"true\"", TB_F32, TB_F32, TB_F32, 0, {0}, false},
	/* the fill value of v2 */
	{2, "int16", "-5", DIMS, TB_I16, TB_F32, TB_I16, 1, {0xfffb}, false},
	{2, "int16", "-5", "", TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{2, "int16", "0", DIMS, TB_I16, TB_I16, TB_I16, 0, {0}, false},
	{2, "float32", "-0.0", DIMS, TB_F32, TB_F32, TB_F32, 0, {0}, false},
	{2, "float32", "\"NaN\"", DIMS, TB_F32, TB_F32, TB_F32, 1, {0x7fc00000}, false},
	{2, "int16", "-5", DIMS ",\"_FillValue\":3", TB_I16, TB_F32, TB_I16, 1, {3}, false},
	{2, "int16", "-5", DIMS ",\"missing_value\":3", TB_I16, TB_F32, TB_I16, 2, {3, 0xfffb}, false},
	{2, "int16", "-5", DIMS ",\"_FillValue\":\"none\"", TB_I16, TB_F32, TB_I16, 1, {0xfffb}, false},
	{2, "int8", "-1", DIMS ",\"_Unsigned\":\"true\"", TB_U8, TB_F32, TB_U8, 1, {0xff}, false},
};

static void
parse(const Row *row, TbNodes *nodes)
{
	char		text[1024];
	char		zattrs[512];
	const char *npy = tb_dtype_npy(tb_dtype_parse(row->type));
	TbError		err;

	memset(nodes, 0, sizeof(*nodes));
	snprintf(zattrs, sizeof(zattrs), "{%s}", row->attributes);
	if (row->format == 3)
	{
		snprintf(text, sizeof(text),
				 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[1],\"data_type\":\"%s\","
				 "\"chunk_grid\":{\"name\":"
				 "\"regular\",\"configuration\":{\"chunk_shape\":[1]}},\"chunk_key_encoding\":"
				 "\"default\",\"fill_value\":%s,"
				 "\"dimension_names\":[\"x\"],\"attributes\":%s,"
				 "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"big\"}}]}",
				 row->type, row->fill, zattrs);
		assert_int_equal(parse_v3("", text, nodes, &err), TB_OK);
		return;
	}
	snprintf(text, sizeof(text),
			 "{\"zarr_format\":2,\"shape\":[1],\"chunks\":[1],\"dtype\":\"%s\",\"fill_value\":%s}",
			 npy, row->fill);
	assert_int_equal(parse_v2("", text, zattrs, nodes, &err), TB_OK);
}

static void
follows_the_table(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		const Row  *row = &rows[i];
		TbNodes		nodes;
		TbPacking  *packing;

		parse(row, &nodes);
		packing = &only_array(&nodes)->packing;
		if (packing->packed != row->packed || packing->decoded != row->decoded ||
			packing->stat != row->stat || packing->n_sentinels != row->n ||
			packing->scaled != row->scaled)
			fail_msg("v%d %s fill %s {%s}: %s, %s, %s, %d sentinels", row->format, row->type,
					 row->fill, row->attributes, tb_dtype_name(packing->packed),
					 tb_dtype_name(packing->decoded), tb_dtype_name(packing->stat),
					 packing->n_sentinels);
		assert_int_equal(packing->stored, tb_dtype_parse(row->type));
		for (int s = 0; s < row->n; s++)
			if (packing->sentinel[s] != row->sentinel[s])
				fail_msg("v%d %s {%s}: sentinel %d is %llx", row->format, row->type,
						 row->attributes, s, (unsigned long long) packing->sentinel[s]);
		tb_nodes_free(&nodes);
	}
}

static void
reads_scales(void **state)
{
	static const struct { const char *attributes; double scale; double offset; } cases[] = {
		{"\"scale_factor\":0.01,\"add_offset\":273.15", 0.01, 273.15},
		{"\"scale_factor\":[0.01]", 0.01, -0.0},
		{"\"add_offset\":5", 1, 5},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		Row row = {3, "int16", "0", cases[i].attributes, TB_I16, TB_F64, TB_F64, 0, {0}, true};
		TbNodes		nodes;

		parse(&row, &nodes);
		assert_memory_equal(&only_array(&nodes)->packing.scale, &cases[i].scale, sizeof(double));
		assert_memory_equal(&only_array(&nodes)->packing.offset, &cases[i].offset, sizeof(double));
		tb_nodes_free(&nodes);
	}
}

/* The override masks any fill value that there is, or none. */
static void
obeys_the_override(void **state)
{
	static const struct
	{
		int format;
		const char *fill;
		const char *attributes;
		int mask_fill;
		int n;
	} cases[] = {
		{3, "0", "", 1, 1},
		{3, "0", "", 0, 0},
		{2, "-5", DIMS, 0, 0},
		{2, "-5", "", 1, 1},
		{2, "null", DIMS, 1, 0},
		{2, "-5", DIMS ",\"_FillValue\":3", 1, 2},
		{2, "-5", DIMS ",\"_FillValue\":3", 0, 1},
		{2, "-5", DIMS, -1, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		Row			row = {.format = cases[i].format, .type = "int16", .fill = cases[i].fill,
			.attributes = cases[i].attributes};
		TbNodes		nodes;
		TbPacking	packing;
		TbError		err;

		parse(&row, &nodes);
		assert_int_equal(tb_packing_from(only_array(&nodes), cases[i].mask_fill, &packing, &err),
						 TB_OK);
		assert_int_equal(packing.n_sentinels, cases[i].n);
		tb_nodes_free(&nodes);
	}
}

static void
bounds_sentinels(void **state)
{
	Row row = {3, "int16", "0",	 "\"missing_value\":[1,2,3,4,5,6,7,8]", TB_I16, TB_F32, TB_I16,
			   8, {0},	   false};
	TbNodes		nodes;

	parse(&row, &nodes);
	assert_int_equal(only_array(&nodes)->packing.n_sentinels, 8);
	tb_nodes_free(&nodes);
	row.attributes = "\"missing_value\":[1,2,3,4,5,6,7,8],\"_FillValue\":9";
	parse(&row, &nodes);
	assert_array_error(&nodes, TB_E_LIMIT, "at most 8");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(follows_the_table, nothing_left),
		cmocka_unit_test_teardown(reads_scales, nothing_left),
		cmocka_unit_test_teardown(obeys_the_override, nothing_left),
		cmocka_unit_test_teardown(bounds_sentinels, nothing_left),
	};

	return cmocka_run_group_tests_name("zarr packing", tests, NULL, NULL);
}
