/*
 * Listing, writing and deleting against a real S3 server. Its address and keys come from the environment, as s3-server.sh prints
 * them.
 */
#include "../unit/io_help.h"

#include "io/store.h"

#define LARGE_BYTES (((size_t) 40 << 20) + 12345)
#define MANY 1234

static const char *
env(const char *name)
{
	const char *value = getenv(name);

	return value != NULL ? value : "";
}

static TbStore *
open_at(Rig *rig, const char *prefix)
{
	char		url[512];
	TbStoreSpec spec = {
		.url = url, .endpoint = env("S3_ENDPOINT"), .region = env("S3_REGION"), .access_key_id = env("S3_ACCESS_KEY"),
		.secret_access_key = env("S3_SECRET_KEY")
	};
	TbStore    *store;
	TbError		err;

	(void) snprintf(url, sizeof(url), "s3://tensorbank/%s", prefix);
	if (tb_store_open(rig->io, &spec, &store, &err) != TB_OK)
		fail_msg("%s; %s", err.message, err.detail);
	return store;
}

static TbStatus
wait_job(Rig *rig, TbJob *job, TbError *err)
{
	int64_t		start = tb_now_ns();
	TbStatus	status;

	tb_error_clear(err);
	while ((status = tb_job_poll(job, err)) == TB_AGAIN)
	{
		(void) tb_loop_pump(rig->loop, 1000);
		if (tb_now_ns() - start > INT64_C(60000000000))
			fail_msg("a job did not end");
	}
	return status;
}

static TbStatus
put(Rig *rig, TbStore *store, const char *key, TbBuf *bytes, bool once, TbError *err)
{
	TbJob	   *job;
	TbStatus	status;

	assert_int_equal(tb_store_begin_put(store, key, bytes, once, &job, err), TB_OK);
	status = wait_job(rig, job, err);
	tb_job_free(job);
	return status;
}

static TbBuf *
bytes_of(const char *text)
{
	TbBuf	   *buf = tb_buf_new(0);

	assert_int_equal(tb_buf_append(buf, text, strlen(text), SIZE_MAX), TB_OK);
	return buf;
}

static void
put_text(Rig *rig, TbStore *store, const char *key, const char *text, bool once, TbStatus expected)
{
	TbBuf	   *bytes = bytes_of(text);
	TbError		err;
	TbStatus	status = put(rig, store, key, bytes, once, &err);

	if (status != expected)
		fail_msg("put %s: %s: %s; %s", key, tb_status_name(status), err.message, err.detail);
	tb_buf_unref(bytes);
}

static void
del(Rig *rig, TbStore *store, const char *key)
{
	TbJob	   *job;
	TbError		err;
	TbStatus	status;

	assert_int_equal(tb_store_begin_delete(store, key, &job, &err), TB_OK);
	status = wait_job(rig, job, &err);
	if (status != TB_OK)
		fail_msg("delete %s: %s; %s", key, err.message, err.detail);
	tb_job_free(job);
}

static TbJob *
list(Rig *rig, TbStore *store, const char *prefix)
{
	TbJob	   *job;
	TbError		err;
	TbStatus	status;

	assert_int_equal(tb_store_begin_list(store, prefix, &job, &err), TB_OK);
	status = wait_job(rig, job, &err);
	if (status != TB_OK)
		fail_msg("list %s: %s; %s", prefix, err.message, err.detail);
	return job;
}

/* Length and a check of the bytes of an object, read back. */
static TbBuf *
get(Rig *rig, TbStore *store, const char *key, uint64_t most)
{
	int			done = 0;
	TbRead		read = {.key = key, .kind = TB_RANGE_WHOLE, .length = most, .done = count_done, .arg = &done};

	tb_store_read(store, &read);
	pump_until(rig, &done, 1);
	if (read.status != TB_OK)
		fail_msg("get %s: %s; %s", key, read.error.message, read.error.detail);
	return read.data;
}

