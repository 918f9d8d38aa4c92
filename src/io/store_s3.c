/*
 * Objects of S3 and what speaks like it. Each request is signed afresh, for the place and the time it is
 * sent at. What a refusal teaches (region, clock, credentials) is used at once, each once in an attempt,
 * and kept for the store.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero */
#endif

#include "io/store_s3.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "io/creds.h"
#include "io/http_request.h"
#include "io/s3_error.h"
#include "io/s3_url.h"

#define CLOCK_LESSON_S 60		/* smaller differences do not explain a refusal */

typedef struct S3Store
{
	TbHttpStore http;
	TbS3Place	place;
	TbCreds    *creds;			/* owned */
	bool		anonymous;
	bool		requester_pays;
	TbSigv4Key	key;			/* wiped */
	int64_t		clock_ahead_s;	/* of the server, against ours */
} S3Store;

typedef struct S3Slot
{
	TbHttpSlot	http;
	TbCredsWaiter waiter;
	uint64_t	serial;			/* of the credentials that signed */
	char		region[TB_SIGV4_REGION_BYTES];	/* that it was signed for */
	bool		signed_ever;
	bool		moved;			/* what has been tried in this attempt */
	bool		set_clock;
	bool		renewed;
} S3Slot;

static S3Store *
store_of(const TbHttpSlot *slot)
{
	return (S3Store *) slot->store;
}

static TbStatus
s3_begin(TbHttpSlot *slot)
{
	S3Slot	   *s3 = (S3Slot *) slot;
	TbOp	   *op = slot->answer.op;

	s3->moved = s3->set_clock = s3->renewed = s3->signed_ever = false;
	s3->region[0] = '\0';
	slot->url = tb_s3_object_url(&store_of(slot)->place, op->key, op->query);
	return slot->url != NULL ? TB_OK : TB_E_NOMEM;
}

static void
creds_woke(TbCredsWaiter *waiter)
{
	tb_http_send(waiter->arg);
}

static void
s3_leave(TbHttpSlot *slot)
{
	S3Slot	   *s3 = (S3Slot *) slot;

	if (s3->waiter.waiting)
		tb_creds_leave(store_of(slot)->creds, &s3->waiter);
}

/* The headers that are signed, gathered. */
typedef struct Signed
{
	TbSigv4Header header[TB_SIGV4_HEADERS_MAX];
	size_t		n;
} Signed;

static void
add(Signed *headers, const char *name, const char *value)
{
	headers->header[headers->n++] = (TbSigv4Header) {name, value};
}

static const char *
method_of(TbVerb verb)
{
	switch (verb)
	{
		case TB_VERB_PUT:
			return "PUT";
		case TB_VERB_POST:
			return "POST";
		case TB_VERB_DELETE:
			return "DELETE";
		case TB_VERB_READ:
		case TB_VERB_LIST:
			break;
	}
	return "GET";
}

/* What is asked, apart from who asks. range: scratch. */
static void
gather(TbHttpSlot *slot, const char *host, char range[64], Signed *headers)
{
	S3Store    *store = store_of(slot);
	TbOp	   *op = slot->answer.op;
	const char *match = tb_http_match(op);
	const char *none_match = tb_http_none_match(op);

	add(headers, "host", host);
	tb_http_range(op, range);
	if (range[0] != '\0')
		add(headers, "range", range);
	if (match != NULL)
		add(headers, "if-match", match);
	if (none_match != NULL)
		add(headers, "if-none-match", none_match);
	if (store->requester_pays)
		add(headers, "x-amz-request-payer", "requester");
	/* TLS proves the bytes already */
	if (op->verb == TB_VERB_READ && op->kind == TB_RANGE_WHOLE && !store->place.tls)
		add(headers, "x-amz-checksum-mode", "ENABLED");
}

static bool
send_headers(TbHttpSlot *slot, const Signed *headers)
{
	for (size_t i = 0; i < headers->n; i++)
		if (!tb_http_header(slot, "%s: %s", headers->header[i].name, headers->header[i].value))
			return false;
	return true;
}

