/*
 * Writing an object to S3: one PUT up to 16 MiB, a multipart upload above.
 *
 *   create-once, large: LOOK (is it there?) -> START -> PARTS, four at a time -> JOIN (complete) -> done
 *   small: WHOLE -> done                   any of them refused as existing: COMPARE -> done
 *
 * Create-once is If-None-Match: *. A PUT with it is refused where the object exists by radosgw 16 and SeaweedFS 4
 * (seen: 412) and by AWS (documented). CompleteMultipartUpload with it is by SeaweedFS (seen) and AWS
 * (documented), while radosgw ignores it and replaces the object (seen). So a large object is looked for first,
 * which leaves radosgw a race between two who write the same large key at the same time. Such keys are hashes of
 * their content here; what races, heads of an index, is small.
 *
 * "Exists already" may be our own doing: the answer to an attempt was lost and it was made again. So what is there
 * is compared with what was to be written, and is as good as written where it is the same.
 */
#include <stdio.h>
#include <string.h>

#include "io/job.h"
#include "io/s3_xml.h"

#define WHOLE_MAX_BYTES ((size_t) 16 << 20)
#define PART_BYTES ((size_t) 8 << 20)
#define PARTS_MAX ((size_t) 10000)
#define IN_FLIGHT 4
#define ANSWER_MAX_BYTES ((uint64_t) 64 << 10)
#define ATTEMPTS 4				/* at an object that comes and goes */
#define ETAG_BYTES sizeof(((TbOp *) NULL)->version)
#define UPLOAD_BYTES 1024

typedef struct Put
{
	TbJob	   *job;			/* borrowed: it owns this */
	char	   *key;			/* owned */
	TbBuf	   *bytes;			/* a reference */
	bool		create_once;
	int			attempts;		/* refused as existing, and then not there */
	TbOp	   *op[IN_FLIGHT];	/* NULL: free */
	size_t		part[IN_FLIGHT];	/* that it sends, from 0 */

	/* multipart */
	char		upload[UPLOAD_BYTES];	/* "": none to be aborted */
	size_t		part_bytes;
	size_t		n_parts;
	size_t		started;
	size_t		ended;
	char		(*etag)[ETAG_BYTES];	/* owned; of each part */

	/* comparing */
	size_t		compared;
	char		version[ETAG_BYTES];	/* of the object that is compared */
	TbError		refusal;		/* what is reported where it is another */
} Put;

static void start_upload(Put *put);

/* ---- requests ---- */

static void
nobody_waits(TbOp *op)
{
}

/*
 * Have an upload forgotten, whatever comes of it: parts that lie around cost money. Its request outlives the job;
 * where nobody pumps any more it is not made, which the bucket's lifecycle rule for incomplete uploads is for.
 */
static void
abort_upload(Put *put)
{
	TbBuf	   *query;
	TbOp	   *op = NULL;

	if (put->upload[0] == '\0')
		return;
	query = tb_buf_new(64);
	if (query != NULL && tb_buf_printf(query, "uploadId=") == TB_OK &&
		tb_s3_query_escape(query, put->upload) == TB_OK && tb_buf_append(query, "", 1, SIZE_MAX) == TB_OK)
		op = tb_op_new(put->job->store, TB_VERB_DELETE, put->key, NULL, (const char *) query->data);
	tb_buf_unref(query);
	put->upload[0] = '\0';
	if (op == NULL)
		return;
	op->length = ANSWER_MAX_BYTES;
	op->ended = nobody_waits;
	tb_op_submit(op);
}

static void
free_put(TbJob *job)
{
	Put		   *put = job->work;

	for (int i = 0; i < IN_FLIGHT; i++)
		if (put->op[i] != NULL)
			tb_op_cancel(put->op[i]);
	abort_upload(put);
	tb_buf_unref(put->bytes);
	tb_free(put->etag);
	tb_free(put->key);
	tb_free(put);
}

/* A request in a free place, not yet submitted. false: the job ended. */
static bool
new_op(Put *put, int place, TbVerb verb, const char *query, void (*ended) (TbOp *op))
{
	TbOp	   *op = tb_op_new(put->job->store, verb, put->key, NULL, query);

	if (op == NULL)
	{
		tb_job_nomem(put->job);
		return false;
	}
	op->length = ANSWER_MAX_BYTES;
	op->ended = ended;
	op->arg = put;
	put->op[place] = op;
	return true;
}

