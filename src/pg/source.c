/*
 * From a foreign server and a user to an open source: whether the server's owner may name the place, whose
 * credentials count, and a cache so that a session keeps its connections.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_user_mapping.h"
#include "foreign/foreign.h"
#include "access/reloptions.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "pg/compat.h"
#include "pg/option.h"
#include "pg/tbpg.h"

typedef struct SourceKey
{
	Oid			server;
	Oid			user;
	int			index;			/* 1: index_url */
} SourceKey;

typedef struct SourceEntry
{
	SourceKey	key;
	TbSource   *source;			/* owned: one reference; NULL: to be opened */
	bool		stale;			/* options or mapping changed */
} SourceEntry;

static HTAB *sources;

static void
forget_sources(Datum arg, int cacheid, uint32 hashvalue)
{
	HASH_SEQ_STATUS scan;
	SourceEntry *entry;

	hash_seq_init(&scan, sources);
	while ((entry = hash_seq_search(&scan)) != NULL)
		entry->stale = true;
}

/* Servers that are gone take their sources along: connections, open directories, what was cached of them. */
static void
drop_sources_of_dropped(void)
{
	HASH_SEQ_STATUS scan;
	SourceEntry *entry;

	hash_seq_init(&scan, sources);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (entry->stale && !SearchSysCacheExists1(FOREIGNSERVEROID, ObjectIdGetDatum(entry->key.server)))
		{
			TbSource   *source = entry->source;

			/* removing the entry just returned is allowed during a sequential scan */
			(void) hash_search(sources, &entry->key, HASH_REMOVE, NULL);
			tb_source_unref(source);
		}
}

static SourceEntry *
source_entry(Oid server, Oid user, bool index)
{
	SourceKey	key;
	SourceEntry *entry;
	bool		found;

	if (sources == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(SourceKey), .entrysize = sizeof(SourceEntry), .hcxt = TopMemoryContext};

		sources = hash_create("tensorbank sources", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterSyscacheCallback(FOREIGNSERVEROID, forget_sources, (Datum) 0);
		CacheRegisterSyscacheCallback(USERMAPPINGOID, forget_sources, (Datum) 0);
	}
	memset(&key, 0, sizeof(key));
	key.server = server;
	key.user = user;
	key.index = index;
	entry = hash_search(sources, &key, HASH_FIND, NULL);
	if (entry == NULL)
		drop_sources_of_dropped();
	entry = hash_search(sources, &key, HASH_ENTER, &found);
	if (!found)
	{
		entry->source = NULL;
		entry->stale = false;
	}
	if (entry->stale)
	{
		TbSource   *old = entry->source;

		entry->source = NULL;
		entry->stale = false;
		tb_source_unref(old);
	}
	return entry;
}

/* The owner, not the user, answers for the place: users of a server cannot leave its url. */
static void
check_owner(const ForeignServer *server, const char *url, bool write)
{
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
				 errhint("GRANT USAGE ON FOREIGN DATA WRAPPER tensorbank to the owner.")));
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
copy_or_null(const char *text)
{
	return text != NULL ? pstrdup(text) : NULL;
}

void
tbpg_place(Oid serverid, Oid user, bool index, TbpgPlace *place)
{
	ForeignServer *server = GetForeignServer(serverid);
	const char *url = tbpg_option(server->options, "url");
	const char *index_url = tbpg_option(server->options, "index_url");
	List	   *mapping = mapping_options(serverid, user);

	if (index && index_url != NULL)
		url = index_url;
	if (url == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("option \"url\" of the foreign server is missing"),
				 errdetail("Server \"%s\".", server->servername)));
	check_owner(server, url, false);
	memset(place, 0, sizeof(*place));
	place->server = pstrdup(server->servername);
	place->url = pstrdup(url);
	place->ca_file = copy_or_null(tbpg_option(server->options, "ca_file"));
	place->user = copy_or_null(tbpg_option(mapping, "user"));
	place->password = copy_or_null(tbpg_option(mapping, "password"));
}

/* NULL where it cannot be opened and need not be: then a warning says why. */
static TbSource *
open_source(Oid server, Oid user, bool index, bool needed)
{
	SourceEntry *entry;
	TbEngine   *engine;
	TbpgPlace	place;

	tbpg_place(server, user, index, &place);
	engine = tbpg_engine();
	entry = source_entry(server, user, index);
	if (entry->source == NULL)
	{
		TbStoreSpec spec = {
			.url = place.url, .ca_file = place.ca_file, .user = place.user, .password = place.password,
			.name = tbpg_counters_name(place.server),
		};
		TbSource   *source;
		TbError		err;

		if (tb_source_open(engine, &spec, &source, &err) == TB_OK)
			entry->source = source;
		else if (needed)
			tbpg_raise(&err);
		else
			tbpg_warn(&err);
	}
	return entry->source;
}

TbSource *
tbpg_source(Oid server, Oid user)
{
	return open_source(server, user, false, true);
}

/* Stores that can be written: then indexes and datasets lie beside the data. */
static bool
url_is_written(const char *url)
{
	return tbpg_url_is_file(url) || pg_strncasecmp(url, "s3://", 5) == 0;
}

TbSource *
tbpg_index_source(Oid serverid, Oid user, bool write)
{
	ForeignServer *server = GetForeignServer(serverid);
	const char *index_url = tbpg_option(server->options, "index_url");
	const char *url = index_url != NULL ? index_url : tbpg_option(server->options, "url");
	TbSource   *source;

	if (url == NULL || (index_url == NULL && !url_is_written(url)))
	{
		if (!write)
			return NULL;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the store cannot be written and the server has no place for indexes and datasets"),
				 errdetail("Server \"%s\".", server->servername),
				 errhint("ALTER SERVER %s OPTIONS (ADD index_url 'file:///directory'), or 's3://bucket/prefix'.",
						 quote_identifier(server->servername))));
	}
	if (write)
		check_owner(server, url, true);
	/* without its index a table is slower, not out of reach */
	source = open_source(serverid, user, index_url != NULL, write || index_url == NULL);
	if (write && !tb_store_can_write(tb_source_store(source)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the place for indexes and datasets cannot be written"),
				 errdetail("Server \"%s\".", server->servername),
				 errhint("Set the server's option index_url to a file:// directory or an s3:// url.")));
	return source;
}
