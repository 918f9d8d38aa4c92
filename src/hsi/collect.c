/*
 * Collecting statistics from packed elements.
 *
 * A run is halved until pieces of CHUNK elements remain, and the halves are merged by Chan's rule:
 * sums are pairwise, whatever the length of the run. A piece is first brought to the shape that all
 * types share, an array of its valid elements as doubles with sentinels and NaN counted and left
 * out; then extremes, sum and squared distances from the piece's own mean are taken from that
 * array, in lanes that compilers turn into vectors. Doubles are exact for every type but 64-bit
 * integers, whose extremes are taken from the source.
 */
/* These loops are what -O3 is for; clang makes vectors of them at -O2 already. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#include <math.h>
#include <string.h>

#include "hsi/stat.h"

#define CHUNK 1024				/* elements; 8 kB of doubles stay in the first cache */
#define LANES 8

typedef struct Piece
{
	const TbPacking *packing;
	const uint8_t *packed;
	size_t		n;				/* elements, at most CHUNK */
	double	   *value;			/* room for CHUNK; the valid ones, in order */
	size_t		n_valid;
	TbLeaf *leaf; /* nan and missing are counted here; extremes where exact ones are set */
	bool		exact;			/* extremes are set */
} Piece;

static inline bool
is_sentinel(const TbPacking *packing, uint64_t bits)
{
	for (int i = 0; i < packing->n_sentinels; i++)
		if (packing->sentinel[i] == bits)
			return true;
	return false;
}

/* Integers up to 32 bits and bool: every element but a sentinel is valid, doubles hold it exactly.
 */
#define LOAD_SMALL(name, type, bits_type, expression) \
static void \
name(Piece *p) \
{ \
	size_t		m = 0; \
	if (p->packing->n_sentinels == 0) \
	{ \
		for (size_t i = 0; i < p->n; i++) \
		{ \
			type		e; \
			memcpy(&e, p->packed + i * sizeof(e), sizeof(e)); \
			p->value[i] = (double) (expression); \
		} \
		p->n_valid = p->n; \
		return; \
	} \
	for (size_t i = 0; i < p->n; i++) \
	{ \
		type		e; \
		memcpy(&e, p->packed + i * sizeof(e), sizeof(e)); \
		p->value[m] = (double) (expression); \
		m += !is_sentinel(p->packing, (bits_type) e); \
	} \
	p->n_valid = m; \
	p->leaf->missing += p->n - m; \
}

LOAD_SMALL(load_bool, uint8_t, uint8_t, e != 0)
LOAD_SMALL(load_i8, int8_t, uint8_t, e)
LOAD_SMALL(load_u8, uint8_t, uint8_t, e)
LOAD_SMALL(load_i16, int16_t, uint16_t, e)
LOAD_SMALL(load_u16, uint16_t, uint16_t, e)
LOAD_SMALL(load_i32, int32_t, uint32_t, e)
LOAD_SMALL(load_u32, uint32_t, uint32_t, e)

/* 64-bit integers: the same, with extremes taken before the double rounds. */
#define LOAD_LARGE(name, type, member) \
static void \
name(Piece *p) \
{ \
	size_t		m = 0; \
	type		lo = 0; \
	type		hi = 0; \
	for (size_t i = 0; i < p->n; i++) \
	{ \
		type		e; \
		memcpy(&e, p->packed + i * sizeof(e), sizeof(e)); \
		if (is_sentinel(p->packing, (uint64_t) e)) \
			continue; \
		lo = m == 0 || e < lo ? e : lo; \
		hi = m == 0 || e > hi ? e : hi; \
		p->value[m++] = (double) e; \
	} \
	p->leaf->min.member = lo; \
	p->leaf->max.member = hi; \
	p->exact = true; \
	p->n_valid = m; \
	p->leaf->missing += p->n - m; \
}

LOAD_LARGE(load_i64, int64_t, i64)
LOAD_LARGE(load_u64, uint64_t, u64)

/*
 * Floats: one pass that converts all and notices NaN; where there are sentinels or a NaN was seen,
 * a second that keeps the valid ones.
 */
