/*
 * Dataset files: what goes in comes out, the hash is of the content alone, and no damage goes
 * unseen.
 */
#include "dataset/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 40000				/* three blocks */

static const TbDatasetColumn columns[] = {
	{.name = (char *) "t2m", .dtype = TB_F32, .ndim = 3, .shape = {1, 10, 20}},
	{.name = (char *) "flag", .scalar = TB_SCALAR_BOOL},
	{.name = (char *) "year", .scalar = TB_SCALAR_INT8},
	{.name = (char *) "weight", .scalar = TB_SCALAR_FLOAT8},
	{.name = (char *) "na\"me", .scalar = TB_SCALAR_TEXT},
	{.name = (char *) "mask", .dtype = TB_U8, .ndim = 1, .shape = {5},
	 .treatment = {.raw = true, .cast = TB_U8}},
	{.name = (char *) "wild", .scalar = TB_SCALAR_INT8},
};
#define COLUMNS ((int) (sizeof(columns) / sizeof(columns[0])))

static const TbDatasetArray arrays[] = {
	{.server = (char *) "cos", .url = (char *) "file:///data/a", .path = (char *) "t2m",
	 .mask_fill = -1, .stored = TB_I16,
	.ndim = 3, .shape = {4000, 100, 200}},
	{.server = (char *) "cos", .url = (char *) "file:///data/b", .path = (char *) "t2m",
	 .mask_fill = 1, .stored = TB_I16,
	.ndim = 3, .shape = {4000, 100, 200}},
	{.server = (char *) "web", .url = (char *) "http://h/x", .path = (char *) "m/mask",
	 .mask_fill = 0, .stored = TB_U8,
	.ndim = 1, .shape = {1000000}},
};

static uint64_t
hash_of(uint64_t row, uint64_t salt)
{
	return tb_mix64(row * 31 + salt);
}

/* The cells of a row; text lives in a static buffer. */
static void
make_row(uint64_t row, TbDatasetCell *cells)
{
	static char text[64];

	memset(cells, 0, sizeof(*cells) * COLUMNS);
	cells[0].array = (uint32_t) (row & 1);
	cells[0].start[0] = row / 100 % 4000;
	cells[0].start[1] = row / 10 % 10 * 10;
	cells[0].start[2] = row % 10 * 20;
	cells[1].i64 = row % 3 == 0;
	cells[1].null = row % 7 == 0 && row > 20000;	/* nulls begin in the second block */
	cells[2].i64 = (int64_t) (row / 1000) - 20;
	cells[3].f64 = row % 11 == 0 ? NAN : row % 13 == 0 ? -INFINITY : (double) row / 3;
	cells[3].null = row % 17 == 0;
	snprintf(text, sizeof(text), "row %d \xc3\xa9", (int) (hash_of(row, 5) % 1000));
	cells[4].text = text;
	cells[4].text_len = row % 19 == 0 ? 0 : strlen(text);
	cells[4].null = row % 23 == 0;
	cells[5].array = 2;
	cells[5].start[0] = hash_of(row, 9) % 999995;
	cells[6].i64 = row % 5 == 0 ? INT64_MIN : row % 5 == 1 ? INT64_MAX : (int64_t) hash_of(row, 1);
}

static TbBuf *
make_file(uint64_t rows, const char *meta, char hash[65])
{
	TbDatasetWriter *writer;
	TbBuf	   *file;
	TbError		err;
	TbDatasetCell cells[COLUMNS];

	assert_int_equal(tb_dataset_writer_new(columns, COLUMNS, &writer, &err), TB_OK);
	for (uint32_t i = 0; i < 3; i++)
	{
		uint32_t	id;

		assert_int_equal(tb_dataset_writer_array(writer, &arrays[i], &id, &err), TB_OK);
		assert_int_equal(id, i);
	}
	for (uint64_t row = 0; row < rows; row++)
	{
		make_row(row, cells);
		assert_int_equal(tb_dataset_writer_row(writer, cells, &err), TB_OK);
	}
	assert_int_equal(tb_dataset_writer_finish(writer, meta, &file, hash, &err), TB_OK);
	tb_dataset_writer_free(writer);
	return file;
}

