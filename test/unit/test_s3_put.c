/*
 * Writing to S3 against a scripted server with one object: what it stores, what it refuses, and what happens to
 * the answers.
 */
#include "io_help.h"

#include <pthread.h>

#include "httpd.h"

#define LARGE_BYTES (((size_t) 17 << 20) + 5)	/* three parts */

typedef enum Fault
{
	NO_FAULT,
	LOST_PUT,					/* the object is stored, the answer is not sent */
	CONFLICT,					/* 409, once */
	GONE_CONFLICT,				/* 412 though nothing is there, once */
	PART_500,					/* the second part fails once */
	PART_DENIED,				/* and for good */
	PART_NO_ETAG,
	NO_UPLOAD_ID,
	JOIN_HIDDEN,				/* 200 with an error in it, once */
	JOIN_HIDDEN_ALWAYS,
	JOIN_LOST,					/* joined, the answer is not sent; then there is no such upload */
	JOIN_GONE,					/* no such upload, nothing joined */
	JOIN_EMPTY,
	JOIN_IGNORES_CONDITION,
	PARTS_HANG,
	NO_BUCKET,
	NO_SPACE
} Fault;

typedef struct Server
{
	pthread_mutex_t mu;
	Fault		fault;
	uint8_t    *object;			/* NULL: none */
	size_t		len;
	uint8_t    *part[8];
	size_t		part_len[8];
	int			now;			/* parts being sent */
	int			most;			/* at the same time */
	int			puts;
	int			gets;
	int			parts;
	int			joins;
	int			starts;
	int			aborts;
	bool		fault_done;
	char		join[4096];		/* the last body */
	bool		join_once;
} Server;

/* Whether a fault that comes once comes now. */
static bool
once(Server *s, Fault fault)
{
	if (s->fault != fault || s->fault_done)
		return false;
	s->fault_done = true;
	return true;
}

static void
keep(Server *s, const uint8_t *bytes, size_t len)
{
	free(s->object);
	s->object = malloc(len + 1);
	memcpy(s->object, bytes, len);
	s->len = len;
}

static void
say(HttpdConn *conn, int status, const char *headers, const char *body)
{
	httpd_printf(conn, "HTTP/1.1 %d X\r\n%sContent-Length: %zu\r\n\r\n%s", status, headers, strlen(body), body);
}

static bool
is_refused(Server *s, const HttpdRequest *request)
{
	char		value[32];

	return httpd_header(request, "If-None-Match", value, sizeof(value)) && strcmp(value, "*") == 0 && s->object != NULL;
}

static void
whole_put(Server *s, HttpdConn *conn, const HttpdRequest *request)
{
	s->puts++;
	if (s->fault == NO_BUCKET)
		say(conn, 404, "", "<Error><Code>NoSuchBucket</Code></Error>");
	else if (s->fault == NO_SPACE)
		say(conn, 507, "", "");
	else if (once(s, CONFLICT))
		say(conn, 409, "", "<Error><Code>ConditionalRequestConflict</Code></Error>");
	else if (once(s, GONE_CONFLICT) || is_refused(s, request))
		say(conn, 412, "", "<Error><Code>PreconditionFailed</Code></Error>");
	else
	{
		keep(s, request->body, request->body_len);
		if (once(s, LOST_PUT))
			httpd_reset(conn);
		else
			say(conn, 200, "ETag: \"w\"\r\n", "");
	}
}

static void
part_put(Server *s, HttpdConn *conn, const HttpdRequest *request)
{
	int			number = atoi(strstr(request->path, "partNumber=") + 11);
	char		etag[64];

	s->parts++;
	s->now++;
	s->most = s->now > s->most ? s->now : s->most;
	pthread_mutex_unlock(&s->mu);
	httpd_sleep(conn, 20);
	pthread_mutex_lock(&s->mu);
	s->now--;
	if (s->fault == PARTS_HANG)
	{
		pthread_mutex_unlock(&s->mu);
		httpd_hang(conn);
		pthread_mutex_lock(&s->mu);
		return;
	}
	if (number == 2 && once(s, PART_500))
	{
		say(conn, 500, "", "");
		return;
	}
	if (number == 2 && s->fault == PART_DENIED)
	{
		say(conn, 403, "", "<Error><Code>AccessDenied</Code></Error>");
		return;
	}
	free(s->part[number]);
	s->part[number] = malloc(request->body_len);
	s->part_len[number] = request->body_len;
	memcpy(s->part[number], request->body, request->body_len);
	(void) snprintf(etag, sizeof(etag), s->fault == PART_NO_ETAG ? "" : "ETag: \"p<%d>\"\r\n", number);
	say(conn, 200, etag, "");
}

