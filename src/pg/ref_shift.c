/*
 * Moving a region along a dimension, and finding the one of another array
 * over the same coordinates.
 *
 *	shift(ref, dim, integer)	by indexes
 *	shift(ref, dim, number)		every coordinate value differs by exactly so much
 *	shift(ref, dim, interval)	the same for times, on UTC's calendar
 *	align(ref, like)			the region of ref's array whose coordinates lie within like's, on
 *								the dimensions they share
 *
 * What is outside the array or matches nothing gives NULL. The results carry no stamp: they reach
 * beyond the row.
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "pg/ref.h"
#include "pg/table.h"

PG_FUNCTION_INFO_V1(tensorbank_shift_index);
PG_FUNCTION_INFO_V1(tensorbank_shift_int);
PG_FUNCTION_INFO_V1(tensorbank_shift_number);
PG_FUNCTION_INFO_V1(tensorbank_shift_interval);
PG_FUNCTION_INFO_V1(tensorbank_align);

/* Doubles count as equal up to the rounding of a sum in the type that the file stores. */
#define EQUAL_F64 1e-12
#define EQUAL_F32 1e-6

/* A distance between coordinate values. */
typedef struct Distance
{
	double		number;
	int64		whole;			/* where the coordinate is integer */
	const Interval *interval;	/* NULL: a number */
} Distance;

static int
axis_named(const TbGridInfo *info, const char *name)
{
	for (int d = 0; d < info->ndim; d++)
		if (strcmp(info->dim_name[d], name) == 0)
			return d;
	return -1;
}

static int
axis_of_argument(const TbGridInfo *info, text *name)
{
	char	   *dim = text_to_cstring(name);
	int			axis = axis_named(info, dim);

	if (axis < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the array has no dimension \"%s\"", dim)));
	return axis;
}

/* ---- by index ---- */

/* ref moved along the dimension that the second argument names. */
static Datum
shift_index(FunctionCallInfo fcinfo, int64 by)
{
	TbpgRef    *ref = tbpg_ref_copy(PG_GETARG_TBREF(0), true);
	TbpgResolved resolved;
	int			axis;
	int64		start;

	tbpg_ref_resolve(ref, &resolved);
	axis = axis_of_argument(resolved.table->info, PG_GETARG_TEXT_PP(1));
	if (__builtin_add_overflow(tbpg_ref_start(ref)[axis], by, &start) || start < 0 ||
		start > (int64) resolved.table->info->shape[axis] - tbpg_ref_count(ref)[axis])
		PG_RETURN_NULL();
	tbpg_ref_start(ref)[axis] = start;
	PG_RETURN_POINTER(ref);
}

Datum
tensorbank_shift_index(PG_FUNCTION_ARGS)
{
	return shift_index(fcinfo, PG_GETARG_INT64(2));
}

Datum
tensorbank_shift_int(PG_FUNCTION_ARGS)
{
	return shift_index(fcinfo, PG_GETARG_INT32(2));
}

/* ---- by coordinate ---- */

/* An instant and an interval, on the calendar of UTC, so that a day has 24 hours. false: out of
 * range. */
static bool
add_interval(int64 instant, const Interval *interval, int64 *sum)
{
	Timestamp	at = instant - TBPG_EPOCH_US;

	if (interval->month == 0 && interval->day == 0)
		return !__builtin_add_overflow(instant, interval->time, sum);
	if (!IS_VALID_TIMESTAMP(at))
		return false;
	at = DatumGetTimestamp(DirectFunctionCall2(timestamp_pl_interval, TimestampGetDatum(at),
											   PointerGetDatum(unconstify(Interval *, interval))));
	*sum = at + TBPG_EPOCH_US;
	return true;
}

static bool
add_distance(const TbCoord *coord, TbValue from, const Distance *distance, TbValue *sum)
{
	if (distance->interval != NULL)
		return add_interval(from.i64, distance->interval, &sum->i64);
	if (coord->kind != TB_COORD_FLOAT)
		return !__builtin_add_overflow(from.i64, distance->whole, &sum->i64);
	sum->f64 = from.f64 + distance->number;
	return true;
}

