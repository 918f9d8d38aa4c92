/* See hsi_help.h. */
#include "hsi_help.h"

#include <math.h>

uint64_t
hsi_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15u;
	return tb_mix64(*state);
}

/* ---- the archive ---- */

static void
put_meta(Archive *archive, const char *path, const char *dtype, const char *attributes)
{
	char		text[1500];
	char		key[100];

	snprintf(text, sizeof(text),
			 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[%d,%d,%d],\"data_type\":\"%s\","
			 "\"fill_value\":0,\"chunk_grid\":{\"name\":\"regular\",\"configuration\":"
			 "{\"chunk_shape\":[1,%d,%d]}},\"chunk_key_encoding\":{\"name\":\"default\"},"
			 "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}],"
			 "\"dimension_names\":[\"time\",\"lat\",\"lon\"],\"attributes\":{%s}}",
			 (int) archive->steps, TEST_Y, TEST_X, dtype, TEST_Y, TEST_X, attributes);
	snprintf(key, sizeof(key), "%s/zarr.json", path);
	put_text(tb_source_store(archive->source), key, text);
}

static void
put_coord(Archive *archive, const char *name, const char *dtype, size_t n, const char *attributes,
		  const void *bytes, size_t len)
{
	char		text[1000];
	char		key[100];

	snprintf(text, sizeof(text),
			 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[%d],\"data_type\":\"%s\","
			 "\"fill_value\":0,\"chunk_grid\":{\"name\":\"regular\",\"configuration\":"
			 "{\"chunk_shape\":[%d]}},\"chunk_key_encoding\":{\"name\":\"default\"},"
			 "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}],"
			 "\"dimension_names\":[\"%s\"],\"attributes\":{%s}}",
			 (int) n, dtype, (int) n, name, attributes);
	snprintf(key, sizeof(key), "%s/zarr.json", name);
	put_text(tb_source_store(archive->source), key, text);
	snprintf(key, sizeof(key), "%s/c/0", name);
	put_bytes(tb_source_store(archive->source), key, bytes, len);
}

void
archive_put_t(Archive *archive, double scale)
{
	char		attributes[200];

	snprintf(attributes, sizeof(attributes),
			 "\"scale_factor\":%g,\"add_offset\":273.15,\"_FillValue\":-32768", scale);
	put_meta(archive, "t", "int16", attributes);
}

static void
put_metadata(Archive *archive)
{
	int64_t    *time = calloc(archive->steps, sizeof(int64_t));
	double		lat[TEST_Y];

	put_text(tb_source_store(archive->source), "zarr.json",
			 "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}");
	archive_put_t(archive, 0.01);
	put_meta(archive, "f", "float32", "");
	put_meta(archive, "k", "int64", "\"missing_value\":-1");
	put_meta(archive, "u", "uint64", "");
	for (uint64_t i = 0; i < archive->steps; i++)
		time[i] = (int64_t) i * 6;
	for (int i = 0; i < TEST_Y; i++)
		lat[i] = i == 5 ? NAN : 90 - 5.5 * i;
	put_coord(archive, "time", "int64", archive->steps, "\"units\":\"hours since 2000-01-01\"",
			  time, archive->steps * sizeof(int64_t));
	put_coord(archive, "lat", "float64", TEST_Y, "", lat, sizeof(lat));
	free(time);
}

/* One step's values: smooth in space and time, so that boxes differ, with gaps, NaN and extremes.
 */
