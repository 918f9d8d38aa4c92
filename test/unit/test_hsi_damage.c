/*
 * Damage never loses rows: every object of an index flipped, cut short or deleted in turn, lost
 * writes, an index of another grid; heads found by asking, deleted when old; allocations that fail.
 */
#include "hsi_help.h"

#include "httpd.h"

#define STEPS 18				/* 4608 blocks: three levels */

/* Rows of a computing scan with a freshly opened index; NULL error: it must work. Returns rows, or
 * -1. */
static int64_t
scan_rows(Archive *archive, TbHsi *hsi, const TbPred *pred, bool *warned)
{
	TbScanSpec	spec = {
		.grid = archive->grid, .hsi = hsi, .pred = pred, .unindexed = TB_UNINDEXED_COMPUTE,
		.compute_limit_bytes = 1 << 30
	};
	TbScan	   *scan;
	TbError		error;
	TbStatus	status;
	uint64_t	expected = 0;
	int64_t		rows = 0;

	assert_ok(tb_scan_open(&spec, &scan, &error), error);
	for (;;)
	{
		const TbBlockRow *row;

		WAIT(archive->engine, status, tb_scan_next(scan, &row, &error));
		assert_ok(status, error);
		while (expected < archive->info->n_blocks && !archive_matches(archive, pred, expected))
			expected++;
		if (row == NULL)
			break;
		assert_int_equal(row->block, expected);
		expected++;
		rows++;
	}
	assert_int_equal(expected, archive->info->n_blocks);
	*warned = tb_scan_warning(scan) != NULL;
	tb_scan_free(scan);
	return rows;
}

static TbPred *
column_above(int array, TbStat stat, double threshold)
{
	TbColumn	column = {.kind = TB_COL_STAT, .index = array, .stat = stat};
	TbValue		value = {.f64 = threshold};

	return tb_pred_compare(TB_GT, tb_expr_column(column),
						   tb_expr_const(TB_CLASS_F64, value, value));
}

/* What was done to an object is undone by putting the bytes back. */
static void
damage(Archive *archive, const char *key, const TbBuf *bytes, int how, uint64_t *seed)
{
	TbStore    *store = tb_source_store(archive->source);
	uint8_t    *copy = malloc(bytes->len);
	size_t		len = bytes->len;
	TbError		error;

	memcpy(copy, bytes->data, len);
	if (how == 0)
		copy[hsi_random(seed) % len] ^= (uint8_t) (1u << (hsi_random(seed) % 8));
	else if (how == 1)
		len = hsi_random(seed) % len;
	if (how == 2)
		assert_ok(tb_store_delete(store, key, &error), error);
	else
		put_bytes(store, key, copy, len);
	free(copy);
}

static void
test_objects(void **state)
{
	Archive		archive;
	TbHsiWriter *writer;
	TbHsi	   *hsi;
	TbPred	   *pred[3] = {column_above(0, TB_STAT_MAX, 282), column_above(1, TB_STAT_MEAN, 95),
	column_above(2, TB_STAT_MIN, 15500)};
	Keys		keys = {0};
	uint64_t	seed = 11;
	int			warnings = 0;
	int			corrupt_heads = 0;
	bool		warned;

	archive_open(&archive, STEPS);
	writer = archive_writer(&archive, 1024, false);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	tb_hsi_writer_free(writer);
	hsi = archive_hsi(&archive);
	assert_true(tb_hsi_info(hsi).levels >= 3);
	tb_hsi_unref(hsi);
	keys_list(tb_source_store(archive.source), ".tensorbank", &keys);
	assert_true(keys.n > 200);
	for (size_t i = 0; i < keys.n; i++)
	{
		TbBuf	   *bytes = object_read(&archive, keys.key[i]);
		int			how = (int) (hsi_random(&seed) % 3);
		TbError		error;
		TbStatus	status;

		/* what the predicates never look at is left alone but for a few */
		if (strstr(keys.key[i], "/u/") != NULL && i % 16 != 0)
			how = 3;
		if (how < 3)
		{
			damage(&archive, keys.key[i], bytes, how, &seed);
			tb_source_forget(archive.source);
			assert_ok(tb_hsi_open(archive.source, archive.grid, &hsi, &error), error);
			WAIT(archive.engine, status, tb_hsi_poll(hsi, &error));
			if (status == TB_E_INDEX_CORRUPT)
				corrupt_heads++;
			else
			{
				assert_ok(status, error);
				for (int p = 0; p < 3; p++)
				{
					scan_rows(&archive, hsi, pred[p], &warned);
					warnings += warned;
				}
			}
			tb_hsi_unref(hsi);
			put_bytes(tb_source_store(archive.source), keys.key[i], bytes->data, bytes->len);
		}
		tb_buf_unref(bytes);
	}
	assert_true(warnings > 10);
	assert_true(corrupt_heads <= 1);	/* old heads are not read */
	for (int p = 0; p < 3; p++)
		tb_pred_free(pred[p]);
	keys_free(&keys);
	archive_close(&archive);
}

