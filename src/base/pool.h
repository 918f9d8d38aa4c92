/*
 * TbPool: decode threads with one queue. With 0 threads a task runs inside tb_pool_submit, which
 * is how backends and unit tests use the same code without threads. Threads start with all signals
 * blocked.
 */
#ifndef TB_BASE_POOL_H
#define TB_BASE_POOL_H

#include "base/loop.h"

typedef struct TbPool TbPool;

extern TbStatus tb_pool_new(int threads, TbPool **pool, TbError *err) TB_MUST_CHECK;
extern void tb_pool_free(TbPool *pool); /* waits for tasks that were submitted */
extern int	tb_pool_threads(const TbPool *pool);

/* Run task on some thread of the pool (now, where it has none). */
extern void tb_pool_submit(TbPool *pool, TbTask *task);

#endif
