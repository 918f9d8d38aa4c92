/*
 * The type handle: names a tensor in a buffer of the streamer. It grants nothing by itself: only the session and
 * role that got it can use it, and session.c decides that. Here: text form and equality. Whatever is wrong with
 * a handle's text, the error is the one for all bad handles.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "libpq/pqformat.h"

#include "pg/link.h"

PG_FUNCTION_INFO_V1(tensorbank_handle_in);
PG_FUNCTION_INFO_V1(tensorbank_handle_out);
PG_FUNCTION_INFO_V1(tensorbank_handle_recv);
PG_FUNCTION_INFO_V1(tensorbank_handle_send);
PG_FUNCTION_INFO_V1(tensorbank_handle_eq);
PG_FUNCTION_INFO_V1(tensorbank_handle_ne);
PG_FUNCTION_INFO_V1(tensorbank_handle_hash);

StaticAssertDecl(sizeof(TbHandle) == 40, "size of the SQL type, without padding");

static TbHandle *
from_text(const char *string)
{
	TbHandle   *handle = palloc0(sizeof(TbHandle));

	if (tb_handle_parse(string, handle, NULL) != TB_OK)
		tbpg_bad_handle();
	return handle;
}

Datum
tensorbank_handle_in(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(from_text(PG_GETARG_CSTRING(0)));
}

Datum
tensorbank_handle_out(PG_FUNCTION_ARGS)
{
	char	   *string = palloc(TB_HANDLE_TEXT);

	tb_handle_print(PG_GETARG_TBHANDLE(0), string);
	PG_RETURN_CSTRING(string);
}

Datum
tensorbank_handle_recv(PG_FUNCTION_ARGS)
{
	StringInfo	message = (StringInfo) PG_GETARG_POINTER(0);
	int			len;

	PG_RETURN_POINTER(from_text(pq_getmsgtext(message, message->len - message->cursor, &len)));
}

Datum
tensorbank_handle_send(PG_FUNCTION_ARGS)
{
	char		string[TB_HANDLE_TEXT];
	StringInfoData out;

	tb_handle_print(PG_GETARG_TBHANDLE(0), string);
	pq_begintypsend(&out);
	pq_sendtext(&out, string, (int) strlen(string));
	PG_RETURN_BYTEA_P(pq_endtypsend(&out));
}

Datum
tensorbank_handle_eq(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(memcmp(PG_GETARG_TBHANDLE(0), PG_GETARG_TBHANDLE(1), sizeof(TbHandle)) == 0);
}

Datum
tensorbank_handle_ne(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(memcmp(PG_GETARG_TBHANDLE(0), PG_GETARG_TBHANDLE(1), sizeof(TbHandle)) != 0);
}

Datum
tensorbank_handle_hash(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(hash_any((unsigned char *) PG_GETARG_TBHANDLE(0), sizeof(TbHandle)));
}
