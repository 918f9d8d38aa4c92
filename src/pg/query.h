/* Query texts that users hand to our functions: one SELECT with parameters given as text. */
#ifndef TBPG_QUERY_H
#define TBPG_QUERY_H

#include "postgres.h"

#include "nodes/params.h"
#include "nodes/plannodes.h"
#include "utils/array.h"

/*
 * Parse, check and plan: exactly one statement (42601) that only reads (25006). params: text[], $n take the
 * types the query gives them and are read by these types' input functions. The result and *bound live in the current context.
 */
extern PlannedStmt *tbpg_plan_query(const char *query, ArrayType *params, ParamListInfo *bound);

#endif
