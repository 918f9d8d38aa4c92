/*
 * The two shuffles that writers put before a compressor, undone. Byte shuffling stores the first
 * bytes of all elements, then the second bytes, ...; bit shuffling goes on to bits: within each
 * such plane of bytes it stores bit 0 of all, then bit 1, ...
 *
 * On x86-64 both use SSE2, which every such machine has, so there is nothing to detect.
 */
#include "codec/inner.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Elements from `from` on, any size: in tiles that stay in the first cache while all planes pass.
 */
static void
unshuffle_plain(size_t size, size_t n, size_t from, const uint8_t *src, uint8_t *dst)
{
	const size_t tile = 4096 / size;

	for (size_t i0 = from; i0 < n; i0 += tile)
	{
		size_t		i1 = n - i0 < tile ? n : i0 + tile;

		for (size_t j = 0; j < size; j++)
		{
			for (size_t i = i0; i < i1; i++)
				dst[i * size + j] = src[j * n + i];
		}
	}
}

#if defined(__SSE2__)

static inline __m128i
load(const uint8_t *at)
{
	return _mm_loadu_si128((const __m128i *) at);
}

static inline void
store(uint8_t *at, __m128i v)
{
	_mm_storeu_si128((__m128i *) at, v);
}

/* 16 elements at a time; each returns how many elements it did. */
static size_t
unshuffle2(size_t n, const uint8_t *src, uint8_t *dst)
{
	size_t		i;

	for (i = 0; i + 16 <= n; i += 16)
	{
		__m128i		a = load(src + i);
		__m128i		b = load(src + n + i);

		store(dst + i * 2, _mm_unpacklo_epi8(a, b));
		store(dst + i * 2 + 16, _mm_unpackhi_epi8(a, b));
	}
	return i;
}

static size_t
unshuffle4(size_t n, const uint8_t *src, uint8_t *dst)
{
	size_t		i;

	for (i = 0; i + 16 <= n; i += 16)
	{
		__m128i		p0 = load(src + i);
		__m128i		p1 = load(src + n + i);
		__m128i		p2 = load(src + 2 * n + i);
		__m128i		p3 = load(src + 3 * n + i);
		__m128i		a0 = _mm_unpacklo_epi8(p0, p1);
		__m128i		a1 = _mm_unpackhi_epi8(p0, p1);
		__m128i		b0 = _mm_unpacklo_epi8(p2, p3);
		__m128i		b1 = _mm_unpackhi_epi8(p2, p3);

		store(dst + i * 4, _mm_unpacklo_epi16(a0, b0));
		store(dst + i * 4 + 16, _mm_unpackhi_epi16(a0, b0));
		store(dst + i * 4 + 32, _mm_unpacklo_epi16(a1, b1));
		store(dst + i * 4 + 48, _mm_unpackhi_epi16(a1, b1));
	}
	return i;
}

static size_t
unshuffle8(size_t n, const uint8_t *src, uint8_t *dst)
{
	size_t		i;

	for (i = 0; i + 16 <= n; i += 16)
	{
		__m128i		pair[8];	/* bytes 01 23 45 67 of elements 0-7, then of 8-15 */

		for (int j = 0; j < 4; j++)
		{
			__m128i		even = load(src + (size_t) (2 * j) * n + i);
			__m128i		odd = load(src + (size_t) (2 * j + 1) * n + i);

			pair[j] = _mm_unpacklo_epi8(even, odd);
			pair[4 + j] = _mm_unpackhi_epi8(even, odd);
		}
		for (int half = 0; half < 2; half++)
		{
			const __m128i *p = pair + 4 * half;
			__m128i		a0 = _mm_unpacklo_epi16(p[0], p[1]);
			__m128i		a1 = _mm_unpackhi_epi16(p[0], p[1]);
			__m128i		b0 = _mm_unpacklo_epi16(p[2], p[3]);
			__m128i		b1 = _mm_unpackhi_epi16(p[2], p[3]);
			uint8_t    *to = dst + (i + 8 * (size_t) half) * 8;

			store(to, _mm_unpacklo_epi32(a0, b0));
			store(to + 16, _mm_unpackhi_epi32(a0, b0));
			store(to + 32, _mm_unpacklo_epi32(a1, b1));
			store(to + 48, _mm_unpackhi_epi32(a1, b1));
		}
	}
	return i;
}

