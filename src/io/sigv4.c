/*
 * Signature Version 4, step by step as its description names them: canonical request, string to sign, signing
 * key, signature.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero, gmtime_r */
#endif

#include "io/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ALGORITHM "AWS4-HMAC-SHA256"
#define TEXT_MAX ((size_t) 256 << 10)
#define DATE_BYTES 8			/* of a stamp: its day */

typedef struct Item
{
	const char *at;				/* "name=value" or "name", borrowed */
	size_t		len;
	size_t		name_len;
} Item;

void
tb_sigv4_stamp(int64_t unix_s, char stamp[TB_SIGV4_STAMP_BYTES])
{
	time_t		t = (time_t) unix_s;
	struct tm	tm;

	if (gmtime_r(&t, &tm) == NULL ||
		strftime(stamp, TB_SIGV4_STAMP_BYTES, "%Y%m%dT%H%M%SZ", &tm) != TB_SIGV4_STAMP_BYTES - 1)
		memcpy(stamp, "19700101T000000Z", TB_SIGV4_STAMP_BYTES);
}

static void
to_hex(const uint8_t hash[32], char hex[TB_SIGV4_HASH_BYTES])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 32; i++)
	{
		hex[2 * i] = digits[hash[i] >> 4];
		hex[2 * i + 1] = digits[hash[i] & 15];
	}
	hex[64] = '\0';
}

void
tb_sigv4_body_hash(const void *bytes, size_t len, char hex[TB_SIGV4_HASH_BYTES])
{
	uint8_t		hash[32];

	(void) SHA256(len > 0 ? bytes : (const void *) "", len, hash);
	to_hex(hash, hex);
}

/* The query's parts in canonical order: by name, then by value. -1: too many. */
static int
split_query(const char *query, Item item[TB_SIGV4_QUERY_MAX])
{
	int			n = 0;

	while (query != NULL && *query != '\0')
	{
		size_t		len = strcspn(query, "&");

		if (len > 0)
		{
			if (n == TB_SIGV4_QUERY_MAX)
				return -1;
			item[n].at = query;
			item[n].len = len;
			item[n].name_len = strcspn(query, "=&");
			n++;
		}
		query += len;
		query += *query == '&';
	}
	return n;
}

static int
compare_bytes(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int			order = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return order != 0 ? order : a_len < b_len ? -1 : a_len > b_len;
}

static int
compare_items(const Item *a, const Item *b)
{
	int			order = compare_bytes(a->at, a->name_len, b->at, b->name_len);

	return order != 0 ? order :
		compare_bytes(a->at + a->name_len, a->len - a->name_len, b->at + b->name_len, b->len - b->name_len);
}

static TbStatus
put(TbBuf *out, const char *text, size_t len)
{
	return tb_buf_append(out, text, len, TEXT_MAX);
}

static TbStatus
put_text(TbBuf *out, const char *text)
{
	return put(out, text, strlen(text));
}

static TbStatus
put_query(TbBuf *out, const char *query)
{
	Item		item[TB_SIGV4_QUERY_MAX];
	int			n = split_query(query, item);
	TbStatus	status = TB_OK;

	if (n < 0)
		return TB_E_LIMIT;
	for (int i = 1; i < n; i++)
	{
		Item		moved = item[i];
		int			at = i;

		for (; at > 0 && compare_items(&moved, &item[at - 1]) < 0; at--)
			item[at] = item[at - 1];
		item[at] = moved;
	}
	for (int i = 0; i < n && status == TB_OK; i++)
	{
		if (i > 0)
			status = put(out, "&", 1);
		if (status == TB_OK)
			status = put(out, item[i].at, item[i].len);
		if (status == TB_OK && item[i].name_len == item[i].len)
			status = put(out, "=", 1);
	}
	return status;
}

/* A value without blanks around it, runs of blanks as one. */
static TbStatus
put_value(TbBuf *out, const char *value)
{
	TbStatus	status = TB_OK;
	bool		begun = false;

	while (status == TB_OK)
	{
		size_t		len;

		value += strspn(value, " \t");
		len = strcspn(value, " \t");
		if (len == 0)
			break;
		if (begun)
			status = put(out, " ", 1);
		if (status == TB_OK)
			status = put(out, value, len);
		begun = true;
		value += len;
	}
	return status;
}

