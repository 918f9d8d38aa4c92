/*
 * Zarr v2 and v3 metadata, chunk keys, shard indexes and CF attributes: pure functions from bytes
 * to structs, no I/O. source: Zarr v3 core specification, sharding_indexed 1.0; Zarr v2
 * specification; CF 1.10 sections 2.5.1, 4.4, 8.1.
 */
#ifndef TB_ZARR_H
#define TB_ZARR_H

#include "base/base.h"
#include "codec/codec.h"

#define TB_MAX_SHARD_LEVELS 3
#define TB_MAX_SENTINELS 8

/* One level of sharding, outermost first. */
typedef struct TbShardLevel
{
	uint64_t	shard[TB_MAX_DIM];	/* elements of one shard of this level */
	uint64_t	inner[TB_MAX_DIM];	/* elements of one entry */
	uint64_t	n_entries;			/* product of shard / inner */
	size_t		index_bytes;		/* encoded size of the index: 16 * n_entries, + 4 with crc32c */
	bool		index_crc;
	bool		index_at_start;
	bool		index_big_endian;	/* of the entries; a checksum is little-endian */
} TbShardLevel;

/* How stored elements become values: xarray's mask_and_scale, semantics.md 1 and 2. */
typedef struct TbPacking
{
	TbDtype		stored;			/* as in the array's metadata */
	TbDtype		packed;			/* after _Unsigned; same size */
	TbDtype		decoded;		/* what read() gives */
	TbDtype		stat;			/* type of min and max: decoded where scaled, else packed */
	int			n_sentinels;	/* elements equal to one of these are missing */
	uint64_t	sentinel[TB_MAX_SENTINELS]; /* bit pattern in the packed type, low bytes */
	bool		scaled;
	double		scale;			/* decoded = packed * scale + offset, in the decoded type */
	double		offset;			/* -0.0 where there is none: adding it changes no bit */
} TbPacking;

/* CF time: value counts units since an instant. */
typedef struct TbTimeUnits
{
	bool		is_time;
	int64_t		epoch_us;		/* the reference instant, microseconds since 1970-01-01 UTC */
	double		unit_us;		/* microseconds a unit; an integer, but 0.001 for nanoseconds */
} TbTimeUnits;

typedef struct TbArrayMeta
{
	char	   *path;			/* owned; below the store's url, no slashes at the ends */
	int			zarr_format;	/* 2 or 3 */
	int			ndim;
	uint64_t	shape[TB_MAX_DIM];
	char	   *dim_name[TB_MAX_DIM];	/* owned; "dim_0"... where the metadata names none */
	bool		has_dim_names;
	TbDtype		dtype;
	uint8_t		fill[8];		/* one element, machine's byte order; zeros where null */
	bool		fill_is_null;
	bool		key_v2;			/* "0.0" / "0/0", else "c/0/0" */
	char		separator;
	uint64_t	grid_chunk[TB_MAX_DIM]; /* of one stored object: the outermost shard, or chunk */
	uint64_t	chunk[TB_MAX_DIM];	/* the innermost chunk */
	int			n_shard_levels; /* 0: not sharded */
	TbShardLevel shard[TB_MAX_SHARD_LEVELS];
	TbJson	   *codecs;			/* owned; list for tb_chain_open, of the innermost chunk */
	TbJson	   *attributes;		/* owned; NULL: none */
	TbPacking	packing;
	TbTimeUnits time;			/* of the decoded values, where units say "... since ..." */
} TbArrayMeta;

/*
 * A node of a hierarchy. `status` other than OK: the node exists but cannot be used; `error` says
 * why.
 */
typedef struct TbNode
{
	char	   *path;			/* owned; below the store's url */
	bool		is_group;
	int			zarr_format;
	TbJson	   *attributes;		/* owned; groups */
	TbArrayMeta *array;			/* owned; NULL for groups and for nodes in error */
	TbStatus	status;
	TbError		error;			/* detail names array and codec or type */
} TbNode;

