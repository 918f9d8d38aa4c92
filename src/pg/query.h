/* Query texts that users hand to our functions: one SELECT that only reads, with parameters given as text. */
#ifndef TBPG_QUERY_H
#define TBPG_QUERY_H

#include "postgres.h"

#include "nodes/params.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "utils/array.h"

typedef struct TbpgQuery
{
	const char *text;
	Query	   *analyzed;
	bool		ordered;		/* has a top-level ORDER BY */
	int			n_params;
	Oid		   *param_type;
	Datum	   *param;
	char	   *param_null;		/* 'n': NULL, ' ': not; as SPI wants them */
	List	   *relations;		/* OIDs that it names */
} TbpgQuery;
/* params: NULL or text[]. errors: 42601 not one statement, 25006 writes, 22023 parameters, and the parser's. */
extern void tbpg_query_check(const char *text, ArrayType *params, TbpgQuery *query);


/* The same, planned, with its parameters bound. Both live in the current context. */
extern PlannedStmt *tbpg_plan_query(const char *text, ArrayType *params, ParamListInfo *bound);

#endif
