/*
 * Datasets: frozen, ordered lists of samples under a content hash, and keyed permutations of their
 * positions. File form: docs/formats/dataset.md.
 */
#ifndef TB_DATASET_H
#define TB_DATASET_H

#include "base/base.h"
#include "block/block.h"

typedef enum TbScalarType
{
	TB_SCALAR_NONE,				/* a ref column */
	TB_SCALAR_BOOL, TB_SCALAR_INT8, TB_SCALAR_FLOAT8, TB_SCALAR_TEXT	/* anything else travels as text */
} TbScalarType;

typedef struct TbDatasetColumn
{
	char	   *name;			/* owned by whoever made the struct */
	TbScalarType scalar;
	/* ref columns */
	TbTreatment treatment;
	TbDtype		dtype;			/* after treatment; the same for every row */
	int			ndim;
	uint64_t	shape[TB_MAX_DIM];	/* of every sample: shapes that differ are an error at freezing */
} TbDatasetColumn;

/* An array that samples point into. */
typedef struct TbDatasetArray
{
	char	   *server;			/* name of the foreign server, for messages and rights; owned */
	char	   *url;			/* of the server: file://, http:// ...; owned */
	char	   *path;			/* of the array below it; owned */
	int			mask_fill;
	TbDtype		stored;			/* checked again when a stream opens it */
	int			ndim;
	uint64_t	shape[TB_MAX_DIM];
} TbDatasetArray;

/* One cell of a row. Text is borrowed. */
typedef struct TbDatasetCell
{
	bool		null;			/* scalars only */
	uint32_t	array;			/* refs */
	uint64_t	start[TB_MAX_DIM];
	int64_t		i64;			/* bool, int8 */
	double		f64;
	const char *text;
	size_t		text_len;
} TbDatasetCell;

/* ---- writing: rows must come in their final order ---- */
typedef struct TbDatasetWriter TbDatasetWriter;
/*
 * meta: a JSON object text kept verbatim in the manifest (query, parameters, who); not part of the
 * hash. Copies what it is given.
 */
extern TbStatus tb_dataset_writer_new(const TbDatasetColumn *columns, int n_columns,
									  TbDatasetWriter **writer, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_dataset_writer_array(TbDatasetWriter *writer, const TbDatasetArray *array,
										uint32_t *id, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_dataset_writer_row(TbDatasetWriter *writer, const TbDatasetCell *cells,
									  TbError *err) TB_MUST_CHECK;
/*
 * Give the file's bytes and the hash of its content: SHA-256 over the canonical content (columns,
 * arrays, rows), lower-case hex.
 */
extern TbStatus tb_dataset_writer_finish(TbDatasetWriter *writer, const char *meta, TbBuf **file,
										 char hash[65], TbError *err) TB_MUST_CHECK;
extern void tb_dataset_writer_free(TbDatasetWriter *writer);
/* ".tensorbank/datasets/<hash>.tbd" */
extern void tb_dataset_key(const char *hash, char *key, size_t key_bytes);

/* ---- reading ---- */
typedef struct TbDataset TbDataset;	/* immutable once open; refs: counted */
extern TbStatus tb_dataset_open(TbSource *where, const char *key, TbDataset **dataset,
								TbError *err) TB_MUST_CHECK;
extern TbStatus tb_dataset_poll(TbDataset *dataset, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_dataset_parse(const uint8_t *file, size_t len, TbDataset **dataset,
								 TbError *err) TB_MUST_CHECK;
extern const char *tb_dataset_hash(const TbDataset *dataset);
extern uint64_t tb_dataset_count(const TbDataset *dataset);
extern int	tb_dataset_columns(const TbDataset *dataset, const TbDatasetColumn **columns);
extern int	tb_dataset_arrays(const TbDataset *dataset, const TbDatasetArray **arrays);
extern const char *tb_dataset_meta(const TbDataset *dataset);
/* Row at a position: cells[n_columns]; text borrowed from the dataset. thread: any. */
extern void tb_dataset_row(const TbDataset *dataset, uint64_t position, TbDatasetCell *cells);
extern TbDataset *tb_dataset_ref(TbDataset *dataset);
extern void tb_dataset_unref(TbDataset *dataset);

/* ---- order ---- */
typedef enum TbShuffle
{
	TB_SHUFFLE_NONE, TB_SHUFFLE_FULL
} TbShuffle;

/*
 * A keyed permutation of [0, n): O(1) state, the same on every machine. source: cycle-walking
 * Feistel network (Black and Rogaway 2002).
 */
typedef struct TbOrder
{
	uint64_t	n;
	TbShuffle	shuffle;
	uint64_t	key[4];
	int			half_bits;
} TbOrder;
extern void tb_order_init(TbOrder *order, uint64_t n, TbShuffle shuffle, uint64_t seed,
						  uint64_t epoch);
extern uint64_t tb_order_at(const TbOrder *order, uint64_t position);

typedef enum TbTail
{
	TB_TAIL_DROP, TB_TAIL_PAD, TB_TAIL_RAGGED
} TbTail;

/*
 * Which samples a rank gets: global batch g is positions [g*W*B, (g+1)*W*B), rank r has the r-th B
 * of them.
 */
typedef struct TbDeal
{
	uint64_t	n;
	uint32_t	batch_size;
	uint32_t	rank;
	uint32_t	world_size;
	TbTail		tail;
	uint64_t	first;			/* position where this run begins (resume): global batches are counted from here */
} TbDeal;
extern uint64_t tb_deal_batches(const TbDeal *deal);	/* of every rank, exact */
/*
 * Positions of batch g of this rank: how many (may be fewer in a ragged tail, 0 possible there);
 * padded ones repeat and are counted in *padded.
 */
extern uint32_t tb_deal_batch(const TbDeal *deal, uint64_t g, uint64_t *positions,
							  uint32_t *padded);

#endif
