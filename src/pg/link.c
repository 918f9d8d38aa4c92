/*
 * The session's connection to the streamer: connecting (and having it started), requests and replies.
 *
 * Replies come in the order of their requests. A statement that is cancelled while it waits leaves its request
 * behind: the queue of unanswered requests remembers it, and its reply is read by whoever uses the connection
 * next. What such a reply brought is kept (a batch: it belongs to the stream) or undone (a stream or a loaded
 * tensor that nobody knows of). So a cancel costs nothing and ends nothing.
 *
 * The end of the connection is the end of all streams and handles of the session: nothing else is needed at
 * the session's end, and nothing can be left over.
 */
#include "postgres.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"

#include "pg/link.h"
#include "pg/supervisor.h"

#define PATIENCE_MS 5000		/* for a streamer that is starting */
#define RETRY_MS 20
#define MAX_UNANSWERED 256

typedef struct Unanswered
{
	TbpgLinkOp	op;
	uint64		stream;
} Unanswered;

static struct
{
	TbWire	   *wire;			/* owned; NULL: not connected */
	bool		ready;			/* hello was answered */
	uint64		sent;			/* requests that get a reply */
	uint64		answered;
	Unanswered	queue[MAX_UNANSWERED];	/* of request n: [n % MAX_UNANSWERED] */
	char		socket[128];
} conn;

static void
free_json(void *object)
{
	tb_json_free(object);
}

void
tbpg_link_close(void)
{
	bool		had = conn.wire != NULL;

	tb_wire_free(conn.wire);
	conn.wire = NULL;
	conn.ready = false;
	conn.sent = conn.answered = 0;
	if (had)
		ReleaseExternalFD();
	tbpg_session_forget();
}

static void
close_at_exit(int code, Datum arg)
{
	tbpg_link_close();
}

const char *
tbpg_link_socket(void)
{
	return conn.socket;
}

static void
raise_lost(void)
{
	tbpg_link_close();
	ereport(ERROR,
			(errcode(ERRCODE_CANNOT_CONNECT_NOW),
			 errmsg("the streamer went away"),
			 errdetail("Streams and handles of this session ended with it."),
			 errhint("It is started again: open the stream with the state of the last batch.")));
}

/* ---- sending and receiving ---- */

/* The next frame: true; false: none yet. */
static bool
receive_reply(TbJson **reply, int *fd)
{
	TbError		err;
	TbStatus	status;

	*reply = NULL;
	*fd = -1;
	status = tb_wire_receive(conn.wire, reply, fd, &err);
	if (status == TB_AGAIN)
		return false;
	if (status == TB_OK && conn.answered < conn.sent)
		return true;
	tb_json_free(*reply);
	if (*fd >= 0)
		close(*fd);
	if (status == TB_OK)
	{
		tbpg_link_close();
		tbpg_bad_reply("op");
	}
	if (status == TB_E_LOST)
		raise_lost();
	tbpg_link_close();
	tbpg_raise(&err);
}

static void
post_number(TbpgLinkOp op, const char *format, uint64 number)
{
	TbBuf	   *request = tb_buf_new(128);

	if (request == NULL || tb_buf_printf(request, format, (unsigned long long) number) != TB_OK)
		tbpg_link_close();
	else
		tbpg_link_post(op, request);
	tb_buf_unref(request);
}

static void
post_free(const char *handle)
{
	TbBuf	   *request = tb_buf_new(128);

	if (request == NULL || tb_buf_printf(request, "{\"op\":\"free\",\"handles\":[\"%s\"]}", handle) != TB_OK)
		tbpg_link_close();
	else
		tbpg_link_post(TBPG_LINK_FREE, request);
	tb_buf_unref(request);
}

/* Take a reply that nobody waits for any more. Owns it. */
static void
settle_late(Unanswered request, TbJson *reply, int fd)
{
	TbpgStream *stream;
	const char *handle;
	int64_t		id;
	TbHandle	parsed;

	if (fd >= 0)
		close(fd);
	switch (request.op)
	{
		case TBPG_LINK_NEXT:
			stream = tbpg_session_find_stream(request.stream);
			if (stream != NULL && stream->parked == NULL)
			{
				stream->parked = reply;
				return;
			}
			break;
		case TBPG_LINK_OPEN:
			if (tb_json_get_int(reply, "stream", &id))
				post_number(TBPG_LINK_CLOSE, "{\"op\":\"close\",\"stream\":%llu}", (uint64) id);
			break;
		case TBPG_LINK_LOAD:
			if (tb_json_get_string(reply, "handle", &handle) && tb_handle_parse(handle, &parsed, NULL) == TB_OK)
				post_free(handle);
			break;
		default:
			break;
	}
	tb_json_free(reply);
}

