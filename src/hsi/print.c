/* The text form of predicates, for EXPLAIN: names of columns as a grid's table has them, times as
 * instants. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hsi/pred.h"
#include "hsi/stat.h"

typedef struct Printer
{
	const TbGridInfo *info;
	TbBuf	   *out;
} Printer;

static const char *const compare_text[] = {
	[TB_LT] = "<", [TB_LE] = "<=", [TB_EQ] = "=", [TB_NE] = "<>", [TB_GE] = ">=", [TB_GT] = ">"
};

static const char *const arith_text[] = {[TB_ADD] = "+", [TB_SUB] = "-", [TB_MUL] = "*"};

/* An array's path below the grid's group, '_' between its parts. */
static TbStatus
print_array(Printer *p, int array, const char *suffix)
{
	const char *path = tb_array_meta(p->info->array[array])->path;
	const char *group = p->info->group != NULL ? p->info->group : "";
	size_t		skip = strlen(group);
	TbStatus	status = TB_OK;

	if (skip > 0 && strncmp(path, group, skip) == 0 && path[skip] == '/')
		path += skip + 1;
	for (; *path != '\0' && status == TB_OK; path++)
		status = tb_buf_printf(p->out, "%c", *path == '/' ? '_' : *path);
	return status != TB_OK ? status : tb_buf_printf(p->out, "_%s", suffix);
}

static TbStatus
print_column(Printer *p, TbColumn column)
{
	switch (column.kind)
	{
		case TB_COL_BLOCK:
			return tb_buf_printf(p->out, "block");
		case TB_COL_SIZE:
			return tb_buf_printf(p->out, "block_size");
		case TB_COL_COORD_MIN:
			return tb_buf_printf(p->out, "%s_min", p->info->coord[column.index].name);
		case TB_COL_COORD_MAX:
			return tb_buf_printf(p->out, "%s_max", p->info->coord[column.index].name);
		case TB_COL_STAT:
			return print_array(p, column.index, tb_stat_name(column.stat));
	}
	return TB_OK;
}

/* Microseconds since 1970 as an instant; the number where the calendar of C has none. */
static TbStatus
print_time(Printer *p, int64_t us)
{
	int64_t		seconds = us / 1000000 - (us % 1000000 < 0);
	int64_t		fraction = us - seconds * 1000000;
	time_t		clock = (time_t) seconds;
	struct tm	parts;
	char		text[64];

	if (gmtime_r(&clock, &parts) == NULL ||
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts) == 0)
		return tb_buf_printf(p->out, "%" PRId64 "us", us);
	if (fraction != 0)
		return tb_buf_printf(p->out, "'%s.%06" PRId64 "+00'", text, fraction);
	return tb_buf_printf(p->out, "'%s+00'", text);
}

static TbStatus
print_float(Printer *p, double value)
{
	char		text[40];
	int			digits = 15;

	if (isnan(value))
		return tb_buf_printf(p->out, "'NaN'");
	if (isinf(value))
		return tb_buf_printf(p->out, value > 0 ? "'Infinity'" : "'-Infinity'");
	/* The shortest form that reads back as the same double. */
	do
		snprintf(text, sizeof(text), "%.*g", digits, value);
	while (strtod(text, NULL) != value && ++digits <= 17);
	return tb_buf_printf(p->out, "%s", text);
}

static TbStatus
print_value(Printer *p, TbClass class, TbValue value, bool is_time)
{
	if (class == TB_CLASS_F64)
		return print_float(p, value.f64);
	if (class == TB_CLASS_U64)
		return tb_buf_printf(p->out, "%" PRIu64, value.u64);
	return is_time ? print_time(p, value.i64) : tb_buf_printf(p->out, "%" PRId64, value.i64);
}

/* Whether an expression holds instants: a bound of a time coordinate. */
static bool
expr_is_time(const Printer *p, const TbExpr *expr)
{
	if (expr == NULL || expr->kind != TB_EXPR_COLUMN)
		return false;
	return (expr->column.kind == TB_COL_COORD_MIN || expr->column.kind == TB_COL_COORD_MAX) &&
		p->info->coord[expr->column.index].kind == TB_COORD_TIME;
}

