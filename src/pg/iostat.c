/*
 * The views tensorbank.io_statistics and tensorbank.node_status: the node's books as rows. Counters are kept by
 * "database.server" and never fall while the books exist; servers that were renamed begin anew.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_foreign_server.h"
#include "commands/dbcommands.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

#include "pg/compat.h"
#include "pg/tbpg.h"

PG_FUNCTION_INFO_V1(tensorbank_io_statistics);
PG_FUNCTION_INFO_V1(tensorbank_node_status);

#define IO_COLUMNS 13
#define NODE_COLUMNS 8

static Datum
scope_value(void)
{
	return CStringGetTextDatum(tb_node_is_shared(tbpg_node()) ? "node" : "session");
}

/* Zeros where no read of the server was ever counted. */
static void
find_counters(const char *server, TbNodeCounters *counters)
{
	char	   *wanted = tbpg_counters_name(server);
	const char *name;

	for (size_t i = 0; tb_node_each(tbpg_node(), i, &name, counters); i++)
		if (strcmp(name, wanted) == 0)
			return;
	memset(counters, 0, sizeof(*counters));
}

static void
put_server(ReturnSetInfo *result, const char *server)
{
	TbNodeCounters c;
	Datum		values[IO_COLUMNS];
	bool		nulls[IO_COLUMNS] = {0};
	int			n = 0;

	find_counters(server, &c);
	values[n++] = CStringGetTextDatum(server);
	values[n++] = scope_value();
	values[n++] = Int64GetDatum((int64) c.requests);
	values[n++] = Int64GetDatum((int64) c.bytes);
	values[n++] = Int64GetDatum((int64) c.retries);
	values[n++] = Int64GetDatum((int64) c.hedges);
	values[n++] = Int64GetDatum((int64) c.merged);
	values[n++] = Int64GetDatum((int64) c.throttled);
	values[n++] = Int64GetDatum((int64) c.errors);
	values[n++] = Int64GetDatum((int64) c.missing);
	values[n++] = Int64GetDatum((int64) c.cache_hits);
	values[n++] = Int64GetDatum((int64) c.cache_bytes);
	values[n++] = Float8GetDatum((double) c.wait_ns / 1e6);
	Assert(n == IO_COLUMNS);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static bool
is_ours(Oid fdw)
{
	Oid			handler = GetForeignDataWrapper(fdw)->fdwhandler;
	char	   *name = OidIsValid(handler) ? get_func_name(handler) : NULL;
	char	   *schema = OidIsValid(handler) ? get_namespace_name(get_func_namespace(handler)) : NULL;

	return name != NULL && schema != NULL && strcmp(name, "handler") == 0 && strcmp(schema, "tensorbank") == 0;
}

/* A row for each server of the current database that the role may use; monitors see all of them. */
Datum
tensorbank_io_statistics(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		monitor = has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
	Relation	catalog;
	SysScanDesc scan;
	HeapTuple	tuple;

	InitMaterializedSRF(fcinfo, 0);
	catalog = table_open(ForeignServerRelationId, AccessShareLock);
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Form_pg_foreign_server server = (Form_pg_foreign_server) GETSTRUCT(tuple);

		if (is_ours(server->srvfdw) &&
			(monitor || tbpg_server_aclcheck(server->oid, GetUserId(), ACL_USAGE) == ACLCHECK_OK))
			put_server(result, NameStr(server->srvname));
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return (Datum) 0;
}

/* One row: what is taken now, and of what. */
Datum
tensorbank_node_status(PG_FUNCTION_ARGS)
{
	TbNodeUse	use = tb_node_use(tbpg_node());
	TbNodeLimits limits;
	TupleDesc	desc;
	Datum		values[NODE_COLUMNS];
	bool		nulls[NODE_COLUMNS] = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "node_status() must return a row");
	tbpg_node_limits(&limits);
	values[0] = scope_value();
	values[1] = Int32GetDatum(use.processes);
	values[2] = Int32GetDatum(use.active);
	values[3] = Int32GetDatum(use.requests);
	values[4] = Int32GetDatum(limits.requests);
	values[5] = Int64GetDatum((int64) use.memory_bytes);
	values[6] = Int64GetDatum((int64) limits.memory_bytes);
	values[7] = Int32GetDatum(tb_node_connections(tbpg_node(), &limits));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
