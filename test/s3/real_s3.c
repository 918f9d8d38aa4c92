/*
 * The s3 store against a real server that verifies signatures. The server's address and keys come from the
 * environment, as s3-server.sh prints them; without S3_STS_ENDPOINT or S3_TLS_ENDPOINT those tests are skipped.
 */
#include "../unit/io_help.h"

#include "io/store.h"

#define OBJECT_BYTES 300000

static uint8_t golden[OBJECT_BYTES];

static const char *
env(const char *name)
{
	const char *value = getenv(name);

	return value != NULL ? value : "";
}

/* What every store here has. */
static TbStoreSpec
plain(const char *url)
{
	return (TbStoreSpec) {
		.url = url, .endpoint = env("S3_ENDPOINT"), .region = env("S3_REGION"),
			.access_key_id = env("S3_ACCESS_KEY"),
		.secret_access_key = env("S3_SECRET_KEY")
	};
}

static TbStore *
open_spec(Rig *rig, const TbStoreSpec *spec)
{
	TbStore    *store;
	TbError		err;

	if (tb_store_open(rig->io, spec, &store, &err) != TB_OK)
		fail_msg("%s; %s", err.message, err.detail);
	return store;
}

typedef struct Done
{
	int			n;
	TbStatus	status;
	bool		missing;
	TbError		error;
	char		version[96];
	size_t		bytes;
} Done;

static void
op_ended(TbOp *op)
{
	Done	   *done = op->arg;

	done->n++;
	done->status = op->status;
	done->missing = op->missing;
	done->error = op->error;
	done->bytes = op->data != NULL ? op->data->len : 0;
	memcpy(done->version, op->version, sizeof(done->version));
}

static TbStatus
do_op(Rig *rig, TbStore *store, TbVerb verb, const char *key, const char *query, const void *bytes,
	size_t len, bool once,
	  size_t answer, Done *done)
{
	TbOp	   *op = tb_op_new(store, verb, key, NULL, query);

	memset(done, 0, sizeof(*done));
	op->ended = op_ended;
	op->arg = done;
	op->create_once = once;
	op->length = answer;
	if (bytes != NULL)
	{
		op->body = tb_buf_new(len);
		assert_int_equal(tb_buf_append(op->body, bytes, len, len), TB_OK);
	}
	tb_op_submit(op);
	pump_until(rig, &done->n, 1);
	return done->status;
}

static void
put(Rig *rig, TbStore *store, const char *key, size_t len)
{
	Done		done;

	if (do_op(rig, store, TB_VERB_PUT, key, NULL, golden, len, false, 0, &done) != TB_OK || done.missing)
		fail_msg("PUT %s: %s; %s", key, done.error.message, done.error.detail);
}

static void
expect(Rig *rig, TbStore *store, const char *key, TbRangeKind kind, uint64_t offset, uint64_t length,
	size_t at, size_t n)
{
	TbRead		read;

	if (fetch_range(rig, store, &read, key, kind, offset, length) != TB_OK || read.missing)
		fail_msg("GET %s: missing %d %s; %s", key, read.missing, read.error.message, read.error.detail);
	assert_int_equal(read.data->len, n);
	assert_memory_equal(read.data->data, golden + at, n);
	assert_true(read.version[0] == '"');
	tb_buf_unref(read.data);
}

static void
ranges(void **state)
{
	Rig			rig;
	TbStoreSpec spec = plain("s3://tensorbank/r");
	TbStore    *store;
	TbRead		read;

	rig_open(&rig, 0, NULL);
	store = open_spec(&rig, &spec);
	put(&rig, store, "o", OBJECT_BYTES);
	expect(&rig, store, "o", TB_RANGE_WHOLE, 0, OBJECT_BYTES, 0, OBJECT_BYTES);
	expect(&rig, store, "o", TB_RANGE_AT, 0, 1, 0, 1);
	expect(&rig, store, "o", TB_RANGE_AT, 12345, 200000, 12345, 200000);
	expect(&rig, store, "o", TB_RANGE_AT, OBJECT_BYTES - 1, 1, OBJECT_BYTES - 1, 1);
	expect(&rig, store, "o", TB_RANGE_LAST, 0, 100, OBJECT_BYTES - 100, 100);
	assert_int_equal(fetch_range(&rig, store, &read, "o", TB_RANGE_AT, OBJECT_BYTES, 10), TB_E_CHANGED);
	assert_int_equal(fetch_range(&rig, store, &read, "o", TB_RANGE_AT, OBJECT_BYTES - 5, 10), TB_E_CORRUPT);
	assert_int_equal(fetch_range(&rig, store, &read, "o", TB_RANGE_WHOLE, 0, 1000), TB_E_LIMIT);
	assert_int_equal(fetch_range(&rig, store, &read, "gone", TB_RANGE_AT, 0, 10), TB_OK);
	assert_true(read.missing);
	tb_store_close(store);
	rig_close(&rig);
}

