/*
 * The dataset file's layout and the pieces that writer and reader share. The form is specified in
 * docs/formats/dataset.md; nothing outside this room includes this file.
 */
#ifndef TB_DATASET_FILE_H
#define TB_DATASET_FILE_H

#include "dataset/dataset.h"

#define TB_DATASET_VERSION 1
#define TB_DATASET_HEADER_BYTES 64
#define TB_DATASET_ENTRY_BYTES 16	/* of the block index: stored, raw, crc32c, codec; 4 bytes each */
#define TB_DATASET_BLOCK_ROWS 16384
#define TB_DATASET_MAX_BLOCK_ROWS (1u << 20)
#define TB_DATASET_MAX_ROWS (UINT64_C(1) << 40)
#define TB_DATASET_MAX_COLUMNS 1600
#define TB_DATASET_MAX_RAW (256u << 20) /* decoded bytes of one column in one block */
#define TB_DATASET_MAX_TEXT (1u << 20)	/* bytes of one cell */
#define TB_DATASET_MAX_CONTENT TB_JSON_MAX_BYTES
#define TB_DATASET_MAX_FILE (UINT64_C(1) << 32)
#define TB_DATASET_MAX_DECODED (UINT64_C(1) << 33)	/* raw bytes in all: a small file may claim any number of rows */

typedef enum TbBlockCodec
{
	TB_BLOCK_PLAIN, TB_BLOCK_ZSTD
} TbBlockCodec;

extern const uint8_t tb_dataset_magic[8];

typedef struct TbDatasetHeader
{
	uint64_t	content_bytes;
	uint64_t	meta_bytes;
	uint64_t	index_bytes;
	uint64_t	data_bytes;
	uint32_t	content_crc;
	uint32_t	meta_crc;
	uint32_t	index_crc;
} TbDatasetHeader;

/*
 * The values of an integer column: all of them are min + k * step, at most max. Signed for scalars.
 */
typedef struct TbFrame
{
	bool		any;
	bool		is_signed;
	uint64_t	min;			/* bit patterns of int64 where signed */
	uint64_t	max;
	uint64_t	step;			/* greatest common divisor of the distances; 0: one value */
} TbFrame;
extern void tb_frame_add(TbFrame *frame, uint64_t value);

/* Integers in as few bits as their frame needs, any of them at hand in constant time. */
typedef struct TbPacked
{
	uint64_t	base;
	uint64_t	step;
	uint64_t	last;			/* largest k that is allowed */
	int			bits;			/* of each k: 0 to 56, or 64 */
	uint64_t	n;
	uint8_t    *data;			/* owned */
	size_t		cap;
} TbPacked;
extern void tb_packed_init(TbPacked *packed, const TbFrame *frame);
extern TbStatus tb_packed_reserve(TbPacked *packed, uint64_t more) TB_MUST_CHECK;
extern bool tb_packed_push(TbPacked *packed, uint64_t value);	/* room was reserved; false: not in the frame */
extern uint64_t tb_packed_at(const TbPacked *packed, uint64_t i);
extern void tb_packed_free(TbPacked *packed);	/* contents */

/* Varints: 7 bits a byte, lowest first; signed differences zigzag coded. */
extern TbStatus tb_varint_put(TbBuf *out, uint64_t value) TB_MUST_CHECK;
extern bool tb_varint_get(const uint8_t **at, const uint8_t *end, uint64_t *value);
static inline uint64_t
tb_zigzag(uint64_t difference)
{
	return difference << 1 ^ (0 - (difference >> 63));
}
static inline uint64_t
tb_unzigzag(uint64_t value)
{
	return value >> 1 ^ (0 - (value & 1));
}

static inline void
tb_put_u32(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t) (value >> 8 * i);
}
static inline void
tb_put_u64(uint8_t *at, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t) (value >> 8 * i);
}
static inline uint32_t
tb_take_u32(const uint8_t *at)
{
	return (uint32_t) at[0] | (uint32_t) at[1] << 8 | (uint32_t) at[2] << 16 | (uint32_t) at[3] << 24;
}
static inline uint64_t
tb_take_u64(const uint8_t *at)
{
	return (uint64_t) tb_take_u32(at) | (uint64_t) tb_take_u32(at + 4) << 32;
}

