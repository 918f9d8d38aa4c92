/*
 * Statistics of a block: what they are called, what they are made of, how they are merged and how
 * mean and standard deviation follow from a leaf. Collecting them from elements is collect.c.
 */
#include "hsi/stat.h"

#include <math.h>
#include <string.h>

#include "hsi/format.h"

#define NEEDS(stored) (1u << (stored))
#define VALUE_NULL (NEEDS(TB_STORED_NULL))

static const TbStatInfo stat_table[TB_N_STATS] = {
	[TB_STAT_MIN] = {"min", NEEDS(TB_STORED_VALID) | NEEDS(TB_STORED_MIN),
					 NEEDS(TB_STORED_MIN) | NEEDS(TB_STORED_MIN_HI) | VALUE_NULL},
	[TB_STAT_MAX] = {"max", NEEDS(TB_STORED_VALID) | NEEDS(TB_STORED_MAX),
					 NEEDS(TB_STORED_MAX_LO) | NEEDS(TB_STORED_MAX) | VALUE_NULL},
	[TB_STAT_MEAN] = {"mean", NEEDS(TB_STORED_VALID) | NEEDS(TB_STORED_SUM),
					  NEEDS(TB_STORED_MEAN_LO) | NEEDS(TB_STORED_MEAN_HI) | VALUE_NULL},
	[TB_STAT_STD] = {"std",
					 NEEDS(TB_STORED_VALID) | NEEDS(TB_STORED_M2) | NEEDS(TB_STORED_MIN) |
					 NEEDS(TB_STORED_MAX),
					 NEEDS(TB_STORED_STD_LO) | NEEDS(TB_STORED_STD_HI) |
					 NEEDS(TB_STORED_STD_NULL)},
	[TB_STAT_VALID] = {"valid", NEEDS(TB_STORED_VALID),
					   NEEDS(TB_STORED_VALID_LO) | NEEDS(TB_STORED_VALID_HI)},
	[TB_STAT_NAN] = {"nan", NEEDS(TB_STORED_NAN),
					 NEEDS(TB_STORED_NAN_LO) | NEEDS(TB_STORED_NAN_HI)},
	[TB_STAT_MISSING] = {"missing", NEEDS(TB_STORED_MISSING),
						 NEEDS(TB_STORED_MISSING_LO) | NEEDS(TB_STORED_MISSING_HI)},
};

const TbStatInfo *
tb_stat_info(TbStat stat)
{
	return &stat_table[stat];
}

const char *
tb_stat_name(TbStat stat)
{
	return stat_table[stat].name;
}

TbClass
tb_stat_class(const TbArrayMeta *meta)
{
	if (tb_dtype_is_float(meta->packing.stat))
		return TB_CLASS_F64;
	return meta->packing.stat == TB_U64 ? TB_CLASS_U64 : TB_CLASS_I64;
}

/* Compare an exact double (no NaN) with a signed integer. */
static int
cmp_f64_i64(double a, int64_t b)
{
	double		whole;

	if (a >= 0x1p63)
		return 1;
	if (a < -0x1p63)
		return -1;
	whole = trunc(a);
	if ((int64_t) whole != b)
		return (int64_t) whole < b ? -1 : 1;
	return (a > whole) - (a < whole);
}

/* Compare an exact double (no NaN) with an unsigned integer. */
static int
cmp_f64_u64(double a, uint64_t b)
{
	double		whole;

	if (a < 0)
		return -1;
	if (a >= 0x1p64)
		return 1;
	whole = trunc(a);
	if ((uint64_t) whole != b)
		return (uint64_t) whole < b ? -1 : 1;
	return a > whole;
}

static int
cmp_i64_u64(int64_t a, uint64_t b)
{
	if (a < 0)
		return -1;
	return ((uint64_t) a > b) - ((uint64_t) a < b);
}

int
tb_value_cmp(TbClass class_a, TbValue a, TbClass class_b, TbValue b)
{
	if (class_a == class_b)
	{
		if (class_a == TB_CLASS_F64)
			return tb_f64_cmp(a.f64, b.f64);
		if (class_a == TB_CLASS_I64)
			return (a.i64 > b.i64) - (a.i64 < b.i64);
		return (a.u64 > b.u64) - (a.u64 < b.u64);
	}
	if (class_a > class_b)
		return -tb_value_cmp(class_b, b, class_a, a);
	if (class_a == TB_CLASS_I64)
		return cmp_i64_u64(a.i64, b.u64);
	if (isnan(a.f64))
		return 1;
	return class_b == TB_CLASS_I64 ? cmp_f64_i64(a.f64, b.i64) : cmp_f64_u64(a.f64, b.u64);
}

/* IEEE rules with infinities: they give an infinite mean, or NaN where both signs occur. */
bool
tb_leaf_mean(const TbLeaf *leaf, double *mean)
{
	if (leaf->valid == 0)
		return false;
	*mean = leaf->sum / (double) leaf->valid;
	return true;
}

bool
tb_leaf_std(const TbLeaf *leaf, double *std)
{
	if (leaf->valid == 0 || isnan(leaf->m2))
		return false;
	/* Equal extremes have equal bits in every class: all elements are the same, whatever rounding
	 * left. */
	*std = leaf->min.u64 == leaf->max.u64 ? 0 : sqrt(leaf->m2 / (double) leaf->valid);
	return true;
}

bool
tb_leaf_value(const TbLeaf *leaf, TbStat stat, TbClass minmax, TbClass *class, TbValue *value)
{
	*class = TB_CLASS_I64;
	switch (stat)
	{
		case TB_STAT_MIN:
			*class = minmax;
			*value = leaf->min;
			return leaf->valid > 0;
		case TB_STAT_MAX:
			*class = minmax;
			*value = leaf->max;
			return leaf->valid > 0;
		case TB_STAT_MEAN:
			*class = TB_CLASS_F64;
			return tb_leaf_mean(leaf, &value->f64);
		case TB_STAT_STD:
			*class = TB_CLASS_F64;
			return tb_leaf_std(leaf, &value->f64);
		case TB_STAT_VALID:
			value->i64 = (int64_t) leaf->valid;
			break;
		case TB_STAT_NAN:
			value->i64 = (int64_t) leaf->nan;
			break;
		default:
			value->i64 = (int64_t) leaf->missing;
			break;
	}
	return true;
}

void
tb_leaf_begin(TbLeaf *leaf)
{
	memset(leaf, 0, sizeof(*leaf));
}

/*
 * source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979, equation 2.1
 */
void
tb_leaf_merge(TbLeaf *into, const TbLeaf *from, TbClass class)
{
	double		n_into = (double) into->valid;
	double		n_from = (double) from->valid;
	double		delta;

	into->nan += from->nan;
	into->missing += from->missing;
	if (from->valid == 0)
		return;
	if (into->valid == 0)
	{
		into->valid = from->valid;
		into->min = from->min;
		into->max = from->max;
		into->sum = from->sum;
		into->m2 = from->m2;
		return;
	}
	delta = from->sum / n_from - into->sum / n_into;
	into->m2 += from->m2 + delta * delta * (n_into / (n_into + n_from)) * n_from;
	into->sum += from->sum;
	into->valid += from->valid;
	if (tb_value_cmp(class, from->min, class, into->min) < 0)
		into->min = from->min;
	if (tb_value_cmp(class, from->max, class, into->max) > 0)
		into->max = from->max;
}