/* Flips in the newest head are noticed, each of them. */
static void
test_head(void **state)
{
	Archive		archive;
	TbHsiWriter *writer;
	TbHead	   *head;
	TbBuf	   *text = tb_buf_new(0);
	char		key[TB_HSI_KEY_BYTES];
	char		path[TB_HSI_KEY_BYTES];
	TbBuf	   *bytes;
	TbError		error;

	archive_open(&archive, 2);
	writer = archive_writer(&archive, 64, false);
	archive_build(&archive, writer, 0, 2, false);
	tb_hsi_writer_free(writer);
	assert_ok(tb_hsi_key(archive.info, NULL, key, sizeof(key), &error), error);
	assert_true(tb_head_key(path, key, 2));
	bytes = object_read(&archive, path);
	assert_ok(tb_head_parse(bytes->data, bytes->len, &head, &error), error);
	assert_int_equal(head->serial, 2);
	assert_int_equal(tb_head_parts_done(head), 2);
	assert_int_equal(tb_head_print(head, text), TB_OK);
	assert_int_equal(text->len, bytes->len);
	assert_memory_equal(text->data, bytes->data, bytes->len);
	tb_head_free(head);
	/* the line's end is no part of it */
	for (size_t i = 0; i + 1 < bytes->len; i++)
		for (int bit = 0; bit < 8; bit++)
		{
			text->data[i] ^= (uint8_t) (1u << bit);
			assert_int_equal(tb_head_parse(text->data, text->len, &head, &error),
							 TB_E_INDEX_CORRUPT);
			assert_null(head);
			text->data[i] ^= (uint8_t) (1u << bit);
		}
	for (size_t len = 0; len + 1 < bytes->len; len++)
		assert_int_equal(tb_head_parse(text->data, len, &head, &error), TB_E_INDEX_CORRUPT);
	tb_buf_unref(bytes);
	tb_buf_unref(text);
	archive_close(&archive);
}

/* Only a few heads stay, and a writer that follows a damaged head builds anew behind it. */
static void
test_old_heads(void **state)
{
	Archive		archive;
	TbHsiWriter *writer;
	TbHsi	   *hsi;
	TbStoreNames names;
	char		key[TB_HSI_KEY_BYTES];
	char		path[TB_HSI_KEY_BYTES];
	size_t		heads = 0;
	TbError		error;

	archive_open(&archive, 8);
	writer = archive_writer(&archive, 64, false);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	assert_int_equal(tb_hsi_writer_parts(writer), 32);
	tb_hsi_writer_free(writer);
	assert_ok(tb_hsi_key(archive.info, NULL, key, sizeof(key), &error), error);
	assert_ok(tb_store_list(tb_source_store(archive.source), key, &names, &error), error);
	for (size_t i = 0; i < names.n; i++)
		heads += !names.is_prefix[i];
	/* 30 to 33, and what searches for those ask for: 1, 2, 4, 8, 16, 24, 28, 32 */
	assert_int_equal(heads, 11);
	tb_store_free_names(&names);
	assert_true(tb_head_key(path, key, 33));
	put_text(tb_source_store(archive.source), path, "{}");
	assert_ok(tb_hsi_open(archive.source, archive.grid, &hsi, &error), error);
	{
		TbStatus	status;

		WAIT(archive.engine, status, tb_hsi_poll(hsi, &error));
		assert_int_equal(status, TB_E_INDEX_CORRUPT);
	}
	tb_hsi_unref(hsi);
	writer = archive_writer(&archive, 64, false);
	assert_false(tb_hsi_writer_has(writer, 0));
	archive_build(&archive, writer, 0, 1, false);
	tb_hsi_writer_free(writer);
	hsi = archive_hsi(&archive);
	assert_int_equal(tb_hsi_serial(hsi), 34);
	tb_hsi_unref(hsi);
	archive_close(&archive);
}

