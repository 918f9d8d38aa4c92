/*
 * Groups of a store that lists by requests: walking it, and going on without where listing is denied.
 */
#include "block_help.h"

#include "httpd.h"

#define GROUP "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}"
#define ARRAY \
	"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"int32\",\"fill_value\":3," \
	"\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[2]}}," \
	"\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"bytes\"," \
	"\"configuration\":{\"endian\":\"little\"}}],\"attributes\":{}}"

typedef struct File
{
	const char *key;
	const char *text;
} File;

typedef struct Bucket
{
	const File *file;			/* sorted; key NULL: the end */
	bool		no_list;		/* neither listing, nor knowing what is absent */
	int			lists;			/* atomic */
} Bucket;

static const File plain[] = {
	{"z/a/c/0", "12345678"}, {"z/a/zarr.json", ARRAY}, {"z/g/b/zarr.json", ARRAY}, {"z/g/zarr.json", GROUP},
	{"z/zarr.json", GROUP}, {NULL, NULL}
};
static const File consolidated[] = {
	{"z/zarr.json", "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{},\"consolidated_metadata\":"
	 "{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{\"a\":" ARRAY "}}}"}, {NULL, NULL}
};
static const File icechunk[] = {{"z/refs/main", "x"}, {"z/snapshots/1", "x"}, {NULL, NULL}};
static const File other[] = {{"z/readme", "x"}, {NULL, NULL}};

static void
deny(HttpdConn *conn)
{
	static const char text[] = "<Error><Code>AccessDenied</Code></Error>";

	httpd_printf(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: %zu\r\n\r\n%s", strlen(text), text);
}

/* One level below prefix ("z%2Fg%2F" as it comes). */
static void
answer_list(HttpdConn *conn, const Bucket *bucket, const char *asked)
{
	char		prefix[256] = "";
	char		xml[4096] = "<ListBucketResult>";
	char		last[256] = "";

	for (size_t n = 0; *asked != '\0' && *asked != '&'; n++)
	{
		prefix[n] = *asked == '%' ? '/' : *asked;
		prefix[n + 1] = '\0';
		asked += *asked == '%' ? 3 : 1;
	}
	for (const File *f = bucket->file; f->key != NULL; f++)
	{
		const char *rest = f->key + strlen(prefix);
		size_t		len;

		if (strncmp(f->key, prefix, strlen(prefix)) != 0)
			continue;
		len = strcspn(rest, "/");
		if (rest[len] == '\0')
			snprintf(xml + strlen(xml), sizeof(xml) - strlen(xml), "<Contents><Key>%s</Key></Contents>", f->key);
		else if (strncmp(last, rest, len) != 0 || last[len] != '\0')
			snprintf(xml + strlen(xml), sizeof(xml) - strlen(xml),
					 "<CommonPrefixes><Prefix>%s%.*s/</Prefix></CommonPrefixes>", prefix, (int) len, rest);
		snprintf(last, sizeof(last), "%.*s", (int) len, rest);
	}
	strcat(xml, "</ListBucketResult>");
	httpd_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(xml), xml);
}

static void
serve(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	Bucket	   *bucket = arg;
	const char *list = strstr(request->path, "prefix=");

	if (list != NULL)
	{
		__atomic_add_fetch(&bucket->lists, 1, __ATOMIC_RELAXED);
		if (bucket->no_list)
			deny(conn);
		else
			answer_list(conn, bucket, list + 7);
		return;
	}
	for (const File *f = bucket->file; f->key != NULL; f++)
		if (strcmp(request->path + strlen("/bucket/"), f->key) == 0)
		{
			HttpdObject object = {.path = request->path, .bytes = f->text, .len = strlen(f->text), .etag = "\"e\""};

			httpd_answer(conn, request, &object);
			return;
		}
	if (bucket->no_list)
		deny(conn);
	else
		httpd_answer(conn, request, NULL);
}

/* Open the group "z" of a bucket. names: the paths of its nodes, blank-separated, or a word of why not. */
static void
expect(Bucket *bucket, TbStatus expected, const char *names)
{
	Httpd	   *httpd = httpd_start(serve, bucket);
	TbEngine   *engine = engine_open(0);
	char		endpoint[64];
	TbStoreSpec spec = {
		.url = "s3://bucket", .endpoint = endpoint, .anonymous = true, .addressing = TB_ADDRESS_PATH
	};
	char		found[512] = "";
	TbSource   *source;
	TbGroup    *group;
	TbError		error;
	TbStatus	status;

	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", httpd_port(httpd));
	assert_ok(tb_source_open(engine, &spec, &source, &error), error);
	assert_ok(tb_group_open(source, "z", &group, &error), error);
	WAIT(engine, status, tb_group_poll(group, &error));
	if (status != expected)
		fail_msg("%s: %s", tb_status_name(status), status != TB_OK ? error.message : "");
	for (size_t i = 0; status == TB_OK && i < tb_group_nodes(group)->n; i++)
		snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s", i > 0 ? " " : "",
				 tb_group_nodes(group)->node[i].path);
	if (status == TB_OK)
	{
		assert_string_equal(found, names);
		assert_int_equal(tb_group_was_listed(group), bucket->lists == 0 || !bucket->no_list);
	}
	else
		assert_non_null(strstr(error.message, names));
	tb_group_free(group);
	/* ended in the middle */
	for (int steps = 0; steps < 8; steps++)
	{
		assert_ok(tb_group_open(source, "z", &group, &error), error);
		for (int i = 0; i < steps && tb_group_poll(group, &error) == TB_AGAIN; i++)
			(void) tb_loop_pump(tb_engine_loop(engine), 20);
		tb_group_free(group);
	}
	tb_source_unref(source);
	tb_engine_free(engine);
	httpd_stop(httpd);
}

static void
walked(void **state)
{
	Bucket		bucket = {.file = plain};

	expect(&bucket, TB_OK, "z z/a z/g z/g/b");
	assert_true(bucket.lists >= 3);
}

static void
denied(void **state)
{
	Bucket		all = {.file = consolidated, .no_list = true};
	Bucket		some = {.file = plain, .no_list = true};
	Bucket		none = {.file = other, .no_list = true};

	expect(&all, TB_OK, "z z/a");
	expect(&some, TB_OK, "z");
	/* absence is denied, too: no more can be said */
	expect(&none, TB_E_DENIED, "denies");
}

static void
not_zarr(void **state)
{
	Bucket		repository = {.file = icechunk};
	Bucket		readme = {.file = other};
	Bucket		empty = {.file = &plain[5]};

	expect(&repository, TB_E_UNSUPPORTED, "icechunk");
	expect(&readme, TB_E_NO_GROUP, "not a Zarr");
	expect(&empty, TB_E_NOT_FOUND, "does not exist");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(walked),
		cmocka_unit_test(denied),
		cmocka_unit_test(not_zarr),
	};

	return cmocka_run_group_tests_name("groups of a bucket", tests, NULL, NULL);
}
