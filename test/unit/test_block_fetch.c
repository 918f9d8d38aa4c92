/*
 * Regions of random arrays against a plain reference: both formats, orders, shards in shards,
 * chunks that are not there, edges; what the parts say of themselves; shards that change under a
 * fetch.
 */
#include "block_help.h"

#include "block/fetch.h"

typedef struct Sum
{
	uint64_t	total;
	size_t		n;
} Sum;

static void
sum_run(void *arg, const void *packed, size_t elements)
{
	Sum		   *sum = arg;
	int32_t		v;

	for (size_t i = 0; i < elements; i++)
	{
		memcpy(&v, (const uint8_t *) packed + i * sizeof(v), sizeof(v));
		sum->total += (uint64_t) (int64_t) v * 2654435761u;
		sum->n++;
	}
}

/* Whether the fetch's values are those of the sample, by decoding, casting and visiting. */
static void
check_fetch(const Sample *s, TbFetch *fetch, const TbRegion *region)
{
	TbTreatment plain = {.raw = true, .cast = TB_NONE};
	TbTreatment wide = {.raw = true, .cast = TB_F64};
	size_t		n;
	int32_t    *want = sample_region(s, region, &n);
	int32_t    *got = malloc((n + 1) * sizeof(int32_t));
	double	   *cast = malloc((n + 1) * sizeof(double));
	Sum			sum = {0};
	Sum			want_sum = {0};
	TbError		error;

	assert_ok(tb_fetch_decode(fetch, plain, got, n * sizeof(int32_t), &error), error);
	assert_memory_equal(got, want, n * sizeof(int32_t));
	assert_ok(tb_fetch_decode(fetch, wide, cast, n * sizeof(double), &error), error);
	for (size_t i = 0; i < n; i++)
		assert_true(cast[i] == want[i]);
	assert_ok(tb_fetch_visit(fetch, sum_run, &sum, &error), error);
	sum_run(&want_sum, want, n);
	assert_int_equal(sum.n, n);
	assert_true(sum.total == want_sum.total);
	assert_int_equal(tb_fetch_decode(fetch, plain, got, n * sizeof(int32_t) + 1, &error),
					 TB_E_INTERNAL);
	free(want);
	free(got);
	free(cast);
}

/* Places must name what is stored: whole objects or byte ranges, and what is missing. */
static void
check_places(const Sample *s, TbFetch *fetch, const TbRegion *region)
{
	TbPlace		place;
	size_t		n = 0;
	bool		all = true;

	while (tb_fetch_place(fetch, n, &place))
	{
		assert_true(strncmp(place.key, "a/b/", 4) == 0);
		for (int d = 0; d < s->ndim; d++)
			assert_true(place.chunk[d] * s->chunk[d] < region->start[d] + region->count[d] &&
						(place.chunk[d] + 1) * s->chunk[d] > region->start[d]);
		if (!place.missing)
			assert_true(s->n_levels == 0 ? place.length == UINT64_MAX
										 : place.length > 0 && place.length < 100000);
		all = all && place.missing;
		n++;
	}
	assert_int_equal(tb_fetch_all_missing(fetch), n > 0 && all);
	if (n == 0 || all)
		assert_true(s->n_levels > 0 || tb_fetch_bytes(fetch) == 0);
	else
		assert_true(tb_fetch_version(fetch) != 0);
}

/* A fetch that lets chunks land where they are wanted gives the same elements. */
static void
check_into(const Sample *s, TbEngine *engine, TbArray *array, const TbRegion *region)
{
	TbTreatment plain = {.raw = true, .cast = TB_NONE};
	size_t		n;
	int32_t    *want = sample_region(s, region, &n);
	int32_t    *got = malloc((n + 1) * sizeof(int32_t));
	TbFetch    *fetch;
	TbStatus	status;
	TbError		error;

	got[n] = 4711;
	assert_ok(tb_fetch_open_into(array, region, plain, got, &fetch, &error), error);
	WAIT(engine, status, tb_fetch_poll(fetch, &error));
	assert_ok(status, error);
	assert_ok(tb_fetch_decode(fetch, plain, got, n * sizeof(int32_t), &error), error);
	assert_memory_equal(got, want, n * sizeof(int32_t));
	assert_int_equal(got[n], 4711);
	tb_fetch_free(fetch);
	free(want);
	free(got);
}

