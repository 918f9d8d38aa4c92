/*
 * Finding and reading the coordinates of a grid, all at the same time: a dimension's is the 1-D
 * array of its name in the grid's group or the nearest group above; an auxiliary one stands in the
 * group. What is not there or of a type that has no bounds (text) leaves the index range; what is
 * there and cannot be read is an error.
 */
#include "block/grid.h"

#include <string.h>

#define MAX_VALUES ((uint64_t) 1 << 27)

/* Open the array of a seek at its group. */
static TbStatus
open_there(TbGrid *grid, TbSeek *seek, TbError *err)
{
	char	   *path = tb_block_path_join(seek->group, seek->name);
	TbStatus	status;

	if (path == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	tb_array_unref(seek->array);
	seek->array = NULL;
	seek->stage = TB_SEEK_OPEN;
	status = tb_array_open(grid->source, path, -1, &seek->array, err);
	tb_free(path);
	return status;
}

/* Nothing usable: the index range of a dimension, nothing of an auxiliary one. */
static TbStatus
leave(TbGrid *grid, TbSeek *seek, TbCoord *coord, TbError *err)
{
	seek->stage = TB_SEEK_DONE;
	if (seek->axis < 0)
		return TB_OK;
	return tb_coord_from_index(coord, grid->info.shape[seek->axis], grid->info.cell[seek->axis],
							   err);
}

/* The array is not here: look one group above, up to the root. */
static TbStatus
look_above(TbGrid *grid, TbSeek *seek, TbCoord *coord, TbError *err)
{
	char	   *above;

	if (seek->axis < 0 || seek->group[0] == '\0')
		return leave(grid, seek, coord, err);
	above = tb_path_parent(seek->group);
	if (above == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	tb_free(seek->group);
	seek->group = above;
	return open_there(grid, seek, err);
}

static int
axis_named(const TbGridInfo *info, const char *name)
{
	for (int d = 0; d < info->ndim; d++)
		if (strcmp(info->dim_name[d], name) == 0)
			return d;
	return -1;
}

/* Does the array run over dimensions of the grid as a coordinate must? Fills axes and cells. */
static bool
fits_grid(const TbGridInfo *info, const TbSeek *seek, const TbArrayMeta *meta, TbCoord *coord)
{
	if (seek->axis >= 0 && meta->ndim != 1)
		return false;
	coord->ndim = meta->ndim;
	for (int d = 0; d < meta->ndim; d++)
	{
		int			axis = axis_named(info, meta->dim_name[d]);

		if (axis < 0 || (seek->axis >= 0 && axis != seek->axis) ||
			meta->shape[d] != info->shape[axis])
			return false;
		coord->axis[d] = axis;
		coord->cells[d] = info->blocks[axis];
	}
	return true;
}

/* Undo what fits_grid wrote for an array that was not it. */
static void
reset_axes(const TbGridInfo *info, const TbSeek *seek, TbCoord *coord)
{
	if (seek->axis < 0)
	{
		coord->ndim = 0;
		return;
	}
	coord->ndim = 1;
	coord->axis[0] = seek->axis;
	coord->cells[0] = info->blocks[seek->axis];
}

static TbStatus
begin_read(TbSeek *seek, TbCoord *coord, TbError *err)
{
	const TbArrayMeta *meta = tb_array_meta(seek->array);
	const char *units;
	TbRegion	whole = {.ndim = meta->ndim};
	uint64_t	elements;

	memcpy(whole.count, meta->shape, sizeof(whole.count));
	if (!tb_region_elements(&whole, &elements) || elements > MAX_VALUES)
	{
		tb_fail(err, TB_E_LIMIT, "coordinate is too large");
		tb_error_detail(err, "array \"%.200s\", at most %llu values", meta->path,
						(unsigned long long) MAX_VALUES);
		return TB_E_LIMIT;
	}
	coord->meta = tb_array_meta_copy(meta);
	if (coord->meta == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (tb_json_get_string(meta->attributes, "units", &units))
	{
		coord->units = tb_strdup(units);
		if (coord->units == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	seek->stage = TB_SEEK_READ;
	return tb_fetch_open_shared(seek->array, &whole, &seek->fetch, err);
}

/* Statuses that say: this array has no bounds to offer. */
static bool
is_unusable(TbStatus status)
{
	return status == TB_E_UNSUPPORTED || status == TB_E_INVALID || status == TB_E_TEXT ||
		   status == TB_E_RANGE;
}

static TbStatus
step_open(TbGrid *grid, TbSeek *seek, TbCoord *coord, TbError *err)
{
	TbError		error;
	TbStatus	status = tb_array_poll(seek->array, &error);

	if (status == TB_AGAIN)
		return TB_AGAIN;
	if (status == TB_E_NO_ARRAY)
		return look_above(grid, seek, coord, err);
	if (is_unusable(status))
		return leave(grid, seek, coord, err);
	if (status != TB_OK)
	{
		if (err != NULL)
			*err = error;
		return status;
	}
	if (fits_grid(&grid->info, seek, tb_array_meta(seek->array), coord))
		return begin_read(seek, coord, err);
	reset_axes(&grid->info, seek, coord);
	return look_above(grid, seek, coord, err);
}

static TbStatus
step_read(TbGrid *grid, TbSeek *seek, TbCoord *coord, TbError *err)
{
	TbStatus	status = tb_fetch_poll(seek->fetch, err);
	TbTreatment plain = {.raw = false, .cast = TB_NONE};
	size_t		bytes = tb_dtype_size(coord->meta->packing.decoded);
	void	   *values;

	if (status != TB_OK)
		return status;
	for (int d = 0; d < coord->meta->ndim; d++)
		bytes *= (size_t) coord->meta->shape[d];	/* at most MAX_VALUES elements */
	values = tb_malloc(bytes > 0 ? bytes : 1);
	if (values == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_fetch_decode(seek->fetch, plain, values, bytes, err);
	if (status == TB_E_CORRUPT && tb_fetch_again(seek->fetch))
	{
		tb_free(values);
		return TB_AGAIN;
	}
	if (status == TB_OK)
		status = tb_coord_from_values(coord, values, grid->info.cell, err);
	tb_free(values);
	tb_fetch_free(seek->fetch);
	seek->fetch = NULL;
	tb_array_unref(seek->array);
	seek->array = NULL;
	seek->stage = TB_SEEK_DONE;
	return status;
}

TbStatus
tb_grid_seek_begin(TbGrid *grid, TbError *err)
{
	TbGridInfo *info = &grid->info;
	int			n = info->ndim + grid->n_aux;

	grid->coord = tb_calloc((size_t) n + 1, sizeof(TbCoord));
	grid->seek = tb_calloc((size_t) n + 1, sizeof(TbSeek));
	if (grid->coord == NULL || grid->seek == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	info->n_coords = n;
	info->coord = grid->coord;
	for (int i = 0; i < n; i++)
	{
		TbSeek	   *seek = &grid->seek[i];
		TbCoord    *coord = &grid->coord[i];
		bool named =
			info->ndim > 0 && info->n_arrays > 0 && tb_array_meta(info->array[0])->has_dim_names;
		TbStatus	status;

		seek->axis = i < info->ndim ? i : -1;
		seek->name = i < info->ndim ? info->dim_name[i] : grid->aux[i - info->ndim];
		coord->is_dim = i < info->ndim;
		coord->name = tb_strdup(seek->name);
		seek->group = tb_strdup(grid->group);
		if (coord->name == NULL || seek->group == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
		reset_axes(info, seek, coord);
		/* names made up here (dim_0) are those of no array */
		status =
			coord->is_dim && !named ? leave(grid, seek, coord, err) : open_there(grid, seek, err);
		if (status != TB_OK)
			return status;
	}
	return TB_OK;
}

/* Coordinates that came to nothing leave no trace (auxiliary ones). */
static void
drop_empty(TbGrid *grid)
{
	int			kept = 0;

	for (int i = 0; i < grid->info.n_coords; i++)
	{
		if (grid->coord[i].lo == NULL)
			tb_coord_clear(&grid->coord[i]);
		else
		{
			TbCoord		coord = grid->coord[i];

			memset(&grid->coord[i], 0, sizeof(coord));
			grid->coord[kept++] = coord;
		}
	}
	grid->info.n_coords = kept;
}

TbStatus
tb_grid_seek_poll(TbGrid *grid, TbError *err)
{
	bool		all = true;

	for (int i = 0; i < grid->info.n_coords; i++)
	{
		TbSeek	   *seek = &grid->seek[i];
		TbStatus	status = TB_OK;

		while (status == TB_OK && seek->stage != TB_SEEK_DONE)
			status = seek->stage == TB_SEEK_OPEN ? step_open(grid, seek, &grid->coord[i], err)
				: step_read(grid, seek, &grid->coord[i], err);
		if (status != TB_OK && status != TB_AGAIN)
			return status;
		all = all && status == TB_OK;
	}
	if (!all)
		return TB_AGAIN;
	tb_grid_seek_end(grid);
	drop_empty(grid);
	return TB_OK;
}

void
tb_grid_seek_end(TbGrid *grid)
{
	for (int i = 0; grid->seek != NULL && i < grid->info.n_coords; i++)
	{
		tb_fetch_free(grid->seek[i].fetch);
		tb_array_unref(grid->seek[i].array);
		tb_free(grid->seek[i].group);
	}
	tb_free(grid->seek);
	grid->seek = NULL;
}
