/*
 * TbIo: what all stores of an engine share. The place where pool threads give requests back, and a
 * small stock of buffers: touching fresh memory for the first time costs several times what filling
 * it does, so buffers that nobody else holds any more are used again.
 */
#include "io/store.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/aio.h"
#include "io/cache.h"
#include "io/http.h"

#define SPARE_MIN_BYTES ((size_t) 64 << 10)	/* malloc reuses smaller ones by itself */
#define SPARE_MAX_BYTES ((size_t) 16 << 20)
#define CONNECTIONS 128
#define REQUESTS 128
#define MEMORY_BYTES ((size_t) 256 << 20)
#define CACHE_BYTES ((uint64_t) 1 << 30)
#define CACHE_AGE_MS 60000
#define HEDGE_PERCENT 5

static void
fill_defaults(TbIoOptions *o)
{
	if (o->max_connections <= 0)
		o->max_connections = CONNECTIONS;
	if (o->max_requests_in_flight <= 0)
		o->max_requests_in_flight = REQUESTS;
	if (o->io_memory_bytes == 0)
		o->io_memory_bytes = MEMORY_BYTES;
	if (o->connect_timeout_ms <= 0)
		o->connect_timeout_ms = 10000;
	if (o->first_byte_timeout_ms <= 0)
		o->first_byte_timeout_ms = 30000;
	if (o->low_speed_bytes <= 0)
		o->low_speed_bytes = 1000;
	if (o->low_speed_seconds <= 0)
		o->low_speed_seconds = 20;
	if (o->retries == 0)
		o->retries = 5;
	if (o->retries < 0)
		o->retries = 0;
	if (o->hedge_percent == 0)
		o->hedge_percent = HEDGE_PERCENT;
	if (o->hedge_percent < 0)
		o->hedge_percent = 0;
	if (o->cache_bytes == 0)
		o->cache_bytes = CACHE_BYTES;
	if (o->cache_max_age_ms <= 0)
		o->cache_max_age_ms = CACHE_AGE_MS;
}

TbIoFlow *
tb_io_flow(TbIo *io, const char *endpoint)
{
	size_t		bytes = strlen(endpoint) + 1;
	TbIoFlow   *at = io->flows;

	while (at != NULL && strcmp(at->endpoint, endpoint) != 0)
		at = at->next;
	if (at != NULL)
		return at;
	at = tb_calloc(1, sizeof(*at) + bytes);
	if (at == NULL)
		return NULL;
	at->flow = tb_flow_new(io->options.max_requests_in_flight, io->options.hedge_percent);
	if (at->flow == NULL)
	{
		tb_free(at);
		return NULL;
	}
	memcpy(at->endpoint, endpoint, bytes);
	at->next = io->flows;
	io->flows = at;
	return at;
}

static void
free_flows(TbIo *io)
{
	TbIoFlow   *at;

	while ((at = io->flows) != NULL)
	{
		io->flows = at->next;
		tb_flow_free(at->flow);
		tb_free(at);
	}
}

/* Take what pool threads have given back. */
static void
returned_ready(TbWatch *watch, uint32_t events)
{
	TbIo	   *io = (TbIo *) ((char *) watch - offsetof(TbIo, watch));
	uint64_t	count;
	TbOp	   *op;
	TbOp	   *in_order = NULL;

	if (read(watch->fd, &count, sizeof(count)) < 0 && errno != EAGAIN && errno != EINTR)
		return;
	pthread_mutex_lock(&io->mu);
	op = io->returned;
	io->returned = NULL;
	pthread_mutex_unlock(&io->mu);
	while (op != NULL)
	{
		TbOp	   *next = op->done_next;

		op->done_next = in_order;
		in_order = op;
		op = next;
	}
	while ((op = in_order) != NULL)
	{
		in_order = op->done_next;
		op->busy = false;
		tb_op_finish(op);
	}
}

