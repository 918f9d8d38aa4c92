/*
 * Bundles: the chunks of several stored arrays at one place of the index, loaded together. A scan
 * holds a few of them; which arrays are in one follows from the predicate (levels above the blocks,
 * blocks) or the rows.
 */
#include <string.h>

#include "hsi/prune.h"

TbStatus
tb_bundle_init(TbBundle *bundle, const TbNeeds *needs, TbError *err)
{
	memset(bundle, 0, sizeof(*bundle));
	bundle->needs = needs;
	bundle->chunk = tb_calloc((size_t) needs->n + 1, sizeof(*bundle->chunk));
	return bundle->chunk != NULL ? TB_OK : tb_fail(err, TB_E_NOMEM, "out of memory");
}

void
tb_bundle_close(TbBundle *bundle, TbHsi *hsi)
{
	if (!bundle->open)
		return;
	for (int i = 0; i < bundle->needs->n; i++)
	{
		tb_chunk_release(hsi, bundle->chunk[i]);
		bundle->chunk[i] = NULL;
	}
	bundle->open = false;
}

void
tb_bundle_clear(TbBundle *bundle, TbHsi *hsi)
{
	if (bundle->chunk == NULL)
		return;
	tb_bundle_close(bundle, hsi);
	tb_free(bundle->chunk);
	bundle->chunk = NULL;
}

/* Set place and box; none where the index has nothing there. */
static void
place(TbBundle *bundle, const TbProbe *probe, int level, const uint64_t *node)
{
	const TbHsi *hsi = probe->hsi;
	const TbGeometry *geo;
	bool		inside = hsi != NULL && level < probe->n_levels_stored;

	bundle->open = true;
	bundle->ready = bundle->damaged = false;
	bundle->level = level;
	bundle->number = 0;
	geo = inside ? &hsi->head->geo : probe->geo;
	for (int a = 0; inside && a < geo->ndim; a++)
	{
		inside = node[a] < geo->shape[level][a];
		bundle->number = bundle->number * geo->chunks[level][a] + node[a] / geo->chunk[level][a];
	}
	if (inside && level == 0 && !hsi->head->complete)
		inside = tb_head_has_part(hsi->head, tb_geometry_part_of(geo, node));
	bundle->none = !inside;
	if (inside)
		tb_geometry_chunk_box(geo, level, bundle->number, &bundle->box);
	else
	{
		for (int a = 0; a < geo->ndim; a++)
		{
			bundle->box.start[a] = node[a];
			bundle->box.count[a] = 1;
		}
		bundle->ready = true;
	}
}

TbStatus
tb_bundle_open(TbBundle *bundle, TbProbe *probe, int level, const uint64_t *node, TbError *err)
{
	const TbNeeds *needs = bundle->needs;

	place(bundle, probe, level, node);
	for (int i = 0; i < needs->n && !bundle->none; i++)
	{
		bundle->chunk[i] = tb_hsi_chunk_get(probe->hsi, level, probe->hsi->map[needs->array[i]],
										(TbStored) needs->stored[i], bundle->number);
		if (bundle->chunk[i] == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	return TB_OK;
}

TbStatus
tb_bundle_poll(TbBundle *bundle, TbProbe *probe, TbError *err)
{
	bool		waiting = false;

	if (bundle->ready)
		return TB_OK;
	for (int i = 0; i < bundle->needs->n; i++)
	{
		TbHsiChunk *chunk = bundle->chunk[i];
		TbStatus	status = TB_OK;

		if (chunk->state == TB_CHUNK_OPENING || chunk->state == TB_CHUNK_FETCHING)
			status = tb_chunk_poll(probe->hsi, chunk, &probe->cost, err);
		if (status != TB_OK && status != TB_AGAIN)
			return status;
		waiting = waiting || status == TB_AGAIN;
		if (chunk->state == TB_CHUNK_BAD)
			bundle->damaged = probe->saw_damage = true;
	}
	bundle->ready = !waiting;
	return waiting ? TB_AGAIN : TB_OK;
}

void
tb_bundle_peek(TbBundle *bundle, TbProbe *probe, int level, const uint64_t *node)
{
	const TbNeeds *needs = bundle->needs;

	place(bundle, probe, level, node);
	if (bundle->none)
		return;
	bundle->ready = true;
	for (int i = 0; i < needs->n; i++)
	{
		bundle->chunk[i] = tb_chunk_peek(probe->hsi, level, probe->hsi->map[needs->array[i]],
										 (TbStored) needs->stored[i], bundle->number);
		bundle->ready = bundle->ready && bundle->chunk[i] != NULL;
	}
}

size_t
tb_bundle_slot(const TbBundle *bundle, int ndim, const uint64_t *node)
{
	size_t		slot = 0;

	for (int a = 0; a < ndim; a++)
		slot = slot * bundle->box.count[a] + (node[a] - bundle->box.start[a]);
	return slot;
}