/* Sign the request and add all of its headers. errors: NOMEM, LIMIT. */
static TbStatus
sign(TbHttpSlot *slot, const TbCredsNow *now, const char *text[3], Signed *headers)
{
	S3Store    *store = store_of(slot);
	TbOp	   *op = slot->answer.op;
	char		stamp[TB_SIGV4_STAMP_BYTES];
	char		body_hash[TB_SIGV4_HASH_BYTES];
	TbSigv4Who	who = {now->access_key_id, now->secret_access_key};
	TbBuf	   *authorization = tb_buf_new(512);
	TbSigv4Request request = {
		.method = method_of(op->verb), .path = text[1], .query = text[2], .body_hash = body_hash, .stamp = stamp,
		.region = store->place.region, .service = "s3"
	};
	TbStatus	status;

	if (authorization == NULL)
		return TB_E_NOMEM;
	memcpy(((S3Slot *) slot)->region, store->place.region, sizeof(store->place.region));
	tb_sigv4_stamp((int64_t) time(NULL) + store->clock_ahead_s, stamp);
	tb_sigv4_body_hash(op->body != NULL ? op->body->data : NULL, op->body != NULL ? op->body->len : 0, body_hash);
	add(headers, "x-amz-content-sha256", body_hash);
	add(headers, "x-amz-date", stamp);
	if (now->session_token != NULL)
		add(headers, "x-amz-security-token", now->session_token);
	request.header = headers->header;
	request.n_headers = headers->n;
	status = tb_sigv4_sign(&store->key, &who, &request, authorization);
	if (status == TB_OK &&
		(!send_headers(slot, headers) ||
		 !tb_http_header(slot, "Authorization: %.*s", (int) authorization->len,
			(const char *) authorization->data)))
		status = TB_E_NOMEM;
	explicit_bzero(authorization->data, authorization->len);
	tb_buf_unref(authorization);
	return status;
}

/* Credentials for this request: OK, AGAIN, or op's outcome is filled. */
static TbStatus
get_keys(TbHttpSlot *slot, TbCredsNow *now)
{
	S3Store    *store = store_of(slot);
	S3Slot	   *s3 = (S3Slot *) slot;
	TbError		why;
	TbStatus	status;

	memset(now, 0, sizeof(*now));
	if (store->anonymous)
		return TB_OK;
	status = tb_creds_get(store->creds, now, &why);
	if (status == TB_AGAIN)
	{
		s3->waiter.wake = creds_woke;
		s3->waiter.arg = slot;
		tb_creds_wait(store->creds, &s3->waiter);
		return status;
	}
	if (status != TB_OK)
		return tb_http_refuse(slot, &why);
	s3->serial = now->serial;
	s3->signed_ever = now->access_key_id != NULL;
	return TB_OK;
}

static TbStatus
s3_dress(TbHttpSlot *slot)
{
	TbCredsNow	now;
	Signed		headers = {.n = 0};
	char		range[64];
	char	   *text;
	const char *part[3];		/* host, path, query */
	TbStatus	status = get_keys(slot, &now);

	if (status != TB_OK)
		return status;
	if (!tb_s3_split_url(slot->url, &text, &part[0], &part[1], &part[2]))
		return tb_op_nomem(slot->answer.op);
	gather(slot, part[0], range, &headers);
	if (now.access_key_id != NULL)
		status = sign(slot, &now, part, &headers);
	else if (!send_headers(slot, &headers))
		status = TB_E_NOMEM;
	tb_free(text);
	if (status == TB_E_LIMIT)
		return tb_op_fail(slot->answer.op, TB_E_LIMIT, false, "request has too many parts");
	return status == TB_OK ? TB_OK : tb_op_nomem(slot->answer.op);
}

/* What the answer says about itself, for the detail. */
static void
add_detail(TbHttpSlot *slot, const TbS3Error *s3)
{
	TbError    *err = &slot->answer.op->error;
	const char *id = slot->answer.head.request_id[0] != '\0' ? slot->answer.head.request_id : s3->request_id;
	char		text[96];

	if (s3->code[0] != '\0')
	{
		tb_s3_printable(s3->code, text, sizeof(text));
		tb_error_detail(err, "code %s", text);
	}
	if (id[0] != '\0')
	{
		tb_s3_printable(id, text, sizeof(text));
		tb_error_detail(err, "request id %s", text);
	}
}

