/*
 * S3 against a scripted server: what is signed and sent, what refusals teach, what errors become; and urls.
 */
#include "http_help.h"

#include "io/s3_error.h"
#include "io/s3_url.h"

#define CANARY "canarySECRET"

typedef struct Case
{
	const char *name;
	HttpdHandler handler;
	TbStatus	status;
	int			requests;
	bool		missing;
	const char *detail;			/* NULL: not looked at */
	TbRangeKind kind;			/* 0 is a whole read; AT else */
} Case;

static void
error(HttpdConn *conn, int status, const char *headers, const char *code, const char *more)
{
	char		body[1024];

	(void) snprintf(body, sizeof(body),
		"<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>m</Message>%s</Error>", code, more);
	httpd_printf(conn, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nx-amz-request-id: REQ1\r\n%s\r\n%s", status,
		strlen(body), headers, body);
}

static bool
signed_with(const HttpdRequest *request, const char *what)
{
	char		value[1024];

	return httpd_header(request, "Authorization", value, sizeof(value)) && strstr(value, what) != NULL;
}

#define ERROR(function, status, code) \
	static void \
	function(HttpdConn *conn, const HttpdRequest *request, void *arg) \
	{ \
		error(conn, status, "", code, ""); \
	}

ERROR(denied, 403, "AccessDenied")
ERROR(bad_key, 403, "InvalidAccessKeyId")
ERROR(bad_signature, 403, "SignatureDoesNotMatch")
ERROR(expired, 400, "ExpiredToken")
ERROR(no_key, 404, "NoSuchKey")
ERROR(no_bucket, 404, "NoSuchBucket")
ERROR(key_code_403, 403, "NoSuchKey")
ERROR(archived, 403, "InvalidObjectState")
ERROR(unknown, 400, "Weird\x1b\x5b\x33\x31m")

static void
slow_then_good(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number == 1)
		error(conn, 503, "", "SlowDown", "");
	else if (request->number == 2)
		error(conn, 500, "", "InternalError", "");
	else
		good(conn, request);
}

static void
region_in_body(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (signed_with(request, "/eu-west-3/s3/aws4_request"))
		good(conn, request);
	else
		error(conn, 400, "", "AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>");
}

static void
region_in_header(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (signed_with(request, "/eu-west-3/s3/aws4_request"))
		good(conn, request);
	else
		error(conn, 301, "x-amz-bucket-region: eu-west-3\r\n", "PermanentRedirect", "");
}

static void
region_never_right(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	error(conn, 400, "", "AuthorizationHeaderMalformed",
		request->number % 2 ? "<Region>a</Region>" : "<Region>b</Region>");
}

static void
region_hostile(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	error(conn, 400, "", "AuthorizationHeaderMalformed", "<Region>a/b&#13;&#10;X: y</Region>");
}

/* N18: to another host, down a scheme, in a circle. */
static void
to_other_host(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	error(conn, 307, "Location: http://evil.example.com/o\r\n", "TemporaryRedirect", "");
}

static void
to_other_port(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	error(conn, 307, "Location: http://127.0.0.1:1/o\r\n", "TemporaryRedirect", "");
}

static void
to_itself(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	error(conn, 307, "Location: /bucket/o\r\n", "TemporaryRedirect", "");
}

static void
nowhere(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	error(conn, 301, "", "PermanentRedirect", "<Endpoint>evil.example.com</Endpoint>");
}

/* N20 */
static void
other_clock(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	char		date[64];

	if (httpd_header(request, "x-amz-date", date, sizeof(date)) && strncmp(date, "20400101T", 9) == 0)
		good(conn, request);
	else
		error(conn, 403, "Date: Sun, 01 Jan 2040 00:00:30 GMT\r\n", "RequestTimeTooSkewed", "");
}

static void
skewed_always(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	error(conn, 403, "Date: Sun, 01 Jan 2040 00:00:30 GMT\r\n", "RequestTimeTooSkewed", "");
}

/* N10: to a range and to a whole. */
static void
error_as_200(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	if (request->number == 1)
		error(conn, 200, "", "InternalError", "");
	else
		good(conn, request);
}

static void
vast_error(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	httpd_printf(conn, "HTTP/1.1 403 X\r\nContent-Length: 1000000\r\n\r\n<Error><Code>AccessDenied</Code><M>");
	for (int i = 0; i < 1000; i++)
		httpd_write(conn, golden, 1000);
}

