/*
 * Who fetches what: a small table in the index. A claim names its holder and the time until which
 * it counts; the holder renews it, the dead do not. Two who take the same claim in the same instant
 * may both have it: then both fetch, which is no harm.
 */
#include "io/cache_parts.h"

#include <errno.h>
#include <signal.h>

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define STORE(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)

static bool
is_held(const TbCacheClaim *claim, int64_t now_ms)
{
	uint64_t	owner = LOAD(claim->owner);

	if (LOAD(claim->tag) == 0 || LOAD(claim->until_ms) < now_ms ||
		LOAD(claim->until_ms) > now_ms + 2 * TB_CACHE_LEASE_MS)
		return false;
	return kill((pid_t) (uint32_t) owner, 0) == 0 || errno != ESRCH;
}

TbClaimed
tb_claim_take(TbCacheMap *map, uint64_t tag, uint32_t *at)
{
	int64_t		now_ms = tb_cache_now_ms();
	uint32_t	first = (uint32_t) tb_mix64(tag);
	TbCacheClaim *free_one = NULL;

	for (uint32_t i = 0; i < TB_CACHE_PROBES; i++)
	{
		TbCacheClaim *claim = &map->claim[(first + i) % TB_CACHE_CLAIMS];
		bool		held = is_held(claim, now_ms);

		if (held && LOAD(claim->tag) == tag)
			return TB_CLAIM_OTHERS;
		if (!held && free_one == NULL)
			free_one = claim;
	}
	if (free_one == NULL)
		return TB_CLAIM_NONE;
	STORE(free_one->until_ms, now_ms + TB_CACHE_LEASE_MS);
	STORE(free_one->owner, map->owner);
	STORE(free_one->tag, tag);
	*at = (uint32_t) (free_one - map->claim);
	return TB_CLAIM_OURS;
}

void
tb_claim_renew(TbCacheMap *map, uint32_t at)
{
	if (LOAD(map->claim[at].owner) == map->owner)
		STORE(map->claim[at].until_ms, tb_cache_now_ms() + TB_CACHE_LEASE_MS);
}

void
tb_claim_give(TbCacheMap *map, uint32_t at)
{
	if (LOAD(map->claim[at].owner) == map->owner)
		STORE(map->claim[at].tag, 0);
}
