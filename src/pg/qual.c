/*
 * WHERE clauses as engine predicates: AND, OR, NOT, comparisons of the B-tree kind, IN and its relatives, null tests, over columns and
 * sums, differences and products of double precision columns.
 *
 * The clauses stay in the plan and PostgreSQL checks every row again, so all that matters here is never to
 * say "no" where PostgreSQL would say "yes". The side without columns is whatever PostgreSQL's expression
 * gives when the scan starts; volatile sides are not understood.
 */
#include "postgres.h"

#include <math.h>

#include "access/stratnum.h"
#include "access/transam.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "pg/qual.h"

typedef enum ClauseKind
{
	CLAUSE_UNKNOWN, CLAUSE_AND, CLAUSE_OR, CLAUSE_NOT, CLAUSE_COMPARE, CLAUSE_ANY, CLAUSE_NULL_TEST, CLAUSE_COLUMN_TRUE, CLAUSE_CONST
} ClauseKind;

/* One side of a comparison: an expression over columns, or a value. */
typedef struct Side
{
	bool		is_value;
	/* columns */
	bool		arith;
	TbArith		op;
	struct Side *left;
	struct Side *right;
	TbColumn	column;
	/* a value */
	Oid			type;
	Const	   *constant;		/* NULL: evaluate state */
	ExprState  *state;			/* NULL while planning: unknown */
	bool		known;			/* of this bind */
	bool		isnull;
	Datum		value;
	bool		from_int8;		/* the columns' side was cast from bigint to double precision */
} Side;

typedef struct Clause
{
	ClauseKind	kind;
	List	   *args;			/* of Clause */
	TbCompare	compare;
	Side	   *left;
	Side	   *right;
	bool		negated;		/* IS NOT NULL */
	bool		use_or;			/* ANY rather than ALL */
} Clause;

struct TbpgQual
{
	Clause	   *root;			/* NULL: no clause */
	bool		useful;
};

typedef struct Context
{
	const TbpgTable *table;
	Index		varno;
	PlanState  *parent;
	bool		useful;
} Context;

static Clause *
make_clause(ClauseKind kind)
{
	Clause	   *clause = palloc0(sizeof(Clause));

	clause->kind = kind;
	return clause;
}

/* What a column of the table is to the engine; false: text, refs, dropped. */
static bool
engine_column(const TbpgColumn *column, TbColumn *out)
{
	out->index = column->index;
	out->stat = column->stat;
	switch (column->role)
	{
		case TBPG_BLOCK:
			out->kind = TB_COL_BLOCK;
			return true;
		case TBPG_BLOCK_SIZE:
			out->kind = TB_COL_SIZE;
			return true;
		case TBPG_COORD_MIN:
			out->kind = TB_COL_COORD_MIN;
			return true;
		case TBPG_COORD_MAX:
			out->kind = TB_COL_COORD_MAX;
			return true;
		case TBPG_STAT:
			out->kind = TB_COL_STAT;
			return true;
		default:
			return false;
	}
}

/* Arithmetic of double precision that the engine can bound. */
static bool
arith_of(Oid function, TbArith *op)
{
	switch (function)
	{
		case F_FLOAT8PL:
			*op = TB_ADD;
			return true;
		case F_FLOAT8MI:
			*op = TB_SUB;
			return true;
		case F_FLOAT8MUL:
			*op = TB_MUL;
			return true;
		default:
			return false;
	}
}

/*
 * Whether an expression needs a row of ours. While planning, columns of other relations count as values: a nested
 * loop hands them over as parameters.
 */
static bool
has_columns(Node *node, Context *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return context->parent != NULL || ((Var *) node)->varno == (int) context->varno;
	return expression_tree_walker(node, has_columns, context);
}

/* A side without columns whose value stays the same during a scan. */
static bool
is_steady(Expr *expr, Context *context)
{
	return !has_columns((Node *) expr, context) && !contain_volatile_functions((Node *) expr) &&
		!contain_subplans((Node *) expr);
}

static Side *parse_side(Expr *expr, Context *context);

static Side *
parse_value(Expr *expr, Context *context)
{
	Side	   *side = palloc0(sizeof(Side));

	side->is_value = true;
	side->type = exprType((Node *) expr);
	if (IsA(expr, Const))
		side->constant = (Const *) expr;
	else if (context->parent != NULL)
		side->state = ExecInitExpr(expr, context->parent);
	return side;
}

