/*
 * Which answers are believed.
 *
 *   206  its Content-Range is exactly the asked range, the object's length is told
 *   200  to a request for all: the length is told, or the body's end is marked (chunked)
 *        to a request for a range: the range is cut out, if that costs little
 *   200, 201, 204  to a request that is no read: done, its body is taken up to what is wanted
 *   304  to a request for another version than the caller's: there is none
 *   404, 410  the object is missing
 *   anything else is an error; what may pass is marked retryable
 *
 * Bytes go straight to their place in op->data. Bodies nobody wants are read up to a cap, because
 * that keeps the connection.
 */
#include "io/http_answer.h"
#include "io/http_checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DISCARD_MAX_BYTES ((uint64_t) 16 << 10)
#define WHOLE_MAX_BYTES ((uint64_t) 16 << 20)	/* of an object that is read for a range of it */

void
tb_answer_begin(TbAnswer *a, TbOp *op)
{
	memset(a, 0, sizeof(*a));
	a->op = op;
	a->expected = UINT64_MAX;
	tb_head_reset(&a->head);
}

void
tb_answer_clear(TbAnswer *a)
{
	tb_buf_unref(a->refusal);
	a->refusal = NULL;
}

/* Fail with the status in the detail. Returns false, for tb_answer_header. */
static bool
refuse(TbAnswer *a, TbStatus code, bool retryable, const char *message)
{
	tb_op_fail(a->op, code, retryable, message);
	a->op->error.http_status = a->head.status;
	if (a->head.status != 0)
		tb_error_detail(&a->op->error, "HTTP status %d", a->head.status);
	return false;
}

/* An answer that breaks the rules; another connection may lead to a better one. */
static bool
breach(TbAnswer *a, const char *message)
{
	return refuse(a, TB_E_PROTOCOL, true, message);
}

/* As breach, of an answer to a range request. */
static bool
range_breach(TbAnswer *a, const char *message)
{
	(void) breach(a, message);
	tb_error_hint(&a->op->error, "The endpoint must support range requests.");
	return false;
}

static bool
make_room(TbAnswer *a, uint64_t bytes)
{
	TbOp	   *op = a->op;

	op->data = tb_op_buf(op, (size_t) bytes);
	if (op->data == NULL)
		tb_op_nomem(op);
	return op->data != NULL;
}

/* Version and size are known: compare, and find the wanted bytes in the object. */
static bool
locate(TbAnswer *a, uint64_t size, uint64_t *offset)
{
	TbOp	   *op = a->op;

	op->object_size = size;
	tb_head_version(&a->head, size, op->version);
	if (tb_op_check_version(op) == TB_OK)
		(void) tb_op_locate(op, size, offset, &a->want);
	if (op->status == TB_OK)
		return true;
	op->error.http_status = a->head.status;
	tb_error_detail(&op->error, "HTTP status %d", a->head.status);
	return false;
}

static bool
too_much(TbAnswer *a)
{
	refuse(a, TB_E_UNSUPPORTED, false, "server ignores byte ranges");
	tb_error_hint(&a->op->error, "The endpoint must support range requests.");
	return false;
}

/* The most that is read of an object whose length is not told. */
static uint64_t
grow_limit(const TbOp *op)
{
	if (op->kind == TB_RANGE_WHOLE)
		return op->length;
	return op->length > WHOLE_MAX_BYTES / 2 ? op->length * 2 : WHOLE_MAX_BYTES;
}

static bool
judge_whole(TbAnswer *a)
{
	TbOp	   *op = a->op;

	if (a->head.chunked)
	{
		a->grow = true;
		return make_room(a, 0);
	}
	if (a->head.length_field != TB_FIELD_GOOD)
		return breach(a, "server does not tell an answer's length");
	if (op->kind != TB_RANGE_WHOLE && a->head.length > grow_limit(op))
		return too_much(a);
	a->expected = a->head.length;
	if (!locate(a, a->head.length, &a->skip))
	{
		/* what should be a range is a whole that does not hold it: likely an error page */
		op->error.retryable = op->kind != TB_RANGE_WHOLE;
		return false;
	}
	return make_room(a, a->want);
}

