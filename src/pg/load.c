/*
 * SQL functions on handles: load() has the streamer bring a tensor, wait() waits until it is there, read()
 * copies it in band, release() gives it back. Also what batches of next_batch() are read and released with.
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/pg_type.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "pg/link.h"
#include "pg/option.h"
#include "pg/ref.h"
#include "pg/tensor.h"

PG_FUNCTION_INFO_V1(tensorbank_load);
PG_FUNCTION_INFO_V1(tensorbank_handle_wait);
PG_FUNCTION_INFO_V1(tensorbank_handles_wait);
PG_FUNCTION_INFO_V1(tensorbank_handle_release);
PG_FUNCTION_INFO_V1(tensorbank_handles_release);
PG_FUNCTION_INFO_V1(tensorbank_handle_read);

static void
request_load(StringInfo request, const TbpgRef *ref, const TbpgResolved *resolved, const char *device)
{
	const char *mask = tbpg_option(GetForeignColumnOptions(ref->relid, ref->attnum), "mask_fill");
	TbpgPlace	place;

	tbpg_place(resolved->table->server, resolved->user, false, &place);
	tbpg_request_begin(request, "load");
	appendStringInfoString(request, ",\"source\":{");
	tbpg_request_place(request, &place);
	tbpg_place_wipe(&place);
	appendStringInfoChar(request, '}');
	tbpg_request_text(request, "array", tb_array_meta(resolved->array)->path);
	tbpg_request_int(request, "mask_fill", mask == NULL ? -1 : tbpg_option_bool("mask_fill", mask));
	tbpg_request_extents(request, "start", resolved->region.ndim, resolved->region.start);
	tbpg_request_extents(request, "count", resolved->region.ndim, resolved->region.count);
	appendStringInfo(request, ",\"raw\":%s", resolved->treatment.raw ? "true" : "false");
	tbpg_request_text(request, "cast",
					  resolved->treatment.cast == TB_NONE ? NULL : tb_dtype_name(resolved->treatment.cast));
	tbpg_request_text(request, "device", device);
	appendStringInfoChar(request, '}');
}

Datum
tensorbank_load(PG_FUNCTION_ARGS)
{
	TbpgRef    *ref = PG_GETARG_TBREF(0);
	char	   *device = text_to_cstring(PG_GETARG_TEXT_PP(1));
	TbHandle   *handle = palloc0(sizeof(TbHandle));
	TbpgResolved resolved;
	StringInfoData request;
	TbJson	   *reply;

	tbpg_ref_resolve(ref, &resolved);
	(void) tbpg_link_open(true);
	request_load(&request, ref, &resolved, device);
	reply = tbpg_link_call(TBPG_LINK_LOAD, 0, &request, NULL);
	explicit_bzero(request.data, (size_t) request.len);
	if (tb_handle_parse(tbpg_reply_text(reply, "handle"), handle, NULL) != TB_OK)
		tbpg_bad_reply("handle");
	tbpg_session_add_load(handle);
	PG_RETURN_POINTER(handle);
}

/* ---- waiting ---- */

static void
append_handle(StringInfo request, const TbHandle *handle)
{
	char		string[TB_HANDLE_TEXT];

	tb_handle_print(handle, string);
	appendStringInfo(request, "\"%s\"", string);
}

static void
wait_for(TbHandle *const *handles, int n)
{
	StringInfoData request;

	if (n == 0)
		return;
	tbpg_request_begin(&request, "wait");
	appendStringInfoString(&request, ",\"handles\":[");
	for (int i = 0; i < n; i++)
	{
		tbpg_session_check(handles[i]);
		if (i > 0)
			appendStringInfoChar(&request, ',');
		append_handle(&request, handles[i]);
	}
	appendStringInfoString(&request, "]}");
	(void) tbpg_link_call(TBPG_LINK_WAIT, 0, &request, NULL);
}

/* The handles of an array; NULLs are left out. */
static TbHandle **
handles_of(ArrayType *array, int *n)
{
	Datum	   *values;
	bool	   *nulls;
	int			n_values;
	TbHandle  **handles;

	deconstruct_array(array, ARR_ELEMTYPE(array), sizeof(TbHandle), false, TYPALIGN_DOUBLE, &values, &nulls, &n_values);
	handles = palloc(sizeof(TbHandle *) * (size_t) Max(n_values, 1));
	*n = 0;
	for (int i = 0; i < n_values; i++)
		if (!nulls[i])
			handles[(*n)++] = (TbHandle *) DatumGetPointer(values[i]);
	return handles;
}

Datum
tensorbank_handle_wait(PG_FUNCTION_ARGS)
{
	TbHandle   *handle = PG_GETARG_TBHANDLE(0);

	wait_for(&handle, 1);
	PG_RETURN_VOID();
}

