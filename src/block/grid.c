/*
 * Grids: arrays of one group that share dimensions and shape, cut into blocks, with the bounds of
 * their coordinates. Advanced by tb_grid_poll; the requests below run in the background.
 */
#include "block/grid.h"

#include <string.h>

static bool
copy_spec(TbGrid *grid, const TbGridSpec *spec)
{
	bool		ok = true;

	if (spec->append_dim != NULL)
		ok = (grid->append_dim = tb_strdup(spec->append_dim)) != NULL;
	grid->n_cell = spec->n_cell;
	for (int d = 0; d < spec->n_cell; d++)
		grid->cell[d] = spec->cell[d];
	grid->aux = tb_calloc((size_t) spec->n_aux + 1, sizeof(char *));
	grid->info.array = tb_calloc((size_t) spec->n_arrays + 1, sizeof(TbArray *));
	if (!ok || grid->aux == NULL || grid->info.array == NULL)
		return false;
	for (int i = 0; i < spec->n_aux; i++)
	{
		grid->aux[i] = tb_strdup(spec->aux[i]);
		if (grid->aux[i] == NULL)
			return false;
		grid->n_aux++;
	}
	return true;
}

/* Open every array; requests go out at once. */
static TbStatus
open_arrays(TbGrid *grid, const TbGridSpec *spec, TbError *err)
{
	for (int i = 0; i < spec->n_arrays; i++)
	{
		char	   *path = tb_block_path_join(grid->group, spec->array[i]);
		int			mask_fill = spec->mask_fill != NULL ? spec->mask_fill[i] : -1;
		TbStatus	status;

		if (path == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
		status = tb_array_open(grid->source, path, mask_fill, &grid->info.array[i], err);
		tb_free(path);
		if (status != TB_OK)
			return status;
		grid->info.n_arrays++;
	}
	return TB_OK;
}

TbStatus
tb_grid_open(TbSource *source, const TbGridSpec *spec, TbGrid **out, TbError *err)
{
	TbGrid	   *grid;
	TbStatus	status;

	if (spec->n_arrays <= 0)
		return tb_fail(err, TB_E_INVALID, "grid without arrays");
	if (spec->n_cell < 0 || spec->n_cell > TB_MAX_DIM)
		return tb_fail(err, TB_E_INVALID, "cell shape has too many dimensions");
	grid = tb_calloc(1, sizeof(*grid));
	if (grid == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	grid->refs = 1;
	grid->source = tb_source_ref(source);
	grid->status = TB_AGAIN;
	tb_error_clear(&grid->error);
	status = tb_path_clean(spec->group, &grid->group, err);
	grid->info.group = grid->group;
	if (status == TB_OK && !copy_spec(grid, spec))
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	if (status == TB_OK)
		status = open_arrays(grid, spec, err);
	if (status != TB_OK)
	{
		tb_grid_unref(grid);
		return status;
	}
	*out = grid;
	return TB_OK;
}

/* ---- the frame: dimensions, cells, blocks ---- */

static bool
same_frame(const TbArrayMeta *a, const TbArrayMeta *b)
{
	if (a->ndim != b->ndim)
		return false;
	for (int d = 0; d < a->ndim; d++)
		if (a->shape[d] != b->shape[d] || strcmp(a->dim_name[d], b->dim_name[d]) != 0)
			return false;
	return true;
}

/* The chunk shape most arrays have, the first such one. */
static const uint64_t *
frequent_chunk(const TbGridInfo *info)
{
	const uint64_t *best = NULL;
	int			best_count = 0;

	for (int i = 0; i < info->n_arrays; i++)
	{
		const uint64_t *chunk = tb_array_meta(info->array[i])->chunk;
		int			count = 0;

		for (int j = 0; j < info->n_arrays; j++)
			if (memcmp(chunk, tb_array_meta(info->array[j])->chunk,
					   (size_t) info->ndim * sizeof(*chunk)) == 0)
				count++;
		if (count > best_count)
		{
			best = chunk;
			best_count = count;
		}
	}
	return best;
}

static TbStatus
set_cells(TbGrid *grid, TbError *err)
{
	TbGridInfo *info = &grid->info;
	const uint64_t *cell = grid->n_cell > 0 ? grid->cell : frequent_chunk(info);

	if (grid->n_cell > 0 && grid->n_cell != info->ndim)
	{
		tb_fail(err, TB_E_INVALID, "cell shape has another number of dimensions than the grid");
		tb_error_detail(err, "%d instead of %d", grid->n_cell, info->ndim);
		return TB_E_INVALID;
	}
	info->n_blocks = 1;
	for (int d = 0; d < info->ndim; d++)
	{
		if (cell[d] == 0)
			return tb_fail(err, TB_E_INVALID, "cell shape holds a zero");
		info->cell[d] = cell[d];
		info->blocks[d] = info->shape[d] / cell[d] + (info->shape[d] % cell[d] != 0);
		if (!tb_mul_u64(info->n_blocks, info->blocks[d], &info->n_blocks) ||
			info->n_blocks > INT64_MAX)
		{
			tb_fail(err, TB_E_LIMIT, "grid has too many blocks");
			tb_error_detail(err, "group \"%.200s\"", grid->group);
			tb_error_hint(err, "Set larger cells with the option cell_shape.");
			return TB_E_LIMIT;
		}
	}
	return TB_OK;
}

static TbStatus
set_frame(TbGrid *grid, TbError *err)
{
	TbGridInfo *info = &grid->info;
	const TbArrayMeta *first = tb_array_meta(info->array[0]);

	for (int i = 1; i < info->n_arrays; i++)
	{
		const TbArrayMeta *meta = tb_array_meta(info->array[i]);

		if (same_frame(first, meta))
			continue;
		tb_fail(err, TB_E_INVALID, "arrays of one grid must share dimensions and shape");
		tb_error_detail(err, "arrays \"%.200s\" and \"%.200s\"", first->path, meta->path);
		return TB_E_INVALID;
	}
	info->ndim = first->ndim;
	for (int d = 0; d < first->ndim; d++)
	{
		info->shape[d] = first->shape[d];
		info->dim_name[d] = first->dim_name[d]; /* lives as long as the array */
	}
	return set_cells(grid, err);
}

/* The axis that grows: as asked, else "time", else one with CF time, else the first. errors:
 * INVALID. */
static TbStatus
find_append_axis(const TbGrid *grid, int *axis, TbError *err)
{
	const TbGridInfo *info = &grid->info;
	const char *name = grid->append_dim != NULL ? grid->append_dim : "time";

	*axis = 0;
	for (int d = 0; d < info->ndim; d++)
		if (strcmp(info->dim_name[d], name) == 0)
		{
			*axis = d;
			return TB_OK;
		}
	if (grid->append_dim != NULL)
	{
		tb_fail(err, TB_E_INVALID, "append_dim is no dimension of the grid");
		tb_error_detail(err, "\"%.200s\", group \"%.200s\"", name, grid->group);
		return TB_E_INVALID;
	}
	for (int d = 0; d < info->ndim; d++)
		if (info->coord[d].kind == TB_COORD_TIME)
		{
			*axis = d;
			break;
		}
	return TB_OK;
}

static TbStatus
set_order(TbGrid *grid, TbError *err)
{
	TbGridInfo *info = &grid->info;
	int			axis;
	int			at = 0;
	TbStatus	status = find_append_axis(grid, &axis, err);

	if (status != TB_OK || info->ndim == 0)
		return status;
	info->order[at++] = axis;
	for (int d = 0; d < info->ndim; d++)
		if (d != axis)
			info->order[at++] = d;
	return TB_OK;
}

/* ---- polling ---- */

/* TB_AGAIN while any array is still opening; the first failure in the order of the spec. */
static TbStatus
poll_arrays(TbGrid *grid, TbError *err)
{
	bool		all = true;

	for (int i = 0; i < grid->info.n_arrays; i++)
	{
		TbStatus	status = tb_array_poll(grid->info.array[i], err);

		if (status != TB_OK && status != TB_AGAIN)
			return status;
		all = all && status == TB_OK;
	}
	return all ? TB_OK : TB_AGAIN;
}

static TbStatus
step(TbGrid *grid, TbError *err)
{
	TbStatus	status = TB_OK;

	if (grid->stage == TB_GRID_ARRAYS)
	{
		status = poll_arrays(grid, err);
		if (status == TB_OK)
			status = set_frame(grid, err);
		if (status == TB_OK)
			status = tb_grid_seek_begin(grid, err);
		if (status == TB_OK)
			grid->stage = TB_GRID_COORDS;
	}
	if (status == TB_OK)
		status = tb_grid_seek_poll(grid, err);
	return status == TB_OK ? set_order(grid, err) : status;
}

TbStatus
tb_grid_poll(TbGrid *grid, TbError *err)
{
	if (grid->stage != TB_GRID_SETTLED)
	{
		TbStatus	status = step(grid, &grid->error);

		if (status != TB_AGAIN)
		{
			grid->status = status;
			grid->stage = TB_GRID_SETTLED;
			tb_grid_seek_end(grid);
		}
	}
	if (grid->status != TB_OK && grid->status != TB_AGAIN && err != NULL)
		*err = grid->error;
	return grid->status;
}

const TbGridInfo *
tb_grid_info(const TbGrid *grid)
{
	return &grid->info;
}

TbSource *
tb_grid_source(const TbGrid *grid)
{
	return grid->source;
}

TbGrid *
tb_grid_ref(TbGrid *grid)
{
	grid->refs++;
	return grid;
}

void
tb_grid_unref(TbGrid *grid)
{
	if (grid == NULL || --grid->refs > 0)
		return;
	tb_grid_seek_end(grid);
	for (int i = 0; i < grid->info.n_coords; i++)
		tb_coord_clear(&grid->coord[i]);
	for (int i = 0; i < grid->info.n_arrays; i++)
		tb_array_unref(grid->info.array[i]);
	for (int i = 0; i < grid->n_aux; i++)
		tb_free(grid->aux[i]);
	tb_free(grid->coord);
	tb_free(grid->info.array);
	tb_free(grid->aux);
	tb_free(grid->append_dim);
	tb_free(grid->group);
	tb_source_unref(grid->source);
	tb_free(grid);
}

/* ---- blocks ---- */

void
tb_grid_block_index(const TbGridInfo *info, uint64_t block, uint64_t *index)
{
	for (int i = info->ndim - 1; i >= 0; i--)
	{
		int			axis = info->order[i];

		index[axis] = info->blocks[axis] > 0 ? block % info->blocks[axis] : 0;
		block = info->blocks[axis] > 0 ? block / info->blocks[axis] : 0;
	}
}

uint64_t
tb_grid_block_number(const TbGridInfo *info, const uint64_t *index)
{
	uint64_t	block = 0;

	for (int i = 0; i < info->ndim; i++)
		block = block * info->blocks[info->order[i]] + index[info->order[i]];
	return block;
}

void
tb_grid_block_region(const TbGridInfo *info, const uint64_t *index, TbRegion *region)
{
	region->ndim = info->ndim;
	for (int d = 0; d < info->ndim; d++)
	{
		uint64_t	start = index[d] * info->cell[d];
		uint64_t	left = start < info->shape[d] ? info->shape[d] - start : 0;

		region->start[d] = start;
		region->count[d] = left < info->cell[d] ? left : info->cell[d];
	}
}
