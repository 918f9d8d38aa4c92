/* Private to the room: a scan's state, shared by scan.c (slabs, rows), compute.c and the limit
 * check. */
#ifndef TB_HSI_SCAN_H
#define TB_HSI_SCAN_H

#include "hsi/walk.h"

#define TB_SCAN_JOBS 8			/* blocks computed ahead of the row that is wanted */
#define TB_SCAN_ROW_BUNDLES 16	/* places of the index whose statistics are held for rows */

typedef struct TbScanJob
{
	TbLeafJob  *job;			/* owned; NULL: free */
	uint64_t	block;
} TbScanJob;

struct TbScan
{
	TbProbe		probe;
	TbUnindexed unindexed;
	uint64_t	limit_bytes;
	bool		descending;
	TbScanCounters counters;
	char		warning[320];

	/* a pause for the host after many blocks without a row */
	TbTask		pause;
	bool		pausing;

	/* slabs */
	bool		checked;		/* the limit on computing was looked at */
	uint64_t	done_blocks;	/* in the order of the scan */
	uint64_t	end_blocks;		/* where the run ends */
	uint64_t	slab_blocks;	/* wanted size of the next one */
	TbWalk		walk;
	bool		walking;

	/* rows of the slab */
	bool		emitting;
	uint64_t	cursor;			/* blocks of the slab gone through, in the order of the scan */
	TbBundle	row_bundle[TB_SCAN_ROW_BUNDLES];
	uint64_t	row_used[TB_SCAN_ROW_BUNDLES];	/* when last used */
	uint64_t	row_clock;
	int			row_now;		/* where the row in hand has its statistics: not closed for rows after it */

	/* computing */
	TbScanJob	job[TB_SCAN_JOBS + 1];	/* the last one is kept for the row that is wanted */
	uint64_t scheduled; /* blocks of the slab looked at for jobs, in the order of the scan */
	int		   *needed;			/* owned; arrays that are computed */
	int			n_needed;
	uint64_t	element_bytes;	/* of one element of each of them */
	uint64_t	open_bytes;		/* computed so far */

	/* the row */
	TbLeaf	   *leaf;			/* owned; per array of the grid */
	TbLeaf	   *computed;		/* owned; per needed array */
	bool	   *known;			/* owned */
	TbBlockRow	row;
};

/* Block at a place of the slab, counted in the order of the scan. */
static inline uint64_t
tb_scan_place(const TbScan *scan, uint64_t i)
{
	return scan->descending ? scan->walk.n_blocks - 1 - i : i;
}

/* Decoded bytes of the needed arrays in blocks whose statistics are not known and that coordinates
 * leave; counts no further once over the limit. */
extern uint64_t tb_scan_open_bytes(const TbProbe *probe, uint64_t element_bytes, uint64_t limit);
extern TbStatus tb_scan_over_limit(const TbScan *scan, uint64_t bytes, TbError *err);

/* The row's statistics by reading the block. AGAIN, OK: scan->leaf and known are set. */
extern TbStatus tb_scan_compute(TbScan *scan, uint64_t block, TbError *err) TB_MUST_CHECK;
extern void tb_scan_drop_jobs(TbScan *scan);

#endif
