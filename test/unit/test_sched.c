/*
 * The life of requests to a network store under trouble: late answers get a twin, failing servers few retries, and
 * what was renewed is tried again; the outcome comes once.
 */
#include "http_help.h"

#include <pthread.h>

typedef struct Server
{
	int			late_every;		/* each so-manieth waits late_ms before it answers */
	int			late_ms;
	int			fail_first;		/* so many are refused, with status */
	int			status;
} Server;

static void
serve(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	const Server *server = arg;

	if (request->number <= server->fail_first)
	{
		httpd_status(conn, server->status, "");
		return;
	}
	if (server->late_every > 0 && request->number > 60 && request->number % server->late_every == 0)
		httpd_sleep(conn, server->late_ms);
	good(conn, request);
}

typedef struct World
{
	Rig			rig;
	Httpd	   *httpd;
	TbStore    *store;
} World;

static void
world_open(World *world, Server *server, const TbIoOptions *options)
{
	world->httpd = httpd_start(serve, server);
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

typedef struct Reader
{
	TbRead		read;
	int		   *done;
	int			times;			/* done was called */
} Reader;

static void
reader_done(TbRead *read)
{
	Reader	   *reader = read->arg;

	reader->times++;
	++*reader->done;
}

/* The end of the object: such reads travel alone. */
static void
ask(World *world, Reader *reader, uint64_t length, int *done)
{
	memset(reader, 0, sizeof(*reader));
	reader->done = done;
	reader->read.key = "o";
	reader->read.kind = TB_RANGE_LAST;
	reader->read.length = length;
	reader->read.done = reader_done;
	reader->read.arg = reader;
	tb_store_read(world->store, &reader->read);
}

/* n reads, so many at a time. Returns the seconds. */
static double
read_many(World *world, int n, int at_once, TbStatus expected)
{
	Reader	   *readers = calloc((size_t) n, sizeof(*readers));
	int			done = 0;
	int64_t		start = tb_now_ns();

	for (int i = 0; i < n; i++)
	{
		ask(world, &readers[i], 1000, &done);
		pump_until(&world->rig, &done, i + 2 - at_once);
	}
	pump_until(&world->rig, &done, n);
	for (int i = 0; i < n; i++)
	{
		assert_int_equal(readers[i].times, 1);
		assert_int_equal(readers[i].read.status, expected);
		if (expected == TB_OK)
			assert_bytes(&readers[i].read, golden + OBJECT_BYTES - 1000, 1000);
		drop(&readers[i].read);
	}
	free(readers);
	return seconds_since(start);
}

/* One of fifty takes 400 ms: with twins little of that is felt, and there are few of them. */
static void
late_ones_have_twins(void **state)
{
	static const TbIoOptions without = {.hedge_percent = -1};
	Server		server = {.late_every = 50, .late_ms = 400};
	World		world;
	double		slow;
	double		quick;
	TbIoCounters counters;

	world_open(&world, &server, &without);
	slow = read_many(&world, 500, 1, TB_OK);
	assert_int_equal(tb_store_counters(world.store).hedges, 0);
	world_close(&world);
	world_open(&world, &server, NULL);
	quick = read_many(&world, 500, 1, TB_OK);
	counters = tb_store_counters(world.store);
	assert_true(slow > 3.2);
	assert_true(quick < slow / 2);
	assert_true(counters.hedges >= 5);
	assert_true(counters.hedges <= 27);
	assert_int_equal(counters.requests, 500 + counters.hedges);
	world_close(&world);
}

/* Cancel and close while twins are under way; later answers of either find nobody. */
static void
cancel_with_twins(void **state)
{
	Server		server = {.late_every = 2, .late_ms = 150};

	for (int round = 0; round < 3; round++)
	{
		World		world;
		Reader		readers[20];
		int			done = 0;
		int64_t		start;

		world_open(&world, &server, NULL);
		(void) read_many(&world, 60, 1, TB_OK);
		for (int i = 0; i < 20; i++)
			ask(&world, &readers[i], 1000 + (uint64_t) i, &done);
		start = tb_now_ns();
		while (tb_store_counters(world.store).hedges == 0 && seconds_since(start) < 1.0)
			(void) tb_loop_pump(world.rig.loop, 2);
		assert_true(tb_store_counters(world.store).hedges > 0);
		for (int i = 0; i < 20 && round < 2; i++)
			tb_store_cancel(world.store, &readers[i].read);
		for (int i = 0; i < 20; i++)
			drop(&readers[i].read);
		if (round == 1)
			(void) read_many(&world, 4, 4, TB_OK);
		start = tb_now_ns();
		world_close(&world);	/* with reads in flight in the last round */
		assert_true(seconds_since(start) < 2.0);
	}
}

/* A short burst of failures is survived from a cold start, whatever the status. */
static void
burst_is_survived(void **state)
{
	static const int statuses[] = {500, 502, 503, 504, 429};

	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
	{
		Server		server = {.fail_first = 3, .status = statuses[i]};
		World		world;

		world_open(&world, &server, NULL);
		(void) read_many(&world, 1, 1, TB_OK);
		assert_int_equal(tb_store_counters(world.store).requests, 4);
		assert_int_equal(tb_store_counters(world.store).retries, 3);
		world_close(&world);
	}
}

/* Many reads of a server that refuses all: hardly more requests than reads, and the error says why. */
static void
storm_is_not_fed(void **state)
{
	Server		server = {.fail_first = 1000000, .status = 503};
	World		world;
	Reader		reader;
	int			done = 0;

	world_open(&world, &server, NULL);
	(void) read_many(&world, 200, 200, TB_E_THROTTLED);
	assert_true(httpd_requests(world.httpd) <= 240);
	assert_true(tb_store_counters(world.store).throttled == (uint64_t) httpd_requests(world.httpd));
	ask(&world, &reader, 1000, &done);
	pump_until(&world.rig, &done, 1);
	assert_int_equal(reader.read.status, TB_E_THROTTLED);
	assert_non_null(strstr(reader.read.error.detail, "not tried again: too many requests to this server fail"));
	world_close(&world);
}

/* Two engines share the node's books: together they are as few as one. */
static void
storm_of_processes(void **state)
{
	Server		server = {.fail_first = 1000000, .status = 500};
	Httpd	   *httpd = httpd_start(serve, &server);
	TbNode	   *node;
	World		world[8];
	Reader		readers[8][25];
	int			done = 0;
	int64_t		live = tb_mem_live();
	TbIoOptions options;

	assert_int_equal(tb_node_open(NULL, &node, NULL), TB_OK);
	options = (TbIoOptions) {.node = node};
	for (int i = 0; i < 8; i++)
	{
		world[i].httpd = httpd;
		rig_open(&world[i].rig, 0, &options);
		world[i].store = open_store(&world[i].rig, httpd);
		for (int j = 0; j < 25; j++)
			ask(&world[i], &readers[i][j], 1000, &done);
	}
	for (int64_t start = tb_now_ns(); done < 200 && seconds_since(start) < 60.0;)
		for (int i = 0; i < 8; i++)
			(void) tb_loop_pump(world[i].rig.loop, 1);
	assert_int_equal(done, 200);
	if (httpd_requests(httpd) > 240)
		fail_msg("%d requests for 200 reads", httpd_requests(httpd));
	for (int i = 8; i-- > 0;)
	{
		for (int j = 0; j < 25; j++)
			assert_int_equal(readers[i][j].read.status, TB_E_LOST);
		tb_store_close(world[i].store);
		tb_io_free(world[i].rig.io);
		tb_pool_free(world[i].rig.pool);
		tb_loop_free(world[i].rig.loop);
	}
	tb_node_close(node);
	assert_int_equal(tb_mem_live(), live);
	httpd_stop(httpd);
}

/* No more than the node allows are in flight, and all come. */
static void
node_limits(void **state)
{
	static const TbIoOptions options = {.max_requests_in_flight = 3};
	Server		server = {0};
	World		world;

	world_open(&world, &server, &options);
	(void) read_many(&world, 200, 200, TB_OK);
	assert_true(httpd_connections(world.httpd) <= 4);
	world_close(&world);
}

/* With room for one request endpoints take turns: the one that wants little is not kept behind all of the other. */
static void
endpoints_take_turns(void **state)
{
	static const TbIoOptions options = {.max_requests_in_flight = 1, .hedge_percent = -1};
	enum { MANY = 40 };
	Server		server = {0};
	Rig			rig;
	Httpd	   *httpd[2];
	TbStore    *store[2];
	TbRead		read[2][MANY];
	int			done[2] = {0, 0};

	rig_open(&rig, 0, &options);
	for (int i = 0; i < 2; i++)
	{
		httpd[i] = httpd_start(serve, &server);
		store[i] = open_store(&rig, httpd[i]);
	}
	for (int order = 0; order < 2; order++)
	{
		int			busy = 1 - order;

		done[0] = done[1] = 0;
		for (int k = 0; k < MANY; k++)
			for (int i = 0; i < 2; i++)
			{
				read[i][k] = (TbRead) {.key = "o", .kind = TB_RANGE_WHOLE, .length = OBJECT_BYTES,
					.done = count_done, .arg = &done[i]};
				if (i == busy || k < 2)
					tb_store_read(store[i], &read[i][k]);
			}
		pump_until(&rig, &done[order], 2);
		assert_true(done[busy] < MANY / 2);
		pump_until(&rig, &done[busy], MANY);
		for (int k = 0; k < MANY; k++)
			for (int i = 0; i < 2; i++)
				if (i == busy || k < 2)
					drop(&read[i][k]);
	}
	for (int i = 0; i < 2; i++)
		tb_store_close(store[i]);
	rig_close(&rig);
	httpd_stop(httpd[0]);
	httpd_stop(httpd[1]);
}

static int
setup(void **state)
{
	fill_golden();
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(late_ones_have_twins),
		cmocka_unit_test(cancel_with_twins),
		cmocka_unit_test(burst_is_survived),
		cmocka_unit_test(storm_is_not_fed),
		cmocka_unit_test(storm_of_processes),
		cmocka_unit_test(node_limits),
		cmocka_unit_test(endpoints_take_turns),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
