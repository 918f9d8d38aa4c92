/*
 * Judging a predicate over a node: which of true, false and null it can be for the rows that the
 * node may hold, given only an interval and null flags for every column. The answer may be too
 * large, never too small: a truth value that some possible row has is always in the set. What
 * decides is SQL's three-valued logic and PostgreSQL's comparison operators; a node may be skipped
 * only where "true" is not in the set.
 */
#include <math.h>

#include "hsi/pred.h"
#include "hsi/stat.h"

typedef struct Judge
{
	TbLookup	lookup;
	void	   *arg;
} Judge;

/* ---- expressions ---- */

/* The doubles next to an integer on either side, equal to it where it is one. */
static void
to_f64_outward(TbClass class, TbValue value, double *down, double *up)
{
	TbValue		near;

	near.f64 = class == TB_CLASS_I64 ? (double) value.i64 : (double) value.u64;
	*down = *up = near.f64;
	if (tb_value_cmp(TB_CLASS_F64, near, class, value) > 0)
		*down = nextafter(near.f64, -INFINITY);
	else if (tb_value_cmp(TB_CLASS_F64, near, class, value) < 0)
		*up = nextafter(near.f64, INFINITY);
}

/* An operand of arithmetic as an interval of finite doubles; false where there is none to be had.
 */
static bool
finite_operand(const TbRange *range, double *lo, double *hi)
{
	double		other;

	if (range->unknown)
		return false;
	if (range->class == TB_CLASS_F64)
	{
		*lo = range->lo.f64;
		*hi = range->hi.f64;
	}
	else
	{
		to_f64_outward(range->class, range->lo, lo, &other);
		to_f64_outward(range->class, range->hi, &other, hi);
	}
	return isfinite(*lo) && isfinite(*hi);
}

/*
 * Interval arithmetic, one step outward beyond the rounded bounds: holds for float8, whose results
 * are rounded to nearest, and for exact numeric and integer arithmetic. Infinities, NaN and
 * overflow: unknown.
 */
static TbRange
arith(TbArith op, const TbRange *a, const TbRange *b)
{
	TbRange		result = {.class = TB_CLASS_F64};
	double		alo;
	double		ahi;
	double		blo;
	double		bhi;
	double		lo;
	double		hi;

	result.some_null = a->some_null || b->some_null;
	result.all_null = (!a->unknown && a->all_null) || (!b->unknown && b->all_null);
	if (result.all_null)
		return result;
	result.unknown = !finite_operand(a, &alo, &ahi) || !finite_operand(b, &blo, &bhi);
	if (result.unknown)
		return result;
	if (op == TB_MUL)
	{
		double		corner[4] = {alo * blo, alo * bhi, ahi * blo, ahi * bhi};

		lo = hi = corner[0];
		for (int i = 1; i < 4; i++)
		{
			lo = corner[i] < lo ? corner[i] : lo;
			hi = corner[i] > hi ? corner[i] : hi;
		}
	}
	else
	{
		lo = op == TB_ADD ? alo + blo : alo - bhi;
		hi = op == TB_ADD ? ahi + bhi : ahi - blo;
	}
	result.lo.f64 = nextafter(lo, -INFINITY);
	result.hi.f64 = nextafter(hi, INFINITY);
	result.unknown = !isfinite(result.lo.f64) || !isfinite(result.hi.f64);
	return result;
}

static TbRange
eval(const Judge *judge, const TbExpr *expr)
{
	TbRange		range = {0};
	TbRange		left;
	TbRange		right;

	switch (expr->kind)
	{
		case TB_EXPR_COLUMN:
			judge->lookup(judge->arg, expr->column, &range);
			break;
		case TB_EXPR_CONST:
			range = expr->constant;
			break;
		case TB_EXPR_NULL:
			range.some_null = range.all_null = true;
			return range;
		case TB_EXPR_ARITH:
			left = eval(judge, expr->left);
			right = eval(judge, expr->right);
			return arith(expr->op, &left, &right);
	}
	/* Bounds the wrong way round say nothing. */
	if (!range.unknown && !range.all_null &&
		tb_value_cmp(range.class, range.lo, range.class, range.hi) > 0)
		range.unknown = true;
	return range;
}

/* ---- comparisons ---- */

/* Truth set of op over two intervals, from the order of their ends. */
static int
compare_ends(TbCompare op, int lo_hi, int hi_lo, int lo_lo, int hi_hi)
{
	bool		point_equal = lo_lo == 0 && hi_hi == 0 && lo_hi == 0 && hi_lo == 0;
	bool		can_true = false;
	bool		can_false = false;

	switch (op)
	{
		case TB_LT:
		case TB_GE:
			can_true = lo_hi < 0;
			can_false = hi_lo >= 0;
			break;
		case TB_LE:
		case TB_GT:
			can_true = lo_hi <= 0;
			can_false = hi_lo > 0;
			break;
		case TB_EQ:
		case TB_NE:
			can_true = lo_hi <= 0 && hi_lo >= 0;
			can_false = !point_equal;
			break;
	}
	if (op == TB_GE || op == TB_GT || op == TB_NE)
		return (can_false ? TB_CAN_TRUE : 0) | (can_true ? TB_CAN_FALSE : 0);
	return (can_true ? TB_CAN_TRUE : 0) | (can_false ? TB_CAN_FALSE : 0);
}

