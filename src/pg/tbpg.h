/*
 * What the files of src/pg share: the engine of this process and how to wait for it, errors, ownership,
 * rights, sources, and the tables behind foreign tables.
 */
#ifndef TBPG_H
#define TBPG_H

#include "postgres.h"

#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utils/palloc.h"
#include "utils/relcache.h"

#include "pg/compat.h"
#include "tb.h"

/* ---- guc.c ---- */
typedef enum TbpgIoMethod
{
	TBPG_IO_AUTO, TBPG_IO_SYNC
} TbpgIoMethod;

typedef struct TbpgSettings
{
	int			unindexed;		/* TbUnindexed */
	int			compute_limit_mb;
	int			metadata_max_age_ms;
	int			max_connections;
	int			max_requests_in_flight;
	int			connect_timeout_ms;
	int			first_byte_timeout_ms;
	int			low_speed_bytes;
	int			low_speed_seconds;
	int			retries;
	int			io_memory_mb;
	int			hedge_percent;
	int			io_method;		/* TbpgIoMethod */
	char	   *cache_directory;
	int			cache_size_mb;
	int			read_ahead_mb;
	int			build_workers;
	int			streamer_threads;
	int			ring_limit_mb;
	char	   *streamer_program;
} TbpgSettings;
extern TbpgSettings tbpg_settings;
extern void tbpg_define_settings(void);

/* ---- error.c: the one table from TbStatus to SQLSTATE and the one function that raises ---- */
extern void tbpg_raise(const TbError *err) pg_attribute_noreturn();
extern void tbpg_warn(const TbError *err);	/* the same as a WARNING */
extern int	tbpg_sqlstate(TbStatus status);
extern char *tbpg_clean_text(const char *text);	/* a copy that is valid in the database's encoding */

/* Raise unless OK. */
#define TBPG_CHECK(call, err) \
	do { if ((call) != TB_OK) tbpg_raise(err); } while (0)

/* ---- wait.c: the only waiter of a backend ---- */
extern TbEngine *tbpg_engine(void); /* this process's engine, made on first use, no threads */
/* The books of the node, shared by all processes of the cluster; those of this session where the file cannot be
 * used (said once in the log). */
extern TbNode *tbpg_node(void);
extern char *tbpg_counters_name(const char *server); /* "database.server" in UTF-8: what its counters are kept under */
extern void tbpg_node_limits(TbNodeLimits *limits); /* as the settings say now */
#define TBPG_NODE_FILE PG_STAT_TMP_DIR "/tensorbank.node"	/* base backups leave that directory out */
extern void tbpg_settle(void);	/* let the cache's writes end, for a moment at most: before the session becomes idle */
extern void tbpg_wait(void);		/* sleep until the latch or the engine has something; interrupts; pump */
/* Also sleep for a socket (streamer): WL_SOCKET_READABLE/WRITEABLE; returns when it may be ready or timeout_ms
 * went by (-1: none). */
extern void tbpg_wait_socket(int socket, int events, long timeout_ms);

/* Call an expression that returns TbStatus until it is no longer AGAIN, waiting in between; raise on error. */
#define TBPG_AWAIT(call, err) \
	do { \
		TbStatus	await_status_; \
		while ((await_status_ = (call)) == TB_AGAIN) \
			tbpg_wait(); \
		if (await_status_ != TB_OK) \
			tbpg_raise(err); \
	} while (0)

/* ---- own.c: tie an engine object to a memory context, so that an abort frees it ---- */
typedef void (*TbpgFree) (void *object);
typedef struct TbpgOwned TbpgOwned;
/* object may be NULL and set later with tbpg_owned_set. Freed when the context is reset or deleted. */
extern TbpgOwned *tbpg_own(MemoryContext context, void *object, TbpgFree free_fn);
extern void tbpg_owned_set(TbpgOwned *owned, void *object); /* frees what it held before */
extern void *tbpg_disown(TbpgOwned *owned); /* hand back; nothing is freed any more */

/* ---- option.c ---- */
extern const char *tbpg_option(List *options, const char *name);	/* value or NULL */

/* ---- source.c: rights and stores ---- */
/*
 * The source of a server for a user: checks that the server's owner may name the place (file:// needs
 * pg_read_server_files, network needs USAGE on the wrapper). Cached per (server, mapping); borrowed: take a
 * reference to keep it beyond the current call. The caller has checked the user's rights on the table or
 * server.
 */