#define LOAD_FLOAT(name, type, bits_type, expression) \
static void \
name(Piece *p) \
{ \
	size_t		m = 0; \
	size_t		nan = 0; \
	for (size_t i = 0; i < p->n; i++) \
	{ \
		type		e; \
		memcpy(&e, p->packed + i * sizeof(e), sizeof(e)); \
		p->value[i] = (double) (expression); \
		nan += p->value[i] != p->value[i]; \
	} \
	p->n_valid = p->n; \
	if (nan == 0 && p->packing->n_sentinels == 0) \
		return; \
	nan = 0; \
	for (size_t i = 0; i < p->n; i++) \
	{ \
		bits_type	bits; \
		double		v = p->value[i]; \
		bool		missing; \
		memcpy(&bits, p->packed + i * sizeof(bits), sizeof(bits)); \
		missing = is_sentinel(p->packing, bits); \
		nan += !missing && v != v; \
		p->value[m] = v; \
		m += !missing && v == v; \
	} \
	p->n_valid = m; \
	p->leaf->nan += nan; \
	p->leaf->missing += p->n - m - nan; \
}

LOAD_FLOAT(load_f16, uint16_t, uint16_t, tb_half_to_float(e))
LOAD_FLOAT(load_f32, float, uint32_t, e)
LOAD_FLOAT(load_f64, double, uint64_t, e)

/* One line a packed type. */
static void (*const load_table[]) (Piece *p) = {
	[TB_BOOL] = load_bool, [TB_I8] = load_i8, [TB_I16] = load_i16, [TB_I32] = load_i32,
	[TB_I64] = load_i64, [TB_U8] = load_u8, [TB_U16] = load_u16, [TB_U32] = load_u32,
	[TB_U64] = load_u64, [TB_F16] = load_f16, [TB_F32] = load_f32, [TB_F64] = load_f64
};

/* The packed element's bits, for comparing with sentinels. */
static inline uint64_t
element_bits(const uint8_t *at, size_t size)
{
	uint64_t	bits = 0;

	memcpy(&bits, at, size);	/* little-endian machines only, as the whole engine */
	return bits;
}

/*
 * Scaled arrays: the statistics are those of what read() gives, so the one decode routine makes the
 * values. A sentinel has become NaN there and is told apart by its packed bits. Returns false where
 * decoding failed.
 */
static bool
load_scaled(Piece *p)
{
	union
	{
		float		f32[CHUNK];
		double		f64[CHUNK];
	}			decoded;
	TbTreatment as_decoded = {.raw = false, .cast = TB_NONE};
	const TbPacking *packing = p->packing;
	size_t		size = tb_dtype_size(packing->packed);
	bool		single = packing->decoded == TB_F32;
	size_t		m = 0;

	if (!single && packing->decoded != TB_F64)
		return false;
	if (tb_unpack(packing, as_decoded, p->packed, p->n, &decoded, NULL) != TB_OK)
		return false;
	for (size_t i = 0; i < p->n; i++)
	{
		double		v = single ? (double) decoded.f32[i] : decoded.f64[i];

		if (v == v)
			p->value[m++] = v;
		else if (is_sentinel(packing, element_bits(p->packed + i * size, size)))
			p->leaf->missing++;
		else
			p->leaf->nan++;
	}
	p->n_valid = m;
	return true;
}

static void
set_extremes(TbLeaf *leaf, TbClass class, double lo, double hi)
{
	if (class == TB_CLASS_F64)
	{
		leaf->min.f64 = lo;
		leaf->max.f64 = hi;
	}
	else
	{
		leaf->min.i64 = (int64_t) lo;
		leaf->max.i64 = (int64_t) hi;
	}
}

