/* Operations of the control socket: what a backend asks for its session. */
#include "streamer/server.h"

#include <inttypes.h>
#include <string.h>

#define PROTOCOL_VERSION 1
#define MAX_STREAMS 1024		/* of one session */

static TbStatus
no_memory(TbError *err)
{
	return tb_fail(err, TB_E_NOMEM, "out of memory");
}

/* A stream of this session. One text for what is unknown, foreign or closed, as for handles. */
static TbOpened *
own_stream(TbConn *conn, uint64_t id)
{
	TbOpened   *opened = tb_opened_find(conn->server, id);

	return opened != NULL && opened->control == conn ? opened : NULL;
}

/* ---- hello ---- */

static TbStatus
op_hello(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	const uint8_t *epoch = tb_hub_epoch(conn->server->hub);
	const char *role;
	int64_t		version;
	TbStatus	status;

	if (!tb_json_get_int(request, "version", &version))
		return tb_request_missing("version", err);
	if (version != PROTOCOL_VERSION)
	{
		tb_fail(err, TB_E_UNSUPPORTED, "module and streamer program are of different versions");
		tb_error_hint(err, "Install them together, then restart the server.");
		return TB_E_UNSUPPORTED;
	}
	if (!tb_json_get_int(request, "pid", &conn->pid))
		return tb_request_missing("pid", err);
	if (!tb_json_get_string(request, "role", &role))
		role = "";
	tb_free(conn->role);
	conn->role = tb_strdup(role);
	if (conn->role == NULL)
		return no_memory(err);
	conn->greeted = true;
	status = tb_buf_printf(reply->body, ",\"epoch\":\"");
	for (int i = 0; i < 16 && status == TB_OK; i++)
		status = tb_buf_printf(reply->body, "%02x", epoch[i]);
	if (status == TB_OK)
		status = tb_buf_printf(reply->body, "\",\"socket\":");
	if (status == TB_OK)
		status = tb_json_quote(reply->body, conn->server->options->client_path);
	return status == TB_OK ? TB_OK : no_memory(err);
}

/* ---- open, close, renew ---- */

static uint32_t
count_streams(const TbConn *conn)
{
	uint32_t	n = 0;

	for (TbOpened *opened = conn->server->opened; opened != NULL; opened = opened->next)
		n += opened->control == conn;
	return n;
}

static TbStatus
op_open(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbStreamSpec spec = {.owner_pid = conn->pid, .owner_role = conn->role};
	TbSourceSpec *sources;
	TbStream   *stream;
	TbStatus	status;

	if (count_streams(conn) >= MAX_STREAMS)
	{
		tb_fail(err, TB_E_LIMIT, "session has too many streams");
		tb_error_hint(err, "Close streams that are not used any more.");
		return TB_E_LIMIT;
	}
	status = tb_request_open(request, &spec, err);
	if (status == TB_OK)
		status = tb_request_sources(request, &sources, &spec.n_sources, err);
	if (status != TB_OK)
		return status;
	spec.sources = sources;
	status = tb_stream_open(conn->server->hub, &spec, tb_conn_listener(conn), &stream, err);
	tb_free(sources);
	if (status != TB_OK)
		return status;
	reply->stream = tb_stream_id(stream);
	if (tb_opened_add(conn, stream) != NULL)
		return TB_OK;
	tb_stream_close(stream);
	return no_memory(err);
}

static TbStatus
attempt_open(TbReply *reply, TbError *err)
{
	TbServer   *server = reply->conn->server;
	TbOpened   *opened = tb_opened_find(server, reply->stream);
	TbStatus	status;

	if (opened == NULL)
		return tb_fail(err, TB_E_CANCELED, "stream was closed");
	status = tb_stream_poll(opened->stream, err);
	if (status == TB_AGAIN)
		return status;
	if (status == TB_OK)
	{
		status = tb_buf_printf(reply->body,
							   ",\"stream\":%" PRIu64 ",\"token\":\"%s\",\"batches\":%" PRIu64
							   ",\"columns\":", reply->stream, tb_stream_token(opened->stream),
							   tb_stream_info(opened->stream).batches);
		if (status == TB_OK)
			status = tb_stream_print_columns(opened->stream, reply->body);
		if (status != TB_OK)
			no_memory(err);
	}
	if (status != TB_OK)
		tb_opened_close(server, opened);
	return status;
}

static TbStatus
op_close(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbStatus	status = tb_request_stream(request, &reply->stream, err);
	TbOpened   *opened;

	if (status != TB_OK)
		return status;
	opened = own_stream(conn, reply->stream);
	if (opened == NULL)
		return tb_handle_fail(err);
	tb_opened_close(conn->server, opened);
	return TB_OK;
}