static void
random_rounds(int rounds, uint32_t random)
{
	TbEngine   *engine = engine_open(0);

	for (int round = 0; round < rounds; round++)
	{
		TbSource   *source;
		TbArray    *array;
		Sample		s;

		assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
		sample_random_shape(&s, &random);
		sample_build(&s, tb_source_store(source));
		array = array_open(engine, source, "a/b");
		assert_int_equal(tb_array_meta(array)->n_shard_levels, s.n_levels);
		for (int i = 0; i < 12; i++)
		{
			TbRegion	region;
			TbFetch    *fetch;

			sample_random_region(&s, &random, &region);
			fetch = fetch_open(engine, array, &region);
			check_fetch(&s, fetch, &region);
			check_places(&s, fetch, &region);
			tb_fetch_free(fetch);
			check_into(&s, engine, array, &region);
		}
		tb_array_unref(array);
		tb_source_unref(source);
		sample_free(&s);
	}
	tb_engine_free(engine);
}

static void
random_arrays(void **state)
{
	int64_t		live;

	random_rounds(100, 1);
	live = tb_mem_live();		/* the thread keeps its decoding scratch */
	random_rounds(300, 20261130);
	assert_int_equal(tb_mem_live(), live);
}

static Sample
sharded(int32_t add)
{
	Sample s = {.path = "a/b",
				.zstd = true,
				.index_crc = true,
				.separator = '/',
				.ndim = 2,
				.shape = {16, 16},
				.chunk = {4, 4},
				.n_levels = 1,
				.shard = {{8, 8}},
				.seed = 5,
				.add = add};

	return s;
}

static const TbRegion everything = {.ndim = 2, .count = {16, 16}};

/* A whole chunk that is stored as it is wanted is not copied. */
static void
lands_in_place(void **state)
{
	TbEngine   *engine = engine_open(0);
	Sample		s = {
		.path = "a/b", .separator = '/', .ndim = 2, .shape = {16, 8}, .chunk = {4, 8}, .n_levels = 1,
		.shard = {{8, 8}}, .seed = 5
	};
	TbRegion	rows = {.ndim = 2, .start = {4, 0}, .count = {8, 8}};
	TbTreatment plain = {.raw = true};
	int32_t		dst[64];
	int32_t    *want;
	size_t		n;
	TbSource   *source;
	TbArray    *array;
	TbFetch    *fetch;
	TbStatus	status;
	TbError		error;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	sample_build(&s, tb_source_store(source));
	array = array_open(engine, source, "a/b");
	assert_ok(tb_fetch_open_into(array, &rows, plain, dst, &fetch, &error), error);
	WAIT(engine, status, tb_fetch_poll(fetch, &error));
	assert_ok(status, error);
	want = sample_region(&s, &rows, &n);
	assert_memory_equal(dst, want, sizeof(dst));	/* before decoding */
	assert_ok(tb_fetch_decode(fetch, plain, dst, sizeof(dst), &error), error);
	assert_memory_equal(dst, want, sizeof(dst));
	free(want);
	tb_fetch_free(fetch);
	tb_array_unref(array);
	tb_source_unref(source);
	sample_free(&s);
	tb_engine_free(engine);
}

