/* What aio.c and aio_uring.c share; no one else includes it. */
#ifndef TB_IO_AIO_PARTS_H
#define TB_IO_AIO_PARTS_H

#include <pthread.h>

#include "io/aio.h"

typedef struct TbUring TbUring;	/* aio_uring.c */

struct TbAio
{
	/* fixed */
	TbLoop	   *loop;			/* borrowed */
	TbPool	   *pool;			/* borrowed; NULL: none */
	TbAioMethod method;
	int			why_not;
	TbUring    *uring;			/* owned; URING */

	/* the loop's thread */
	TbWatch		watch;			/* its fd: something has ended */
	TbBuf	   *fixed[TB_AIO_FIXED_COUNT];	/* one reference each; free when it is the only one */
	int			n_fixed;
	bool		taking;			/* what has ended is being taken: no need to ring for more */

	/* guarded by mu */
	pthread_mutex_t mu;
	pthread_cond_t idle;
	int			busy;			/* ops with pool threads */
	TbAioOp    *ended;
	TbAioOp    *ended_last;
};

/* Record that op has ended; its done is called from the pump. thread: any. */
extern void tb_aio_ended(TbAio *aio, TbAioOp *op);

/* Set up the ring; its completions make aio->watch.fd readable. Returns 0 or an errno: then there is none. */
extern int	tb_uring_new(TbAio *aio, TbUring **uring);
extern void tb_uring_submit(TbUring *uring, TbAioOp *op);
extern void tb_uring_reap(TbUring *uring);	/* what has ended goes to tb_aio_ended */
/* Have the kernel know the fixed buffers beforehand. false: it does not want to. */
extern bool tb_uring_register(TbUring *uring, TbBuf *const *bufs, int n);
extern void tb_uring_free(TbUring *uring);	/* waits for what is in flight */

#endif