Datum
tensorbank_handles_wait(PG_FUNCTION_ARGS)
{
	int			n;
	TbHandle  **handles = handles_of(PG_GETARG_ARRAYTYPE_P(0), &n);

	wait_for(handles, n);
	PG_RETURN_VOID();
}

/* ---- releasing ---- */

static void
release(const TbHandle *handle)
{
	StringInfoData request;

	if (!tbpg_session_release(handle))
		return;
	if (handle->stream == 0)
	{
		tbpg_request_begin(&request, "free");
		appendStringInfoString(&request, ",\"handles\":[");
		append_handle(&request, handle);
		appendStringInfoString(&request, "]}");
		(void) tbpg_link_call(TBPG_LINK_FREE, 0, &request, NULL);
		return;
	}
	tbpg_request_begin(&request, "release");
	tbpg_request_uint(&request, "stream", handle->stream);
	tbpg_request_uint(&request, "slot", handle->slot);
	tbpg_request_uint(&request, "generation", handle->generation);
	appendStringInfoChar(&request, '}');
	tbpg_link_tell(&request);
}

Datum
tensorbank_handle_release(PG_FUNCTION_ARGS)
{
	release(PG_GETARG_TBHANDLE(0));
	PG_RETURN_VOID();
}

Datum
tensorbank_handles_release(PG_FUNCTION_ARGS)
{
	int			n;
	TbHandle  **handles = handles_of(PG_GETARG_ARRAYTYPE_P(0), &n);

	/* all or nothing: a bad one among them must not leave half of a batch released */
	for (int i = 0; i < n; i++)
		tbpg_session_check(handles[i]);
	for (int i = 0; i < n; i++)
		release(handles[i]);
	PG_RETURN_VOID();
}

/* ---- reading in band ---- */

static int
reply_shape(const TbJson *reply, uint64_t *shape)
{
	TbJson	   *list;
	size_t		n;

	if (!tb_json_get(reply, "shape", &list) || (n = tb_json_length(list)) > TB_MAX_DIM)
		tbpg_bad_reply("shape");
	for (size_t d = 0; d < n; d++)
		if (!tb_json_as_uint(tb_json_at(list, d), &shape[d]))
			tbpg_bad_reply("shape");
	return (int) n;
}

/* Copy bytes out of the descriptor's memory. (Not by a map: reading cannot end in SIGBUS, whatever the file is.) */
static bool
copy_out(int fd, uint64 offset, uint8_t *dst, size_t bytes)
{
	while (bytes > 0)
	{
		ssize_t		n = pread(fd, dst, Min(bytes, (size_t) 1 << 24), (off_t) offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		dst += n;
		offset += (uint64) n;
		bytes -= (size_t) n;
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

static void
close_descriptor(void *object)
{
	close(*(int *) object);
}

Datum
tensorbank_handle_read(PG_FUNCTION_ARGS)
{
	const TbHandle *handle = PG_GETARG_TBHANDLE(0);
	int		   *fd = palloc(sizeof(int));
	uint64_t	shape[TB_MAX_DIM];
	StringInfoData request;
	TbJson	   *reply;
	TbpgOwned  *owned;
	struct varlena *value;
	uint8_t    *data;
	TbDtype		dtype;
	int			ndim;
	size_t		bytes;

	tbpg_session_check(handle);
	tbpg_request_begin(&request, "fetch");
	appendStringInfoString(&request, ",\"handle\":");
	append_handle(&request, handle);
	appendStringInfoChar(&request, '}');
	reply = tbpg_link_call(TBPG_LINK_FETCH, 0, &request, fd);
	if (*fd < 0)
		tbpg_bad_reply("descriptor");
	owned = tbpg_own(CurrentMemoryContext, fd, close_descriptor);
	dtype = tb_dtype_parse(tbpg_reply_text(reply, "dtype"));
	ndim = reply_shape(reply, shape);
	if (dtype == TB_NONE)
		tbpg_bad_reply("dtype");
	value = tbpg_tensor_new(dtype, ndim, shape, 0, &data);
	bytes = (size_t) (VARDATA(value) + VARSIZE(value) - VARHDRSZ - (char *) data);
	if ((uint64) tbpg_reply_int(reply, "bytes") != bytes || tbpg_reply_int(reply, "offset") < 0)
		tbpg_bad_reply("bytes");
	if (!copy_out(*fd, (uint64) tbpg_reply_int(reply, "offset"), data, bytes))
		ereport(ERROR, (errcode(ERRCODE_IO_ERROR), errmsg("could not read the streamer's buffer")));
	tbpg_owned_set(owned, NULL);
	PG_RETURN_POINTER(value);
}
