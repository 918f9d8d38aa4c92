/*
 * The bridge between curl and the loop.
 *
 *   curl: "watch this socket"  -> socket_wanted -> TbWatch     curl: "call me in n ms" -> timer_wanted -> TbTimer
 *   loop: socket or timer ready -> run -> curl_multi_socket_action -> reap -> transfer->done
 *
 * A connection that goes idle stays watched until it says something: curl asks for it again with
 * the next request, and no epoll_ctl is spent between. Each entry into curl that may start its
 * resolver thread has all signals blocked, so that the thread inherits the mask.
 *
 * Time limits are ours, not curl's: a host that does not pump for a while must not find its
 * transfers expired. The watchdog counts at most two of its own ticks for any pause.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* SOCK_CLOEXEC */
#endif

#include "io/http.h"
#include "io/http_peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT_MS 100			/* between looks at the node's share of connections */
#define TURNS 4					/* rounds with curl before others get the loop again */
#define RECEIVE_BYTES (128L << 10)	/* more costs memory and gains nothing */

typedef struct Socket
{
	TbWatch		watch;
	TbHttp	   *http;			/* borrowed */
	bool		ours;			/* opened by us */
	bool		proven;			/* a connection that curl keeps: it will be closed through us */
	int			own_port;		/* of a proven one */
	bool		watched;
	bool		wanted;			/* curl wants its events */
} Socket;

struct TbHttp
{
	TbLoop	   *loop;			/* borrowed */
	const TbIoOptions *options; /* borrowed */
	CURLM	   *multi;			/* owned */
	Socket	  **socket;			/* owned; by descriptor */
	size_t		n_sockets;
	TbTransfer *first;			/* running ones */
	TbTimer		timer;			/* curl's */
	TbTimer		watchdog;		/* armed while transfers run */
	int64_t		tick_ns;
	int64_t		last_tick_ns;
	TbTask		kick;			/* curl wants to be called at once */
	bool		kick_waits;		/* the task is deferred */
	bool		kick_wanted;
	bool		inside;			/* run is on the stack */
	long		limit;			/* connections, as curl was told */
	int64_t		limit_ns;		/* when that was looked at */
	bool		broken;			/* the multi handle took harm; made anew when nothing runs */
};

static void run(TbHttp *http, curl_socket_t fd, int events);

static Socket *
find_socket(const TbHttp *http, curl_socket_t fd)
{
	return fd >= 0 && (size_t) fd < http->n_sockets ? http->socket[fd] : NULL;
}

/*
 * A server without TCP_NODELAY keeps the last, short piece of an answer until what went before is
 * acknowledged, and we, who have just sent a request, would delay that by 40 ms. The kernel forgets
 * this wish by itself.
 */
static void
acknowledge_at_once(const Socket *s)
{
	int			yes = 1;

	if (s->ours)
		(void) setsockopt(s->watch.fd, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof(yes));
}

static void
socket_ready(TbWatch *watch, uint32_t events)
{
	Socket	   *s = (Socket *) watch;
	int			mask = 0;

	if (!s->wanted)
	{
		/*
		 * A kept connection that the server closed: curl finds out when it wants it again. An attempt that was
		 * given up since this event was collected is closed, and its number may be another's, whose watch must
		 * stay: only a second event shows that such a socket is still there.
		 */
		if (s->proven || !s->watched)
			tb_loop_unwatch(s->http->loop, watch);
		s->watched = false;
		return;
	}
	if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) && (watch->events & EPOLLIN))
	{
		mask |= CURL_CSELECT_IN;
		acknowledge_at_once(s);
	}
	if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) && (watch->events & EPOLLOUT))
		mask |= CURL_CSELECT_OUT;
	run(s->http, watch->fd, mask);
}

static Socket *
add_socket(TbHttp *http, curl_socket_t fd, bool ours)
{
	Socket	   *s;

	if ((size_t) fd >= http->n_sockets)
	{
		size_t		n = (size_t) fd + 64;
		Socket	  **table = tb_realloc_array(http->socket, n, sizeof(*table));

		if (table == NULL)
			return NULL;
		for (size_t i = http->n_sockets; i < n; i++)
			table[i] = NULL;
		http->socket = table;
		http->n_sockets = n;
	}
	s = http->socket[fd];		/* of a socket that curl closed by itself */
	if (s == NULL)
		s = tb_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->http = http;
	s->proven = s->watched = s->wanted = false;
	s->own_port = 0;
	s->ours = ours;
	s->watch.fd = fd;
	s->watch.ready = socket_ready;
	http->socket[fd] = s;
	return s;
}

