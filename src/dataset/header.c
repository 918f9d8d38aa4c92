/* The fixed header of a dataset file: where the sections are and what proves them. */
#include "dataset/file.h"

#include <string.h>

/* As PNG's: a transfer that touches line ends or stops at a control character breaks it. */
const uint8_t tb_dataset_magic[8] = {'T', 'B', 'D', '\r', '\n', 0x1a, '\n', 0};

void
tb_dataset_header_put(const TbDatasetHeader *header, uint8_t bytes[TB_DATASET_HEADER_BYTES])
{
	memcpy(bytes, tb_dataset_magic, sizeof(tb_dataset_magic));
	tb_put_u32(bytes + 8, TB_DATASET_VERSION);
	tb_put_u32(bytes + 12, 0);
	tb_put_u64(bytes + 16, header->content_bytes);
	tb_put_u64(bytes + 24, header->meta_bytes);
	tb_put_u64(bytes + 32, header->index_bytes);
	tb_put_u64(bytes + 40, header->data_bytes);
	tb_put_u32(bytes + 48, header->content_crc);
	tb_put_u32(bytes + 52, header->meta_crc);
	tb_put_u32(bytes + 56, header->index_crc);
	tb_put_u32(bytes + 60, tb_crc32c(0, bytes, 60));
}

/* The sections must fill the file exactly; each has its cap, so their sum cannot overflow. */
static bool
sections_fit(const TbDatasetHeader *header, size_t len)
{
	if (header->content_bytes > TB_DATASET_MAX_CONTENT ||
		header->meta_bytes > TB_DATASET_MAX_CONTENT ||
		header->index_bytes > TB_DATASET_MAX_FILE || header->data_bytes > TB_DATASET_MAX_FILE)
		return false;
	return TB_DATASET_HEADER_BYTES + header->content_bytes + header->meta_bytes + header->index_bytes +
		header->data_bytes == len;
}

TbStatus
tb_dataset_header_get(const uint8_t *file, size_t len, TbDatasetHeader *header, TbError *err)
{
	if (len < TB_DATASET_HEADER_BYTES || memcmp(file, tb_dataset_magic,
												sizeof(tb_dataset_magic)) != 0)
		return tb_fail(err, TB_E_CORRUPT, "file is no dataset");
	if (tb_crc32c(0, file, 60) != tb_take_u32(file + 60))
	{
		tb_fail(err, TB_E_CORRUPT, "dataset file is corrupt");
		tb_error_detail(err, "checksum of the header differs");
		return TB_E_CORRUPT;
	}
	if (tb_take_u32(file + 8) != TB_DATASET_VERSION)
	{
		tb_fail(err, TB_E_UNSUPPORTED, "dataset file has another version of the format");
		tb_error_detail(err, "version %u, known is %d", tb_take_u32(file + 8), TB_DATASET_VERSION);
		return TB_E_UNSUPPORTED;
	}
	header->content_bytes = tb_take_u64(file + 16);
	header->meta_bytes = tb_take_u64(file + 24);
	header->index_bytes = tb_take_u64(file + 32);
	header->data_bytes = tb_take_u64(file + 40);
	header->content_crc = tb_take_u32(file + 48);
	header->meta_crc = tb_take_u32(file + 52);
	header->index_crc = tb_take_u32(file + 56);
	if (sections_fit(header, len))
		return TB_OK;
	tb_fail(err, TB_E_CORRUPT, "dataset file is corrupt");
	tb_error_detail(err, "its sections do not fill its %zu bytes", len);
	return TB_E_CORRUPT;
}