static void
test_names(void **state)
{
	static const char *const odd[] = {"a b", "a+b", "p%20q", "x&y<z>\"", "\xc3\xbc", "ctl\x01x", "~-_.()"};
	Rig			rig;
	TbStore    *store;
	TbJob	   *job;
	const TbStoreNames *names;

	rig_open(&rig, 0, NULL);
	store = open_at(&rig, "jobs/names x+y");
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
	{
		char		key[64];

		put_text(&rig, store, odd[i], "1", false, TB_OK);
		(void) snprintf(key, sizeof(key), "%s dir/in", odd[i]);
		put_text(&rig, store, key, "1", false, TB_OK);
	}
	job = list(&rig, store, "");
	names = tb_job_names(job);
	assert_int_equal(names->n, 2 * sizeof(odd) / sizeof(odd[0]));
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
	{
		char		dir[64];
		int			found = 0;

		(void) snprintf(dir, sizeof(dir), "%s dir", odd[i]);
		for (size_t n = 0; n < names->n; n++)
			found += strcmp(names->name[n], names->is_prefix[n] ? dir : odd[i]) == 0;
		assert_int_equal(found, 2);
	}
	for (size_t n = 1; n < names->n; n++)
		assert_true(strcmp(names->name[n - 1], names->name[n]) < 0);
	tb_job_free(job);
	job = list(&rig, store, "a b dir");
	assert_int_equal(tb_job_names(job)->n, 1);
	assert_string_equal(tb_job_names(job)->name[0], "in");
	assert_false(tb_job_names(job)->is_prefix[0]);
	tb_job_free(job);
	job = list(&rig, store, "nothing here");
	assert_int_equal(tb_job_names(job)->n, 0);
	tb_job_free(job);
	del(&rig, store, "a b");
	del(&rig, store, "a b");
	job = list(&rig, store, "");
	assert_int_equal(tb_job_names(job)->n, 2 * sizeof(odd) / sizeof(odd[0]) - 1);
	tb_job_free(job);
	tb_store_close(store);
	rig_close(&rig);
}

/* More than a page. */
static void
test_pages(void **state)
{
	Rig			rig;
	TbStore    *store;
	TbBuf	   *bytes;
	TbJob	   *job[32] = {NULL};
	TbError		err;
	int			started = 0;
	const TbStoreNames *names;

	rig_open(&rig, 0, NULL);
	bytes = bytes_of("x");
	store = open_at(&rig, "jobs/pages");
	for (int ended = 0; ended < MANY;)
	{
		for (int i = 0; i < 32; i++)
		{
			char		key[64];
			TbStatus	status = job[i] != NULL ? tb_job_poll(job[i], &err) : TB_AGAIN;

			if (job[i] != NULL && status != TB_AGAIN)
			{
				assert_int_equal(status, TB_OK);
				tb_job_free(job[i]);
				job[i] = NULL;
				ended++;
			}
			if (job[i] != NULL || started == MANY)
				continue;
			(void) snprintf(key, sizeof(key), "c/%d%s", started, started % 2 == 0 ? "" : "/zarr.json");
			assert_int_equal(tb_store_begin_put(store, key, bytes, false, &job[i], &err), TB_OK);
			started++;
		}
		(void) tb_loop_pump(rig.loop, 1000);
	}
	job[0] = list(&rig, store, "c");
	names = tb_job_names(job[0]);
	assert_int_equal(names->n, MANY);
	for (size_t n = 0; n < names->n; n++)
		assert_int_equal(names->is_prefix[n], atoi(names->name[n]) % 2);
	tb_job_free(job[0]);
	tb_buf_unref(bytes);
	tb_store_close(store);
	rig_close(&rig);
}

