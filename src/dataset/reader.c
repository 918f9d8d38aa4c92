/*
 * Reading datasets. A file is proved whole (sections, checksums, every value inside its frame, the
 * hash) when it is opened and kept packed; rows are then at hand in any order without a check.
 * Files may come from anyone who can write to the store.
 */
#include "dataset/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct TbDataset
{
	/* fixed once open */
	TbContent	content;
	TbColumnData *data;			/* owned; one a column */
	char	   *meta;			/* owned */
	char		hash[65];

	int			refs;			/* atomic */

	/* of the thread that opens; nothing of it is used once open */
	TbSource   *where;			/* owned reference; NULL: parsed from memory */
	char	   *key;			/* owned */
	TbRead		read;
	bool		reading;
	TbStatus	status;			/* AGAIN until the file is there and proved */
	TbError		error;
};

static TbStatus
corrupt(TbError *err, const char *what)
{
	tb_fail(err, TB_E_CORRUPT, "dataset file is corrupt");
	tb_error_detail(err, "%s", what);
	return TB_E_CORRUPT;
}

static TbStatus
no_memory(TbError *err)
{
	return tb_fail(err, TB_E_NOMEM, "out of memory");
}

/* Where reading is: in the index, in the data, and in the hash of all blocks. */
typedef struct Cursor
{
	const uint8_t *entry;
	const uint8_t *stored;
	uint64_t	left;			/* bytes of data from here on */
	uint64_t	raw_bytes;		/* so far */
	TbSha256   *sha;
} Cursor;

/* One block of one column, n rows, at the cursor. */
static TbStatus
read_block(TbDataset *d, int column, size_t n, Cursor *cursor, TbError *err)
{
	const uint8_t *entry = cursor->entry;
	const uint8_t *stored = cursor->stored;
	size_t		stored_bytes = tb_take_u32(entry);
	size_t		raw_bytes = tb_take_u32(entry + 4);
	uint32_t	codec = tb_take_u32(entry + 12);
	uint8_t    *work = NULL;
	const uint8_t *raw = stored;
	TbStatus	status = TB_OK;

	if (stored_bytes > cursor->left)
		return corrupt(err, "block beyond the end");
	if (tb_crc32c(0, stored, stored_bytes) != tb_take_u32(entry + 8))
		return corrupt(err, "checksum of a block differs");
	if (raw_bytes > TB_DATASET_MAX_RAW || codec > TB_BLOCK_ZSTD ||
		(codec == TB_BLOCK_PLAIN && raw_bytes != stored_bytes))
		return corrupt(err, "size or codec of a block");
	cursor->raw_bytes += raw_bytes;
	if (cursor->raw_bytes > TB_DATASET_MAX_DECODED)
		return tb_fail(err, TB_E_LIMIT, "dataset is too large");
	if (codec == TB_BLOCK_ZSTD)
	{
		work = tb_malloc(raw_bytes);
		if (work == NULL)
			return no_memory(err);
		status = tb_zstd_decode(stored, stored_bytes, work, raw_bytes, err);
		raw = work;
	}
	if (status == TB_OK)
	{
		tb_sha256_add(cursor->sha, raw, raw_bytes);
		status = tb_block_decode(&d->content.columns[column], raw, raw_bytes, n, &d->data[column],
								 err);
	}
	tb_free(work);
	cursor->entry += TB_DATASET_ENTRY_BYTES;
	cursor->stored += stored_bytes;
	cursor->left -= stored_bytes;
	return status;
}

/* All blocks in file order: rows slowest, columns fastest. */
static TbStatus
read_blocks(TbDataset *d, Cursor *cursor, uint64_t index_bytes, TbError *err)
{
	uint64_t	n_columns = (uint64_t) d->content.n_columns;
	uint64_t	n_blocks = (d->content.rows + d->content.block_rows - 1) / d->content.block_rows;
	uint64_t	rows = d->content.rows;

	if (index_bytes != n_blocks * n_columns * TB_DATASET_ENTRY_BYTES)
		return corrupt(err, "size of the block index");
	for (uint64_t b = 0; b < n_blocks; b++)
	{
		uint64_t	n = rows < d->content.block_rows ? rows : d->content.block_rows;

		for (int c = 0; c < d->content.n_columns; c++)
		{
			TbStatus	status = read_block(d, c, (size_t) n, cursor, err);

			if (status != TB_OK)
				return status;
		}
		rows -= n;
	}
	return cursor->left == 0 ? TB_OK : corrupt(err, "bytes behind the last block");
}

