/*
 * URLs and keys, pure: what is accepted, and how a key becomes part of a URL. No I/O.
 */
#ifndef TB_IO_URL_H
#define TB_IO_URL_H

#include "base/base.h"

/* '/'-separated segments, none empty, "." or ".."; at most TB_KEY_MAX_BYTES. errors: INVALID. */
extern TbStatus tb_key_check(const char *key, TbError *err) TB_MUST_CHECK;

/* http(s) URL without userinfo, query, fragment, control characters or dot segments. owns: *clean,
 * tb_free: no trailing slash, bytes above 127 of the path encoded. errors: INVALID, NOMEM. */
extern TbStatus tb_url_check_http(const char *url, char **clean, TbError *err) TB_MUST_CHECK;

/* The directory that a file:// URL names, decoded. owns: *path, tb_free. errors: INVALID, NOMEM. */
extern TbStatus tb_url_file_path(const char *url, char **path, TbError *err) TB_MUST_CHECK;

/* base + "/" + key, each byte of key but unreserved ones and '/' encoded once. NULL when memory is
 * gone. */
extern char *tb_url_append(const char *base, const char *key);

/* Where a checked http(s) URL connects to. */
typedef struct TbUrlServer
{
	bool		tls;
	char	   *host;			/* owned; lower case; numbers of IPv4 as a.b.c.d, IPv6 in brackets without a zone */
	int			port;
	bool		usual_port;		/* the scheme's own */
} TbUrlServer;

/* errors: INVALID, NOMEM; then there is nothing to free. */
extern TbStatus tb_url_server(const char *url, TbUrlServer *server, TbError *err) TB_MUST_CHECK;
extern void tb_url_server_free(TbUrlServer *server);

/* Whether an answer from `from` may send us to `location` (relative or not): never down to http, never to
 * another port, and to the same host, or one that allow (NULL: none) says yes to. owns: *target, tb_free:
 * absolute, without fragment. errors: DENIED, PROTOCOL, NOMEM. */
typedef bool (*TbUrlAllow) (const char *host, const void *arg);
extern TbStatus tb_url_redirect(const char *from, const char *location, TbUrlAllow allow, const void *arg,
	char **target,
								TbError *err) TB_MUST_CHECK;

#endif
