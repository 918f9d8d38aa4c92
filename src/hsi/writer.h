/* Private to the room: a build in progress. */
#ifndef TB_HSI_WRITER_H
#define TB_HSI_WRITER_H

#include "hsi/head.h"

#define TB_LEAF_STORED TB_STORED_VERSION	/* stored arrays before this one make up a leaf */

/* Reading the parts back and merging them upwards, one array after the other. */
typedef struct TbFinish
{
	bool		begun;
	int			array;			/* in the head */
	uint64_t	part;
	TbArray    *zarr[TB_LEAF_STORED];	/* owned references */
	TbFetch    *fetch[TB_LEAF_STORED];	/* owned; of the part */
	TbNodeStats *node;			/* owned; level 1 of the array */
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
	TbFinish	finish;
};

/* Path of a stored object: "<array path>/c/1/0/2". */
extern TbStatus tb_object_key(char *key, const TbGeometry *geo, int level, const TbBox *box,
							  const char *path, TbError *err) TB_MUST_CHECK;
/* Metadata of a level: its group, the arrays' groups, every stored array. */
extern TbStatus tb_write_level_json(TbHsiWriter *writer, int level, TbError *err) TB_MUST_CHECK;
/* One shard of one stored array. */
extern TbStatus tb_write_object(TbHsiWriter *writer, int array, TbStored stored,
								const TbShardData *data, TbError *err) TB_MUST_CHECK;
/* The head, under the next serial. errors: CHANGED. */
extern TbStatus tb_write_head(TbHsiWriter *writer, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_write_root(TbHsiWriter *writer, TbError *err) TB_MUST_CHECK;

#endif
