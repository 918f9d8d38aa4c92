/*
 * The event loop: an epoll descriptor that nests into the host's own wait.
 *
 *     descriptors ----+
 *     timerfd --------+--> epoll fd --> host waits, then pumps
 *     eventfd --------+
 *
 * The timerfd is set to the earliest timer, or earlier: disarming does not reprogram it, a wake
 * for nothing is cheaper. The eventfd is readable while tasks wait, deferred or posted, so that a
 * host which sleeps on the descriptor never sleeps over work.
 *
 * One pump runs what was there when it began. What callbacks add waits for the next pump, so that
 * a task which defers itself cannot hold the pump. Callbacks may drop any watch, timer or deferred
 * task, also their own: whatever this pump still had for it is struck out. Timers are in timer.c.
 */
#include "base/loop.h"
#include "base/loop_internal.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void
queue_push(TbTaskQueue *queue, TbTask *task)
{
	task->next = NULL;
	if (queue->tail != NULL)
		queue->tail->next = task;
	else
		queue->head = task;
	queue->tail = task;
}

static TbTask *
queue_pop(TbTaskQueue *queue)
{
	TbTask	   *task = queue->head;

	if (task == NULL)
		return NULL;
	queue->head = task->next;
	if (queue->head == NULL)
		queue->tail = NULL;
	task->next = NULL;
	return task;
}

/* Forget task; true where it was in the queue. */
static bool
queue_drop(TbTaskQueue *queue, TbTask *task)
{
	TbTask	   *before = NULL;

	for (TbTask *at = queue->head; at != NULL; before = at, at = at->next)
	{
		if (at != task)
			continue;
		if (before != NULL)
			before->next = at->next;
		else
			queue->head = at->next;
		if (queue->tail == at)
			queue->tail = before;
		at->next = NULL;
		return true;
	}
	return false;
}

/* Move all of from behind to. */
static void
queue_splice(TbTaskQueue *to, TbTaskQueue *from)
{
	if (from->head == NULL)
		return;
	if (to->tail != NULL)
		to->tail->next = from->head;
	else
		to->head = from->head;
	to->tail = from->tail;
	memset(from, 0, sizeof(*from));
}

static int
add_own_fd(TbLoop *loop, int fd, void *marker)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = marker};

	return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* owns: the caller, tb_loop_free. errors: NOMEM, IO (no descriptors left). */
TbStatus
tb_loop_new(TbLoop **loop, TbError *err)
{
	TbLoop	   *l = tb_calloc(1, sizeof(*l));

	*loop = NULL;
	if (l == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	pthread_mutex_init(&l->mu, NULL);
	l->timer_due_ns = INT64_MAX;
	l->timer_fd = l->event_fd = -1;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd >= 0)
		l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (l->timer_fd >= 0)
		l->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (l->event_fd < 0 ||
		add_own_fd(l, l->timer_fd, &l->timer_fd) < 0 ||
		add_own_fd(l, l->event_fd, &l->event_fd) < 0)
	{
		int			saved = errno;

		tb_loop_free(l);
		return tb_fail_errno(err, saved, "create an event loop", NULL);
	}
	*loop = l;
	return TB_OK;
}

/* Tasks, timers and watches still there are forgotten, not run. NULL allowed. */
void
tb_loop_free(TbLoop *loop)
{
	if (loop == NULL)
		return;
	if (loop->event_fd >= 0)
		close(loop->event_fd);
	if (loop->timer_fd >= 0)
		close(loop->timer_fd);
	if (loop->epoll_fd >= 0)
		close(loop->epoll_fd);
	pthread_mutex_destroy(&loop->mu);
	tb_free(loop->heap);
	tb_free(loop);
}

int
tb_loop_fd(const TbLoop *loop)
{
	return loop->epoll_fd;
}

/* Make the descriptor readable. A full counter (EAGAIN) is readable already. thread: any. */
static void
ring(TbLoop *loop)
{
	uint64_t	one = 1;
	ssize_t		written;

	do
		written = write(loop->event_fd, &one, sizeof(one));
	while (written < 0 && errno == EINTR);
}

/* Take back what made one of our own descriptors readable. */
static void
drain(int fd)
{
	uint64_t	count;
	ssize_t		got;

	do
		got = read(fd, &count, sizeof(count));
	while (got < 0 && errno == EINTR);
}

