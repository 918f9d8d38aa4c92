/*
 * From WHERE clauses to engine predicates. Clauses are taken apart once (prepare); the sides without columns are evaluated with PostgreSQL's
 * own expressions each time a scan starts (bind). Whatever is not understood becomes "unknown", which prunes nothing.
 */
#ifndef TBPG_QUAL_H
#define TBPG_QUAL_H

#include "postgres.h"

#include "nodes/execnodes.h"

#include "pg/tbpg.h"

typedef struct TbpgQual TbpgQual;

/* clauses: bare expressions (implicitly AND-ed) over one relation. parent: of the plan, to compile expressions with; NULL while planning, when
 * only constants count. Lives in the current memory context. */
extern TbpgQual *tbpg_qual_prepare(List *clauses, const TbpgTable *table, Index varno, PlanState *parent);
/* Whether anything was understood. */
extern bool tbpg_qual_useful(const TbpgQual *qual);
/* The predicate with the current values of parameters. owns: the caller, tb_pred_free. econtext NULL while planning. NULL: no clause. */
extern TbPred *tbpg_qual_bind(TbpgQual *qual, ExprContext *econtext);

/* ---- qual_const.c ---- */
/* A value of one of the types that compare with our columns, as a constant expression of the engine; NULL: not one of them. */
extern TbExpr *tbpg_const_expr(Oid type, Datum value, bool isnull);
extern bool tbpg_const_type(Oid type);

#endif
