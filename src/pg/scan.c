/*
 * Running a scan: bind the predicate, walk the index, hand out rows; read ahead where read() is called above.
 *
 * All engine objects hang on memory contexts: one for the scan, one for each (re)scan, so an error anywhere
 * frees them. A scan goes through one run of blocks, all of them, or through runs that parallel.c hands out.
 * Rows are pulled ahead only when read() needs their bytes: queue.c.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "pg/compat.h"
#include "pg/fdw.h"
#include "pg/table.h"

static void
free_pred(void *object)
{
	tb_pred_free(object);
}

static void
free_scan(void *object)
{
	tb_scan_free(object);
}

/* Which columns the query looks at, and so which arrays' statistics a row must have. */
static void
find_needs(TbpgScanState *state, ForeignScan *plan)
{
	List	   *used = list_nth(plan->fdw_private, TBPG_PRIVATE_USED);
	bool		all = list_member_int(used, 0);

	state->need_column = palloc0(sizeof(bool) * (size_t) Max(state->table->natts, 1));
	state->need_array = palloc0(sizeof(bool) * (size_t) Max(state->table->info->n_arrays, 1));
	for (int i = 0; i < state->table->natts; i++)
	{
		const TbpgColumn *column = &state->table->column[i];

		if (!all && !list_member_int(used, i + 1))
			continue;
		state->need_column[i] = true;
		if (column->role == TBPG_STAT)
			state->need_array[column->index] = true;
		if (column->role == TBPG_BLOCK_STATE && state->table->hsi != NULL)
			for (int a = 0; a < state->table->info->n_arrays; a++)
				state->need_array[a] |= tb_hsi_has_array(state->table->hsi,
														 tb_array_meta(state->table->info->array[a])->path);
	}
}

List *
tbpg_pushed_clauses(ForeignScan *plan)
{
	List	   *clauses = NIL;
	ListCell   *lc;

	foreach(lc, (List *) list_nth(plan->fdw_private, TBPG_PRIVATE_PUSHED))
		clauses = lappend(clauses, list_nth(plan->scan.plan.qual, lfirst_int(lc)));
	return clauses;
}

/* A list of attribute numbers as the planner left it; NULL: none. */
static AttrNumber *
attributes(const ForeignScan *plan, int which, int *n)
{
	List	   *list = list_nth(plan->fdw_private, which);
	AttrNumber *attrs = list == NIL ? NULL : palloc(sizeof(AttrNumber) * (size_t) list_length(list));
	ListCell   *lc;

	*n = 0;
	foreach(lc, list)
		attrs[(*n)++] = (AttrNumber) lfirst_int(lc);
	return attrs;
}

void
tbpg_begin_scan(ForeignScanState *node, int eflags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	EState	   *estate = node->ss.ps.state;
	MemoryContext context = AllocSetContextCreate(estate->es_query_cxt, "tensorbank scan", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	TbpgScanState *state = palloc0(sizeof(TbpgScanState));
	Oid			user = tbpg_scan_user(node);

	node->fdw_state = state;
	state->context = context;
	state->bound_context = AllocSetContextCreate(context, "tensorbank bound scan", ALLOCSET_SMALL_SIZES);
	state->user = OidIsValid(user) ? user : GetUserId();
	state->table = tbpg_table(RelationGetRelid(node->ss.ss_currentRelation), state->user);
	tbpg_table_pin(state->table, context);
	state->qual = tbpg_qual_prepare(tbpg_pushed_clauses(plan), state->table, plan->scan.scanrelid, &node->ss.ps);
	state->econtext = node->ss.ps.ps_ExprContext;
	state->descending = intVal(list_nth(plan->fdw_private, TBPG_PRIVATE_DESCENDING)) != 0;
	state->read_attr = attributes(plan, TBPG_PRIVATE_READ, &state->n_read);
	state->ahead_attr = attributes(plan, TBPG_PRIVATE_AHEAD, &state->n_ahead);
	if (state->n_ahead > 0)
		tbpg_queue_begin(node);
	find_needs(state, plan);
	state->depth.all_rows = intVal(list_nth(plan->fdw_private, TBPG_PRIVATE_ALL_ROWS)) != 0;
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		state->io_before = tb_store_counters(tb_source_store(tb_grid_source(state->table->grid)));
	MemoryContextSwitchTo(old);
}

/* Bind parameters. */
static void
start_scan(TbpgScanState *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->bound_context);

	/* a statement of its own where a cursor is fetched from: the refs are good while the scan is open */
	if (state->stamp_start == 0)
		state->stamp_start = tbpg_stamp_open(state->context);
	state->pred = tbpg_qual_bind(state->qual, state->econtext);
	(void) tbpg_own(state->bound_context, state->pred, free_pred);
	/* registered after the predicate, so freed before it */
	state->run = tbpg_own(state->bound_context, NULL, free_scan);
	state->started = true;
	state->finished = false;
	MemoryContextSwitchTo(old);
}

