/* Orders: permutations of every small and some large n, different by key, and the same for ever. */
#include "dataset/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void
check_bijection(uint64_t n, uint64_t seed, uint64_t epoch)
{
	uint8_t    *seen = calloc(n + 1, 1);
	TbOrder		order;

	tb_order_init(&order, n, TB_SHUFFLE_FULL, seed, epoch);
	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	at = tb_order_at(&order, i);

		assert_true(at < n);
		assert_int_equal(seen[at], 0);
		seen[at] = 1;
	}
	free(seen);
}

static void
bijections(void **state)
{
	for (uint64_t n = 0; n <= 2000; n++)
		check_bijection(n, n * 77, n % 5);
	check_bijection(1u << 16, 1, 0);
	check_bijection((1u << 16) + 1, 1, 0);
	check_bijection(300007, UINT64_MAX, UINT64_MAX);
}

/* No two of many positions of huge orders collide, and none leaves the order. */
static int
compare_u64(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

static void
large_orders(void **state)
{
	static const uint64_t sizes[] = {UINT64_C(1) << 32, (UINT64_C(1) << 40) - 87,
									 (UINT64_C(1) << 62) + 1, UINT64_MAX};
	uint64_t	at[20000];

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
	{
		TbOrder		order;

		tb_order_init(&order, sizes[s], TB_SHUFFLE_FULL, 3, s);
		for (uint64_t i = 0; i < 20000; i++)
		{
			at[i] = tb_order_at(&order, i < 10000 ? i : sizes[s] - 1 - (i - 10000));
			assert_true(at[i] < sizes[s]);
		}
		qsort(at, 20000, sizeof(at[0]), compare_u64);
		for (int i = 1; i < 20000; i++)
			assert_true(at[i] != at[i - 1]);
	}
}

static void
none_is_identity(void **state)
{
	TbOrder		order;

	tb_order_init(&order, 1000, TB_SHUFFLE_NONE, 5, 6);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(tb_order_at(&order, i), i);
}

/* Seed and epoch each change the order; about one position in n stays by chance. */
static void
keys_matter(void **state)
{
	TbOrder		a;
	TbOrder		b;
	TbOrder		c;
	int			same_b = 0;
	int			same_c = 0;

	tb_order_init(&a, 5000, TB_SHUFFLE_FULL, 1, 2);
	tb_order_init(&b, 5000, TB_SHUFFLE_FULL, 2, 1);
	tb_order_init(&c, 5000, TB_SHUFFLE_FULL, 1, 3);
	for (uint64_t i = 0; i < 5000; i++)
	{
		same_b += tb_order_at(&a, i) == tb_order_at(&b, i);
		same_c += tb_order_at(&a, i) == tb_order_at(&c, i);
	}
	assert_true(same_b < 20);
	assert_true(same_c < 20);
}

/*
 * Every sample comes to the first place about equally often over many seeds: chi-squared, 15
 * degrees, p = 1e-6.
 */
static void
fair_over_seeds(void **state)
{
	int			count[16] = {0};
	double		chi = 0;

	for (uint64_t seed = 0; seed < 16000; seed++)
	{
		TbOrder		order;

		tb_order_init(&order, 16, TB_SHUFFLE_FULL, seed, 0);
		count[tb_order_at(&order, 3)]++;
	}
	for (int i = 0; i < 16; i++)
		chi += (count[i] - 1000.0) * (count[i] - 1000.0) / 1000.0;
	assert_true(chi < 56.5);
}

/* The vectors of docs/formats/dataset.md: an order that changes breaks every saved state. */
static void
golden(void **state)
{
	static const uint64_t ten[10] = {8, 4, 1, 7, 0, 5, 6, 2, 9, 3};
	static const uint64_t big[4] = {7873131, 2274142, 574110, 7836289};
	TbOrder		order;

	tb_order_init(&order, 10, TB_SHUFFLE_FULL, 7, 0);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(tb_order_at(&order, i), ten[i]);
	tb_order_init(&order, 10000000, TB_SHUFFLE_FULL, 42, 3);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(tb_order_at(&order, i), big[i]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bijections), cmocka_unit_test(large_orders), cmocka_unit_test(none_is_identity),
		cmocka_unit_test(keys_matter), cmocka_unit_test(fair_over_seeds), cmocka_unit_test(golden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