static void
test_once(void **state)
{
	Rig			rig;
	TbStore    *store;
	TbBuf	   *bytes;

	rig_open(&rig, 0, NULL);
	store = open_at(&rig, "jobs/once");
	del(&rig, store, "head");
	put_text(&rig, store, "head", "one", true, TB_OK);
	put_text(&rig, store, "head", "two", true, TB_E_CHANGED);
	put_text(&rig, store, "head", "longer than one", true, TB_E_CHANGED);
	/* our own, told twice */
	put_text(&rig, store, "head", "one", true, TB_OK);
	bytes = get(&rig, store, "head", 100);
	assert_memory_equal(bytes->data, "one", 3);
	tb_buf_unref(bytes);
	put_text(&rig, store, "head", "three", false, TB_OK);
	put_text(&rig, store, "empty", "", false, TB_OK);
	del(&rig, store, "void");
	put_text(&rig, store, "void", "", true, TB_OK);
	put_text(&rig, store, "void", "", true, TB_OK);
	tb_store_close(store);
	rig_close(&rig);
}

static void
test_large(void **state)
{
	Rig			rig;
	TbStore    *store;
	TbBuf	   *bytes;
	TbBuf	   *back;
	TbJob	   *job;
	TbError		err;

	rig_open(&rig, 0, NULL);
	bytes = tb_buf_new(LARGE_BYTES);
	for (size_t i = 0; i < LARGE_BYTES; i++)
		bytes->data[i] = (uint8_t) (i * 2654435761u >> 13);
	bytes->len = LARGE_BYTES;
	store = open_at(&rig, "jobs/large");
	del(&rig, store, "o");
	assert_int_equal(put(&rig, store, "o", bytes, true, &err), TB_OK);
	back = get(&rig, store, "o", LARGE_BYTES);
	assert_int_equal(back->len, LARGE_BYTES);
	assert_memory_equal(back->data, bytes->data, LARGE_BYTES);
	tb_buf_unref(back);
	assert_int_equal(put(&rig, store, "o", bytes, true, &err), TB_OK);
	bytes->data[LARGE_BYTES - 1] ^= 1;
	assert_int_equal(put(&rig, store, "o", bytes, true, &err), TB_E_CHANGED);
	assert_string_equal(err.message, "object exists already");
	assert_int_equal(put(&rig, store, "o", bytes, false, &err), TB_OK);
	/* freed in the middle: the upload is aborted */
	assert_int_equal(tb_store_begin_put(store, "half", bytes, false, &job, &err), TB_OK);
	for (int64_t end = tb_now_ns() + 100000000; tb_now_ns() < end;)
		(void) tb_loop_pump(rig.loop, 10);
	tb_job_free(job);
	for (int64_t end = tb_now_ns() + 500000000; tb_now_ns() < end;)
		(void) tb_loop_pump(rig.loop, 10);
	tb_buf_unref(bytes);
	tb_store_close(store);
	rig_close(&rig);
}

static void
test_no_bucket(void **state)
{
	Rig			rig;
	TbStore    *store;
	TbJob	   *job;
	TbError		err;
	TbStatus	status;
	TbStoreSpec spec = {
		.url = "s3://nosuchbucket/x", .endpoint = env("S3_ENDPOINT"), .region = env("S3_REGION"),
		.access_key_id = env("S3_ACCESS_KEY"), .secret_access_key = env("S3_SECRET_KEY")
	};

	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_store_open(rig.io, &spec, &store, &err), TB_OK);
	assert_int_equal(tb_store_begin_list(store, "", &job, &err), TB_OK);
	status = wait_job(&rig, job, &err);
	assert_true(status == TB_E_NOT_FOUND || status == TB_E_DENIED);
	tb_job_free(job);
	tb_store_close(store);
	rig_close(&rig);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_no_bucket),
	};

	if (env("S3_ENDPOINT")[0] == '\0')
	{
		fprintf(stderr, "S3_ENDPOINT is not set\n");
		return 2;
	}
	return cmocka_run_group_tests_name("jobs at a real s3 server", tests, NULL, NULL);
}
