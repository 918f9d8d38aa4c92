/*
 * Private to the room: a job (io.h) from the inside. Where a store lists and writes by its vtable a job is over
 * when it has begun; where it answers requests, a job is a small state machine that submits ops, one after the
 * other or a few together (s3_list.c, s3_put.c).
 *
 * thread: the loop's.
 */
#ifndef TB_IO_JOB_H
#define TB_IO_JOB_H

#include "io/store.h"

struct TbJob
{
	TbStore    *store;			/* borrowed; stays open for as long as the job is there */
	TbStatus	status;			/* AGAIN until it has ended */
	TbError		error;
	TbStoreNames names;			/* owned; of a list */
	size_t		room;			/* of names */
	void	   *work;			/* owned by free_work; NULL: none */
	void		(*free_work) (TbJob *job);	/* cancels what is in flight */
};

/* The job is over; error: of one that failed. work goes. */
extern void tb_job_end(TbJob *job, TbStatus status, const TbError *error);
extern void tb_job_nomem(TbJob *job);
/* It failed for a reason of its own, at key. */
extern void tb_job_fail(TbJob *job, TbStatus code, const char *message, const char *key);

/* Where listing and writing are requests: begin. What fails at once ends the job. */
extern void tb_s3_list_begin(TbJob *job, const char *prefix);
extern void tb_s3_put_begin(TbJob *job, const char *key, TbBuf *bytes, bool create_once);

#endif
