/* Grids: frames, block numbers, bounds of coordinates of every kind. Drafts: which tables an import
 * makes. */
#include "block_help.h"

#include <math.h>

/* A v3 array of one chunk shape with its data; dims: JSON list, attrs: JSON members. */
static void
put_array(TbStore *store, const char *path, const char *dtype, const char *shape, const char *chunk,
		  const char *dims, const char *attrs)
{
	char		text[2000];
	char		key[200];

	snprintf(text, sizeof(text),
			 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":%s,\"data_type\":\"%s\","
			 "\"fill_value\":0,\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_"
			 "shape\":%s}},"
			 "\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"bytes\","
			 "\"configuration\":"
			 "{\"endian\":\"little\"}}],\"dimension_names\":%s,\"attributes\":{%s}}",
			 shape, dtype, chunk, dims, attrs);
	snprintf(key, sizeof(key), "%s/zarr.json", path);
	put_text(store, key, text);
}

static void
put_chunk(TbStore *store, const char *key, const void *bytes, size_t len)
{
	put_bytes(store, key, bytes, len);
}

/* time 5 (chunks of 2), lat 4 descending with a NaN, lon 3 without coordinate, in group g; lat in
 * the root. */
static void
put_weather(TbStore *store)
{
	int64_t		time[6] = {0, 6, 12, 18, 24, 0};
	double		lat[4] = {90, 30, NAN, -90};
	float		lat2[12];

	put_text(store, "zarr.json", "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}");
	put_array(store, "g/t2m", "int16", "[5,4,3]", "[2,2,3]", "[\"time\",\"lat\",\"lon\"]",
			  "\"coordinates\":\"lat2 label\"");
	put_array(store, "g/u10", "int16", "[5,4,3]", "[2,2,3]", "[\"time\",\"lat\",\"lon\"]", "");
	put_array(store, "g/v10", "int16", "[5,4,3]", "[5,4,3]", "[\"time\",\"lat\",\"lon\"]", "");
	put_array(store, "g/time", "int64", "[5]", "[6]", "[\"time\"]",
			  "\"units\":\"hours since 1970-01-02\"");
	put_chunk(store, "g/time/c/0", time, sizeof(time));
	put_array(store, "lat", "float64", "[4]", "[4]", "[\"lat\"]", "\"units\":\"degrees_north\"");
	put_chunk(store, "lat/c/0", lat, sizeof(lat));
	for (int i = 0; i < 12; i++)
		lat2[i] = (float) (i % 5) - 2;
	put_array(store, "g/lat2", "float32", "[4,3]", "[4,3]", "[\"lat\",\"lon\"]", "");
	put_chunk(store, "g/lat2/c/0/0", lat2, sizeof(lat2));
	put_array(store, "g/label", "string", "[4]", "[4]", "[\"lat\"]", "");
	put_array(store, "g/lon", "string", "[3]", "[3]", "[\"lon\"]", "");
}

static TbStatus
grid_open(TbEngine *engine, TbSource *source, const TbGridSpec *spec, TbGrid **grid, TbError *error)
{
	TbStatus	status = tb_grid_open(source, spec, grid, error);

	if (status != TB_OK)
		return status;
	WAIT(engine, status, tb_grid_poll(*grid, error));
	if (status != TB_OK)
		tb_grid_unref(*grid);
	return status;
}

static const char *const three[] = {"t2m", "u10", "v10"};
static const char *const aux[] = {"lat2", "label"};

static void
check_dims(const TbGridInfo *info)
{
	const TbCoord *time = &info->coord[0];
	const TbCoord *lat = &info->coord[1];
	const TbCoord *lon = &info->coord[2];

	assert_int_equal(time->kind, TB_COORD_TIME);
	assert_int_equal(time->n_cells, 3);
	assert_int_equal(time->lo[0].i64, INT64_C(86400000000));
	assert_int_equal(time->hi[0].i64, INT64_C(86400000000) * 5 / 4);
	assert_int_equal(time->lo[2].i64, INT64_C(86400000000) * 2);
	assert_int_equal(time->hi[2].i64, INT64_C(86400000000) * 2);
	assert_int_equal(time->n_values, 5);
	assert_int_equal(time->value[3].i64, INT64_C(86400000000) * 7 / 4);
	assert_int_equal(lat->kind, TB_COORD_FLOAT);
	assert_string_equal(lat->units, "degrees_north");
	assert_true(lat->lo[0].f64 == 30 && lat->hi[0].f64 == 90);
	assert_true(lat->lo[1].f64 == -90 && lat->hi[1].f64 == -90 && !lat->null[1]);
	assert_true(lat->value_null[2] && !lat->value_null[3]);
	assert_int_equal(lon->kind, TB_COORD_INDEX);	/* text is no coordinate here */
	assert_int_equal(lon->lo[0].i64, 0);
	assert_int_equal(lon->hi[0].i64, 2);
	assert_null(lon->meta);
}

