/*
 * What servers and networks do wrong, scripted request by request: after each fault either the right bytes
 * arrive, by trying again, or one definite error; never short or other bytes.
 */
#include "http_help.h"

#include <sys/resource.h>
#include <unistd.h>

#define RETRIES 2

typedef struct Fault
{
	const char *name;
	HttpdHandler handler;
	TbStatus	status;
	int			requests;		/* that the server saw */
	int			retries;		/* 0: RETRIES */
	TbRangeKind kind;			/* 0 (whole) stands for a range here */
	bool		whole;
	bool		missing;
	const char *detail;			/* in the error's detail; NULL: not looked at */
	int			http_status;
} Fault;

static void
range_head(HttpdConn *conn, const char *content_range, int length)
{
	httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\nETag: \"v1\"\r\n"
				 "Content-Range: %s\r\n\r\n", length, content_range);
}

/* N1: reset before the head; behind the head; after one byte; before the last byte. */
static void
reset_at_once(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number > 1)
		good(conn, request);
	else
		httpd_reset(conn);
}

static void
reset_after(HttpdConn *conn, const HttpdRequest *request, size_t bytes)
{
	if (request->number > 1)
	{
		good(conn, request);
		return;
	}
	good_head(conn);
	httpd_write(conn, golden + AT, bytes);
	httpd_sleep(conn, 30);
	httpd_reset(conn);
}

static void
reset_at_0(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	reset_after(conn, request, 0);
}

static void
reset_at_1(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	reset_after(conn, request, 1);
}

static void
reset_at_last(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	reset_after(conn, request, LENGTH - 1);
}

static void
reset_always(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_reset(conn);
}

/* N2, N3: clean close of a short body; chunked without its last chunk. */
static void
short_always(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good_head(conn);
	httpd_write(conn, golden + AT, LENGTH - 1);
	httpd_close(conn);
}

static void
short_once(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number > 1)
		good(conn, request);
	else
		short_always(conn, request, arg);
}

static void
chunked_unfinished(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n"
				 "Content-Range: bytes %d-%d/%d\r\n\r\n%x\r\n", AT, AT + LENGTH - 1, OBJECT_BYTES, LENGTH);
	httpd_write(conn, golden + AT, LENGTH);
	httpd_printf(conn, "\r\n");
	httpd_close(conn);
}

static void
chunked_good(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n"
				 "Content-Range: bytes %d-%d/%d\r\n\r\n%x\r\n", AT, AT + LENGTH - 1, OBJECT_BYTES, LENGTH);
	httpd_write(conn, golden + AT, LENGTH);
	httpd_printf(conn, "\r\n0\r\n\r\n");
}

static void
chunked_too_short(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n"
				 "Content-Range: bytes %d-%d/%d\r\n\r\n%x\r\n", AT, AT + LENGTH - 1, OBJECT_BYTES, 100);
	httpd_write(conn, golden + AT, 100);
	httpd_printf(conn, "\r\n0\r\n\r\n");
}

static void
chunked_too_long(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n"
				 "Content-Range: bytes %d-%d/%d\r\n\r\n%x\r\n", AT, AT + LENGTH - 1, OBJECT_BYTES,
				 LENGTH + 1);
	httpd_write(conn, golden + AT, LENGTH + 1);
	httpd_printf(conn, "\r\n0\r\n\r\n");
}

/* N4: another range, off by one, no total, no Content-Range, nonsense; N5: the object ends. */
static void
other_range(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 0-49999/100000", LENGTH);
	httpd_write(conn, golden, LENGTH);
}

/* A wrong answer on the way to a good one, after a lost one. */
static void
lost_then_wrong(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number == 1)
		short_always(conn, request, arg);
	else if (request->number == 2)
		other_range(conn, request, arg);
	else
		good(conn, request);
}

static void
off_by_one(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number > 1)
	{
		good(conn, request);
		return;
	}
	range_head(conn, "bytes 1001-51000/100000", LENGTH);
	httpd_write(conn, golden + AT + 1, LENGTH);
}