static void
check_row(const TbDataset *dataset, uint64_t row)
{
	TbDatasetCell want[COLUMNS];
	TbDatasetCell got[COLUMNS];

	make_row(row, want);
	tb_dataset_row(dataset, row, got);
	for (int c = 0; c < COLUMNS; c++)
	{
		assert_int_equal(got[c].null, want[c].null);
		if (want[c].null)
			continue;
		switch (columns[c].scalar)
		{
			case TB_SCALAR_NONE:
				assert_int_equal(got[c].array, want[c].array);
				assert_memory_equal(got[c].start, want[c].start,
									sizeof(uint64_t) * (size_t) columns[c].ndim);
				break;
			case TB_SCALAR_BOOL:
			case TB_SCALAR_INT8:
				assert_int_equal(got[c].i64, want[c].i64);
				break;
			case TB_SCALAR_FLOAT8:
				assert_memory_equal(&got[c].f64, &want[c].f64, 8);
				break;
			case TB_SCALAR_TEXT:
				assert_int_equal(got[c].text_len, want[c].text_len);
				assert_memory_equal(got[c].text, want[c].text, want[c].text_len);
				assert_int_equal(got[c].text[got[c].text_len], 0);
				break;
		}
	}
}

static void
round_trip(void **state)
{
	char		hash[65];
	TbBuf	   *file = make_file(ROWS, "{\"query\":\"SELECT\"}", hash);
	TbDataset  *dataset;
	const TbDatasetColumn *got;
	const TbDatasetArray *got_arrays;
	TbError		err;

	assert_int_equal(tb_dataset_parse(file->data, file->len, &dataset, &err), TB_OK);
	tb_buf_unref(file);
	assert_string_equal(tb_dataset_hash(dataset), hash);
	assert_int_equal(tb_dataset_count(dataset), ROWS);
	assert_string_equal(tb_dataset_meta(dataset), "{\"query\":\"SELECT\"}");
	assert_int_equal(tb_dataset_columns(dataset, &got), COLUMNS);
	for (int c = 0; c < COLUMNS; c++)
	{
		assert_string_equal(got[c].name, columns[c].name);
		assert_int_equal(got[c].scalar, columns[c].scalar);
		assert_int_equal(got[c].dtype, columns[c].dtype);
		assert_int_equal(got[c].ndim, columns[c].ndim);
		assert_memory_equal(got[c].shape, columns[c].shape, sizeof(columns[c].shape));
		assert_int_equal(got[c].treatment.raw, columns[c].treatment.raw);
		assert_int_equal(got[c].treatment.cast, columns[c].treatment.cast);
	}
	assert_int_equal(tb_dataset_arrays(dataset, &got_arrays), 3);
	for (int i = 0; i < 3; i++)
	{
		assert_string_equal(got_arrays[i].server, arrays[i].server);
		assert_string_equal(got_arrays[i].url, arrays[i].url);
		assert_string_equal(got_arrays[i].path, arrays[i].path);
		assert_int_equal(got_arrays[i].mask_fill, arrays[i].mask_fill);
		assert_int_equal(got_arrays[i].stored, arrays[i].stored);
		assert_memory_equal(got_arrays[i].shape, arrays[i].shape, sizeof(arrays[i].shape));
	}
	for (uint64_t row = 0; row < ROWS; row++)
		check_row(dataset, row);
	check_row(tb_dataset_ref(dataset), 12345);
	tb_dataset_unref(dataset);
	tb_dataset_unref(dataset);
}