static void
frame_and_bounds(void **state)
{
	TbEngine   *engine = engine_open(0);
	TbGridSpec	spec = {.group = "g", .n_arrays = 3, .array = three, .n_aux = 2, .aux = aux};
	TbSource   *source;
	TbGrid	   *grid;
	const TbGridInfo *info;
	const TbCoord *lat2;
	TbRegion	region;
	TbError		error;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	put_weather(tb_source_store(source));
	assert_ok(grid_open(engine, source, &spec, &grid, &error), error);
	info = tb_grid_info(grid);
	assert_int_equal(info->ndim, 3);
	assert_int_equal(info->cell[0], 2);
	assert_int_equal(info->n_blocks, 3 * 2 * 1);
	assert_int_equal(info->order[0], 0);
	assert_int_equal(info->n_arrays, 3);
	assert_int_equal(info->n_coords, 4);	/* the text one is left out */
	check_dims(info);
	lat2 = &info->coord[3];
	assert_string_equal(lat2->name, "lat2");
	assert_false(lat2->is_dim);
	assert_int_equal(lat2->n_cells, 2);
	assert_true(lat2->lo[0].f64 == -2 && lat2->hi[0].f64 == 2);
	assert_true(lat2->lo[1].f64 == -2 && lat2->hi[1].f64 == 2);
	for (uint64_t block = 0; block < info->n_blocks; block++)
	{
		uint64_t	index[TB_MAX_DIM];

		tb_grid_block_index(info, block, index);
		assert_int_equal(tb_grid_block_number(info, index), block);
		assert_int_equal(tb_coord_cell(lat2, index), index[1]);
		tb_grid_block_region(info, index, &region);
		assert_int_equal(region.count[0], index[0] == 2 ? 1 : 2);
		assert_int_equal(region.count[2], 3);
	}
	tb_grid_unref(grid);
	tb_source_unref(source);
	tb_engine_free(engine);
}

static void
cells_and_errors(void **state)
{
	TbEngine   *engine = engine_open(0);
	uint64_t	cell[3] = {5, 3, 1};
	TbGridSpec spec = {.group = "g",
					   .n_arrays = 1,
					   .array = three,
					   .n_cell = 3,
					   .cell = cell,
					   .append_dim = "lat"};
	static const char *const mixed[] = {"t2m", "lat2"};
	static const char *const absent[] = {"t2m", "nothing"};
	TbSource   *source;
	TbGrid	   *grid;
	const TbGridInfo *info;
	uint64_t	index[TB_MAX_DIM];
	TbError		error;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	put_weather(tb_source_store(source));
	assert_ok(grid_open(engine, source, &spec, &grid, &error), error);
	info = tb_grid_info(grid);
	assert_int_equal(info->n_blocks, 1 * 2 * 3);
	assert_int_equal(info->order[0], 1);
	tb_grid_block_index(info, 4, index);
	assert_int_equal(index[1], 1);
	assert_int_equal(index[2], 1);
	assert_true(info->coord[1].lo[0].f64 == 30 && info->coord[1].hi[0].f64 == 90);
	tb_grid_unref(grid);

	spec.append_dim = "depth";
	assert_int_equal(grid_open(engine, source, &spec, &grid, &error), TB_E_INVALID);
	assert_non_null(strstr(error.detail, "depth"));
	spec.append_dim = NULL;
	spec.n_cell = 2;
	assert_int_equal(grid_open(engine, source, &spec, &grid, &error), TB_E_INVALID);
	cell[1] = 0;
	spec.n_cell = 3;
	assert_int_equal(grid_open(engine, source, &spec, &grid, &error), TB_E_INVALID);
	spec.n_cell = 0;
	spec.n_arrays = 2;
	spec.array = mixed;
	assert_int_equal(grid_open(engine, source, &spec, &grid, &error), TB_E_INVALID);
	assert_non_null(strstr(error.detail, "lat2"));
	spec.array = absent;
	assert_int_equal(grid_open(engine, source, &spec, &grid, &error), TB_E_NO_ARRAY);
	/* a coordinate that is there but broken is an error, not an index range */
	spec.n_arrays = 1;
	put_chunk(tb_source_store(source), "lat/c/0", "short", 5);
	tb_source_forget(source);
	assert_int_equal(grid_open(engine, source, &spec, &grid, &error), TB_E_CORRUPT);
	assert_non_null(strstr(error.detail, "lat"));
	/* ended in the middle */
	for (int steps = 0; steps < 8; steps++)
	{
		tb_source_forget(source);
		assert_int_equal(tb_grid_open(source, &spec, &grid, NULL), TB_OK);
		for (int i = 0; i < steps && tb_grid_poll(grid, &error) == TB_AGAIN; i++)
			tb_engine_pump(engine);
		tb_grid_unref(grid);
	}
	tb_source_unref(source);
	tb_engine_free(engine);
}

