/*
 * Blocks: engines, sources, arrays, grids, and fetching regions of arrays.
 *
 * An engine is one loop, one pool and the stores below it. A host (backend, streamer, test) waits
 * for tb_engine_fd() and calls tb_engine_pump(). Everything with a _poll function works in the
 * background: _poll returns TB_AGAIN until it is done, then TB_OK or the error, and may be called
 * again and again.
 */
#ifndef TB_BLOCK_H
#define TB_BLOCK_H

#include "base/base.h"
#include "codec/codec.h"
#include "io/io.h"
#include "zarr/zarr.h"

typedef struct TbEngine TbEngine;
typedef struct TbSource TbSource;
typedef struct TbGroup TbGroup;
typedef struct TbArray TbArray;
typedef struct TbGrid TbGrid;
typedef struct TbFetch TbFetch;

/* ---- engine ---- */
typedef struct TbEngineOptions
{
	int			threads;		/* decode threads; 0 in backends */
	TbIoOptions io;
	size_t		chunk_cache_bytes;	/* decoded chunks that regions share; 0: default 64 MiB */
	size_t		index_cache_bytes;	/* shard indexes; 0: default 64 MiB */
	int			metadata_max_age_ms;	/* metadata is asked for again after this; 0: 60000 */
	int			chunk_max_age_ms;	/* shared chunks that are objects of their own (their version is
									 * not looked at again): 0: as metadata */
} TbEngineOptions;

extern TbStatus tb_engine_new(const TbEngineOptions *options, TbEngine **engine,
							  TbError *err) TB_MUST_CHECK;
extern void tb_engine_free(TbEngine *engine);	/* sources must be closed before */
/* Another age for what is cached from now on and what is cached already; ms is positive. */
extern void tb_engine_set_max_age(TbEngine *engine, int ms);
extern int	tb_engine_fd(const TbEngine *engine);
extern void tb_engine_pump(TbEngine *engine);	/* never blocks */
/* Pump once, waiting at most so long: streamer and tests. */
extern void tb_engine_wait(TbEngine *engine, int timeout_ms);
extern TbLoop *tb_engine_loop(TbEngine *engine);
extern TbPool *tb_engine_pool(TbEngine *engine);
extern TbIo *tb_engine_io(TbEngine *engine);

/* ---- sources ---- */
/* A store and what is known of it; makes no request. refs: counted; arrays and grids hold one. */
extern TbStatus tb_source_open(TbEngine *engine, const TbStoreSpec *spec, TbSource **source,
							   TbError *err) TB_MUST_CHECK;
/* For tests: an empty memory store. */
extern TbStatus tb_source_open_mem(TbEngine *engine, TbSource **source, TbError *err) TB_MUST_CHECK;
extern void tb_source_unref(TbSource *source);
extern TbSource *tb_source_ref(TbSource *source);
extern TbStore *tb_source_store(TbSource *source);
extern TbEngine *tb_source_engine(TbSource *source); /* borrowed */
extern const char *tb_source_url(const TbSource *source);
/* Forget cached metadata and shard indexes. */
extern void tb_source_forget(TbSource *source);

/* ---- groups (import) ---- */
/* Everything at and below path ("" = the url itself): consolidated metadata, else by listing, else
 * the node alone. errors: NOT_FOUND (nothing there), NO_GROUP (not a Zarr: hint), UNSUPPORTED (N5,
 * icechunk: by their marks). */
extern TbStatus tb_group_open(TbSource *source, const char *path, TbGroup **group,
							  TbError *err) TB_MUST_CHECK;
extern TbStatus tb_group_poll(TbGroup *group, TbError *err) TB_MUST_CHECK;
extern const TbNodes *tb_group_nodes(const TbGroup *group);	/* sorted by path */
/* false: what lies below is known from consolidated metadata only, as the store cannot be listed or refuses. */
extern bool tb_group_was_listed(const TbGroup *group);
extern void tb_group_free(TbGroup *group);

/* ---- arrays ---- */
/* errors: NO_ARRAY, and what the metadata says. refs: counted. Cached per source. mask_fill: -1 by
 * rule (semantics.md 2), 0, 1. */
extern TbStatus tb_array_open(TbSource *source, const char *path, int mask_fill, TbArray **array,
							  TbError *err) TB_MUST_CHECK;
extern TbStatus tb_array_poll(TbArray *array, TbError *err) TB_MUST_CHECK;
extern const TbArrayMeta *tb_array_meta(const TbArray *array);	/* after _poll said OK */
extern TbSource *tb_array_source(const TbArray *array); /* borrowed */
extern const char *tb_array_codecs(const TbArray *array);	/* "bytes, zstd(level 3)" */
extern TbArray *tb_array_ref(TbArray *array);
extern void tb_array_unref(TbArray *array);

