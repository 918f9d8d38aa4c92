/*
 * Disk I/O by io_uring. What is submitted during a pump goes to the kernel in one call at its end;
 * what does not fit the ring waits in a list. Completions ring the event descriptor that the loop
 * watches.
 *
 * source: io_uring(7), liburing's examples.
 */
#include "io/aio_parts.h"

#include <errno.h>
#include <liburing.h>

#define ENTRIES 64

struct TbUring
{
	TbAio	   *aio;			/* borrowed */
	struct io_uring ring;
	unsigned	in_flight;		/* with the kernel */
	TbAioOp    *waiting;		/* not yet in the ring */
	TbAioOp    *waiting_last;
	TbTask		kick;
	bool		kicked;
	uint8_t    *fixed[TB_AIO_FIXED_COUNT];	/* where registered buffers begin */
	int			n_fixed;
};

static void
enqueue(TbUring *u, TbAioOp *op)
{
	op->next = NULL;
	if (u->waiting == NULL)
		u->waiting = op;
	else
		u->waiting_last->next = op;
	u->waiting_last = op;
}

/* Number of the registered buffer that holds a range, or -1. */
static int
fixed_of(const TbUring *u, const uint8_t *bytes, size_t len)
{
	for (int i = 0; i < u->n_fixed; i++)
		if (bytes >= u->fixed[i] && bytes + len <= u->fixed[i] + TB_AIO_FIXED_BYTES)
			return i;
	return -1;
}

static void
prepare(const TbUring *u, struct io_uring_sqe *sqe, TbAioOp *op)
{
	uint8_t    *bytes = (uint8_t *) op->bytes + op->at;
	size_t		left = op->len - op->at;
	unsigned	len = left > (1u << 30) ? 1u << 30 : (unsigned) left;
	uint64_t	offset = op->offset + op->at;
	int			fixed = fixed_of(u, bytes, len);

	if (fixed >= 0 && op->write)
		io_uring_prep_write_fixed(sqe, op->fd, bytes, len, offset, fixed);
	else if (fixed >= 0)
		io_uring_prep_read_fixed(sqe, op->fd, bytes, len, offset, fixed);
	else if (op->write)
		io_uring_prep_write(sqe, op->fd, bytes, len, offset);
	else
		io_uring_prep_read(sqe, op->fd, bytes, len, offset);
	io_uring_sqe_set_data(sqe, op);
}

/* Give the kernel what waits, as far as the ring has room. */
static void
submit_waiting(TbUring *u)
{
	unsigned	n = 0;
	int			rc;

	while (u->waiting != NULL && u->in_flight + n < ENTRIES)
	{
		struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
		TbAioOp    *op = u->waiting;

		if (sqe == NULL)
			break;
		u->waiting = op->next;
		prepare(u, sqe, op);
		n++;
	}
	u->in_flight += n;
	if (io_uring_sq_ready(&u->ring) == 0)
		return;
	do
		rc = io_uring_submit(&u->ring);
	while (rc == -EINTR);
	/* what the kernel did not take (-EAGAIN, -EBUSY) stays in the ring and goes with the next call */
}

static void
kicked(TbTask *task)
{
	TbUring    *u = (TbUring *) ((char *) task - offsetof(TbUring, kick));

	u->kicked = false;
	submit_waiting(u);
	if (io_uring_sq_ready(&u->ring) > 0 && !u->kicked)
	{
		u->kicked = true;
		tb_loop_defer(u->aio->loop, &u->kick);
	}
}

static void
kick(TbUring *u)
{
	if (u->kicked)
		return;
	u->kicked = true;
	tb_loop_defer(u->aio->loop, &u->kick);
}

void
tb_uring_submit(TbUring *u, TbAioOp *op)
{
	enqueue(u, op);
	kick(u);
}

/* One completion: true where the op has come to its end. */
static bool
completed(TbAioOp *op, int res)
{
	if (res == -EINTR || res == -EAGAIN)
		return false;
	if (res < 0)
	{
		op->result = res;
		return true;
	}
	op->at += (size_t) res;
	if (res > 0 && op->at < op->len)
		return false;			/* short: the rest */
	op->result = op->write && op->at < op->len ? -EIO : (int64_t) op->at;
	return true;
}

void
tb_uring_reap(TbUring *u)
{
	struct io_uring_cqe *cqe;

	while (io_uring_peek_cqe(&u->ring, &cqe) == 0 && cqe != NULL)
	{
		TbAioOp    *op = io_uring_cqe_get_data(cqe);
		int			res = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		u->in_flight--;
		if (completed(op, res))
			tb_aio_ended(u->aio, op);
		else
			enqueue(u, op);
	}
	if (u->waiting != NULL)
		kick(u);
}

int
tb_uring_new(TbAio *aio, TbUring **out)
{
	TbUring    *u = tb_calloc(1, sizeof(*u));
	int			rc;

	if (u == NULL)
		return ENOMEM;
	u->aio = aio;
	u->kick.run = kicked;
	rc = io_uring_queue_init(ENTRIES, &u->ring, 0);
	if (rc < 0)
	{
		tb_free(u);
		return -rc;
	}
	rc = io_uring_register_eventfd(&u->ring, aio->watch.fd);
	if (rc < 0)
	{
		io_uring_queue_exit(&u->ring);
		tb_free(u);
		return -rc;
	}
	*out = u;
	return 0;
}

bool
tb_uring_register(TbUring *u, TbBuf *const *bufs, int n)
{
	struct iovec vec[TB_AIO_FIXED_COUNT] = {0};

	for (int i = 0; i < n; i++)
		vec[i] = (struct iovec) {.iov_base = bufs[i]->data, .iov_len = TB_AIO_FIXED_BYTES};
	/* pinned memory is limited (RLIMIT_MEMLOCK): then without */
	if (io_uring_register_buffers(&u->ring, vec, (unsigned) n) < 0)
		return false;
	for (int i = 0; i < n; i++)
		u->fixed[i] = bufs[i]->data;
	u->n_fixed = n;
	return true;
}

void
tb_uring_free(TbUring *u)
{
	struct io_uring_cqe *cqe;
	int			rc;

	if (u == NULL)
		return;
	if (u->kicked)
		tb_loop_undefer(u->aio->loop, &u->kick);
	if (io_uring_sq_ready(&u->ring) > 0)
		(void) io_uring_submit(&u->ring);
	/* the kernel writes to the ops' memory until they are complete */
	while (u->in_flight > io_uring_sq_ready(&u->ring))
	{
		rc = io_uring_wait_cqe(&u->ring, &cqe);
		if (rc == -EINTR)
			continue;
		if (rc < 0)
			break;
		io_uring_cqe_seen(&u->ring, cqe);
		u->in_flight--;
	}
	io_uring_queue_exit(&u->ring);
	tb_free(u);
}