/* Kinds: integers beyond int64, times out of range or in other calendars, nothing valid, masked
 * integers. */
static void
kinds(void **state)
{
	TbEngine   *engine = engine_open(0);
	static const char *const v[] = {"v"};
	TbGridSpec	spec = {.group = "", .n_arrays = 1, .array = v};
	uint64_t	a[2] = {1, UINT64_C(1) << 63};
	double		b[2] = {0.5, 1e300};
	int32_t		c[2] = {73020, 73021};
	float		d[2] = {NAN, NAN};
	int16_t		e[2] = {-9, 4};
	uint8_t		f[2] = {1, 0};
	TbSource   *source;
	TbStore    *store;
	TbGrid	   *grid;
	const TbCoord *coord;
	TbError		error;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	store = tb_source_store(source);
	put_array(store, "v", "int8", "[2,2,2,2,2,2]", "[2,2,2,2,2,2]",
			  "[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"]", "");
	put_array(store, "a", "uint64", "[2]", "[2]", "[\"a\"]", "");
	put_array(store, "b", "float64", "[2]", "[2]", "[\"b\"]",
			  "\"units\":\"days since 2000-01-01\"");
	put_array(store, "c", "int32", "[2]", "[2]", "[\"c\"]",
			  "\"units\":\"days since 0-1-1\",\"calendar\":\"noleap\"");
	put_array(store, "d", "float32", "[2]", "[2]", "[\"d\"]", "");
	put_array(store, "e", "int16", "[2]", "[2]", "[\"e\"]", "\"_FillValue\":-9");
	put_array(store, "f", "uint8", "[2]", "[2]", "[\"f\"]", "");
	put_chunk(store, "a/c/0", a, sizeof(a));
	put_chunk(store, "b/c/0", b, sizeof(b));
	put_chunk(store, "c/c/0", c, sizeof(c));
	put_chunk(store, "d/c/0", d, sizeof(d));
	put_chunk(store, "e/c/0", e, sizeof(e));
	put_chunk(store, "f/c/0", f, sizeof(f));
	assert_ok(grid_open(engine, source, &spec, &grid, &error), error);
	coord = tb_grid_info(grid)->coord;
	assert_int_equal(coord[0].kind, TB_COORD_FLOAT);
	assert_true(coord[0].hi[0].f64 == 9223372036854775808.0);
	assert_int_equal(coord[1].kind, TB_COORD_FLOAT);
	assert_true(coord[1].lo[0].f64 == 0.5);
	assert_int_equal(coord[2].kind, TB_COORD_INT);
	assert_int_equal(coord[2].lo[0].i64, 73020);
	assert_true(coord[3].null[0]);
	assert_int_equal(coord[4].kind, TB_COORD_FLOAT);
	assert_true(coord[4].lo[0].f64 == 4 && coord[4].hi[0].f64 == 4 && coord[4].value_null[0]);
	assert_int_equal(coord[5].kind, TB_COORD_INT);
	assert_int_equal(coord[5].lo[0].i64, 0);
	tb_grid_unref(grid);
	tb_source_unref(source);
	tb_engine_free(engine);
}

/* ---- drafts ---- */

static const TbNodes *
nodes_of(TbEngine *engine, TbSource *source, TbGroup **group)
{
	TbStatus	status;
	TbError		error;

	assert_int_equal(tb_group_open(source, "", group, NULL), TB_OK);
	WAIT(engine, status, tb_group_poll(*group, &error));
	assert_ok(status, error);
	return tb_group_nodes(*group);
}

static const TbGridDraft *
draft_named(const TbGridDrafts *drafts, const char *table)
{
	for (size_t i = 0; i < drafts->n; i++)
		if (strcmp(drafts->draft[i].table, table) == 0)
			return &drafts->draft[i];
	fail_msg("no draft named %s", table);
	return NULL;
}

