/*
 * Planning to read ahead where joins, sorts, aggregates or subqueries lie between a scan and the read() of its
 * refs.
 *
 * The planner's finished paths are gone through once a query level. Where a projection or an aggregate computes
 * read(column) right above one of our scans, the scan is told to read ahead by itself (queue.c); above anything
 * else a node goes in between (ahead_node.c).
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#include "pg/fdw.h"

static create_upper_paths_hook_type next_hook;

/* ---- what is read ---- */

/* The functions that matter here; found anew after pg_proc changed. */
typedef struct Functions
{
	bool		valid;
	Oid			read;			/* InvalidOid: the extension is not in this database */
	Oid			raw;
	Oid			as_type;
} Functions;

static Functions functions;

static void
forget_functions(Datum arg, int cache, uint32 hash)
{
	functions.valid = false;
}

static Oid
function_of(Oid schema, const char *name, Oid ref, Oid second)
{
	Oid			args[2] = {ref, second};

	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						   PointerGetDatum(buildoidvector(args, OidIsValid(second) ? 2 : 1)), ObjectIdGetDatum(schema));
}

static const Functions *
find_functions(void)
{
	static bool registered = false;
	Oid			schema;
	Oid			ref;

	if (functions.valid)
		return &functions;
	if (!registered)
		CacheRegisterSyscacheCallback(PROCOID, forget_functions, (Datum) 0);
	registered = true;
	memset(&functions, 0, sizeof(functions));
	functions.valid = true;
	schema = get_namespace_oid("tensorbank", true);
	if (!OidIsValid(schema))
		return &functions;
	ref = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("tensor_ref"), ObjectIdGetDatum(schema));
	if (!OidIsValid(ref))
		return &functions;
	functions.read = function_of(schema, "read", ref, InvalidOid);
	functions.raw = function_of(schema, "raw", ref, InvalidOid);
	functions.as_type = function_of(schema, "as_type", ref, TEXTOID);
	return &functions;
}

static Oid
function_called(const Node *node)
{
	return node != NULL && IsA(node, FuncExpr) ? ((const FuncExpr *) node)->funcid : InvalidOid;
}

Var *
tbpg_read_column(Node *node)
{
	const Functions *known = find_functions();

	if (!OidIsValid(known->read) || function_called(node) != known->read)
		return NULL;
	node = linitial(((FuncExpr *) node)->args);
	/* what is fetched does not depend on how values are treated */
	while (OidIsValid(function_called(node)) &&
		   (function_called(node) == known->raw || function_called(node) == known->as_type))
		node = linitial(((FuncExpr *) node)->args);
	if (!IsA(node, Var) || ((Var *) node)->varlevelsup != 0 || ((Var *) node)->varattno <= 0)
		return NULL;
	return (Var *) node;
}

typedef struct ReadWalk
{
	List	   *below;			/* expressions that are computed further down */
	List	   *vars;
} ReadWalk;

static bool find_reads(Node *node, ReadWalk *walk);

/* Of what is not always computed whole, the part that is. */
static Node *
certain_part(Node *node)
{
	if (IsA(node, CaseExpr))
	{
		CaseExpr   *choice = (CaseExpr *) node;

		return choice->arg != NULL ? (Node *) choice->arg : (Node *) linitial_node(CaseWhen, choice->args)->expr;
	}
	if (IsA(node, CoalesceExpr))
		return linitial(((CoalesceExpr *) node)->args);
	if (IsA(node, BoolExpr))
		return linitial(((BoolExpr *) node)->args);
	return NULL;
}

static bool
find_reads(Node *node, ReadWalk *walk)
{
	Var		   *var;

	if (node == NULL || list_member(walk->below, node))
		return false;
	if (IsA(node, CaseExpr) || IsA(node, CoalesceExpr) || IsA(node, BoolExpr))
		return find_reads(certain_part(node), walk);
	var = tbpg_read_column(node);
	if (var != NULL)
		walk->vars = list_append_unique(walk->vars, var);
	return expression_tree_walker(node, find_reads, walk);
}

List *
tbpg_certain_reads(List *exprs)
{
	ReadWalk	walk = {.below = NIL};

	find_reads((Node *) exprs, &walk);
	return walk.vars;
}

/* Columns that a node reads to compute expressions from what its input computes. */
static List *
reads_between(List *exprs, const PathTarget *input)
{
	ReadWalk	walk = {.below = input == NULL ? NIL : input->exprs};

	find_reads((Node *) exprs, &walk);
	return walk.vars;
}

/* ---- paths ---- */

static Path *visit(PlannerInfo *root, Path *path);

