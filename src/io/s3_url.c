/*
 * s3:// and its endpoint. Names are judged before they become part of a host name or a header.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* memrchr */
#endif

#include "io/s3_url.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "io/url.h"

#define DEFAULT_REGION "us-east-1"
#define BUCKET_MAX 255
#define LABEL_MAX 63
#define AWS ".amazonaws.com"
#define AWS_CHINA ".amazonaws.com.cn"

static TbStatus
bad(const char *message, const char *why, const char *hint, TbError *err)
{
	tb_fail(err, TB_E_INVALID, "%s", message);
	tb_error_detail(err, "%s", why);
	if (hint != NULL)
		tb_error_hint(err, "%s", hint);
	return TB_E_INVALID;
}

static TbStatus
no_memory(TbError *err)
{
	return tb_fail(err, TB_E_NOMEM, "out of memory");
}

static bool
ends_with(const char *text, const char *end)
{
	size_t		len = strlen(text);
	size_t		n = strlen(end);

	return len > n && strcasecmp(text + len - n, end) == 0;
}

static bool
is_aws(const char *host)
{
	return ends_with(host, AWS) || ends_with(host, AWS_CHINA);
}

static bool
is_address(const char *host)
{
	uint8_t		a[16];

	return host[0] == '[' || inet_pton(AF_INET, host, a) == 1;
}

