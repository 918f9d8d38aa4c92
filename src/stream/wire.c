/*
 * Frames on a Unix stream socket. Non-blocking: what does not go out at once waits in a queue,
 * what comes in is collected until a frame is whole. What the frames mean is left to others.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* MSG_CMSG_CLOEXEC, explicit_bzero */
#endif

#include "stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 65536
#define MAX_PARKED 4			/* descriptors that came and were not taken yet */

/* A frame on its way out. */
typedef struct Outgoing
{
	struct Outgoing *next;
	int			fd;				/* owned; -1: none, or gone already */
	size_t		len;			/* with the four bytes of length */
	size_t		sent;
	uint8_t		bytes[];
} Outgoing;

struct TbWire
{
	int			socket;			/* owned */
	size_t		limit;			/* of incoming frames */

	Outgoing   *out;			/* owned list */
	Outgoing   *out_tail;

	uint8_t    *in;				/* owned; bytes not yet taken */
	size_t		in_len;
	size_t		in_cap;
	uint64_t	in_offset;		/* of in[0] in all that was ever read */
	bool		ended;			/* the peer will send no more */

	/* Each came with the frame that holds the byte at its offset. */
	int			parked[MAX_PARKED];
	uint64_t	parked_at[MAX_PARKED];
	int			n_parked;
};

/*
 * owns: *wire is the caller's, tb_wire_free; the socket is closed on error too. errors: NOMEM, IO.
 */
TbStatus
tb_wire_new(int socket, TbWire **wire, TbError *err)
{
	int			flags = fcntl(socket, F_GETFL);
	TbWire	   *w;

	*wire = NULL;
	if (flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) != 0)
	{
		TbStatus	status = tb_fail_errno(err, errno, "prepare a socket", NULL);

		(void) close(socket);
		return status;
	}
	w = tb_calloc(1, sizeof(*w));
	if (w == NULL)
	{
		(void) close(socket);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	w->socket = socket;
	w->limit = TB_WIRE_MAX_FRAME;
	*wire = w;
	return TB_OK;
}

static void
drop_outgoing(TbWire *wire)
{
	Outgoing   *frame = wire->out;

	wire->out = frame->next;
	if (wire->out == NULL)
		wire->out_tail = NULL;
	if (frame->fd >= 0)
		(void) close(frame->fd);
	tb_free(frame);
}

void
tb_wire_free(TbWire *wire)
{
	if (wire == NULL)
		return;
	while (wire->out != NULL)
		drop_outgoing(wire);
	for (int i = 0; i < wire->n_parked; i++)
		(void) close(wire->parked[i]);
	if (wire->in != NULL)
		explicit_bzero(wire->in, wire->in_cap);
	tb_free(wire->in);
	(void) close(wire->socket);
	tb_free(wire);
}

int
tb_wire_fd(const TbWire *wire)
{
	return wire->socket;
}

bool
tb_wire_wants_write(const TbWire *wire)
{
	return wire->out != NULL;
}

void
tb_wire_limit(TbWire *wire, size_t bytes)
{
	wire->limit = bytes < TB_WIRE_MAX_FRAME ? bytes : TB_WIRE_MAX_FRAME;
}

TbStatus
tb_wire_send(TbWire *wire, const char *json, size_t len, int fd, TbError *err)
{
	Outgoing   *frame;

	if (len > TB_WIRE_MAX_FRAME)
		return tb_fail(err, TB_E_LIMIT, "message is too long");
	frame = tb_malloc(sizeof(*frame) + 4 + len);
	if (frame == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	frame->next = NULL;
	frame->fd = -1;
	frame->len = 4 + len;
	frame->sent = 0;
	for (int i = 0; i < 4; i++)
		frame->bytes[i] = (uint8_t) (len >> 8 * i);
	memcpy(frame->bytes + 4, json, len);
	if (fd >= 0)
	{
		frame->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (frame->fd < 0)
		{
			tb_free(frame);
			return tb_fail_errno(err, errno, "duplicate a descriptor", NULL);
		}
	}
	if (wire->out_tail != NULL)
		wire->out_tail->next = frame;
	else
		wire->out = frame;
	wire->out_tail = frame;
	return TB_OK;
}

static TbStatus
lost(TbError *err, int sys_errno)
{
	tb_fail(err, TB_E_LOST, "connection is closed");
	if (err != NULL)
		err->sys_errno = sys_errno;
	return TB_E_LOST;
}

/*
 * One sendmsg of one frame, so that a descriptor never shares its packet with another frame's
 * bytes.
 */
static ssize_t
send_some(TbWire *wire, Outgoing *frame)
{
	struct iovec iov = {frame->bytes + frame->sent, frame->len - frame->sent};
	union
	{
		struct cmsghdr align;
		char		bytes[CMSG_SPACE(sizeof(int))];
	}			control;
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (frame->fd >= 0)
	{
		struct cmsghdr *header;

		memset(&control, 0, sizeof(control));
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &frame->fd, sizeof(int));
	}
	return sendmsg(wire->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

TbStatus
tb_wire_flush(TbWire *wire, TbError *err)
{
	while (wire->out != NULL)
	{
		Outgoing   *frame = wire->out;
		ssize_t		n = send_some(wire, frame);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS))
			return TB_AGAIN;
		if (n < 0)
			return lost(err, errno);
		if (frame->fd >= 0)
		{
			(void) close(frame->fd);
			frame->fd = -1;
		}
		frame->sent += (size_t) n;
		if (frame->sent == frame->len)
			drop_outgoing(wire);
	}
	return TB_OK;
}

