/* Entries of the cache: what proves them. Pure. */
#include <string.h>

#include "io/cache_parts.h"

static const char magic[8] = {'T', 'B', 'e', 'n', 't', 'r', 'y', '1'};

uint32_t
tb_cache_units(size_t len)
{
	return (uint32_t) (1 + (len + TB_CACHE_UNIT - 1) / TB_CACHE_UNIT);
}

static uint32_t
head_crc(const TbCacheHead *head)
{
	size_t		from = offsetof(TbCacheHead, bytes_crc);

	return tb_crc32c(0, (const uint8_t *) head + from, sizeof(*head) - from);
}

void
tb_cache_head_make(TbCacheHead *head, const TbCacheKey *key, const char *version,
			   uint64_t object_size, const void *bytes,
				   size_t len)
{
	memset(head, 0, sizeof(*head));
	memcpy(head->magic, magic, sizeof(magic));
	memcpy(head->key, key->hash, sizeof(head->key));
	memcpy(head->version, version, strnlen(version, sizeof(head->version) - 1));
	head->object_size = object_size;
	head->len = len;
	head->bytes_crc = tb_crc32c_lanes(bytes, len);
	head->head_crc = head_crc(head);
}

bool
tb_cache_head_ok(const TbCacheHead *head, uint32_t units)
{
	return memcmp(head->magic, magic, sizeof(magic)) == 0 && head->head_crc == head_crc(head) &&
		head->version[0] != '\0' &&
		head->version[sizeof(head->version) - 1] == '\0' && head->len <= (uint64_t) units * TB_CACHE_UNIT &&
		tb_cache_units((size_t) head->len) <= units;
}

bool
tb_cache_entry_ok(const TbCacheHead *head, const TbCacheKey *key, const void *bytes, uint32_t units)
{
	return tb_cache_head_ok(head, units) && memcmp(head->key, key->hash, sizeof(head->key)) == 0 &&
		head->bytes_crc == tb_crc32c_lanes(bytes, (size_t) head->len);
}
