/* Private to the room: walking the index over one slab of blocks. */
#ifndef TB_HSI_WALK_H
#define TB_HSI_WALK_H

#include "hsi/prune.h"

#define TB_SLAB_BLOCKS ((uint64_t) 1 << 18)
#define TB_WALK_AHEAD 8			/* bundles loaded ahead of the one that is judged */

/* A node that may match: its chunk among those of the slab at this level, its place in a whole
 * chunk. */
typedef struct TbCandidate
{
	uint32_t	chunk;
	uint32_t	slot;
} TbCandidate;

typedef struct TbSlabLevel
{
	uint64_t
		lo[TB_MAX_DIM]; /* nodes that hold blocks of the slab: first and last along each axis */
	uint64_t	hi[TB_MAX_DIM];
	uint64_t	chunk_lo[TB_MAX_DIM];
	uint64_t	n_chunks[TB_MAX_DIM];
} TbSlabLevel;

typedef struct TbWalk
{
	TbProbe    *probe;			/* borrowed */
	TbScanCounters *counters;	/* borrowed */

	/* the slab: a box of blocks whose numbers are first_block and the n_blocks - 1 after it */
	TbBox		slab;
	uint64_t	first_block;
	uint64_t	n_blocks;
	TbSlabLevel level_of[TB_HSI_LEVELS];
	uint64_t   *hit;			/* owned; bit per block: matches, statistics in the index */
	uint64_t   *open;			/* owned; bit per block: may match, statistics not known */
	uint64_t	cap_blocks;

	/* where the walk is */
	int			level;			/* -1: done */
	bool		prepared;		/* candidates of the level are filtered and sorted */
	TbCandidate *candidate;		/* owned */
	TbCandidate *next;			/* owned; of the level below */
	size_t		n;
	size_t		n_next;
	size_t		at;				/* next candidate to judge */
	size_t		ahead;			/* next candidate to load for */
	TbBundle	ring[TB_WALK_AHEAD];
	int			ring_first;
	int			ring_n;
	const TbNeeds *ring_needs;
} TbWalk;

extern void tb_walk_init(TbWalk *walk, TbProbe *probe, TbScanCounters *counters);
extern void tb_walk_clear(TbWalk *walk);
/* Turn to a slab: a box, contiguous in block numbers, of at most TB_SLAB_BLOCKS. errors: NOMEM. */
extern TbStatus tb_walk_begin(TbWalk *walk, const TbBox *slab, TbError *err) TB_MUST_CHECK;
/* AGAIN, then OK with hit and open filled. errors: the store's. */
extern TbStatus tb_walk_run(TbWalk *walk, TbError *err) TB_MUST_CHECK;

static inline bool
tb_bit(const uint64_t *bits, uint64_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

#endif
