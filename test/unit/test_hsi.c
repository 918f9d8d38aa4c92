/*
 * The index end to end over an archive in memory: indexed = unindexed = brute force, in order and
 * in reverse; parts, continuing, growth, changed packing; what is known of rows; limits and
 * settings.
 */
#include "hsi_help.h"

#include <math.h>

#define STEPS 40				/* 10240 blocks: three levels */

typedef struct Got
{
	uint64_t   *block;
	size_t		n;
	TbScanCounters counters;
	char		warning[400];
} Got;

static TbStatus
try_scan(Archive *archive, const TbScanSpec *spec, Got *got, TbError *error)
{
	TbScan	   *scan;
	TbStatus	status;

	memset(got, 0, sizeof(*got));
	got->block = calloc(archive->info->n_blocks + 1, sizeof(uint64_t));
	assert_ok(tb_scan_open(spec, &scan, error), *error);
	for (;;)
	{
		const TbBlockRow *row;

		WAIT(archive->engine, status, tb_scan_next(scan, &row, error));
		if (status != TB_OK || row == NULL)
			break;
		got->block[got->n++] = row->block;
		for (int a = 0; a < TEST_ARRAYS; a++)
		{
			const TbLeaf *leaf = &archive->leaf[row->block * TEST_ARRAYS + (uint64_t) a];

			if (!row->known[a])
				continue;
			assert_int_equal(row->leaf[a].valid, leaf->valid);
			assert_int_equal(row->leaf[a].nan, leaf->nan);
			assert_int_equal(row->leaf[a].missing, leaf->missing);
			if (leaf->valid == 0)
				continue;
			assert_int_equal(row->leaf[a].min.u64, leaf->min.u64);
			assert_int_equal(row->leaf[a].max.u64, leaf->max.u64);
			assert_memory_equal(&row->leaf[a].sum, &leaf->sum, sizeof(double));
			assert_memory_equal(&row->leaf[a].m2, &leaf->m2, sizeof(double));
		}
	}
	got->counters = tb_scan_counters(scan);
	snprintf(got->warning, sizeof(got->warning), "%s",
			 tb_scan_warning(scan) != NULL ? tb_scan_warning(scan) : "");
	tb_scan_free(scan);
	return status;
}

static void
run_scan(Archive *archive, const TbScanSpec *spec, Got *got)
{
	TbError		error;

	assert_ok(try_scan(archive, spec, got, &error), error);
}

/* The scan's rows are those that brute force finds, in order. */
static void
assert_rows(const Archive *archive, const TbPred *pred, const Got *got, bool descending)
{
	size_t		at = 0;

	for (uint64_t i = 0; i < archive->info->n_blocks; i++)
	{
		uint64_t	block = descending ? archive->info->n_blocks - 1 - i : i;

		if (!archive_matches(archive, pred, block))
			continue;
		assert_true(at < got->n);
		assert_int_equal(got->block[at], block);
		at++;
	}
	assert_int_equal(at, got->n);
	assert_int_equal(got->counters.rows, got->n);
}

static void
assert_counted(const Archive *archive, const Got *got)
{
	uint64_t	sum = got->counters.rows + got->counters.pruned_coords;

	for (int k = 0; k < 16; k++)
		sum += got->counters.pruned_level[k];
	assert_int_equal(sum, archive->info->n_blocks);
}

static void
test_complete(void **state)
{
	Archive		archive;
	TbHsiWriter *writer;
	TbHsi	   *hsi;
	TbHsiInfo	info;
	uint64_t	seed = 1;
	uint64_t	pruned_above = 0;

	archive_open(&archive, STEPS);
	writer = archive_writer(&archive, 0, false);
	assert_true(tb_hsi_writer_parts(writer) > 5);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	tb_hsi_writer_free(writer);
	hsi = archive_hsi(&archive);
	assert_true(tb_hsi_exists(hsi));
	info = tb_hsi_info(hsi);
	assert_true(info.levels >= 3 && info.complete);
	assert_int_equal(info.n_covered, archive.info->n_blocks);
	assert_true(tb_hsi_has_array(hsi, "k") && !tb_hsi_has_array(hsi, "z"));
	for (int round = 0; round < 400; round++)
	{
		TbPred	   *pred = archive_pred(&archive, &seed, 2);
		TbScanSpec	spec = {
			.grid = archive.grid, .hsi = hsi, .pred = pred, .unindexed = TB_UNINDEXED_ERROR,
			.descending = round % 3 == 2
		};
		double		estimate = tb_hsi_estimate(archive.grid, hsi, pred);
		Got			got;

		run_scan(&archive, &spec, &got);
		assert_rows(&archive, pred, &got, spec.descending);
		assert_counted(&archive, &got);
		assert_int_equal(got.counters.data_requests, 0);
		assert_true(estimate >= (double) got.n && estimate <= (double) archive.info->n_blocks);
		assert_string_equal(got.warning, "");
		pruned_above += got.counters.pruned_level[1] + got.counters.pruned_level[2];
		free(got.block);
		tb_pred_free(pred);
	}
	assert_true(pruned_above > 100 * 1000);
	tb_hsi_unref(hsi);
	archive_close(&archive);
}

