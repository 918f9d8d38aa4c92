/*
 * The same reading through the engine: all blocks of an array, several fetches under way, decoded on pool threads into reused slots.
 *
 *   engine URL ARRAY THREADS IN_FLIGHT       prints one JSON line: bytes (decoded), seconds
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

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
	TbArray    *array;
	uint64_t	blocks[TB_MAX_DIM];
	uint64_t	n_blocks;
	uint64_t	issued;
	uint64_t	done;
	uint64_t	bytes;
	Slot	   *slots;
	int			n_slots;
} Bench;

static void
fail(const TbError *err)
{
	fprintf(stderr, "%s: %s\n", err->message, err->detail);
	exit(1);
}

static void
run_decode(TbTask *task)
{
	Slot	   *slot = (Slot *) task;
	TbError		err;

	if (tb_fetch_decode(slot->fetch, (TbTreatment) {0}, slot->bytes, slot->len, &err) != TB_OK)
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
	bench->done++;
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
	uint64_t	rest = bench->issued++;
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
	slot->len = elements * tb_dtype_size(meta->packing.decoded);
	if (tb_fetch_open(bench->array, &region, &slot->fetch, &err) != TB_OK)
		fail(&err);
	tb_fetch_on_ready(slot->fetch, ready, slot);
}

static void
open_array(Bench *bench, const char *url, const char *path)
{
	TbStoreSpec spec = {.url = url};
	TbSource   *source;
	const TbArrayMeta *meta;
	TbStatus	status;
	TbError		err;

	if (tb_source_open(bench->engine, &spec, &source, &err) != TB_OK ||
		tb_array_open(source, path, -1, &bench->array, &err) != TB_OK)
		fail(&err);
	while ((status = tb_array_poll(bench->array, &err)) == TB_AGAIN)
		tb_engine_wait(bench->engine, 100);
	if (status != TB_OK)
		fail(&err);
	meta = tb_array_meta(bench->array);
	bench->n_blocks = 1;
	for (int d = 0; d < meta->ndim; d++)
	{
		bench->blocks[d] = (meta->shape[d] + meta->chunk[d] - 1) / meta->chunk[d];
		bench->n_blocks *= bench->blocks[d];
	}
}

int
main(int argc, char **argv)
{
	TbEngineOptions options = {0};
	Bench		bench = {0};
	TbError		err;
	int64_t		start;
	size_t		slot_bytes = 1;

	if (argc != 5)
		return 2;
	options.threads = (int) strtol(argv[3], NULL, 10);
	bench.n_slots = (int) strtol(argv[4], NULL, 10);
	if (tb_engine_new(&options, &bench.engine, &err) != TB_OK)
		fail(&err);
	start = tb_now_ns();
	open_array(&bench, argv[1], argv[2]);
	for (int d = 0; d < tb_array_meta(bench.array)->ndim; d++)
		slot_bytes *= tb_array_meta(bench.array)->chunk[d];
	slot_bytes *= tb_dtype_size(tb_array_meta(bench.array)->packing.decoded);
	bench.slots = calloc((size_t) bench.n_slots, sizeof(Slot));
	for (int i = 0; i < bench.n_slots; i++)
	{
		bench.slots[i].bytes = malloc(slot_bytes);
		bench.slots[i].task.run = run_decode;
		bench.slots[i].back.run = run_back;
		bench.slots[i].bench = &bench;
	}
	while (bench.done < bench.n_blocks)
	{
		for (int i = 0; i < bench.n_slots && bench.issued < bench.n_blocks; i++)
			if (!bench.slots[i].busy)
				begin(&bench, &bench.slots[i]);
		tb_engine_wait(bench.engine, 100);
	}
	printf("{\"bytes\": %llu, \"seconds\": %.5f}\n", (unsigned long long) bench.bytes,
		   (double) (tb_now_ns() - start) / 1e9);
	return 0;
}
