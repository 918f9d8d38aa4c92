/* The test's HTTP server: one thread that accepts, one for each connection. */
#include "httpd.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct HttpdConn
{
	Httpd	   *httpd;
	pthread_t	thread;
	int			fd;				/* -1: closed by the handler */
	int			requests;
	struct HttpdConn *next;
};

struct Httpd
{
	HttpdHandler handler;
	void	   *arg;
	int			listen_fd;
	int			stop_fd;		/* readable once the server stops */
	int			port;
	pthread_t	thread;
	pthread_mutex_t mu;
	HttpdConn  *conns;			/* guarded by mu, as what follows */
	int			n_conns;
	int			n_requests;
};

/* Wait until fd is readable; false: the server stops. */
static bool
wait_readable(Httpd *httpd, int fd, int timeout_ms)
{
	struct pollfd fds[2] = {{.fd = httpd->stop_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	int			n;

	do
		n = poll(fds, fd >= 0 ? 2 : 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	return n > 0 && fds[0].revents == 0;
}

void
httpd_write(HttpdConn *conn, const void *bytes, size_t len)
{
	const char *at = bytes;

	while (len > 0 && conn->fd >= 0)
	{
		ssize_t		n = send(conn->fd, at, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		at += n;
		len -= (size_t) n;
	}
}

void
httpd_printf(HttpdConn *conn, const char *format, ...)
{
	char		text[8192];
	va_list		args;
	int			n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	httpd_write(conn, text, (size_t) n < sizeof(text) ? (size_t) n : sizeof(text) - 1);
}

void
httpd_status(HttpdConn *conn, int status, const char *headers)
{
	httpd_printf(conn, "HTTP/1.1 %d Told\r\nContent-Length: 0\r\n%s\r\n", status, headers);
}

void
httpd_close(HttpdConn *conn)
{
	if (conn->fd < 0)
		return;
	(void) shutdown(conn->fd, SHUT_WR);
	close(conn->fd);
	conn->fd = -1;
}

void
httpd_reset(HttpdConn *conn)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	if (conn->fd < 0)
		return;
	(void) setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(conn->fd);
	conn->fd = -1;
}

void
httpd_hang(HttpdConn *conn)
{
	char		byte;

	while (conn->fd >= 0 && wait_readable(conn->httpd, conn->fd, -1))
		if (recv(conn->fd, &byte, 1, 0) <= 0)
			break;
	httpd_close(conn);
}

void
httpd_sleep(HttpdConn *conn, int ms)
{
	(void) wait_readable(conn->httpd, -1, ms);
}

bool
httpd_header(const HttpdRequest *request, const char *name, char *value, size_t size)
{
	size_t		len = strlen(name);

	for (const char *line = request->head; line != NULL && *line != '\0';)
	{
		const char *end = strstr(line, "\r\n");

		if (strncasecmp(line, name, len) == 0 && line[len] == ':')
		{
			const char *at = line + len + 1 + strspn(line + len + 1, " ");
			size_t		n = end != NULL ? (size_t) (end - at) : strlen(at);

			(void) snprintf(value, size, "%.*s", (int) n, at);
			return true;
		}
		line = end != NULL ? end + 2 : NULL;
	}
	return false;
}

static void
read_range(HttpdRequest *request)
{
	char		value[128];
	unsigned long long first;
	unsigned long long last;

	request->has_range = httpd_header(request, "Range", value, sizeof(value));
	if (!request->has_range)
		return;
	if (sscanf(value, "bytes=-%llu", &first) == 1)
	{
		request->is_suffix = true;
		request->first = first;
	}
	else if (sscanf(value, "bytes=%llu-%llu", &first, &last) == 2)
	{
		request->first = first;
		request->last = last;
	}
	else
		request->has_range = false;
}

void
httpd_answer(HttpdConn *conn, const HttpdRequest *request, const HttpdObject *object)
{
	char		extra[512] = "";
	char		wanted[256];
	uint64_t	first = request->first;
	uint64_t	last = request->last;

	if (object == NULL)
	{
		httpd_printf(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found");
		return;
	}
	if (object->etag != NULL)
		(void) snprintf(extra, sizeof(extra), "ETag: %s\r\n", object->etag);
	if (object->last_modified != NULL)
		(void) snprintf(extra + strlen(extra), sizeof(extra) - strlen(extra), "Last-Modified: %s\r\n",
						object->last_modified);
	if (httpd_header(request, "If-Match", wanted, sizeof(wanted)) &&
		(object->etag == NULL || strcmp(wanted, object->etag) != 0))
	{
		httpd_status(conn, 412, extra);
		return;
	}
	if (!request->has_range)
	{
		httpd_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n%s\r\n", object->len, extra);
		httpd_write(conn, object->bytes, object->len);
		return;
	}
	if (request->is_suffix)
	{
		first = request->first < object->len ? object->len - request->first : 0;
		last = object->len - 1;
	}
	if (first >= object->len || (request->is_suffix && request->first == 0))
	{
		httpd_status(conn, 416, extra);
		return;
	}
	if (last >= object->len)
		last = object->len - 1;
	httpd_printf(conn, "HTTP/1.1 206 Partial Content\r\nContent-Length: %llu\r\n"
				 "Content-Range: bytes %llu-%llu/%zu\r\n%s\r\n",
				 (unsigned long long) (last - first + 1), (unsigned long long) first,
				 (unsigned long long) last, object->len, extra);
	httpd_write(conn, (const char *) object->bytes + first, (size_t) (last - first + 1));
}

/* Read what the head announces; len bytes were read with the head. false: the connection or the server ends. */
static bool
read_body(HttpdConn *conn, HttpdRequest *request, size_t len)
{
	char	   *end = strstr(request->head, "\r\n\r\n");
	char		value[64];
	size_t		got;

	if (end == NULL || !httpd_header(request, "Content-Length", value, sizeof(value)))
		return true;
	end += 4;
	got = len - (size_t) (end - request->head);
	request->body_len = strtoull(value, NULL, 10);
	request->body = malloc(request->body_len + 1);
	got = got < request->body_len ? got : request->body_len;
	memcpy(request->body, end, got);
	*end = '\0';
	if (httpd_header(request, "Expect", value, sizeof(value)))
		httpd_printf(conn, "HTTP/1.1 100 Continue\r\n\r\n");
	while (got < request->body_len)
	{
		ssize_t		n = wait_readable(conn->httpd, conn->fd, -1) ?
			recv(conn->fd, request->body + got, request->body_len - got, 0) : -1;

		if (n <= 0)
			return false;
		got += (size_t) n;
	}
	request->body[got] = 0;
	return true;
}

/* Read one request. false: the connection or the server ends. */
static bool
read_request(HttpdConn *conn, HttpdRequest *request)
{
	size_t		len = 0;

	memset(request, 0, sizeof(*request));
	while (strstr(request->head, "\r\n\r\n") == NULL)
	{
		ssize_t		n;

		if (len == sizeof(request->head) - 1 || !wait_readable(conn->httpd, conn->fd, -1))
			return false;
		n = recv(conn->fd, request->head + len, sizeof(request->head) - 1 - len, 0);
		if (n <= 0)
			return false;
		len += (size_t) n;
		if (request->head[0] == 0x16)	/* a TLS hello: the handler answers it as it likes */
			break;
	}
	(void) sscanf(request->head, "%15s %4095s", request->method, request->path);
	read_range(request);
	return read_body(conn, request, len);
}

static void *
serve(void *arg)
{
	HttpdConn  *conn = arg;
	Httpd	   *httpd = conn->httpd;
	HttpdRequest *request = malloc(sizeof(*request));

	request->body = NULL;
	while (conn->fd >= 0 && read_request(conn, request))
	{
		pthread_mutex_lock(&httpd->mu);
		request->number = ++httpd->n_requests;
		pthread_mutex_unlock(&httpd->mu);
		request->on_connection = ++conn->requests;
		httpd->handler(conn, request, httpd->arg);
		free(request->body);
		request->body = NULL;
	}
	httpd_close(conn);
	free(request->body);
	free(request);
	return NULL;
}

static void *
accept_all(void *arg)
{
	Httpd	   *httpd = arg;

	while (wait_readable(httpd, httpd->listen_fd, -1))
	{
		HttpdConn  *conn;
		int			one = 1;
		int			fd = accept(httpd->listen_fd, NULL, NULL);

		if (fd < 0)
			continue;
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		conn = calloc(1, sizeof(*conn));
		conn->httpd = httpd;
		conn->fd = fd;
		pthread_mutex_lock(&httpd->mu);
		conn->next = httpd->conns;
		httpd->conns = conn;
		httpd->n_conns++;
		(void) pthread_create(&conn->thread, NULL, serve, conn);
		pthread_mutex_unlock(&httpd->mu);
	}
	return NULL;
}

Httpd *
httpd_start(HttpdHandler handler, void *arg)
{
	Httpd	   *httpd = calloc(1, sizeof(*httpd));
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t	len = sizeof(address);

	httpd->handler = handler;
	httpd->arg = arg;
	pthread_mutex_init(&httpd->mu, NULL);
	httpd->stop_fd = eventfd(0, EFD_CLOEXEC);
	httpd->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (httpd->stop_fd < 0 || httpd->listen_fd < 0 ||
		bind(httpd->listen_fd, (struct sockaddr *) &address, len) < 0 || listen(httpd->listen_fd, 128) < 0 ||
		getsockname(httpd->listen_fd, (struct sockaddr *) &address, &len) < 0 ||
		pthread_create(&httpd->thread, NULL, accept_all, httpd) != 0)
		abort();
	httpd->port = ntohs(address.sin_port);
	return httpd;
}

void
httpd_stop(Httpd *httpd)
{
	uint64_t	one = 1;

	if (write(httpd->stop_fd, &one, sizeof(one)) < 0)
		abort();
	pthread_join(httpd->thread, NULL);
	while (httpd->conns != NULL)
	{
		HttpdConn  *conn = httpd->conns;

		httpd->conns = conn->next;
		pthread_join(conn->thread, NULL);
		free(conn);
	}
	close(httpd->listen_fd);
	close(httpd->stop_fd);
	pthread_mutex_destroy(&httpd->mu);
	free(httpd);
}

int
httpd_port(const Httpd *httpd)
{
	return httpd->port;
}

int
httpd_requests(Httpd *httpd)
{
	int			n;

	pthread_mutex_lock(&httpd->mu);
	n = httpd->n_requests;
	pthread_mutex_unlock(&httpd->mu);
	return n;
}

int
httpd_connections(Httpd *httpd)
{
	int			n;

	pthread_mutex_lock(&httpd->mu);
	n = httpd->n_conns;
	pthread_mutex_unlock(&httpd->mu);
	return n;
}