static void
flush_wire(void)
{
	TbError		err;
	TbStatus	status = tb_wire_flush(conn.wire, &err);

	if (status != TB_OK && status != TB_AGAIN)
		raise_lost();
}

static void
wait_for_wire(long timeout_ms)
{
	tbpg_wait_socket(tb_wire_fd(conn.wire),
					 WL_SOCKET_READABLE | (tb_wire_wants_write(conn.wire) ? WL_SOCKET_WRITEABLE : 0), timeout_ms);
}

/* Queue a request that gets a reply; its number. */
static uint64
send_request(TbpgLinkOp op, uint64 stream, StringInfo request)
{
	TbError		err;

	if (conn.sent - conn.answered >= MAX_UNANSWERED)
	{
		tbpg_link_close();
		ereport(ERROR,
				(errcode(ERRCODE_CANNOT_CONNECT_NOW), errmsg("the streamer does not answer"),
				 errhint("Streams and handles of this session were ended: open them again.")));
	}
	if (tb_wire_send(conn.wire, request->data, (size_t) request->len, -1, &err) != TB_OK)
	{
		tbpg_link_close();
		tbpg_raise(&err);
	}
	conn.queue[conn.sent % MAX_UNANSWERED] = (Unanswered) {.op = op, .stream = stream};
	return conn.sent++;
}

/* Wait for the reply of a request, settling what comes before it. */
static TbJson *
await_reply(uint64 number, int *fd)
{
	for (;;)
	{
		TbJson	   *reply;
		int			came;

		flush_wire();
		while (receive_reply(&reply, &came))
		{
			uint64		answered = conn.answered++;

			if (answered == number)
			{
				*fd = came;
				return reply;
			}
			settle_late(conn.queue[answered % MAX_UNANSWERED], reply, came);
			if (conn.wire == NULL)
				raise_lost();
		}
		wait_for_wire(-1);
	}
}

/* Give the reply to the current context and raise the error that it may be. */
static TbJson *
accept_reply(TbJson *reply, int fd, int *fd_out)
{
	TbJson	   *error;
	TbError		err;

	if (tb_json_get(reply, "error", &error))
	{
		tb_error_from_json(error, &err);
		tb_json_free(reply);
		if (fd >= 0)
			close(fd);
		tbpg_raise(&err);
	}
	if (fd_out != NULL)
		*fd_out = fd;
	else if (fd >= 0)
		close(fd);
	(void) tbpg_own(CurrentMemoryContext, reply, free_json);
	return reply;
}

TbJson *
tbpg_link_call(TbpgLinkOp op, uint64 stream, StringInfo request, int *fd)
{
	int			came = -1;
	TbJson	   *reply;

	reply = await_reply(send_request(op, stream, request), &came);
	return accept_reply(reply, came, fd);
}

static bool
next_is_under_way(uint64 stream)
{
	for (uint64 n = conn.answered; n < conn.sent; n++)
		if (conn.queue[n % MAX_UNANSWERED].op == TBPG_LINK_NEXT && conn.queue[n % MAX_UNANSWERED].stream == stream)
			return true;
	return false;
}

TbJson *
tbpg_link_next(uint64 id)
{
	TbpgStream *stream = tbpg_session_find_stream(id);
	StringInfoData request;
	TbJson	   *reply;

	Assert(stream != NULL);
	while (stream->parked == NULL && next_is_under_way(id))
	{
		int			fd;

		flush_wire();
		if (receive_reply(&reply, &fd))
		{
			uint64		answered = conn.answered++;

			settle_late(conn.queue[answered % MAX_UNANSWERED], reply, fd);
			if (conn.wire == NULL)
				raise_lost();
		}
		else
			wait_for_wire(-1);
	}
	if (stream->parked != NULL)
	{
		reply = stream->parked;
		stream->parked = NULL;
		return accept_reply(reply, -1, NULL);
	}
	tbpg_request_begin(&request, "next");
	tbpg_request_uint(&request, "stream", id);
	appendStringInfoChar(&request, '}');
	return tbpg_link_call(TBPG_LINK_NEXT, id, &request, NULL);
}

void
tbpg_link_tell(StringInfo request)
{
	TbError		err;

	if (tb_wire_send(conn.wire, request->data, (size_t) request->len, -1, &err) != TB_OK)
	{
		tbpg_link_close();
		tbpg_raise(&err);
	}
	flush_wire();
}

void
tbpg_link_post(TbpgLinkOp op, const TbBuf *request)
{
	TbError		err;
	TbStatus	status;

	if (conn.wire == NULL)
		return;
	if (conn.sent - conn.answered >= MAX_UNANSWERED ||
		tb_wire_send(conn.wire, (const char *) request->data, request->len, -1, &err) != TB_OK)
	{
		tbpg_link_close();
		return;
	}
	conn.queue[conn.sent++ % MAX_UNANSWERED] = (Unanswered) {.op = op};
	status = tb_wire_flush(conn.wire, &err);
	if (status != TB_OK && status != TB_AGAIN)
		tbpg_link_close();
}

