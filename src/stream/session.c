/*
 * A stream's life. Its phase changes in one function; what brings a change about is in open.c
 * (opening), pipe.c (batches) and here (the client's calls and the end).
 */
#include "stream/pipe.h"

#include <inttypes.h>
#include <string.h>

const char *
tb_phase_name(TbPhase phase)
{
	static const char *const names[] = {"idle", "opening", "running", "draining", "done", "failed"};

	return names[phase];
}

static void
run_tell(TbTask *task)
{
	TbStream   *stream = (TbStream *) ((char *) task - offsetof(TbStream, tell));

	stream->telling = false;
	if (stream->listener.changed != NULL)
		stream->listener.changed(stream->listener.arg);
}

void
tb_stream_tell(TbStream *stream)
{
	if (stream->telling || stream->closing)
		return;
	stream->telling = true;
	stream->tell.run = run_tell;
	tb_loop_defer(stream->hub->loop, &stream->tell);
}

/* The one place where a phase changes. */
void
tb_stream_set_phase(TbStream *stream, TbPhase phase)
{
	if (stream->phase == phase)
		return;
	tb_stream_account(stream);
	stream->phase = phase;
	if (phase == TB_PHASE_RUNNING)
		tb_hub_schedule(stream->hub);
	if (phase == TB_PHASE_FAILED)
		tb_pipe_cancel(stream, 0);
	tb_stream_tell(stream);
}

void
tb_stream_fail(TbStream *stream, const TbError *error)
{
	stream->error = *error;
	tb_stream_set_phase(stream, TB_PHASE_FAILED);
}

/*
 * Add the time since the last call to the share it belongs to. The consumer's share grows while a
 * batch is ready and nobody asks, the store's and the decoders' while somebody waits for the next
 * batch.
 */
void
tb_stream_account(TbStream *stream)
{
	int64_t		now = tb_now_ns();
	uint64_t	passed = (uint64_t) (now - stream->since_ns);
	int			slot;

	stream->since_ns = now;
	if (stream->phase != TB_PHASE_RUNNING && stream->phase != TB_PHASE_DRAINING)
		return;
	slot = tb_ring_find(&stream->ring, stream->done);
	if (!stream->waiting)
	{
		if (slot >= 0 && stream->ring.slots[slot].state == TB_RING_READY)
			stream->wait_consumer_ns += passed;
	}
	else if (slot >= 0 && stream->work[slot].fetching == 0 &&
			 stream->work[slot].next_item == stream->work[slot].n_items)
		stream->wait_decode_ns += passed;
	else
		stream->wait_store_ns += passed;
}

TbStatus
tb_stream_poll(TbStream *stream, TbError *err)
{
	if (stream->phase == TB_PHASE_IDLE || stream->phase == TB_PHASE_OPENING)
		return TB_AGAIN;
	if (stream->phase != TB_PHASE_FAILED)
		return TB_OK;
	if (err != NULL)
		*err = stream->error;
	return stream->error.code;
}

void
tb_stream_listen(TbStream *stream, TbListener listener)
{
	stream->listener = listener;
}

uint64_t
tb_stream_id(const TbStream *stream)
{
	return stream->id;
}

const char *
tb_stream_token(const TbStream *stream)
{
	return stream->token;
}

int
tb_stream_fd(const TbStream *stream)
{
	return stream->ring.mem.fd;
}

/* Number among the rank's batches of this stream's k-th one. */
uint64_t
tb_stream_number(const TbStream *stream, uint64_t k)
{
	return k * stream->spec.workers + stream->spec.worker;
}

/* What the batch in a slot is to the client. */
static TbStatus
describe_batch(TbStream *stream, uint32_t slot, TbBatch *batch)
{
	const TbRingSlot *ring_slot = &stream->ring.slots[slot];
	uint64_t	step = (uint64_t) stream->deal.batch_size * stream->deal.world_size;
	uint64_t	number = tb_stream_number(stream, ring_slot->batch);
	TbStreamState state = {
		.seed = stream->spec.seed, .epoch = stream->spec.epoch, .shuffle = stream->spec.shuffle,
		.batches = number + 1,
	};

	/* no overflow: the batch begins inside the dataset, and step has its rest to go */
	state.position = stream->deal.first + number * step;
	state.position = stream->deal.n - state.position < step ? stream->deal.n : state.position + step;
	memcpy(state.dataset, stream->dataset_hash, sizeof(state.dataset));
	batch->batch = number;
	batch->slot = slot;
	batch->generation = ring_slot->generation;
	batch->samples = stream->work[slot].samples;
	batch->padded = stream->work[slot].padded;
	return tb_state_print(&state, batch->state, sizeof(batch->state));
}

/* Hand out the batch in a slot, or fail with the error in it. */
static TbStatus
hand_out(TbStream *stream, uint32_t slot, TbBatch *batch, TbError *err)
{
	TbStatus	status;

	if (stream->work[slot].error != NULL)
	{
		tb_stream_fail(stream, stream->work[slot].error);
		*err = stream->error;
		return stream->error.code;
	}
	status = describe_batch(stream, slot, batch);
	if (status != TB_OK)
		return tb_fail(err, status, "state of a stream does not fit");
	tb_ring_hand_out(&stream->ring, slot);
	stream->done++;
	stream->waiting = false;
	if (stream->done == stream->batches)
		tb_stream_set_phase(stream, TB_PHASE_DONE);
	return TB_OK;
}