/* is_open: the descriptor is still the one that was watched. */
static void
drop_socket(TbHttp *http, Socket *s, bool is_open)
{
	if (s->watched && is_open)
		tb_loop_unwatch(http->loop, &s->watch);
	http->socket[s->watch.fd] = NULL;
	tb_free(s);
}

/*
 * curl is done with a socket of ours: for now, where it keeps the connection, or for good, where an
 * attempt to connect was given up. Then it has closed the descriptor already, without close_socket,
 * and its number may be anybody's: it is not touched again.
 */
static void
release_socket(Socket *s, CURL *easy)
{
	curl_socket_t kept = CURL_SOCKET_BAD;

	s->wanted = false;
	if (s->proven || curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &kept) != CURLE_OK || kept != s->watch.fd)
		return;
	s->proven = true;
	s->own_port = tb_peer_own_port(kept);
}

/*
 * Whether bytes wait on a kept connection. They answer nothing; curl 7.88 would take them for the answer to the
 * next request.
 */
static bool
has_excess(const TbHttp *http, int own_port)
{
	char		byte;

	for (size_t i = 0; i < http->n_sockets; i++)
	{
		const Socket *s = http->socket[i];

		if (s != NULL && s->proven && s->own_port == own_port &&
			recv(s->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
			return true;
	}
	return false;
}

/* curl's CURLMOPT_SOCKETFUNCTION. The resolver's pipe comes this way without having been opened by
 * us. */
static int
socket_wanted(CURL *easy, curl_socket_t fd, int what, void *arg, void *per_socket)
{
	TbHttp	   *http = arg;
	Socket	   *s = find_socket(http, fd);
	uint32_t	events = 0;

	if (what == CURL_POLL_REMOVE)
	{
		if (s != NULL && !s->ours)
			drop_socket(http, s, true);
		else if (s != NULL)
			release_socket(s, easy);
		return 0;
	}
	if (s == NULL)
		s = add_socket(http, fd, false);
	if (s == NULL)
		return -1;
	if (what & CURL_POLL_IN)
		events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		events |= EPOLLOUT;
	/* what was watched may have been another socket of the same number */
	if (s->watched && !s->wanted && !s->proven)
		s->watched = tb_loop_rewatch(http->loop, &s->watch, events) == TB_OK;
	s->wanted = true;
	if (!s->watched)
	{
		s->watch.events = events;
		s->watched = tb_loop_watch(http->loop, &s->watch, NULL) == TB_OK ||
					 tb_loop_rewatch(http->loop, &s->watch, events) == TB_OK;
		return s->watched ? 0 : -1;
	}
	if (s->watch.events != events && tb_loop_rewatch(http->loop, &s->watch, events) != TB_OK)
		return -1;
	return 0;
}

static curl_socket_t
open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	TbTransfer *transfer = arg;
	int			fd;

	if (transfer->peers != NULL && !tb_peers_allow(transfer->peers, &address->addr, address->addrlen))
	{
		transfer->refused = true;
		return CURL_SOCKET_BAD;
	}
	transfer->permitted = true;
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
	if (fd < 0)
	{
		transfer->no_sockets = errno == EMFILE || errno == ENFILE || errno == ENOBUFS;
		return CURL_SOCKET_BAD;
	}
	if (add_socket(transfer->http, fd, true) == NULL)
	{
		close(fd);
		transfer->no_memory = true;
		return CURL_SOCKET_BAD;
	}
	return fd;
}

static int
close_socket(void *arg, curl_socket_t fd)
{
	TbHttp	   *http = arg;
	Socket	   *s = find_socket(http, fd);

	if (s != NULL)
		drop_socket(http, s, true);
	return close(fd);
}

/* A connection is at hand, perhaps one that another store opened, which may go where this one may not. */
static int
connection_chosen(void *arg, char *peer, char *local, int peer_port, int local_port)
{
	TbTransfer *transfer = arg;

	transfer->excess = has_excess(transfer->http, local_port);
	if (transfer->excess)
		return CURL_PREREQFUNC_ABORT;
	if (transfer->peers == NULL || tb_peers_allow_text(transfer->peers, peer))
		return CURL_PREREQFUNC_OK;
	transfer->refused = true;
	transfer->permitted = false;
	return CURL_PREREQFUNC_ABORT;
}

static void
kicked(TbTask *task)
{
	TbHttp	   *http = (TbHttp *) ((char *) task - offsetof(TbHttp, kick));

	http->kick_waits = false;
	if (http->kick_wanted)
		run(http, CURL_SOCKET_TIMEOUT, 0);
}

static void
timer_fired(TbTimer *timer)
{
	TbHttp	   *http = (TbHttp *) ((char *) timer - offsetof(TbHttp, timer));

	run(http, CURL_SOCKET_TIMEOUT, 0);
}

static void
defer_kick(TbHttp *http)
{
	if (http->kick_waits)
		return;
	http->kick_waits = true;
	tb_loop_defer(http->loop, &http->kick);
}

/* curl's CURLMOPT_TIMERFUNCTION. */
static int
timer_wanted(CURLM *multi, long timeout_ms, void *arg)
{
	TbHttp	   *http = arg;

	if (timeout_ms > 0)
		return tb_loop_arm(http->loop, &http->timer, timeout_ms * TB_NS_PER_MS) == TB_OK ? 0 : -1;
	tb_loop_disarm(http->loop, &http->timer);
	if (timeout_ms == 0)
	{
		http->kick_wanted = true;
		if (!http->inside)
			defer_kick(http);
	}
	return 0;
}

static void
unlink_transfer(TbHttp *http, TbTransfer *t)
{
	if (t->prev != NULL)
		t->prev->next = t->next;
	else
		http->first = t->next;
	if (t->next != NULL)
		t->next->prev = t->prev;
	t->prev = t->next = NULL;
	if (http->first == NULL)
		tb_loop_disarm(http->loop, &http->watchdog);
}

/* Take a transfer from curl and tell its owner. */
static void
end_transfer(TbHttp *http, TbTransfer *t, CURLcode code)
{
	(void) curl_multi_remove_handle(http->multi, t->easy);
	unlink_transfer(http, t);
	t->done(t, code);
}

static void
reap(TbHttp *http)
{
	CURLMsg    *message;
	int			left;

	while ((message = curl_multi_info_read(http->multi, &left)) != NULL)
	{
		CURLcode	code = message->data.result;
		char	   *private = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		(void) curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
		end_transfer(http, (TbTransfer *) (void *) private, code);
	}
}

/* The multi handle is of no use any more: end what runs. */
static void
give_up(TbHttp *http)
{
	http->broken = true;
	while (http->first != NULL)
		end_transfer(http, http->first, CURLE_OUT_OF_MEMORY);
}

static CURLMcode
enter_curl(TbHttp *http, curl_socket_t fd, int events)
{
	sigset_t	all;
	sigset_t	before;
	int			running;
	CURLMcode	code;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	(void) pthread_sigmask(SIG_BLOCK, &all, &before);
	code = curl_multi_socket_action(http->multi, fd, events, &running);
	(void) pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

/* Let curl work on an event, and at once on what the requests started by it want. */
static void
run(TbHttp *http, curl_socket_t fd, int events)
{
	http->inside = true;
	for (int turn = 0; turn < TURNS; turn++)
	{
		if (fd == CURL_SOCKET_TIMEOUT)
			http->kick_wanted = false;
		if (enter_curl(http, fd, events) != CURLM_OK)
			give_up(http);
		reap(http);
		if (!http->kick_wanted)
			break;
		fd = CURL_SOCKET_TIMEOUT;
		events = 0;
	}
	http->inside = false;
	if (http->kick_wanted)
		defer_kick(http);
}

/* Whether a transfer has been silent or slow for too long. dt_ns: what this tick counts. */
static bool
is_stalled(TbHttp *http, TbTransfer *t, int64_t dt_ns)
{
	const TbIoOptions *o = http->options;
	curl_off_t	sent_us = 0;
	curl_off_t	sent = 0;

	if (!t->answered && t->sends && curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &sent) == CURLE_OK &&
		(uint64_t) sent != t->sent)
	{
		t->sent = (uint64_t) sent;
		t->waited_ns = 0;
	}
	if (!t->answered)
	{
		/* connecting has a time limit of its own */
		if (curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us) == CURLE_OK && sent_us > 0)
			t->waited_ns += dt_ns;
		return t->waited_ns > o->first_byte_timeout_ms * TB_NS_PER_MS;
	}
	t->window_ns += dt_ns;
	if (t->window_ns < o->low_speed_seconds * 1000 * TB_NS_PER_MS)
		return false;
	if (t->bytes - t->window_bytes < (uint64_t) o->low_speed_bytes * (uint64_t) o->low_speed_seconds)
		return true;
	t->window_ns = 0;
	t->window_bytes = t->bytes;
	return false;
}

