/*
 * Parsing and planning of query texts given as arguments: one SELECT, nothing that writes.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parsetree.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "pg/query.h"

/* Data-modifying WITH and row locks write as surely as UPDATE does. */
static bool
writes(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		if (query->commandType != CMD_SELECT || query->rowMarks != NIL || query->utilityStmt != NULL)
			return true;
		return query_tree_walker(query, writes, context, 0);
	}
	return expression_tree_walker(node, writes, context);
}

static RawStmt *
parse_one(const char *query)
{
	List	   *raw = pg_parse_query(query);
	Node	   *stmt;

	if (list_length(raw) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the query must be exactly one statement"),
				 errdetail("It has %d.", list_length(raw))));
	stmt = linitial_node(RawStmt, raw)->stmt;
	if (!IsA(stmt, SelectStmt) || ((SelectStmt *) stmt)->intoClause != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("the query must only read"),
				 errhint("Give one SELECT statement.")));
	return linitial_node(RawStmt, raw);
}

static ParamListInfo
bind_params(ArrayType *params, const Oid *types, int n_types)
{
	ParamListInfo bound;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(params, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n != n_types)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of parameters does not suit the query"),
				 errdetail("The query has %d, %d are given.", n_types, n)));
	bound = makeParamList(n);
	for (int i = 0; i < n; i++)
	{
		ParamExternData *param = &bound->params[i];
		Oid			input;
		Oid			ioparam;

		if (!OidIsValid(types[i]) || types[i] == UNKNOWNOID)
			ereport(ERROR,
					(errcode(ERRCODE_INDETERMINATE_DATATYPE),
					 errmsg("could not determine data type of parameter $%d", i + 1)));
		getTypeInputInfo(types[i], &input, &ioparam);
		param->ptype = types[i];
		param->pflags = PARAM_FLAG_CONST;
		param->isnull = nulls[i];
		param->value = OidInputFunctionCall(input, nulls[i] ? NULL : TextDatumGetCString(elements[i]), ioparam, -1);
	}
	return bound;
}

PlannedStmt *
tbpg_plan_query(const char *query, ArrayType *params, ParamListInfo *bound)
{
	RawStmt    *raw = parse_one(query);
	Oid		   *types = NULL;
	int			n_types = 0;
	List	   *rewritten;
	Query	   *parsed;

	rewritten = pg_analyze_and_rewrite_varparams(raw, query, &types, &n_types, NULL);
	if (list_length(rewritten) != 1 || writes(linitial(rewritten), NULL))
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("the query must only read"),
				 errhint("Leave out row locks and WITH clauses that write.")));
	parsed = linitial_node(Query, rewritten);
	*bound = bind_params(params, types, n_types);
	return pg_plan_query(parsed, query, CURSOR_OPT_PARALLEL_OK, *bound);
}
