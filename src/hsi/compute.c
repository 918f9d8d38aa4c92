/*
 * Blocks that the index does not describe: how much reading they would cost, and computing their
 * statistics with a few blocks on their way ahead of the row that is wanted.
 */
#include <inttypes.h>

#include "hsi/job.h"
#include "hsi/pred.h"
#include "hsi/scan.h"

/* ---- what it would cost ---- */

typedef struct Count
{
	const TbProbe *probe;
	uint64_t	element_bytes;
	uint64_t	limit;
	uint64_t	bytes;
} Count;

static void
count_box(Count *count, const TbBox *box)
{
	uint64_t	bytes;

	if (!tb_mul_u64(tb_probe_elements(count->probe->info, box), count->element_bytes, &bytes) ||
		!tb_add_u64(count->bytes, bytes, &count->bytes))
		count->bytes = UINT64_MAX;
}

/* Every statistic of every block below the node is in the index. */
static bool
is_indexed(const TbProbe *probe, int level, const uint64_t *node)
{
	if (probe->hsi == NULL || !probe->all_mapped)
		return false;
	if (level == 0)
		return tb_hsi_covers(probe->hsi, node);
	return probe->hsi->head->complete && tb_probe_trusts(probe, level, node);
}

static void
count_node(Count *count, int level, const uint64_t *node)
{
	const TbProbe *probe = count->probe;
	const TbGeometry *geo = probe->geo;
	TbSubject	subject = {.probe = probe, .level = level, .node = node};
	bool		nothing = probe->hsi == NULL || !probe->all_mapped;
	uint64_t	child[TB_MAX_DIM] = {0};
	TbBox		box;
	int			a;

	if (count->bytes > count->limit || is_indexed(probe, level, node))
		return;
	if (probe->uses_coords && !(tb_subject_judge(&subject) & TB_CAN_TRUE))
		return;
	if (level == 0 || (nothing && !probe->uses_coords))
	{
		tb_probe_blocks(probe, level, node, &box);
		count_box(count, &box);
		return;
	}
	for (a = 0; a < geo->ndim; a++)
		child[a] = node[a] * geo->fan[a];
	do
	{
		count_node(count, level - 1, child);
		for (a = geo->ndim - 1; a >= 0; a--)
		{
			if (++child[a] < (node[a] + 1) * geo->fan[a] && child[a] < geo->shape[level - 1][a])
				break;
			child[a] = node[a] * geo->fan[a];
		}
	} while (a >= 0);
}

uint64_t
tb_scan_open_bytes(const TbProbe *probe, uint64_t element_bytes, uint64_t limit)
{
	Count		count = {.probe = probe, .element_bytes = element_bytes, .limit = limit};
	int			top = probe->geo->n_levels - 1;
	uint64_t	node[TB_MAX_DIM] = {0};
	int			a;

	if (probe->geo->nodes[0] == 0)
		return 0;
	do
	{
		count_node(&count, top, node);
		for (a = probe->geo->ndim - 1; a >= 0; a--)
		{
			if (++node[a] < probe->geo->shape[top][a])
				break;
			node[a] = 0;
		}
	} while (a >= 0);
	return count.bytes;
}

TbStatus
tb_scan_over_limit(const TbScan *scan, uint64_t bytes, TbError *err)
{
	TbStatus status =
		tb_fail(err, TB_E_LIMIT, "too much data would have to be read to compute statistics");

	tb_error_detail(err,
					"At least %" PRIu64
					" bytes of blocks without an index entry, the limit is %" PRIu64 ".",
					bytes, scan->limit_bytes);
	tb_error_hint(err, "Build the index with CALL tensorbank.build_index(...) or raise "
				  "tensorbank.compute_limit.");
	return status;
}

/* ---- computing ---- */

static void
free_job(TbScanJob *slot)
{
	tb_leaf_job_free(slot->job);
	slot->job = NULL;
}

void
tb_scan_drop_jobs(TbScan *scan)
{
	for (int i = 0; i <= TB_SCAN_JOBS; i++)
		free_job(&scan->job[i]);
}

static TbScanJob *
find_job(TbScan *scan, uint64_t block)
{
	for (int i = 0; i <= TB_SCAN_JOBS; i++)
		if (scan->job[i].job != NULL && scan->job[i].block == block)
			return &scan->job[i];
	return NULL;
}

static TbStatus
start_job(TbScan *scan, TbScanJob *slot, uint64_t block, TbError *err)
{
	uint64_t	index[TB_MAX_DIM];
	TbBox		box;
	uint64_t	bytes;

	tb_grid_block_index(scan->probe.info, block, index);
	tb_probe_blocks(&scan->probe, 0, index, &box);
	/* Also blocks that turned out to be damaged count against the limit. */
	if (!tb_mul_u64(tb_probe_elements(scan->probe.info, &box), scan->element_bytes, &bytes) ||
		!tb_add_u64(scan->open_bytes, bytes, &scan->open_bytes))
		scan->open_bytes = UINT64_MAX;
	if (scan->open_bytes > scan->limit_bytes)
		return tb_scan_over_limit(scan, scan->open_bytes, err);
	slot->block = block;
	return tb_leaf_job_open(scan->probe.grid, scan->needed, scan->n_needed, block, &slot->job, err);
}

/* Fill free places with the next open blocks of the slab. */
static TbStatus
schedule(TbScan *scan, TbError *err)
{
	const TbWalk *walk = &scan->walk;
	TbStatus	status = TB_OK;

	for (int i = 0; i < TB_SCAN_JOBS && status == TB_OK; i++)
	{
		if (scan->job[i].job != NULL)
			continue;
		if (scan->scheduled < scan->cursor)
			scan->scheduled = scan->cursor;
		while (scan->scheduled < walk->n_blocks &&
			   !tb_bit(walk->open, tb_scan_place(scan, scan->scheduled)))
			scan->scheduled++;
		if (scan->scheduled == walk->n_blocks)
			break;
		/* The row's own may be on its way in the last place already. */
		if (find_job(scan, walk->first_block + tb_scan_place(scan, scan->scheduled)) == NULL)
			status = start_job(scan, &scan->job[i],
							   walk->first_block + tb_scan_place(scan, scan->scheduled), err);
		scan->scheduled++;
	}
	return status;
}

static TbStatus
take_result(TbScan *scan, TbScanJob *slot, TbError *err)
{
	uint64_t	version;
	uint64_t	bytes;
	bool		missing;
	TbStatus status =
		tb_leaf_job_result(slot->job, scan->computed, &version, &missing, &bytes, err);

	if (status != TB_OK)
		return status;
	for (int i = 0; i < scan->n_needed; i++)
	{
		scan->leaf[scan->needed[i]] = scan->computed[i];
		scan->known[scan->needed[i]] = true;
	}
	scan->counters.computed++;
	scan->counters.data_bytes += bytes;
	scan->counters.data_requests += tb_leaf_job_requests(slot->job);
	return TB_OK;
}

TbStatus
tb_scan_compute(TbScan *scan, uint64_t block, TbError *err)
{
	TbStatus	status = schedule(scan, err);
	TbScanJob  *slot = find_job(scan, block);

	if (status == TB_OK && slot == NULL)
	{
		slot = &scan->job[TB_SCAN_JOBS];
		free_job(slot);
		status = start_job(scan, slot, block, err);
	}
	if (status == TB_OK)
		status = tb_leaf_job_poll(slot->job, err);
	if (status != TB_OK)
		return status;
	status = take_result(scan, slot, err);
	if (status != TB_AGAIN)
		free_job(slot);
	return status;
}