static void
put_step(Archive *archive, uint64_t step)
{
	static int16_t t[TEST_Y * TEST_X];
	static float f[TEST_Y * TEST_X];
	static int64_t k[TEST_Y * TEST_X];
	static uint64_t u[TEST_Y * TEST_X];
	TbStore    *store = tb_source_store(archive->source);
	uint64_t	state = step * 1000;
	char		key[100];

	for (int i = 0; i < TEST_Y * TEST_X; i++)
	{
		int			y = i / TEST_X;
		int			x = i % TEST_X;
		uint64_t	r = hsi_random(&state);

		t[i] = (int16_t) (1000 * sin(y / 5.0) + 20 * (double) step + 10 * x + (double) (r % 50));
		if (y < 4 && x < 8)
			t[i] = INT16_MIN;	/* a corner without any value */
		f[i] = (float) cos(x / 7.0 + (double) step / 9) * 100 + (float) (r % 10);
		if (r % 97 == 0 || (x > 24 && y > 20))
			f[i] = NAN;
		if (r % 3001 == 0)
			f[i] = r & 4096 ? INFINITY : -INFINITY;
		k[i] = r % 11 == 0 ? -1 : (int64_t) (step * 1000) + y * 32 + x;
		if (r % 2003 == 0)
			k[i] = r & 4096 ? INT64_MAX : INT64_MIN;
		u[i] = step % 7 == 3 ? 42 : (r % 1009 == 0 ? UINT64_MAX : step * 10 + (uint64_t) y);
	}
	snprintf(key, sizeof(key), "t/c/%d/0/0", (int) step);
	put_bytes(store, key, t, sizeof(t));
	snprintf(key, sizeof(key), "f/c/%d/0/0", (int) step);
	put_bytes(store, key, f, sizeof(f));
	snprintf(key, sizeof(key), "k/c/%d/0/0", (int) step);
	put_bytes(store, key, k, sizeof(k));
	snprintf(key, sizeof(key), "u/c/%d/0/0", (int) step);
	if (step % 5 != 4)			/* else never written: fill values */
		put_bytes(store, key, u, sizeof(u));
}

void
archive_reopen(Archive *archive)
{
	static const char *const arrays[TEST_ARRAYS] = {"t", "f", "k", "u"};
	static const uint64_t cell[3] = {1, 2, 2};
	TbGridSpec spec = {
		.group = "", .n_arrays = TEST_ARRAYS, .array = arrays, .n_cell = 3, .cell = cell};
	TbError		error;
	TbStatus	status;

	tb_grid_unref(archive->grid);
	tb_source_forget(archive->source);
	assert_ok(tb_grid_open(archive->source, &spec, &archive->grid, &error), error);
	WAIT(archive->engine, status, tb_grid_poll(archive->grid, &error));
	assert_ok(status, error);
	archive->info = tb_grid_info(archive->grid);
	assert_int_equal(archive->info->n_blocks, archive->steps * 256);
}

void
archive_open(Archive *archive, uint64_t steps)
{
	TbError		error;

	memset(archive, 0, sizeof(*archive));
	archive->engine = engine_open(0);
	assert_ok(tb_source_open_mem(archive->engine, &archive->source, &error), error);
	archive_grow(archive, steps);
}

void
archive_grow(Archive *archive, uint64_t steps)
{
	for (uint64_t step = archive->steps; step < steps; step++)
		put_step(archive, step);
	archive->steps = steps;
	put_metadata(archive);
	archive_reopen(archive);
	archive_collect(archive);
}

void
archive_close(Archive *archive)
{
	free(archive->leaf);
	free(archive->version);
	tb_grid_unref(archive->grid);
	tb_source_unref(archive->source);
	tb_engine_free(archive->engine);
}

void
archive_collect(Archive *archive)
{
	static const int all[TEST_ARRAYS] = {0, 1, 2, 3};
	uint64_t	n = archive->info->n_blocks;

	free(archive->leaf);
	free(archive->version);
	archive->leaf = calloc(n * TEST_ARRAYS, sizeof(TbLeaf));
	archive->version = calloc(n, sizeof(uint64_t));
	for (uint64_t b = 0; b < n; b++)
	{
		TbLeafJob  *job;
		TbError		error;
		TbStatus	status;
		uint64_t	bytes;
		bool		missing;

		assert_ok(tb_leaf_job_open(archive->grid, all, TEST_ARRAYS, b, &job, &error), error);
		WAIT(archive->engine, status, tb_leaf_job_poll(job, &error));
		assert_ok(status, error);
		assert_ok(tb_leaf_job_result(job, archive->leaf + b * TEST_ARRAYS, &archive->version[b],
									 &missing, &bytes, &error),
				  error);
		assert_false(missing);
		tb_leaf_job_free(job);
	}
}

/* ---- the index ---- */

TbHsi *
archive_hsi(Archive *archive)
{
	TbHsi	   *hsi;
	TbError		error;
	TbStatus	status;

	assert_ok(tb_hsi_open(archive->source, archive->grid, &hsi, &error), error);
	WAIT(archive->engine, status, tb_hsi_poll(hsi, &error));
	assert_ok(status, error);
	return hsi;
}