TbStatus
tb_stream_next(TbStream *stream, TbBatch *batch, bool *end, bool *busy, TbError *err)
{
	TbStatus	status = tb_stream_poll(stream, err);
	int			slot;

	*end = false;
	*busy = false;
	if (status != TB_OK)
		return status;
	tb_stream_account(stream);
	if (stream->done == stream->batches)
	{
		*end = true;
		return TB_OK;
	}
	slot = tb_ring_find(&stream->ring, stream->done);
	if (slot >= 0 && (stream->ring.slots[slot].state == TB_RING_READY ||
					  stream->work[slot].error != NULL))
		return hand_out(stream, (uint32_t) slot, batch, err);
	if (stream->ring.n_held == stream->ring.n_slots)
	{
		*busy = true;
		tb_fail(err, TB_E_STATE, "every slot of the stream is held by the client");
		tb_error_detail(err, "%" PRIu32 " slots", stream->ring.n_slots);
		tb_error_hint(err,
					  "Release a batch, copy what is kept, or open the stream with a larger prefetch.");
		return TB_E_STATE;
	}
	if (stream->refused != NULL)
	{
		*err = *stream->refused;
		return err->code;
	}
	stream->waiting = true;
	return TB_AGAIN;
}

TbStatus
tb_stream_release(TbStream *stream, uint32_t slot, uint64_t generation, TbError *err)
{
	tb_stream_account(stream);
	if (!tb_ring_release(&stream->ring, slot, generation))
		return tb_handle_fail(err);
	tb_hub_schedule(stream->hub);
	return TB_OK;
}

bool
tb_stream_wants_renewal(const TbStream *stream)
{
	return stream->refused != NULL;
}

/*
 * The arrays are opened anew with the new credentials when samples need them; fetches under way
 * keep theirs.
 */
TbStatus
tb_stream_renew(TbStream *stream, const TbSourceSpec *sources, int n_sources, TbError *err)
{
	TbSourceEntry **old = stream->sources;
	char	  **old_names = stream->servers;
	int			n_old = stream->n_sources;
	TbStatus	status;

	stream->sources = NULL;
	stream->servers = NULL;
	stream->n_sources = 0;
	status = tb_stream_take_sources(stream, sources, n_sources, err);
	if (status == TB_OK)
		tb_stream_drop_arrays(stream);
	else
	{
		tb_stream_drop_sources(stream);
		stream->sources = old;
		stream->servers = old_names;
		stream->n_sources = n_old;
		return status;
	}
	for (int i = 0; i < n_old; i++)
	{
		tb_sources_close(old[i]);
		tb_free(old_names[i]);
	}
	tb_free(old);
	tb_free(old_names);
	tb_free(stream->refused);
	stream->refused = NULL;
	stream->renewals++;
	stream->accepted = false;
	tb_hub_schedule(stream->hub);
	return TB_OK;
}

TbStreamInfo
tb_stream_info(TbStream *stream)
{
	TbStreamInfo info = {
		.id = stream->id, .owner_pid = stream->spec.owner_pid, .owner_role = stream->spec.owner_role,
		.dataset = stream->dataset_hash, .device = stream->spec.device, .phase = tb_phase_name(stream->phase),
		.rank = stream->deal.rank, .world_size = stream->deal.world_size, .batches = stream->batches,
		.done = stream->done, .ready = tb_ring_count(&stream->ring,
													 TB_RING_READY), .slots = stream->ring.n_slots,
		.slot_bytes = stream->ring.slot_bytes, .ring_bytes = tb_ring_bytes(&stream->ring),
		.redeemed = stream->redeemed,
	};

	tb_stream_account(stream);
	info.wait_store_ms = stream->wait_store_ns / 1000000;
	info.wait_decode_ms = stream->wait_decode_ns / 1000000;
	info.wait_consumer_ms = stream->wait_consumer_ns / 1000000;
	return info;
}

static void
unlink_stream(TbStream *stream)
{
	TbHub	   *hub = stream->hub;
	TbStream  **at = &hub->first;

	while (*at != NULL && *at != stream)
		at = &(*at)->next;
	if (*at == stream)
		*at = stream->next;
	if (hub->turn == stream)
		hub->turn = stream->next;
}

/*
 * Memory that a decode thread writes to must stay until it is done: then the last item back
 * destroys the stream.
 */
void
tb_stream_close(TbStream *stream)
{
	TbHub	   *hub;

	if (stream == NULL || stream->closing)
		return;
	hub = stream->hub;
	stream->closing = true;
	unlink_stream(stream);
	if (stream->telling)
		tb_loop_undefer(hub->loop, &stream->tell);
	explicit_bzero(stream->token, sizeof(stream->token));
	tb_pipe_cancel(stream, 0);
	tb_stream_drop_arrays(stream);
	tb_stream_drop_sources(stream);
	tb_sources_close(stream->index);
	stream->index = NULL;
	hub->n_dying++;
	if (stream->decoding == 0)
		tb_stream_destroy(stream);
}

void
tb_stream_destroy(TbStream *stream)
{
	TbHub	   *hub = stream->hub;

	tb_pipe_free(stream);
	tb_ring_free(&stream->ring);
	tb_ticket_drop(&stream->ticket);
	tb_datasets_close(stream->entry);
	tb_free(stream->tensors);
	tb_free(stream->arrays);
	tb_free(stream->opening);
	tb_free(stream->cells);
	tb_free((char *) stream->spec.device);
	tb_free((char *) stream->spec.owner_role);
	tb_free(stream);
	hub->n_dying--;
}