/* Without an index, and with half of one: the same rows, computed. */
static void
test_partial(void **state)
{
	Archive		archive;
	TbHsiWriter *writer;
	TbHsi	   *hsi;
	uint64_t	seed = 2;
	uint64_t	serial;
	uint64_t	half;
	TbHsiInfo	info;

	archive_open(&archive, 4);	/* 1024 blocks */
	writer = archive_writer(&archive, 64, false);
	half = tb_hsi_writer_parts(writer) / 2;
	assert_true(half >= 2);
	archive_build(&archive, writer, 0, half, false);
	tb_hsi_writer_free(writer);
	hsi = archive_hsi(&archive);
	info = tb_hsi_info(hsi);
	assert_false(info.complete);
	assert_int_equal(info.n_parts_done, half);
	assert_true(info.n_covered > 0 && info.n_covered < info.n_blocks);
	serial = tb_hsi_serial(hsi);
	assert_int_equal(serial, half);
	for (int round = 0; round < 60; round++)
	{
		TbPred	   *pred = archive_pred(&archive, &seed, 2);
		TbScanSpec spec = {.grid = archive.grid,
						   .hsi = round % 2 ? hsi : NULL,
						   .pred = pred,
						   .unindexed = TB_UNINDEXED_COMPUTE,
						   .compute_limit_bytes = 1 << 30,
						   .descending = round % 3 == 2};
		Got			got;

		run_scan(&archive, &spec, &got);
		assert_rows(&archive, pred, &got, spec.descending);
		if (spec.hsi == NULL)
			assert_int_equal(got.counters.index_requests, 0);
		free(got.block);
		tb_pred_free(pred);
	}
	/* going on: what is there stays */
	writer = archive_writer(&archive, 64, false);
	for (uint64_t part = 0; part < tb_hsi_writer_parts(writer); part++)
		assert_int_equal(tb_hsi_writer_has(writer, part), part < half);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	tb_hsi_writer_free(writer);
	tb_hsi_unref(hsi);
	hsi = archive_hsi(&archive);
	assert_true(tb_hsi_info(hsi).complete);
	assert_int_equal(tb_hsi_serial(hsi), tb_hsi_info(hsi).n_parts + 1);
	tb_hsi_unref(hsi);
	archive_close(&archive);
}

static TbPred *
warm(double threshold)
{
	TbColumn	column = {.kind = TB_COL_STAT, .index = 0, .stat = TB_STAT_MAX};
	TbValue		value = {.f64 = threshold};

	return tb_pred_compare(TB_GT, tb_expr_column(column),
						   tb_expr_const(TB_CLASS_F64, value, value));
}

