/*
 * Objects behind http(s) URLs. A slot is a libcurl handle with what one request needs; slots are
 * kept, so that their connections and buffers are. Each attempt of an op has a slot; redirects stay
 * in it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero */
#endif

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/http.h"
#include "io/http_answer.h"
#include "io/url.h"

#define HOPS_MAX 3

typedef struct HttpStore HttpStore;

typedef struct HttpSlot
{
	TbTransfer	transfer;
	HttpStore  *store;			/* borrowed */
	struct HttpSlot *next;		/* idle ones */
	TbAnswer	answer;			/* answer.op: the op served */
	char	   *url;			/* owned; of the request in flight */
	struct curl_slist *headers; /* owned where the request has some of its own */
	int			hops;
	bool		resent;			/* after a kept connection proved dead */
	char		text[CURL_ERROR_SIZE];	/* curl's words for a failure */
} HttpSlot;

struct HttpStore
{
	TbStore		base;
	char	   *root;			/* owned; url as requests use it */
	char	   *ca_file;		/* owned; NULL: the system's */
	char	   *user;			/* owned; NULL: none */
	char	   *password;		/* owned, wiped */
	struct curl_slist *headers; /* owned; sent with every request */
	HttpSlot   *idle;			/* owned */
};

static HttpSlot *
slot_of(TbTransfer *transfer)
{
	return (HttpSlot *) transfer;
}

static size_t
header_came(char *line, size_t size, size_t n, void *arg)
{
	HttpSlot   *slot = arg;

	slot->transfer.answered = true;
	return tb_answer_header(&slot->answer, line, size * n) ? size * n : 0;
}

static size_t
body_came(char *bytes, size_t size, size_t n, void *arg)
{
	HttpSlot   *slot = arg;

	slot->transfer.bytes += size * n;
	return tb_answer_body(&slot->answer, (const uint8_t *) bytes, size * n) ? size * n : 0;
}

static void
free_slot(HttpSlot *slot)
{
	curl_easy_cleanup(slot->transfer.easy);
	curl_slist_free_all(slot->headers);
	tb_free(slot->url);
	tb_free(slot);
}

static void slot_done(TbTransfer *transfer, CURLcode code);

/* What all requests of a store have in common. */
static CURLcode
set_up(const HttpStore *store, HttpSlot *slot)
{
	CURL	   *e = slot->transfer.easy;
	CURLcode	code = curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, header_came);

	if (code == CURLE_OK)
		code = curl_easy_setopt(e, CURLOPT_HEADERDATA, slot);
	if (code == CURLE_OK)
		code = curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, body_came);
	if (code == CURLE_OK)
		code = curl_easy_setopt(e, CURLOPT_WRITEDATA, slot);
	if (code == CURLE_OK)
		code = curl_easy_setopt(e, CURLOPT_ERRORBUFFER, slot->text);
	if (code == CURLE_OK && store->ca_file != NULL)
		code = curl_easy_setopt(e, CURLOPT_CAINFO, store->ca_file);
	if (code == CURLE_OK && store->ca_file != NULL)
		code = curl_easy_setopt(e, CURLOPT_CAPATH, NULL);	/* this file alone is trusted */
	if (code == CURLE_OK && store->user != NULL)
		code = curl_easy_setopt(e, CURLOPT_USERNAME, store->user);
	if (code == CURLE_OK && store->user != NULL && store->password != NULL)
		code = curl_easy_setopt(e, CURLOPT_PASSWORD, store->password);
	return code;
}

/* An idle slot, or a new one. NULL when memory is gone. */
static HttpSlot *
take_slot(HttpStore *store)
{
	HttpSlot   *slot = store->idle;

	if (slot != NULL)
	{
		store->idle = slot->next;
		return slot;
	}
	slot = tb_calloc(1, sizeof(*slot));
	if (slot == NULL)
		return NULL;
	slot->store = store;
	slot->transfer.done = slot_done;
	if (tb_http_easy(store->base.io->http, &slot->transfer) != TB_OK || set_up(store, slot) != CURLE_OK)
	{
		free_slot(slot);
		return NULL;
	}
	return slot;
}

