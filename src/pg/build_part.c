/*
 * One part of an index: its blocks are read by parallel workers and the leader, statistics land in shared memory.
 *
 * Work is handed out in units: boxes of blocks that share chunks. A process keeps several blocks under way, so that waiting for the
 * store and decoding overlap.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/shm_toc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "pg/build.h"
#include "pg/table.h"

#define KEY_SHARED UINT64CONST(0x7462000000000001)

/* Blocks under way in a process. */
#define JOBS 8

PGDLLEXPORT void tensorbank_build_worker(dsm_segment *segment, shm_toc *toc);

uint64 *
tbpg_build_blocks(TbpgBuildShared *shared)
{
	return (uint64 *) ((char *) shared + MAXALIGN(sizeof(TbpgBuildShared)));
}

uint64 *
tbpg_build_slots(TbpgBuildShared *shared)
{
	return tbpg_build_blocks(shared) + shared->n_blocks;
}

uint64 *
tbpg_build_unit_starts(TbpgBuildShared *shared)
{
	return tbpg_build_slots(shared) + shared->n_blocks;
}

TbBuilt *
tbpg_build_results(TbpgBuildShared *shared)
{
	return (TbBuilt *) (tbpg_build_unit_starts(shared) + shared->n_units + 1);
}

Size
tbpg_build_size(uint64 n_blocks, uint64 n_units, int n_arrays)
{
	Size		size = MAXALIGN(sizeof(TbpgBuildShared));

	size = add_size(size, mul_size(2 * sizeof(uint64), n_blocks));
	size = add_size(size, mul_size(sizeof(uint64), n_units + 1));
	return add_size(size, mul_size(sizeof(TbBuilt), mul_size(n_blocks, (Size) n_arrays)));
}

static void
free_job(void *object)
{
	tb_leaf_job_free(object);
}

typedef struct Worker
{
	TbpgBuildShared *shared;
	const TbpgTable *table;
	TbLeafJob  *job[JOBS];		/* owned through owned[] */
	TbpgOwned  *owned[JOBS];
	uint64		slot[JOBS];		/* where its result goes */
	uint64		next;			/* position in the block list */
	uint64		end;			/* of the unit in work */
} Worker;

static bool
next_block(Worker *worker, uint64 *position)
{
	TbpgBuildShared *shared = worker->shared;

	while (worker->next == worker->end)
	{
		uint64		unit = pg_atomic_fetch_add_u64(&shared->next_unit, 1);

		if (unit >= shared->n_units)
			return false;
		worker->next = tbpg_build_unit_starts(shared)[unit];
		worker->end = tbpg_build_unit_starts(shared)[unit + 1];
	}
	*position = worker->next++;
	return true;
}

static bool
start_job(Worker *worker, int j)
{
	uint64		position;
	TbError		err;

	if (!next_block(worker, &position))
		return false;
	TBPG_CHECK(tb_leaf_job_open(worker->table->grid, worker->shared->array, worker->shared->n_arrays,
								tbpg_build_blocks(worker->shared)[position], &worker->job[j], &err), &err);
	tbpg_owned_set(worker->owned[j], worker->job[j]);
	worker->slot[j] = tbpg_build_slots(worker->shared)[position];
	return true;
}

/* Take the result of a job that is ready; false: not yet. */
static bool
finish_job(Worker *worker, int j, TbLeaf *leaves)
{
	TbpgBuildShared *shared = worker->shared;
	TbBuilt    *out = tbpg_build_results(shared) + worker->slot[j] * (uint64) shared->n_arrays;
	uint64_t	version;
	uint64_t	bytes;
	bool		missing;
	TbError		err;
	TbStatus	status = tb_leaf_job_poll(worker->job[j], &err);

	if (status == TB_AGAIN)
		return false;
	if (status != TB_OK)
		tbpg_raise(&err);
	status = tb_leaf_job_result(worker->job[j], leaves, &version, &missing, &bytes, &err);
	if (status == TB_AGAIN)
		return false;
	TBPG_CHECK(status, &err);
	for (int a = 0; a < shared->n_arrays; a++)
	{
		out[a].leaf = leaves[a];
		out[a].version = missing ? 0 : version;
	}
	pg_atomic_fetch_add_u64(&shared->blocks_done, 1);
	pg_atomic_fetch_add_u64(&shared->bytes, bytes);
	tbpg_owned_set(worker->owned[j], NULL);
	worker->job[j] = NULL;
	return true;
}

void
tbpg_build_work(TbpgBuildShared *shared, const TbpgTable *table)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "tensorbank build", ALLOCSET_DEFAULT_SIZES);
	Worker		worker = {.shared = shared, .table = table};
	TbLeaf	   *leaves = MemoryContextAllocZero(context, sizeof(TbLeaf) * (Size) shared->n_arrays);
	bool		more = true;
	int			running = 0;

	for (int j = 0; j < JOBS; j++)
		worker.owned[j] = tbpg_own(context, NULL, free_job);
	for (;;)
	{
		bool		progress = false;

		for (int j = 0; j < JOBS; j++)
		{
			if (worker.job[j] == NULL && more)
			{
				more = start_job(&worker, j);
				running += more;
			}
			if (worker.job[j] != NULL && finish_job(&worker, j, leaves))
			{
				running--;
				progress = true;
			}
			CHECK_FOR_INTERRUPTS();
		}
		if (running == 0 && !more)
			break;
		if (!progress)
			tbpg_wait();
	}
	MemoryContextDelete(context);
}

