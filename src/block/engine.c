/*
 * The engine: loop, pool, stores' shared part and this room's caches, made and ended in the right
 * order. Also the free list of decode buffers, so that a stream of equal chunks touches no new
 * memory.
 */
#include "block/internal.h"

#include <string.h>

#define DEFAULT_CHUNK_CACHE ((size_t) 64 << 20)
#define DEFAULT_INDEX_CACHE ((size_t) 64 << 20)
#define DOC_CACHE ((size_t) 16 << 20)
#define DEFAULT_MAX_AGE_MS 60000
#define SPARE_MAX_BYTES ((size_t) 128 << 20)

/* Parts below the caches. errors: NOMEM, IO. */
static TbStatus
open_parts(TbEngine *engine, const TbEngineOptions *options, TbError *err)
{
	TbStatus	status = tb_loop_new(&engine->loop, err);

	if (status == TB_OK)
		status = tb_pool_new(options->threads, &engine->pool, err);
	if (status == TB_OK)
		status = tb_io_new(engine->loop, engine->pool, &options->io, &engine->io, err);
	return status;
}

void
tb_engine_set_max_age(TbEngine *engine, int ms)
{
	engine->max_age_ns = (int64_t) ms * 1000000;
	if (engine->chunks_as_metadata)
		engine->chunk_max_age_ns = engine->max_age_ns;
}

TbStatus
tb_engine_new(const TbEngineOptions *options, TbEngine **out, TbError *err)
{
	TbEngine   *engine = tb_calloc(1, sizeof(*engine));
	int			age_ms =
		options->metadata_max_age_ms > 0 ? options->metadata_max_age_ms : DEFAULT_MAX_AGE_MS;
	TbStatus	status;

	if (engine == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	pthread_mutex_init(&engine->mu, NULL);
	pthread_cond_init(&engine->decoded, NULL);
	engine->chunks_as_metadata = options->chunk_max_age_ms == 0;
	tb_engine_set_max_age(engine, age_ms);
	if (!engine->chunks_as_metadata)
		engine->chunk_max_age_ns = (int64_t) options->chunk_max_age_ms * 1000000;
	tb_lru_init(&engine->docs, DOC_CACHE, tb_load_destroy);
	tb_lru_init(&engine->indexes,
				options->index_cache_bytes > 0 ? options->index_cache_bytes : DEFAULT_INDEX_CACHE,
				tb_load_destroy);
	tb_lru_init(&engine->chunks,
				options->chunk_cache_bytes > 0 ? options->chunk_cache_bytes : DEFAULT_CHUNK_CACHE,
				tb_load_destroy);
	status = open_parts(engine, options, err);
	if (status != TB_OK)
	{
		tb_engine_free(engine);
		return status;
	}
	*out = engine;
	return TB_OK;
}

void
tb_engine_free(TbEngine *engine)
{
	if (engine == NULL)
		return;
	tb_lru_fini(&engine->docs);
	tb_lru_fini(&engine->indexes);
	tb_lru_fini(&engine->chunks);
	for (int i = 0; i < engine->n_spare; i++)
		tb_buf_unref(engine->spare[i]);
	/* io first: it waits for its own work in the pool, which posts to the loop */
	tb_io_free(engine->io);
	tb_pool_free(engine->pool);
	tb_loop_free(engine->loop);
	pthread_cond_destroy(&engine->decoded);
	pthread_mutex_destroy(&engine->mu);
	tb_free(engine);
}

int
tb_engine_fd(const TbEngine *engine)
{
	return tb_loop_fd(engine->loop);
}

void
tb_engine_pump(TbEngine *engine)
{
	tb_loop_pump(engine->loop, 0);
}

void
tb_engine_wait(TbEngine *engine, int timeout_ms)
{
	tb_loop_pump(engine->loop, timeout_ms);
}

TbLoop *
tb_engine_loop(TbEngine *engine)
{
	return engine->loop;
}

TbPool *
tb_engine_pool(TbEngine *engine)
{
	return engine->pool;
}

TbIo *
tb_engine_io(TbEngine *engine)
{
	return engine->io;
}

/* A spare buffer that is large enough and not wastefully so; -1: none. Caller holds mu. */
static int
find_spare_locked(const TbEngine *engine, size_t bytes)
{
	for (int i = engine->n_spare - 1; i >= 0; i--)
		if (engine->spare[i]->cap >= bytes && engine->spare[i]->cap / 2 <= bytes)
			return i;
	return -1;
}

TbBuf *
tb_engine_take_buf(TbEngine *engine, size_t bytes)
{
	TbBuf	   *buf = NULL;
	int			i;

	pthread_mutex_lock(&engine->mu);
	i = find_spare_locked(engine, bytes);
	if (i >= 0)
	{
		buf = engine->spare[i];
		engine->spare[i] = engine->spare[--engine->n_spare];
		engine->spare_bytes -= buf->cap;
	}
	pthread_mutex_unlock(&engine->mu);
	if (buf == NULL)
		buf = tb_buf_new(bytes);
	if (buf != NULL)
		buf->len = bytes;
	return buf;
}

void
tb_engine_give_buf(TbEngine *engine, TbBuf *buf)
{
	TbBuf	   *out = buf;

	if (buf == NULL)
		return;
	pthread_mutex_lock(&engine->mu);
	if (buf->cap <= SPARE_MAX_BYTES / 4)
	{
		/* the longest unused one makes room: sizes change with the arrays being read */
		if (engine->n_spare == TB_SPARE_BUFS || engine->spare_bytes + buf->cap > SPARE_MAX_BYTES)
		{
			out = engine->n_spare > 0 ? engine->spare[0] : NULL;
			if (out != NULL)
			{
				engine->spare_bytes -= out->cap;
				memmove(engine->spare, engine->spare + 1,
						(size_t) --engine->n_spare * sizeof(*engine->spare));
			}
		}
		else
			out = NULL;
		engine->spare[engine->n_spare++] = buf;
		engine->spare_bytes += buf->cap;
	}
	pthread_mutex_unlock(&engine->mu);
	tb_buf_unref(out);
}
