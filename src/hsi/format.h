/*
 * Private to the room: the on-disk form of an index, docs/formats/hsi.md in C. Which arrays there
 * are, how the block grid is cut into levels, parts and chunks, and the bytes of each object.
 */
#ifndef TB_HSI_FORMAT_H
#define TB_HSI_FORMAT_H

#include "hsi/hsi.h"

#define TB_HSI_FORMAT 1			/* version of the format */
#define TB_HSI_LEVELS 16
#define TB_HSI_CHUNK_NODES 4096 /* at most so many nodes in an inner chunk */
#define TB_HSI_TOP_NODES 64		/* a level of at most so many nodes is the last one */
#define TB_HSI_PARTS                                                                               \
	64 /* parts that a grid is cut into by default: each costs objects of its own */
#define TB_HSI_PART_MIN 512		/* blocks in a part, by default at least */
#define TB_HSI_PART_MAX ((uint64_t) 1 << 18)	/* and at most */
#define TB_HSI_PART_LIMIT ((uint64_t) 1 << 24)	/* nodes in a shard, for anybody's index */
#define TB_HSI_KEY_BYTES 1024

/* ---- stored arrays ---- */

/* One array per grid array, level and entry here. */
typedef enum TbStored
{
	TB_STORED_VALID,
	TB_STORED_NAN,
	TB_STORED_MISSING,
	TB_STORED_MIN,
	TB_STORED_MAX,
	TB_STORED_SUM,
	TB_STORED_M2,
	TB_STORED_VERSION,
	TB_STORED_MIN_HI,
	TB_STORED_MAX_LO,
	TB_STORED_VALID_LO,
	TB_STORED_VALID_HI,
	TB_STORED_NAN_LO,
	TB_STORED_NAN_HI,
	TB_STORED_MISSING_LO,
	TB_STORED_MISSING_HI,
	TB_STORED_MEAN_LO,
	TB_STORED_MEAN_HI,
	TB_STORED_STD_LO,
	TB_STORED_STD_HI,
	TB_STORED_NULL,
	TB_STORED_STD_NULL,
	TB_N_STORED
} TbStored;

typedef enum TbStoredKind
{
	TB_STORED_COUNT,			/* uint64 */
	TB_STORED_VALUE,			/* the type of the array's extremes */
	TB_STORED_FLOAT,			/* float64 */
	TB_STORED_FLAG				/* uint8: how many leaves have NULL, TbNulls */
} TbStoredKind;

typedef struct TbStoredInfo
{
	const char *name;
	TbStoredKind kind;
	bool		leaf;			/* at level 0 */
	bool		inner;			/* at the levels above */
} TbStoredInfo;

typedef enum TbNulls
{
	TB_NULLS_NONE, TB_NULLS_SOME, TB_NULLS_ALL
} TbNulls;

extern const TbStoredInfo *tb_stored_info(TbStored stored);
/* Type on disk; stat: TbPacking.stat of the array described. */
extern TbDtype tb_stored_dtype(TbStored stored, TbDtype stat);
/* In memory every element is a TbValue of the class of its type: these convert n elements. */
extern void tb_stored_unpack(TbDtype dtype, const void *packed, size_t n, TbValue *value);
extern void tb_stored_pack(TbDtype dtype, const TbValue *value, size_t n, void *packed);

/* What is known of one node above the leaves. */
typedef struct TbNodeStats
{
	TbLeaf		leaf;			/* exact merge of all leaves below */
	TbValue		min_hi;			/* largest of the leaves' minima; set where null is not ALL */
	TbValue		max_lo;
	uint64_t	valid_lo;
	uint64_t	valid_hi;
	uint64_t	nan_lo;
	uint64_t	nan_hi;
	uint64_t	missing_lo;
	uint64_t	missing_hi;
	double		mean_lo;
	double		mean_hi;
	double		std_lo;			/* set where std_null is not ALL */
	double		std_hi;
	TbNulls		null;			/* of min, max and mean */
	TbNulls		std_null;
	bool		any;			/* false: nothing merged yet */
} TbNodeStats;

