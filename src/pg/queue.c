/*
 * Reading ahead of a scan: rows are pulled before they are asked for, and what read() will want of them is
 * begun.
 *
 * LIMIT 1 fetches one block, and a query that stops early has begun at most as many blocks for nothing as it
 * used, or two. What is begun is bounded by tensorbank.read_ahead (ahead.c).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"

#include "pg/fdw.h"

#define FIRST_ROWS 8
#define MOST_ROWS 4096

int
tbpg_depth(TbpgDepth *depth)
{
	uint64		bound = depth->used == 0 ? 1 : Max(depth->used, 2);
	uint64		waits = tbpg_ahead_waits();

	if (depth->rows == 0)
		depth->rows = FIRST_ROWS;
	else if (waits != depth->waits)
		depth->rows = Min(depth->rows * 2, MOST_ROWS);
	depth->waits = waits;
	return depth->all_rows ? depth->rows : (int) Min(bound, (uint64) depth->rows);
}

/* Rows that may wait in the queue. */
static int
depth_of(TbpgScanState *state)
{
	int			depth = tbpg_depth(&state->depth);

	/* towards the end nobody shall sit on blocks that another process could read */
	if (state->shared != NULL)
		depth = (int) Min((uint64) depth, tbpg_parallel_left(state) + 2);
	return depth;
}

/* Start fetching what read() will want of a row; false: the budget is used up. */
static bool
begin_reads(TbpgScanState *state, const Datum *values, const bool *isnull)
{
	bool		room = true;

	for (int i = 0; i < state->n_ahead; i++)
	{
		int			att = state->ahead_attr[i] - 1;

		if (att < state->table->natts && !isnull[att] && state->table->column[att].role == TBPG_ARRAY)
			room &= tbpg_ahead_begin_ref(state, (const TbpgRef *) DatumGetPointer(values[att]));
	}
	return room;
}

/* Whether the bytes for a row are here, or nobody fetches them. */
static bool
is_ready(TbpgScanState *state, HeapTuple tuple, TupleDesc desc)
{
	for (int i = 0; i < state->n_ahead; i++)
	{
		bool		isnull;
		Datum		value;

		if (state->ahead_attr[i] > state->table->natts)
			continue;
		value = heap_getattr(tuple, state->ahead_attr[i], desc, &isnull);
		if (!isnull && !tbpg_ahead_ready((const TbpgRef *) DatumGetPointer(value)))
			return false;
	}
	return true;
}

/* Twice the places. */
static void
grow(TbpgScanState *state)
{
	int			size = state->queue_size == 0 ? 16 : state->queue_size * 2;
	HeapTuple  *queue = MemoryContextAlloc(state->context, sizeof(HeapTuple) * (size_t) size);

	for (int i = 0; i < state->queue_len; i++)
		queue[i] = state->queue[(state->queue_head + i) & (state->queue_size - 1)];
	if (state->queue != NULL)
		pfree(state->queue);
	state->queue = queue;
	state->queue_size = size;
	state->queue_head = 0;
}

static void
push(TbpgScanState *state, HeapTuple tuple)
{
	if (state->queue_len == state->queue_size)
		grow(state);
	state->queue[(state->queue_head + state->queue_len++) & (state->queue_size - 1)] = tuple;
}

/* Whether a clause costs little and may be looked at once more. */
static bool
is_cheap(Node *clause)
{
	return !contain_volatile_functions(clause) && !contain_subplans(clause) && tbpg_certain_reads(list_make1(clause)) == NIL;
}

/*
 * What the plan's quals leave out need not be fetched. Only a prefix of them is looked at early: those that
 * must not see rows which others hide come later.
 */
void
tbpg_queue_begin(ForeignScanState *node)
{
	TbpgScanState *state = node->fdw_state;
	List	   *prefix = NIL;
	ListCell   *lc;

	foreach(lc, node->ss.ps.plan->qual)
	{
		if (!is_cheap(lfirst(lc)))
			break;
		prefix = lappend(prefix, lfirst(lc));
	}
	state->filter = prefix == NIL ? NULL : ExecInitQual(prefix, &node->ss.ps);
}

/* The row in the slot, if it passes: begin its reads and queue it. false: there is no room for more. */
static bool
take_row(ForeignScanState *node, TupleTableSlot *slot)
{
	TbpgScanState *state = node->fdw_state;
	MemoryContext old;
	bool		room = true;

	ExecStoreVirtualTuple(slot);
	state->econtext->ecxt_scantuple = slot;
	if (state->filter != NULL && !ExecQual(state->filter, state->econtext))
		InstrCountFiltered1(node, 1);
	else
	{
		room = begin_reads(state, slot->tts_values, slot->tts_isnull);
		old = MemoryContextSwitchTo(state->bound_context);
		push(state, heap_form_tuple(slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull));
		MemoryContextSwitchTo(old);
	}
	ExecClearTuple(slot);
	/* nothing else lives in the memory of a tuple while rows are pulled */
	ResetExprContext(state->econtext);
	return room;
}

/* The last row's reads where there was no room for them; false: there still is none. */
static bool
begin_last(TbpgScanState *state, TupleDesc desc)
{
	HeapTuple	tuple = state->queue[(state->queue_head + state->queue_len - 1) & (state->queue_size - 1)];
	bool		room = true;

	for (int i = 0; i < state->n_ahead && room; i++)
	{
		bool		isnull = true;
		Datum		value = (Datum) 0;

		if (state->ahead_attr[i] <= state->table->natts)
			value = heap_getattr(tuple, state->ahead_attr[i], desc, &isnull);
		if (!isnull && state->table->column[state->ahead_attr[i] - 1].role == TBPG_ARRAY)
			room = tbpg_ahead_begin_ref(state, (const TbpgRef *) DatumGetPointer(value));
	}
	return room;
}

/* Pull rows; *again: there is none, and one could only be had by waiting. */
static void
fill(ForeignScanState *node, bool *again)
{
	TbpgScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	int			depth = depth_of(state);
	bool		room = true;

	*again = false;
	if (state->queue_len > 0 && state->unbegun)
		room = begin_last(state, slot->tts_tupleDescriptor);
	while (state->queue_len < depth && room)
	{
		const TbBlockRow *row;

		CHECK_FOR_INTERRUPTS();
		if (!tbpg_scan_row(state, state->queue_len == 0 && !state->nonblocking, again, &row))
			break;
		tbpg_fill_row(state, row, slot->tts_values, slot->tts_isnull);
		room = take_row(node, slot);
	}
	state->unbegun = !room;
	tbpg_ahead_kick();
}

TupleTableSlot *
tbpg_queue_next(ForeignScanState *node)
{
	TbpgScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	HeapTuple	tuple;
	bool		again;

	fill(node, &again);
	if (state->queue_len == 0)
	{
		state->would_wait = again;
		return slot;
	}
	tuple = state->queue[state->queue_head];
	if (state->nonblocking && !is_ready(state, tuple, slot->tts_tupleDescriptor))
	{
		state->would_wait = true;
		return slot;
	}
	state->queue_head = (state->queue_head + 1) & (state->queue_size - 1);
	state->queue_len--;
	state->depth.used++;
	ExecForceStoreHeapTuple(tuple, slot, true);
	return slot;
}

void
tbpg_queue_clear(TbpgScanState *state)
{
	if (state->n_ahead > 0)
		tbpg_ahead_forget(state);
	/* the tuples are bound_context's */
	state->queue_len = 0;
	state->queue_head = 0;
	state->depth.used = 0;
}
