/* The wrapper's callbacks, one group a file, and what the planner hands to the executor. */
#ifndef TBPG_FDW_H
#define TBPG_FDW_H

#include "postgres.h"

#include "access/parallel.h"
#include "foreign/fdwapi.h"
#include "nodes/extensible.h"

#include "pg/qual.h"
#include "pg/tbpg.h"

/* fdw_private of a ForeignScan */
enum TbpgScanPrivate
{
	TBPG_PRIVATE_PUSHED,		/* IntList: which clauses of the plan's quals may prune */
	TBPG_PRIVATE_READ,			/* IntList: attribute numbers that read() is called on anywhere above */
	TBPG_PRIVATE_DESCENDING,	/* Integer: rows by falling block number */
	TBPG_PRIVATE_USED,			/* IntList: attribute numbers that are looked at, 0: the whole row */
	TBPG_PRIVATE_AHEAD,			/* IntList: those of them that are read right where the rows come out */
	TBPG_PRIVATE_ALL_ROWS,		/* Integer: nothing above stops the scan early */
	TBPG_N_PRIVATE
};

/* fdw_private of a ForeignPath */
enum TbpgPathPrivate
{
	TBPG_PATH_DESCENDING,		/* Integer */
	TBPG_PATH_AHEAD				/* IntList: attribute numbers that are read right above (lookahead.c) */
};

/*
 * How many rows may wait in a queue of rows whose reads are under way. Where something above may stop early: at
 * most as many as were used, at least two, and one before the first is used. Within that it grows from a few
 * rows on whenever read() had to wait: what comes at once is not fetched long before its time.
 */
typedef struct TbpgDepth
{
	bool		all_rows;		/* nothing above stops early */
	uint64		used;			/* rows handed out since the (re)scan */
	uint64		waits;			/* tbpg_ahead_waits() when it grew last */
	int			rows;			/* 0: not begun */
} TbpgDepth;

/* parallel.c: what the processes of one scan share, in dynamic shared memory. */
typedef struct TbpgShared TbpgShared;

/* async.c: how a scan below an Append waits together with others. */
typedef struct TbpgAsync TbpgAsync;

typedef struct TbpgScanState
{
	/* for the whole scan */
	MemoryContext context;
	TbpgTable  *table;			/* pinned in context */
	Oid			user;
	int64		stamp_start;	/* of the refs it makes; 0: no row asked for yet */
	TbpgQual   *qual;
	ExprContext *econtext;
	bool	   *need_array;
	bool	   *need_column;
	bool		descending;

	/* of one (re)scan: in bound_context */
	MemoryContext bound_context;
	TbPred	   *pred;			/* owned by bound_context; NULL: all */
	TbScan	   *scan;			/* owned by run; NULL: no run of blocks begun */
	TbpgOwned  *run;			/* in bound_context; holds scan */
	bool		started;
	bool		finished;

	int			n_read;			/* columns that read() is called on, for EXPLAIN */
	AttrNumber *read_attr;

	/* reading ahead, queue.c */
	int			n_ahead;
	AttrNumber *ahead_attr;
	ExprState  *filter;			/* the first of the plan's quals that cost little; NULL: none */
	HeapTuple  *queue;			/* ring of queue_size places, in context; NULL: none yet */
	int			queue_size;		/* a power of two */
	int			queue_head;
	int			queue_len;
	bool		unbegun;		/* there was no room for the reads of the last row */
	TbpgDepth	depth;

	/* parallel.c */
	TbpgShared *shared;			/* NULL: the scan is this process's alone */

	/* async.c */
	bool		nonblocking;	/* the call may not wait */
	bool		would_wait;		/* and that is why it gave no row */
	TbpgAsync  *async;			/* in context; NULL: not used so far */

	/* summed over rescans, for EXPLAIN */
	TbScanCounters total;
	char	   *warning;		/* the first of a damaged index; NULL: none */
	TbIoCounters io_before;
	uint64		rescans;
} TbpgScanState;

/* path.c */
extern void tbpg_get_rel_size(PlannerInfo *root, RelOptInfo *rel, Oid relid);
extern void tbpg_get_paths(PlannerInfo *root, RelOptInfo *rel, Oid relid);
extern ForeignScan *tbpg_get_plan(PlannerInfo *root, RelOptInfo *rel, Oid relid, ForeignPath *path, List *tlist,
								  List *clauses, Plan *outer);
/* scan.c */
extern List *tbpg_pushed_clauses(ForeignScan *plan);	/* those that may prune */
extern void tbpg_begin_scan(ForeignScanState *node, int eflags);
extern TupleTableSlot *tbpg_iterate_scan(ForeignScanState *node);
extern void tbpg_rescan(ForeignScanState *node);
extern void tbpg_end_scan(ForeignScanState *node);
extern TbScanCounters tbpg_scan_totals(const TbpgScanState *state);
/* The next row of the index. false: the end, or, where *again, it would have to wait. */
extern bool tbpg_scan_row(TbpgScanState *state, bool wait, bool *again, const TbBlockRow **row);
extern void tbpg_add_counters(TbScanCounters *total, const TbScanCounters *part);
/* queue.c: rows whose reads are under way */
extern TupleTableSlot *tbpg_queue_next(ForeignScanState *node);
extern void tbpg_queue_begin(ForeignScanState *node);
extern void tbpg_queue_clear(TbpgScanState *state);
extern int	tbpg_depth(TbpgDepth *depth);
/* parallel.c */
extern bool tbpg_scan_parallel_safe(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte);
extern Size tbpg_estimate_dsm(ForeignScanState *node, ParallelContext *context);
extern void tbpg_init_dsm(ForeignScanState *node, ParallelContext *context, void *coordinate);
extern void tbpg_reinit_dsm(ForeignScanState *node, ParallelContext *context, void *coordinate);
extern void tbpg_init_worker(ForeignScanState *node, shm_toc *toc, void *coordinate);
extern void tbpg_shutdown_scan(ForeignScanState *node);
/* The next run of blocks for this process; false: all are given out. */
extern bool tbpg_parallel_claim(TbpgScanState *state, uint64 *first, uint64 *n);
/* Add a finished run's counters to those of all processes. */
extern void tbpg_parallel_report(TbpgScanState *state, const TbScanCounters *counters);
extern uint64 tbpg_parallel_left(const TbpgScanState *state);	/* blocks a process may expect still */
/* async.c */
extern bool tbpg_async_capable(ForeignPath *path);
extern void tbpg_async_request(AsyncRequest *request);
extern void tbpg_async_configure(AsyncRequest *request);
extern void tbpg_async_notify(AsyncRequest *request);
/* ahead_node.c; custom_private: IntList of the input's columns that are read; Integer: all rows are wanted */
#define TBPG_AHEAD_NODE "TensorBank Read Ahead"
extern const CustomScanMethods tbpg_ahead_node;
/* lookahead.c */
extern void tbpg_lookahead_init(void);	/* hook and node type */
/* The column that a read() takes as it is, also through raw() and as_type(); NULL: node is none, or reads something else. */
extern Var *tbpg_read_column(Node *node);
/* Such columns of any relation in expressions, but for what is computed under a condition only. */
extern List *tbpg_certain_reads(List *exprs);
/* row.c */
extern void tbpg_fill_row(const TbpgScanState *state, const TbBlockRow *row, Datum *values, bool *isnull);
/* explain.c */
extern void tbpg_explain_scan(ForeignScanState *node, ExplainState *es);
/* import.c */
extern List *tbpg_import_schema(ImportForeignSchemaStmt *stmt, Oid server);

#endif
