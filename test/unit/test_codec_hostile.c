/*
 * Damaged chunks and memory that ends: every golden buffer, changed in thousands of ways, decodes
 * or is corrupt, and every allocation may fail. Most is proved by the sanitizers that this runs
 * under.
 */
#include "codec_help.h"

#define ROUNDS 40000
#define TORTURE_MAX 100

/* One golden buffer and the chain that reads it. */
typedef struct Sample
{
	TbChain    *chain;			/* owned */
	Gold		gold;			/* encoded: borrowed from the pack */
} Sample;

typedef struct Samples
{
	uint8_t    *pack[2];		/* owned */
	Sample		sample[256];
	size_t		n;
} Samples;

/* Load both packs; chains end in a checksum-free form, so that damage reaches the decoder. */
static void
load_samples(Samples *all, size_t most_bytes)
{
	static const char *const files[] = {"blosc.pack", "numcodecs.pack"};

	all->n = 0;
	for (int f = 0; f < 2; f++)
	{
		size_t		len;
		size_t		at = 0;
		Gold		gold;

		all->pack[f] = read_data(files[f], &len);
		while (gold_next(all->pack[f], len, &at, &gold))
		{
			char		list[256];

			if (gold.encoded_len > most_bytes)
				continue;
			snprintf(list, sizeof(list), "[{\"name\": \"bytes\"}, {\"v2_id\": \"%s\"}]",
					 f == 0 ? "blosc" : gold.label);
			assert_true(all->n < sizeof(all->sample) / sizeof(all->sample[0]));
			all->sample[all->n].chain = chain_bytes(list, gold.plain_len);
			all->sample[all->n++].gold = gold;
		}
	}
	assert_true(all->n > 150);
}

static void
free_samples(Samples *all)
{
	for (size_t i = 0; i < all->n; i++)
		tb_chain_free(all->sample[i].chain);
	free(all->pack[0]);
	free(all->pack[1]);
}

/* Damage bytes in one way; returns the new length (at most len). */
static size_t
damage(uint8_t *bytes, size_t len, uint64_t *seed)
{
	static const uint32_t words[] = {0, 1, 0x7fffffff, 0x80000000u, 0xffffffffu, 0xffff, 255, 16};
	size_t		head = len < 32 ? len : 32;
	size_t		at = rng_next(seed) % 2 == 0 ? rng_next(seed) % head : rng_next(seed) % len;
	uint32_t	word;

	switch (rng_next(seed) % 6)
	{
		case 0:
			bytes[at] ^= (uint8_t) (1u << rng_next(seed) % 8);
			return len;
		case 1:
			bytes[at] = (uint8_t) rng_next(seed);
			return len;
		case 2:
			bytes[at] = 255;
			return len;
		case 3:
			at &= ~(size_t) 3;
			word = words[rng_next(seed) % 8];
			for (size_t i = 0; i < 4 && at + i < len; i++)
				bytes[at + i] = (uint8_t) (word >> (8 * i));
			return len;
		case 4:
			memmove(bytes + at, bytes + rng_next(seed) % (at + 1), (len - at) / 2);
			return len;
		default:
			return 1 + rng_next(seed) % len;
	}
}

/* The header's own length follows the cut, so that blosc's first check does not end it all. */
static void
mend_length(const TbChain *chain, uint8_t *bytes, size_t len)
{
	if (strstr(tb_chain_describe(chain), "blosc") == NULL || len < 16)
		return;
	for (int i = 0; i < 4; i++)
		bytes[12 + i] = (uint8_t) (len >> (8 * i));
}

static void
test_damaged(void **state)
{
	static Samples all;
	uint64_t	seed = 20240607;
	size_t		corrupt = 0;

	load_samples(&all, 8000);
	for (int round = 0; round < ROUNDS; round++)
	{
		const Sample *sample = &all.sample[rng_next(&seed) % all.n];
		uint8_t    *bytes = tight_copy(sample->gold.encoded, sample->gold.encoded_len);
		size_t		len = sample->gold.encoded_len;
		int			times = 1 + (int) (rng_next(&seed) % 3);
		TbError		err = {0};
		TbStatus	status;

		for (int i = 0; i < times; i++)
			len = damage(bytes, len, &seed);
		if (rng_next(&seed) % 4 > 0)
			mend_length(sample->chain, bytes, len);
		status = decode_tight(sample->chain, bytes, len, NULL, &err);
		if (status != TB_OK && status != TB_E_CORRUPT)
			fail_msg("%s: %s (%s)", sample->gold.label, tb_status_name(status), err.detail);
		if (status == TB_E_CORRUPT)
		{
			assert_non_null(strstr(err.detail, "codec \""));
			corrupt++;
		}
		free(bytes);
	}
	assert_true(corrupt > ROUNDS / 4);
	free_samples(&all);
}