static bool
is_ours(const Path *path)
{
	return IsA(path, ForeignPath) && path->parent->fdwroutine != NULL &&
		path->parent->fdwroutine->IterateForeignScan == tbpg_iterate_scan;
}

/* A scan that reads these columns ahead by itself: a copy, since paths are shared. */
static Path *
tell_scan(ForeignPath *path, List *vars)
{
	ForeignPath *copy = palloc(sizeof(ForeignPath));
	List	   *attrs = list_copy(list_nth(path->fdw_private, TBPG_PATH_AHEAD));
	ListCell   *lc;

	memcpy(copy, path, sizeof(ForeignPath));
	foreach(lc, vars)
	{
		Var		   *var = lfirst_node(Var, lc);

		if (var->varno == (int) path->path.parent->relid)
			attrs = list_append_unique_int(attrs, var->varattno);
	}
	copy->fdw_private = list_make2(list_nth(path->fdw_private, TBPG_PATH_DESCENDING), attrs);
	return (Path *) copy;
}

static Plan *plan_node(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
					   List *plans);

static const CustomPathMethods path_methods = {
	.CustomName = TBPG_AHEAD_NODE,
	.PlanCustomPath = plan_node
};

static Path *
put_node_over(PlannerInfo *root, Path *path, List *vars)
{
	CustomPath *node = makeNode(CustomPath);

	node->path = *path;
	node->path.type = T_CustomPath;
	node->path.pathtype = T_CustomScan;
	node->path.parallel_aware = false;
	node->path.total_cost += path->rows * cpu_tuple_cost;
	node->custom_paths = list_make1(path);
	node->custom_private = list_make2(vars, makeInteger(root->tuple_fraction <= 0));
	node->methods = &path_methods;
	return (Path *) node;
}

/* The input of something that reads columns of it. */
static Path *
feed(PlannerInfo *root, Path *path, List *vars)
{
	if (vars == NIL)
		return visit(root, path);
	if (is_ours(path))
		return tell_scan((ForeignPath *) path, vars);
	if (IsA(path, CustomPath) && ((CustomPath *) path)->methods == &path_methods)
		return path;
	if (IsA(path, ProjectionPath) && is_ours(((ProjectionPath *) path)->subpath))
	{
		ProjectionPath *projection = (ProjectionPath *) path;

		projection->subpath = tell_scan((ForeignPath *) projection->subpath, vars);
		return path;
	}
	return put_node_over(root, visit(root, path), vars);
}

/* A join that computes read() itself: the node goes between the join and a projection of its own. */
static Path *
split_join(PlannerInfo *root, Path *path)
{
	JoinPath   *join = (JoinPath *) path;
	List	   *below = list_concat_copy(join->outerjoinpath->pathtarget->exprs, join->innerjoinpath->pathtarget->exprs);
	ReadWalk	walk = {.below = below};
	Size		size = IsA(path, NestPath) ? sizeof(NestPath) : IsA(path, MergePath) ? sizeof(MergePath) : sizeof(HashPath);
	Path	   *copy;

	find_reads((Node *) path->pathtarget->exprs, &walk);
	if (walk.vars == NIL)
		return path;
	copy = palloc(size);
	memcpy(copy, path, size);
	copy->pathtarget = create_empty_pathtarget();
	add_new_columns_to_pathtarget(copy->pathtarget,
								  pull_var_clause((Node *) path->pathtarget->exprs,
												  PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS));
	set_pathtarget_cost_width(root, copy->pathtarget);
	return (Path *) create_projection_path(root, path->parent, put_node_over(root, copy, walk.vars), path->pathtarget);
}

static void
visit_list(PlannerInfo *root, List *paths)
{
	ListCell   *lc;

	foreach(lc, paths)
		lfirst(lc) = visit(root, lfirst(lc));
}

/* What an aggregate computes from its input; its second step computes nothing of the kind. */
static List *
aggregate_reads(const AggPath *agg)
{
	if (DO_AGGSPLIT_COMBINE(agg->aggsplit))
		return NIL;
	return list_concat(reads_between(agg->path.pathtarget->exprs, agg->subpath->pathtarget),
					   reads_between(agg->qual, agg->subpath->pathtarget));
}

/*
 * The tables of an Append. The planner lets them wait together only where no worker could run the Append: to
 * wait together is worth more than to be run by one worker, and tables shared by workers are left alone.
 */
