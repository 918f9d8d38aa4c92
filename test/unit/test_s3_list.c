/* Pages of listings as servers write them, and as they should not; lists of several pages from a scripted server. */
#include "io_help.h"

#include "httpd.h"

#include "io/s3_list.h"
#include "io/s3_xml.h"

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>" \
	"<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define TAIL "</ListBucketResult>"
#define KEY(k) "<Contents><Key>" k "</Key><ETag>&quot;e&quot;</ETag><Size>1</Size></Contents>"
#define DIR(k) "<CommonPrefixes><Prefix>" k "</Prefix></CommonPrefixes>"
#define URL "<EncodingType>url</EncodingType>"
#define MORE(t) "<IsTruncated>true</IsTruncated><NextContinuationToken>" t "</NextContinuationToken>"

typedef struct Parsed
{
	TbStatus	status;
	TbStoreNames names;
	TbS3Page	page;
	TbError		err;
} Parsed;

static void
parse(Parsed *parsed, const char *prefix, const char *xml)
{
	size_t		room = 0;

	memset(parsed, 0, sizeof(*parsed));
	parsed->status = tb_s3_page_parse(xml, strlen(xml), prefix, &parsed->names, &room, &parsed->page, &parsed->err);
	tb_store_names_sort(&parsed->names);
}

/* names: "a b/ c", those with a slash are directories. */
static void
expect_names(const char *prefix, const char *xml, const char *names)
{
	Parsed		p;
	char		text[512] = "";

	parse(&p, prefix, xml);
	if (p.status != TB_OK)
		fail_msg("%s: %s", xml, p.err.message);
	for (size_t i = 0; i < p.names.n; i++)
		(void) snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s%s", i > 0 ? "|" : "", p.names.name[i],
						p.names.is_prefix[i] ? "/" : "");
	assert_string_equal(text, names);
	tb_store_free_names(&p.names);
}

static void
expect_refused(const char *prefix, const char *xml, const char *message)
{
	Parsed		p;

	parse(&p, prefix, xml);
	assert_int_equal(p.status, TB_E_PROTOCOL);
	assert_string_equal(p.err.message, message);
	tb_store_free_names(&p.names);
}

static void
names(void **state)
{
	expect_names("", HEAD TAIL, "");
	expect_names("", HEAD KEY("b") KEY("a") DIR("c/") TAIL, "a|b|c/");
	/* the directory's own marker */
	expect_names("l/", HEAD KEY("l/") KEY("l/a") TAIL, "a");
	/* entities, and percents where they are no encoding */
	expect_names("", HEAD KEY("a&amp;b") KEY("c&lt;d&#x41;") KEY("p%20q+r") TAIL, "a&b|c<dA|p%20q+r");
	/* radosgw and SeaweedFS: slashes encoded or not, blanks as %20 or +, the word for it first or last */
	expect_names("l/", HEAD URL KEY("l%2Fa%20b") KEY("l%2Fp%2520q") DIR("l/d%20%2B/") TAIL, "a b|d +/|p%20q");
	expect_names("l/", HEAD KEY("l/a+b") KEY("l/a%2Bb") KEY("l/ctl%01x") URL TAIL, "a b|a+b|ctl\x01x");
	expect_names("x y/", HEAD URL KEY("x+y/a") TAIL, "a");
	/* what no key of ours can name */
	expect_names("", HEAD KEY(".") KEY("..") DIR("../") DIR("/") KEY("a") TAIL, "a");
	expect_names("l/", HEAD DIR("l/a//") KEY("l/b/c") KEY("l/d") TAIL, "d");
	/* unknown elements and text in between */
	expect_names("", HEAD "\n <Owner><ID>x</ID></Owner> " KEY("a") "<KeyCount>1</KeyCount>\n" TAIL, "a");
}

