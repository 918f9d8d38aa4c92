/*
 * The view tensorbank.streams: the running streams of the cluster, those of roles whose rights the current user
 * has. It starts nothing: without a streamer there are no streams.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "pg/link.h"

PG_FUNCTION_INFO_V1(tensorbank_streams);

typedef enum Kind
{
	KIND_INT8, KIND_INT4, KIND_TEXT
} Kind;

/* Columns of the function, in its order. */
static const struct {const char *name; Kind kind;} columns[] = {
	{"stream", KIND_INT8}, {"pid", KIND_INT4}, {"role", KIND_TEXT}, {"dataset", KIND_TEXT}, {"device", KIND_TEXT},
	{"rank", KIND_INT4}, {"world_size", KIND_INT4}, {"batches", KIND_INT8}, {"done", KIND_INT8}, {"ready", KIND_INT4},
	{"slots", KIND_INT4}, {"bytes", KIND_INT8}, {"wait_store_ms", KIND_INT8}, {"wait_decode_ms", KIND_INT8},
	{"wait_consumer_ms", KIND_INT8}
};

static Datum
column_value(const TbJson *stream, int i, bool *null)
{
	const char *string;
	int64_t		number;

	*null = false;
	if (columns[i].kind == KIND_TEXT && tb_json_get_string(stream, columns[i].name, &string))
		return CStringGetTextDatum(tbpg_from_utf8(string));
	if (columns[i].kind != KIND_TEXT && tb_json_get_int(stream, columns[i].name, &number))
		return columns[i].kind == KIND_INT8 ? Int64GetDatum(number) : Int32GetDatum((int32) number);
	*null = true;
	return (Datum) 0;
}

/* Only of roles whose rights one has: others are none of one's business. */
static bool
may_see(const TbJson *stream)
{
	const char *role;
	Oid			oid;

	if (!tb_json_get_string(stream, "role", &role))
		return superuser();
	oid = get_role_oid(tbpg_from_utf8(role), true);
	return OidIsValid(oid) ? has_privs_of_role(GetUserId(), oid) : superuser();
}

Datum
tensorbank_streams(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	StringInfoData request;
	TbJson	   *reply;
	TbJson	   *list;

	InitMaterializedSRF(fcinfo, 0);
	if (!tbpg_link_open(false))
		return (Datum) 0;
	tbpg_request_begin(&request, "streams");
	appendStringInfoChar(&request, '}');
	reply = tbpg_link_call(TBPG_LINK_STREAMS, 0, &request, NULL);
	if (!tb_json_get(reply, "streams", &list))
		tbpg_bad_reply("streams");
	for (size_t s = 0; s < tb_json_length(list); s++)
	{
		const TbJson *stream = tb_json_at(list, s);
		Datum		values[lengthof(columns)];
		bool		nulls[lengthof(columns)];

		if (!may_see(stream))
			continue;
		for (int i = 0; i < (int) lengthof(columns); i++)
			values[i] = column_value(stream, i, &nulls[i]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
