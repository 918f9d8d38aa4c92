/*
 * What an inner node knows: the exact merge of its leaves, and for each statistic the interval in
 * which the leaves' own values lie, with how many of them are NULL (semantics.md 12). Only
 * arithmetic; no I/O.
 */
#include <string.h>

#include "hsi/format.h"
#include "hsi/stat.h"

void
tb_node_from_leaf(TbNodeStats *node, const TbLeaf *leaf, TbClass class)
{
	memset(node, 0, sizeof(*node));
	node->any = true;
	node->leaf = *leaf;
	node->min_hi = leaf->min;
	node->max_lo = leaf->max;
	node->valid_lo = node->valid_hi = leaf->valid;
	node->nan_lo = node->nan_hi = leaf->nan;
	node->missing_lo = node->missing_hi = leaf->missing;
	node->null = tb_leaf_mean(leaf, &node->mean_lo) ? TB_NULLS_NONE : TB_NULLS_ALL;
	node->mean_hi = node->mean_lo;
	node->std_null = tb_leaf_std(leaf, &node->std_lo) ? TB_NULLS_NONE : TB_NULLS_ALL;
	node->std_hi = node->std_lo;
}

static void
widen_counts(uint64_t *lo, uint64_t *hi, uint64_t from_lo, uint64_t from_hi)
{
	*lo = from_lo < *lo ? from_lo : *lo;
	*hi = from_hi > *hi ? from_hi : *hi;
}

/* Floats in the server's order: a mean can be NaN, where both infinities occur. */
static void
widen_floats(TbNulls nulls, double *lo, double *hi, const TbNodeStats *from, bool is_std)
{
	double		from_lo = is_std ? from->std_lo : from->mean_lo;
	double		from_hi = is_std ? from->std_hi : from->mean_hi;

	if ((is_std ? from->std_null : from->null) == TB_NULLS_ALL)
		return;
	if (nulls == TB_NULLS_ALL || tb_f64_cmp(from_lo, *lo) < 0)
		*lo = from_lo;
	if (nulls == TB_NULLS_ALL || tb_f64_cmp(from_hi, *hi) > 0)
		*hi = from_hi;
}

static TbNulls
join_nulls(TbNulls a, TbNulls b)
{
	return a == b ? a : TB_NULLS_SOME;
}

void
tb_node_merge(TbNodeStats *into, const TbNodeStats *from, TbClass class)
{
	if (!from->any)
		return;
	if (!into->any)
	{
		*into = *from;
		return;
	}
	if (from->null != TB_NULLS_ALL)
	{
		if (into->null == TB_NULLS_ALL ||
			tb_value_cmp(class, from->min_hi, class, into->min_hi) > 0)
			into->min_hi = from->min_hi;
		if (into->null == TB_NULLS_ALL ||
			tb_value_cmp(class, from->max_lo, class, into->max_lo) < 0)
			into->max_lo = from->max_lo;
	}
	widen_floats(into->null, &into->mean_lo, &into->mean_hi, from, false);
	widen_floats(into->std_null, &into->std_lo, &into->std_hi, from, true);
	widen_counts(&into->valid_lo, &into->valid_hi, from->valid_lo, from->valid_hi);
	widen_counts(&into->nan_lo, &into->nan_hi, from->nan_lo, from->nan_hi);
	widen_counts(&into->missing_lo, &into->missing_hi, from->missing_lo, from->missing_hi);
	into->null = join_nulls(into->null, from->null);
	into->std_null = join_nulls(into->std_null, from->std_null);
	tb_leaf_merge(&into->leaf, &from->leaf, class);
}

static TbValue
leaf_stored(const TbLeaf *leaf, TbStored stored)
{
	switch (stored)
	{
		case TB_STORED_VALID:
			return (TbValue) {.u64 = leaf->valid};
		case TB_STORED_NAN:
			return (TbValue) {.u64 = leaf->nan};
		case TB_STORED_MISSING:
			return (TbValue) {.u64 = leaf->missing};
		case TB_STORED_MIN:
			return leaf->min;
		case TB_STORED_MAX:
			return leaf->max;
		case TB_STORED_SUM:
			return (TbValue) {.f64 = leaf->sum};
		default:
			return (TbValue) {.f64 = leaf->m2};
	}
}

TbValue
tb_built_value(const TbBuilt *built, TbStored stored)
{
	if (stored == TB_STORED_VERSION)
		return (TbValue) {.u64 = built->version};
	return leaf_stored(&built->leaf, stored);
}

TbValue
tb_node_value(const TbNodeStats *node, TbStored stored)
{
	switch (stored)
	{
		case TB_STORED_MIN_HI:
			return node->min_hi;
		case TB_STORED_MAX_LO:
			return node->max_lo;
		case TB_STORED_VALID_LO:
			return (TbValue) {.u64 = node->valid_lo};
		case TB_STORED_VALID_HI:
			return (TbValue) {.u64 = node->valid_hi};
		case TB_STORED_NAN_LO:
			return (TbValue) {.u64 = node->nan_lo};
		case TB_STORED_NAN_HI:
			return (TbValue) {.u64 = node->nan_hi};
		case TB_STORED_MISSING_LO:
			return (TbValue) {.u64 = node->missing_lo};
		case TB_STORED_MISSING_HI:
			return (TbValue) {.u64 = node->missing_hi};
		case TB_STORED_MEAN_LO:
			return (TbValue) {.f64 = node->mean_lo};
		case TB_STORED_MEAN_HI:
			return (TbValue) {.f64 = node->mean_hi};
		case TB_STORED_STD_LO:
			return (TbValue) {.f64 = node->std_lo};
		case TB_STORED_STD_HI:
			return (TbValue) {.f64 = node->std_hi};
		case TB_STORED_NULL:
			return (TbValue) {.i64 = node->null};
		case TB_STORED_STD_NULL:
			return (TbValue) {.i64 = node->std_null};
		default:
			return leaf_stored(&node->leaf, stored);
	}
}

void
tb_leaf_set(TbLeaf *leaf, TbStored stored, TbValue value)
{
	switch (stored)
	{
		case TB_STORED_VALID:
			leaf->valid = value.u64;
			break;
		case TB_STORED_NAN:
			leaf->nan = value.u64;
			break;
		case TB_STORED_MISSING:
			leaf->missing = value.u64;
			break;
		case TB_STORED_MIN:
			leaf->min = value;
			break;
		case TB_STORED_MAX:
			leaf->max = value;
			break;
		case TB_STORED_SUM:
			leaf->sum = value.f64;
			break;
		case TB_STORED_M2:
			leaf->m2 = value.f64;
			break;
		default:
			break;
	}
}
