/*
 * Slots: a libcurl handle with what one request needs. They are kept, so that their connections and buffers are.
 *
 *   start -> begin (url) -> dress (headers) -> curl ... slot_done -> answered -> finish
 *                  ^---------------------------------------- AGAIN ----'
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero */
#endif

#include "io/http_request.h"

#include <inttypes.h>
#include <openssl/sha.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/url.h"

#define UPLOAD_BYTES (512L << 10)
#define HEADER_MAX 8192

void
tb_http_free_headers(struct curl_slist *headers)
{
	for (struct curl_slist *h = headers; h != NULL; h = h->next)
		explicit_bzero(h->data, strlen(h->data));
	curl_slist_free_all(headers);
}

bool
tb_http_header(TbHttpSlot *slot, const char *format, ...)
{
	char		line[HEADER_MAX];
	va_list		args;
	int			len;
	struct curl_slist *more = NULL;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (len > 0 && (size_t) len < sizeof(line))
		more = curl_slist_append(slot->headers, line);
	explicit_bzero(line, len > 0 && (size_t) len < sizeof(line) ? (size_t) len : sizeof(line));
	if (more == NULL)
		return false;
	slot->headers = more;
	return true;
}

void
tb_http_range(const TbOp *op, char range[64])
{
	range[0] = '\0';
	if (op->verb != TB_VERB_READ || op->kind == TB_RANGE_WHOLE)
		return;
	if (op->kind == TB_RANGE_AT)
		(void) snprintf(range, 64, "bytes=%" PRIu64 "-%" PRIu64, op->offset, op->offset + op->length - 1);
	else
		(void) snprintf(range, 64, "bytes=-%" PRIu64, op->length);
}

/* Whether a server can compare a version: it is an ETag, and a strong one. */
static const char *
comparable(const TbOp *op, const char *version)
{
	return version != NULL && strlen(version) < sizeof(op->version) && tb_head_is_strong(version) ? version : NULL;
}

const char *
tb_http_match(const TbOp *op)
{
	return comparable(op, op->if_version);
}

const char *
tb_http_none_match(const TbOp *op)
{
	return op->create_once ? "*" : comparable(op, op->unless_version);
}

void
tb_http_scope(const TbHttpStore *store, const char *const *text, size_t n, uint8_t scope[32])
{
	tb_peers_hash(store->peers, scope);
	for (size_t i = 0; i < n; i++)
	{
		uint8_t		both[64];

		memcpy(both, scope, 32);
		memset(both + 32, text[i] == NULL, 32);
		if (text[i] != NULL)
			(void) SHA256((const uint8_t *) text[i], strlen(text[i]), both + 32);
		(void) SHA256(both, sizeof(both), scope);
		explicit_bzero(both, sizeof(both));
	}
}

static size_t
header_came(char *line, size_t size, size_t n, void *arg)
{
	TbHttpSlot *slot = arg;

	slot->transfer.answered = true;
	tb_op_first_byte(slot->answer.op);
	return tb_answer_header(&slot->answer, line, size * n) ? size * n : 0;
}

static size_t
body_came(char *bytes, size_t size, size_t n, void *arg)
{
	TbHttpSlot *slot = arg;

	slot->transfer.bytes += size * n;
	return tb_answer_body(&slot->answer, (const uint8_t *) bytes, size * n) ? size * n : 0;
}

static void
free_slot(TbHttpSlot *slot)
{
	curl_easy_cleanup(slot->transfer.easy);
	tb_http_free_headers(slot->headers);
	tb_answer_clear(&slot->answer);
	tb_free(slot->url);
	tb_free(slot);
}

/* Set options, remembering the first failure. */
#define SET(option, value) \
	do { \
		if (code == CURLE_OK) \
			code = curl_easy_setopt(e, option, value); \
	} while (0)

/* What all requests of a store have in common. */
static CURLcode
set_up(const TbHttpStore *store, TbHttpSlot *slot)
{
	CURL	   *e = slot->transfer.easy;
	CURLcode	code = CURLE_OK;

	SET(CURLOPT_HEADERFUNCTION, header_came);
	SET(CURLOPT_HEADERDATA, slot);
	SET(CURLOPT_WRITEFUNCTION, body_came);
	SET(CURLOPT_WRITEDATA, slot);
	SET(CURLOPT_ERRORBUFFER, slot->text);
	if (store->ca_file != NULL)
	{
		SET(CURLOPT_CAINFO, store->ca_file);
		SET(CURLOPT_CAPATH, NULL);	/* this file alone is trusted */
	}
	return code;
}

