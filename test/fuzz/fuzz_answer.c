/*
 * Fuzz target: a hostile answer to a request for bytes. Byte 0 chooses what is asked, bytes 1 to 4 offset and
 * length, byte 5 how the body comes in pieces; then follow header lines, an empty line and the body. Bytes
 * that are believed are exactly the asked ones of what the answer says it is; missing is only what the status
 * says is missing.
 */
#include "io/http_answer.h"

#include <stdlib.h>
#include <string.h>

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FIXED_BYTES 6
#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

typedef struct Case
{
	TbOp		op;
	TbAnswer	answer;
	const uint8_t *body;
	size_t		body_len;
} Case;

/* Feed header lines. false: refused. Sets the body. */
static bool
feed_head(Case *c, const uint8_t *data, size_t size)
{
	while (size > 0 && !c->answer.head.complete)
	{
		const uint8_t *end = memchr(data, '\n', size);
		size_t		n = end != NULL ? (size_t) (end - data) + 1 : size;

		if (!tb_answer_header(&c->answer, (const char *) data, n))
			return false;
		data += n;
		size -= n;
	}
	c->body = data;
	c->body_len = size;
	return c->answer.head.complete;
}

static bool
feed_body(Case *c, size_t piece)
{
	const uint8_t *at = c->body;
	size_t		left = c->body_len;

	while (left > 0)
	{
		size_t		n = piece < left ? piece : left;

		if (!tb_answer_body(&c->answer, at, n))
			return false;
		at += n;
		left -= n;
	}
	return true;
}

/* An answer was believed. */
static void
check_bytes(const Case *c)
{
	const TbOp *op = &c->op;
	int			status = c->answer.head.status;
	uint64_t	at = 0;

	CHECK(status == 200 || status == 206);
	CHECK(!c->answer.head.encoded && op->data != NULL);
	CHECK(op->object_size != UINT64_MAX);
	if (op->kind == TB_RANGE_WHOLE)
		CHECK(status == 200 && op->data->len <= op->length && op->data->len == op->object_size);
	else
		CHECK(op->data->len == op->length && op->length <= op->object_size);
	if (status == 200 && op->kind == TB_RANGE_AT)
		at = op->offset;
	else if (status == 200 && op->kind == TB_RANGE_LAST)
		at = op->object_size - op->length;
	if (status == 206)
		CHECK(c->answer.head.first == (op->kind == TB_RANGE_AT ? op->offset : op->object_size - op->length));
	CHECK(at + op->data->len <= c->body_len);
	CHECK(op->data->len == 0 || memcmp(op->data->data, c->body + at, op->data->len) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	TbIo		io = {0};
	TbStore		store = {.io = &io, .url = (char *) "http://host/store"};
	Case		c = {0};
	bool		whole;

	if (size < FIXED_BYTES)
		return 0;
	pthread_mutex_init(&io.mu, NULL);
	c.op.store = &store;
	c.op.key = "key";
	c.op.kind = (TbRangeKind) (data[0] % 3);
	c.op.if_version = data[0] & 0x80 ? "\"v\"" : NULL;
	c.op.offset = c.op.kind == TB_RANGE_AT ? (uint64_t) data[1] | (uint64_t) data[2] << 8 : 0;
	c.op.length = ((uint64_t) data[3] | (uint64_t) data[4] << 8) + (c.op.kind != TB_RANGE_WHOLE);
	c.op.object_size = UINT64_MAX;
	tb_answer_begin(&c.answer, &c.op);
	whole = feed_head(&c, data + FIXED_BYTES, size - FIXED_BYTES) && feed_body(&c, (size_t) data[5] + 1);
	if (whole)
		tb_answer_end(&c.answer);
	else
		CHECK(c.op.status != TB_OK || c.op.missing || c.answer.redirect || !c.answer.judged);
	if (c.op.missing)
		CHECK(c.answer.head.status == 404 || c.answer.head.status == 410);
	else if (whole && c.op.status == TB_OK && !c.answer.redirect)
		check_bytes(&c);
	tb_buf_unref(c.op.data);
	for (size_t i = 0; i < TB_SPARE_BUFS; i++)
		tb_buf_unref(io.spare[i]);
	pthread_mutex_destroy(&io.mu);
	return 0;
}
