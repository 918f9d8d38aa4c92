/*
 * Which URLs and keys are accepted. The server part of an http URL is taken apart by libcurl's own
 * parser, so that what is checked is what is connected to.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* strcasestr */
#endif

#include "io/url.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/store.h"

#define URL_MAX_BYTES 4096

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Value of "%hh" at text, -1 if it is none. */
static int
escape_value(const char *text)
{
	int			high = text[0] == '%' ? hex_value(text[1]) : -1;
	int			low = high >= 0 ? hex_value(text[2]) : -1;

	return low >= 0 ? high * 16 + low : -1;
}

/* Whether a segment is "." or "..", with dots written plainly or as %2e. */
static bool
is_dot_segment(const char *segment, size_t len)
{
	size_t		dots = 0;
	size_t		i = 0;

	while (i < len)
	{
		if (segment[i] == '.')
			i++;
		else if (i + 2 < len && escape_value(segment + i) == '.')
			i += 3;
		else
			return false;
		dots++;
	}
	return dots == 1 || dots == 2;
}

static bool
has_dot_segment(const char *path)
{
	while (*path != '\0')
	{
		size_t		len = strcspn(path, "/");

		if (is_dot_segment(path, len))
			return true;
		path += len;
		path += *path == '/';
	}
	return false;
}

TbStatus
tb_key_check(const char *key, TbError *err)
{
	const char *segment = key;

	if (strlen(key) > TB_KEY_MAX_BYTES)
		return tb_fail(err, TB_E_INVALID, "object key is too long");
	for (;;)
	{
		size_t		len = strcspn(segment, "/");

		if (len == 0 || (len <= 2 && strspn(segment, ".") >= len))
		{
			tb_fail(err, TB_E_INVALID, "invalid object key");
			tb_error_detail(err, "\"%s\": segments must not be empty, \".\" or \"..\"", key);
			return TB_E_INVALID;
		}
		segment += len;
		if (*segment == '\0')
			return TB_OK;
		segment++;
	}
}

static TbStatus
bad_url(const char *why, TbError *err)
{
	/* the URL itself is not repeated: it may hold a password */
	tb_fail(err, TB_E_INVALID, "invalid store url");
	tb_error_detail(err, "%s", why);
	return TB_E_INVALID;
}

/* What holds for every scheme. NULL: nothing wrong. */
static const char *
common_fault(const char *url)
{
	if (strlen(url) > URL_MAX_BYTES)
		return "the url is too long";
	for (const char *p = url; *p != '\0'; p++)
	{
		if ((unsigned char) *p <= 0x20 || *p == 0x7f)
			return "the url holds a space or a control character";
		if (*p == '\\')
			return "the url holds a backslash";
		if (*p == '?')
			return "the url holds a query";
		if (*p == '#')
			return "the url holds a fragment";
		if (*p == '%' && escape_value(p) <= 0)
			return "the url holds a bad percent-encoding";
	}
	return NULL;
}

/* The '/' after the host, or the end. */
static const char *
path_of(const char *url)
{
	const char *server = strstr(url, "://");

	return server == NULL ? url + strlen(url) : server + 3 + strcspn(server + 3, "/");
}

/* Have libcurl's parser look at the server part. NULL: nothing wrong. */
static const char *
server_fault(const char *url)
{
	CURLU	   *parts = curl_url();
	char	   *host = NULL;
	char	   *user = NULL;
	const char *fault = NULL;

	if (parts == NULL)
		return "out of memory";
	if (path_of(url) == strstr(url, "://") + 3)
		fault = "the url names no host";	/* curl takes the first segment instead */
	else if (curl_url_set(parts, CURLUPART_URL, url, CURLU_PATH_AS_IS) != CURLUE_OK)
		fault = "it cannot be parsed";
	else if (curl_url_get(parts, CURLUPART_USER, &user, 0) != CURLUE_NO_USER)
		fault = "the url holds a user name or password";
	else if (curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK || host[0] == '\0')
		fault = "the url names no host";
	curl_free(host);
	curl_free(user);
	curl_url_cleanup(parts);
	return fault;
}