extern TbSource *tbpg_source(Oid server, Oid user);
/* Where indexes and datasets of a server go: index_url, else the server's url. write: the owner needs pg_write_server_files for
 * file://; http without index_url is 55000 with a hint. NULL when !write and there can be none. */
extern TbSource *tbpg_index_source(Oid server, Oid user, bool write);

/* ---- place.c: where a server leads, and with whose credentials ---- */
/* What opens the source, here or in the streamer. Strings live in the current memory context; NULL: not set. */
typedef struct TbpgPlace
{
	char	   *server;			/* name */
	char	   *name;			/* what its counters are kept under: tbpg_counters_name */
	char	   *url;
	char	   *ca_file;
	char	   *user;			/* http basic authentication */
	char	   *password;
	char	   *allowed_hosts;
	bool		any_address;	/* a superuser's server: may lead anywhere */
	char	   *region;			/* this and what follows: s3:// */
	char	   *endpoint;
	TbAddressing addressing;
	bool		anonymous;
	bool		requester_pays;
	char	   *access_key_id;
	char	   *secret_access_key;
	char	   *session_token;
	char	   *credentials;
	char	   *profile;
} TbpgPlace;
/* The place of a server for a user. errors: 42501, 2F003 of the owner, HV00D, HV024, HV002 of what does not go
 * together. */
extern void tbpg_place(Oid server, Oid user, bool index, TbpgPlace *place);
extern TbStoreSpec tbpg_place_spec(const TbpgPlace *place); /* borrows place's strings */
extern void tbpg_place_wipe(TbpgPlace *place);	/* its secrets, once they are handed over */
/* The owner, not the user, answers for the place: users of a server cannot leave its url. errors: 42501. */
extern void tbpg_check_owner(Oid server, const char *url, bool write);

/* ---- table.c: the table behind a foreign table ---- */
typedef enum TbpgRole
{
	TBPG_UNUSED,				/* dropped column */
	TBPG_BLOCK, TBPG_BLOCK_SIZE, TBPG_BLOCK_STATE,
	TBPG_COORD_MIN, TBPG_COORD_MAX, /* index: TbGridInfo.coord */
	TBPG_ARRAY,					/* index: TbGridInfo.array; a tensor_ref */
	TBPG_STAT					/* index: array; stat */
} TbpgRole;

typedef struct TbpgColumn
{
	TbpgRole	role;
	int			index;
	TbStat		stat;
	Oid			type;
} TbpgColumn;

typedef struct TbpgTable
{
	MemoryContext context;		/* everything of it, also the references to grid and index */
	int			refs;
	Oid			relid;
	Oid			server;
	Oid			user;			/* whose mapping was used */
	char	   *group;
	int			natts;
	TbpgColumn *column;			/* [attnum - 1] */
	TbGrid	   *grid;
	const TbGridInfo *info;
	TbHsi	   *hsi;			/* NULL where no index exists */
} TbpgTable;

/*
 * The table of a foreign table for a user's mapping; cached with invalidation and metadata_max_age; waits for
 * metadata and coordinates. Borrowed: valid until the next call in this backend; keep it longer with
 * tbpg_table_pin (pg/table.h). errors: HV00D/HV024 options, HV005 array, HV007 column, HV004 column type (hint
 * names the right one), and the store's.
 */
extern TbpgTable *tbpg_table(Oid relid, Oid user);
extern void tbpg_forget_table(Oid relid);	/* after build_index */
extern bool tbpg_is_ours(Oid relid); /* a foreign table of this wrapper */
/* Column types by role, and how IMPORT names them. */
extern Oid	tbpg_column_type(const TbGridInfo *info, TbpgColumn column);
extern Oid	tbpg_tensor_oid(void);		/* types of the extension, by OID, cached */
extern Oid	tbpg_tensor_ref_oid(void);
extern Oid	tbpg_extension_owner(void); /* who owns schema tensorbank: for the extension's own tables */
extern Oid	tbpg_read_function(void);	/* tensorbank.read(tensor_ref), InvalidOid: gone */
extern const char *tbpg_type_of_stat(const TbArrayMeta *meta, TbStat stat);	/* "double precision" ... */
extern const char *tbpg_type_of_coord(TbCoordKind kind);

