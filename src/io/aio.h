/*
 * Disk I/O that does not hold up the loop: io_uring where the kernel lets us, else the pool's
 * threads with pread and pwrite, else (no threads) the calls themselves. One interface, the method
 * is chosen when it is opened.
 *
 * thread: the loop's.
 */
#ifndef TB_IO_AIO_H
#define TB_IO_AIO_H

#include "base/base.h"

typedef struct TbAio TbAio;

typedef enum TbAioMethod
{
	TB_AIO_SYNC, TB_AIO_POOL, TB_AIO_URING
} TbAioMethod;

/* method: the best wanted; a lesser one is used where it cannot be had. errors: NOMEM, IO. pool: NULL or borrowed. */
extern TbStatus tb_aio_new(TbLoop *loop, TbPool *pool, TbAioMethod method, TbAio **aio, TbError *err) TB_MUST_CHECK;
extern void tb_aio_free(TbAio *aio);	/* waits for what is in flight, calling nobody; NULL allowed */
extern TbAioMethod tb_aio_method(const TbAio *aio);
extern int	tb_aio_why_not_uring(const TbAio *aio); /* errno of io_uring_setup; 0: it is used or was not wanted */

/*
 * One transfer of a whole range, short reads and EINTR continued. The caller's until done; the
 * memory must stay for as long: there is no cancel, who wants no answer lets done come.
 */
typedef struct TbAioOp
{
	int			fd;
	bool		write;
	uint64_t	offset;
	void	   *bytes;
	size_t		len;
	void		(*done) (struct TbAioOp *op);	/* from the pump */
	void	   *arg;

	int64_t		result;			/* bytes, less than len at the end of the file; or -errno */

	/* the room's */
	size_t		at;				/* bytes transferred so far */
	struct TbAioOp *next;
	TbTask		task;
	TbAio	   *aio;
} TbAioOp;
extern void tb_aio_submit(TbAio *aio, TbAioOp *op);

/* A buffer that the method knows beforehand (io_uring: registered), for reads and writes of up to
 * its size; NULL when all are in use:
 * use any other memory then. */
#define TB_AIO_FIXED_BYTES ((size_t) 1 << 20)
#define TB_AIO_FIXED_COUNT 8
extern TbBuf *tb_aio_fixed(TbAio *aio);

#endif
