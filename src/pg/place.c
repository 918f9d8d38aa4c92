/*
 * Where a foreign server leads for a user: whether the server's owner may name the place, and whose credentials
 * count. Rights are looked at here, at each execution, whatever was allowed when the options were set.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_user_mapping.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "pg/compat.h"
#include "pg/option.h"
#include "pg/tbpg.h"

void
tbpg_check_owner(Oid serverid, const char *url, bool write)
{
	ForeignServer *server = GetForeignServer(serverid);
	bool		file = tbpg_url_is_file(url);

	if (file && !has_privs_of_role(server->owner, write ? ROLE_PG_WRITE_SERVER_FILES : ROLE_PG_READ_SERVER_FILES))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("the owner of the foreign server may not use local files"),
				 errdetail("Server \"%s\" is owned by \"%s\", who lacks the privileges of role \"%s\".",
						   server->servername, GetUserNameFromId(server->owner, false),
						   write ? "pg_write_server_files" : "pg_read_server_files"),
				 errhint("GRANT %s to the owner%s.", write ? "pg_write_server_files" : "pg_read_server_files",
						 write ? ", or set the server's option index_url" : "")));
	if (!file && tbpg_fdw_aclcheck(server->fdwid, server->owner, ACL_USAGE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("the owner of the foreign server may not reach the network"),
				 errdetail("Server \"%s\" is owned by \"%s\".", server->servername,
						   GetUserNameFromId(server->owner, false)),
				 errhint("GRANT USAGE ON FOREIGN DATA WRAPPER tensorbank TO the owner.")));
}

/* Options of the mapping of a user or of PUBLIC; NIL: none. (GetUserMapping raises where there is none.) */
static List *
mapping_options(Oid server, Oid user)
{
	HeapTuple	tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(user), ObjectIdGetDatum(server));
	Datum		options;
	bool		isnull;
	List	   *list = NIL;

	if (!HeapTupleIsValid(tuple))
		tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid), ObjectIdGetDatum(server));
	if (!HeapTupleIsValid(tuple))
		return NIL;
	options = SysCacheGetAttr(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions, &isnull);
	if (!isnull)
		list = untransformRelOptions(options);
	ReleaseSysCache(tuple);
	return list;
}

static char *
copy_option(List *options, const char *name)
{
	const char *value = tbpg_option(options, name);

	return value != NULL ? pstrdup(value) : NULL;
}

static bool
bool_option(List *options, const char *name)
{
	const char *value = tbpg_option(options, name);

	return value != NULL && tbpg_option_bool(name, value);
}

/* The value of an option or of its other name. */
static char *
either(List *options, const char *name, const char *other)
{
	char	   *value = copy_option(options, name);

	return value != NULL ? value : copy_option(options, other);
}

/* Credentials of the mapping, else of the server; an s3 server has some or is anonymous. */
static void
take_s3_credentials(const ForeignServer *server, List *mapping, TbpgPlace *place)
{
	place->access_key_id = either(mapping, "access_key_id", "user");
	place->secret_access_key = either(mapping, "secret_access_key", "password");
	place->session_token = copy_option(mapping, "session_token");
	if (place->access_key_id != NULL && place->secret_access_key == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("option \"secret_access_key\" of the user mapping is missing"),
				 errdetail("Server \"%s\".", server->servername),
				 errhint("ALTER USER MAPPING ... OPTIONS (ADD secret_access_key '...').")));
	if (place->access_key_id != NULL && place->anonymous)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("option \"anonymous\" of the server contradicts the user mapping"),
				 errdetail("Server \"%s\".", server->servername),
				 errhint("Drop the option anonymous of the server, or the credentials of the user mapping.")));
	if (place->access_key_id == NULL && !place->anonymous)
	{
		place->credentials = copy_option(server->options, "credentials");
		place->profile = copy_option(server->options, "profile");
	}
	if (place->access_key_id == NULL && place->credentials == NULL && !place->anonymous)
		ereport(ERROR,
				(errcode(superuser_arg(server->owner) ? ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION :
						 ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
				 errmsg("no credentials for the foreign server"),
				 errdetail("Server \"%s\": the user mapping holds none.", server->servername),
				 superuser_arg(server->owner) ?
				 errhint("Set access_key_id and secret_access_key in the user mapping, or the server's option credentials or anonymous.") :
				 errhint("Set access_key_id and secret_access_key in the user mapping, or the server's option anonymous.")));
}

