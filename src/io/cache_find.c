/* Slots and segments of the cache's index. */
#include "io/cache_parts.h"

#include <errno.h>
#include <sys/file.h>

#define GENERATION ((UINT64_C(1) << 24) - 1)
#define HIT_SHIFT 24
#define HITS_MAX 3u
#define SEEN_SHIFT 26

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define STORE(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)

static void
unpack(const TbCacheSlot *slot, TbCachePlace *place, uint64_t *info)
{
	uint64_t	word = LOAD(slot->place);

	*info = LOAD(slot->info);
	place->segment = (uint32_t) (word & 0xffff);
	place->unit = (uint32_t) (word >> 16 & GENERATION);
	place->units = (uint32_t) (word >> 40 & GENERATION);
	place->generation = (uint32_t) (*info & GENERATION);
}

static uint64_t
pack(const TbCachePlace *place)
{
	return (uint64_t) place->segment | (uint64_t) place->unit << 16 | (uint64_t) place->units << 40;
}

static uint64_t
pack_info(const TbCachePlace *place, unsigned hits, int64_t seen_ms)
{
	return (uint64_t) (place->generation & GENERATION) | (uint64_t) hits << HIT_SHIFT |
		(uint64_t) (uint32_t) (seen_ms / 1000) << SEEN_SHIFT;
}

bool
tb_cache_is_there(const TbCacheMap *map, const TbCachePlace *place)
{
	uint64_t	end = ((uint64_t) place->unit + place->units) * TB_CACHE_UNIT;

	return place->segment < map->n_segments && place->units > 0 && end <= map->segment_bytes &&
		(LOAD(map->segment[place->segment].generation) & GENERATION) == place->generation;
}

static TbCacheSlot *
bucket_of(const TbCacheMap *map, uint64_t tag)
{
	return &map->slot[(tb_mix64(tag) & (map->n_slots - 1)) / TB_CACHE_WAYS * TB_CACHE_WAYS];
}

bool
tb_cache_find(const TbCacheMap *map, uint64_t tag, TbCachePlace *place, uint32_t *slot, int64_t *seen_ms)
{
	TbCacheSlot *bucket = bucket_of(map, tag);

	for (uint32_t i = 0; i < TB_CACHE_WAYS; i++)
	{
		uint64_t	info;

		if (LOAD(bucket[i].tag) != tag)
			continue;
		unpack(&bucket[i], place, &info);
		if (!tb_cache_is_there(map, place))
			continue;
		*slot = (uint32_t) (&bucket[i] - map->slot);
		*seen_ms = (int64_t) (info >> SEEN_SHIFT) * 1000;
		return true;
	}
	return false;
}

bool
tb_cache_was_there(const TbCacheMap *map, uint64_t tag)
{
	TbCacheSlot *bucket = bucket_of(map, tag);

	for (uint32_t i = 0; i < TB_CACHE_WAYS; i++)
		if (LOAD(bucket[i].tag) == tag)
			return true;
	return false;
}

int
tb_cache_hits(const TbCacheMap *map, uint32_t slot)
{
	return (int) (LOAD(map->slot[slot].info) >> HIT_SHIFT & HITS_MAX);
}

/* What another process does to the slot meanwhile may be lost: it is a hint. */
void
tb_cache_hit(TbCacheMap *map, uint32_t slot, uint64_t tag)
{
	uint64_t	info = LOAD(map->slot[slot].info);

	if ((info >> HIT_SHIFT & HITS_MAX) < HITS_MAX && LOAD(map->slot[slot].tag) == tag)
		STORE(map->slot[slot].info, info + (UINT64_C(1) << HIT_SHIFT));
}

void
tb_cache_seen(TbCacheMap *map, uint32_t slot, uint64_t tag)
{
	uint64_t	info = LOAD(map->slot[slot].info) & ((UINT64_C(1) << SEEN_SHIFT) - 1);

	if (LOAD(map->slot[slot].tag) == tag)
		STORE(map->slot[slot].info, info | (uint64_t) (uint32_t) (tb_cache_now_ms() / 1000) << SEEN_SHIFT);
}

