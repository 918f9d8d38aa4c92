/*
 * The streamer as its clients see it: batches byte for byte for all ranks, orders, tails and
 * resumes, credits, tokens, single loads, errors with their words.
 */
#include "stream_help.h"

/*
 * Take all batches of one rank in order and compare them with what the order says. Returns samples.
 */
static uint64_t
read_rank(const Streamer *s, TbWire *control, TbDeal deal, uint64_t seed, TbShuffle shuffle,
		  const char *options)
{
	static const char *const tails[] = {"drop", "pad", "ragged"};
	char		all[1200];
	Opened		opened;
	Client		client;
	TbOrder		order;
	uint64_t	samples = 0;

	snprintf(all, sizeof(all),
			 "\"batch_size\":%u,\"rank\":%u,\"world_size\":%u,\"tail\":\"%s\",\"seed\":%llu,"
			 "\"epoch\":2,\"shuffle\":\"%s\",\"prefetch\":3%s", deal.batch_size, deal.rank, deal.world_size,
			 tails[deal.tail], (unsigned long long) seed, shuffle == TB_SHUFFLE_FULL ? "full" : "none", options);
	opened = open_stream(s, control, all);
	assert_int_equal(opened.batches, tb_deal_batches(&deal));
	client = redeem(s, opened.token);
	assert_int_equal(client.batches, opened.batches);
	tb_order_init(&order, deal.n, shuffle, seed, 2);
	for (uint64_t g = 0; g < tb_deal_batches(&deal); g++)
	{
		uint64_t	rows[64];
		uint32_t	padded;
		uint32_t	n = tb_deal_batch(&deal, g, rows, &padded);
		TbJson	   *batch = ask(client.wire, "{\"op\":\"next\"}");

		assert_int_equal(int_of(batch, "batch"), g);
		assert_int_equal(int_of(batch, "padded"), padded);
		for (uint32_t i = 0; i < n; i++)
			rows[i] = tb_order_at(&order, rows[i]);
		check_batch(batch, client.ring, rows, n);
		give_slot(client.wire, opened.id, int_of(batch, "slot"), int_of(batch, "generation"));
		samples += n - padded;
		tb_json_free(batch);
	}
	for (int i = 0; i < 2; i++)
	{
		TbJson	   *end = ask(client.wire, "{\"op\":\"next\"}");
		bool		is_end = false;

		assert_true(tb_json_get_bool(end, "end", &is_end) && is_end);
		tb_json_free(end);
	}
	hang_up(&client);
	return samples;
}

static void
all_ranks(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);

	for (int shuffle = TB_SHUFFLE_NONE; shuffle <= TB_SHUFFLE_FULL; shuffle++)
		for (int tail = TB_TAIL_DROP; tail <= TB_TAIL_RAGGED; tail++)
		{
			TbDeal		deal = {.n = N_ROWS, .batch_size = 7, .world_size = 2,
								.tail = (TbTail) tail};
			uint64_t	samples = 0;

			for (deal.rank = 0; deal.rank < 2; deal.rank++)
				samples += read_rank(s, control, deal, 11, (TbShuffle) shuffle, "");
			assert_int_equal(samples, tail == TB_TAIL_DROP ? 98 : 100);
		}
	await_streams(control, 0);
	tb_wire_free(control);
}

/*
 * From the state of batch 3 on, with another batch size and world: the same samples as if nothing
 * had happened.
 */
static void
resume(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control,
									 "\"batch_size\":4,\"world_size\":2,\"rank\":1,\"seed\":-5,\"epoch\":2,"
									 "\"shuffle\":\"full\"");
	Client		client = redeem(s, opened.token);
	TbDeal		deal = {.n = N_ROWS, .batch_size = 5, .world_size = 1, .tail = TB_TAIL_RAGGED,
						.first = 24};
	TbStreamState parsed;
	char		text[320] = "";
	char		options[900];
	char		quoted[700];
	size_t		at = 0;
	TbJson	   *reply;

	for (int g = 0; g < 3; g++)
	{
		TbJson	   *batch = ask(client.wire, "{\"op\":\"next\"}");

		text_of(batch, "state", text, sizeof(text));
		tb_json_free(batch);
	}
	assert_int_equal(tb_state_parse(text, &parsed, NULL), TB_OK);
	assert_int_equal(parsed.position, 24);
	assert_int_equal(parsed.batches, 3);
	assert_string_equal(parsed.dataset, s->hash);
	hang_up(&client);
	for (const char *c = text; *c != '\0'; c++)
	{
		if (*c == '"')
			quoted[at++] = '\\';
		quoted[at++] = *c;
	}
	quoted[at] = '\0';
	snprintf(options, sizeof(options), ",\"state\":\"%s\"", quoted);
	assert_int_equal(read_rank(s, control, deal, (uint64_t) -5, TB_SHUFFLE_FULL, options), 76);
	/* a state of another order is refused */
	snprintf(options, sizeof(options),
			 "\"batch_size\":4,\"seed\":6,\"epoch\":2,\"shuffle\":\"full\",\"state\":\"%s\"", quoted);
	reply = open_reply(s, control, s->hash, options);
	assert_true(expect_error(reply, "invalid", "its seed differs").hint[0] != '\0');
	snprintf(options, sizeof(options),
			 "\"batch_size\":4,\"seed\":-5,\"epoch\":2,\"shuffle\":\"none\",\"state\":\"%s\"", quoted);
	expect_error(open_reply(s, control, s->hash, options), "invalid", "its shuffle differs");
	expect_error(open_reply(s, control, s->hash, "\"batch_size\":4,\"state\":\"{}\""), "invalid",
				 "invalid stream state");
	assert_int_equal(count_streams(control), 0);
	tb_wire_free(control);
}

