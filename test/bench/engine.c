/*
 * Reading through the engine: blocks of an array, several fetches under way, decoded on pool threads into reused slots.
 *
 *   engine URL ARRAY [-t threads=2] [-f fetches in flight=64] [-s seed: shuffled] [-e every: each so-manieth block of the order]
 *          [-r passes=1] [-c cache directory] [-m: raw values, no CF unpacking]
 *
 * Prints one JSON line: bytes (decoded), seconds, blocks, cpu (s of this process), faults (minor, after the first quarter), rss
 * (peak, MiB, above what the slots take), requests, wire (bytes).
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "block/block.h"

typedef struct Slot
{
	TbTask		task;			/* decode */
	TbTask		back;			/* on the loop again */
	TbFetch    *fetch;
	uint8_t    *bytes;
	size_t		len;
	bool		busy;
	struct Bench *bench;
} Slot;

typedef struct Bench
{
	TbEngine   *engine;
	TbSource   *source;
	TbArray    *array;
	TbTreatment treatment;
	uint64_t	blocks[TB_MAX_DIM];
	uint64_t   *order;
	uint64_t	n_order;
	uint64_t	issued;
	uint64_t	done;
	uint64_t	total;
	uint64_t	bytes;
	long		faults;			/* at the first quarter */
	Slot	   *slots;
	int			n_slots;
} Bench;

static void
fail(const TbError *err)
{
	fprintf(stderr, "%s: %s\n", err->message, err->detail);
	exit(1);
}

static long
minor_faults(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return use.ru_minflt;
}

static void
run_decode(TbTask *task)
{
	Slot	   *slot = (Slot *) task;
	TbError		err;

	if (tb_fetch_decode(slot->fetch, slot->bench->treatment, slot->bytes, slot->len, &err) != TB_OK)
		fail(&err);
	tb_loop_post(tb_engine_loop(slot->bench->engine), &slot->back);
}

static void
run_back(TbTask *task)
{
	Slot	   *slot = (Slot *) ((char *) task - offsetof(Slot, back));
	Bench	   *bench = slot->bench;

	tb_fetch_free(slot->fetch);
	bench->bytes += slot->len;
	if (++bench->done == bench->total / 4)
		bench->faults = minor_faults();
	slot->busy = false;
}

static void
ready(void *arg)
{
	Slot	   *slot = arg;
	TbError		err;

	if (tb_fetch_poll(slot->fetch, &err) != TB_OK)
		fail(&err);
	tb_pool_submit(tb_engine_pool(slot->bench->engine), &slot->task);
}

static void
begin(Bench *bench, Slot *slot)
{
	const TbArrayMeta *meta = tb_array_meta(bench->array);
	uint64_t	rest = bench->order[bench->issued++ % bench->n_order];
	uint64_t	elements;
	TbRegion	region = {.ndim = meta->ndim};
	TbError		err;

	for (int d = meta->ndim - 1; d >= 0; d--)
	{
		uint64_t	index = rest % bench->blocks[d];

		rest /= bench->blocks[d];
		region.start[d] = index * meta->chunk[d];
		region.count[d] = meta->chunk[d];
		if (region.start[d] + region.count[d] > meta->shape[d])
			region.count[d] = meta->shape[d] - region.start[d];
	}
	slot->busy = true;
	(void) tb_region_elements(&region, &elements);
	slot->len = elements * tb_dtype_size(tb_treated_dtype(meta, bench->treatment));
	if (tb_fetch_open_into(bench->array, &region, bench->treatment, slot->bytes, &slot->fetch, &err) != TB_OK)
		fail(&err);
	tb_fetch_on_ready(slot->fetch, ready, slot);
}

static void
open_array(Bench *bench, const char *url, const char *path)
{
	TbStoreSpec spec = {.url = url, .any_address = true, .anonymous = true, .endpoint = getenv("TB_BENCH_ENDPOINT")};
	TbStatus	status;
	TbError		err;

	if (tb_source_open(bench->engine, &spec, &bench->source, &err) != TB_OK ||
		tb_array_open(bench->source, path, -1, &bench->array, &err) != TB_OK)
		fail(&err);
	while ((status = tb_array_poll(bench->array, &err)) == TB_AGAIN)
		tb_engine_wait(bench->engine, 100);
	if (status != TB_OK)
		fail(&err);
}