static double
tolerance(const TbCoord *coord, double value, double distance)
{
	double part =
		coord->meta != NULL && coord->meta->packing.decoded == TB_F32 ? EQUAL_F32 : EQUAL_F64;

	return part * Max(fabs(value), fabs(distance));
}

static bool
values_match(const TbCoord *coord, TbValue wanted, TbValue found, const Distance *distance)
{
	if (coord->kind != TB_COORD_FLOAT)
		return wanted.i64 == found.i64;
	return fabs(wanted.f64 - found.f64) <= tolerance(coord, wanted.f64, distance->number);
}

/* Index of the value at a distance from that of index from; false where there is none. */
static bool
find_moved(TbGrid *grid, int axis, uint64_t from, const Distance *distance, uint64_t *to)
{
	const TbCoord *coord = &tb_grid_info(grid)->coord[axis];
	TbpgSpan	span;
	TbValue		value;
	uint64_t	count;

	if (!tbpg_coord_value(coord, from, &value) || !add_distance(coord, value, distance, &value))
		return false;
	tbpg_span_all(&span);
	if (coord->kind == TB_COORD_FLOAT)
	{
		double		around = tolerance(coord, value.f64, distance->number);

		span.f_lo = value.f64 - around;
		span.f_hi = value.f64 + around;
	}
	else
		span.i_lo = span.i_hi = value.i64;
	return tbpg_coord_find(grid, axis, &span, to, &count) == TBPG_MATCH_RUN && count == 1;
}

/* The ref moved by a distance, or NULL. */
static TbpgRef *
shift_by(TbpgRef *ref, TbGrid *grid, int axis, const Distance *distance)
{
	const TbGridInfo *info = tb_grid_info(grid);
	const TbCoord *coord = &info->coord[axis];
	uint64_t	from = (uint64_t) tbpg_ref_start(ref)[axis];
	uint64_t	count = (uint64_t) tbpg_ref_count(ref)[axis];
	uint64_t	to;

	if (count == 0 || !find_moved(grid, axis, from, distance, &to) ||
		count > info->shape[axis] - to)
		return NULL;
	for (uint64_t i = 0; i < count; i++)
	{
		TbValue		wanted;
		TbValue		found;

		if (!tbpg_coord_value(coord, from + i, &wanted) ||
			!tbpg_coord_value(coord, to + i, &found) ||
			!add_distance(coord, wanted, distance, &wanted) ||
			!values_match(coord, wanted, found, distance))
			return NULL;
	}
	tbpg_ref_start(ref)[axis] = (int64) to;
	return ref;
}

static void
check_kind(const TbGridInfo *info, int axis, bool time)
{
	if (time != (info->coord[axis].kind == TB_COORD_TIME))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 time ? errmsg("dimension \"%s\" is no time", info->dim_name[axis])
				 : errmsg("dimension \"%s\" is a time", info->dim_name[axis]),
				 time ? errhint("Shift by a number, or by an integer for indexes.")
				 : errhint("Shift by an interval, or by an integer for indexes.")));
}

