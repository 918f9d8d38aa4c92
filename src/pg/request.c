/*
 * Building requests to the streamer and taking replies apart. Requests are JSON in UTF-8, whatever the
 * database's encoding.
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/json.h"

#include "pg/link.h"

static void
append_text(StringInfo request, const char *string)
{
	const char *utf8 = pg_server_to_any(string, (int) strlen(string), PG_UTF8);

	escape_json(request, utf8);
}

void
tbpg_request_begin(StringInfo request, const char *op)
{
	initStringInfo(request);
	appendStringInfo(request, "{\"op\":\"%s\"", op);
}

void
tbpg_request_text(StringInfo request, const char *name, const char *value)
{
	appendStringInfo(request, ",\"%s\":", name);
	if (value != NULL)
		append_text(request, value);
	else
		appendStringInfoString(request, "null");
}

void
tbpg_request_int(StringInfo request, const char *name, int64 value)
{
	appendStringInfo(request, ",\"%s\":" INT64_FORMAT, name, value);
}

void
tbpg_request_uint(StringInfo request, const char *name, uint64 value)
{
	appendStringInfo(request, ",\"%s\":" UINT64_FORMAT, name, value);
}

void
tbpg_request_extents(StringInfo request, const char *name, int n, const uint64_t *values)
{
	appendStringInfo(request, ",\"%s\":[", name);
	for (int i = 0; i < n; i++)
		appendStringInfo(request, "%s" UINT64_FORMAT, i > 0 ? "," : "", (uint64) values[i]);
	appendStringInfoChar(request, ']');
}

static void
text_if_set(StringInfo request, const char *name, const char *value)
{
	if (value != NULL)
		tbpg_request_text(request, name, value);
}

static void
flag_if_set(StringInfo request, const char *name, bool value)
{
	if (value)
		appendStringInfo(request, ",\"%s\":true", name);
}

void
tbpg_request_place(StringInfo request, const TbpgPlace *place)
{
	size_t		n = strlen(place->url);
	char	   *url = pstrdup(place->url);

	/* as the engine names a source: arrays of datasets find theirs by this text */
	while (n > 0 && url[n - 1] == '/' && !(n >= 3 && strcmp(url + n - 3, "://") == 0))
		url[--n] = '\0';
	appendStringInfoString(request, "\"server\":");
	append_text(request, place->server);
	tbpg_request_text(request, "counters", psprintf("%s.%s", get_database_name(MyDatabaseId), place->server));
	tbpg_request_text(request, "url", url);
	text_if_set(request, "ca_file", place->ca_file);
	text_if_set(request, "user", place->user);
	text_if_set(request, "password", place->password);
	text_if_set(request, "allowed_hosts", place->allowed_hosts);
	flag_if_set(request, "any_address", place->any_address);
	text_if_set(request, "region", place->region);
	text_if_set(request, "endpoint", place->endpoint);
	if (place->addressing != TB_ADDRESS_AUTO)
		tbpg_request_text(request, "addressing", place->addressing == TB_ADDRESS_PATH ? "path" : "virtual");
	flag_if_set(request, "anonymous", place->anonymous);
	flag_if_set(request, "requester_pays", place->requester_pays);
	text_if_set(request, "access_key_id", place->access_key_id);
	text_if_set(request, "secret_access_key", place->secret_access_key);
	text_if_set(request, "session_token", place->session_token);
	text_if_set(request, "credentials", place->credentials);
	text_if_set(request, "profile", place->profile);
}

void
tbpg_bad_reply(const char *member)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("the streamer's answer is not understood"),
			 errdetail("Member \"%s\".", member),
			 errhint("Install module and streamer program of one version, then restart the server.")));
}

char *
tbpg_from_utf8(const char *string)
{
	return pg_any_to_server(string, (int) strlen(string), PG_UTF8);
}

const char *
tbpg_reply_text(const TbJson *reply, const char *name)
{
	const char *string;

	if (!tb_json_get_string(reply, name, &string))
		tbpg_bad_reply(name);
	return tbpg_from_utf8(string);
}

int64
tbpg_reply_int(const TbJson *reply, const char *name)
{
	int64_t		number;

	if (!tb_json_get_int(reply, name, &number))
		tbpg_bad_reply(name);
	return number;
}