static void
drafts_of_a_store(void **state)
{
	TbEngine   *engine = engine_open(0);
	TbSource   *source;
	TbGroup    *group;
	TbGridDrafts drafts;
	const TbGridDraft *draft;
	TbStore    *store;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	store = tb_source_store(source);
	put_weather(store);
	put_array(store, "g/bounds", "float64", "[5,2]", "[5,2]", "[\"time\",\"nv\"]", "");
	put_array(store, "g/crs", "int32", "[]", "[]", "[]", "");
	put_array(store, "orog", "float32", "[4,3]", "[4,3]", "[\"lat\",\"lon\"]", "");
	put_array(store, "x/y/w", "float32", "[7]", "[7]", "[null]", "");
	put_array(store, "x_y/w", "float32", "[7]", "[7]", "[null]", "");
	assert_int_equal(tb_grid_drafts(nodes_of(engine, source, &group), "", "era5", &drafts, NULL),
					 TB_OK);
	assert_int_equal(drafts.n, 5);
	draft = draft_named(&drafts, "g_time_lat_lon");
	assert_string_equal(draft->group, "g");
	assert_int_equal(draft->n_arrays, 3);
	assert_string_equal(draft->array[0]->path, "g/t2m");
	assert_string_equal(draft->array[2]->path, "g/v10");
	assert_int_equal(draft->n_aux, 1);
	assert_string_equal(draft->aux[0]->path, "g/lat2");
	assert_string_equal(draft->coord[0]->path, "g/time");
	assert_string_equal(draft->coord[1]->path, "lat");
	assert_null(draft->coord[2]);
	assert_int_equal(draft_named(&drafts, "g_time_nv")->n_arrays, 1);
	assert_string_equal(draft_named(&drafts, "era5")->array[0]->path, "orog");
	assert_string_equal(draft_named(&drafts, "x_y")->array[0]->path, "x/y/w");
	assert_string_equal(draft_named(&drafts, "x_y_2")->array[0]->path, "x_y/w");
	tb_grid_drafts_free(&drafts);

	/* the same for a part of the store: names are relative to it */
	assert_int_equal(tb_grid_drafts(tb_group_nodes(group), "x", "other", &drafts, NULL), TB_OK);
	assert_string_equal(draft_named(&drafts, "y")->array[0]->path, "x/y/w");
	tb_grid_drafts_free(&drafts);
	tb_group_free(group);
	tb_source_unref(source);
	tb_engine_free(engine);
}

static void
drafts_of_little(void **state)
{
	TbEngine   *engine = engine_open(0);
	TbSource   *source;
	TbGroup    *group;
	TbGridDrafts drafts;
	TbStore    *store;

	/* a coordinate alone; a scalar beside it makes no table */
	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	store = tb_source_store(source);
	put_array(store, "time", "int64", "[5]", "[6]", "[\"time\"]", "");
	put_array(store, "crs", "int32", "[]", "[]", "[]", "");
	assert_int_equal(tb_grid_drafts(nodes_of(engine, source, &group), "", "s", &drafts, NULL),
					 TB_OK);
	assert_int_equal(drafts.n, 1);
	assert_string_equal(drafts.draft[0].array[0]->path, "time");
	tb_grid_drafts_free(&drafts);
	tb_group_free(group);
	/* but not where the data is there and cannot be used */
	put_array(store, "names", "string", "[5]", "[5]", "[\"time\"]", "");
	assert_int_equal(tb_grid_drafts(nodes_of(engine, source, &group), "", "s", &drafts, NULL),
					 TB_OK);
	assert_int_equal(drafts.n, 0);
	tb_grid_drafts_free(&drafts);
	tb_group_free(group);
	tb_source_unref(source);

	/* a scalar alone, which is the root itself */
	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	put_array(tb_source_store(source), "one", "int32", "[]", "[]", "[]", "");
	assert_int_equal(tb_group_open(source, "one", &group, NULL), TB_OK);
	while (tb_group_poll(group, NULL) == TB_AGAIN)
		tb_engine_wait(engine, 100);
	assert_int_equal(tb_grid_drafts(tb_group_nodes(group), "one", "s", &drafts, NULL), TB_OK);
	assert_int_equal(drafts.n, 1);
	assert_string_equal(drafts.draft[0].table, "s");
	assert_string_equal(drafts.draft[0].group, "");
	tb_grid_drafts_free(&drafts);
	tb_group_free(group);
	tb_source_unref(source);
	tb_engine_free(engine);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frame_and_bounds),
		cmocka_unit_test(cells_and_errors),
		cmocka_unit_test(kinds),
		cmocka_unit_test(drafts_of_a_store),
		cmocka_unit_test(drafts_of_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
