/*
 * location(ref): where the bytes of a region lie in the store, one row a chunk. Of sharded arrays
 * the shard indexes are read, of others nothing.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "pg/ref.h"
#include "pg/tensor.h"

PG_FUNCTION_INFO_V1(tensorbank_location);

#define COLUMNS 6				/* chunk, url, offset, length, codecs, missing */

static void
free_fetch(void *object)
{
	tb_fetch_free(object);
}

static void
put_place(ReturnSetInfo *rsinfo, const TbpgResolved *resolved, const TbPlace *place)
{
	bool		whole = place->length == UINT64_MAX;
	const char *url = tb_source_url(tb_array_source(resolved->array));
	size_t		len = strlen(url);
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS] = {false};

	values[0] = PointerGetDatum(tbpg_extents_array(resolved->region.ndim, place->chunk));
	values[1] = CStringGetTextDatum(
		psprintf("%s%s%s", url, len > 0 && url[len - 1] == '/' ? "" : "/", place->key));
	values[2] = Int64GetDatum(whole ? 0 : (int64) place->offset);
	values[3] = Int64GetDatum((int64) place->length);
	nulls[3] = whole;
	values[4] = CStringGetTextDatum(tb_array_codecs(resolved->array));
	values[5] = BoolGetDatum(place->missing);
	nulls[2] = nulls[3] |= place->missing;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
tensorbank_location(PG_FUNCTION_ARGS)
{
	/* chunks reach beyond the row: the rights of the scan that made the ref do not count */
	const TbpgRef *ref = tbpg_ref_copy(PG_GETARG_TBREF(0), true);
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "tensorbank location", ALLOCSET_SMALL_SIZES);
	MemoryContext row =
		AllocSetContextCreate(context, "tensorbank location row", ALLOCSET_SMALL_SIZES);
	MemoryContext old;
	TbpgResolved resolved;
	TbFetch    *fetch;
	TbPlace		place;
	TbError		err;

	InitMaterializedSRF(fcinfo, 0);
	old = MemoryContextSwitchTo(context);
	tbpg_ref_resolve(ref, &resolved);
	TBPG_CHECK(tb_fetch_locate(resolved.array, &resolved.region, &fetch, &err), &err);
	(void) tbpg_own(context, fetch, free_fetch);
	TBPG_AWAIT(tb_fetch_poll(fetch, &err), &err);
	MemoryContextSwitchTo(row);
	for (size_t i = 0; tb_fetch_place(fetch, i, &place); i++)
	{
		CHECK_FOR_INTERRUPTS();
		put_place(rsinfo, &resolved, &place);
		MemoryContextReset(row);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return (Datum) 0;
}
