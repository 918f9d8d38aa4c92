/*
 * BloscLZ, blosc's own LZ77 in the FastLZ family, decoded with every length and distance checked in
 * unsigned arithmetic before use. The reference decoder overflows its length counter (c-blosc#405).
 *
 * A stream is a list of instructions, of which the first is always a run of literals:
 *   000LLLLL                       L + 1 literals follow
 *   LLLDDDDD [255 ...] E           copy of length L + 2 (L is 7: and all the extra bytes, up to the
 *                                  first that is not 255) from distance D * 256 + E + 1
 *   LLL11111 [255 ...] 255 HH LL   the same from further away: HHLL + 8192
 */
#include "codec/inner.h"

#include <string.h>

#define NEAR_MAX ((31u << 8) + 255)	/* distance field that says a 16-bit one follows */
#define FAR_BASE 8192
#define LONG_COPY 7
#define MAX_LITERALS 32

/* Copy len bytes from `distance` back; slack: bytes that may be written from dst on. */
static inline void
copy_back(uint8_t *dst, size_t distance, size_t len, size_t slack)
{
	const uint8_t *from = dst - distance;

	if (distance == 1)
	{
		memset(dst, *from, len);
		return;
	}
	/* A word at a time; the bytes that are too many are overwritten by what follows. */
	if (distance >= 16 && slack >= len + 16)
	{
		for (size_t i = 0; i < len; i += 16)
			memcpy(dst + i, from + i, 16);
		return;
	}
	if (distance >= 8 && slack >= len + 8)
	{
		for (size_t i = 0; i < len; i += 8)
			memcpy(dst + i, from + i, 8);
		return;
	}
	for (size_t i = 0; i < len; i++)
		dst[i] = from[i];
}

/* Copy at most 32 literals: all 32 where neither side ends before, which needs no loop or call. */
static inline void
copy_literals(uint8_t *dst, const uint8_t *src, size_t len, size_t room, size_t left)
{
	if (room >= MAX_LITERALS && left >= MAX_LITERALS)
		memcpy(dst, src, MAX_LITERALS);
	else
		memcpy(dst, src, len);
}

/* Read the rest of a copy instruction. False where the input ends early. */
static inline bool
read_copy(const uint8_t **ip, const uint8_t *end, uint32_t ctrl, size_t *len, size_t *distance)
{
	size_t		n = ctrl >> 5;
	uint32_t	near;

	if (n == LONG_COPY)
	{
		uint8_t		more;

		do
		{
			if (*ip == end)
				return false;
			more = *(*ip)++;
			n += more;			/* at most 255 a byte of input: cannot overflow */
		} while (more == 255);
	}
	*len = n + 2;
	if (*ip == end)
		return false;
	near = (ctrl & 31) << 8 | *(*ip)++;
	*distance = (size_t) near + 1;
	if (near == NEAR_MAX)
	{
		if (end - *ip < 2)
			return false;
		*distance = ((size_t) (*ip)[0] << 8 | (*ip)[1]) + FAR_BASE;
		*ip += 2;
	}
	return true;
}

/* Decode all of the input. errors: CORRUPT. */
TbStatus
tb_unblosclz(TbFlow *flow)
{
	const uint8_t *ip = flow->src;
	const uint8_t *const end = ip + flow->src_left;
	uint8_t    *const start = flow->dst;
	uint8_t    *op = start;
	size_t		room = flow->dst_left;
	uint32_t	mask = 31;		/* the first instruction's upper bits are no length */

	flow->why = "blosclz stream is damaged";
	while (ip < end)
	{
		uint32_t	ctrl = *ip++ & mask;
		size_t		len;

		mask = 255;
		if (ctrl >= 32)
		{
			size_t		distance;

			if (!read_copy(&ip, end, ctrl, &len, &distance) || len > room ||
				distance > (size_t) (op - start))
				return TB_E_CORRUPT;
			copy_back(op, distance, len, room);
		}
		else
		{
			len = ctrl + 1;
			if (len > room || len > (size_t) (end - ip))
				return TB_E_CORRUPT;
			copy_literals(op, ip, len, room, (size_t) (end - ip));
			ip += len;
		}
		op += len;
		room -= len;
	}
	flow->src = end;
	flow->src_left = 0;
	flow->dst = op;
	flow->dst_left = room;
	return TB_OK;
}
