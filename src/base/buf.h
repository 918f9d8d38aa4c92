/*
 * TbBuf: reference-counted bytes. Network and file bytes land here, decoded chunks are cached
 * here. The count is atomic; the bytes are written before the buffer is shared and never after.
 */
#ifndef TB_BASE_BUF_H
#define TB_BASE_BUF_H

#include "base/mem.h"

typedef struct TbBuf
{
	uint8_t    *data;			/* owned; 64-byte aligned */
	size_t		len;			/* bytes in use */
	size_t		cap;			/* bytes allocated */
	int			refs;			/* atomic */
	struct TbBuf *whole;		/* a reference to the buffer that data lies in; NULL: none */
	bool		borrowed;		/* data is somebody else's */
} TbBuf;

/* owns: caller holds one reference. cap 0 allowed. NULL when memory is gone. */
extern TbBuf *tb_buf_new(size_t cap);
/* Around memory that stays the caller's and outlives the buffer; never grown. */
extern TbBuf *tb_buf_wrap(void *bytes, size_t cap);
extern TbBuf *tb_buf_ref(TbBuf *buf);
extern void tb_buf_unref(TbBuf *buf);	/* NULL allowed */
/* Bytes [offset, offset + len) of buf, which stays as long as its part. To be read only. NULL when memory is gone. */
extern TbBuf *tb_buf_slice(TbBuf *buf, size_t offset, size_t len);
/* For keeping: buf, or a copy in its place where it is a small part of something large that would be kept with it.
 * Takes over the
 * reference; NULL allowed. */
extern TbBuf *tb_buf_keep(TbBuf *buf);

/*
 * Append, growing up to max_len bytes in all (then LIMIT). errors: NOMEM, LIMIT. Only before
 * sharing.
 */
extern TbStatus tb_buf_append(TbBuf *buf, const void *bytes, size_t n, size_t max_len)
	TB_MUST_CHECK;
extern TbStatus tb_buf_reserve(TbBuf *buf, size_t cap) TB_MUST_CHECK;

/* printf onto the end (not NUL-counted), for building text. */
extern TbStatus tb_buf_printf(TbBuf *buf, const char *format, ...) TB_PRINTF(2, 3) TB_MUST_CHECK;

#endif
