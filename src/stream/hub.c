/*
 * The hub's life, and whose turn it is: streams start fetches one by one in turns while the work
 * budget lasts, so that a stream with large batches does not keep the others waiting.
 */
#include "stream/delivery.h"
#include "stream/pipe.h"

#include <string.h>
#include <unistd.h>

#define DEFAULT_WORK_BYTES (UINT64_C(56) << 20)
#define DEFAULT_PATIENCE_MS 5000

static uint64_t
quarter_of_memory(void)
{
	long		pages = sysconf(_SC_PHYS_PAGES);
	long		page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t) pages * (uint64_t) page / 4 : UINT64_C(1) << 30;
}

/* owns: the caller, tb_hub_free. errors: INVALID, NOMEM, IO. */
TbStatus
tb_hub_new(const TbHubOptions *options, TbHub **hub, TbError *err)
{
	TbEngineOptions engine = {.threads = options->threads, .io = options->io};
	int			patience_ms = options->patience_ms > 0 ? options->patience_ms : DEFAULT_PATIENCE_MS;
	TbHub	   *h = tb_calloc(1, sizeof(*h));
	TbStatus	status;

	*hub = NULL;
	if (h == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_random(h->epoch, sizeof(h->epoch), err);
	if (status == TB_OK)
		status = tb_engine_new(&engine, &h->engine, err);
	if (status != TB_OK)
	{
		tb_free(h);
		return status;
	}
	h->loop = tb_engine_loop(h->engine);
	h->pool = tb_engine_pool(h->engine);
	h->work_limit = options->work_limit > 0 ? options->work_limit : DEFAULT_WORK_BYTES;
	h->ahead_limit = h->work_limit / 2;
	h->work_limit -= h->ahead_limit;
	h->sources.hub = h;
	tb_budget_init(&h->memory, h->loop,
				   options->ring_limit > 0 ? options->ring_limit : quarter_of_memory(),
				   (int64_t) patience_ms * 1000000);
	*hub = h;
	return TB_OK;
}

/*
 * Close what is open and wait for what decode threads still have. Not from inside the pump. NULL
 * allowed.
 */
void
tb_hub_free(TbHub *hub)
{
	if (hub == NULL)
		return;
	while (hub->first != NULL)
		tb_stream_close(hub->first);
	while (hub->deliveries != NULL)
		tb_delivery_close(hub->deliveries);
	while (hub->n_dying > 0 || hub->n_parsing > 0)
		tb_engine_wait(hub->engine, 10);
	if (hub->scheduled)
		tb_loop_undefer(hub->loop, &hub->schedule);
	tb_sources_free(&hub->sources);
	tb_engine_free(hub->engine);
	tb_free(hub);
}

TbEngine *
tb_hub_engine(TbHub *hub)
{
	return hub->engine;
}

const uint8_t *
tb_hub_epoch(const TbHub *hub)
{
	return hub->epoch;
}

/* One fetch is always allowed: a sample larger than the budget must pass too. */
bool
tb_hub_has_room(const TbHub *hub, bool ahead)
{
	if (ahead)
		return hub->ahead_bytes < hub->ahead_limit;
	return hub->work_items == 0 || hub->work_bytes < hub->work_limit;
}

static void
run_schedule(TbTask *task)
{
	TbHub	   *hub = (TbHub *) ((char *) task - offsetof(TbHub, schedule));
	uint32_t	streams = 0;
	uint32_t	idle = 0;
	TbStream   *stream = hub->turn != NULL ? hub->turn : hub->first;

	hub->scheduled = false;
	for (TbStream *s = hub->first; s != NULL; s = s->next)
		streams++;
	while (idle < streams && (tb_hub_has_room(hub, false) || tb_hub_has_room(hub, true)))
	{
		idle = tb_pipe_start_one(stream) ? 0 : idle + 1;
		stream = stream->next != NULL ? stream->next : hub->first;
	}
	hub->turn = stream;
}

void
tb_hub_schedule(TbHub *hub)
{
	if (hub->scheduled)
		return;
	hub->scheduled = true;
	hub->schedule.run = run_schedule;
	tb_loop_defer(hub->loop, &hub->schedule);
}

void
tb_hub_turn(TbHub *hub)
{
	for (TbStream *stream = hub->first; stream != NULL; stream = stream->next)
	{
		tb_stream_step(stream);
		if (stream->n_opening > 0 && tb_stream_poll_arrays(stream))
			tb_hub_schedule(hub);
	}
	for (TbDelivery *delivery = hub->deliveries; delivery != NULL; delivery = tb_delivery_next(delivery))
		tb_delivery_step(delivery);
}

TbStream *
tb_hub_next_stream(TbHub *hub, TbStream *stream)
{
	return stream == NULL ? hub->first : stream->next;
}

/*
 * One text for every reason, and every stream is compared whatever matches: neither words nor time
 * tell how near a guess was. A token is used up by its redemption only, so a wrong user cannot
 * spoil it.
 */
TbStatus
tb_hub_redeem(TbHub *hub, const char *token, int64_t uid, TbStream **stream, TbError *err)
{
	TbStream   *found = NULL;

	*stream = NULL;
	if (strlen(token) == 32)
		for (TbStream *s = hub->first; s != NULL; s = s->next)
			if (tb_equal_secret(s->token, token, 32) && s->token[0] != '\0')
				found = s;
	if (found == NULL || found->phase < TB_PHASE_RUNNING || (found->spec.peer_uid >= 0 &&
															 found->spec.peer_uid != uid))
	{
		tb_fail(err, TB_E_DENIED, "invalid token");
		tb_error_hint(err,
					  "Open the stream again: a token can be used once, by the user who opened it.");
		return TB_E_DENIED;
	}
	memset(found->token, 0, sizeof(found->token));
	found->redeemed = true;
	*stream = found;
	return TB_OK;
}
