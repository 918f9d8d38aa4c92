/*
 * What libcurl's failures mean here: one table. What is not in it breaks HTTP in some way.
 */
#include <string.h>

#include "io/http.h"

typedef struct Meaning
{
	CURLcode	code;
	TbStatus	status;
	bool		retryable;
	const char *message;
} Meaning;

static const Meaning meanings[] = {
	{CURLE_COULDNT_RESOLVE_HOST, TB_E_CONNECT, true, "host name cannot be resolved"},
	{CURLE_COULDNT_CONNECT, TB_E_CONNECT, true, "could not connect to server"},
	{CURLE_SSL_CONNECT_ERROR, TB_E_CONNECT, true, "TLS handshake failed"},
	{CURLE_PEER_FAILED_VERIFICATION, TB_E_CONNECT, false, "certificate of the server is not trusted"},
	{CURLE_SSL_ISSUER_ERROR, TB_E_CONNECT, false, "certificate of the server is not trusted"},
	{CURLE_SSL_INVALIDCERTSTATUS, TB_E_CONNECT, false, "certificate of the server is not trusted"},
	{CURLE_SSL_CACERT_BADFILE, TB_E_CONNECT, false, "CA file cannot be read"},
	{CURLE_SSL_CIPHER, TB_E_CONNECT, false, "no TLS cipher in common"},
	{CURLE_OPERATION_TIMEDOUT, TB_E_LOST, true, "server does not answer in time"},
	{CURLE_GOT_NOTHING, TB_E_LOST, true, "connection was closed without an answer"},
	{CURLE_RECV_ERROR, TB_E_LOST, true, "connection was lost"},
	{CURLE_SEND_ERROR, TB_E_LOST, true, "connection was lost"},
	{CURLE_PARTIAL_FILE, TB_E_LOST, true, "answer ends early"},
	{CURLE_UNSUPPORTED_PROTOCOL, TB_E_PROTOCOL, true, "server does not speak HTTP"},
	{CURLE_WEIRD_SERVER_REPLY, TB_E_PROTOCOL, true, "server does not speak HTTP"},
	{CURLE_OUT_OF_MEMORY, TB_E_NOMEM, false, "out of memory"},
};

static const Meaning other = {CURLE_OK, TB_E_PROTOCOL, false, "server breaks the rules of HTTP"};

static const Meaning *
meaning_of(CURLcode code)
{
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (meanings[i].code == code)
			return &meanings[i];
	return &other;
}

void
tb_http_failure(const TbTransfer *t, CURLcode code, const char *text, TbOp *op)
{
	const Meaning *m;
	curl_off_t	sent_us = 0;

	if (t->no_memory)
		code = CURLE_OUT_OF_MEMORY;
	m = meaning_of(code);
	if (t->refused && !t->permitted)
	{
		tb_op_fail(op, TB_E_DENIED, false, "address of the server is not allowed");
		tb_error_hint(&op->error, "Name the host or its network in the server option allowed_hosts.");
		return;
	}
	if (t->no_sockets)
	{
		tb_op_fail(op, TB_E_THROTTLED, true, "too many open files");
		tb_error_hint(&op->error, "Lower tensorbank.max_connections.");
		return;
	}
	if (code == CURLE_OPERATION_TIMEDOUT && !t->answered && !t->stalled &&
		curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us) == CURLE_OK && sent_us == 0)
		tb_op_fail(op, TB_E_CONNECT, true, "could not connect to server in time");
	else if (code == CURLE_OPERATION_TIMEDOUT && t->answered)
		tb_op_fail(op, TB_E_LOST, true, "server sends too slowly");
	else
		tb_op_fail(op, m->status, m->retryable, m->message);
	if (text[0] != '\0')
		tb_error_detail(&op->error, "%.160s", text);
	if (m->status == TB_E_CONNECT)
		tb_error_hint(&op->error, "Check the store's url, the network and the CA file.");
}