void
tb_cache_drop(TbCacheMap *map, uint32_t slot, const TbCachePlace *place)
{
	if (LOAD(map->slot[slot].place) == pack(place))
		STORE(map->slot[slot].tag, 0);
}

/* The slot for a key: its own, a free one, one whose entry is gone, else the one hit least and seen longest ago. */
static TbCacheSlot *
slot_for(TbCacheMap *map, uint64_t tag)
{
	TbCacheSlot *bucket = bucket_of(map, tag);
	TbCacheSlot *best = NULL;
	uint64_t	best_worth = UINT64_MAX;

	for (uint32_t i = 0; i < TB_CACHE_WAYS; i++)
	{
		uint64_t	was = LOAD(bucket[i].tag);
		uint64_t	info;
		uint64_t	worth;
		TbCachePlace place;

		if (was == tag)
			return &bucket[i];
		unpack(&bucket[i], &place, &info);
		worth = was == 0 ? 0 : !tb_cache_is_there(map, &place) ? 1 :
			2 + ((info >> HIT_SHIFT & HITS_MAX) << 40) + (info >> SEEN_SHIFT);
		if (worth < best_worth)
		{
			best = &bucket[i];
			best_worth = worth;
		}
	}
	return best;
}

void
tb_cache_publish(TbCacheMap *map, uint64_t tag, const TbCachePlace *place, int64_t seen_ms)
{
	TbCacheSlot *slot = slot_for(map, tag);

	STORE(slot->tag, 0);
	STORE(slot->place, pack(place));
	STORE(slot->info, pack_info(place, 0, seen_ms));
	__atomic_store_n(&slot->tag, tag, __ATOMIC_RELEASE);
}

uint64_t
tb_cache_offset(const TbCacheMap *map, const TbCachePlace *place)
{
	return place->segment * map->segment_bytes + (uint64_t) place->unit * TB_CACHE_UNIT;
}

static uint32_t
next_segment(const TbCacheMap *map, bool large, uint32_t at)
{
	uint32_t	first = large ? map->n_small : 0;
	uint32_t	end = large ? map->n_segments : map->n_small;

	return at + 1 < first || at + 1 >= end ? first : at + 1;
}

/* The lock is held: it is never held across anything that waits, so who does not get it at once goes without. */
static void
reserve_locked(TbCacheMap *map, bool large, uint32_t units, TbCachePlace *place, uint32_t *ripe)
{
	uint32_t	at = LOAD(map->super->at[large]);
	uint32_t	all = (uint32_t) (map->segment_bytes / TB_CACHE_UNIT);
	TbCacheSegment *segment;

	if (at >= map->n_segments || (at >= map->n_small) != large)
		at = large ? map->n_small : 0;	/* somebody else's writing */
	segment = &map->segment[at];
	if (LOAD(segment->filled) > all || all - LOAD(segment->filled) < units)
	{
		at = next_segment(map, large, at);
		segment = &map->segment[at];
		STORE(segment->generation, LOAD(segment->generation) + 1);
		STORE(segment->filled, 0);
		STORE(map->super->at[large], at);
		*ripe = next_segment(map, large, at);
	}
	place->segment = at;
	place->unit = LOAD(segment->filled);
	place->units = units;
	place->generation = (uint32_t) (LOAD(segment->generation) & GENERATION);
	STORE(segment->filled, place->unit + units);
}

bool
tb_cache_reserve(TbCacheMap *map, bool large, uint32_t units, TbCachePlace *place, uint32_t *ripe)
{
	*ripe = UINT32_MAX;
	if ((uint64_t) units * TB_CACHE_UNIT > map->segment_bytes)
		return false;
	while (flock(map->lock_fd, LOCK_EX | LOCK_NB) != 0)
		if (errno != EINTR)
			return false;
	reserve_locked(map, large, units, place, ripe);
	(void) flock(map->lock_fd, LOCK_UN);
	return true;
}
