/*
 * region(ref, VARIADIC "any"): another region of the ref's array. Arguments come as pairs of a
 * dimension's name and what to take of it:
 *
 *	int4range, int8range		indexes
 *	numrange, tstzrange,		coordinate values; bounds are honoured, a side may be unbounded
 *	tsrange, daterange
 *	integer						one index
 *	number, timestamp			one coordinate value, exactly
 *
 * After a range an integer may demand so many elements. Dimensions not named keep the ref's extent.
 * What is outside the array or matches nothing, or another number than demanded, gives NULL.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "pg/ref.h"

PG_FUNCTION_INFO_V1(tensorbank_region);

#define PAIRS_HINT \
	"Write pairs as in region(ref, 'time', tstzrange(...), 'latitude', numrange(...))."

/* One argument after another. */
typedef struct Arguments
{
	Datum	   *value;
	Oid		   *type;			/* domains looked through */
	int			n;
	int			next;
} Arguments;

/* One side of what is chosen, as SQL gave it. */
typedef struct Bound
{
	Datum		value;
	Oid			type;
	bool		lower;
	bool		inclusive;
} Bound;

/* The run of indexes chosen along one axis. */
typedef struct Run
{
	uint64_t	first;
	uint64_t	count;
	bool		none;			/* nothing chosen: the result is NULL */
} Run;

static bool
is_integer(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

static int64
integer_of(Datum value, Oid type)
{
	if (type == INT2OID)
		return DatumGetInt16(value);
	return type == INT4OID ? DatumGetInt32(value) : DatumGetInt64(value);
}

static void bad_selection(const TbGridInfo *info, int axis, Oid type) pg_attribute_noreturn();

static void
bad_selection(const TbGridInfo *info, int axis, Oid type)
{
	bool		time = info->coord[axis].kind == TB_COORD_TIME;

	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("dimension \"%s\" cannot be chosen from by a value of type %s",
					info->dim_name[axis], format_type_be(type)),
			 errhint("Its coordinate is a %s: use a %s, or int4range and integer for indexes.",
					 time ? "time" : "number",
					 time ? "tstzrange or timestamptz" : "numrange or numeric")));
}

/* ---- values ---- */

/* An instant in microseconds since 1970 UTC; infinities saturate. */
static int64
instant_of(Datum value, Oid type)
{
	TimestampTz at;
	int64		us;

	if (type == DATEOID)
		value = DirectFunctionCall1(date_timestamptz, value);
	else if (type == TIMESTAMPOID)
		value = DirectFunctionCall1(timestamp_timestamptz, value);
	at = DatumGetTimestampTz(value);
	if (TIMESTAMP_NOT_FINITE(at) || __builtin_add_overflow(at, TBPG_EPOCH_US, &us))
		return at < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return us;
}

static bool
is_instant(Oid type)
{
	return type == TIMESTAMPTZOID || type == TIMESTAMPOID || type == DATEOID;
}

/* Narrow a span by a number. Integers beyond 2^53 keep all their digits where the coordinate is
 * integer. */
static void
narrow_by_number(TbpgSpan *span, const TbCoord *coord, const Bound *bound)
{
	Datum		value = bound->value;
	double		number;

	if (bound->type == FLOAT8OID)
		number = DatumGetFloat8(value);
	else if (bound->type == FLOAT4OID)
		number = DatumGetFloat4(value);
	else
		number = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
	if (bound->type == NUMERICOID && coord->kind != TB_COORD_FLOAT && fabs(number) >= 0x1p53 &&
		fabs(number) < 0x1p62)
	{
		Datum		whole = DirectFunctionCall1(bound->lower ? numeric_ceil : numeric_floor, value);
		bool		same = DatumGetBool(DirectFunctionCall2(numeric_eq, whole, value));

		tbpg_span_from_int(span, bound->lower,
						   DatumGetInt64(DirectFunctionCall1(numeric_int8, whole)),
						   bound->inclusive || !same);
		return;
	}
	tbpg_span_from_double(span, coord, bound->lower, number, bound->inclusive);
}

static void
narrow(TbpgSpan *span, const TbGridInfo *info, int axis, const Bound *bound)
{
	const TbCoord *coord = &info->coord[axis];

	if (is_instant(bound->type) != (coord->kind == TB_COORD_TIME))
		bad_selection(info, axis, bound->type);
	if (is_instant(bound->type))
		tbpg_span_from_int(span, bound->lower, instant_of(bound->value, bound->type),
						   bound->inclusive);
	else
		narrow_by_number(span, coord, bound);
}

static void
narrow_by_range(TbpgSpan *span, const TbGridInfo *info, int axis, const RangeBound *side, Oid type)
{
	Bound		bound = {
		.value = side->val, .type = type, .lower = side->lower, .inclusive = side->inclusive
	};

	if (!side->infinite)
		narrow(span, info, axis, &bound);
}

/* ---- choosing ---- */

static Run
run_of_indexes(const TbGridInfo *info, int axis, int64 lower, int64 upper)
{
	Run			run = {.none = true};

	if (lower < 0 || upper <= lower || (uint64_t) upper > info->shape[axis])
		return run;
	run.first = (uint64_t) lower;
	run.count = (uint64_t) (upper - lower);
	run.none = false;
	return run;
}

static Run
run_of_span(TbGrid *grid, int axis, const TbpgSpan *span)
{
	Run			run = {.none = true};
	TbpgMatch	match = tbpg_coord_find(grid, axis, span, &run.first, &run.count);

	if (match == TBPG_MATCH_SCATTERED)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the chosen part of dimension \"%s\" is not contiguous",
							   tb_grid_info(grid)->dim_name[axis]),
						errdetail("Its coordinate is not monotonic."),
						errhint("Choose by index, with int4range.")));
	run.none = match == TBPG_MATCH_NONE;
	return run;
}

