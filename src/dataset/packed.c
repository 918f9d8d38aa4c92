/*
 * Integers at hand in few bits. Starts of samples are multiples of a chunk's length and array
 * numbers are small: ten million samples of a grid take some ten megabytes, and a full shuffle may
 * ask for any of them.
 */
#include "dataset/file.h"

#include <string.h>

#define SLACK 16				/* a value is moved as the 8 bytes that begin at its first byte */

static uint64_t
gcd(uint64_t a, uint64_t b)
{
	while (b != 0)
	{
		uint64_t	rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static bool
below(const TbFrame *frame, uint64_t a, uint64_t b)
{
	return frame->is_signed ? (int64_t) a < (int64_t) b : a < b;
}

/* Widen a frame to hold value. */
void
tb_frame_add(TbFrame *frame, uint64_t value)
{
	uint64_t	distance;

	if (!frame->any)
	{
		frame->any = true;
		frame->min = value;
		frame->max = value;
		return;
	}
	distance = below(frame, value, frame->min) ? frame->min - value : value - frame->min;
	if (distance == 0)
		return;
	if (frame->step != 1)
		frame->step = gcd(distance, frame->step);
	if (below(frame, value, frame->min))
		frame->min = value;
	else if (below(frame, frame->max, value))
		frame->max = value;
}

void
tb_packed_init(TbPacked *packed, const TbFrame *frame)
{
	memset(packed, 0, sizeof(*packed));
	packed->base = frame->min;
	packed->step = frame->step;
	packed->last = frame->step > 0 ? (frame->max - frame->min) / frame->step : 0;
	packed->bits = packed->last > 0 ? 64 - __builtin_clzll(packed->last) : 0;
	if (packed->bits > 56)
		packed->bits = 64;
}

/* Room for `more` further values. errors: NOMEM. */
TbStatus
tb_packed_reserve(TbPacked *packed, uint64_t more)
{
	uint64_t	need;
	size_t		cap;
	uint8_t    *data;

	if (packed->bits == 0)
		return TB_OK;
	if (!tb_add_u64(packed->n, more, &need) || !tb_mul_u64(need, (uint64_t) packed->bits, &need))
		return TB_E_NOMEM;
	need = need / 8 + SLACK;
	if (need <= packed->cap)
		return TB_OK;
	cap = packed->cap * 2 > need ? packed->cap * 2 : need;
	data = tb_realloc(packed->data, cap);
	if (data == NULL)
		return TB_E_NOMEM;
	memset(data + packed->cap, 0, cap - packed->cap);
	packed->data = data;
	packed->cap = cap;
	return TB_OK;
}

bool
tb_packed_push(TbPacked *packed, uint64_t value)
{
	uint64_t	k = value - packed->base;

	if (packed->step > 0)
	{
		if (k % packed->step != 0)
			return false;
		k /= packed->step;
	}
	if (k > packed->last)
		return false;
	if (packed->bits > 0)
	{
		uint64_t	bit = packed->n * (uint64_t) packed->bits;
		uint64_t	word = tb_take_u64(packed->data + bit / 8);

		tb_put_u64(packed->data + bit / 8, word | k << bit % 8);
	}
	packed->n++;
	return true;
}

/* thread: any, once all values are there. */
uint64_t
tb_packed_at(const TbPacked *packed, uint64_t i)
{
	uint64_t	bit = i * (uint64_t) packed->bits;
	uint64_t	k;

	if (packed->bits == 0)
		return packed->base;
	k = tb_take_u64(packed->data + bit / 8) >> bit % 8;
	if (packed->bits < 64)
		k &= (UINT64_C(1) << packed->bits) - 1;
	return packed->base + packed->step * k;
}

void
tb_packed_free(TbPacked *packed)
{
	tb_free(packed->data);
	packed->data = NULL;
}

/* errors: NOMEM. */
TbStatus
tb_varint_put(TbBuf *out, uint64_t value)
{
	uint8_t		bytes[10];
	size_t		n = 0;

	while (value >= 0x80)
	{
		bytes[n++] = (uint8_t) (value | 0x80);
		value >>= 7;
	}
	bytes[n++] = (uint8_t) value;
	return tb_buf_append(out, bytes, n, SIZE_MAX);
}

/* Advance *at behind the varint; false where it runs past the end or beyond 64 bits. */
bool
tb_varint_get(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
	uint64_t	v = 0;

	for (int shift = 0; shift < 64 && *at < end; shift += 7)
	{
		uint8_t		byte = *(*at)++;

		if (shift == 63 && byte > 1)
			return false;
		v |= (uint64_t) (byte & 0x7f) << shift;
		if (byte < 0x80)
		{
			*value = v;
			return true;
		}
	}
	return false;
}
