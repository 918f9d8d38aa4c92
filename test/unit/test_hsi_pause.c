/* A scan that finds nothing for long lets its host look around: AGAIN, though nothing is waited for. */
#include "block_help.h"
#include "hsi/hsi.h"

#define SIDE 600				/* blocks along each of two axes */

static TbGrid *
open_grid(TbEngine *engine, TbSource *source)
{
	static const char *const array[] = {"m"};
	TbGridSpec	spec = {.group = "", .n_arrays = 1, .array = array};
	TbGrid	   *grid;
	TbError		error;
	TbStatus	status;

	put_text(tb_source_store(source), "zarr.json",
			 "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}");
	put_text(tb_source_store(source), "m/zarr.json",
			 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[600,600],\"data_type\":\"int8\","
			 "\"fill_value\":0,\"chunk_grid\":{\"name\":\"regular\",\"configuration\":"
			 "{\"chunk_shape\":[1,1]}},\"chunk_key_encoding\":{\"name\":\"default\"},"
			 "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}],"
			 "\"dimension_names\":[\"y\",\"x\"],\"attributes\":{}}");
	assert_ok(tb_grid_open(source, &spec, &grid, &error), error);
	WAIT(engine, status, tb_grid_poll(grid, &error));
	assert_ok(status, error);
	assert_int_equal(tb_grid_info(grid)->n_blocks, SIDE * SIDE);
	return grid;
}

/* y_max - y_min > 0.5: possible of every node but a leaf. */
static TbPred *
leaves_refuse(void)
{
	TbColumn	max = {.kind = TB_COL_COORD_MAX, .index = 0};
	TbColumn	min = {.kind = TB_COL_COORD_MIN, .index = 0};
	TbValue		half = {.f64 = 0.5};

	return tb_pred_compare(
		TB_GT, tb_expr_arith(TB_SUB, tb_expr_column(max), tb_expr_column(min)),
		tb_expr_const(TB_CLASS_F64, half, half));
}

static void
test_pause(void **state)
{
	TbEngine   *engine = engine_open(0);
	TbSource   *source;
	TbError		error;
	TbPred	   *pred = leaves_refuse();
	TbScanSpec	spec = {.pred = pred};
	const TbBlockRow *row;
	TbStatus	status;

	assert_ok(tb_source_open_mem(engine, &source, &error), error);
	spec.grid = open_grid(engine, source);
	for (int end = 0; end < 2; end++)
	{
		TbScan	   *scan;
		int			pauses = 0;

		assert_ok(tb_scan_open(&spec, &scan, &error), error);
		while ((status = tb_scan_next(scan, &row, &error)) == TB_AGAIN)
		{
			pauses++;
			if (end == 0)
				break;			/* freed while it pauses: the pump must not run it */
			/* returns at once, since the pause is over with the next pump */
			tb_engine_wait(engine, 60000);
		}
		assert_int_equal(status, end == 0 ? TB_AGAIN : TB_OK);
		assert_true(row == NULL);
		assert_int_equal(pauses, 1);
		tb_scan_free(scan);
		tb_engine_pump(engine);
	}
	tb_pred_free(pred);
	tb_grid_unref(spec.grid);
	tb_source_unref(source);
	tb_engine_free(engine);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_pause)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
