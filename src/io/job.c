/*
 * Jobs: listing, writing and deleting in the background. Which way a store does it is decided here: at once by its
 * vtable (files, memory), by requests (S3), or not at all.
 */
#include "io/job.h"

#include <string.h>

#include "io/url.h"

#define ANSWER_MAX_BYTES ((uint64_t) 64 << 10)

void
tb_job_end(TbJob *job, TbStatus status, const TbError *error)
{
	job->status = status;
	if (error != NULL && error != &job->error)
		job->error = *error;
	if (status != TB_OK)
		tb_store_free_names(&job->names);
	if (job->free_work != NULL)
		job->free_work(job);
	job->free_work = NULL;
	job->work = NULL;
}

void
tb_job_nomem(TbJob *job)
{
	tb_job_end(job, tb_fail(&job->error, TB_E_NOMEM, "out of memory"), NULL);
}

void
tb_job_fail(TbJob *job, TbStatus code, const char *message, const char *key)
{
	tb_fail(&job->error, code, "%s", message);
	tb_error_detail(&job->error, "%.200s/%.300s", job->store->url, key);
	tb_job_end(job, code, NULL);
}

/* ---- deleting by a request ---- */

static void
delete_ended(TbOp *op)
{
	TbJob	   *job = op->arg;

	job->work = NULL;
	/* what is not there need not go */
	tb_job_end(job, op->status, &op->error);
}

static void
free_delete(TbJob *job)
{
	if (job->work != NULL)
		tb_op_cancel(job->work);
}

static void
begin_delete(TbJob *job, const char *key)
{
	TbOp	   *op = tb_op_new(job->store, TB_VERB_DELETE, key, NULL, NULL);

	if (op == NULL)
	{
		tb_job_nomem(job);
		return;
	}
	op->length = ANSWER_MAX_BYTES;
	op->ended = delete_ended;
	op->arg = job;
	job->work = op;
	job->free_work = free_delete;
	tb_op_submit(op);
}

/* ---- all of them ---- */

static TbStatus
new_job(TbStore *store, TbJob **job, TbError *err)
{
	*job = tb_calloc(1, sizeof(**job));
	if (*job == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	(*job)->store = store;
	(*job)->status = TB_AGAIN;
	tb_error_clear(&(*job)->error);
	return TB_OK;
}

static void
unsupported(TbJob *job, const char *what)
{
	tb_fail(&job->error, TB_E_UNSUPPORTED, "store cannot be %s", what);
	tb_error_detail(&job->error, "%s", job->store->url);
	tb_job_end(job, TB_E_UNSUPPORTED, NULL);
}

/* A key that no store takes ends the job. */
static bool
key_is_good(TbJob *job, const char *key)
{
	TbStatus	status = tb_key_check(key, &job->error);

	if (status != TB_OK)
		tb_job_end(job, status, NULL);
	return status == TB_OK;
}

TbStatus
tb_store_begin_list(TbStore *store, const char *prefix, TbJob **job, TbError *err)
{
	TbStatus	status = new_job(store, job, err);

	if (status != TB_OK)
		return status;
	if (!store->ops->can_list)
		unsupported(*job, "listed");
	else if (store->ops->list != NULL)
		tb_job_end(*job, tb_store_list(store, prefix, &(*job)->names, &(*job)->error), NULL);
	else if (prefix[0] == '\0' || key_is_good(*job, prefix))
		tb_s3_list_begin(*job, prefix);
	return TB_OK;
}

TbStatus
tb_store_begin_put(TbStore *store, const char *key, TbBuf *bytes, bool create_once, TbJob **job, TbError *err)
{
	TbStatus	status = new_job(store, job, err);

	if (status != TB_OK)
		return status;
	if (!store->ops->can_write)
		unsupported(*job, "written to");
	else if (store->ops->put != NULL)
		tb_job_end(*job, tb_store_put(store, key, bytes->data, bytes->len, create_once, &(*job)->error), NULL);
	else if (key_is_good(*job, key))
		tb_s3_put_begin(*job, key, bytes, create_once);
	return TB_OK;
}

TbStatus
tb_store_begin_delete(TbStore *store, const char *key, TbJob **job, TbError *err)
{
	TbStatus	status = new_job(store, job, err);

	if (status != TB_OK)
		return status;
	if (!store->ops->can_write)
		unsupported(*job, "written to");
	else if (store->ops->remove != NULL)
		tb_job_end(*job, tb_store_delete(store, key, &(*job)->error), NULL);
	else if (key_is_good(*job, key))
		begin_delete(*job, key);
	return TB_OK;
}

TbStatus
tb_job_poll(TbJob *job, TbError *err)
{
	if (job->status != TB_OK && job->status != TB_AGAIN && err != NULL)
		*err = job->error;
	return job->status;
}

const TbStoreNames *
tb_job_names(const TbJob *job)
{
	return &job->names;
}

void
tb_job_free(TbJob *job)
{
	if (job == NULL)
		return;
	if (job->free_work != NULL)
		job->free_work(job);
	tb_store_free_names(&job->names);
	tb_free(job);
}
