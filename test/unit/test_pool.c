/*
 * The pool: every task once, on other threads, with signals blocked; and the round trip to a loop.
 */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>

#define JOBS 2000

typedef struct Job
{
	TbTask		task;
	TbPool	   *pool;
	TbLoop	   *loop;			/* where the result goes; NULL: nowhere */
	struct Job *next_job;		/* submitted by this one; NULL: none */
	pthread_t	thread;
	int			runs;
	int			results;
	bool		signals_blocked;
} Job;

static void
deliver(TbTask *task)
{
	((Job *) task)->results++;
}

static void
work(TbTask *task)
{
	Job		   *job = (Job *) task;
	sigset_t	mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	job->signals_blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1;
	job->thread = pthread_self();
	job->runs++;
	if (job->next_job != NULL)
		tb_pool_submit(job->pool, &job->next_job->task);
	if (job->loop != NULL)
	{
		job->task.run = deliver;
		tb_loop_post(job->loop, task);
	}
}

static Job	jobs[JOBS];

static void
test_all_run_before_free(void **state)
{
	int64_t		live = tb_mem_live();

	for (int threads = 0; threads <= 4; threads += 2)
	{
		TbPool	   *pool;

		memset(jobs, 0, sizeof(jobs));
		assert_int_equal(tb_pool_new(threads, &pool, NULL), TB_OK);
		assert_int_equal(tb_pool_threads(pool), threads);
		for (int i = 0; i < JOBS; i++)
		{
			jobs[i].task.run = work;
			tb_pool_submit(pool, &jobs[i].task);
			if (threads == 0)
				assert_int_equal(jobs[i].runs, 1);
		}
		tb_pool_free(pool);
		for (int i = 0; i < JOBS; i++)
		{
			assert_int_equal(jobs[i].runs, 1);
			assert_int_equal(pthread_equal(jobs[i].thread, pthread_self()) != 0, threads == 0);
			if (threads > 0)
				assert_true(jobs[i].signals_blocked);
		}
	}
	assert_int_equal(tb_mem_live(), live);
}

static void
test_submit_from_task(void **state)
{
	for (int threads = 0; threads <= 3; threads += 3)
	{
		TbPool	   *pool;

		memset(jobs, 0, sizeof(jobs));
		assert_int_equal(tb_pool_new(threads, &pool, NULL), TB_OK);
		for (int i = 0; i < 100; i++)
		{
			jobs[i].task.run = work;
			jobs[i].pool = pool;
			jobs[i].next_job = i < 99 ? &jobs[i + 1] : NULL;
		}
		tb_pool_submit(pool, &jobs[0].task);
		tb_pool_free(pool);		/* waits for the whole chain */
		for (int i = 0; i < 100; i++)
			assert_int_equal(jobs[i].runs, 1);
	}
}

static void
test_results_by_loop(void **state)
{
	for (int threads = 0; threads <= 4; threads += 4)
	{
		TbPool	   *pool;
		TbLoop	   *loop;
		int			delivered = 0;

		memset(jobs, 0, sizeof(jobs));
		assert_int_equal(tb_loop_new(&loop, NULL), TB_OK);
		assert_int_equal(tb_pool_new(threads, &pool, NULL), TB_OK);
		for (int i = 0; i < JOBS; i++)
		{
			jobs[i].task.run = work;
			jobs[i].loop = loop;
			tb_pool_submit(pool, &jobs[i].task);
		}
		while (delivered < JOBS)
		{
			int64_t		begin = tb_now_ns();

			/* none may run, where an earlier pump took what rang; a lost bell times out */
			delivered += tb_loop_pump(loop, 30000);
			assert_true(tb_now_ns() - begin < INT64_C(20000000000));
		}
		for (int i = 0; i < JOBS; i++)
			assert_int_equal(jobs[i].runs + 10 * jobs[i].results, 11);
		tb_pool_free(pool);
		tb_loop_free(loop);
	}
}

/* Buffers and the allocator's counters, shared by threads. */
typedef struct Sharer
{
	TbTask		task;
	TbBuf	   *buf;			/* one reference owned */
	uint64_t	sum;
} Sharer;

static void
use_and_unref(TbTask *task)
{
	Sharer	   *sharer = (Sharer *) task;
	void	   *memory = tb_malloc(10);

	for (size_t i = 0; i < sharer->buf->len; i++)
		sharer->sum += sharer->buf->data[i];
	tb_buf_unref(tb_buf_ref(sharer->buf));
	tb_buf_unref(sharer->buf);
	tb_free(memory);
}

static void
test_shared_buffer(void **state)
{
	static Sharer sharers[200];
	int64_t		live = tb_mem_live();
	TbBuf	   *buf = tb_buf_new(0);
	TbPool	   *pool;

	assert_int_equal(tb_pool_new(4, &pool, NULL), TB_OK);
	assert_int_equal(tb_buf_append(buf, "\1\2\3", 3, 3), TB_OK);
	for (int i = 0; i < 200; i++)
	{
		sharers[i] = (Sharer) {.task.run = use_and_unref,.buf = tb_buf_ref(buf)};
		tb_pool_submit(pool, &sharers[i].task);
	}
	tb_buf_unref(buf);
	tb_pool_free(pool);
	for (int i = 0; i < 200; i++)
		assert_int_equal(sharers[i].sum, 6);
	assert_int_equal(tb_mem_live(), live);
}

static void
test_new_fails_clean(void **state)
{
	int64_t		live = tb_mem_live();
	TbPool	   *pool;
	TbError		err;

	assert_int_equal(tb_pool_new(-1, &pool, &err), TB_E_INVALID);
	assert_null(pool);
	assert_int_equal(tb_pool_new(1000000, &pool, &err), TB_E_INVALID);
	for (uint64_t n = 1; n <= 2; n++)
	{
		(void) tb_mem_fail_after(n);
		assert_int_equal(tb_pool_new(2, &pool, &err), TB_E_NOMEM);
		assert_int_equal(err.code, TB_E_NOMEM);
	}
	(void) tb_mem_fail_after(0);
	assert_int_equal(tb_mem_live(), live);
	tb_pool_free(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_run_before_free),
		cmocka_unit_test(test_submit_from_task),
		cmocka_unit_test(test_results_by_loop),
		cmocka_unit_test(test_shared_buffer),
		cmocka_unit_test(test_new_fails_clean),
	};

	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
