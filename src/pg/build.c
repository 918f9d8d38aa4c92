/*
 * CALL tensorbank.build_index: part after part is read, published and committed, so that a build that dies
 * goes on where it was. At the end the statistics become columns of the table.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "pg/build.h"
#include "pg/compat.h"
#include "pg/dataset_catalog.h"
#include "pg/option.h"
#include "pg/table.h"

/* Advisory lock space of builds: "tbix". */
#define LOCK_SPACE 0x74626978

typedef struct Build
{
	MemoryContext context;		/* outlives the commits */
	Oid			relid;
	TbpgTable  *table;			/* pinned in context */
	int			arrays[MaxHeapAttributeNumber];
	int			n_arrays;
	int			workers;
	TbHsiWriter *writer;		/* owned by context */
	uint64		bytes;
	uint64		blocks;
	TimestampTz started;
} Build;

static void
free_writer(void *object)
{
	tb_hsi_writer_free(object);
}

static void
check_caller(Oid relid)
{
	if (!OidIsValid(relid) || get_rel_name(relid) == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation does not exist")));
	if (!tbpg_is_ours(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a foreign table of tensorbank", get_rel_name(relid))));
	if (!tbpg_class_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_FOREIGN_TABLE, get_rel_name(relid));
}

/* Which arrays: those named by ref column names, else all of the table. */
static void
choose_arrays(Build *build, ArrayType *names)
{
	const TbpgTable *table = build->table;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	if (names == NULL)
	{
		for (int a = 0; a < table->info->n_arrays; a++)
			build->arrays[build->n_arrays++] = a;
		return;
	}
	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *name = nulls[i] ? NULL : TextDatumGetCString(elements[i]);
		AttrNumber	attno = name != NULL ? get_attnum(build->relid, name) : InvalidAttrNumber;

		if (attno <= 0 || attno > table->natts || table->column[attno - 1].role != TBPG_ARRAY)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("array column \"%s\" does not exist", name != NULL ? name : "NULL"),
					 errhint("Name tensor_ref columns of the table.")));
		build->arrays[build->n_arrays++] = table->column[attno - 1].index;
	}
	if (build->n_arrays == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("no array to index")));
}

static void
open_build(Build *build, uint64 part_blocks, bool rebuild)
{
	TbHsiWriterSpec spec = {
		.grid = build->table->grid, .arrays = build->arrays, .n_arrays = build->n_arrays,
		.part_blocks = part_blocks, .rebuild = rebuild,
		.where = tbpg_index_source(build->table->server, build->table->user, true)
	};
	TbError		err;

	TBPG_CHECK(tb_hsi_writer_open(&spec, &build->writer, &err), &err);
	(void) tbpg_own(build->context, build->writer, free_writer);
	TBPG_AWAIT(tb_hsi_writer_poll(build->writer, &err), &err);
}

/* Progress lives in a table of the extension, written with each part's commit, with the rights of its owner. */
static void
note_progress(const Build *build, uint64 done, uint64 parts)
{
	Oid			types[] = {OIDOID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID};
	Datum		values[7];

	values[0] = ObjectIdGetDatum(build->relid);
	values[1] = Int32GetDatum(MyProcPid);
	values[2] = Int64GetDatum((int64) parts);
	values[3] = Int64GetDatum((int64) done);
	values[4] = Int64GetDatum((int64) build->blocks);
	values[5] = Int64GetDatum((int64) build->bytes);
	values[6] = TimestampTzGetDatum(build->started);
	(void) tbpg_catalog_run("INSERT INTO tensorbank.index_build AS b"
							" (relation, pid, parts, parts_done, blocks_read, bytes_read, started, updated)"
							" VALUES ($1, $2, $3, $4, $5, $6, $7, pg_catalog.clock_timestamp())"
							" ON CONFLICT (relation) DO UPDATE SET pid = excluded.pid, parts = excluded.parts,"
							" parts_done = excluded.parts_done, blocks_read = excluded.blocks_read,"
							" bytes_read = excluded.bytes_read, started = excluded.started,"
							" updated = excluded.updated",
							7, types, values, NULL, false);
}

