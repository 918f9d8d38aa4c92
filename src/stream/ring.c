/*
 * Rings. Nothing that is read back from the shared memory decides anything: states and generations
 * are kept here, and a client that writes garbage spoils its own batches only.
 */
#include "stream/ring.h"

#include <string.h>
#include <unistd.h>

static bool
round_up(size_t bytes, size_t unit, size_t *out)
{
	size_t		sum;

	if (__builtin_add_overflow(bytes, unit - 1, &sum))
		return false;
	*out = sum / unit * unit;
	return true;
}

/* Offsets of the columns and size of a slot; false on overflow. */
static bool
lay_out(TbRing *ring, const size_t *sample_bytes, uint32_t batch_size)
{
	size_t		at = 0;
	size_t		all;

	for (int i = 0; i < ring->n_columns; i++)
	{
		size_t		bytes;

		ring->columns[i].sample_bytes = sample_bytes[i];
		ring->columns[i].offset = at;
		if (!tb_mul_size(sample_bytes[i], batch_size, &bytes) ||
			__builtin_add_overflow(at, bytes, &at) ||
			!round_up(at, TB_ALIGN, &at))
			return false;
	}
	if (!round_up(at > 0 ? at : 1, (size_t) sysconf(_SC_PAGESIZE), &ring->slot_bytes))
		return false;
	return tb_mul_size(ring->slot_bytes, ring->n_slots, &all) && all <= PTRDIFF_MAX;
}

TbStatus
tb_ring_init(TbRing *ring, const size_t *sample_bytes, int n_columns, uint32_t batch_size,
			 uint32_t n_slots,
			 TbError *err)
{
	memset(ring, 0, sizeof(*ring));
	ring->mem.fd = -1;
	ring->n_slots = n_slots;
	ring->n_columns = n_columns;
	ring->slots = tb_calloc(n_slots, sizeof(*ring->slots));
	ring->columns = tb_calloc((size_t) n_columns, sizeof(*ring->columns));
	if (ring->slots == NULL || ring->columns == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (lay_out(ring, sample_bytes, batch_size))
		return TB_OK;
	tb_fail(err, TB_E_LIMIT, "batch is too large");
	tb_error_hint(err, "Use a smaller batch_size.");
	return TB_E_LIMIT;
}

size_t
tb_ring_bytes(const TbRing *ring)
{
	return ring->slot_bytes * ring->n_slots;
}

TbStatus
tb_ring_open(TbRing *ring, const char *device, TbError *err)
{
	return tb_dev_alloc(device, tb_ring_bytes(ring), &ring->mem, err);
}

void
tb_ring_free(TbRing *ring)
{
	tb_dev_free(&ring->mem);
	tb_free(ring->slots);
	tb_free(ring->columns);
	ring->slots = NULL;
	ring->columns = NULL;
	ring->n_slots = 0;
}

int
tb_ring_begin(TbRing *ring, uint64_t batch)
{
	for (uint32_t i = 0; i < ring->n_slots; i++)
	{
		TbRingSlot	   *slot = &ring->slots[i];

		if (slot->state != TB_RING_FREE)
			continue;
		slot->state = TB_RING_WORKING;
		slot->batch = batch;
		slot->generation++;
		return (int) i;
	}
	return -1;
}

int
tb_ring_find(const TbRing *ring, uint64_t batch)
{
	for (uint32_t i = 0; i < ring->n_slots; i++)
		if (ring->slots[i].batch == batch &&
			(ring->slots[i].state == TB_RING_WORKING || ring->slots[i].state == TB_RING_READY))
			return (int) i;
	return -1;
}

void
tb_ring_ready(TbRing *ring, uint32_t slot)
{
	ring->slots[slot].state = TB_RING_READY;
}

void
tb_ring_hand_out(TbRing *ring, uint32_t slot)
{
	ring->slots[slot].state = TB_RING_HELD;
	ring->n_held++;
}

bool
tb_ring_holds(const TbRing *ring, uint32_t slot, uint64_t generation)
{
	return slot < ring->n_slots && ring->slots[slot].state == TB_RING_HELD &&
		ring->slots[slot].generation == generation;
}

bool
tb_ring_release(TbRing *ring, uint32_t slot, uint64_t generation)
{
	if (!tb_ring_holds(ring, slot, generation))
		return false;
	ring->slots[slot].state = TB_RING_FREE;
	ring->n_held--;
	return true;
}

/* Bytes from the ring's start. */
uint64_t
tb_ring_offset(const TbRing *ring, uint32_t slot, int column, uint32_t row)
{
	return (uint64_t) slot * ring->slot_bytes + ring->columns[column].offset +
		(uint64_t) row * ring->columns[column].sample_bytes;
}

uint32_t
tb_ring_count(const TbRing *ring, TbRingState state)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < ring->n_slots; i++)
		n += ring->slots[i].state == state;
	return n;
}
