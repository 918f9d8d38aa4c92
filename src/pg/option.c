/*
 * Options of the wrapper's objects: which exist where, and whether a value is one. Rights that depend on
 * the object's owner are checked again at execution (source.c).
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "pg/compat.h"
#include "pg/option.h"
#include "pg/tbpg.h"

typedef void (*OptionCheck) (const char *name, const char *value);

typedef struct Option
{
	const char *name;
	Oid			catalog;
	OptionCheck check;
} Option;

static void bad_value(const char *name, const char *expected) pg_attribute_noreturn();

static void
bad_value(const char *name, const char *expected)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
			 errmsg("invalid value for option \"%s\"", name),
			 errhint("Expected %s.", expected)));
}

bool
tbpg_url_is_file(const char *url)
{
	return pg_strncasecmp(url, "file:", 5) == 0;
}

bool
tbpg_url_is_s3(const char *url)
{
	return strncmp(url, "s3://", 5) == 0;
}

/* s3://bucket/prefix: a bucket's name as stores allow it, a prefix without dot segments. */
static void
check_bucket(const char *name, const char *bucket, size_t len)
{
	if (len < 3 || len > 63 || strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-") < len ||
		strchr(".-", bucket[0]) != NULL || strchr(".-", bucket[len - 1]) != NULL)
		bad_value(name, "s3://bucket/prefix with a bucket's name of 3 to 63 lower-case letters, digits, dots and dashes");
	for (const char *p = bucket + len; *p == '/'; p += 1 + strcspn(p + 1, "/"))
	{
		size_t		n = strcspn(p + 1, "/");

		if ((n == 0 && p[1] != '\0') || (n == 1 && p[1] == '.') || (n == 2 && p[1] == '.' && p[2] == '.'))
			bad_value(name, "s3://bucket/prefix with a prefix without empty, \".\" or \"..\" parts");
	}
}

/* The form of a url; the engine proves the rest when it opens the store. */
static void
check_url(const char *name, const char *value)
{
	static const char *const schemes[] = {"file:///", "http://", "https://", "s3://"};
	bool		known = false;

	for (size_t i = 0; i < lengthof(schemes); i++)
		if (strncmp(value, schemes[i], strlen(schemes[i])) == 0)
			known = true;
	if (!known)
		bad_value(name, "file:///directory, http://host/path, https://host/path or s3://bucket/prefix");
	for (const char *p = value; *p; p++)
		if ((unsigned char) *p <= ' ' || *p == '?' || *p == '#' || *p == 0x7f)
			bad_value(name, "a url without spaces, query or fragment");
	if (!tbpg_url_is_file(value))
	{
		const char *host = strstr(value, "://") + 3;
		size_t		len = strcspn(host, "/");

		if (len == 0 || memchr(host, '@', len) != NULL)
			bad_value(name, "a url with a host and without user or password: credentials belong in a user mapping");
		if (tbpg_url_is_s3(value))
			check_bucket(name, host, len);
	}
	else if (!has_privs_of_role(GetUserId(), strcmp(name, "index_url") == 0 ?
								ROLE_PG_WRITE_SERVER_FILES : ROLE_PG_READ_SERVER_FILES))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to name a local directory"),
				 errdetail("Option \"%s\" with a file:// url needs the privileges of role \"%s\".", name,
						   strcmp(name, "index_url") == 0 ? "pg_write_server_files" : "pg_read_server_files"),
				 errhint("Have an administrator create the server, or GRANT that role to the server's owner.")));
}

static void
check_ca_file(const char *name, const char *value)
{
	if (value[0] != '/')
		bad_value(name, "an absolute path");
	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_SERVER_FILES))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to name a local file"),
				 errhint("GRANT pg_read_server_files to the server's owner.")));
}

static void
check_shape(const char *name, const char *value)
{
	uint64_t	shape[TB_MAX_DIM];

	(void) tbpg_option_shape(name, value, shape);
}

static void
check_stat(const char *name, const char *value)
{
	if (tbpg_option_stat(value) < 0)
		bad_value(name, "one of min, max, mean, std, valid, nan, missing");
}

