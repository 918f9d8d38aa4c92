/*
 * Running a scan: bind the predicate, walk the index, hand out rows; read ahead where read() is called above.
 *
 * All engine objects hang on memory contexts: one for the scan, one for each (re)scan, so an error anywhere
 * frees them. Rows are pulled ahead only when read() needs their bytes: the queue starts with one row and
 * doubles as rows are used, so LIMIT 1 fetches one block.
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

void
tbpg_begin_scan(ForeignScanState *node, int eflags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	EState	   *estate = node->ss.ps.state;
	MemoryContext context = AllocSetContextCreate(estate->es_query_cxt, "tensorbank scan", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	TbpgScanState *state = palloc0(sizeof(TbpgScanState));
	ListCell   *lc;
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
	foreach(lc, (List *) list_nth(plan->fdw_private, TBPG_PRIVATE_READ))
	{
		if (state->read_attr == NULL)
			state->read_attr = palloc(sizeof(AttrNumber) * MaxHeapAttributeNumber);
		state->read_attr[state->n_read++] = (AttrNumber) lfirst_int(lc);
	}
	find_needs(state, plan);
	state->depth = 1;
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		state->io_before = tb_store_counters(tb_source_store(tb_grid_source(state->table->grid)));
	MemoryContextSwitchTo(old);
}

/* Bind parameters and start walking. */
static void
start_scan(TbpgScanState *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->bound_context);
	TbScanSpec	spec = {
		.grid = state->table->grid, .hsi = state->table->hsi, .need_array = state->need_array,
		.unindexed = (TbUnindexed) tbpg_settings.unindexed,
		.compute_limit_bytes = (uint64_t) tbpg_settings.compute_limit_mb << 20,
		.descending = state->descending
	};
	TbError		err;

	state->pred = tbpg_qual_bind(state->qual, state->econtext);
	(void) tbpg_own(state->bound_context, state->pred, free_pred);
	spec.pred = state->pred;
	TBPG_CHECK(tb_scan_open(&spec, &state->scan, &err), &err);
	/* registered after the predicate, so freed before it */
	(void) tbpg_own(state->bound_context, state->scan, free_scan);
	state->finished = false;
	MemoryContextSwitchTo(old);
}

static void
add_counters(TbScanCounters *total, const TbScanCounters *part)
{
	uint64_t   *to = (uint64_t *) total;
	const uint64_t *from = (const uint64_t *) part;

	StaticAssertStmt(sizeof(TbScanCounters) % sizeof(uint64_t) == 0, "counters are all uint64");
	for (size_t i = 0; i < sizeof(TbScanCounters) / sizeof(uint64_t); i++)
		to[i] += from[i];
}

