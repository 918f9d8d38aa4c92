/*
 * The plan node that reads ahead: it pulls rows before they are asked for and begins what a read() right above
 * will ask for (lookahead.c puts it into plans).
 *
 * Rows pass unchanged and in order. Only refs that a scan of this query stamped are looked at, so the node
 * raises no error that the query would not raise without it. Its queue grows as a scan's does (queue.c).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "utils/memutils.h"

#include "pg/fdw.h"

typedef struct AheadState
{
	CustomScanState css;
	PlanState  *input;
	int			n_attrs;
	AttrNumber *attr;
	TbpgDepth	depth;
	MemoryContext context;		/* holds the rows */
	MinimalTuple *queue;		/* ring of size places */
	int			size;			/* a power of two */
	int			head;
	int			len;
	bool		unbegun;		/* there was no room for the reads of the last row */
	TupleTableSlot *last;		/* to look at that row */
	MinimalTuple now;			/* the row handed out last; NULL: none */
	bool		finished;
} AheadState;

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	AheadState *state = (AheadState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	List	   *attrs = linitial(plan->custom_private);
	ListCell   *lc;

	state->input = ExecInitNode(linitial(plan->custom_plans), estate, eflags);
	css->custom_ps = list_make1(state->input);
	state->context = AllocSetContextCreate(estate->es_query_cxt, "tensorbank rows ahead", ALLOCSET_DEFAULT_SIZES);
	state->attr = palloc(sizeof(AttrNumber) * (size_t) Max(list_length(attrs), 1));
	foreach(lc, attrs)
		state->attr[state->n_attrs++] = (AttrNumber) lfirst_int(lc);
	state->depth.all_rows = intVal(lsecond(plan->custom_private)) != 0;
	state->last = ExecInitExtraTupleSlot(estate, css->ss.ss_ScanTupleSlot->tts_tupleDescriptor, &TTSOpsMinimalTuple);
	state->size = 16;
	state->queue = palloc(sizeof(MinimalTuple) * (size_t) state->size);
}

static void
push(AheadState *state, MinimalTuple tuple)
{
	if (state->len == state->size)
	{
		MinimalTuple *queue = MemoryContextAlloc(GetMemoryChunkContext(state->queue),
												 sizeof(MinimalTuple) * 2 * (size_t) state->size);

		for (int i = 0; i < state->len; i++)
			queue[i] = state->queue[(state->head + i) & (state->size - 1)];
		pfree(state->queue);
		state->queue = queue;
		state->size *= 2;
		state->head = 0;
	}
	state->queue[(state->head + state->len++) & (state->size - 1)] = tuple;
}

/* false: no more room for what is read ahead */
static bool
begin_reads(AheadState *state, TupleTableSlot *slot)
{
	bool		room = true;

	for (int i = 0; i < state->n_attrs; i++)
	{
		bool		isnull;
		Datum		value = slot_getattr(slot, state->attr[i], &isnull);

		if (!isnull)
			room &= tbpg_ahead_begin_ref(state, (const TbpgRef *) DatumGetPointer(value));
	}
	return room;
}

static void
fill(AheadState *state)
{
	int			depth = tbpg_depth(&state->depth);
	bool		room = true;

	if (state->len > 0 && state->unbegun)
	{
		ExecStoreMinimalTuple(state->queue[(state->head + state->len - 1) & (state->size - 1)], state->last, false);
		room = begin_reads(state, state->last);
		ExecClearTuple(state->last);
	}
	while (!state->finished && room && state->len < depth)
	{
		TupleTableSlot *slot = ExecProcNode(state->input);
		MemoryContext old;

		if (TupIsNull(slot))
		{
			state->finished = true;
			break;
		}
		room = begin_reads(state, slot);
		old = MemoryContextSwitchTo(state->context);
		push(state, ExecCopySlotMinimalTuple(slot));
		MemoryContextSwitchTo(old);
	}
	state->unbegun = !room;
	tbpg_ahead_kick();
}

static TupleTableSlot *
run_node(CustomScanState *css)
{
	AheadState *state = (AheadState *) css;
	TupleTableSlot *slot = css->ss.ss_ScanTupleSlot;

	ExecClearTuple(slot);
	if (state->now != NULL)
		pfree(state->now);
	state->now = NULL;
	fill(state);
	if (state->len == 0)
		return slot;
	state->now = state->queue[state->head];
	state->head = (state->head + 1) & (state->size - 1);
	state->len--;
	state->depth.used++;
	ExecForceStoreMinimalTuple(state->now, slot, false);
	return slot;
}

static void
drop_rows(AheadState *state)
{
	ExecClearTuple(state->css.ss.ss_ScanTupleSlot);
	tbpg_ahead_forget(state);
	MemoryContextReset(state->context);
	state->now = NULL;
	state->head = state->len = 0;
	state->depth.used = 0;
	state->finished = false;
}

static void
rescan_node(CustomScanState *css)
{
	AheadState *state = (AheadState *) css;

	drop_rows(state);
	if (css->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(state->input, css->ss.ps.chgParam);
	if (state->input->chgParam == NULL)
		ExecReScan(state->input);
}

static void
end_node(CustomScanState *css)
{
	AheadState *state = (AheadState *) css;

	drop_rows(state);
	ExecEndNode(state->input);
}

static const CustomExecMethods exec_methods = {
	.CustomName = TBPG_AHEAD_NODE,
	.BeginCustomScan = begin_node,
	.ExecCustomScan = run_node,
	.EndCustomScan = end_node,
	.ReScanCustomScan = rescan_node
};

static Node *
make_state(CustomScan *plan)
{
	AheadState *state = palloc0(sizeof(AheadState));

	NodeSetTag(state, T_CustomScanState);
	state->css.methods = &exec_methods;
	return (Node *) state;
}

const CustomScanMethods tbpg_ahead_node = {
	.CustomName = TBPG_AHEAD_NODE,
	.CreateCustomScanState = make_state
};
