/* Private to the room: bounds of coordinates over the nodes of each level. */
#ifndef TB_HSI_COORDS_H
#define TB_HSI_COORDS_H

#include "hsi/format.h"

/* Over the blocks of a node: intervals of the block's lower and of its upper bound, and how many
 * are NULL. */
typedef struct TbCoordBound
{
	TbValue		min_lo;
	TbValue		min_hi;
	TbValue		max_lo;
	TbValue		max_hi;
	TbNulls		null;
} TbCoordBound;

/* One coordinate; node c of a level (C order over the coordinate's own axes). Level 0 is the
 * coordinate itself. */
typedef struct TbCoordTable
{
	bool		made;
	TbClass		class;
	int			n_levels;
	TbCoordBound *bound[TB_HSI_LEVELS]; /* owned; [0] NULL */
	uint64_t	cells[TB_HSI_LEVELS][TB_MAX_DIM];	/* along the coordinate's axes */
} TbCoordTable;

extern bool tb_coord_table_make(TbCoordTable *table, const TbCoord *coord,
								const TbGeometry *geo); /* false: no memory */
extern void tb_coord_table_clear(TbCoordTable *table);
/* Range of <coordinate>_min (or _max) over a node. */
extern void tb_coord_range(const TbCoordTable *table, const TbCoord *coord, int level,
						   const uint64_t *node, bool max, TbRange *range);

#endif
