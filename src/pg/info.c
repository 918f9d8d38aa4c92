/*
 * What people ask about tables and queries: index_status, describe, estimate. No chunk is read.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "pg/compat.h"
#include "pg/fdw.h"
#include "pg/query.h"
#include "pg/table.h"
#include "pg/tensor.h"

/* The table for a caller who may SELECT from it. */
static TbpgTable *
readable_table(Oid relid)
{
	AclResult	acl;

	if (get_rel_name(relid) == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation does not exist")));
	acl = pg_class_aclcheck(relid, GetUserId(), ACL_SELECT);
	if (acl != ACLCHECK_OK)
		aclcheck_error(acl, OBJECT_FOREIGN_TABLE, get_rel_name(relid));
	if (!tbpg_is_ours(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a foreign table of tensorbank", get_rel_name(relid))));
	return tbpg_table(relid, GetUserId());
}

PG_FUNCTION_INFO_V1(tensorbank_index_status);

Datum
tensorbank_index_status(PG_FUNCTION_ARGS)
{
	TbpgTable  *table = readable_table(PG_GETARG_OID(0));
	TupleDesc	desc;
	Datum		values[7] = {0};
	bool		nulls[7] = {0};
	TbHsiInfo	info = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (table->hsi != NULL)
		info = tb_hsi_info(table->hsi);
	values[0] = Int32GetDatum(info.levels);
	values[1] = Int64GetDatum((int64) table->info->n_blocks);
	values[2] = Int64GetDatum((int64) info.n_covered);
	values[3] = Int64GetDatum((int64) info.n_parts);
	values[4] = Int64GetDatum((int64) info.n_parts_done);
	values[5] = BoolGetDatum(info.complete);
	values[6] = Int64GetDatum(table->hsi != NULL ? (int64) tb_hsi_serial(table->hsi) : 0);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

static Datum
name_array(char *const *names, int n)
{
	Datum		elements[TB_MAX_DIM];

	for (int i = 0; i < n; i++)
		elements[i] = CStringGetTextDatum(names[i]);
	return PointerGetDatum(construct_array(elements, n, TEXTOID, -1, false, TYPALIGN_INT));
}

PG_FUNCTION_INFO_V1(tensorbank_describe);

Datum
tensorbank_describe(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	TbpgTable  *table = readable_table(relid);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < table->natts; i++)
	{
		const TbArrayMeta *meta;
		const char *text;
		Datum		values[8] = {0};
		bool		nulls[8] = {0};

		if (table->column[i].role != TBPG_ARRAY)
			continue;
		meta = tb_array_meta(table->info->array[table->column[i].index]);
		values[0] = CStringGetTextDatum(get_attname(relid, (AttrNumber) (i + 1), false));
		values[1] = CStringGetTextDatum(tb_dtype_name(meta->packing.decoded));
		values[2] = name_array(meta->dim_name, meta->ndim);
		values[3] = PointerGetDatum(tbpg_extents_array(meta->ndim, meta->shape));
		values[4] = PointerGetDatum(tbpg_extents_array(meta->ndim, meta->chunk));
		values[5] = CStringGetTextDatum(tb_array_codecs(table->info->array[table->column[i].index]));
		nulls[6] = !tb_json_get_string(meta->attributes, "units", &text);
		if (!nulls[6])
			values[6] = CStringGetTextDatum(text);
		nulls[7] = !tb_json_get_string(meta->attributes, "long_name", &text);
		if (!nulls[7])
			values[7] = CStringGetTextDatum(text);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- estimate ---- */

typedef struct Estimate
{
	uint64		blocks;
	uint64		requests;
	uint64		decoded;
	uint64		stored;
	bool		stored_known;
	ParamListInfo params;
} Estimate;

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

static void
free_fetch(void *object)
{
	tb_fetch_free(object);
}

/* What reading one block of one array would take. Shard indexes are looked at, chunks are not. */
static void
add_block(Estimate *estimate, TbArray *array, const TbRegion *region)
{
	TbFetch    *fetch;
	TbPlace		place;
	TbError		err;
	uint64_t	elements;
	TbpgOwned  *owned;

	TBPG_CHECK(tb_fetch_locate(array, region, &fetch, &err), &err);
	owned = tbpg_own(CurrentMemoryContext, fetch, free_fetch);
	TBPG_AWAIT(tb_fetch_poll(fetch, &err), &err);
	for (size_t i = 0; tb_fetch_place(fetch, i, &place); i++)
	{
		if (place.missing)
			continue;
		estimate->requests++;
		if (place.length == UINT64_MAX)
			estimate->stored_known = false;
		else
			estimate->stored += place.length;
	}
	if (tb_region_elements(region, &elements))
		estimate->decoded += elements * tb_dtype_size(tb_array_meta(array)->packing.decoded);
	tbpg_owned_set(owned, NULL);
}

static void
walk_scan(Estimate *estimate, ForeignScan *plan, const RangeTblEntry *rte, EState *estate)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "tensorbank estimate", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	MemoryContext row_context = AllocSetContextCreate(context, "tensorbank estimate row", ALLOCSET_SMALL_SIZES);
	Oid			user = tbpg_plan_user(plan, rte);
	TbpgTable  *table = tbpg_table(rte->relid, OidIsValid(user) ? user : GetUserId());
	List	   *reads = list_nth(plan->fdw_private, TBPG_PRIVATE_READ);
	PlanState  *parent = &makeNode(ForeignScanState)->ss.ps;
	TbpgQual   *qual;
	TbPred	   *pred;
	TbScanSpec	spec = {.unindexed = TB_UNINDEXED_ERROR};
	TbScan	   *scan;
	const TbBlockRow *row;
	TbError		err;
	ListCell   *lc;

	tbpg_table_pin(table, context);
	parent->state = estate;
	parent->plan = &plan->scan.plan;
	qual = tbpg_qual_prepare(tbpg_pushed_clauses(plan), table, plan->scan.scanrelid, parent);
	pred = tbpg_qual_bind(qual, CreateExprContext(estate));
	(void) tbpg_own(context, pred, free_pred);
	spec.grid = table->grid;
	spec.hsi = table->hsi;
	spec.pred = pred;
	TBPG_CHECK(tb_scan_open(&spec, &scan, &err), &err);
	(void) tbpg_own(context, scan, free_scan);
	for (;;)
	{
		TbRegion	region;

		TBPG_AWAIT(tb_scan_next(scan, &row, &err), &err);
		if (row == NULL)
			break;
		estimate->blocks++;
		MemoryContextSwitchTo(row_context);
		tb_grid_block_region(table->info, row->index, &region);
		foreach(lc, reads)
		{
			const TbpgColumn *column = &table->column[lfirst_int(lc) - 1];

			if (column->role == TBPG_ARRAY)
				add_block(estimate, table->info->array[column->index], &region);
		}
		MemoryContextReset(row_context);
		MemoryContextSwitchTo(context);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

static void
walk_plan(Estimate *estimate, Plan *plan, PlannedStmt *stmt, EState *estate)
{
	ListCell   *lc;
	List	   *children = NIL;

	if (plan == NULL)
		return;
	if (IsA(plan, ForeignScan))
	{
		ForeignScan *scan = (ForeignScan *) plan;
		RangeTblEntry *rte = rt_fetch(scan->scan.scanrelid, stmt->rtable);

		if (tbpg_is_ours(rte->relid))
			walk_scan(estimate, scan, rte, estate);
	}
	if (IsA(plan, Append))
		children = ((Append *) plan)->appendplans;
	else if (IsA(plan, MergeAppend))
		children = ((MergeAppend *) plan)->mergeplans;
	else if (IsA(plan, SubqueryScan))
		children = list_make1(((SubqueryScan *) plan)->subplan);
	else if (IsA(plan, CustomScan))
		children = ((CustomScan *) plan)->custom_plans;
	foreach(lc, children)
		walk_plan(estimate, lfirst(lc), stmt, estate);
	walk_plan(estimate, plan->lefttree, stmt, estate);
	walk_plan(estimate, plan->righttree, stmt, estate);
}

PG_FUNCTION_INFO_V1(tensorbank_estimate);

Datum
tensorbank_estimate(PG_FUNCTION_ARGS)
{
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Estimate	estimate = {.stored_known = true};
	TupleDesc	desc;
	Datum		values[4];
	bool		nulls[4] = {0};
	EState	   *estate;
	PlannedStmt *stmt;
	ListCell   *lc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	stmt = tbpg_plan_query(query, PG_GETARG_ARRAYTYPE_P(1), &estimate.params);
	tbpg_check_permissions(stmt);
	estate = CreateExecutorState();
	estate->es_param_list_info = estimate.params;
	tbpg_init_range_table(estate, stmt);
	walk_plan(&estimate, stmt->planTree, stmt, estate);
	foreach(lc, stmt->subplans)
		walk_plan(&estimate, lfirst(lc), stmt, estate);
	FreeExecutorState(estate);
	values[0] = Int64GetDatum((int64) estimate.blocks);
	values[1] = Int64GetDatum((int64) estimate.requests);
	values[2] = Int64GetDatum((int64) estimate.stored);
	values[3] = Int64GetDatum((int64) estimate.decoded);
	nulls[2] = !estimate.stored_known;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
