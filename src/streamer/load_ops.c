/*
 * Operations on single tensors: load, wait, fetch, free. Handles are those of the connection that
 * made them; whatever is wrong with one, the answer is the same.
 */
#include "streamer/server.h"

#include <inttypes.h>
#include <string.h>

#define MAX_LOADS 16384			/* of one session */

static TbLoaded *
find_load(TbConn *conn, uint64_t id)
{
	for (TbLoaded *loaded = conn->loads; loaded != NULL; loaded = loaded->next)
		if (loaded->id == id)
			return loaded;
	return NULL;
}

static void
drop_load(TbConn *conn, TbLoaded *loaded)
{
	TbLoaded  **at = &conn->loads;

	while (*at != NULL && *at != loaded)
		at = &(*at)->next;
	if (*at == loaded)
		*at = loaded->next;
	conn->n_loads--;
	tb_delivery_close(loaded->delivery);
	tb_free(loaded);
}

void
tb_loads_close(TbConn *conn)
{
	while (conn->loads != NULL)
		drop_load(conn, conn->loads);
}

/* A handle of this life of the streamer. */
static TbStatus
parse_handle(TbConn *conn, const char *text, TbHandle *handle, TbError *err)
{
	TbStatus	status = tb_handle_parse(text, handle, err);

	if (status != TB_OK)
		return status;
	if (!tb_equal_secret(handle->epoch, tb_hub_epoch(conn->server->hub), sizeof(handle->epoch)))
		return tb_handle_fail(err);
	return TB_OK;
}

static bool
is_load(const TbHandle *handle)
{
	return handle->stream == 0 && handle->slot == 0 && handle->tensor == 0;
}

static TbOpened *
own_stream(TbConn *conn, uint64_t id)
{
	TbOpened   *opened = tb_opened_find(conn->server, id);

	return opened != NULL && opened->control == conn ? opened : NULL;
}

/* ---- load ---- */

TbStatus
tb_op_load(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbDeliverySpec spec;
	TbHandle	handle;
	TbLoaded   *loaded;
	TbStatus	status = tb_request_load(request, &spec, err);

	if (status != TB_OK)
		return status;
	if (conn->n_loads >= MAX_LOADS)
	{
		tb_fail(err, TB_E_LIMIT, "session has too many handles");
		tb_error_hint(err, "Release handles that are not used any more.");
		return TB_E_LIMIT;
	}
	loaded = tb_calloc(1, sizeof(*loaded));
	if (loaded == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_delivery_open(conn->server->hub, &spec, tb_conn_listener(conn), &loaded->delivery,
							  err);
	if (status != TB_OK)
	{
		tb_free(loaded);
		return status;
	}
	tb_delivery_handle(loaded->delivery, &handle);
	loaded->id = handle.generation;
	loaded->next = conn->loads;
	conn->loads = loaded;
	conn->n_loads++;
	reply->handle = handle;
	return TB_OK;
}

static TbStatus
print_place(const TbTensorPlace *place, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out, ",\"dtype\":\"%s\",\"shape\":[",
									   tb_dtype_name(place->dtype));

	for (int i = 0; i < place->ndim && status == TB_OK; i++)
		status = tb_buf_printf(out, "%s%" PRIu64, i > 0 ? "," : "", place->shape[i]);
	return status == TB_OK ? tb_buf_printf(out, "]") : status;
}

TbStatus
tb_op_load_attempt(TbReply *reply, TbError *err)
{
	TbLoaded   *loaded = find_load(reply->conn, reply->handle.generation);
	TbTensorPlace place;
	char		text[TB_HANDLE_TEXT];
	TbStatus	status;

	if (loaded == NULL)
		return tb_fail(err, TB_E_CANCELED, "load was freed");
	status = tb_delivery_begun(loaded->delivery, err);
	if (status == TB_AGAIN)
		return status;
	if (status != TB_OK)
	{
		drop_load(reply->conn, loaded);
		return status;
	}
	tb_delivery_place(loaded->delivery, &place);
	tb_handle_print(&reply->handle, text);
	status = tb_buf_printf(reply->body, ",\"handle\":\"%s\"", text);
	if (status == TB_OK)
		status = print_place(&place, reply->body);
	return status == TB_OK ? TB_OK : tb_fail(err, status, "out of memory");
}

/* ---- wait ---- */

/* Walk over the texts of "handles"; NULL at the end. errors: PROTOCOL, HANDLE. */
static TbStatus
handle_at(TbConn *conn, const TbJson *list, size_t i, TbHandle *handle, TbError *err)
{
	const char *text;

	if (!tb_json_as_string(tb_json_at(list, i), &text))
		return tb_request_missing("handles", err);
	return parse_handle(conn, text, handle, err);
}