static Side *
parse_arith(OpExpr *op, Context *context)
{
	TbArith		arith;
	Side	   *side;

	if (list_length(op->args) != 2 || !arith_of(get_opcode(op->opno), &arith))
		return NULL;
	side = palloc0(sizeof(Side));
	side->arith = true;
	side->op = arith;
	side->left = parse_side(linitial(op->args), context);
	side->right = parse_side(lsecond(op->args), context);
	if (side->left == NULL || side->right == NULL || side->left->from_int8 || side->right->from_int8)
		return NULL;
	return side;
}

/* NULL: not understood. */
static Side *
parse_side(Expr *expr, Context *context)
{
	while (expr != NULL && IsA(expr, RelabelType))
		expr = ((RelabelType *) expr)->arg;
	if (IsA(expr, Var))
	{
		Var		   *var = (Var *) expr;
		Side	   *side;
		TbColumn	column;

		if (var->varno != (int) context->varno || var->varlevelsup != 0)
			return context->parent == NULL && tbpg_const_type(var->vartype) ? parse_value(expr, context) : NULL;
		if (var->varattno <= 0 || var->varattno > context->table->natts ||
			!engine_column(&context->table->column[var->varattno - 1], &column))
			return NULL;
		side = palloc0(sizeof(Side));
		side->column = column;
		return side;
	}
	if (!has_columns((Node *) expr, context))
		return is_steady(expr, context) && tbpg_const_type(exprType((Node *) expr)) ? parse_value(expr, context) : NULL;
	if (IsA(expr, FuncExpr))
	{
		FuncExpr   *func = (FuncExpr *) expr;

		/* exact casts that the parser puts around a bigint column, and the one that rounds */
		if (func->funcid == F_NUMERIC_INT8 || func->funcid == F_FLOAT8_INT8)
		{
			Side	   *side = parse_side(linitial(func->args), context);

			if (side != NULL && !side->is_value && !side->arith)
			{
				side->from_int8 = func->funcid == F_FLOAT8_INT8;
				return side;
			}
		}
		return NULL;
	}
	if (IsA(expr, OpExpr))
		return parse_arith((OpExpr *) expr, context);
	return NULL;
}

static Clause *parse_clause(Expr *expr, Context *context);

/* The B-tree meaning of an operator between two types we know; false: none. */
static bool
compare_of(Oid opno, TbCompare *compare)
{
	List	   *meanings = tbpg_op_meanings(opno);
	ListCell   *lc;
	static const TbCompare by_strategy[] = {
		[BTLessStrategyNumber] = TB_LT, [BTLessEqualStrategyNumber] = TB_LE, [BTEqualStrategyNumber] = TB_EQ,
		[BTGreaterEqualStrategyNumber] = TB_GE, [BTGreaterStrategyNumber] = TB_GT, [TBPG_COMPARE_NE] = TB_NE
	};

	foreach(lc, meanings)
	{
		TbpgOpMeaning *meaning = lfirst(lc);

		if (!tbpg_const_type(meaning->oplefttype) || !tbpg_const_type(meaning->oprighttype))
			continue;
		/* an operator class of somebody's own may sort in any way */
		if (opno >= FirstGenbkiObjectId)
			return false;
		*compare = by_strategy[tbpg_op_compare(meaning)];
		return true;
	}
	return false;
}

static Clause *
parse_op(OpExpr *op, Context *context)
{
	Clause	   *clause = make_clause(CLAUSE_COMPARE);

	if (list_length(op->args) != 2 || !compare_of(op->opno, &clause->compare))
		return NULL;
	clause->left = parse_side(linitial(op->args), context);
	clause->right = parse_side(lsecond(op->args), context);
	if (clause->left == NULL || clause->right == NULL || (clause->left->is_value && clause->right->is_value))
		return NULL;
	return clause;
}

static Clause *
parse_any(ScalarArrayOpExpr *op, Context *context)
{
	Clause	   *clause = make_clause(CLAUSE_ANY);
	Expr	   *array = lsecond(op->args);

	if (!compare_of(op->opno, &clause->compare))
		return NULL;
	clause->use_or = op->useOr;
	clause->left = parse_side(linitial(op->args), context);
	if (clause->left == NULL || clause->left->is_value ||
		!tbpg_const_type(get_element_type(exprType((Node *) array))) || !is_steady(array, context))
		return NULL;
	clause->right = parse_value(array, context);
	return clause;
}

