/*
 * Ties engine objects to memory contexts: when the context goes, also in an abort, so does the object.
 * (Resource owners of our own exist only from PostgreSQL 17 on.)
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "pg/tbpg.h"

struct TbpgOwned
{
	MemoryContextCallback callback;
	void	   *object;			/* owned; NULL: nothing */
	TbpgFree	free_fn;
};

static void
release(void *arg)
{
	TbpgOwned  *owned = arg;

	if (owned->object != NULL)
		owned->free_fn(owned->object);
	owned->object = NULL;
}

TbpgOwned *
tbpg_own(MemoryContext context, void *object, TbpgFree free_fn)
{
	TbpgOwned  *owned = MemoryContextAllocExtended(context, sizeof(TbpgOwned), MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);

	if (owned == NULL)
	{
		if (object != NULL)
			free_fn(object);
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	}
	owned->object = object;
	owned->free_fn = free_fn;
	owned->callback.func = release;
	owned->callback.arg = owned;
	MemoryContextRegisterResetCallback(context, &owned->callback);
	return owned;
}

void
tbpg_owned_set(TbpgOwned *owned, void *object)
{
	release(owned);
	owned->object = object;
}

void *
tbpg_disown(TbpgOwned *owned)
{
	void	   *object = owned->object;

	owned->object = NULL;
	return object;
}
