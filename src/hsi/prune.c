/*
 * Judging nodes: what a predicate's columns can be over a node, from coordinates (always known) and
 * from the statistics of an index (where it has them). A column of which nothing is known is
 * unknown, never guessed.
 */
#include "hsi/prune.h"

#include <string.h>

#include "hsi/pred.h"
#include "hsi/stat.h"

/* ---- what is wanted ---- */

static TbStatus
needs_init(TbNeeds *needs, const TbProbe *probe, const uint32_t *bits, TbError *err)
{
	int			n_arrays = probe->info->n_arrays;
	size_t		cells = (size_t) n_arrays * TB_N_STORED;
	int			n = 0;

	memset(needs, 0, sizeof(*needs));
	for (int a = 0; a < n_arrays; a++)
		n += probe->hsi != NULL && probe->hsi->map[a] >= 0 ? __builtin_popcount(bits[a]) : 0;
	needs->array = tb_calloc((size_t) n + 1, sizeof(int));
	needs->stored = tb_calloc((size_t) n + 1, sizeof(uint16_t));
	needs->at = tb_calloc(cells + 1, sizeof(int16_t));
	if (needs->array == NULL || needs->stored == NULL || needs->at == NULL || n > INT16_MAX)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (size_t i = 0; i < cells; i++)
	{
		int			a = (int) (i / TB_N_STORED);
		int			s = (int) (i % TB_N_STORED);

		needs->at[i] = -1;
		if (probe->hsi == NULL || probe->hsi->map[a] < 0 || !(bits[a] & (1u << s)))
			continue;
		needs->at[i] = (int16_t) needs->n;
		needs->array[needs->n] = a;
		needs->stored[needs->n++] = (uint16_t) s;
	}
	return TB_OK;
}

static void
needs_clear(TbNeeds *needs)
{
	tb_free(needs->array);
	tb_free(needs->stored);
	tb_free(needs->at);
	memset(needs, 0, sizeof(*needs));
}

/* What a predicate's columns want, per array of the grid. */
typedef struct Wants
{
	uint32_t   *leaf;
	uint32_t   *inner;
	bool	   *coord;
	bool		uses_coords;
	bool		uses_stats;
} Wants;

static void
note_column(void *arg, TbColumn column)
{
	Wants	   *wants = arg;

	if (column.kind != TB_COL_STAT)
		wants->uses_coords = true;
	if (column.kind == TB_COL_COORD_MIN || column.kind == TB_COL_COORD_MAX)
		wants->coord[column.index] = true;
	if (column.kind == TB_COL_STAT)
	{
		wants->uses_stats = true;
		wants->leaf[column.index] |= tb_stat_info(column.stat)->leaf_needs;
		wants->inner[column.index] |= tb_stat_info(column.stat)->inner_needs;
	}
}

/* All that is stored at level 0, of the arrays whose statistics rows have. */
static void
row_bits(const TbProbe *probe, uint32_t *bits)
{
	for (int a = 0; a < probe->info->n_arrays; a++)
	{
		bits[a] = 0;
		for (int s = 0; s < TB_N_STORED && probe->need[a]; s++)
			if (tb_stored_info((TbStored) s)->leaf)
				bits[a] |= 1u << s;
	}
}

/* ---- the probe ---- */