/* ---- regions ---- */
typedef struct TbRegion
{
	int			ndim;
	uint64_t	start[TB_MAX_DIM];	/* elements, the array's own axis order */
	uint64_t	count[TB_MAX_DIM];
} TbRegion;

typedef struct TbTreatment
{
	bool		raw;			/* stored values: no mask, scale, offset */
	TbDtype		cast;			/* TB_NONE: as decoded */
} TbTreatment;

/* The dtype a region has under a treatment; false on overflow of its size. */
extern TbDtype tb_treated_dtype(const TbArrayMeta *meta, TbTreatment treatment);
extern bool tb_region_elements(const TbRegion *region, uint64_t *elements);

/* Where the bytes of a region are: for location(). */
typedef struct TbPlace
{
	const char *key;			/* borrowed until the next call */
	uint64_t	offset;			/* of the encoded chunk in the object */
	uint64_t	length;			/* UINT64_MAX: the whole object */
	bool		missing;		/* known not to be stored */
	uint64_t	chunk[TB_MAX_DIM];	/* index in the innermost chunk grid */
} TbPlace;

/* ---- fetching ---- */
/*
 * Begin to bring the encoded chunks of a region (must lie inside the array: RANGE). The bytes stay
 * in engine buffers until decoded. tb_fetch_poll: AGAIN, then OK when every byte is here and
 * proved. errors: as the stores', CORRUPT for shard indexes; detail names object and chunk.
 */
extern TbStatus tb_fetch_open(TbArray *array, const TbRegion *region, TbFetch **fetch,
							  TbError *err) TB_MUST_CHECK;
/* The same for a decode with this treatment into dst, which outlives the fetch: what is stored as
 * it is wanted lands there at once, where the store can do that. dst is written to until the fetch
 * is freed. Not for memory of a server's context. */
