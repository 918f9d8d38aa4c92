/* What the files of this room share: engine, source, array, metadata documents. */
#ifndef TB_BLOCK_INTERNAL_H
#define TB_BLOCK_INTERNAL_H

#include <pthread.h>

#include "block/block.h"
#include "block/load.h"
#include "block/lru.h"

#define TB_SPARE_BUFS 16

struct TbEngine
{
	TbLoop	   *loop;			/* owned */
	TbPool	   *pool;			/* owned */
	TbIo	   *io;				/* owned */
	int64_t		max_age_ns;
	int64_t		chunk_max_age_ns;
	bool		chunks_as_metadata; /* the former follows max_age_ns */
	uint64_t	next_id;		/* of sources and arrays: names in the caches */
	TbLru		docs;			/* metadata documents */
	TbLru		indexes;		/* shard indexes */
	TbLru		chunks;			/* chunks that several regions share */

	pthread_mutex_t mu;
	pthread_cond_t decoded;		/* a chunk left TB_DECODING */
	/* guarded by mu */
	TbBuf	   *spare[TB_SPARE_BUFS];	/* owned; decode buffers waiting for their next use */
	int			n_spare;
	size_t		spare_bytes;
};

/* A buffer for at least so many bytes, len set. NULL: no memory. thread: any. */
extern TbBuf *tb_engine_take_buf(TbEngine *engine, size_t bytes);
/* Give it back for reuse; NULL allowed. Only where nobody else holds it. thread: any. */
extern void tb_engine_give_buf(TbEngine *engine, TbBuf *buf);

struct TbSource
{
	int			refs;
	TbEngine   *engine;			/* borrowed */
	TbStore    *store;			/* owned */
	uint64_t	id;
	uint64_t	generation;		/* counts tb_source_forget */
	int			format;			/* 2 or 3 once an array was found, 0: not known */
	TbLru		arrays;			/* TbArrayCore by path and mask_fill */
};

/* ---- metadata documents, docs.c ---- */
#define TB_DOCS_MAX 6

typedef struct TbDocs TbDocs;
typedef struct TbDoc
{
	char	   *key;			/* owned */
	TbLoad	   *load;			/* pinned */
	TbWaiter	waiter;
} TbDoc;

/* A few documents asked for together. */
struct TbDocs
{
	int			n;
	int			pending;
	TbDoc		doc[TB_DOCS_MAX];
	void		(*done) (TbDocs *docs); /* when pending fell to 0; never from tb_docs_start */
	void	   *arg;
};

/* Ask for names below base ("" = the root). fresh: never a cached answer. pending may be 0 at once.
 * owns: docs's contents, tb_docs_clear. errors: NOMEM. */
extern TbStatus tb_docs_start(TbDocs *docs, TbSource *source, const char *base,
							  const char *const *name, bool fresh, TbError *err) TB_MUST_CHECK;
extern void tb_docs_clear(TbDocs *docs);	/* cancels; done and arg stay */
/* The bytes of document i, NULL where it is missing (or could not be read). */
extern const TbBuf *tb_docs_bytes(const TbDocs *docs, int i);
/* The first failure, TB_OK where all were read or are missing. */
extern TbStatus tb_docs_failure(const TbDocs *docs, TbError *err);
extern int64_t tb_docs_age_ns(const TbDocs *docs);	/* when the oldest was read */

/* ---- paths, docs.c ---- */
extern char *tb_block_path_join(const char *group, const char *name);	/* owned; NULL: no memory */
extern char *tb_path_parent(const char *path);	/* owned; "" for one part; NULL: no memory */
/* Without slashes at the ends. errors: INVALID ("..", "." or empty parts), NOMEM. */
extern TbStatus tb_path_clean(const char *path, char **clean, TbError *err) TB_MUST_CHECK;
extern const TbNode *tb_nodes_find(const TbNodes *nodes, const char *path);	/* any order */

/* ---- arrays, array.c ---- */
typedef enum TbArrayStage
{
	TB_ARRAY_PROBE,				/* the node's own documents, of the format seen before */
	TB_ARRAY_PROBE_ALL,			/* of both formats */
	TB_ARRAY_ANCESTOR,			/* consolidated metadata above */
	TB_ARRAY_SETTLED
} TbArrayStage;

/* What is known of an array, shared by the handles to it. */
typedef struct TbArrayCore
{
	TbLruNode	node;			/* first; pins are the handles */
	TbSource   *source;			/* borrowed: owns the table, or a handle holds it */
	uint64_t	serial;
	char	   *path;			/* owned */
	int			mask_fill;
	TbArrayStage stage;
	TbDocs		docs;
	char	   *above;			/* owned; the ancestor being asked */
	TbStatus	status;			/* AGAIN until settled */
	TbError    *error;			/* owned */
	int64_t		loaded_ns;
	TbArrayMeta *meta;			/* owned; immutable once settled */
	TbChain    *chain;			/* owned; immutable */
} TbArrayCore;