/* The place of an op that has ended, free again. */
static int
leave_place(Put *put, const TbOp *op)
{
	int			i = 0;

	while (put->op[i] != op)
		i++;
	put->op[i] = NULL;
	return i;
}

/* ---- is what is there ours? ---- */

static void compare_next(Put *put);
static void send_whole(Put *put);

/* It is not ours, or cannot be compared. */
static void
refuse(Put *put)
{
	tb_job_end(put->job, put->refusal.code, &put->refusal);
}

/* It was there and is gone: once more. */
static void
try_again(Put *put)
{
	if (++put->attempts >= ATTEMPTS)
		refuse(put);
	else if (put->bytes->len <= WHOLE_MAX_BYTES)
		send_whole(put);
	else
		start_upload(put);
}

static void
compare_ended(TbOp *op)
{
	Put		   *put = op->arg;
	size_t		len = put->bytes->len;

	(void) leave_place(put, op);
	if (op->status == TB_OK && op->missing)
		try_again(put);
	else if (op->status == TB_E_LIMIT || op->status == TB_E_CHANGED || op->status == TB_E_CORRUPT ||
			 op->status == TB_E_DENIED)
		refuse(put);			/* of another size, or not to be read */
	else if (op->status != TB_OK)
		tb_job_end(put->job, op->status, &op->error);
	else if (op->data == NULL || op->data->len > len - put->compared ||
			 (op->object_size != UINT64_MAX && op->object_size != len) ||
			 memcmp(op->data->data, put->bytes->data + put->compared, op->data->len) != 0)
		refuse(put);
	else
	{
		put->compared += op->data->len;
		memcpy(put->version, op->version, sizeof(put->version));
		if (op->kind == TB_RANGE_WHOLE && put->compared != len)
			refuse(put);
		else if (put->compared == len)
			tb_job_end(put->job, TB_OK, NULL);
		else
			compare_next(put);
	}
}

/* Small objects whole, large ones piece by piece of one version. */
static void
compare_next(Put *put)
{
	size_t		left = put->bytes->len - put->compared;
	TbOp	   *op = tb_op_new(put->job->store, TB_VERB_READ, put->key, put->compared > 0 ? put->version : NULL, NULL);

	if (op == NULL)
	{
		tb_job_nomem(put->job);
		return;
	}
	op->kind = put->bytes->len <= WHOLE_MAX_BYTES ? TB_RANGE_WHOLE : TB_RANGE_AT;
	op->offset = put->compared;
	op->length = left < WHOLE_MAX_BYTES ? left : WHOLE_MAX_BYTES;
	op->ended = compare_ended;
	op->arg = put;
	put->op[0] = op;
	tb_op_submit(op);
}

static void
compare(Put *put, const TbError *refusal)
{
	abort_upload(put);
	put->refusal = *refusal;
	put->compared = 0;
	compare_next(put);
}

/* ---- one PUT ---- */

static void
whole_ended(TbOp *op)
{
	Put		   *put = op->arg;

	(void) leave_place(put, op);
	if (op->status == TB_E_CHANGED && put->create_once)
		compare(put, &op->error);
	else if (op->status == TB_OK && op->missing)
		tb_job_fail(put->job, TB_E_NOT_FOUND, "store does not exist", put->key);
	else
		tb_job_end(put->job, op->status, &op->error);
}

static void
send_whole(Put *put)
{
	if (!new_op(put, 0, TB_VERB_PUT, NULL, whole_ended))
		return;
	put->op[0]->body = tb_buf_ref(put->bytes);
	put->op[0]->create_once = put->create_once;
	tb_op_submit(put->op[0]);
}

/* ---- in parts ---- */

static void
fail_here(Put *put, TbStatus code, const char *message)
{
	tb_job_fail(put->job, code, message, put->key);
}

/* Also an empty result counts: radosgw tells no ETag at first. */
static TbStatus
take_result(void *arg, const char *path, const char *text, size_t len, TbError *err)
{
	bool	   *joined = arg;

	*joined = *joined || strncmp(path, "CompleteMultipartUploadResult/", 30) == 0;
	return TB_OK;
}