bool
tb_s3_region_ok(const char *region)
{
	size_t		len = strlen(region);

	return len > 0 && len < TB_SIGV4_REGION_BYTES && region[0] != '-' && region[len - 1] != '-' &&
		strspn(region, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == len;
}

/* What any server may have: letters of the first days of S3 too. It is not repeated: it may be a mistyped
 * password. */
static bool
is_bucket(const char *bucket)
{
	size_t		len = strlen(bucket);

	return len > 0 && len <= BUCKET_MAX && strcmp(bucket, ".") != 0 && strcmp(bucket, "..") != 0 &&
		strspn(bucket, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") == len;
}

/* Whether a bucket can be part of a host name; a dot in it would not fit the certificate. */
static bool
fits_host(const char *bucket, bool tls)
{
	size_t		len = strlen(bucket);

	if (len < 3 || len > LABEL_MAX || bucket[0] == '-' || bucket[0] == '.' || bucket[len - 1] == '-' ||
		bucket[len - 1] == '.' || strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-") != len)
		return false;
	if (tls)
		return strchr(bucket, '.') == NULL;
	return strstr(bucket, "..") == NULL && strstr(bucket, ".-") == NULL && strstr(bucket, "-.") == NULL;
}

/* NULL: nothing wrong. */
static const char *
prefix_fault(const char *prefix)
{
	const char *segment = prefix;

	for (const char *c = prefix; *c != '\0'; c++)
	{
		if ((unsigned char) *c < 0x20 || *c == 0x7f)
			return "the url holds a control character";
		if (*c == '?')
			return "the url holds a query";
		if (*c == '#')
			return "the url holds a fragment";
	}
	if (strlen(prefix) > TB_KEY_MAX_BYTES)
		return "the url is too long";
	for (;;)
	{
		size_t		len = strcspn(segment, "/");

		if (len > 0 && len <= 2 && strspn(segment, ".") >= len)
			return "the url holds a \".\" or \"..\" segment";
		segment += len;
		if (*segment == '\0')
			return NULL;
		segment++;
	}
}

/* Bucket and prefix from "s3://bucket/prefix". */
static TbStatus
read_url(TbS3Place *place, const char *url, TbError *err)
{
	const char *bucket = url + strlen("s3://");
	size_t		len = strcspn(bucket, "/");
	const char *prefix = bucket + len + (bucket[len] == '/');
	size_t		prefix_len = strlen(prefix);
	const char *fault;

	if (prefix_len > 0 && prefix[prefix_len - 1] == '/')
		prefix_len--;
	place->bucket = tb_strndup(bucket, len);
	place->prefix = tb_strndup(prefix, prefix_len);
	if (place->bucket == NULL || place->prefix == NULL)
		return no_memory(err);
	fault = !is_bucket(place->bucket) ? "it names no bucket" : prefix_fault(place->prefix);
	if (fault == NULL)
		return TB_OK;
	return bad("invalid store url", fault, "Use s3://bucket/prefix.", err);
}

static TbStatus
aws_endpoint(TbS3Place *place, TbError *err)
{
	const char *domain = strncmp(place->region, "cn-", 3) == 0 ? AWS_CHINA : AWS;
	char	   *endpoint = tb_asprintf("s3.%s%s", place->region, domain);

	if (endpoint == NULL)
		return no_memory(err);
	tb_free(place->endpoint);
	place->endpoint = endpoint;
	return TB_OK;
}

static TbStatus
given_endpoint(TbS3Place *place, const char *endpoint, TbError *err)
{
	static const char hint[] = "Use http(s)://host or http(s)://host:port.";
	char	   *clean = NULL;
	TbUrlServer server;
	TbStatus	status;

	if (strncasecmp(endpoint, "http://", 7) != 0 && strncasecmp(endpoint, "https://", 8) != 0)
		return bad("invalid endpoint", "it does not begin with http:// or https://", hint, err);
	status = tb_url_check_http(endpoint, &clean, err);
	if (status == TB_OK)
		status = tb_url_server(clean, &server, err);
	if (status == TB_OK)
	{
		if (strchr(strstr(clean, "://") + 3, '/') != NULL)
			status = bad("invalid endpoint", "it has a path", hint, err);
		else if (server.host[0] != '[' &&
				 strspn(server.host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != strlen(server.host))
			status = bad("invalid endpoint", "its host name is none", hint, err);
		else
		{
			place->tls = server.tls;
			place->endpoint = server.usual_port ? tb_strdup(server.host) : tb_asprintf("%s:%d", server.host,
				server.port);
			place->domain = is_aws(server.host) ? NULL : tb_strdup(server.host);
			if (place->endpoint == NULL || (place->domain == NULL && !is_aws(server.host)))
				status = no_memory(err);
		}
		tb_url_server_free(&server);
	}
	else if (status == TB_E_INVALID)
		tb_error_hint(err, "%s", hint);
	tb_free(clean);
	return status;
}

static TbStatus
choose_addressing(TbS3Place *place, TbAddressing addressing, TbError *err)
{
	bool		fits = fits_host(place->bucket, place->tls);

	if (addressing == TB_ADDRESS_VIRTUAL && place->domain != NULL && is_address(place->domain))
		return bad("invalid endpoint", "an address cannot have a bucket's name before it",
				   "Use a host name, or path addressing.", err);
	place->bucket_in_host = fits && (addressing == TB_ADDRESS_VIRTUAL ||
									 (addressing == TB_ADDRESS_AUTO && place->domain == NULL));
	return TB_OK;
}

TbStatus
tb_s3_place_init(TbS3Place *place, const TbStoreSpec *spec, TbError *err)
{
	const char *region = spec->region != NULL && spec->region[0] != '\0' ? spec->region : DEFAULT_REGION;
	TbStatus	status = TB_OK;

	memset(place, 0, sizeof(*place));
	if (!tb_s3_region_ok(region))
		return bad("invalid region", "regions are made of letters, digits and hyphens", NULL, err);
	memcpy(place->region, region, strlen(region) + 1);
	place->tls = true;
	status = read_url(place, spec->url, err);
	if (status == TB_OK && spec->endpoint != NULL && spec->endpoint[0] != '\0')
		status = given_endpoint(place, spec->endpoint, err);
	else if (status == TB_OK)
	{
		place->follows_region = true;
		status = aws_endpoint(place, err);
	}
	if (status == TB_OK)
		status = choose_addressing(place, spec->addressing, err);
	if (status != TB_OK)
		tb_s3_place_free(place);
	return status;
}

void
tb_s3_place_free(TbS3Place *place)
{
	tb_free(place->bucket);
	tb_free(place->prefix);
	tb_free(place->endpoint);
	tb_free(place->domain);
	memset(place, 0, sizeof(*place));
}

TbStatus
tb_s3_place_move(TbS3Place *place, const char *region)
{
	memcpy(place->region, region, strlen(region) + 1);
	return place->follows_region ? aws_endpoint(place, NULL) : TB_OK;
}

char *
tb_s3_endpoint_url(const TbS3Place *place)
{
	return tb_asprintf("%s://%s", place->tls ? "https" : "http", place->endpoint);
}

char *
tb_s3_object_url(const TbS3Place *place, const char *key, const char *query)
{
	bool		has_prefix = key[0] != '\0' && place->prefix[0] != '\0';
	char	   *path = tb_asprintf("%s%s%s", has_prefix ? place->prefix : "", has_prefix ? "/" : "", key);
	char	   *base = tb_asprintf("%s://%s%s%s%s%s", place->tls ? "https" : "http",
								   place->bucket_in_host ? place->bucket : "", place->bucket_in_host ? "." : "",
								   place->endpoint, place->bucket_in_host ? "" : "/",
								   place->bucket_in_host ? "" : place->bucket);
	char	   *object = NULL;
	char	   *url = NULL;

	if (path != NULL && base != NULL)
		object = tb_url_append(base, path);
	if (object != NULL)
		url = query == NULL ? tb_strdup(object) : tb_asprintf("%s?%s", object, query);
	tb_free(path);
	tb_free(base);
	tb_free(object);
	return url;
}

bool
tb_s3_split_url(const char *url, char **text, const char **host, const char **path, const char **query)
{
	size_t		skip = strcspn(url, ":") + 3;
	size_t		host_len = strcspn(url + skip, "/?");
	size_t		path_len = strcspn(url + skip + host_len, "?");
	const char *tail = url + skip + host_len + path_len;

	*text = tb_asprintf("%.*s%c%.*s%c%s", (int) host_len, url + skip, 0, path_len > 0 ? (int) path_len : 1,
						path_len > 0 ? url + skip + host_len : "/", 0, *tail == '?' ? tail + 1 : "");
	if (*text == NULL)
		return false;
	*host = *text;
	*path = *host + strlen(*host) + 1;
	*query = *path + strlen(*path) + 1;
	if (**query == '\0')
		*query = NULL;
	return true;
}

/* "s3." or "s3-" and what AWS has behind it, or a bucket before that. */
static bool
is_aws_s3(const char *host, const char *bucket)
{
	size_t		len = strlen(bucket);

	if (!is_aws(host))
		return false;
	if (strncasecmp(host, bucket, len) == 0 && host[len] == '.')
		host += len + 1;
	return strncasecmp(host, "s3.", 3) == 0 || strncasecmp(host, "s3-", 3) == 0;
}

static bool
is_same_service(const char *host, const void *arg)
{
	const TbS3Place *place = arg;
	size_t		len = strlen(host);
	size_t		n;

	if (place->domain == NULL)
		return is_aws_s3(host, place->bucket);
	n = strlen(place->domain);
	return !is_address(place->domain) && len > n + 1 && host[len - n - 1] == '.' &&
		strcasecmp(host + len - n, place->domain) == 0;
}

TbStatus
tb_s3_redirect(const TbS3Place *place, const char *from, const char *location, char **target, TbError *err)
{
	return tb_url_redirect(from, location, is_same_service, place, target, err);
}