static void
requests_are_few(void **state)
{
	TbEngine   *engine = engine_open(0);
	Sample		s = sharded(0);
	TbRegion	corner = {.ndim = 2, .start = {1, 1}, .count = {2, 2}};
	TbSource   *source;
	TbArray    *array;
	TbFetch    *fetch;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	sample_build(&s, tb_source_store(source));
	array = array_open(engine, source, "/a/b/");
	assert_string_equal(tb_array_codecs(array), "bytes, zstd(level 1)");

	/* an index and a chunk a shard; then chunks alone; a part of a chunk is kept */
	fetch = fetch_open(engine, array, &everything);
	assert_int_equal(tb_fetch_requests(fetch), 4 + 16);
	tb_fetch_free(fetch);
	fetch = fetch_open(engine, array, &everything);
	assert_int_equal(tb_fetch_requests(fetch), 16);
	tb_fetch_free(fetch);
	fetch = fetch_open(engine, array, &corner);
	assert_int_equal(tb_fetch_requests(fetch), 1);
	check_fetch(&s, fetch, &corner);
	tb_fetch_free(fetch);
	fetch = fetch_open(engine, array, &corner);
	assert_int_equal(tb_fetch_requests(fetch), 0);
	check_fetch(&s, fetch, &corner);
	tb_fetch_free(fetch);

	/* where the bytes are, without reading them */
	tb_source_forget(source);
	assert_int_equal(tb_fetch_locate(array, &everything, &fetch, NULL), TB_OK);
	while (tb_fetch_poll(fetch, NULL) == TB_AGAIN)
		tb_engine_wait(engine, 100);
	assert_int_equal(tb_fetch_requests(fetch), 4);
	{
		TbPlace		place;
		TbTreatment plain = {0};
		int32_t		dst[256];

		assert_true(tb_fetch_place(fetch, 5, &place));
		assert_string_equal(place.key, "a/b/c/0/0");
		assert_int_equal(place.chunk[0], 1);
		assert_int_equal(place.chunk[1], 1);
		assert_false(tb_fetch_place(fetch, 16, &place));
		assert_int_equal(tb_fetch_decode(fetch, plain, dst, sizeof(dst), NULL), TB_E_STATE);
	}
	tb_fetch_free(fetch);
	tb_array_unref(array);
	tb_source_unref(source);
	tb_engine_free(engine);
	sample_free(&s);
}

/* A shard that another program overwrote, or removed, after its index was cached: the new state is
 * read. */
static void
changed_shards(void **state)
{
	TbEngine   *engine = engine_open(0);
	Sample		s = sharded(0);
	TbSource   *source;
	TbArray    *array;
	TbFetch    *fetch;
	uint64_t	version;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	sample_build(&s, tb_source_store(source));
	array = array_open(engine, source, "a/b");
	fetch = fetch_open(engine, array, &everything);
	version = tb_fetch_version(fetch);
	tb_fetch_free(fetch);
	fetch = fetch_open(engine, array, &everything);
	assert_true(tb_fetch_version(fetch) == version);
	tb_fetch_free(fetch);

	s.add = 1000;
	s.missing_percent = 40;
	sample_build(&s, tb_source_store(source));
	fetch = fetch_open(engine, array, &everything);
	check_fetch(&s, fetch, &everything);
	assert_true(tb_fetch_version(fetch) != version);
	tb_fetch_free(fetch);

	assert_int_equal(tb_store_delete(tb_source_store(source), "a/b/c/0/0", NULL), TB_OK);
	for (uint64_t i = 0; i < 8; i++)
		for (uint64_t j = 0; j < 8; j++)
			s.values[i * 16 + j] = SAMPLE_FILL;
	fetch = fetch_open(engine, array, &everything);
	check_fetch(&s, fetch, &everything);
	tb_fetch_free(fetch);
	tb_array_unref(array);
	tb_source_unref(source);
	tb_engine_free(engine);
	sample_free(&s);
}

/* A shard that is overwritten again and again while it is read: one of its versions, or CHANGED,
 * never two. */
