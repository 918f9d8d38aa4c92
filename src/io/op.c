/*
 * The life of a request to a store: queued until there is room, attempted, backed off, ended. Every
 * wait is a queue place or a loop timer, so that forgetting a request is immediate in every state.
 * Which of those queued is started when: op_queue.c.
 */
#include "io/store.h"

#include <stdio.h>
#include <string.h>

#define WHOLE_GUESS_BYTES ((uint64_t) 256 << 10)	/* of the first object read whole */
#define AUTH_AGAIN_MAX 2

/* What an attempt will hold in memory, as far as it can be told. */
static uint64_t
memory_of(const TbOp *op)
{
	uint64_t	guess = op->store->whole_bytes != 0 ? op->store->whole_bytes : WHOLE_GUESS_BYTES;

	if (op->body != NULL)
		return op->body->len;
	if (op->verb == TB_VERB_READ && op->kind != TB_RANGE_WHOLE)
		return op->length;
	return guess < op->length ? guess : op->length;
}

void
tb_op_forget_outcome(TbOp *op)
{
	tb_buf_unref(op->data);
	op->data = NULL;
	op->status = TB_OK;
	op->missing = false;
	op->not_modified = false;
	op->object_size = UINT64_MAX;
	op->version[0] = '\0';
	op->error.code = TB_OK;
}

/* Into the list of what is in flight, with its time. */
static void
note_start(TbOp *op)
{
	TbIo	   *io = op->store->io;

	op->first_ns = op->waited_ns = 0;
	op->hedged = false;
	op->start_ns = tb_now_ns();
	op->started_prev = NULL;
	op->started_next = io->started;
	if (io->started != NULL)
		io->started->started_prev = op;
	io->started = op;
	io->n_started++;
	tb_flow_started(op->store->lane->flow, op->start_ns);
	tb_late_watch(io);
}

bool
tb_op_begin(TbOp *op)
{
	TbIo	   *io = op->store->io;

	if (op->store->ops->connects)
	{
		op->taken = memory_of(op);
		if (!tb_node_take(io->node, &io->limits, op->taken))
			return false;
		note_start(op);
	}
	tb_op_queue(op)->active++;
	op->state = TB_OP_STARTED;
	op->attempt++;
	tb_op_forget_outcome(op);
	tb_store_count(op->store, requests, 1);
	op->store->ops->start(op);
	return true;
}