static void
refused(void **state)
{
	char		long_name[10000];

	expect_refused("", "", "server answers with broken XML");
	expect_refused("", HEAD KEY("a"), "server answers with broken XML");
	expect_refused("", "not xml", "server answers with broken XML");
	expect_refused("", "<Error><Code>AccessDenied</Code></Error>", "server answers with something that is no listing");
	expect_refused("", "<html><body>proxy</body></html>", "server answers with something that is no listing");
	expect_refused("l/", HEAD KEY("m/a") TAIL, "server lists what was not asked for");
	expect_refused("", HEAD URL KEY("a%4") TAIL, "server lists a key that is badly encoded");
	expect_refused("", HEAD URL KEY("a%00b") TAIL, "server lists a key that is badly encoded");
	expect_refused("", HEAD "<IsTruncated>true</IsTruncated>" TAIL, "server breaks off a listing without saying where");
	expect_refused("", "<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult>" KEY("&b;") TAIL,
				   "server answers with a document type");
	expect_refused("", HEAD KEY("&undefined;") TAIL, "server answers with broken XML");
	expect_refused("", HEAD "<a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a>" TAIL,
				   "server answers with XML that is too deep");
	memset(long_name, 'x', sizeof(long_name));
	memcpy(long_name, HEAD "<Contents><Key>", strlen(HEAD "<Contents><Key>"));
	memcpy(long_name + 9900, "</Key></Contents>" TAIL, sizeof("</Key></Contents>" TAIL));
	expect_refused("", long_name, "server answers with a name that is too long");
}

static void
torture(void **state)
{
	static const char xml[] = HEAD URL KEY("a") KEY("b") DIR("c/") MORE("t") TAIL;
	int64_t		live = tb_mem_live();
	Parsed		p;

	for (uint64_t n = 1;; n++)
	{
		(void) tb_mem_fail_after(n);
		parse(&p, "", xml);
		(void) tb_mem_fail_after(0);
		tb_store_free_names(&p.names);
		assert_int_equal(tb_mem_live(), live);
		if (p.status == TB_OK)
			break;
		assert_int_equal(p.status, TB_E_NOMEM);
		assert_true(n < 1000);
	}
	assert_true(p.page.truncated);
	assert_string_equal(p.page.token, "t");
}

static void
escapes(void **state)
{
	TbBuf	   *out = tb_buf_new(0);

	assert_int_equal(tb_s3_query_escape(out, "a b/c+d%=&\xc3\xbc~"), TB_OK);
	assert_int_equal(tb_s3_xml_escape(out, "<\"&\">"), TB_OK);
	assert_int_equal(tb_buf_append(out, "", 1, SIZE_MAX), TB_OK);
	assert_string_equal((char *) out->data, "a%20b%2Fc%2Bd%25%3D%26%C3%BC~&lt;&quot;&amp;&quot;&gt;");
	tb_buf_unref(out);
}

/* ---- from a server ---- */

typedef struct Script
{
	const char *page[4];		/* in order; the last is repeated */
	int			status;			/* 0: 200 */
	int			asked;
	char		query[4][1024];
} Script;

static void
serve_pages(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	Script	   *script = arg;
	const char *at = strchr(request->path, '?');
	int			i = script->asked < 3 ? script->asked : 3;
	const char *body;

	(void) snprintf(script->query[i], sizeof(script->query[i]), "%s", at != NULL ? at + 1 : "");
	script->asked++;
	while (script->page[i] == NULL && i > 0)
		i--;
	body = script->page[i] != NULL ? script->page[i] : "";
	httpd_printf(conn, "HTTP/1.1 %d X\r\nContent-Type: application/xml\r\nContent-Length: %zu\r\n\r\n%s",
				 script->status != 0 ? script->status : 200, strlen(body), body);
}