/*
 * Status 200 is sent before the server knows: the body tells how it went. An error in it was taken for one by the
 * store already, so what is left is either the result or no answer.
 */
static void
join_ended(TbOp *op)
{
	Put		   *put = op->arg;
	bool		joined = false;
	TbError		error;

	(void) leave_place(put, op);
	if (op->status == TB_OK && op->missing)
	{
		/* no such upload: an attempt before this one has joined it, or it is lost */
		put->upload[0] = '\0';
		tb_fail(&error, TB_E_LOST, "multipart upload is gone");
		tb_error_detail(&error, "%.200s/%.300s", put->job->store->url, put->key);
		put->attempts = ATTEMPTS;
		compare(put, &error);
	}
	else if (op->status == TB_E_CHANGED && put->create_once)
		compare(put, &op->error);
	else if (op->status != TB_OK)
		tb_job_end(put->job, op->status, &op->error);
	else if (op->data == NULL || tb_s3_xml_read(op->data->data, op->data->len, take_result, &joined, NULL) != TB_OK ||
			 !joined)
		fail_here(put, TB_E_PROTOCOL, "server does not say whether an upload is complete");
	else
	{
		put->upload[0] = '\0';
		tb_job_end(put->job, TB_OK, NULL);
	}
}

static TbStatus
print_parts(const Put *put, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out, "<CompleteMultipartUpload xmlns=\"%s\">",
									   "http://s3.amazonaws.com/doc/2006-03-01/");

	for (size_t i = 0; i < put->n_parts && status == TB_OK; i++)
	{
		status = tb_buf_printf(out, "<Part><PartNumber>%zu</PartNumber><ETag>", i + 1);
		if (status == TB_OK)
			status = tb_s3_xml_escape(out, put->etag[i]);
		if (status == TB_OK)
			status = tb_buf_printf(out, "</ETag></Part>");
	}
	return status == TB_OK ? tb_buf_printf(out, "</CompleteMultipartUpload>") : status;
}

/* "partNumber=1&uploadId=..." (part 0: without the former), NUL-terminated. NULL: memory is gone. */
static TbBuf *
upload_query(const Put *put, size_t part)
{
	TbBuf	   *query = tb_buf_new(128);
	TbStatus	status = query == NULL ? TB_E_NOMEM : TB_OK;

	if (status == TB_OK && part > 0)
		status = tb_buf_printf(query, "partNumber=%zu&", part);
	if (status == TB_OK)
		status = tb_buf_printf(query, "uploadId=");
	if (status == TB_OK)
		status = tb_s3_query_escape(query, put->upload);
	if (status == TB_OK)
		status = tb_buf_append(query, "", 1, SIZE_MAX);
	if (status == TB_OK)
		return query;
	tb_buf_unref(query);
	return NULL;
}

static void
join(Put *put)
{
	TbBuf	   *query = upload_query(put, 0);
	TbBuf	   *body = tb_buf_new(put->n_parts * 128);
	bool		made = false;

	if (query == NULL || body == NULL || print_parts(put, body) != TB_OK)
		tb_job_nomem(put->job);
	else
		made = new_op(put, 0, TB_VERB_POST, (const char *) query->data, join_ended);
	tb_buf_unref(query);
	if (!made)
	{
		tb_buf_unref(body);
		return;
	}
	put->op[0]->body = body;
	put->op[0]->create_once = put->create_once;
	tb_op_submit(put->op[0]);
}

static void send_parts(Put *put);

static void
part_ended(TbOp *op)
{
	Put		   *put = op->arg;
	size_t		part = put->part[leave_place(put, op)];

	if (op->status == TB_OK && op->missing)
		fail_here(put, TB_E_LOST, "multipart upload is gone");
	else if (op->status != TB_OK)
		tb_job_end(put->job, op->status, &op->error);
	else if (op->version[0] == '\0')
		fail_here(put, TB_E_PROTOCOL, "server does not name a part of an upload");
	else
	{
		memcpy(put->etag[part], op->version, ETAG_BYTES);
		put->ended++;
		if (put->ended == put->n_parts)
			join(put);
		else
			send_parts(put);
	}
}