/* ---- connecting ---- */

/* A connected socket, or -1: nobody listens (yet). */
static int
connect_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
	{
		bool		full = errno == EMFILE || errno == ENFILE;

		ereport(ERROR,
				(errcode(full ? ERRCODE_INSUFFICIENT_RESOURCES : ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not create a socket: %m")));
	}
	strlcpy(address.sun_path, TBPG_CONTROL_SOCKET, sizeof(address.sun_path));
	if (connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Connect and say hello, once. The socket belongs to conn.wire at once, so that nothing leaks on the way. */
static bool
begin_hello(void)
{
	StringInfoData request;
	TbError		err;
	int			fd = connect_socket();

	if (fd < 0)
		return false;
	TBPG_CHECK(tb_wire_new(fd, &conn.wire, &err), &err);
	ReserveExternalFD();
	conn.sent = conn.answered = 0;
	tbpg_request_begin(&request, "hello");
	tbpg_request_int(&request, "version", 1);
	tbpg_request_int(&request, "pid", MyProcPid);
	tbpg_request_text(&request, "role", GetUserNameFromId(GetSessionUserId(), false));
	tbpg_request_int(&request, "user", (int64) GetSessionUserId());
	tbpg_request_text(&request, "database", get_database_name(MyDatabaseId));
	appendStringInfoChar(&request, '}');
	(void) send_request(TBPG_LINK_HELLO, 0, &request);
	pfree(request.data);
	return true;
}

/* Has the streamer answered hello? A connection that broke is given up: the streamer was on its way out. */
static bool
poll_hello(long timeout_ms)
{
	TbJson	   *reply = NULL;
	TbError		err;
	TbStatus	status = tb_wire_flush(conn.wire, &err);
	int			fd = -1;

	if (status == TB_OK || status == TB_AGAIN)
		status = tb_wire_receive(conn.wire, &reply, &fd, &err);
	if (fd >= 0)
		close(fd);
	if (status == TB_OK)
	{
		conn.answered++;
		reply = accept_reply(reply, -1, NULL);
		strlcpy(conn.socket, tbpg_reply_text(reply, "socket"), sizeof(conn.socket));
		tbpg_session_begin(tbpg_reply_text(reply, "epoch"));
		conn.ready = true;
		return true;
	}
	if (status == TB_AGAIN)
		wait_for_wire(timeout_ms);
	else
	{
		tbpg_link_close();
		tbpg_wait_socket(PGINVALID_SOCKET, 0, RETRY_MS);
	}
	return false;
}

bool
tbpg_link_alive(void)
{
	TbJson	   *reply;
	TbError		err;
	TbStatus	status;
	int			fd;

	if (conn.wire != NULL && !conn.ready)
		tbpg_link_close();		/* a cancel came during hello */
	if (conn.wire == NULL)
		return false;
	for (;;)
	{
		reply = NULL;
		fd = -1;
		status = tb_wire_receive(conn.wire, &reply, &fd, &err);
		if (status == TB_AGAIN)
			return true;
		if (status != TB_OK || conn.answered == conn.sent)
			break;
		settle_late(conn.queue[conn.answered++ % MAX_UNANSWERED], reply, fd);
		if (conn.wire == NULL)
			return false;
	}
	tb_json_free(reply);
	if (fd >= 0)
		close(fd);
	tbpg_link_close();
	return false;
}

bool
tbpg_link_open(bool start)
{
	static bool registered;
	int64		deadline = tb_now_ns() + INT64CONST(1000000) * PATIENCE_MS;
	bool		ensured = false;

	if (tbpg_link_alive())
		return true;
	if (!registered)
	{
		before_shmem_exit(close_at_exit, (Datum) 0);
		registered = true;
	}
	while (tb_now_ns() < deadline)
	{
		if (conn.wire != NULL || begin_hello())
		{
			if (poll_hello(RETRY_MS * 5))
				return true;
			continue;
		}
		if (!start)
			return false;
		if (!ensured)
			tbpg_supervisor_ensure();
		ensured = true;
		tbpg_wait_socket(PGINVALID_SOCKET, 0, RETRY_MS);
	}
	tbpg_link_close();
	ereport(ERROR,
			(errcode(ERRCODE_CANNOT_CONNECT_NOW),
			 errmsg("the streamer does not answer"),
			 errdetail("It is down or starting."),
			 errhint("Try again. The server's log tells why it does not start.")));
}
