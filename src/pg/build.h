/* Building an index: what the leader tells its workers through the shared segment of a part. */
#ifndef TBPG_BUILD_H
#define TBPG_BUILD_H

#include "postgres.h"

#include "access/htup_details.h"
#include "port/atomics.h"

#include "pg/tbpg.h"

/* Blocks that share chunks form a unit, and a worker takes whole units, so that each chunk is read once. */
typedef struct TbpgBuildShared
{
	Oid			relid;
	Oid			user;
	int			n_arrays;
	int			array[MaxHeapAttributeNumber];	/* index in TbGridInfo.array */
	uint64		n_blocks;		/* of the part */
	uint64		n_units;
	pg_atomic_uint64 next_unit;
	pg_atomic_uint64 blocks_done;
	pg_atomic_uint64 bytes;
	/* followed by, each MAXALIGNed: uint64 block[n_blocks] in unit order, uint64 slot[n_blocks] (place in the part),
	 * uint64 unit_start[n_units + 1], TbBuilt built[n_blocks * n_arrays] */
} TbpgBuildShared;

extern Size tbpg_build_size(uint64 n_blocks, uint64 n_units, int n_arrays);
extern uint64 *tbpg_build_blocks(TbpgBuildShared *shared);
extern uint64 *tbpg_build_slots(TbpgBuildShared *shared);
extern uint64 *tbpg_build_unit_starts(TbpgBuildShared *shared);
extern TbBuilt *tbpg_build_results(TbpgBuildShared *shared);

/* Take units until there are none left; used by workers and the leader alike. */
extern void tbpg_build_work(TbpgBuildShared *shared, const TbpgTable *table);

/* Read a part with workers; results are in built[] (n_blocks * n_arrays), palloc'd by the caller. */
typedef struct TbpgPart
{
	uint64		n_blocks;
	const uint64 *block;		/* block numbers, in the part's order */
	TbBuilt    *built;
	uint64		bytes;			/* read */
} TbpgPart;
extern void tbpg_build_part(TbpgTable *table, const int *arrays, int n_arrays, int workers, TbpgPart *part);

#endif
