/*
 * Predicates judged over nodes never contradict the rows of the node: random trees over random
 * rows, with NULLs, NaN, infinities, the ends of int64 and uint64, against a brute-force evaluation
 * in SQL's logic.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "hsi/pred.h"
#include "hsi/stat.h"

#define COLUMNS 6
#define ROWS 6

static uint64_t seed = 7;

static uint64_t
rnd(void)
{
	seed += 0x9e3779b97f4a7c15u;
	return tb_mix64(seed);
}

/* Columns by number: two of each class. */
static TbClass
class_of(int column)
{
	return (TbClass) (column % 3);
}

typedef struct Cell
{
	bool		null;
	TbValue		value;
} Cell;

typedef struct Node
{
	int			rows;
	Cell		cell[ROWS][COLUMNS];
	bool		unknown[COLUMNS];
} Node;

static TbValue
random_value(TbClass class, bool tame)
{
	static const double f[] = {0,
							   -0.0,
							   1,
							   1.5,
							   -1,
							   3,
							   9007199254740992.0,
							   9007199254740993.0,
							   0x1p63,
							   -0x1p63,
							   0x1p64,
							   1e300,
							   INFINITY,
							   -INFINITY,
							   NAN};
	static const int64_t i[] = {
		0, 1, -1, 2, 3, 9007199254740992, 9007199254740993, INT64_MAX, INT64_MIN, INT64_MAX - 1};
	static const uint64_t u[] = {0, 1, 2, 3, 9007199254740993u, UINT64_MAX, UINT64_MAX - 1,
	(uint64_t) INT64_MAX + 1};
	TbValue		v = {0};

	if (class == TB_CLASS_F64)
		v.f64 = rnd() % 3 == 0 ? (double) (rnd() % 7) / 2 - 1 : f[rnd() % (tame ? 6 : 15)];
	else if (class == TB_CLASS_I64)
		v.i64 = rnd() % 3 == 0 ? (int64_t) (rnd() % 7) - 2 : i[rnd() % (tame ? 5 : 10)];
	else
		v.u64 = rnd() % 3 == 0 ? rnd() % 5 : u[rnd() % (tame ? 4 : 8)];
	return v;
}

static void
random_node(Node *node)
{
	bool		tame = rnd() % 2;

	node->rows = 1 + (int) (rnd() % ROWS);
	for (int c = 0; c < COLUMNS; c++)
	{
		bool		constant = rnd() % 4 == 0;
		bool		nulls = rnd() % 3 == 0;

		node->unknown[c] = rnd() % 10 == 0;
		for (int r = 0; r < node->rows; r++)
		{
			node->cell[r][c].null = nulls && rnd() % 2;
			node->cell[r][c].value = constant && r > 0 ? node->cell[0][c].value :
				random_value(class_of(c), tame);
		}
	}
}

static void
lookup(void *arg, TbColumn column, TbRange *range)
{
	const Node *node = arg;
	TbClass		class = class_of(column.index);

	memset(range, 0, sizeof(*range));
	range->class = class;
	range->unknown = node->unknown[column.index];
	range->all_null = true;
	for (int r = 0; r < node->rows; r++)
	{
		const Cell *cell = &node->cell[r][column.index];

		if (cell->null)
		{
			range->some_null = true;
			continue;
		}
		if (range->all_null || tb_value_cmp(class, cell->value, class, range->lo) < 0)
			range->lo = cell->value;
		if (range->all_null || tb_value_cmp(class, cell->value, class, range->hi) > 0)
			range->hi = cell->value;
		range->all_null = false;
	}
}

/* ---- the brute-force side ---- */

typedef struct Outcome
{
	bool		null;
	bool error; /* the server would raise one: no row, nothing to hold the judge to */
	TbClass		class;
	TbValue		value;
} Outcome;

static double
to_double(Outcome o)
{
	return o.class == TB_CLASS_F64 ? o.value.f64 :
		o.class == TB_CLASS_I64 ? (double) o.value.i64 : (double) o.value.u64;
}

static Outcome
eval_row(const TbExpr *expr, const Cell *row)
{
	Outcome		out = {0};
	Outcome		a;
	Outcome		b;

	switch (expr->kind)
	{
		case TB_EXPR_COLUMN:
			out.null = row[expr->column.index].null;
			out.class = class_of(expr->column.index);
			out.value = row[expr->column.index].value;
			return out;
		case TB_EXPR_CONST:
			out.class = expr->constant.class;
			out.value = expr->constant.lo;
			return out;
		case TB_EXPR_NULL:
			out.null = true;
			return out;
		case TB_EXPR_ARITH:
			break;
	}
	a = eval_row(expr->left, row);
	b = eval_row(expr->right, row);
	out.error = a.error || b.error;
	out.null = a.null || b.null;
	out.class = TB_CLASS_F64;
	out.value.f64 = expr->op == TB_ADD ? to_double(a) + to_double(b) :
		expr->op == TB_SUB ? to_double(a) - to_double(b) : to_double(a) * to_double(b);
	if (!out.null && isinf(out.value.f64) && !isinf(to_double(a)) && !isinf(to_double(b)))
		out.error = true;
	return out;
}

