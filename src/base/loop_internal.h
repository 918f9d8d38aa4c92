/* What loop.c and timer.c share; no one else includes it. */
#ifndef TB_BASE_LOOP_INTERNAL_H
#define TB_BASE_LOOP_INTERNAL_H

#include "base/loop.h"

#include <pthread.h>
#include <sys/epoll.h>

#define TB_LOOP_EVENTS 64		/* taken by one pump; more wait for the next */

typedef struct TbTaskQueue
{
	TbTask	   *head;			/* borrowed */
	TbTask	   *tail;
} TbTaskQueue;

struct TbLoop
{
	/* fixed */
	int			epoll_fd;		/* owned */
	int			timer_fd;		/* owned */
	int			event_fd;		/* owned */

	/* guarded by mu */
	pthread_mutex_t mu;
	TbTaskQueue posted;

	/* the pumping thread's */
	bool		pumping;
	TbTaskQueue local;			/* deferred, for the next pump */
	TbTaskQueue local_now;		/* being run by this pump */
	TbTaskQueue posted_now;
	struct epoll_event events[TB_LOOP_EVENTS];	/* of this pump; data.ptr NULL: struck out */
	int			n_events;
	TbTimer   **heap;			/* owned array of borrowed timers, earliest first; slots from 1 */
	int			heap_len;
	int			heap_cap;
	int64_t		timer_due_ns;	/* what timer_fd is set to; INT64_MAX: to nothing */
};

/* Fire what is due. Returns the number of callbacks run. */
extern int	tb_timers_run(TbLoop *loop);

/* Set the timerfd to the earliest timer where it is set later, or has run out. */
extern void tb_timers_program(TbLoop *loop);

#endif