/* Begin to walk the next run of blocks; false: there is none. */
static bool
next_run(TbpgScanState *state)
{
	TbScanSpec	spec = {
		.grid = state->table->grid, .hsi = state->table->hsi, .need_array = state->need_array,
		.unindexed = (TbUnindexed) tbpg_settings.unindexed,
		.compute_limit_bytes = (uint64_t) tbpg_settings.compute_limit_mb << 20,
		.descending = state->descending, .pred = state->pred
	};
	TbError		err;

	if (state->shared != NULL)
	{
		uint64		first;
		uint64		n;

		if (!tbpg_parallel_claim(state, &first, &n))
			return false;
		spec.first_block = first;
		spec.n_blocks = n;
		/* whoever begins at the first block looks at the limit for all */
		spec.limit_checked = first > 0;
	}
	TBPG_CHECK(tb_scan_open(&spec, &state->scan, &err), &err);
	tbpg_owned_set(state->run, state->scan);
	return true;
}

void
tbpg_add_counters(TbScanCounters *total, const TbScanCounters *part)
{
	uint64_t   *to = (uint64_t *) total;
	const uint64_t *from = (const uint64_t *) part;

	StaticAssertStmt(sizeof(TbScanCounters) % sizeof(uint64_t) == 0, "counters are all uint64");
	for (size_t i = 0; i < sizeof(TbScanCounters) / sizeof(uint64_t); i++)
		to[i] += from[i];
}

/* The run is over: what it counted stays. */
static void
end_run(TbpgScanState *state)
{
	TbScanCounters now;
	const char *warning;

	if (state->scan == NULL)
		return;
	now = tb_scan_counters(state->scan);
	warning = tb_scan_warning(state->scan);
	if (state->shared != NULL)
		tbpg_parallel_report(state, &now);
	else
		tbpg_add_counters(&state->total, &now);
	if (warning != NULL && state->warning == NULL)
		state->warning = MemoryContextStrdup(state->context, warning);
	state->scan = NULL;
	tbpg_owned_set(state->run, NULL);
}

TbScanCounters
tbpg_scan_totals(const TbpgScanState *state)
{
	TbScanCounters total = state->total;

	if (state->scan != NULL)
	{
		TbScanCounters now = tb_scan_counters(state->scan);

		tbpg_add_counters(&total, &now);
	}
	return total;
}

/* Once a query, however often it was rescanned, and also where a LIMIT ended it early. */
static void
warn_excluded(const TbpgScanState *state)
{
	TbScanCounters counters = tbpg_scan_totals(state);

	if (counters.excluded > 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("blocks without an index were left out of the result"),
				 errdetail(UINT64_FORMAT " blocks of foreign table \"%s\".", (uint64) counters.excluded,
						   get_rel_name(state->table->relid)),
				 errhint("CALL tensorbank.build_index, or set tensorbank.unindexed to compute.")));
	if (state->warning != NULL)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("part of the index cannot be used"),
				 errdetail("Foreign table \"%s\": %s.", get_rel_name(state->table->relid), state->warning),
				 errhint("Rebuild it with CALL tensorbank.build_index(..., rebuild => true).")));
}

bool
tbpg_scan_row(TbpgScanState *state, bool wait, bool *again, const TbBlockRow **row)
{
	TbError		err;
	TbStatus	status;

	*again = false;
	while (!state->finished)
	{
		if (state->scan == NULL && !next_run(state))
			break;
		status = tb_scan_next(state->scan, row, &err);
		if (status == TB_AGAIN && !wait)
		{
			*again = true;
			return false;
		}
		if (status == TB_AGAIN)
			tbpg_wait();
		else if (status != TB_OK)
			tbpg_raise(&err);
		else if (*row != NULL)
			return true;
		else
		{
			end_run(state);
			if (state->shared == NULL)
				break;
		}
	}
	state->finished = true;
	return false;
}

TupleTableSlot *
tbpg_iterate_scan(ForeignScanState *node)
{
	TbpgScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	const TbBlockRow *row;
	bool		again;

	ExecClearTuple(slot);
	state->would_wait = false;
	if (!state->started)
		start_scan(state);
	if (state->n_ahead > 0)
		return tbpg_queue_next(node);
	if (!tbpg_scan_row(state, !state->nonblocking, &again, &row))
	{
		state->would_wait = again;
		return slot;
	}
	tbpg_fill_row(state, row, slot->tts_values, slot->tts_isnull);
	return ExecStoreVirtualTuple(slot);
}

static void
stop_scan(TbpgScanState *state)
{
	end_run(state);
	tbpg_queue_clear(state);
	state->pred = NULL;
	state->run = NULL;
	state->started = false;
	state->finished = false;
	MemoryContextReset(state->bound_context);
}

void
tbpg_rescan(ForeignScanState *node)
{
	TbpgScanState *state = node->fdw_state;

	/* the row in the slot may be one of the queue's: it goes before its memory does */
	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	stop_scan(state);
	state->rescans++;
}

void
tbpg_end_scan(ForeignScanState *node)
{
	TbpgScanState *state = node->fdw_state;

	if (state == NULL)
		return;
	node->fdw_state = NULL;
	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	stop_scan(state);
	warn_excluded(state);
	MemoryContextDelete(state->context);
	tbpg_settle();
}
