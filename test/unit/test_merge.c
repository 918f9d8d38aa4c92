/*
 * Near ranges in one request: against what was asked for, byte by byte, with the stated bound on bytes nobody asked
 * for, and each read with an answer of its own.
 */
#include "http_help.h"

#define BIG_BYTES (4 << 20)
#define READS_MAX 400

static uint8_t *big;

static void
serve_big(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	const HttpdObject objects[] = {
		{"/big", big, BIG_BYTES, "\"b1\"", NULL}, {"/other", big, BIG_BYTES / 2, "\"b2\"", NULL}
	};

	if (strcmp(request->path, "/stuck") == 0)
		httpd_sleep(conn, 2000);
	for (size_t i = 0; i < 2; i++)
		if (strcmp(request->path, objects[i].path) == 0)
		{
			httpd_answer(conn, request, &objects[i]);
			return;
		}
	httpd_answer(conn, request, NULL);
}

typedef struct World
{
	Rig			rig;
	Httpd	   *httpd;
	TbStore    *store;
	TbRead		read[READS_MAX];
	int			n;
	int			done;
	uint64_t	seed;
} World;

static uint64_t
random_below(World *world, uint64_t n)
{
	return tb_mix64(world->seed++) % n;
}

static void
world_open(World *world, HttpdHandler handler, const TbIoOptions *options)
{
	memset(world, 0, sizeof(*world));
	world->httpd = httpd_start(handler, NULL);
	rig_open(&world->rig, 0, options);
	world->store = open_store(&world->rig, world->httpd);
}

static void
world_close(World *world)
{
	tb_store_close(world->store);
	rig_close(&world->rig);
	httpd_stop(world->httpd);
}

static TbRead *
ask(World *world, const char *key, uint64_t offset, uint64_t length)
{
	TbRead	   *read = &world->read[world->n++];

	memset(read, 0, sizeof(*read));
	read->key = key;
	read->kind = TB_RANGE_AT;
	read->offset = offset;
	read->length = length;
	read->done = count_done;
	read->arg = &world->done;
	tb_store_read(world->store, read);
	return read;
}

static void
check(World *world)
{
	for (int i = 0; i < world->n; i++)
	{
		TbRead	   *read = &world->read[i];

		if (read->arg == NULL)
			continue;			/* canceled */
		assert_int_equal(read->status, TB_OK);
		assert_bytes(read, big + read->offset, read->length);
		assert_string_equal(read->version, strcmp(read->key, "big") == 0 ? "\"b1\"" : "\"b2\"");
		assert_int_equal(read->object_size, strcmp(read->key, "big") == 0 ? BIG_BYTES : BIG_BYTES / 2);
	}
	for (int i = 0; i < world->n; i++)
		if (world->read[i].arg != NULL)
			drop(&world->read[i]);
}

/* The object is cut at random, a random part of the pieces is asked for in random order. */
static void
random_ranges(void **state)
{
	static const TbIoOptions options = {.hedge_percent = -1};

	for (int round = 0; round < 40; round++)
	{
		World		world;
		uint64_t	needed = 0;
		uint64_t	piece = UINT64_C(1) << (8 + round % 10);
		uint64_t	cut[READS_MAX + 1] = {0};
		int			n = 0;
		TbIoCounters counters;

		world_open(&world, serve_big, &options);
		world.seed = (uint64_t) round * 1000;
		while (n < READS_MAX && cut[n] + 2 * piece < BIG_BYTES)
		{
			cut[n + 1] = cut[n] + 1 + random_below(&world, 2 * piece);
			n++;
		}
		for (int i = n - 1; i > 0 && round % 2 == 0; i--)
		{
			/* neighbours change places: nearly sorted, as several readers ask */
			int			j = i - (int) random_below(&world, i < 8 ? (uint64_t) i + 1 : 8);
			uint64_t	length = cut[i + 1] - cut[i];

			if (j != i && random_below(&world, 3) == 0)
			{
				ask(&world, "big", cut[i], length);
				needed += length;
				n = j;
				i = j;
			}
		}
		for (int i = 0; i < n && world.n < READS_MAX; i++)
			if (random_below(&world, 4) < (uint64_t) (round % 4) + 1)
			{
				ask(&world, "big", cut[i], cut[i + 1] - cut[i]);
				needed += cut[i + 1] - cut[i];
			}
		pump_until(&world.rig, &world.done, world.n);
		check(&world);
		counters = tb_store_counters(world.store);
		assert_int_equal(counters.requests + counters.merged, world.n);
		assert_int_equal(httpd_requests(world.httpd), (int) counters.requests);
		assert_true(counters.bytes >= needed);
		assert_true(counters.bytes * 10 <= needed * 11);
		world_close(&world);
	}
}

/* Blocks in order: few requests, no byte too many, and several requests at once. */
static void
in_order(void **state)
{
	World		world;
	TbIoCounters counters;

	world_open(&world, serve_big, NULL);
	for (int i = 0; i < 64; i++)
		ask(&world, "big", (uint64_t) i * 16384, 16384);
	pump_until(&world.rig, &world.done, 64);
	check(&world);
	counters = tb_store_counters(world.store);
	assert_int_equal(counters.bytes, 64 * 16384);
	assert_true(counters.requests <= 16);
	assert_true(counters.requests >= 8);
	assert_int_equal(counters.merged, 64 - counters.requests);
	world_close(&world);
}