static void
never_two_versions(void **state)
{
	TbTreatment plain = {.raw = true, .cast = TB_NONE};
	int			changed = 0;

	for (int round = 0; round < 60; round++)
	{
		TbEngine   *engine = engine_open(0);
		Sample s = {.path = "a/b",
					.index_crc = true,
					.separator = '/',
					.ndim = 1,
					.shape = {64},
					.chunk = {2},
					.n_levels = 2,
					.shard = {{64}, {16}},
					.seed = 5};
		TbRegion	part = {.ndim = 1, .start = {1}, .count = {62}};
		TbSource   *source;
		TbArray    *array;
		TbFetch    *fetch;
		TbError		error;
		TbStatus	status;

		assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
		sample_build(&s, tb_source_store(source));
		array = array_open(engine, source, "a/b");
		assert_int_equal(tb_fetch_open(array, &part, &fetch, NULL), TB_OK);
		for (int step = 0; (status = tb_fetch_poll(fetch, &error)) == TB_AGAIN; step++)
		{
			if (step == round % 7 || (round % 2 == 0 && step == round % 5 + 2))
			{
				s.add += 100000;
				sample_build(&s, tb_source_store(source));
			}
			tb_engine_wait(engine, 100);
		}
		if (status == TB_OK)
		{
			int32_t		got[62];

			assert_ok(tb_fetch_decode(fetch, plain, got, sizeof(got), &error), error);
			for (int i = 0; i < 62; i++)
				assert_int_equal(got[i] - (i + 1) * 7, got[0] - 7);
		}
		else
		{
			assert_int_equal(status, TB_E_CHANGED);
			assert_non_null(strstr(error.detail, "a/b/c/0"));
			changed++;
		}
		tb_fetch_free(fetch);
		tb_array_unref(array);
		tb_source_unref(source);
		tb_engine_free(engine);
		sample_free(&s);
	}
	assert_true(changed > 0);
}

static void
bad_chunks(void **state)
{
	TbEngine   *engine = engine_open(0);
	Sample s = {.path = "a/b",
				.zstd = true,
				.separator = '.',
				.v2 = true,
				.ndim = 2,
				.shape = {16, 16},
				.chunk = {4, 4},
				.seed = 5};
	TbTreatment plain = {.raw = true, .cast = TB_NONE};
	TbRegion	row = {.ndim = 2, .count = {4, 16}};
	TbRegion	part = {.ndim = 2, .start = {0, 9}, .count = {2, 2}};
	TbRegion	left = {.ndim = 2, .start = {8, 0}, .count = {8, 8}};
	uint64_t	requests;
	TbRegion	outside = {.ndim = 2, .start = {1, 1}, .count = {16, 1}};
	int32_t		got[256];
	TbSource   *source;
	TbArray    *array;
	TbFetch    *fetch;
	TbError		error;
	TbStatus	status;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	sample_build(&s, tb_source_store(source));
	put_text(tb_source_store(source), "a/b/0.2", "not a frame");
	array = array_open(engine, source, "a/b");
	fetch = fetch_open(engine, array, &row);
	assert_int_equal(tb_fetch_decode(fetch, plain, got, 4 * 16 * 4, &error), TB_E_CORRUPT);
	assert_non_null(strstr(error.detail, "a/b/0.2"));
	assert_non_null(strstr(error.detail, "chunk [0, 2]"));
	assert_non_null(strstr(error.detail, "zstd"));
	tb_fetch_free(fetch);
	/* a shared one that was damaged is asked for again, and may be repaired by then */
	fetch = fetch_open(engine, array, &part);
	assert_int_equal(tb_fetch_decode(fetch, plain, got, 2 * 2 * 4, &error), TB_E_CORRUPT);
	tb_fetch_free(fetch);
	sample_build(&s, tb_source_store(source));
	fetch = fetch_open(engine, array, &part);
	check_fetch(&s, fetch, &part);
	tb_fetch_free(fetch);
	assert_int_equal(tb_fetch_open(array, &outside, &fetch, &error), TB_E_RANGE);
	row.ndim = 1;
	assert_int_equal(tb_fetch_open(array, &row, &fetch, &error), TB_E_INVALID);
	tb_array_unref(array);
	tb_source_unref(source);

	sample_free(&s);

	/* an index that is not one */
	s = sharded(0);
	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	sample_build(&s, tb_source_store(source));
	memset(got, 7, sizeof(got));
	put_bytes(tb_source_store(source), "a/b/c/1/0", got, 200);
	array = array_open(engine, source, "a/b");
	requests = tb_store_counters(tb_source_store(source)).requests;
	assert_int_equal(tb_fetch_open(array, &left, &fetch, &error), TB_OK);
	WAIT(engine, status, tb_fetch_poll(fetch, &error));
	assert_int_equal(status, TB_E_CORRUPT);
	assert_non_null(strstr(error.detail, "a/b/c/1/0"));
	tb_fetch_free(fetch);
	/* asked for once more before it is called damaged */
	assert_int_equal(tb_store_counters(tb_source_store(source)).requests - requests, 2);
	put_bytes(tb_source_store(source), "a/b/c/1/0", got, 3);
	assert_int_equal(tb_fetch_open(array, &everything, &fetch, &error), TB_OK);
	WAIT(engine, status, tb_fetch_poll(fetch, &error));
	assert_int_equal(status, TB_E_CORRUPT);
	tb_fetch_free(fetch);
	tb_array_unref(array);
	tb_source_unref(source);
	tb_engine_free(engine);
	sample_free(&s);
}