static TbStore *
open_s3(Rig *rig, Httpd *httpd)
{
	char		endpoint[64];
	TbStoreSpec spec = {.url = "s3://bucket", .endpoint = endpoint, .access_key_id = "AKID",
		.secret_access_key = CANARY};
	TbStore    *store;
	TbError		err;

	(void) snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", httpd_port(httpd));
	assert_int_equal(tb_store_open(rig->io, &spec, &store, &err), TB_OK);
	return store;
}

static const Case cases[] = {
	{"denied", denied, TB_E_DENIED, 1, false, "code AccessDenied; request id REQ1", TB_RANGE_AT},
	{"bad key", bad_key, TB_E_AUTH, 1, false, "InvalidAccessKeyId", TB_RANGE_AT},
	{"bad signature", bad_signature, TB_E_AUTH, 1, false, "SignatureDoesNotMatch", TB_RANGE_AT},
	{"expired", expired, TB_E_AUTH, 0, false, "ExpiredToken", TB_RANGE_AT},
	{"missing", no_key, TB_OK, 1, true, NULL, TB_RANGE_AT},
	{"bucket missing", no_bucket, TB_E_NOT_FOUND, 1, false, "NoSuchBucket", TB_RANGE_AT},
	{"a code alone proves nothing", key_code_403, TB_E_DENIED, 1, false, NULL, TB_RANGE_AT},
	{"archived", archived, TB_E_UNSUPPORTED, 1, false, NULL, TB_RANGE_AT},
	{"escaped", unknown, TB_E_PROTOCOL, 1, false, "HTTP status 400", TB_RANGE_AT},
	{"throttled", slow_then_good, TB_OK, 3, false, NULL, TB_RANGE_AT},
	{"region in the body", region_in_body, TB_OK, 2, false, NULL, TB_RANGE_AT},
	{"region in the head", region_in_header, TB_OK, 2, false, NULL, TB_RANGE_AT},
	{"region never right", region_never_right, TB_E_AUTH, 2, false, NULL, TB_RANGE_AT},
	{"region hostile", region_hostile, TB_E_AUTH, 1, false, NULL, TB_RANGE_AT},
	{"to another host", to_other_host, TB_E_DENIED, 1, false, "to another host", TB_RANGE_AT},
	{"to another port", to_other_port, TB_E_DENIED, 1, false, "to another port", TB_RANGE_AT},
	{"in a circle", to_itself, TB_E_PROTOCOL, 4, false, NULL, TB_RANGE_AT},
	{"nowhere", nowhere, TB_E_PROTOCOL, 1, false, "PermanentRedirect", TB_RANGE_AT},
	{"another clock", other_clock, TB_OK, 2, false, NULL, TB_RANGE_AT},
	{"no clock helps", skewed_always, TB_E_AUTH, 2, false, "RequestTimeTooSkewed", TB_RANGE_AT},
	{"error as 200, range", error_as_200, TB_OK, 2, false, NULL, TB_RANGE_AT},
	{"error as 200, whole", error_as_200, TB_OK, 2, false, NULL, TB_RANGE_WHOLE},
	{"vast error", vast_error, TB_E_DENIED, 1, false, "AccessDenied", TB_RANGE_AT},
};

static void
scripted(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	HttpdRequest at_root = *request;

	if (strcmp(request->path, "/bucket/o") != 0 || !signed_with(request, "SignedHeaders=host;"))
		httpd_status(conn, 418, "");
	else
	{
		(void) snprintf(at_root.path, sizeof(at_root.path), "/o");
		((const Case *) arg)->handler(conn, &at_root, arg);
	}
}

static void
refusals(void **state)
{
	TbIoOptions options = {.retries = 2};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		const Case *c = &cases[i];
		bool		whole = c->kind == TB_RANGE_WHOLE;
		Rig			rig;
		Httpd	   *httpd = httpd_start(scripted, (void *) c);
		TbStore    *store;
		TbRead		read;

		rig_open(&rig, 0, &options);
		store = open_s3(&rig, httpd);
		if (fetch_range(&rig, store, &read, "o", c->kind, whole ? 0 : AT,
			whole ? OBJECT_BYTES : LENGTH) != c->status ||
			read.missing != c->missing || (c->requests > 0 && httpd_requests(httpd) != c->requests))
			fail_msg("%s: %s, %d requests; %s; %s", c->name, tb_status_name(read.status),
				httpd_requests(httpd), read.error.message,
					 read.error.detail);
		if (read.status == TB_OK && !read.missing)
			assert_memory_equal(read.data->data, golden + (whole ? 0 : AT), read.data->len);
		else if (read.status != TB_OK)
		{
			if (c->detail != NULL && strstr(read.error.detail, c->detail) == NULL)
				fail_msg("%s: %s", c->name, read.error.detail);
			assert_null(strchr(read.error.detail, '\x1b'));
			assert_null(strstr(read.error.detail, CANARY));
			assert_null(strstr(read.error.detail, "Signature="));
		}
		tb_buf_unref(read.data);
		tb_store_close(store);
		rig_close(&rig);
		httpd_stop(httpd);
	}
}