extern TbStatus tb_fetch_open_into(TbArray *array, const TbRegion *region, TbTreatment treatment,
								   void *dst, TbFetch **fetch, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_fetch_poll(TbFetch *fetch, TbError *err) TB_MUST_CHECK;
/* Called once, from the pump, when poll no longer says AGAIN; also where that is so already. */
extern void tb_fetch_on_ready(TbFetch *fetch, void (*ready) (void *arg), void *arg);
/* Decode into dst: C order, dtype of the treatment, dst_bytes exactly. Synchronous, no I/O, no
 * server call. Any one thread after poll said OK. Values out of the cast type's range: RANGE.
 * errors: CORRUPT naming object, chunk and codec. */
extern TbStatus tb_fetch_decode(TbFetch *fetch, TbTreatment treatment, void *dst, size_t dst_bytes,
								TbError *err) TB_MUST_CHECK;
/*
 * After CORRUPT: what came may have been damaged on its way, or kept so. Begins to read all of it again, past every
 * cache; then as after opening, with on_ready to be called anew. Once: false where that was done before.
 * thread: the loop's.
 */
extern bool tb_fetch_again(TbFetch *fetch);
extern bool tb_fetch_all_missing(const TbFetch *fetch);	/* no chunk of it is stored */
extern uint64_t tb_fetch_bytes(const TbFetch *fetch);	/* encoded bytes brought */
extern uint32_t tb_fetch_requests(const TbFetch *fetch);
/* Hash over the versions of the objects read, 0: none. */
extern uint64_t tb_fetch_version(const TbFetch *fetch);
/* One place a chunk, i from 0; false at the end. */
extern bool tb_fetch_place(const TbFetch *fetch, size_t i, TbPlace *place);
extern void tb_fetch_free(TbFetch *fetch);	/* cancels what is in flight; NULL allowed */
/* As tb_fetch_open but only shard indexes are read: for location() and estimates. */
extern TbStatus tb_fetch_locate(TbArray *array, const TbRegion *region, TbFetch **fetch,
								TbError *err) TB_MUST_CHECK;

/*
 * Decode for statistics: elements in C order in the packed type (values before scaling) are passed
 * to `sink` chunk part by chunk part, with no copy of the whole region. The sink sees runs of
 * contiguous packed elements.
 */
typedef void (*TbRunSink) (void *arg, const void *packed, size_t elements);
extern TbStatus tb_fetch_visit(TbFetch *fetch, TbRunSink sink, void *arg,
							   TbError *err) TB_MUST_CHECK;

/* One decode routine for values: packed elements to decoded ones (mask, scale) and on to the cast
 * type. dst and src do not overlap. */
extern TbStatus tb_unpack(const TbPacking *packing, TbTreatment treatment, const void *packed,
						  size_t elements, void *dst, TbError *err) TB_MUST_CHECK;

/* ---- grids ---- */
typedef enum TbCoordKind
{
	TB_COORD_INDEX,				/* no coordinate: the index range itself, int64 */
	TB_COORD_INT,				/* int64 */
	TB_COORD_FLOAT,				/* double */
	TB_COORD_TIME				/* microseconds since 1970 UTC, rounded outward */
} TbCoordKind;

typedef union TbValue
{
	double		f64;
	int64_t		i64;
	uint64_t	u64;
} TbValue;

/* Bounds of a coordinate per block index along its dimensions: cell c (C order over cells[]) has
 * lo[c]..hi[c], or null[c]. */
typedef struct TbCoord
{
	char	   *name;			/* owned; the dimension's name, or the auxiliary array's */
	bool		is_dim;
	int			ndim;			/* 1 for dimensions */
	int			axis[TB_MAX_DIM];	/* grid axes it runs over */
	uint64_t	cells[TB_MAX_DIM];	/* blocks along each of them */
	uint64_t	n_cells;
	TbCoordKind kind;
	char	   *units;			/* owned; NULL */
	TbArrayMeta *meta;			/* owned; NULL for INDEX */
	TbValue    *lo;				/* owned; f64 or i64 by kind */
	TbValue    *hi;
	bool	   *null;			/* owned */
	TbValue    *value;			/* owned; dims with an array: every value, rounded as lo */
	bool	   *value_null;
	uint64_t	n_values;
} TbCoord;

typedef struct TbGridSpec
{
	const char *group;			/* path of the group below the source's url */
	int			n_arrays;
	const char *const *array;	/* paths relative to the group */
	const int  *mask_fill;		/* per array; NULL: by rule */
	int			n_aux;
	const char *const *aux;		/* auxiliary coordinates, relative to the group */
	int			n_cell;			/* 0: the most frequent chunk shape; else one length a dimension */
	const uint64_t *cell;
	const char *append_dim;		/* NULL: "time" or the dimension with CF time, else the first */
} TbGridSpec;

typedef struct TbGridInfo
{
	int			ndim;
	uint64_t	shape[TB_MAX_DIM];
	uint64_t	cell[TB_MAX_DIM];
	uint64_t	blocks[TB_MAX_DIM]; /* ceil(shape / cell) */
	uint64_t	n_blocks;
	int			order[TB_MAX_DIM];	/* axes, slowest first, in block numbers; [0] is append_dim */
	const char *dim_name[TB_MAX_DIM];
	int			n_arrays;
	TbArray   **array;			/* borrowed from the grid */
	int			n_coords;		/* dims in axis order, then auxiliary ones */
	const TbCoord *coord;
	const char *group;			/* path */
} TbGridInfo;

/* errors: INVALID (arrays that do not share dimensions and shape, cell, append_dim), NO_ARRAY.
 * refs: counted, cached nowhere (the host does). */
extern TbStatus tb_grid_open(TbSource *source, const TbGridSpec *spec, TbGrid **grid,
							 TbError *err) TB_MUST_CHECK;
extern TbStatus tb_grid_poll(TbGrid *grid, TbError *err) TB_MUST_CHECK;
extern const TbGridInfo *tb_grid_info(const TbGrid *grid);
extern TbSource *tb_grid_source(const TbGrid *grid);
extern TbGrid *tb_grid_ref(TbGrid *grid);
extern void tb_grid_unref(TbGrid *grid);
/* Block number <-> index along each axis; region of a block (clipped at the edges). */
extern void tb_grid_block_index(const TbGridInfo *info, uint64_t block, uint64_t *index);
extern uint64_t tb_grid_block_number(const TbGridInfo *info, const uint64_t *index);
extern void tb_grid_block_region(const TbGridInfo *info, const uint64_t *index, TbRegion *region);
/* Cell of a coordinate for a block index. */
extern uint64_t tb_coord_cell(const TbCoord *coord, const uint64_t *index);

/* Partition of a group's arrays into grids, deterministic: which tables IMPORT makes. */
typedef struct TbGridDraft
{
	char	   *group;			/* owned; path of the group, absolute below the url */
	char	   *table;			/* owned; suggested table name, before the identifier limit */
	int			ndim;
	int			n_arrays;
	const TbNode **array;		/* owned list of borrowed nodes, by path */
	int			n_aux;
	const TbNode **aux;			/* owned list: auxiliary coordinates */
	const TbNode *coord[TB_MAX_DIM];	/* coordinate array per dimension, NULL: none */
} TbGridDraft;
typedef struct TbGridDrafts
{
	TbGridDraft *draft;
	size_t		n;
} TbGridDrafts;
/* store_name: the last part of the url or path without extension, for the root group's table. */
extern TbStatus tb_grid_drafts(const TbNodes *nodes, const char *root_path, const char *store_name,
							   TbGridDrafts *drafts, TbError *err) TB_MUST_CHECK;
extern void tb_grid_drafts_free(TbGridDrafts *drafts);

#endif
