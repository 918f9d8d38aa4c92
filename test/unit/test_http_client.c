/*
 * What the client asks for and when: waiting, cancelling, time limits, versions, the request itself.
 */
#include "http_help.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static void
just_good(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good(conn, request);
}

static void
not_http(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "220 mail.example ESMTP\r\n");
	httpd_close(conn);
}

static void
hang_without_answer(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_hang(conn);
}

static void
hang_in_body(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good_head(conn);
	httpd_write(conn, golden + AT, 10000);
	httpd_hang(conn);
}

static void
drip(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good_head(conn);
	for (int i = 0; i < 60; i++)
	{
		httpd_write(conn, golden + AT + i, 1);
		httpd_sleep(conn, 100);
	}
	httpd_close(conn);
}

/* Slow, but above the limit all the time. */
static void
slow_but_steady(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good_head(conn);
	for (int i = 0; i < 25; i++)
	{
		httpd_write(conn, golden + AT + i * (LENGTH / 25), LENGTH / 25);
		httpd_sleep(conn, 100);
	}
}

static void
throttle_long(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_status(conn, 503, "Retry-After: 1000000000\r\n");
}

/* Cancel while a server hangs, in a body, in back-off: at once, and the next read works. */
static void
cancel_is_instant(void **state)
{
	static const HttpdHandler handlers[] = {hang_without_answer, hang_in_body, throttle_long};

	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++)
	{
		Rig			rig;
		Httpd	   *httpd = httpd_start(handlers[i], NULL);
		TbStore    *store;
		TbRead		r[3];
		int			done = 0;
		int64_t		start;

		rig_open(&rig, 0, NULL);
		store = open_store(&rig, httpd);
		for (int k = 0; k < 3; k++)
		{
			r[k] = (TbRead) {.key = "o", .kind = TB_RANGE_AT, .offset = AT, .length = LENGTH,
				.done = count_done, .arg = &done};
			tb_store_read(store, &r[k]);
		}
		start = tb_now_ns();
		while (seconds_since(start) < 0.2)
			(void) tb_loop_pump(rig.loop, 20);
		assert_int_equal(done, 0);
		start = tb_now_ns();
		tb_store_cancel(store, &r[0]);
		tb_store_cancel(store, &r[1]);
		assert_true(seconds_since(start) < 0.1);
		tb_store_close(store);
		rig_close(&rig);
		assert_true(seconds_since(start) < 0.1);
		assert_int_equal(done, 0);
		httpd_stop(httpd);
	}
}

/* N16: cancel while a name is being resolved, whatever the resolver does. */
static void
cancel_in_resolution(void **state)
{
	TbStoreSpec spec = {.url = "http://name.invalid/x"};
	Rig			rig;
	TbStore    *store;
	TbRead		r = {.key = "o", .length = 10};
	int			done = 0;
	int64_t		start;

	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_store_open(rig.io, &spec, &store, NULL), TB_OK);
	r.done = count_done;
	r.arg = &done;
	tb_store_read(store, &r);
	(void) tb_loop_pump(rig.loop, 0);
	(void) tb_loop_pump(rig.loop, 0);
	start = tb_now_ns();
	tb_store_cancel(store, &r);
	tb_store_close(store);
	rig_close(&rig);
	assert_true(seconds_since(start) < 0.1);
	assert_int_equal(done, 0);
}

/* An attempt to connect is cancelled in the very round that brings its event, and another takes its number. */
typedef struct Takeover
{
	TbTask		task;
	TbLoop	   *loop;
	TbStore    *store;
	TbRead	   *read;
	TbWatch		watch;
	int			seen;
} Takeover;

static void
taken_ready(TbWatch *watch, uint32_t events)
{
	Takeover   *t = (Takeover *) ((char *) watch - offsetof(Takeover, watch));
	uint64_t	count;

	t->seen += read(watch->fd, &count, sizeof(count)) == sizeof(count);
}

