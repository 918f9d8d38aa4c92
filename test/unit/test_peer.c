/*
 * Where network stores may lead: forms of addresses, what is written in urls and in allowed_hosts;
 * checksums of whole bodies.
 */
#include "http_help.h"

#include "io/http_checksum.h"
#include "io/http_request.h"
#include "io/url.h"

/* Whether a store of url, with a list of hosts, may connect to an address. */
static bool
may(const char *url, const char *hosts, bool any, const char *address)
{
	TbStoreSpec spec = {.url = url, .allowed_hosts = hosts, .any_address = any};
	TbPeers    *peers;
	TbError		err;
	bool		yes;

	if (tb_peers_new(url, &spec, &peers, &err) != TB_OK)
		fail_msg("%s: %s; %s", url, err.message, err.detail);
	yes = tb_peers_allow_text(peers, address);
	tb_peers_free(peers);
	return yes;
}

static void
names_lead_outside_only(void **state)
{
	static const char *const inside[] = {
		"127.0.0.1", "127.255.255.254", "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"169.254.169.254", "169.254.170.2", "168.63.129.16", "100.64.0.1", "100.127.255.255", "0.0.0.0", "0.1.2.3",
		"192.0.0.192", "198.18.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::1", "::",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:7f00:1", "::127.0.0.1", "fe80::1",
		"fe80::1%eth0", "febf::1", "fc00::1", "fd00:ec2::254", "fd12:3456::1", "fec0::1", "ff02::1",
		"64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
		"2002:c0a8:101::", "2001::1", "2001:db8::1", "100::1"
	};
	static const char *const outside[] = {
		"1.1.1.1", "52.216.0.1", "9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255",
		"192.169.0.0", "169.253.255.255", "169.255.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
			"128.0.0.1",
		"223.255.255.255", "2600:1f18::1", "2a00::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1"
	};

	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
		if (may("http://data.example.com", NULL, false, inside[i]))
			fail_msg("led to %s", inside[i]);
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
		if (!may("http://data.example.com", NULL, false, outside[i]))
			fail_msg("not led to %s", outside[i]);
	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
		assert_true(may("http://data.example.com", NULL, true, inside[i]));
}

/* All spellings of an address are that address; what names metadata services helps nobody. */
static void
urls_that_name_addresses(void **state)
{
	static const char *const loopback[] = {
		"http://127.0.0.1", "http://127.0.0.1:8080/x", "http://2130706433", "http://0x7f000001",
			"http://017700000001",
		"http://0177.0.0.1", "http://127.1", "http://127.0.1", "http://0x7f.1", "http://0x7f.0.0.0x1",
			"http://127.0.0.01",
		"http://[::ffff:127.0.0.1]", "http://[::ffff:7f00:1]", "http://localhost", "http://LOCALHOST:99",
			"http://b.localhost"
	};
	static const char *const metadata[] = {
		"http://169.254.169.254", "http://2852039166", "http://0xa9fea9fe", "http://025177524776",
			"http://169.254.43518",
		"http://169.16689662", "http://0251.0376.0251.0376", "http://0xa9.0xfe.0xa9.0xfe",
			"http://0xa9.254.0251.254",
		"http://[::ffff:169.254.169.254]", "http://[::ffff:a9fe:a9fe]", "http://169.254.169.254:80/latest",
		"http://metadata.google.internal", "http://169.254.169.254.nip.io"
	};
	static const char *const not_loopback[] = {
		"http://10.0.0.1", "http://127.0.0.2", "http://localhost.example.com", "http://xlocalhost", "http://0",
		"http://[::]", "http://data.example.com", "http://127.0.0.1.example.com", "http://[64:ff9b::1.1.1.1]"
	};

	for (size_t i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++)
	{
		if (!may(loopback[i], NULL, false, "127.0.0.1"))
			fail_msg("%s does not lead to itself", loopback[i]);
		if (may(loopback[i], NULL, false, "10.0.0.1") || may(loopback[i], NULL, false, "169.254.169.254"))
			fail_msg("%s leads elsewhere", loopback[i]);
	}
	for (size_t i = 0; i < sizeof(metadata) / sizeof(metadata[0]); i++)
		if (may(metadata[i], NULL, false, "169.254.169.254") || may(metadata[i], NULL, false, "fd00:ec2::254"))
			fail_msg("%s leads to metadata", metadata[i]);
	for (size_t i = 0; i < sizeof(not_loopback) / sizeof(not_loopback[0]); i++)
		if (may(not_loopback[i], NULL, false, "127.0.0.1") || may(not_loopback[i], NULL, false, "::1"))
			fail_msg("%s leads to loopback", not_loopback[i]);
	assert_true(may("http://[::1]:9", NULL, false, "::1"));
	assert_true(may("http://[fd12::5]", NULL, false, "fd12::5"));
	assert_false(may("http://[fd12::5]", NULL, false, "fd12::6"));
	assert_true(may("http://192.168.7.1", NULL, false, "192.168.7.1"));
	assert_false(may("http://[fe80::1]", NULL, false, "fe80::1"));
}