static void
check_bound(const char *name, const char *value)
{
	if (strcmp(value, "min") != 0 && strcmp(value, "max") != 0)
		bad_value(name, "min or max");
}

static void
check_block(const char *name, const char *value)
{
	if (strcmp(value, "number") != 0 && strcmp(value, "size") != 0 && strcmp(value, "state") != 0)
		bad_value(name, "number, size or state");
}

static void
check_bool(const char *name, const char *value)
{
	(void) tbpg_option_bool(name, value);
}

static void
check_path(const char *name, const char *value)
{
	if (value[0] == '/' || strstr(value, "//") != NULL)
		bad_value(name, "a path below the server's url, without leading or double slashes");
	for (const char *p = value; *p;)
	{
		size_t		len = strcspn(p, "/");

		if ((len == 2 && strncmp(p, "..", 2) == 0) || (len == 1 && *p == '.' && value[1] != '\0'))
			bad_value(name, "a path below the server's url, without \".\" or \"..\"");
		p += len + (p[len] == '/');
	}
}

static void
check_nonempty(const char *name, const char *value)
{
	if (value[0] == '\0')
		bad_value(name, "a value that is not empty");
}

/* http(s)://host[:port], nothing behind it. */
static void
check_endpoint(const char *name, const char *value)
{
	size_t		scheme = strncmp(value, "https://", 8) == 0 ? 8 : strncmp(value, "http://", 7) == 0 ? 7 : 0;
	size_t		len = strlen(value);

	while (len > 0 && value[len - 1] == '/')
		len--;
	if (scheme == 0 || len <= scheme || strcspn(value + scheme, "/?#@ \\") < len - scheme)
		bad_value(name, "http://host[:port] or https://host[:port]");
	for (const char *p = value; *p; p++)
		if ((unsigned char) *p <= ' ' || (unsigned char) *p >= 0x7f)
			bad_value(name, "http://host[:port] or https://host[:port]");
}

static void
check_region(const char *name, const char *value)
{
	size_t		len = strlen(value);

	if (len == 0 || len > 63 || strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") < len)
		bad_value(name, "a region such as eu-central-1");
}

static void
check_addressing(const char *name, const char *value)
{
	if (strcmp(value, "auto") != 0 && strcmp(value, "path") != 0 && strcmp(value, "virtual") != 0)
		bad_value(name, "auto, path or virtual");
}

static void
check_credentials(const char *name, const char *value)
{
	static const char *const known[] = {"environment", "profile", "web_identity", "container", "instance"};

	for (const char *p = value;;)
	{
		size_t		len;
		bool		found = false;

		p += strspn(p, " ");
		len = strcspn(p, " ,");
		for (size_t i = 0; i < lengthof(known); i++)
			found |= strlen(known[i]) == len && strncmp(known[i], p, len) == 0;
		p += len;
		p += strspn(p, " ");
		if (!found || (*p != '\0' && *p != ','))
			bad_value(name, "a list of environment, profile, web_identity, container and instance");
		if (*p++ == '\0')
			return;
	}
}

/* What goes into a request's header: no spaces, no line ends. The value itself is never told. */
static void
check_key(const char *name, const char *value)
{
	if (value[0] == '\0')
		bad_value(name, "a value that is not empty");
	for (const char *p = value; *p; p++)
		if ((unsigned char) *p <= ' ' || (unsigned char) *p >= 0x7f)
			bad_value(name, "printable characters without spaces");
}

static const Option known_options[] = {
	{"url", ForeignServerRelationId, check_url},
	{"index_url", ForeignServerRelationId, check_url},
	{"ca_file", ForeignServerRelationId, check_ca_file},
	{"region", ForeignServerRelationId, check_region},
	{"endpoint", ForeignServerRelationId, check_endpoint},
	{"addressing", ForeignServerRelationId, check_addressing},
	{"anonymous", ForeignServerRelationId, check_bool},
	{"requester_pays", ForeignServerRelationId, check_bool},
	{"credentials", ForeignServerRelationId, check_credentials},
	{"profile", ForeignServerRelationId, check_nonempty},
	{"allowed_hosts", ForeignServerRelationId, check_nonempty},
	{"access_key_id", UserMappingRelationId, check_key},
	{"secret_access_key", UserMappingRelationId, check_key},
	{"session_token", UserMappingRelationId, check_key},
	{"user", UserMappingRelationId, check_nonempty},
	{"password", UserMappingRelationId, check_nonempty},
	{"path", ForeignTableRelationId, check_path},
	{"append_dim", ForeignTableRelationId, check_nonempty},
	{"cell_shape", ForeignTableRelationId, check_shape},
	{"array", AttributeRelationId, check_path},
	{"dimension", AttributeRelationId, check_nonempty},
	{"statistic", AttributeRelationId, check_stat},
	{"bound", AttributeRelationId, check_bound},
	{"block", AttributeRelationId, check_block},
	{"mask_fill", AttributeRelationId, check_bool},
};

const char *
tbpg_option(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, name) == 0)
			return defGetString(def);
	}
	return NULL;
}

