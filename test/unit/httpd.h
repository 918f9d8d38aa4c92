/*
 * A small HTTP server in threads of the test, which does what the test's handler says: right answers, wrong
 * ones, silence, broken connections.
 */
#ifndef TB_TEST_HTTPD_H
#define TB_TEST_HTTPD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Httpd Httpd;
typedef struct HttpdConn HttpdConn;

typedef struct HttpdRequest
{
	char		method[16];
	char		path[4096];		/* with its query */
	char		head[8192];		/* all of it, NUL at the end */
	bool		has_range;
	bool		is_suffix;		/* first counts from the end */
	uint64_t	first;
	uint64_t	last;
	uint8_t    *body;			/* until the handler returns; NULL: none was announced */
	size_t		body_len;
	int			number;			/* of the server's requests, from 1 */
	int			on_connection;	/* of this connection's requests, from 1 */
} HttpdRequest;

typedef struct HttpdObject
{
	const char *path;			/* with its leading slash */
	const void *bytes;
	size_t		len;
	const char *etag;			/* NULL: none */
	const char *last_modified;	/* NULL: none */
} HttpdObject;

/* Runs in a thread of the connection's own. */
typedef void (*HttpdHandler) (HttpdConn *conn, const HttpdRequest *request, void *arg);

extern Httpd *httpd_start(HttpdHandler handler, void *arg);
extern void httpd_stop(Httpd *httpd);	/* ends hanging handlers, joins all threads */
extern int	httpd_port(const Httpd *httpd);
extern int	httpd_requests(Httpd *httpd);
extern int	httpd_connections(Httpd *httpd);

/* For handlers. */
extern void httpd_printf(HttpdConn *conn, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern void httpd_write(HttpdConn *conn, const void *bytes, size_t len);
extern void httpd_status(HttpdConn *conn, int status, const char *headers);	/* with an empty body */
extern void httpd_close(HttpdConn *conn);	/* cleanly */
extern void httpd_reset(HttpdConn *conn);	/* RST */
extern void httpd_hang(HttpdConn *conn);	/* until the client goes or the server stops */
extern void httpd_sleep(HttpdConn *conn, int ms);

/* The right answer for an object; 404 where object is NULL. */
extern void httpd_answer(HttpdConn *conn, const HttpdRequest *request, const HttpdObject *object);
/* The value of a header in a request, copied to value; false: not there. */
extern bool httpd_header(const HttpdRequest *request, const char *name, char *value, size_t size);

#endif