static void
watchdog_fired(TbTimer *timer)
{
	TbHttp	   *http = (TbHttp *) ((char *) timer - offsetof(TbHttp, watchdog));
	int64_t		now_ns = tb_now_ns();
	int64_t		dt_ns = now_ns - http->last_tick_ns;

	if (dt_ns > 2 * http->tick_ns)
		dt_ns = 2 * http->tick_ns;
	http->last_tick_ns = now_ns;
	for (TbTransfer *t = http->first; t != NULL; t = t->next)
		t->stalled = is_stalled(http, t, dt_ns);
	for (TbTransfer *t = http->first; t != NULL;)
	{
		if (!t->stalled)
		{
			t = t->next;
			continue;
		}
		end_transfer(http, t, CURLE_OPERATION_TIMEDOUT);
		t = http->first;		/* done may have changed the list */
	}
	if (http->first != NULL && tb_loop_arm(http->loop, &http->watchdog, http->tick_ns) != TB_OK)
		give_up(http);
}

/* Connections that this process may hold now: its share of the node's where there is one. */
static long
connections_now(const TbHttp *http)
{
	const TbIoOptions *o = http->options;
	TbNodeLimits limits = {o->max_connections, o->max_requests_in_flight, o->io_memory_bytes};

	return o->node != NULL ? tb_node_connections(o->node, &limits) : o->max_connections;
}

