/*
 * Walking the index top down over one slab, level by level: candidates of a level are first judged
 * by coordinates alone, which costs no reading, then, chunk of the index by chunk, with the
 * statistics in it; the children of those that may match are the candidates of the level below. At
 * level 0 a block becomes a hit, or stays open where its statistics are needed and not known.
 *
 * Going level by level, and not depth first, is what lets many chunks be on their way at once.
 * Memory is bounded by the slab's size.
 */
#include "hsi/walk.h"

#include <string.h>

#include "hsi/pred.h"

void
tb_walk_init(TbWalk *walk, TbProbe *probe, TbScanCounters *counters)
{
	memset(walk, 0, sizeof(*walk));
	walk->probe = probe;
	walk->counters = counters;
	walk->level = -1;
}

static void
close_ring(TbWalk *walk)
{
	for (int i = 0; i < TB_WALK_AHEAD; i++)
		tb_bundle_clear(&walk->ring[i], walk->probe->hsi);
	walk->ring_first = walk->ring_n = 0;
	walk->ring_needs = NULL;
}

void
tb_walk_clear(TbWalk *walk)
{
	if (walk->probe != NULL)
		close_ring(walk);
	tb_free(walk->hit);
	tb_free(walk->open);
	tb_free(walk->candidate);
	tb_free(walk->next);
	memset(walk, 0, sizeof(*walk));
}

/* ---- nodes and candidates ---- */

static TbCandidate
candidate_of(const TbWalk *walk, int level, const uint64_t *node)
{
	const TbGeometry *geo = walk->probe->geo;
	const TbSlabLevel *slab = &walk->level_of[level];
	uint64_t	chunk = 0;
	uint64_t	slot = 0;

	for (int a = 0; a < geo->ndim; a++)
	{
		uint64_t	length = geo->chunk[level][a];

		chunk = chunk * slab->n_chunks[a] + (node[a] / length - slab->chunk_lo[a]);
		slot = slot * length + node[a] % length;
	}
	return (TbCandidate) {.chunk = (uint32_t) chunk, .slot = (uint32_t) slot};
}

static void
node_of(const TbWalk *walk, int level, TbCandidate candidate, uint64_t *node)
{
	const TbGeometry *geo = walk->probe->geo;
	const TbSlabLevel *slab = &walk->level_of[level];
	uint32_t	chunk = candidate.chunk;
	uint32_t	slot = candidate.slot;

	for (int a = geo->ndim - 1; a >= 0; a--)
	{
		uint32_t	length = (uint32_t) geo->chunk[level][a];
		uint32_t	n_chunks = (uint32_t) slab->n_chunks[a];

		node[a] = (slab->chunk_lo[a] + chunk % n_chunks) * length + slot % length;
		chunk /= n_chunks;
		slot /= length;
	}
}

/* Blocks of a node inside the slab; *starts: its first block is. */
static uint64_t
blocks_in_slab(const TbWalk *walk, int level, const uint64_t *node, bool *starts)
{
	TbBox		box;
	uint64_t	n = 1;

	*starts = true;
	tb_probe_blocks(walk->probe, level, node, &box);
	for (int a = 0; a < walk->probe->info->ndim; a++)
	{
		uint64_t	start = box.start[a];
		uint64_t	end = start + box.count[a];
		uint64_t	slab_end = walk->slab.start[a] + walk->slab.count[a];

		*starts = *starts && start >= walk->slab.start[a];
		start = start > walk->slab.start[a] ? start : walk->slab.start[a];
		end = end < slab_end ? end : slab_end;
		n *= end - start;
	}
	return n;
}

/* Append every node of a box (first and last along each axis) as a candidate of a level. */
static void
add_box(TbWalk *walk, int level, const uint64_t *first, const uint64_t *last)
{
	int			ndim = walk->probe->geo->ndim;
	uint64_t	node[TB_MAX_DIM];
	int			a;

	memcpy(node, first, sizeof(node));
	do
	{
		walk->next[walk->n_next++] = candidate_of(walk, level, node);
		for (a = ndim - 1; a >= 0; a--)
		{
			if (node[a]++ < last[a])
				break;
			node[a] = first[a];
		}
	} while (a >= 0);
}

static void
add_children(TbWalk *walk, int level, const uint64_t *node)
{
	const TbGeometry *geo = walk->probe->geo;
	const TbSlabLevel *slab = &walk->level_of[level - 1];
	uint64_t	first[TB_MAX_DIM] = {0};
	uint64_t	last[TB_MAX_DIM] = {0};

	for (int a = 0; a < geo->ndim; a++)
	{
		first[a] = node[a] * geo->fan[a];
		last[a] = first[a] + geo->fan[a] - 1;
		first[a] = first[a] > slab->lo[a] ? first[a] : slab->lo[a];
		last[a] = last[a] < slab->hi[a] ? last[a] : slab->hi[a];
	}
	add_box(walk, level - 1, first, last);
}

/* ---- beginning ---- */

