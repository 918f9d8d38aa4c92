/*
 * Bounds of coordinates over nodes: the blocks' own bounds (block room) merged up the levels, along
 * the axes that the coordinate runs over. Missing values are NULL there and flags here.
 */
#include "hsi/coords.h"

#include <string.h>

#include "hsi/stat.h"

static void
leaf_bound(const TbCoord *coord, uint64_t cell, TbCoordBound *bound)
{
	bound->min_lo = bound->min_hi = coord->lo[cell];
	bound->max_lo = bound->max_hi = coord->hi[cell];
	bound->null = coord->null != NULL && coord->null[cell] ? TB_NULLS_ALL : TB_NULLS_NONE;
}

static void
widen(TbCoordBound *into, const TbCoordBound *from, TbClass class, bool first)
{
	if (first)
	{
		*into = *from;
		return;
	}
	if (from->null == TB_NULLS_ALL)
	{
		into->null = into->null == TB_NULLS_ALL ? TB_NULLS_ALL : TB_NULLS_SOME;
		return;
	}
	if (into->null == TB_NULLS_ALL)
	{
		*into = *from;
		into->null = TB_NULLS_SOME;
		return;
	}
	if (tb_value_cmp(class, from->min_lo, class, into->min_lo) < 0)
		into->min_lo = from->min_lo;
	if (tb_value_cmp(class, from->min_hi, class, into->min_hi) > 0)
		into->min_hi = from->min_hi;
	if (tb_value_cmp(class, from->max_lo, class, into->max_lo) < 0)
		into->max_lo = from->max_lo;
	if (tb_value_cmp(class, from->max_hi, class, into->max_hi) > 0)
		into->max_hi = from->max_hi;
	if (from->null == TB_NULLS_SOME)
		into->null = TB_NULLS_SOME;
}

/* Merge level k into level k + 1: every cell into the one above it. */
static bool
make_level(TbCoordTable *table, const TbCoord *coord, const TbGeometry *geo, int k)
{
	uint64_t	n = 1;
	uint64_t	n_up = 1;
	uint64_t	index[TB_MAX_DIM] = {0};
	bool	   *seen;

	for (int i = 0; i < coord->ndim; i++)
	{
		uint64_t	fan = geo->fan[coord->axis[i]];

		n *= table->cells[k][i];
		table->cells[k + 1][i] = (table->cells[k][i] + fan - 1) / fan;
		n_up *= table->cells[k + 1][i];
	}
	table->bound[k + 1] = tb_calloc(n_up, sizeof(TbCoordBound));
	seen = tb_calloc(n_up, sizeof(bool));
	if (table->bound[k + 1] == NULL || seen == NULL)
	{
		tb_free(seen);
		return false;
	}
	for (uint64_t c = 0; c < n; c++)
	{
		TbCoordBound bound;
		uint64_t	up = 0;

		for (int i = 0; i < coord->ndim; i++)
			up = up * table->cells[k + 1][i] + index[i] / geo->fan[coord->axis[i]];
		if (k == 0)
			leaf_bound(coord, c, &bound);
		else
			bound = table->bound[k][c];
		widen(&table->bound[k + 1][up], &bound, table->class, !seen[up]);
		seen[up] = true;
		for (int i = coord->ndim - 1; i >= 0 && ++index[i] == table->cells[k][i]; i--)
			index[i] = 0;
	}
	tb_free(seen);
	return true;
}

bool
tb_coord_table_make(TbCoordTable *table, const TbCoord *coord, const TbGeometry *geo)
{
	if (table->made)
		return true;
	table->class = coord->kind == TB_COORD_FLOAT ? TB_CLASS_F64 : TB_CLASS_I64;
	table->n_levels = geo->n_levels;
	for (int i = 0; i < coord->ndim; i++)
		table->cells[0][i] = coord->cells[i];
	for (int k = 0; k + 1 < geo->n_levels; k++)
		if (!make_level(table, coord, geo, k))
		{
			tb_coord_table_clear(table);
			return false;
		}
	table->made = true;
	return true;
}

void
tb_coord_table_clear(TbCoordTable *table)
{
	for (int k = 0; k < TB_HSI_LEVELS; k++)
		tb_free(table->bound[k]);
	memset(table, 0, sizeof(*table));
}

void
tb_coord_range(const TbCoordTable *table, const TbCoord *coord, int level, const uint64_t *node,
			   bool max, TbRange *range)
{
	TbCoordBound leaf;
	const TbCoordBound *bound = &leaf;
	uint64_t	cell = 0;

	for (int i = 0; i < coord->ndim; i++)
		cell = cell * table->cells[level][i] + node[coord->axis[i]];
	if (level == 0)
		leaf_bound(coord, cell, &leaf);
	else
		bound = &table->bound[level][cell];
	range->class = table->class;
	range->lo = max ? bound->max_lo : bound->min_lo;
	range->hi = max ? bound->max_hi : bound->min_hi;
	range->some_null = bound->null != TB_NULLS_NONE;
	range->all_null = bound->null == TB_NULLS_ALL;
}
