/*
 * SQL functions about named datasets: create_dataset, drop_dataset, grant_dataset, revoke_dataset.
 *
 * Creating one freezes its query (freeze.c), stores the file beside the data or at the server's index_url under
 * its content hash, and notes it in the catalog. Files are never changed or removed here: other nodes and
 * running streams may use the same hash.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "pg/compat.h"
#include "pg/dataset.h"
#include "pg/dataset_catalog.h"

PG_FUNCTION_INFO_V1(tensorbank_create_dataset);
PG_FUNCTION_INFO_V1(tensorbank_drop_dataset);
PG_FUNCTION_INFO_V1(tensorbank_grant_dataset);
PG_FUNCTION_INFO_V1(tensorbank_revoke_dataset);

static char *
needed_text(FunctionCallInfo fcinfo, int argument, const char *what)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s of the dataset must not be NULL", what)));
	return text_to_cstring(PG_GETARG_TEXT_PP(argument));
}

static void
check_policy(const char *policy)
{
	if (strcmp(policy, "error") == 0)
		return;
	if (strcmp(policy, "pad") == 0 || strcmp(policy, "concat") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this shape_policy is not supported yet"),
				 errdetail("shape_policy \"%s\".", policy),
				 errhint("Use shape_policy => 'error' and select samples of one shape.")));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("shape_policy is not known"),
			 errdetail("\"%s\".", policy),
			 errhint("It is error.")));
}

static void
free_job(void *object)
{
	tb_job_free(object);
}

static void
free_source(void *object)
{
	tb_source_unref(object);
}

/* Store the file under its hash; there already means: the same content. */
static void
store_file(TbpgFrozen *frozen)
{
	TbSource   *where = tbpg_index_source(frozen->server, GetUserId(), true);
	char		key[128];
	TbpgOwned  *owned;
	TbJob	   *job;
	TbError		err;
	TbStatus	status;

	/* the cache of sources may drop it during the wait; what was owned last goes first */
	(void) tbpg_own(CurrentMemoryContext, tb_source_ref(where), free_source);
	owned = tbpg_own(CurrentMemoryContext, NULL, free_job);
	tb_dataset_key(frozen->info.hash, key, sizeof(key));
	TBPG_CHECK(tb_store_begin_put(tb_source_store(where), key, frozen->file, true, &job, &err), &err);
	tbpg_owned_set(owned, job);
	while ((status = tb_job_poll(job, &err)) == TB_AGAIN)
		tbpg_wait();
	tbpg_owned_set(owned, NULL);
	if (status != TB_OK && status != TB_E_CHANGED)
		tbpg_raise(&err);
	frozen->info.place.server = GetForeignServer(frozen->server)->servername;
	frozen->info.place.url = pstrdup(tb_source_url(where));
}

Datum
tensorbank_create_dataset(PG_FUNCTION_ARGS)
{
	char	   *name = needed_text(fcinfo, 0, "name");
	char	   *query = needed_text(fcinfo, 1, "query");
	ArrayType  *params = PG_ARGISNULL(2) ? NULL : PG_GETARG_ARRAYTYPE_P(2);
	TbpgDatasetInfo other;
	TbpgFrozen	frozen;

	check_policy(needed_text(fcinfo, 3, "shape_policy"));
	if (name[0] == '\0')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("name of the dataset must not be empty")));
	if (tbpg_dataset_find(name, &other))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("dataset \"%s\" already exists", name),
				 errhint("Choose another name, or drop it with tensorbank.drop_dataset().")));
	tbpg_freeze(query, params, &frozen);
	store_file(&frozen);
	frozen.info.name = name;
	tbpg_dataset_insert(&frozen.info, query, params);
	PG_RETURN_TEXT_P(cstring_to_text(frozen.info.hash));
}

/* A dataset of the current user (or one of a role whose rights it has). */
static char *
own_dataset(const char *name)
{
	TbpgDatasetInfo info;

	if (!tbpg_dataset_find(name, &info))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("dataset \"%s\" does not exist", name),
				 errhint("The view tensorbank.datasets lists them.")));
	if (!has_privs_of_role(GetUserId(), info.owner))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of dataset %s", name)));
	return info.name;
}

/* Run a fixed statement about a dataset of the current user, and maybe a role. */
static void
change(const char *statement, const char *name, bool with_role, Oid role)
{
	Oid			types[] = {TEXTOID, OIDOID};
	Datum		values[] = {CStringGetTextDatum(name), ObjectIdGetDatum(role)};

	SPI_connect();
	(void) tbpg_catalog_run(statement, with_role ? 2 : 1, types, values, NULL, false);
	SPI_finish();
}

Datum
tensorbank_drop_dataset(PG_FUNCTION_ARGS)
{
	change("DELETE FROM tensorbank.dataset WHERE name OPERATOR(pg_catalog.=) $1",
		   own_dataset(text_to_cstring(PG_GETARG_TEXT_PP(0))), false, InvalidOid);
	PG_RETURN_VOID();
}

/* A role by name; "public" is everyone. */
static Oid
grantee(const char *role)
{
	return strcmp(role, "public") == 0 ? InvalidOid : get_role_oid(role, false);
}

Datum
tensorbank_grant_dataset(PG_FUNCTION_ARGS)
{
	char	   *name = own_dataset(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	change("INSERT INTO tensorbank.dataset_grant (name, grantee) VALUES ($1, $2::pg_catalog.regrole) "
		   "ON CONFLICT DO NOTHING",
		   name, true, grantee(text_to_cstring(PG_GETARG_TEXT_PP(1))));
	PG_RETURN_VOID();
}

Datum
tensorbank_revoke_dataset(PG_FUNCTION_ARGS)
{
	char	   *name = own_dataset(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	change("DELETE FROM tensorbank.dataset_grant WHERE name OPERATOR(pg_catalog.=) $1 "
		   "AND grantee OPERATOR(pg_catalog.=) $2",
		   name, true, grantee(text_to_cstring(PG_GETARG_TEXT_PP(1))));
	PG_RETURN_VOID();
}