static TbStatus
op_renew(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbSourceSpec *sources;
	TbOpened   *opened;
	int			n;
	TbStatus	status = tb_request_stream(request, &reply->stream, err);

	if (status != TB_OK)
		return status;
	opened = own_stream(conn, reply->stream);
	if (opened == NULL)
		return tb_handle_fail(err);
	status = tb_request_sources(request, &sources, &n, err);
	if (status != TB_OK)
		return status;
	status = tb_stream_renew(opened->stream, sources, n, err);
	tb_free(sources);
	return status;
}

/* ---- next, release ---- */

static TbStatus
op_next(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbStatus	status = tb_request_stream(request, &reply->stream, err);
	TbOpened   *opened;

	if (status != TB_OK)
		return status;
	opened = own_stream(conn, reply->stream);
	if (opened == NULL)
		return tb_handle_fail(err);
	if (opened->asked)
		return tb_fail(err, TB_E_STATE, "a next batch of the stream is awaited already");
	return TB_OK;
}

static TbStatus
op_release(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	uint64_t	id;
	int64_t		slot;
	int64_t		generation;
	TbStatus	status = tb_request_stream(request, &id, err);
	TbOpened   *opened;

	if (status != TB_OK)
		return status;
	opened = own_stream(conn, id);
	if (opened == NULL || !tb_json_get_int(request, "slot", &slot) || slot < 0 ||
		slot > UINT32_MAX ||
		!tb_json_get_int(request, "generation", &generation))
		return tb_handle_fail(err);
	return tb_stream_release(opened->stream, (uint32_t) slot, (uint64_t) generation, err);
}

/* ---- streams ---- */

static TbStatus
print_stream(const TbStreamInfo *info, const char *comma, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out,
									   "%s{\"stream\":%" PRIu64 ",\"pid\":%" PRId64 ",\"role\":", comma, info->id,
									   info->owner_pid);

	if (status == TB_OK)
		status = tb_json_quote(out, info->owner_role);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"dataset\":\"%s\",\"device\":", info->dataset);
	if (status == TB_OK)
		status = tb_json_quote(out, info->device);
	if (status == TB_OK)
		status = tb_buf_printf(out,
							   ",\"phase\":\"%s\",\"redeemed\":%s,\"rank\":%" PRIu32 ",\"world_size\":%" PRIu32
							   ",\"batches\":%" PRIu64 ",\"done\":%" PRIu64 ",\"ready\":%" PRIu32 ",\"slots\":%" PRIu32
							   ",\"bytes\":%" PRIu64, info->phase, info->redeemed ? "true" : "false", info->rank,
							   info->world_size, info->batches, info->done, info->ready, info->slots, info->ring_bytes);
	if (status != TB_OK)
		return status;
	return tb_buf_printf(out,
						 ",\"wait_store_ms\":%" PRIu64 ",\"wait_decode_ms\":%" PRIu64 ",\"wait_consumer_ms\":%" PRIu64
						 "}", info->wait_store_ms, info->wait_decode_ms, info->wait_consumer_ms);
}

/* Of all sessions: which of them a role may see is the backend's affair. */
static TbStatus
op_streams(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbStatus	status = tb_buf_printf(reply->body, ",\"streams\":[");
	const char *comma = "";

	for (TbStream *stream = tb_hub_next_stream(conn->server->hub, NULL); stream != NULL &&
		 status == TB_OK;
		 stream = tb_hub_next_stream(conn->server->hub, stream))
	{
		TbStreamInfo info = tb_stream_info(stream);

		status = print_stream(&info, comma, reply->body);
		comma = ",";
	}
	if (status == TB_OK)
		status = tb_buf_printf(reply->body, "]");
	return status == TB_OK ? TB_OK : no_memory(err);
}

const TbOp	tb_control_ops[] = {
	{"hello", op_hello, NULL},
	{"open", op_open, attempt_open},
	{"next", op_next, tb_opened_attempt_next},
	{"release", op_release, NULL},
	{"close", op_close, NULL},
	{"renew", op_renew, NULL},
	{"load", tb_op_load, tb_op_load_attempt},
	{"wait", tb_op_wait, tb_op_wait_attempt},
	{"fetch", tb_op_fetch, tb_op_fetch_attempt},
	{"free", tb_op_free, NULL},
	{"streams", op_streams, NULL},
	{NULL, NULL, NULL},
};
