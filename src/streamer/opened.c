/* Streams and the connections that they hang on: who opened one, and who redeemed its token. */
#include "streamer/server.h"

TbOpened *
tb_opened_add(TbConn *conn, TbStream *stream)
{
	TbOpened   *opened = tb_calloc(1, sizeof(*opened));

	if (opened == NULL)
		return NULL;
	opened->stream = stream;
	opened->control = conn;
	opened->next = conn->server->opened;
	conn->server->opened = opened;
	return opened;
}

TbOpened *
tb_opened_find(TbServer *server, uint64_t id)
{
	for (TbOpened *opened = server->opened; opened != NULL; opened = opened->next)
		if (tb_stream_id(opened->stream) == id)
			return opened;
	return NULL;
}

/* Requests that wait for the stream find it gone when they are attempted again. */
void
tb_opened_close(TbServer *server, TbOpened *opened)
{
	TbOpened  **at = &server->opened;

	while (*at != NULL && *at != opened)
		at = &(*at)->next;
	if (*at == opened)
		*at = opened->next;
	tb_stream_close(opened->stream);
	if (!opened->control->dead)
		tb_conn_kick(opened->control);
	if (opened->client != NULL && !opened->client->dead)
		tb_conn_kick(opened->client);
	tb_free(opened);
}

void
tb_opened_close_all(TbConn *conn)
{
	TbOpened   *opened = conn->server->opened;

	while (opened != NULL)
	{
		TbOpened   *next = opened->next;

		if (opened->control == conn || opened->client == conn)
			tb_opened_close(conn->server, opened);
		opened = next;
	}
}

/* "next" on either socket: the batch, "end", "renew" where credentials were refused, or what failed the stream. */
TbStatus
tb_opened_attempt_next(TbReply *reply, TbError *err)
{
	TbOpened   *opened = tb_opened_find(reply->conn->server, reply->stream);
	TbBatch		batch;
	TbStatus	status;
	bool		end;

	if (opened == NULL)
		return tb_fail(err, TB_E_CANCELED, "stream was closed");
	if (reply->conn->control && opened->client != NULL)
	{
		tb_fail(err, TB_E_STATE, "stream is read by the client that redeemed its token");
		tb_error_hint(err, "Take batches on that connection, or open another stream.");
		return TB_E_STATE;
	}
	status = tb_stream_next(opened->stream, &batch, &end, &reply->busy, err);
	opened->asked = status == TB_AGAIN;
	if (status == TB_E_AUTH && tb_stream_wants_renewal(opened->stream))
		return tb_buf_printf(reply->body, ",\"renew\":true") == TB_OK ? TB_OK : tb_fail(err, TB_E_NOMEM,
			"out of memory");
	if (status != TB_OK)
		return status;
	status = tb_buf_printf(reply->body, ",");
	if (status == TB_OK && end)
		status = tb_buf_printf(reply->body, "\"end\":true");
	else if (status == TB_OK)
		status = tb_stream_print_batch(opened->stream, &batch, reply->body);
	return status == TB_OK ? TB_OK : tb_fail(err, status, "out of memory");
}
