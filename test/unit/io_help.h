/* What the tests of stores share: an engine's loop, pool and io, and waiting for one read. */
#ifndef TB_TEST_IO_HELP_H
#define TB_TEST_IO_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/io.h"

typedef struct Rig
{
	TbLoop	   *loop;
	TbPool	   *pool;
	TbIo	   *io;
	int64_t		live;			/* allocations before */
} Rig;

static inline void
rig_open(Rig *rig, int threads, const TbIoOptions *options)
{
	rig->live = tb_mem_live();
	assert_int_equal(tb_loop_new(&rig->loop, NULL), TB_OK);
	assert_int_equal(tb_pool_new(threads, &rig->pool, NULL), TB_OK);
	assert_int_equal(tb_io_new(rig->loop, rig->pool, options, &rig->io, NULL), TB_OK);
}

static inline void
rig_close(Rig *rig)
{
	tb_io_free(rig->io);
	tb_pool_free(rig->pool);
	tb_loop_free(rig->loop);
	assert_int_equal(tb_mem_live(), rig->live);
}

static inline void
count_done(TbRead *read)
{
	++*(int *) read->arg;
}

/* Pump until *done is n; fails after 20 s. */
static inline void
pump_until(Rig *rig, const int *done, int n)
{
	int64_t		start = tb_now_ns();

	while (*done < n)
	{
		(void) tb_loop_pump(rig->loop, 1000);
		if (tb_now_ns() - start > INT64_C(20000000000))
			fail_msg("a read did not end");
	}
}

/* Ask and wait. The caller unrefs read->data. */
static inline TbStatus
fetch(Rig *rig, TbStore *store, TbRead *read)
{
	int			done = 0;

	read->done = count_done;
	read->arg = &done;
	tb_store_read(store, read);
	assert_int_equal(done, 0);	/* never from inside */
	pump_until(rig, &done, 1);
	assert_int_equal(done, 1);
	if (read->status != TB_OK)
	{
		assert_null(read->data);
		assert_int_equal(read->error.code, read->status);
		assert_true(read->error.message[0] != '\0');
	}
	return read->status;
}

static inline TbStatus
fetch_range(Rig *rig, TbStore *store, TbRead *read, const char *key, TbRangeKind kind, uint64_t offset,
			uint64_t length)
{
	memset(read, 0, sizeof(*read));
	read->key = key;
	read->kind = kind;
	read->offset = offset;
	read->length = length;
	return fetch(rig, store, read);
}

static inline void
drop(TbRead *read)
{
	tb_buf_unref(read->data);
	read->data = NULL;
}

#define assert_bytes(read, bytes, n) \
	do { \
		assert_non_null((read)->data); \
		assert_int_equal((read)->data->len, (n)); \
		assert_memory_equal((read)->data->data, (bytes), (n)); \
	} while (0)

#endif