static void
versions(void **state)
{
	Rig			rig;
	TbStoreSpec spec = plain("s3://tensorbank");
	TbStore    *store;
	TbRead		read;
	char		version[96];

	rig_open(&rig, 0, NULL);
	store = open_spec(&rig, &spec);
	put(&rig, store, "v", 1000);
	assert_int_equal(fetch_range(&rig, store, &read, "v", TB_RANGE_AT, 0, 10), TB_OK);
	tb_buf_unref(read.data);
	memcpy(version, read.version, sizeof(version));
	read.if_version = version;
	assert_int_equal(fetch(&rig, store, &read), TB_OK);
	tb_buf_unref(read.data);
	put(&rig, store, "v", 2000);
	read.if_version = version;
	assert_int_equal(fetch(&rig, store, &read), TB_E_CHANGED);
	tb_store_close(store);
	rig_close(&rig);
}

static void
odd_keys(void **state)
{
	static const char *const keys[] = {
		"plain", "with space", "a+b", "100%", "%41", "%2F", "a%20b", "\xc3\xbc\xc3\xb1\xe2\x82\xac",
			"\xf0\x9f\x98\x80", "q?x=1&y", "hash#tag",
		"semi;colon", "co,mma", "equals=sign", "at@sign", "dollar$", "(paren)", "['x']", "quo\"te", "a:b", "tilde~", "star*", "ex!cl",
		"pipe|", "{brace}", "<lt>", "back`tick", "^caret", "deep/er/key", "c/0/0/0", ".zarray", "..hidden", "a../b"
	};
	Rig			rig;
	TbStoreSpec spec = plain("s3://tensorbank/odd %+\xc3\xa4/x");
	TbStore    *store;
	Done		done;

	rig_open(&rig, 0, NULL);
	store = open_spec(&rig, &spec);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		put(&rig, store, keys[i], 100 + i);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		expect(&rig, store, keys[i], TB_RANGE_WHOLE, 0, 1000, 0, 100 + i);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		assert_int_equal(do_op(&rig, store, TB_VERB_DELETE, keys[i], NULL, NULL, 0, false, 0, &done), TB_OK);
	tb_store_close(store);
	rig_close(&rig);
}

/* Empty segments are told apart (not by SeaweedFS). */
static void
odd_slashes(void **state)
{
	static const char *const urls[] = {"s3://tensorbank/a/b", "s3://tensorbank/a//b",
		"s3://tensorbank//a/b", "s3://tensorbank/a/b//"};
	Rig			rig;
	TbStore    *store[4];

	if (strcmp(env("S3_KIND"), "seaweedfs") == 0)
		skip();
	rig_open(&rig, 0, NULL);
	for (size_t i = 0; i < 4; i++)
	{
		TbStoreSpec spec = plain(urls[i]);

		store[i] = open_spec(&rig, &spec);
		put(&rig, store[i], "k", 10 + i);
	}
	for (size_t i = 0; i < 4; i++)
	{
		expect(&rig, store[i], "k", TB_RANGE_WHOLE, 0, 1000, 0, 10 + i);
		tb_store_close(store[i]);
	}
	rig_close(&rig);
}

static void
writing(void **state)
{
	Rig			rig;
	TbStoreSpec spec = plain("s3://tensorbank/w");
	TbStore    *store;
	Done		done;
	TbRead		read;

	rig_open(&rig, 0, NULL);
	store = open_spec(&rig, &spec);
	(void) do_op(&rig, store, TB_VERB_DELETE, "once", NULL, NULL, 0, false, 0, &done);
	assert_int_equal(do_op(&rig, store, TB_VERB_PUT, "once", NULL, golden, 1000, true, 0, &done), TB_OK);
	assert_true(done.version[0] == '"');
	assert_int_equal(do_op(&rig, store, TB_VERB_PUT, "once", NULL, golden, 500, true, 0, &done), TB_E_CHANGED);
	expect(&rig, store, "once", TB_RANGE_WHOLE, 0, 1000, 0, 1000);
	assert_int_equal(do_op(&rig, store, TB_VERB_PUT, "empty", NULL, "", 0, false, 0, &done), TB_OK);
	expect(&rig, store, "empty", TB_RANGE_WHOLE, 0, 1000, 0, 0);
	assert_int_equal(do_op(&rig, store, TB_VERB_POST, "multi", "uploads", NULL, 0, false, 10000, &done), TB_OK);
	assert_true(done.bytes > 50);
	assert_int_equal(do_op(&rig, store, TB_VERB_LIST, "", "list-type=2&prefix=w%2F", NULL, 0, false, 100000,
		&done), TB_OK);
	assert_true(done.bytes > 100);
	assert_int_equal(do_op(&rig, store, TB_VERB_LIST, "", "list-type=2&prefix=w%2F", NULL, 0, false, 100,
		&done), TB_E_LIMIT);
	assert_int_equal(do_op(&rig, store, TB_VERB_DELETE, "once", NULL, NULL, 0, false, 0, &done), TB_OK);
	assert_int_equal(fetch_range(&rig, store, &read, "once", TB_RANGE_WHOLE, 0, 1000), TB_OK);
	assert_true(read.missing);
	tb_store_close(store);
	rig_close(&rig);
}

