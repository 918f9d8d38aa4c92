/*
 * Shard indexes: one pair of 64-bit numbers for each entry, in C order. Everything is proved once
 * for the whole index, so that entries can then be taken one by one without further checks. Reading
 * the bytes is left to others.
 *
 * source: Zarr sharding_indexed codec 1.0, "binary shard format".
 */
#include "zarr/zarr.h"

#include <stdarg.h>
#include <stdio.h>

#define ENTRY_BYTES 16
#define CRC_BYTES 4

static uint64_t
load_u64(const uint8_t *bytes, bool big)
{
	uint64_t	number = 0;

	for (int i = 0; i < 8; i++)
		number = number << 8 | bytes[big ? i : 7 - i];
	return number;
}

static TbStatus TB_PRINTF(2, 3)
corrupt(TbError *err, const char *format, ...)
{
	char		reason[160];
	va_list		args;

	va_start(args, format);
	(void) vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	tb_fail(err, TB_E_CORRUPT, "shard index is corrupt");
	tb_error_detail(err, "%s", reason);
	return TB_E_CORRUPT;
}

/* Entry must be below level->n_entries. */
TbShardEntry
tb_shard_index_entry(const TbShardLevel *level, const uint8_t *bytes, uint64_t entry)
{
	TbShardEntry out;

	out.offset = load_u64(bytes + entry * ENTRY_BYTES, level->index_big_endian);
	out.length = load_u64(bytes + entry * ENTRY_BYTES + 8, level->index_big_endian);
	out.missing = out.offset == UINT64_MAX && out.length == UINT64_MAX;
	return out;
}

/* The index's own checksum, stored little-endian whatever the entries are. */
static TbStatus
check_crc(const TbShardLevel *level, const uint8_t *bytes, TbError *err)
{
	size_t		covered = level->index_bytes - CRC_BYTES;
	const uint8_t *stored = bytes + covered;
	uint32_t crc = (uint32_t) stored[0] | (uint32_t) stored[1] << 8 | (uint32_t) stored[2] << 16 |
				   (uint32_t) stored[3] << 24;

	if (tb_crc32c(0, bytes, covered) != crc)
		return corrupt(err, "checksum of %zu bytes differs", covered);
	return TB_OK;
}

/* One entry that is not missing: inside [first, end), where end is UINT64_MAX when not known. */
static TbStatus
check_entry(uint64_t i, const TbShardEntry *entry, uint64_t first, uint64_t end, TbError *err)
{
	unsigned long long n = (unsigned long long) i;
	unsigned long long offset = (unsigned long long) entry->offset;
	unsigned long long length = (unsigned long long) entry->length;
	uint64_t	entry_end;

	if (entry->offset == UINT64_MAX || entry->length == UINT64_MAX)
		return corrupt(err, "entry %llu is missing by half", n);
	if (!tb_add_u64(entry->offset, entry->length, &entry_end))
		return corrupt(err, "entry %llu: offset %llu + length %llu is too large", n, offset,
					   length);
	if (entry->offset < first)
		return corrupt(err, "entry %llu: offset %llu is inside the index", n, offset);
	if (end != UINT64_MAX && entry_end > end)
		return corrupt(err, "entry %llu: %llu bytes at %llu, the data end at %llu", n, length,
					   offset, (unsigned long long) end);
	return TB_OK;
}

TbStatus
tb_shard_index_check(const TbShardLevel *level, const uint8_t *bytes, size_t len,
					 uint64_t shard_bytes, TbError *err)
{
	uint64_t	first = level->index_at_start ? level->index_bytes : 0;
	uint64_t	end = shard_bytes;
	uint64_t	total = 0;
	TbStatus	status = TB_OK;

	if (len != level->index_bytes)
		return corrupt(err, "%zu bytes instead of %zu", len, level->index_bytes);
	if (shard_bytes < level->index_bytes)
		return corrupt(err, "shard of %llu bytes is shorter than its index",
					   (unsigned long long) shard_bytes);
	if (!level->index_at_start && end != UINT64_MAX)
		end -= level->index_bytes;
	if (level->index_crc)
		status = check_crc(level, bytes, err);
	for (uint64_t i = 0; i < level->n_entries && status == TB_OK; i++)
	{
		TbShardEntry entry = tb_shard_index_entry(level, bytes, i);

		if (entry.missing)
			continue;
		status = check_entry(i, &entry, first, end, err);
		/* each byte belongs to one entry at most: else a small shard could be a bomb */
		if (status == TB_OK && end != UINT64_MAX &&
			(!tb_add_u64(total, entry.length, &total) || total > end - first))
			status = corrupt(err, "entries up to %llu hold more bytes than the shard",
							 (unsigned long long) i);
	}
	return status;
}
