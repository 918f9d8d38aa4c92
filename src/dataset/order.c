/*
 * Keyed permutations of positions: any position's sample is computed alone, so a stream's order
 * needs no memory and a resumed stream no replay. A Feistel network permutes the smallest domain
 * 2^(2 * half_bits) that holds n; results beyond n are walked on along their cycle until one lies
 * inside, which is a bijection of [0, n) again and takes fewer than four steps on average.
 *
 * The outputs are part of the dataset format (docs/formats/dataset.md, "Order"): a change of them
 * is a new version. source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains",
 * section 5 (cycle walking) and 6 (Feistel).
 */
#include "dataset/dataset.h"

#define ROUNDS 8				/* twice the four that suffice for large domains: half a domain may be one bit wide */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define EPOCH_SALT UINT64_C(0x6a09e667f3bcc909)

/* Prepare the order of n samples. Of shuffle NONE it is the identity. */
void
tb_order_init(TbOrder *order, uint64_t n, TbShuffle shuffle, uint64_t seed, uint64_t epoch)
{
	uint64_t	key = tb_mix64(tb_mix64(seed + GOLDEN) ^ (epoch + EPOCH_SALT));
	int			bits = n > 1 ? 64 - __builtin_clzll(n - 1) : 1;

	order->n = n;
	order->shuffle = shuffle;
	order->half_bits = (bits + 1) / 2;
	for (int i = 0; i < 4; i++)
		order->key[i] = tb_mix64(key + GOLDEN * (uint64_t) (i + 1));
}

/* One pass of the network over a value below 2^(2 * half_bits). */
static uint64_t
feistel(const TbOrder *order, uint64_t value)
{
	uint64_t	mask = (UINT64_C(1) << order->half_bits) - 1;
	uint64_t	left = value >> order->half_bits;
	uint64_t	right = value & mask;

	for (uint64_t round = 0; round < ROUNDS; round++)
	{
		uint64_t	mixed = tb_mix64((right + GOLDEN * round) ^ order->key[round & 3]);
		uint64_t	next = left ^ (mixed >> (64 - order->half_bits));

		left = right;
		right = next;
	}
	return left << order->half_bits | right;
}

/* The sample at a position of the order; position must be below n. thread: any. */
uint64_t
tb_order_at(const TbOrder *order, uint64_t position)
{
	if (order->shuffle == TB_SHUFFLE_NONE || position >= order->n)
		return position;
	do
		position = feistel(order, position);
	while (position >= order->n);
	return position;
}