static void
take_over(TbTask *task)
{
	Takeover   *t = (Takeover *) task;

	tb_store_cancel(t->store, t->read);
	t->watch = (TbWatch) {.fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC), .events = EPOLLIN, .ready = taken_ready};
	assert_int_equal(tb_loop_watch(t->loop, &t->watch, NULL), TB_OK);
}

static void
number_taken_over(void **state)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t	len = sizeof(address);
	int			listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char		url[64];
	TbStoreSpec spec = {.url = url};
	TbRead		r = {.key = "o", .length = 10, .done = count_done};
	int			done = 0;
	Rig			rig;
	Takeover	t = {.task.run = take_over, .read = &r};
	struct pollfd waits = {.fd = listener, .events = POLLIN};

	assert_int_equal(bind(listener, (struct sockaddr *) &address, len), 0);
	assert_int_equal(listen(listener, 16), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *) &address, &len), 0);
	(void) snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(address.sin_port));
	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_store_open(rig.io, &spec, &t.store, NULL), TB_OK);
	t.loop = rig.loop;
	r.arg = &done;
	tb_store_read(t.store, &r);
	/* a pump with the attempt's event would act on it: the last one ends once the attempt is made */
	while (poll(&waits, 1, 0) == 0)
		(void) tb_loop_pump(rig.loop, 0);
	tb_loop_defer(rig.loop, &t.task);
	for (int i = 0; i < 20; i++)
		(void) tb_loop_pump(rig.loop, 1);
	assert_int_equal(t.seen, 1);
	tb_loop_unwatch(rig.loop, &t.watch);
	close(t.watch.fd);
	tb_store_close(t.store);
	rig_close(&rig);
	assert_int_equal(done, 0);
	close(listener);
}

/* N13, N14: time limits of ours. */
static void
time_limits(void **state)
{
	static const struct
	{
		HttpdHandler handler;
		TbStatus	status;
	}			cases[] = {
		{hang_without_answer, TB_E_LOST},
		{hang_in_body, TB_E_LOST},
		{drip, TB_E_LOST},
		{slow_but_steady, TB_OK},
	};
	TbIoOptions options = {.retries = -1, .first_byte_timeout_ms = 300, .low_speed_bytes = 1000,
		.low_speed_seconds = 1};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		Rig			rig;
		Httpd	   *httpd = httpd_start(cases[i].handler, NULL);
		TbStore    *store;
		TbRead		r;
		int64_t		start = tb_now_ns();

		rig_open(&rig, 0, &options);
		store = open_store(&rig, httpd);
		(void) fetch_range(&rig, store, &r, "o", TB_RANGE_AT, AT, LENGTH);
		if (r.status != cases[i].status)
			fail_msg("case %zu: %s", i, tb_status_name(r.status));
		assert_true(seconds_since(start) < 4.5);
		drop(&r);
		tb_store_close(store);
		rig_close(&rig);
		httpd_stop(httpd);
	}
}

/* A host that does not pump for longer than the limits finds its answer, not a time-out. */
static void
host_may_pause(void **state)
{
	TbIoOptions options = {.retries = -1, .first_byte_timeout_ms = 200, .low_speed_seconds = 1};
	Rig			rig;
	Httpd	   *httpd = httpd_start(just_good, NULL);
	TbStore    *store;
	TbRead		r = {.key = "o", .kind = TB_RANGE_AT, .offset = AT, .length = LENGTH};
	int			done = 0;

	rig_open(&rig, 0, &options);
	store = open_store(&rig, httpd);
	assert_int_equal(fetch_range(&rig, store, &r, "o", TB_RANGE_AT, AT, LENGTH), TB_OK);
	drop(&r);
	r.done = count_done;
	r.arg = &done;
	tb_store_read(store, &r);
	(void) tb_loop_pump(rig.loop, 0);
	usleep(1500 * 1000);
	pump_until(&rig, &done, 1);
	assert_int_equal(r.status, TB_OK);
	drop(&r);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

static void
retry_after_1(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number > 1)
		good(conn, request);
	else
		httpd_status(conn, 429, "Retry-After: 1\r\n");
}