static void
join_parts(Server *s)
{
	uint8_t    *all = malloc(LARGE_BYTES * 2);
	size_t		len = 0;

	for (int i = 1; i < 8; i++)
		if (s->part[i] != NULL)
		{
			memcpy(all + len, s->part[i], s->part_len[i]);
			len += s->part_len[i];
		}
	keep(s, all, len);
	free(all);
}

static void
join_post(Server *s, HttpdConn *conn, const HttpdRequest *request)
{
	static const char joined[] = "<CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
		"<ETag></ETag></CompleteMultipartUploadResult>";
	char		value[32];

	s->joins++;
	s->join_once = httpd_header(request, "If-None-Match", value, sizeof(value));
	(void) snprintf(s->join, sizeof(s->join), "%s", (char *) request->body);
	if (s->fault == JOIN_GONE || (s->fault == JOIN_LOST && s->fault_done))
		say(conn, 404, "", "<Error><Code>NoSuchUpload</Code></Error>");
	else if (s->fault == JOIN_HIDDEN_ALWAYS || once(s, JOIN_HIDDEN))
		say(conn, 200, "", "<Error><Code>InternalError</Code></Error>");
	else if (s->fault == JOIN_EMPTY)
		say(conn, 200, "", "");
	else if (s->fault != JOIN_IGNORES_CONDITION && is_refused(s, request))
		say(conn, 412, "", "<Error><Code>PreconditionFailed</Code></Error>");
	else
	{
		join_parts(s);
		if (once(s, JOIN_LOST))
			httpd_reset(conn);
		else
			say(conn, 200, "", joined);
	}
}

static void
serve(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	Server	   *s = arg;

	pthread_mutex_lock(&s->mu);
	if (strcmp(request->method, "GET") == 0)
	{
		HttpdObject object = {.path = "/b/k", .bytes = s->object, .len = s->len, .etag = "\"o\""};

		s->gets++;
		httpd_answer(conn, request, s->object != NULL ? &object : NULL);
	}
	else if (strcmp(request->method, "DELETE") == 0)
	{
		s->aborts += strstr(request->path, "uploadId=u%2F1") != NULL;
		say(conn, 204, "", "");
	}
	else if (strstr(request->path, "?uploads") != NULL)
	{
		s->starts++;
		say(conn, 200, "", s->fault == NO_UPLOAD_ID ?
			"<InitiateMultipartUploadResult></InitiateMultipartUploadResult>" :
			"<InitiateMultipartUploadResult><UploadId>u/1</UploadId></InitiateMultipartUploadResult>");
	}
	else if (strcmp(request->method, "POST") == 0)
		join_post(s, conn, request);
	else if (strstr(request->path, "partNumber=") != NULL)
		part_put(s, conn, request);
	else
		whole_put(s, conn, request);
	pthread_mutex_unlock(&s->mu);
}

/* ---- a store over it ---- */

typedef struct World
{
	Server		server;
	Httpd	   *httpd;
	Rig			rig;
	TbStore    *store;
	TbError		err;
} World;

static void
world_open(World *w, Fault fault)
{
	char		endpoint[64];
	TbStoreSpec spec = {.url = "s3://b", .endpoint = endpoint, .anonymous = true, .addressing = TB_ADDRESS_PATH};
	TbIoOptions options = {.retries = 2};

	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->server.mu, NULL);
	w->server.fault = fault;
	w->httpd = httpd_start(serve, &w->server);
	(void) snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", httpd_port(w->httpd));
	rig_open(&w->rig, 0, &options);
	assert_int_equal(tb_store_open(w->rig.io, &spec, &w->store, &w->err), TB_OK);
}

static void
world_close(World *w)
{
	tb_store_close(w->store);
	rig_close(&w->rig);
	httpd_stop(w->httpd);
	free(w->server.object);
	for (int i = 0; i < 8; i++)
		free(w->server.part[i]);
}

static TbBuf *
some_bytes(size_t len)
{
	TbBuf	   *bytes = tb_buf_new(len);

	for (size_t i = 0; i < len; i++)
		bytes->data[i] = (uint8_t) (i * 2654435761u >> 13);
	bytes->len = len;
	return bytes;
}

static void
pump_ms(World *w, int ms)
{
	for (int64_t end = tb_now_ns() + ms * INT64_C(1000000); tb_now_ns() < end;)
		(void) tb_loop_pump(w->rig.loop, 10);
}

static TbStatus
put(World *w, size_t len, bool create_once)
{
	TbBuf	   *bytes = some_bytes(len);
	TbJob	   *job;
	TbStatus	status;

	tb_error_clear(&w->err);
	assert_int_equal(tb_store_begin_put(w->store, "k", bytes, create_once, &job, &w->err), TB_OK);
	tb_buf_unref(bytes);
	while ((status = tb_job_poll(job, &w->err)) == TB_AGAIN)
		(void) tb_loop_pump(w->rig.loop, 1000);
	tb_job_free(job);
	return status;
}