static TbStatus
handles_of(const TbJson *request, TbJson **list, TbError *err)
{
	if (!tb_json_get(request, "handles", list) || tb_json_type(*list) != TB_JSON_ARRAY)
		return tb_request_missing("handles", err);
	return TB_OK;
}

/* Whether a handle names something that the connection has. */
static bool
is_ours(TbConn *conn, const TbHandle *handle)
{
	TbTensorPlace place;
	TbOpened   *opened;

	if (is_load(handle))
		return find_load(conn, handle->generation) != NULL;
	opened = own_stream(conn, handle->stream);
	return opened != NULL && tb_stream_place(opened->stream, handle, &place, NULL) == TB_OK;
}

/* Tensors of batches are there when they are handed out: only loads are waited for. */
TbStatus
tb_op_wait(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbJson	   *list;
	TbStatus	status = handles_of(request, &list, err);
	size_t		n;

	if (status != TB_OK)
		return status;
	n = tb_json_length(list);
	reply->loads = tb_calloc(n, sizeof(*reply->loads));
	if (reply->loads == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (size_t i = 0; i < n; i++)
	{
		TbHandle	handle;

		status = handle_at(conn, list, i, &handle, err);
		if (status == TB_OK && !is_ours(conn, &handle))
			status = tb_handle_fail(err);
		if (status != TB_OK)
			return status;
		if (is_load(&handle))
			reply->loads[reply->n_loads++] = handle.generation;
	}
	return TB_OK;
}

TbStatus
tb_op_wait_attempt(TbReply *reply, TbError *err)
{
	while (reply->n_loads > 0)
	{
		TbLoaded   *loaded = find_load(reply->conn, reply->loads[reply->n_loads - 1]);
		TbStatus	status;

		if (loaded == NULL)
			return tb_handle_fail(err);
		status = tb_delivery_poll(loaded->delivery, err);
		if (status != TB_OK)
			return status;
		reply->n_loads--;
	}
	return TB_OK;
}

/* ---- fetch ---- */

TbStatus
tb_op_fetch(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	const char *text;

	if (!tb_json_get_string(request, "handle", &text))
		return tb_request_missing("handle", err);
	return parse_handle(conn, text, &reply->handle, err);
}

TbStatus
tb_op_fetch_attempt(TbReply *reply, TbError *err)
{
	TbConn	   *conn = reply->conn;
	TbTensorPlace place;
	TbStatus	status;

	if (is_load(&reply->handle))
	{
		TbLoaded   *loaded = find_load(conn, reply->handle.generation);

		if (loaded == NULL)
			return tb_handle_fail(err);
		status = tb_delivery_poll(loaded->delivery, err);
		if (status == TB_OK)
			tb_delivery_place(loaded->delivery, &place);
	}
	else
	{
		TbOpened   *opened = own_stream(conn, reply->handle.stream);

		if (opened == NULL)
			return tb_handle_fail(err);
		status = tb_stream_place(opened->stream, &reply->handle, &place, err);
	}
	if (status != TB_OK)
		return status;
	reply->fd = place.fd;
	status = print_place(&place, reply->body);
	if (status == TB_OK)
		status = tb_buf_printf(reply->body, ",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64,
							   place.offset, place.bytes);
	return status == TB_OK ? TB_OK : tb_fail(err, status, "out of memory");
}

/* ---- free ---- */

/* Free one; that a batch is named by several of its tensors is no error. */
static void
free_handle(TbConn *conn, const TbHandle *handle)
{
	TbOpened   *opened;
	TbLoaded   *loaded;

	if (is_load(handle))
	{
		loaded = find_load(conn, handle->generation);
		if (loaded != NULL)
			drop_load(conn, loaded);
		return;
	}
	opened = own_stream(conn, handle->stream);
	if (opened != NULL)
		(void) !tb_stream_release(opened->stream, handle->slot, handle->generation, NULL);
}

/* All are known, or none is freed. */
TbStatus
tb_op_free(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err)
{
	TbJson	   *list;
	TbHandle	handle;
	TbStatus	status = handles_of(request, &list, err);

	for (size_t i = 0; status == TB_OK && i < tb_json_length(list); i++)
	{
		status = handle_at(conn, list, i, &handle, err);
		if (status == TB_OK && !is_ours(conn, &handle))
			status = tb_handle_fail(err);
	}
	for (size_t i = 0; status == TB_OK && i < tb_json_length(list); i++)
	{
		status = handle_at(conn, list, i, &handle, err);
		if (status == TB_OK)
			free_handle(conn, &handle);
	}
	if (status == TB_OK)
		tb_conn_kick(conn);		/* waits for what is gone now end */
	return status;
}