void
tensorbank_build_worker(dsm_segment *segment, shm_toc *toc)
{
	TbpgBuildShared *shared = shm_toc_lookup(toc, KEY_SHARED, false);
	TbpgTable  *table = tbpg_table(shared->relid, shared->user);

	tbpg_table_pin(table, CurrentMemoryContext);
	tbpg_build_work(shared, table);
}

/* ---- the leader ---- */

typedef struct UnitEntry
{
	uint64		unit;
	uint64		slot;
} UnitEntry;

static int
compare_units(const void *a, const void *b)
{
	const UnitEntry *x = a;
	const UnitEntry *y = b;

	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* How many blocks along each axis share a chunk of some array. */
static void
unit_shape(const TbpgTable *table, const int *arrays, int n_arrays, uint64 *unit)
{
	const TbGridInfo *info = table->info;

	for (int d = 0; d < info->ndim; d++)
	{
		unit[d] = 1;
		for (int a = 0; a < n_arrays; a++)
		{
			const TbArrayMeta *meta = tb_array_meta(info->array[arrays[a]]);
			uint64		blocks = (meta->chunk[d] + info->cell[d] - 1) / info->cell[d];

			unit[d] = Max(unit[d], Min(blocks, info->blocks[d]));
		}
	}
}

/* Blocks of the part sorted by unit. Returns the number of units. */
static uint64
sort_units(const TbpgTable *table, const int *arrays, int n_arrays, const TbpgPart *part, UnitEntry *entries)
{
	const TbGridInfo *info = table->info;
	uint64		unit[TB_MAX_DIM];
	uint64_t	index[TB_MAX_DIM];
	uint64		units = 0;

	unit_shape(table, arrays, n_arrays, unit);
	for (uint64 i = 0; i < part->n_blocks; i++)
	{
		uint64		key = 0;

		tb_grid_block_index(info, part->block[i], index);
		for (int k = 0; k < info->ndim; k++)
		{
			int			d = info->order[k];

			key = key * ((info->blocks[d] + unit[d] - 1) / unit[d]) + index[d] / unit[d];
		}
		entries[i] = (UnitEntry) {.unit = key, .slot = i};
	}
	qsort(entries, part->n_blocks, sizeof(UnitEntry), compare_units);
	for (uint64 i = 0; i < part->n_blocks; i++)
		units += i == 0 || entries[i].unit != entries[i - 1].unit;
	return units;
}

static void
fill_shared(TbpgBuildShared *shared, const TbpgPart *part, const UnitEntry *entries)
{
	uint64	   *starts;
	uint64		unit = 0;

	for (uint64 i = 0; i < part->n_blocks; i++)
	{
		tbpg_build_blocks(shared)[i] = part->block[entries[i].slot];
		tbpg_build_slots(shared)[i] = entries[i].slot;
	}
	starts = tbpg_build_unit_starts(shared);
	for (uint64 i = 0; i < part->n_blocks; i++)
		if (i == 0 || entries[i].unit != entries[i - 1].unit)
			starts[unit++] = i;
	starts[unit] = part->n_blocks;
}

static void
init_shared(TbpgBuildShared *shared, const TbpgTable *table, const int *arrays, int n_arrays)
{
	shared->relid = table->relid;
	shared->user = table->user;
	shared->n_arrays = n_arrays;
	memcpy(shared->array, arrays, sizeof(int) * (Size) n_arrays);
	pg_atomic_init_u64(&shared->next_unit, 0);
	pg_atomic_init_u64(&shared->blocks_done, 0);
	pg_atomic_init_u64(&shared->bytes, 0);
}

void
tbpg_build_part(TbpgTable *table, const int *arrays, int n_arrays, int workers, TbpgPart *part)
{
	UnitEntry  *entries = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(UnitEntry) * Max(part->n_blocks, 1));
	uint64		n_units = sort_units(table, arrays, n_arrays, part, entries);
	Size		size = tbpg_build_size(part->n_blocks, n_units, n_arrays);
	ParallelContext *parallel;
	TbpgBuildShared *shared;

	EnterParallelMode();
	parallel = CreateParallelContext("tensorbank", "tensorbank_build_worker", (int) Min((uint64) workers, n_units - 1));
	shm_toc_estimate_chunk(&parallel->estimator, size);
	shm_toc_estimate_keys(&parallel->estimator, 1);
	InitializeParallelDSM(parallel);
	shared = shm_toc_allocate(parallel->toc, size);
	memset(shared, 0, sizeof(*shared));
	shared->n_blocks = part->n_blocks;
	shared->n_units = n_units;
	init_shared(shared, table, arrays, n_arrays);
	fill_shared(shared, part, entries);
	shm_toc_insert(parallel->toc, KEY_SHARED, shared);
	LaunchParallelWorkers(parallel);
	tbpg_build_work(shared, table);
	WaitForParallelWorkersToFinish(parallel);
	memcpy(part->built, tbpg_build_results(shared), sizeof(TbBuilt) * part->n_blocks * (Size) n_arrays);
	part->bytes = pg_atomic_read_u64(&shared->bytes);
	DestroyParallelContext(parallel);
	ExitParallelMode();
	pfree(entries);
}
