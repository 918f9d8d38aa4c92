/*
 * Snappy, only for blosc containers that hold it: a varint of the decoded size, then literals and
 * copies. source: google/snappy, format_description.txt.
 */
#include "codec/inner.h"

#include <string.h>

typedef struct Item
{
	size_t		len;
	size_t		distance;		/* 0: literals, `len` bytes of input follow */
} Item;

/* Read a little-endian number of n bytes (at most 4). False where the input ends early. */
static bool
read_number(const uint8_t **ip, const uint8_t *end, size_t n, size_t *number)
{
	if ((size_t) (end - *ip) < n)
		return false;
	*number = 0;
	for (size_t i = 0; i < n; i++)
		*number |= (size_t) (*ip)[i] << (8 * i);
	*ip += n;
	return true;
}

static bool
read_varint(const uint8_t **ip, const uint8_t *end, size_t *number)
{
	*number = 0;
	for (int shift = 0; shift < 35 && *ip < end; shift += 7)
	{
		uint8_t		byte = *(*ip)++;

		*number |= (size_t) (byte & 127) << shift;
		if (byte < 128)
			return true;
	}
	return false;
}

static bool
read_item(const uint8_t **ip, const uint8_t *end, Item *item)
{
	uint8_t		tag = *(*ip)++;
	size_t		extra;

	item->len = (size_t) (tag >> 2) + 1;
	item->distance = 0;
	switch (tag & 3)
	{
		case 0:
			if (item->len > 60)
			{
				if (!read_number(ip, end, item->len - 60, &extra))
					return false;
				item->len = extra + 1;
			}
			return true;
		case 1:
			item->len = ((tag >> 2) & 7) + 4;
			if (!read_number(ip, end, 1, &extra))
				return false;
			item->distance = (size_t) (tag >> 5) << 8 | extra;
			break;
		case 2:
			if (!read_number(ip, end, 2, &item->distance))
				return false;
			break;
		default:
			if (!read_number(ip, end, 4, &item->distance))
				return false;
			break;
	}
	return item->distance > 0;
}

/* Decode all of the input. errors: CORRUPT. */
TbStatus
tb_unsnappy(TbFlow *flow)
{
	const uint8_t *ip = flow->src;
	const uint8_t *const end = ip + flow->src_left;
	uint8_t    *op = flow->dst;
	size_t		made = 0;
	size_t		told;

	flow->why = "snappy stream is damaged";
	if (flow->src_left == 0 || !read_varint(&ip, end, &told) || told > flow->dst_left)
		return TB_E_CORRUPT;
	while (ip < end)
	{
		Item		item;

		if (!read_item(&ip, end, &item) || item.len > told - made)
			return TB_E_CORRUPT;
		if (item.distance == 0)
		{
			if (item.len > (size_t) (end - ip))
				return TB_E_CORRUPT;
			memcpy(op, ip, item.len);
			ip += item.len;
		}
		else if (item.distance > made)
			return TB_E_CORRUPT;
		else if (item.distance >= item.len)
			memcpy(op, op - item.distance, item.len);
		else
		{
			const uint8_t *from = op - item.distance;

			for (size_t i = 0; i < item.len; i++)
				op[i] = from[i];
		}
		op += item.len;
		made += item.len;
	}
	if (made != told)
		return TB_E_CORRUPT;
	flow->src = end;
	flow->src_left = 0;
	flow->dst = op;
	flow->dst_left -= made;
	return TB_OK;
}
