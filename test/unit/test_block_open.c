/* Opening arrays and groups: which documents count, what is found above, what is refused and how it
 * says so. */
#include "block_help.h"

#define V3_GROUP "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}"
#define V3_ARRAY \
	"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"int32\",\"fill_" \
	"value\":3," \
	"\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[2]}}," \
	"\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"bytes\"," \
	"\"configuration\":{\"endian\":\"little\"}}]," \
	"\"attributes\":{}}"
#define V2_ARRAY \
	"{\"zarr_format\":2,\"dtype\":\"<i2\",\"shape\":[4],\"chunks\":[2],\"compressor\":null," \
	"\"filters\":null," \
	"\"order\":\"C\",\"fill_value\":9}"

static TbSource *
source_open(TbEngine *engine)
{
	TbSource   *source;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	return source;
}

static TbStatus
try_array(TbEngine *engine, TbSource *source, const char *path, TbError *error)
{
	TbArray    *array;
	TbStatus	status = tb_array_open(source, path, -1, &array, error);

	if (status != TB_OK)
		return status;
	WAIT(engine, status, tb_array_poll(array, error));
	tb_array_unref(array);
	return status;
}

static void
own_documents(void **state)
{
	TbEngine   *engine = engine_open(0);
	TbSource   *source = source_open(engine);
	TbStore    *store = tb_source_store(source);
	TbArray    *array;
	TbError		error;
	TbIoCounters before;

	put_text(store, "zarr.json", V3_GROUP);
	put_text(store, "g/three/zarr.json", V3_ARRAY);
	put_text(store, "g/two/.zarray", V2_ARRAY);
	put_text(store, "g/two/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"x\"],\"scale_factor\":0.5}");
	put_text(store, "odd/zarr.json", "{\"zarr_format\":3,");
	array = array_open(engine, source, "g/three");
	assert_int_equal(tb_array_meta(array)->zarr_format, 3);
	tb_array_unref(array);
	array = array_open(engine, source, "/g/two");	/* the other format than the one seen last */
	assert_int_equal(tb_array_meta(array)->zarr_format, 2);
	assert_string_equal(tb_array_meta(array)->dim_name[0], "x");
	assert_int_equal(tb_array_meta(array)->packing.n_sentinels, 1);
	assert_true(tb_array_meta(array)->packing.scaled);
	tb_array_unref(array);

	/* known: no request; with another rule for the fill value: the documents are known too */
	before = tb_store_counters(store);
	array = array_open(engine, source, "g/two");
	tb_array_unref(array);
	assert_int_equal(tb_store_counters(store).requests, before.requests);
	assert_int_equal(tb_array_open(source, "g/two", 0, &array, &error), TB_OK);
	while (tb_array_poll(array, &error) == TB_AGAIN)
		tb_engine_wait(engine, 100);
	assert_int_equal(tb_array_meta(array)->packing.n_sentinels, 0);
	tb_array_unref(array);
	tb_source_forget(source);
	before = tb_store_counters(store);
	array = array_open(engine, source, "g/two");
	tb_array_unref(array);
	assert_true(tb_store_counters(store).requests > before.requests);

	assert_int_equal(try_array(engine, source, "nothing", &error), TB_E_NO_ARRAY);
	assert_non_null(strstr(error.detail, "nothing"));
	assert_int_equal(try_array(engine, source, "", &error), TB_E_NO_ARRAY);
	assert_non_null(strstr(error.detail, "group"));
	assert_int_equal(try_array(engine, source, "odd", &error), TB_E_JSON);
	assert_int_equal(try_array(engine, source, "g/../g/two", &error), TB_E_INVALID);
	/* what was not there may be written the next moment */
	put_text(store, "nothing/zarr.json", V3_ARRAY);
	assert_int_equal(try_array(engine, source, "nothing", &error), TB_OK);
	tb_source_unref(source);
	tb_engine_free(engine);
}

/* Several that open at the same time share one request a document. */
static void
single_flight(void **state)
{
	TbEngine   *engine = engine_open(0);
	TbSource   *source = source_open(engine);
	TbArray    *array[5];

	put_text(tb_source_store(source), "a/zarr.json", V3_ARRAY);
	for (int i = 0; i < 5; i++)
		assert_int_equal(tb_array_open(source, "a", i % 2 - 1, &array[i], NULL), TB_OK);
	for (int i = 0; i < 5; i++)
	{
		while (tb_array_poll(array[i], NULL) == TB_AGAIN)
			tb_engine_wait(engine, 100);
		assert_int_equal(tb_array_poll(array[i], NULL), TB_OK);
		tb_array_unref(array[i]);
	}
	assert_int_equal(tb_store_counters(tb_source_store(source)).requests, 3);
	/* left before it is open */
	assert_int_equal(tb_array_open(source, "b", -1, &array[0], NULL), TB_OK);
	tb_array_unref(array[0]);
	tb_source_unref(source);
	tb_engine_free(engine);
}

