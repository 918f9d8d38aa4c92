/*
 * Scans: which blocks can match a predicate, in block order, with the statistics that rows need.
 *
 * The grid is gone through in slabs, boxes that are contiguous in block numbers, small at first (a
 * query with a LIMIT is done early) and then larger. walk.c leaves a bit for each block of a slab;
 * rows are then made in order of the bits: statistics come from the index, or from the block itself
 * where the index has none and the setting says so. Where no statistic is needed, nothing is read.
 */
#include "hsi/scan.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "hsi/pred.h"

#define FIRST_SLAB 4096			/* blocks */
#define BLOCKS_A_CALL ((uint64_t) 1 << 18)	/* without a row, before the host may look around */

static TbStatus
init_arrays(TbScan *scan, TbError *err)
{
	size_t		n = (size_t) scan->probe.info->n_arrays + 1;

	scan->needed = tb_calloc(n, sizeof(int));
	scan->leaf = tb_calloc(n, sizeof(TbLeaf));
	scan->computed = tb_calloc(n, sizeof(TbLeaf));
	scan->known = tb_calloc(n, sizeof(bool));
	if (scan->needed == NULL || scan->leaf == NULL || scan->computed == NULL || scan->known == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (int a = 0; a < scan->probe.info->n_arrays; a++)
	{
		if (!scan->probe.need[a])
			continue;
		scan->needed[scan->n_needed++] = a;
		scan->element_bytes +=
			tb_dtype_size(tb_array_meta(scan->probe.info->array[a])->packing.packed);
	}
	return TB_OK;
}

/* Where to begin and to end, within the grid. */
static void
set_run(TbScan *scan, const TbScanSpec *spec)
{
	uint64_t	all = scan->probe.info->n_blocks;

	scan->done_blocks = spec->first_block < all ? spec->first_block : all;
	scan->end_blocks = all;
	if (spec->n_blocks > 0 && spec->n_blocks < all - scan->done_blocks)
		scan->end_blocks = scan->done_blocks + spec->n_blocks;
}

TbStatus
tb_scan_open(const TbScanSpec *spec, TbScan **scan, TbError *err)
{
	TbScan	   *made = tb_calloc(1, sizeof(*made));
	TbStatus	status;

	*scan = NULL;
	if (made == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	made->unindexed = spec->unindexed;
	made->limit_bytes = spec->compute_limit_bytes;
	made->descending = spec->descending;
	made->slab_blocks = FIRST_SLAB;
	made->checked = spec->limit_checked;
	status = tb_probe_init(&made->probe, spec, err);
	if (status == TB_OK)
	{
		made->counters.blocks = made->probe.info->n_blocks;
		set_run(made, spec);
		tb_walk_init(&made->walk, &made->probe, &made->counters);
		status = init_arrays(made, err);
	}
	for (int i = 0; i < TB_SCAN_ROW_BUNDLES && status == TB_OK; i++)
		status = tb_bundle_init(&made->row_bundle[i], &made->probe.row, err);
	if (status != TB_OK)
	{
		tb_scan_free(made);
		return status;
	}
	*scan = made;
	return TB_OK;
}

static TbLoop *
loop_of(const TbScan *scan)
{
	return tb_engine_loop(tb_source_engine(tb_grid_source(scan->probe.grid)));
}

static void
end_pause(TbTask *task)
{
	TbScan	   *scan = (TbScan *) ((char *) task - offsetof(TbScan, pause));

	scan->pausing = false;
}

/* AGAIN, and the next pump has something to do: the host serves its interrupts in between. */
static TbStatus
begin_pause(TbScan *scan)
{
	if (!scan->pausing)
	{
		scan->pause.run = end_pause;
		scan->pausing = true;
		tb_loop_defer(loop_of(scan), &scan->pause);
	}
	return TB_AGAIN;
}

void
tb_scan_free(TbScan *scan)
{
	if (scan == NULL)
		return;
	if (scan->pausing)
		tb_loop_undefer(loop_of(scan), &scan->pause);
	tb_scan_drop_jobs(scan);
	for (int i = 0; i < TB_SCAN_ROW_BUNDLES; i++)
		tb_bundle_clear(&scan->row_bundle[i], scan->probe.hsi);
	tb_walk_clear(&scan->walk);
	tb_probe_clear(&scan->probe);
	tb_free(scan->needed);
	tb_free(scan->leaf);
	tb_free(scan->computed);
	tb_free(scan->known);
	tb_free(scan);
}

/* ---- slabs ---- */

/*
 * The next box of blocks in the order of the scan: whole fastest axes, a piece of the first axis
 * that leaves more than the wanted number, one place on the slower ones. Counted from the end where
 * the scan descends.
 */
static void
next_slab(const TbScan *scan, TbBox *slab)
{
	const TbGridInfo *info = scan->probe.info;
	uint64_t	inner = 1;		/* blocks below one place of the axis that is cut */
	uint64_t	done = scan->done_blocks;
	uint64_t	left = scan->end_blocks - done;
	uint64_t	wanted = scan->slab_blocks < left ? scan->slab_blocks : left;
	uint64_t	length;
	int			cut = info->ndim - 1;

	for (int a = 0; a < info->ndim; a++)
	{
		slab->start[a] = 0;
		slab->count[a] = 1;
	}
	if (info->ndim == 0)
		return;
	while (cut > 0 && inner * info->blocks[info->order[cut]] <= wanted &&
		   done % (inner * info->blocks[info->order[cut]]) == 0)
		inner *= info->blocks[info->order[cut--]];
	for (int i = cut + 1; i < info->ndim; i++)
		slab->count[info->order[i]] = info->blocks[info->order[i]];
	done /= inner;
	for (int i = cut; i >= 0; i--)
	{
		int			a = info->order[i];

		slab->start[a] = done % info->blocks[a];
		done /= info->blocks[a];
	}
	length = wanted / inner;
	length = length == 0 ? 1 : length;
	if (length > info->blocks[info->order[cut]] - slab->start[info->order[cut]])
		length = info->blocks[info->order[cut]] - slab->start[info->order[cut]];
	slab->count[info->order[cut]] = length;
	for (int a = 0; a < info->ndim && scan->descending; a++)
		slab->start[a] = info->blocks[a] - slab->start[a] - slab->count[a];
}

static TbStatus
begin_slab(TbScan *scan, TbError *err)
{
	TbBox		slab;
	TbStatus	status;

	next_slab(scan, &slab);
	tb_scan_drop_jobs(scan);
	status = tb_walk_begin(&scan->walk, &slab, err);
	if (status != TB_OK)
		return status;
	scan->walking = true;
	scan->emitting = false;
	if (scan->slab_blocks < TB_SLAB_BLOCKS)
		scan->slab_blocks *= 4;
	return TB_OK;
}

static void
end_slab(TbScan *scan)
{
	scan->done_blocks += scan->walk.n_blocks;
	scan->walking = scan->emitting = false;
}

/* ---- rows ---- */

/* The bundle that holds a block's statistics, opened in the place used longest ago. */
static TbStatus
row_bundle(TbScan *scan, const uint64_t *index, bool ahead, TbBundle **bundle, TbError *err)
{
	const TbGeometry *geo = &scan->probe.hsi->head->geo;
	int			oldest = 0;

	for (int i = 0; i < TB_SCAN_ROW_BUNDLES; i++)
	{
		bool		same = scan->row_bundle[i].open;

		for (int a = 0; a < geo->ndim && same; a++)
			same = index[a] - scan->row_bundle[i].box.start[a] < scan->row_bundle[i].box.count[a];
		if (same)
		{
			*bundle = &scan->row_bundle[i];
			/* time goes by from place to place, not from row to row */
			if (scan->row_used[i] != scan->row_clock)
				scan->row_used[i] = ++scan->row_clock;
			if (!ahead)
				scan->row_now = i;
			return TB_OK;
		}
		if (scan->row_used[i] < scan->row_used[oldest])
			oldest = i;
	}
	*bundle = &scan->row_bundle[oldest];
	/* Reading ahead takes no place from what was asked for a moment ago. */
	if (ahead && (*bundle)->open &&
		(oldest == scan->row_now ||
		 scan->row_used[oldest] + TB_SCAN_ROW_BUNDLES / 2 > scan->row_clock))
		return TB_AGAIN;
	scan->row_used[oldest] = ++scan->row_clock;
	if (!ahead)
		scan->row_now = oldest;
	tb_bundle_close(*bundle, scan->probe.hsi);
	return tb_bundle_open(*bundle, &scan->probe, 0, index, err);
}

/* While a row waits: start on the places of the rows after it. */
static TbStatus
read_ahead(TbScan *scan, TbError *err)
{
	const TbWalk *walk = &scan->walk;
	uint64_t	end = scan->cursor + TB_HSI_CHUNK_NODES;
	TbBundle   *last = NULL;
	int			opened = 0;

	for (uint64_t i = scan->cursor + 1; i < end && i < walk->n_blocks && opened < 8; i++)
	{
		uint64_t	index[TB_MAX_DIM];
		TbBundle   *bundle;
		TbStatus	status;

		if (!tb_bit(walk->hit, tb_scan_place(scan, i)))
			continue;
		tb_grid_block_index(scan->probe.info, walk->first_block + tb_scan_place(scan, i), index);
		status = row_bundle(scan, index, true, &bundle, err);
		if (status == TB_AGAIN)
			break;
		if (status == TB_OK && bundle != last && !bundle->ready)
		{
			status = tb_bundle_poll(bundle, &scan->probe, err);
			opened++;
			last = bundle;
		}
		if (status != TB_OK && status != TB_AGAIN)
			return status;
	}
	return TB_AGAIN;
}

static TbBlockState
state_of(const TbScan *scan, const TbBundle *bundle, size_t slot)
{
	bool		missing = true;
	bool		constant = true;

	for (int i = 0; i < scan->n_needed; i++)
	{
		int			a = scan->needed[i];
		const TbLeaf *leaf = &scan->leaf[a];
		int			at = scan->probe.row.at[(size_t) a * TB_N_STORED + TB_STORED_VERSION];

		missing = missing && bundle->chunk[at]->value[slot].u64 == 0;
		constant = constant && leaf->valid > 0 && leaf->nan == 0 && leaf->missing == 0 &&
			leaf->min.u64 == leaf->max.u64;
	}
	return missing ? TB_BLOCK_MISSING : constant ? TB_BLOCK_CONSTANT : TB_BLOCK_PRESENT;
}

/* Statistics of the row from the index. *lost: they cannot be had. */
static TbStatus
load_row(TbScan *scan, const uint64_t *index, bool *lost, TbError *err)
{
	const TbNeeds *needs = &scan->probe.row;
	TbBundle   *bundle;
	size_t		slot;
	TbStatus	status = row_bundle(scan, index, false, &bundle, err);

	if (status == TB_OK)
		status = tb_bundle_poll(bundle, &scan->probe, err);
	if (status == TB_AGAIN)
		return read_ahead(scan, err);
	if (status != TB_OK)
		return status;
	*lost = bundle->damaged || bundle->none;
	if (*lost)
		return TB_OK;
	slot = tb_bundle_slot(bundle, scan->probe.info->ndim, index);
	for (int i = 0; i < needs->n; i++)
	{
		tb_leaf_set(&scan->leaf[needs->array[i]], (TbStored) needs->stored[i],
					bundle->chunk[i]->value[slot]);
		scan->known[needs->array[i]] = true;
	}
	scan->row.state = state_of(scan, bundle, slot);
	return TB_OK;
}

/* A block whose statistics are not known. *skip: it makes no row. */
static TbStatus
open_row(TbScan *scan, uint64_t block, const uint64_t *index, bool *skip, TbError *err)
{
	TbSubject	subject = {
		.probe = &scan->probe, .level = 0, .node = index, .leaf = scan->leaf, .known = scan->known
	};
	TbStatus	status;

	*skip = false;
	scan->row.state = TB_BLOCK_UNINDEXED;
	if (scan->unindexed == TB_UNINDEXED_ERROR)
	{
		status = tb_fail(err, TB_E_STATE, "statistics of a block are not known");
		tb_error_detail(err, "block %" PRIu64 " of group \"%s\"", block,
						scan->probe.info->group != NULL ? scan->probe.info->group : "");
		tb_error_hint(err, "Build the index with CALL tensorbank.build_index(...) or set "
					  "tensorbank.unindexed to compute or exclude.");
		return status;
	}
	if (scan->unindexed == TB_UNINDEXED_EXCLUDE)
	{
		scan->counters.excluded++;
		*skip = true;
		return TB_OK;
	}
	status = tb_scan_compute(scan, block, err);
	if (status == TB_OK)
		*skip = !(tb_subject_judge(&subject) & TB_CAN_TRUE);
	return status;
}

/* The row at the cursor. *skip: there is none after all. */
static TbStatus
make_row(TbScan *scan, bool hit, bool *skip, TbError *err)
{
	const TbGridInfo *info = scan->probe.info;
	uint64_t	block = scan->walk.first_block + tb_scan_place(scan, scan->cursor);
	TbBlockRow *row = &scan->row;
	bool		lost = !hit;
	TbBox		box;
	TbStatus	status = TB_OK;

	*skip = false;
	row->block = block;
	tb_grid_block_index(info, block, row->index);
	tb_probe_blocks(&scan->probe, 0, row->index, &box);
	row->elements = tb_probe_elements(info, &box);
	memset(scan->known, 0, (size_t) info->n_arrays * sizeof(bool));
	row->leaf = scan->leaf;
	row->known = scan->known;
	if (!scan->probe.any_need)
	{
		bool		covered = scan->probe.hsi != NULL && tb_hsi_covers(scan->probe.hsi, row->index);

		row->state = covered ? TB_BLOCK_PRESENT : TB_BLOCK_UNINDEXED;
		return TB_OK;
	}
	if (hit)
		status = load_row(scan, row->index, &lost, err);
	if (status == TB_OK && lost)
		status = open_row(scan, block, row->index, skip, err);
	return status;
}

/* From a place of the slab on, in the order of the scan: the next one that may have a row, or
 * n_blocks. */
static uint64_t
next_place(const TbScan *scan, uint64_t i)
{
	const TbWalk *walk = &scan->walk;

	while (i < walk->n_blocks)
	{
		uint64_t	place = tb_scan_place(scan, i);
		uint64_t	word = walk->hit[place / 64] | walk->open[place / 64];

		/* Places that were passed are cut off; what is left of a word is looked at in one step. */
		if (scan->descending)
			word <<= 63 - place % 64;
		else
			word >>= place % 64;
		if (word != 0)
			return i +
				   (uint64_t) (scan->descending ? __builtin_clzll(word) : __builtin_ctzll(word));
		i += scan->descending ? place % 64 + 1 : 64 - place % 64;
	}
	return walk->n_blocks;
}

/* Go on to the next row of the slab; *found false: there are no more. */
static TbStatus
next_row(TbScan *scan, bool *found, TbError *err)
{
	const TbWalk *walk = &scan->walk;

	*found = false;
	while ((scan->cursor = next_place(scan, scan->cursor)) < walk->n_blocks)
	{
		bool		hit = tb_bit(walk->hit, tb_scan_place(scan, scan->cursor));
		bool		skip;
		TbStatus	status = make_row(scan, hit, &skip, err);

		if (status != TB_OK)
			return status;
		scan->cursor++;
		if (!skip)
		{
			*found = true;
			return TB_OK;
		}
	}
	return TB_OK;
}

/* The limit on computing is looked at once, before anything is read. */
static TbStatus
check_limit(TbScan *scan, TbError *err)
{
	uint64_t	bytes;

	scan->checked = true;
	if (scan->unindexed != TB_UNINDEXED_COMPUTE || !scan->probe.any_need)
		return TB_OK;
	bytes = tb_scan_open_bytes(&scan->probe, scan->element_bytes, scan->limit_bytes);
	return bytes > scan->limit_bytes ? tb_scan_over_limit(scan, bytes, err) : TB_OK;
}

TbStatus
tb_scan_next(TbScan *scan, const TbBlockRow **row, TbError *err)
{
	TbStatus	status = scan->checked ? TB_OK : check_limit(scan, err);
	uint64_t	passed = scan->done_blocks;

	*row = NULL;
	while (status == TB_OK && (scan->walking || scan->emitting ||
							   scan->done_blocks < scan->end_blocks))
	{
		bool		found = false;

		if (scan->done_blocks - passed >= BLOCKS_A_CALL)
			return begin_pause(scan);
		if (!scan->walking && !scan->emitting)
			status = begin_slab(scan, err);
		if (status == TB_OK && scan->walking)
		{
			status = tb_walk_run(&scan->walk, err);
			if (status != TB_OK)
				break;
			scan->walking = false;
			scan->emitting = true;
			scan->cursor = scan->scheduled = 0;
		}
		if (status == TB_OK)
			status = next_row(scan, &found, err);
		if (status == TB_OK && found)
		{
			scan->counters.rows++;
			*row = &scan->row;
			return TB_OK;
		}
		if (status == TB_OK)
			end_slab(scan);
	}
	return status;
}

TbScanCounters
tb_scan_counters(const TbScan *scan)
{
	TbScanCounters counters = scan->counters;

	counters.index_requests = scan->probe.cost.requests;
	counters.index_bytes = scan->probe.cost.bytes;
	return counters;
}

const char *
tb_scan_warning(const TbScan *scan)
{
	TbScan	   *text = (TbScan *) scan;

	if (!scan->probe.saw_damage)
		return NULL;
	snprintf(text->warning, sizeof(text->warning),
			 "the index is damaged: %s; its blocks count as unindexed", scan->probe.hsi->damage);
	return scan->warning;
}
