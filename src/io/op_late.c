/*
 * Requests that are late get a twin: the same request once more, on another connection. The first of the two to be
 * answered counts, the other is stopped, the outcome is delivered once. What is late, and how many twins there may
 * be, is flow.h's to say.
 *
 * A host that does not pump for a while must not find all it asked for late: of any pause only a little is counted.
 */
#include "io/store.h"

#include <string.h>

#define TICK_NS INT64_C(2000000)

static bool
may_have_twin(const TbOp *op)
{
	return op->verb == TB_VERB_READ && op->first_ns == 0 && op->twin == NULL && !op->hedged;
}

/* Send op's request again. */
static void
make_twin(TbOp *op)
{
	TbOp	   *twin = tb_op_new(op->store, TB_VERB_READ, op->key, op->if_version, NULL);

	op->hedged = true;
	if (twin == NULL)
		return;
	twin->kind = op->kind;
	twin->offset = op->offset;
	twin->length = op->length;
	twin->unless_version = op->unless_version;
	twin->is_twin = true;
	twin->twin = op;
	if (!tb_op_begin(twin))
	{
		tb_op_cancel(twin);
		return;
	}
	op->twin = twin;
	tb_store_count(op->store, hedges, 1);
}

/* Count what each request has waited, and tell the flows from which nothing comes. */
static void
count_waiting(TbIo *io, int64_t now_ns, int64_t dt_ns)
{
	for (TbOp *op = io->started; op != NULL; op = op->started_next)
	{
		int64_t		age_ns = now_ns - op->start_ns;

		if (op->first_ns == 0)
			op->waited_ns += age_ns < dt_ns ? age_ns : dt_ns;
		else
			tb_flow_heard(op->store->lane->flow, now_ns);
	}
	for (TbOp *op = io->started; op != NULL; op = op->started_next)
	{
		if (op->first_ns == 0 && op->store->lane->queue.head != NULL)
			tb_flow_silent(op->store->lane->flow, now_ns, op->waited_ns);
	}
}

/* The first that is late enough for a twin, and may have one. */
static TbOp *
find_late(TbIo *io, int64_t now_ns)
{
	for (TbOp *op = io->started; op != NULL; op = op->started_next)
	{
		TbFlow	   *flow = op->store->lane->flow;

		if (may_have_twin(op) && op->waited_ns > tb_flow_late_ns(flow, op->length) &&
			tb_flow_pause_ns(flow, now_ns) == 0 && tb_flow_may_hedge(flow))
			return op;
	}
	return NULL;
}

static void
ticked(TbTimer *timer)
{
	TbIo	   *io = (TbIo *) ((char *) timer - offsetof(TbIo, tick));
	int64_t		now_ns = tb_now_ns();
	int64_t		dt_ns = now_ns - io->ticked_ns;
	TbOp	   *late;

	io->ticked_ns = now_ns;
	count_waiting(io, now_ns, dt_ns < 2 * TICK_NS ? dt_ns : 2 * TICK_NS);
	while ((late = find_late(io, now_ns)) != NULL)
		make_twin(late);
	tb_late_watch(io);
	tb_io_kick(io);
}

void
tb_late_watch(TbIo *io)
{
	if (io->started == NULL || io->tick.heap_slot != 0)
		return;
	io->tick.fire = ticked;
	if (tb_loop_arm(io->loop, &io->tick, TICK_NS) == TB_OK)
		io->ticked_ns = tb_now_ns();
}

/* Take over what the twin was answered. */
static void
move_outcome(TbOp *op, TbOp *twin)
{
	op->status = twin->status;
	op->missing = twin->missing;
	op->not_modified = twin->not_modified;
	tb_buf_unref(op->data);
	op->data = twin->data;
	twin->data = NULL;
	op->object_size = twin->object_size;
	memcpy(op->version, twin->version, sizeof(op->version));
	op->error = twin->error;
}

void
tb_twin_cancel(TbOp *op)
{
	TbOp	   *twin = op->twin;

	op->twin = NULL;
	if (twin != NULL)
		tb_op_cancel(twin);
}

bool
tb_twin_ended(TbOp *op, TbOp **winner)
{
	TbOp	   *first = op->is_twin ? op->twin : op;

	*winner = first;
	if (!op->is_twin)
	{
		if (op->twin != NULL && op->status != TB_OK && op->error.retryable)
		{
			op->state = TB_OP_TWIN_LEFT;
			return false;
		}
		tb_twin_cancel(op);
		return true;
	}
	first->twin = NULL;
	if (op->status == TB_OK)
	{
		if (first->state == TB_OP_STARTED)
		{
			first->store->ops->stop(first);
			tb_op_release(first);
		}
		move_outcome(first, op);
		tb_op_absorbed(op);
		return true;
	}
	tb_op_absorbed(op);
	return first->state == TB_OP_TWIN_LEFT;
}
