/* Private to the room: an opened index and the chunks of its arrays that are in memory. */
#ifndef TB_HSI_INDEX_H
#define TB_HSI_INDEX_H

#include "hsi/coords.h"
#include "hsi/head.h"

#define TB_HSI_CACHE_BYTES ((size_t) 64 << 20)

typedef struct TbHsiChunk TbHsiChunk;

/* Requests that loading made, for whom they were made. */
typedef struct TbIndexCost
{
	uint64_t	requests;
	uint64_t	bytes;
} TbIndexCost;

typedef enum TbChunkState
{
	TB_CHUNK_OPENING,			/* metadata of its array is read */
	TB_CHUNK_FETCHING,
	TB_CHUNK_READY,
	TB_CHUNK_BAD				/* damaged: the nodes in it are not known */
} TbChunkState;

/* One chunk of one stored array, decoded. refs: users; the cache keeps those without for a while.
 */
struct TbHsiChunk
{
	/* what it is */
	uint16_t	level;
	uint16_t	stored;			/* TbStored */
	int			array;			/* in the head */
	uint64_t	number;			/* C order over the level's chunks */

	TbChunkState state;
	TbArray    *zarr;			/* owned reference while loading */
	TbFetch    *fetch;			/* owned while loading */
	TbBox		box;			/* nodes of the level, clipped */
	TbValue    *value;			/* owned; C order over box */
	size_t		bytes;

	/* the cache's */
	int			refs;
	TbHsiChunk *next;			/* in its hash bucket */
	TbHsiChunk *newer;			/* unused ones, in order of last use */
	TbHsiChunk *older;
};

struct TbHsi
{
	int			refs;
	TbSource   *where;			/* owned reference */
	TbGrid	   *grid;			/* owned reference */
	char		key[TB_HSI_KEY_BYTES];
	TbFind	   *find;			/* owned; NULL once the head is here */
	TbStatus	status;			/* AGAIN until the head is here */
	TbError		error;
	TbHead	   *head;			/* owned; NULL: there is none that fits */
	int		   *map;			/* owned; per array of the grid: in the head, -1 */
	char		root[TB_HSI_KEY_BYTES];
	uint64_t trusted[TB_MAX_DIM]; /* blocks along each axis that are as they were when described */
	TbGeometry	view;			/* the head's cutting over the grid as it is today */
	char		damage[256];	/* first damage found; "" */

	TbHsiChunk **bucket;		/* owned */
	size_t		n_buckets;
	size_t		n_chunks;
	size_t		bytes;			/* of values in memory */
	TbHsiChunk *newest;			/* unused ones */
	TbHsiChunk *oldest;

	TbCoordTable *coord;		/* owned; per coordinate of the grid, made when first needed */
};

/* Find or make a chunk; holds a reference. NULL: no memory. Needs a head. */
extern TbHsiChunk *tb_hsi_chunk_get(TbHsi *hsi, int level, int array, TbStored stored,
									uint64_t number);
/* The same only where it is in memory and ready; holds a reference. */
extern TbHsiChunk *tb_chunk_peek(TbHsi *hsi, int level, int array, TbStored stored,
								 uint64_t number);
/*
 * AGAIN, then OK in state READY or BAD. Damage is no error here: it is noted in hsi->damage and the
 * chunk is BAD. errors: those of the store that say nothing about the index (lost, denied, no
 * memory...).
 */
extern TbStatus tb_chunk_poll(TbHsi *hsi, TbHsiChunk *chunk, TbIndexCost *cost,
							  TbError *err) TB_MUST_CHECK;
extern void tb_chunk_release(TbHsi *hsi, TbHsiChunk *chunk);
extern void tb_chunk_free_all(TbHsi *hsi);

/* Whether an error is about the index's bytes (then its blocks count as unindexed) and not about
 * reaching them. */
extern bool tb_index_is_damage(TbStatus status);

/* Level-0 statistics of a block are to be had and still true. */
extern bool tb_hsi_covers(const TbHsi *hsi, const uint64_t *block_index);

#endif
