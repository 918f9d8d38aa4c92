/*
 * Values of PostgreSQL types as constants of engine predicates.
 *
 * A constant that the engine cannot hold exactly becomes an interval that surely contains it, so that a
 * comparison can only become less certain.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "common/int.h"
#include "fmgr.h"
#include "utils/date.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "pg/qual.h"

bool
tbpg_const_type(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return true;
		default:
			return false;
	}
}

static TbExpr *
const_i64(int64 lo, int64 hi)
{
	return tb_expr_const(TB_CLASS_I64, (TbValue) {.i64 = lo}, (TbValue) {.i64 = hi});
}

static TbExpr *
const_f64(double lo, double hi)
{
	return tb_expr_const(TB_CLASS_F64, (TbValue) {.f64 = lo}, (TbValue) {.f64 = hi});
}

/* Microseconds since 1970; the ends of timestamptz's range lie outside int64 there and stay open. */
static TbExpr *
const_time(TimestampTz time)
{
	int64		us;

	if (TIMESTAMP_IS_NOBEGIN(time))
		return const_f64(-INFINITY, -INFINITY);
	if (TIMESTAMP_IS_NOEND(time))
		return const_f64(INFINITY, INFINITY);
	if (pg_add_s64_overflow(time, TBPG_EPOCH_US, &us))
		return NULL;
	return const_i64(us, us);
}

/*
 * A date or timestamp as an instant in the session's time zone. What lies beyond timestamptz's range compares as
 * an infinity, as in the server's own comparisons: no error.
 */
static TbExpr *
const_local_time(Oid type, Datum value)
{
	int			overflow = 0;
	TimestampTz time = type == DATEOID ? date2timestamptz_opt_overflow(DatumGetDateADT(value), &overflow) :
		timestamp2timestamptz_opt_overflow(DatumGetTimestamp(value), &overflow);

	if (overflow != 0)
		return const_f64(overflow < 0 ? -INFINITY : INFINITY, overflow < 0 ? -INFINITY : INFINITY);
	return const_time(time);
}

/* floor and ceil where they fit 64 bits, else the neighbours of the nearest double. */
static TbExpr *
const_numeric(Numeric value)
{
	Datum		floor_datum;
	Datum		ceil_datum;
	int64		lo;
	int64		hi;
	double		near;

	if (numeric_is_nan(value))
		return NULL;
	near = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(value)));
	if (isinf(near))
		return const_f64(near > 0 ? DBL_MAX : -INFINITY, near > 0 ? INFINITY : -DBL_MAX);
	if (fabs(near) < 9.2e18)
	{
		floor_datum = DirectFunctionCall1(numeric_floor, NumericGetDatum(value));
		ceil_datum = DirectFunctionCall1(numeric_ceil, NumericGetDatum(value));
		lo = DatumGetInt64(DirectFunctionCall1(numeric_int8, floor_datum));
		hi = DatumGetInt64(DirectFunctionCall1(numeric_int8, ceil_datum));
		return const_i64(lo, hi);
	}
	return const_f64(nextafter(near, -INFINITY), nextafter(near, INFINITY));
}

TbExpr *
tbpg_const_expr(Oid type, Datum value, bool isnull)
{
	double		number;

	if (isnull)
		return tb_expr_null();
	switch (type)
	{
		case BOOLOID:
			return const_i64(DatumGetBool(value), DatumGetBool(value));
		case INT2OID:
			return const_i64(DatumGetInt16(value), DatumGetInt16(value));
		case INT4OID:
			return const_i64(DatumGetInt32(value), DatumGetInt32(value));
		case INT8OID:
			return const_i64(DatumGetInt64(value), DatumGetInt64(value));
		case FLOAT4OID:
			number = (double) DatumGetFloat4(value);
			return const_f64(number, number);
		case FLOAT8OID:
			number = DatumGetFloat8(value);
			return const_f64(number, number);
		case NUMERICOID:
			return const_numeric(DatumGetNumeric(value));
		case DATEOID:
		case TIMESTAMPOID:
			return const_local_time(type, value);
		case TIMESTAMPTZOID:
			return const_time(DatumGetTimestampTz(value));
		default:
			return NULL;
	}
}