static TbStatus
print_expr(Printer *p, const TbExpr *expr, bool is_time)
{
	const TbRange *constant = &expr->constant;
	TbStatus	status;

	switch (expr->kind)
	{
		case TB_EXPR_COLUMN:
			return print_column(p, expr->column);
		case TB_EXPR_NULL:
			return tb_buf_printf(p->out, "NULL");
		case TB_EXPR_CONST:
			if (tb_value_cmp(constant->class, constant->lo, constant->class, constant->hi) == 0)
				return print_value(p, constant->class, constant->lo, is_time);
			status = tb_buf_printf(p->out, "[");
			if (status == TB_OK)
				status = print_value(p, constant->class, constant->lo, is_time);
			if (status == TB_OK)
				status = tb_buf_printf(p->out, ", ");
			if (status == TB_OK)
				status = print_value(p, constant->class, constant->hi, is_time);
			return status != TB_OK ? status : tb_buf_printf(p->out, "]");
		case TB_EXPR_ARITH:
			status = tb_buf_printf(p->out, "(");
			if (status == TB_OK)
				status = print_expr(p, expr->left, false);
			if (status == TB_OK)
				status = tb_buf_printf(p->out, " %s ", arith_text[expr->op]);
			if (status == TB_OK)
				status = print_expr(p, expr->right, false);
			return status != TB_OK ? status : tb_buf_printf(p->out, ")");
	}
	return TB_OK;
}

static TbStatus
print_compare(Printer *p, const TbPred *pred)
{
	TbStatus	status = tb_buf_printf(p->out, "(");

	if (status == TB_OK)
		status = print_expr(p, pred->left, expr_is_time(p, pred->right));
	if (status == TB_OK)
		status = tb_buf_printf(p->out, " %s ", compare_text[pred->op]);
	if (status == TB_OK)
		status = print_expr(p, pred->right, expr_is_time(p, pred->left));
	return status != TB_OK ? status : tb_buf_printf(p->out, ")");
}

/* Children in parentheses of their own where they are lists of another kind. */
static TbStatus
print_pred(Printer *p, const TbPred *pred, bool nested)
{
	bool		list = pred->kind == TB_PRED_AND || pred->kind == TB_PRED_OR;
	TbStatus	status = TB_OK;

	if (pred->kind == TB_PRED_COMPARE)
		return print_compare(p, pred);
	if (pred->kind == TB_PRED_CONST)
		return tb_buf_printf(p->out, pred->truth == TB_CAN_NULL ? "NULL" :
							 pred->truth == TB_CAN_TRUE ? "true" : "false");
	if (pred->kind == TB_PRED_UNKNOWN)
		return tb_buf_printf(p->out, "(unknown)");
	status = tb_buf_printf(p->out, "%s", pred->kind == TB_PRED_NOT ? "(NOT " :
						   !list || nested ? "(" : "");
	if (pred->kind == TB_PRED_IS_NULL && status == TB_OK)
		status = print_expr(p, pred->left, false);
	if (pred->kind == TB_PRED_IS_NULL && status == TB_OK)
		status = tb_buf_printf(p->out, pred->negated ? " IS NOT NULL" : " IS NULL");
	for (size_t i = 0; i < pred->n && status == TB_OK; i++)
	{
		if (i > 0)
			status = tb_buf_printf(p->out, pred->kind == TB_PRED_AND ? " AND " : " OR ");
		if (status == TB_OK)
			status = print_pred(p, pred->child[i], true);
	}
	return status != TB_OK || (list && !nested) ? status : tb_buf_printf(p->out, ")");
}

TbStatus
tb_pred_print(const TbPred *pred, const TbGridInfo *info, TbBuf *out)
{
	Printer		printer = {.info = info, .out = out};

	return pred == NULL ? TB_OK : print_pred(&printer, pred, false);
}
