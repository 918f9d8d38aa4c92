/* The wrapper's callbacks, one group a file, and what the planner hands to the executor. */
#ifndef TBPG_FDW_H
#define TBPG_FDW_H

#include "postgres.h"

#include "foreign/fdwapi.h"

#include "pg/qual.h"
#include "pg/tbpg.h"

/* fdw_private of a ForeignScan */
enum TbpgScanPrivate
{
	TBPG_PRIVATE_PUSHED,		/* IntList: which clauses of the plan's quals may prune */
	TBPG_PRIVATE_READ,			/* IntList: attribute numbers that read() is called on above the scan */
	TBPG_PRIVATE_DESCENDING,	/* Integer: rows by falling block number */
	TBPG_PRIVATE_USED,			/* IntList: attribute numbers that are looked at, 0: the whole row */
	TBPG_N_PRIVATE
};

#define TBPG_AHEAD_ROWS 64

typedef struct TbpgScanState
{
	/* for the whole scan */
	MemoryContext context;
	TbpgTable  *table;			/* pinned in context */
	Oid			user;
	TbpgQual   *qual;
	ExprContext *econtext;
	bool	   *need_array;
	bool	   *need_column;
	bool		descending;

	/* of one (re)scan: in bound_context */
	MemoryContext bound_context;
	TbPred	   *pred;			/* owned by bound_context; NULL: all */
	TbScan	   *scan;			/* owned by bound_context; NULL: not begun */
	bool		finished;

	/* reading ahead */
	int			n_read;
	AttrNumber *read_attr;
	HeapTuple	queue[TBPG_AHEAD_ROWS];
	int			queue_head;
	int			queue_len;
	int			depth;			/* rows wanted in the queue; grows with use */

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
/* row.c */
extern void tbpg_fill_row(const TbpgScanState *state, const TbBlockRow *row, Datum *values, bool *isnull);
/* explain.c */
extern void tbpg_explain_scan(ForeignScanState *node, ExplainState *es);
/* import.c */
extern List *tbpg_import_schema(ImportForeignSchemaStmt *stmt, Oid server);

#endif
