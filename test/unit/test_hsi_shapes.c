/*
 * Grids of many shapes, cells and orders, cut at their edges: blocks found through an index are
 * those that a plain loop over the array's values finds. Also what predicates look like in words.
 */
#include "hsi_help.h"

typedef struct Plain
{
	uint64_t	elements;
	int32_t		min;
	int32_t		max;
} Plain;

typedef struct Case
{
	TbEngine   *engine;
	TbSource   *source;
	TbGrid	   *grid;
	const TbGridInfo *info;
	Sample		sample;
	Plain	   *plain;			/* per block */
	uint64_t	seed;
} Case;

/* Statistics of a block by looking at every element, with indexes worked out here. */
static Plain
plain_block(const Case *c, uint64_t block)
{
	const TbGridInfo *info = c->info;
	TbRegion	region = {.ndim = info->ndim};
	Plain		plain = {0};
	uint64_t	rest = block;
	int32_t    *value;
	size_t		n;

	for (int i = info->ndim - 1; i >= 0; i--)
	{
		int			a = info->order[i];
		uint64_t	at = rest % info->blocks[a];

		rest /= info->blocks[a];
		region.start[a] = at * info->cell[a];
		region.count[a] = info->cell[a];
		if (region.start[a] + region.count[a] > info->shape[a])
			region.count[a] = info->shape[a] - region.start[a];
	}
	value = sample_region(&c->sample, &region, &n);
	plain.elements = n;
	for (size_t i = 0; i < n; i++)
	{
		plain.min = i == 0 || value[i] < plain.min ? value[i] : plain.min;
		plain.max = i == 0 || value[i] > plain.max ? value[i] : plain.max;
	}
	free(value);
	return plain;
}

static void
open_case(Case *c)
{
	static const char *const arrays[] = {"a/b"};
	uint64_t	cell[4];
	char		append[16];
	TbGridSpec	spec = {.group = "", .n_arrays = 1, .array = arrays, .cell = cell};
	uint32_t	state = (uint32_t) hsi_random(&c->seed);
	TbError		error;
	TbStatus	status;

	c->engine = engine_open(0);
	assert_ok(tb_source_open_mem(c->engine, &c->source, &error), error);
	sample_random_shape(&c->sample, &state);
	if (c->sample.ndim == 0)
		c->sample.ndim = 1, c->sample.chunk[0] = 2, c->sample.n_levels = 0, c->sample.shape[0] = 1;
	if (c->sample.ndim <= 2)	/* enough for several levels */
		for (int a = 0; a < c->sample.ndim; a++)
			c->sample.shape[a] = 100 + hsi_random(&c->seed) % 200;
	c->sample.seed = state;
	sample_build(&c->sample, tb_source_store(c->source));
	spec.n_cell = c->sample.ndim;
	for (int a = 0; a < c->sample.ndim; a++)
		cell[a] = 1 + hsi_random(&c->seed) % 3;
	snprintf(append, sizeof(append), "dim_%d",
			 (int) (hsi_random(&c->seed) % (uint64_t) c->sample.ndim));
	spec.append_dim = append;
	assert_ok(tb_grid_open(c->source, &spec, &c->grid, &error), error);
	WAIT(c->engine, status, tb_grid_poll(c->grid, &error));
	assert_ok(status, error);
	c->info = tb_grid_info(c->grid);
	c->plain = calloc(c->info->n_blocks, sizeof(Plain));
	for (uint64_t b = 0; b < c->info->n_blocks; b++)
		c->plain[b] = plain_block(c, b);
}

static void
close_case(Case *c)
{
	free(c->plain);
	sample_free(&c->sample);
	tb_grid_unref(c->grid);
	tb_source_unref(c->source);
	tb_engine_free(c->engine);
}