/* OIDs come back: what was noted of tables that are gone must not be taken for another's. */
static void
forget_dropped(void)
{
	(void) tbpg_catalog_run("DELETE FROM tensorbank.index_build b WHERE NOT EXISTS"
							" (SELECT FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) b.relation)",
							0, NULL, NULL, NULL, false);
}

static void
build_one_part(Build *build, uint64 p)
{
	MemoryContext context = AllocSetContextCreate(build->context, "tensorbank part", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	uint64		n = tb_hsi_writer_part_blocks(build->writer, p);
	uint64	   *block = MemoryContextAllocHuge(context, sizeof(uint64) * Max(n, 1));
	TbpgPart	part = {.n_blocks = n, .block = block};
	TbError		err;

	part.built = MemoryContextAllocHuge(context, sizeof(TbBuilt) * Max(n, 1) * (Size) build->n_arrays);
	for (uint64 i = 0; i < n; i++)
		block[i] = tb_hsi_writer_part_block(build->writer, p, i);
	tbpg_build_part(build->table, build->arrays, build->n_arrays, build->workers, &part);
	TBPG_AWAIT(tb_hsi_writer_put(build->writer, p, part.built, &err), &err);
	build->blocks += n;
	build->bytes += part.bytes;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* A transaction of its own for each part: locks and snapshots are not held for hours. */
static void
commit_part(void)
{
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	SPI_commit();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
build_parts(Build *build)
{
	uint64		parts = tb_hsi_writer_parts(build->writer);
	uint64		done = 0;

	for (uint64 p = 0; p < parts; p++)
		done += tb_hsi_writer_has(build->writer, p);
	if (done > 0)
		ereport(NOTICE,
				(errmsg("going on with the index of \"%s\"", get_rel_name(build->relid)),
				 errdetail(UINT64_FORMAT " of " UINT64_FORMAT " parts are there already.", done, parts)));
	forget_dropped();
	note_progress(build, done, parts);
	commit_part();
	for (uint64 p = 0; p < parts; p++)
	{
		if (tb_hsi_writer_has(build->writer, p))
			continue;
		/* no lock was held since the last commit */
		check_caller(build->relid);
		build_one_part(build, p);
		note_progress(build, ++done, parts);
		commit_part();
		ereport(DEBUG1, (errmsg("part " UINT64_FORMAT " of " UINT64_FORMAT " is published", done, parts)));
	}
}

static bool
has_statistic(const TbpgTable *table, int array, TbStat stat)
{
	for (int i = 0; i < table->natts; i++)
		if (table->column[i].role == TBPG_STAT && table->column[i].index == array && table->column[i].stat == stat)
			return true;
	return false;
}

/* ADD COLUMN for each statistic that one array's column lacks. Names are as of now: it may have been renamed. */
static void
add_statistics(const Build *build, AttrNumber attno, StringInfo actions)
{
	int			index = build->table->column[attno - 1].index;
	HeapTuple	tuple = SearchSysCacheAttNum(build->relid, attno);
	const char *option;
	char	   *array;

	/* dropped since the build began */
	if (!HeapTupleIsValid(tuple))
		return;
	array = pstrdup(NameStr(((Form_pg_attribute) GETSTRUCT(tuple))->attname));
	ReleaseSysCache(tuple);
	option = tbpg_option(GetForeignColumnOptions(build->relid, attno), "array");
	for (int s = 0; s < TB_N_STATS; s++)
	{
		char	   *name = psprintf("%s_%s", array, tb_stat_name((TbStat) s));

		if (has_statistic(build->table, index, (TbStat) s) || strlen(name) >= NAMEDATALEN ||
			get_attnum(build->relid, name) != InvalidAttrNumber)
			continue;
		appendStringInfo(actions, "%s ADD COLUMN %s %s OPTIONS (array %s, statistic %s)", actions->len > 0 ? "," : "",
						 quote_identifier(name),
						 tbpg_type_of_stat(tb_array_meta(build->table->info->array[index]), (TbStat) s),
						 quote_literal_cstr(option != NULL ? option : array),
						 quote_literal_cstr(tb_stat_name((TbStat) s)));
	}
}

/* Add the statistics columns that the table lacks. The caller holds a lock that keeps the table. */
static void
add_columns(const Build *build)
{
	StringInfoData actions;

	initStringInfo(&actions);
	for (int i = 0; i < build->table->natts; i++)
		for (int a = 0; a < build->n_arrays; a++)
			if (build->table->column[i].role == TBPG_ARRAY && build->table->column[i].index == build->arrays[a])
			{
				add_statistics(build, (AttrNumber) (i + 1), &actions);
				break;
			}
	if (actions.len > 0)
	{
		char	   *table = quote_qualified_identifier(get_namespace_name(get_rel_namespace(build->relid)),
													   get_rel_name(build->relid));

		if (SPI_execute(psprintf("ALTER FOREIGN TABLE %s%s", table, actions.data), false, 0) != SPI_OK_UTILITY)
			elog(ERROR, "could not add the columns of statistics");
	}
	CacheInvalidateRelcacheByRelid(build->relid);
	tbpg_forget_table(build->relid);
}

static void
run_build(Build *build, ArrayType *names, uint64 part_blocks, bool rebuild)
{
	TbError		err;

	PushActiveSnapshot(GetTransactionSnapshot());
	build->table = tbpg_table(build->relid, GetUserId());
	tbpg_table_pin(build->table, build->context);
	choose_arrays(build, names);
	open_build(build, part_blocks, rebuild);
	build_parts(build);
	TBPG_AWAIT(tb_hsi_writer_finish(build->writer, &err), &err);
	/* nor since the last part was committed; this one keeps the table until the end */
	LockRelationOid(build->relid, AccessShareLock);
	check_caller(build->relid);
	add_columns(build);
	PopActiveSnapshot();
	ereport(NOTICE,
			(errmsg("index of \"%s\" is complete", get_rel_name(build->relid)),
			 errdetail(UINT64_FORMAT " blocks and " UINT64_FORMAT " stored bytes were read in this run.",
					   build->blocks, build->bytes)));
}

PG_FUNCTION_INFO_V1(tensorbank_build_index);

Datum
tensorbank_build_index(PG_FUNCTION_ARGS)
{
	bool		atomic = !(fcinfo->context && IsA(fcinfo->context, CallContext) &&
						   !castNode(CallContext, fcinfo->context)->atomic);
	Build	   *build;
	MemoryContext context;
	Datum		space = Int32GetDatum(LOCK_SPACE);
	Datum		key;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("relation must not be NULL")));
	if (atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("build_index cannot run inside a transaction block"),
				 errhint("It commits each part it publishes: CALL it on its own.")));
	check_caller(PG_GETARG_OID(0));
	if (!PG_ARGISNULL(2) && PG_GETARG_INT64(2) <= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("part_blocks must be positive")));
	context = AllocSetContextCreate(PortalContext, "tensorbank build", ALLOCSET_DEFAULT_SIZES);
	build = MemoryContextAllocZero(context, sizeof(Build));
	build->context = context;
	build->relid = PG_GETARG_OID(0);
	build->workers = PG_ARGISNULL(3) ? tbpg_settings.build_workers : Max(PG_GETARG_INT32(3), 0);
	build->started = GetCurrentTimestamp();
	key = Int32GetDatum((int32) build->relid);
	if (!DatumGetBool(DirectFunctionCall2(pg_try_advisory_lock_int4, space, key)))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("an index of \"%s\" is being built already", get_rel_name(build->relid)),
				 errhint("See tensorbank.index_progress.")));
	/* The lock is the session's, since it must outlive the commits: an error has to let it go by itself. */
	PG_TRY();
	{
		if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
			elog(ERROR, "could not connect to the server's query interface");
		run_build(build, PG_ARGISNULL(1) ? NULL : DatumGetArrayTypePCopy(PG_GETARG_DATUM(1)),
				  PG_ARGISNULL(2) ? 0 : (uint64) PG_GETARG_INT64(2), !PG_ARGISNULL(4) && PG_GETARG_BOOL(4));
		SPI_finish();
	}
	PG_FINALLY();
	{
		(void) DirectFunctionCall2(pg_advisory_unlock_int4, space, key);
	}
	PG_END_TRY();
	MemoryContextDelete(context);
	PG_RETURN_NULL();
}