/* The object is what put() writes. */
static void
expect_stored(World *w, size_t len)
{
	TbBuf	   *bytes = some_bytes(len);

	pthread_mutex_lock(&w->server.mu);
	assert_int_equal(w->server.len, len);
	assert_memory_equal(w->server.object, bytes->data, len);
	pthread_mutex_unlock(&w->server.mu);
	tb_buf_unref(bytes);
}

static void
has_object(World *w, const char *text)
{
	keep(&w->server, (const uint8_t *) text, strlen(text));
}

/* ---- one PUT ---- */

static void
small(void **state)
{
	World		w;

	world_open(&w, NO_FAULT);
	assert_int_equal(put(&w, 1000, false), TB_OK);
	expect_stored(&w, 1000);
	assert_int_equal(put(&w, 0, false), TB_OK);
	expect_stored(&w, 0);
	assert_int_equal(w.server.gets, 0);
	world_close(&w);
}

/* Make what is stored another's, or again what was put. A handler that has answered may still hold the bytes. */
static void
flip_stored(World *w, size_t at)
{
	pthread_mutex_lock(&w->server.mu);
	w->server.object[at] ^= 1;
	pthread_mutex_unlock(&w->server.mu);
}

static void
small_once(void **state)
{
	World		w;

	world_open(&w, NO_FAULT);
	assert_int_equal(put(&w, 1000, true), TB_OK);
	expect_stored(&w, 1000);
	assert_int_equal(put(&w, 999, true), TB_E_CHANGED);	/* longer */
	assert_string_equal(w.err.message, "object exists already");
	assert_int_equal(put(&w, 1001, true), TB_E_CHANGED);	/* shorter */
	flip_stored(&w, 500);
	assert_int_equal(put(&w, 1000, true), TB_E_CHANGED);
	flip_stored(&w, 500);
	assert_int_equal(put(&w, 1000, true), TB_OK);
	world_close(&w);
}

/* The first attempt did it: the second is told so and must not take it for another's. */
static void
small_lost(void **state)
{
	World		w;

	world_open(&w, LOST_PUT);
	assert_int_equal(put(&w, 1000, true), TB_OK);
	expect_stored(&w, 1000);
	assert_true(w.server.puts >= 2);
	assert_int_equal(w.server.gets, 1);
	world_close(&w);
}

static void
small_conflicts(void **state)
{
	World		w;

	world_open(&w, CONFLICT);
	assert_int_equal(put(&w, 1000, true), TB_OK);
	assert_int_equal(w.server.puts, 2);
	world_close(&w);
	world_open(&w, GONE_CONFLICT);
	assert_int_equal(put(&w, 1000, true), TB_OK);
	assert_int_equal(w.server.puts, 2);
	assert_int_equal(w.server.gets, 1);
	world_close(&w);
}

static void
small_refused(void **state)
{
	World		w;

	world_open(&w, NO_BUCKET);
	assert_int_equal(put(&w, 10, false), TB_E_NOT_FOUND);
	world_close(&w);
	world_open(&w, NO_SPACE);
	assert_int_equal(put(&w, 10, false), TB_E_NO_SPACE);
	world_close(&w);
}

/* ---- in parts ---- */

static void
large(void **state)
{
	World		w;

	world_open(&w, NO_FAULT);
	assert_int_equal(put(&w, LARGE_BYTES, false), TB_OK);
	expect_stored(&w, LARGE_BYTES);
	assert_int_equal(w.server.parts, 3);
	assert_true(w.server.most >= 2);
	assert_false(w.server.join_once);
	assert_int_equal(w.server.aborts, 0);
	assert_string_equal(w.server.join, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
						"<Part><PartNumber>1</PartNumber><ETag>&quot;p&lt;1&gt;&quot;</ETag></Part>"
						"<Part><PartNumber>2</PartNumber><ETag>&quot;p&lt;2&gt;&quot;</ETag></Part>"
						"<Part><PartNumber>3</PartNumber><ETag>&quot;p&lt;3&gt;&quot;</ETag></Part>"
						"</CompleteMultipartUpload>");
	world_close(&w);
}