/* N8: waits as told. */
static void
retry_after_is_kept(void **state)
{
	Rig			rig;
	Httpd	   *httpd = httpd_start(retry_after_1, NULL);
	TbStore    *store;
	TbRead		r;
	int64_t		start = tb_now_ns();

	rig_open(&rig, 0, NULL);
	store = open_store(&rig, httpd);
	assert_int_equal(fetch_range(&rig, store, &r, "o", TB_RANGE_AT, AT, LENGTH), TB_OK);
	assert_true(seconds_since(start) >= 1.0 && seconds_since(start) < 3.0);
	drop(&r);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

/* N21, N22: what stands for a version, and that it is asked for and compared. */
static void
changing(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	const char *path = request->path;
	HttpdObject o = object;
	char		value[64];
	bool		asked = httpd_header(request, "If-Match", value, sizeof(value));

	o.last_modified = "Wed, 21 Oct 2015 07:28:00 GMT";
	o.etag = strcmp(path, "/weak") == 0 ? "W/\"w\"" : strcmp(path, "/none") == 0 ? NULL : "\"s\"";
	if (strcmp(path, "/ignores") == 0)
	{
		/* does not know If-Match: the comparison must catch it */
		HttpdRequest other = *request;

		(void) memset(other.head, 0, sizeof(other.head));
		o.etag = asked ? "\"s2\"" : "\"s\"";
		httpd_answer(conn, &other, &o);
		return;
	}
	if (o.etag == NULL || o.etag[0] == 'W')
	{
		if (asked)
			httpd_status(conn, 400, "");
		else
			httpd_answer(conn, request, &o);
		return;
	}
	httpd_answer(conn, request, &o);
}

static void
versions(void **state)
{
	static const struct
	{
		const char *key;
		const char *version;
		TbStatus	again;
	}			cases[] = {
		{"strong", "\"s\"", TB_OK},
		{"weak", "100000-Wed, 21 Oct 2015 07:28:00 GMT", TB_OK},
		{"none", "100000-Wed, 21 Oct 2015 07:28:00 GMT", TB_OK},
		{"ignores", "\"s\"", TB_E_CHANGED},
	};
	static const char *const others[] = {"\"s\"x", "\"other\"", "99-Wed", "\"a\r\nX-Evil: 1\"", "\"\""};
	Rig			rig;
	Httpd	   *httpd = httpd_start(changing, NULL);
	TbStore    *store;
	TbRead		r;

	rig_open(&rig, 0, NULL);
	store = open_store(&rig, httpd);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		char		version[96];

		assert_int_equal(fetch_range(&rig, store, &r, cases[i].key, TB_RANGE_AT, AT, LENGTH), TB_OK);
		assert_string_equal(r.version, cases[i].version);
		drop(&r);
		memcpy(version, r.version, sizeof(version));
		r = (TbRead) {.key = cases[i].key, .kind = TB_RANGE_AT, .length = 10, .if_version = version};
		assert_int_equal(fetch(&rig, store, &r), cases[i].again);
		drop(&r);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
	{
		r = (TbRead) {.key = "strong", .kind = TB_RANGE_AT, .length = 10, .if_version = others[i]};
		assert_int_equal(fetch(&rig, store, &r), TB_E_CHANGED);
	}
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

static void
check_request(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	char		value[128];
	bool		good_request = httpd_header(request, "Authorization", value, sizeof(value)) &&
		strcmp(value, "Basic dTpzM2NyM3Q=") == 0 &&
		httpd_header(request, "Accept-Encoding", value, sizeof(value)) && strcmp(value, "identity") == 0 &&
		httpd_header(request, "Range", value, sizeof(value)) && strcmp(value, "bytes=1000-50999") == 0 &&
		strcmp(request->path, "/base%20x/a%20b/%25") == 0 && !httpd_header(request, "Cookie", value, 9);

	if (!good_request)
		httpd_status(conn, 400, "");
	else if (request->number == 1)
		httpd_status(conn, 401, "Set-Cookie: a=b\r\n");
	else
		good(conn, request);
}

/* What is sent; and that a password is in no error. */
static void
request_is_as_it_should(void **state)
{
	char		url[64];
	TbStoreSpec spec = {.url = url, .user = "u", .password = "s3cr3t"};
	Rig			rig;
	Httpd	   *httpd = httpd_start(check_request, NULL);
	TbStore    *store;
	TbRead		r;

	(void) setenv("http_proxy", "http://127.0.0.1:1/", 1);
	rig_open(&rig, 0, NULL);
	(void) snprintf(url, sizeof(url), "http://127.0.0.1:%d/base%%20x/", httpd_port(httpd));
	assert_int_equal(tb_store_open(rig.io, &spec, &store, NULL), TB_OK);
	assert_int_equal(fetch_range(&rig, store, &r, "a b/%", TB_RANGE_AT, AT, LENGTH), TB_E_AUTH);
	assert_null(strstr(r.error.message, "s3cr3t"));
	assert_null(strstr(r.error.detail, "s3cr3t"));
	assert_null(strstr(r.error.hint, "s3cr3t"));
	assert_int_equal(fetch_range(&rig, store, &r, "a b/%", TB_RANGE_AT, AT, LENGTH), TB_OK);
	drop(&r);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
	(void) unsetenv("http_proxy");
}

static void
says_too_much(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good(conn, request);
	httpd_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad");
}

/* What a server sends behind an answer is nobody's answer: such a connection is not used again. */
static void
nothing_waits_on_a_connection(void **state)
{
	Rig			rig;
	Httpd	   *httpd = httpd_start(says_too_much, NULL);
	TbStore    *store;
	TbRead		r;

	rig_open(&rig, 0, NULL);
	store = open_store(&rig, httpd);
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(fetch_range(&rig, store, &r, "o", TB_RANGE_WHOLE, 0, OBJECT_BYTES), TB_OK);
		assert_int_equal(r.data->len, OBJECT_BYTES);
		drop(&r);
		(void) usleep(50000);
	}
	assert_int_equal(httpd_requests(httpd), 3);
	assert_int_equal(httpd_connections(httpd), 3);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

static TbStatus
fetch_from(const char *url, double *seconds)
{
	TbStoreSpec spec = {.url = url};
	Rig			rig;
	TbStore    *store;
	TbRead		r;
	int64_t		start = tb_now_ns();

	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_store_open(rig.io, &spec, &store, NULL), TB_OK);
	(void) fetch_range(&rig, store, &r, "o", TB_RANGE_WHOLE, 0, 10);
	*seconds = seconds_since(start);
	assert_true(r.error.hint[0] != '\0');
	tb_store_close(store);
	rig_close(&rig);
	return r.status;
}

/* A wrong address is said soon. */
static void
nobody_there(void **state)
{
	double		seconds;

	assert_int_equal(fetch_from("http://127.0.0.1:1/x", &seconds), TB_E_CONNECT);
	assert_true(seconds < 2);
	assert_int_equal(fetch_from("https://127.0.0.1:1/x", &seconds), TB_E_CONNECT);
}

/* N17: something that speaks no TLS. */
static void
no_tls(void **state)
{
	char		url[64];
	double		seconds;
	Httpd	   *httpd = httpd_start(not_http, NULL);

	(void) snprintf(url, sizeof(url), "https://127.0.0.1:%d/x", httpd_port(httpd));
	assert_int_equal(fetch_from(url, &seconds), TB_E_CONNECT);
	httpd_stop(httpd);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(cancel_is_instant),
		cmocka_unit_test(cancel_in_resolution),
		cmocka_unit_test(number_taken_over),
		cmocka_unit_test(time_limits),
		cmocka_unit_test(host_may_pause),
		cmocka_unit_test(retry_after_is_kept),
		cmocka_unit_test(versions),
		cmocka_unit_test(nothing_waits_on_a_connection),
		cmocka_unit_test(request_is_as_it_should),
		cmocka_unit_test(nobody_there),
		cmocka_unit_test(no_tls),
	};

	fill_golden();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