/* Set the handle for the op's verb and body. */
static CURLcode
set_verb(TbHttpSlot *slot, const TbOp *op)
{
	CURL	   *e = slot->transfer.easy;
	CURLcode	code = CURLE_OK;
	bool		sends = op->verb == TB_VERB_PUT || op->verb == TB_VERB_POST;

	slot->transfer.sends = sends;
	if (op->verb == slot->verb && !sends)
		return code;
	slot->verb = op->verb;
	if (sends)
	{
		SET(CURLOPT_POST, 1L);
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) (op->body != NULL ? op->body->len : 0));
		SET(CURLOPT_POSTFIELDS, op->body != NULL && op->body->len > 0 ? (const char *) op->body->data : "");
		SET(CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BYTES);
	}
	else
	{
		SET(CURLOPT_POSTFIELDS, NULL);	/* op's body is not kept */
		SET(CURLOPT_HTTPGET, 1L);
	}
	SET(CURLOPT_CUSTOMREQUEST, op->verb == TB_VERB_PUT ? "PUT" : op->verb == TB_VERB_DELETE ? "DELETE" : NULL);
	return code;
}

static void slot_done(TbTransfer *transfer, CURLcode code);

/* An idle slot, or a new one. NULL when memory is gone. */
static TbHttpSlot *
take_slot(TbHttpStore *store)
{
	TbHttpSlot *slot = store->idle;

	if (slot != NULL)
	{
		store->idle = slot->next;
		return slot;
	}
	slot = tb_calloc(1, store->kind->slot_bytes);
	if (slot == NULL)
		return NULL;
	slot->store = store;
	slot->transfer.done = slot_done;
	slot->transfer.peers = store->peers;
	if (tb_http_easy(store->base.io->http, &slot->transfer) != TB_OK || set_up(store, slot) != CURLE_OK)
	{
		free_slot(slot);
		return NULL;
	}
	return slot;
}

static void
give_slot_back(TbHttpSlot *slot)
{
	tb_http_free_headers(slot->headers);
	slot->headers = NULL;
	tb_answer_clear(&slot->answer);
	tb_free(slot->url);
	slot->url = NULL;
	slot->answer.op->slot = NULL;
	slot->answer.op = NULL;
	slot->next = slot->store->idle;
	slot->store->idle = slot;
}

static void
failed_at_start(TbTask *task)
{
	tb_op_finish((TbOp *) ((char *) task - offsetof(TbOp, task)));
}

/* End the attempt from the pump; its outcome is filled. */
static void
end_later(TbOp *op)
{
	op->task.run = failed_at_start;
	tb_loop_defer(op->store->io->loop, &op->task);
}

/* The headers of every request. */
static bool
common_headers(TbHttpSlot *slot, const TbOp *op)
{
	if (!tb_http_header(slot, "Accept-Encoding: identity"))
		return false;
	if (!slot->transfer.sends)
		return true;
	return tb_http_header(slot, "Expect:") && tb_http_header(slot, "Content-Type: application/octet-stream");
}

/* Set what this request alone has, and start it. AGAIN: not yet. */
static TbStatus
request(TbHttpSlot *slot)
{
	TbOp	   *op = slot->answer.op;
	CURL	   *e = slot->transfer.easy;
	CURLcode	code = set_verb(slot, op);
	TbStatus	status;

	tb_http_free_headers(slot->headers);
	slot->headers = NULL;
	if (code != CURLE_OK || !common_headers(slot, op))
		return tb_op_nomem(op);
	status = slot->store->kind->dress(slot);
	if (status != TB_OK)
		return status;
	slot->text[0] = '\0';
	SET(CURLOPT_URL, slot->url);
	SET(CURLOPT_USERNAME, slot->store->user);
	SET(CURLOPT_PASSWORD, slot->store->user != NULL ? slot->store->password : NULL);
	SET(CURLOPT_HTTPHEADER, slot->headers);
	SET(CURLOPT_FRESH_CONNECT, op->fresh || slot->resent ? 1L : 0L);
	SET(CURLOPT_DNS_CACHE_TIMEOUT, op->attempt > 1 ? 0L : 60L);	/* the host may have moved */
	if (code != CURLE_OK)
		return tb_op_nomem(op);
	tb_answer_clear(&slot->answer);
	tb_answer_begin(&slot->answer, op);
	slot->answer.keep_errors = slot->store->kind->keeps_errors;
	if (tb_http_start(op->store->io->http, &slot->transfer) != TB_OK)
		return tb_op_nomem(op);
	slot->running = true;
	return TB_OK;
}

void
tb_http_send(TbHttpSlot *slot)
{
	TbOp	   *op = slot->answer.op;
	TbStatus	status = request(slot);

	if (status == TB_OK || status == TB_AGAIN)
		return;
	give_slot_back(slot);
	end_later(op);
}

void
tb_http_op_start(TbOp *op)
{
	TbHttpStore *store = (TbHttpStore *) op->store;
	TbHttpSlot *slot = take_slot(store);

	op->slot = slot;
	if (slot != NULL)
	{
		slot->answer.op = op;
		slot->hops = 0;
		slot->resent = false;
		if (store->kind->begin(slot) == TB_OK)
		{
			tb_http_send(slot);
			return;
		}
		give_slot_back(slot);
	}
	tb_op_nomem(op);
	end_later(op);
}

