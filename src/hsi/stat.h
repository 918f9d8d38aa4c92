/* Private to the room: comparing values, one chunk's statistics, float order of the server. */
#ifndef TB_HSI_STAT_H
#define TB_HSI_STAT_H

#include "hsi/hsi.h"

/* Which stored arrays a statistic's value comes from, and the class it has: one line a statistic.
 */
typedef struct TbStatInfo
{
	const char *name;			/* suffix of the column */
	uint32_t	leaf_needs;		/* TbStored bits at level 0 */
	uint32_t	inner_needs;	/* TbStored bits at the levels above */
} TbStatInfo;

extern const TbStatInfo *tb_stat_info(TbStat stat);

/*
 * Floats in PostgreSQL's order: NaN equals NaN and is above everything, -0 = +0. Returns <0, 0, >0.
 * source: PostgreSQL src/include/utils/float.h, float8_cmp_internal
 */
static inline int
tb_f64_cmp(double a, double b)
{
	if (a == a && b == b)
		return (a > b) - (a < b);
	return (a != a) - (b != b);
}

/* Two values of classes that may differ, compared exactly: nothing is rounded. */
extern int	tb_value_cmp(TbClass class_a, TbValue a, TbClass class_b, TbValue b);

/* The value of one statistic of a leaf, false = NULL. class: of the value, set also where NULL. */
extern bool tb_leaf_value(const TbLeaf *leaf, TbStat stat, TbClass minmax, TbClass *class,
						  TbValue *value);

#endif