TbHsiWriter *
archive_writer(Archive *archive, uint64_t part_blocks, bool rebuild)
{
	static const int all[TEST_ARRAYS] = {0, 1, 2, 3};
	TbHsiWriterSpec spec = {
		.grid = archive->grid, .where = archive->source, .arrays = all, .n_arrays = TEST_ARRAYS,
		.part_blocks = part_blocks, .rebuild = rebuild
	};
	TbHsiWriter *writer;
	TbError		error;
	TbStatus	status;

	assert_ok(tb_hsi_writer_open(&spec, &writer, &error), error);
	WAIT(archive->engine, status, tb_hsi_writer_poll(writer, &error));
	assert_ok(status, error);
	return writer;
}

void
archive_build(Archive *archive, TbHsiWriter *writer, uint64_t first, uint64_t end, bool finish)
{
	TbError		error;
	TbStatus	status;

	for (uint64_t part = first; part < end && part < tb_hsi_writer_parts(writer); part++)
	{
		uint64_t	n = tb_hsi_writer_part_blocks(writer, part);
		TbBuilt    *built;

		if (tb_hsi_writer_has(writer, part))
			continue;
		built = calloc(n * TEST_ARRAYS, sizeof(TbBuilt));
		for (uint64_t i = 0; i < n; i++)
		{
			uint64_t	block = tb_hsi_writer_part_block(writer, part, i);

			assert_true(i == 0 || block > tb_hsi_writer_part_block(writer, part, i - 1));
			for (int a = 0; a < TEST_ARRAYS; a++)
			{
				built[i * TEST_ARRAYS + (uint64_t) a].leaf =
					archive->leaf[block * TEST_ARRAYS + (uint64_t) a];
				built[i * TEST_ARRAYS + (uint64_t) a].version = archive->version[block];
			}
		}
		WAIT(archive->engine, status, tb_hsi_writer_put(writer, part, built, &error));
		assert_ok(status, error);
		free(built);
	}
	if (!finish)
		return;
	WAIT(archive->engine, status, tb_hsi_writer_finish(writer, &error));
	assert_ok(status, error);
}

/* ---- predicates ---- */

static TbClass
class_of(int array)
{
	return array < 2 ? TB_CLASS_F64 : array == 2 ? TB_CLASS_I64 : TB_CLASS_U64;
}

/* A value that some block has, at times moved a little. */
static TbExpr *
near_constant(const Archive *archive, uint64_t *state, TbColumn column)
{
	uint64_t	block = hsi_random(state) % archive->info->n_blocks;
	uint64_t	index[TB_MAX_DIM];
	TbClass		class = TB_CLASS_I64;
	TbValue		value = {0};
	const TbCoord *coord;

	tb_grid_block_index(archive->info, block, index);
	switch (column.kind)
	{
		case TB_COL_BLOCK:
			value.i64 = (int64_t) block;
			break;
		case TB_COL_SIZE:
			value.i64 = 4;
			break;
		case TB_COL_STAT:
			if (!tb_leaf_value(&archive->leaf[block * TEST_ARRAYS + (uint64_t) column.index],
							   column.stat, class_of(column.index), &class, &value))
				value.u64 = 0;
			break;
		default:
			coord = &archive->info->coord[column.index];
			class = coord->kind == TB_COORD_FLOAT ? TB_CLASS_F64 : TB_CLASS_I64;
			value = coord->lo[tb_coord_cell(coord, index)];
			break;
	}
	if (class == TB_CLASS_F64 && hsi_random(state) % 2)
		value.f64 += 0.5;
	if (class == TB_CLASS_F64 && hsi_random(state) % 40 == 0)
		value.f64 = NAN;
	return tb_expr_const(class, value, value);
}

static TbColumn
random_column(const Archive *archive, uint64_t *state)
{
	TbColumn	column = {.kind = TB_COL_STAT};

	switch (hsi_random(state) % 10)
	{
		case 0:
			column.kind = TB_COL_BLOCK;
			return column;
		case 1:
			column.kind = TB_COL_COORD_MIN;
			column.index = (int) (hsi_random(state) % (uint64_t) archive->info->n_coords);
			return column;
		case 2:
			column.kind = TB_COL_COORD_MAX;
			column.index = (int) (hsi_random(state) % (uint64_t) archive->info->n_coords);
			return column;
		case 3:
			if (hsi_random(state) % 4 == 0)
				column.kind = TB_COL_SIZE;
			break;
	}
	column.index = (int) (hsi_random(state) % TEST_ARRAYS);
	column.stat = (TbStat) (hsi_random(state) % TB_N_STATS);
	return column;
}