static void
urls_refused(void **state)
{
	static const char *const bad[] = {
		"http://", "http:///x", "http://user@h/", "http://user:pw@h/", "http://h/?q", "http://h/#f",
			"http://h/\r\nX: y",
		"http://h\r\n/", "http://h /", "http://h\\@evil/", "http://h/..", "http://h/%2e%2e/x",
			"http://h/%00", "http://h:99999/",
		"http://h:x/", "http://[::1", "http://[zz]/", "http://127.0.0.1\t/"
	};
	TbError		err;
	char	   *clean;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (tb_url_check_http(bad[i], &clean, &err) != TB_E_INVALID)
			fail_msg("accepted %s", bad[i]);
}

static void
allowed_hosts(void **state)
{
	static const char *const bad[] = {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "fd00::/129", "a b/c",
		"http://h", "h:80", "*", "*."};
	TbPeers    *peers;
	TbError		err;

	assert_true(may("http://minio.corp", "minio.corp", false, "10.1.2.3"));
	assert_true(may("http://MinIO.corp:9000", "x.y, minio.CORP", false, "127.0.0.1"));
	assert_false(may("http://minio.corp", "other.corp", false, "10.1.2.3"));
	assert_true(may("http://a.minio.corp", "*.minio.corp", false, "10.1.2.3"));
	assert_false(may("http://minio.corp", "*.minio.corp", false, "10.1.2.3"));
	assert_false(may("http://evilminio.corp", "*.minio.corp", false, "10.1.2.3"));
	assert_true(may("http://h", "10.0.0.0/8", false, "10.255.0.1"));
	assert_true(may("http://h", "10.0.0.0/8", false, "::ffff:10.255.0.1"));
	assert_true(may("http://h", "10.0.0.0/8", false, "11.0.0.1"));	/* public */
	assert_false(may("http://h", "10.0.0.0/9", false, "10.128.0.1"));
	assert_true(may("http://h", "192.168.1.7", false, "192.168.1.7"));
	assert_false(may("http://h", "192.168.1.7", false, "192.168.1.8"));
	assert_true(may("http://h", "fd12::/16", false, "fd12:1::1"));
	assert_true(may("http://h", "169.254.0.0/16", false, "169.254.169.254"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		TbStoreSpec spec = {.url = "http://h", .allowed_hosts = bad[i]};

		if (tb_peers_new("http://h", &spec, &peers, &err) != TB_E_INVALID)
			fail_msg("accepted %s", bad[i]);
	}
}

static void
answer_well(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	good(conn, request);
}

/* A connection that one store may use is no way round for another; and the refusal is told as such. */
static void
kept_connections(void **state)
{
	Rig			rig;
	Httpd	   *httpd = httpd_start(answer_well, NULL);
	char		url[64];
	TbStoreSpec spec = {.url = url, .any_address = true};
	TbStore    *free_one;
	TbStore    *bound;
	TbRead		read;
	TbError		err;

	(void) snprintf(url, sizeof(url), "http://localhost:%d", httpd_port(httpd));
	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_store_open(rig.io, &spec, &free_one, &err), TB_OK);
	assert_int_equal(fetch_range(&rig, free_one, &read, "o", TB_RANGE_AT, AT, LENGTH), TB_OK);
	tb_buf_unref(read.data);
	spec.any_address = false;
	assert_int_equal(tb_store_open(rig.io, &spec, &bound, &err), TB_OK);
	/* as if its name were another one that leads here now */
	tb_peers_free(((TbHttpStore *) bound)->peers);
	assert_int_equal(tb_peers_new("http://data.example.com", &spec, &((TbHttpStore *) bound)->peers, &err), TB_OK);
	assert_int_equal(fetch_range(&rig, bound, &read, "o", TB_RANGE_AT, AT, LENGTH), TB_E_DENIED);
	assert_non_null(strstr(read.error.hint, "allowed_hosts"));
	assert_int_equal(httpd_requests(httpd), 1);
	tb_store_close(bound);
	assert_int_equal(tb_store_open(rig.io, &spec, &bound, &err), TB_OK);
	assert_int_equal(fetch_range(&rig, bound, &read, "o", TB_RANGE_AT, AT, LENGTH), TB_OK);
	tb_buf_unref(read.data);
	tb_store_close(free_one);
	tb_store_close(bound);
	rig_close(&rig);
	httpd_stop(httpd);
}

