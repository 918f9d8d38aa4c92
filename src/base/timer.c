/*
 * The loop's timers: a binary heap by due time. A timer knows its slot, so that disarming finds it.
 */
#include "base/loop_internal.h"
#include "base/mem.h"

#include <sys/timerfd.h>
#include <time.h>

int64_t
tb_now_ns(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * TB_NS_PER_S + now.tv_nsec;
}

static void
put(TbLoop *loop, int slot, TbTimer *timer)
{
	loop->heap[slot - 1] = timer;
	timer->heap_slot = slot;
}

/* Find timer's place, starting at the free slot: up as long as the parent is later, else down. */
static void
settle(TbLoop *loop, int slot, TbTimer *timer)
{
	while (slot > 1 && loop->heap[slot / 2 - 1]->due_ns > timer->due_ns)
	{
		put(loop, slot, loop->heap[slot / 2 - 1]);
		slot /= 2;
	}
	while (slot <= loop->heap_len / 2)
	{
		int			child = slot * 2;

		if (child < loop->heap_len && loop->heap[child]->due_ns < loop->heap[child - 1]->due_ns)
			child++;
		if (loop->heap[child - 1]->due_ns >= timer->due_ns)
			break;
		put(loop, slot, loop->heap[child - 1]);
		slot = child;
	}
	put(loop, slot, timer);
}

/*
 * Arm, or arm anew, delay_ns from now (below 0: at once). errors: NOMEM, never for a timer that is
 * armed.
 */
TbStatus
tb_loop_arm(TbLoop *loop, TbTimer *timer, int64_t delay_ns)
{
	int64_t		due_ns;

	if (__builtin_add_overflow(tb_now_ns(), delay_ns > 0 ? delay_ns : 0, &due_ns))
		due_ns = INT64_MAX;
	if (timer->heap_slot == 0)
	{
		if (loop->heap_len == loop->heap_cap)
		{
			int			cap = loop->heap_cap > 0 ? loop->heap_cap * 2 : 16;
			TbTimer   **heap = tb_realloc_array(loop->heap, (size_t) cap, sizeof(*heap));

			if (heap == NULL)
				return TB_E_NOMEM;
			loop->heap = heap;
			loop->heap_cap = cap;
		}
		timer->heap_slot = ++loop->heap_len;
	}
	timer->due_ns = due_ns;
	settle(loop, timer->heap_slot, timer);
	if (!loop->pumping)
		tb_timers_program(loop);
	return TB_OK;
}

void
tb_loop_disarm(TbLoop *loop, TbTimer *timer)
{
	int			slot = timer->heap_slot;
	TbTimer    *last;

	if (slot == 0)
		return;
	last = loop->heap[--loop->heap_len];
	timer->heap_slot = 0;
	if (last != timer)
		settle(loop, slot, last);
}

int
tb_timers_run(TbLoop *loop)
{
	int64_t		now;
	int			ran = 0;
	int			most = loop->heap_len;

	if (most == 0)
		return 0;
	/* one look at the clock and at most as many as there were: timers armed meanwhile wait */
	now = tb_now_ns();
	while (ran < most && loop->heap_len > 0 && loop->heap[0]->due_ns <= now)
	{
		TbTimer    *timer = loop->heap[0];

		tb_loop_disarm(loop, timer);
		timer->fire(timer);
		ran++;
	}
	return ran;
}

void
tb_timers_program(TbLoop *loop)
{
	int64_t		want = loop->heap_len > 0 ? loop->heap[0]->due_ns : INT64_MAX;
	struct itimerspec spec = {0};

	if (want >= loop->timer_due_ns && loop->timer_due_ns > tb_now_ns())
		return;
	if (want == loop->timer_due_ns)
		return;
	if (want < INT64_MAX)
	{
		spec.it_value.tv_sec = (time_t) (want / TB_NS_PER_S);
		spec.it_value.tv_nsec = (long) (want % TB_NS_PER_S);
	}
	(void) timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
	loop->timer_due_ns = want;
}
