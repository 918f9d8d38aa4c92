/* The ring of one stream: memory cut into slots of one batch each, and who has which. */
#ifndef TB_STREAM_RING_H
#define TB_STREAM_RING_H

#include "dev/dev.h"
#include "stream/stream.h"

#define TB_RING_MAX_SLOTS 1024

typedef enum TbRingState
{
	TB_RING_FREE,
	TB_RING_WORKING,			/* being filled */
	TB_RING_READY,
	TB_RING_HELD				/* the client has it */
} TbRingState;

typedef struct TbRingSlot
{
	TbRingState state;
	uint64_t	batch;
	uint64_t	generation;		/* of the batch in it: no two batches of a stream's slot share one */
} TbRingSlot;

/* One tensor column in a slot: batch_size samples one after another. */
typedef struct TbRingColumn
{
	size_t		sample_bytes;
	size_t		offset;			/* in the slot; a multiple of 64 */
} TbRingColumn;

typedef struct TbRing
{
	TbDevMem	mem;
	size_t		slot_bytes;		/* a multiple of the page size */
	uint32_t	n_slots;
	uint32_t	n_held;
	TbRingSlot	   *slots;			/* owned */
	TbRingColumn *columns;		/* owned */
	int			n_columns;
} TbRing;

/* Work out the layout; memory comes by tb_ring_open. errors: LIMIT (sizes overflow), NOMEM. */
extern TbStatus tb_ring_init(TbRing *ring, const size_t *sample_bytes, int n_columns,
							 uint32_t batch_size,
							 uint32_t n_slots, TbError *err) TB_MUST_CHECK;
extern size_t tb_ring_bytes(const TbRing *ring);
extern TbStatus tb_ring_open(TbRing *ring, const char *device, TbError *err) TB_MUST_CHECK;
extern void tb_ring_free(TbRing *ring); /* contents */

/* Take a free slot for a batch: its number, -1 where there is none. */
extern int	tb_ring_begin(TbRing *ring, uint64_t batch);
extern int	tb_ring_find(const TbRing *ring, uint64_t batch);	/* slot of a batch not yet handed out, or -1 */
extern void tb_ring_ready(TbRing *ring, uint32_t slot);
extern void tb_ring_hand_out(TbRing *ring, uint32_t slot);
extern bool tb_ring_holds(const TbRing *ring, uint32_t slot, uint64_t generation);
/* false: not handed out, or not any more */
extern bool tb_ring_release(TbRing *ring, uint32_t slot, uint64_t generation);
extern uint64_t tb_ring_offset(const TbRing *ring, uint32_t slot, int column, uint32_t row);
extern uint32_t tb_ring_count(const TbRing *ring, TbRingState state);

#endif