static void
take_http_credentials(const ForeignServer *server, List *mapping, TbpgPlace *place)
{
	if (tbpg_option(mapping, "session_token") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("option \"session_token\" of the user mapping does not apply here"),
				 errdetail("Server \"%s\".", server->servername),
				 errhint("It is for servers with an s3:// url.")));
	place->user = either(mapping, "user", "access_key_id");
	place->password = either(mapping, "password", "secret_access_key");
}

/* Keys of one kind of store are not sent to another kind that happens to hold the index. */
static bool
same_kind(const char *a, const char *b)
{
	return tbpg_url_is_file(a) || tbpg_url_is_s3(a) == tbpg_url_is_s3(b);
}

static TbAddressing
addressing_of(const char *word)
{
	return word == NULL || strcmp(word, "auto") == 0 ? TB_ADDRESS_AUTO :
		strcmp(word, "path") == 0 ? TB_ADDRESS_PATH : TB_ADDRESS_VIRTUAL;
}

void
tbpg_place(Oid serverid, Oid user, bool index, TbpgPlace *place)
{
	ForeignServer *server = GetForeignServer(serverid);
	const char *own_url = tbpg_option(server->options, "url");
	const char *index_url = tbpg_option(server->options, "index_url");
	const char *url = index && index_url != NULL ? index_url : own_url;
	List	   *mapping = mapping_options(serverid, user);

	if (url == NULL || own_url == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("option \"url\" of the foreign server is missing"),
				 errdetail("Server \"%s\".", server->servername),
				 errhint("ALTER SERVER ... OPTIONS (ADD url '...').")));
	tbpg_check_owner(serverid, url, false);
	tbpg_check_superuser_options(server->options, server->owner, server->servername);
	if (!same_kind(own_url, url))
		mapping = NIL;
	memset(place, 0, sizeof(*place));
	place->server = pstrdup(server->servername);
	place->name = tbpg_counters_name(server->servername);
	place->url = pstrdup(url);
	place->ca_file = copy_option(server->options, "ca_file");
	place->allowed_hosts = copy_option(server->options, "allowed_hosts");
	place->any_address = superuser_arg(server->owner) && place->allowed_hosts == NULL;
	if (tbpg_url_is_s3(url))
	{
		place->region = copy_option(server->options, "region");
		place->endpoint = copy_option(server->options, "endpoint");
		place->addressing = addressing_of(tbpg_option(server->options, "addressing"));
		place->anonymous = bool_option(server->options, "anonymous");
		place->requester_pays = bool_option(server->options, "requester_pays");
		take_s3_credentials(server, mapping, place);
	}
	else if (!tbpg_url_is_file(url))
		take_http_credentials(server, mapping, place);
}

TbStoreSpec
tbpg_place_spec(const TbpgPlace *place)
{
	return (TbStoreSpec) {
		.url = place->url, .ca_file = place->ca_file, .user = place->user, .password = place->password,
		.name = place->name, .allowed_hosts = place->allowed_hosts, .any_address = place->any_address,
		.region = place->region, .endpoint = place->endpoint, .addressing = place->addressing,
		.anonymous = place->anonymous, .requester_pays = place->requester_pays,
		.access_key_id = place->access_key_id, .secret_access_key = place->secret_access_key,
		.session_token = place->session_token, .credentials = place->credentials, .profile = place->profile
	};
}

static void
wipe(char *secret)
{
	if (secret != NULL)
		explicit_bzero(secret, strlen(secret));
}

void
tbpg_place_wipe(TbpgPlace *place)
{
	wipe(place->password);
	wipe(place->secret_access_key);
	wipe(place->session_token);
}
