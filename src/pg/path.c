/*
 * Planning a scan: how many rows, which paths, what goes into the plan.
 *
 * Rows come out in block order, either way round, so a sort on the block column costs nothing. Joins whose
 * clauses we understand get parameterised paths: the scan prunes anew for each outer row.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_opfamily.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"

#include "pg/compat.h"
#include "pg/fdw.h"
#include "pg/table.h"

/* Costs in the planner's units, set beside seq_page_cost 1: starting looks at nodes, a row costs its making. */
#define COST_STARTUP 2.0
#define COST_ROW 0.02
#define COST_BLOCK 0.00001	/* going past a block */

typedef struct PlanRel
{
	TbpgTable  *table;			/* pinned in the planner's context */
} PlanRel;

/* From the index, by the clauses that may prune: the others must not tell of rows that a view hides. */
static double
estimate_rows(const PlanRel *plan, RelOptInfo *rel)
{
	List	   *clauses = NIL;
	ListCell   *lc;
	TbPred	   *pred;
	double		rows;

	foreach(lc, rel->baserestrictinfo)
	{
		RestrictInfo *info = lfirst_node(RestrictInfo, lc);

		if (!info->pseudoconstant && restriction_is_securely_promotable(info, rel))
			clauses = lappend(clauses, info->clause);
	}
	pred = tbpg_qual_bind(tbpg_qual_prepare(clauses, plan->table, rel->relid, NULL), NULL);
	rows = tb_hsi_estimate(plan->table->grid, plan->table->hsi, pred);
	tb_pred_free(pred);
	return rows;
}

/*
 * The executor checks rights, but planning already reaches for the store: nobody makes us do that without a
 * right to read. (Of a partition the executor asks for none: the parent's count.)
 */
