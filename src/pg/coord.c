/*
 * Coordinate values to runs of indexes, for region(), shift() and align().
 *
 * A selection is a closed interval in the coordinate's own type: doubles (rounded to single
 * precision where the file stores that, so that 30.1 finds the 30.1 of the file), or int64.
 * Ascending and descending coordinates are searched by bisection, others from end to end. Which of
 * the two a coordinate is takes a look at every value, so it is kept for the grids used last.
 */
#include "postgres.h"

#include <math.h>

#include "pg/ref.h"

#define REMEMBERED 4

typedef enum Direction
{
	UNKNOWN, ASCENDING, DESCENDING, MIXED
} Direction;

typedef struct Memory
{
	TbGrid	   *grid;			/* owned reference: keeps the address from being used again */
	Direction	direction[TB_MAX_DIM];
} Memory;

/* ---- spans ---- */

void
tbpg_span_all(TbpgSpan *span)
{
	span->empty = false;
	span->f_lo = -INFINITY;
	span->f_hi = INFINITY;
	span->i_lo = PG_INT64_MIN;
	span->i_hi = PG_INT64_MAX;
}

void
tbpg_span_from_int(TbpgSpan *span, bool lower, int64 bound, bool inclusive)
{
	if (!inclusive && bound == (lower ? PG_INT64_MAX : PG_INT64_MIN))
	{
		span->empty = true;
		return;
	}
	if (!inclusive)
		bound += lower ? 1 : -1;
	if (lower)
		span->i_lo = Max(span->i_lo, bound);
	else
		span->i_hi = Min(span->i_hi, bound);
}

/* The bound among the integers: the next one inside. */
static void
narrow_integers(TbpgSpan *span, bool lower, double bound, bool inclusive)
{
	double		whole = lower ? ceil(bound) : floor(bound);

	if (whole >= 0x1p63)
	{
		if (lower)
			span->empty = true;
		return;
	}
	if (whole < -0x1p63)
	{
		if (!lower)
			span->empty = true;
		return;
	}
	tbpg_span_from_int(span, lower, (int64) whole, inclusive || whole != bound);
}

void
tbpg_span_from_double(TbpgSpan *span, const TbCoord *coord, bool lower, double bound,
					  bool inclusive)
{
	/* PostgreSQL's order: NaN above everything, and no coordinate value is NaN */
	if (isnan(bound))
	{
		if (lower)
			span->empty = true;
		return;
	}
	if (coord->kind != TB_COORD_FLOAT)
	{
		narrow_integers(span, lower, bound, inclusive);
		return;
	}
	if (coord->meta != NULL && coord->meta->packing.decoded == TB_F32)
		bound = (double) (float) bound;
	if (!inclusive)
		bound = nextafter(bound, lower ? INFINITY : -INFINITY);
	if (lower)
		span->f_lo = Max(span->f_lo, bound);
	else
		span->f_hi = Min(span->f_hi, bound);
}

/* ---- values ---- */

bool
tbpg_coord_value(const TbCoord *coord, uint64_t i, TbValue *value)
{
	if (coord->kind == TB_COORD_INDEX || coord->value == NULL)
	{
		value->i64 = (int64_t) i;
		return true;
	}
	value->i64 = 0;
	if (i >= coord->n_values || (coord->value_null != NULL && coord->value_null[i]))
		return false;
	*value = coord->value[i];
	return coord->kind != TB_COORD_FLOAT || !isnan(value->f64);
}

/* Where a value lies: -1 below the span, 0 in it, 1 above. */
static int
compare_span(const TbCoord *coord, TbValue value, const TbpgSpan *span)
{
	if (coord->kind == TB_COORD_FLOAT)
		return value.f64 < span->f_lo ? -1 : value.f64 > span->f_hi ? 1 : 0;
	return value.i64 < span->i_lo ? -1 : value.i64 > span->i_hi ? 1 : 0;
}