static void
give_slot_back(HttpSlot *slot)
{
	curl_slist_free_all(slot->headers);
	slot->headers = NULL;
	tb_free(slot->url);
	slot->url = NULL;
	slot->answer.op->slot = NULL;
	slot->answer.op = NULL;
	slot->next = slot->store->idle;
	slot->store->idle = slot;
}

/* The store's headers and If-Match. NULL when memory is gone. */
static struct curl_slist *
headers_with_version(const char *version)
{
	char		line[128];
	struct curl_slist *headers = curl_slist_append(NULL, "Accept-Encoding: identity");
	struct curl_slist *more;

	if (headers == NULL)
		return NULL;
	(void) snprintf(line, sizeof(line), "If-Match: %.95s", version);
	more = curl_slist_append(headers, line);
	if (more == NULL)
		curl_slist_free_all(headers);
	return more;
}

/* Set what this request alone has, and start it. */
static TbStatus
request(HttpSlot *slot)
{
	TbOp	   *op = slot->answer.op;
	CURL	   *e = slot->transfer.easy;
	char		range[64];
	CURLcode	code;

	if (op->kind == TB_RANGE_AT)
		(void) snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, op->offset, op->offset + op->length - 1);
	else
		(void) snprintf(range, sizeof(range), "-%" PRIu64, op->length);
	if (op->if_version != NULL && strlen(op->if_version) < sizeof(op->version) &&
		tb_head_is_strong(op->if_version) && slot->headers == NULL)
	{
		slot->headers = headers_with_version(op->if_version);
		if (slot->headers == NULL)
			return TB_E_NOMEM;
	}
	slot->text[0] = '\0';
	code = curl_easy_setopt(e, CURLOPT_URL, slot->url);
	if (code == CURLE_OK)
		code = curl_easy_setopt(e, CURLOPT_RANGE, op->kind == TB_RANGE_WHOLE ? NULL : range);
	if (code == CURLE_OK)
		code = curl_easy_setopt(e, CURLOPT_HTTPHEADER,
								slot->headers != NULL ? slot->headers : slot->store->headers);
	if (code == CURLE_OK)
		code = curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, op->fresh || slot->resent ? 1L : 0L);
	if (code != CURLE_OK)
		return TB_E_NOMEM;
	tb_answer_begin(&slot->answer, op);
	return tb_http_start(op->store->io->http, &slot->transfer);
}

static void
failed_at_start(TbTask *task)
{
	tb_op_finish((TbOp *) ((char *) task - offsetof(TbOp, task)));
}

static void
http_start(TbOp *op)
{
	HttpStore  *store = (HttpStore *) op->store;
	HttpSlot   *slot = take_slot(store);

	op->slot = slot;
	if (slot != NULL)
	{
		slot->answer.op = op;
		slot->hops = 0;
		slot->resent = false;
		slot->url = tb_url_append(store->root, op->key);
		if (slot->url != NULL && request(slot) == TB_OK)
			return;
		give_slot_back(slot);
	}
	tb_op_nomem(op);
	op->task.run = failed_at_start;
	tb_loop_defer(store->base.io->loop, &op->task);
}

static void
http_stop(TbOp *op)
{
	HttpSlot   *slot = op->slot;

	tb_loop_undefer(op->store->io->loop, &op->task);
	if (slot == NULL)
		return;
	tb_http_stop(op->store->io->http, &slot->transfer);
	give_slot_back(slot);
}

/* Follow a redirect, where that is allowed. Fills op's outcome where it is not. */
static TbStatus
follow(HttpSlot *slot)
{
	TbOp	   *op = slot->answer.op;
	char	   *target;
	TbError		why;
	TbStatus	status;

	if (slot->answer.head.location_field != TB_FIELD_GOOD)
		status = tb_fail(&why, TB_E_PROTOCOL, "redirect without a location");
	else if (slot->hops++ == HOPS_MAX)
		status = tb_fail(&why, TB_E_PROTOCOL, "too many redirects");
	else
		status = tb_url_redirect(slot->url, slot->answer.head.location, &target, &why);
	if (status != TB_OK)
	{
		tb_op_fail(op, status, false, why.message);
		op->error.http_status = slot->answer.head.status;
		if (why.detail[0] != '\0')
			tb_error_detail(&op->error, "%s", why.detail);
		if (why.hint[0] != '\0')
			tb_error_hint(&op->error, "%s", why.hint);
		return status;
	}
	tb_free(slot->url);
	slot->url = target;
	status = request(slot);
	return status == TB_OK ? TB_OK : tb_op_nomem(op);
}