/* Make the words of a code op's outcome. */
static TbStatus
fail_as(TbHttpSlot *slot, const TbS3Meaning *m, const TbS3Error *s3)
{
	TbOp	   *op = slot->answer.op;
	const char *message = m->message;
	int64_t		retry_after_ms = slot->answer.head.retry_after_ms;

	if (m->status == TB_E_CHANGED && op->create_once && !m->retryable)
		message = "object exists already";
	op->missing = false;
	tb_buf_unref(op->data);
	op->data = NULL;
	tb_op_fail(op, m->status, m->retryable, message);
	op->error.http_status = slot->answer.head.status;
	op->error.retry_after_ms = retry_after_ms;
	tb_error_detail(&op->error, "HTTP status %d", slot->answer.head.status);
	if (retry_after_ms >= 0)
		tb_error_detail(&op->error, "asked to wait %lld s", (long long) (retry_after_ms / 1000));
	add_detail(slot, s3);
	if (m->hint != NULL)
		tb_error_hint(&op->error, "%s", m->hint);
	return m->status;
}

/* Where a refusal for the place's sake sends us: AGAIN, or op's outcome is filled. */
static TbStatus
move(TbHttpSlot *slot, const TbS3Meaning *m, const TbS3Error *s3)
{
	S3Store    *store = store_of(slot);
	S3Slot	   *own = (S3Slot *) slot;
	const TbHttpHead *head = &slot->answer.head;
	const char *region = head->region[0] != '\0' ? head->region : s3->region;
	char	   *target = NULL;
	TbError		why;

	if (!own->moved && tb_s3_region_ok(region) && strcmp(region, own->region) != 0)
	{
		own->moved = true;
		/* another request of the store may have learned it meanwhile */
		if (strcmp(region, store->place.region) != 0 && tb_s3_place_move(&store->place, region) != TB_OK)
			return tb_op_nomem(slot->answer.op);
		if (store->place.follows_region)
		{
			target = tb_s3_object_url(&store->place, slot->answer.op->key, slot->answer.op->query);
			return target != NULL ? tb_http_go(slot, target) : tb_op_nomem(slot->answer.op);
		}
		if (!slot->answer.redirect || head->location_field == TB_FIELD_ABSENT)
			return TB_AGAIN;
	}
	if (!slot->answer.redirect || head->location_field != TB_FIELD_GOOD)
		return fail_as(slot, m != NULL ? m : tb_s3_error_meaning("PermanentRedirect"), s3);
	if (tb_s3_redirect(&store->place, slot->url, head->location, &target, &why) != TB_OK)
	{
		TbStatus	status = tb_http_refuse(slot, &why);

		add_detail(slot, s3);
		return status;
	}
	return tb_http_go(slot, target);
}

/* The credentials were refused: AGAIN where there are others. */
static TbStatus
renew(TbHttpSlot *slot, const TbS3Meaning *m, const TbS3Error *s3)
{
	S3Slot	   *own = (S3Slot *) slot;

	if (!own->renewed && own->signed_ever && tb_creds_refused(store_of(slot)->creds, own->serial))
	{
		own->renewed = true;
		return TB_AGAIN;
	}
	return fail_as(slot, m, s3);
}

static TbStatus
set_clock(TbHttpSlot *slot, const TbS3Meaning *m, const TbS3Error *s3)
{
	S3Store    *store = store_of(slot);
	S3Slot	   *own = (S3Slot *) slot;
	int64_t		server_s = slot->answer.head.date_s;

	if (!own->set_clock && server_s >= 0)
	{
		own->set_clock = true;
		store->clock_ahead_s = server_s - (int64_t) time(NULL);
		return TB_AGAIN;
	}
	return fail_as(slot, m, s3);
}

/* What a request that is no object's answers with status 200 may still be an error: of a multipart upload,
 * say, that failed after its head was sent. */
static bool
is_hidden_error(const TbOp *op, TbS3Error *s3)
{
	if (op->status != TB_OK || op->missing || op->data == NULL || op->data->len == 0)
		return false;
	/* an object has a version; without, its like may be a gateway's way of refusing */
	if (op->verb == TB_VERB_READ && op->version[0] == '"')
		return false;
	tb_s3_error_parse(op->data->data, op->data->len, s3);
	return s3->is_error && s3->code[0] != '\0';
}

static const TbS3Meaning unknown_error = {
	"", TB_S3_FAIL, TB_E_LOST, true, "server failed to answer", NULL
};

/* Finish what the status alone said. */
static TbStatus
answered_without_code(TbHttpSlot *slot, const TbS3Error *s3)
{
	TbOp	   *op = slot->answer.op;

	if (slot->answer.redirect)
		return move(slot, NULL, s3);
	if (op->status != TB_OK)
		add_detail(slot, s3);
	return op->status;
}