extern void tb_node_from_leaf(TbNodeStats *node, const TbLeaf *leaf, TbClass class);
extern void tb_node_merge(TbNodeStats *into, const TbNodeStats *from, TbClass class);
extern TbValue tb_node_value(const TbNodeStats *node, TbStored stored);
extern TbValue tb_built_value(const TbBuilt *built, TbStored stored);	/* level 0 */
/* The other way: put a stored value where it belongs. */
extern void tb_leaf_set(TbLeaf *leaf, TbStored stored, TbValue value);

/* ---- geometry ---- */

/*
 * How a block grid is cut. Level 0 are the blocks themselves, in axis order; level k + 1 joins
 * fan[axis] nodes of level k along each axis. Each level is one Zarr array whose stored objects are
 * shards of chunks; the shards of level 0 are the parts.
 */
typedef struct TbGeometry
{
	int			ndim;
	int			n_levels;
	int			order[TB_MAX_DIM];
	uint64_t	fan[TB_MAX_DIM];
	uint64_t	shape[TB_HSI_LEVELS][TB_MAX_DIM];	/* nodes along each axis */
	uint64_t	nodes[TB_HSI_LEVELS];
	uint64_t	chunk[TB_HSI_LEVELS][TB_MAX_DIM];
	uint64_t	shard[TB_HSI_LEVELS][TB_MAX_DIM];
	uint64_t	chunks[TB_HSI_LEVELS][TB_MAX_DIM];	/* chunks along each axis */
	uint64_t	parts[TB_MAX_DIM];
	uint64_t	n_parts;
} TbGeometry;

/* A box of nodes of one level. */
typedef struct TbBox
{
	uint64_t	start[TB_MAX_DIM];
	uint64_t	count[TB_MAX_DIM];
} TbBox;

/* Cut a grid; part_blocks 0: the default. */
extern void tb_geometry_make(TbGeometry *geo, const TbGridInfo *info, uint64_t part_blocks);
/* As written in a head: fan, chunk[0] and shard[0] are set, the rest follows. false: they cannot
 * be. */
extern bool tb_geometry_finish(TbGeometry *geo, const uint64_t *blocks);
extern uint64_t tb_geometry_part_of(const TbGeometry *geo, const uint64_t *block_index);
extern void tb_geometry_part_box(const TbGeometry *geo, uint64_t part,
								 TbBox *box); /* clipped to the grid */
extern void tb_geometry_chunk_box(const TbGeometry *geo, int level, uint64_t chunk, TbBox *box);
extern bool tb_geometry_sharded(const TbGeometry *geo, int level);
extern uint64_t tb_box_nodes(int ndim, const TbBox *box);

/* ---- objects ---- */

/* An array's path below its grid's group. */
extern const char *tb_hsi_array_path(const TbGridInfo *info, int array);
/* "<root>/level_<k>/<array>/<statistic>", root = "<key>/<build>"; stored TB_N_STORED: the array's
 * group; array NULL: the level's. false: too long. */
extern bool tb_hsi_stored_path(char *path, const char *root, int level, const char *array,
							   TbStored stored);

extern TbStatus tb_hsi_group_json(const char *attributes, TbBuf *out) TB_MUST_CHECK;
extern TbStatus tb_hsi_array_json(const TbGeometry *geo, int level, TbDtype dtype,
								  const TbGridInfo *info, TbBuf *out) TB_MUST_CHECK;

/* One shard of a level: the nodes of a box, in C order. */
typedef struct TbShardData
{
	int			level;
	TbDtype		dtype;			/* on disk */
	const TbBox *box;			/* one shard, clipped to the level */
	const TbValue *value;
} TbShardData;

/* Bytes of the stored object. */
extern TbStatus tb_hsi_encode(const TbGeometry *geo, const TbShardData *data, TbBuf *out,
							  TbError *err) TB_MUST_CHECK;

#endif