/* A store finds in a cache only what it may reach itself. */
static void
scopes(void **state)
{
	const TbStoreSpec specs[] = {
		{.url = "http://inside.example/x"},
		{.url = "http://inside.example/x", .any_address = true},
		{.url = "http://inside.example/x", .allowed_hosts = "10.0.0.0/8"},
		{.url = "http://inside.example/x", .allowed_hosts = "10.0.0.0/9"},
		{.url = "http://inside.example/x", .any_address = true, .user = "u", .password = "p"},
		{.url = "s3://b", .endpoint = "http://inside.example", .anonymous = true},
		{.url = "s3://b", .endpoint = "http://inside.example", .anonymous = true, .any_address = true},
	};
	uint8_t		scope[sizeof(specs) / sizeof(specs[0])][32];

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
	{
		uint8_t		again[32];

		for (int n = 0; n < 2; n++)
		{
			Rig			rig;
			TbStore    *store;

			rig_open(&rig, 0, NULL);
			assert_int_equal(tb_store_open(rig.io, &specs[i], &store, NULL), TB_OK);
			store->ops->scope(store, n == 0 ? scope[i] : again);
			tb_store_close(store);
			rig_close(&rig);
		}
		assert_memory_equal(scope[i], again, 32);
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(scope[i], scope[k], 32);
	}
}

static void
checksums(void **state)
{
	static const char *const known[TB_CHECKSUMS] = {
		[TB_CHECKSUM_CRC32] = "y/Q5Jg==", [TB_CHECKSUM_CRC32C] = "4waSgw==",
			[TB_CHECKSUM_CRC64NVME] = "rosUhgp5mIg=",
		[TB_CHECKSUM_SHA256] = "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
			[TB_CHECKSUM_MD5] = "JfnnlDI7RTiF9RgfG2JNCw=="
	};
	TbHttpHead	head;
	const char *which;
	char		text[48];

	for (int i = 0; i < TB_CHECKSUMS; i++)
	{
		assert_true(tb_checksum((TbChecksum) i, "123456789", 9, text));
		assert_string_equal(text, known[i]);
		tb_head_reset(&head);
		(void) snprintf(head.checksum[i], sizeof(head.checksum[i]), "%s", known[i]);
		assert_true(tb_checksum_agrees(&head, "123456789", 9, &which));
		assert_false(tb_checksum_agrees(&head, "123456780", 9, &which));
		assert_non_null(strstr(which, i == TB_CHECKSUM_MD5 ? "md5" : "x-amz-checksum-"));
		(void) snprintf(head.checksum[i], sizeof(head.checksum[i]), "%.40s-2", known[i]);
		assert_true(tb_checksum_agrees(&head, "other", 5, &which));
	}
}

static void
wrong_checksum(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	bool		right = *(const int *) arg > 0 && request->number > *(const int *) arg;

	httpd_printf(conn,
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: \"v\"\r\nx-amz-checksum-crc32c: %s\r\n\r\n123456789",
				 right ? "4waSgw==" : "AAAAAA==");
}

/* N23: once more on a new connection, then it is corrupt. */
static void
checksum_disagrees(void **state)
{
	for (int wrong = 0; wrong < 2; wrong++)
	{
		Rig			rig;
		Httpd	   *httpd = httpd_start(wrong_checksum, &wrong);
		TbStore    *store;
		TbRead		read;

		rig_open(&rig, 0, NULL);
		store = open_store(&rig, httpd);
		assert_int_equal(fetch_range(&rig, store, &read, "o", TB_RANGE_WHOLE, 0, 100),
			wrong ? TB_OK : TB_E_CORRUPT);
		assert_int_equal(httpd_requests(httpd), 2);
		if (wrong)
			tb_buf_unref(read.data);
		tb_store_close(store);
		rig_close(&rig);
		httpd_stop(httpd);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_lead_outside_only),
		cmocka_unit_test(urls_that_name_addresses),
		cmocka_unit_test(urls_refused),
		cmocka_unit_test(allowed_hosts),
		cmocka_unit_test(kept_connections),
		cmocka_unit_test(scopes),
		cmocka_unit_test(checksums),
		cmocka_unit_test(checksum_disagrees),
	};

	fill_golden();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
