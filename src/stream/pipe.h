/*
 * The stages of a stream: ticket -> fetch -> decode into the slot -> ready. Each sample of each
 * tensor column is an item that passes through them. An item belongs to the loop's thread except
 * between tb_pool_submit and the task it posts back, when it belongs to the decode thread.
 *
 * A far store needs more requests under way than a ring has samples. So batches beyond the ring are
 * fetched too, in places of work that have no slot: their encoded bytes wait until a slot is free, and are
 * then decoded.
 */
#ifndef TB_STREAM_PIPE_H
#define TB_STREAM_PIPE_H

#include "stream/session.h"

typedef enum TbItemState
{
	TB_ITEM_IDLE, TB_ITEM_FETCHING, TB_ITEM_FETCHED, TB_ITEM_DECODING, TB_ITEM_DONE
} TbItemState;

struct TbItem
{
	TbTask		decode;			/* run by the pool */
	TbTask		back;			/* posted to the loop */
	TbStream   *stream;			/* borrowed */
	TbFetch    *fetch;			/* owned from FETCHING to DECODING */
	uint8_t    *target;			/* in the ring; NULL while its work has no slot */
	TbError    *error;			/* owned; what failed it */
	uint64_t	ticket;			/* bytes of the work budget it has */
	bool		ahead;			/* of the part of the budget for what has no slot */
	uint32_t	slot;			/* of the stream's work */
	uint32_t	row;			/* in the batch */
	int			tensor;			/* index in stream->tensors */
	TbItemState state;
	uint32_t	renewal;		/* of the stream's, whose credentials its fetch was begun with */
	TbStatus	status;			/* of decoding */
};

extern TbStatus tb_pipe_init(TbStream *stream, TbError *err) TB_MUST_CHECK;
/* Start one fetch, beginning a batch where it needs one; false: nothing can be started now. */
extern bool tb_pipe_start_one(TbStream *stream);
/* Cancel fetches of batches from `first` on; items with decode threads go on. */
extern void tb_pipe_cancel(TbStream *stream, uint64_t first);
extern void tb_pipe_free(TbStream *stream);

#endif
