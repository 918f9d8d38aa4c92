/* One step over UTF-8, for texts that come from outside. */
#ifndef TB_BASE_UTF8_H
#define TB_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/*
 * Length of the sequence at bytes (left bytes remain), 0 where it is none: overlong, a surrogate,
 * beyond U+10FFFF or cut short. source: RFC 3629 section 4.
 */
static inline size_t
tb_utf8_step(const uint8_t *bytes, size_t left)
{
	uint8_t		first;
	uint8_t		low = 0x80;
	uint8_t		high = 0xbf;
	size_t		n;

	if (left == 0)
		return 0;
	first = bytes[0];
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	n = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	if (n > left)
		return 0;
	if (first == 0xe0)
		low = 0xa0;
	else if (first == 0xed)
		high = 0x9f;
	else if (first == 0xf0)
		low = 0x90;
	else if (first == 0xf4)
		high = 0x8f;
	if (bytes[1] < low || bytes[1] > high)
		return 0;
	for (size_t i = 2; i < n; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

#endif