/* What a grid's blocks in order take: the design says one to two bytes a sample. */
static void
grids_are_small(void **state)
{
	TbDatasetWriter *writer;
	TbBuf	   *file;
	TbError		err;
	char		hash[65];
	uint32_t	id;

	assert_int_equal(tb_dataset_writer_new(columns, 1, &writer, &err), TB_OK);
	assert_int_equal(tb_dataset_writer_array(writer, &arrays[0], &id, &err), TB_OK);
	for (uint64_t row = 0; row < 400000; row++)
	{
		TbDatasetCell cell = {.start = {row / 100, row / 10 % 10 * 10, row % 10 * 20}};

		assert_int_equal(tb_dataset_writer_row(writer, &cell, &err), TB_OK);
	}
	assert_int_equal(tb_dataset_writer_finish(writer, "{}", &file, hash, &err), TB_OK);
	assert_true(file->len < 400000);
	tb_buf_unref(file);
	tb_dataset_writer_free(writer);
}

static void
empty(void **state)
{
	char		hash[65];
	TbBuf	   *file = make_file(0, "{}", hash);
	TbDataset  *dataset;
	TbError		err;

	assert_int_equal(tb_dataset_parse(file->data, file->len, &dataset, &err), TB_OK);
	assert_int_equal(tb_dataset_count(dataset), 0);
	tb_dataset_unref(dataset);
	tb_buf_unref(file);
}

/* meta is no part of the hash, rows are; the hash of the format's example is fixed for ever. */
static void
hashes(void **state)
{
	char		a[65];
	char		b[65];
	char		c[65];

	tb_buf_unref(make_file(100, "{}", a));
	tb_buf_unref(make_file(100, "{\"who\":\"me\"}", b));
	tb_buf_unref(make_file(101, "{}", c));
	assert_string_equal(a, b);
	assert_string_not_equal(a, c);
	assert_string_equal(a, "2ed34969b2b77acc4a5d4f5143adfebba300d2ae232571edc3f71f6597319f84");
}

static void
expect_row(TbStatus want, const TbDatasetCell *changed, int column)
{
	TbDatasetWriter *writer;
	TbDatasetCell cells[COLUMNS];
	TbError		err;
	uint32_t	id;

	assert_int_equal(tb_dataset_writer_new(columns, COLUMNS, &writer, &err), TB_OK);
	for (int i = 0; i < 3; i++)
		assert_int_equal(tb_dataset_writer_array(writer, &arrays[i], &id, &err), TB_OK);
	make_row(1, cells);
	if (changed != NULL)
		cells[column] = *changed;
	assert_int_equal(tb_dataset_writer_row(writer, cells, &err), want);
	tb_dataset_writer_free(writer);
}

static void
bad_rows(void **state)
{
	TbDatasetCell null_ref = {.null = true};
	TbDatasetCell unknown = {.array = 3};
	TbDatasetCell other_rank = {.array = 2};
	TbDatasetCell outside = {.start = {0, 91, 0}};
	TbDatasetCell far = {.start = {UINT64_MAX, 0, 0}};
	TbDatasetCell edge = {.start = {3999, 90, 180}};

	expect_row(TB_OK, NULL, 0);
	expect_row(TB_OK, &edge, 0);
	expect_row(TB_E_NULL, &null_ref, 0);
	expect_row(TB_E_INVALID, &unknown, 0);
	expect_row(TB_E_SHAPE, &other_rank, 0);
	expect_row(TB_E_RANGE, &outside, 0);
	expect_row(TB_E_RANGE, &far, 0);
}

/* Any changed byte, any cut and any tail is refused; nothing crashes. */
static void
damage(void **state)
{
	char		hash[65];
	TbBuf	   *file = make_file(50, "{\"m\":1}", hash);
	TbDataset  *dataset;
	TbError		err;
	uint8_t    *copy = malloc(file->len + 1);

	for (size_t i = 0; i < file->len; i++)
	{
		memcpy(copy, file->data, file->len);
		copy[i] ^= (uint8_t) (1u << i % 8);
		assert_int_not_equal(tb_dataset_parse(copy, file->len, &dataset, &err), TB_OK);
		assert_null(dataset);
		assert_int_not_equal(tb_dataset_parse(file->data, i, &dataset, &err), TB_OK);
	}
	memcpy(copy, file->data, file->len);
	copy[file->len] = 0;
	assert_int_equal(tb_dataset_parse(copy, file->len + 1, &dataset, &err), TB_E_CORRUPT);
	free(copy);
	tb_buf_unref(file);
}