static void
no_total(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 1000-50999/*", LENGTH);
	httpd_write(conn, golden + AT, LENGTH);
}

static void
no_content_range(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n", LENGTH);
	httpd_write(conn, golden + AT, LENGTH);
}

static void
two_content_ranges(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 1000-50999/100000\r\nContent-Range: bytes 0-49999/100000", LENGTH);
	httpd_write(conn, golden, LENGTH);
}

static void
length_contradicts(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 1000-50999/100000", LENGTH - 1);
	httpd_write(conn, golden + AT, LENGTH - 1);
}

static void
object_ends(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 1000-1999/2000", 1000);
	httpd_write(conn, golden + AT, 1000);
}

static void
shorter_than_suffix(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 0-1999/2000", 2000);
	httpd_write(conn, golden, 2000);
}

/* N6: 200 for a range. */
static void
whole_for_range(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	HttpdRequest all = *request;

	all.has_range = false;
	good(conn, &all);
}

static void
whole_chunked_for_range(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", OBJECT_BYTES);
	httpd_write(conn, golden, OBJECT_BYTES);
	httpd_printf(conn, "\r\n0\r\n\r\n");
}

static void
huge_for_range(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n");
	for (int i = 0; i < 10; i++)
		httpd_write(conn, golden, OBJECT_BYTES);
	httpd_hang(conn);
}

static void
endless_for_range(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 300; i++)
	{
		httpd_printf(conn, "%x\r\n", OBJECT_BYTES);
		httpd_write(conn, golden, OBJECT_BYTES);
		httpd_printf(conn, "\r\n");
	}
	httpd_hang(conn);
}

/* N10: success whose body is an error page. */
static void
page_once(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number > 1)
		good(conn, request);
	else
		httpd_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n<Error>no</Error>");
}

/* Statuses, each always or once. */
static int
status_in_path(const HttpdRequest *request)
{
	return (int) strtol(strrchr(request->path, '-') + 1, NULL, 10);
}

static void
status_always(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 %d Told\r\nContent-Length: 7\r\n\r\n<Error>", status_in_path(request));
}

static void
status_twice(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number > 2)
		good(conn, request);
	else
		status_always(conn, request, arg);
}

static void
missing_cut(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 70\r\n\r\n<Error>");
	httpd_close(conn);
}

static void
missing_endless(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 404 Not Found\r\n\r\n");
	for (int i = 0; i < 100; i++)
		httpd_write(conn, golden, OBJECT_BYTES);
	httpd_close(conn);
}

/* N18: redirects. */
static void
redirect_good(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (strcmp(request->path, "/hop3") == 0)
		good(conn, request);
	else if (strcmp(request->path, "/hop2") == 0)
		httpd_status(conn, 307, "Location: hop3\r\n");
	else if (strcmp(request->path, "/hop1") == 0)
		httpd_status(conn, 302, "Location: /hop2\r\n");
	else
		httpd_status(conn, 301, "Location: /hop1\r\n");
}

static void
redirect_loop(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_status(conn, 301, "Location: /o\r\n");
}

static void
redirect_elsewhere(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_status(conn, 302, "Location: http://169.254.169.254/latest\r\n");
}

static void
redirect_to_file(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_status(conn, 302, "Location: file:///etc/passwd\r\n");
}

static void
redirect_nowhere(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_status(conn, 302, "");
}

/* N26 and what is no HTTP. */
static void
gzip_encoded(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 1000-50999/100000\r\nContent-Encoding: gzip", LENGTH);
	httpd_write(conn, golden + AT, LENGTH);
}

static void
identity_encoded(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 1000-50999/100000\r\nContent-Encoding: identity", LENGTH);
	httpd_write(conn, golden + AT, LENGTH);
}

static void
not_http(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "220 mail.example ESMTP\r\n");
	httpd_close(conn);
}

static void
headers_without_end(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 200 OK\r\n");
	for (int i = 0; i < 2000; i++)
		httpd_printf(conn, "X-Filler-%d: %0200d\r\n", i, i);
	httpd_hang(conn);
}

static void
no_length(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
	httpd_write(conn, golden, OBJECT_BYTES);
	httpd_close(conn);
}

static void
interim_then_good(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 103 Early Hints\r\nContent-Range: bytes 7-8/9\r\n\r\n");
	good(conn, request);
}

static void
part_for_whole(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	range_head(conn, "bytes 0-99999/100000", OBJECT_BYTES);
	httpd_write(conn, golden, OBJECT_BYTES);
}

static void
whole_too_long(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n");
	httpd_hang(conn);
}

static void
just_good(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good(conn, request);
}

