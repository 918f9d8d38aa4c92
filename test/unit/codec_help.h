/* What the codec tests share: cmocka, a generator of numbers, chains from text, golden packs. */
#ifndef TB_TEST_CODEC_HELP_H
#define TB_TEST_CODEC_HELP_H

#include "codec/inner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP static inline __attribute__((unused))

/* xorshift64*: the same numbers on every machine. */
HELP uint64_t
rng_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717u;
}

HELP TbJson *
json_of(const char *text)
{
	TbJson	   *doc = NULL;
	TbError		err;

	assert_int_equal(tb_json_parse(text, strlen(text), &doc, &err), TB_OK);
	return doc;
}

HELP TbStatus
chain_try(const char *text, TbDtype dtype, int ndim, const uint64_t *shape, TbChain **chain,
		  TbError *err)
{
	TbJson	   *doc = json_of(text);
	TbStatus	status = tb_chain_open(doc, dtype, ndim, shape, chain, err);

	tb_json_free(doc);			/* a chain must not need its metadata any more */
	return status;
}

HELP TbChain *
chain_of(const char *text, TbDtype dtype, int ndim, const uint64_t *shape)
{
	TbChain    *chain = NULL;
	TbError		err = {0};

	if (chain_try(text, dtype, ndim, shape, &chain, &err) != TB_OK)
		fail_msg("%s: %s (%s)", text, err.message, err.detail);
	return chain;
}

/* A chain for n bytes. */
HELP TbChain *
chain_bytes(const char *text, size_t n)
{
	uint64_t	shape = n;

	return chain_of(text, TB_U8, 1, &shape);
}

/* A copy that ends where its memory ends, so that sanitizers see the first byte read too far. */
HELP uint8_t *
tight_copy(const void *bytes, size_t len)
{
	uint8_t    *copy = malloc(len > 0 ? len : 1);

	assert_non_null(copy);
	if (len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

/* Decode to memory of exactly the chunk's size; the caller frees *out (NULL: not wanted). */
HELP TbStatus
decode_tight(const TbChain *chain, const void *src, size_t len, uint8_t **out, TbError *err)
{
	size_t		want = tb_chain_decoded_bytes(chain);
	uint8_t    *in = tight_copy(src, len);
	uint8_t    *dst = malloc(want > 0 ? want : 1);
	TbStatus	status;

	assert_non_null(dst);
	memset(dst, 0xa5, want);
	status = tb_chain_decode(chain, in, len, dst, want, NULL, err);
	free(in);
	if (out != NULL)
		*out = dst;
	else
		free(dst);
	return status;
}

HELP void
expect_decoded(const TbChain *chain, const void *src, size_t len, const void *plain)
{
	uint8_t    *out;
	TbError		err = {0};

	if (decode_tight(chain, src, len, &out, &err) != TB_OK)
		fail_msg("%s: %s (%s)", tb_chain_describe(chain), err.message, err.detail);
	assert_memory_equal(out, plain, tb_chain_decoded_bytes(chain));
	free(out);
}

HELP void
expect_corrupt(const TbChain *chain, const void *src, size_t len, const char *words)
{
	TbError		err = {0};
	TbStatus	status = decode_tight(chain, src, len, NULL, &err);

	if (status != TB_E_CORRUPT || err.code != TB_E_CORRUPT || strstr(err.detail, words) == NULL)
		fail_msg("%s: status %s (%s), not corrupt with \"%s\"", tb_chain_describe(chain),
				 tb_status_name(status), err.detail, words);
}

/* Bytes that compress: a ramp with noise, as make.py's `plain`; from seed 1000 on its `noise`. */
HELP uint8_t *
gold_plain(size_t element, size_t len, uint32_t seed)
{
	uint8_t    *out = calloc(1, len + element);
	uint32_t	state = seed;

	assert_non_null(out);
	for (uint64_t at = 0, k = 0; at < len; k++)
	{
		uint64_t	value;

		state = state * 1664525u + 1013904223u;
		if (seed >= 1000)
		{
			out[at++] = (uint8_t) (state >> 24);
			continue;
		}
		value = (uint64_t) seed * 1000 + k / 4 * 3 + (k % 16 == 0 ? state >> 28 : 0);
		for (size_t i = 0; i < element && i < 8; i++)
			out[at + i] = (uint8_t) (value >> (8 * i));
		at += element;
	}
	return out;
}

/* One record of a golden pack. */
typedef struct Gold
{
	char		label[128];
	size_t		element;
	size_t		plain_len;
	uint32_t	seed;
	const uint8_t *encoded;
	size_t		encoded_len;
} Gold;

/* Read a file of test/data/codec, found from this file's own place; the caller frees. */
HELP uint8_t *
read_data(const char *name, size_t *len)
{
	const char *here = __FILE__;
	const char *slash = strrchr(here, '/');
	char		path[4096];
	FILE	   *file;
	uint8_t    *bytes;
	long		size;

	snprintf(path, sizeof(path), "%.*s/../data/codec/%s", slash == NULL ? 1 : (int) (slash - here),
			 slash == NULL ? "." : here, name);
	file = fopen(path, "rb");
	if (file == NULL)
		fail_msg("cannot open %s", path);
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	bytes = malloc((size_t) size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, (size_t) size, file), size);
	fclose(file);
	*len = (size_t) size;
	return bytes;
}

/* The record at *at, which moves on; false at the end. */
HELP bool
gold_next(const uint8_t *pack, size_t len, size_t *at, Gold *gold)
{
	size_t		n;

	if (*at >= len)
		return false;
	n = load_u32_le(pack + *at);
	assert_true(n < sizeof(gold->label));
	memcpy(gold->label, pack + *at + 4, n);
	gold->label[n] = '\0';
	*at += 4 + n;
	gold->element = load_u32_le(pack + *at);
	gold->plain_len = load_u32_le(pack + *at + 4);
	gold->seed = load_u32_le(pack + *at + 8);
	gold->encoded_len = load_u32_le(pack + *at + 12);
	gold->encoded = pack + *at + 16;
	*at += 16 + gold->encoded_len;
	assert_true(*at <= len);
	return true;
}

#endif
