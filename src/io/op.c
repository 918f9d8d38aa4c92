/*
 * The life of a request: taken in, queued until there is room, attempted, backed off, handed over.
 * Every wait is a queue place or a loop timer, so that forgetting a request is immediate in every
 * state.
 *
 * Who waits: io->local and io->remote hold what may not start yet. A request that backs off gives
 * its place in flight to others and comes back at the head of its queue.
 */
#include "io/store.h"

#include <stdio.h>
#include <string.h>

#include "io/url.h"

static TbOpQueue *
queue_of(TbOp *op)
{
	return op->store->ops->connects ? &op->store->io->remote : &op->store->io->local;
}

static void
enqueue(TbOp *op, bool at_head)
{
	TbOpQueue  *queue = queue_of(op);

	op->state = TB_OP_QUEUED;
	op->queue_next = at_head ? queue->head : NULL;
	if (queue->head == NULL)
		queue->head = queue->tail = op;
	else if (at_head)
		queue->head = op;
	else
	{
		queue->tail->queue_next = op;
		queue->tail = op;
	}
}

static void
dequeue(TbOpQueue *queue, TbOp *op)
{
	TbOp	   *before = NULL;

	for (TbOp *at = queue->head; at != op; at = at->queue_next)
		before = at;
	if (before == NULL)
		queue->head = op->queue_next;
	else
		before->queue_next = op->queue_next;
	if (queue->tail == op)
		queue->tail = before;
	op->queue_next = NULL;
}

static void
start(TbOpQueue *queue, TbOp *op)
{
	dequeue(queue, op);
	queue->active++;
	op->state = TB_OP_STARTED;
	op->attempt++;
	op->status = TB_OK;
	op->missing = false;
	op->object_size = UINT64_MAX;
	op->version[0] = '\0';
	op->error.code = TB_OK;
	op->store->counters.requests++;
	if (op->attempt > 1)
		op->store->counters.retries++;
	op->store->ops->start(op);
}

void
tb_io_start_queued(TbIo *io)
{
	TbOpQueue  *queues[2] = {&io->local, &io->remote};

	for (int i = 0; i < 2; i++)
	{
		while (queues[i]->head != NULL && queues[i]->active < queues[i]->limit &&
			   io->local.active + io->remote.active < io->options.max_requests_in_flight)
			start(queues[i], queues[i]->head);
	}
}

static void
free_op(TbOp *op)
{
	TbStore    *store = op->store;

	if (op->prev != NULL)
		op->prev->next = op->next;
	else
		store->first = op->next;
	if (op->next != NULL)
		op->next->prev = op->prev;
	store->n_ops--;
	tb_buf_unref(op->data);
	tb_free(op);
	if (store->closed && store->n_ops == 0)
		store->ops->close(store);
}

/* Give the outcome to the caller. Frees op before, so that done may do what it likes. */
static void
deliver(TbOp *op)
{
	TbRead	   *read = op->read;

	read->impl = NULL;
	read->status = op->status;
	read->missing = op->status == TB_OK && op->missing;
	read->object_size = op->object_size;
	read->data = NULL;
	memcpy(read->version, op->version, sizeof(read->version));
	if (op->status == TB_OK)
	{
		tb_error_clear(&read->error);
		op->store->counters.missing += op->missing;
		if (!op->missing)
		{
			if (!op->store->ops->connects)	/* those count as bytes come in */
				op->store->counters.bytes += op->data->len;
			read->data = op->data;
			op->data = NULL;
		}
	}
	else
		read->error = op->error;
	free_op(op);
	read->done(read);
}

static void
back_off_over(TbTimer *timer)
{
	TbOp	   *op = (TbOp *) ((char *) timer - offsetof(TbOp, timer));
	TbIo	   *io = op->store->io;

	enqueue(op, true);
	tb_io_start_queued(io);
}

/* Arrange another attempt; false: this was the last. */
static bool
try_again(TbOp *op)
{
	TbIo	   *io = op->store->io;
	int64_t		delay_ms = tb_retry_delay_ms(&op->error, op->attempt, io->options.retries,
											 op->store->proven, tb_io_random(io));

	if (delay_ms < 0)
		return false;
	op->timer.fire = back_off_over;
	if (tb_loop_arm(io->loop, &op->timer, delay_ms * 1000000) != TB_OK)
		return false;
	op->state = TB_OP_BACKING_OFF;
	op->fresh = op->error.code == TB_E_PROTOCOL || op->error.code == TB_E_CORRUPT;
	tb_buf_unref(op->data);
	op->data = NULL;
	return true;
}

void
tb_op_finish(TbOp *op)
{
	TbIo	   *io = op->store->io;

	queue_of(op)->active--;
	if (op->read == NULL)
		free_op(op);
	else if (op->status == TB_OK)
	{
		op->store->proven = true;
		tb_io_start_queued(io);
		deliver(op);
		return;
	}
	else if (!try_again(op))
	{
		if (op->error.retryable || op->attempt > 1)
			tb_error_detail(&op->error, "attempt %d of %d", op->attempt,
							tb_retry_attempts(&op->error, io->options.retries, op->store->proven));
		tb_io_start_queued(io);
		deliver(op);
		return;
	}
	tb_io_start_queued(io);
}

/* A request that fails before it starts says so from the pump. */
static void
refused_runs(TbTask *task)
{
	TbOp	   *op = (TbOp *) ((char *) task - offsetof(TbOp, task));

	deliver(op);
}

/* As refused_runs, when there is no memory for a TbOp. */
static void
no_memory_runs(TbTask *task)
{
	TbRead	   *read = (TbRead *) ((char *) task - offsetof(TbRead, task));

	read->done(read);
}