static bool
judge_part(TbAnswer *a)
{
	const TbHttpHead *head = &a->head;
	uint64_t	offset;

	if (a->op->kind == TB_RANGE_WHOLE)
		return breach(a, "server sends a part where the whole was asked");
	if (head->range_field != TB_FIELD_GOOD)
		return range_breach(a, "server sends a part without a valid Content-Range");
	if (!locate(a, head->total, &offset))
		return false;
	if (head->first != offset || head->last != offset + a->want - 1)
	{
		range_breach(a, "server sends another range than asked");
		tb_error_detail(&a->op->error, "sent %" PRIu64 " to %" PRIu64 " of %" PRIu64, head->first,
						head->last, head->total);
		return false;
	}
	if (!head->chunked && head->length_field != TB_FIELD_ABSENT &&
		(head->length_field == TB_FIELD_BAD || head->length != a->want))
		return breach(a, "server contradicts itself about an answer's length");
	a->expected = a->want;
	return make_room(a, a->want);
}

/* A request that is no read has succeeded. Its body is taken where one is wanted. */
static bool
judge_done(TbAnswer *a)
{
	TbOp	   *op = a->op;
	bool		told = a->head.length_field == TB_FIELD_GOOD;

	tb_head_version(&a->head, UINT64_MAX, op->version);
	if (op->length == 0 || a->head.status == 204 || (told && a->head.length == 0))
	{
		a->discard = true;
		return make_room(a, 0);
	}
	if (a->head.chunked)
	{
		a->grow = true;
		return make_room(a, 0);
	}
	if (!told)
		return breach(a, "server does not tell an answer's length");
	if (a->head.length > op->length)
		return refuse(a, TB_E_LIMIT, false, "answer of the server is larger than allowed");
	a->expected = a->want = a->head.length;
	return make_room(a, a->want);
}

/* 416: nothing of the range exists. */
static void
judge_unsatisfied(TbAnswer *a)
{
	if (a->op->kind == TB_RANGE_LAST)
		refuse(a, TB_E_CORRUPT, false, "object is too short");
	else
		refuse(a, TB_E_CHANGED, false, "object is shorter than when it was looked at");
}

static void
judge_error(TbAnswer *a)
{
	int			status = a->head.status;
	TbError    *err = &a->op->error;

	if (status == 401)
	{
		refuse(a, TB_E_AUTH, false, "server asks for other credentials");
		tb_error_hint(err, "Check the user mapping.");
	}
	else if (status == 403)
	{
		refuse(a, TB_E_DENIED, false, "server denies access");
		tb_error_hint(err, "Check the permissions of the store and the user mapping.");
	}
	else if (status == 416)
		judge_unsatisfied(a);
	else if (status == 412)
		refuse(a, TB_E_CHANGED, false, a->op->create_once ? "object exists already" : "object has changed");
	else if (status == 409 && a->op->verb != TB_VERB_READ)
		refuse(a, TB_E_CHANGED, true, "object is being written by another");
	else if (status == 413)
		refuse(a, TB_E_LIMIT, false, "object is larger than the server allows");
	else if (status == 507)
		refuse(a, TB_E_NO_SPACE, false, "no space left in the store");
	else if (status == 429 || status == 503)
	{
		refuse(a, TB_E_THROTTLED, true, "server is throttling requests");
		tb_error_hint(err, "Lower the number of concurrent requests.");
		if (a->head.retry_after_ms >= 0)
			tb_error_detail(err, "asked to wait %" PRId64 " s", a->head.retry_after_ms / 1000);
	}
	else if (status == 408 || status == 500 || status == 502 || status == 504)
		refuse(a, TB_E_LOST, true, "server failed to answer");
	else
		refuse(a, TB_E_PROTOCOL, false, "server sends an unexpected status");
	err->retry_after_ms = a->head.retry_after_ms;
}

/* 304: the object is what the caller has. */
static void
judge_unmodified(TbAnswer *a)
{
	TbOp	   *op = a->op;

	op->not_modified = true;
	(void) snprintf(op->version, sizeof(op->version), "%.95s", op->unless_version);
	if (a->head.etag_field == TB_FIELD_GOOD && strcmp(a->head.etag, op->unless_version) != 0)
	{
		op->not_modified = false;
		(void) breach(a, "server contradicts itself about an object's version");
	}
}

/* The head is complete. */
static bool
judge(TbAnswer *a)
{
	int			status = a->head.status;

	a->judged = true;
	if ((status == 200 || status == 206) && a->head.encoded)
	{
		refuse(a, TB_E_PROTOCOL, false, "server encodes content that was asked plain");
		tb_error_hint(&a->op->error, "Turn off compression for the store's objects.");
		return false;
	}
	if (a->op->verb != TB_VERB_READ && (status == 200 || status == 201 || status == 204))
		return judge_done(a);
	if (status == 200)
		return judge_whole(a);
	if (status == 206)
		return judge_part(a);
	a->discard = true;
	if (status == 304 && a->op->unless_version != NULL)
		judge_unmodified(a);
	else if (status == 404 || status == 410)
		a->op->missing = true;
	else if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308)
		a->redirect = true;
	else
		judge_error(a);
	return a->keep_errors || a->head.length_field != TB_FIELD_GOOD || a->head.length <= DISCARD_MAX_BYTES;
}