static TbStatus
s3_answered(TbHttpSlot *slot)
{
	TbOp	   *op = slot->answer.op;
	TbBuf	   *refusal = slot->answer.refusal;
	TbS3Error	s3;
	const TbS3Meaning *m;
	bool		hidden = is_hidden_error(op, &s3);

	if (!hidden && op->status == TB_OK && !op->missing && !slot->answer.redirect)
		return TB_OK;
	if (!hidden)
		tb_s3_error_parse(refusal != NULL ? refusal->data : NULL, refusal != NULL ? refusal->len : 0, &s3);
	m = tb_s3_error_meaning(s3.code);
	if (m == NULL && hidden)
		return fail_as(slot, &unknown_error, &s3);
	if (m == NULL)
		return answered_without_code(slot, &s3);
	switch (m->act)
	{
		case TB_S3_MISSING:
			/* only with its status: a code alone proves nothing */
			if (op->missing)
				return TB_OK;
			return hidden ? fail_as(slot, &unknown_error, &s3) : answered_without_code(slot, &s3);
		case TB_S3_KEYS:
			return renew(slot, m, &s3);
		case TB_S3_CLOCK:
			return set_clock(slot, m, &s3);
		case TB_S3_REGION:
			return move(slot, m, &s3);
		case TB_S3_FAIL:
			break;
	}
	return fail_as(slot, m, &s3);
}

static const TbHttpKind s3_kind = {
	.slot_bytes = sizeof(S3Slot),
	.keeps_errors = true,
	.begin = s3_begin,
	.dress = s3_dress,
	.answered = s3_answered,
	.leave = s3_leave,
};

static void
s3_close(TbStore *base)
{
	S3Store    *store = (S3Store *) base;

	tb_creds_free(store->creds);
	tb_s3_place_free(&store->place);
	explicit_bzero(&store->key, sizeof(store->key));
	tb_http_store_free(&store->http);
}

static TbStatus
s3_set_credentials(TbStore *base, const char *access_key_id, const char *secret_access_key,
	const char *session_token,
				   TbError *err)
{
	return tb_creds_set(((S3Store *) base)->creds, access_key_id, secret_access_key, session_token, err);
}

/* endpoint and region are what the url's owner chose, the server's later word is not among them. */
static void
s3_scope(TbStore *base, uint8_t scope[32])
{
	const S3Store *store = (const S3Store *) base;
	char		who[65] = "";
	uint8_t		hash[32] = {0};
	const char *text[] = {
		store->place.follows_region ? NULL : store->place.endpoint, store->place.tls ? "https" : "http", base->url,
		store->http.ca_file, who
	};

	if (!store->anonymous)
		tb_creds_scope(store->creds, hash);
	for (int i = 0; i < 32; i++)
		(void) snprintf(who + 2 * i, 3, "%02x", hash[i]);
	tb_http_scope(&store->http, text, sizeof(text) / sizeof(text[0]), scope);
}

static const TbStoreOps s3_ops = {
	.merges = true,
	.scope = s3_scope,
	.can_list = true,
	.can_write = true,
	.connects = true,
	.start = tb_http_op_start,
	.stop = tb_http_op_stop,
	.close = s3_close,
	.set_credentials = s3_set_credentials,
};

const char *
tb_s3_store_prefix(const TbStore *store)
{
	return store->ops == &s3_ops ? ((const S3Store *) store)->place.prefix : NULL;
}

TbStatus
tb_store_open_s3(TbIo *io, const TbStoreSpec *spec, TbStore **out, TbError *err)
{
	S3Store    *store = tb_calloc(1, sizeof(*store));
	size_t		len = strlen(spec->url);
	char	   *url;
	char	   *server_url;
	TbStatus	status;

	if (store == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_s3_place_init(&store->place, spec, err);
	if (status != TB_OK)
	{
		tb_free(store);
		return status;
	}
	if (len > 0 && spec->url[len - 1] == '/')
		len--;
	url = tb_strndup(spec->url, len);
	server_url = tb_s3_endpoint_url(&store->place);
	store->http.kind = &s3_kind;
	store->http.base.ops = &s3_ops;
	store->anonymous = spec->anonymous;
	store->requester_pays = spec->requester_pays;
	if (url == NULL || server_url == NULL)
	{
		store->http.base.url = url;
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	else
		status = tb_http_store_init(&store->http, io, url, server_url, spec, err);
	tb_free(server_url);
	if (status == TB_OK)
		status = tb_creds_new(io, spec, &store->creds, err);
	if (status != TB_OK)
	{
		s3_close(&store->http.base);
		return status;
	}
	*out = &store->http.base;
	return TB_OK;
}