static void
check_may_read(Oid relid, Oid user)
{
	if (pg_class_aclcheck(relid, user, ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relid, user, ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FOREIGN_TABLE, get_rel_name(relid));
}

void
tbpg_get_rel_size(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	PlanRel    *plan = palloc0(sizeof(PlanRel));
	Oid			user = OidIsValid(rel->userid) ? rel->userid : GetUserId();
	double		rows;

	if (tbpg_has_permissions(planner_rt_fetch(rel->relid, root)))
		check_may_read(relid, user);
	plan->table = tbpg_table(relid, user);
	tbpg_table_pin(plan->table, CurrentMemoryContext);
	rel->fdw_private = plan;
	rel->tuples = (double) plan->table->info->n_blocks;
	rows = estimate_rows(plan, rel);
	rel->rows = clamp_row_est(Min(rows, rel->tuples));
	rel->reltarget->width = get_relation_data_width(relid, NULL);
}

/* Whether a key sorts by an expression of this relation alone; block: by its block column. */
static bool
is_key_of(const PathKey *key, const RelOptInfo *rel, const TbpgTable *table, bool block)
{
	ListCell   *lc;

	if (key->pk_eclass->ec_has_volatile)
		return false;
	foreach(lc, key->pk_eclass->ec_members)
	{
		EquivalenceMember *member = lfirst(lc);
		Var		   *var = (Var *) member->em_expr;

		if (!bms_equal(member->em_relids, rel->relids))
			continue;
		if (!block || (IsA(var, Var) && var->varattno > 0 && var->varattno <= table->natts &&
					   table->column[var->varattno - 1].role == TBPG_BLOCK))
			return true;
	}
	return false;
}

/*
 * Pathkeys of block order, if the query asks for it: descending tells which way. Block numbers are unique and
 * never null, so whatever of the same row is sorted by next is sorted already; a key of another relation is
 * not, since a join may repeat our rows.
 */
static List *
block_pathkeys(PlannerInfo *root, RelOptInfo *rel, const TbpgTable *table, bool *descending)
{
	List	   *keys = NIL;
	ListCell   *lc;

	foreach(lc, root->query_pathkeys)
	{
		PathKey    *key = lfirst_node(PathKey, lc);

		if (keys == NIL && key->pk_opfamily != INTEGER_BTREE_FAM_OID)
			break;
		if (!is_key_of(key, rel, table, keys == NIL))
			break;
		if (keys == NIL)
			*descending = tbpg_pathkey_descending(key);
		keys = lappend(keys, key);
	}
	return keys;
}

typedef struct ReadWalk
{
	Index		varno;
	List	   *attrs;
} ReadWalk;

/* read(column) anywhere in the query, at this query level. */
static bool
find_reads(Node *node, ReadWalk *walk)
{
	Var		   *var;

	if (node == NULL)
		return false;
	var = tbpg_read_column(node);
	if (var != NULL && var->varno == (int) walk->varno)
		walk->attrs = list_append_unique_int(walk->attrs, var->varattno);
	return expression_tree_walker(node, find_reads, walk);
}

static List *
reads_in(Node *node, const RelOptInfo *rel)
{
	ReadWalk	walk = {.varno = rel->relid};

	find_reads(node, &walk);
	return walk.attrs;
}

/* Also where a view or subquery above was flattened: the processed target list has the final expressions. */
static List *
read_columns(PlannerInfo *root, RelOptInfo *rel)
{
	List	   *attrs = reads_in((Node *) root->processed_tlist, rel);

	attrs = list_concat_unique_int(attrs, reads_in((Node *) root->parse->jointree, rel));
	return list_concat_unique_int(attrs, reads_in((Node *) root->parse->havingQual, rel));
}

/* Decoded bytes that read() makes of a row, those that need no decoding at an eighth. */
static double
read_bytes(PlannerInfo *root, RelOptInfo *rel, const TbpgTable *table)
{
	List	   *attrs = read_columns(root, rel);
	double		elements = 1;
	double		bytes = 0;
	ListCell   *lc;

	for (int d = 0; d < table->info->ndim; d++)
		elements *= (double) Min(table->info->cell[d], table->info->shape[d]);
	foreach(lc, attrs)
	{
		const TbpgColumn *column = &table->column[lfirst_int(lc) - 1];
		const TbArray *array;

		if (lfirst_int(lc) > table->natts || column->role != TBPG_ARRAY)
			continue;
		array = table->info->array[column->index];
		bytes += (double) tb_dtype_size(tb_array_meta(array)->packing.decoded) /
			(strchr(tb_array_codecs(array), ',') == NULL ? 8 : 1);
	}
	return elements * bytes;
}

static void
add_paths(PlannerInfo *root, RelOptInfo *rel, double rows, Relids outer)
{
	PlanRel    *plan = rel->fdw_private;
	Cost		total = COST_STARTUP + rows * COST_ROW + rel->tuples * COST_BLOCK;
	bool		descending = false;
	List	   *pathkeys = outer == NULL ? block_pathkeys(root, rel, plan->table, &descending) : NIL;
	ForeignPath *path = tbpg_foreignscan_path(root, rel, rows, COST_STARTUP, total, NIL, outer, NULL);

	path->fdw_private = list_make2(makeInteger(0), NIL);
	add_path(rel, (Path *) path);
	if (pathkeys != NIL)
	{
		path = tbpg_foreignscan_path(root, rel, rows, COST_STARTUP, total, pathkeys, outer, NULL);
		path->fdw_private = list_make2(makeInteger(descending), NIL);
		add_path(rel, (Path *) path);
	}
}

/*
 * A path that several processes share. How many the planner asks for follows from its own rule about the size
 * of a table: here that of the rows, and of what read() makes of them. Values that only have to be copied make
 * no work that another process could take over: sending them there costs as much.
 */
static void
add_shared_path(PlannerInfo *root, RelOptInfo *rel)
{
	PlanRel    *plan = rel->fdw_private;
	double		bytes = rel->rows * rel->reltarget->width + rel->rows * read_bytes(root, rel, plan->table);
	Cost		total = COST_STARTUP + rel->rows * COST_ROW + rel->tuples * COST_BLOCK;
	ForeignPath *path;
	double		share;
	int			workers;

	if (!rel->consider_parallel || rel->lateral_relids != NULL)
		return;
	workers = compute_parallel_worker(rel, bytes / BLCKSZ, -1, max_parallel_workers_per_gather);
	if (workers <= 0)
		return;
	/* as the server does it for its own scans: the leader takes part the less, the more workers there are */
	share = workers + (parallel_leader_participation ? Max(1.0 - 0.3 * workers, 0) : 0);
	path = tbpg_foreignscan_path(root, rel, clamp_row_est(rel->rows / share), COST_STARTUP,
								 COST_STARTUP + (total - COST_STARTUP) / share, NIL, NULL, NULL);
	path->fdw_private = list_make2(makeInteger(0), NIL);
	path->path.parallel_aware = true;
	path->path.parallel_workers = workers;
	add_partial_path(rel, (Path *) path);
}

static bool
is_ours(PlannerInfo *root, RelOptInfo *rel, EquivalenceClass *ec, EquivalenceMember *em, void *arg)
{
	return bms_is_member((int) rel->relid, em->em_relids) && bms_membership(em->em_relids) == BMS_SINGLETON;
}

/* One parameterised path for each set of outer relations that a useful join clause names. */
static void
add_join_paths(PlannerInfo *root, RelOptInfo *rel)
{
	PlanRel    *plan = rel->fdw_private;
	List	   *clauses = list_copy(rel->joininfo);
	List	   *seen = NIL;
	ListCell   *lc;

	if (rel->has_eclass_joins)
		clauses = list_concat(clauses, generate_implied_equalities_for_column(root, rel, is_ours, NULL, rel->lateral_referencers));
	foreach(lc, clauses)
	{
		RestrictInfo *info = lfirst_node(RestrictInfo, lc);
		ParamPathInfo *param;
		Relids		outer;
		TbpgQual   *qual;

		if (!join_clause_is_movable_to(info, rel))
			continue;
		outer = bms_union(info->clause_relids, rel->lateral_relids);
		outer = bms_del_member(outer, (int) rel->relid);
		if (bms_is_empty(outer))
			continue;
		qual = tbpg_qual_prepare(list_make1(info->clause), plan->table, rel->relid, NULL);
		param = get_baserel_parampathinfo(root, rel, outer);
		if (!tbpg_qual_useful(qual) || list_member_ptr(seen, param))
			continue;
		seen = lappend(seen, param);
		add_paths(root, rel, clamp_row_est(param->ppi_rows), outer);
	}
}

void
tbpg_get_paths(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	add_paths(root, rel, rel->rows, rel->lateral_relids);
	add_shared_path(root, rel);
	add_join_paths(root, rel);
}

/*
 * Attribute numbers that anything above or in the scan looks at, 0 for the whole row. Not from the plan's
 * target list: for count(*) and the like the planner puts the table's every column there.
 */
static List *
used_columns(RelOptInfo *rel, List *quals)
{
	Bitmapset  *used = NULL;
	List	   *attrs = NIL;
	int			member = -1;

	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &used);
	pull_varattnos((Node *) quals, rel->relid, &used);
	while ((member = bms_next_member(used, member)) >= 0)
		attrs = lappend_int(attrs, member + FirstLowInvalidHeapAttributeNumber);
	return attrs;
}