static TbStatus
prepare_columns(TbDataset *d, TbError *err)
{
	d->data = tb_calloc((size_t) d->content.n_columns, sizeof(*d->data));
	if (d->data == NULL)
		return no_memory(err);
	for (int i = 0; i < d->content.n_columns; i++)
	{
		const TbDatasetColumn *column = &d->content.columns[i];

		if (column->scalar == TB_SCALAR_NONE && d->content.rows > 0 && d->content.n_arrays == 0)
			return corrupt(err, "samples but no array");
		if (tb_column_data_init(&d->data[i], column, d->content.frames[i],
								(uint64_t) d->content.n_arrays) != TB_OK)
			return no_memory(err);
	}
	return TB_OK;
}

/* Fill d from a whole file. */
static TbStatus
fill(TbDataset *d, const uint8_t *file, size_t len, TbError *err)
{
	TbDatasetHeader header;
	const uint8_t *content = file + TB_DATASET_HEADER_BYTES;
	const uint8_t *meta;
	const uint8_t *index;
	Cursor		cursor;
	TbStatus	status = tb_dataset_header_get(file, len, &header, err);

	if (status != TB_OK)
		return status;
	meta = content + header.content_bytes;
	index = meta + header.meta_bytes;
	if (tb_crc32c(0, content, header.content_bytes) != header.content_crc ||
		tb_crc32c(0, meta, header.meta_bytes) != header.meta_crc ||
		tb_crc32c(0, index, header.index_bytes) != header.index_crc)
		return corrupt(err, "checksum of a section differs");
	status = tb_content_parse(content, header.content_bytes, &d->content, err);
	if (status == TB_OK)
		status = prepare_columns(d, err);
	if (status != TB_OK)
		return status;
	d->meta = tb_strndup((const char *) meta, header.meta_bytes);
	cursor = (Cursor) {.entry = index, .stored = index + header.index_bytes,
	.left = header.data_bytes, .sha = tb_sha256_new()};
	if (d->meta == NULL || cursor.sha == NULL)
		status = no_memory(err);
	else
		status = read_blocks(d, &cursor, header.index_bytes, err);
	if (status != TB_OK)
	{
		char		unused[65];

		if (cursor.sha != NULL)
			tb_sha256_finish(cursor.sha, unused);
		return status;
	}
	status = tb_content_hash(content, header.content_bytes, cursor.sha, d->hash);
	return status == TB_OK ? TB_OK : tb_fail(err, status, "cannot compute the hash of a dataset");
}

static TbDataset *
dataset_new(void)
{
	TbDataset  *d = tb_calloc(1, sizeof(*d));

	if (d != NULL)
	{
		d->refs = 1;
		d->status = TB_AGAIN;
	}
	return d;
}

/*
 * A dataset from a file in memory, which may be freed after. thread: any. errors: CORRUPT,
 * UNSUPPORTED, NOMEM.
 */
TbStatus
tb_dataset_parse(const uint8_t *file, size_t len, TbDataset **dataset, TbError *err)
{
	TbDataset  *d = dataset_new();
	TbStatus	status;

	*dataset = NULL;
	if (d == NULL)
		return no_memory(err);
	status = fill(d, file, len, err);
	if (status != TB_OK)
	{
		tb_dataset_unref(d);
		return status;
	}
	d->status = TB_OK;
	*dataset = d;
	return TB_OK;
}

/* A file named after its hash must have that hash. */
static TbStatus
check_name(TbDataset *d, TbError *err)
{
	size_t		len = strlen(d->key);
	const char *slash = strrchr(d->key, '/');
	const char *name = slash != NULL ? slash + 1 : d->key;

	if (len < 68 || strlen(name) != 68 || strcmp(name + 64, ".tbd") != 0 ||
		strncmp(name, d->hash, 64) == 0)
		return TB_OK;
	tb_fail(err, TB_E_CORRUPT, "dataset file has the content of another dataset");
	tb_error_detail(err, "hash of its content is %s", d->hash);
	return TB_E_CORRUPT;
}

static void
read_done(TbRead *read)
{
	TbDataset  *d = read->arg;

	d->reading = false;
	d->status = read->status;
	if (read->status != TB_OK)
		d->error = read->error;
	else if (read->missing)
	{
		d->status = tb_fail(&d->error, TB_E_NOT_FOUND, "dataset does not exist");
		tb_error_hint(&d->error, "Create the dataset anew.");
	}
	else
	{
		d->status = fill(d, read->data->data, read->data->len, &d->error);
		if (d->status == TB_OK)
			d->status = check_name(d, &d->error);
		tb_buf_unref(read->data);
		read->data = NULL;
	}
	if (d->status != TB_OK)
		tb_error_detail(&d->error, "object \"%s/%s\"", tb_source_url(d->where), d->key);
}

