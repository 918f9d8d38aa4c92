/* The pure parts of HTTP: headers, versions, delays between attempts. */
#include "io_help.h"

#include "io/http_head.h"
#include "io/store.h"

static void
content_ranges(void **state)
{
	static const char *const bad[] = {
		"", "0-1", "0-1/", "/10", "-1/10", "0-/10", "0-1/*", "*/10", " 0-1/10", "0-1/10 ", "0 -1/10", "+0-1/10",
		"0-1/10x", "0x0-1/10", "2-1/10", "0-10/10", "0-1/1", "-0-1/10", "0--1/10", "0-1//10", "0-1/10/10",
		"0-1/9223372036854775808", "99999999999999999999-99999999999999999999/99999999999999999999"
	};
	uint64_t	a;
	uint64_t	b;
	uint64_t	n;

	assert_true(tb_head_parse_range("0-0/1", 5, &a, &b, &n));
	assert_true(tb_head_parse_range("17-99/1000", 10, &a, &b, &n));
	assert_true(a == 17 && b == 99 && n == 1000);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (tb_head_parse_range(bad[i], strlen(bad[i]), &a, &b, &n))
			fail_msg("accepted \"%s\"", bad[i]);
}

/* Feed a head given as one text with \n between lines. */
static bool
feed(TbHttpHead *head, const char *text, int64_t now_s)
{
	bool		good = true;

	tb_head_reset(head);
	while (*text != '\0')
	{
		size_t		n = strcspn(text, "\n") + 1;

		good = tb_head_line(head, text, n, now_s) && good;
		text += n;
	}
	return good;
}

static void
heads(void **state)
{
	TbHttpHead	h;

	assert_true(feed(&h, "HTTP/1.1 206 Partial\ncontent-RANGE:\tbytes 5-6/7\t\nContent-Length: 2\nETag: \"x\"\n\n", 0));
	assert_true(h.complete && h.status == 206 && h.range_field == TB_FIELD_GOOD && h.first == 5 && h.last == 6);
	assert_true(h.total == 7 && h.length_field == TB_FIELD_GOOD && h.length == 2);
	assert_string_equal(h.etag, "\"x\"");

	assert_true(feed(&h, "HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 2\n\n", 0));
	assert_int_equal(h.length_field, TB_FIELD_GOOD);
	assert_true(feed(&h, "HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 3\n\n", 0));
	assert_int_equal(h.length_field, TB_FIELD_BAD);
	assert_true(feed(&h, "HTTP/1.1 200 OK\nContent-Length: -2\n\n", 0));
	assert_int_equal(h.length_field, TB_FIELD_BAD);
	assert_true(feed(&h, "HTTP/1.1 206 OK\nContent-Range: bytes 0-1/2\nContent-Range: bytes 0-1/2\n\n", 0));
	assert_int_equal(h.range_field, TB_FIELD_BAD);
	assert_true(feed(&h, "HTTP/1.1 206 OK\nContent-Range: items 0-1/2\n\n", 0));
	assert_int_equal(h.range_field, TB_FIELD_BAD);

	/* an interim head is forgotten, a trailer changes nothing */
	assert_true(feed(&h, "HTTP/1.1 100 Continue\nETag: \"old\"\n\nHTTP/1.1 200 OK\nContent-Length: 1\n\n"
					 "ETag: \"late\"\nContent-Encoding: gzip\n", 0));
	assert_true(h.complete && h.status == 200 && h.etag_field == TB_FIELD_ABSENT && !h.encoded);

	assert_true(feed(&h, "HTTP/1.1 200 OK\nContent-Encoding: GZIP\n\n", 0) && h.encoded);
	assert_true(feed(&h, "HTTP/1.1 200 OK\nContent-Encoding: Identity\n\n", 0) && !h.encoded);
	assert_true(feed(&h, "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", 0) && h.chunked);

	assert_true(feed(&h, "HTTP/1.1 503 No\nRetry-After: 7\n\n", 0) && h.retry_after_ms == 7000);
	assert_true(feed(&h, "HTTP/1.1 503 No\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\n\n", 1445412470) &&
				h.retry_after_ms == 10000);
	assert_true(feed(&h, "HTTP/1.1 503 No\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\n\n", 1945412470) &&
				h.retry_after_ms == 0);
	assert_true(feed(&h, "HTTP/1.1 503 No\nRetry-After: soon\n\n", 0) && h.retry_after_ms == -1);
	assert_true(feed(&h, "HTTP/1.1 503 No\nRetry-After: 1000000000000\n\n", 0) && h.retry_after_ms > 0);
}

static void
head_is_bounded(void **state)
{
	TbHttpHead	h;
	char		line[1024];
	int			lines = 0;

	memset(line, 'a', sizeof(line));
	tb_head_reset(&h);
	while (tb_head_line(&h, line, sizeof(line), 0))
		assert_true(++lines <= 64);
	assert_int_equal(lines, 64);
}

