/* Fill values in every spelling, bit for bit, for both formats. */
#include "zarr_help.h"

#include <math.h>
#include <stdio.h>

typedef struct Row
{
	const char *type;
	const char *fill;			/* as in the document */
	uint64_t	bits;			/* of the element, low bytes */
	TbStatus	status;
} Row;

static const Row rows[] = {
	{"float32", "0", 0, TB_OK},
	{"float32", "1.5", 0x3fc00000, TB_OK},
	{"float32", "-0.0", 0x80000000, TB_OK},
	{"float32", "1e20", 0x60ad78ec, TB_OK},
	{"float32", "9.969209968386869e36", 0x7cf00000, TB_OK},
	{"float32", "-1.7976931348623157e308", 0xff800000, TB_OK},
	{"float32", "\"NaN\"", 0x7fc00000, TB_OK},
	{"float32", "NaN", 0x7fc00000, TB_OK},
	{"float32", "\"Infinity\"", 0x7f800000, TB_OK},
	{"float32", "\"-Infinity\"", 0xff800000, TB_OK},
	{"float32", "-Infinity", 0xff800000, TB_OK},
	{"float32", "\"0x7fc00001\"", 0x7fc00001, TB_OK},
	{"float32", "\"0xFFC00000\"", 0xffc00000, TB_OK},
	{"float32", "\"0x7f800001\"", 0x7f800001, TB_OK},
	{"float32", "\"0x7fc0\"", 0, TB_E_TEXT},
	{"float32", "\"0x7fc0000000000000\"", 0, TB_E_TEXT},
	{"float32", "\"0x7fc0000g\"", 0, TB_E_TEXT},
	{"float32", "\"AADAfw==\"", 0x7fc00000, TB_OK},
	{"float32", "\"AAAAAAAA+H8=\"", 0x7fc00000, TB_OK},
	{"float32", "\"AAAAAAAAWUA=\"", 0x42c80000, TB_OK},
	{"float32", "\"AADAfw=\"", 0, TB_E_TEXT},
	{"float32", "\"AADAfx==\"", 0, TB_E_TEXT},
	{"float32", "\"AADA\"", 0, TB_E_TEXT},
	{"float32", "\"0\"", 0, TB_OK},
	{"float32", "\"-9999.0\"", 0xc61c3c00, TB_OK},
	{"float32", "[2]", 0x40000000, TB_OK},
	{"float32", "[1,2]", 0, TB_E_TEXT},
	{"float32", "true", 0, TB_E_TEXT},
	{"float32", "\"nothing\"", 0, TB_E_TEXT},
	{"float32", "{}", 0, TB_E_TEXT},
	{"float64", "0.1", 0x3fb999999999999a, TB_OK},
	{"float64", "\"0x7ff8000000000001\"", 0x7ff8000000000001, TB_OK},
	{"float64", "\"NaN\"", 0x7ff8000000000000, TB_OK},
	{"float64", "1e400", 0x7ff0000000000000, TB_OK},
	{"float16", "1.5", 0x3e00, TB_OK},
	{"float16", "65504", 0x7bff, TB_OK},
	{"float16", "\"0x7e01\"", 0x7e01, TB_OK},
	{"float16", "\"NaN\"", 0x7e00, TB_OK},
	{"float16", "1.00048828126", 0x3c01, TB_OK},	/* just above a tie, which float hides */
	{"float16", "1.00048828125", 0x3c00, TB_OK},
	{"float16", "\"0x7fc00000\"", 0, TB_E_TEXT},
	{"int8", "-128", 0x80, TB_OK},
	{"int8", "127.0", 0x7f, TB_OK},
	{"int8", "128", 0, TB_E_TEXT},
	{"int8", "-129", 0, TB_E_TEXT},
	{"int8", "0.5", 0, TB_E_TEXT},
	{"int8", "\"NaN\"", 0, TB_E_TEXT},
	{"int16", "-32768", 0x8000, TB_OK},
	{"int16", "\"-5\"", 0xfffb, TB_OK},
	{"int16", "\"0x0001\"", 0, TB_E_TEXT},
	{"int32", "[-32767]", 0xffff8001, TB_OK},
	{"int32", "2147483648", 0, TB_E_TEXT},
	{"int64", "-9223372036854775808", 0x8000000000000000, TB_OK},
	{"int64", "9223372036854775807", 0x7fffffffffffffff, TB_OK},
	{"int64", "9007199254740993", 0x20000000000001, TB_OK},
	{"int64", "\"9007199254740993\"", 0x20000000000001, TB_OK},
	{"int64", "9223372036854775808", 0, TB_E_TEXT},
	{"uint64", "18446744073709551615", 0xffffffffffffffff, TB_OK},
	{"uint64", "18446744073709551616", 0, TB_E_TEXT},
	{"uint64", "-1", 0, TB_E_TEXT},
	{"uint8", "255", 0xff, TB_OK},
	{"uint8", "256", 0, TB_E_TEXT},
	{"uint8", "false", 0, TB_E_TEXT},
	{"uint8", "\"/w==\"", 0xff, TB_OK},
	{"uint16", "\"AQI=\"", 0x0201, TB_OK},
	{"bool", "true", 1, TB_OK},
	{"bool", "false", 0, TB_OK},
	{"bool", "0", 0, TB_OK},
	{"bool", "1.0", 1, TB_OK},
	{"bool", "2", 0, TB_E_TEXT},
	{"bool", "\"true\"", 0, TB_E_TEXT},
};

