/*
 * Dealing: ranks together get each sample once, in the order of the positions, whatever the tail
 * and the world.
 */
#include "dataset/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* Positions in the order in which the global batches hold them, over all ranks. */
static uint64_t
collect(TbDeal deal, uint64_t *out, uint32_t *padded, uint64_t *batches)
{
	uint64_t	n = 0;

	*padded = 0;
	deal.rank = 0;
	*batches = tb_deal_batches(&deal);
	for (uint64_t g = 0; g < *batches; g++)
		for (deal.rank = 0; deal.rank < deal.world_size; deal.rank++)
		{
			uint32_t	pads;
			uint32_t	got = tb_deal_batch(&deal, g, out + n, &pads);

			assert_int_equal(tb_deal_batches(&deal), *batches);
			assert_true(got <= deal.batch_size);
			n += got;
			*padded += pads;
		}
	return n;
}

static void
check(uint64_t n, uint32_t batch, uint32_t world, TbTail tail, uint64_t first)
{
	TbDeal		deal = {.n = n, .batch_size = batch, .world_size = world, .tail = tail,
						.first = first};
	uint64_t	left = first < n ? n - first : 0;
	uint64_t	size = (uint64_t) batch * world;
	uint64_t   *out = calloc(left + size + 1, sizeof(*out));
	uint32_t	padded;
	uint64_t	batches;
	uint64_t	got = collect(deal, out, &padded, &batches);
	uint64_t	real = tail == TB_TAIL_DROP ? left / size * size : left;

	assert_int_equal(batches, tail == TB_TAIL_DROP ? left / size : (left + size - 1) / size);
	assert_int_equal(got - padded, real);
	assert_int_equal(got, tail == TB_TAIL_PAD ? batches * size : real);
	for (uint64_t i = 0; i < got; i++)
		assert_int_equal(out[i], i < real ? first + i : (first + i - n) % n);
	free(out);
}

static void
all_small(void **state)
{
	for (uint64_t n = 0; n <= 40; n++)
		for (uint32_t batch = 1; batch <= 7; batch++)
			for (uint32_t world = 1; world <= 4; world++)
				for (int tail = TB_TAIL_DROP; tail <= TB_TAIL_RAGGED; tail++)
					for (uint64_t first = 0; first <= n + 1; first += 3)
						check(n, batch, world, (TbTail) tail, first);
}

/*
 * What was left at a position is the same for any batch size and world size that goes on from
 * there.
 */
static void
resume_elsewhere(void **state)
{
	TbDeal		one = {.n = 1000, .batch_size = 32, .world_size = 2, .tail = TB_TAIL_RAGGED};
	TbDeal		other = {.n = 1000, .batch_size = 7, .world_size = 3, .tail = TB_TAIL_RAGGED,
						 .first = 5 * 64};
	uint64_t	a[1100];
	uint64_t	b[1100];
	uint32_t	padded;
	uint64_t	batches;

	assert_int_equal(collect(one, a, &padded, &batches), 1000);
	assert_int_equal(collect(other, b, &padded, &batches), 1000 - 320);
	assert_memory_equal(a + 320, b, 680 * sizeof(a[0]));
}

static void
no_batches(void **state)
{
	TbDeal		deal = {.n = 10, .batch_size = 0, .world_size = 1};
	uint64_t	position;
	uint32_t	padded;

	assert_int_equal(tb_deal_batches(&deal), 0);
	deal.batch_size = UINT32_MAX;
	deal.world_size = UINT32_MAX;
	assert_int_equal(tb_deal_batches(&deal), 0);
	deal.tail = TB_TAIL_RAGGED;
	assert_int_equal(tb_deal_batches(&deal), 1);
	deal.rank = UINT32_MAX - 1;
	assert_int_equal(tb_deal_batch(&deal, 0, &position, &padded), 0);
	assert_int_equal(tb_deal_batch(&deal, 1, &position, &padded), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_small), cmocka_unit_test(resume_elsewhere), cmocka_unit_test(no_batches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
