/*
 * Scratch memory of a decoding thread, and how byte codecs report what they made. Decoders keep
 * their contexts here because making one costs more than decoding a small chunk.
 */
#include "codec/inner.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <zlib.h>
#include <zstd.h>

#define KEEP_BYTES ((size_t) 64 << 20)	/* larger buffers are not kept between chunks */
#define GRAIN                                                                                      \
	((size_t) 64 << 10) /* sizes are rounded up, so that chunks of like size share one buffer */

/* The thread's own scratch hangs on a pthread key, which is process-wide by nature: these two are
 * written once, under pthread_once, and only read after that. */
static pthread_once_t mine_once = PTHREAD_ONCE_INIT;
static pthread_key_t mine_key;
static bool mine_ready;

/* owns: the caller. NULL when memory is gone. */
TbScratch *
tb_scratch_new(void)
{
	return tb_calloc(1, sizeof(TbScratch));
}

void
tb_scratch_free(TbScratch *scratch)
{
	if (scratch == NULL)
		return;
	for (int i = 0; i < 2; i++)
	{
		tb_buf_unref(scratch->step[i]);
		tb_buf_unref(scratch->work[i]);
	}
	ZSTD_freeDCtx(scratch->zstd_decoder);
	ZSTD_freeCCtx(scratch->zstd_encoder);
	if (scratch->inflater != NULL)
		inflateEnd(scratch->inflater);
	tb_free(scratch->inflater);
	tb_free(scratch);
}

static void
free_mine(void *scratch)
{
	tb_scratch_free(scratch);
}

static void
make_key(void)
{
	mine_ready = pthread_key_create(&mine_key, free_mine) == 0;
}

/* The calling thread's scratch, made on first use. owns: the thread. NULL when memory is gone. */
TbScratch *
tb_scratch_mine(void)
{
	TbScratch  *scratch;

	pthread_once(&mine_once, make_key);
	if (!mine_ready)
		return NULL;
	scratch = pthread_getspecific(mine_key);
	if (scratch != NULL)
		return scratch;
	scratch = tb_scratch_new();
	if (scratch != NULL && pthread_setspecific(mine_key, scratch) != 0)
	{
		tb_scratch_free(scratch);
		return NULL;
	}
	return scratch;
}

/* Make *slot an empty buffer of at least `bytes`. errors: NOMEM. */
TbStatus
tb_scratch_reserve(TbBuf **slot, size_t bytes, TbError *err)
{
	if (*slot != NULL && (*slot)->cap >= bytes)
	{
		(*slot)->len = 0;
		return TB_OK;
	}
	tb_buf_unref(*slot);
	*slot = bytes > SIZE_MAX - GRAIN ? NULL : tb_buf_new((bytes + GRAIN) / GRAIN * GRAIN);
	if (*slot == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	return TB_OK;
}

void
tb_scratch_trim(TbScratch *scratch)
{
	TbBuf **slots[] = {&scratch->step[0], &scratch->step[1], &scratch->work[0], &scratch->work[1]};

	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++)
	{
		if (*slots[i] == NULL || (*slots[i])->cap <= KEEP_BYTES)
			continue;
		tb_buf_unref(*slots[i]);
		*slots[i] = NULL;
	}
}

/*
 * Where to write and how much fits. A size that is not known beforehand gets room up to its limit
 * at once: pages that are not touched cost nothing, and one-shot decoders are the fastest and need
 * no window memory. errors: NOMEM.
 */
TbStatus
tb_out_begin(TbCodecOut *out, uint8_t **dst, size_t *room, TbError *err)
{
	if (out->grow == NULL)
	{
		*dst = out->data;
		*room = out->len;
		return TB_OK;
	}
	if (tb_buf_reserve(out->grow, out->limit) != TB_OK)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	*dst = out->grow->data;
	*room = out->limit;
	return TB_OK;
}

/* Take note of the bytes made. errors: CORRUPT where another size is wanted. */
TbStatus
tb_out_end(TbCodecOut *out, size_t made, const char *codec, TbError *err)
{
	if (out->grow != NULL)
		out->grow->len = made;
	else if (made != out->len)
		return tb_codec_corrupt(err, codec, "%zu bytes where the chunk needs %zu", made, out->len);
	return TB_OK;
}

TbStatus
tb_codec_corrupt(TbError *err, const char *codec, const char *reason, ...)
{
	char		text[256];
	va_list		args;

	va_start(args, reason);
	vsnprintf(text, sizeof(text), reason, args);
	va_end(args);
	tb_fail(err, TB_E_CORRUPT, "chunk cannot be decoded");
	tb_error_detail(err, "codec \"%s\": %s", codec, text);
	return TB_E_CORRUPT;
}

TbStatus
tb_codec_failed(TbError *err, TbStatus status, const char *codec, const char *reason)
{
	if (status == TB_E_NOMEM)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	return tb_codec_corrupt(err, codec, "%s", reason);
}