static void
large_once(void **state)
{
	World		w;

	world_open(&w, NO_FAULT);
	assert_int_equal(put(&w, LARGE_BYTES, true), TB_OK);
	assert_true(w.server.join_once);
	/* there already: nothing is sent */
	assert_int_equal(put(&w, LARGE_BYTES, true), TB_OK);
	flip_stored(&w, LARGE_BYTES - 1);
	assert_int_equal(put(&w, LARGE_BYTES, true), TB_E_CHANGED);
	assert_int_equal(w.server.starts, 1);
	world_close(&w);
	/* a server that ignores the condition is not asked to replace */
	world_open(&w, JOIN_IGNORES_CONDITION);
	has_object(&w, "another's");
	assert_int_equal(put(&w, LARGE_BYTES, true), TB_E_CHANGED);
	assert_int_equal(w.server.len, strlen("another's"));
	world_close(&w);
}

/* Two who write the same large key at once, and one who reads its start: each is told of its own. */
static void
large_together(void **state)
{
	World		w;
	TbBuf	   *bytes;
	TbJob	   *job[2];
	int			done = 0;
	TbRead		read = {.key = "k", .kind = TB_RANGE_AT, .length = 100, .done = count_done, .arg = &done};

	world_open(&w, NO_FAULT);
	bytes = some_bytes(LARGE_BYTES);
	keep(&w.server, bytes->data, bytes->len);
	for (int i = 0; i < 2; i++)
		assert_int_equal(tb_store_begin_put(w.store, "k", bytes, true, &job[i], &w.err), TB_OK);
	tb_store_read(w.store, &read);
	for (int64_t end = tb_now_ns() + INT64_C(10000000000); tb_now_ns() < end &&
		 (done == 0 || tb_job_poll(job[0], &w.err) == TB_AGAIN || tb_job_poll(job[1], &w.err) == TB_AGAIN);)
		(void) tb_loop_pump(w.rig.loop, 10);
	assert_int_equal(done, 1);
	assert_int_equal(read.status, TB_OK);
	assert_memory_equal(read.data->data, bytes->data, 100);
	tb_buf_unref(read.data);
	for (int i = 0; i < 2; i++)
	{
		assert_int_equal(tb_job_poll(job[i], &w.err), TB_OK);
		tb_job_free(job[i]);
	}
	assert_int_equal(w.server.starts, 0);
	tb_buf_unref(bytes);
	world_close(&w);
}

static void
large_retries(void **state)
{
	static const Fault faults[] = {PART_500, JOIN_HIDDEN, JOIN_LOST};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
	{
		World		w;

		world_open(&w, faults[i]);
		assert_int_equal(put(&w, LARGE_BYTES, i == 2), TB_OK);
		expect_stored(&w, LARGE_BYTES);
		assert_int_equal(w.server.aborts, 0);
		world_close(&w);
	}
}

static void
large_fails(void **state)
{
	static const struct
	{
		Fault		fault;
		TbStatus	status;
		int			aborts;
	}			cases[] = {
		{PART_DENIED, TB_E_DENIED, 1}, {PART_NO_ETAG, TB_E_PROTOCOL, 1}, {NO_UPLOAD_ID, TB_E_PROTOCOL, 0},
		{JOIN_HIDDEN_ALWAYS, TB_E_LOST, 1}, {JOIN_GONE, TB_E_LOST, 0}, {JOIN_EMPTY, TB_E_PROTOCOL, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		World		w;

		world_open(&w, cases[i].fault);
		assert_int_equal(put(&w, LARGE_BYTES, false), cases[i].status);
		pump_ms(&w, 200);
		assert_int_equal(w.server.aborts, cases[i].aborts);
		assert_null(w.server.object);
		world_close(&w);
	}
}

static void
large_freed(void **state)
{
	World		w;
	TbBuf	   *bytes;
	TbJob	   *job;

	for (int closed = 0; closed < 2; closed++)
	{
		world_open(&w, PARTS_HANG);
		bytes = some_bytes(LARGE_BYTES);
		assert_int_equal(tb_store_begin_put(w.store, "k", bytes, false, &job, &w.err), TB_OK);
		tb_buf_unref(bytes);
		pump_ms(&w, 300);
		assert_int_equal(tb_job_poll(job, &w.err), TB_AGAIN);
		tb_job_free(job);
		/* with the store closed at once nobody can send it: nothing may be left behind either */
		if (closed == 0)
		{
			pump_ms(&w, 300);
			assert_int_equal(w.server.aborts, 1);
		}
		world_close(&w);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small),
		cmocka_unit_test(small_once),
		cmocka_unit_test(small_lost),
		cmocka_unit_test(small_conflicts),
		cmocka_unit_test(small_refused),
		cmocka_unit_test(large),
		cmocka_unit_test(large_once),
		cmocka_unit_test(large_together),
		cmocka_unit_test(large_retries),
		cmocka_unit_test(large_fails),
		cmocka_unit_test(large_freed),
	};

	return cmocka_run_group_tests_name("s3 puts", tests, NULL, NULL);
}