static TbStatus
check_request(const TbRead *read, TbError *err)
{
	uint64_t	end;
	TbStatus	status = tb_key_check(read->key, err);

	if (status != TB_OK)
		return status;
	if (read->kind == TB_RANGE_WHOLE)
		return TB_OK;
	if (read->length == 0 || !tb_add_u64(read->offset, read->length, &end) || end > INT64_MAX)
	{
		tb_fail(err, TB_E_INVALID, "invalid byte range");
		tb_error_detail(err, "%s: %llu bytes at %llu", read->key, (unsigned long long) read->length,
						(unsigned long long) read->offset);
		return TB_E_INVALID;
	}
	return TB_OK;
}

/* A TbOp for read, linked into its store; the strings lie behind it. NULL when memory is gone. */
static TbOp *
new_op(TbStore *store, TbRead *read)
{
	bool		any = read->if_version == NULL || read->if_version[0] == '\0';
	size_t		key_bytes = strlen(read->key) + 1;
	size_t		version_bytes = any ? 0 : strlen(read->if_version) + 1;
	TbOp	   *op = tb_calloc(1, sizeof(*op) + key_bytes + version_bytes);
	char	   *text;

	if (op == NULL)
		return NULL;
	text = (char *) (op + 1);
	memcpy(text, read->key, key_bytes);
	op->key = text;
	if (!any)
	{
		memcpy(text + key_bytes, read->if_version, version_bytes);
		op->if_version = text + key_bytes;
	}
	op->store = store;
	op->kind = read->kind;
	op->offset = read->kind == TB_RANGE_AT ? read->offset : 0;
	op->length = read->length;
	op->read = read;
	op->object_size = UINT64_MAX;
	op->next = store->first;
	if (op->next != NULL)
		op->next->prev = op;
	store->first = op;
	store->n_ops++;
	return op;
}

void
tb_store_read(TbStore *store, TbRead *read)
{
	TbIo	   *io = store->io;
	TbOp	   *op = new_op(store, read);

	read->impl = op;
	read->data = NULL;
	read->missing = false;
	if (op == NULL)
	{
		read->status = tb_fail(&read->error, TB_E_NOMEM, "out of memory");
		read->task.run = no_memory_runs;
		tb_loop_defer(io->loop, &read->task);
		return;
	}
	op->status = check_request(read, &op->error);
	if (op->status != TB_OK)
	{
		op->state = TB_OP_REFUSED;
		op->task.run = refused_runs;
		tb_loop_defer(io->loop, &op->task);
		return;
	}
	enqueue(op, false);
	tb_io_start_queued(io);
}

void
tb_store_cancel(TbStore *store, TbRead *read)
{
	TbIo	   *io = store->io;
	TbOp	   *op = read->impl;

	if (op == NULL)
	{
		tb_loop_undefer(io->loop, &read->task);
		return;
	}
	read->impl = NULL;
	op->read = NULL;
	switch (op->state)
	{
		case TB_OP_QUEUED:
			dequeue(queue_of(op), op);
			break;
		case TB_OP_BACKING_OFF:
			tb_loop_disarm(io->loop, &op->timer);
			break;
		case TB_OP_REFUSED:
			tb_loop_undefer(io->loop, &op->task);
			break;
		case TB_OP_STARTED:
			__atomic_store_n(&op->canceled, 1, __ATOMIC_RELAXED);
			if (op->busy)
				return;			/* the thread sees none of read's memory; tb_op_finish frees */
			op->store->ops->stop(op);
			queue_of(op)->active--;
			break;
	}
	free_op(op);
	tb_io_start_queued(io);
}

TbStatus
tb_op_nomem(TbOp *op)
{
	return op->status = tb_fail(&op->error, TB_E_NOMEM, "out of memory");
}

TbStatus
tb_op_fail(TbOp *op, TbStatus code, bool retryable, const char *message)
{
	op->status = tb_fail(&op->error, code, "%s", message);
	op->error.retryable = retryable;
	tb_error_detail(&op->error, "%.200s/%.300s", op->store->url, op->key);
	if (op->kind == TB_RANGE_AT)
		tb_error_detail(&op->error, "bytes %llu to %llu", (unsigned long long) op->offset,
						(unsigned long long) (op->offset + op->length - 1));
	else if (op->kind == TB_RANGE_LAST)
		tb_error_detail(&op->error, "the last %llu bytes", (unsigned long long) op->length);
	return code;
}

TbStatus
tb_op_locate(TbOp *op, uint64_t size, uint64_t *offset, uint64_t *length)
{
	*offset = op->offset;
	*length = op->length;
	op->object_size = size;
	switch (op->kind)
	{
		case TB_RANGE_WHOLE:
			*length = size;
			if (size > op->length)
				tb_op_fail(op, TB_E_LIMIT, false, "object is larger than allowed");
			break;
		case TB_RANGE_AT:
			if (op->offset >= size)
				tb_op_fail(op, TB_E_CHANGED, false, "object is shorter than when it was looked at");
			else if (op->length > size - op->offset)
				tb_op_fail(op, TB_E_CORRUPT, false, "object ends inside the range");
			break;
		case TB_RANGE_LAST:
			if (op->length > size)
				tb_op_fail(op, TB_E_CORRUPT, false, "object is too short");
			else
				*offset = size - op->length;
			break;
	}
	if (op->status != TB_OK)
		tb_error_detail(&op->error, "object has %llu bytes", (unsigned long long) size);
	return op->status;
}

TbStatus
tb_op_check_version(TbOp *op)
{
	if (op->if_version == NULL || strcmp(op->if_version, op->version) == 0)
		return TB_OK;
	tb_op_fail(op, TB_E_CHANGED, false, "object has changed");
	tb_error_detail(&op->error, "version %s is now %s", op->if_version,
					op->version[0] != '\0' ? op->version : "not told");
	return op->status;
}