static TbStatus
put_headers(const TbSigv4Request *request, TbBuf *out, TbBuf *names)
{
	const TbSigv4Header *sorted[TB_SIGV4_HEADERS_MAX];
	size_t		n = request->n_headers;
	TbStatus	status = TB_OK;

	if (n > TB_SIGV4_HEADERS_MAX)
		return TB_E_LIMIT;
	for (size_t i = 0; i < n; i++)
	{
		size_t		at = i;

		for (; at > 0 && strcmp(request->header[i].name, sorted[at - 1]->name) < 0; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = &request->header[i];
	}
	for (size_t i = 0; i < n && status == TB_OK; i++)
	{
		bool		again = i > 0 && strcmp(sorted[i]->name, sorted[i - 1]->name) == 0;

		if (again)
		{
			out->len--;			/* one line for all of a name */
			status = put(out, ",", 1);
		}
		else
		{
			if (i > 0)
				status = put(names, ";", 1);
			if (status == TB_OK)
				status = put_text(names, sorted[i]->name);
			if (status == TB_OK)
				status = put_text(out, sorted[i]->name);
			if (status == TB_OK)
				status = put(out, ":", 1);
		}
		if (status == TB_OK)
			status = put_value(out, sorted[i]->value);
		if (status == TB_OK)
			status = put(out, "\n", 1);
	}
	return status;
}

TbStatus
tb_sigv4_canonical(const TbSigv4Request *request, TbBuf *out, TbBuf *names)
{
	size_t		first_name = names->len;
	TbStatus	status = tb_buf_printf(out, "%s\n%s\n", request->method, request->path);

	if (status == TB_OK)
		status = put_query(out, request->query);
	if (status == TB_OK)
		status = put(out, "\n", 1);
	if (status == TB_OK)
		status = put_headers(request, out, names);
	if (status == TB_OK)
		status = put(out, "\n", 1);
	if (status == TB_OK)
		status = put(out, (const char *) names->data + first_name, names->len - first_name);
	if (status == TB_OK)
		status = tb_buf_printf(out, "\n%s", request->body_hash);
	return status;
}

static void
hmac(const void *key, size_t key_len, const void *text, size_t len, uint8_t out[32])
{
	(void) HMAC(EVP_sha256(), key, (int) key_len, text, len, out, NULL);
}

/* Derive the day's key, unless it is here. errors: NOMEM, LIMIT. */
static TbStatus
make_key(TbSigv4Key *key, const TbSigv4Who *who, const TbSigv4Request *request)
{
	TbBuf	   *text = tb_buf_new(strlen(who->secret_access_key) + 256);	/* never moved: it is wiped */
	uint8_t		from[32];
	TbStatus	status = text == NULL ? TB_E_NOMEM :
		tb_buf_printf(text, "AWS4%s\n%.8s\n%s\n%s", who->secret_access_key, request->stamp, request->region,
					  request->service);

	if (status == TB_OK)
		(void) SHA256(text->data, text->len, from);
	if (status == TB_OK && (!key->valid || memcmp(from, key->from, sizeof(from)) != 0))
	{
		hmac(text->data, strlen(who->secret_access_key) + 4, request->stamp, DATE_BYTES, key->key);
		hmac(key->key, 32, request->region, strlen(request->region), key->key);
		hmac(key->key, 32, request->service, strlen(request->service), key->key);
		hmac(key->key, 32, "aws4_request", 12, key->key);
		memcpy(key->from, from, sizeof(from));
		key->valid = true;
	}
	if (text != NULL)
		explicit_bzero(text->data, text->len);
	tb_buf_unref(text);
	return status;
}

/* canonical, names and text: scratch. */
static TbStatus
sign(TbSigv4Key *key, const TbSigv4Who *who, const TbSigv4Request *request, TbBuf *scratch[3], TbBuf *out)
{
	char		hex[TB_SIGV4_HASH_BYTES];
	uint8_t		hash[32];
	TbStatus	status = tb_sigv4_canonical(request, scratch[0], scratch[1]);

	if (status == TB_OK)
		status = make_key(key, who, request);
	if (status != TB_OK)
		return status;
	tb_sigv4_body_hash(scratch[0]->data, scratch[0]->len, hex);
	status = tb_buf_printf(scratch[2], ALGORITHM "\n%s\n%.8s/%s/%s/aws4_request\n%s", request->stamp,
		request->stamp,
						   request->region, request->service, hex);
	if (status != TB_OK)
		return status;
	hmac(key->key, sizeof(key->key), scratch[2]->data, scratch[2]->len, hash);
	to_hex(hash, hex);
	return tb_buf_printf(out, ALGORITHM " Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=%.*s, Signature=%s",
						 who->access_key_id, request->stamp, request->region, request->service,
						 (int) scratch[1]->len, (const char *) scratch[1]->data, hex);
}

TbStatus
tb_sigv4_sign(TbSigv4Key *key, const TbSigv4Who *who, const TbSigv4Request *request, TbBuf *authorization)
{
	/* the first holds the session token; it moves only for a very long one */
	TbBuf	   *scratch[3] = {tb_buf_new(16384), tb_buf_new(256), tb_buf_new(256)};
	TbStatus	status = TB_E_NOMEM;

	if (scratch[0] != NULL && scratch[1] != NULL && scratch[2] != NULL)
		status = sign(key, who, request, scratch, authorization);
	if (scratch[0] != NULL)
		explicit_bzero(scratch[0]->data, scratch[0]->len);
	for (int i = 0; i < 3; i++)
		tb_buf_unref(scratch[i]);
	return status;
}
