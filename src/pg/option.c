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

/* The form of a url; the engine proves the rest when it opens the store. */
static void
check_url(const char *name, const char *value)
{
	static const char *const schemes[] = {"file:///", "http://", "https://"};
	bool		known = false;

	for (size_t i = 0; i < lengthof(schemes); i++)
		if (strncmp(value, schemes[i], strlen(schemes[i])) == 0)
			known = true;
	if (!known)
		bad_value(name, "file:///directory, http://host/path or https://host/path");
	for (const char *p = value; *p; p++)
		if ((unsigned char) *p <= ' ' || *p == '?' || *p == '#' || *p == 0x7f)
			bad_value(name, "a url without spaces, query or fragment");
	if (!tbpg_url_is_file(value))
	{
		const char *host = strstr(value, "://") + 3;
		size_t		len = strcspn(host, "/");

		if (len == 0 || memchr(host, '@', len) != NULL)
			bad_value(name, "a url with a host and without user or password: credentials belong in a user mapping");
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

static const Option known_options[] = {
	{"url", ForeignServerRelationId, check_url},
	{"index_url", ForeignServerRelationId, check_url},
	{"ca_file", ForeignServerRelationId, check_ca_file},
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

static void
unknown_option(const char *name, Oid catalog)
{
	StringInfoData valid;
	bool		secret = catalog == ForeignServerRelationId &&
		(strcmp(name, "user") == 0 || strcmp(name, "password") == 0);

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
				 errhint("Use OPTIONS (url 'file:///directory') or OPTIONS (url 'https://host/path').")));
	PG_RETURN_VOID();
}