TbScanCounters
tbpg_scan_totals(const TbpgScanState *state)
{
	TbScanCounters total = state->total;

	if (state->scan != NULL)
	{
		TbScanCounters now = tb_scan_counters(state->scan);

		add_counters(&total, &now);
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

/* Next row of the index into values; false at the end, *again where wait is false and it would have to wait. */
static bool
next_row(TbpgScanState *state, bool wait, bool *again, const TbBlockRow **row)
{
	TbError		err;
	TbStatus	status;

	*again = false;
	if (state->finished)
		return false;
	while ((status = tb_scan_next(state->scan, row, &err)) == TB_AGAIN)
	{
		if (!wait)
		{
			*again = true;
			return false;
		}
		tbpg_wait();
	}
	if (status != TB_OK)
		tbpg_raise(&err);
	if (*row == NULL)
	{
		state->finished = true;
		return false;
	}
	return true;
}

/* Start fetching what read() will want of a row; false: the budget is used up. */
static bool
begin_reads(TbpgScanState *state, const Datum *values, const bool *isnull)
{
	bool		room = true;

	for (int i = 0; i < state->n_read; i++)
	{
		int			att = state->read_attr[i] - 1;
		const TbpgRef *ref;
		TbRegion	region;

		if (att >= state->table->natts || isnull[att] || state->table->column[att].role != TBPG_ARRAY)
			continue;
		ref = (const TbpgRef *) DatumGetPointer(values[att]);
		region.ndim = ref->ndim;
		for (int d = 0; d < ref->ndim; d++)
		{
			region.start[d] = (uint64_t) ref->extent[d];
			region.count[d] = (uint64_t) ref->extent[ref->ndim + d];
		}
		room &= tbpg_ahead_begin_for(state, ref, state->table->info->array[state->table->column[att].index], &region);
	}
	return room;
}

static void
fill_queue(TbpgScanState *state, TupleDesc desc)
{
	Datum	   *values = palloc(sizeof(Datum) * (size_t) Max(desc->natts, 1));
	bool	   *isnull = palloc(sizeof(bool) * (size_t) Max(desc->natts, 1));
	bool		room = true;

	while (state->queue_len < state->depth && room)
	{
		const TbBlockRow *row;
		bool		again;
		MemoryContext old;

		if (!next_row(state, state->queue_len == 0, &again, &row))
			break;
		tbpg_fill_row(state, row, values, isnull);
		room = begin_reads(state, values, isnull);
		old = MemoryContextSwitchTo(state->bound_context);
		state->queue[(state->queue_head + state->queue_len++) % TBPG_AHEAD_ROWS] =
			heap_form_tuple(desc, values, isnull);
		MemoryContextSwitchTo(old);
	}
}

/* The statement that fetches a row from a cursor is not always the one that queued it: the refs are this one's. */
static void
restamp(const TbpgScanState *state, HeapTuple tuple, TupleDesc desc)
{
	for (int i = 0; i < state->table->natts; i++)
	{
		bool		isnull;
		Datum		value;

		if (!state->need_column[i] || state->table->column[i].role != TBPG_ARRAY)
			continue;
		value = heap_getattr(tuple, i + 1, desc, &isnull);
		if (!isnull)
			tbpg_ref_stamp((TbpgRef *) DatumGetPointer(value), state->user);
	}
}

static TupleTableSlot *
iterate_ahead(TbpgScanState *state, TupleTableSlot *slot)
{
	HeapTuple	tuple;

	fill_queue(state, slot->tts_tupleDescriptor);
	if (state->queue_len == 0)
		return slot;
	tuple = state->queue[state->queue_head];
	state->queue_head = (state->queue_head + 1) % TBPG_AHEAD_ROWS;
	state->queue_len--;
	state->depth = Min(state->depth * 2, TBPG_AHEAD_ROWS);
	restamp(state, tuple, slot->tts_tupleDescriptor);
	ExecForceStoreHeapTuple(tuple, slot, true);
	return slot;
}

TupleTableSlot *
tbpg_iterate_scan(ForeignScanState *node)
{
	TbpgScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	const TbBlockRow *row;
	bool		again;

	ExecClearTuple(slot);
	if (state->scan == NULL)
		start_scan(state);
	if (state->n_read > 0)
		return iterate_ahead(state, slot);
	if (!next_row(state, true, &again, &row))
		return slot;
	tbpg_fill_row(state, row, slot->tts_values, slot->tts_isnull);
	return ExecStoreVirtualTuple(slot);
}

static void
stop_scan(TbpgScanState *state)
{
	if (state->scan != NULL)
	{
		TbScanCounters now = tb_scan_counters(state->scan);
		const char *warning = tb_scan_warning(state->scan);

		add_counters(&state->total, &now);
		if (warning != NULL && state->warning == NULL)
			state->warning = MemoryContextStrdup(state->context, warning);
	}
	/* rows that were queued will not be asked for any more */
	if (state->queue_len > 0)
		tbpg_ahead_forget(state);
	state->scan = NULL;
	state->pred = NULL;
	state->finished = false;
	state->queue_len = 0;
	state->queue_head = 0;
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
	if (state->n_read > 0)
		tbpg_ahead_forget(state);
	warn_excluded(state);
	MemoryContextDelete(state->context);
}
