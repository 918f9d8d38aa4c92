/*
 * A stream and a load inside one process, without threads: every allocation on the way fails once.
 * Whatever fails, the outcome is right or a clean error, nothing hangs and nothing leaks.
 */
#include "stream_help.h"

#define TURNS 2000				/* of the loop, before something counts as hanging */

static Streamer place;

static int
make_place(void **state)
{
	new_root(&place);
	make_dataset(place.root, 12, place.hash);
	return 0;
}

static int
drop_place(void **state)
{
	drop_root(&place);
	return 0;
}

static void
turn(TbHub *hub)
{
	tb_engine_wait(tb_hub_engine(hub), 10);
	tb_hub_turn(hub);
}

/* Take all batches; gives the number of samples that were right. */
static TbStatus
drain(TbHub *hub, TbStream *stream, uint32_t *samples, TbError *err)
{
	TbStatus	status = TB_AGAIN;
	bool		end = false;

	for (int i = 0; i < TURNS && !end; i++)
	{
		TbBatch		batch;
		bool		busy;
		TbBuf	   *out;

		status = tb_stream_next(stream, &batch, &end, &busy, err);
		if (status == TB_AGAIN)
			turn(hub);
		else if (status != TB_OK)
			return status;
		if (status != TB_OK || end)
			continue;
		out = tb_buf_new(0);
		status = out != NULL ? tb_stream_print_batch(stream, &batch, out) : TB_E_NOMEM;
		tb_buf_unref(out);
		if (status != TB_OK)
			return status;
		*samples += batch.samples;
		assert_int_equal(tb_stream_release(stream, batch.slot, batch.generation, NULL), TB_OK);
	}
	return status;
}

static TbStatus
run_stream(TbHub *hub, uint32_t *samples, TbError *err)
{
	char		url[300];
	char		key[128];
	TbSourceSpec source = {.server = "s", .store.url = url};
	TbStreamSpec spec = {.dataset_url = url, .dataset_key = key, .dataset_hash = place.hash,
						 .sources = &source,
	.n_sources = 1, .batch_size = 5, .prefetch = 2, .world_size = 1, .workers = 1, .shuffle = TB_SHUFFLE_FULL,
	.tail = TB_TAIL_RAGGED, .device = "host", .peer_uid = -1};
	TbStream   *stream;
	TbStatus	status;

	snprintf(url, sizeof(url), "file://%s", place.root);
	tb_dataset_key(place.hash, key, sizeof(key));
	status = tb_stream_open(hub, &spec, (TbListener) {NULL, NULL}, &stream, err);
	if (status != TB_OK)
		return status;
	for (int i = 0; i < TURNS && (status = tb_stream_poll(stream, err)) == TB_AGAIN; i++)
		turn(hub);
	if (status == TB_OK)
		status = drain(hub, stream, samples, err);
	tb_stream_close(stream);
	return status;
}

static TbStatus
run_load(TbHub *hub, TbError *err)
{
	char		url[300];
	TbDeliverySpec spec = {.source.store.url = url, .array = "x", .mask_fill = -1, .device = "host",
	.region = {.ndim = 3, .start = {7, 0, 0}, .count = {1, X_ROWS, X_COLS}}};
	TbDelivery *delivery;
	TbStatus	status;

	snprintf(url, sizeof(url), "file://%s", place.root);
	status = tb_delivery_open(hub, &spec, (TbListener) {NULL, NULL}, &delivery, err);
	if (status != TB_OK)
		return status;
	for (int i = 0; i < TURNS && (status = tb_delivery_poll(delivery, err)) == TB_AGAIN; i++)
		turn(hub);
	tb_delivery_close(delivery);
	return status;
}

/* One whole life with the n-th allocation failing (0: none); gives how many there were. */
static TbStatus
live(uint64_t n, bool load, uint64_t *calls)
{
	TbHubOptions options = {.threads = 0, .ring_limit = 1 << 20, .patience_ms = 100};
	uint32_t	samples = 0;
	TbHub	   *hub;
	TbError		err;
	TbStatus	status;

	(void) tb_mem_fail_after(n);
	status = tb_hub_new(&options, &hub, &err);
	if (status == TB_OK)
		status = load ? run_load(hub, &err) : run_stream(hub, &samples, &err);
	*calls = tb_mem_fail_after(0);
	tb_hub_free(hub);
	if (status == TB_OK && !load)
		assert_int_equal(samples, 12);
	return status;
}

static void
torture(bool load)
{
	int64_t		before;
	uint64_t	calls;
	int			failed = 0;

	assert_int_equal(live(0, load, &calls), TB_OK);
	before = tb_mem_live();
	assert_int_equal(live(0, load, &calls), TB_OK);
	assert_int_equal(tb_mem_live(), before);
	for (uint64_t n = 1; n <= calls; n++)
	{
		uint64_t	unused;
		TbStatus	status = live(n, load, &unused);

		if (tb_mem_live() != before)
			fail_msg("allocation %d: %d leak", (int) n, (int) (tb_mem_live() - before));
		if (status == TB_AGAIN)
			fail_msg("allocation %d: it hangs", (int) n);
		failed += status != TB_OK;
	}
	assert_true(failed > 50);
}

static void
streams(void **state)
{
	torture(false);
}

static void
loads(void **state)
{
	torture(true);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(streams), cmocka_unit_test(loads)};

	return cmocka_run_group_tests(tests, make_place, drop_place);
}
