/*
 * Operations of the client socket: what a trainer asks on the connection that is its stream's
 * lifeline.
 */
#include "streamer/server.h"

#include <inttypes.h>
#include <string.h>

static TbOpened *
own_stream(const TbConn *conn)
{
	TbOpened   *opened = conn->stream != 0 ? tb_opened_find(conn->server, conn->stream) : NULL;

	return opened != NULL && opened->client == conn ? opened : NULL;
}

static TbStatus
no_stream(const TbConn *conn, TbError *err)
{
	if (conn->stream == 0)
	{
		tb_fail(err, TB_E_STATE, "connection has no stream");
		tb_error_hint(err, "Redeem a token first.");
		return TB_E_STATE;
	}
	return tb_fail(err, TB_E_CANCELED, "stream was closed");
}

static TbStatus
print_redeemed(TbOpened *opened, TbBuf *out)
{
	TbServer   *server = opened->control->server;
	TbStreamInfo info = tb_stream_info(opened->stream);
	TbStatus	status = tb_buf_printf(out,
									   ",\"stream\":%" PRIu64 ",\"slots\":%" PRIu32 ",\"slot_bytes\":%" PRIu64
									   ",\"batches\":%" PRIu64 ",\"columns\":", info.id, info.slots, info.slot_bytes,
									   info.batches);

	if (status == TB_OK)
		status = tb_stream_print_columns(opened->stream, out);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"epoch\":\"");
	for (int i = 0; i < 16 && status == TB_OK; i++)
		status = tb_buf_printf(out, "%02x", tb_hub_epoch(server->hub)[i]);
	return status == TB_OK ? tb_buf_printf(out, "\"") : status;
}

/* The connection becomes the stream's lifeline and gets its ring. */
static TbStatus
op_redeem(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	const char *token;
	TbStream   *stream;
	TbOpened   *opened;
	TbStatus	status;

	if (!tb_json_get_string(request, "token", &token))
		return tb_request_missing("token", err);
	if (conn->stream != 0)
		return tb_fail(err, TB_E_STATE, "connection has a stream already");
	status = tb_hub_redeem(conn->server->hub, token, conn->uid, &stream, err);
	if (status != TB_OK)
		return status;
	opened = tb_opened_find(conn->server, tb_stream_id(stream));
	conn->stream = tb_stream_id(stream);
	opened->client = conn;
	tb_stream_listen(stream, tb_conn_listener(conn));
	/* a next that waits on the control connection is refused from now on */
	opened->asked = false;
	tb_conn_kick(opened->control);
	reply->fd = tb_stream_fd(stream);
	return print_redeemed(opened, reply->body) == TB_OK ? TB_OK : tb_fail(err, TB_E_NOMEM,
																		  "out of memory");
}

static TbStatus
op_next(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbOpened   *opened = own_stream(conn);

	if (opened == NULL)
		return no_stream(conn, err);
	if (opened->asked)
		return tb_fail(err, TB_E_STATE, "a next batch of the stream is awaited already");
	reply->stream = conn->stream;
	return TB_OK;
}

static TbStatus
op_release(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbOpened   *opened = own_stream(conn);
	int64_t		slot;
	int64_t		generation;

	if (opened == NULL)
		return no_stream(conn, err);
	if (!tb_json_get_int(request, "slot", &slot) || slot < 0 || slot > UINT32_MAX ||
		!tb_json_get_int(request, "generation", &generation))
		return tb_request_missing("slot", err);
	return tb_stream_release(opened->stream, (uint32_t) slot, (uint64_t) generation, err);
}

static TbStatus
op_close(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbOpened   *opened = own_stream(conn);

	if (opened == NULL)
		return no_stream(conn, err);
	tb_opened_close(conn->server, opened);
	return TB_OK;
}

const TbOp	tb_client_ops[] = {
	{"redeem", op_redeem, NULL},
	{"next", op_next, tb_opened_attempt_next},
	{"release", op_release, NULL},
	{"close", op_close, NULL},
	{NULL, NULL, NULL},
};