/* Have curl keep to it. What is idle above it is closed as others end. */
static void
follow_limit(TbHttp *http)
{
	int64_t		now_ns = tb_now_ns();
	long		n;

	if (http->options->node == NULL || now_ns - http->limit_ns < LIMIT_MS * TB_NS_PER_MS)
		return;
	http->limit_ns = now_ns;
	n = connections_now(http);
	if (n == http->limit)
		return;
	http->limit = n;
	(void) curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, n);
	(void) curl_multi_setopt(http->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, n);
}

static CURLM *
new_multi(TbHttp *http)
{
	CURLM	   *multi = curl_multi_init();
	long		n = http->limit = connections_now(http);

	if (multi == NULL)
		return NULL;
	if (curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, socket_wanted) != CURLM_OK ||
		curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, http) != CURLM_OK ||
		curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, timer_wanted) != CURLM_OK ||
		curl_multi_setopt(multi, CURLMOPT_TIMERDATA, http) != CURLM_OK ||
		curl_multi_setopt(multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING) != CURLM_OK ||
		curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, n) != CURLM_OK ||
		curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, n) != CURLM_OK)
	{
		(void) curl_multi_cleanup(multi);
		return NULL;
	}
	return multi;
}

TbStatus
tb_http_new(TbLoop *loop, const TbIoOptions *options, TbHttp **http, TbError *err)
{
	TbHttp	   *new = tb_calloc(1, sizeof(*new));
	int64_t		limit_ms = options->first_byte_timeout_ms;

	*http = NULL;
	if (new == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	new->loop = loop;
	new->options = options;
	if (limit_ms > options->low_speed_seconds * INT64_C(1000))
		limit_ms = options->low_speed_seconds * INT64_C(1000);
	new->tick_ns = (limit_ms < 80 ? 10 : limit_ms > 8000 ? 1000 : limit_ms / 8) * TB_NS_PER_MS;
	new->timer.fire = timer_fired;
	new->watchdog.fire = watchdog_fired;
	new->kick.run = kicked;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
	{
		tb_free(new);
		return tb_fail(err, TB_E_NOMEM, "HTTP library cannot be started");
	}
	new->multi = new_multi(new);
	if (new->multi == NULL)
	{
		tb_http_free(new);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	*http = new;
	return TB_OK;
}

void
tb_http_free(TbHttp *http)
{
	if (http == NULL)
		return;
	if (http->multi != NULL)
		(void) curl_multi_cleanup(http->multi);	/* closes idle connections */
	tb_loop_disarm(http->loop, &http->timer);
	tb_loop_disarm(http->loop, &http->watchdog);
	if (http->kick_waits)
		tb_loop_undefer(http->loop, &http->kick);
	for (size_t i = 0; i < http->n_sockets; i++)
		if (http->socket[i] != NULL)
			drop_socket(http, http->socket[i], false);
	tb_free(http->socket);
	tb_free(http);
	curl_global_cleanup();
}

/* Set options, remembering the first failure. */
#define SET(option, value) \
	do { \
		if (code == CURLE_OK) \
			code = curl_easy_setopt(e, option, value); \
	} while (0)

TbStatus
tb_http_easy(TbHttp *http, TbTransfer *transfer)
{
	CURL	   *e = curl_easy_init();
	CURLcode	code = e != NULL ? CURLE_OK : CURLE_OUT_OF_MEMORY;

	transfer->http = http;
	transfer->easy = e;
	SET(CURLOPT_PRIVATE, (void *) transfer);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_QUICK_EXIT, 1L);	/* removing a handle never waits for its resolver thread */
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_PROXY, "");		/* also not the environment's */
	SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_NETRC, (long) CURL_NETRC_IGNORED);
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_HTTP09_ALLOWED, 0L);
	SET(CURLOPT_HTTP_CONTENT_DECODING, 0L);
	SET(CURLOPT_USERAGENT, "tensorbank");
	SET(CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long) http->options->connect_timeout_ms);
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
	SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
	SET(CURLOPT_OPENSOCKETDATA, transfer);
	SET(CURLOPT_PREREQFUNCTION, connection_chosen);
	SET(CURLOPT_PREREQDATA, transfer);
	SET(CURLOPT_CLOSESOCKETFUNCTION, close_socket);
	SET(CURLOPT_CLOSESOCKETDATA, http);	/* outlives each transfer, as connections do */
	if (code == CURLE_OK)
		return TB_OK;
	curl_easy_cleanup(e);
	transfer->easy = NULL;
	return TB_E_NOMEM;
}