/* What was damaged on its way is whole when it is read again; once. */
static void
damaged_on_its_way(void **state)
{
	TbEngine   *engine = engine_open(0);
	Sample		s = {.path = "a/b", .zstd = true, .separator = '.', .v2 = true, .ndim = 2, .shape = {16, 16},
	.chunk = {4, 4}, .seed = 5};
	TbTreatment plain = {.raw = true, .cast = TB_NONE};
	TbRegion	regions[] = {{.ndim = 2, .count = {4, 16}}, {.ndim = 2, .start = {0, 9}, .count = {2, 2}}};
	int32_t		got[64];
	TbSource   *source;
	TbArray    *array;
	TbFetch    *fetch;
	TbError		error;
	TbStatus	status;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	sample_build(&s, tb_source_store(source));
	array = array_open(engine, source, "a/b");
	for (int i = 0; i < 2; i++)
	{
		const TbRegion *region = &regions[i];
		size_t		bytes = (size_t) (region->count[0] * region->count[1]) * 4;

		put_text(tb_source_store(source), "a/b/0.2", "not a frame");
		fetch = fetch_open(engine, array, region);
		assert_int_equal(tb_fetch_decode(fetch, plain, got, bytes, &error), TB_E_CORRUPT);
		sample_build(&s, tb_source_store(source));
		assert_true(tb_fetch_again(fetch));
		assert_false(tb_fetch_again(fetch));
		WAIT(engine, status, tb_fetch_poll(fetch, &error));
		assert_int_equal(status, TB_OK);
		check_fetch(&s, fetch, region);
		assert_false(tb_fetch_again(fetch));
		tb_fetch_free(fetch);
	}
	/* freed in the middle of it */
	put_text(tb_source_store(source), "a/b/0.2", "not a frame");
	fetch = fetch_open(engine, array, &regions[0]);
	assert_int_equal(tb_fetch_decode(fetch, plain, got, 4 * 16 * 4, &error), TB_E_CORRUPT);
	assert_true(tb_fetch_again(fetch));
	tb_fetch_free(fetch);
	tb_array_unref(array);
	tb_source_unref(source);
	tb_engine_free(engine);
	sample_free(&s);
}

static void
count_ready(void *arg)
{
	++*(int *) arg;
}

/* Ended at any point, and asked for at any point, nothing is left over. */
static void
cancels_and_ready(void **state)
{
	int64_t		live = tb_mem_live();
	TbEngine   *engine = engine_open(0);
	Sample		s = sharded(0);
	TbRegion	inner = {.ndim = 2, .start = {1, 1}, .count = {14, 14}};
	TbSource   *source;
	TbArray    *array;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	sample_build(&s, tb_source_store(source));
	array = array_open(engine, source, "a/b");
	for (int steps = 0; steps < 12; steps++)
	{
		TbFetch    *one;
		TbFetch    *two;
		int			ready = 0;

		tb_source_forget(source);
		assert_int_equal(tb_fetch_open(array, &inner, &one, NULL), TB_OK);
		assert_int_equal(tb_fetch_open(array, &inner, &two, NULL), TB_OK);
		tb_fetch_on_ready(two, count_ready, &ready);
		for (int i = 0; i < steps; i++)
			tb_engine_pump(engine);
		tb_fetch_free(one);		/* the other one goes on with the reads that they share */
		while (ready == 0)
			tb_engine_wait(engine, 100);
		assert_int_equal(tb_fetch_poll(two, NULL), TB_OK);
		check_fetch(&s, two, &inner);
		tb_fetch_on_ready(two, count_ready, &ready);
		tb_engine_pump(engine);
		assert_int_equal(ready, 1);
		tb_fetch_free(two);
	}
	tb_array_unref(array);
	tb_source_unref(source);
	tb_engine_free(engine);
	sample_free(&s);
	assert_int_equal(tb_mem_live(), live);
}

