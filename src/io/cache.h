/*
 * The node's cache of stored bytes on a local directory, shared by all processes that name the directory.
 * Private to the room; want.c is its user.
 *
 * Nothing read from the directory is trusted: an entry counts only when its header names the key that was asked for and
 * its checksum holds; everything else is a miss. Nothing here fails a read: what goes wrong with
 * the disk turns the cache off in this process (tb_cache_trouble tells once) and every get becomes
 * a miss.
 *
 * One fetch: a miss makes the caller the one who fetches that key, until it puts or abandons; others who ask meanwhile,
 * in whatever process, wait for it (bounded, and not for the dead) and then hit or become the fetcher themselves.
 *
 * thread: the loop's; disk work goes through aio.h.
 */
#ifndef TB_IO_CACHE_H
#define TB_IO_CACHE_H

#include "io/aio.h"
#include "io/io.h"

/* errors: those of the directory: DENIED, NOT_FOUND, NO_SPACE, IO, INVALID (not ours alone: mode or
 * owner). The caller goes on without. */
extern TbStatus tb_cache_open(TbLoop *loop, TbAio *aio, const char *directory, uint64_t bytes, TbCache **cache,
							  TbError *err) TB_MUST_CHECK;
/* Read entries into an io's spare buffers. */
extern void tb_cache_use_buffers(TbCache *cache, TbIo *io);
extern void tb_cache_close(TbCache *cache); /* no get is left, and aio is freed; NULL allowed */

typedef struct TbCacheKey
{
	uint8_t		hash[32];
} TbCacheKey;
/* From who may see it (a hash over endpoint and credentials), object and range. offset, length as in TbRead. */
extern void tb_cache_key(const uint8_t scope[32], const char *object, TbRangeKind kind,
			   uint64_t offset, uint64_t length,
						 TbCacheKey *key);

typedef enum TbCacheFound
{
	TB_CACHE_MISS,				/* the caller is the one to fetch it */
	TB_CACHE_HIT,
	TB_CACHE_STALE				/* as MISS, but data and version are here: good if the store says so */
} TbCacheFound;

typedef struct TbCacheGet
{
	/* the caller's */
	TbCacheKey	key;
	const char *if_version;		/* NULL: any; borrowed until done. An entry of another version is a MISS */
	int64_t		max_age_ms;		/* without if_version: what was seen to be current longer ago is STALE */
	void		(*done) (struct TbCacheGet *get);	/* from the pump, never from inside tb_cache_get */
	void	   *arg;

	/* results */
	TbCacheFound found;
	TbBuf	   *data;			/* the caller's to unref; NULL for MISS */
	uint64_t	object_size;	/* UINT64_MAX: not told */
	char		version[96];

	void	   *impl;			/* the cache's while in flight */
	TbTask		task;
} TbCacheGet;

extern void tb_cache_get(TbCache *cache, TbCacheGet *get);
/* also gives up being the fetcher, if done was not called yet */
extern void tb_cache_cancel(TbCache *cache, TbCacheGet *get);
/* The fetcher's: keep data (a reference is taken, bytes are not written to any more), or what was
 * stale is current, or give up. */
extern void tb_cache_put(TbCache *cache, const TbCacheKey *key, const char *version, uint64_t object_size, TbBuf *data);
extern void tb_cache_touch(TbCache *cache, const TbCacheKey *key);
extern void tb_cache_abandon(TbCache *cache, const TbCacheKey *key);
/* Something is being written: until that has ended, and somebody pumps, others do not find it and wait. */
extern bool tb_cache_is_writing(const TbCache *cache);
/* Why the cache is off; true once. For the host's log. */
extern bool tb_cache_trouble(TbCache *cache, TbError *err);

#endif
