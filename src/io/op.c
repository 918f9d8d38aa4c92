/*
 * The life of a request to a store: queued until there is room, attempted, backed off, ended. Every
 * wait is a queue place or a loop timer, so that forgetting a request is immediate in every state.
 *
 * Who waits: io->local and io->remote hold what may not start yet. A request that backs off gives
 * its place in flight to others and comes back at the head of its queue.
 */
#include "io/store.h"

#include <stdio.h>
#include <string.h>

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
	op->not_modified = false;
	op->first_ns = 0;
	op->object_size = UINT64_MAX;
	op->version[0] = '\0';
	op->error.code = TB_OK;
	op->store->counters.requests++;
	if (op->attempt > 1)
		op->store->counters.retries++;
	op->store->ops->start(op);
}

/* Start what may start. */
static void
start_queued(TbTask *task)
{
	TbIo	   *io = (TbIo *) ((char *) task - offsetof(TbIo, kick));
	TbOpQueue  *queues[2] = {&io->local, &io->remote};

	io->kicked = false;
	for (int i = 0; i < 2; i++)
	{
		while (queues[i]->head != NULL && queues[i]->active < queues[i]->limit &&
			   io->local.active + io->remote.active < io->options.max_requests_in_flight)
			start(queues[i], queues[i]->head);
	}
}

void
tb_io_kick(TbIo *io)
{
	if (io->kicked || (io->local.head == NULL && io->remote.head == NULL))
		return;
	io->kicked = true;
	io->kick.run = start_queued;
	tb_loop_defer(io->loop, &io->kick);
}

static void
unlink_op(TbOp *op)
{
	TbStore    *store = op->store;

	if (op->prev != NULL)
		op->prev->next = op->next;
	else
		store->first = op->next;
	if (op->next != NULL)
		op->next->prev = op->prev;
	store->n_ops--;
}

static void
free_op(TbOp *op)
{
	tb_buf_unref(op->data);
	tb_buf_unref(op->body);
	tb_free(op);
}

/* An op that nobody waits for any more goes, and with the last one a store that is closed. */
static void
drop_op(TbOp *op)
{
	TbStore    *store = op->store;

	unlink_op(op);
	free_op(op);
	if (store->closed && store->n_ops == 0)
		store->ops->close(store);
}

/* Give the outcome to its owner, who may do what he likes, also close the store. */
static void
end_op(TbOp *op)
{
	unlink_op(op);
	op->state = TB_OP_ENDED;
	tb_io_kick(op->store->io);
	op->ended(op);
	free_op(op);
}

static void
back_off_over(TbTimer *timer)
{
	TbOp	   *op = (TbOp *) ((char *) timer - offsetof(TbOp, timer));
	TbIo	   *io = op->store->io;

	enqueue(op, true);
	tb_io_kick(io);
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
	tb_io_kick(io);
	if (op->forgotten)
	{
		drop_op(op);
		return;
	}
	if (op->status == TB_OK)
		op->store->proven = true;
	else if (try_again(op))
		return;
	else if (op->error.retryable || op->attempt > 1)
		tb_error_detail(&op->error, "attempt %d of %d", op->attempt,
						tb_retry_attempts(&op->error, io->options.retries, op->store->proven));
	end_op(op);
}

static char *
put_text(char **at, const char *text)
{
	size_t		n = strlen(text) + 1;
	char	   *to = *at;

	memcpy(to, text, n);
	*at += n;
	return to;
}

TbOp *
tb_op_new(TbStore *store, TbVerb verb, const char *key, const char *if_version, const char *query)
{
	bool		any = if_version == NULL || if_version[0] == '\0';
	size_t		bytes = strlen(key) + 1 + (any ? 0 : strlen(if_version) + 1) +
		(query == NULL ? 0 : strlen(query) + 1);
	TbOp	   *op = tb_calloc(1, sizeof(*op) + bytes);
	char	   *text;

	if (op == NULL)
		return NULL;
	text = (char *) (op + 1);
	op->store = store;
	op->verb = verb;
	op->kind = TB_RANGE_WHOLE;
	op->key = put_text(&text, key);
	if (!any)
		op->if_version = put_text(&text, if_version);
	if (query != NULL)
		op->query = put_text(&text, query);
	op->state = TB_OP_NEW;
	op->object_size = UINT64_MAX;
	op->next = store->first;
	if (op->next != NULL)
		op->next->prev = op;
	store->first = op;
	store->n_ops++;
	return op;
}

void
tb_op_submit(TbOp *op)
{
	enqueue(op, false);
	tb_io_kick(op->store->io);
}

void
tb_op_cancel(TbOp *op)
{
	TbIo	   *io = op->store->io;

	switch (op->state)
	{
		case TB_OP_NEW:
		case TB_OP_TWIN_LEFT:
			break;
		case TB_OP_ENDED:
			return;				/* freed when its owner is done with it */
		case TB_OP_QUEUED:
			dequeue(queue_of(op), op);
			break;
		case TB_OP_BACKING_OFF:
			tb_loop_disarm(io->loop, &op->timer);
			break;
		case TB_OP_STARTED:
			__atomic_store_n(&op->canceled, 1, __ATOMIC_RELAXED);
			if (op->busy)
			{
				op->forgotten = true;	/* the thread sees none of the caller's memory; tb_op_finish frees */
				return;
			}
			op->store->ops->stop(op);
			queue_of(op)->active--;
			break;
	}
	drop_op(op);
	tb_io_kick(io);
}

void
tb_op_first_byte(TbOp *op)
{
	if (op->first_ns == 0)
		op->first_ns = tb_now_ns();
}

TbBuf *
tb_op_buf(TbOp *op, size_t cap)
{
	if (op->into != NULL && cap > 0 && cap <= op->into_bytes)
		return tb_buf_wrap(op->into, cap);
	return tb_io_buf(op->store->io, cap);
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