extern void tb_dataset_header_put(const TbDatasetHeader *header,
								  uint8_t bytes[TB_DATASET_HEADER_BYTES]);
/* errors: CORRUPT, UNSUPPORTED (a later version). */
extern TbStatus tb_dataset_header_get(const uint8_t *file, size_t len, TbDatasetHeader *header,
									  TbError *err) TB_MUST_CHECK;

/*
 * ---- content: the JSON object that names columns, arrays and rows; canonical, so that it can be
 * hashed ----
 */
typedef struct TbContent
{
	uint64_t	rows;
	uint64_t	block_rows;
	TbDatasetColumn *columns;	/* owned */
	TbFrame   **frames;			/* owned, one list a column: refs one a dimension, bool and int8 one, else NULL */
	int			n_columns;
	TbDatasetArray *arrays;		/* owned */
	int			n_arrays;
	size_t		arrays_cap;
} TbContent;
extern TbStatus tb_content_print(const TbContent *content, TbBuf *out) TB_MUST_CHECK;
extern TbStatus tb_content_parse(const uint8_t *text, size_t len, TbContent *content,
								 TbError *err) TB_MUST_CHECK;
extern void tb_content_free(TbContent *content);	/* contents */
extern int	tb_column_frames(const TbDatasetColumn *column);	/* how many it has */
/* Deep copies; false when memory is gone (what was copied is the content's already). */
extern bool tb_content_add_columns(TbContent *content, const TbDatasetColumn *columns, int n);
extern bool tb_content_add_array(TbContent *content, const TbDatasetArray *array);

/*
 * hash = SHA-256("tensorbank dataset 1\n" + content + "\n" + hex of SHA-256 over all raw blocks).
 * Frees blocks.
 */
extern TbStatus tb_content_hash(const void *content, size_t len, TbSha256 *blocks,
								char hash[65]) TB_MUST_CHECK;

/* ---- raw blocks: one column of up to block_rows rows ---- */
/* What the writer collects of a column: room for block_rows rows. */
typedef struct TbColumnRows
{
	uint64_t   *value[1 + TB_MAX_DIM];	/* owned; refs: array, then starts; bool, int8, float8 (bits): [0] */
	uint8_t    *null;			/* owned; scalars: one byte a row */
	bool		any_null;
	TbBuf	   *text;			/* owned; TEXT: the texts one after another */
	uint32_t   *text_len;		/* owned */
} TbColumnRows;
extern TbStatus tb_block_encode(const TbDatasetColumn *column, const TbColumnRows *rows, size_t n,
								TbBuf *raw) TB_MUST_CHECK;

/* What the reader keeps of a column. */
typedef struct TbColumnData
{
	TbPacked   *packed;			/* owned; refs: array, then starts; bool, int8: one */
	int			n_packed;
	uint8_t    *null;			/* owned; bitmap, NULL: no null so far */
	size_t		null_cap;
	double	   *f64;			/* owned */
	char	   *text;			/* owned; texts with a NUL after each */
	uint64_t	text_bytes;
	uint64_t   *text_end;		/* owned; offset of each text's NUL */
	uint64_t	rows;
	uint64_t	rows_cap;		/* of f64, text_end */
} TbColumnData;
extern TbStatus tb_column_data_init(TbColumnData *data, const TbDatasetColumn *column,
									const TbFrame *frames,
									uint64_t n_arrays) TB_MUST_CHECK;
extern TbStatus tb_block_decode(const TbDatasetColumn *column, const uint8_t *raw, size_t len,
								size_t n, TbColumnData *data,
								TbError *err) TB_MUST_CHECK;
extern void tb_column_data_free(TbColumnData *data);	/* contents */

#endif
