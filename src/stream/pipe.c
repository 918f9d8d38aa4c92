/*
 * Batches in the making. A batch takes a free slot, or a place ahead of them, and makes an item of
 * each sample of each tensor column; items are started in order as the hub's budget allows, decoded
 * by the pool straight to their place in the ring, and the batch is ready when its last item is back.
 * Batches are handed out in order, whichever is ready first.
 */
#include "stream/pipe.h"

#include <inttypes.h>
#include <string.h>

#define ITEMS_UNDER_WAY 160		/* a store 100 ms away fills a wire with as many */

/* Places for batches ahead of the ring: none where the ring alone has items enough. */
static uint32_t
places_ahead(uint32_t n_slots, size_t n_items)
{
	size_t		batches = n_items > 0 ? (ITEMS_UNDER_WAY + n_items - 1) / n_items : 0;

	return batches > n_slots ? (uint32_t) (batches - n_slots) : 0;
}

/* Works with items for a whole batch each; made once. errors: LIMIT, NOMEM. */
TbStatus
tb_pipe_init(TbStream *stream, TbError *err)
{
	size_t		n_items;

	if (!tb_mul_size(stream->spec.batch_size, (size_t) stream->n_tensors, &n_items) || n_items > UINT32_MAX)
		return tb_fail(err, TB_E_LIMIT, "batch has too many tensors");
	stream->n_work = stream->ring.n_slots + places_ahead(stream->ring.n_slots, n_items);
	stream->work = tb_calloc(stream->n_work, sizeof(*stream->work));
	if (stream->work == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (uint32_t i = 0; i < stream->n_work; i++)
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
	for (uint32_t i = 0; stream->work != NULL && i < stream->n_work; i++)
	{
		tb_free(stream->work[i].rows);
		tb_free(stream->work[i].items);
		tb_free(stream->work[i].error);
	}
	tb_free(stream->work);
	tb_free(stream->refused);
	stream->work = NULL;
	stream->refused = NULL;
}

/* ---- the end of an item ---- */

static void
take_ticket(TbItem *item, uint64_t bytes, bool ahead)
{
	TbHub	   *hub = item->stream->hub;

	item->ticket = bytes;
	item->ahead = ahead;
	*(ahead ? &hub->ahead_bytes : &hub->work_bytes) += bytes;
	hub->work_items += !ahead;
}

static void
give_ticket(TbItem *item)
{
	TbHub	   *hub = item->stream->hub;

	*(item->ahead ? &hub->ahead_bytes : &hub->work_bytes) -= item->ticket;
	hub->work_items -= !item->ahead;
}

/* The item's fetch has ended or is given up: the budget has its bytes back. */
static void
drop_fetch(TbItem *item)
{
	tb_fetch_free(item->fetch);
	item->fetch = NULL;
	item->state = TB_ITEM_DONE;
	give_ticket(item);
	tb_hub_schedule(item->stream->hub);
}

/* Keep the error of a batch; batches from it on come to nothing. */
static void
item_failed(TbItem *item, const TbError *error)
{
	TbStream   *stream = item->stream;
	TbWork	   *work = &stream->work[item->slot];
	uint64_t	batch = work->batch;
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
	tb_hub_schedule(stream->hub);	/* without a slot the error would not be found */
}

/*
 * Whether an item that failed is to be started again once the stream has other credentials: they were refused,
 * and there have been none yet that brought nothing. renewal: whose credentials it was begun with.
 */
static bool
is_renewable(TbStream *stream, const TbError *error, uint32_t renewal)
{
	if (error->code != TB_E_AUTH)
		return false;
	if (renewal < stream->renewals || stream->refused != NULL)
		return true;
	if (stream->renewals > 0 && !stream->accepted)
		return false;
	stream->refused = tb_malloc(sizeof(*stream->refused));
	if (stream->refused == NULL)
		return false;
	*stream->refused = *error;
	tb_stream_tell(stream);
	return true;
}

/* Have an item whose fetch is gone started again. */
static void
start_again(TbItem *item)
{
	TbWork	   *work = &item->stream->work[item->slot];
	uint32_t	at = (uint32_t) (item - work->items);

	item->state = TB_ITEM_IDLE;
	if (at < work->next_item)
		work->next_item = at;
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

static void fetch_ready(void *arg);

/* Back from the decode thread. */
static void
run_back(TbTask *task)
{
	TbItem	   *item = (TbItem *) ((char *) task - offsetof(TbItem, back));
	TbStream   *stream = item->stream;
	TbError    *error = item->error;
	TbError		no_words;

	item->error = NULL;
	stream->decoding--;
	if (item->status == TB_E_CORRUPT && !stream->closing && tb_fetch_again(item->fetch))
	{
		tb_free(error);
		item->state = TB_ITEM_FETCHING;
		stream->work[item->slot].fetching++;
		tb_fetch_on_ready(item->fetch, fetch_ready, item);
		return;
	}
	drop_fetch(item);
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

/* Hand an item whose bytes are here and whose place is known to the decoders. */
static void
start_decode(TbItem *item)
{
	TbStream   *stream = item->stream;

	item->state = TB_ITEM_DECODING;
	item->decode.run = run_decode;
	item->back.run = run_back;
	stream->decoding++;
	tb_pool_submit(stream->hub->pool, &item->decode);
}

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
		if (is_renewable(stream, &err, item->renewal))
			start_again(item);
		else
			item_failed(item, &err);
		return;
	}
	stream->accepted |= item->renewal == stream->renewals;
	/* what the next one of this column will take, so that the budget fits compressed data too */
	tensor->guess = (3 * tensor->guess + tb_fetch_bytes(item->fetch)) / 4 + 1;
	if (item->target != NULL)
	{
		start_decode(item);
		return;
	}
	item->state = TB_ITEM_FETCHED;
	give_ticket(item);
	take_ticket(item, tb_fetch_bytes(item->fetch), true);
	tb_hub_schedule(stream->hub);
}

/* Fetch the sample of an item whose array is open. */
static void
start_fetch(TbStream *stream, TbItem *item, const TbDatasetCell *cell)
{
	const TbStreamColumn *tensor = &stream->tensors[item->tensor];
	const TbDatasetColumn *columns;
	TbArray    *array = stream->arrays[cell->array].array;
	TbRegion	region;
	TbStatus	status;
	TbError		err;

	(void) tb_dataset_columns(stream->dataset, &columns);
	region.ndim = columns[tensor->column].ndim;
	memcpy(region.start, cell->start, sizeof(region.start));
	memcpy(region.count, columns[tensor->column].shape, sizeof(region.count));
	status = item->target == NULL ? tb_fetch_open(array, &region, &item->fetch, &err) :
		tb_fetch_open_into(array, &region, columns[tensor->column].treatment, item->target, &item->fetch, &err);
	if (status != TB_OK)
	{
		item->state = TB_ITEM_DONE;
		item_failed(item, &err);
		return;
	}
	item->state = TB_ITEM_FETCHING;
	item->renewal = stream->renewals;
	take_ticket(item, tensor->guess, item->target == NULL);
	stream->work[item->slot].fetching++;
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

	if (item->state != TB_ITEM_IDLE)
	{
		work->next_item++;		/* one before it was started again */
		return true;
	}
	tb_dataset_row(stream->dataset, work->rows[item->row], stream->cells);
	cell = &stream->cells[stream->tensors[item->tensor].column];
	array = &stream->arrays[cell->array];
	tb_stream_want_array(stream, cell->array);
	if (array->phase == TB_ARRAY_OPENING)
		return false;
	if (array->phase == TB_ARRAY_FAILED && array->error != NULL && is_renewable(stream, array->error, stream->renewals))
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

static uint8_t *
target_of(const TbStream *stream, const TbItem *item)
{
	return stream->ring.mem.host + tb_ring_offset(&stream->ring, item->slot, item->tensor, item->row);
}

/* Begin the next batch in a slot, or in a place ahead: its rows, its items, and the arrays it will need. */
static void
begin_batch(TbStream *stream, uint32_t slot)
{
	TbWork	   *work = &stream->work[slot];
	bool		ahead = slot >= stream->ring.n_slots;
	uint32_t	n = 0;

	work->batch = stream->begun;
	work->waits = ahead;

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
			item->target = ahead ? NULL : target_of(stream, item);
			tb_stream_want_array(stream, stream->cells[stream->tensors[t].column].array);
		}
	}
	work->n_items = n;
	work->pending = n;
	work->next_item = 0;
	work->fetching = 0;
	stream->begun++;
	if (n == 0 && !ahead)
	{
		tb_ring_ready(&stream->ring, slot);
		tb_stream_tell(stream);
	}
	if (stream->begun == stream->batches)
		tb_stream_set_phase(stream, TB_PHASE_DRAINING);
}

