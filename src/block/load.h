/*
 * TbLoad: bytes of an object that several users share: metadata documents, shard indexes, encoded
 * chunks with their decoded form. One request however many wait (single flight); when the last user
 * leaves before it is answered, it is cancelled. Kept in a TbLru afterwards, for a bounded age.
 *
 * thread: all by the loop's thread, but the decoded form (engine's mutex, see chunk_cache.c).
 */
#ifndef TB_BLOCK_LOAD_H
#define TB_BLOCK_LOAD_H

#include "block/block.h"
#include "block/lru.h"

typedef struct TbLoad TbLoad;

typedef struct TbWaiter
{
	void		(*wake) (struct TbWaiter *waiter);	/* from the pump, once, when settled */
	void	   *arg;
	bool		waiting;
	struct TbWaiter *prev;
	struct TbWaiter *next;
} TbWaiter;

typedef enum TbDecodeState
{
	TB_UNDECODED, TB_DECODING, TB_DECODED
} TbDecodeState;

struct TbLoad
{
	TbLruNode	node;			/* first: a node is its load */
	TbEngine   *engine;			/* borrowed */
	TbLru	   *cache;			/* borrowed */

	TbStatus	status;			/* AGAIN while the read is in flight */
	TbError    *error;			/* owned; NULL unless failed (or no memory for it) */
	bool		missing;
	TbBuf	   *bytes;			/* owned; NULL: missing, failed, or a chunk that was decoded */
	size_t		n_bytes;		/* as read */
	char		version[96];
	uint64_t	version_hash;	/* of version; 0 where missing */
	int64_t		loaded_ns;

	/* while in flight */
	TbStore    *store;			/* borrowed from the waiters' source */
	TbRead	   *read;			/* owned */
	char	   *object;			/* owned; key of the object */
	char	   *pinned;			/* owned; NULL or the version asked for */
	const TbShardLevel *level;	/* borrowed from the waiters' array; NULL: no shard index */
	uint64_t	shard_bytes;
	bool		again;			/* a shard index was read twice, as the first was damaged */
	TbWaiter   *waiters;

	/* decoded chunk: guarded by the engine's mutex */
	TbDecodeState decode_state;
	TbBuf	   *decoded;		/* owned */
	bool		damaged;		/* atomic: could not be decoded, the next user asks for it again */
};

typedef struct TbLoadSpec
{
	TbSource   *source;
	TbLru	   *cache;
	const void *name;			/* what the cache knows it by */
	size_t		name_len;
	const char *object;
	TbRangeKind kind;
	uint64_t	offset;
	uint64_t	length;
	const char *if_version;
	size_t		cost;			/* bytes in the cache's account; 0: as read */
	int64_t		max_age_ns;		/* older answers are asked for again; 0: share only in flight */
	int64_t		missing_age_ns; /* the same for absence */
	const TbShardLevel *level;	/* NULL, or prove the bytes as the index of a shard */
	uint64_t	shard_bytes;	/* UINT64_MAX: as the store tells */
	bool		no_cache;		/* what the disk holds was damaged */
} TbLoadSpec;

/* Find or begin. owns: a pin, tb_load_release. *began: a request was made. errors: NOMEM. */
extern TbStatus tb_load_get(const TbLoadSpec *spec, TbLoad **load, bool *began,
							TbError *err) TB_MUST_CHECK;

/* Have waiter called when a load in flight settles. */
extern void tb_load_wait(TbLoad *load, TbWaiter *waiter);

/* Leave: waiter (NULL: none) is not called any more, the pin is given back. */
extern void tb_load_release(TbLoad *load, TbWaiter *waiter);

/* No later user finds it. The caller holds a pin. */
extern void tb_load_drop(TbLoad *load);

/* The status and words of a settled load. */
extern TbStatus tb_load_status(const TbLoad *load, TbError *err);

extern void tb_load_destroy(TbLruNode *node);	/* for tb_lru_init */

#endif
