/* The loop: order, fairness, the descriptor as a host sees it, and callbacks that drop things. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MS INT64_C(1000000)

typedef struct Fixture
{
	TbLoop	   *loop;
	int64_t		live;
} Fixture;

static int
setup(void **state)
{
	static Fixture fixture;

	fixture.live = tb_mem_live();
	*state = &fixture;
	return tb_loop_new(&fixture.loop, NULL) == TB_OK ? 0 : -1;
}

static int
teardown(void **state)
{
	Fixture    *fixture = *state;

	tb_loop_free(fixture->loop);
	return tb_mem_live() == fixture->live ? 0 : -1;
}

/* What a host's poll says: is there something to pump? */
static bool
readable(TbLoop *loop)
{
	struct pollfd p = {.fd = tb_loop_fd(loop), .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* --- tasks --- */

typedef struct Job
{
	TbTask		task;
	TbLoop	   *loop;
	struct Job *other;
	int			runs;
} Job;

static void
count_run(TbTask *task)
{
	((Job *) task)->runs++;
}

static void
defer_again(TbTask *task)
{
	Job		   *job = (Job *) task;

	job->runs++;
	tb_loop_defer(job->loop, task);
}

static void
drop_other(TbTask *task)
{
	Job		   *job = (Job *) task;

	job->runs++;
	tb_loop_undefer(job->loop, &job->other->task);
	tb_loop_undefer(job->loop, task);
}

static void
pump_inside(TbTask *task)
{
	Job		   *job = (Job *) task;

	job->runs += 1 + 100 * tb_loop_pump(job->loop, -1);
}

static void
test_defer_wakes_host(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Job			a = {.task.run = count_run};
	Job			b = {.task.run = count_run};

	assert_false(readable(loop));
	assert_int_equal(tb_loop_pump(loop, 0), 0);
	tb_loop_defer(loop, &a.task);
	tb_loop_defer(loop, &b.task);
	assert_true(readable(loop));
	assert_int_equal(tb_loop_pump(loop, -1), 2);
	assert_int_equal(a.runs + b.runs, 2);
	assert_false(readable(loop));
	assert_int_equal(tb_loop_pump(loop, 0), 0);
}

static void
test_self_deferring_is_fair(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Job			a = {.task.run = defer_again,.loop = loop};

	tb_loop_defer(loop, &a.task);
	for (int i = 1; i <= 5; i++)
	{
		/* one run a pump, and the descriptor stays readable for the next */
		assert_true(readable(loop));
		assert_int_equal(tb_loop_pump(loop, 0), 1);
		assert_int_equal(a.runs, i);
	}
	tb_loop_undefer(loop, &a.task);
	assert_int_equal(tb_loop_pump(loop, 0), 0);
	assert_false(readable(loop));
	assert_int_equal(a.runs, 5);
}

static void
test_undefer(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Job			jobs[4] = {{.loop = loop}, {.loop = loop}, {.loop = loop}, {.loop = loop}};

	for (int i = 0; i < 4; i++)
	{
		jobs[i].task.run = count_run;
		tb_loop_defer(loop, &jobs[i].task);
	}
	/* the tail, then the head, then one that is not there */
	tb_loop_undefer(loop, &jobs[3].task);
	tb_loop_undefer(loop, &jobs[0].task);
	tb_loop_undefer(loop, &jobs[0].task);
	tb_loop_defer(loop, &jobs[3].task);
	assert_int_equal(tb_loop_pump(loop, 0), 3);
	assert_int_equal(jobs[0].runs, 0);
	assert_int_equal(jobs[1].runs + jobs[2].runs + jobs[3].runs, 3);

	/* a task drops the next of the same pump, and itself, which does not wait any more */
	jobs[0].task.run = drop_other;
	jobs[0].other = &jobs[1];
	jobs[0].runs = jobs[1].runs = 0;
	tb_loop_defer(loop, &jobs[0].task);
	tb_loop_defer(loop, &jobs[1].task);
	tb_loop_defer(loop, &jobs[2].task);
	assert_int_equal(tb_loop_pump(loop, 0), 2);
	assert_int_equal(jobs[0].runs, 1);
	assert_int_equal(jobs[1].runs, 0);
}

static void
test_pump_inside_pump(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Job			a = {.task.run = pump_inside,.loop = loop};
	Job			b = {.task.run = count_run};

	tb_loop_defer(loop, &a.task);
	tb_loop_defer(loop, &b.task);
	assert_int_equal(tb_loop_pump(loop, 0), 2);
	assert_int_equal(a.runs, 1);
	assert_int_equal(b.runs, 1);
}

/* --- posting --- */

#define POSTERS 4
#define POSTS 500

typedef struct Poster
{
	pthread_t	thread;
	TbLoop	   *loop;
	Job			jobs[POSTS];
} Poster;

static void *
post_all(void *argument)
{
	Poster	   *poster = argument;

	for (int i = 0; i < POSTS; i++)
		tb_loop_post(poster->loop, &poster->jobs[i].task);
	return NULL;
}

static void
test_post_from_threads(void **state)
{
	static Poster posters[POSTERS];
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	int			ran = 0;

	for (int i = 0; i < POSTERS; i++)
	{
		memset(&posters[i], 0, sizeof(posters[i]));
		posters[i].loop = loop;
		for (int j = 0; j < POSTS; j++)
			posters[i].jobs[j].task.run = count_run;
		assert_int_equal(pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), 0);
	}
	while (ran < POSTERS * POSTS)
	{
		int64_t		begin = tb_now_ns();

		/*
		 * none may run, where an earlier pump took what rang; a lost bell is a wait that times out
		 */
		ran += tb_loop_pump(loop, 30000);
		assert_true(tb_now_ns() - begin < 20000 * MS);
	}
	for (int i = 0; i < POSTERS; i++)
	{
		pthread_join(posters[i].thread, NULL);
		for (int j = 0; j < POSTS; j++)
			assert_int_equal(posters[i].jobs[j].runs, 1);
	}
	/* the last bell may have rung for a task that an earlier pump took */
	assert_int_equal(tb_loop_pump(loop, 0), 0);
	assert_false(readable(loop));
}

/* --- timers --- */

typedef struct Clock
{
	TbTimer		timer;
	TbLoop	   *loop;
	struct Clock *other;
	int			fires;
	int			order;
	int64_t		again_ns;		/* -1: once */
} Clock;

static int	fired;				/* in this test */

static void
fire(TbTimer *timer)
{
	Clock	   *clock = (Clock *) timer;

	assert_int_equal(timer->heap_slot, 0);
	assert_true(tb_now_ns() >= timer->due_ns);
	clock->fires++;
	clock->order = fired++;
	if (clock->other != NULL)
		tb_loop_disarm(clock->loop, &clock->other->timer);
	if (clock->again_ns >= 0)
		assert_int_equal(tb_loop_arm(clock->loop, timer, clock->again_ns), TB_OK);
}

static void
test_timers_in_order(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	static Clock clocks[200];
	int			left = 200;

	fired = 0;
	memset(clocks, 0, sizeof(clocks));
	for (int i = 0; i < 200; i++)
	{
		clocks[i] = (Clock) {.timer.fire = fire,.again_ns = -1};
		/* 7 and 200 share no factor: all delays differ */
		assert_int_equal(tb_loop_arm(loop, &clocks[i].timer, (i * 7 % 200) * MS / 10), TB_OK);
	}
	for (int i = 0; i < 200; i += 5)
	{
		tb_loop_disarm(loop, &clocks[i].timer);
		tb_loop_disarm(loop, &clocks[i].timer);
		left--;
	}
	while (fired < left)
		(void) tb_loop_pump(loop, 1000);
	for (int i = 0; i < 200; i++)
	{
		assert_int_equal(clocks[i].fires, i % 5 != 0);
		for (int j = 0; j < 200; j++)
			if (clocks[i].fires == 1 && clocks[j].fires == 1 &&
				clocks[i].timer.due_ns < clocks[j].timer.due_ns)
				assert_true(clocks[i].order < clocks[j].order);
	}
	assert_int_equal(tb_loop_pump(loop, 0), 0);
}

static void
test_timer_wakes_host(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Clock		late = {.timer.fire = fire,.again_ns = -1};
	Clock		soon = {.timer.fire = fire,.again_ns = -1};
	struct pollfd p = {.fd = tb_loop_fd(loop),.events = POLLIN};

	fired = 0;
	assert_int_equal(tb_loop_arm(loop, &late.timer, 3600 * 1000 * MS), TB_OK);
	assert_int_equal(tb_loop_arm(loop, &soon.timer, INT64_MAX), TB_OK);
	assert_int_equal(tb_loop_arm(loop, &soon.timer, 20 * MS), TB_OK);	/* anew, earlier */
	assert_false(readable(loop));
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(tb_loop_pump(loop, 0), 1);
	assert_int_equal(soon.fires, 1);
	assert_false(readable(loop));

	/*
	 * an early one that is disarmed costs at most a wake for nothing, and leaves the later one
	 * armed
	 */
	assert_int_equal(tb_loop_arm(loop, &late.timer, 60 * MS), TB_OK);
	assert_int_equal(tb_loop_arm(loop, &soon.timer, 5 * MS), TB_OK);
	tb_loop_disarm(loop, &soon.timer);
	while (late.fires == 0)
	{
		assert_int_equal(poll(&p, 1, 5000), 1);
		(void) tb_loop_pump(loop, 0);
	}
	assert_int_equal(soon.fires, 1);
	assert_false(readable(loop));
}

static void
test_timer_callbacks(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Clock		a = {.timer.fire = fire,.loop = loop,.again_ns = 0};
	Clock		b = {.timer.fire = fire,.loop = loop,.again_ns = -1};

	/* one that arms itself at once fires once a pump; one disarmed by it does not fire */
	fired = 0;
	a.other = &b;
	assert_int_equal(tb_loop_arm(loop, &a.timer, -5), TB_OK);
	assert_int_equal(tb_loop_arm(loop, &b.timer, 0), TB_OK);
	for (int i = 1; i <= 3; i++)
	{
		assert_int_equal(tb_loop_pump(loop, 5000), 1);
		assert_int_equal(a.fires, i);
	}
	assert_int_equal(b.fires, 0);
	a.other = &a;				/* disarms itself while it fires */
	a.again_ns = -1;
	assert_int_equal(tb_loop_pump(loop, 5000), 1);
	assert_int_equal(tb_loop_pump(loop, 0), 0);
}

static void
test_timer_no_memory(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Clock		a = {.timer.fire = fire,.again_ns = -1};

	(void) tb_mem_fail_after(1);
	assert_int_equal(tb_loop_arm(loop, &a.timer, MS), TB_E_NOMEM);
	(void) tb_mem_fail_after(0);
	assert_int_equal(a.timer.heap_slot, 0);
	tb_loop_disarm(loop, &a.timer);
	assert_int_equal(tb_loop_arm(loop, &a.timer, MS), TB_OK);
	tb_loop_disarm(loop, &a.timer);
}

/* --- watches --- */

typedef struct Pipe
{
	TbWatch		watch;
	int			write_fd;
	TbLoop	   *loop;
	struct Pipe *other;
	int			calls;
	uint32_t	seen;
	bool		drop_self;
	bool		mute_other;
} Pipe;

static void
pipe_ready(TbWatch *watch, uint32_t events)
{
	Pipe	   *p = (Pipe *) watch;

	p->calls++;
	p->seen |= events;
	if (p->other != NULL && p->mute_other)
		assert_int_equal(tb_loop_rewatch(p->loop, &p->other->watch, 0), TB_OK);
	else if (p->other != NULL)
		tb_loop_unwatch(p->loop, &p->other->watch);
	if (p->drop_self)
		tb_loop_unwatch(p->loop, watch);
}

static void
open_pipe(Pipe *p, TbLoop *loop)
{
	int			fds[2];

	assert_int_equal(pipe(fds), 0);
	*p = (Pipe) {.watch = {.ready = pipe_ready,.fd = fds[0],.events = EPOLLIN},
		.write_fd = fds[1],.loop = loop};
	assert_int_equal(tb_loop_watch(loop, &p->watch, NULL), TB_OK);
}

static void
close_pipe(Pipe *p)
{
	close(p->watch.fd);
	close(p->write_fd);
}

static void
test_watch(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Pipe		p;
	char		byte;
	TbError		err;

	open_pipe(&p, loop);
	assert_int_equal(tb_loop_pump(loop, 0), 0);
	assert_int_equal(write(p.write_fd, "x", 1), 1);
	assert_true(readable(loop));
	assert_int_equal(tb_loop_pump(loop, -1), 1);
	assert_int_equal(tb_loop_pump(loop, -1), 1);	/* level triggered */
	assert_int_equal(p.seen, EPOLLIN);
	assert_int_equal(tb_loop_rewatch(loop, &p.watch, 0), TB_OK);
	assert_int_equal(tb_loop_pump(loop, 0), 0);
	assert_int_equal(tb_loop_rewatch(loop, &p.watch, EPOLLIN), TB_OK);
	assert_int_equal(tb_loop_pump(loop, 0), 1);
	assert_int_equal(read(p.watch.fd, &byte, 1), 1);
	assert_int_equal(tb_loop_pump(loop, 0), 0);
	close(p.write_fd);
	assert_int_equal(tb_loop_pump(loop, 0), 1);
	assert_true((p.seen & EPOLLHUP) != 0);
	tb_loop_unwatch(loop, &p.watch);
	tb_loop_unwatch(loop, &p.watch);
	assert_int_equal(tb_loop_pump(loop, 0), 0);
	assert_int_not_equal(tb_loop_rewatch(loop, &p.watch, EPOLLIN), TB_OK);
	close(p.watch.fd);
	assert_int_equal(tb_loop_watch(loop, &p.watch, &err), TB_E_IO);
	assert_int_equal(err.sys_errno, EBADF);
}

/* Both are ready in one pump, and whichever comes first drops (or mutes) the other. */
static void
test_watch_drops_other(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;

	for (int mute = 0; mute < 2; mute++)
	{
		Pipe		a;
		Pipe		b;

		open_pipe(&a, loop);
		open_pipe(&b, loop);
		a.other = &b;
		b.other = &a;
		a.drop_self = b.drop_self = true;
		a.mute_other = b.mute_other = mute == 1;
		assert_int_equal(write(a.write_fd, "x", 1), 1);
		assert_int_equal(write(b.write_fd, "x", 1), 1);
		assert_int_equal(tb_loop_pump(loop, 0), 1);
		assert_int_equal(a.calls + b.calls, 1);
		assert_int_equal(tb_loop_pump(loop, 0), 0);
		tb_loop_unwatch(loop, &a.watch);
		tb_loop_unwatch(loop, &b.watch);
		close_pipe(&a);
		close_pipe(&b);
	}
}

typedef struct Dropper
{
	TbTask		task;
	Pipe	   *victim;
} Dropper;

/* The descriptor's number goes to another watch between the wait and the dispatch. */
static void
replace_victim(TbTask *task)
{
	Dropper    *dropper = (Dropper *) task;
	Pipe	   *victim = dropper->victim;
	TbLoop	   *loop = victim->loop;

	tb_loop_unwatch(loop, &victim->watch);
	close_pipe(victim);
	open_pipe(victim, loop);
}

static void
test_stale_event_is_struck_out(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Pipe		victim;
	Dropper		dropper = {.task.run = replace_victim,.victim = &victim};

	open_pipe(&victim, loop);
	assert_int_equal(write(victim.write_fd, "x", 1), 1);
	tb_loop_defer(loop, &dropper.task);
	assert_int_equal(tb_loop_pump(loop, 0), 1);
	assert_int_equal(victim.calls, 0);
	assert_int_equal(tb_loop_pump(loop, 0), 0);
	assert_int_equal(write(victim.write_fd, "x", 1), 1);
	assert_int_equal(tb_loop_pump(loop, 0), 1);
	tb_loop_unwatch(loop, &victim.watch);
	close_pipe(&victim);
}

/*
 * More ready descriptors than one pump takes: all get their turn, and posted work is not starved.
 */
static void
test_many_watches(void **state)
{
	static Pipe pipes[150];
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	Job			job = {.task.run = count_run};
	int			pumps = 0;

	for (int i = 0; i < 150; i++)
	{
		open_pipe(&pipes[i], loop);
		assert_int_equal(write(pipes[i].write_fd, "x", 1), 1);
	}
	tb_loop_post(loop, &job.task);
	for (int waiting = 1; waiting > 0; pumps++)
	{
		assert_true(pumps < 10);
		assert_true(tb_loop_pump(loop, 0) > 0);
		waiting = job.runs == 0;
		for (int i = 0; i < 150; i++)
			waiting += pipes[i].calls == 0;
	}
	for (int i = 0; i < 150; i++)
	{
		tb_loop_unwatch(loop, &pipes[i].watch);
		close_pipe(&pipes[i]);
	}
	(void) tb_loop_pump(loop, 0);
	assert_false(readable(loop));
}

static void
test_new_fails_clean(void **state)
{
	TbLoop	   *loop = ((Fixture *) *state)->loop;
	int64_t		live = tb_mem_live();
	TbLoop	   *another = loop;
	TbError		err;

	(void) tb_mem_fail_after(1);
	assert_int_equal(tb_loop_new(&another, &err), TB_E_NOMEM);
	(void) tb_mem_fail_after(0);
	assert_null(another);
	assert_int_equal(tb_mem_live(), live);
	tb_loop_free(NULL);
}

#define LOOP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LOOP_TEST(test_defer_wakes_host),
		LOOP_TEST(test_self_deferring_is_fair),
		LOOP_TEST(test_undefer),
		LOOP_TEST(test_pump_inside_pump),
		LOOP_TEST(test_post_from_threads),
		LOOP_TEST(test_timers_in_order),
		LOOP_TEST(test_timer_wakes_host),
		LOOP_TEST(test_timer_callbacks),
		LOOP_TEST(test_timer_no_memory),
		LOOP_TEST(test_watch),
		LOOP_TEST(test_watch_drops_other),
		LOOP_TEST(test_stale_event_is_struck_out),
		LOOP_TEST(test_many_watches),
		LOOP_TEST(test_new_fails_clean),
	};

	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