static void
check_version(const char *head, uint64_t size, const char *expected)
{
	TbHttpHead	h;
	char		version[96];

	assert_true(feed(&h, head, 0));
	tb_head_version(&h, size, version);
	assert_string_equal(version, expected);
}

static void
versions(void **state)
{
	TbHttpHead	h;
	char		head[512];
	char		version[96];
	char		other[96];

	check_version("HTTP/1.1 200 OK\nETag: \"a\"\nLast-Modified: D\n\n", 5, "\"a\"");
	check_version("HTTP/1.1 200 OK\nETag: a\n\n", 5, "a");
	check_version("HTTP/1.1 200 OK\nETag: W/\"a\"\nLast-Modified: D\n\n", 5, "5-D");
	check_version("HTTP/1.1 200 OK\nETag: W/\"a\"\n\n", 5, "W/\"a\"");
	check_version("HTTP/1.1 200 OK\nLast-Modified: D\n\n", 5, "5-D");
	check_version("HTTP/1.1 200 OK\nETag: \"a\"\nETag: \"b\"\nLast-Modified: D\n\n", 5, "5-D");
	check_version("HTTP/1.1 200 OK\n\n", 5, "5-");
	check_version("HTTP/1.1 200 OK\n\n", UINT64_MAX, "");

	/* long ETags are told apart by their hash, which is never sent back */
	(void) snprintf(head, sizeof(head), "HTTP/1.1 200 OK\nETag: \"%0100d\"\n\n", 1);
	assert_true(feed(&h, head, 0));
	tb_head_version(&h, 5, version);
	(void) snprintf(head, sizeof(head), "HTTP/1.1 200 OK\nETag: \"%0100d\"\n\n", 2);
	assert_true(feed(&h, head, 0));
	tb_head_version(&h, 5, other);
	assert_string_not_equal(version, other);
	assert_false(tb_head_is_strong(version));
	assert_true(tb_head_is_strong("\"a\""));
	assert_false(tb_head_is_strong("W/\"a\""));
	assert_false(tb_head_is_strong("\"a\r\nX: \""));
	assert_false(tb_head_is_strong("\"a\", \"b\""));
	assert_false(tb_head_is_strong("\""));
}

static TbError
failure(TbStatus code, bool retryable, int64_t retry_after_ms)
{
	TbError		e;

	(void) tb_fail(&e, code, "x");
	e.retryable = retryable;
	e.retry_after_ms = retry_after_ms;
	return e;
}

static void
delays(void **state)
{
	TbError		lost = failure(TB_E_LOST, true, -1);
	TbError		no = failure(TB_E_DENIED, false, -1);
	TbError		wrong = failure(TB_E_PROTOCOL, true, -1);
	TbError		nobody = failure(TB_E_CONNECT, true, -1);
	TbError		told = failure(TB_E_THROTTLED, true, 2000);
	TbError		forever = failure(TB_E_THROTTLED, true, INT64_MAX);

	assert_int_equal(tb_retry_delay_ms(&no, 1, 5, true, 0.5), -1);
	assert_int_equal(tb_retry_delay_ms(&lost, 1, 5, true, 0.0), 50);
	assert_int_equal(tb_retry_delay_ms(&lost, 1, 5, true, 0.999), 99);
	assert_int_equal(tb_retry_delay_ms(&lost, 5, 5, true, 0.0), 800);
	assert_int_equal(tb_retry_delay_ms(&lost, 6, 5, true, 0.0), -1);
	assert_int_equal(tb_retry_delay_ms(&lost, 50, 99, true, 0.0), 5000);
	assert_int_equal(tb_retry_delay_ms(&lost, 1, 0, true, 0.0), -1);
	assert_true(tb_retry_delay_ms(&wrong, 1, 5, true, 0.0) >= 0);
	assert_int_equal(tb_retry_delay_ms(&wrong, 2, 5, true, 0.0), -1);
	assert_true(tb_retry_delay_ms(&nobody, 2, 5, false, 0.0) >= 0);
	assert_int_equal(tb_retry_delay_ms(&nobody, 3, 5, false, 0.0), -1);
	assert_true(tb_retry_delay_ms(&nobody, 3, 5, true, 0.0) >= 0);
	assert_int_equal(tb_retry_delay_ms(&told, 1, 5, true, 0.0), 2000);
	assert_int_equal(tb_retry_delay_ms(&forever, 1, 5, true, 0.0), TB_RETRY_AFTER_MAX_MS);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(content_ranges),
		cmocka_unit_test(heads),
		cmocka_unit_test(head_is_bounded),
		cmocka_unit_test(versions),
		cmocka_unit_test(delays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
