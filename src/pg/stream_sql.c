/*
 * SQL functions on streams: open_stream, next_batch, close_stream, renew_stream.
 *
 * Rights are checked here, at every call, for the current user; the streamer is sent the dataset, the options
 * and the credentials of that user for each store that the dataset lies in. next_batch and renew_stream check
 * again: a right that was revoked ends a stream that is fed by SQL at the next batch.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

#include "pg/dataset.h"
#include "pg/link.h"
#include "pg/stream_open.h"

PG_FUNCTION_INFO_V1(tensorbank_open_stream);
PG_FUNCTION_INFO_V1(tensorbank_next_batch);
PG_FUNCTION_INFO_V1(tensorbank_close_stream);
PG_FUNCTION_INFO_V1(tensorbank_renew_stream);

/* ---- open_stream ---- */

static void
request_open(StringInfo request, const TbpgOpen *open, const TbpgDatasetInfo *dataset)
{
	int64		uid = tbpg_peer_uid();

	tbpg_request_begin(request, "open");
	tbpg_request_dataset(request, dataset);
	tbpg_request_int(request, "batch_size", open->batch_size);
	tbpg_request_text(request, "shuffle", open->shuffle);
	tbpg_request_int(request, "seed", open->seed);
	tbpg_request_int(request, "epoch", open->epoch);
	tbpg_request_int(request, "rank", open->rank);
	tbpg_request_int(request, "world_size", open->world_size);
	tbpg_request_int(request, "worker", open->worker);
	tbpg_request_int(request, "workers", open->workers);
	tbpg_request_text(request, "device", open->device);
	tbpg_request_int(request, "prefetch", open->prefetch);
	tbpg_request_text(request, "tail", open->tail);
	tbpg_request_text(request, "state", open->state);
	if (uid >= 0)
		tbpg_request_int(request, "peer_uid", uid);
	else
		appendStringInfoString(request, ",\"peer_uid\":null");
	appendStringInfoChar(request, '}');
}

Datum
tensorbank_open_stream(PG_FUNCTION_ARGS)
{
	TbpgOpen	open;
	TbpgOpenDataset dataset;
	StringInfoData request;
	TbJson	   *reply;
	TbpgStream *stream;
	TupleDesc	desc;
	Datum		values[4];
	bool		nulls[4] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("open_stream must be called for its row")));
	tbpg_open_arguments(fcinfo, &open);
	tbpg_open_dataset(&open, &dataset);
	(void) tbpg_link_open(true);
	request_open(&request, &open, &dataset.info);
	reply = tbpg_link_call(TBPG_LINK_OPEN, 0, &request, NULL);
	explicit_bzero(request.data, (size_t) request.len);
	tbpg_open_done(&dataset);
	stream = tbpg_session_add_stream((uint64) tbpg_reply_int(reply, "stream"), &dataset.info);
	stream->sources = tbpg_sources_hash(&dataset.info);
	values[0] = Int64GetDatum((int64) stream->id);
	values[1] = CStringGetTextDatum(tbpg_link_socket());
	values[2] = CStringGetTextDatum(tbpg_reply_text(reply, "token"));
	values[3] = Int64GetDatum(tbpg_reply_int(reply, "batches"));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* ---- next_batch ---- */

/* Handles and names of a batch's tensors as two SQL arrays. */
static int
batch_tensors(const TbJson *reply, Oid handle_type, Datum *handles, Datum *names)
{
	TbJson	   *list;
	int			n;
	Datum	   *handle;
	Datum	   *name;

	if (!tb_json_get(reply, "tensors", &list))
		tbpg_bad_reply("tensors");
	n = (int) tb_json_length(list);
	handle = palloc(sizeof(Datum) * (size_t) Max(n, 1));
	name = palloc(sizeof(Datum) * (size_t) Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		const TbJson *tensor = tb_json_at(list, (size_t) i);
		TbHandle   *parsed = palloc0(sizeof(TbHandle));

		if (tb_handle_parse(tbpg_reply_text(tensor, "handle"), parsed, NULL) != TB_OK)
			tbpg_bad_reply("handle");
		handle[i] = PointerGetDatum(parsed);
		name[i] = CStringGetTextDatum(tbpg_reply_text(tensor, "name"));
	}
	*handles = PointerGetDatum(construct_array(handle, n, handle_type, sizeof(TbHandle), false, TYPALIGN_DOUBLE));
	*names = PointerGetDatum(construct_array(name, n, TEXTOID, -1, false, TYPALIGN_INT));
	return n;
}