void
tb_op_release(TbOp *op)
{
	TbIo	   *io = op->store->io;

	tb_op_queue(op)->active--;
	if (!op->store->ops->connects)
		return;
	tb_node_give(io->node, op->taken);
	if (op->started_prev != NULL)
		op->started_prev->started_next = op->started_next;
	else
		io->started = op->started_next;
	if (op->started_next != NULL)
		op->started_next->started_prev = op->started_prev;
	io->n_started--;
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

void
tb_op_absorbed(TbOp *op)
{
	unlink_op(op);
	free_op(op);
}

/* An op that nobody waits for any more goes, and with the last one a store that is closed. */
static void
drop_op(TbOp *op)
{
	TbStore    *store = op->store;

	tb_op_absorbed(op);
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

	tb_op_enqueue(op, true);
	tb_io_kick(io);
}

/* Take a token for another attempt. false: too many requests of late have failed. */
static bool
within_budget(TbOp *op)
{
	TbStore    *store = op->store;

	if (!store->ops->connects ||
		(tb_retry_in_budget(store, tb_now_ns()) && tb_flow_may_retry(store->lane->flow)))
		return true;
	tb_error_detail(&op->error, "not tried again: too many requests to this server fail");
	return false;
}

/* Arrange another attempt; false: this was the last. */
static bool
try_again(TbOp *op)
{
	TbIo	   *io = op->store->io;
	bool		wrong = tb_retry_is_wrong(op->error.code);
	int64_t		delay_ms;

	op->wrong_answers += wrong;
	/* a wrong answer is asked for once more, whatever went wrong on the way to it */
	delay_ms = tb_retry_delay_ms(&op->error, wrong ? op->wrong_answers : op->attempt, io->options.retries,
								 op->store->proven, tb_io_random(io));
	if (delay_ms < 0 || op->attempt > io->options.retries || !within_budget(op))
		return false;
	op->timer.fire = back_off_over;
	if (tb_loop_arm(io->loop, &op->timer, delay_ms * TB_NS_PER_MS) != TB_OK)
		return false;
	tb_store_count(op->store, retries, 1);	/* now, so that others who fail meanwhile see it */
	op->state = TB_OP_BACKING_OFF;
	op->fresh = op->error.code == TB_E_PROTOCOL || op->error.code == TB_E_CORRUPT;
	tb_op_forget_outcome(op);
	return true;
}

/* Credentials that were refused have been renewed: the same attempt once more, at once. */
static bool
again_with_renewed(TbOp *op)
{
	if (op->status != TB_E_AUTH || !op->error.retryable || op->auth_again == AUTH_AGAIN_MAX)
		return false;
	op->auth_again++;
	op->attempt--;
	tb_op_forget_outcome(op);
	tb_op_enqueue(op, true);
	tb_io_kick(op->store->io);
	return true;
}

void
tb_op_settle(TbOp *op)
{
	TbIo	   *io = op->store->io;

	if (op->status == TB_OK)
		op->store->proven = true;
	else if (again_with_renewed(op) || try_again(op))
		return;
	else if (op->error.retryable || op->attempt > 1)
	{
		int			most = tb_retry_attempts(&op->error, io->options.retries, op->store->proven);

		tb_error_detail(&op->error, "attempt %d of %d", op->attempt, op->attempt > most ? op->attempt : most);
	}
	end_op(op);
}

/* Tell the flow how an attempt went. */
static void
tell_flow(TbOp *op)
{
	TbFlow	   *flow = op->store->lane->flow;
	const TbOpQueue *queue = tb_op_queue(op);
	int64_t		now_ns = tb_now_ns();
	uint64_t	bytes = op->data != NULL ? op->data->len : 0;

	if (op->status == TB_E_THROTTLED)
	{
		tb_store_count(op->store, throttled, 1);
		tb_flow_throttled(flow, now_ns);
	}
	else if (op->status == TB_E_LOST && op->error.http_status >= 500)
		tb_flow_failed(flow, now_ns);
	else if (op->status == TB_OK && op->verb != TB_VERB_READ)
		tb_flow_done(flow);
	else if (op->verb == TB_VERB_READ && op->first_ns != 0 && (op->status == TB_OK || !op->error.retryable))
		tb_flow_answered(flow, now_ns, op->first_ns - op->start_ns, now_ns - op->start_ns, bytes, queue->active,
						 queue->head != NULL);
}

void
tb_op_finish(TbOp *op)
{
	TbIo	   *io = op->store->io;

	tb_op_release(op);
	tb_io_kick(io);
	if (op->forgotten)
	{
		drop_op(op);
		return;
	}
	if (op->store->ops->connects)
	{
		tell_flow(op);
		if (op->status == TB_OK && op->data != NULL && op->verb == TB_VERB_READ && op->kind == TB_RANGE_WHOLE)
			op->store->whole_bytes = op->data->len;
	}
	if ((op->twin == NULL && !op->is_twin) || tb_twin_ended(op, &op))
		tb_op_settle(op);
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
	tb_op_enqueue(op, false);
	tb_io_kick(op->store->io);
}

void
tb_op_cancel(TbOp *op)
{
	TbIo	   *io = op->store->io;

	if (!op->is_twin && op->state != TB_OP_ENDED)
		tb_twin_cancel(op);
	switch (op->state)
	{
		case TB_OP_NEW:
		case TB_OP_TWIN_LEFT:
			break;
		case TB_OP_ENDED:
			return;				/* freed when its owner is done with it */
		case TB_OP_QUEUED:
			tb_op_dequeue(op);
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
			tb_op_release(op);
			break;
	}
	drop_op(op);
	tb_io_kick(io);
}

void
tb_op_first_byte(TbOp *op)
{
	if (op->first_ns != 0)
		return;
	op->first_ns = tb_now_ns();
	tb_flow_heard(op->store->lane->flow, op->first_ns);
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