int
tbpg_option_shape(const char *name, const char *text, uint64_t *shape)
{
	int			n = 0;
	const char *p = text;

	for (;;)
	{
		char	   *end;
		unsigned long long value;

		while (*p == ' ')
			p++;
		if (*p < '0' || *p > '9' || n == TB_MAX_DIM)
			break;
		errno = 0;
		value = strtoull(p, &end, 10);
		if (errno != 0 || value == 0 || value > INT64_MAX)
			break;
		shape[n++] = value;
		p = end;
		while (*p == ' ')
			p++;
		if (*p == '\0')
			return n;
		if (*p++ != ',')
			break;
	}
	bad_value(name, "one positive length a dimension, as in \"1,90,180\"");
}

int
tbpg_option_stat(const char *text)
{
	for (int s = 0; s < TB_N_STATS; s++)
		if (strcmp(tb_stat_name((TbStat) s), text) == 0)
			return s;
	return -1;
}

bool
tbpg_option_bool(const char *name, const char *text)
{
	bool		value;

	if (!parse_bool(text, &value))
		bad_value(name, "true or false");
	return value;
}

/* A name that somebody would give a secret under. */
static bool
is_secret(const char *name)
{
	static const char *const words[] = {"secret", "password", "passwd", "token", "access_key", "session_key", "api_key"};

	for (size_t i = 0; i < lengthof(words); i++)
		if (strstr(name, words[i]) != NULL)
			return true;
	return strcmp(name, "user") == 0 || strcmp(name, "key") == 0;
}

static void
unknown_option(const char *name, Oid catalog)
{
	StringInfoData valid;
	bool		secret = catalog != UserMappingRelationId && is_secret(name);

	initStringInfo(&valid);
	for (size_t i = 0; i < lengthof(known_options); i++)
		if (known_options[i].catalog == catalog)
			appendStringInfo(&valid, "%s%s", valid.len ? ", " : "", known_options[i].name);
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", name),
			 secret ? errhint("Put credentials in a USER MAPPING.") :
			 valid.len ? errhint("Valid options in this context are: %s.", valid.data) :
			 errhint("There are no valid options in this context.")));
}

PG_FUNCTION_INFO_V1(tensorbank_validator);

Datum
tensorbank_validator(PG_FUNCTION_ARGS)
{
	List	   *options = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);
		const Option *found = NULL;

		for (size_t i = 0; i < lengthof(known_options); i++)
			if (known_options[i].catalog == catalog && strcmp(known_options[i].name, def->defname) == 0)
				found = &known_options[i];
		if (found == NULL)
			unknown_option(def->defname, catalog);
		found->check(def->defname, defGetString(def));
	}
	if (catalog == ForeignServerRelationId && tbpg_option(options, "url") == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("option \"url\" is required"),
				 errhint("Use OPTIONS (url 'file:///directory'), (url 'https://host/path') or (url 's3://bucket/prefix').")));
	if (catalog == ForeignServerRelationId)
	{
		tbpg_check_server_options(options);
		tbpg_check_superuser_options(options, GetUserId(), NULL);
	}
	else if (catalog == UserMappingRelationId)
		tbpg_check_mapping_options(options);
	PG_RETURN_VOID();
}