/* N25: closes each connection after an answer, without saying so. */
static void
close_when_idle(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good(conn, request);
	httpd_close(conn);
}

static const Fault faults[] = {
	{.name = "o", .handler = just_good, .requests = 1},
	{.name = "o", .handler = reset_at_once, .requests = 2},
	{.name = "o", .handler = reset_at_0, .requests = 2},
	{.name = "o", .handler = reset_at_1, .requests = 2},
	{.name = "o", .handler = reset_at_last, .requests = 2},
	{.name = "o", .handler = reset_always, .status = TB_E_LOST, .requests = 3, .detail = "attempt 3 of 3"},
	{.name = "o", .handler = short_once, .requests = 2},
	{.name = "o", .handler = short_always, .status = TB_E_LOST, .requests = 3, .detail = "bytes 1000 to 50999"},
	{.name = "o", .handler = chunked_unfinished, .status = TB_E_LOST, .requests = 3},
	{.name = "o", .handler = chunked_good, .requests = 1},
	{.name = "o", .handler = chunked_too_short, .status = TB_E_LOST, .requests = 3},
	{.name = "o", .handler = chunked_too_long, .status = TB_E_PROTOCOL, .requests = 2},
	{.name = "o", .handler = other_range, .status = TB_E_PROTOCOL, .requests = 2, .detail = "attempt 2 of 2"},
	{.name = "o", .handler = lost_then_wrong, .requests = 3},
	{.name = "o", .handler = off_by_one, .requests = 2},
	{.name = "o", .handler = no_total, .status = TB_E_PROTOCOL, .requests = 2},
	{.name = "o", .handler = no_content_range, .status = TB_E_PROTOCOL, .requests = 2},
	{.name = "o", .handler = two_content_ranges, .status = TB_E_PROTOCOL, .requests = 2},
	{.name = "o", .handler = length_contradicts, .status = TB_E_PROTOCOL, .requests = 2},
	{.name = "o", .handler = object_ends, .status = TB_E_CORRUPT, .requests = 1, .detail = "has 2000 bytes"},
	{.name = "o", .handler = shorter_than_suffix, .kind = TB_RANGE_LAST, .status = TB_E_CORRUPT, .requests = 1},
	{.name = "o", .handler = whole_for_range, .requests = 1},
	{.name = "o", .handler = whole_for_range, .kind = TB_RANGE_LAST, .requests = 1},
	{.name = "o", .handler = whole_chunked_for_range, .requests = 1},
	{.name = "o", .handler = whole_chunked_for_range, .kind = TB_RANGE_LAST, .requests = 1},
	{.name = "o", .handler = huge_for_range, .status = TB_E_UNSUPPORTED, .requests = 1, .http_status = 200},
	{.name = "o", .handler = endless_for_range, .status = TB_E_UNSUPPORTED, .requests = 1},
	{.name = "o", .handler = page_once, .requests = 2},
	{.name = "o", .handler = page_once, .kind = TB_RANGE_LAST, .requests = 2},
	{.name = "s-416", .handler = status_always, .status = TB_E_CHANGED, .requests = 1, .http_status = 416},
	{.name = "s-416", .handler = status_always, .kind = TB_RANGE_LAST, .status = TB_E_CORRUPT, .requests = 1},
	{.name = "s-412", .handler = status_always, .status = TB_E_CHANGED, .requests = 1},
	{.name = "s-401", .handler = status_always, .status = TB_E_AUTH, .requests = 1, .http_status = 401},
	{.name = "s-403", .handler = status_always, .status = TB_E_DENIED, .requests = 1, .http_status = 403},
	{.name = "s-404", .handler = status_always, .requests = 1, .missing = true},
	{.name = "s-404", .handler = status_always, .requests = 1, .missing = true, .whole = true},
	{.name = "s-410", .handler = status_always, .requests = 1, .missing = true},
	{.name = "o", .handler = missing_cut, .requests = 1, .missing = true},
	{.name = "o", .handler = missing_endless, .requests = 1, .missing = true},
	{.name = "s-429", .handler = status_always, .status = TB_E_THROTTLED, .requests = 3},
	{.name = "s-503", .handler = status_always, .status = TB_E_THROTTLED, .requests = 3, .http_status = 503},
	{.name = "s-503", .handler = status_twice, .requests = 3},
	{.name = "s-500", .handler = status_twice, .requests = 3},
	{.name = "s-502", .handler = status_twice, .requests = 3},
	{.name = "s-504", .handler = status_twice, .requests = 3},
	{.name = "s-500", .handler = status_always, .status = TB_E_LOST, .requests = 3, .http_status = 500},
	{.name = "s-400", .handler = status_always, .status = TB_E_PROTOCOL, .requests = 1, .detail = "status 400"},
	{.name = "s-418", .handler = status_always, .status = TB_E_PROTOCOL, .requests = 1, .detail = "status 418"},
	{.name = "s-204", .handler = status_always, .status = TB_E_PROTOCOL, .requests = 1},
	{.name = "s-304", .handler = status_always, .status = TB_E_PROTOCOL, .requests = 1},
	{.name = "s-501", .handler = status_always, .status = TB_E_PROTOCOL, .requests = 1},
	{.name = "o", .handler = redirect_good, .requests = 4},
	{.name = "o", .handler = redirect_loop, .status = TB_E_PROTOCOL, .requests = 4},
	{.name = "o", .handler = redirect_elsewhere, .status = TB_E_DENIED, .requests = 1, .detail = "another host"},
	{.name = "o", .handler = redirect_to_file, .status = TB_E_DENIED, .requests = 1},
	{.name = "o", .handler = redirect_nowhere, .status = TB_E_PROTOCOL, .requests = 1},
	{.name = "o", .handler = gzip_encoded, .status = TB_E_PROTOCOL, .requests = 1},
	{.name = "o", .handler = identity_encoded, .requests = 1},
	{.name = "o", .handler = not_http, .status = TB_E_PROTOCOL, .requests = 2},
	{.name = "o", .handler = headers_without_end, .status = TB_E_PROTOCOL, .requests = 1},
	{.name = "o", .handler = no_length, .whole = true, .status = TB_E_PROTOCOL, .requests = 2},
	{.name = "o", .handler = interim_then_good, .requests = 1},
	{.name = "o", .handler = part_for_whole, .whole = true, .status = TB_E_PROTOCOL, .requests = 2},
	{.name = "o", .handler = whole_too_long, .whole = true, .status = TB_E_LIMIT, .requests = 1},
	{.name = "o", .handler = whole_chunked_for_range, .whole = true, .requests = 1},
};