/*
 * Begin to read a dataset from a store. owns: one reference is the caller's. errors: NOMEM; the
 * others come by poll.
 */
TbStatus
tb_dataset_open(TbSource *where, const char *key, TbDataset **dataset, TbError *err)
{
	TbDataset  *d = dataset_new();

	*dataset = NULL;
	if (d == NULL || (d->key = tb_strdup(key)) == NULL)
	{
		tb_dataset_unref(d);
		return no_memory(err);
	}
	d->where = tb_source_ref(where);
	d->read.key = d->key;
	d->read.kind = TB_RANGE_WHOLE;
	d->read.length = TB_DATASET_MAX_FILE;
	d->read.done = read_done;
	d->read.arg = d;
	d->reading = true;
	tb_store_read(tb_source_store(where), &d->read);
	*dataset = d;
	return TB_OK;
}

/* errors: NOT_FOUND, CORRUPT, UNSUPPORTED, the store's. */
TbStatus
tb_dataset_poll(TbDataset *dataset, TbError *err)
{
	if (dataset->status != TB_OK && dataset->status != TB_AGAIN && err != NULL)
		*err = dataset->error;
	return dataset->status;
}

TbDataset *
tb_dataset_ref(TbDataset *dataset)
{
	__atomic_add_fetch(&dataset->refs, 1, __ATOMIC_RELAXED);
	return dataset;
}

/* NULL allowed. thread: any, but that of the engine for one that is being read. */
void
tb_dataset_unref(TbDataset *dataset)
{
	if (dataset == NULL || __atomic_sub_fetch(&dataset->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (dataset->reading)
		tb_store_cancel(tb_source_store(dataset->where), &dataset->read);
	tb_source_unref(dataset->where);
	for (int i = 0; dataset->data != NULL && i < dataset->content.n_columns; i++)
		tb_column_data_free(&dataset->data[i]);
	tb_free(dataset->data);
	tb_content_free(&dataset->content);
	tb_free(dataset->meta);
	tb_free(dataset->key);
	tb_free(dataset);
}

const char *
tb_dataset_hash(const TbDataset *dataset)
{
	return dataset->hash;
}

uint64_t
tb_dataset_count(const TbDataset *dataset)
{
	return dataset->content.rows;
}

int
tb_dataset_columns(const TbDataset *dataset, const TbDatasetColumn **columns)
{
	*columns = dataset->content.columns;
	return dataset->content.n_columns;
}

int
tb_dataset_arrays(const TbDataset *dataset, const TbDatasetArray **arrays)
{
	*arrays = dataset->content.arrays;
	return dataset->content.n_arrays;
}

const char *
tb_dataset_meta(const TbDataset *dataset)
{
	return dataset->meta;
}

static void
take_text(const TbColumnData *data, uint64_t row, TbDatasetCell *cell)
{
	uint64_t	start = row > 0 ? data->text_end[row - 1] + 1 : 0;

	cell->text = data->text + start;
	cell->text_len = (size_t) (data->text_end[row] - start);
}

/* position must be below the count. */
void
tb_dataset_row(const TbDataset *dataset, uint64_t position, TbDatasetCell *cells)
{
	for (int i = 0; i < dataset->content.n_columns; i++)
	{
		const TbColumnData *data = &dataset->data[i];
		TbDatasetCell *cell = &cells[i];

		cell->null = data->null != NULL && (data->null[position / 8] >> position % 8 & 1) != 0;
		switch (dataset->content.columns[i].scalar)
		{
			case TB_SCALAR_NONE:
				cell->array = (uint32_t) tb_packed_at(&data->packed[0], position);
				for (int d = 1; d < data->n_packed; d++)
					cell->start[d - 1] = tb_packed_at(&data->packed[d], position);
				break;
			case TB_SCALAR_BOOL:
			case TB_SCALAR_INT8:
				cell->i64 = (int64_t) tb_packed_at(&data->packed[0], position);
				break;
			case TB_SCALAR_FLOAT8:
				cell->f64 = data->f64[position];
				break;
			case TB_SCALAR_TEXT:
				take_text(data, position, cell);
				break;
		}
	}
}
