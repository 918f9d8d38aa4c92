/* What the tests of HTTP share: an object, right answers to requests for a part of it, a store over a server. */
#ifndef TB_TEST_HTTP_HELP_H
#define TB_TEST_HTTP_HELP_H

#include "io_help.h"

#include "httpd.h"

#define OBJECT_BYTES 100000
#define AT 1000
#define LENGTH 50000

static uint8_t golden[OBJECT_BYTES];

static inline void
fill_golden(void)
{
	for (size_t i = 0; i < OBJECT_BYTES; i++)
		golden[i] = (uint8_t) (tb_mix64(i / 8) >> (i % 8 * 8));
}

static const HttpdObject object = {"/o", golden, OBJECT_BYTES, "\"v1\"", NULL};

static inline void
good(HttpdConn *conn, const HttpdRequest *request)
{
	httpd_answer(conn, request, &object);
}

/* The head of a right answer to the range. */
static inline void
good_head(HttpdConn *conn)
{
	httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\nETag: \"v1\"\r\n"
				 "Content-Range: bytes %d-%d/%d\r\n\r\n", LENGTH, AT, AT + LENGTH - 1, OBJECT_BYTES);
}

static inline TbStore *
open_store(Rig *rig, Httpd *httpd)
{
	char		url[64];
	TbStoreSpec spec = {.url = url};
	TbStore    *store;
	TbError		err;

	(void) snprintf(url, sizeof(url), "http://127.0.0.1:%d", httpd_port(httpd));
	assert_int_equal(tb_store_open(rig->io, &spec, &store, &err), TB_OK);
	return store;
}

static inline double
seconds_since(int64_t start_ns)
{
	return (double) (tb_now_ns() - start_ns) * 1e-9;
}

#endif