static void
run_fault(size_t index, const Fault *f)
{
	TbIoOptions options = {.retries = f->retries != 0 ? f->retries : RETRIES};
	TbRangeKind kind = f->whole ? TB_RANGE_WHOLE : f->kind == TB_RANGE_WHOLE ? TB_RANGE_AT : f->kind;
	uint64_t	offset = kind == TB_RANGE_AT ? AT : kind == TB_RANGE_LAST ? OBJECT_BYTES - LENGTH : 0;
	uint64_t	length = f->whole ? OBJECT_BYTES : LENGTH;
	Rig			rig;
	Httpd	   *httpd = httpd_start(f->handler, NULL);
	TbStore    *store;
	TbRead		r;

	rig_open(&rig, 0, &options);
	store = open_store(&rig, httpd);
	(void) fetch_range(&rig, store, &r, f->name, kind, kind == TB_RANGE_AT ? offset : 0, length);
	if (r.status != f->status || httpd_requests(httpd) != f->requests || r.missing != f->missing)
		fail_msg("fault %zu: %s (%s; %s), %d requests", index, tb_status_name(r.status),
				 r.status != TB_OK ? r.error.message : "", r.status != TB_OK ? r.error.detail : "",
				 httpd_requests(httpd));
	if (f->status == TB_OK && !f->missing)
	{
		assert_bytes(&r, golden + offset, length);
		assert_int_equal(r.object_size, OBJECT_BYTES);
	}
	if (f->detail != NULL && strstr(r.error.detail, f->detail) == NULL)
		fail_msg("fault %zu: detail is \"%s\"", index, r.error.detail);
	if (f->http_status != 0)
		assert_int_equal(r.error.http_status, f->http_status);
	assert_int_equal(tb_store_counters(store).retries,
					 tb_store_counters(store).requests - 1);
	drop(&r);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

static void
catalogue(void **state)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		run_fault(i, &faults[i]);
}

