/*
 * An opened index: its newest head, whether it fits the grid, and what it covers. Only the head is
 * loaded when it is opened; chunk.c brings the rest as scans ask for it.
 */
#include "hsi/index.h"

#include <stdio.h>
#include <string.h>

TbStatus
tb_hsi_open(TbSource *where, TbGrid *grid, TbHsi **hsi, TbError *err)
{
	TbHsi	   *made = tb_calloc(1, sizeof(*made));
	const TbGridInfo *info = tb_grid_info(grid);
	TbStatus	status;

	*hsi = NULL;
	if (made == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	made->refs = 1;
	made->where = tb_source_ref(where);
	made->grid = tb_grid_ref(grid);
	made->status = TB_AGAIN;
	status = tb_hsi_key(info, tb_hsi_of(where, tb_grid_source(grid)), made->key, sizeof(made->key), err);
	if (status == TB_OK)
	{
		made->map = tb_calloc((size_t) info->n_arrays + 1, sizeof(int));
		made->coord = tb_calloc((size_t) info->n_coords + 1, sizeof(TbCoordTable));
		if (made->map == NULL || made->coord == NULL)
			status = tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	if (status == TB_OK)
		status = tb_find_open(where, made->key, &made->find, err);
	if (status != TB_OK)
	{
		tb_hsi_unref(made);
		return status;
	}
	*hsi = made;
	return TB_OK;
}

/*
 * Blocks that are as they were: all, but where the array has grown or shrunk since. Then an edge
 * block that was cut short then or is now has other elements.
 */
static void
set_trusted(TbHsi *hsi, const TbGridInfo *info)
{
	for (int a = 0; a < info->ndim; a++)
	{
		uint64_t	shorter = info->shape[a];

		hsi->trusted[a] = info->blocks[a];
		if (hsi->head->shape[a] == info->shape[a])
			continue;
		if (hsi->head->shape[a] < shorter)
			shorter = hsi->head->shape[a];
		hsi->trusted[a] = shorter / info->cell[a];
	}
}

/*
 * The same fan over today's blocks, so that nodes keep their numbers along each axis; chunks as
 * they are stored, where that level is.
 */
static bool
set_view(TbHsi *hsi, const TbHead *head, const TbGridInfo *info)
{
	hsi->view = head->geo;
	if (!tb_geometry_finish(&hsi->view, info->blocks))
		return false;
	for (int k = 0; k < hsi->view.n_levels && k < head->geo.n_levels; k++)
		for (int a = 0; a < info->ndim; a++)
		{
			uint64_t	chunk = head->geo.chunk[k][a];

			hsi->view.chunk[k][a] = chunk;
			hsi->view.chunks[k][a] = (hsi->view.shape[k][a] + chunk - 1) / chunk;
		}
	return true;
}

/* Take a head that fits and knows at least one of the grid's arrays as it is today. */
static void
adopt(TbHsi *hsi, TbHead *head)
{
	const TbGridInfo *info = tb_grid_info(hsi->grid);
	bool		any = false;

	if (tb_head_fits(head, info))
		for (int i = 0; i < info->n_arrays; i++)
		{
			hsi->map[i] = tb_head_find(head, info, i);
			any = any || hsi->map[i] >= 0;
		}
	if (!any || !set_view(hsi, head, info))
	{
		tb_head_free(head);
		return;
	}
	hsi->head = head;
	set_trusted(hsi, info);
	/* The key was checked for length when the head was looked for; the build's digits need a little
	 * more. */
	if (strlen(hsi->key) + TB_BUILD_BYTES + 1 < sizeof(hsi->root))
		snprintf(hsi->root, sizeof(hsi->root), "%.*s/%s",
				 (int) (sizeof(hsi->root) - TB_BUILD_BYTES - 1), hsi->key, head->build);
}

static TbStatus
take_head(TbHsi *hsi)
{
	uint64_t	serial;
	const TbBuf *text = tb_find_result(hsi->find, &serial);
	TbHead	   *head;
	TbStatus	status;

	for (int i = 0; i < tb_grid_info(hsi->grid)->n_arrays; i++)
		hsi->map[i] = -1;
	if (text == NULL)
		return TB_OK;
	status = tb_head_parse(text->data, text->len, &head, &hsi->error);
	if (status == TB_OK && head->serial != serial)
	{
		tb_head_free(head);
		status = tb_fail(&hsi->error, TB_E_INDEX_CORRUPT, "head of the index has another's serial");
	}
	if (status != TB_OK)
	{
		tb_error_detail(&hsi->error, "index \"%s\"", hsi->key);
		tb_error_hint(&hsi->error, "Build the index again with CALL tensorbank.build_index(...).");
		return status;
	}
	adopt(hsi, head);
	return TB_OK;
}

TbStatus
tb_hsi_poll(TbHsi *hsi, TbError *err)
{
	if (hsi->status == TB_AGAIN)
	{
		hsi->status = tb_find_poll(hsi->find, &hsi->error);
		if (hsi->status == TB_OK)
			hsi->status = take_head(hsi);
		if (hsi->status != TB_AGAIN)
		{
			tb_find_free(hsi->find);
			hsi->find = NULL;
		}
	}
	if (hsi->status != TB_OK && hsi->status != TB_AGAIN && err != NULL)
		*err = hsi->error;
	return hsi->status;
}

bool
tb_hsi_exists(const TbHsi *hsi)
{
	return hsi->head != NULL;
}

uint64_t
tb_hsi_serial(const TbHsi *hsi)
{
	return hsi->head == NULL ? 0 : hsi->head->serial;
}

bool
tb_hsi_covers(const TbHsi *hsi, const uint64_t *block_index)
{
	const TbHead *head = hsi->head;

	for (int a = 0; a < head->ndim; a++)
		if (block_index[a] >= hsi->trusted[a])
			return false;
	return head->complete || tb_head_has_part(head, tb_geometry_part_of(&head->geo, block_index));
}

/* Blocks of a part that are still as they were described. */
static uint64_t
trusted_blocks(const TbHsi *hsi, uint64_t part)
{
	TbBox		box;
	uint64_t	n = 1;

	tb_geometry_part_box(&hsi->head->geo, part, &box);
	for (int a = 0; a < hsi->head->ndim; a++)
	{
		uint64_t	end = box.start[a] + box.count[a];

		end = end < hsi->trusted[a] ? end : hsi->trusted[a];
		n *= end > box.start[a] ? end - box.start[a] : 0;
	}
	return n;
}

static uint64_t
count_covered(const TbHsi *hsi)
{
	uint64_t	n = 1;

	if (hsi->head->complete)
	{
		for (int a = 0; a < hsi->head->ndim; a++)
			n *= hsi->trusted[a];
		return n;
	}
	n = 0;
	for (size_t i = 0; i < hsi->head->n_runs; i++)
		for (uint64_t part = hsi->head->run[i].first; part < hsi->head->run[i].end; part++)
			n += trusted_blocks(hsi, part);
	return n;
}

TbHsiInfo
tb_hsi_info(const TbHsi *hsi)
{
	TbHsiInfo	info = {.levels = 1, .n_blocks = tb_grid_info(hsi->grid)->n_blocks};

	info.nodes[0] = info.n_blocks;
	if (hsi->head == NULL)
		return info;
	info.complete = hsi->head->complete;
	info.levels = info.complete ? hsi->head->geo.n_levels : 1;
	for (int k = 0; k < info.levels; k++)
		info.nodes[k] = hsi->head->geo.nodes[k];
	info.n_parts = hsi->head->geo.n_parts;
	info.n_parts_done = tb_head_parts_done(hsi->head);
	info.n_covered = count_covered(hsi);
	return info;
}

bool
tb_hsi_has_array(const TbHsi *hsi, const char *array_path)
{
	const TbGridInfo *info = tb_grid_info(hsi->grid);

	for (int i = 0; hsi->head != NULL && i < info->n_arrays; i++)
		if (hsi->map[i] >= 0 && (strcmp(tb_hsi_array_path(info, i), array_path) == 0 ||
								 strcmp(tb_array_meta(info->array[i])->path, array_path) == 0))
			return true;
	return false;
}

TbHsi *
tb_hsi_ref(TbHsi *hsi)
{
	hsi->refs++;
	return hsi;
}

void
tb_hsi_unref(TbHsi *hsi)
{
	if (hsi == NULL || --hsi->refs > 0)
		return;
	tb_find_free(hsi->find);
	tb_chunk_free_all(hsi);
	for (int i = 0; hsi->coord != NULL && i < tb_grid_info(hsi->grid)->n_coords; i++)
		tb_coord_table_clear(&hsi->coord[i]);
	tb_free(hsi->coord);
	tb_free(hsi->map);
	tb_head_free(hsi->head);
	tb_grid_unref(hsi->grid);
	tb_source_unref(hsi->where);
	tb_free(hsi);
}