/* After damage the thread's decoders are as good as new. */
static void
test_recovers(void **state)
{
	static Samples all;
	uint64_t	seed = 5;

	load_samples(&all, 8000);
	for (size_t i = 0; i < all.n; i++)
	{
		const Sample *sample = &all.sample[i];
		uint8_t *plain =
			gold_plain(sample->gold.element, sample->gold.plain_len, sample->gold.seed);
		uint8_t    *bytes = tight_copy(sample->gold.encoded, sample->gold.encoded_len);
		TbError		err;

		for (int k = 0; k < 10; k++)
			bytes[rng_next(&seed) % sample->gold.encoded_len] ^= 0x10;
		(void) decode_tight(sample->chain, bytes, sample->gold.encoded_len, NULL, &err);
		expect_decoded(sample->chain, sample->gold.encoded, sample->gold.encoded_len, plain);
		free(bytes);
		free(plain);
	}
	free_samples(&all);
}

/* Open and decode with the n-th allocation failing, for all n until none does. */
static void
test_memory_gone(void **state)
{
	const char *list = "[{\"name\": \"transpose\", \"configuration\": {\"order\": [1, 0]}}, "
					   "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"big\"}}, "
					   "{\"v2_id\": \"shuffle\"}, "
					   "{\"v2_id\": \"crc32c\"}, {\"name\": \"blosc\"}, {\"name\": \"gzip\"}, "
					   "{\"name\": \"zstd\"}]";
	TbJson	   *doc = json_of(list);
	int64_t		live = tb_mem_live();
	uint64_t	shape[] = {2, 2};
	uint8_t		dst[16];
	int			n;

	for (n = 1; n < TORTURE_MAX; n++)
	{
		TbError		err = {0};
		TbChain    *chain = NULL;
		TbScratch  *scratch;
		TbStatus	status;

		tb_mem_fail_after((uint64_t) n);
		scratch = tb_scratch_new();
		status = scratch == NULL ? TB_E_NOMEM : tb_chain_open(doc, TB_F32, 2, shape, &chain, &err);
		if (status == TB_OK)
			status =
				tb_chain_decode(chain, (const uint8_t *) "", 0, dst, sizeof(dst), scratch, &err);
		tb_mem_fail_after(0);
		tb_chain_free(chain);
		tb_scratch_free(scratch);
		assert_int_equal(tb_mem_live(), live);
		if (status == TB_E_CORRUPT)	/* no bytes are no gzip member: all allocations went well */
			break;
		assert_int_equal(status, TB_E_NOMEM);
	}
	assert_true(n > 10 && n < TORTURE_MAX);
	tb_json_free(doc);
}

/* The same for decoders, each golden kind with a scratch of its own. */
static void
test_memory_gone_decoding(void **state)
{
	static Samples all;

	load_samples(&all, 4000);
	for (size_t i = 0; i < all.n; i += 3)
	{
		const Sample *sample = &all.sample[i];
		uint8_t    *dst = malloc(sample->gold.plain_len);
		int64_t		live = tb_mem_live();
		TbStatus	status = TB_E_NOMEM;

		for (uint64_t n = 1; status == TB_E_NOMEM && n < TORTURE_MAX; n++)
		{
			TbScratch  *scratch = tb_scratch_new();
			TbError		err = {0};

			tb_mem_fail_after(n);
			status = tb_chain_decode(sample->chain, sample->gold.encoded, sample->gold.encoded_len,
									 dst, sample->gold.plain_len, scratch, &err);
			tb_mem_fail_after(0);
			tb_scratch_free(scratch);
			assert_int_equal(tb_mem_live(), live);
		}
		assert_int_equal(status, TB_OK);
		free(dst);
	}
	free_samples(&all);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_recovers),
		cmocka_unit_test(test_memory_gone),
		cmocka_unit_test(test_memory_gone_decoding),
	};

	return cmocka_run_group_tests_name("codec hostile", tests, NULL, NULL);
}
