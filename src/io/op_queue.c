/*
 * Which request is started when. Each endpoint has a queue of what may not start yet, because its window is full
 * (flow.h) or the node has no room (node.h). The endpoints take turns, also where there is room for one request at
 * a time. A request that backs off gives its place in flight to others and comes back at the head of its queue.
 */
#include "io/store.h"

#define LOOK_BEHIND 16			/* what waits for company holds up so many at most */

TbOpQueue *
tb_op_queue(TbOp *op)
{
	return op->store->ops->connects ? &op->store->lane->queue : &op->store->io->local;
}

void
tb_op_enqueue(TbOp *op, bool at_head)
{
	TbOpQueue  *queue = tb_op_queue(op);

	op->state = TB_OP_QUEUED;
	if (op->queued_ns == 0)
		op->queued_ns = tb_now_ns();
	op->queue_prev = at_head ? NULL : queue->tail;
	op->queue_next = at_head ? queue->head : NULL;
	if (op->queue_prev != NULL)
		op->queue_prev->queue_next = op;
	else
		queue->head = op;
	if (op->queue_next != NULL)
		op->queue_next->queue_prev = op;
	else
		queue->tail = op;
	tb_near_add(op);
}

void
tb_op_dequeue(TbOp *op)
{
	TbOpQueue  *queue = tb_op_queue(op);

	tb_near_remove(op);
	if (op->queue_prev != NULL)
		op->queue_prev->queue_next = op->queue_next;
	else
		queue->head = op->queue_next;
	if (op->queue_next != NULL)
		op->queue_next->queue_prev = op->queue_prev;
	else
		queue->tail = op->queue_prev;
	op->queue_prev = op->queue_next = NULL;
}

/* Look again in a while. */
static void
room_later(TbIo *io, int64_t delay_ns)
{
	if (io->room.heap_slot != 0 && io->room.due_ns <= tb_now_ns() + delay_ns)
		return;
	if (tb_loop_arm(io->loop, &io->room, delay_ns) != TB_OK)
		tb_io_kick(io);
}

/* The first of a queue that is not better left for company; NULL: all of those looked at are. */
static TbOp *
first_to_start(const TbOpQueue *queue)
{
	TbOp	   *op = queue->head;

	for (int i = 0; op != NULL && tb_near_follows(op); i++)
		op = i < LOOK_BEHIND ? op->queue_next : NULL;
	return op;
}

/* Start an op that is queued, with what may travel with it. false: the node has no room. */
static bool
start(TbOp *op)
{
	tb_near_absorb(op);
	tb_op_dequeue(op);
	if (tb_op_begin(op))
		return true;
	tb_op_enqueue(op, true);
	return false;
}

/* The op of an endpoint that may start now; NULL: none. */
static TbOp *
next_of(TbIo *io, const TbIoFlow *lane, int64_t now_ns)
{
	const TbOpQueue *queue = &lane->queue;
	TbOp	   *op = NULL;
	int64_t		pause_ns;

	if (queue->head != NULL && queue->active < tb_flow_window(lane->flow))
		op = first_to_start(queue);
	if (op == NULL)
		return NULL;
	pause_ns = tb_flow_pause_ns(lane->flow, now_ns);
	if (pause_ns > 0)
		room_later(io, pause_ns);
	return pause_ns > 0 ? NULL : op;
}

/* One request of each endpoint, from the one on whose turn it is. *more: some have started. false: no room. */
static bool
start_round(TbIo *io, int64_t now_ns, bool *more)
{
	TbIoFlow   *first = io->turn != NULL ? io->turn : io->flows;
	TbIoFlow   *lane = first;

	*more = false;
	while (lane != NULL)
	{
		TbOp	   *op = next_of(io, lane, now_ns);

		if (op != NULL)
		{
			io->turn = lane;
			if (!start(op))
				return false;
			io->turn = lane->next;
			*more = true;
		}
		lane = lane->next != NULL ? lane->next : io->flows;
		if (lane == first)
			break;
	}
	return true;
}

/* Start what may start. */
static void
start_queued(TbTask *task)
{
	TbIo	   *io = (TbIo *) ((char *) task - offsetof(TbIo, kick));
	int64_t		now_ns = tb_now_ns();
	bool		more = true;
	bool		room = true;

	io->kicked = false;
	while (io->local.head != NULL && io->local.active < io->options.max_requests_in_flight)
		(void) start(io->local.head);
	while (more && room)
		room = start_round(io, now_ns, &more);
	if (!room)
		room_later(io, TB_NODE_WAIT_MS * TB_NS_PER_MS);
}

static void
room_fired(TbTimer *timer)
{
	tb_io_kick((TbIo *) ((char *) timer - offsetof(TbIo, room)));
}

static bool
anything_queued(const TbIo *io)
{
	if (io->local.head != NULL)
		return true;
	for (const TbIoFlow *lane = io->flows; lane != NULL; lane = lane->next)
		if (lane->queue.head != NULL)
			return true;
	return false;
}

void
tb_io_kick(TbIo *io)
{
	if (io->kicked || !anything_queued(io))
		return;
	io->kicked = true;
	io->kick.run = start_queued;
	io->room.fire = room_fired;
	tb_loop_defer(io->loop, &io->kick);
}
