/*
 * A provider's requests: one at a time, small answers, at most TB_CREDS_REQUEST_MS each, tried once more where
 * the service is there but had trouble. Redirects are not followed. Which addresses stores may reach is no
 * matter here: these services are named by the administrator, and metadata services have link-local addresses.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero */
#endif

#include "io/creds_parts.h"

#include <string.h>

#include "io/http_request.h"

#define GRACE_MS 100			/* for what came while nobody pumped */
#define ATTEMPTS 2

static TbAsk *
ask_of(TbTransfer *transfer)
{
	return (TbAsk *) ((char *) transfer - offsetof(TbAsk, http.transfer));
}

static size_t
header_came(char *line, size_t size, size_t n, void *arg)
{
	((TbAsk *) arg)->http.transfer.answered = true;
	return size * n;
}

static size_t
body_came(char *bytes, size_t size, size_t n, void *arg)
{
	TbAsk	   *ask = arg;

	ask->http.transfer.bytes += size * n;
	return tb_buf_append(ask->http.body, bytes, size * n, TB_CREDS_ANSWER_MAX) == TB_OK ? size * n : 0;
}

/* End the request in hand, running or not. */
static void
drop(TbAskHttp *http, TbIo *io)
{
	if (http->running)
		tb_http_stop(io->http, &http->transfer);
	if (http->transfer.easy != NULL)
		curl_easy_cleanup(http->transfer.easy);
	if (io != NULL)
		tb_loop_disarm(io->loop, &http->timer);
	tb_http_free_headers(http->headers);
	tb_wipe_buf(http->post);
	tb_wipe_buf(http->body);
	memset(http, 0, sizeof(*http));
}

void
tb_ask_clear(TbAsk *ask)
{
	drop(&ask->http, ask->io);
	tb_free_secret(ask->secret);
	tb_free(ask->url);
	ask->secret = NULL;
	ask->url = NULL;
	ask->step = 0;
}

static void
end(TbAsk *ask, TbStatus status)
{
	if (status != TB_AGAIN)
		ask->ended(ask, status);
}

/* The time is over. What has come meanwhile is looked at first: the host may have had no time to pump. */
static void
timer_fired(TbTimer *timer)
{
	TbAsk	   *ask = (TbAsk *) ((char *) timer - offsetof(TbAsk, http.timer));

	if (!ask->http.late && tb_loop_arm(ask->io->loop, timer, GRACE_MS * TB_NS_PER_MS) == TB_OK)
	{
		ask->http.late = true;
		return;
	}
	drop(&ask->http, ask->io);
	end(ask, tb_ask_none(ask, "no answer within %d s", TB_CREDS_REQUEST_MS / 1000));
}

static TbStatus
start(TbAsk *ask)
{
	TbAskHttp  *http = &ask->http;
	TbStatus	status;

	http->late = false;
	http->attempt++;
	status = tb_loop_arm(ask->io->loop, &http->timer, (TB_CREDS_REQUEST_MS - GRACE_MS) * TB_NS_PER_MS);
	if (status == TB_OK)
		status = tb_http_start(ask->io->http, &http->transfer);
	http->running = status == TB_OK;
	if (http->running)
		return TB_AGAIN;
	drop(http, ask->io);
	return tb_ask_nomem(ask);
}

static void
request_done(TbTransfer *transfer, CURLcode code)
{
	TbAsk	   *ask = ask_of(transfer);
	TbAskHttp  *http = &ask->http;
	long		status = 0;
	TbBuf	   *body;
	bool		trouble;

	http->running = false;
	(void) curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
	trouble = code == CURLE_OK ? status >= 500 || status == 429 :
		code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR;
	if (trouble && !http->late && http->attempt < ATTEMPTS)
	{
		if (http->body->cap > 0)
			explicit_bzero(http->body->data, http->body->cap);
		http->body->len = 0;
		end(ask, start(ask));
		return;
	}
	body = http->body;
	http->body = NULL;
	drop(http, ask->io);
	if (code == CURLE_OK)
		end(ask, ask->provider->answered(ask, status, body));
	else
		end(ask, tb_ask_none(ask, "cannot be reached: %.100s", curl_easy_strerror(code)));
	tb_wipe_buf(body);
}

static CURLcode
set_up(TbAsk *ask, const TbAskRequest *request)
{
	CURL	   *e = ask->http.transfer.easy;
	const char *ca = tb_ask_env("AWS_CA_BUNDLE");
	CURLcode	code = curl_easy_setopt(e, CURLOPT_URL, request->url);

#define SET(option, value) \
	do { \
		if (code == CURLE_OK) \
			code = curl_easy_setopt(e, option, value); \
	} while (0)
	SET(CURLOPT_CUSTOMREQUEST, request->method);
	SET(CURLOPT_HTTPHEADER, ask->http.headers);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long) TB_CREDS_REQUEST_MS);
	if (ca != NULL)
		SET(CURLOPT_CAINFO, ca);
	if (ask->http.post != NULL)
	{
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) ask->http.post->len);
		SET(CURLOPT_POSTFIELDS, (char *) ask->http.post->data);
	}
	SET(CURLOPT_HEADERFUNCTION, header_came);
	SET(CURLOPT_HEADERDATA, (void *) ask);
	SET(CURLOPT_WRITEFUNCTION, body_came);
	SET(CURLOPT_WRITEDATA, (void *) ask);
#undef SET
	return code;
}

static bool
take_headers(TbAskHttp *http, const TbAskRequest *request)
{
	for (size_t i = 0; i < sizeof(request->header) / sizeof(request->header[0]); i++)
	{
		struct curl_slist *more;

		if (request->header[i] == NULL)
			continue;
		more = curl_slist_append(http->headers, request->header[i]);
		if (more == NULL)
			return false;
		http->headers = more;
	}
	return true;
}

TbStatus
tb_ask_request(TbAsk *ask, const TbAskRequest *request)
{
	TbAskHttp  *http = &ask->http;
	TbStatus	status = TB_OK;

	drop(http, ask->io);
	http->post = request->post;
	http->timer.fire = timer_fired;
	http->transfer.done = request_done;
	if (ask->io->http == NULL)
		status = tb_http_new(ask->io->loop, &ask->io->options, &ask->io->http, NULL);
	if (status == TB_OK && (http->body = tb_buf_new(0)) == NULL)
		status = TB_E_NOMEM;
	if (status == TB_OK)
		status = tb_http_easy(ask->io->http, &http->transfer);
	if (status != TB_OK || !take_headers(http, request) || set_up(ask, request) != CURLE_OK)
	{
		drop(http, ask->io);
		return tb_ask_nomem(ask);
	}
	return start(ask);
}