/* error, exclude, and the limit on computing; coordinates and bare rows need nothing. */
static void
test_settings(void **state)
{
	Archive		archive;
	TbPred	   *pred = warm(280);
	TbPred	   *first;
	TbColumn	block = {.kind = TB_COL_BLOCK};
	TbValue		nine = {.i64 = 9};
	bool		need[TEST_ARRAYS] = {true, false, false, false};
	TbScanSpec	spec = {0};
	TbError		error;
	Got			got;

	archive_open(&archive, 2);
	spec.grid = archive.grid;
	spec.pred = pred;
	spec.unindexed = TB_UNINDEXED_ERROR;
	assert_int_equal(try_scan(&archive, &spec, &got, &error), TB_E_STATE);
	assert_true(error.hint[0] != '\0');
	free(got.block);
	spec.unindexed = TB_UNINDEXED_EXCLUDE;
	run_scan(&archive, &spec, &got);
	assert_int_equal(got.n, 0);
	assert_int_equal(got.counters.excluded, archive.info->n_blocks);
	free(got.block);
	/* 512 blocks of 4 elements of 2 bytes */
	spec.unindexed = TB_UNINDEXED_COMPUTE;
	spec.compute_limit_bytes = 4095;
	assert_int_equal(try_scan(&archive, &spec, &got, &error), TB_E_LIMIT);
	assert_non_null(strstr(error.hint, "build_index"));
	assert_int_equal(got.counters.data_requests, 0);
	free(got.block);
	spec.compute_limit_bytes = 4096;
	run_scan(&archive, &spec, &got);
	assert_rows(&archive, pred, &got, false);
	assert_int_equal(got.counters.computed, archive.info->n_blocks);
	free(got.block);
	/* a condition on the block leaves few to compute */
	first = tb_pred_and(warm(0), tb_pred_compare(TB_LE, tb_expr_column(block),
												  tb_expr_const(TB_CLASS_I64, nine, nine)));
	spec.pred = first;
	spec.compute_limit_bytes = 80;
	run_scan(&archive, &spec, &got);
	assert_rows(&archive, first, &got, false);
	assert_int_equal(got.counters.computed, 10);
	free(got.block);
	tb_pred_free(first);
	/* nothing asks for statistics: every row, nothing read */
	spec.pred = NULL;
	spec.compute_limit_bytes = 0;
	run_scan(&archive, &spec, &got);
	assert_int_equal(got.n, archive.info->n_blocks);
	assert_int_equal(got.counters.data_requests + got.counters.index_requests, 0);
	free(got.block);
	spec.need_array = need;
	assert_int_equal(try_scan(&archive, &spec, &got, &error), TB_E_LIMIT);
	free(got.block);
	tb_pred_free(pred);
	archive_close(&archive);
}

static void
test_states(void **state)
{
	Archive		archive;
	TbHsiWriter *writer;
	TbHsi	   *hsi;
	TbScan	   *scan;
	const TbBlockRow *row;
	bool		need[TEST_ARRAYS] = {false, false, false, true};
	TbScanSpec	spec = {.unindexed = TB_UNINDEXED_ERROR};
	TbError		error;
	TbStatus	status;
	uint64_t	seen[4] = {0};

	archive_open(&archive, 8);
	for (uint64_t b = 0; b < archive.info->n_blocks; b++)
		if (b / 256 % 5 == 4)
			archive.version[b] = 0;	/* as a build of array u alone would say */
	writer = archive_writer(&archive, 0, false);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	tb_hsi_writer_free(writer);
	hsi = archive_hsi(&archive);
	spec.grid = archive.grid;
	spec.hsi = hsi;
	spec.need_array = need;
	assert_ok(tb_scan_open(&spec, &scan, &error), error);
	for (;;)
	{
		WAIT(archive.engine, status, tb_scan_next(scan, &row, &error));
		assert_ok(status, error);
		if (row == NULL)
			break;
		seen[row->state]++;
		assert_int_equal(row->elements, 4);
		assert_int_equal(row->state == TB_BLOCK_MISSING, row->block / 256 % 5 == 4);
		if (row->block / 256 == 3)
			assert_int_equal(row->state, TB_BLOCK_CONSTANT);
		assert_true(row->known[3] && !row->known[0]);
	}
	assert_true(seen[TB_BLOCK_PRESENT] > 0 && seen[TB_BLOCK_UNINDEXED] == 0);
	assert_int_equal(seen[TB_BLOCK_MISSING], 256);
	tb_scan_free(scan);
	tb_hsi_unref(hsi);
	archive_close(&archive);
}

/* More steps: old blocks stay indexed, full parts are carried into the next build, the rest is
 * built. */
static void
test_growth(void **state)
{
	Archive		archive;
	TbHsiWriter *writer;
	TbHsi	   *hsi;
	uint64_t	seed = 5;
	uint64_t	carried = 0;
	TbHsiInfo	info;

	archive_open(&archive, 10);
	writer = archive_writer(&archive, 64, false);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	tb_hsi_writer_free(writer);
	archive_grow(&archive, 13);
	hsi = archive_hsi(&archive);
	info = tb_hsi_info(hsi);
	assert_int_equal(info.n_covered, 10 * 256);
	assert_int_equal(info.n_blocks, 13 * 256);
	for (int round = 0; round < 40; round++)
	{
		TbPred	   *pred = archive_pred(&archive, &seed, 2);
		TbScanSpec	spec = {
			.grid = archive.grid, .hsi = hsi, .pred = pred, .unindexed = TB_UNINDEXED_COMPUTE,
			.compute_limit_bytes = 1 << 30, .descending = round % 3 == 2
		};
		Got			got;

		run_scan(&archive, &spec, &got);
		assert_rows(&archive, pred, &got, spec.descending);
		assert_true(got.counters.computed <= 3 * 256);
		free(got.block);
		tb_pred_free(pred);
	}
	tb_hsi_unref(hsi);
	writer = archive_writer(&archive, 64, false);
	for (uint64_t part = 0; part < tb_hsi_writer_parts(writer); part++)
		carried += tb_hsi_writer_has(writer, part);
	assert_true(carried * 64 >= 8 * 256 && carried * 64 <= 10 * 256);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	tb_hsi_writer_free(writer);
	hsi = archive_hsi(&archive);
	assert_true(tb_hsi_info(hsi).complete);
	for (int round = 0; round < 40; round++)
	{
		TbPred	   *pred = archive_pred(&archive, &seed, 2);
		TbScanSpec	spec = {
			.grid = archive.grid, .hsi = hsi, .pred = pred, .unindexed = TB_UNINDEXED_ERROR
		};
		Got			got;

		run_scan(&archive, &spec, &got);
		assert_rows(&archive, pred, &got, false);
		free(got.block);
		tb_pred_free(pred);
	}
	tb_hsi_unref(hsi);
	archive_close(&archive);
}