/* Copy len bytes of text to dst, encoding what keep says no to. Returns the end. */
static char *
encode(char *dst, const char *text, size_t len, bool (*keep) (unsigned char))
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) text[i];

		if (keep(c))
			*dst++ = (char) c;
		else
		{
			*dst++ = '%';
			*dst++ = digits[c >> 4];
			*dst++ = digits[c & 15];
		}
	}
	return dst;
}

static bool
keep_ascii(unsigned char c)
{
	return c < 0x80;
}

static bool
keep_unreserved(unsigned char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
		c == '.' || c == '_' || c == '~' || c == '/';
}

TbStatus
tb_url_check_http(const char *url, char **clean, TbError *err)
{
	const char *fault = common_fault(url);
	const char *path = path_of(url);
	size_t		len = strlen(url);
	char	   *end;

	*clean = NULL;
	if (fault == NULL && has_dot_segment(path))
		fault = "the url holds a \".\" or \"..\" segment";
	if (fault == NULL)
		fault = server_fault(url);
	if (fault != NULL)
		return bad_url(fault, err);
	while (url + len > path && url[len - 1] == '/')
		len--;
	*clean = tb_malloc((size_t) (path - url) + 3 * len + 1);
	if (*clean == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	memcpy(*clean, url, (size_t) (path - url));
	end = *clean + (path - url);
	if (url + len > path)
		end = encode(end, path, (size_t) (url + len - path), keep_ascii);
	*end = '\0';
	return TB_OK;
}

TbStatus
tb_url_file_path(const char *url, char **path, TbError *err)
{
	const char *fault = common_fault(url);
	const char *p = path_of(url);
	size_t		host_len = 0;
	char	   *out;

	*path = NULL;
	if (fault == NULL && strncasecmp(url, "file://", 7) != 0)
		fault = "it does not begin with file://";
	if (fault == NULL)
		host_len = (size_t) (p - (url + 7));
	if (fault == NULL && host_len > 0 && (host_len != 9 || strncasecmp(url + 7, "localhost", 9) != 0))
		fault = "a file url names no host";
	if (fault == NULL && *p != '/')
		fault = "the path is not absolute";
	if (fault == NULL && has_dot_segment(p))
		fault = "the url holds a \".\" or \"..\" segment";
	if (fault == NULL && (strcasestr(p, "%2f") != NULL))
		fault = "the url holds an encoded slash";
	if (fault != NULL)
		return bad_url(fault, err);
	*path = out = tb_malloc(strlen(p) + 1);
	if (out == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	while (*p != '\0')
	{
		int			value = escape_value(p);

		*out++ = value > 0 ? (char) value : *p;
		p += value > 0 ? 3 : 1;
	}
	*out = '\0';
	return TB_OK;
}

char *
tb_url_append(const char *base, const char *key)
{
	size_t		base_len = strlen(base);
	size_t		key_len = strlen(key);
	char	   *url = tb_malloc(base_len + 3 * key_len + 2);
	char	   *end;

	if (url == NULL)
		return NULL;
	memcpy(url, base, base_len);
	end = url + base_len;
	*end++ = '/';
	end = encode(end, key, key_len, keep_unreserved);
	*end = '\0';
	return url;
}

/* What decides about a redirect. */
typedef struct Origin
{
	char	   *scheme;			/* curl's */
	char	   *host;			/* curl's */
	char	   *port;			/* curl's; the scheme's own where none is written */
	char	   *user;			/* curl's; NULL: none */
} Origin;

/* Have parts go to url, which may be relative to what they hold. */
static bool
origin_read(CURLU *parts, const char *url, Origin *origin)
{
	if (curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK ||
		curl_url_get(parts, CURLUPART_SCHEME, &origin->scheme, 0) != CURLUE_OK)
		return false;
	/* what the URL lacks stays NULL */
	(void) curl_url_get(parts, CURLUPART_HOST, &origin->host, 0);
	(void) curl_url_get(parts, CURLUPART_PORT, &origin->port, CURLU_DEFAULT_PORT);
	(void) curl_url_get(parts, CURLUPART_USER, &origin->user, 0);
	return true;
}

static void
origin_free(Origin *origin)
{
	curl_free(origin->scheme);
	curl_free(origin->host);
	curl_free(origin->port);
	curl_free(origin->user);
}

/* NULL: the way is open. */
static const char *
redirect_fault(const Origin *from, const Origin *to, TbUrlAllow allow, const void *arg)
{
	bool		upgrade = strcmp(from->scheme, "http") == 0 && strcmp(to->scheme, "https") == 0;

	if (strcmp(to->scheme, "http") != 0 && strcmp(to->scheme, "https") != 0)
		return "to another scheme";
	if (from->host == NULL || to->host == NULL ||
		(strcasecmp(from->host, to->host) != 0 && (allow == NULL || !allow(to->host, arg))))
		return "to another host";
	if (strcmp(from->scheme, "https") == 0 && strcmp(to->scheme, "https") != 0)
		return "from https to http";
	if (from->port == NULL || to->port == NULL)
		return "to an unknown port";
	if (strcmp(from->port, to->port) != 0 &&
		!(upgrade && strcmp(from->port, "80") == 0 && strcmp(to->port, "443") == 0))
		return "to another port";
	if (to->user != NULL)
		return "with a user name";
	return NULL;
}

TbStatus
tb_url_redirect(const char *from, const char *location, TbUrlAllow allow, const void *arg, char **target,
	TbError *err)
{
	CURLU	   *parts = curl_url();
	Origin		here = {0};
	Origin		there = {0};
	const char *fault = NULL;
	char	   *url = NULL;
	TbStatus	status = TB_OK;

	*target = NULL;
	if (parts == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (!origin_read(parts, from, &here) || !origin_read(parts, location, &there))
		status = tb_fail(err, TB_E_PROTOCOL, "redirect to an invalid location");
	else
		fault = redirect_fault(&here, &there, allow, arg);
	if (fault != NULL)
	{
		status = tb_fail(err, TB_E_DENIED, "redirect refused");
		tb_error_detail(err, "the server redirects %s", fault);
		tb_error_hint(err, "Use the final address as the store's url.");
	}
	if (status == TB_OK)
	{
		(void) curl_url_set(parts, CURLUPART_FRAGMENT, NULL, 0);
		*target = curl_url_get(parts, CURLUPART_URL, &url, 0) == CURLUE_OK ? tb_strdup(url) : NULL;
		if (*target == NULL)
			status = tb_fail(err, TB_E_NOMEM, "out of memory");
		curl_free(url);
	}
	origin_free(&here);
	origin_free(&there);
	curl_url_cleanup(parts);
	return status;
}

/* Take what server needs from curl's parts. false: memory is gone. */
static bool
server_read(const Origin *origin, TbUrlServer *server)
{
	const char *zone = strchr(origin->host, '%');	/* of an IPv6 address */
	size_t		len = zone != NULL ? (size_t) (zone - origin->host) : strlen(origin->host);

	server->tls = strcasecmp(origin->scheme, "https") == 0;
	server->port = (int) strtol(origin->port, NULL, 10);
	server->usual_port = server->port == (server->tls ? 443 : 80);
	server->host = tb_asprintf("%.*s%s", (int) len, origin->host, zone != NULL ? "]" : "");
	if (server->host == NULL)
		return false;
	for (char *c = server->host; *c != '\0'; c++)
		if (*c >= 'A' && *c <= 'Z')
			*c = (char) (*c - 'A' + 'a');
	return true;
}

TbStatus
tb_url_server(const char *url, TbUrlServer *server, TbError *err)
{
	CURLU	   *parts = curl_url();
	Origin		origin = {0};
	TbStatus	status = TB_OK;

	memset(server, 0, sizeof(*server));
	if (parts == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (!origin_read(parts, url, &origin) || origin.host == NULL || origin.port == NULL || origin.host[0] == '\0' ||
		(strcasecmp(origin.scheme, "http") != 0 && strcasecmp(origin.scheme, "https") != 0))
		status = bad_url("it is no http or https address", err);
	else if (!server_read(&origin, server))
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	origin_free(&origin);
	curl_url_cleanup(parts);
	return status;
}

void
tb_url_server_free(TbUrlServer *server)
{
	tb_free(server->host);
	server->host = NULL;
}