/*
 * Keep the descriptors of a message whose last byte is at offset `at`; false when there are too
 * many.
 */
static bool
park(TbWire *wire, struct msghdr *message, uint64_t at)
{
	bool		ok = (message->msg_flags & MSG_CTRUNC) == 0;

	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header))
	{
		size_t		n;

		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++)
		{
			int			fd;

			memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
			if (wire->n_parked == MAX_PARKED)
			{
				(void) close(fd);
				ok = false;
				continue;
			}
			wire->parked[wire->n_parked] = fd;
			wire->parked_at[wire->n_parked++] = at;
		}
	}
	return ok;
}

static TbStatus
bad_frame(TbError *err, const char *why)
{
	tb_fail(err, TB_E_PROTOCOL, "message on the socket is malformed");
	tb_error_detail(err, "%s", why);
	return TB_E_PROTOCOL;
}

/*
 * Read what is there, at most `want` bytes. A read ends with the packet that carried a descriptor,
 * and that packet holds bytes of one frame only: so its last byte tells the frame. AGAIN, LOST,
 * PROTOCOL, OK: some came.
 */
static TbStatus
read_some(TbWire *wire, size_t want, TbError *err)
{
	struct iovec iov;
	union
	{
		struct cmsghdr align;
		char		bytes[CMSG_SPACE(MAX_PARKED * sizeof(int))];
	}			control;
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
	.msg_controllen = sizeof(control.bytes)};
	ssize_t		n;

	if (wire->in_cap - wire->in_len < want)
	{
		uint8_t    *grown = tb_realloc(wire->in, wire->in_len + want);

		if (grown == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
		wire->in = grown;
		wire->in_cap = wire->in_len + want;
	}
	iov.iov_base = wire->in + wire->in_len;
	iov.iov_len = want;
	do
		n = recvmsg(wire->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return TB_AGAIN;
	if (n <= 0)
	{
		wire->ended = true;
		return lost(err, n < 0 ? errno : 0);
	}
	wire->in_len += (size_t) n;
	if (!park(wire, &message, wire->in_offset + wire->in_len - 1))
		return bad_frame(err, "too many descriptors");
	return TB_OK;
}

/*
 * The descriptor of the frame that ends at offset `end`; descriptors beyond one a frame are closed.
 */
static int
unpark(TbWire *wire, uint64_t end)
{
	int			fd = -1;
	int			kept = 0;

	for (int i = 0; i < wire->n_parked; i++)
	{
		if (wire->parked_at[i] >= end)
		{
			wire->parked[kept] = wire->parked[i];
			wire->parked_at[kept++] = wire->parked_at[i];
		}
		else if (fd < 0)
			fd = wire->parked[i];
		else
			(void) close(wire->parked[i]);
	}
	wire->n_parked = kept;
	return fd;
}

/*
 * Parse the frame of `len` bytes at the front and take it out, wiped: it may have held credentials.
 */
static TbStatus
take_frame(TbWire *wire, size_t len, TbJson **doc, int *fd, TbError *err)
{
	TbStatus	status = tb_json_parse(wire->in + 4, len, doc, err);
	size_t		whole = 4 + len;
	int			came;

	explicit_bzero(wire->in, whole);
	memmove(wire->in, wire->in + whole, wire->in_len - whole);
	wire->in_len -= whole;
	wire->in_offset += whole;
	came = unpark(wire, wire->in_offset);
	if (status == TB_OK && fd != NULL)
		*fd = came;
	else if (came >= 0)
		(void) close(came);
	if (status == TB_OK || status == TB_E_NOMEM)
		return status;
	return bad_frame(err, "no JSON");
}

TbStatus
tb_wire_receive(TbWire *wire, TbJson **doc, int *fd, TbError *err)
{
	*doc = NULL;
	if (fd != NULL)
		*fd = -1;
	for (;;)
	{
		size_t		len = 0;
		size_t		want = READ_BYTES;
		TbStatus	status;

		if (wire->in_len >= 4)
		{
			for (int i = 0; i < 4; i++)
				len |= (size_t) wire->in[i] << 8 * i;
			if (len > wire->limit)
				return bad_frame(err, "too long");
			if (wire->in_len - 4 >= len)
				return take_frame(wire, len, doc, fd, err);
			if (len + 4 - wire->in_len > want)
				want = len + 4 - wire->in_len;
		}
		if (wire->ended)
			return lost(err, 0);
		/* memory follows what has come, not what a length claims */
		if (want > READ_BYTES + wire->in_len)
			want = READ_BYTES + wire->in_len;
		status = read_some(wire, want, err);
		if (status != TB_OK)
			return status;
	}
}
