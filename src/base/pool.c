/*
 * Threads with one queue, first come first served. What a task does with its result (usually
 * tb_loop_post) is its own affair.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* pthread_setname_np */
#endif

#include "base/pool.h"
#include "base/mem.h"

#include <pthread.h>
#include <signal.h>

#define MAX_THREADS 1024

struct TbPool
{
	/* fixed once tb_pool_new has returned */
	pthread_t  *threads;		/* owned */
	int			n_threads;

	/* guarded by mu */
	pthread_mutex_t mu;
	pthread_cond_t wake;		/* a task waits, or the end */
	TbTask	   *head;			/* borrowed */
	TbTask	   *tail;
	bool		stopping;
};

/* Next task, or NULL at the end: the queue is empty and nobody will submit. */
static TbTask *
take(TbPool *pool)
{
	TbTask	   *task;

	pthread_mutex_lock(&pool->mu);
	while (pool->head == NULL && !pool->stopping)
		pthread_cond_wait(&pool->wake, &pool->mu);
	task = pool->head;
	if (task != NULL)
	{
		pool->head = task->next;
		if (pool->head == NULL)
			pool->tail = NULL;
		task->next = NULL;
	}
	pthread_mutex_unlock(&pool->mu);
	return task;
}

static void *
work(void *argument)
{
	TbPool	   *pool = argument;
	TbTask	   *task;

	(void) pthread_setname_np(pthread_self(), "tb-pool");
	while ((task = take(pool)) != NULL)
		task->run(task);
	return NULL;
}

/* Start the threads with all signals blocked: signals are for the host's own thread. */
static int
start_threads(TbPool *pool, int threads)
{
	sigset_t	all;
	sigset_t	before;
	int			code = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	while (pool->n_threads < threads && code == 0)
	{
		code = pthread_create(&pool->threads[pool->n_threads], NULL, work, pool);
		if (code == 0)
			pool->n_threads++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

/* owns: the caller, tb_pool_free. errors: INVALID, NOMEM, IO (threads refused). */
TbStatus
tb_pool_new(int threads, TbPool **pool, TbError *err)
{
	TbPool	   *p;
	int			code;

	*pool = NULL;
	if (threads < 0 || threads > MAX_THREADS)
	{
		tb_fail(err, TB_E_INVALID, "invalid number of decode threads");
		tb_error_detail(err, "%d, allowed are 0 to %d", threads, MAX_THREADS);
		return TB_E_INVALID;
	}
	p = tb_calloc(1, sizeof(*p));
	if (p == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	p->threads = tb_calloc((size_t) threads, sizeof(*p->threads));
	if (p->threads == NULL)
	{
		tb_free(p);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	pthread_mutex_init(&p->mu, NULL);
	pthread_cond_init(&p->wake, NULL);
	code = start_threads(p, threads);
	if (code != 0)
	{
		tb_pool_free(p);
		return tb_fail_errno(err, code, "start decode threads", NULL);
	}
	*pool = p;
	return TB_OK;
}

/* Runs what was submitted to its end. NULL allowed. thread: none of the pool's. */
void
tb_pool_free(TbPool *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->mu);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->mu);
	for (int i = 0; i < pool->n_threads; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->mu);
	tb_free(pool->threads);
	tb_free(pool);
}

int
tb_pool_threads(const TbPool *pool)
{
	return pool->n_threads;
}

/* The task must not wait in any queue already. thread: any. */
void
tb_pool_submit(TbPool *pool, TbTask *task)
{
	if (pool->n_threads == 0)
	{
		task->run(task);
		return;
	}
	task->next = NULL;
	pthread_mutex_lock(&pool->mu);
	if (pool->tail != NULL)
		pool->tail->next = task;
	else
		pool->head = task;
	pool->tail = task;
	pthread_cond_signal(&pool->wake);
	pthread_mutex_unlock(&pool->mu);
}