struct TbArray
{
	int			refs;
	TbSource   *source;			/* a reference */
	TbArrayCore *core;			/* pinned */
};

extern void tb_array_core_destroy(TbLruNode *node);

/* ---- fetches, fetch.c ---- */
/* As tb_fetch_open, but every chunk is one that others will want too: coordinates. */
extern TbStatus tb_fetch_open_shared(TbArray *array, const TbRegion *region, TbFetch **fetch,
									 TbError *err) TB_MUST_CHECK;

/* ---- region arithmetic, region.c ---- */
/* A box of cells of a regular grid. */
typedef struct TbBox
{
	int			ndim;
	uint64_t	first[TB_MAX_DIM];
	uint64_t	n[TB_MAX_DIM];
	uint64_t	total;
} TbBox;

/* Cells of shape unit that a region touches. false: more than 2^64. */
extern bool tb_box_of(const TbRegion *region, const uint64_t *unit, TbBox *box);
extern void tb_box_index(const TbBox *box, uint64_t number,
						 uint64_t *index); /* C order, absolute index */
extern uint64_t tb_box_number(const TbBox *box, const uint64_t *index);
/* The part of box within [first, first + n) of another; false: none. */
extern bool tb_box_clip(const TbBox *box, const uint64_t *first, const uint64_t *n, TbBox *out);
/* errors: RANGE (outside the array), INVALID (dimensions). */
extern TbStatus tb_region_check(const TbArrayMeta *meta, const TbRegion *region,
								TbError *err) TB_MUST_CHECK;

/* Copying a box between two arrays of C order, as runs that are contiguous in both. units:
 * elements. */
typedef struct TbRuns
{
	size_t		run;			/* elements of one run */
	size_t		src;			/* first element */
	size_t		dst;
	int			n;				/* dimensions left, fastest first */
	size_t		count[TB_MAX_DIM];
	size_t		src_step[TB_MAX_DIM];
	size_t		dst_step[TB_MAX_DIM];
} TbRuns;

typedef struct TbOverlap
{
	int			ndim;
	uint64_t	count[TB_MAX_DIM];	/* elements of the overlap */
	uint64_t	src_start[TB_MAX_DIM];	/* within the chunk */
	uint64_t	dst_start[TB_MAX_DIM];	/* within the region */
} TbOverlap;

/* What of the chunk at index lies in the region. */
extern void tb_overlap_of(const TbRegion *region, const uint64_t *chunk, const uint64_t *index,
						  TbOverlap *overlap);
extern void tb_runs_plan(const TbOverlap *overlap, const uint64_t *src_shape,
						 const uint64_t *dst_shape, TbRuns *runs);

/* ---- unpacking, unpack.c and cast.c ---- */
typedef void (*TbUnpackLoop) (const TbPacking *packing, const void *src, size_t n, void *dst);

typedef struct TbUnpacker
{
	const TbPacking *packing;	/* borrowed */
	TbUnpackLoop loop;			/* NULL: packed elements are decoded ones */
	TbDtype		from;			/* the dtype before the cast */
	TbDtype		to;
	size_t		src_bytes;		/* of an element */
	size_t		dst_bytes;
	bool		plain;			/* bytes are copied */
} TbUnpacker;

/* errors: UNSUPPORTED (no such conversion). */
extern TbStatus tb_unpacker_init(TbUnpacker *unpacker, const TbPacking *packing,
								 TbTreatment treatment, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_unpacker_run(const TbUnpacker *unpacker, const void *src, size_t n, void *dst,
								TbError *err) TB_MUST_CHECK;
/* Convert elements between types. errors: RANGE. */
extern TbStatus tb_cast(TbDtype from, const void *src, TbDtype to, void *dst, size_t n,
						TbError *err) TB_MUST_CHECK;

/* ---- coordinates, coord.c ---- */
/* Bounds from the decoded values (C order over the array's shape). cell, blocks: by grid axis. */
extern TbStatus tb_coord_from_values(TbCoord *coord, const void *values, const uint64_t *cell,
									 TbError *err) TB_MUST_CHECK;
/* The index range along an axis. */
extern TbStatus tb_coord_from_index(TbCoord *coord, uint64_t extent, uint64_t cell,
									TbError *err) TB_MUST_CHECK;
extern void tb_coord_clear(TbCoord *coord);

#endif
