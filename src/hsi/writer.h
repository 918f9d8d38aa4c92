/* Private to the room: a build in progress. */
#ifndef TB_HSI_WRITER_H
#define TB_HSI_WRITER_H

#include "hsi/head.h"
#include "hsi/puts.h"

#define TB_PARTS_AHEAD 8		/* parts that are read back at the same time */
#define TB_LEAF_STORED TB_STORED_VERSION	/* stored arrays before this one make up a leaf */

/* Writing a part: metadata where it is the first, statistics, head. */
typedef struct TbPartPut
{
	bool		begun;
	uint64_t	part;
	TbBox		box;
	uint64_t	n;				/* blocks */
	uint32_t   *place;			/* owned; for each block of the box, its place in what is handed over */
	TbValue    *value;			/* owned; scratch, of each block */
	uint64_t	item;			/* of the level's metadata, next */
	uint64_t	next;			/* array and statistic, next */
	bool		covered;		/* all is written; the head is next */
} TbPartPut;

/* Reading the parts back and merging them upwards, one array after the other. */
typedef struct TbFinish
{
	bool		begun;			/* the levels have their metadata */
	int			meta_level;		/* next */
	uint64_t	item;			/* of its metadata, next */
	int			array;			/* in the head */
	uint64_t	part;
	TbArray    *zarr[TB_LEAF_STORED];	/* owned references */
	TbFetch    *fetch[TB_PARTS_AHEAD][TB_LEAF_STORED];	/* owned; of the part and of some that follow, by number */
	int			level;			/* that is written; 0: parts are read */
	TbNodeStats *node;			/* owned; of that level, of level 1 while parts are read */
	uint64_t	start[TB_MAX_DIM];	/* of the shard that is written */
	int			stored;			/* next of it */
	bool		publishing;
} TbFinish;

struct TbHsiWriter
{
	TbGrid	   *grid;			/* owned reference */
	TbSource   *where;			/* owned reference */
	int		   *array;			/* owned; in the grid, in the order of what is handed over */
	int			n_arrays;
	int		   *place;			/* owned; per entry of array: in the head */
	uint64_t	part_blocks;
	bool		rebuild;
	char		key[TB_HSI_KEY_BYTES];
	char		root[TB_HSI_KEY_BYTES];
	TbFind	   *find;			/* owned; NULL once it is known what is there */
	struct TbCarry *carry;		/* owned; parts of an older build on their way into this one */
	TbStatus	status;			/* AGAIN until then */
	TbError		error;
	TbHead	   *head;			/* owned */
	bool		described;		/* groups and arrays of level 0 have their metadata */
	TbPuts		puts;
	TbJob	   *publishing;		/* owned; the head on its way; NULL: none */
	bool		tidying;		/* old heads are deleted */
	TbPartPut	put;
	TbFinish	finish;
};

/* Path of a stored object: "<array path>/c/1/0/2". */
extern TbStatus tb_object_key(char *key, const TbGeometry *geo, int level, const TbBox *box,
							  const char *path, TbError *err) TB_MUST_CHECK;
/* Hand metadata of a level to writer->puts: its group, the arrays' groups, every stored array; with level 0 the root's.
 * AGAIN while puts are full; *item, 0 at first: where to go on. */
extern TbStatus tb_write_level_json(TbHsiWriter *writer, int level, uint64_t *item, TbError *err) TB_MUST_CHECK;
/* Hand over one shard of one stored array. */
extern TbStatus tb_write_object(TbHsiWriter *writer, int array, TbStored stored,
								const TbShardData *data, TbError *err) TB_MUST_CHECK;
/* Publish the head, under the next serial; all that it points at is written. AGAIN. errors: CHANGED. */
extern TbStatus tb_write_head(TbHsiWriter *writer, TbError *err) TB_MUST_CHECK;

#endif
