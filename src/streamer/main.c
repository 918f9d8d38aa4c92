/*
 * tensorbank_streamer: the engine, streams and their clients' sockets, without PostgreSQL. It ends
 * on SIGTERM or SIGINT, with its parent, and when its lifeline (a pipe that the supervisor holds)
 * is closed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* prctl */
#endif

#include "streamer/log.h"
#include "streamer/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define END_SECONDS 2			/* a clean end may take so long, then the alarm ends it */

/* A descriptor whose readiness ends the server. */
typedef struct Ender
{
	TbWatch		watch;			/* first: the loop gives it back */
	TbServer   *server;			/* borrowed */
	const char *why;
	bool		is_pipe;		/* only its end of file counts */
} Ender;

static void
ender_ready(TbWatch *watch, uint32_t events)
{
	Ender	   *ender = (Ender *) watch;
	char		bytes[64];

	if (ender->is_pipe)
	{
		ssize_t		n = read(watch->fd, bytes, sizeof(bytes));

		if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
			return;
	}
	tb_log("ending: %s", ender->why);
	(void) alarm(END_SECONDS);
	ender->server->stop = true;
}

static TbStatus
watch_ender(TbServer *server, Ender *ender, int fd, const char *why, bool is_pipe, TbError *err)
{
	ender->server = server;
	ender->why = why;
	ender->is_pipe = is_pipe;
	ender->watch.fd = fd;
	ender->watch.events = EPOLLIN;
	ender->watch.ready = ender_ready;
	return tb_loop_watch(server->loop, &ender->watch, err);
}

/*
 * Signals that end us come by descriptor; blocked before the first thread, so that all of them
 * inherit it.
 */
static int
block_signals(void)
{
	sigset_t	set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	(void) signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
		return -1;
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Every stream, load and connection takes a descriptor. */
static void
raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max)
	{
		limit.rlim_cur = limit.rlim_max;
		(void) setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Not to outlive the parent: a signal when it dies, and a look whether it did already. */
static bool
follow_parent(int parent)
{
	if (parent == 0)
		return true;
	return prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == (pid_t) parent;
}

/* The node's books; without them limits and counters are this process's own. */
static TbNode *
join_node(const char *path)
{
	TbNode	   *node = NULL;
	TbError		err;

	if (path != NULL && tb_node_open(path, &node, &err) != TB_OK)
		tb_log_error("limits and statistics count for the streamer alone", &err);
	return node;
}

static TbStatus
serve(const TbOptions *options, int signals, TbError *err)
{
	TbServer   *server;
	Ender		by_signal = {.why = "signal"};
	Ender		by_lifeline = {.why = "lifeline closed"};
	TbStatus	status = tb_server_new(options, &server, err);

	if (status != TB_OK)
		return status;
	status = watch_ender(server, &by_signal, signals, "signal", false, err);
	if (status == TB_OK && options->lifeline >= 0)
	{
		(void) fcntl(options->lifeline, F_SETFL, O_NONBLOCK);
		status = watch_ender(server, &by_lifeline, options->lifeline, "lifeline closed", true, err);
	}
	if (status == TB_OK)
	{
		tb_log("ready, %d decode threads", options->hub.threads);
		tb_server_run(server);
	}
	tb_server_free(server);
	return status;
}

int
main(int argc, char **argv)
{
	TbOptions	options;
	TbError		err;
	TbStatus	status = tb_options_parse(argc, argv, &options, &err);
	TbNode	   *node;
	int			signals;

	if (status != TB_OK)
	{
		tb_log_error("cannot start", &err);
		return 2;
	}
	signals = block_signals();
	if (signals < 0 || !follow_parent(options.parent))
	{
		tb_log("cannot start: the parent is gone, or signals cannot be watched");
		return 1;
	}
	raise_limit();
	node = join_node(options.node_path);
	options.hub.io.node = node;
	status = serve(&options, signals, &err);
	tb_node_close(node);
	if (status != TB_OK)
		tb_log_error("cannot start", &err);
	(void) close(signals);
	return status == TB_OK ? 0 : 1;
}