static uint64_t
bits_of(const TbArrayMeta *meta)
{
	uint64_t	bits = 0;

	switch (tb_dtype_size(meta->dtype))
	{
		case 1:
			return meta->fill[0];
		case 2:
		{
			uint16_t	u16;

			memcpy(&u16, meta->fill, 2);
			return u16;
		}
		case 4:
		{
			uint32_t	u32;

			memcpy(&u32, meta->fill, 4);
			return u32;
		}
		default:
			memcpy(&bits, meta->fill, 8);
			return bits;
	}
}

static void
check(TbNodes *nodes, const Row *row)
{
	if (row->status != TB_OK)
	{
		if (nodes->node[0].status != row->status)
			fail_msg("%s: %s is taken", row->type, row->fill);
		assert_array_error(nodes, row->status, row->type);
		return;
	}
	if (nodes->node[0].status != TB_OK)
		fail_msg("%s: %s is not taken", row->type, row->fill);
	if (bits_of(only_array(nodes)) != row->bits)
		fail_msg("%s: %s became %llx", row->type, row->fill,
				 (unsigned long long) bits_of(only_array(nodes)));
	assert_false(only_array(nodes)->fill_is_null);
	tb_nodes_free(nodes);
}

static void
reads_v3(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		char		text[1024];
		TbNodes		nodes = {0};
		TbError		err;

		snprintf(text, sizeof(text),
				 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[1],\"data_type\":\"%s\","
				 "\"chunk_grid\":{\"name\":"
				 "\"regular\",\"configuration\":{\"chunk_shape\":[1]}},\"chunk_key_encoding\":"
				 "\"default\",\"fill_value\":%s,"
				 "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"big\"}}]}",
				 rows[i].type, rows[i].fill);
		assert_int_equal(parse_v3("", text, &nodes, &err), TB_OK);
		check(&nodes, &rows[i]);
	}
}

static void
reads_v2(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		char		text[1024];
		const char *npy = tb_dtype_npy(tb_dtype_parse(rows[i].type));
		TbNodes		nodes = {0};
		TbError		err;

		snprintf(text, sizeof(text),
				 "{\"zarr_format\":2,\"shape\":[1],\"chunks\":[1],\"dtype\":\"%c%s\",\"order\":"
				 "\"C\",\"filters\":null,"
				 "\"compressor\":null,\"fill_value\":%s}",
				 npy[0] == '|' ? '|' : '>', npy + 1, rows[i].fill);
		assert_int_equal(parse_v2("", text, NULL, &nodes, &err), TB_OK);
		check(&nodes, &rows[i]);
	}
}

static void
reads_null(void **state)
{
	TbNodes		nodes = {0};
	TbError		err;

	assert_int_equal(parse_v2("",
							  "{\"zarr_format\":2,\"shape\":[1],\"chunks\":[1],\"dtype\":\"<f8\","
							  "\"fill_value\":null}",
							  NULL, &nodes, &err),
					 TB_OK);
	assert_true(only_array(&nodes)->fill_is_null);
	assert_int_equal(bits_of(only_array(&nodes)), 0);
	tb_nodes_free(&nodes);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(reads_v3, nothing_left),
		cmocka_unit_test_teardown(reads_v2, nothing_left),
		cmocka_unit_test_teardown(reads_null, nothing_left),
	};

	return cmocka_run_group_tests_name("zarr fill values", tests, NULL, NULL);
}