#endif

/* Undo byte shuffling of len bytes in elements of `size`; what is no whole element follows as it
 * is. */
void
tb_unshuffle(size_t size, size_t len, const uint8_t *src, uint8_t *dst)
{
	size_t		n = len / size;
	size_t		done = 0;

#if defined(__SSE2__)
	if (size == 2)
		done = unshuffle2(n, src, dst);
	else if (size == 4)
		done = unshuffle4(n, src, dst);
	else if (size == 8)
		done = unshuffle8(n, src, dst);
#endif
	unshuffle_plain(size, n, done, src, dst);
	if (len > n * size)
		memcpy(dst + n * size, src + n * size, len - n * size);
}

/* Bytes i of the eight bit rows of one plane, to byte plane order: an 8 x 8 bit transposition each.
 * source: Hacker's Delight 2nd ed., 7-3. */
static void
untranspose_plain(size_t row, size_t from, const uint8_t *src, uint8_t *plane)
{
	for (size_t i = from; i < row; i++)
	{
		uint64_t	x = 0;
		uint64_t	t;

		for (int k = 7; k >= 0; k--)
			x = x << 8 | src[(size_t) k * row + i];
		t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAu;
		x = x ^ t ^ (t << 7);
		t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCu;
		x = x ^ t ^ (t << 14);
		t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0u;
		x = x ^ t ^ (t << 28);
		for (int k = 0; k < 8; k++)
			plane[i * 8 + (size_t) k] = (uint8_t) (x >> (8 * k));
	}
}

#if defined(__SSE2__)

/* The same transposition in both halves of a register. */
static inline __m128i
transpose_bits(__m128i x)
{
	__m128i		t;

	t = _mm_and_si128(_mm_xor_si128(x, _mm_srli_epi64(x, 7)), _mm_set1_epi64x(0x00AA00AA00AA00AA));
	x = _mm_xor_si128(_mm_xor_si128(x, t), _mm_slli_epi64(t, 7));
	t = _mm_and_si128(_mm_xor_si128(x, _mm_srli_epi64(x, 14)), _mm_set1_epi64x(0x0000CCCC0000CCCC));
	x = _mm_xor_si128(_mm_xor_si128(x, t), _mm_slli_epi64(t, 14));
	t = _mm_and_si128(_mm_xor_si128(x, _mm_srli_epi64(x, 28)), _mm_set1_epi64x(0x00000000F0F0F0F0));
	return _mm_xor_si128(_mm_xor_si128(x, t), _mm_slli_epi64(t, 28));
}

/* 16 bytes of each row at a time: gathering them is the byte unshuffle of eight planes. Returns
 * bytes done. */
static size_t
untranspose_rows(size_t row, const uint8_t *src, uint8_t *plane)
{
	size_t		i = unshuffle8(row, src, plane);

	for (size_t at = 0; at < i * 8; at += 16)
		store(plane + at, transpose_bits(load(plane + at)));
	return i;
}

#endif

/*
 * Undo bit shuffling. As in c-blosc, elements that do not come in eights are not shuffled at all,
 * and what is no whole element follows as it is. work: len bytes.
 */
void
tb_unbitshuffle(size_t size, size_t len, const uint8_t *src, uint8_t *dst, uint8_t *work)
{
	size_t		n = len / size;
	size_t		row = n / 8;
	uint8_t    *planes = size == 1 ? dst : work;

	if (n % 8 != 0 || n == 0)
	{
		memcpy(dst, src, len);
		return;
	}
	for (size_t j = 0; j < size; j++)
	{
		size_t		done = 0;

#if defined(__SSE2__)
		done = untranspose_rows(row, src + j * n, planes + j * n);
#endif
		untranspose_plain(row, done, src + j * n, planes + j * n);
	}
	if (size > 1)
		tb_unshuffle(size, n * size, work, dst);
	memcpy(dst + n * size, src + n * size, len - n * size);
}
