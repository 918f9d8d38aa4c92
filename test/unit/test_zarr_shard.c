/* Shard indexes: what is proved before an entry is believed. */
#include "zarr_help.h"

#define ENTRIES 3
#define PLAIN_BYTES (ENTRIES * 16)

typedef struct Entry
{
	uint64_t	offset;
	uint64_t	length;
} Entry;

#define MISSING {UINT64_MAX, UINT64_MAX}

static void
store(uint8_t *bytes, uint64_t number, bool big)
{
	for (int i = 0; i < 8; i++)
		bytes[big ? 7 - i : i] = (uint8_t) (number >> 8 * i);
}

/* Write an index; returns its length. */
static size_t
write_index(const TbShardLevel *level, const Entry *entries, uint8_t *bytes)
{
	for (int i = 0; i < ENTRIES; i++)
	{
		store(bytes + i * 16, entries[i].offset, level->index_big_endian);
		store(bytes + i * 16 + 8, entries[i].length, level->index_big_endian);
	}
	if (level->index_crc)
	{
		uint32_t	crc = tb_crc32c(0, bytes, PLAIN_BYTES);

		for (int i = 0; i < 4; i++)
			bytes[PLAIN_BYTES + i] = (uint8_t) (crc >> 8 * i);
	}
	return level->index_bytes;
}

static TbShardLevel
level_of(bool crc, bool at_start, bool big)
{
	TbShardLevel level = {.n_entries = ENTRIES,
						  .index_bytes = PLAIN_BYTES + (crc ? 4 : 0),
						  .index_crc = crc,
						  .index_at_start = at_start,
						  .index_big_endian = big};

	return level;
}

static void
reads_entries(void **state)
{
	static const Entry entries[ENTRIES] = {{100, 20}, MISSING, {120, 0}};
	uint8_t		bytes[PLAIN_BYTES + 4];
	TbError		err;

	for (int i = 0; i < 8; i++)
	{
		TbShardLevel level = level_of((i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
		size_t		len = write_index(&level, entries, bytes);

		assert_int_equal(tb_shard_index_check(&level, bytes, len, 1000, &err), TB_OK);
		assert_int_equal(tb_shard_index_check(&level, bytes, len, UINT64_MAX, &err), TB_OK);
		assert_int_equal(tb_shard_index_entry(&level, bytes, 0).offset, 100);
		assert_int_equal(tb_shard_index_entry(&level, bytes, 0).length, 20);
		assert_false(tb_shard_index_entry(&level, bytes, 0).missing);
		assert_true(tb_shard_index_entry(&level, bytes, 1).missing);
		assert_int_equal(tb_shard_index_entry(&level, bytes, 2).offset, 120);
		assert_false(tb_shard_index_entry(&level, bytes, 2).missing);
	}
}

static void
refuses_entries(void **state)
{
	static const struct
	{
		Entry entries[ENTRIES];
		bool at_start;
		uint64_t shard_bytes;
		const char *part;
	} rows[] = {
		{{{0, 10}, MISSING, {UINT64_MAX, 5}}, false, 1000, "entry 2 is missing by half"},
		{{{0, 10}, {5, UINT64_MAX}, MISSING}, false, 1000, "entry 1 is missing by half"},
		{{{0, 10}, {5, UINT64_MAX}, MISSING}, false, UINT64_MAX, "entry 1 is missing by half"},
		{{{UINT64_MAX - 5, 10}, MISSING, MISSING}, false, UINT64_MAX, "entry 0: offset"},
		{{{UINT64_C(1) << 63, UINT64_C(1) << 63}, MISSING, MISSING},
		 true,
		 UINT64_MAX,
		 "entry 0: offset"},
		{{{0, 953}, MISSING, MISSING}, false, 1000, "entry 0: 953 bytes at 0"},
		{{{953, 0}, MISSING, MISSING}, false, 1000, "entry 0: 0 bytes at 953"},
		{{{990, 10}, MISSING, MISSING}, false, 1000, "the data end at 952"},
		{{MISSING, {47, 10}, MISSING}, true, 1000, "entry 1: offset 47 is inside the index"},
		{{MISSING, {47, 10}, MISSING}, true, UINT64_MAX, "entry 1: offset 47 is inside the index"},
		{{MISSING, {990, 11}, MISSING}, true, 1000, "the data end at 1000"},
		{{{0, 600}, {300, 600}, MISSING}, false, 1000, "entries up to 1 hold more bytes"},
		{{{48, 952}, {990, 10}, MISSING}, true, 1000, "entries up to 1 hold more bytes"},
		{{{0, 10}, MISSING, MISSING}, false, 40, "shorter than its index"},
	};
	uint8_t		bytes[PLAIN_BYTES + 4];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		TbShardLevel level = level_of(false, rows[i].at_start, false);
		size_t		len = write_index(&level, rows[i].entries, bytes);
		TbError		err;

		assert_int_equal(tb_shard_index_check(&level, bytes, len, rows[i].shard_bytes, &err),
						 TB_E_CORRUPT);
		assert_contains(err.detail, rows[i].part);
	}
}

/* The edge itself is right: data up to the index, or from it on. */
static void
takes_the_edges(void **state)
{
	static const Entry before[ENTRIES] = {{0, 952}, MISSING, {952, 0}};
	static const Entry behind[ENTRIES] = {{48, 952}, MISSING, {1000, 0}};
	uint8_t		bytes[PLAIN_BYTES + 4];
	TbShardLevel level = level_of(false, false, false);
	TbError		err;

	assert_int_equal(
		tb_shard_index_check(&level, bytes, write_index(&level, before, bytes), 1000, &err), TB_OK);
	level = level_of(false, true, false);
	assert_int_equal(
		tb_shard_index_check(&level, bytes, write_index(&level, behind, bytes), 1000, &err), TB_OK);
}

static void
refuses_bytes(void **state)
{
	static const Entry entries[ENTRIES] = {{0, 20}, MISSING, {20, 20}};
	uint8_t		bytes[PLAIN_BYTES + 4];
	TbShardLevel level = level_of(true, false, false);
	size_t		len = write_index(&level, entries, bytes);
	TbError		err;

	assert_int_equal(tb_shard_index_check(&level, bytes, len - 1, 1000, &err), TB_E_CORRUPT);
	assert_int_equal(tb_shard_index_check(&level, bytes, 0, 1000, &err), TB_E_CORRUPT);
	/* any bit that is wrong */
	for (size_t bit = 0; bit < len * 8; bit++)
	{
		bytes[bit / 8] ^= (uint8_t) (1 << bit % 8);
		assert_int_equal(tb_shard_index_check(&level, bytes, len, UINT64_MAX, &err), TB_E_CORRUPT);
		bytes[bit / 8] ^= (uint8_t) (1 << bit % 8);
	}
	assert_int_equal(tb_shard_index_check(&level, bytes, len, 1000, &err), TB_OK);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_entries),
		cmocka_unit_test(refuses_entries),
		cmocka_unit_test(takes_the_edges),
		cmocka_unit_test(refuses_bytes),
	};

	return cmocka_run_group_tests_name("zarr shard indexes", tests, NULL, NULL);
}