/* ---- several threads ---- */

typedef struct Job
{
	TbTask		task;
	const Sample *s;
	TbFetch    *fetch;
	TbRegion	region;
	int32_t    *got;
	size_t		n;
	TbStatus	status;
	int			done;			/* atomic */
} Job;

static void
decode_job(TbTask *task)
{
	Job		   *job = (Job *) ((char *) task - offsetof(Job, task));
	TbTreatment plain = {.raw = true, .cast = TB_NONE};

	job->status = tb_fetch_decode(job->fetch, plain, job->got, job->n * sizeof(int32_t), NULL);
	__atomic_store_n(&job->done, 1, __ATOMIC_RELEASE);
}

static void
decode_in_threads(void **state)
{
	TbEngine   *engine = engine_open(2);
	Sample s = {.path = "a/b",
				.zstd = true,
				.index_crc = true,
				.separator = '/',
				.ndim = 2,
				.shape = {300, 300},
				.chunk = {50, 100},
				.n_levels = 1,
				.shard = {{150, 200}},
				.missing_percent = 10,
				.seed = 9};
	uint32_t	random = 3;
	TbSource   *source;
	TbArray    *array;

	assert_int_equal(tb_source_open_mem(engine, &source, NULL), TB_OK);
	sample_build(&s, tb_source_store(source));
	array = array_open(engine, source, "a/b");
	for (int round = 0; round < 20; round++)
	{
		Job			job[8];

		for (int i = 0; i < 8; i++)
		{
			memset(&job[i], 0, sizeof(job[i]));
			sample_random_region(&s, &random, &job[i].region);
			assert_int_equal(tb_fetch_open(array, &job[i].region, &job[i].fetch, NULL), TB_OK);
		}
		for (int i = 0; i < 8; i++)
		{
			while (tb_fetch_poll(job[i].fetch, NULL) == TB_AGAIN)
				tb_engine_wait(engine, 100);
			assert_int_equal(tb_fetch_poll(job[i].fetch, NULL), TB_OK);
			job[i].n = job[i].region.count[0] * job[i].region.count[1];
			job[i].got = malloc((job[i].n + 1) * sizeof(int32_t));
			job[i].task.run = decode_job;
			tb_pool_submit(tb_engine_pool(engine), &job[i].task);
		}
		for (int i = 0; i < 8; i++)
		{
			size_t		n;
			int32_t    *want = sample_region(&s, &job[i].region, &n);

			while (!__atomic_load_n(&job[i].done, __ATOMIC_ACQUIRE))
				tb_engine_wait(engine, 1);
			assert_int_equal(job[i].status, TB_OK);
			assert_memory_equal(job[i].got, want, n * sizeof(int32_t));
			free(want);
			free(job[i].got);
			tb_fetch_free(job[i].fetch);
		}
	}
	tb_array_unref(array);
	tb_source_unref(source);
	tb_engine_free(engine);
	sample_free(&s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_arrays),
		cmocka_unit_test(lands_in_place),
		cmocka_unit_test(requests_are_few),
		cmocka_unit_test(changed_shards),
		cmocka_unit_test(never_two_versions),
		cmocka_unit_test(bad_chunks),
		cmocka_unit_test(damaged_on_its_way),
		cmocka_unit_test(cancels_and_ready),
		cmocka_unit_test(decode_in_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
