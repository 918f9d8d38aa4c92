/*
 * Which samples a rank gets. All ranks have the same number of batches, so none waits for another
 * at the end, and the number is known before the first batch.
 */
#include "dataset/dataset.h"

/* Samples of one global batch: below 2^64, both factors have 32 bits. */
static uint64_t
global_batch(const TbDeal *deal)
{
	return (uint64_t) deal->batch_size * deal->world_size;
}

/* Batches of every rank from `first` to the end of the epoch. */
uint64_t
tb_deal_batches(const TbDeal *deal)
{
	uint64_t	size = global_batch(deal);
	uint64_t	left;

	if (size == 0 || deal->first >= deal->n)
		return 0;
	left = deal->n - deal->first;
	return left / size + (deal->tail != TB_TAIL_DROP && left % size > 0 ? 1 : 0);
}

/*
 * Positions of batch g < tb_deal_batches() of this rank; room for batch_size of them. Padding
 * takes positions from the beginning of the epoch, whatever `first` is, so that it is the same on
 * every world size.
 */
uint32_t
tb_deal_batch(const TbDeal *deal, uint64_t g, uint64_t *positions, uint32_t *padded)
{
	uint64_t	start;
	uint64_t	left;
	uint32_t	real;

	*padded = 0;
	if (g >= tb_deal_batches(deal))
		return 0;
	/* below n by the test above; the rank's share may begin behind it */
	start = deal->first + g * global_batch(deal);
	left = deal->n - start;
	left = left > (uint64_t) deal->rank * deal->batch_size ? left - (uint64_t) deal->rank * deal->batch_size : 0;
	start += (uint64_t) deal->rank * deal->batch_size;
	real = left < deal->batch_size ? (uint32_t) left : deal->batch_size;
	for (uint32_t i = 0; i < real; i++)
		positions[i] = start + i;
	if (deal->tail != TB_TAIL_PAD || real == deal->batch_size)
		return real;
	for (uint32_t i = real; i < deal->batch_size; i++)
		positions[i] = (start - deal->n + i) % deal->n;
	*padded = deal->batch_size - real;
	return deal->batch_size;
}
