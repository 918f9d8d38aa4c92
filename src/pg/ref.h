/* What the files about tensor_ref share beyond tbpg.h. */
#ifndef TBPG_REF_H
#define TBPG_REF_H

#include "pg/tbpg.h"

#include "utils/array.h"

/* Starts and counts of a ref. */
static inline int64 *
tbpg_ref_start(TbpgRef *ref)
{
	return ref->extent;
}

static inline int64 *
tbpg_ref_count(TbpgRef *ref)
{
	return ref->extent + ref->ndim;
}

static inline const int64 *
tbpg_ref_start_of(const TbpgRef *ref)
{
	return ref->extent;
}

static inline const int64 *
tbpg_ref_count_of(const TbpgRef *ref)
{
	return ref->extent + ref->ndim;
}

/* A copy in the current context. unstamped: without the rights of the scan that made it. */
extern TbpgRef *tbpg_ref_copy(const TbpgRef *ref, bool unstamped);

/* A zeroed ref of a rank, in the current context. */
extern TbpgRef *tbpg_ref_new(int ndim);

/* Whose rights count: the stamped user within the statement that stamped, else the current one. */
extern Oid	tbpg_ref_user(const TbpgRef *ref);

/* Stamped by this statement, or by a scan that is still open. */
extern bool tbpg_ref_is_live(const TbpgRef *ref);

/* SELECT on the column of an existing tensor_ref column; locks the table. errors: 42P01, 42703,
 * 42501. */
extern void tbpg_ref_check_column(Oid relid, AttrNumber attnum, Oid user);

/* Another dtype or treatment; keeps the stamp, since it reaches nothing else. */
extern TbpgRef *tbpg_ref_treated(const TbpgRef *ref, TbTreatment treatment, TbDtype dtype);

/* ref_text.c: the text form. A ref whose table is gone prints with OIDs for names. */
extern char *tbpg_ref_print(const TbpgRef *ref);
extern TbpgRef *tbpg_ref_scan(const char *literal);

/* ---- coord.c: coordinate values to index runs ---- */
/* A closed interval of coordinate values: doubles for FLOAT coordinates, int64 (TIME: microseconds
 * since 1970) else. */
typedef struct TbpgSpan
{
	bool		empty;
	double		f_lo;
	double		f_hi;
	int64		i_lo;
	int64		i_hi;
} TbpgSpan;

typedef enum TbpgMatch
{
	TBPG_MATCH_NONE, TBPG_MATCH_RUN, TBPG_MATCH_SCATTERED
} TbpgMatch;

/* Everything, to be narrowed. */
extern void tbpg_span_all(TbpgSpan *span);
/* Narrow by a bound; float coordinates of single precision take it rounded to their own type. */
extern void tbpg_span_from_double(TbpgSpan *span, const TbCoord *coord, bool lower, double bound,
								  bool inclusive);
extern void tbpg_span_from_int(TbpgSpan *span, bool lower, int64 bound, bool inclusive);
/* The indexes whose values lie in a span: a run, nothing, or several runs. */
extern TbpgMatch
tbpg_coord_find(TbGrid *grid, int axis, const TbpgSpan *span, uint64_t *first, uint64_t *count);
/* Value of an index; false where it is missing. */
extern bool tbpg_coord_value(const TbCoord *coord, uint64_t i, TbValue *value);

#endif
