/*
 * The Hierarchical Statistical Index: statistics of blocks, predicates over them, pruning,
 * scanning, building. What a statistic means and when a block may be skipped: semantics.md. On-disk
 * form: docs/formats/hsi.md.
 */
#ifndef TB_HSI_H
#define TB_HSI_H

#include "base/base.h"
#include "block/block.h"

/* ---- statistics ---- */
typedef enum TbClass
{
	TB_CLASS_F64,				/* floats, and scaled integers */
	TB_CLASS_I64,				/* bool, signed, unsigned up to 32 bits, times (us), counts */
	TB_CLASS_U64				/* uint64 */
} TbClass;
extern TbClass tb_stat_class(const TbArrayMeta *meta);	/* of its _min and _max */

/* Statistics of one array in one block. min and max are set only where valid > 0. */
typedef struct TbLeaf
{
	uint64_t	valid;
	uint64_t	nan;
	uint64_t	missing;
	TbValue		min;
	TbValue		max;
	double		sum;
	double		m2;				/* sum of squared distances from the mean; merged by Chan's rule */
} TbLeaf;

typedef enum TbStat
{
	TB_STAT_MIN,
	TB_STAT_MAX,
	TB_STAT_MEAN,
	TB_STAT_STD,
	TB_STAT_VALID,
	TB_STAT_NAN,
	TB_STAT_MISSING,
	TB_N_STATS
} TbStat;
extern const char *tb_stat_name(TbStat stat);	/* "min" ... */
/* Mean and population std from a leaf, the one place: false = NULL (no valid element; std with
 * infinities). */
extern bool tb_leaf_mean(const TbLeaf *leaf, double *mean);
extern bool tb_leaf_std(const TbLeaf *leaf, double *std);
/* Collect and merge. Floats sum pairwise; merging is exact for counts and extremes. */
extern void tb_leaf_begin(TbLeaf *leaf);
extern void tb_leaf_add(TbLeaf *leaf, const TbPacking *packing, const void *packed,
						size_t elements);
extern void tb_leaf_merge(TbLeaf *into, const TbLeaf *from, TbClass class);

/* ---- predicates ---- */
typedef enum TbColumnKind
{
	TB_COL_BLOCK, TB_COL_SIZE, TB_COL_COORD_MIN, TB_COL_COORD_MAX, TB_COL_STAT
} TbColumnKind;

typedef struct TbColumn
{
	TbColumnKind kind;
	int			index;			/* coordinate in TbGridInfo.coord, or array in TbGridInfo.array */
	TbStat		stat;
} TbColumn;

typedef enum TbCompare
{
	TB_LT, TB_LE, TB_EQ, TB_NE, TB_GE, TB_GT
} TbCompare;

typedef enum TbArith
{
	TB_ADD, TB_SUB, TB_MUL
} TbArith;

typedef struct TbExpr TbExpr;
typedef struct TbPred TbPred;

/* Builders. All take ownership of their TbExpr/TbPred arguments and return NULL when memory is gone
 * or an argument is NULL. */
extern TbExpr *tb_expr_column(TbColumn column);
/* A constant known to lie in [lo, hi] of the class (equal where exact). F64 follows PostgreSQL's
 * order: NaN above all, NaN = NaN. */
extern TbExpr *tb_expr_const(TbClass class, TbValue lo, TbValue hi);
extern TbExpr *tb_expr_null(void);
/* F64 only; rounded outward. */
extern TbExpr *tb_expr_arith(TbArith op, TbExpr *left, TbExpr *right);
extern TbPred *tb_pred_compare(TbCompare op, TbExpr *left, TbExpr *right);
extern TbPred *tb_pred_is_null(TbExpr *expr, bool negated);
extern TbPred *tb_pred_and(TbPred *left, TbPred *right);	/* NULL left: right */
extern TbPred *tb_pred_or(TbPred *left, TbPred *right);
extern TbPred *tb_pred_not(TbPred *pred);
extern TbPred *tb_pred_const(bool value, bool is_null);
extern TbPred *tb_pred_unknown(void);	/* not understood: always SOME */
extern void tb_expr_free(TbExpr *expr);
extern void tb_pred_free(TbPred *pred);

/* The set of truth values a predicate can have over a node's possible rows. */
typedef enum TbTruth
{
	TB_CAN_TRUE = 1, TB_CAN_FALSE = 2, TB_CAN_NULL = 4
} TbTruth;