/* -1: error. rounding: integers against floats as float8 has it, else exactly as numeric has it. */
static int
row_truth(const TbPred *pred, const Cell *row, bool rounding)
{
	Outcome		a;
	Outcome		b;
	int			cmp;
	bool		is;
	int			set;

	switch (pred->kind)
	{
		case TB_PRED_COMPARE:
			a = eval_row(pred->left, row);
			b = eval_row(pred->right, row);
			if (a.error || b.error)
				return -1;
			if (a.null || b.null)
				return TB_CAN_NULL;
			if (rounding && a.class != b.class &&
				(a.class == TB_CLASS_F64 || b.class == TB_CLASS_F64))
				cmp = tb_f64_cmp(to_double(a), to_double(b));
			else
				cmp = tb_value_cmp(a.class, a.value, b.class, b.value);
			is = (pred->op == TB_LT && cmp < 0) || (pred->op == TB_LE && cmp <= 0) ||
				(pred->op == TB_EQ && cmp == 0) || (pred->op == TB_NE && cmp != 0) ||
				(pred->op == TB_GE && cmp >= 0) || (pred->op == TB_GT && cmp > 0);
			return is ? TB_CAN_TRUE : TB_CAN_FALSE;
		case TB_PRED_IS_NULL:
			a = eval_row(pred->left, row);
			return a.error ? -1 : a.null != pred->negated ? TB_CAN_TRUE : TB_CAN_FALSE;
		case TB_PRED_NOT:
			set = row_truth(pred->child[0], row, rounding);
			return set == TB_CAN_TRUE ? TB_CAN_FALSE : set == TB_CAN_FALSE ? TB_CAN_TRUE : set;
		case TB_PRED_AND:
		case TB_PRED_OR:
			set = pred->kind == TB_PRED_AND ? TB_CAN_TRUE : TB_CAN_FALSE;
			is = false;
			for (size_t i = 0; i < pred->n; i++)
			{
				int			t = row_truth(pred->child[i], row, rounding);

				if (t == -1)
					return -1;
				if (t == (pred->kind == TB_PRED_AND ? TB_CAN_FALSE : TB_CAN_TRUE))
					is = true;
				else if (t == TB_CAN_NULL)
					set = TB_CAN_NULL;
			}
			return is ? (pred->kind == TB_PRED_AND ? TB_CAN_FALSE : TB_CAN_TRUE) : set;
		case TB_PRED_CONST:
			return pred->truth;
		case TB_PRED_UNKNOWN:
			break;
	}
	return -1;
}

/* ---- random trees ---- */

static TbExpr *
random_expr(int depth)
{
	TbColumn	column = {.kind = TB_COL_STAT, .index = (int) (rnd() % COLUMNS)};
	TbClass		class = (TbClass) (rnd() % 3);
	TbValue		value;

	switch (rnd() % (depth > 0 ? 8 : 6))
	{
		case 0:
		case 1:
		case 2:
			return tb_expr_column(column);
		case 3:
		case 4:
			value = random_value(class, rnd() % 2);
			return tb_expr_const(class, value, value);
		case 5:
			return rnd() % 4 == 0 ? tb_expr_null() : tb_expr_column(column);
		default:
			return tb_expr_arith((TbArith) (rnd() % 3), random_expr(depth - 1),
								 random_expr(depth - 1));
	}
}

static TbPred *
random_pred(int depth)
{
	TbPred	   *left;

	switch (rnd() % (depth > 0 ? 9 : 5))
	{
		case 0:
		case 1:
		case 2:
			return tb_pred_compare((TbCompare) (rnd() % 6), random_expr(2), random_expr(2));
		case 3:
			return tb_pred_is_null(random_expr(1), rnd() % 2);
		case 4:
			return rnd() % 3 == 0 ? tb_pred_const(rnd() % 2, rnd() % 3 == 0) :
				tb_pred_compare((TbCompare) (rnd() % 6), random_expr(0), random_expr(0));
		case 5:
			return tb_pred_not(random_pred(depth - 1));
		case 6:
			left = random_pred(depth - 1);
			return tb_pred_and(left, random_pred(depth - 1));
		default:
			left = random_pred(depth - 1);
			return tb_pred_or(left, random_pred(depth - 1));
	}
}

static void
test_random(void **state)
{
	int			pruned = 0;
	int			certain = 0;

	for (int round = 0; round < 20000; round++)
	{
		TbPred	   *pred = random_pred(3);

		assert_non_null(pred);
		for (int n = 0; n < 10; n++)
		{
			Node		node;
			int			set;

			random_node(&node);
			set = tb_pred_judge(pred, lookup, &node);
			assert_true(set > 0 && set <= TB_TRUTH_ANY);
			pruned += !(set & TB_CAN_TRUE);
			certain += set == TB_CAN_TRUE;
			for (int r = 0; r < node.rows; r++)
				for (int rounding = 0; rounding < 2; rounding++)
				{
					int			truth = row_truth(pred, node.cell[r], rounding);

					if (truth != -1)
						assert_int_equal(truth & set, truth);
				}
		}
		tb_pred_free(pred);
	}
	/* The property would hold for a judge that knows nothing: it must know a good deal. */
	assert_true(pruned > 40000);
	assert_true(certain > 10000);
}

