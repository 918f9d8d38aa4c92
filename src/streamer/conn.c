/*
 * One connection: requests in, replies out in their order. A connection is the lifeline of what
 * was opened over it: when it ends, all of that ends.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* struct ucred */
#endif

#include "streamer/log.h"
#include "streamer/server.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_REPLIES 256			/* requests under way; then reading waits */
#define CLIENT_FRAME 65536		/* clients' requests are short */
#define CLIENT_PATIENCE_NS (INT64_C(60) * 1000000000)

/* ---- replies ---- */

static TbReply *
reply_new(TbConn *conn)
{
	TbReply    *reply = tb_calloc(1, sizeof(*reply));

	if (reply == NULL)
		return NULL;
	reply->body = tb_buf_new(0);
	reply->fd = -1;
	reply->conn = conn;
	if (reply->body == NULL || tb_buf_printf(reply->body, "{\"ok\":true") != TB_OK)
	{
		tb_buf_unref(reply->body);
		tb_free(reply);
		return NULL;
	}
	if (conn->last != NULL)
		conn->last->next = reply;
	else
		conn->first = reply;
	conn->last = reply;
	conn->n_replies++;
	return reply;
}

static void
drop_first_reply(TbConn *conn)
{
	TbReply    *reply = conn->first;

	conn->first = reply->next;
	if (conn->first == NULL)
		conn->last = NULL;
	conn->n_replies--;
	tb_buf_unref(reply->body);
	tb_free(reply->loads);
	tb_free(reply);
}

/* Close the body: the members that are there, or the error in place of all. */
static void
finish_reply(TbReply *reply, TbStatus status, const TbError *err)
{
	TbBuf	   *body = reply->body;

	reply->ready = true;
	if (status == TB_OK)
		status = tb_buf_printf(body, "}");
	else
	{
		reply->fd = -1;
		body->len = 0;
		status = tb_buf_printf(body, "{\"error\":");
		if (status == TB_OK && reply->busy)
			status = tb_buf_printf(body,
								   "{\"code\":\"busy\",\"message\":\"%s\",\"detail\":\"%s\",\"hint\":\"%s\"}",
								   err->message, err->detail, err->hint);
		else if (status == TB_OK)
			status = tb_error_to_json(err, body);
		if (status == TB_OK)
			status = tb_buf_printf(body, "}");
	}
	if (status != TB_OK)
		reply->conn->dead = true;	/* no memory for a reply: the peer learns by the end */
}

/* Try what is not answered yet; failures of one do not touch the others. */
static void
attempt_replies(TbConn *conn)
{
	for (TbReply *reply = conn->first; reply != NULL; reply = reply->next)
	{
		TbError		err;
		TbStatus	status;

		if (reply->ready)
			continue;
		tb_error_clear(&err);
		status = reply->attempt(reply, &err);
		if (status != TB_AGAIN)
			finish_reply(reply, status, &err);
	}
}

static void
send_replies(TbConn *conn)
{
	while (!conn->dead && conn->first != NULL && conn->first->ready)
	{
		TbReply    *reply = conn->first;

		if (tb_wire_send(conn->wire, (const char *) reply->body->data, reply->body->len, reply->fd,
						 NULL) != TB_OK)
			conn->dead = true;
		drop_first_reply(conn);
	}
	if (!conn->dead && tb_wire_flush(conn->wire, NULL) == TB_E_LOST)
		conn->dead = true;
}

/* ---- requests ---- */

static const TbOp *
find_op(const TbConn *conn, const TbJson *request)
{
	const char *name;

	if (!tb_json_get_string(request, "op", &name))
		return NULL;
	for (const TbOp *op = conn->control ? tb_control_ops : tb_client_ops; op->name != NULL; op++)
		if (strcmp(op->name, name) == 0)
			return op;
	return NULL;
}

static TbStatus
begin(TbConn *conn, const TbOp *op, const TbJson *request, TbReply *reply, TbError *err)
{
	TbStatus	status;

	if (op == NULL)
		return tb_fail(err, TB_E_PROTOCOL, "request has no operation that is known");
	if (conn->control && !conn->greeted && strcmp(op->name, "hello") != 0)
		return tb_fail(err, TB_E_PROTOCOL, "connection must begin with hello");
	status = op->begin(conn, request, reply, err);
	if (status == TB_OK && op->attempt != NULL)
	{
		reply->attempt = op->attempt;
		status = op->attempt(reply, err);
	}
	return status;
}

/* Begin a request. release alone has no reply: its errors tell nobody anything. */
static void
dispatch(TbConn *conn, const TbJson *request)
{
	const TbOp *op = find_op(conn, request);
	TbReply    *reply;
	TbStatus	status;
	TbError		err;

	tb_error_clear(&err);
	if (op != NULL && strcmp(op->name, "release") == 0)
	{
		if (!conn->control || conn->greeted)
			(void) op->begin(conn, request, NULL, &err);
		return;
	}
	reply = reply_new(conn);
	if (reply == NULL)
	{
		conn->dead = true;
		return;
	}
	status = begin(conn, op, request, reply, &err);
	if (status != TB_AGAIN)
		finish_reply(reply, status, &err);
}

static bool
may_read(const TbConn *conn)
{
	return !conn->dead && conn->n_replies < MAX_REPLIES && !tb_wire_wants_write(conn->wire);
}