static void
refuse(Rig *rig, const TbStoreSpec *spec, const char *key, TbStatus status, const char *detail)
{
	TbStore    *store = open_spec(rig, spec);
	TbRead		read;

	if (fetch_range(rig, store, &read, key, TB_RANGE_WHOLE, 0, 1000000) != status)
		fail_msg("%s: %s; %s; %s", tb_status_name(read.status), read.error.message, read.error.detail,
			read.error.hint);
	if (strstr(read.error.detail, detail) == NULL)
		fail_msg("%s", read.error.detail);
	if (strstr(read.error.detail, env("S3_SECRET_KEY")) != NULL || strstr(read.error.detail, "Signature=") != NULL)
		fail_msg("%s", read.error.detail);
	tb_store_close(store);
}

static void
refusals(void **state)
{
	Rig			rig;
	TbStoreSpec spec = plain("s3://tensorbank/r");

	rig_open(&rig, 0, NULL);
	spec.anonymous = true;
	refuse(&rig, &spec, "o", TB_E_DENIED, "AccessDenied");
	spec = plain("s3://tensorbank/r");
	spec.secret_access_key = "wrong";
	refuse(&rig, &spec, "o", TB_E_AUTH, "SignatureDoesNotMatch");
	spec = plain("s3://tensorbank/r");
	spec.access_key_id = "NOSUCHKEY";
	refuse(&rig, &spec, "o", TB_E_AUTH, "InvalidAccessKeyId");
	spec = plain("s3://no-such-bucket-here/r");
	refuse(&rig, &spec, "o", TB_E_NOT_FOUND, "NoSuchBucket");
	rig_close(&rig);
}

static void
virtual_host(void **state)
{
	Rig			rig;
	TbStoreSpec spec = plain("s3://tensorbank/r");
	char		endpoint[256];
	TbStore    *store;

	(void) snprintf(endpoint, sizeof(endpoint), "http://%s:%s", env("S3_VHOST_DOMAIN"),
		strrchr(env("S3_ENDPOINT"), ':') + 1);
	spec.endpoint = endpoint;
	spec.addressing = TB_ADDRESS_VIRTUAL;
	rig_open(&rig, 0, NULL);
	store = open_spec(&rig, &spec);
	put(&rig, store, "o", OBJECT_BYTES);
	expect(&rig, store, "o", TB_RANGE_AT, 5, 1000, 5, 1000);
	tb_store_close(store);
	rig_close(&rig);
}

static void
tls(void **state)
{
	Rig			rig;
	TbStoreSpec spec = plain("s3://tensorbank/r");
	TbStore    *store;

	if (env("S3_TLS_ENDPOINT")[0] == '\0')
		skip();
	spec.endpoint = env("S3_TLS_ENDPOINT");
	spec.ca_file = env("S3_CA_FILE");
	rig_open(&rig, 0, NULL);
	store = open_spec(&rig, &spec);
	expect(&rig, store, "o", TB_RANGE_AT, 5, 1000, 5, 1000);
	tb_store_close(store);
	rig_close(&rig);
}

static void
session_token(void **state)
{
	Rig			rig;
	TbStoreSpec spec = plain("s3://tensorbank/r");
	TbStore    *store;

	if (env("S3_SESSION_TOKEN")[0] == '\0')
		skip();
	spec.endpoint = env("S3_STS_ENDPOINT");
	spec.access_key_id = env("S3_TOKEN_ACCESS_KEY");
	spec.secret_access_key = env("S3_TOKEN_SECRET_KEY");
	spec.session_token = env("S3_SESSION_TOKEN");
	rig_open(&rig, 0, NULL);
	store = open_spec(&rig, &spec);
	expect(&rig, store, "o", TB_RANGE_AT, 5, 1000, 5, 1000);
	tb_store_close(store);
	spec.session_token = "AAAA";
	store = open_spec(&rig, &spec);
	{
		TbRead		read;

		assert_int_not_equal(fetch_range(&rig, store, &read, "o", TB_RANGE_AT, 5, 1000), TB_OK);
		print_message("made-up token: %s; %s\n", read.error.message, read.error.detail);
	}
	tb_store_close(store);
	rig_close(&rig);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges),
		cmocka_unit_test(versions),
		cmocka_unit_test(odd_keys),
		cmocka_unit_test(odd_slashes),
		cmocka_unit_test(writing),
		cmocka_unit_test(refusals),
		cmocka_unit_test(virtual_host),
		cmocka_unit_test(tls),
		cmocka_unit_test(session_token),
	};

	for (size_t i = 0; i < OBJECT_BYTES; i++)
		golden[i] = (uint8_t) (tb_mix64(i / 8) >> (i % 8 * 8));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
