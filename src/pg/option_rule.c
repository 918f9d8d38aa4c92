/*
 * Which options of servers and user mappings go together, and which only a superuser may set. Values are
 * option.c's. Errors name options, never values.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"

#include "pg/option.h"
#include "pg/tbpg.h"

static void
useless(const char *name, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("option \"%s\" does not apply here", name), errhint("%s", hint)));
}

static void
contradicts(const char *name, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
			 errmsg("option \"%s\" contradicts another option", name), errhint("%s", hint)));
}

static void
wanting(const char *name, const char *with)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
			 errmsg("option \"%s\" is required", name),
			 errhint("It belongs to option \"%s\".", with)));
}

static bool
is_true(List *options, const char *name)
{
	const char *value = tbpg_option(options, name);

	return value != NULL && tbpg_option_bool(name, value);
}

void
tbpg_check_server_options(List *options)
{
	static const char *const of_s3[] = {
		"region", "endpoint", "addressing", "anonymous", "requester_pays", "credentials", "profile"
	};
	const char *url = tbpg_option(options, "url");
	const char *index_url = tbpg_option(options, "index_url");
	const char *credentials = tbpg_option(options, "credentials");
	bool		s3 = tbpg_url_is_s3(url) || (index_url != NULL && tbpg_url_is_s3(index_url));
	bool		local = tbpg_url_is_file(url) && (index_url == NULL || tbpg_url_is_file(index_url));

	for (size_t i = 0; i < lengthof(of_s3) && !s3; i++)
		if (tbpg_option(options, of_s3[i]) != NULL)
			useless(of_s3[i], "It is for servers with an s3:// url.");
	if (local && tbpg_option(options, "allowed_hosts") != NULL)
		useless("allowed_hosts", "It is for servers with a network url.");
	if (is_true(options, "anonymous"))
	{
		if (credentials != NULL)
			contradicts("anonymous", "Drop one of the options anonymous and credentials.");
		if (is_true(options, "requester_pays"))
			contradicts("requester_pays", "Requests that somebody pays for must be signed: drop the option anonymous.");
	}
	if (tbpg_option(options, "profile") != NULL && (credentials == NULL || strstr(credentials, "profile") == NULL))
		contradicts("profile", "It is for credentials 'profile'.");
}

void
tbpg_check_mapping_options(List *options)
{
	const char *id = tbpg_option(options, "access_key_id");
	const char *secret = tbpg_option(options, "secret_access_key");

	if (tbpg_option(options, "user") != NULL && id != NULL)
		contradicts("user", "It is another name of access_key_id: give one of them.");
	if (tbpg_option(options, "password") != NULL && secret != NULL)
		contradicts("password", "It is another name of secret_access_key: give one of them.");
	if (id == NULL)
		id = tbpg_option(options, "user");
	if (secret == NULL)
		secret = tbpg_option(options, "password");
	if (secret != NULL && id == NULL)
		wanting(tbpg_option(options, "password") != NULL ? "user" : "access_key_id",
				tbpg_option(options, "password") != NULL ? "password" : "secret_access_key");
	if (tbpg_option(options, "access_key_id") != NULL && secret == NULL)
		wanting("secret_access_key", "access_key_id");
	if (tbpg_option(options, "session_token") != NULL && secret == NULL)
		wanting("secret_access_key", "session_token");
}

void
tbpg_check_superuser_options(List *options, Oid role, const char *server)
{
	if (superuser_arg(role))
		return;
	if (tbpg_option(options, "credentials") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
				 errmsg("credentials of the database server may be used by a superuser's foreign server only"),
				 server != NULL ? errdetail("Server \"%s\" is owned by \"%s\".", server, GetUserNameFromId(role, false)) : 0,
				 errhint("Set credentials in the user mapping, or let a superuser own the server.")));
	if (tbpg_option(options, "allowed_hosts") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set option \"allowed_hosts\""),
				 server != NULL ? errdetail("Server \"%s\" is owned by \"%s\".", server, GetUserNameFromId(role, false)) : 0,
				 errhint("Let a superuser own the server.")));
}