/* Whether a request fell on a connection that the server closed while it was idle. */
static bool
was_stale(const HttpSlot *slot, CURLcode code)
{
	long		new_connections = 1;

	return (code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING) &&
		!slot->transfer.answered && !slot->resent &&
		curl_easy_getinfo(slot->transfer.easy, CURLINFO_NUM_CONNECTS, &new_connections) == CURLE_OK &&
		new_connections == 0;
}

/* A transfer has ended: redirect, or complete the outcome. */
static void
slot_done(TbTransfer *transfer, CURLcode code)
{
	HttpSlot   *slot = slot_of(transfer);
	TbOp	   *op = slot->answer.op;
	TbAnswer   *answer = &slot->answer;

	if (was_stale(slot, code))
	{
		slot->resent = true;	/* no failure of the server's: costs no attempt */
		if (request(slot) == TB_OK)
			return;
		tb_op_nomem(op);
	}
	else if (answer->redirect && op->status == TB_OK)
	{
		if (follow(slot) == TB_OK)
			return;
	}
	else if (op->status == TB_OK && !op->missing)
	{
		/* what the answer itself said is definite, however its connection ended */
		if (code == CURLE_OK)
			tb_answer_end(answer);
		else
			tb_http_failure(transfer, code, slot->text, op);
	}
	give_slot_back(slot);
	tb_op_finish(op);
}

static void
free_secret(char *secret)
{
	if (secret != NULL)
		explicit_bzero(secret, strlen(secret));
	tb_free(secret);
}

static void
http_close(TbStore *base)
{
	HttpStore  *store = (HttpStore *) base;
	HttpSlot   *slot;

	while ((slot = store->idle) != NULL)
	{
		store->idle = slot->next;
		free_slot(slot);
	}
	curl_slist_free_all(store->headers);
	free_secret(store->password);
	tb_free(store->user);
	tb_free(store->ca_file);
	tb_free(store->root);
	tb_free(base->url);
	tb_free(store);
}

static const TbStoreOps http_ops = {
	.connects = true,
	.start = http_start,
	.stop = http_stop,
	.close = http_close,
};

/* Copy text where there is one; false when memory is gone. */
static bool
copy(const char *text, char **out)
{
	*out = text != NULL ? tb_strdup(text) : NULL;
	return text == NULL || *out != NULL;
}

TbStatus
tb_store_open_http(TbIo *io, const TbStoreSpec *spec, TbStore **out, TbError *err)
{
	HttpStore  *store;
	char	   *root;
	char	   *url;
	size_t		len = strlen(spec->url);
	TbStatus	status = tb_url_check_http(spec->url, &root, err);

	if (status == TB_OK && io->http == NULL)
	{
		status = tb_http_new(io->loop, &io->options, &io->http, err);
		if (status != TB_OK)
			tb_free(root);
	}
	if (status != TB_OK)
		return status;
	while (len > 0 && spec->url[len - 1] == '/')
		len--;
	store = tb_calloc(1, sizeof(*store));
	url = tb_strndup(spec->url, len);
	if (store == NULL || url == NULL)
	{
		tb_free(root);
		tb_free(url);
		tb_free(store);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	tb_store_init(&store->base, &http_ops, io, url);
	store->root = root;
	store->headers = curl_slist_append(NULL, "Accept-Encoding: identity");
	if (store->headers == NULL || !copy(spec->ca_file, &store->ca_file) || !copy(spec->user, &store->user) ||
		!copy(spec->password, &store->password))
	{
		http_close(&store->base);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	*out = &store->base;
	return TB_OK;
}