/* A header whose checksums are right but whose content lies. */
static void
put_u32(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t) (value >> 8 * i);
}

static void
lies(void **state)
{
	static const char *const from[] = {"\"rows\":50", "\"rows\":50", "\"block_rows\":16384",
									   "[0,10,40]", "\"int8\"",
		"\"shape\":[1,10,20]", "\"mask_fill\":-1"};
	static const char *const to[] = {"\"rows\":49", "\"rows\":51", "\"block_rows\":00001",
									 "[7,10,40]", "\"text\"",
		"\"shape\":[1,10,2.]", "\"mask_fill\":-9"};
	char		hash[65];
	TbBuf	   *file = make_file(50, "{}", hash);
	size_t		content = (size_t) file->data[16] | (size_t) file->data[17] << 8 | (size_t) file->data[18] << 16;

	for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++)
	{
		uint8_t    *copy = malloc(file->len);
		uint8_t    *at;
		TbDataset  *dataset;
		TbError		err;

		memcpy(copy, file->data, file->len);
		at = memmem(copy + 64, content, from[i], strlen(from[i]));
		assert_non_null(at);
		memcpy(at, to[i], strlen(to[i]));
		put_u32(copy + 48, tb_crc32c(0, copy + 64, content));
		put_u32(copy + 60, tb_crc32c(0, copy, 60));
		assert_int_not_equal(tb_dataset_parse(copy, file->len, &dataset, &err), TB_OK);
		free(copy);
	}
	tb_buf_unref(file);
}

/* Every allocation fails once: no leak, no crash, a clean status. */
static void
torture(void **state)
{
	int64_t		live = tb_mem_live();
	char		hash[65];
	TbBuf	   *file = make_file(50, "{}", hash);

	for (uint64_t n = 1;; n++)
	{
		TbDataset  *dataset;
		TbError		err;
		TbStatus	status;

		tb_mem_fail_after(n);
		status = tb_dataset_parse(file->data, file->len, &dataset, &err);
		tb_mem_fail_after(0);
		if (status == TB_OK)
		{
			tb_dataset_unref(dataset);
			break;
		}
		assert_int_equal(status, TB_E_NOMEM);
	}
	tb_buf_unref(file);
	assert_int_equal(tb_mem_live(), live);
}

static void
torture_writer(void **state)
{
	int64_t		live = tb_mem_live();
	TbStatus	status = TB_E_NOMEM;

	for (uint64_t n = 1; status != TB_OK; n++)
	{
		TbDatasetWriter *writer;
		TbDatasetCell cells[COLUMNS];
		TbBuf	   *file = NULL;
		TbError		err;
		char		hash[65];
		uint32_t	id;

		make_row(1, cells);
		tb_mem_fail_after(n);
		status = tb_dataset_writer_new(columns, COLUMNS, &writer, &err);
		for (int i = 0; i < 3 && status == TB_OK; i++)
			status = tb_dataset_writer_array(writer, &arrays[i], &id, &err);
		if (status == TB_OK)
			status = tb_dataset_writer_row(writer, cells, &err);
		if (status == TB_OK)
			status = tb_dataset_writer_finish(writer, "{}", &file, hash, &err);
		tb_mem_fail_after(0);
		tb_dataset_writer_free(writer);
		tb_buf_unref(file);
		assert_true(status == TB_OK || status == TB_E_NOMEM);
	}
	assert_int_equal(tb_mem_live(), live);
}

static void
key_form(void **state)
{
	char		key[128];

	tb_dataset_key("abc", key, sizeof(key));
	assert_string_equal(key, ".tensorbank/datasets/abc.tbd");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip), cmocka_unit_test(grids_are_small), cmocka_unit_test(empty),
		cmocka_unit_test(hashes), cmocka_unit_test(bad_rows), cmocka_unit_test(damage), cmocka_unit_test(lies),
		cmocka_unit_test(torture), cmocka_unit_test(torture_writer), cmocka_unit_test(key_form),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