/* What is known of a column over a node. */
typedef struct TbRange
{
	TbClass		class;
	bool		unknown;		/* nothing is known: anything, also NULL */
	bool		some_null;
	bool		all_null;		/* lo and hi mean nothing */
	TbValue		lo;
	TbValue		hi;
} TbRange;
typedef void (*TbLookup) (void *arg, TbColumn column, TbRange *range);
/* Returns a TbTruth set; a node may be skipped where TB_CAN_TRUE is not in it. */
extern int	tb_pred_judge(const TbPred *pred, TbLookup lookup, void *arg);
/* Which arrays' statistics a predicate mentions: sets need[array]. */
extern void tb_pred_needs(const TbPred *pred, bool *need_array);
/* Text form for EXPLAIN: "(t2m_max > 303) AND (time_min < ...)" with names from the grid. Appended
 * to out. */
extern TbStatus tb_pred_print(const TbPred *pred, const TbGridInfo *info, TbBuf *out) TB_MUST_CHECK;

/* ---- the stored index ---- */
typedef struct TbHsi TbHsi;

/* Key of a grid's index below the index root: ".tensorbank/hsi/<group>/<dims>-<hash>", the hash
 * over dims, shape beyond the append dimension, cell, and `of`: NULL where the index lies with its
 * data, else the url of the data's source, so that several may share one root. */
extern TbStatus tb_hsi_key(const TbGridInfo *info, const char *of, char *key, size_t key_bytes,
						   TbError *err) TB_MUST_CHECK;
extern const char *tb_hsi_of(const TbSource *where, const TbSource *data);

/* Open the newest published index of a grid. poll OK with tb_hsi_exists() false: there is none.
 * Loads the head only. errors: INDEX_CORRUPT. refs: counted. */