/* ---- single verdicts ---- */

static TbRange the_range;

static void
fixed(void *arg, TbColumn column, TbRange *range)
{
	*range = the_range;
}

static int
verdict(TbRange range, TbCompare op, double constant)
{
	TbColumn	column = {.kind = TB_COL_STAT};
	TbValue		v = {.f64 = constant};
	TbPred *pred = tb_pred_compare(op, tb_expr_column(column), tb_expr_const(TB_CLASS_F64, v, v));
	int			set;

	assert_non_null(pred);
	the_range = range;
	set = tb_pred_judge(pred, fixed, NULL);
	tb_pred_free(pred);
	return set;
}

static void
test_verdicts(void **state)
{
	TbRange		r = {.class = TB_CLASS_F64, .lo.f64 = 1, .hi.f64 = 3};

	assert_int_equal(verdict(r, TB_GT, 3), TB_CAN_FALSE);
	assert_int_equal(verdict(r, TB_GE, 3), TB_CAN_TRUE | TB_CAN_FALSE);
	assert_int_equal(verdict(r, TB_GE, 1), TB_CAN_TRUE);
	assert_int_equal(verdict(r, TB_LT, NAN), TB_CAN_TRUE);
	assert_int_equal(verdict(r, TB_GT, NAN), TB_CAN_FALSE);
	assert_int_equal(verdict(r, TB_EQ, 4), TB_CAN_FALSE);
	assert_int_equal(verdict(r, TB_NE, 4), TB_CAN_TRUE);
	r.hi.f64 = NAN;
	assert_int_equal(verdict(r, TB_GT, 1e300), TB_CAN_TRUE | TB_CAN_FALSE);
	r.hi.f64 = 3;
	r.some_null = true;
	assert_int_equal(verdict(r, TB_GT, 3), TB_CAN_FALSE | TB_CAN_NULL);
	r.all_null = true;
	assert_int_equal(verdict(r, TB_GT, 0), TB_CAN_NULL);
	r.all_null = r.some_null = false;
	r.unknown = true;
	assert_int_equal(verdict(r, TB_GT, 0), TB_TRUTH_ANY);
	/* Bounds the wrong way round are no bounds. */
	r.unknown = false;
	r.lo.f64 = 5;
	assert_int_equal(verdict(r, TB_GT, 10), TB_TRUTH_ANY);
}

/* 2^53 + 1 equals 2^53 as float8 has it and is above it as numeric has it: neither may be ruled
 * out. */
static void
test_cross_class(void **state)
{
	TbRange		r = {.class = TB_CLASS_I64, .lo.i64 = 9007199254740993, .hi.i64 = 9007199254740993};

	assert_int_equal(verdict(r, TB_EQ, 9007199254740992.0), TB_CAN_TRUE | TB_CAN_FALSE);
	assert_int_equal(verdict(r, TB_GT, 9007199254740992.0), TB_CAN_TRUE | TB_CAN_FALSE);
	assert_int_equal(verdict(r, TB_GT, 9007199254740990.0), TB_CAN_TRUE);
	r.class = TB_CLASS_U64;
	r.lo.u64 = r.hi.u64 = UINT64_MAX;
	assert_int_equal(verdict(r, TB_LT, 0x1p64), TB_CAN_TRUE | TB_CAN_FALSE);
	assert_int_equal(verdict(r, TB_LT, 0x1p65), TB_CAN_TRUE);
}

static void
test_builders(void **state)
{
	TbColumn	column = {.kind = TB_COL_STAT, .index = 4};
	TbValue		zero = {0};
	TbPred	   *pred = NULL;
	bool		need[COLUMNS] = {false};

	/* A long list is flat, and freed without deep recursion. */
	for (int i = 0; i < 100000; i++)
	{
		TbPred	   *one = tb_pred_compare(TB_EQ, tb_expr_column(column),
										  tb_expr_const(TB_CLASS_I64, zero, zero));

		pred = pred == NULL ? one : tb_pred_or(pred, one);
	}
	assert_int_equal(pred->n, 100000);
	tb_pred_needs(pred, need);
	assert_true(need[4]);
	assert_false(need[3]);
	assert_null(tb_pred_or(pred, NULL));
	assert_null(tb_pred_not(NULL));
	assert_null(tb_pred_compare(TB_LT, NULL, tb_expr_null()));
	assert_null(tb_expr_arith(TB_ADD, tb_expr_null(), NULL));
	pred = tb_pred_const(true, false);
	assert_ptr_equal(tb_pred_and(NULL, pred), pred);
	tb_pred_free(pred);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_cross_class),
		cmocka_unit_test(test_builders),
	};

	return cmocka_run_group_tests_name("judge", tests, NULL, NULL);
}