static void
visit_append(PlannerInfo *root, AppendPath *path)
{
	ListCell   *lc;

	visit_list(root, path->subpaths);
	foreach(lc, path->subpaths)
	{
		Path	   *below = lfirst(lc);

		while (IsA(below, ProjectionPath) || IsA(below, SubqueryScanPath))
			below = IsA(below, ProjectionPath) ? ((ProjectionPath *) below)->subpath : ((SubqueryScanPath *) below)->subpath;
		if (is_ours(below) && !below->parallel_aware && !path->path.parallel_aware)
			path->path.parallel_safe = false;
	}
}

/* The path, or what stands in its place, with everything below it taken care of. */
static Path *
visit(PlannerInfo *root, Path *path)
{
#define BELOW(type) (((type *) path)->subpath)
#define VISIT_BELOW(type) BELOW(type) = visit(root, BELOW(type))
	List	   *vars;

	switch (nodeTag(path))
	{
		case T_ForeignPath:
			vars = is_ours(path) ? reads_between(path->pathtarget->exprs, NULL) : NIL;
			return vars != NIL ? tell_scan((ForeignPath *) path, vars) : path;
		case T_ProjectionPath:
			vars = reads_between(path->pathtarget->exprs, BELOW(ProjectionPath)->pathtarget);
			BELOW(ProjectionPath) = feed(root, BELOW(ProjectionPath), vars);
			break;
		case T_AggPath:
			BELOW(AggPath) = feed(root, BELOW(AggPath), aggregate_reads((AggPath *) path));
			break;
		case T_WindowAggPath:
			vars = reads_between(path->pathtarget->exprs, BELOW(WindowAggPath)->pathtarget);
			BELOW(WindowAggPath) = feed(root, BELOW(WindowAggPath), vars);
			break;
		case T_NestPath:
		case T_MergePath:
		case T_HashPath:
			return split_join(root, path);
		case T_AppendPath:
			visit_append(root, (AppendPath *) path);
			break;
		case T_MergeAppendPath:
			visit_list(root, ((MergeAppendPath *) path)->subpaths);
			break;
		case T_LimitPath:
			VISIT_BELOW(LimitPath);
			break;
		case T_LockRowsPath:
			VISIT_BELOW(LockRowsPath);
			break;
		case T_SortPath:
			VISIT_BELOW(SortPath);
			break;
		case T_IncrementalSortPath:
			((IncrementalSortPath *) path)->spath.subpath = visit(root, ((IncrementalSortPath *) path)->spath.subpath);
			break;
		case T_GatherPath:
			VISIT_BELOW(GatherPath);
			break;
		case T_GatherMergePath:
			VISIT_BELOW(GatherMergePath);
			break;
		case T_MaterialPath:
			VISIT_BELOW(MaterialPath);
			break;
		case T_ProjectSetPath:
			VISIT_BELOW(ProjectSetPath);
			break;
		case T_UpperUniquePath:
			VISIT_BELOW(UpperUniquePath);
			break;
		case T_GroupPath:
			VISIT_BELOW(GroupPath);
			break;
		default:
			break;
	}
	return path;
}

static void
look_at_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output, void *extra)
{
	if (next_hook != NULL)
		next_hook(root, stage, input, output, extra);
	if (stage != UPPERREL_FINAL || !OidIsValid(find_functions()->read))
		return;
	/* the tables of a UNION ALL have target lists of their own */
	if (reads_between(root->processed_tlist, NULL) == NIL && root->append_rel_list == NIL &&
		reads_between((List *) root->parse->havingQual, NULL) == NIL)
		return;
	visit_list(root, output->pathlist);
	visit_list(root, output->partial_pathlist);
}

/* ---- the plan ---- */

/* Numbers of the input's columns that are read. */
static List *
positions(List *vars, List *tlist)
{
	List	   *found = NIL;
	ListCell   *lc;

	foreach(lc, tlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (list_member(vars, entry->expr))
			found = lappend_int(found, entry->resno);
	}
	return found;
}

static Plan *
plan_node(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses, List *plans)
{
	CustomScan *node = makeNode(CustomScan);
	Plan	   *input = linitial(plans);

	/* rows pass unchanged; the input has looked at the clauses */
	node->scan.plan.targetlist = copyObject(input->targetlist);
	node->custom_scan_tlist = copyObject(input->targetlist);
	node->custom_plans = plans;
	node->custom_private = list_make2(positions(linitial(path->custom_private), input->targetlist),
									  lsecond(path->custom_private));
	node->methods = &tbpg_ahead_node;
	return (Plan *) node;
}

void
tbpg_lookahead_init(void)
{
	RegisterCustomScanMethods(&tbpg_ahead_node);
	next_hook = create_upper_paths_hook;
	create_upper_paths_hook = look_at_paths;
}