/* Fill the free places with parts. */
static void
send_parts(Put *put)
{
	for (int i = 0; i < IN_FLIGHT && put->started < put->n_parts; i++)
	{
		size_t		offset = put->started * put->part_bytes;
		size_t		left = put->bytes->len - offset;
		TbBuf	   *query;
		TbBuf	   *body;
		bool		made = false;

		if (put->op[i] != NULL)
			continue;
		query = upload_query(put, put->started + 1);
		body = tb_buf_slice(put->bytes, offset, left < put->part_bytes ? left : put->part_bytes);
		if (query == NULL || body == NULL)
			tb_job_nomem(put->job);
		else
			made = new_op(put, i, TB_VERB_PUT, (const char *) query->data, part_ended);
		tb_buf_unref(query);
		if (!made)
		{
			tb_buf_unref(body);
			return;
		}
		put->op[i]->body = body;
		put->part[i] = put->started++;
		tb_op_submit(put->op[i]);
	}
}

static TbStatus
take_upload(void *arg, const char *path, const char *text, size_t len, TbError *err)
{
	Put		   *put = arg;

	if (strcmp(path, "InitiateMultipartUploadResult/UploadId") == 0 && len < sizeof(put->upload))
		memcpy(put->upload, text, len + 1);
	return TB_OK;
}

static void
upload_started(TbOp *op)
{
	Put		   *put = op->arg;

	(void) leave_place(put, op);
	if (op->status == TB_OK && op->missing)
		fail_here(put, TB_E_NOT_FOUND, "store does not exist");
	else if (op->status != TB_OK)
		tb_job_end(put->job, op->status, &op->error);
	else if (op->data == NULL || tb_s3_xml_read(op->data->data, op->data->len, take_upload, put, NULL) != TB_OK ||
			 put->upload[0] == '\0')
		fail_here(put, TB_E_PROTOCOL, "server does not name a multipart upload");
	else
		send_parts(put);
}

static void
start_upload(Put *put)
{
	size_t		least = (put->bytes->len + PARTS_MAX - 1) / PARTS_MAX;
	size_t		mib = (size_t) 1 << 20;

	put->part_bytes = least <= PART_BYTES ? PART_BYTES : (least + mib - 1) / mib * mib;
	put->n_parts = (put->bytes->len + put->part_bytes - 1) / put->part_bytes;
	put->started = put->ended = 0;
	tb_free(put->etag);
	put->etag = tb_calloc(put->n_parts, sizeof(*put->etag));
	if (put->etag == NULL)
		tb_job_nomem(put->job);
	else if (new_op(put, 0, TB_VERB_POST, "uploads=", upload_started))
		tb_op_submit(put->op[0]);
}

/* The first byte of what may be there. */
static void
looked(TbOp *op)
{
	Put		   *put = op->arg;
	TbError		error;

	(void) leave_place(put, op);
	if (op->status == TB_OK && op->missing)
		start_upload(put);
	else if (op->status == TB_E_DENIED)
		start_upload(put);		/* who may not list is not told of absence */
	else if (op->status != TB_OK && op->status != TB_E_CHANGED)
		tb_job_end(put->job, op->status, &op->error);
	else
	{
		tb_fail(&error, TB_E_CHANGED, "object exists already");
		tb_error_detail(&error, "%.200s/%.300s", put->job->store->url, put->key);
		compare(put, &error);
	}
}

static void
look(Put *put)
{
	if (!new_op(put, 0, TB_VERB_READ, NULL, looked))
		return;
	put->op[0]->kind = TB_RANGE_AT;
	put->op[0]->length = 1;
	tb_op_submit(put->op[0]);
}

void
tb_s3_put_begin(TbJob *job, const char *key, TbBuf *bytes, bool create_once)
{
	Put		   *put = tb_calloc(1, sizeof(*put));

	if (put == NULL)
	{
		tb_job_nomem(job);
		return;
	}
	job->work = put;
	job->free_work = free_put;
	put->job = job;
	put->bytes = tb_buf_ref(bytes);
	put->create_once = create_once;
	put->key = tb_strdup(key);
	if (put->key == NULL)
		tb_job_nomem(job);
	else if (bytes->len <= WHOLE_MAX_BYTES)
		send_whole(put);
	else if (create_once)
		look(put);
	else
		start_upload(put);
}