static void
build(Case *c)
{
	static const int zero[] = {0};
	TbHsiWriterSpec spec = {
		.grid = c->grid, .where = c->source, .arrays = zero, .n_arrays = 1,
		.part_blocks = hsi_random(&c->seed) % 3 == 0 ? 0 : 1 + hsi_random(&c->seed) % 300
	};
	TbHsiWriter *writer;
	TbError		error;
	TbStatus	status;
	uint64_t	seen = 0;

	assert_ok(tb_hsi_writer_open(&spec, &writer, &error), error);
	WAIT(c->engine, status, tb_hsi_writer_poll(writer, &error));
	assert_ok(status, error);
	for (uint64_t part = 0; part < tb_hsi_writer_parts(writer); part++)
	{
		uint64_t	n = tb_hsi_writer_part_blocks(writer, part);
		TbBuilt    *built = calloc(n, sizeof(TbBuilt));

		seen += n;
		for (uint64_t i = 0; i < n; i++)
		{
			uint64_t	block = tb_hsi_writer_part_block(writer, part, i);
			TbLeafJob  *job;
			uint64_t	bytes;
			bool		missing;

			assert_ok(tb_leaf_job_open(c->grid, zero, 1, block, &job, &error), error);
			WAIT(c->engine, status, tb_leaf_job_poll(job, &error));
			assert_ok(status, error);
			assert_ok(tb_leaf_job_result(job, &built[i].leaf, &built[i].version, &missing, &bytes,
										 &error),
					  error);
			assert_int_equal(missing, built[i].version == 0);
			tb_leaf_job_free(job);
		}
		WAIT(c->engine, status, tb_hsi_writer_put(writer, part, built, &error));
		assert_ok(status, error);
		free(built);
	}
	assert_int_equal(seen, c->info->n_blocks);
	WAIT(c->engine, status, tb_hsi_writer_finish(writer, &error));
	assert_ok(status, error);
	tb_hsi_writer_free(writer);
}

/* (column op constant), and whether a block satisfies it. */
typedef struct Condition
{
	TbColumn	column;
	TbCompare	op;
	int64_t		constant;
} Condition;

static bool
holds(const Case *c, const Condition *condition, uint64_t block)
{
	const Plain *plain = &c->plain[block];
	int64_t		v = condition->column.kind == TB_COL_BLOCK ? (int64_t) block :
		condition->column.kind == TB_COL_SIZE ? (int64_t) plain->elements :
		condition->column.stat == TB_STAT_MIN ? plain->min :
		condition->column.stat == TB_STAT_MAX ? plain->max : 0;

	if (condition->column.kind == TB_COL_STAT && condition->column.stat >= TB_STAT_VALID)
	{
		/* v2 fill values are no missing ones here: the arrays have no dimension names */
		v = condition->column.stat == TB_STAT_VALID ? (int64_t) plain->elements : 0;
	}
	switch (condition->op)
	{
		case TB_LT:
			return v < condition->constant;
		case TB_LE:
			return v <= condition->constant;
		case TB_EQ:
			return v == condition->constant;
		case TB_NE:
			return v != condition->constant;
		case TB_GE:
			return v >= condition->constant;
		default:
			return v > condition->constant;
	}
}

static Condition
random_condition(Case *c)
{
	static const TbStat stats[] = {TB_STAT_MIN, TB_STAT_MAX, TB_STAT_VALID, TB_STAT_NAN};
	uint64_t	block = hsi_random(&c->seed) % c->info->n_blocks;
	Condition condition = {.column = {.kind = TB_COL_STAT},
						   .op = (TbCompare) (hsi_random(&c->seed) % 6)};

	condition.column.stat = stats[hsi_random(&c->seed) % 4];
	if (hsi_random(&c->seed) % 5 == 0)
		condition.column.kind = hsi_random(&c->seed) % 2 ? TB_COL_BLOCK : TB_COL_SIZE;
	condition.constant = condition.column.kind == TB_COL_BLOCK	? (int64_t) block
						 : condition.column.kind == TB_COL_SIZE ? (int64_t) c->plain[block].elements
						 : condition.column.stat == TB_STAT_MIN ? c->plain[block].min
						 : condition.column.stat == TB_STAT_MAX
							 ? c->plain[block].max
							 : (int64_t) c->plain[block].elements;
	return condition;
}

static TbPred *
pred_of(const Condition *condition)
{
	TbValue		value = {.i64 = condition->constant};

	return tb_pred_compare(condition->op, tb_expr_column(condition->column),
						   tb_expr_const(TB_CLASS_I64, value, value));
}

static void
check_scan(Case *c, TbHsi *hsi, const Condition *a, const Condition *b, bool descending)
{
	TbPred	   *left = pred_of(a);
	TbPred	   *pred = tb_pred_and(left, pred_of(b));
	TbScanSpec spec = {.grid = c->grid,
					   .hsi = hsi,
					   .pred = pred,
					   .unindexed = TB_UNINDEXED_ERROR,
					   .descending = descending};
	uint64_t	i = 0;
	TbScan	   *scan;
	TbError		error;
	TbStatus	status;

	assert_ok(tb_scan_open(&spec, &scan, &error), error);
	for (;;)
	{
		const TbBlockRow *row;

		WAIT(c->engine, status, tb_scan_next(scan, &row, &error));
		assert_ok(status, error);
		for (; i < c->info->n_blocks; i++)
		{
			uint64_t	block = descending ? c->info->n_blocks - 1 - i : i;

			if (holds(c, a, block) && holds(c, b, block))
				break;
		}
		if (row == NULL)
			break;
		assert_true(i < c->info->n_blocks);
		assert_int_equal(row->block, descending ? c->info->n_blocks - 1 - i : i);
		assert_int_equal(row->elements, c->plain[row->block].elements);
		if (row->known[0])
			assert_true(row->leaf[0].min.i64 == c->plain[row->block].min &&
						row->leaf[0].max.i64 == c->plain[row->block].max);
		i++;
	}
	assert_int_equal(i, c->info->n_blocks);
	tb_scan_free(scan);
	tb_pred_free(pred);
}

