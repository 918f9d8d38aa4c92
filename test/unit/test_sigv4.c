/*
 * Signatures against published ones: the examples of the S3 documentation and vectors of the Signature
 * Version 4 test suite.
 */
#include "io_help.h"

#include "io/sigv4.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

typedef struct Vector
{
	const char *name;
	const char *method;
	const char *path;
	const char *query;
	const char *body;			/* NULL: none */
	TbSigv4Header header[8];
	const char *names;
	const char *signature;
} Vector;

#define S3_HOST {"host", "examplebucket.s3.amazonaws.com"}
#define S3_DATE {"x-amz-date", "20130524T000000Z"}

static const Vector s3_vectors[] = {
	{"GET object", "GET", "/test.txt", NULL, NULL,
		{S3_HOST, {"range", "bytes=0-9"}, {"x-amz-content-sha256", EMPTY}, S3_DATE},
		"host;range;x-amz-content-sha256;x-amz-date",
	"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
	{"PUT object", "PUT", "/test%24file.text", NULL, "Welcome to Amazon S3.",
		{{"date", "Fri, 24 May 2013 00:00:00 GMT"}, S3_HOST,
			{"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"}, S3_DATE,
		{"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
		"date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
	"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
	{"GET bucket lifecycle", "GET", "/", "lifecycle", NULL,
		{S3_HOST, {"x-amz-content-sha256", EMPTY}, S3_DATE},
		"host;x-amz-content-sha256;x-amz-date",
	"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	{"list objects", "GET", "/", "prefix=J&max-keys=2", NULL,
		{S3_DATE, {"x-amz-content-sha256", EMPTY}, S3_HOST},
		"host;x-amz-content-sha256;x-amz-date",
	"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

#define HOST {"host", "example.amazonaws.com"}
#define DATE {"x-amz-date", "20150830T123600Z"}
#define TOKEN "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfp" \
	"SPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQ" \
	"DYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+s" \
	"cqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

static const Vector suite[] = {
	{"get-vanilla", "GET", "/", NULL, NULL, {HOST, DATE}, "host;x-amz-date",
	"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
	{"get-vanilla-query-order-key-case", "GET", "/", "Param2=value2&Param1=value1", NULL, {HOST, DATE},
	"host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
	{"get-utf8", "GET", "/%E1%88%B4", NULL, NULL, {HOST, DATE}, "host;x-amz-date",
	"8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
	{"get-unreserved", "GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", NULL, NULL,
		{HOST, DATE}, "host;x-amz-date",
	"07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
	{"get-header-value-trim", "GET", "/", NULL, NULL,
		{HOST, {"my-header1", " value1"}, {"my-header2", " \"a   b   c\""}, DATE},
		"host;my-header1;my-header2;x-amz-date",
	"acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
	{"get-header-key-duplicate", "GET", "/", NULL, NULL,
		{HOST, {"my-header1", "value2"}, {"my-header1", "value2"}, {"my-header1", "value1"}, DATE},
		"host;my-header1;x-amz-date",
	"c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
	{"get-header-value-order", "GET", "/", NULL, NULL,
		{HOST, {"my-header1", "value4"}, {"my-header1", "value1"}, {"my-header1", "value3"}, {"my-header1",
			"value2"},
		DATE}, "host;my-header1;x-amz-date",
	"08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
	{"post-vanilla", "POST", "/", NULL, NULL, {HOST, DATE}, "host;x-amz-date",
	"5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
	{"post-x-www-form-urlencoded", "POST", "/", NULL, "Param1=value1",
		{{"content-type", "application/x-www-form-urlencoded"}, HOST, DATE}, "content-type;host;x-amz-date",
	"ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
	{"post-sts-header-before", "POST", "/", NULL, NULL, {HOST, DATE, {"x-amz-security-token", TOKEN}},
	"host;x-amz-date;x-amz-security-token", "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
};

static void
check(TbSigv4Key *key, const Vector *v, const TbSigv4Who *who, const char *stamp, const char *service)
{
	char		hash[TB_SIGV4_HASH_BYTES];
	char		expected[256];
	TbBuf	   *out = tb_buf_new(0);
	TbSigv4Request request = {
		.method = v->method, .path = v->path, .query = v->query, .header = v->header, .body_hash = hash,
		.stamp = stamp, .region = "us-east-1", .service = service
	};

	while (v->header[request.n_headers].name != NULL)
		request.n_headers++;
	tb_sigv4_body_hash(v->body, v->body != NULL ? strlen(v->body) : 0, hash);
	assert_int_equal(tb_sigv4_sign(key, who, &request, out), TB_OK);
	(void) snprintf(expected, sizeof(expected),
					"AWS4-HMAC-SHA256 Credential=%s/%.8s/us-east-1/%s/aws4_request, SignedHeaders=%s, Signature=",
					who->access_key_id, stamp, service, v->names);
	if (out->len != strlen(expected) + 64 || memcmp(out->data, expected, strlen(expected)) != 0 ||
		memcmp(out->data + strlen(expected), v->signature, 64) != 0)
		fail_msg("%s: %.*s", v->name, (int) out->len, (const char *) out->data);
	tb_buf_unref(out);
}

static void
s3_examples(void **state)
{
	TbSigv4Who	who = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
	TbSigv4Key	key = {.valid = false};

	for (size_t i = 0; i < sizeof(s3_vectors) / sizeof(s3_vectors[0]); i++)
		check(&key, &s3_vectors[i], &who, "20130524T000000Z", "s3");
}

static void
test_suite(void **state)
{
	TbSigv4Who	who = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
	TbSigv4Key	key = {.valid = false};

	for (size_t i = 0; i < sizeof(suite) / sizeof(suite[0]); i++)
		check(&key, &suite[i], &who, "20150830T123600Z", "service");
}

/* The kept key is made anew when day, region, service or secret are others, and not otherwise. */
static void
kept_key(void **state)
{
	TbSigv4Who	s3 = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
	TbSigv4Who	other = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
	TbSigv4Key	key = {.valid = false};
	TbSigv4Key	before;

	for (int i = 0; i < 3; i++)
	{
		check(&key, &s3_vectors[i], &s3, "20130524T000000Z", "s3");
		before = key;
		check(&key, &s3_vectors[i], &s3, "20130524T000000Z", "s3");
		assert_memory_equal(&key, &before, sizeof(key));
		check(&key, &suite[i], &other, "20150830T123600Z", "service");
		assert_memory_not_equal(key.key, before.key, sizeof(key.key));
	}
}

static void
canonical_forms(void **state)
{
	static const TbSigv4Header headers[] = {{"x-amz-date", "20150830T123600Z"}, {"host", " \t a  \t b "}};
	TbSigv4Request request = {
		.method = "GET", .path = "/a%20b/%2B", .query = "uploads&prefix=a%2Fb&list-type=2&prefix=&a=1&a-b=2&a=0",
		.header = headers, .n_headers = 2, .body_hash = EMPTY, .stamp = "20150830T123600Z", .region = "r",
		.service = "s3"
	};
	TbBuf	   *out = tb_buf_new(0);
	TbBuf	   *names = tb_buf_new(0);

	assert_int_equal(tb_sigv4_canonical(&request, out, names), TB_OK);
	assert_int_equal(tb_buf_append(out, "", 1, SIZE_MAX), TB_OK);
	assert_string_equal((const char *) out->data,
						"GET\n/a%20b/%2B\na=0&a=1&a-b=2&list-type=2&prefix=&prefix=a%2Fb&uploads=\n"
						"host:a b\nx-amz-date:20150830T123600Z\n\nhost;x-amz-date\n" EMPTY);
	tb_buf_unref(out);
	tb_buf_unref(names);
}

static void
too_many(void **state)
{
	TbSigv4Header headers[TB_SIGV4_HEADERS_MAX + 1];
	char		query[TB_SIGV4_QUERY_MAX * 4 + 8] = "";
	TbSigv4Request request = {
		.method = "GET", .path = "/", .query = query, .header = headers, .n_headers = 1, .body_hash = EMPTY,
		.stamp = "20150830T123600Z", .region = "r", .service = "s3"
	};
	TbSigv4Who	who = {"a", "b"};
	TbSigv4Key	key = {.valid = false};
	TbBuf	   *out = tb_buf_new(0);

	for (int i = 0; i <= TB_SIGV4_HEADERS_MAX; i++)
		headers[i] = (TbSigv4Header) {"host", "h"};
	for (int i = 0; i < TB_SIGV4_QUERY_MAX; i++)
		strcat(query, "a=1&");
	assert_int_equal(tb_sigv4_sign(&key, &who, &request, out), TB_OK);
	strcat(query, "b=1");
	assert_int_equal(tb_sigv4_sign(&key, &who, &request, out), TB_E_LIMIT);
	request.query = NULL;
	request.n_headers = TB_SIGV4_HEADERS_MAX;
	assert_int_equal(tb_sigv4_sign(&key, &who, &request, out), TB_OK);
	request.n_headers++;
	assert_int_equal(tb_sigv4_sign(&key, &who, &request, out), TB_E_LIMIT);
	tb_buf_unref(out);
}

static void
stamps(void **state)
{
	char		stamp[TB_SIGV4_STAMP_BYTES];

	tb_sigv4_stamp(1369353600, stamp);
	assert_string_equal(stamp, "20130524T000000Z");
	tb_sigv4_stamp(1440938160, stamp);
	assert_string_equal(stamp, "20150830T123600Z");
	tb_sigv4_stamp(951782399, stamp);
	assert_string_equal(stamp, "20000228T235959Z");
}

/* Every allocation of a signature failed once: an error each time, and nothing is left. */
static void
memory_gone(void **state)
{
	TbSigv4Who	who = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
	int64_t		live = tb_mem_live();
	TbSigv4Request request = {
		.method = "GET", .path = "/", .query = "a=1", .header = s3_vectors[0].header, .n_headers = 4,
		.body_hash = EMPTY, .stamp = "20150830T123600Z", .region = "r", .service = "s3"
	};

	for (uint64_t n = 1;; n++)
	{
		TbSigv4Key	key = {.valid = false};
		TbBuf	   *out = tb_buf_new(0);
		TbStatus	status;

		(void) tb_mem_fail_after(n);
		status = tb_sigv4_sign(&key, &who, &request, out);
		(void) tb_mem_fail_after(0);
		tb_buf_unref(out);
		if (status == TB_OK)
		{
			assert_true(n > 4);
			break;
		}
		assert_int_equal(status, TB_E_NOMEM);
	}
	assert_int_equal(tb_mem_live(), live);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(s3_examples),
		cmocka_unit_test(test_suite),
		cmocka_unit_test(kept_key),
		cmocka_unit_test(canonical_forms),
		cmocka_unit_test(too_many),
		cmocka_unit_test(stamps),
		cmocka_unit_test(memory_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
