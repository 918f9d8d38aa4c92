/*
 * TbLoop: one epoll descriptor that holds everything the engine waits for (sockets, one timerfd,
 * one eventfd for work posted by other threads). A host waits until tb_loop_fd() is readable and
 * pumps; the pump never blocks unless told to. All but tb_loop_post belong to the thread that
 * pumps.
 */
#ifndef TB_BASE_LOOP_H
#define TB_BASE_LOOP_H

#include "base/error.h"

typedef struct TbLoop TbLoop;

/* A piece of work; embed it in the object it belongs to. It must outlive its run. */
typedef struct TbTask
{
	void		(*run) (struct TbTask *task);
	struct TbTask *next;		/* the queue's */
} TbTask;

/* A timer; embed it. Zero it before first use. */
typedef struct TbTimer
{
	void		(*fire) (struct TbTimer *timer);
	int64_t		due_ns;			/* monotonic; the loop's while armed */
	int			heap_slot;		/* 0: not armed */
} TbTimer;

/* A watched descriptor; embed it. */
typedef struct TbWatch
{
	void		(*ready) (struct TbWatch *watch, uint32_t epoll_events);
	int			fd;
	uint32_t	events;
} TbWatch;

extern TbStatus tb_loop_new(TbLoop **loop, TbError *err) TB_MUST_CHECK;
extern void tb_loop_free(TbLoop *loop);

/* Readable when there is something to pump. The loop's; do not close. */
extern int	tb_loop_fd(const TbLoop *loop);

/*
 * Run what is ready: local tasks, posted tasks, timers, watches; what these add waits for the next
 * pump. timeout: 0 never blocks, -1 forever; a signal ends the wait. Returns the number of
 * callbacks run.
 */
extern int	tb_loop_pump(TbLoop *loop, int timeout_ms);

/*
 * Have a task run from the pump. _defer: from the loop's thread; _post: from any thread. A task
 * that waits already must not be given again: undefer it first.
 */
extern void tb_loop_defer(TbLoop *loop, TbTask *task);
extern void tb_loop_undefer(TbLoop *loop, TbTask *task);	/* forget it if deferred, not run */
extern void tb_loop_post(TbLoop *loop, TbTask *task);

extern TbStatus tb_loop_arm(TbLoop *loop, TbTimer *timer, int64_t delay_ns) TB_MUST_CHECK;
extern void tb_loop_disarm(TbLoop *loop, TbTimer *timer);

extern TbStatus tb_loop_watch(TbLoop *loop, TbWatch *watch, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_loop_rewatch(TbLoop *loop, TbWatch *watch, uint32_t events) TB_MUST_CHECK;
extern void tb_loop_unwatch(TbLoop *loop, TbWatch *watch);

#define TB_NS_PER_MS INT64_C(1000000)
#define TB_NS_PER_S INT64_C(1000000000)

/* CLOCK_MONOTONIC in nanoseconds. */
extern int64_t tb_now_ns(void);

#endif