/* What was learned is kept: the next read asks once. */
static void
lessons_stay(void **state)
{
	Rig			rig;
	Httpd	   *httpd = httpd_start(scripted, (void *) &cases[10]);
	TbStore    *store;
	TbRead		read;

	rig_open(&rig, 0, NULL);
	store = open_s3(&rig, httpd);
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(fetch_range(&rig, store, &read, "o", TB_RANGE_AT, AT, LENGTH), TB_OK);
		tb_buf_unref(read.data);
	}
	assert_int_equal(httpd_requests(httpd), 4);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
}

static void
url_is(const char *url, const char *endpoint, const char *region, TbAddressing addressing, const char *key,
	const char *expected)
{
	TbStoreSpec spec = {.url = url, .endpoint = endpoint, .region = region, .addressing = addressing};
	TbS3Place	place;
	TbError		err;
	char	   *made;

	if (tb_s3_place_init(&place, &spec, &err) != TB_OK)
		fail_msg("%s: %s; %s", url, err.message, err.detail);
	made = tb_s3_object_url(&place, key, NULL);
	assert_string_equal(made, expected);
	tb_free(made);
	tb_s3_place_free(&place);
}

static void
urls(void **state)
{
	static const char *const bad[] = {
		"s3://", "s3:///k", "s3://u:p@bucket/k", "s3://..", "s3://b/../k", "s3://b/k/.", "s3://b/k?x=1",
			"s3://b/k#f", "s3://b/a\nb",
		"s3://b\xc3\xa4/k", "s3://b c/k"
	};
	static const char *const bad_endpoints[] = {"host", "ftp://h", "http://h/path", "http://u@h", "http://",
		"http://h?x", "http://\xc3\xa4.de"};
	TbS3Place	place;
	TbError		err;

	url_is("s3://bucket/p", NULL, NULL, TB_ADDRESS_AUTO, "k", "https://bucket.s3.us-east-1.amazonaws.com/p/k");
	url_is("s3://bucket", NULL, "eu-west-3", TB_ADDRESS_PATH, "k", "https://s3.eu-west-3.amazonaws.com/bucket/k");
	url_is("s3://bucket", NULL, "cn-north-1", TB_ADDRESS_AUTO, "k",
		"https://bucket.s3.cn-north-1.amazonaws.com.cn/k");
	url_is("s3://my.dots", NULL, NULL, TB_ADDRESS_AUTO, "k", "https://s3.us-east-1.amazonaws.com/my.dots/k");
	url_is("s3://Upper_case", NULL, NULL, TB_ADDRESS_VIRTUAL, "k",
		"https://s3.us-east-1.amazonaws.com/Upper_case/k");
	url_is("s3://bucket/p/", "http://minio:9000", NULL, TB_ADDRESS_AUTO, "k", "http://minio:9000/bucket/p/k");
	url_is("s3://bucket", "http://minio:9000", NULL, TB_ADDRESS_VIRTUAL, "k", "http://bucket.minio:9000/k");
	url_is("s3://bucket", "https://minio:443/", NULL, TB_ADDRESS_AUTO, "k", "https://minio/bucket/k");
	url_is("s3://bucket", "http://[::1]:9000", NULL, TB_ADDRESS_AUTO, "k", "http://[::1]:9000/bucket/k");
	url_is("s3://bucket/a//b", "http://h", NULL, TB_ADDRESS_AUTO, "k", "http://h/bucket/a//b/k");
	url_is("s3://bucket//a", "http://h", NULL, TB_ADDRESS_AUTO, "k", "http://h/bucket//a/k");
	url_is("s3://bucket/a//", "http://h", NULL, TB_ADDRESS_AUTO, "k", "http://h/bucket/a//k");
	url_is("s3://bucket/a b%41+", "http://h", NULL, TB_ADDRESS_AUTO, "\xc3\xa4 ?#+",
		"http://h/bucket/a%20b%2541%2B/%C3%A4%20%3F%23%2B");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		TbStoreSpec spec = {.url = bad[i]};

		if (tb_s3_place_init(&place, &spec, &err) != TB_E_INVALID)
			fail_msg("accepted %s", bad[i]);
		assert_null(strstr(err.detail, "u:p"));
	}
	for (size_t i = 0; i < sizeof(bad_endpoints) / sizeof(bad_endpoints[0]); i++)
	{
		TbStoreSpec spec = {.url = "s3://bucket", .endpoint = bad_endpoints[i]};

		if (tb_s3_place_init(&place, &spec, &err) != TB_E_INVALID)
			fail_msg("accepted %s", bad_endpoints[i]);
	}
	assert_false(tb_s3_region_ok("a.b") || tb_s3_region_ok("") || tb_s3_region_ok("a/b") ||
		tb_s3_region_ok("-a") || tb_s3_region_ok("a\n"));
}