/* List a prefix of s3://b/<below> at the script's server. owns: the job. */
static TbStatus
list(Script *script, const char *below, const char *prefix, const char *expected, TbError *err)
{
	Httpd	   *httpd = httpd_start(serve_pages, script);
	char		url[100];
	char		endpoint[64];
	char		text[512] = "";
	TbStoreSpec spec = {.url = url, .endpoint = endpoint, .anonymous = true};
	TbIoOptions options = {.retries = -1};
	Rig			rig;
	TbStore    *store;
	TbJob	   *job;
	TbStatus	status;

	(void) snprintf(url, sizeof(url), "s3://bucket%s", below);
	(void) snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", httpd_port(httpd));
	rig_open(&rig, 0, &options);
	assert_int_equal(tb_store_open(rig.io, &spec, &store, err), TB_OK);
	assert_int_equal(tb_store_begin_list(store, prefix, &job, err), TB_OK);
	while ((status = tb_job_poll(job, err)) == TB_AGAIN)
		(void) tb_loop_pump(rig.loop, 1000);
	for (size_t i = 0; i < tb_job_names(job)->n; i++)
		(void) snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s%s", i > 0 ? "|" : "",
						tb_job_names(job)->name[i], tb_job_names(job)->is_prefix[i] ? "/" : "");
	assert_string_equal(text, expected);
	tb_job_free(job);
	tb_store_close(store);
	rig_close(&rig);
	httpd_stop(httpd);
	return status;
}

static void
pages(void **state)
{
	Script		script = {.page = {HEAD KEY("p/q/b") DIR("p/q/d/") MORE("x/=+") TAIL, HEAD MORE("y") TAIL,
								   HEAD KEY("p/q/a") DIR("p/q/d/") TAIL}};
	TbError		err;

	assert_int_equal(list(&script, "/p", "q", "a|b|d/", &err), TB_OK);
	assert_int_equal(script.asked, 3);
	assert_string_equal(script.query[0], "delimiter=%2F&encoding-type=url&list-type=2&prefix=p%2Fq%2F");
	assert_string_equal(script.query[1],
						"continuation-token=x%2F%3D%2B&delimiter=%2F&encoding-type=url&list-type=2&prefix=p%2Fq%2F");
	assert_non_null(strstr(script.query[2], "continuation-token=y&"));
}

static void
whole_bucket(void **state)
{
	Script		script = {.page = {HEAD KEY("a") TAIL}};
	TbError		err;

	assert_int_equal(list(&script, "", "", "a", &err), TB_OK);
	assert_string_equal(script.query[0], "delimiter=%2F&encoding-type=url&list-type=2&prefix=");
}

static void
server_faults(void **state)
{
	Script		circle = {.page = {HEAD KEY("a") MORE("x") TAIL}};
	Script		denied = {.page = {"<Error><Code>AccessDenied</Code></Error>"}, .status = 403};
	Script		hidden = {.page = {"<Error><Code>InternalError</Code></Error>"}};
	Script		nothing = {.page = {"<Error><Code>NoSuchBucket</Code></Error>"}, .status = 404};
	Script		garbage = {.page = {"<html>"}};
	TbError		err;

	assert_int_equal(list(&circle, "", "", "", &err), TB_E_PROTOCOL);
	assert_string_equal(err.message, "server's listing goes round in circles");
	assert_int_equal(list(&denied, "", "", "", &err), TB_E_DENIED);
	assert_int_equal(list(&hidden, "", "", "", &err), TB_E_LOST);
	assert_int_equal(list(&nothing, "", "", "", &err), TB_E_NOT_FOUND);
	assert_int_equal(list(&garbage, "/k", "", "", &err), TB_E_PROTOCOL);
	assert_non_null(strstr(err.detail, "s3://bucket/k, prefix \"k/\""));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(refused),
		cmocka_unit_test(torture),
		cmocka_unit_test(escapes),
		cmocka_unit_test(pages),
		cmocka_unit_test(whole_bucket),
		cmocka_unit_test(server_faults),
	};

	return cmocka_run_group_tests_name("s3 lists", tests, NULL, NULL);
}
