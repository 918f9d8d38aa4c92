/* Every allocation fails in turn, from opening a group to decoding a region: NOMEM, nothing left,
 * no wrong value. */
#include "block_help.h"

#define WEATHER_V \
	"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[8,8],\"data_type\":\"int32\",\"fill_" \
	"value\":-77," \
	"\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[4,4]}}," \
	"\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"bytes\"," \
	"\"configuration\":{\"endian\":\"little\"}}]," \
	"\"dimension_names\":[\"y\",\"x\"],\"attributes\":{\"coordinates\":\"area\"}}"
#define AXIS_Y \
	"{\"zarr_format\":2,\"dtype\":\"<f8\",\"shape\":[8],\"chunks\":[8],\"compressor\":null," \
	"\"filters\":null," \
	"\"order\":\"C\",\"fill_value\":null}"

typedef struct World
{
	TbEngine   *engine;
	TbSource   *source;
	Sample		sample;
} World;

#define POLL(status, call) \
	while (((status) = (call)) == TB_AGAIN) \
		tb_engine_wait(world->engine, 100)

static TbStatus
read_region(World *world)
{
	TbRegion	region = {.ndim = 2, .start = {1, 1}, .count = {14, 14}};
	TbTreatment wide = {.raw = true, .cast = TB_F64};
	double		got[14 * 14];
	TbArray    *array;
	TbFetch    *fetch = NULL;
	TbStatus	status = tb_array_open(world->source, "a/b", -1, &array, NULL);

	if (status != TB_OK)
		return status;
	POLL(status, tb_array_poll(array, NULL));
	if (status == TB_OK)
		status = tb_fetch_open(array, &region, &fetch, NULL);
	if (status == TB_OK)
		POLL(status, tb_fetch_poll(fetch, NULL));
	if (status == TB_OK)
		status = tb_fetch_decode(fetch, wide, got, sizeof(got), NULL);
	for (uint64_t i = 0; i < 14 * 14 && status == TB_OK; i++)
	{
		uint64_t	index[2] = {1 + i / 14, 1 + i % 14};

		assert_true(got[i] == sample_at(&world->sample, index));
	}
	tb_fetch_free(fetch);
	tb_array_unref(array);
	return status;
}

static TbStatus
import(World *world)
{
	TbGroup    *group;
	TbGridDrafts drafts;
	TbStatus	status = tb_group_open(world->source, "w", &group, NULL);

	if (status != TB_OK)
		return status;
	POLL(status, tb_group_poll(group, NULL));
	if (status == TB_OK)
		status = tb_grid_drafts(tb_group_nodes(group), "w", "s", &drafts, NULL);
	if (status == TB_OK)
	{
		/* an array that could not be parsed for want of memory is a node in error */
		if (tb_group_nodes(group)->n == 5 && drafts.n == 0)
			status = TB_E_NOMEM;
		tb_grid_drafts_free(&drafts);
	}
	tb_group_free(group);
	return status;
}

static TbStatus
open_grid(World *world)
{
	static const char *const v[] = {"v"};
	static const char *const aux[] = {"area"};
	TbGridSpec spec = {
		.group = "w", .n_arrays = 1, .array = v, .n_aux = 1, .aux = aux, .append_dim = "x"};
	TbGrid	   *grid;
	TbStatus	status = tb_grid_open(world->source, &spec, &grid, NULL);

	if (status != TB_OK)
		return status;
	POLL(status, tb_grid_poll(grid, NULL));
	if (status == TB_OK)
	{
		assert_int_equal(tb_grid_info(grid)->n_coords, 3);
		assert_true(tb_grid_info(grid)->coord[0].hi[1].f64 == 0);
	}
	tb_grid_unref(grid);
	return status;
}

static void
torture(TbStatus (*work) (World *))
{
	World		world = {.engine = engine_open(0)};
	int			failed = 0;

	world.sample = (Sample){.path = "a/b",
							.zstd = true,
							.index_crc = true,
							.separator = '/',
							.ndim = 2,
							.shape = {16, 16},
							.chunk = {4, 4},
							.n_levels = 2,
							.shard = {{16, 16}, {8, 8}},
							.missing_percent = 20,
							.seed = 5};
	assert_int_equal(tb_source_open_mem(world.engine, &world.source, NULL), TB_OK);
	sample_build(&world.sample, tb_source_store(world.source));
	put_text(tb_source_store(world.source), "w/zarr.json",
			 "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}");
	put_text(tb_source_store(world.source), "w/v/zarr.json", WEATHER_V);
	put_text(tb_source_store(world.source), "w/area/zarr.json", WEATHER_V);
	put_text(tb_source_store(world.source), "w/y/.zarray", AXIS_Y);
	put_text(tb_source_store(world.source), "w/y/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"y\"]}");
	assert_int_equal(work(&world), TB_OK);	/* the thread's scratch is made */
	tb_source_forget(world.source);
	for (uint64_t n = 1; n < 5000; n++)
	{
		TbStatus	status;

		tb_mem_fail_after(n);
		status = work(&world);
		if (tb_mem_fail_after(0) < n)
		{
			assert_int_equal(status, TB_OK);
			assert_true(failed > 20);
			break;
		}
		/* a table that could not grow is only slower: such a failure may go unseen */
		assert_true(status == TB_E_NOMEM || status == TB_OK);
		failed += status == TB_E_NOMEM;
		/* nothing known is kept, so that the next round asks for everything again */
		tb_source_forget(world.source);
	}
	tb_source_unref(world.source);
	tb_engine_free(world.engine);
	sample_free(&world.sample);
}

static void
fetches(void **state)
{
	torture(read_region);
}

static void
imports(void **state)
{
	torture(import);
}

static void
grids(void **state)
{
	torture(open_grid);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fetches),
		cmocka_unit_test(imports),
		cmocka_unit_test(grids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
