/*
 * read(tensor_ref) -> tensor: the one way from a ref to values in SQL.
 *
 * Rights, then the fetch that a scan began or a fresh one, then waiting until every byte is here
 * and proved, then decoding straight into the result. Until that last step no byte of an operation
 * in flight points into the server's memory. The fetch hangs on a context of its own, so an error
 * anywhere frees it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "pg/ref.h"
#include "pg/tensor.h"

PG_FUNCTION_INFO_V1(tensorbank_read);

/* From here on a copy costs more than an expanded object. */
#define EXPANDED_ELEMENTS 4096

static void
free_fetch(void *object)
{
	tb_fetch_free(object);
}

static void
add_context(void *arg)
{
	errcontext("reading tensor_ref %s", tbpg_ref_print(arg));
}

/* The fetch of a ref's bytes, complete; it belongs to the current context. */
static TbFetch *
fetch_bytes(const TbpgRef *ref, const TbpgResolved *resolved)
{
	TbpgOwned  *owned = tbpg_own(CurrentMemoryContext, NULL, free_fetch);
	TbFetch    *fetch = tbpg_ahead_take(ref);
	TbError		err;

	if (fetch == NULL)
		TBPG_CHECK(tb_fetch_open(resolved->array, &resolved->region, &fetch, &err), &err);
	tbpg_owned_set(owned, fetch);
	TBPG_AWAIT(tb_fetch_poll(fetch, &err), &err);
	return fetch;
}

/*
 * The data of a tensor starts four bytes behind a multiple of eight, where the decoders may not
 * store eight-byte elements: those are decoded four bytes further on and moved down.
 */
static size_t
spare_bytes(TbDtype dtype)
{
	return tb_dtype_size(dtype) == 8 ? 4 : 0;
}

/* Fetch and decode into the data of a new tensor. The fetch is gone with the current context. */
static void
read_into(const TbpgRef *ref, const TbpgResolved *resolved, struct varlena *value, uint8_t *data)
{
	TbFetch    *fetch = fetch_bytes(ref, resolved);
	size_t		spare = spare_bytes(resolved->dtype);
	size_t		bytes = VARSIZE(value) - (size_t) (data - (uint8_t *) value);
	TbError		err;
	TbStatus	status = tb_fetch_decode(fetch, resolved->treatment, data + spare, bytes, &err);

	if (status == TB_E_CORRUPT && tb_fetch_again(fetch))
	{
		TBPG_AWAIT(tb_fetch_poll(fetch, &err), &err);
		status = tb_fetch_decode(fetch, resolved->treatment, data + spare, bytes, &err);
	}
	TBPG_CHECK(status, &err);
	if (spare > 0)
		memmove(data, data + spare, bytes);
}

Datum
tensorbank_read(PG_FUNCTION_ARGS)
{
	TbpgRef    *ref = PG_GETARG_TBREF(0);
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "tensorbank read", ALLOCSET_SMALL_SIZES);
	MemoryContext owner = caller;
	ErrorContextCallback callback = {
		.previous = error_context_stack, .callback = add_context, .arg = ref
	};
	TbpgResolved resolved;
	struct varlena *value;
	uint64_t	elements;
	uint8_t    *data;

	MemoryContextSwitchTo(context);
	tbpg_ref_resolve(ref, &resolved);
	if (tb_region_elements(&resolved.region, &elements) && elements >= EXPANDED_ELEMENTS)
		owner = AllocSetContextCreate(caller, "tensorbank value", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(owner);
	/* before the first request: what is too large is refused without reading it */
	value = tbpg_tensor_new(resolved.dtype, resolved.region.ndim, resolved.region.count,
							spare_bytes(resolved.dtype), &data);
	MemoryContextSwitchTo(context);
	error_context_stack = &callback;
	read_into(ref, &resolved, value, data);
	error_context_stack = callback.previous;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	if (owner != caller)
		return tbpg_tensor_expanded(owner, value);
	PG_RETURN_POINTER(value);
}
