/* Reference-counted bytes. Growing copies, because realloc would lose the alignment. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIN_CAP 256				/* the first growth of an empty buffer */
#define KEEP_PART 2				/* a part of less than this of a whole is kept alone */

/* A buffer with room for cap bytes and none in use. */
TbBuf *
tb_buf_new(size_t cap)
{
	TbBuf	   *buf = tb_calloc(1, sizeof(*buf));

	if (buf == NULL)
		return NULL;
	buf->refs = 1;
	if (tb_buf_reserve(buf, cap) != TB_OK)
	{
		tb_free(buf);
		return NULL;
	}
	return buf;
}

/* One more owner. thread: any that holds a reference. */
TbBuf *
tb_buf_ref(TbBuf *buf)
{
	__atomic_add_fetch(&buf->refs, 1, __ATOMIC_RELAXED);
	return buf;
}

/* One owner less; the last frees. thread: any. */
void
tb_buf_unref(TbBuf *buf)
{
	if (buf == NULL || __atomic_sub_fetch(&buf->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (buf->whole != NULL)
		tb_buf_unref(buf->whole);
	else if (!buf->borrowed)
		tb_free(buf->data);
	tb_free(buf);
}

TbBuf *
tb_buf_wrap(void *bytes, size_t cap)
{
	TbBuf	   *buf = tb_calloc(1, sizeof(*buf));

	if (buf == NULL)
		return NULL;
	buf->refs = 1;
	buf->borrowed = true;
	buf->data = bytes;
	buf->cap = cap;
	return buf;
}

TbBuf *
tb_buf_slice(TbBuf *buf, size_t offset, size_t len)
{
	TbBuf	   *slice = tb_calloc(1, sizeof(*slice));

	if (slice == NULL)
		return NULL;
	slice->refs = 1;
	slice->whole = tb_buf_ref(buf->whole != NULL ? buf->whole : buf);
	slice->data = buf->data + offset;
	slice->len = slice->cap = len;
	return slice;
}

TbBuf *
tb_buf_keep(TbBuf *buf)
{
	TbBuf	   *copy;

	if (buf == NULL || buf->whole == NULL || buf->whole->cap / KEEP_PART <= buf->len)
		return buf;
	copy = tb_buf_new(buf->len);
	if (copy == NULL)
		return buf;
	if (buf->len > 0)
		memcpy(copy->data, buf->data, buf->len);
	copy->len = buf->len;
	tb_buf_unref(buf);
	return copy;
}

/* Make room for cap bytes in all. errors: NOMEM. */
TbStatus
tb_buf_reserve(TbBuf *buf, size_t cap)
{
	uint8_t    *data;

	if (cap <= buf->cap)
		return TB_OK;
	if (buf->borrowed || buf->whole != NULL)
		return TB_E_NOMEM;		/* there is no more of this memory */
	data = tb_malloc_aligned(cap);
	if (data == NULL)
		return TB_E_NOMEM;
	if (buf->len > 0)
		memcpy(data, buf->data, buf->len);
	tb_free(buf->data);
	buf->data = data;
	buf->cap = cap;
	return TB_OK;
}

/* Room for need bytes in all, by doubling, but never beyond max_len (which is at least need). */
static TbStatus
grow(TbBuf *buf, size_t need, size_t max_len)
{
	size_t		cap = buf->cap < MIN_CAP / 2 ? MIN_CAP / 2 : buf->cap;

	if (need <= buf->cap)
		return TB_OK;
	cap = cap > max_len / 2 ? max_len : cap * 2;
	return tb_buf_reserve(buf, cap > need ? cap : need);
}

TbStatus
tb_buf_append(TbBuf *buf, const void *bytes, size_t n, size_t max_len)
{
	TbStatus	status;

	if (buf->len > max_len || n > max_len - buf->len)
		return TB_E_LIMIT;
	if (n == 0)
		return TB_OK;
	status = grow(buf, buf->len + n, max_len);
	if (status != TB_OK)
		return status;
	memcpy(buf->data + buf->len, bytes, n);
	buf->len += n;
	return TB_OK;
}

/* The text is followed by a NUL that len does not count. errors: NOMEM, INTERNAL (a bad format). */
TbStatus
tb_buf_printf(TbBuf *buf, const char *format, ...)
{
	va_list		args;
	int			n;
	TbStatus	status;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0)
		return TB_E_INTERNAL;
	status = grow(buf, buf->len + (size_t) n + 1, SIZE_MAX);
	if (status != TB_OK)
		return status;
	va_start(args, format);
	(void) vsnprintf((char *) buf->data + buf->len, (size_t) n + 1, format, args);
	va_end(args);
	buf->len += (size_t) n;
	return TB_OK;
}