/* ---- finding by asking ---- */

typedef struct Published
{
	uint64_t	newest;
	bool		kept[2000];
} Published;

static void
answer_head(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	const Published *published = arg;
	const char *at = strstr(request->path, "/k/head-");
	uint64_t	serial = at != NULL ? strtoull(at + 8, NULL, 10) : 0;
	HttpdObject object = {
		.path = request->path, .bytes = request->path, .len = strlen(request->path)};
	bool		there = serial > 0 && serial <= published->newest && published->kept[serial];

	httpd_answer(conn, request, there ? &object : NULL);
}

/* Without the right to list S3 denies the listing, and what is not there likewise. */
static void
answer_without_list_rights(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	const Published *published = arg;
	const char *at = strstr(request->path, "/k/head-");
	uint64_t	serial = at != NULL ? strtoull(at + 8, NULL, 10) : 0;

	if (serial > 0 && serial <= published->newest && published->kept[serial])
		answer_head(conn, request, arg);
	else
		httpd_printf(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 41\r\n\r\n"
					 "<Error><Code>AccessDenied</Code></Error>\n");
}

static void
test_denied_listing(void **state)
{
	static Published published;
	Httpd	   *httpd = httpd_start(answer_without_list_rights, &published);
	TbEngine   *engine = engine_open(0);
	TbSource   *source;
	char		endpoint[100];
	TbStoreSpec spec = {.url = "s3://bucket", .endpoint = endpoint, .anonymous = true};
	TbError		error;

	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", httpd_port(httpd));
	assert_ok(tb_source_open(engine, &spec, &source, &error), error);
	for (uint64_t newest = 0; newest <= 11; newest++)
	{
		TbFind	   *find;
		TbStatus	status;
		uint64_t	serial;

		memset(&published, 0, sizeof(published));
		published.newest = newest;
		for (uint64_t i = 1; i <= newest; i++)
			published.kept[i] = true;
		assert_ok(tb_find_open(source, "k", &find, &error), error);
		WAIT(engine, status, tb_find_poll(find, &error));
		assert_ok(status, error);
		assert_int_equal(tb_find_result(find, &serial) != NULL, newest > 0);
		assert_int_equal(serial, newest);
		tb_find_free(find);
	}
	tb_source_unref(source);
	tb_engine_free(engine);
	httpd_stop(httpd);
}

/* After any number of publications a store that cannot list finds the newest head among those that
 * are kept. */