static Datum
batch_scalars(const TbJson *reply)
{
	TbJson	   *scalars;

	if (!tb_json_get(reply, "scalars", &scalars))
		tbpg_bad_reply("scalars");
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(tbpg_from_utf8(tb_json_text(scalars))));
}

static void
give_batch(ReturnSetInfo *result, TbpgStream *stream, const TbJson *reply)
{
	Oid			handle_type = get_element_type(TupleDescAttr(result->setDesc, 1)->atttypid);
	Datum		values[5];
	bool		nulls[5] = {false};
	int			n;

	values[0] = Int64GetDatum(tbpg_reply_int(reply, "batch"));
	n = batch_tensors(reply, handle_type, &values[1], &values[2]);
	values[3] = batch_scalars(reply);
	values[4] = CStringGetTextDatum(tbpg_reply_text(reply, "state"));
	tbpg_session_add_batch(stream, (uint32) tbpg_reply_int(reply, "slot"),
						   (uint64) tbpg_reply_int(reply, "generation"), n);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Send the places and the current user's credentials of a stream's sources. */
static void
renew(TbpgStream *stream)
{
	StringInfoData request;

	stream->sources = tbpg_sources_hash(stream->dataset);
	tbpg_request_begin(&request, "renew");
	tbpg_request_uint(&request, "stream", stream->id);
	tbpg_request_sources(&request, stream->dataset);
	appendStringInfoChar(&request, '}');
	(void) tbpg_link_call(TBPG_LINK_RENEW, stream->id, &request, NULL);
	explicit_bzero(request.data, (size_t) request.len);
}

/* The next batch. Credentials are renewed when they have changed here, and when the store refused them. */
static TbJson *
next_batch(TbpgStream *stream)
{
	TbJson	   *reply;
	bool		refused;

	if (stream->sources != tbpg_sources_hash(stream->dataset))
		renew(stream);
	/* what is refused again is an error of the streamer's */
	for (;;)
	{
		refused = false;
		reply = tbpg_link_next(stream->id);
		if (!tb_json_get_bool(reply, "renew", &refused) || !refused)
			return reply;
		renew(stream);
	}
}

Datum
tensorbank_next_batch(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	TbpgStream *stream = tbpg_session_stream(PG_GETARG_INT64(0));
	TbJson	   *reply;
	bool		end = false;

	tbpg_dataset_check(stream->dataset);
	InitMaterializedSRF(fcinfo, 0);
	reply = next_batch(stream);
	if (!tb_json_get_bool(reply, "end", &end) || !end)
		give_batch(result, stream, reply);
	return (Datum) 0;
}

/* ---- close_stream, renew_stream ---- */

static void
simple_request(TbpgLinkOp op, const char *name, uint64 stream)
{
	StringInfoData request;

	tbpg_request_begin(&request, name);
	tbpg_request_uint(&request, "stream", stream);
	appendStringInfoChar(&request, '}');
	(void) tbpg_link_call(op, stream, &request, NULL);
}

Datum
tensorbank_close_stream(PG_FUNCTION_ARGS)
{
	TbpgStream *stream = tbpg_session_stream(PG_GETARG_INT64(0));
	uint64		id = stream->id;

	/* out of the books first: whatever comes, it cannot be used any more */
	tbpg_session_drop_stream(stream);
	simple_request(TBPG_LINK_CLOSE, "close", id);
	PG_RETURN_VOID();
}

Datum
tensorbank_renew_stream(PG_FUNCTION_ARGS)
{
	TbpgStream *stream = tbpg_session_stream(PG_GETARG_INT64(0));

	tbpg_dataset_check(stream->dataset);
	renew(stream);
	PG_RETURN_VOID();
}