void
tb_http_op_stop(TbOp *op)
{
	TbHttpSlot *slot = op->slot;

	tb_loop_undefer(op->store->io->loop, &op->task);
	if (slot == NULL)
		return;
	if (slot->running)
		tb_http_stop(op->store->io->http, &slot->transfer);
	else if (slot->store->kind->leave != NULL)
		slot->store->kind->leave(slot);
	slot->running = false;
	give_slot_back(slot);
}

TbStatus
tb_http_refuse(TbHttpSlot *slot, const TbError *why)
{
	TbOp	   *op = slot->answer.op;

	tb_op_fail(op, why->code, false, why->message);
	op->error.http_status = slot->answer.head.status;
	if (why->detail[0] != '\0')
		tb_error_detail(&op->error, "%s", why->detail);
	if (why->hint[0] != '\0')
		tb_error_hint(&op->error, "%s", why->hint);
	return why->code;
}

TbStatus
tb_http_go(TbHttpSlot *slot, char *url)
{
	TbError		why;

	if (slot->hops++ == TB_HTTP_HOPS_MAX)
	{
		tb_free(url);
		(void) tb_fail(&why, TB_E_PROTOCOL, "too many redirects");
		return tb_http_refuse(slot, &why);
	}
	tb_free(slot->url);
	slot->url = url;
	return TB_AGAIN;
}

/* Whether a request fell on a connection that the server closed while it was idle, or sent too much on. */
static bool
was_stale(const TbHttpSlot *slot, CURLcode code)
{
	long		new_connections = 1;

	return (code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING ||
			slot->transfer.excess) &&
		!slot->transfer.answered && !slot->resent &&
		curl_easy_getinfo(slot->transfer.easy, CURLINFO_NUM_CONNECTS, &new_connections) == CURLE_OK &&
		new_connections == 0;
}

/* A transfer has ended: complete the outcome, or ask again. */
static void
slot_done(TbTransfer *transfer, CURLcode code)
{
	TbHttpSlot *slot = (TbHttpSlot *) transfer;
	TbOp	   *op = slot->answer.op;
	TbAnswer   *answer = &slot->answer;
	TbStatus	status = TB_OK;

	slot->running = false;
	if (was_stale(slot, code))
	{
		slot->resent = true;	/* no failure of the server's: costs no attempt */
		status = TB_AGAIN;
	}
	else
	{
		/* what the head itself said is definite, however its connection ended */
		if (op->status == TB_OK && !op->missing && !op->not_modified && !answer->redirect)
		{
			if (code == CURLE_OK)
				tb_answer_end(answer);
			else
				tb_http_failure(transfer, code, slot->text, op);
		}
		if (answer->judged)
			status = slot->store->kind->answered(slot);
	}
	if (status == TB_AGAIN)
	{
		tb_op_forget_outcome(op);
		status = request(slot);
		if (status == TB_OK || status == TB_AGAIN)
			return;
	}
	give_slot_back(slot);
	tb_op_finish(op);
}

/* Copy text where there is one; false when memory is gone. */
static bool
copy(const char *text, char **out)
{
	*out = text != NULL ? tb_strdup(text) : NULL;
	return text == NULL || *out != NULL;
}

/* Have the store share what is known about its server. */
static TbStatus
join_flow(TbHttpStore *store, const char *server_url, TbError *err)
{
	TbUrlServer server;
	char	   *endpoint;
	TbStatus	status = tb_url_server(server_url, &server, err);

	if (status != TB_OK)
		return status;
	endpoint = tb_asprintf("%s://%s:%d", server.tls ? "https" : "http", server.host, server.port);
	tb_url_server_free(&server);
	if (endpoint != NULL)
		store->base.lane = tb_io_flow(store->base.io, endpoint);
	tb_free(endpoint);
	return store->base.lane != NULL ? TB_OK : tb_fail(err, TB_E_NOMEM, "out of memory");
}

TbStatus
tb_http_store_init(TbHttpStore *store, TbIo *io, char *url, const char *server_url, const TbStoreSpec *spec,
				   TbError *err)
{
	TbStatus	status = tb_peers_new(server_url, spec, &store->peers, err);

	tb_store_init(&store->base, store->base.ops, io, url);
	if (status == TB_OK && io->http == NULL)
		status = tb_http_new(io->loop, &io->options, &io->http, err);
	if (status == TB_OK)
		status = join_flow(store, server_url, err);
	if (status == TB_OK && !copy(spec->ca_file, &store->ca_file))
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	return status;
}

void
tb_http_store_free(TbHttpStore *store)
{
	TbHttpSlot *slot;

	while ((slot = store->idle) != NULL)
	{
		store->idle = slot->next;
		free_slot(slot);
	}
	tb_peers_free(store->peers);
	tb_free_secret(store->password);
	tb_free(store->user);
	tb_free(store->ca_file);
	tb_free(store->base.url);
	tb_free(store);
}
