/*
 * A scan that several processes share: each takes runs of blocks from a counter in dynamic shared memory, so
 * every row comes once, whoever takes part.
 *
 * Runs are large at first and get smaller towards the end, so that all are done at about the same time. Each
 * process has an engine of its own and opens the table itself. Blocks that the array grew by since the leader
 * looked are nobody's.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "storage/shm_toc.h"
#include "storage/spin.h"

#include "pg/fdw.h"

#define MOST_BLOCKS ((uint64) 1 << 18)	/* of a run */
#define MOST_BLOCKS_READ 16		/* where read() is called on each */

struct TbpgShared
{
	slock_t		mutex;
	uint64		n_blocks;
	uint64		next;			/* the first block that nobody took */
	int			processes;
	TbScanCounters total;		/* of all finished runs */
};

bool
tbpg_scan_parallel_safe(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	return true;
}

Size
tbpg_estimate_dsm(ForeignScanState *node, ParallelContext *context)
{
	return sizeof(TbpgShared);
}

void
tbpg_init_dsm(ForeignScanState *node, ParallelContext *context, void *coordinate)
{
	TbpgScanState *state = node->fdw_state;
	TbpgShared *shared = coordinate;

	memset(shared, 0, sizeof(*shared));
	SpinLockInit(&shared->mutex);
	shared->n_blocks = state->table->info->n_blocks;
	shared->processes = context->nworkers + 1;
	state->shared = shared;
}

void
tbpg_reinit_dsm(ForeignScanState *node, ParallelContext *context, void *coordinate)
{
	TbpgShared *shared = coordinate;

	SpinLockAcquire(&shared->mutex);
	shared->next = 0;
	SpinLockRelease(&shared->mutex);
}

void
tbpg_init_worker(ForeignScanState *node, shm_toc *toc, void *coordinate)
{
	TbpgScanState *state = node->fdw_state;

	state->shared = coordinate;
}

/* The shared memory goes: what was counted there is kept. Runs under way are not gone on with. */
void
tbpg_shutdown_scan(ForeignScanState *node)
{
	TbpgScanState *state = node->fdw_state;

	if (state == NULL || state->shared == NULL)
		return;
	if (!IsParallelWorker())
	{
		TbScanCounters total;

		SpinLockAcquire(&state->shared->mutex);
		total = state->shared->total;
		SpinLockRelease(&state->shared->mutex);
		tbpg_add_counters(&state->total, &total);
	}
	state->finished = true;
	state->shared = NULL;
}

bool
tbpg_parallel_claim(TbpgScanState *state, uint64 *first, uint64 *n)
{
	TbpgShared *shared = state->shared;
	uint64		most = state->n_read > 0 ? MOST_BLOCKS_READ : MOST_BLOCKS;
	uint64		left;

	SpinLockAcquire(&shared->mutex);
	left = shared->n_blocks - shared->next;
	*first = shared->next;
	*n = Min(left, Max(1, Min(left / (4 * (uint64) shared->processes), most)));
	shared->next += *n;
	SpinLockRelease(&shared->mutex);
	return *n > 0;
}

uint64
tbpg_parallel_left(const TbpgScanState *state)
{
	TbpgShared *shared = state->shared;
	uint64		left;

	SpinLockAcquire(&shared->mutex);
	left = (shared->n_blocks - shared->next) / (uint64) shared->processes;
	SpinLockRelease(&shared->mutex);
	return left;
}

void
tbpg_parallel_report(TbpgScanState *state, const TbScanCounters *counters)
{
	TbpgShared *shared = state->shared;

	SpinLockAcquire(&shared->mutex);
	tbpg_add_counters(&shared->total, counters);
	SpinLockRelease(&shared->mutex);
}