extern TbStatus tb_hsi_open(TbSource *where, TbGrid *grid, TbHsi **hsi, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_hsi_poll(TbHsi *hsi, TbError *err) TB_MUST_CHECK;
extern bool tb_hsi_exists(const TbHsi *hsi);
extern uint64_t tb_hsi_serial(const TbHsi *hsi);	/* of its head: grows with each publication */
typedef struct TbHsiInfo
{
	int			levels;			/* with leaves: at least 1 */
	uint64_t	nodes[16];		/* per level */
	uint64_t	n_blocks;
	uint64_t	n_covered;		/* blocks with statistics */
	uint64_t	n_parts;
	uint64_t	n_parts_done;
	bool		complete;
} TbHsiInfo;
extern TbHsiInfo tb_hsi_info(const TbHsi *hsi);
extern bool tb_hsi_has_array(const TbHsi *hsi, const char *array_path);
extern TbHsi *tb_hsi_ref(TbHsi *hsi);
extern void tb_hsi_unref(TbHsi *hsi);

/* ---- scanning ---- */
typedef enum TbUnindexed
{
	TB_UNINDEXED_COMPUTE, TB_UNINDEXED_ERROR, TB_UNINDEXED_EXCLUDE
} TbUnindexed;

typedef struct TbScanSpec
{
	TbGrid	   *grid;			/* borrowed: the scan takes its own reference */
	TbHsi	   *hsi;			/* NULL: no index */
	const TbPred *pred;			/* NULL: all; borrowed, must outlive the scan */
	const bool *need_array; /* arrays whose statistics are wanted in rows (beyond the predicate's);
							   NULL: none */
	TbUnindexed unindexed;
	uint64_t	compute_limit_bytes; /* decoded bytes that COMPUTE may read; over it: LIMIT */
	bool		descending;		/* by block number */
	uint64_t	first_block;	/* a run of blocks, for scans that several processes share */
	uint64_t	n_blocks;		/* of the run; 0: every block from first_block on */
	bool		limit_checked;	/* another run of the same scan has looked at the limit */
} TbScanSpec;

typedef enum TbBlockState
{
	TB_BLOCK_PRESENT, TB_BLOCK_MISSING, TB_BLOCK_CONSTANT, TB_BLOCK_UNINDEXED
} TbBlockState;

typedef struct TbBlockRow
{
	uint64_t	block;
	uint64_t	index[TB_MAX_DIM];	/* per axis */
	uint64_t	elements;
	TbBlockState state;
	const TbLeaf *leaf;			/* per array of the grid; borrowed until the next call */
	const bool *known;			/* per array: whether its leaf is */
} TbBlockRow;

typedef struct TbScanCounters
{
	uint64_t	blocks;			/* of the grid */
	uint64_t	rows;			/* returned */
	uint64_t	pruned_coords;	/* blocks ruled out by coordinates alone */
	uint64_t	pruned_level[16];	/* blocks ruled out by statistics at each level, 0 = leaves */
	uint64_t	nodes_visited[16];
	uint64_t	computed;		/* blocks read to compute statistics */
	uint64_t	excluded;
	uint64_t	index_requests;
	uint64_t	index_bytes;
	uint64_t	data_requests;
	uint64_t	data_bytes;
} TbScanCounters;

typedef struct TbScan TbScan;
/* Rows come in block order. tb_scan_next: AGAIN; OK with *row NULL at the end. errors: LIMIT, STATE
 * (unindexed = error), stores'. The scan does not recheck the predicate at leaves beyond judging
 * it: the host rechecks. */
extern TbStatus tb_scan_open(const TbScanSpec *spec, TbScan **scan, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_scan_next(TbScan *scan, const TbBlockRow **row, TbError *err) TB_MUST_CHECK;
extern TbScanCounters tb_scan_counters(const TbScan *scan);
/* What the host should warn of once the scan is over (damaged index); NULL: nothing. Borrowed from
 * the scan. */
extern const char *tb_scan_warning(const TbScan *scan);
extern void tb_scan_free(TbScan *scan);

/* Planning: how many blocks a predicate leaves, from what is loaded already and coordinates only;
 * never waits. */
extern double tb_hsi_estimate(TbGrid *grid, TbHsi *hsi, const TbPred *pred);

/* ---- building ---- */
/* Statistics of one block of some arrays: fetch and collect. poll until OK, then result,
 * which says AGAIN where something is damaged and is read once more: poll anew. leaves:
 * one per entry of arrays; version, missing and bytes: of all of them together. */
typedef struct TbLeafJob TbLeafJob;
extern TbStatus tb_leaf_job_open(TbGrid *grid, const int *arrays, int n_arrays, uint64_t block,
								 TbLeafJob **job, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_leaf_job_poll(TbLeafJob *job, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_leaf_job_result(TbLeafJob *job, TbLeaf *leaves, uint64_t *version, bool *missing,
								   uint64_t *bytes, TbError *err) TB_MUST_CHECK;
extern void tb_leaf_job_free(TbLeafJob *job);

/* What a worker hands over for one block: n_arrays of these, block-major. */
typedef struct TbBuilt
{
	TbLeaf		leaf;
	uint64_t	version;		/* of the objects read; 0: nothing stored */
} TbBuilt;

typedef struct TbHsiWriter TbHsiWriter;
typedef struct TbHsiWriterSpec
{
	TbGrid	   *grid;
	TbSource   *where;			/* index root */
	const int  *arrays;			/* which arrays; n_arrays of them */
	int			n_arrays;
	uint64_t	part_blocks;	/* wanted size of a part; 0: default */
	bool		rebuild;		/* do not continue what is there */
} TbHsiWriterSpec;
/* Reads the newest head; where it fits (same grid, cell, arrays) its parts are kept and the build
 * continues. */
extern TbStatus tb_hsi_writer_open(const TbHsiWriterSpec *spec, TbHsiWriter **writer,
								   TbError *err) TB_MUST_CHECK;
extern TbStatus tb_hsi_writer_poll(TbHsiWriter *writer, TbError *err) TB_MUST_CHECK;
extern uint64_t tb_hsi_writer_parts(const TbHsiWriter *writer);
extern bool tb_hsi_writer_has(const TbHsiWriter *writer, uint64_t part);
/* Blocks of a part: a box of the block grid, in block-number order; block i of it. */
extern uint64_t tb_hsi_writer_part_blocks(const TbHsiWriter *writer, uint64_t part);
extern uint64_t tb_hsi_writer_part_block(const TbHsiWriter *writer, uint64_t part, uint64_t i);
/* Write a part's statistics (built[i * n_arrays + a]) and publish a head that covers it.
 * AGAIN: call with the same again. errors: CHANGED where another build published meanwhile, NO_SPACE, DENIED. */
extern TbStatus tb_hsi_writer_put(TbHsiWriter *writer, uint64_t part, const TbBuilt *built,
								  TbError *err) TB_MUST_CHECK;
/* When every part is there: write the upper levels and publish the complete index. AGAIN while it
 * reads parts back and writes. */
extern TbStatus tb_hsi_writer_finish(TbHsiWriter *writer, TbError *err) TB_MUST_CHECK;
extern void tb_hsi_writer_free(TbHsiWriter *writer);

#endif
