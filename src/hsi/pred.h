/* Private to the room: the shape of predicate trees. */
#ifndef TB_HSI_PRED_H
#define TB_HSI_PRED_H

#include "hsi/hsi.h"

typedef enum TbExprKind
{
	TB_EXPR_COLUMN, TB_EXPR_CONST, TB_EXPR_NULL, TB_EXPR_ARITH
} TbExprKind;

struct TbExpr
{
	TbExprKind	kind;
	TbColumn	column;
	TbRange		constant;
	TbArith		op;
	TbExpr	   *left;			/* owned */
	TbExpr	   *right;			/* owned */
};

typedef enum TbPredKind
{
	TB_PRED_COMPARE,
	TB_PRED_IS_NULL,
	TB_PRED_AND,
	TB_PRED_OR,
	TB_PRED_NOT,
	TB_PRED_CONST,
	TB_PRED_UNKNOWN
} TbPredKind;

struct TbPred
{
	TbPredKind	kind;
	TbCompare	op;
	TbExpr	   *left;			/* owned; IS_NULL has only this one */
	TbExpr	   *right;			/* owned */
	bool		negated;		/* IS_NULL */
	int			truth;			/* CONST: one TbTruth */
	TbPred	  **child;			/* owned; AND and OR have two or more, NOT one */
	size_t		n;
	size_t		cap;
};

#define TB_TRUTH_ANY (TB_CAN_TRUE | TB_CAN_FALSE | TB_CAN_NULL)

/* Calls visit for every column of the tree. */
extern void tb_pred_columns(const TbPred *pred, void (*visit)(void *arg, TbColumn column),
							void *arg);

#endif