bool
tb_answer_header(TbAnswer *a, const char *line, size_t len)
{
	if (!tb_head_line(&a->head, line, len, (int64_t) time(NULL)))
	{
		if (a->op->status == TB_OK)
			refuse(a, TB_E_PROTOCOL, false, "headers of an answer are too long");
		return false;
	}
	if (a->head.complete && !a->judged)
		return judge(a);
	return true;
}

/* Keep a piece of a body whose length is not told. */
static bool
take_growing(TbAnswer *a, const uint8_t *bytes, size_t len)
{
	TbOp	   *op = a->op;
	TbStatus	status = tb_buf_append(op->data, bytes, len, (size_t) grow_limit(op));

	if (status == TB_OK)
		return true;
	if (status != TB_E_LIMIT)
		tb_op_nomem(op);
	else if (op->kind == TB_RANGE_WHOLE)
		refuse(a, TB_E_LIMIT, false, "object is larger than allowed");
	else
		too_much(a);
	return false;
}

/* Keep the beginning of an error's body; without memory for it the error is told by its status alone. */
static void
keep(TbAnswer *a, const uint8_t *bytes, size_t len)
{
	size_t		room;

	if (a->refusal == NULL)
		a->refusal = tb_buf_new(0);
	if (a->refusal == NULL)
		return;
	room = DISCARD_MAX_BYTES - a->refusal->len;
	if (tb_buf_append(a->refusal, bytes, len < room ? len : room, DISCARD_MAX_BYTES) != TB_OK)
		tb_answer_clear(a);
}

bool
tb_answer_body(TbAnswer *a, const uint8_t *bytes, size_t len)
{
	TbBuf	   *data = a->op->data;
	uint64_t	left;

	a->received += len;
	tb_store_count(a->op->store, bytes, len);
	if (a->discard)
	{
		if (a->keep_errors)
			keep(a, bytes, len);
		return a->received <= DISCARD_MAX_BYTES;
	}
	if (a->op->status != TB_OK || data == NULL)
		return false;
	if (a->grow)
		return take_growing(a, bytes, len);
	if (a->received > a->expected)
		return breach(a, "server sends more than it said");
	if (a->skip > 0)
	{
		size_t		n = a->skip < len ? (size_t) a->skip : len;

		a->skip -= n;
		bytes += n;
		len -= n;
	}
	left = a->want - data->len;
	if (len > left)
		len = (size_t) left;	/* behind the range, in a whole object */
	if (len > 0)
	{
		memcpy(data->data + data->len, bytes, len);
		data->len += len;
	}
	return true;
}

/* Cut the range out of a body that was kept whole. */
static void
cut(TbAnswer *a)
{
	TbBuf	   *data = a->op->data;
	uint64_t	offset;

	if (a->op->verb != TB_VERB_READ)
		return;
	if (!locate(a, data->len, &offset))
	{
		a->op->error.retryable = a->op->kind != TB_RANGE_WHOLE;
		return;
	}
	if (offset > 0)
		memmove(data->data, data->data + offset, (size_t) a->want);
	data->len = (size_t) a->want;
}

/* Compare a whole object with the checksums that came with it. */
static void
check_whole(TbAnswer *a)
{
	TbOp	   *op = a->op;
	const char *which;

	if (op->verb != TB_VERB_READ || op->data->len != op->object_size ||
		tb_checksum_agrees(&a->head, op->data->data, op->data->len, &which))
		return;
	(void) refuse(a, TB_E_CORRUPT, true, "object does not match its checksum");
	tb_error_detail(&op->error, "header %s", which);
}

void
tb_answer_end(TbAnswer *a)
{
	TbOp	   *op = a->op;

	if (!a->judged)
		refuse(a, TB_E_LOST, true, "answer ends early");	/* within the head */
	else if (op->status != TB_OK || op->missing || op->not_modified || a->discard)
		return;
	else if (a->grow)
		cut(a);
	else if (a->received != a->expected || op->data->len != a->want)
		refuse(a, TB_E_LOST, true, "answer ends early");
	if (op->status == TB_OK)
		check_whole(a);
}