static void
test_shapes(void **state)
{
	uint64_t	seed = 3;
	int			deep = 0;

	for (int round = 0; round < 40; round++)
	{
		Case		c = {.seed = hsi_random(&seed)};
		TbHsi	   *hsi;
		TbError		error;
		TbStatus	status;

		open_case(&c);
		build(&c);
		assert_ok(tb_hsi_open(c.source, c.grid, &hsi, &error), error);
		WAIT(c.engine, status, tb_hsi_poll(hsi, &error));
		assert_ok(status, error);
		assert_true(tb_hsi_info(hsi).complete);
		deep += tb_hsi_info(hsi).levels >= 3;
		for (int i = 0; i < 25; i++)
		{
			Condition	a = random_condition(&c);
			Condition	b = random_condition(&c);

			check_scan(&c, hsi, &a, &b, i % 3 == 0);
		}
		tb_hsi_unref(hsi);
		close_case(&c);
	}
	assert_true(deep > 5);
}

/* ---- words ---- */

static void
assert_prints(const Archive *archive, TbPred *pred, const char *expected)
{
	TbBuf	   *out = tb_buf_new(0);

	assert_non_null(pred);
	assert_int_equal(tb_pred_print(pred, archive->info, out), TB_OK);
	assert_int_equal(tb_buf_append(out, "", 1, SIZE_MAX), TB_OK);
	assert_string_equal((char *) out->data, expected);
	tb_buf_unref(out);
	tb_pred_free(pred);
}

static TbPred *
compare(TbColumn column, TbCompare op, TbClass class, TbValue value)
{
	return tb_pred_compare(op, tb_expr_column(column), tb_expr_const(class, value, value));
}

static void
test_print(void **state)
{
	Archive		archive;
	TbColumn	t_max = {.kind = TB_COL_STAT, .index = 0, .stat = TB_STAT_MAX};
	TbColumn	t_min = {.kind = TB_COL_STAT, .index = 0, .stat = TB_STAT_MIN};
	TbColumn	k_nan = {.kind = TB_COL_STAT, .index = 2, .stat = TB_STAT_NAN};
	TbColumn	time = {.kind = TB_COL_COORD_MIN, .index = 0};
	TbColumn	lat = {.kind = TB_COL_COORD_MAX, .index = 1};
	TbValue		hot = {.f64 = 303.15};
	TbValue		zero = {.i64 = 0};
	TbValue		when = {.i64 = INT64_C(951782400500000)};
	TbPred	   *pred;

	archive_open(&archive, 1);
	pred = compare(t_max, TB_GT, TB_CLASS_F64, hot);
	pred = tb_pred_and(pred, compare(time, TB_LT, TB_CLASS_I64, when));
	assert_prints(&archive, pred,
				  "(t_max > 303.15) AND (time_min < '2000-02-29 00:00:00.500000+00')");
	when.i64 = -1000000;
	pred = tb_pred_not(compare(time, TB_GE, TB_CLASS_I64, when));
	assert_prints(&archive, pred, "(NOT (time_min >= '1969-12-31 23:59:59+00'))");
	pred =
		tb_pred_compare(TB_NE, tb_expr_arith(TB_SUB, tb_expr_column(t_max), tb_expr_column(t_min)),
						tb_expr_const(TB_CLASS_F64, hot, hot));
	pred = tb_pred_or(pred, tb_pred_is_null(tb_expr_column(lat), true));
	pred = tb_pred_and(pred, compare(k_nan, TB_EQ, TB_CLASS_I64, zero));
	assert_prints(&archive, pred,
				  "(((t_max - t_min) <> 303.15) OR (lat_max IS NOT NULL)) AND (k_nan = 0)");
	archive_close(&archive);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_print),
	};

	return cmocka_run_group_tests_name("hsi shapes", tests, NULL, NULL);
}