static Clause *
parse_null_test(NullTest *test, Context *context)
{
	Clause	   *clause = make_clause(CLAUSE_NULL_TEST);

	if (test->argisrow)
		return NULL;
	clause->left = parse_side(test->arg, context);
	if (clause->left == NULL || clause->left->is_value)
		return NULL;
	clause->negated = test->nulltesttype == IS_NOT_NULL;
	return clause;
}

static Clause *
parse_boolean(BoolExpr *expr, Context *context)
{
	static const ClauseKind kinds[] = {[AND_EXPR] = CLAUSE_AND, [OR_EXPR] = CLAUSE_OR, [NOT_EXPR] = CLAUSE_NOT};
	Clause	   *clause = make_clause(kinds[expr->boolop]);
	ListCell   *lc;

	foreach(lc, expr->args)
		clause->args = lappend(clause->args, parse_clause(lfirst(lc), context));
	return clause;
}

/* Never NULL: what is not understood is CLAUSE_UNKNOWN. */
static Clause *
parse_clause(Expr *expr, Context *context)
{
	Clause	   *clause = NULL;

	switch (nodeTag(expr))
	{
		case T_BoolExpr:
			return parse_boolean((BoolExpr *) expr, context);
		case T_OpExpr:
			clause = parse_op((OpExpr *) expr, context);
			break;
		case T_ScalarArrayOpExpr:
			clause = parse_any((ScalarArrayOpExpr *) expr, context);
			break;
		case T_NullTest:
			clause = parse_null_test((NullTest *) expr, context);
			break;
		case T_Var:
			clause = make_clause(CLAUSE_COLUMN_TRUE);
			clause->left = parse_side(expr, context);
			if (clause->left == NULL || clause->left->is_value)
				clause = NULL;
			break;
		case T_Const:
			if (((Const *) expr)->consttype == BOOLOID)
			{
				clause = make_clause(CLAUSE_CONST);
				clause->right = parse_value(expr, context);
			}
			break;
		default:
			break;
	}
	if (clause == NULL)
		return make_clause(CLAUSE_UNKNOWN);
	if (clause->kind != CLAUSE_CONST)
		context->useful = true;
	return clause;
}

TbpgQual *
tbpg_qual_prepare(List *clauses, const TbpgTable *table, Index varno, PlanState *parent)
{
	TbpgQual   *qual = palloc0(sizeof(TbpgQual));
	Context		context = {.table = table, .varno = varno, .parent = parent};
	ListCell   *lc;

	if (clauses == NIL)
		return qual;
	qual->root = make_clause(CLAUSE_AND);
	foreach(lc, clauses)
		qual->root->args = lappend(qual->root->args, parse_clause(lfirst(lc), &context));
	qual->useful = context.useful;
	return qual;
}

bool
tbpg_qual_useful(const TbpgQual *qual)
{
	return qual->useful;
}

/* ---- binding ---- */

/*
 * Values are evaluated before the first predicate is made: expressions may raise, and predicates are the engine's
 * memory.
 */
static void
eval_side(Side *side, ExprContext *econtext)
{
	if (side == NULL)
		return;
	eval_side(side->left, econtext);
	eval_side(side->right, econtext);
	side->known = side->constant != NULL || (side->state != NULL && econtext != NULL);
	if (side->constant != NULL)
	{
		side->value = side->constant->constvalue;
		side->isnull = side->constant->constisnull;
	}
	else if (side->known)
		side->value = ExecEvalExprSwitchContext(side->state, econtext, &side->isnull);
}

static void
eval_clause(Clause *clause, ExprContext *econtext)
{
	ListCell   *lc;

	eval_side(clause->left, econtext);
	eval_side(clause->right, econtext);
	foreach(lc, clause->args)
		eval_clause(lfirst(lc), econtext);
}

/* float8(bigint) is exact below 2^53; beyond, the cast rounds and the engine's exact comparison would not be PostgreSQL's. */
static bool
safe_for_int8(Oid type, Datum value, bool isnull)
{
	double		number;

	if (isnull)
		return true;
	if (type == FLOAT8OID)
		number = DatumGetFloat8(value);
	else if (type == FLOAT4OID)
		number = (double) DatumGetFloat4(value);
	else
		return false;
	return fabs(number) < 9007199254740992.0;
}