Datum
tensorbank_shift_number(PG_FUNCTION_ARGS)
{
	TbpgRef    *ref = tbpg_ref_copy(PG_GETARG_TBREF(0), true);
	Distance	distance = {.number = PG_GETARG_FLOAT8(2)};
	TbpgResolved resolved;
	int			axis;

	tbpg_ref_resolve(ref, &resolved);
	axis = axis_of_argument(resolved.table->info, PG_GETARG_TEXT_PP(1));
	check_kind(resolved.table->info, axis, false);
	if (!isfinite(distance.number))
		PG_RETURN_NULL();
	if (resolved.table->info->coord[axis].kind != TB_COORD_FLOAT)
	{
		if (distance.number != trunc(distance.number) || fabs(distance.number) >= 0x1p62)
			PG_RETURN_NULL();
		distance.whole = (int64) distance.number;
	}
	ref = shift_by(ref, resolved.table->grid, axis, &distance);
	if (ref == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(ref);
}

Datum
tensorbank_shift_interval(PG_FUNCTION_ARGS)
{
	TbpgRef    *ref = tbpg_ref_copy(PG_GETARG_TBREF(0), true);
	Distance	distance = {.interval = PG_GETARG_INTERVAL_P(2)};
	TbpgResolved resolved;
	int			axis;

	tbpg_ref_resolve(ref, &resolved);
	axis = axis_of_argument(resolved.table->info, PG_GETARG_TEXT_PP(1));
	check_kind(resolved.table->info, axis, true);
	ref = shift_by(ref, resolved.table->grid, axis, &distance);
	if (ref == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(ref);
}

/* ---- the same coordinates elsewhere ---- */

static bool
same_domain(const TbCoord *a, const TbCoord *b)
{
	/* integer coordinates and bare indexes are different things, though both are int64 */
	return a->kind == b->kind;
}

/* From the least to the greatest coordinate value of a run; false where none has a value. */
static bool
span_of_run(const TbCoord *coord, uint64_t first, uint64_t count, TbpgSpan *span)
{
	bool		any = false;

	tbpg_span_all(span);
	for (uint64_t i = first; i < first + count; i++)
	{
		TbValue		value;

		if (!tbpg_coord_value(coord, i, &value))
			continue;
		if (coord->kind == TB_COORD_FLOAT)
		{
			span->f_lo = any ? Min(span->f_lo, value.f64) : value.f64;
			span->f_hi = any ? Max(span->f_hi, value.f64) : value.f64;
		}
		else
		{
			span->i_lo = any ? Min(span->i_lo, value.i64) : value.i64;
			span->i_hi = any ? Max(span->i_hi, value.i64) : value.i64;
		}
		any = true;
	}
	return any;
}

/* Bounds that were stored as float32 on one side are compared as such on the other. */
static void
round_span(TbpgSpan *span, const TbCoord *coord)
{
	TbpgSpan	rounded;

	if (coord->kind != TB_COORD_FLOAT)
		return;
	tbpg_span_all(&rounded);
	tbpg_span_from_double(&rounded, coord, true, span->f_lo, true);
	tbpg_span_from_double(&rounded, coord, false, span->f_hi, true);
	*span = rounded;
}

/* Choose along one axis of ref what like covers there; false: nothing matches. */
static bool
align_axis(TbpgRef *ref, TbGrid *grid, int axis, const TbCoord *from, uint64_t first,
		   uint64_t count)
{
	const TbGridInfo *info = tb_grid_info(grid);
	const TbCoord *coord = &info->coord[axis];
	TbpgSpan	span;
	TbpgMatch	match;
	uint64_t	found;
	uint64_t	found_count;

	if (!same_domain(coord, from))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("coordinates of dimension \"%s\" differ in kind", info->dim_name[axis]),
				 errhint("Choose the region with tensorbank.region().")));
	if (!span_of_run(from, first, count, &span))
		return false;
	round_span(&span, coord);
	match = tbpg_coord_find(grid, axis, &span, &found, &found_count);
	if (match == TBPG_MATCH_SCATTERED)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the chosen part of dimension \"%s\" is not contiguous",
							   info->dim_name[axis]),
						errdetail("Its coordinate is not monotonic.")));
	if (match == TBPG_MATCH_NONE)
		return false;
	tbpg_ref_start(ref)[axis] = (int64) found;
	tbpg_ref_count(ref)[axis] = (int64) found_count;
	return true;
}

Datum
tensorbank_align(PG_FUNCTION_ARGS)
{
	TbpgRef    *ref = tbpg_ref_copy(PG_GETARG_TBREF(0), true);
	const TbpgRef *like = PG_GETARG_TBREF(1);
	TbpgResolved to;
	TbpgResolved from;

	tbpg_ref_resolve(like, &from);
	/* resolving the other may drop this one from the cache */
	tbpg_table_pin(from.table, CurrentMemoryContext);
	tbpg_ref_resolve(ref, &to);
	for (int d = 0; d < ref->ndim; d++)
	{
		int			axis = axis_named(from.table->info, to.table->info->dim_name[d]);

		if (axis >= 0 && !align_axis(ref, to.table->grid, d, &from.table->info->coord[axis],
									 from.region.start[axis], from.region.count[axis]))
			PG_RETURN_NULL();
	}
	PG_RETURN_POINTER(ref);
}