static void
redirects(void **state)
{
	static const struct
	{
		const char *endpoint;
		const char *to;
		TbStatus	status;
	}			moves[] = {
		{NULL, "https://bucket.s3-us-west-2.amazonaws.com/k", TB_OK},
		{NULL, "https://s3.eu-west-1.amazonaws.com/bucket/k", TB_OK},
		{NULL, "http://s3.eu-west-1.amazonaws.com/bucket/k", TB_E_DENIED},
		{NULL, "https://ec2-1-2-3-4.compute-1.amazonaws.com/k", TB_E_DENIED},
		{NULL, "https://evil.amazonaws.com/k", TB_E_DENIED},
		{NULL, "https://s3.evil.com/k", TB_E_DENIED},
		{NULL, "https://s3.amazonaws.com.evil.com/k", TB_E_DENIED},
		{NULL, "https://u@s3.eu-west-1.amazonaws.com/k", TB_E_DENIED},
		{"https://s3.corp", "https://west.s3.corp/bucket/k", TB_OK},
		{"https://s3.corp", "https://evils3.corp/bucket/k", TB_E_DENIED},
		{"https://s3.corp", "https://corp/bucket/k", TB_E_DENIED},
		{"https://10.0.0.1", "https://x.10.0.0.1/k", TB_E_DENIED},
	};

	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
	{
		TbStoreSpec spec = {.url = "s3://bucket", .endpoint = moves[i].endpoint};
		TbS3Place	place;
		TbError		err;
		char	   *from;
		char	   *target;

		assert_int_equal(tb_s3_place_init(&place, &spec, &err), TB_OK);
		from = tb_s3_object_url(&place, "k", NULL);
		if (tb_s3_redirect(&place, from, moves[i].to, &target, &err) != moves[i].status)
			fail_msg("%s to %s", from, moves[i].to);
		tb_free(target);
		tb_free(from);
		tb_s3_place_free(&place);
	}
}

static void
error_documents(void **state)
{
	static const char bomb[] = "<!DOCTYPE x [<!ENTITY a \"aaaa\">"
		"<!ENTITY b \"&a;&a;\">]><Error><Code>&b;</Code></Error>";
	static const char deep[] = "<Error><A><Code>Inner</Code></A><Code>Outer</Code><Code2>x</Code2>";
	TbS3Error	e;
	char		text[16];
	char		many[4096] = "";

	tb_s3_error_parse(bomb, strlen(bomb), &e);
	assert_false(e.is_error);
	tb_s3_error_parse(deep, strlen(deep), &e);
	assert_string_equal(e.code, "Outer");
	for (int i = 0; i < 1000; i++)
		memcpy(many + 3 * i, "<a>", 4);
	tb_s3_error_parse(many, strlen(many), &e);
	assert_false(e.is_error);
	tb_s3_error_parse(NULL, 0, &e);
	assert_string_equal(e.code, "");
	tb_s3_printable("a\r\n\x1b[31mb\\ccccccccccc", text, sizeof(text));
	assert_string_equal(text, "a\\x0d\\x0a\\x1b[3");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refusals),
		cmocka_unit_test(lessons_stay),
		cmocka_unit_test(urls),
		cmocka_unit_test(redirects),
		cmocka_unit_test(error_documents),
	};

	fill_golden();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
