/*
 * Bounds of coordinates per block: least and greatest value in each cell, whatever the order; NaN
 * and missing ones left out; a cell of nothing else is null. source: semantics 15 and 16.
 *
 * CF times become instants only where every value has one within timestamptz's range; else they
 * stay numbers in the file's unit.
 */
#include "block/internal.h"

#include <math.h>
#include <string.h>

#define MAX_CELLS ((uint64_t) 1 << 26)

/* One value of a coordinate as its kind sees it. false: missing. */
typedef struct Bound
{
	TbValue		lo;
	TbValue		hi;
} Bound;

void
tb_coord_clear(TbCoord *coord)
{
	tb_free(coord->name);
	tb_free(coord->units);
	tb_array_meta_free(coord->meta);
	tb_free(coord->lo);
	tb_free(coord->hi);
	tb_free(coord->null);
	tb_free(coord->value);
	tb_free(coord->value_null);
	memset(coord, 0, sizeof(*coord));
}

/* errors: LIMIT, NOMEM. */
static TbStatus
alloc_cells(TbCoord *coord, TbError *err)
{
	uint64_t	n = 1;
	bool		fits = true;

	for (int d = 0; d < coord->ndim; d++)
		fits = fits && tb_mul_u64(n, coord->cells[d], &n);
	if (!fits || n > MAX_CELLS)
	{
		tb_fail(err, TB_E_LIMIT, "coordinate has too many blocks");
		tb_error_detail(err, "coordinate \"%.200s\", at most %llu", coord->name,
						(unsigned long long) MAX_CELLS);
		tb_error_hint(err, "Set larger cells with the option cell_shape.");
		return TB_E_LIMIT;
	}
	coord->n_cells = n;
	coord->lo = tb_calloc(n > 0 ? n : 1, sizeof(TbValue));
	coord->hi = tb_calloc(n > 0 ? n : 1, sizeof(TbValue));
	coord->null = tb_calloc(n > 0 ? n : 1, sizeof(bool));
	if (coord->lo == NULL || coord->hi == NULL || coord->null == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (uint64_t i = 0; i < n; i++)
		coord->null[i] = true;
	return TB_OK;
}

TbStatus
tb_coord_from_index(TbCoord *coord, uint64_t extent, uint64_t cell, TbError *err)
{
	TbStatus	status = alloc_cells(coord, err);

	if (status != TB_OK)
		return status;
	coord->kind = TB_COORD_INDEX;
	coord->n_values = extent;
	for (uint64_t i = 0; i < coord->n_cells; i++)
	{
		uint64_t	left = extent - i * cell;

		coord->lo[i].i64 = (int64_t) (i * cell);
		coord->hi[i].i64 = (int64_t) (i * cell + (left < cell ? left : cell) - 1);
		coord->null[i] = false;
	}
	return TB_OK;
}

/* ---- values ---- */

/* An integer element that int64 can hold. */
static bool
integer_at(TbDtype dtype, const uint8_t *at, int64_t *value)
{
	switch (dtype)
	{
		case TB_I64:
			memcpy(value, at, sizeof(*value));
			return true;
		case TB_U64:
			memcpy(value, at, sizeof(*value));
			return *value >= 0;
		default:
			*value = (int64_t) tb_element_double(dtype, at);	/* 32 bits or less: exact */
			return true;
	}
}

/* false: the value is missing. *fits: the kind can hold it. */
static bool
bound_at(const TbCoord *coord, TbDtype dtype, const uint8_t *at, Bound *bound, bool *fits)
{
	bool		is_float = tb_dtype_is_float(dtype);
	double number = is_float || coord->kind == TB_COORD_FLOAT ? tb_element_double(dtype, at) : 0;
	int64_t		integer = 0;

	*fits = true;
	if (is_float && isnan(number))
		return false;
	if (!is_float && coord->kind != TB_COORD_FLOAT)
		*fits = integer_at(dtype, at, &integer);
	switch (coord->kind)
	{
		case TB_COORD_TIME:
			if (is_float)
				*fits = tb_time_instant(&coord->meta->time, number, &bound->lo.i64, &bound->hi.i64);
			else
			{
				*fits = *fits && tb_time_instant_int(&coord->meta->time, integer, &bound->lo.i64);
				bound->hi = bound->lo;
			}
			break;
		case TB_COORD_FLOAT:
			bound->lo.f64 = bound->hi.f64 = number;
			break;
		default:
			bound->lo.i64 = bound->hi.i64 = integer;
			break;
	}
	return true;
}

/* The kinds a coordinate may have, the most telling first. */
static TbCoordKind
choose_kind(TbCoord *coord, TbDtype dtype, const uint8_t *values, uint64_t n)
{
	static const TbCoordKind kinds[] = {TB_COORD_TIME, TB_COORD_INT, TB_COORD_FLOAT};
	size_t		bytes = tb_dtype_size(dtype);

	for (size_t k = 0; k < 2; k++)
	{
		bool		fits = true;

		if (kinds[k] == TB_COORD_TIME ? !coord->meta->time.is_time || dtype == TB_BOOL
									  : tb_dtype_is_float(dtype))
			continue;
		coord->kind = kinds[k];
		for (uint64_t i = 0; i < n && fits; i++)
		{
			Bound		bound;

			if (!bound_at(coord, dtype, values + i * bytes, &bound, &fits))
				fits = true;
		}
		if (fits)
			return kinds[k];
	}
	return TB_COORD_FLOAT;
}

static void
widen(TbCoord *coord, uint64_t cell, const Bound *bound)
{
	bool		first = coord->null[cell];
	TbValue    *lo = &coord->lo[cell];
	TbValue    *hi = &coord->hi[cell];

	if (coord->kind == TB_COORD_FLOAT)
	{
		if (first || bound->lo.f64 < lo->f64)
			*lo = bound->lo;
		if (first || bound->hi.f64 > hi->f64)
			*hi = bound->hi;
	}
	else
	{
		if (first || bound->lo.i64 < lo->i64)
			*lo = bound->lo;
		if (first || bound->hi.i64 > hi->i64)
			*hi = bound->hi;
	}
	coord->null[cell] = false;
}

/* Keep every value of a dimension's coordinate. errors: NOMEM. */
static TbStatus
keep_values(TbCoord *coord, TbDtype dtype, const uint8_t *values, uint64_t n, TbError *err)
{
	size_t		bytes = tb_dtype_size(dtype);

	coord->n_values = n;
	coord->value = tb_calloc(n > 0 ? n : 1, sizeof(TbValue));
	coord->value_null = tb_calloc(n > 0 ? n : 1, sizeof(bool));
	if (coord->value == NULL || coord->value_null == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (uint64_t i = 0; i < n; i++)
	{
		Bound		bound;
		bool		fits;

		coord->value_null[i] = !bound_at(coord, dtype, values + i * bytes, &bound, &fits);
		if (!coord->value_null[i])
			coord->value[i] = bound.lo;
	}
	return TB_OK;
}

/* Step to the next element in C order; false at the end. */
static bool
next_index(const TbArrayMeta *meta, uint64_t *index)
{
	for (int d = meta->ndim - 1; d >= 0; d--)
	{
		if (++index[d] < meta->shape[d])
			return true;
		index[d] = 0;
	}
	return false;
}

TbStatus
tb_coord_from_values(TbCoord *coord, const void *values, const uint64_t *cell, TbError *err)
{
	const TbArrayMeta *meta = coord->meta;
	TbDtype		dtype = meta->packing.decoded;
	size_t		bytes = tb_dtype_size(dtype);
	const uint8_t *at = values;
	uint64_t	index[TB_MAX_DIM] = {0};
	uint64_t	n = 1;
	TbStatus	status = alloc_cells(coord, err);

	for (int d = 0; d < meta->ndim; d++)
		n *= meta->shape[d];	/* the values are in memory: it fits */
	if (status != TB_OK)
		return status;
	coord->kind = choose_kind(coord, dtype, values, n);
	if (n > 0)
		do
		{
			uint64_t	number = 0;
			Bound		bound;
			bool		fits;

			for (int d = 0; d < meta->ndim; d++)
				number = number * coord->cells[d] + index[d] / cell[coord->axis[d]];
			if (bound_at(coord, dtype, at, &bound, &fits))
				widen(coord, number, &bound);
			at += bytes;
		}
		while (next_index(meta, index));
	return coord->is_dim ? keep_values(coord, dtype, values, n, err) : TB_OK;
}

uint64_t
tb_coord_cell(const TbCoord *coord, const uint64_t *index)
{
	uint64_t	number = 0;

	for (int d = 0; d < coord->ndim; d++)
		number = number * coord->cells[d] + index[coord->axis[d]];
	return number;
}