static bool
is_working(const TbStream *stream, uint32_t i)
{
	return i < stream->ring.n_slots ? stream->ring.slots[i].state == TB_RING_WORKING : stream->work[i].waits;
}

/* The work with the earliest batch that has items to start and room for them, or -1. */
static int
startable(const TbStream *stream)
{
	int			found = -1;

	for (uint32_t i = 0; i < stream->n_work; i++)
	{
		const TbWork *work = &stream->work[i];

		if (is_working(stream, i) && work->batch < stream->stop && work->next_item < work->n_items &&
			(found < 0 || work->batch < stream->work[found].batch))
			found = (int) i;
	}
	if (found >= 0 && !tb_hub_has_room(stream->hub, (uint32_t) found >= stream->ring.n_slots))
		return -1;
	return found;
}

/* The work with the earliest batch that waits for a slot, or -1. */
static int
first_waiting(const TbStream *stream)
{
	int			found = -1;

	for (uint32_t i = stream->ring.n_slots; i < stream->n_work; i++)
		if (stream->work[i].waits && stream->work[i].batch <= stream->stop &&
			(found < 0 || stream->work[i].batch < stream->work[found].batch))
			found = (int) i;
	return found;
}

/* A slot's items may be decoded: those whose bytes are here, at once. */
static void
give_places(TbStream *stream, uint32_t slot)
{
	TbWork	   *work = &stream->work[slot];

	for (uint32_t n = 0; n < work->n_items; n++)
	{
		TbItem	   *item = &work->items[n];

		item->slot = slot;
		item->target = target_of(stream, item);
		if (item->state != TB_ITEM_FETCHING && item->state != TB_ITEM_FETCHED)
			continue;
		give_ticket(item);
		take_ticket(item, item->ticket, false);
		if (item->state == TB_ITEM_FETCHED)
			start_decode(item);
	}
	if (work->n_items == 0)
	{
		tb_ring_ready(&stream->ring, slot);
		tb_stream_tell(stream);
	}
}