static bool
make_room(TbWalk *walk, uint64_t n)
{
	if (n > walk->cap_blocks)
	{
		tb_free(walk->hit);
		tb_free(walk->open);
		tb_free(walk->candidate);
		tb_free(walk->next);
		walk->cap_blocks = 0;
		walk->hit = tb_calloc(n / 64 + 1, sizeof(uint64_t));
		walk->open = tb_calloc(n / 64 + 1, sizeof(uint64_t));
		walk->candidate = tb_calloc(n, sizeof(TbCandidate));
		walk->next = tb_calloc(n, sizeof(TbCandidate));
		if (walk->hit == NULL || walk->open == NULL || walk->candidate == NULL ||
			walk->next == NULL)
			return false;
		walk->cap_blocks = n;
	}
	memset(walk->hit, 0, (n / 64 + 1) * sizeof(uint64_t));
	memset(walk->open, 0, (n / 64 + 1) * sizeof(uint64_t));
	return true;
}

static void
set_levels(TbWalk *walk)
{
	const TbGeometry *geo = walk->probe->geo;

	for (int k = 0; k < geo->n_levels; k++)
		for (int a = 0; a < geo->ndim; a++)
		{
			TbSlabLevel *slab = &walk->level_of[k];

			slab->lo[a] = k == 0 ? walk->slab.start[a] : walk->level_of[k - 1].lo[a] / geo->fan[a];
			slab->hi[a] = k == 0 ? walk->slab.start[a] + walk->slab.count[a] - 1 :
				walk->level_of[k - 1].hi[a] / geo->fan[a];
			slab->chunk_lo[a] = slab->lo[a] / geo->chunk[k][a];
			slab->n_chunks[a] = slab->hi[a] / geo->chunk[k][a] - slab->chunk_lo[a] + 1;
		}
}

/* The candidates of the level below become those of the level. */
static void
descend(TbWalk *walk, int level)
{
	TbCandidate *swap = walk->candidate;

	walk->candidate = walk->next;
	walk->next = swap;
	walk->n = walk->n_next;
	walk->n_next = 0;
	walk->at = walk->ahead = 0;
	walk->level = level;
	walk->prepared = false;
}

TbStatus
tb_walk_begin(TbWalk *walk, const TbBox *slab, TbError *err)
{
	const TbGridInfo *info = walk->probe->info;
	int			top = walk->probe->geo->n_levels - 1;

	close_ring(walk);
	walk->slab = *slab;
	walk->first_block = tb_grid_block_number(info, slab->start);
	walk->n_blocks = tb_box_nodes(info->ndim, slab);
	if (!make_room(walk, walk->n_blocks))
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	set_levels(walk);
	walk->n_next = 0;
	add_box(walk, top, walk->level_of[top].lo, walk->level_of[top].hi);
	descend(walk, top);
	return TB_OK;
}

/* ---- one level ---- */

/* Drop the candidates that coordinates alone rule out. */
static void
filter_by_coords(TbWalk *walk)
{
	uint64_t	node[TB_MAX_DIM];
	TbSubject	subject = {.probe = walk->probe, .level = walk->level, .node = node};
	size_t		kept = 0;
	bool		starts;

	for (size_t i = 0; i < walk->n; i++)
	{
		node_of(walk, walk->level, walk->candidate[i], node);
		if (tb_subject_judge(&subject) & TB_CAN_TRUE)
			walk->candidate[kept++] = walk->candidate[i];
		else
			walk->counters->pruned_coords += blocks_in_slab(walk, walk->level, node, &starts);
	}
	walk->n = kept;
}