/* N25: each connection is dead when it is wanted again; that is no failure and costs no retry. */
static void
idle_connections_die(void **state)
{
	TbIoOptions options = {.retries = -1};
	Rig			rig;
	Httpd	   *httpd = httpd_start(close_when_idle, NULL);
	TbStore    *store;
	TbRead		r;

	rig_open(&rig, 0, &options);
	store = open_store(&rig, httpd);
	for (int i = 0; i < 200; i++)
	{
		assert_int_equal(fetch_range(&rig, store, &r, "o", TB_RANGE_AT, AT, LENGTH), TB_OK);
		assert_bytes(&r, golden + AT, LENGTH);
		drop(&r);
	}
	assert_int_equal(tb_store_counters(store).retries, 0);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

static void
connections_are_kept(void **state)
{
	TbIoOptions options = {.max_connections = 4};
	TbRead		r[100];
	int			done = 0;
	Rig			rig;
	Httpd	   *httpd = httpd_start(just_good, NULL);
	TbStore    *store;

	rig_open(&rig, 0, &options);
	store = open_store(&rig, httpd);
	for (int i = 0; i < 100; i++)
	{
		r[i] = (TbRead) {.key = "o", .kind = TB_RANGE_AT, .offset = (uint64_t) i, .length = 1000,
			.done = count_done, .arg = &done};
		tb_store_read(store, &r[i]);
	}
	pump_until(&rig, &done, 100);
	for (int i = 0; i < 100; i++)
	{
		assert_bytes(&r[i], golden + i, 1000);
		drop(&r[i]);
	}
	assert_true(httpd_connections(httpd) <= 4);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

/* N27: no descriptor left for a socket. */
static void
no_descriptors(void **state)
{
	TbIoOptions options = {.retries = 1};
	struct rlimit before;
	struct rlimit none;
	Rig			rig;
	Httpd	   *httpd = httpd_start(just_good, NULL);
	TbStore    *store;
	TbRead		r;

	rig_open(&rig, 0, &options);
	store = open_store(&rig, httpd);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t) dup(0);	/* the lowest that is free */
	close((int) none.rlim_cur);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	(void) fetch_range(&rig, store, &r, "o", TB_RANGE_AT, AT, LENGTH);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(r.status, TB_E_THROTTLED);
	assert_int_equal(fetch_range(&rig, store, &r, "o", TB_RANGE_AT, AT, LENGTH), TB_OK);
	drop(&r);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

/* Random resets, short bodies and 503s under many reads: every byte is right in the end. */
static void
chaos_answer(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	switch (tb_mix64((uint64_t) request->number) % 12)
	{
		case 0:
			httpd_reset(conn);
			break;
		case 1:
			httpd_status(conn, 503, "Retry-After: 0\r\n");
			break;
		case 2:
			httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nContent-Length: 777\r\nETag: \"v1\"\r\n"
						 "Content-Range: bytes %llu-%llu/%d\r\n\r\nshort", (unsigned long long) request->first,
						 (unsigned long long) request->last, OBJECT_BYTES);
			httpd_close(conn);
			break;
		default:
			good(conn, request);
	}
}

static void
chaos(void **state)
{
	enum { N = 400 };
	TbIoOptions options = {.max_connections = 8, .retries = 12};
	TbRead	   *r = calloc(N, sizeof(*r));
	int			done = 0;
	Rig			rig;
	Httpd	   *httpd = httpd_start(chaos_answer, NULL);
	TbStore    *store;

	rig_open(&rig, 2, &options);
	store = open_store(&rig, httpd);
	for (int i = 0; i < N; i++)
	{
		r[i] = (TbRead) {.key = "o", .kind = TB_RANGE_AT, .offset = (uint64_t) i * 13, .length = 777,
			.done = count_done, .arg = &done};
		tb_store_read(store, &r[i]);
	}
	pump_until(&rig, &done, N);
	for (int i = 0; i < N; i++)
	{
		if (r[i].status != TB_OK)
			fail_msg("%s: %s", r[i].error.message, r[i].error.detail);
		assert_bytes(&r[i], golden + i * 13, 777);
		drop(&r[i]);
	}
	assert_true(tb_store_counters(store).retries > 0);
	free(r);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(catalogue),
		cmocka_unit_test(idle_connections_die),
		cmocka_unit_test(connections_are_kept),
		cmocka_unit_test(no_descriptors),
		cmocka_unit_test(chaos),
	};

	fill_golden();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