static TbExpr *
bind_side(const Side *side, const Side *other)
{
	if (side->arith)
		return tb_expr_arith(side->op, bind_side(side->left, side->right),
							 bind_side(side->right, side->left));
	if (!side->is_value)
	{
		/* two columns, one of them rounded by its cast */
		if (side->from_int8 && (other == NULL || !other->is_value))
			return NULL;
		return tb_expr_column(side->column);
	}
	if (!side->known || (other != NULL && other->from_int8 && !safe_for_int8(side->type, side->value, side->isnull)))
		return NULL;
	return tbpg_const_expr(side->type, side->value, side->isnull);
}

static TbPred *
bind_any(const Clause *clause)
{
	ArrayType  *array;
	Datum	   *elements;
	bool	   *nulls;
	int			n;
	int16		len;
	bool		byval;
	char		align;
	TbPred	   *pred = NULL;

	if (!clause->right->known)
		return tb_pred_unknown();
	if (clause->right->isnull)
		return tb_pred_const(false, true);
	array = DatumGetArrayTypeP(clause->right->value);
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &elements, &nulls, &n);
	if (n == 0)
		return tb_pred_const(!clause->use_or, false);
	for (int i = 0; i < n; i++)
	{
		TbExpr	   *constant = NULL;
		TbPred	   *one;

		if (!clause->left->from_int8 || safe_for_int8(ARR_ELEMTYPE(array), elements[i], nulls[i]))
			constant = tbpg_const_expr(ARR_ELEMTYPE(array), elements[i], nulls[i]);
		one = constant == NULL ? tb_pred_unknown() :
			tb_pred_compare(clause->compare, clause->left->from_int8 ? tb_expr_column(clause->left->column) :
							bind_side(clause->left, NULL), constant);
		if (one == NULL)
			one = tb_pred_unknown();
		pred = pred == NULL ? one : clause->use_or ? tb_pred_or(pred, one) : tb_pred_and(pred, one);
	}
	return pred;
}

static TbPred *bind_bool(const Clause *clause);

/* Never NULL but for memory. */
static TbPred *
bind_clause(const Clause *clause)
{
	TbPred	   *pred = NULL;

	switch (clause->kind)
	{
		case CLAUSE_AND:
		case CLAUSE_OR:
		case CLAUSE_NOT:
			pred = bind_bool(clause);
			break;
		case CLAUSE_COMPARE:
			pred = tb_pred_compare(clause->compare, bind_side(clause->left, clause->right),
								   bind_side(clause->right, clause->left));
			break;
		case CLAUSE_ANY:
			pred = bind_any(clause);
			break;
		case CLAUSE_NULL_TEST:
			if (clause->left->from_int8)
				pred = tb_pred_is_null(tb_expr_column(clause->left->column), clause->negated);
			else
				pred = tb_pred_is_null(bind_side(clause->left, NULL), clause->negated);
			break;
		case CLAUSE_COLUMN_TRUE:
			pred = tb_pred_compare(TB_EQ, tb_expr_column(clause->left->column),
								   tbpg_const_expr(BOOLOID, BoolGetDatum(true), false));
			break;
		case CLAUSE_CONST:
			pred = tb_pred_const(!clause->right->isnull && DatumGetBool(clause->right->value), clause->right->isnull);
			break;
		case CLAUSE_UNKNOWN:
			break;
	}
	return pred != NULL ? pred : tb_pred_unknown();
}

static TbPred *
bind_bool(const Clause *clause)
{
	TbPred	   *pred = NULL;
	ListCell   *lc;

	if (clause->kind == CLAUSE_NOT)
		return tb_pred_not(bind_clause(linitial(clause->args)));
	foreach(lc, clause->args)
	{
		TbPred	   *one = bind_clause(lfirst(lc));

		pred = pred == NULL ? one : clause->kind == CLAUSE_OR ? tb_pred_or(pred, one) : tb_pred_and(pred, one);
	}
	return pred;
}

TbPred *
tbpg_qual_bind(TbpgQual *qual, ExprContext *econtext)
{
	TbPred	   *pred;

	if (qual->root == NULL)
		return NULL;
	eval_clause(qual->root, econtext);
	pred = bind_clause(qual->root);
	if (pred == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	return pred;
}
