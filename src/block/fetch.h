/*
 * A fetch, as its files see it: fetch.c (face), fetch_run.c (what to start next, what ended),
 * fetch_shard.c (shard indexes), decode.c (bytes to elements).
 *
 * Parts are the innermost chunks of the region in C order. What is in flight sits in slots, at most
 * TB_FETCH_WINDOW of them; everything else is a cursor or a list, so that a fetch over a million
 * chunks holds a million small parts and a few requests.
 */
#ifndef TB_BLOCK_FETCH_H
#define TB_BLOCK_FETCH_H

#include "block/internal.h"

#define TB_FETCH_WINDOW 128
#define TB_FETCH_MAX_PARTS ((uint64_t) 1 << 22)
#define TB_NO_PART UINT32_MAX

typedef enum TbPartState
{
	TB_PART_UNKNOWN,			/* its place is not known yet */
	TB_PART_PLACED,				/* known, to be read */
	TB_PART_READING,
	TB_PART_HERE,
	TB_PART_MISSING
} TbPartState;

/* One stored object that is a shard. */
typedef struct TbObject
{
	struct TbObject *next;
	uint64_t	number;			/* in TbFetch.objects */
	char	   *key;			/* owned */
	char		version[96];	/* of its index */
	uint64_t	version_hash;
	bool		restarted;		/* it changed once already */
} TbObject;

typedef struct TbPart
{
	TbBuf	   *bytes;			/* owned; encoded chunk of this fetch alone */
	TbLoad	   *load;			/* pinned; encoded or decoded chunk that regions share */
	TbObject   *object;			/* borrowed; NULL: not sharded */
	uint64_t	offset;			/* in the object */
	uint64_t	length;			/* UINT64_MAX: the object */
	uint32_t	next;			/* in the list of placed parts */
	uint8_t		state;			/* TbPartState */
} TbPart;

/* A shard of some level whose index is to be read. */
typedef struct TbShardNode
{
	struct TbShardNode *next;
	TbObject   *object;			/* borrowed */
	int			level;
	uint64_t	index[TB_MAX_DIM];	/* in units of this level's shard */
	uint64_t	base;			/* where it starts in the object */
	uint64_t	length;			/* UINT64_MAX: to the end of the object */
} TbShardNode;

typedef enum TbSlotKind
{
	TB_SLOT_FREE,
	TB_SLOT_READ,				/* a part's bytes, for this fetch alone */
	TB_SLOT_CHUNK,				/* a part's bytes, shared */
	TB_SLOT_INDEX				/* a shard index */
} TbSlotKind;

typedef struct TbSlot
{
	TbSlotKind	kind;
	TbFetch    *fetch;			/* borrowed */
	struct TbSlot *next_free;
	uint32_t	part;
	TbShardNode *node;			/* owned; INDEX */
	TbLoad	   *load;			/* pinned; CHUNK, INDEX */
	TbWaiter	waiter;
	TbRead		read;			/* READ */
	bool		flying;			/* read is the store's */
	char	   *key;			/* owned buffer of fetch->key_bytes */
} TbSlot;

struct TbFetch
{
	/* immutable */
	TbArray    *array;			/* a reference */
	const TbArrayMeta *meta;	/* the array's */
	const TbChain *chain;
	TbEngine   *engine;
	TbStore    *store;
	TbRegion	region;
	bool		locate_only;
	bool		share_all;		/* also whole chunks are shared */
	bool		again;			/* all is read a second time, from the store itself */
	uint8_t    *into;			/* borrowed; NULL, or where elements go, which are wanted as they are stored */
	TbBox		chunks;			/* innermost chunks touched; number = part */
	TbBox		objects;		/* stored objects touched (the same where not sharded) */

	/* the loop's thread until ready, then immutable: read by one decoding thread */
	TbPart	   *part;			/* owned; chunks.total of them */
	TbObject   *object;			/* owned list */
	TbShardNode *node;			/* owned list, waiting to start */
	uint32_t	first_placed;
	uint32_t	last_placed;
	uint64_t	cursor;			/* next object (sharded) or part to begin with */
	TbSlot	   *slot[TB_FETCH_WINDOW];	/* owned */
	int			n_slots;
	TbSlot	   *free_slot;
	int			in_flight;
	TbStatus	status;
	TbError		error;
	uint64_t	bytes;
	uint32_t	requests;
	uint64_t	version;		/* sum over the objects read, so order does not matter */

	void		(*ready) (void *arg);
	void	   *ready_arg;
	TbTask		ready_task;
	bool		ready_called;

	char	   *key;			/* owned; scratch for keys */
	size_t		key_bytes;
};

/* Start what can be started; settles the fetch when nothing is left. */
extern void tb_fetch_advance(TbFetch *fetch);
/* The end, once: TB_OK, or an error, which cancels what is in flight. */
extern void tb_fetch_settle(TbFetch *fetch, TbStatus status, const TbError *error);
extern void tb_fetch_cancel(TbFetch *fetch);	/* what is in flight */

/* Slots. */
extern TbSlot *tb_fetch_take_slot(TbFetch *fetch, TbSlotKind kind); /* NULL: no memory */
extern void tb_fetch_give_slot(TbSlot *slot);	/* cancels what it holds in flight */

/* The key of stored object (number in fetch->objects) into key; false: too long, which cannot be.
 */
extern bool tb_fetch_object_key(const TbFetch *fetch, uint64_t number, char *key);

/* Parts. */
extern void tb_fetch_place_part(TbFetch *fetch, uint32_t part, TbObject *object, uint64_t offset,
								uint64_t length);
extern void tb_fetch_add_version(TbFetch *fetch, const char *key, uint64_t version_hash,
								 bool remove);
extern void tb_fetch_error_detail(const TbFetch *fetch, const char *key, uint32_t part,
								  TbError *err);

/* fetch_shard.c */
extern void tb_fetch_start_object(TbFetch *fetch);	/* the next object's index */
extern void tb_fetch_start_node(TbFetch *fetch);	/* the first waiting node's index */
/* An object is not the one its index was read from: begin it again, once; then the fetch fails with
 * CHANGED. The slot that found it is given back before. */
extern void tb_fetch_object_changed(TbFetch *fetch, TbObject *object, uint32_t part);

/* decode.c */

/* Where the elements of a chunk lie in `into`, NULL: not in one piece. */
extern uint8_t *tb_fetch_target(const TbFetch *fetch, const uint64_t *index);

/* chunk_cache.c */
extern size_t tb_chunk_limit(const TbChain *chain);	/* cap of an encoded chunk, bytes */
/* Find or begin a shared chunk. */
extern TbStatus tb_chunk_get(TbFetch *fetch, uint32_t part, TbLoad **load, bool *began,
							 TbError *err) TB_MUST_CHECK;
/* Decoded elements, made on first use. *bytes is the load's. thread: any; errors: CORRUPT, NOMEM.
 */
extern TbStatus tb_chunk_decoded(TbLoad *load, const TbChain *chain, const uint8_t **bytes,
								 TbError *err) TB_MUST_CHECK;
/* True where the region takes just a part of the chunk, so that other regions may want it too. */
extern bool tb_chunk_is_shared(const TbFetch *fetch, const uint64_t *index);

#endif
