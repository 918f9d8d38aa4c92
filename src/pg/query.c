/*
 * Query texts given as arguments: one statement, a SELECT that changes nothing; its
 * parameters get the types that their places in the query ask for (t2m_max > $1 makes $1 a double), and the
 * texts given for them become values of these types. The relations that it names are noted: a dataset's
 * owner must keep the right to read them.
 *
 * Functions that write are not seen here; who runs the query does so in a read-only transaction state, which stops them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parser.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "pg/query.h"

/* Positions in the query's text are no positions in the statement that the client sent. */
static void
query_error(void *arg)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery((const char *) arg);
	}
}

static void
refuse_write(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
			 errmsg("the query must not write"),
			 errhint("Give one SELECT without INTO, FOR UPDATE and data-modifying WITH.")));
}

static bool
with_writes(WithClause *with)
{
	ListCell   *cell;

	if (with == NULL)
		return false;
	foreach(cell, with->ctes)
		if (!IsA(((CommonTableExpr *) lfirst(cell))->ctequery, SelectStmt))
			return true;
	return false;
}

static bool
select_writes(SelectStmt *select)
{
	if (select == NULL)
		return false;
	return select->intoClause != NULL || select->lockingClause != NIL || with_writes(select->withClause) ||
		select_writes(select->larg) || select_writes(select->rarg);
}

static RawStmt *
parse_one(const char *string)
{
	List	   *statements = pg_parse_query(string);
	RawStmt    *raw;

	if (list_length(statements) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the query must be exactly one statement"),
				 errhint("Give one SELECT.")));
	raw = linitial_node(RawStmt, statements);
	if (IsA(raw->stmt, ExplainStmt) || IsA(raw->stmt, VariableShowStmt))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the query must be a SELECT"),
				 errhint("Give one SELECT.")));
	if (!IsA(raw->stmt, SelectStmt) || select_writes((SelectStmt *) raw->stmt))
		refuse_write();
	return raw;
}

/* ---- what it names ---- */

static bool
note_relations(Node *node, List **relations)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *entry = (RangeTblEntry *) node;

		if (entry->rtekind == RTE_RELATION)
			*relations = list_append_unique_oid(*relations, entry->relid);
		return false;
	}
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		if (query->hasModifyingCTE || query->commandType != CMD_SELECT || query->rowMarks != NIL)
			refuse_write();
		return query_tree_walker(query, note_relations, relations, QTW_EXAMINE_RTES_BEFORE);
	}
	return expression_tree_walker(node, note_relations, relations);
}

/* ---- parameters ---- */

static void
read_params(ArrayType *params, TbpgQuery *query)
{
	Datum	   *texts = NULL;
	bool	   *nulls = NULL;
	int			n = 0;

	if (params != NULL)
		deconstruct_array(params, TEXTOID, -1, false, TYPALIGN_INT, &texts, &nulls, &n);
	if (n != query->n_params)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of parameters does not suit the query"),
				 errdetail("The query has %d, given are %d.", query->n_params, n),
				 errhint("Give one element of params for each of $1, $2 ...")));
	query->param = palloc0(sizeof(Datum) * (size_t) Max(n, 1));
	query->param_null = palloc0((size_t) n + 1);
	for (int i = 0; i < n; i++)
	{
		Oid			input;
		Oid			io_param;
		char	   *literal = nulls[i] ? NULL : TextDatumGetCString(texts[i]);

		if (!OidIsValid(query->param_type[i]) || query->param_type[i] == UNKNOWNOID)
			ereport(ERROR,
					(errcode(ERRCODE_INDETERMINATE_DATATYPE),
					 errmsg("could not determine data type of parameter $%d", i + 1),
					 errhint("Cast it in the query: $%d::type.", i + 1)));
		getTypeInputInfo(query->param_type[i], &input, &io_param);
		query->param[i] = OidInputFunctionCall(input, literal, io_param, -1);
		query->param_null[i] = nulls[i] ? 'n' : ' ';
	}
}

void
tbpg_query_check(const char *string, ArrayType *params, TbpgQuery *query)
{
	ErrorContextCallback context = {.previous = error_context_stack, .callback = query_error, .arg = (void *) string};
	RawStmt    *raw;
	Query	   *analyzed;

	memset(query, 0, sizeof(*query));
	query->text = string;
	error_context_stack = &context;
	raw = parse_one(string);
	analyzed = parse_analyze_varparams(raw, string, &query->param_type, &query->n_params, NULL);
	error_context_stack = context.previous;
	query->analyzed = analyzed;
	query->ordered = analyzed->sortClause != NIL;
	(void) note_relations((Node *) analyzed, &query->relations);
	read_params(params, query);
}

PlannedStmt *
tbpg_plan_query(const char *string, ArrayType *params, ParamListInfo *bound)
{
	TbpgQuery	query;
	List	   *rewritten;

	tbpg_query_check(string, params, &query);
	*bound = makeParamList(query.n_params);
	for (int i = 0; i < query.n_params; i++)
	{
		ParamExternData *param = &(*bound)->params[i];

		param->ptype = query.param_type[i];
		param->pflags = PARAM_FLAG_CONST;
		param->isnull = query.param_null[i] == 'n';
		param->value = query.param[i];
	}
	/* a SELECT stays one query, whatever views it goes through */
	rewritten = pg_rewrite_query(query.analyzed);
	return pg_plan_query(linitial_node(Query, rewritten), string, CURSOR_OPT_PARALLEL_OK, *bound);
}
