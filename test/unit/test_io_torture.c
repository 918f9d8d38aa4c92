/* Every allocation of opening, reading, listing and writing fails once: a clean status, nothing leaked. */
#include "io_help.h"

#include <unistd.h>

#include "httpd.h"

#define OBJECT_BYTES 300000

static uint8_t bytes[OBJECT_BYTES];

static void
serve(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	HttpdObject object = {"/o", bytes, OBJECT_BYTES, "\"v1\"", NULL};

	if (strcmp(request->path, "/moved/o") == 0)
		httpd_status(conn, 302, "Location: /o\r\n");
	else
		httpd_answer(conn, request, &object);
}

typedef struct Engine
{
	TbLoop	   *loop;
	TbPool	   *pool;
	TbIo	   *io;
	TbStore    *store;
} Engine;

static TbStatus
read_one(Engine *e, TbRangeKind kind, uint64_t length)
{
	TbRead		r = {.key = "o", .kind = kind, .length = length, .if_version = NULL};
	int			done = 0;

	r.done = count_done;
	r.arg = &done;
	tb_store_read(e->store, &r);
	while (done == 0)
		(void) tb_loop_pump(e->loop, 1000);
	if (r.status == TB_OK)
	{
		assert_int_equal(r.data->len, length);
		assert_memory_equal(r.data->data, kind == TB_RANGE_LAST ? bytes + OBJECT_BYTES - length : bytes, length);
	}
	tb_buf_unref(r.data);
	return r.status;
}

static TbStatus
work(Engine *e, const char *url, int threads)
{
	TbIoOptions options = {.retries = -1};
	TbStoreSpec spec = {.url = url, .user = "u", .password = "p", .ca_file = "/no/such/file"};
	TbStoreNames names;
	TbError		err;
	TbStatus	status = tb_loop_new(&e->loop, &err);

	if (status == TB_OK)
		status = tb_pool_new(threads, &e->pool, &err);
	if (status == TB_OK)
		status = tb_io_new(e->loop, e->pool, &options, &e->io, &err);
	if (status == TB_OK)
		status = url == NULL ? tb_store_open_mem(e->io, &e->store, &err) :
			tb_store_open(e->io, &spec, &e->store, &err);
	if (status == TB_OK && tb_store_can_write(e->store))
		status = tb_store_put(e->store, "o", bytes, OBJECT_BYTES, false, &err);
	if (status == TB_OK && tb_store_can_list(e->store))
	{
		status = tb_store_list(e->store, "", &names, &err);
		tb_store_free_names(&names);
	}
	if (status == TB_OK)
		status = read_one(e, TB_RANGE_WHOLE, OBJECT_BYTES);
	if (status == TB_OK)
		status = read_one(e, TB_RANGE_AT, 100000);
	if (status == TB_OK)
		status = read_one(e, TB_RANGE_LAST, 100);
	return status;
}

static void
clean_up(Engine *e)
{
	tb_store_close(e->store);
	tb_io_free(e->io);
	tb_pool_free(e->pool);
	tb_loop_free(e->loop);
	memset(e, 0, sizeof(*e));
}

static void
torture(const char *url, int threads)
{
	for (uint64_t n = 1;; n++)
	{
		Engine		e = {0};
		int64_t		live = tb_mem_live();
		uint64_t	made;
		TbStatus	status;

		(void) tb_mem_fail_after(n);
		status = work(&e, url, threads);
		made = tb_mem_fail_after(0);
		clean_up(&e);
		assert_int_equal(tb_mem_live(), live);
		if (made < n)
		{
			assert_int_equal(status, TB_OK);
			assert_true(n > 10);
			return;
		}
		if (status != TB_OK && status != TB_E_NOMEM)
			fail_msg("allocation %llu: %s", (unsigned long long) n, tb_status_name(status));
	}
}

static void
torture_mem(void **state)
{
	torture(NULL, 0);
}

static void
torture_file(void **state)
{
	char		dir[] = "/tmp/tb-torture-XXXXXX";
	char		url[64];
	char		path[64];

	assert_non_null(mkdtemp(dir));
	(void) snprintf(url, sizeof(url), "file://%s", dir);
	torture(url, 0);
	torture(url, 1);
	(void) snprintf(path, sizeof(path), "%s/o", dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);	/* no temporary file was left */
}

static void
torture_http(void **state)
{
	Httpd	   *httpd = httpd_start(serve, NULL);
	char		url[64];

	(void) snprintf(url, sizeof(url), "http://127.0.0.1:%d", httpd_port(httpd));
	torture(url, 0);
	(void) snprintf(url, sizeof(url), "http://127.0.0.1:%d/moved", httpd_port(httpd));
	torture(url, 0);
	httpd_stop(httpd);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(torture_mem),
		cmocka_unit_test(torture_file),
		cmocka_unit_test(torture_http),
	};

	for (size_t i = 0; i < OBJECT_BYTES; i++)
		bytes[i] = (uint8_t) (i * 31 >> 3);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