typedef struct TbNodes
{
	TbNode	   *node;			/* owned */
	size_t		n;
	size_t		cap;
} TbNodes;
extern void tb_nodes_free(TbNodes *nodes);	/* contents; nodes itself is the caller's */
extern void tb_node_free(TbNode *node);	/* contents */

/*
 * Parse zarr.json (v3) or .zarray / .zgroup with .zattrs (v2) of the node at path. A v3 group with
 * "consolidated_metadata" and a v2 .zmetadata give every node below it, relative paths prefixed
 * with path. All append to nodes. A single bad array becomes a node with its status; only unusable
 * documents fail.
 * errors: JSON, JSON_DUPLICATE, LIMIT, INVALID, NOMEM.
 */
extern TbStatus tb_zarr_parse_v3(const char *path, const TbBuf *zarr_json, TbNodes *nodes,
								 bool *consolidated, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_zarr_parse_v2_array(const char *path, const TbBuf *zarray, const TbBuf *zattrs,
									   TbNodes *nodes, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_zarr_parse_v2_group(const char *path, const TbBuf *zgroup, const TbBuf *zattrs,
									   TbNodes *nodes, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_zarr_parse_v2_consolidated(const char *path, const TbBuf *zmetadata,
											  TbNodes *nodes, TbError *err) TB_MUST_CHECK;

/*
 * An independent copy (attributes and codecs shared by reference count). NULL when memory is gone.
 */
extern TbArrayMeta *tb_array_meta_copy(const TbArrayMeta *meta);
extern void tb_array_meta_free(TbArrayMeta *meta);

/*
 * Key of the stored object at grid index (in units of grid_chunk), below the store's url. false:
 * buffer too small.
 */
extern bool tb_chunk_key(const TbArrayMeta *meta, const uint64_t *index, char *key,
						 size_t key_bytes);

/* One entry of a shard index. missing: (2^64-1, 2^64-1). */
typedef struct TbShardEntry
{
	uint64_t	offset;			/* bytes from the start of the shard */
	uint64_t	length;
	bool		missing;
} TbShardEntry;

/*
 * Prove a shard index of level->index_bytes bytes: crc, no overflow, entries inside the shard
 * (shard_bytes, UINT64_MAX where not known), not over the index. Then entries may be taken one by
 * one.
 * errors: CORRUPT (detail says which entry).
 */
extern TbStatus tb_shard_index_check(const TbShardLevel *level, const uint8_t *bytes, size_t len,
									 uint64_t shard_bytes, TbError *err) TB_MUST_CHECK;
extern TbShardEntry tb_shard_index_entry(const TbShardLevel *level, const uint8_t *bytes,
										 uint64_t entry);

/*
 * CF: packing from dtype and attributes (applied by the parsers), see semantics.md 1-2. mask_fill:
 * -1 by rule, 0, 1.
 */
extern TbStatus tb_packing_from(const TbArrayMeta *meta, int mask_fill, TbPacking *packing,
								TbError *err) TB_MUST_CHECK;

/*
 * "hours since 1900-01-01 00:00:0.0" with a calendar (NULL: standard). is_time false: no such
 * units, or a calendar or unit that has no instant. source: CF 4.4; standard = mixed
 * Julian/Gregorian before 1582-10-15.
 */
extern TbTimeUnits tb_time_units(const char *units, const char *calendar);

/*
 * Instant of a value, rounded outward to [lo, hi] microseconds since 1970 UTC. false: out of
 * timestamptz's range, NaN.
 */
extern bool tb_time_instant(const TbTimeUnits *units, double value, int64_t *lo_us, int64_t *hi_us);
/* Exact; false also where the instant is between two microseconds. */
extern bool tb_time_instant_int(const TbTimeUnits *units, int64_t value, int64_t *us);
/* As tb_time_instant for a 64-bit integer, which a double may not hold. */
extern bool tb_time_instant_int_bounds(const TbTimeUnits *units, int64_t value, int64_t *lo_us,
									   int64_t *hi_us);

#endif
