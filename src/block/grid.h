/* A grid while it is opened: grid.c (arrays, blocks) and grid_coord.c (finding and reading
 * coordinates). */
#ifndef TB_BLOCK_GRID_H
#define TB_BLOCK_GRID_H

#include "block/internal.h"

typedef enum TbGridStage
{
	TB_GRID_ARRAYS,				/* opening the arrays */
	TB_GRID_COORDS,				/* finding and reading coordinates */
	TB_GRID_SETTLED
} TbGridStage;

typedef enum TbSeekStage
{
	TB_SEEK_OPEN,				/* opening the array at `group` */
	TB_SEEK_READ,
	TB_SEEK_DONE
} TbSeekStage;

/* One coordinate being looked for. */
typedef struct TbSeek
{
	TbSeekStage stage;
	const char *name;			/* borrowed: of the dimension or the auxiliary array */
	int			axis;			/* -1: auxiliary */
	char	   *group;			/* owned; where it is looked for now */
	TbArray    *array;			/* a reference */
	TbFetch    *fetch;			/* owned */
} TbSeek;

struct TbGrid
{
	int			refs;
	TbSource   *source;			/* a reference */
	char	   *group;			/* owned */
	char	   *append_dim;		/* owned; NULL: by rule */
	int			n_cell;
	uint64_t	cell[TB_MAX_DIM];
	int			n_aux;
	char	  **aux;			/* owned */
	TbGridStage stage;
	TbStatus	status;
	TbError		error;
	TbGridInfo	info;			/* its arrays are references, its coords are owned */
	TbCoord    *coord;			/* owned */
	TbSeek	   *seek;			/* owned; one a coordinate */
};

extern TbStatus tb_grid_seek_begin(TbGrid *grid, TbError *err) TB_MUST_CHECK;
/* TB_AGAIN until every coordinate is there. */
extern TbStatus tb_grid_seek_poll(TbGrid *grid, TbError *err) TB_MUST_CHECK;
extern void tb_grid_seek_end(TbGrid *grid);

#endif
