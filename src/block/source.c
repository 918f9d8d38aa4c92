/*
 * Sources: an open store with the array metadata known of it (bounded in age by the engine's
 * setting). Documents themselves are in the engine's cache; arrays are array.c's.
 */
#include "block/internal.h"

#define MAX_ARRAYS 4096			/* known at a time; more are forgotten by age of use */

/* A source over an open store, which it owns from now on, also when memory is gone. */
static TbStatus
wrap_store(TbEngine *engine, TbStore *store, TbSource **out, TbError *err)
{
	TbSource   *source = tb_calloc(1, sizeof(*source));

	if (source == NULL)
	{
		tb_store_close(store);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	source->refs = 1;
	source->engine = engine;
	source->store = store;
	source->id = ++engine->next_id;
	tb_lru_init(&source->arrays, MAX_ARRAYS, tb_array_core_destroy);
	*out = source;
	return TB_OK;
}

TbStatus
tb_source_open(TbEngine *engine, const TbStoreSpec *spec, TbSource **out, TbError *err)
{
	TbStore    *store;
	TbStatus	status = tb_store_open(engine->io, spec, &store, err);

	return status == TB_OK ? wrap_store(engine, store, out, err) : status;
}

TbStatus
tb_source_open_mem(TbEngine *engine, TbSource **out, TbError *err)
{
	TbStore    *store;
	TbStatus	status = tb_store_open_mem(engine->io, &store, err);

	return status == TB_OK ? wrap_store(engine, store, out, err) : status;
}

TbSource *
tb_source_ref(TbSource *source)
{
	source->refs++;
	return source;
}

void
tb_source_unref(TbSource *source)
{
	if (source == NULL || --source->refs > 0)
		return;
	tb_lru_fini(&source->arrays);	/* their reads are cancelled before the store goes */
	tb_store_close(source->store);
	tb_free(source);
}

TbEngine *
tb_source_engine(TbSource *source)
{
	return source->engine;
}

TbStore *
tb_source_store(TbSource *source)
{
	return source->store;
}

const char *
tb_source_url(const TbSource *source)
{
	return tb_store_url(source->store);
}

void
tb_source_forget(TbSource *source)
{
	source->generation++;
	source->format = 0;
	tb_lru_clear(&source->arrays);
}