/* Give free slots to batches that were fetched ahead, in order. */
static void
fill_slots(TbStream *stream)
{
	int			from;
	int			slot;

	while ((from = first_waiting(stream)) >= 0)
	{
		TbWork		moved = stream->work[from];

		tb_stream_account(stream);
		slot = tb_ring_begin(&stream->ring, moved.batch);
		if (slot < 0)
			return;
		stream->work[from] = stream->work[slot];
		stream->work[from].waits = false;
		moved.waits = false;
		stream->work[slot] = moved;
		if (moved.error != NULL)
			tb_stream_tell(stream);
		give_places(stream, (uint32_t) slot);
	}
}

/* A free place for a batch ahead of the ring, or -1. */
static int
free_place(const TbStream *stream)
{
	if (tb_hub_has_room(stream->hub, true))
		for (uint32_t i = stream->ring.n_slots; i < stream->n_work; i++)
			if (!stream->work[i].waits)
				return (int) i;
	return -1;
}

bool
tb_pipe_start_one(TbStream *stream)
{
	int			slot;

	if (stream->phase != TB_PHASE_RUNNING && stream->phase != TB_PHASE_DRAINING)
		return false;
	fill_slots(stream);
	if (stream->refused != NULL)
		return false;
	slot = startable(stream);
	if (slot >= 0)
		return start_item(stream, &stream->work[slot]);
	if (stream->begun >= stream->batches || stream->begun >= stream->stop)
		return false;
	tb_stream_account(stream);
	slot = tb_ring_begin(&stream->ring, stream->begun);
	if (slot < 0)
		slot = free_place(stream);
	if (slot < 0)
		return false;
	begin_batch(stream, (uint32_t) slot);
	return true;
}

void
tb_pipe_cancel(TbStream *stream, uint64_t first)
{
	for (uint32_t i = 0; stream->work != NULL && i < stream->n_work; i++)
	{
		TbWork	   *work = &stream->work[i];

		if (!is_working(stream, i) || work->batch < first)
			continue;
		for (uint32_t n = 0; n < work->next_item; n++)
			if (work->items[n].state == TB_ITEM_FETCHING || work->items[n].state == TB_ITEM_FETCHED)
			{
				work->fetching -= work->items[n].state == TB_ITEM_FETCHING;
				drop_fetch(&work->items[n]);
			}
	}
}