/* By SQL: the control connection takes batches and fetches tensors in band. */
static void
in_band(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	char		request[256];
	char		handles[2][TB_HANDLE_TEXT];
	uint64_t	rows[10];
	TbJson	   *batch;
	TbJson	   *tensors;
	TbJson	   *reply;
	int			fd;
	uint8_t    *map;
	uint8_t		y[50];

	snprintf(request, sizeof(request), "{\"op\":\"next\",\"stream\":%lld}", (long long) opened.id);
	batch = ask(control, request);
	assert_true(tb_json_get(batch, "tensors", &tensors));
	for (size_t t = 0; t < 2; t++)
		text_of(tb_json_at(tensors, t), "handle", handles[t], TB_HANDLE_TEXT);
	snprintf(request, sizeof(request), "{\"op\":\"fetch\",\"handle\":\"%s\"}", handles[1]);
	tell(control, request);
	reply = hear(control, &fd);
	assert_true(fd >= 0);
	map = mmap(NULL, (size_t) lseek(fd, 0, SEEK_END), PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	for (uint64_t i = 0; i < 10; i++)
		rows[i] = i;
	check_batch(batch, map, rows, 10);
	for (uint64_t row = 0; row < 10; row++)
		for (int i = 0; i < Y_COLS; i++)
			y[row * Y_COLS + (uint64_t) i] = y_at(row, i);
	assert_int_equal(int_of(reply, "bytes"), 50);
	assert_memory_equal(map + int_of(reply, "offset"), y, 50);
	tb_json_free(reply);
	/* both tensors name one slot; freeing both at once is right, a second time is not */
	snprintf(request, sizeof(request), "{\"op\":\"free\",\"handles\":[\"%s\",\"%s\"]}", handles[0],
			 handles[1]);
	expect_ok(ask(control, request));
	expect_error(ask(control, request), "handle", "invalid handle");
	snprintf(request, sizeof(request), "{\"op\":\"fetch\",\"handle\":\"%s\"}", handles[1]);
	expect_error(ask(control, request), "handle", "invalid handle");
	tb_json_free(batch);
	(void) munmap(map, 1);
	close(fd);
	snprintf(request, sizeof(request), "{\"op\":\"close\",\"stream\":%lld}", (long long) opened.id);
	expect_ok(ask(control, request));
	expect_error(ask(control, request), "handle", "invalid handle");
	assert_int_equal(count_streams(control), 0);
	tb_wire_free(control);
}

/* Wrong, used and foreign tokens have one text, and open nothing. */
static void
tokens(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10");
	Opened		foreign = open_stream(s, control, "\"batch_size\":10,\"peer_uid\":54321");
	Opened		own;
	Client		client = redeem(s, opened.token);
	TbWire	   *thief = dial(s->client);
	TbError		errors[4];
	const char *tries[] = {opened.token, "00000000000000000000000000000000", "", foreign.token};
	char		options[64];

	for (int i = 0; i < 4; i++)
	{
		char		request[128];
		int			fd;

		snprintf(request, sizeof(request), "{\"op\":\"redeem\",\"token\":\"%s\"}", tries[i]);
		tell(thief, request);
		errors[i] = expect_error(hear(thief, &fd), "denied", "invalid token");
		assert_int_equal(fd, -1);
		assert_string_equal(errors[i].message, errors[0].message);
		assert_string_equal(errors[i].detail, errors[0].detail);
		assert_string_equal(errors[i].hint, errors[0].hint);
	}
	expect_error(ask(thief, "{\"op\":\"next\"}"), "state", "no stream");
	tb_wire_free(thief);
	snprintf(options, sizeof(options), "\"batch_size\":10,\"peer_uid\":%u", (unsigned) geteuid());
	own = open_stream(s, control, options);
	hang_up(&client);
	client = redeem(s, own.token);
	hang_up(&client);
	await_streams(control, 1);
	tb_wire_free(control);
}

/*
 * Who holds every slot is told so at once; a release gives the next batch. Wrong releases change
 * nothing.
 */
static void
credits(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	Client		client = redeem(s, opened.token);
	TbJson	   *first = ask(client.wire, "{\"op\":\"next\"}");
	TbJson	   *second = ask(client.wire, "{\"op\":\"next\"}");
	TbJson	   *third;

	for (int i = 0; i < 2; i++)
		expect_error(ask(client.wire, "{\"op\":\"next\"}"), "busy", "every slot");
	give_slot(client.wire, opened.id, int_of(first, "slot"), int_of(first, "generation") + 1);
	give_slot(client.wire, opened.id, 99, int_of(first, "generation"));
	give_slot(client.wire, opened.id, -1, 0);
	expect_error(ask(client.wire, "{\"op\":\"next\"}"), "busy", "every slot");
	give_slot(client.wire, opened.id, int_of(first, "slot"), int_of(first, "generation"));
	third = ask(client.wire, "{\"op\":\"next\"}");
	assert_int_equal(int_of(third, "batch"), 2);
	assert_int_equal(int_of(third, "slot"), int_of(first, "slot"));
	assert_true(int_of(third, "generation") != int_of(first, "generation"));
	give_slot(client.wire, opened.id, int_of(first, "slot"), int_of(first, "generation"));
	expect_error(ask(client.wire, "{\"op\":\"next\"}"), "busy", "every slot");
	tb_json_free(first);
	tb_json_free(second);
	tb_json_free(third);
	hang_up(&client);
	tb_wire_free(control);
}

/* Garbage that a client writes into its ring spoils nothing but what it wrote over. */
static void
scribbler(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	Client		client = redeem(s, opened.token);
	uint64_t	rows[10];

	for (uint64_t g = 0; g < 10; g++)
	{
		TbJson	   *batch = ask(client.wire, "{\"op\":\"next\"}");

		for (uint64_t i = 0; i < 10; i++)
			rows[i] = g * 10 + i;
		check_batch(batch, client.ring, rows, 10);
		if (g < 8)
		{
			size_t		half = client.bytes / 2;

			memset(client.ring + (size_t) int_of(batch, "slot") * half, 0xee, half);
		}
		give_slot(client.wire, opened.id, int_of(batch, "slot"), int_of(batch, "generation"));
		tb_json_free(batch);
	}
	hang_up(&client);
	tb_wire_free(control);
}

/* One load: its handle, its bytes, its end. */
static void
loads(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	TbWire	   *other = dial_control(s);
	char		request[600];
	char		handle[TB_HANDLE_TEXT];
	TbJson	   *reply;
	TbHandle	parsed;
	float	   *map;
	int			fd;

	snprintf(request, sizeof(request),
			 "{\"op\":\"load\",\"source\":{\"url\":\"file://%s\"},\"array\":\"x\",\"mask_fill\":-1,"
			 "\"start\":[41,1,0],\"count\":[2,2,8],\"raw\":false,\"cast\":null,\"device\":\"host\"}", s->root);
	reply = ask(control, request);
	text_of(reply, "handle", handle, sizeof(handle));
	tb_json_free(reply);
	snprintf(request, sizeof(request), "{\"op\":\"wait\",\"handles\":[\"%s\"]}", handle);
	expect_ok(ask(control, request));
	snprintf(request, sizeof(request), "{\"op\":\"fetch\",\"handle\":\"%s\"}", handle);
	expect_error(ask(other, request), "handle", "invalid handle");
	tell(control, request);
	reply = hear(control, &fd);
	assert_int_equal(int_of(reply, "bytes"), 2 * 2 * 8 * 4);
	map = mmap(NULL, 128, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	for (int i = 0; i < 32; i++)
		assert_true(map[i] == x_at((uint64_t) (41 + i / 16), 8 + i % 16));
	(void) munmap(map, 128);
	close(fd);
	tb_json_free(reply);
	assert_int_equal(tb_handle_parse(handle, &parsed, NULL), TB_OK);
	parsed.epoch[7] ^= 1;
	tb_handle_print(&parsed, handle);
	snprintf(request, sizeof(request), "{\"op\":\"free\",\"handles\":[\"%s\"]}", handle);
	expect_error(ask(control, request), "handle", "invalid handle");
	parsed.epoch[7] ^= 1;
	tb_handle_print(&parsed, handle);
	snprintf(request, sizeof(request), "{\"op\":\"free\",\"handles\":[\"%s\"]}", handle);
	expect_ok(ask(control, request));
	expect_error(ask(control, request), "handle", "invalid handle");
	tb_wire_free(control);
	tb_wire_free(other);
}

static void
bad_loads(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	static const struct
	{
		const char *members;
		const char *code;
		const char *part;
	}			bad[] = {
		{"\"array\":\"x\",\"start\":[0,0,0],\"count\":[1,6,9]", "range", "outside"},
		{"\"array\":\"x\",\"start\":[100,0,0],\"count\":[1,1,1]", "range", "outside"},
		{"\"array\":\"x\",\"start\":[0],\"count\":[1]", "invalid", "dimensions"},
		{"\"array\":\"x\",\"start\":[0,0,0],\"count\":[1]", "protocol", "count"},
		{"\"array\":\"nothing\",\"start\":[0],\"count\":[1]", "no array", ""},
		{"\"array\":\"x\",\"start\":[0,0,0],\"count\":[1,1,1],\"device\":\"GPU-7\"", "unsupported",
		 "there are: host"},
		{"\"array\":\"x\",\"start\":[0,0,0],\"count\":[1,1,1],\"cast\":\"float7\"", "protocol",
		 "cast"},
		{"\"start\":[0,0,0],\"count\":[1,1,1]", "protocol", "array"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		char		request[600];

		snprintf(request, sizeof(request),
				 "{\"op\":\"load\",\"source\":{\"url\":\"file://%s\"},%s}", s->root, bad[i].members);
		expect_error(ask(control, request), bad[i].code, bad[i].part);
	}
	tb_wire_free(control);
}

/*
 * A damaged chunk fails its batch and names position, column and object; what came before is
 * delivered.
 */
static void
bad_chunk(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened;
	Client		client;
	TbError		error;

	put_file(s->root, "x/c/37/0/0", "short", 5);
	opened = open_stream(s, control, "\"batch_size\":10,\"prefetch\":4");
	client = redeem(s, opened.token);
	for (int g = 0; g < 3; g++)
	{
		TbJson	   *batch = ask(client.wire, "{\"op\":\"next\"}");

		assert_int_equal(int_of(batch, "batch"), g);
		give_slot(client.wire, opened.id, int_of(batch, "slot"), int_of(batch, "generation"));
		tb_json_free(batch);
	}
	for (int i = 0; i < 2; i++)
	{
		error = expect_error(ask(client.wire, "{\"op\":\"next\"}"), "corrupt", "x/c/37/0/0");
		assert_non_null(strstr(error.detail, "dataset position 37"));
		assert_non_null(strstr(error.detail, "column \"x\""));
	}
	hang_up(&client);
	await_streams(control, 0);
	tb_wire_free(control);
}

static void
bad_opens(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	char		empty[65];
	static const struct
	{
		const char *options;
		const char *code;
		const char *part;
	}			bad[] = {
		{"\"batch_size\":0", "invalid", "batch_size is 0"},
		{"\"batch_size\":4294967295", "invalid", "batch_size"},
		{"\"batch_size\":4294967296", "protocol", "batch_size"},
		{"\"batch_size\":1,\"prefetch\":0", "invalid", "prefetch"},
		{"\"batch_size\":1,\"rank\":2,\"world_size\":2", "invalid", "rank"},
		{"\"batch_size\":1,\"world_size\":0", "invalid", "world_size"},
		{"\"batch_size\":1,\"shuffle\":\"best\"", "invalid", "best"},
		{"\"batch_size\":1,\"device\":\"GPU-8\"", "unsupported", "there are: host"},
		{"\"batch_size\":\"1\"", "protocol", "batch_size"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect_error(open_reply(s, control, s->hash, bad[i].options), bad[i].code, bad[i].part);
	expect_error(open_reply(s, control,
							"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
							"\"batch_size\":1"), "not found", "does not exist");
	assert_int_equal(count_streams(control), 0);
	/* no rows: no batch, and the end at once */
	make_dataset(s->root, 0, empty);
	memcpy(s->hash, empty, sizeof(empty));
	assert_int_equal(read_rank(s, control, (TbDeal) {.batch_size = 3, .world_size = 1}, 1,
							   TB_SHUFFLE_FULL, ""), 0);
	tb_wire_free(control);
}

/*
 * Replies keep their order while a next waits, new credentials are taken, and shares are counted.
 */
static void
renew_and_streams(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	Client		client = redeem(s, opened.token);
	char		request[700];
	uint64_t	rows[10];
	TbJson	   *reply;
	TbJson	   *list;

	for (uint64_t g = 0; g < 10; g++)
	{
		TbJson	   *batch;

		if (g % 3 == 1)
		{
			snprintf(request, sizeof(request),
					 "{\"op\":\"renew\",\"stream\":%lld,\"sources\":[{\"server\":\"s\","
					 "\"url\":\"file://%s/\"}]}", (long long) opened.id, s->root);
			expect_ok(ask(control, request));
		}
		batch = ask(client.wire, "{\"op\":\"next\"}");
		for (uint64_t i = 0; i < 10; i++)
			rows[i] = g * 10 + i;
		check_batch(batch, client.ring, rows, 10);
		give_slot(client.wire, opened.id, int_of(batch, "slot"), int_of(batch, "generation"));
		tb_json_free(batch);
	}
	snprintf(request, sizeof(request), "{\"op\":\"next\",\"stream\":%lld}", (long long) opened.id);
	expect_error(ask(control, request), "state", "read by the client");
	reply = ask(control, "{\"op\":\"streams\"}");
	assert_true(tb_json_get(reply, "streams", &list));
	assert_int_equal(tb_json_length(list), 1);
	assert_int_equal(int_of(tb_json_at(list, 0), "done"), 10);
	assert_int_equal(int_of(tb_json_at(list, 0), "batches"), 10);
	assert_int_equal(int_of(tb_json_at(list, 0), "slots"), 2);
	assert_int_equal(int_of(tb_json_at(list, 0), "pid"), (int64_t) getpid());
	assert_int_equal(int_of(tb_json_at(list, 0), "bytes"), client.bytes);
	(void) int_of(tb_json_at(list, 0), "wait_store_ms");
	(void) int_of(tb_json_at(list, 0), "wait_decode_ms");
	(void) int_of(tb_json_at(list, 0), "wait_consumer_ms");
	tb_json_free(reply);
	expect_ok(ask(client.wire, "{\"op\":\"close\"}"));
	expect_error(ask(client.wire, "{\"op\":\"next\"}"), "canceled", "stream was closed");
	hang_up(&client);
	tb_wire_free(control);
}

/* Batches beyond the ring are fetched while the client holds every slot: their bytes are then here,
 * whatever becomes of the store. */
static void
fetched_ahead(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	Client		client = redeem(s, opened.token);
	char		path[300];

	sleep(2);					/* all of the store is 5 kB */
	for (int row = 30; row < 60; row++)
	{
		snprintf(path, sizeof(path), "%s/x/c/%d/0/0", s->root, row);
		assert_int_equal(unlink(path), 0);
	}
	for (int g = 0; g < 6; g++)
	{
		uint64_t	rows[10];
		TbJson	   *batch = ask(client.wire, "{\"op\":\"next\"}");

		for (uint64_t i = 0; i < 10; i++)
			rows[i] = (uint64_t) g * 10 + i;
		check_batch(batch, client.ring, rows, 10);
		give_slot(client.wire, opened.id, int_of(batch, "slot"), int_of(batch, "generation"));
		tb_json_free(batch);
	}
	hang_up(&client);
	tb_wire_free(control);
}

/* Requests sent in one go are answered in order. */
static void
pipelined(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	Client		client = redeem(s, opened.token);
	TbJson	   *reply;

	tell(client.wire, "{\"op\":\"next\"}");
	tell(client.wire, "{\"op\":\"dance\"}");
	tell(client.wire, "{\"op\":\"close\"}");
	reply = hear(client.wire, NULL);
	assert_non_null(reply);
	tb_json_free(reply);		/* a batch, or that the stream was closed: whichever was first */
	expect_error(hear(client.wire, NULL), "protocol", "operation");
	expect_ok(hear(client.wire, NULL));
	hang_up(&client);
	tb_wire_free(control);
}

int
main(void)
{
#define STREAMER_TEST(f) cmocka_unit_test_setup_teardown(f, streamer_setup, streamer_teardown)
	const struct CMUnitTest tests[] = {
		STREAMER_TEST(all_ranks), STREAMER_TEST(resume), STREAMER_TEST(in_band), STREAMER_TEST(tokens),
		STREAMER_TEST(credits), STREAMER_TEST(scribbler), STREAMER_TEST(loads), STREAMER_TEST(bad_loads),
		STREAMER_TEST(bad_chunk), STREAMER_TEST(bad_opens), STREAMER_TEST(renew_and_streams), STREAMER_TEST(pipelined),
		STREAMER_TEST(fetched_ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