/* Take requests until there is none, or the peer is behind with reading. */
static void
read_requests(TbConn *conn)
{
	while (may_read(conn))
	{
		TbJson	   *request;
		TbError		err;
		TbStatus	status = tb_wire_receive(conn->wire, &request, NULL, &err);

		if (status == TB_AGAIN)
			return;
		if (status != TB_OK)
		{
			if (status != TB_E_LOST)
				tb_log_error(conn->control ? "control connection ended" : "client connection ended",
							 &err);
			conn->dead = true;
			return;
		}
		dispatch(conn, request);
		tb_request_wipe(request);
		tb_json_free(request);
		send_replies(conn);
	}
}

/* Everything that can be done now. May free conn. */
static void
run(TbConn *conn)
{
	uint32_t	events;

	attempt_replies(conn);
	send_replies(conn);
	read_requests(conn);
	if (conn->dead)
	{
		tb_conn_free(conn);
		return;
	}
	events = EPOLLRDHUP | (may_read(conn) ? EPOLLIN : 0) | (tb_wire_wants_write(conn->wire) ? EPOLLOUT : 0);
	if (events != conn->watch.events && tb_loop_rewatch(conn->server->loop, &conn->watch,
														events) != TB_OK)
		tb_conn_free(conn);
}

/* The end of the peer is the end of all that hangs on the connection, whatever it sent before. */
static void
socket_ready(TbWatch *watch, uint32_t events)
{
	TbConn	   *conn = (TbConn *) watch;

	if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
		tb_conn_free(conn);
	else
		run(conn);
}

static void
kicked(TbTask *task)
{
	TbConn	   *conn = (TbConn *) ((char *) task - offsetof(TbConn, kick));

	conn->kicked = false;
	run(conn);
}

void
tb_conn_kick(TbConn *conn)
{
	if (conn->kicked)
		return;
	conn->kicked = true;
	conn->kick.run = kicked;
	tb_loop_defer(conn->server->loop, &conn->kick);
}

static void
changed(void *arg)
{
	tb_conn_kick(arg);
}

TbListener
tb_conn_listener(TbConn *conn)
{
	return (TbListener) {.changed = changed, .arg = conn};
}

/* ---- life ---- */

/* Who does not redeem a token takes up no connection for ever. */
static void
impatient(TbTimer *timer)
{
	TbConn	   *conn = (TbConn *) ((char *) timer - offsetof(TbConn, patience));

	if (conn->stream == 0)
		tb_conn_free(conn);
	else
		(void) !tb_loop_arm(conn->server->loop, &conn->patience, CLIENT_PATIENCE_NS);
}

static int64_t
peer_uid(int fd)
{
	struct ucred peer;
	socklen_t	len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? (int64_t) peer.uid : -1;
}

/* The control socket lies where only our own user gets; this says so a second time. */
static bool
may_control(int64_t uid)
{
	return uid == (int64_t) geteuid() || uid == 0;
}

/* Takes over the descriptor; on trouble it is closed, which tells the peer. */
void
tb_conn_new(TbServer *server, int fd, bool control)
{
	int64_t		uid = peer_uid(fd);
	TbConn	   *conn = control && !may_control(uid) ? NULL : tb_calloc(1, sizeof(*conn));
	TbStatus	status;

	if (conn == NULL)
	{
		(void) close(fd);
		return;
	}
	conn->server = server;
	conn->control = control;
	conn->uid = uid;
	if (tb_wire_new(fd, &conn->wire, NULL) != TB_OK)
	{
		tb_free(conn);
		return;
	}
	if (!control)
		tb_wire_limit(conn->wire, CLIENT_FRAME);
	conn->watch.fd = fd;
	conn->watch.events = EPOLLIN | EPOLLRDHUP;
	conn->watch.ready = socket_ready;
	status = tb_loop_watch(server->loop, &conn->watch, NULL);
	if (status == TB_OK && !control)
	{
		conn->patience.fire = impatient;
		status = tb_loop_arm(server->loop, &conn->patience, CLIENT_PATIENCE_NS);
		if (status != TB_OK)
			tb_loop_unwatch(server->loop, &conn->watch);
	}
	if (status != TB_OK)
	{
		tb_wire_free(conn->wire);
		tb_free(conn);
		return;
	}
	conn->next = server->conns;
	server->conns = conn;
	server->n_conns++;
}

static void
unlink_conn(TbConn *conn)
{
	TbConn	  **at = &conn->server->conns;

	while (*at != NULL && *at != conn)
		at = &(*at)->next;
	if (*at == conn)
		*at = conn->next;
	conn->server->n_conns--;
}

/* Ends the connection and everything that hangs on it. */
void
tb_conn_free(TbConn *conn)
{
	TbServer   *server = conn->server;

	conn->dead = true;
	unlink_conn(conn);
	tb_opened_close_all(conn);
	tb_loads_close(conn);
	if (conn->kicked)
		tb_loop_undefer(server->loop, &conn->kick);
	if (conn->patience.heap_slot != 0)
		tb_loop_disarm(server->loop, &conn->patience);
	while (conn->first != NULL)
		drop_first_reply(conn);
	tb_loop_unwatch(server->loop, &conn->watch);
	tb_wire_free(conn->wire);
	tb_free(conn->role);
	tb_free(conn);
}
