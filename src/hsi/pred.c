/*
 * Predicate trees: building, freeing, asking which columns they name. AND and OR are kept flat, so
 * that a long IN list is one node with many children and no recursion goes deeper than the query's
 * own nesting.
 */
#include "hsi/pred.h"

#include <string.h>

static TbExpr *
expr_new(TbExprKind kind)
{
	TbExpr	   *expr = tb_calloc(1, sizeof(*expr));

	if (expr != NULL)
		expr->kind = kind;
	return expr;
}

TbExpr *
tb_expr_column(TbColumn column)
{
	TbExpr	   *expr = expr_new(TB_EXPR_COLUMN);

	if (expr != NULL)
		expr->column = column;
	return expr;
}

TbExpr *
tb_expr_const(TbClass class, TbValue lo, TbValue hi)
{
	TbExpr	   *expr = expr_new(TB_EXPR_CONST);

	if (expr != NULL)
		expr->constant = (TbRange) {.class = class, .lo = lo, .hi = hi};
	return expr;
}

TbExpr *
tb_expr_null(void)
{
	return expr_new(TB_EXPR_NULL);
}

TbExpr *
tb_expr_arith(TbArith op, TbExpr *left, TbExpr *right)
{
	TbExpr	   *expr = left != NULL && right != NULL ? expr_new(TB_EXPR_ARITH) : NULL;

	if (expr == NULL)
	{
		tb_expr_free(left);
		tb_expr_free(right);
		return NULL;
	}
	expr->op = op;
	expr->left = left;
	expr->right = right;
	return expr;
}

void
tb_expr_free(TbExpr *expr)
{
	if (expr == NULL)
		return;
	tb_expr_free(expr->left);
	tb_expr_free(expr->right);
	tb_free(expr);
}

static TbPred *
pred_new(TbPredKind kind)
{
	TbPred	   *pred = tb_calloc(1, sizeof(*pred));

	if (pred != NULL)
		pred->kind = kind;
	return pred;
}

TbPred *
tb_pred_compare(TbCompare op, TbExpr *left, TbExpr *right)
{
	TbPred	   *pred = left != NULL && right != NULL ? pred_new(TB_PRED_COMPARE) : NULL;

	if (pred == NULL)
	{
		tb_expr_free(left);
		tb_expr_free(right);
		return NULL;
	}
	pred->op = op;
	pred->left = left;
	pred->right = right;
	return pred;
}

TbPred *
tb_pred_is_null(TbExpr *expr, bool negated)
{
	TbPred	   *pred = expr != NULL ? pred_new(TB_PRED_IS_NULL) : NULL;

	if (pred == NULL)
	{
		tb_expr_free(expr);
		return NULL;
	}
	pred->left = expr;
	pred->negated = negated;
	return pred;
}

/* Append a child, taking the children of one of the same kind instead. Takes child also where it
 * fails. */
static bool
add_child(TbPred *pred, TbPred *child)
{
	bool		same = child->kind == pred->kind && pred->kind != TB_PRED_NOT;
	size_t		more = same ? child->n : 1;

	if (pred->n + more > pred->cap)
	{
		size_t		cap = (pred->n + more) * 2;
		TbPred	  **grown = tb_realloc_array(pred->child, cap, sizeof(TbPred *));

		if (grown == NULL)
		{
			tb_pred_free(child);
			return false;
		}
		pred->child = grown;
		pred->cap = cap;
	}
	if (!same)
	{
		pred->child[pred->n++] = child;
		return true;
	}
	memcpy(pred->child + pred->n, child->child, child->n * sizeof(TbPred *));
	pred->n += child->n;
	child->n = 0;
	tb_pred_free(child);
	return true;
}

/* Join two predicates under AND or OR, growing the left one where it is of that kind already. */
static TbPred *
join(TbPredKind kind, TbPred *left, TbPred *right)
{
	TbPred	   *pred = NULL;

	if (left == NULL || right == NULL)
	{
		tb_pred_free(left);
		tb_pred_free(right);
		return NULL;
	}
	if (left->kind == kind)
		pred = left;
	else
	{
		pred = pred_new(kind);
		if (pred == NULL || !add_child(pred, left))
		{
			if (pred == NULL)
				tb_pred_free(left);
			tb_pred_free(pred);
			tb_pred_free(right);
			return NULL;
		}
	}
	if (!add_child(pred, right))
	{
		tb_pred_free(pred);
		return NULL;
	}
	return pred;
}

TbPred *
tb_pred_and(TbPred *left, TbPred *right)
{
	return left == NULL ? right : join(TB_PRED_AND, left, right);
}

TbPred *
tb_pred_or(TbPred *left, TbPred *right)
{
	return join(TB_PRED_OR, left, right);
}

TbPred *
tb_pred_not(TbPred *pred)
{
	TbPred	   *not = pred != NULL ? pred_new(TB_PRED_NOT) : NULL;

	if (not == NULL || !add_child(not, pred))
	{
		if (not == NULL)
			tb_pred_free(pred);
		tb_pred_free(not);
		return NULL;
	}
	return not;
}

TbPred *
tb_pred_const(bool value, bool is_null)
{
	TbPred	   *pred = pred_new(TB_PRED_CONST);

	if (pred != NULL)
		pred->truth = is_null ? TB_CAN_NULL : value ? TB_CAN_TRUE : TB_CAN_FALSE;
	return pred;
}

TbPred *
tb_pred_unknown(void)
{
	return pred_new(TB_PRED_UNKNOWN);
}

void
tb_pred_free(TbPred *pred)
{
	if (pred == NULL)
		return;
	tb_expr_free(pred->left);
	tb_expr_free(pred->right);
	for (size_t i = 0; i < pred->n; i++)
		tb_pred_free(pred->child[i]);
	tb_free(pred->child);
	tb_free(pred);
}

static void
expr_columns(const TbExpr *expr, void (*visit) (void *arg, TbColumn column), void *arg)
{
	if (expr == NULL)
		return;
	if (expr->kind == TB_EXPR_COLUMN)
		visit(arg, expr->column);
	expr_columns(expr->left, visit, arg);
	expr_columns(expr->right, visit, arg);
}

void
tb_pred_columns(const TbPred *pred, void (*visit) (void *arg, TbColumn column), void *arg)
{
	if (pred == NULL)
		return;
	expr_columns(pred->left, visit, arg);
	expr_columns(pred->right, visit, arg);
	for (size_t i = 0; i < pred->n; i++)
		tb_pred_columns(pred->child[i], visit, arg);
}

static void
note_need(void *arg, TbColumn column)
{
	bool	   *need_array = arg;

	if (column.kind == TB_COL_STAT)
		need_array[column.index] = true;
}

void
tb_pred_needs(const TbPred *pred, bool *need_array)
{
	tb_pred_columns(pred, note_need, need_array);
}