/* PostgreSQL's timestamptz from microseconds since 1970 UTC and back (saturating to infinities is the caller's). */
#define TBPG_EPOCH_US INT64CONST(946684800000000)

/* ---- tensor_ref (ref.c) ---- */
#define TBPG_REF_MAX_DIM TB_MAX_DIM
typedef struct TbpgRef
{
	int32		vl_len_;		/* varlena header (do not touch directly) */
	uint8		version;		/* 1 */
	uint8		ndim;
	uint8		flags;			/* TBPG_REF_RAW, TBPG_REF_STAMPED */
	uint8		cast;			/* TbDtype, TB_NONE: as decoded */
	uint8		dtype;			/* TbDtype that read() gives */
	uint8		pad[3];
	Oid			relid;
	int16		attnum;
	int16		pad2;
	/* stamp: rights of the foreign scan that made it, good for its statement and while the scan is open */
	Oid			stamp_user;
	int32		stamp_pid;		/* of the group's leader */
	int64		stamp_start;	/* GetCurrentStatementStartTimestamp() when the scan gave its first row */
	int64		extent[FLEXIBLE_ARRAY_MEMBER];	/* start[ndim], then count[ndim] */
} TbpgRef;
#define TBPG_REF_RAW 1
#define TBPG_REF_STAMPED 2
#define TBPG_REF_SIZE(ndim) (offsetof(TbpgRef, extent) + sizeof(int64) * 2 * (size_t) (ndim))
#define PG_GETARG_TBREF(n) ((TbpgRef *) PG_DETOAST_DATUM(PG_GETARG_DATUM(n)))
/* A new ref in the current context (palloc'd), without stamp. */
extern TbpgRef *tbpg_ref_make(Oid relid, AttrNumber attnum, TbDtype dtype, const TbRegion *region);
/* Stamp with the scan's user. */
extern void tbpg_ref_stamp(TbpgRef *ref, Oid user);
/*
 * What a scan stamps its refs with: this statement's start. Such stamps are good until the context goes, also
 * in later statements that fetch from the same cursor.
 */
extern int64 tbpg_stamp_open(MemoryContext context);
/*
 * Rights at use: a stamp of this very statement lets the stamped user's mapping and rights count; else the
 * current user needs SELECT on the column. Resolves table, array and region (proved to lie inside). errors:
 * 42501, 42P01, 42703.
 */
typedef struct TbpgResolved
{
	TbpgTable  *table;			/* borrowed as tbpg_table */
	TbArray    *array;			/* borrowed from the table's grid */
	TbRegion	region;
	TbTreatment treatment;
	TbDtype		dtype;
	Oid			user;
} TbpgResolved;
extern void tbpg_ref_resolve(const TbpgRef *ref, TbpgResolved *resolved);

/* ---- read-ahead (ahead.c): fetches that a scan began, found again by read() ---- */
/* Begin to fetch a ref's bytes for this query, within tensorbank.read_ahead; silently does nothing when the
 * budget is used. */
extern bool tbpg_ahead_begin(const TbpgRef *ref, TbArray *array, const TbRegion *region);
/* The same, told apart by scan (any address that is its own), so that one scan's end leaves another's alone. */
extern bool tbpg_ahead_begin_for(const void *scan, const TbpgRef *ref, TbArray *array, const TbRegion *region);
/* The same from a ref that a scan of this query made (others: nothing is done); opens its table. */
extern bool tbpg_ahead_begin_ref(const void *scan, const TbpgRef *ref);
/* New requests go out while the executor works, and those under way do not stall. */
extern void tbpg_ahead_kick(void);
/* Whether read() of a ref would not wait for a fetch that is under way. */
extern bool tbpg_ahead_ready(const TbpgRef *ref);
extern uint64 tbpg_ahead_waits(void);	/* how often a fetch begun ahead was wanted before it was complete */
extern void tbpg_ahead_forget(const void *scan);	/* at the end of a scan, and at its rescan */
/* Take the fetch for a ref out of the registry; NULL: none was begun. The caller owns it. */
extern TbFetch *tbpg_ahead_take(const TbpgRef *ref);
extern void tbpg_ahead_forget_all(void);	/* at the end of a query or transaction */

#endif