/*
 * Strike our own descriptors out of the events; before the queues are taken, so that no ring is
 * lost.
 */
static void
drain_own(TbLoop *loop)
{
	for (int i = 0; i < loop->n_events; i++)
	{
		void	   *marker = loop->events[i].data.ptr;

		if (marker == &loop->event_fd)
			drain(loop->event_fd);
		else if (marker == &loop->timer_fd)
		{
			drain(loop->timer_fd);
			loop->timer_due_ns = INT64_MAX;
		}
		else
			continue;
		loop->events[i].data.ptr = NULL;
	}
}

static int
run_tasks(TbLoop *loop)
{
	int			ran = 0;
	TbTask	   *task;

	queue_splice(&loop->local_now, &loop->local);
	pthread_mutex_lock(&loop->mu);
	queue_splice(&loop->posted_now, &loop->posted);
	pthread_mutex_unlock(&loop->mu);

	while ((task = queue_pop(&loop->local_now)) != NULL)
	{
		task->run(task);
		ran++;
	}
	while ((task = queue_pop(&loop->posted_now)) != NULL)
	{
		task->run(task);
		ran++;
	}
	return ran;
}

static int
run_watches(TbLoop *loop)
{
	int			ran = 0;

	for (int i = 0; i < loop->n_events; i++)
	{
		TbWatch    *watch = loop->events[i].data.ptr;
		uint32_t	happened;

		if (watch == NULL)
			continue;
		/* a callback of this pump may have asked for less since */
		happened = loop->events[i].events & (watch->events | EPOLLERR | EPOLLHUP);
		if (happened == 0)
			continue;
		watch->ready(watch, happened);
		ran++;
	}
	loop->n_events = 0;
	return ran;
}

/* A signal ends the wait, with 0 run. A pump inside a pump runs nothing. */
int
tb_loop_pump(TbLoop *loop, int timeout_ms)
{
	int			n;
	int			ran;

	if (loop->pumping)
		return 0;
	loop->pumping = true;
	n = epoll_wait(loop->epoll_fd, loop->events, TB_LOOP_EVENTS, timeout_ms);
	loop->n_events = n > 0 ? n : 0;
	drain_own(loop);
	ran = run_tasks(loop);
	ran += tb_timers_run(loop);
	ran += run_watches(loop);
	loop->pumping = false;
	tb_timers_program(loop);
	return ran;
}

/* The task must not wait in any queue already. */
void
tb_loop_defer(TbLoop *loop, TbTask *task)
{
	bool		first = loop->local.head == NULL;

	queue_push(&loop->local, task);
	if (first)
		ring(loop);
}

void
tb_loop_undefer(TbLoop *loop, TbTask *task)
{
	if (!queue_drop(&loop->local, task))
		(void) queue_drop(&loop->local_now, task);
}

/*
 * The task must not wait in any queue already. The bell is rung under the lock: once the task can
 * run, the loop may be freed, and this thread touches it no more.
 */
void
tb_loop_post(TbLoop *loop, TbTask *task)
{
	bool		first;

	pthread_mutex_lock(&loop->mu);
	first = loop->posted.head == NULL;
	queue_push(&loop->posted, task);
	if (first)
		ring(loop);
	pthread_mutex_unlock(&loop->mu);
}

/* Level triggered. errors: as tb_fail_errno; a regular file cannot be watched. */
TbStatus
tb_loop_watch(TbLoop *loop, TbWatch *watch, TbError *err)
{
	struct epoll_event event = {.events = watch->events, .data.ptr = watch};

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) < 0)
		return tb_fail_errno(err, errno, "watch a descriptor", NULL);
	return TB_OK;
}

/* Change what a watch waits for. errors: as tb_fail_errno. */
TbStatus
tb_loop_rewatch(TbLoop *loop, TbWatch *watch, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watch};

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) < 0)
		return tb_fail_errno(NULL, errno, "watch a descriptor", NULL);
	watch->events = events;
	return TB_OK;
}

/* Before the descriptor is closed: its number may be another's at once. */
void
tb_loop_unwatch(TbLoop *loop, TbWatch *watch)
{
	struct epoll_event unused = {0};

	(void) epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, &unused);
	for (int i = 0; i < loop->n_events; i++)
		if (loop->events[i].data.ptr == watch)
			loop->events[i].data.ptr = NULL;
}