/* The same order as the plain reader's for the same seed: both walk their list by it. */
static void
make_order(Bench *bench, uint64_t seed, uint64_t every)
{
	const TbArrayMeta *meta = tb_array_meta(bench->array);
	uint64_t	n = 1;
	uint64_t	x = seed * 0x9E3779B97F4A7C15ull | 1;

	for (int d = 0; d < meta->ndim; d++)
	{
		bench->blocks[d] = (meta->shape[d] + meta->chunk[d] - 1) / meta->chunk[d];
		n *= bench->blocks[d];
	}
	bench->order = malloc(n * sizeof(uint64_t));
	for (uint64_t i = 0; i < n; i++)
		bench->order[i] = i;
	for (uint64_t i = n - 1; seed != 0 && i > 0; i--)
	{
		uint64_t	j;
		uint64_t	t = bench->order[i];

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		j = x % (i + 1);
		bench->order[i] = bench->order[j];
		bench->order[j] = t;
	}
	for (uint64_t i = 0; i * every < n; i++)
		bench->order[i] = bench->order[i * every];
	bench->n_order = (n + every - 1) / every;
}

static void
make_slots(Bench *bench)
{
	const TbArrayMeta *meta = tb_array_meta(bench->array);
	size_t		slot_bytes = tb_dtype_size(tb_treated_dtype(meta, bench->treatment));

	for (int d = 0; d < meta->ndim; d++)
		slot_bytes *= meta->chunk[d];
	bench->slots = calloc((size_t) bench->n_slots, sizeof(Slot));
	for (int i = 0; i < bench->n_slots; i++)
	{
		bench->slots[i].bytes = malloc(slot_bytes);
		memset(bench->slots[i].bytes, 1, slot_bytes);	/* touched before the clock, as a ring is */
		bench->slots[i].task.run = run_decode;
		bench->slots[i].back.run = run_back;
		bench->slots[i].bench = bench;
	}
}

/* Peak resident memory in MiB: getrusage's survives exec, so it would be our parent's. */
static double
peak_mib(void)
{
	FILE	   *status = fopen("/proc/self/status", "r");
	char		line[200];
	long		kib = 0;

	while (status != NULL && fgets(line, sizeof(line), status) != NULL)
		if (strncmp(line, "VmHWM:", 6) == 0)
			kib = strtol(line + 6, NULL, 10);
	if (status != NULL)
		fclose(status);
	return (double) kib / 1024;
}

static void
report(const Bench *bench, double seconds)
{
	struct rusage use;
	TbIoCounters counters = tb_store_counters(tb_source_store(bench->source));

	getrusage(RUSAGE_SELF, &use);
	printf("{\"bytes\": %llu, \"seconds\": %.5f, \"blocks\": %llu, \"cpu\": %.4f, \"faults\": %ld, \"rss\": %.1f, "
		   "\"requests\": %llu, \"wire\": %llu, \"hits\": %llu}\n",
		   (unsigned long long) bench->bytes, seconds, (unsigned long long) bench->done,
		   (double) (use.ru_utime.tv_sec + use.ru_stime.tv_sec) + (double) (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6,
		   use.ru_minflt - bench->faults, peak_mib() -
		   (double) bench->n_slots * (double) bench->slots[0].len / 1048576,
		   (unsigned long long) counters.requests, (unsigned long long) counters.bytes,
		   (unsigned long long) counters.cache_hits);
}

int
main(int argc, char **argv)
{
	TbEngineOptions options = {.threads = 2};
	Bench		bench = {.n_slots = 64};
	uint64_t	seed = 0;
	uint64_t	every = 1;
	uint64_t	passes = 1;
	TbError		err;
	int64_t		start;
	int			c;

	while ((c = getopt(argc, argv, "t:f:s:e:r:c:m")) != -1)
		switch (c)
		{
			case 't': options.threads = (int) strtol(optarg, NULL, 10); break;
			case 'f': bench.n_slots = (int) strtol(optarg, NULL, 10); break;
			case 's': seed = strtoull(optarg, NULL, 10); break;
			case 'e': every = strtoull(optarg, NULL, 10); break;
			case 'r': passes = strtoull(optarg, NULL, 10); break;
			case 'c': options.io.cache_directory = optarg; break;
			case 'm': bench.treatment.raw = true; break;
			default: return 2;
		}
	if (argc - optind != 2)
		return 2;
	if (tb_engine_new(&options, &bench.engine, &err) != TB_OK)
		fail(&err);
	open_array(&bench, argv[optind], argv[optind + 1]);
	make_order(&bench, seed, every);
	make_slots(&bench);
	tb_source_forget(bench.source);
	start = tb_now_ns();
	tb_array_unref(bench.array);
	open_array(&bench, argv[optind], argv[optind + 1]);
	bench.total = bench.n_order * passes;
	while (bench.done < bench.total)
	{
		for (int i = 0; i < bench.n_slots && bench.issued < bench.total; i++)
			if (!bench.slots[i].busy)
				begin(&bench, &bench.slots[i]);
		tb_engine_wait(bench.engine, 100);
	}
	report(&bench, (double) (tb_now_ns() - start) / 1e9);
	return 0;
}