/* Without its cache an engine goes on; why, tb_io_cache_trouble tells. */
static void
open_cache(TbIo *io)
{
	const TbIoOptions *o = &io->options;

	if (o->cache_directory == NULL || o->cache_directory[0] == '\0')
		return;
	if (tb_aio_new(io->loop, io->pool, o->no_uring ? TB_AIO_POOL : TB_AIO_URING, &io->aio, &io->cache_error) != TB_OK)
		return;
	if (tb_cache_open(io->loop, io->aio, o->cache_directory, o->cache_bytes, &io->cache, &io->cache_error) == TB_OK)
	{
		tb_error_clear(&io->cache_error);
		tb_cache_use_buffers(io->cache, io);
	}
}

/* owns: the caller, tb_io_free. errors: NOMEM, IO (no descriptors left). */
TbStatus
tb_io_new(TbLoop *loop, TbPool *pool, const TbIoOptions *options, TbIo **io, TbError *err)
{
	TbIo	   *new = tb_calloc(1, sizeof(*new));
	TbStatus	status;

	*io = NULL;
	if (new == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	new->loop = loop;
	new->pool = pool;
	if (options != NULL)
		new->options = *options;
	fill_defaults(&new->options);
	new->limits = (TbNodeLimits) {.connections = new->options.max_connections,
	.requests = new->options.max_requests_in_flight, .memory_bytes = new->options.io_memory_bytes};
	new->node = new->options.node;
	new->watch.ready = returned_ready;
	new->watch.events = EPOLLIN;
	new->watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (new->watch.fd < 0)
	{
		status = tb_fail_errno(err, errno, "create an event descriptor", NULL);
		tb_free(new);
		return status;
	}
	status = tb_random(&new->random, sizeof(new->random), err);
	if (status == TB_OK && new->node == NULL)
	{
		status = tb_node_open(NULL, &new->own_node, err);
		new->node = new->own_node;
	}
	if (status == TB_OK)
		status = tb_loop_watch(loop, &new->watch, err);
	if (status != TB_OK)
	{
		tb_node_close(new->own_node);
		close(new->watch.fd);
		tb_free(new);
		return status;
	}
	pthread_mutex_init(&new->mu, NULL);
	pthread_cond_init(&new->idle, NULL);
	open_cache(new);
	*io = new;
	return TB_OK;
}

/*
 * Waits for reads of local files that are with pool threads. All stores are closed before; not to
 * be called from a read's done. NULL allowed.
 */
void
tb_io_free(TbIo *io)
{
	if (io == NULL)
		return;
	pthread_mutex_lock(&io->mu);
	while (io->busy > 0)
		pthread_cond_wait(&io->idle, &io->mu);
	pthread_mutex_unlock(&io->mu);
	returned_ready(&io->watch, EPOLLIN);
	tb_loop_unwatch(io->loop, &io->watch);
	close(io->watch.fd);
	tb_aio_free(io->aio);		/* waits for the kernel, then nothing of the cache is in use */
	tb_cache_close(io->cache);
	tb_http_free(io->http);
	free_flows(io);
	tb_node_close(io->own_node);
	tb_loop_disarm(io->loop, &io->tick);
	tb_loop_disarm(io->loop, &io->room);
	if (io->kicked)
		tb_loop_undefer(io->loop, &io->kick);
	for (size_t i = 0; i < TB_SPARE_BUFS; i++)
		tb_buf_unref(io->spare[i]);
	pthread_cond_destroy(&io->idle);
	pthread_mutex_destroy(&io->mu);
	tb_free(io);
}

void
tb_io_submit(TbIo *io, TbOp *op)
{
	op->busy = true;
	pthread_mutex_lock(&io->mu);
	io->busy++;
	pthread_mutex_unlock(&io->mu);
	tb_pool_submit(io->pool, &op->task);
}

/* All under the lock: once busy is 0 the io may be freed. */
void
tb_io_return(TbIo *io, TbOp *op)
{
	uint64_t	one = 1;

	pthread_mutex_lock(&io->mu);
	op->done_next = io->returned;
	io->returned = op;
	if (op->done_next == NULL)
	{
		while (write(io->watch.fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
	if (--io->busy == 0)
		pthread_cond_signal(&io->idle);
	pthread_mutex_unlock(&io->mu);
}

/* A kept buffer that only the stock holds, of at least cap and not far more. io->mu is held. */
static TbBuf *
find_spare_locked(TbIo *io, size_t cap)
{
	for (size_t i = 0; i < TB_SPARE_BUFS; i++)
	{
		TbBuf	   *buf = io->spare[i];

		/* acquire: what the last other holder did with the bytes lies before our writing */
		if (buf != NULL && buf->cap >= cap && buf->cap / 2 <= cap &&
			__atomic_load_n(&buf->refs, __ATOMIC_ACQUIRE) == 1)
			return buf;
	}
	return NULL;
}

static void
drop_spare_locked(TbIo *io, size_t at)
{
	if (io->spare[at] == NULL)
		return;
	io->spare_bytes -= io->spare[at]->cap;
	tb_buf_unref(io->spare[at]);
	io->spare[at] = NULL;
}

/* Keep a reference to buf, in place of the oldest. io->mu is held. */
static void
keep_spare_locked(TbIo *io, TbBuf *buf)
{
	drop_spare_locked(io, io->spare_at);
	for (size_t i = 1; i < TB_SPARE_BUFS && io->spare_bytes + buf->cap > TB_SPARE_BYTES; i++)
		drop_spare_locked(io, (io->spare_at + i) % TB_SPARE_BUFS);
	io->spare[io->spare_at] = tb_buf_ref(buf);
	io->spare_bytes += buf->cap;
	io->spare_at = (io->spare_at + 1) % TB_SPARE_BUFS;
}

/* Eight sizes to an octave: compressed chunks, each of another length, share buffers. */
static size_t
round_up(size_t cap)
{
	size_t		step = (size_t) 1 << (60 - __builtin_clzll((unsigned long long) cap));

	return (cap + step - 1) / step * step;
}

TbBuf *
tb_io_buf(TbIo *io, size_t cap)
{
	TbBuf	   *buf;

	if (cap < SPARE_MIN_BYTES || cap > SPARE_MAX_BYTES)
		return tb_buf_new(cap);
	cap = round_up(cap);
	pthread_mutex_lock(&io->mu);
	buf = find_spare_locked(io, cap);
	if (buf != NULL)
	{
		buf->len = 0;
		(void) tb_buf_ref(buf);
	}
	pthread_mutex_unlock(&io->mu);
	if (buf != NULL)
		return buf;
	buf = tb_buf_new(cap);
	if (buf == NULL)
		return NULL;
	pthread_mutex_lock(&io->mu);
	keep_spare_locked(io, buf);
	pthread_mutex_unlock(&io->mu);
	return buf;
}

double
tb_io_random(TbIo *io)
{
	return (double) (tb_mix64(io->random++) >> 11) * 0x1p-53;
}

void
tb_io_set_limits(TbIo *io, const TbNodeLimits *limits, int cache_max_age_ms)
{
	io->limits = *limits;
	io->options.max_connections = limits->connections;
	io->options.max_requests_in_flight = limits->requests;
	io->options.io_memory_bytes = (size_t) limits->memory_bytes;
	io->options.cache_max_age_ms = cache_max_age_ms;
}

bool
tb_io_is_writing(const TbIo *io)
{
	return io->cache != NULL && tb_cache_is_writing(io->cache);
}

bool
tb_io_cache_trouble(TbIo *io, TbError *err)
{
	if (io->cache_error.code == TB_OK)
		return io->cache != NULL && tb_cache_trouble(io->cache, err);
	*err = io->cache_error;
	io->cache_error.code = TB_OK;
	return true;
}