static int
compare_values(const TbCoord *coord, TbValue a, TbValue b)
{
	if (coord->kind == TB_COORD_FLOAT)
		return a.f64 < b.f64 ? -1 : a.f64 > b.f64;
	return a.i64 < b.i64 ? -1 : a.i64 > b.i64;
}

/* ---- direction ---- */

static Direction
find_direction(const TbCoord *coord, uint64_t n)
{
	Direction	direction = UNKNOWN;
	TbValue		before;
	TbValue		value;

	if (coord->kind == TB_COORD_INDEX)
		return ASCENDING;
	for (uint64_t i = 0; i < n; i++)
	{
		int			step;

		if (!tbpg_coord_value(coord, i, &value))
			return MIXED;
		step = i == 0 ? 0 : compare_values(coord, before, value);
		before = value;
		if (step == 0)
			continue;
		if (direction == UNKNOWN)
			direction = step < 0 ? ASCENDING : DESCENDING;
		else if (direction != (step < 0 ? ASCENDING : DESCENDING))
			return MIXED;
	}
	return direction == UNKNOWN ? ASCENDING : direction;
}

static Direction
direction_of(TbGrid *grid, int axis)
{
	static Memory memories[REMEMBERED];
	static int	next;
	const TbGridInfo *info = tb_grid_info(grid);
	Memory	   *memory = NULL;

	for (int i = 0; i < REMEMBERED; i++)
		if (memories[i].grid == grid)
			memory = &memories[i];
	if (memory == NULL)
	{
		memory = &memories[next++ % REMEMBERED];
		if (memory->grid != NULL)
			tb_grid_unref(memory->grid);
		memset(memory, 0, sizeof(*memory));
		memory->grid = tb_grid_ref(grid);
	}
	if (memory->direction[axis] == UNKNOWN)
		memory->direction[axis] = find_direction(&info->coord[axis], info->shape[axis]);
	return memory->direction[axis];
}

/* ---- finding ---- */

/* First index of a sorted coordinate that is at or past the near edge (past == false), or past the
 * far edge. */
static uint64_t
bisect(const TbCoord *coord, uint64_t n, const TbpgSpan *span, int sign, bool past)
{
	uint64_t	lo = 0;
	uint64_t	hi = n;

	while (lo < hi)
	{
		uint64_t	mid = lo + (hi - lo) / 2;
		TbValue		value;
		int			place;

		(void) tbpg_coord_value(coord, mid, &value);
		place = sign * compare_span(coord, value, span);
		if (place < 0 || (past && place == 0))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static TbpgMatch
find_anywhere(const TbCoord *coord, uint64_t n, const TbpgSpan *span, uint64_t *first,
			  uint64_t *count)
{
	*count = 0;
	for (uint64_t i = 0; i < n; i++)
	{
		TbValue		value;

		if (!tbpg_coord_value(coord, i, &value) || compare_span(coord, value, span) != 0)
			continue;
		if (*count == 0)
			*first = i;
		else if (*first + *count != i)
			return TBPG_MATCH_SCATTERED;
		(*count)++;
	}
	return *count > 0 ? TBPG_MATCH_RUN : TBPG_MATCH_NONE;
}

TbpgMatch
tbpg_coord_find(TbGrid *grid, int axis, const TbpgSpan *span, uint64_t *first, uint64_t *count)
{
	const TbGridInfo *info = tb_grid_info(grid);
	const TbCoord *coord = &info->coord[axis];
	uint64_t	n = info->shape[axis];
	Direction	direction;
	int			sign;

	if (span->empty)
		return TBPG_MATCH_NONE;
	direction = direction_of(grid, axis);
	if (direction == MIXED)
		return find_anywhere(coord, n, span, first, count);
	sign = direction == ASCENDING ? 1 : -1;
	*first = bisect(coord, n, span, sign, false);
	*count = bisect(coord, n, span, sign, true);
	if (*count <= *first)
		return TBPG_MATCH_NONE;
	*count -= *first;
	return TBPG_MATCH_RUN;
}