static Run
run_of_range(TbGrid *grid, int axis, Datum value, TypeCacheEntry *range)
{
	const TbGridInfo *info = tb_grid_info(grid);
	Oid			type = range->rngelemtype->type_id;
	RangeBound	lower;
	RangeBound	upper;
	bool		empty;
	TbpgSpan	span;
	Run			nothing = {.none = true};

	range_deserialize(range, DatumGetRangeTypeP(value), &lower, &upper, &empty);
	if (empty)
		return nothing;
	if (is_integer(type))
		/* canonical: lower included, upper not */
		return run_of_indexes(info, axis, lower.infinite ? 0 : integer_of(lower.val, type),
							  upper.infinite ? (int64) info->shape[axis]
											 : integer_of(upper.val, type));
	if (type != NUMERICOID && !is_instant(type) && type != FLOAT8OID)
		bad_selection(info, axis, range->type_id);
	tbpg_span_all(&span);
	narrow_by_range(&span, info, axis, &lower, type);
	narrow_by_range(&span, info, axis, &upper, type);
	if (lower.infinite && upper.infinite &&
		is_instant(type) != (info->coord[axis].kind == TB_COORD_TIME))
		bad_selection(info, axis, range->type_id);
	return run_of_span(grid, axis, &span);
}

/* One exact coordinate value; two equal ones cannot be told apart. */
static Run
run_of_value(TbGrid *grid, int axis, Datum value, Oid type)
{
	const TbGridInfo *info = tb_grid_info(grid);
	Bound		at_least = {.value = value, .type = type, .lower = true, .inclusive = true};
	Bound		at_most = {.value = value, .type = type, .lower = false, .inclusive = true};
	TbpgSpan	span;
	Run			run;

	if (type != NUMERICOID && type != FLOAT8OID && type != FLOAT4OID && !is_instant(type))
		bad_selection(info, axis, type);
	tbpg_span_all(&span);
	narrow(&span, info, axis, &at_least);
	narrow(&span, info, axis, &at_most);
	run = run_of_span(grid, axis, &span);
	if (!run.none && run.count != 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the chosen value of dimension \"%s\" is there more than once",
							   info->dim_name[axis]),
						errhint("Choose by index, with an integer.")));
	return run;
}

/* ---- arguments ---- */

/* The axis of a dimension's name; an unknown one is told which there are. */
static int
axis_named(const TbGridInfo *info, const char *name)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int d = 0; d < info->ndim; d++)
	{
		if (strcmp(info->dim_name[d], name) == 0)
			return d;
		appendStringInfo(&names, "%s%s", d > 0 ? ", " : "", info->dim_name[d]);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the array has no dimension \"%s\"", name),
			 errhint("Its dimensions are: %s.", names.data)));
	return -1;
}

static int
next_axis(Arguments *args, const TbGridInfo *info)
{
	Oid			type = args->type[args->next];
	char	   *name = NULL;

	if (type == TEXTOID || type == VARCHAROID || type == BPCHAROID)
		name = text_to_cstring(DatumGetTextPP(args->value[args->next]));
	else if (type == NAMEOID)
		name = pstrdup(NameStr(*DatumGetName(args->value[args->next])));
	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("name of a dimension expected, not a value of type %s",
						format_type_be(type)),
				 errdetail("Argument %d of region().", args->next + 2),
				 errhint(PAIRS_HINT)));
	if (++args->next == args->n)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("nothing is chosen from dimension \"%s\"", name),
				 errhint(PAIRS_HINT)));
	return axis_named(info, name);
}

/* What is chosen along an axis, with the count that may be demanded behind a range. */
static Run
next_run(Arguments *args, TbGrid *grid, int axis)
{
	const TbGridInfo *info = tb_grid_info(grid);
	Datum		value = args->value[args->next];
	Oid			type = args->type[args->next++];
	TypeCacheEntry *cache;
	Run			run;

	if (is_integer(type))
	{
		int64		index = integer_of(value, type);

		return run_of_indexes(info, axis, index, index < PG_INT64_MAX ? index + 1 : index);
	}
	cache = lookup_type_cache(type, TYPECACHE_RANGE_INFO);
	if (cache->rngelemtype == NULL)
		return run_of_value(grid, axis, value, type);
	run = run_of_range(grid, axis, value, cache);
	if (args->next < args->n && is_integer(args->type[args->next]))
	{
		int64		wanted = integer_of(args->value[args->next], args->type[args->next]);

		args->next++;
		if (wanted < 1)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("the number of elements demanded must be positive")));
		run.none |= run.count != (uint64_t) wanted;
	}
	return run;
}

Datum
tensorbank_region(PG_FUNCTION_ARGS)
{
	TbpgRef    *ref = tbpg_ref_copy(PG_GETARG_TBREF(0), true);
	TbpgResolved resolved;
	Arguments	args = {0};
	bool	   *nulls;
	bool		none = false;

	args.n = extract_variadic_args(fcinfo, 1, true, &args.value, &args.type, &nulls);
	if (args.n < 0)
		PG_RETURN_NULL();
	for (int i = 0; i < args.n; i++)
	{
		if (nulls[i])
			PG_RETURN_NULL();
		args.type[i] = getBaseType(args.type[i]);
	}
	tbpg_ref_resolve(ref, &resolved);
	while (args.next < args.n)
	{
		int			axis = next_axis(&args, resolved.table->info);
		Run			run = next_run(&args, resolved.table->grid, axis);

		none |= run.none;
		tbpg_ref_start(ref)[axis] = (int64) run.first;
		tbpg_ref_count(ref)[axis] = (int64) run.count;
	}
	if (none)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(ref);
}