/* Extremes and sum of n > 0 values. */
static void
extremes_and_sum(const double *value, size_t n, double *lo, double *hi, double *sum)
{
	double		lane_lo[LANES];
	double		lane_hi[LANES];
	double		lane_sum[LANES];
	size_t		i;

	for (int k = 0; k < LANES; k++)
	{
		lane_lo[k] = lane_hi[k] = value[0];
		lane_sum[k] = 0;
	}
	for (i = 0; i + LANES <= n; i += LANES)
		for (int k = 0; k < LANES; k++)
		{
			double		v = value[i + (size_t) k];

			lane_lo[k] = v < lane_lo[k] ? v : lane_lo[k];
			lane_hi[k] = v > lane_hi[k] ? v : lane_hi[k];
			lane_sum[k] += v;
		}
	for (int k = 0; i < n; i++, k++)
	{
		lane_lo[k] = value[i] < lane_lo[k] ? value[i] : lane_lo[k];
		lane_hi[k] = value[i] > lane_hi[k] ? value[i] : lane_hi[k];
		lane_sum[k] += value[i];
	}
	for (int half = LANES / 2; half > 0; half /= 2)
		for (int k = 0; k < half; k++)
		{
			lane_lo[k] = lane_lo[k + half] < lane_lo[k] ? lane_lo[k + half] : lane_lo[k];
			lane_hi[k] = lane_hi[k + half] > lane_hi[k] ? lane_hi[k + half] : lane_hi[k];
			lane_sum[k] += lane_sum[k + half];
		}
	*lo = lane_lo[0];
	*hi = lane_hi[0];
	*sum = lane_sum[0];
}

/*
 * Sum of squared distances from the mean, with the correction for the mean's own rounding.
 * source: Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983, equation 1.7
 */
static double
squares(const double *value, size_t n, double mean)
{
	double		lane_sq[LANES] = {0};
	double		lane_d[LANES] = {0};
	double		m2;
	size_t		i;

	for (i = 0; i + LANES <= n; i += LANES)
		for (int k = 0; k < LANES; k++)
		{
			double		d = value[i + (size_t) k] - mean;

			lane_d[k] += d;
			lane_sq[k] += d * d;
		}
	for (int k = 0; i < n; i++, k++)
	{
		double		d = value[i] - mean;

		lane_d[k] += d;
		lane_sq[k] += d * d;
	}
	for (int half = LANES / 2; half > 0; half /= 2)
		for (int k = 0; k < half; k++)
		{
			lane_d[k] += lane_d[k + half];
			lane_sq[k] += lane_sq[k + half];
		}
	m2 = lane_sq[0] - lane_d[0] * lane_d[0] / (double) n;
	return m2 < 0 ? 0 : m2;
}

static void
collect_chunk(TbLeaf *leaf, const TbPacking *packing, TbClass class, const uint8_t *packed,
			  size_t n)
{
	double		value[CHUNK];
	Piece piece = {.packing = packing, .packed = packed, .n = n, .value = value, .leaf = leaf};
	double		lo;
	double		hi;

	tb_leaf_begin(leaf);
	if (packing->scaled && !load_scaled(&piece))
	{
		/* Cannot happen for types that have statistics; if it does, nothing may be skipped for it.
		 */
		leaf->valid = n;
		set_extremes(leaf, TB_CLASS_F64, -INFINITY, INFINITY);
		leaf->sum = leaf->m2 = NAN;
		return;
	}
	if (!packing->scaled)
		load_table[packing->packed] (&piece);
	leaf->valid = piece.n_valid;
	if (piece.n_valid == 0)
		return;
	extremes_and_sum(value, piece.n_valid, &lo, &hi, &leaf->sum);
	if (!piece.exact)
		set_extremes(leaf, class, lo, hi);
	if (isinf(lo) || isinf(hi))
		leaf->m2 = NAN;			/* "std is NULL", also after merging */
	else
		leaf->m2 = squares(value, piece.n_valid, leaf->sum / (double) piece.n_valid);
}

static void
collect(TbLeaf *leaf, const TbPacking *packing, TbClass class, const uint8_t *packed, size_t n)
{
	size_t		left = (n + CHUNK - 1) / CHUNK / 2 * CHUNK;
	TbLeaf		right;

	if (n <= CHUNK)
	{
		collect_chunk(leaf, packing, class, packed, n);
		return;
	}
	collect(leaf, packing, class, packed, left);
	collect(&right, packing, class, packed + left * tb_dtype_size(packing->packed), n - left);
	tb_leaf_merge(leaf, &right, class);
}

void
tb_leaf_add(TbLeaf *leaf, const TbPacking *packing, const void *packed, size_t elements)
{
	TbClass		class = TB_CLASS_I64;
	TbLeaf		run;

	if (elements == 0 || packing->packed == TB_NONE)
		return;
	if (tb_dtype_is_float(packing->stat))
		class = TB_CLASS_F64;
	else if (packing->stat == TB_U64)
		class = TB_CLASS_U64;
	collect(&run, packing, class, packed, elements);
	tb_leaf_merge(leaf, &run, class);
}
