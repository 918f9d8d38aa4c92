/*
 * Dataset files. Checksums would stop nearly every mutation at the door, so they are put right
 * before parsing: the first byte says which of them stay as they are. What parses must answer for
 * each of its rows.
 */
#include "dataset/dataset.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t
take(const uint8_t *at, int n)
{
	uint64_t	value = 0;

	for (int i = 0; i < n; i++)
		value |= (uint64_t) at[i] << 8 * i;
	return value;
}

static void
put(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t) (value >> 8 * i);
}

/* Set the checksum at `where` to that of [start, start + n) if those bytes exist. */
static void
mend(uint8_t *file, size_t len, size_t where, uint64_t start, uint64_t n)
{
	if (start <= len && n <= len - start)
		put(file + where, tb_crc32c(0, file + start, n));
}

static void
mend_all(uint8_t *file, size_t len)
{
	uint64_t	content = take(file + 16, 8);
	uint64_t	meta = take(file + 24, 8);
	uint64_t	index = take(file + 32, 8);
	uint64_t	at = 64 + content + meta;
	uint64_t	block;

	if (content > len || meta > len || index > len || at > len || index > len - at)
		return;
	block = at + index;
	for (uint64_t entry = at; entry + 16 <= at + index; entry += 16)
	{
		uint64_t	stored = take(file + entry, 4);

		mend(file, len, entry + 8, block, stored);
		block += stored;
	}
	mend(file, len, 48, 64, content);
	mend(file, len, 52, 64 + content, meta);
	mend(file, len, 56, at, index);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t    *file;
	TbDataset  *dataset;
	TbError		err;

	if (size < 65)
		return 0;
	file = malloc(size - 1);
	memcpy(file, data + 1, size - 1);
	if ((data[0] & 1) == 0)
		mend_all(file, size - 1);
	if ((data[0] & 2) == 0)
		put(file + 60, tb_crc32c(0, file, 60));
	if (tb_dataset_parse(file, size - 1, &dataset, &err) == TB_OK)
	{
		const TbDatasetColumn *columns;
		int			n = tb_dataset_columns(dataset, &columns);
		TbDatasetCell *cells = calloc((size_t) n, sizeof(*cells));

		for (uint64_t row = 0; row < tb_dataset_count(dataset) && row < 100000; row++)
		{
			tb_dataset_row(dataset, row, cells);
			for (int i = 0; i < n; i++)
				if (columns[i].scalar == TB_SCALAR_TEXT && cells[i].text[cells[i].text_len] != '\0')
					abort();
		}
		free(cells);
		tb_dataset_unref(dataset);
	}
	free(file);
	return 0;
}