static TbStatus
take_geometry(TbProbe *probe, TbError *err)
{
	if (probe->hsi != NULL)
	{
		probe->geo = &probe->hsi->view;
		probe->n_levels_stored = 1;
		if (probe->hsi->head->complete)
			probe->n_levels_stored = probe->hsi->head->geo.n_levels;
		return TB_OK;
	}
	probe->own_geo = tb_calloc(1, sizeof(TbGeometry));
	if (probe->own_geo == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	tb_geometry_make(probe->own_geo, probe->info, 0);
	probe->geo = probe->own_geo;
	return TB_OK;
}

static TbStatus
take_coords(TbProbe *probe, const Wants *wants, TbError *err)
{
	probe->own_coord = probe->hsi == NULL || probe->hsi->grid != probe->grid;
	if (probe->own_coord)
		probe->coord = tb_calloc((size_t) probe->info->n_coords + 1, sizeof(TbCoordTable));
	else
		probe->coord = probe->hsi->coord;
	if (probe->coord == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (int c = 0; c < probe->info->n_coords; c++)
		if (wants->coord[c] &&
			!tb_coord_table_make(&probe->coord[c], &probe->info->coord[c], probe->geo))
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	return TB_OK;
}

static TbStatus
take_wants(TbProbe *probe, Wants *wants, TbError *err)
{
	TbStatus	status;

	tb_pred_columns(probe->pred, note_column, wants);
	probe->uses_coords = wants->uses_coords;
	probe->uses_stats = wants->uses_stats;
	status = take_geometry(probe, err);
	if (status == TB_OK)
		status = take_coords(probe, wants, err);
	if (status == TB_OK)
		status = needs_init(&probe->leaf, probe, wants->leaf, err);
	if (status == TB_OK)
		status = needs_init(&probe->inner, probe, wants->inner, err);
	if (status != TB_OK)
		return status;
	row_bits(probe, wants->leaf);
	return needs_init(&probe->row, probe, wants->leaf, err);
}

/* Whether an index that was opened for one grid object describes another one. */
static bool
serves(const TbHsi *hsi, TbGrid *grid)
{
	const TbGridInfo *theirs = tb_grid_info(hsi->grid);
	const TbGridInfo *info = tb_grid_info(grid);

	if (hsi->head == NULL)
		return false;
	if (hsi->grid == grid)
		return true;
	if (!tb_head_fits(hsi->head, info) || theirs->n_arrays != info->n_arrays ||
		memcmp(theirs->shape, info->shape, sizeof(uint64_t) * (size_t) info->ndim) != 0)
		return false;
	for (int a = 0; a < info->n_arrays; a++)
		if (tb_head_find(hsi->head, info, a) != hsi->map[a])
			return false;
	return true;
}

TbStatus
tb_probe_init(TbProbe *probe, const TbScanSpec *spec, TbError *err)
{
	const TbGridInfo *info = tb_grid_info(spec->grid);
	size_t		n = (size_t) info->n_arrays + 1;
	Wants		wants = {0};
	TbStatus	status;

	memset(probe, 0, sizeof(*probe));
	probe->grid = tb_grid_ref(spec->grid);
	probe->info = info;
	probe->pred = spec->pred;
	if (spec->hsi != NULL && serves(spec->hsi, spec->grid))
		probe->hsi = tb_hsi_ref(spec->hsi);
	probe->need = tb_calloc(n, sizeof(bool));
	wants.leaf = tb_calloc(n, sizeof(uint32_t));
	wants.inner = tb_calloc(n, sizeof(uint32_t));
	wants.coord = tb_calloc((size_t) info->n_coords + 1, sizeof(bool));
	if (probe->need == NULL || wants.leaf == NULL || wants.inner == NULL || wants.coord == NULL)
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else
	{
		tb_pred_needs(spec->pred, probe->need);
		probe->all_mapped = true;
		for (int a = 0; a < info->n_arrays; a++)
		{
			probe->need[a] = probe->need[a] || (spec->need_array != NULL && spec->need_array[a]);
			probe->any_need = probe->any_need || probe->need[a];
			if (probe->need[a] && (probe->hsi == NULL || probe->hsi->map[a] < 0))
				probe->all_mapped = false;
		}
		status = take_wants(probe, &wants, err);
	}
	tb_free(wants.leaf);
	tb_free(wants.inner);
	tb_free(wants.coord);
	if (status != TB_OK)
		tb_probe_clear(probe);
	return status;
}

void
tb_probe_clear(TbProbe *probe)
{
	if (probe->grid == NULL)
		return;
	for (int c = 0; probe->own_coord && probe->coord != NULL && c < probe->info->n_coords; c++)
		tb_coord_table_clear(&probe->coord[c]);
	if (probe->own_coord)
		tb_free(probe->coord);
	needs_clear(&probe->leaf);
	needs_clear(&probe->inner);
	needs_clear(&probe->row);
	tb_free(probe->own_geo);
	tb_free(probe->need);
	tb_hsi_unref(probe->hsi);
	tb_grid_unref(probe->grid);
	memset(probe, 0, sizeof(*probe));
}

/* ---- boxes ---- */

void
tb_probe_blocks(const TbProbe *probe, int level, const uint64_t *node, TbBox *box)
{
	for (int a = 0; a < probe->info->ndim; a++)
	{
		uint64_t	span = 1;
		uint64_t	rest;

		for (int k = 0; k < level; k++)
			span *= probe->geo->fan[a];
		box->start[a] = node[a] * span;
		rest = probe->info->blocks[a] - box->start[a];
		box->count[a] = span < rest ? span : rest;
	}
}

bool
tb_probe_trusts(const TbProbe *probe, int level, const uint64_t *node)
{
	TbBox		box;

	if (probe->hsi == NULL)
		return false;
	tb_probe_blocks(probe, level, node, &box);
	for (int a = 0; a < probe->info->ndim; a++)
		if (box.start[a] + box.count[a] > probe->hsi->trusted[a])
			return false;
	return true;
}

uint64_t
tb_probe_elements(const TbGridInfo *info, const TbBox *box)
{
	uint64_t	n = 1;

	for (int a = 0; a < info->ndim; a++)
	{
		uint64_t	start = box->start[a] * info->cell[a];
		uint64_t	end = (box->start[a] + box->count[a]) * info->cell[a];

		end = end < info->shape[a] ? end : info->shape[a];
		if (!tb_mul_u64(n, end - start, &n))
			return UINT64_MAX;
	}
	return n;
}

/* ---- columns over a node ---- */

/* Elements of the node's blocks: they differ only where an axis ends with a shorter block. */
static void
size_range(const TbSubject *subject, TbRange *range)
{
	const TbGridInfo *info = subject->probe->info;
	TbBox		box;
	uint64_t	lo = 1;
	uint64_t	hi = 1;

	tb_probe_blocks(subject->probe, subject->level, subject->node, &box);
	for (int a = 0; a < info->ndim; a++)
	{
		uint64_t	last = info->shape[a] - (info->blocks[a] - 1) * info->cell[a];
		bool		has_last = box.start[a] + box.count[a] == info->blocks[a];

		lo *= has_last ? last : info->cell[a];
		hi *= has_last && box.count[a] == 1 ? last : info->cell[a];
	}
	range->lo.i64 = (int64_t) lo;
	range->hi.i64 = (int64_t) hi;
}

static void
block_range(const TbSubject *subject, TbRange *range)
{
	const TbGridInfo *info = subject->probe->info;
	TbBox		box;

	tb_probe_blocks(subject->probe, subject->level, subject->node, &box);
	range->lo.i64 = (int64_t) tb_grid_block_number(info, box.start);
	for (int a = 0; a < info->ndim; a++)
		box.start[a] += box.count[a] - 1;
	range->hi.i64 = (int64_t) tb_grid_block_number(info, box.start);
}

/* One stored value of the subject; false where it is not loaded or its chunk is damaged. */
static bool
stored_value(const TbSubject *subject, int array, TbStored stored, TbValue *value)
{
	const TbBundle *bundle = subject->bundle;
	int			at = bundle->needs->at[(size_t) array * TB_N_STORED + stored];

	if (at < 0 || bundle->chunk[at] == NULL || bundle->chunk[at]->state != TB_CHUNK_READY)
		return false;
	*value = bundle->chunk[at]->value[subject->slot];
	return true;
}

static void
point(const TbLeaf *leaf, TbStat stat, TbClass minmax, TbRange *range)
{
	range->all_null = range->some_null =
		!tb_leaf_value(leaf, stat, minmax, &range->class, &range->lo);
	range->hi = range->lo;
}

static void
leaf_range(const TbSubject *subject, TbColumn column, TbClass minmax, TbRange *range)
{
	uint32_t	needs = tb_stat_info(column.stat)->leaf_needs;
	TbLeaf		leaf = {0};

	for (int s = 0; s < TB_N_STORED; s++)
	{
		TbValue		value;

		if (!(needs & (1u << s)))
			continue;
		if (!stored_value(subject, column.index, (TbStored) s, &value))
		{
			range->unknown = true;
			return;
		}
		tb_leaf_set(&leaf, (TbStored) s, value);
	}
	point(&leaf, column.stat, minmax, range);
}

/* Where the interval of a statistic is kept above the leaves. */
typedef struct InnerSource
{
	TbStored	lo;
	TbStored	hi;
	TbStored	null;			/* TB_N_STORED: never NULL */
} InnerSource;

static const InnerSource inner_source[TB_N_STATS] = {
	[TB_STAT_MIN] = {TB_STORED_MIN, TB_STORED_MIN_HI, TB_STORED_NULL},
	[TB_STAT_MAX] = {TB_STORED_MAX_LO, TB_STORED_MAX, TB_STORED_NULL},
	[TB_STAT_MEAN] = {TB_STORED_MEAN_LO, TB_STORED_MEAN_HI, TB_STORED_NULL},
	[TB_STAT_STD] = {TB_STORED_STD_LO, TB_STORED_STD_HI, TB_STORED_STD_NULL},
	[TB_STAT_VALID] = {TB_STORED_VALID_LO, TB_STORED_VALID_HI, TB_N_STORED},
	[TB_STAT_NAN] = {TB_STORED_NAN_LO, TB_STORED_NAN_HI, TB_N_STORED},
	[TB_STAT_MISSING] = {TB_STORED_MISSING_LO, TB_STORED_MISSING_HI, TB_N_STORED},
};

static void
inner_range(const TbSubject *subject, TbColumn column, TbClass minmax, TbRange *range)
{
	const InnerSource *source = &inner_source[column.stat];
	TbValue		null = {.i64 = TB_NULLS_NONE};

	range->class = TB_CLASS_I64;
	if (column.stat == TB_STAT_MIN || column.stat == TB_STAT_MAX)
		range->class = minmax;
	else if (column.stat == TB_STAT_MEAN || column.stat == TB_STAT_STD)
		range->class = TB_CLASS_F64;
	if (!stored_value(subject, column.index, source->lo, &range->lo) ||
		!stored_value(subject, column.index, source->hi, &range->hi) ||
		(source->null != TB_N_STORED && !stored_value(subject, column.index, source->null, &null)))
		range->unknown = true;
	range->some_null = null.i64 != TB_NULLS_NONE;
	range->all_null = null.i64 == TB_NULLS_ALL;
}

static void
lookup(void *arg, TbColumn column, TbRange *range)
{
	const TbSubject *subject = arg;
	const TbProbe *probe = subject->probe;
	TbClass		minmax;

	memset(range, 0, sizeof(*range));
	range->class = TB_CLASS_I64;
	switch (column.kind)
	{
		case TB_COL_BLOCK:
			block_range(subject, range);
			return;
		case TB_COL_SIZE:
			size_range(subject, range);
			return;
		case TB_COL_COORD_MIN:
		case TB_COL_COORD_MAX:
			tb_coord_range(&probe->coord[column.index], &probe->info->coord[column.index],
						   subject->level, subject->node, column.kind == TB_COL_COORD_MAX, range);
			return;
		case TB_COL_STAT:
			break;
	}
	minmax = tb_stat_class(tb_array_meta(probe->info->array[column.index]));
	if (subject->leaf != NULL && subject->known[column.index])
		point(&subject->leaf[column.index], column.stat, minmax, range);
	else if (subject->bundle == NULL)
		range->unknown = true;
	else if (subject->level == 0)
		leaf_range(subject, column, minmax, range);
	else
		inner_range(subject, column, minmax, range);
}

int
tb_subject_judge(const TbSubject *subject)
{
	return tb_pred_judge(subject->probe->pred, lookup, (void *) subject);
}