/* Bring the candidates of a chunk together: a counting sort, as chunks are few. */
static TbStatus
sort_by_chunk(TbWalk *walk, TbError *err)
{
	const TbSlabLevel *slab = &walk->level_of[walk->level];
	TbCandidate *swap = walk->candidate;
	size_t		n_chunks = 1;
	size_t	   *start;

	for (int a = 0; a < walk->probe->geo->ndim; a++)
		n_chunks *= slab->n_chunks[a];
	start = tb_calloc(n_chunks + 1, sizeof(size_t));
	if (start == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (size_t i = 0; i < walk->n; i++)
		start[walk->candidate[i].chunk + 1]++;
	for (size_t c = 0; c < n_chunks; c++)
		start[c + 1] += start[c];
	for (size_t i = 0; i < walk->n; i++)
		walk->next[start[walk->candidate[i].chunk]++] = walk->candidate[i];
	tb_free(start);
	walk->candidate = walk->next;
	walk->next = swap;
	return TB_OK;
}

/* Statistics have a say at this level. */
static bool
has_stats(const TbWalk *walk)
{
	return walk->probe->uses_stats && walk->level < walk->probe->n_levels_stored;
}

static TbStatus
prepare(TbWalk *walk, TbError *err)
{
	const TbNeeds *needs = walk->level == 0 ? &walk->probe->leaf : &walk->probe->inner;
	TbStatus	status = TB_OK;

	if (walk->probe->uses_coords)
		filter_by_coords(walk);
	if (has_stats(walk))
	{
		if (walk->ring_needs != needs)
		{
			close_ring(walk);
			for (int i = 0; i < TB_WALK_AHEAD && status == TB_OK; i++)
				status = tb_bundle_init(&walk->ring[i], needs, err);
			walk->ring_needs = needs;
		}
		if (status == TB_OK)
			status = sort_by_chunk(walk, err);
	}
	walk->prepared = status == TB_OK;
	return status;
}

static void
set_bit(const TbWalk *walk, uint64_t *bits, const uint64_t *node)
{
	uint64_t	i = tb_grid_block_number(walk->probe->info, node) - walk->first_block;

	bits[i / 64] |= 1ull << (i % 64);
}

/* A node that may match: go on below it, or note the block. */
static void
keep(TbWalk *walk, const uint64_t *node)
{
	const TbProbe *probe = walk->probe;

	if (walk->level > 0)
	{
		add_children(walk, walk->level, node);
		return;
	}
	if (!probe->any_need ||
		(probe->hsi != NULL && probe->all_mapped && tb_hsi_covers(probe->hsi, node)))
		set_bit(walk, walk->hit, node);
	else
		set_bit(walk, walk->open, node);
}

/* Judge the candidate at walk->at with what the bundle knows (NULL: nothing). */
static void
judge_one(TbWalk *walk, const TbBundle *bundle)
{
	uint64_t	node[TB_MAX_DIM];
	TbSubject	subject = {.probe = walk->probe, .level = walk->level, .node = node};
	uint64_t	n_blocks;
	bool		starts;

	node_of(walk, walk->level, walk->candidate[walk->at++], node);
	n_blocks = blocks_in_slab(walk, walk->level, node, &starts);
	walk->counters->nodes_visited[walk->level] += starts;
	if (bundle != NULL && !bundle->none && tb_probe_trusts(walk->probe, walk->level, node))
	{
		subject.bundle = bundle;
		subject.slot = tb_bundle_slot(bundle, walk->probe->geo->ndim, node);
		if (!(tb_subject_judge(&subject) & TB_CAN_TRUE))
		{
			walk->counters->pruned_level[walk->level] += n_blocks;
			return;
		}
	}
	keep(walk, node);
}

/* Start loading for the next chunks. */
static TbStatus
look_ahead(TbWalk *walk, TbError *err)
{
	while (walk->ring_n < TB_WALK_AHEAD && walk->ahead < walk->n)
	{
		TbBundle   *bundle = &walk->ring[(walk->ring_first + walk->ring_n) % TB_WALK_AHEAD];
		uint32_t	chunk = walk->candidate[walk->ahead].chunk;
		uint64_t	node[TB_MAX_DIM];
		TbStatus	status;

		node_of(walk, walk->level, walk->candidate[walk->ahead], node);
		walk->ring_n++;
		status = tb_bundle_open(bundle, walk->probe, walk->level, node, err);
		if (status == TB_OK)
			status = tb_bundle_poll(bundle, walk->probe, err);
		if (status != TB_OK && status != TB_AGAIN)
			return status;
		while (walk->ahead < walk->n && walk->candidate[walk->ahead].chunk == chunk)
			walk->ahead++;
	}
	return TB_OK;
}

static TbStatus
judge_level(TbWalk *walk, TbError *err)
{
	while (walk->at < walk->n)
	{
		TbBundle   *bundle = &walk->ring[walk->ring_first];
		uint32_t	chunk = walk->candidate[walk->at].chunk;
		TbStatus	status = look_ahead(walk, err);

		if (status == TB_OK)
			status = tb_bundle_poll(bundle, walk->probe, err);
		/* Bundles behind the first move on when polled: keep all of them going while waiting. */
		for (int i = 1; status == TB_AGAIN && i < walk->ring_n; i++)
		{
			TbStatus	other = tb_bundle_poll(&walk->ring[(walk->ring_first + i) % TB_WALK_AHEAD],
											   walk->probe, err);

			if (other != TB_OK && other != TB_AGAIN)
				return other;
		}
		if (status != TB_OK)
			return status;
		while (walk->at < walk->n && walk->candidate[walk->at].chunk == chunk)
			judge_one(walk, bundle);
		tb_bundle_close(bundle, walk->probe->hsi);
		walk->ring_first = (walk->ring_first + 1) % TB_WALK_AHEAD;
		walk->ring_n--;
	}
	return TB_OK;
}

TbStatus
tb_walk_run(TbWalk *walk, TbError *err)
{
	while (walk->level >= 0)
	{
		TbStatus	status = walk->prepared ? TB_OK : prepare(walk, err);

		if (status != TB_OK)
			return status;
		if (has_stats(walk))
			status = judge_level(walk, err);
		else
			while (walk->at < walk->n)
				judge_one(walk, NULL);
		if (status != TB_OK)
			return status;
		descend(walk, walk->level - 1);
	}
	return TB_OK;
}