static int
compare_ranges(TbCompare op, const TbRange *a, const TbRange *b)
{
	return compare_ends(op, tb_value_cmp(a->class, a->lo, b->class, b->hi),
						tb_value_cmp(a->class, a->hi, b->class, b->lo),
						tb_value_cmp(a->class, a->lo, b->class, b->lo),
						tb_value_cmp(a->class, a->hi, b->class, b->hi));
}

/* The range as PostgreSQL's cast to float8 gives it: rounded to nearest, which keeps the order. */
static TbRange
cast_f64(const TbRange *range)
{
	TbRange		cast = *range;

	cast.class = TB_CLASS_F64;
	if (range->class == TB_CLASS_I64)
	{
		cast.lo.f64 = (double) range->lo.i64;
		cast.hi.f64 = (double) range->hi.i64;
	}
	else if (range->class == TB_CLASS_U64)
	{
		cast.lo.f64 = (double) range->lo.u64;
		cast.hi.f64 = (double) range->hi.u64;
	}
	return cast;
}

/*
 * An integer against a float: PostgreSQL compares with numeric exactly, with float8 after rounding
 * the integer. Which of them the query meant is not known here, so both answers count.
 */
static int
judge_compare(TbCompare op, const TbRange *a, const TbRange *b)
{
	int			set = 0;

	if ((!a->unknown && a->all_null) || (!b->unknown && b->all_null))
		return TB_CAN_NULL;
	if (a->unknown || b->unknown)
		return TB_TRUTH_ANY;
	if (a->some_null || b->some_null)
		set = TB_CAN_NULL;
	set |= compare_ranges(op, a, b);
	if (a->class != b->class && (a->class == TB_CLASS_F64 || b->class == TB_CLASS_F64))
	{
		TbRange		rounded_a = cast_f64(a);
		TbRange		rounded_b = cast_f64(b);

		set |= compare_ranges(op, &rounded_a, &rounded_b);
	}
	return set;
}

static int
judge_is_null(const TbRange *range, bool negated)
{
	bool		can_null = range->unknown || range->all_null || range->some_null;
	bool		can_value = range->unknown || !range->all_null;

	return ((negated ? can_value : can_null) ? TB_CAN_TRUE : 0) |
		((negated ? can_null : can_value) ? TB_CAN_FALSE : 0);
}

/* ---- connectives ---- */

/* decides: the truth value that settles the connective alone (FALSE for AND, TRUE for OR). */
static int
join_sets(int a, int b, int decides)
{
	int			passes = decides == TB_CAN_TRUE ? TB_CAN_FALSE : TB_CAN_TRUE;
	int			open = TB_CAN_NULL | passes;
	int			set = (a | b) & decides;

	if ((a & passes) && (b & passes))
		set |= passes;
	if (((a & TB_CAN_NULL) && (b & open)) || ((b & TB_CAN_NULL) && (a & open)))
		set |= TB_CAN_NULL;
	return set;
}

static int
judge_pred(const Judge *judge, const TbPred *pred)
{
	TbRange		left;
	TbRange		right;
	int			decides = pred->kind == TB_PRED_AND ? TB_CAN_FALSE : TB_CAN_TRUE;
	int			set;

	switch (pred->kind)
	{
		case TB_PRED_COMPARE:
			left = eval(judge, pred->left);
			right = eval(judge, pred->right);
			return judge_compare(pred->op, &left, &right);
		case TB_PRED_IS_NULL:
			left = eval(judge, pred->left);
			return judge_is_null(&left, pred->negated);
		case TB_PRED_AND:
		case TB_PRED_OR:
			set = judge_pred(judge, pred->child[0]);
			for (size_t i = 1; i < pred->n && set != decides; i++)
				set = join_sets(set, judge_pred(judge, pred->child[i]), decides);
			return set;
		case TB_PRED_NOT:
			set = judge_pred(judge, pred->child[0]);
			return (set & TB_CAN_NULL) | (set & TB_CAN_TRUE ? TB_CAN_FALSE : 0) |
				(set & TB_CAN_FALSE ? TB_CAN_TRUE : 0);
		case TB_PRED_CONST:
			return pred->truth;
		case TB_PRED_UNKNOWN:
			break;
	}
	return TB_TRUTH_ANY;
}

int
tb_pred_judge(const TbPred *pred, TbLookup lookup, void *arg)
{
	Judge		judge = {.lookup = lookup, .arg = arg};

	return pred == NULL ? TB_CAN_TRUE : judge_pred(&judge, pred);
}