/* Another scale makes other values: what the index says of that array holds no longer. */
static void
test_packing_changed(void **state)
{
	static const char *const only[] = {"t"};
	static const uint64_t cell[3] = {1, 2, 2};
	static const int zero[] = {0};
	TbGridSpec	grid_spec = {.group = "", .n_arrays = 1, .array = only, .n_cell = 3, .cell = cell};
	Archive		archive;
	TbHsiWriter *writer;
	TbHsi	   *hsi;
	TbGrid	   *grid;
	TbHsiWriterSpec spec = {.arrays = zero, .n_arrays = 1, .rebuild = true};
	TbError		error;
	TbStatus	status;

	archive_open(&archive, 2);
	writer = archive_writer(&archive, 0, false);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	tb_hsi_writer_free(writer);
	archive_put_t(&archive, 0.02);
	archive_reopen(&archive);
	hsi = archive_hsi(&archive);
	assert_true(tb_hsi_exists(hsi));
	assert_false(tb_hsi_has_array(hsi, "t"));
	assert_true(tb_hsi_has_array(hsi, "f"));
	tb_hsi_unref(hsi);
	/* an index of that array alone is none at all */
	assert_ok(tb_grid_open(archive.source, &grid_spec, &grid, &error), error);
	WAIT(archive.engine, status, tb_grid_poll(grid, &error));
	assert_ok(status, error);
	assert_ok(tb_hsi_open(archive.source, grid, &hsi, &error), error);
	WAIT(archive.engine, status, tb_hsi_poll(hsi, &error));
	assert_ok(status, error);
	assert_false(tb_hsi_exists(hsi));
	tb_hsi_unref(hsi);
	spec.grid = grid;
	spec.where = archive.source;
	assert_ok(tb_hsi_writer_open(&spec, &writer, &error), error);
	WAIT(archive.engine, status, tb_hsi_writer_poll(writer, &error));
	assert_ok(status, error);
	assert_false(tb_hsi_writer_has(writer, 0));
	tb_hsi_writer_free(writer);
	tb_grid_unref(grid);
	archive_close(&archive);
}

/* Two builds at once: the second to publish a serial loses and learns of it. */
static void
test_concurrent(void **state)
{
	Archive		archive;
	TbHsiWriter *a;
	TbHsiWriter *b;
	TbHsi	   *hsi;
	TbBuilt    *built;
	TbError		error;
	TbStatus	status;

	archive_open(&archive, 2);
	a = archive_writer(&archive, 64, false);
	b = archive_writer(&archive, 64, false);
	archive_build(&archive, a, 0, 1, false);
	built = calloc(tb_hsi_writer_part_blocks(b, 1) * TEST_ARRAYS, sizeof(TbBuilt));
	WAIT(archive.engine, status, tb_hsi_writer_put(b, 1, built, &error));
	assert_int_equal(status, TB_E_CHANGED);
	assert_non_null(strstr(error.message, "another build"));
	free(built);
	hsi = archive_hsi(&archive);
	assert_int_equal(tb_hsi_serial(hsi), 1);
	assert_int_equal(tb_hsi_info(hsi).n_parts_done, 1);
	tb_hsi_unref(hsi);
	tb_hsi_writer_free(b);
	/* the winner goes on undisturbed */
	archive_build(&archive, a, 0, UINT64_MAX, true);
	tb_hsi_writer_free(a);
	archive_close(&archive);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_complete),
		cmocka_unit_test(test_partial),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_packing_changed),
		cmocka_unit_test(test_concurrent),
	};

	return cmocka_run_group_tests_name("hsi", tests, NULL, NULL);
}