/* Reads in order do not wait for good behind requests that take long. */
static void
not_behind_slow_ones(void **state)
{
	static const TbIoOptions options = {.hedge_percent = -1};
	World		world;
	int64_t		start;

	world_open(&world, serve_big, &options);
	ask(&world, "big", 0, 16384);
	pump_until(&world.rig, &world.done, 1);
	for (int i = 0; i < 8; i++)
		ask(&world, "stuck", (uint64_t) i << 20, 1 << 20);
	start = tb_now_ns();
	for (int i = 1; i <= 4; i++)
	{
		ask(&world, "big", (uint64_t) i * 16384, 16384);
		pump_until(&world.rig, &world.done, i + 1);
	}
	assert_true(tb_now_ns() - start < INT64_C(1500000000));
	pump_until(&world.rig, &world.done, world.n);
	for (int i = 0; i < world.n; i++)
		drop(&world.read[i]);
	world_close(&world);
}

/* Ranges over each other come once; other objects and other versions do not come along. */
static void
kept_apart(void **state)
{
	World		world;
	TbIoCounters counters;

	world_open(&world, serve_big, NULL);
	for (int i = 0; i < 10; i++)
	{
		ask(&world, "big", 1000, 5000);
		ask(&world, "other", 1000, 5000);
	}
	pump_until(&world.rig, &world.done, 20);
	check(&world);
	counters = tb_store_counters(world.store);
	assert_int_equal(counters.requests, 2);
	assert_int_equal(counters.bytes, 10000);
	world.n = world.done = 0;
	for (int i = 0; i < 3; i++)
	{
		TbRead	   *read = &world.read[i];

		memset(read, 0, sizeof(*read));
		read->key = "big";
		read->kind = TB_RANGE_AT;
		read->offset = 1000;
		read->length = 1000;
		read->if_version = i == 0 ? NULL : i == 1 ? "\"b1\"" : "\"b0\"";
		read->done = count_done;
		read->arg = &world.done;
		tb_store_read(world.store, read);
	}
	pump_until(&world.rig, &world.done, 3);
	assert_int_equal(tb_store_counters(world.store).requests, 5);
	assert_int_equal(world.read[0].status, TB_OK);
	assert_int_equal(world.read[1].status, TB_OK);
	assert_int_equal(world.read[2].status, TB_E_CHANGED);
	drop(&world.read[0]);
	drop(&world.read[1]);
	world_close(&world);
}

/* A request that fails because of one of its ranges fails that one alone. */
static void
each_its_own_answer(void **state)
{
	World		world;
	uint64_t	end = BIG_BYTES / 2;

	world_open(&world, serve_big, NULL);
	for (int i = 0; i < 6; i++)
		ask(&world, "other", end - 4500 + (uint64_t) i * 1000, 1000);
	pump_until(&world.rig, &world.done, 6);
	assert_true(tb_store_counters(world.store).merged > 0);
	for (int i = 0; i < 4; i++)
	{
		assert_int_equal(world.read[i].status, TB_OK);
		assert_bytes(&world.read[i], big + world.read[i].offset, 1000);
		drop(&world.read[i]);
	}
	assert_int_equal(world.read[4].status, TB_E_CORRUPT);
	assert_non_null(strstr(world.read[4].error.detail, "bytes 2096652 to 2097651"));
	assert_int_equal(world.read[5].status, TB_E_CHANGED);
	world_close(&world);
}

static void
missing_together(void **state)
{
	World		world;

	world_open(&world, serve_big, NULL);
	for (int i = 0; i < 20; i++)
		ask(&world, "nothing", (uint64_t) i * 1000, 1000);
	pump_until(&world.rig, &world.done, 20);
	for (int i = 0; i < 20; i++)
	{
		assert_int_equal(world.read[i].status, TB_OK);
		assert_true(world.read[i].missing);
		assert_null(world.read[i].data);
	}
	assert_int_equal(tb_store_counters(world.store).missing, 20);
	world_close(&world);
}

/* Members are canceled at any moment; the others come, the canceled are not called. */
static void
cancel_members(void **state)
{
	for (int round = 0; round < 30; round++)
	{
		World		world;
		int			left = 0;

		world_open(&world, serve_big, NULL);
		world.seed = (uint64_t) round;
		for (int i = 0; i < 200; i++)
			ask(&world, "big", (uint64_t) i * 4096, 4096);
		for (int i = 0; i < round % 6; i++)
			(void) tb_loop_pump(world.rig.loop, 5);
		for (int i = 0; i < 200; i++)
		{
			if (round % 3 != 0 && random_below(&world, 3) != 0)
				continue;
			tb_store_cancel(world.store, &world.read[i]);	/* nothing, when it is done */
			if (world.read[i].impl == NULL && world.read[i].data == NULL)
				world.read[i].arg = NULL;
		}
		for (int i = 0; i < 200; i++)
			left += world.read[i].arg != NULL;
		pump_until(&world.rig, &world.done, left);
		assert_int_equal(world.done, left);
		check(&world);
		world_close(&world);
	}
}

static int
make_big(void **state)
{
	big = malloc(BIG_BYTES);
	for (size_t i = 0; i < BIG_BYTES; i++)
		big[i] = (uint8_t) (tb_mix64(i / 8) >> (i % 8 * 8));
	return 0;
}

static int
free_big(void **state)
{
	free(big);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_ranges),
		cmocka_unit_test(in_order),
		cmocka_unit_test(not_behind_slow_ones),
		cmocka_unit_test(kept_apart),
		cmocka_unit_test(each_its_own_answer),
		cmocka_unit_test(missing_together),
		cmocka_unit_test(cancel_members),
	};

	return cmocka_run_group_tests(tests, make_big, free_big);
}