static void
test_probing(void **state)
{
	static Published published;
	Httpd	   *httpd = httpd_start(answer_head, &published);
	TbEngine   *engine = engine_open(0);
	TbSource   *memory;
	TbSource   *http;
	TbStoreSpec spec = {0};
	char		url[100];
	TbError		error;

	snprintf(url, sizeof(url), "http://127.0.0.1:%d", httpd_port(httpd));
	spec.url = url;
	assert_ok(tb_source_open_mem(engine, &memory, &error), error);
	assert_ok(tb_source_open(engine, &spec, &http, &error), error);
	for (uint64_t newest = 0; newest <= 70; newest++)
	{
		TbFind	   *find;
		TbStatus	status;
		TbStoreNames names = {0};
		TbPuts		puts = {0};
		uint64_t	serial;

		memset(&published, 0, sizeof(published));
		published.newest = newest;
		if (newest > 0)
		{
			char		path[TB_HSI_KEY_BYTES];

			assert_true(tb_head_key(path, "k", newest));
			put_text(tb_source_store(memory), path, "{}");
			tb_find_tidy(memory, "k", newest, &puts);
			assert_ok(tb_puts_wait(&puts, &error), error);
			assert_ok(tb_store_list(tb_source_store(memory), "k", &names, &error), error);
			assert_true(names.n <= 4 + 14);
			for (size_t i = 0; i < names.n; i++)
				published.kept[strtoull(names.name[i] + 5, NULL, 10)] = true;
			tb_store_free_names(&names);
		}
		assert_ok(tb_find_open(http, "k", &find, &error), error);
		WAIT(engine, status, tb_find_poll(find, &error));
		assert_ok(status, error);
		assert_int_equal(tb_find_result(find, &serial) != NULL, newest > 0);
		assert_int_equal(serial, newest);
		tb_find_free(find);
	}
	tb_source_unref(http);
	tb_source_unref(memory);
	tb_engine_free(engine);
	httpd_stop(httpd);
}

/* ---- torture ---- */

/* Build a part, open, scan, with the n-th allocation failing: a clean status, nothing leaked, no
 * lost row. */
static bool
tortured(Archive *archive, const TbPred *pred, uint64_t n)
{
	TbScanSpec	spec = {
		.grid = archive->grid, .pred = pred, .unindexed = TB_UNINDEXED_COMPUTE,
		.compute_limit_bytes = 1 << 30
	};
	TbHsi	   *hsi = NULL;
	TbScan	   *scan = NULL;
	TbError		error;
	TbStatus	status;
	uint64_t	rows = 0;
	bool		failed;

	tb_mem_fail_after(n);
	status = tb_hsi_open(archive->source, archive->grid, &hsi, &error);
	if (status == TB_OK)
		WAIT(archive->engine, status, tb_hsi_poll(hsi, &error));
	spec.hsi = hsi;
	if (status == TB_OK)
		status = tb_scan_open(&spec, &scan, &error);
	while (status == TB_OK)
	{
		const TbBlockRow *row;

		WAIT(archive->engine, status, tb_scan_next(scan, &row, &error));
		if (status != TB_OK || row == NULL)
			break;
		rows++;
	}
	failed = status != TB_OK;
	tb_mem_fail_after(0);
	if (failed)
		assert_int_equal(status, TB_E_NOMEM);
	else
	{
		uint64_t	expected = 0;

		for (uint64_t b = 0; b < archive->info->n_blocks; b++)
			expected += archive_matches(archive, pred, b);
		assert_int_equal(rows, expected);
	}
	tb_scan_free(scan);
	tb_hsi_unref(hsi);
	return failed;
}

static void
test_torture(void **state)
{
	Archive		archive;
	TbHsiWriter *writer;
	int64_t		before = tb_mem_live();	/* this thread's scratch memory, from earlier tests */
	TbPred	   *pred = column_above(0, TB_STAT_MAX, 282);
	int			failures = 0;

	archive_open(&archive, 2);
	writer = archive_writer(&archive, 64, false);
	archive_build(&archive, writer, 0, UINT64_MAX, true);
	tb_hsi_writer_free(writer);
	tb_source_forget(archive.source);
	tortured(&archive, pred, 0);
	tb_source_forget(archive.source);
	for (uint64_t n = 1; n < 1500; n++)
	{
		failures += tortured(&archive, pred, n);
		tb_source_forget(archive.source);
	}
	assert_true(failures > 100);
	tb_pred_free(pred);
	archive_close(&archive);
	assert_int_equal(tb_mem_live(), before);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_old_heads),
		cmocka_unit_test(test_probing),
		cmocka_unit_test(test_denied_listing),
		cmocka_unit_test(test_torture),
	};

	return cmocka_run_group_tests_name("hsi damage", tests, NULL, NULL);
}
