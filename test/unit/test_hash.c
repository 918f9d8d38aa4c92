/*
 * Hashes: SHA-256 against FIPS 180-4's examples, the mix against splitmix64's published sequence.
 */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void
check_sha(const char *text, size_t len, size_t piece, const char *want)
{
	int64_t		live = tb_mem_live();
	TbSha256   *sha = tb_sha256_new();
	char		hex[65];

	assert_non_null(sha);
	for (size_t at = 0; at < len; at += piece)
		tb_sha256_add(sha, text + at, piece < len - at ? piece : len - at);
	tb_sha256_finish(sha, hex);
	assert_string_equal(hex, want);
	assert_int_equal(tb_mem_live(), live);
}

static void
test_sha256(void **state)
{
	static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

	check_sha("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	check_sha("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	for (size_t piece = 1; piece <= 56; piece += 11)
		check_sha(two_blocks, 56, piece,
				  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	(void) tb_mem_fail_after(1);
	assert_null(tb_sha256_new());
	(void) tb_mem_fail_after(0);
}

static void
test_mix(void **state)
{
	/* splitmix64 seeded with 1234567: its state advances by the golden gamma before each output */
	static const uint64_t want[] = {
		UINT64_C(6457827717110365317), UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
		UINT64_C(4593380528125082431), UINT64_C(16408922859458223821),
	};
	uint64_t	at = 1234567;

	for (int i = 0; i < 5; i++)
	{
		at += UINT64_C(0x9e3779b97f4a7c15);
		assert_true(tb_mix64(at) == want[i]);
	}
}

/* Every length, bit and seed must matter; the address must not. */
static void
test_hash64(void **state)
{
	uint8_t		bytes[40] = {0};
	uint8_t		moved[48];
	uint64_t	seen[41];
	uint64_t	base;

	for (size_t len = 0; len <= 40; len++)
	{
		seen[len] = tb_hash64(bytes, len, 1);
		for (size_t other = 0; other < len; other++)
			assert_true(seen[len] != seen[other]);
		memcpy(moved + 3, bytes, len);
		assert_true(tb_hash64(moved + 3, len, 1) == seen[len]);
		assert_true(tb_hash64(bytes, len, 2) != seen[len]);
	}
	base = tb_hash64(bytes, 37, 1);
	for (size_t bit = 0; bit < 37 * 8; bit++)
	{
		int			flipped;

		bytes[bit / 8] ^= (uint8_t) (1 << bit % 8);
		flipped = __builtin_popcountll(base ^ tb_hash64(bytes, 37, 1));
		assert_in_range(flipped, 10, 54);
		bytes[bit / 8] = 0;
	}
}

static void
test_random_and_equal(void **state)
{
	uint8_t		a[64] = {0};
	uint8_t		b[64] = {0};

	assert_true(tb_equal_secret(a, b, 64));
	b[63] = 1;
	assert_false(tb_equal_secret(a, b, 64));
	assert_true(tb_equal_secret(a, b, 63));
	assert_true(tb_equal_secret(a, b, 0));
	assert_int_equal(tb_random(a, sizeof(a), NULL), TB_OK);
	assert_int_equal(tb_random(b, sizeof(b), NULL), TB_OK);
	assert_memory_not_equal(a, b, 64);
	assert_memory_not_equal(a + 32, b + 32, 32);
}

/* The lanes by the plain table, whatever the machine has. */
static void
test_lanes(void **state)
{
	uint8_t		bytes[1000];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t) tb_mix64(i);
	assert_int_equal(tb_crc32c(0, "123456789", 9), 0xe3069283);
	for (size_t len = 0; len <= sizeof(bytes); len++)
	{
		size_t		lane = len / 24 * 8;
		uint64_t	crc[3];
		uint32_t	want;

		for (size_t k = 0; k < 3; k++)
			crc[k] = (uint32_t) ~tb_crc32c_plain(0, bytes + k * lane, lane);
		want = tb_crc32c_plain(tb_crc32c_plain(0, (uint8_t *) crc, sizeof(crc)), bytes + 3 * lane, len - 3 * lane);
		assert_int_equal(tb_crc32c_lanes(bytes, len), want);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sha256),
		cmocka_unit_test(test_mix),
		cmocka_unit_test(test_hash64),
		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_random_and_equal),
	};

	return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
