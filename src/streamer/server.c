/* The server: accepting connections, and the loop. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* accept4 */
#endif

#include "streamer/server.h"
#include "streamer/log.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CONNECTIONS 8192
#define REST_NS (INT64_C(200) * 1000000)
#define ACCEPTS_AT_ONCE 64

static void
rested(TbTimer *timer)
{
	TbListening *listening = (TbListening *) ((char *) timer - offsetof(TbListening, rest));

	(void) !tb_loop_rewatch(listening->server->loop, &listening->watch, EPOLLIN);
}

/*
 * No descriptor or no place for another connection: leave them in the kernel's queue for a while.
 */
static void
take_a_rest(TbListening *listening, const char *why)
{
	tb_log("connections are not accepted for a while: %s", why);
	listening->rest.fire = rested;
	if (tb_loop_arm(listening->server->loop, &listening->rest, REST_NS) == TB_OK)
		(void) !tb_loop_rewatch(listening->server->loop, &listening->watch, 0);
}

static void
accept_ready(TbWatch *watch, uint32_t events)
{
	TbListening *listening = (TbListening *) watch;

	for (int i = 0; i < ACCEPTS_AT_ONCE; i++)
	{
		int			fd;

		if (listening->server->n_conns >= MAX_CONNECTIONS)
		{
			take_a_rest(listening, "too many of them");
			return;
		}
		fd = accept4(listening->file.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0)
			tb_conn_new(listening->server, fd, listening->control);
		else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
		{
			take_a_rest(listening, "descriptors or memory are used up");
			return;
		}
		else if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static TbStatus
start_listening(TbServer *server, TbListening *listening, TbError *err)
{
	TbStatus	status;

	listening->server = server;
	listening->watch.fd = listening->file.fd;
	listening->watch.events = EPOLLIN;
	listening->watch.ready = accept_ready;
	status = tb_loop_watch(server->loop, &listening->watch, err);
	listening->watched = status == TB_OK;
	return status;
}

/* The control socket by descriptor: one that listens, or one connection. */
static TbStatus
take_control_fd(TbServer *server, int fd, TbError *err)
{
	int			listens = 0;
	socklen_t	len = sizeof(listens);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) != 0)
		return tb_fail_errno(err, errno, "use the control socket", NULL);
	if (listens == 0)
	{
		tb_conn_new(server, fd, true);
		return TB_OK;
	}
	server->control.file.fd = fd;
	return start_listening(server, &server->control, err);
}

static TbStatus
start(TbServer *server, TbError *err)
{
	const TbOptions *options = server->options;
	TbStatus	status = TB_OK;

	if (options->control_path != NULL)
		status = tb_socket_listen(options->control_path, 0600, &server->control.file, err);
	if (status == TB_OK)
		status = tb_socket_listen(options->client_path, options->client_mode, &server->client.file,
								  err);
	if (status == TB_OK)
		status = start_listening(server, &server->client, err);
	if (status != TB_OK)
		return status;
	if (options->control_path != NULL)
		return start_listening(server, &server->control, err);
	return take_control_fd(server, options->control_fd, err);
}

/* owns: *server is the caller's, tb_server_free. errors: as tb_socket_listen, NOMEM. */
TbStatus
tb_server_new(const TbOptions *options, TbServer **server, TbError *err)
{
	TbServer   *s = tb_calloc(1, sizeof(*s));
	TbStatus	status;

	*server = NULL;
	if (s == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	s->options = options;
	s->control.control = true;
	s->control.file.fd = -1;
	s->client.file.fd = -1;
	status = tb_hub_new(&options->hub, &s->hub, err);
	if (status == TB_OK)
	{
		s->loop = tb_engine_loop(tb_hub_engine(s->hub));
		status = start(s, err);
	}
	if (status != TB_OK)
	{
		tb_server_free(s);
		return status;
	}
	*server = s;
	return TB_OK;
}

void
tb_server_run(TbServer *server)
{
	TbError		err;

	while (!server->stop)
	{
		tb_engine_wait(tb_hub_engine(server->hub), -1);
		tb_hub_turn(server->hub);
		/* the cache never fails a read, so the log alone tells that it is off */
		if (tb_io_cache_trouble(tb_engine_io(tb_hub_engine(server->hub)), &err))
			tb_log_error("the cache is off in the streamer", &err);
	}
}

static void
stop_listening(TbServer *server, TbListening *listening)
{
	if (listening->rest.heap_slot != 0)
		tb_loop_disarm(server->loop, &listening->rest);
	if (listening->watched)
		tb_loop_unwatch(server->loop, &listening->watch);
	tb_socket_close(&listening->file);
}

/* NULL allowed. */
void
tb_server_free(TbServer *server)
{
	if (server == NULL)
		return;
	stop_listening(server, &server->control);
	stop_listening(server, &server->client);
	while (server->conns != NULL)
		tb_conn_free(server->conns);
	tb_hub_free(server->hub);
	tb_free(server);
}