TbStatus
tb_http_start(TbHttp *http, TbTransfer *t)
{
	if (http->broken && http->first == NULL)
	{
		CURLM	   *multi = new_multi(http);

		if (multi == NULL)
			return TB_E_NOMEM;
		(void) curl_multi_cleanup(http->multi);
		http->multi = multi;
		http->broken = false;
	}
	t->answered = t->stalled = t->no_sockets = t->no_memory = false;
	t->refused = t->permitted = t->excess = false;
	t->bytes = t->window_bytes = t->sent = 0;
	t->waited_ns = t->window_ns = 0;
	follow_limit(http);
	if (curl_multi_add_handle(http->multi, t->easy) != CURLM_OK)
		return TB_E_NOMEM;
	if (http->first == NULL)
	{
		http->last_tick_ns = tb_now_ns();
		if (tb_loop_arm(http->loop, &http->watchdog, http->tick_ns) != TB_OK)
		{
			(void) curl_multi_remove_handle(http->multi, t->easy);
			return TB_E_NOMEM;
		}
	}
	t->next = http->first;
	if (t->next != NULL)
		t->next->prev = t;
	http->first = t;
	return TB_OK;
}

void
tb_http_stop(TbHttp *http, TbTransfer *t)
{
	(void) curl_multi_remove_handle(http->multi, t->easy);
	unlink_transfer(http, t);
}
