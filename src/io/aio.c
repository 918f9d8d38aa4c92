/*
 * Disk I/O beside the loop: the face, and the methods without io_uring. Whatever the method, an op
 * that has ended waits in one list until the pump takes it.
 */
#include "io/aio_parts.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

void
tb_aio_ended(TbAio *aio, TbAioOp *op)
{
	uint64_t	one = 1;

	op->next = NULL;
	pthread_mutex_lock(&aio->mu);
	if (aio->ended == NULL)
	{
		aio->ended = op;
		while (!aio->taking && write(aio->watch.fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
	else
		aio->ended_last->next = op;
	aio->ended_last = op;
	pthread_mutex_unlock(&aio->mu);
}

static TbAioOp *
take_ended(TbAio *aio)
{
	TbAioOp    *op;

	pthread_mutex_lock(&aio->mu);
	op = aio->ended;
	aio->ended = aio->ended_last = NULL;
	pthread_mutex_unlock(&aio->mu);
	return op;
}

static void
something_ended(TbWatch *watch, uint32_t events)
{
	TbAio	   *aio = (TbAio *) ((char *) watch - offsetof(TbAio, watch));
	uint64_t	count;
	TbAioOp    *op;

	if (read(watch->fd, &count, sizeof(count)) < 0 && errno != EAGAIN && errno != EINTR)
		return;
	if (aio->uring != NULL)
	{
		aio->taking = true;
		tb_uring_reap(aio->uring);
		aio->taking = false;
	}
	op = take_ended(aio);
	while (op != NULL)
	{
		TbAioOp    *next = op->next;

		op->done(op);
		op = next;
	}
}

/* Transfer the whole range. thread: any. */
static void
transfer(TbAioOp *op)
{
	op->result = 0;
	while (op->at < op->len)
	{
		char	   *bytes = (char *) op->bytes + op->at;
		off_t		offset = (off_t) (op->offset + op->at);
		ssize_t		n = op->write ? pwrite(op->fd, bytes, op->len - op->at, offset) :
			pread(op->fd, bytes, op->len - op->at, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
		{
			op->result = -errno;
			return;
		}
		if (n == 0)
			break;				/* the end of the file */
		op->at += (size_t) n;
	}
	op->result = op->write && op->at < op->len ? -EIO : (int64_t) op->at;
}

static void
pool_runs(TbTask *task)
{
	TbAioOp    *op = (TbAioOp *) ((char *) task - offsetof(TbAioOp, task));
	TbAio	   *aio = op->aio;

	transfer(op);
	tb_aio_ended(aio, op);
	pthread_mutex_lock(&aio->mu);
	if (--aio->busy == 0)
		pthread_cond_signal(&aio->idle);
	pthread_mutex_unlock(&aio->mu);
}

void
tb_aio_submit(TbAio *aio, TbAioOp *op)
{
	op->aio = aio;
	op->at = 0;
	switch (aio->method)
	{
		case TB_AIO_URING:
			tb_uring_submit(aio->uring, op);
			break;
		case TB_AIO_POOL:
			pthread_mutex_lock(&aio->mu);
			aio->busy++;
			pthread_mutex_unlock(&aio->mu);
			op->task.run = pool_runs;
			tb_pool_submit(aio->pool, &op->task);
			break;
		case TB_AIO_SYNC:
			transfer(op);
			tb_aio_ended(aio, op);
			break;
	}
}

/* owns: the caller, tb_aio_free. */
TbStatus
tb_aio_new(TbLoop *loop, TbPool *pool, TbAioMethod method, TbAio **out, TbError *err)
{
	TbAio	   *aio = tb_calloc(1, sizeof(*aio));
	TbStatus	status;

	*out = NULL;
	if (aio == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	aio->loop = loop;
	aio->pool = pool;
	aio->watch.ready = something_ended;
	aio->watch.events = EPOLLIN;
	aio->watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	status = aio->watch.fd < 0 ? tb_fail_errno(err, errno, "create an event descriptor", NULL) :
		tb_loop_watch(loop, &aio->watch, err);
	if (status != TB_OK)
	{
		if (aio->watch.fd >= 0)
			close(aio->watch.fd);
		tb_free(aio);
		return status;
	}
	pthread_mutex_init(&aio->mu, NULL);
	pthread_cond_init(&aio->idle, NULL);
	if (method == TB_AIO_URING)
		aio->why_not = tb_uring_new(aio, &aio->uring);
	if (aio->uring != NULL)
		aio->method = TB_AIO_URING;
	else if (method != TB_AIO_SYNC && pool != NULL && tb_pool_threads(pool) > 0)
		aio->method = TB_AIO_POOL;
	else
		aio->method = TB_AIO_SYNC;
	*out = aio;
	return TB_OK;
}

void
tb_aio_free(TbAio *aio)
{
	if (aio == NULL)
		return;
	tb_uring_free(aio->uring);
	pthread_mutex_lock(&aio->mu);
	while (aio->busy > 0)
		pthread_cond_wait(&aio->idle, &aio->mu);
	pthread_mutex_unlock(&aio->mu);
	tb_loop_unwatch(aio->loop, &aio->watch);
	close(aio->watch.fd);
	for (int i = 0; i < aio->n_fixed; i++)
		tb_buf_unref(aio->fixed[i]);
	pthread_cond_destroy(&aio->idle);
	pthread_mutex_destroy(&aio->mu);
	tb_free(aio);
}

TbAioMethod
tb_aio_method(const TbAio *aio)
{
	return aio->method;
}

int
tb_aio_why_not_uring(const TbAio *aio)
{
	return aio->why_not;
}

/* All of them, so that the kernel is told once. */
static void
make_fixed(TbAio *aio)
{
	TbBuf	   *bufs[TB_AIO_FIXED_COUNT];
	int			n = 0;

	aio->n_fixed = -1;			/* not tried again */
	while (n < TB_AIO_FIXED_COUNT && (bufs[n] = tb_buf_new(TB_AIO_FIXED_BYTES)) != NULL)
		n++;
	if (n == TB_AIO_FIXED_COUNT && tb_uring_register(aio->uring, bufs, n))
	{
		aio->n_fixed = n;
		for (int i = 0; i < n; i++)
			aio->fixed[i] = bufs[i];
		return;
	}
	while (n > 0)
		tb_buf_unref(bufs[--n]);
}

TbBuf *
tb_aio_fixed(TbAio *aio)
{
	if (aio->uring == NULL)
		return NULL;
	if (aio->n_fixed == 0)
		make_fixed(aio);
	for (int i = 0; i < aio->n_fixed; i++)
		/* acquire: what the last other holder did with the bytes lies before our writing */
		if (__atomic_load_n(&aio->fixed[i]->refs, __ATOMIC_ACQUIRE) == 1)
		{
			aio->fixed[i]->len = 0;
			return tb_buf_ref(aio->fixed[i]);
		}
	return NULL;
}