ForeignScan *
tbpg_get_plan(PlannerInfo *root, RelOptInfo *rel, Oid relid, ForeignPath *path, List *tlist, List *clauses,
			  Plan *outer)
{
	List	   *pushed = NIL;
	List	   *private;
	List	   *ahead;
	List	   *quals = NIL;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		RestrictInfo *info = lfirst_node(RestrictInfo, lc);

		if (info->pseudoconstant)
			continue;
		/* A clause above a security barrier must not decide what is looked at below it. */
		if (restriction_is_securely_promotable(info, rel))
			pushed = lappend_int(pushed, list_length(quals));
		quals = lappend(quals, info->clause);
	}
	ahead = list_copy(list_nth(path->fdw_private, TBPG_PATH_AHEAD));
	foreach(lc, tbpg_certain_reads(quals))
	{
		Var		   *var = lfirst_node(Var, lc);

		if (var->varno == (int) rel->relid)
			ahead = list_append_unique_int(ahead, var->varattno);
	}
	private = list_make5(pushed, read_columns(root, rel), list_nth(path->fdw_private, TBPG_PATH_DESCENDING),
						 used_columns(rel, quals), ahead);
	private = lappend(private, makeInteger(root->tuple_fraction <= 0));
	return make_foreignscan(tlist, quals, rel->relid, NIL, private, NIL, NIL, outer);
}
