/*
 * Batches in the making. A batch takes a free slot and makes an item of each sample of each tensor
 * column; items are started in order as the hub's budget allows, decoded by the pool straight to
 * their place in the ring, and the batch is ready when its last item is back. Batches are handed
 * out in order, whichever is ready first.
 */
#include "stream/pipe.h"

#include <inttypes.h>
#include <string.h>

/* One work a slot, with items for a whole batch; made once. errors: LIMIT, NOMEM. */
TbStatus
tb_pipe_init(TbStream *stream, TbError *err)
{
	size_t		n_items;

	stream->work = tb_calloc(stream->ring.n_slots, sizeof(*stream->work));
	if (stream->work == NULL || !tb_mul_size(stream->spec.batch_size, (size_t) stream->n_tensors,
											 &n_items))
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (n_items > UINT32_MAX)
		return tb_fail(err, TB_E_LIMIT, "batch has too many tensors");
	for (uint32_t i = 0; i < stream->ring.n_slots; i++)
	{
		stream->work[i].rows = tb_calloc(stream->spec.batch_size, sizeof(*stream->work[i].rows));
		stream->work[i].items = tb_calloc(n_items, sizeof(TbItem));
		if (stream->work[i].rows == NULL || stream->work[i].items == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	return TB_OK;
}

void
tb_pipe_free(TbStream *stream)
{
	for (uint32_t i = 0; stream->work != NULL && i < stream->ring.n_slots; i++)
	{
		tb_free(stream->work[i].rows);
		tb_free(stream->work[i].items);
		tb_free(stream->work[i].error);
	}
	tb_free(stream->work);
	stream->work = NULL;
}

/* ---- the end of an item ---- */

/* The item's fetch has ended or is given up: the budget has its bytes back. */
static void
drop_fetch(TbItem *item)
{
	TbHub	   *hub = item->stream->hub;

	tb_fetch_free(item->fetch);
	item->fetch = NULL;
	item->state = TB_ITEM_DONE;
	hub->work_bytes -= item->ticket;
	hub->work_items--;
	tb_hub_schedule(hub);
}

/* Keep the error of a batch; batches from it on come to nothing. */
static void
item_failed(TbItem *item, const TbError *error)
{
	TbStream   *stream = item->stream;
	TbWork	   *work = &stream->work[item->slot];
	uint64_t	batch = stream->ring.slots[item->slot].batch;
	const TbDatasetColumn *columns;

	if (work->error != NULL || batch >= stream->stop)
		return;
	work->error = tb_malloc(sizeof(*work->error));
	if (work->error == NULL)
	{
		/* no memory even for the words: the stream ends here and now */
		TbError		plain;

		tb_fail(&plain, TB_E_NOMEM, "out of memory");
		tb_stream_fail(stream, &plain);
		return;
	}
	(void) tb_dataset_columns(stream->dataset, &columns);
	*work->error = *error;
	tb_error_detail(work->error, "dataset position %" PRIu64 ", column \"%.80s\", batch %" PRIu64,
					work->rows[item->row], columns[stream->tensors[item->tensor].column].name, batch);
	stream->stop = batch;
	tb_pipe_cancel(stream, batch);
	tb_stream_tell(stream);
}

/* One item less; the last makes the batch ready. */
static void
item_finished(TbItem *item)
{
	TbStream   *stream = item->stream;
	TbWork	   *work = &stream->work[item->slot];

	if (--work->pending > 0 || work->error != NULL)
		return;
	tb_stream_account(stream);
	tb_ring_ready(&stream->ring, item->slot);
	if (stream->ring.slots[item->slot].batch == stream->done)
		tb_stream_tell(stream);
}

/* Back from the decode thread. */
static void
run_back(TbTask *task)
{
	TbItem	   *item = (TbItem *) ((char *) task - offsetof(TbItem, back));
	TbStream   *stream = item->stream;
	TbError    *error = item->error;
	TbError		no_words;

	item->error = NULL;
	drop_fetch(item);
	stream->decoding--;
	if (stream->closing)
	{
		tb_free(error);
		if (stream->decoding == 0)
			tb_stream_destroy(stream);
		return;
	}
	if (item->status == TB_OK)
		item_finished(item);
	else
	{
		if (error == NULL)
			tb_fail(&no_words, item->status, "cannot decode a sample");
		item_failed(item, error != NULL ? error : &no_words);
	}
	tb_free(error);
}

/*
 * thread: a decode thread. What it reads of the stream is fixed while anything is with a decode
 * thread.
 */
static void
run_decode(TbTask *task)
{
	TbItem	   *item = (TbItem *) ((char *) task - offsetof(TbItem, decode));
	const TbStream *stream = item->stream;
	const TbStreamColumn *tensor = &stream->tensors[item->tensor];
	const TbDatasetColumn *columns;
	TbError		err;

	(void) tb_dataset_columns(stream->dataset, &columns);
	item->status = tb_fetch_decode(item->fetch, columns[tensor->column].treatment, item->target,
								   tensor->sample_bytes,
								   &err);
	if (item->status != TB_OK)
	{
		item->error = tb_malloc(sizeof(*item->error));
		if (item->error != NULL)
			*item->error = err;
	}
	tb_loop_post(stream->hub->loop, &item->back);
}

/* ---- the beginning of an item ---- */

/* The encoded bytes are here, or will not come. */
static void
fetch_ready(void *arg)
{
	TbItem	   *item = arg;
	TbStream   *stream = item->stream;
	TbStreamColumn *tensor = &stream->tensors[item->tensor];
	TbError		err;
	TbStatus	status = tb_fetch_poll(item->fetch, &err);

	if (status == TB_AGAIN)
		return;
	tb_stream_account(stream);
	stream->work[item->slot].fetching--;
	if (status != TB_OK)
	{
		drop_fetch(item);
		item_failed(item, &err);
		return;
	}
	/* what the next one of this column will take, so that the budget fits compressed data too */
	tensor->guess = (3 * tensor->guess + tb_fetch_bytes(item->fetch)) / 4 + 1;
	item->state = TB_ITEM_DECODING;
	item->decode.run = run_decode;
	item->back.run = run_back;
	stream->decoding++;
	tb_pool_submit(stream->hub->pool, &item->decode);
}

/* Fetch the sample of an item whose array is open. */
static void
start_fetch(TbStream *stream, TbItem *item, const TbDatasetCell *cell)
{
	const TbStreamColumn *tensor = &stream->tensors[item->tensor];
	const TbDatasetColumn *columns;
	TbRegion	region;
	TbError		err;

	(void) tb_dataset_columns(stream->dataset, &columns);
	region.ndim = columns[tensor->column].ndim;
	memcpy(region.start, cell->start, sizeof(region.start));
	memcpy(region.count, columns[tensor->column].shape, sizeof(region.count));
	if (tb_fetch_open_into(stream->arrays[cell->array].array, &region, columns[tensor->column].treatment, item->target,
						   &item->fetch, &err) != TB_OK)
	{
		item->state = TB_ITEM_DONE;
		item_failed(item, &err);
		return;
	}
	item->state = TB_ITEM_FETCHING;
	item->ticket = tensor->guess;
	stream->work[item->slot].fetching++;
	stream->hub->work_bytes += item->ticket;
	stream->hub->work_items++;
	tb_fetch_on_ready(item->fetch, fetch_ready, item);
}

/* Start the next item of a work; false while its array is being opened. */
static bool
start_item(TbStream *stream, TbWork *work)
{
	TbItem	   *item = &work->items[work->next_item];
	const TbDatasetCell *cell;
	const TbStreamArray *array;
	TbError		no_words;

	tb_dataset_row(stream->dataset, work->rows[item->row], stream->cells);
	cell = &stream->cells[stream->tensors[item->tensor].column];
	array = &stream->arrays[cell->array];
	tb_stream_want_array(stream, cell->array);
	if (array->phase == TB_ARRAY_OPENING)
		return false;
	work->next_item++;
	if (array->phase == TB_ARRAY_READY)
	{
		start_fetch(stream, item, cell);
		return true;
	}
	item->state = TB_ITEM_DONE;
	if (array->error == NULL)
		tb_fail(&no_words, TB_E_NOMEM, "out of memory");
	item_failed(item, array->error != NULL ? array->error : &no_words);
	return true;
}

/* Begin the next batch in a slot: its rows, its items, and the arrays it will need. */
static void
begin_batch(TbStream *stream, uint32_t slot)
{
	TbWork	   *work = &stream->work[slot];
	uint32_t	n = 0;

	work->samples = tb_deal_batch(&stream->deal, tb_stream_number(stream, stream->begun), work->rows, &work->padded);
	for (uint32_t row = 0; row < work->samples; row++)
	{
		work->rows[row] = tb_order_at(&stream->order, work->rows[row]);
		tb_dataset_row(stream->dataset, work->rows[row], stream->cells);
		for (int t = 0; t < stream->n_tensors; t++)
		{
			TbItem	   *item = &work->items[n++];

			memset(item, 0, sizeof(*item));
			item->stream = stream;
			item->slot = slot;
			item->row = row;
			item->tensor = t;
			item->target = stream->ring.mem.host + tb_ring_offset(&stream->ring, slot, t, row);
			tb_stream_want_array(stream, stream->cells[stream->tensors[t].column].array);
		}
	}
	work->n_items = n;
	work->pending = n;
	work->next_item = 0;
	work->fetching = 0;
	stream->begun++;
	if (n == 0)
	{
		tb_ring_ready(&stream->ring, slot);
		tb_stream_tell(stream);
	}
	if (stream->begun == stream->batches)
		tb_stream_set_phase(stream, TB_PHASE_DRAINING);
}

/* Slot with the earliest batch that has items to start, or -1. */
static int
startable(const TbStream *stream)
{
	int			found = -1;

	for (uint32_t i = 0; i < stream->ring.n_slots; i++)
	{
		const TbRingSlot *slot = &stream->ring.slots[i];

		if (slot->state == TB_RING_WORKING && slot->batch < stream->stop &&
			stream->work[i].next_item < stream->work[i].n_items &&
			(found < 0 || slot->batch < stream->ring.slots[found].batch))
			found = (int) i;
	}
	return found;
}

bool
tb_pipe_start_one(TbStream *stream)
{
	int			slot;

	if (stream->phase != TB_PHASE_RUNNING && stream->phase != TB_PHASE_DRAINING)
		return false;
	slot = startable(stream);
	if (slot >= 0)
		return start_item(stream, &stream->work[slot]);
	if (stream->begun >= stream->batches || stream->begun >= stream->stop)
		return false;
	tb_stream_account(stream);
	slot = tb_ring_begin(&stream->ring, stream->begun);
	if (slot < 0)
		return false;
	begin_batch(stream, (uint32_t) slot);
	return true;
}

void
tb_pipe_cancel(TbStream *stream, uint64_t first)
{
	for (uint32_t i = 0; stream->work != NULL && i < stream->ring.n_slots; i++)
	{
		TbWork	   *work = &stream->work[i];

		if (stream->ring.slots[i].state != TB_RING_WORKING || stream->ring.slots[i].batch < first)
			continue;
		for (uint32_t n = 0; n < work->next_item && work->fetching > 0; n++)
			if (work->items[n].state == TB_ITEM_FETCHING)
			{
				work->fetching--;
				drop_fetch(&work->items[n]);
			}
	}
}
