/*
 * From a foreign server and a user to an open source: a cache, so that a session keeps its connections. Whether the
 * server's owner may name the place and whose credentials count is place.c's.
 */
#include "postgres.h"

#include "foreign/foreign.h"
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
		TbStoreSpec spec = tbpg_place_spec(&place);
		TbSource   *source;
		TbError		err;

		if (tb_source_open(engine, &spec, &source, &err) == TB_OK)
			entry->source = source;
		else if (needed)
			tbpg_raise(&err);
		else
			tbpg_warn(&err);
	}
	tbpg_place_wipe(&place);
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
		tbpg_check_owner(server->serverid, url, true);
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