static void
consolidated_above(void **state)
{
	TbEngine   *engine = engine_open(0);
	TbSource   *source = source_open(engine);
	TbStore    *store = tb_source_store(source);
	TbArray    *array;
	TbGroup    *group;
	TbError		error;
	TbStatus	status;

	put_text(
		store, "v3/zarr.json",
		"{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{},\"consolidated_metadata\":"
		"{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{\"g\":" V3_GROUP
		",\"g/a\":" V3_ARRAY "}}}");
	put_text(store, "v2/.zmetadata",
			 "{\"zarr_consolidated_format\":1,\"metadata\":{\".zgroup\":{\"zarr_format\":2},"
			 "\"g/.zgroup\":{\"zarr_format\":2},\"g/a/.zarray\":" V2_ARRAY
			 ",\"other/.zarray\":" V2_ARRAY "}}");
	array = array_open(engine, source, "v3/g/a");
	assert_int_equal(tb_array_meta(array)->fill[0], 3);
	tb_array_unref(array);
	array = array_open(engine, source, "v2/g/a");
	assert_int_equal(tb_array_meta(array)->fill[0], 9);
	tb_array_unref(array);
	assert_int_equal(try_array(engine, source, "v2/g/b", &error), TB_E_NO_ARRAY);

	/* a whole group of it; and one further down, whose own documents are not there */
	assert_int_equal(tb_group_open(source, "v2", &group, NULL), TB_OK);
	WAIT(engine, status, tb_group_poll(group, &error));
	assert_ok(status, error);
	assert_int_equal(tb_group_nodes(group)->n, 4);
	assert_string_equal(tb_group_nodes(group)->node[2].path, "v2/g/a");
	tb_group_free(group);
	assert_int_equal(tb_group_open(source, "v2/g", &group, NULL), TB_OK);
	WAIT(engine, status, tb_group_poll(group, &error));
	assert_ok(status, error);
	assert_int_equal(tb_group_nodes(group)->n, 2);
	tb_group_free(group);
	tb_source_unref(source);
	tb_engine_free(engine);
}

static void
walks(void **state)
{
	TbEngine   *engine = engine_open(0);
	TbSource   *source = source_open(engine);
	TbStore    *store = tb_source_store(source);
	TbGroup    *group;
	TbError		error;
	TbStatus	status;
	const TbNodes *nodes;
	char		key[64];

	/* groups with and without documents, both formats, an array in error, chunks that are no nodes
	 */
	put_text(store, "zarr.json", V3_GROUP);
	put_text(store, "b/zarr.json", V3_ARRAY);
	put_text(store, "b/c/0", "12345678");
	put_text(store, "a/deep/er/.zarray", V2_ARRAY);
	put_text(store, "a/deep/er/0", "1234");
	put_text(store, "bad/zarr.json", "{]");
	for (int i = 0; i < 40; i++)
	{
		snprintf(key, sizeof(key), "many/x%02d/zarr.json", i);
		put_text(store, key, V3_ARRAY);
	}
	assert_int_equal(tb_group_open(source, "", &group, NULL), TB_OK);
	WAIT(engine, status, tb_group_poll(group, &error));
	assert_ok(status, error);
	nodes = tb_group_nodes(group);
	assert_int_equal(nodes->n, 4 + 40);
	assert_string_equal(nodes->node[0].path, "");
	assert_true(nodes->node[0].is_group);
	assert_string_equal(nodes->node[1].path, "a/deep/er");
	assert_string_equal(nodes->node[2].path, "b");
	assert_string_equal(nodes->node[3].path, "bad");
	assert_int_equal(nodes->node[3].status, TB_E_JSON);
	assert_string_equal(nodes->node[43].path, "many/x39");
	tb_group_free(group);

	/* ended in the middle */
	for (int steps = 0; steps < 6; steps++)
	{
		assert_int_equal(tb_group_open(source, "many", &group, NULL), TB_OK);
		for (int i = 0; i < steps; i++)
			tb_engine_pump(engine);
		tb_group_free(group);
	}
	tb_source_unref(source);
	tb_engine_free(engine);
}

static void
not_zarr(void **state)
{
	static const struct
	{
		const char *key;
		TbStatus	status;
		const char *word;
	}			cases[] = {
		{"s/attributes.json", TB_E_UNSUPPORTED, "N5"},
		{"s/repo", TB_E_UNSUPPORTED, "icechunk"},
		{"s/refs/branch.main/ref.json", TB_E_UNSUPPORTED, "icechunk"},
		{"s/readme", TB_E_NO_GROUP, "not a Zarr"},
		{"elsewhere", TB_E_NOT_FOUND, "does not exist"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		TbEngine   *engine = engine_open(0);
		TbSource   *source = source_open(engine);
		TbGroup    *group;
		TbError		error;
		TbStatus	status;

		put_text(tb_source_store(source), cases[i].key, "{}");
		assert_int_equal(tb_group_open(source, "s", &group, NULL), TB_OK);
		WAIT(engine, status, tb_group_poll(group, &error));
		assert_int_equal(status, cases[i].status);
		assert_non_null(strstr(error.message, cases[i].word));
		assert_true(error.hint[0] != '\0');
		tb_group_free(group);
		tb_source_unref(source);
		tb_engine_free(engine);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_documents),
		cmocka_unit_test(single_flight),
		cmocka_unit_test(consolidated_above),
		cmocka_unit_test(walks),
		cmocka_unit_test(not_zarr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
