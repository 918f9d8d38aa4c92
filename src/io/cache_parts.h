/*
 * The cache's files, private to cache*.c.
 *
 *   index   mapped by all processes: super block, segments, claims, slots. Only hints: what is
 *           found through it is proved by the entry itself, so what is wrong in it costs misses.
 *   data    n_segments of segment_bytes. A segment is filled with entries from its start; when its
 *           turn comes again its generation grows and it is filled anew: what lay in it is gone.
 *   lock    flock while space is reserved and while the files are made
 *
 * Two rings of segments: new entries pass through the small one. An entry that was hit there by the
 * time its segment is next to be filled again moves to the large ring, as does one that is put
 * again soon after it was dropped; an entry of the large ring that was hit gets another round. So a
 * scan, however long, passes through the small ring alone.
 */
#ifndef TB_IO_CACHE_PARTS_H
#define TB_IO_CACHE_PARTS_H

#include "io/cache.h"

#define TB_CACHE_UNIT 512u		/* entries begin at multiples; an entry's header takes one */
#define TB_CACHE_WAYS 8u		/* slots that a key may lie in */
#define TB_CACHE_CLAIMS 512u
#define TB_CACHE_PROBES 8u
#define TB_CACHE_LEASE_MS 3000	/* a claim that is not renewed is nobody's after so long */

typedef struct TbCacheSlot
{
	uint64_t	tag;			/* of the key; 0: never used */
	uint64_t	place;			/* segment 16 bits, unit 24, units 24 */
	uint64_t	info;			/* generation 24 bits, hits 2, second last seen to be current 32 */
} TbCacheSlot;

typedef struct TbCacheSegment
{
	uint32_t	generation;
	uint32_t	filled;			/* units */
} TbCacheSegment;

typedef struct TbCacheClaim
{
	uint64_t	tag;			/* 0: free */
	uint64_t	owner;			/* pid and serial of the cache that holds it */
	int64_t		until_ms;		/* boot time */
} TbCacheClaim;

typedef struct TbCacheSuper
{
	char		magic[8];
	uint32_t	format;
	uint32_t	n_segments;
	uint32_t	n_small;		/* the first ones are the small ring */
	uint32_t	n_slots;		/* a power of two */
	uint64_t	segment_bytes;
	char		boot_id[40];	/* that times belong to */
	uint32_t	at[2];			/* segments being filled: small, large */
} TbCacheSuper;

typedef struct TbCacheMap
{
	char	   *directory;		/* owned */
	int			directory_fd;
	int			data_fd;
	int			lock_fd;
	size_t		bytes;			/* of the mapping */
	TbCacheSuper *super;		/* the mapping; owned */
	TbCacheSegment *segment;
	TbCacheClaim *claim;
	TbCacheSlot *slot;
	uint64_t	owner;
	/* fixed copies: the mapping is not trusted for sizes */
	uint32_t	n_segments;
	uint32_t	n_small;
	uint32_t	n_slots;
	uint64_t	segment_bytes;
} TbCacheMap;

/* Where an entry lies. */
typedef struct TbCachePlace
{
	uint32_t	segment;
	uint32_t	unit;
	uint32_t	units;
	uint32_t	generation;
} TbCachePlace;

/* What stands before the bytes of an entry. Written as it lies in memory: the cache belongs to one machine. */
typedef struct TbCacheHead
{
	char		magic[8];
	uint32_t	head_crc;		/* of the rest of the struct */
	uint32_t	bytes_crc;		/* tb_crc32c_lanes of the bytes */
	uint8_t		key[32];
	uint64_t	object_size;
	uint64_t	len;
	char		version[96];
} TbCacheHead;

/* What is to be kept. */
typedef struct TbCachePut
{
	const TbCacheKey *key;
	const char *version;
	uint64_t	object_size;
	TbBuf	   *data;
} TbCachePut;

/* ---- cache_map.c, cache_find.c: the files and what is found in the index ---- */
extern TbStatus tb_cache_map_open(const char *directory, uint64_t bytes, TbCacheMap *map, TbError *err) TB_MUST_CHECK;
extern void tb_cache_map_close(TbCacheMap *map);	/* contents */
extern uint64_t tb_cache_tag(const TbCacheKey *key);
extern int64_t tb_cache_now_ms(void);	/* boot time */
/* A key's entry. false: none. *slot: for the calls below; *seen_ms: when it was last seen to be current. */
extern bool tb_cache_find(const TbCacheMap *map, uint64_t tag, TbCachePlace *place, uint32_t *slot, int64_t *seen_ms);
/* its segment was not filled anew */
extern bool tb_cache_is_there(const TbCacheMap *map, const TbCachePlace *place);
extern void tb_cache_hit(TbCacheMap *map, uint32_t slot, uint64_t tag);
extern int	tb_cache_hits(const TbCacheMap *map, uint32_t slot);
extern void tb_cache_seen(TbCacheMap *map, uint32_t slot, uint64_t tag);
extern void tb_cache_drop(TbCacheMap *map, uint32_t slot, const TbCachePlace *place);
extern void tb_cache_publish(TbCacheMap *map, uint64_t tag, const TbCachePlace *place, int64_t seen_ms);
/* Was the key's entry dropped to make room, not long ago? */
extern bool tb_cache_was_there(const TbCacheMap *map, uint64_t tag);
/* Space in a ring. false: not now (another process has the lock). *ripe: a segment whose entries
 * are to be looked through, UINT32_MAX. */
extern bool tb_cache_reserve(TbCacheMap *map, bool large, uint32_t units, TbCachePlace *place, uint32_t *ripe);
extern uint64_t tb_cache_offset(const TbCacheMap *map, const TbCachePlace *place);	/* in the data file */

/* ---- cache_claim.c: who fetches what ---- */
typedef enum TbClaimed
{
	TB_CLAIM_OURS, TB_CLAIM_OTHERS, TB_CLAIM_NONE	/* no room for claims: fetch without */
} TbClaimed;
/* *claim: for the calls below, when OURS. */
extern TbClaimed tb_claim_take(TbCacheMap *map, uint64_t tag, uint32_t *claim);
extern void tb_claim_renew(TbCacheMap *map, uint32_t claim);
extern void tb_claim_give(TbCacheMap *map, uint32_t claim);

/* ---- cache_entry.c ---- */
extern void tb_cache_head_make(TbCacheHead *head, const TbCacheKey *key, const char *version,
			   uint64_t object_size, const void *bytes,
							   size_t len);
/* Is it a whole head, of an entry of at most so many units? */
extern bool tb_cache_head_ok(const TbCacheHead *head, uint32_t units);
/* Is it this key's, and are these its bytes? */
extern bool tb_cache_entry_ok(const TbCacheHead *head, const TbCacheKey *key, const void *bytes, uint32_t units);
extern uint32_t tb_cache_units(size_t len);

/* ---- cache_move.c: entries that are worth keeping go to the large ring ---- */
typedef struct TbCacheMover TbCacheMover;
extern TbCacheMover *tb_mover_new(TbCacheMap *map, TbAio *aio); /* NULL when memory is gone */
extern void tb_mover_free(TbCacheMover *mover);	/* its aio is gone before; NULL allowed */
extern void tb_mover_look(TbCacheMover *mover, uint32_t segment);	/* unless it is busy with another */

#endif