TbPred *
archive_pred(const Archive *archive, uint64_t *state, int depth)
{
	TbColumn	column = random_column(archive, state);
	TbPred	   *left;
	TbExpr	   *expr;

	switch (hsi_random(state) % (depth > 0 ? 8 : 5))
	{
		case 4:
			if (hsi_random(state) % 2)
				return tb_pred_is_null(tb_expr_column(column), hsi_random(state) % 2);
			expr = tb_expr_arith((TbArith) (hsi_random(state) % 3), tb_expr_column(column),
								 tb_expr_column(random_column(archive, state)));
			return tb_pred_compare((TbCompare) (hsi_random(state) % 6), expr,
								   near_constant(archive, state, column));
		case 5:
			left = archive_pred(archive, state, depth - 1);
			return tb_pred_and(left, archive_pred(archive, state, depth - 1));
		case 6:
			left = archive_pred(archive, state, depth - 1);
			return tb_pred_or(left, archive_pred(archive, state, depth - 1));
		case 7:
			return tb_pred_not(archive_pred(archive, state, depth - 1));
		default:
			return tb_pred_compare((TbCompare) (hsi_random(state) % 6), tb_expr_column(column),
								   near_constant(archive, state, column));
	}
}

typedef struct RowArg
{
	const Archive *archive;
	uint64_t	block;
	uint64_t	index[TB_MAX_DIM];
} RowArg;

static void
row_lookup(void *arg, TbColumn column, TbRange *range)
{
	const RowArg *row = arg;
	const TbCoord *coord;
	uint64_t	cell;

	memset(range, 0, sizeof(*range));
	range->class = TB_CLASS_I64;
	switch (column.kind)
	{
		case TB_COL_BLOCK:
			range->lo.i64 = (int64_t) row->block;
			break;
		case TB_COL_SIZE:
			range->lo.i64 = 4;
			break;
		case TB_COL_STAT:
			range->all_null = range->some_null = !tb_leaf_value(
				&row->archive->leaf[row->block * TEST_ARRAYS + (uint64_t) column.index],
				column.stat, class_of(column.index), &range->class, &range->lo);
			break;
		default:
			coord = &row->archive->info->coord[column.index];
			cell = tb_coord_cell(coord, row->index);
			range->class = coord->kind == TB_COORD_FLOAT ? TB_CLASS_F64 : TB_CLASS_I64;
			range->all_null = range->some_null = coord->null != NULL && coord->null[cell];
			range->lo = column.kind == TB_COL_COORD_MIN ? coord->lo[cell] : coord->hi[cell];
			break;
	}
	range->hi = range->lo;
}

bool
archive_matches(const Archive *archive, const TbPred *pred, uint64_t block)
{
	RowArg		row = {.archive = archive, .block = block};

	tb_grid_block_index(archive->info, block, row.index);
	return tb_pred_judge(pred, row_lookup, &row) & TB_CAN_TRUE;
}

/* ---- objects ---- */

void
keys_list(TbStore *store, const char *prefix, Keys *keys)
{
	TbStoreNames names;
	TbError		error;

	assert_ok(tb_store_list(store, prefix, &names, &error), error);
	for (size_t i = 0; i < names.n; i++)
	{
		char	   *path = tb_asprintf("%s/%s", prefix, names.name[i]);

		if (names.is_prefix[i])
		{
			keys_list(store, path, keys);
			tb_free(path);
			continue;
		}
		keys->key = realloc(keys->key, (keys->n + 1) * sizeof(char *));
		keys->key[keys->n++] = path;
	}
	tb_store_free_names(&names);
}

void
keys_free(Keys *keys)
{
	for (size_t i = 0; i < keys->n; i++)
		tb_free(keys->key[i]);
	free(keys->key);
	memset(keys, 0, sizeof(*keys));
}

static void
noted(TbRead *read)
{
	*(bool *) read->arg = true;
}

TbBuf *
object_read(Archive *archive, const char *key)
{
	bool		done = false;
	TbRead read = {
		.key = key, .kind = TB_RANGE_WHOLE, .length = 1 << 30, .done = noted, .arg = &done};

	tb_store_read(tb_source_store(archive->source), &read);
	while (!done)
		tb_engine_wait(archive->engine, 100);
	assert_int_equal(read.status, TB_OK);
	assert_non_null(read.data);
	return read.data;
}
