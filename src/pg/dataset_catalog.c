/*
 * Named datasets: rows of tensorbank.dataset, which only its owner may touch directly; and who may open one.
 *
 * The C code reads and writes the catalog as its owner, whoever calls: every statement is fixed, takes parameters and
 * names objects and operators with their schemas. What the caller may do is decided here, by the row.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "pg/compat.h"
#include "pg/dataset.h"
#include "pg/dataset_catalog.h"
#include "pg/ref.h"

/* ---- running a fixed statement as the catalog's owner ---- */

uint64
tbpg_catalog_run(const char *statement, int n, const Oid *types, const Datum *values, const char *nulls, bool read_only)
{
	Oid			user;
	int			context;
	int			result;

	GetUserIdAndSecContext(&user, &context);
	/* an error puts this back with the (sub)transaction */
	SetUserIdAndSecContext(tbpg_extension_owner(), context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
	result = SPI_execute_with_args(statement, n, (Oid *) types, (Datum *) values, nulls, read_only, 0);
	SetUserIdAndSecContext(user, context);
	if (result < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("the extension's own tables cannot be used"),
				 errdetail("%s.", SPI_result_code_string(result))));
	return SPI_processed;
}

/* ---- reading ---- */

static char *
column_text(int column)
{
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);
}

static Datum *
column_array(int column, Oid type, int *n)
{
	bool		null;
	Datum		array = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &null);
	Datum	   *values;
	int16		len;
	bool		by_value;
	char		align;

	*n = 0;
	if (null)
		return NULL;
	get_typlenbyvalalign(type, &len, &by_value, &align);
	deconstruct_array(DatumGetArrayTypeP(array), type, len, by_value, align, &values, NULL, n);
	return values;
}

enum
{
	COLUMN_OWNER = 1, COLUMN_HASH, COLUMN_SAMPLES, COLUMN_SERVER, COLUMN_URL, COLUMN_COLUMNS, COLUMN_TABLES,
	COLUMN_REF_TABLES, COLUMN_REF_COLUMNS, COLUMN_REF_USERS, COLUMN_SERVERS, COLUMN_URLS
};

static void
read_rights(TbpgDatasetInfo *info)
{
	int			n;
	Datum	   *table = column_array(COLUMN_TABLES, REGCLASSOID, &n);
	Datum	   *column;
	Datum	   *user;

	for (int i = 0; i < n; i++)
	{
		TbpgRight  *right = palloc0(sizeof(TbpgRight));

		right->relid = DatumGetObjectId(table[i]);
		right->user = info->owner;
		info->rights = lappend(info->rights, right);
	}
	table = column_array(COLUMN_REF_TABLES, REGCLASSOID, &n);
	column = column_array(COLUMN_REF_COLUMNS, NAMEOID, &n);
	user = column_array(COLUMN_REF_USERS, REGROLEOID, &n);
	for (int i = 0; i < n; i++)
	{
		TbpgRight  *right = palloc0(sizeof(TbpgRight));

		right->relid = DatumGetObjectId(table[i]);
		right->user = DatumGetObjectId(user[i]);
		right->attnum = get_attnum(right->relid, NameStr(*DatumGetName(column[i])));
		if (right->attnum <= 0)
			right->attnum = MaxAttrNumber;	/* gone: said when rights are checked */
		info->rights = lappend(info->rights, right);
	}
}

static void
read_row(TbpgDatasetInfo *info)
{
	bool		null;
	int			n;
	Datum	   *server;
	Datum	   *url;

	info->owner = DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, COLUMN_OWNER, &null));
	strlcpy(info->hash, column_text(COLUMN_HASH), sizeof(info->hash));
	info->samples = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, COLUMN_SAMPLES, &null));
	info->place.server = column_text(COLUMN_SERVER);
	info->place.url = column_text(COLUMN_URL);
	info->columns = column_text(COLUMN_COLUMNS);
	read_rights(info);
	server = column_array(COLUMN_SERVERS, NAMEOID, &n);
	url = column_array(COLUMN_URLS, TEXTOID, &n);
	for (int i = 0; i < n; i++)
	{
		TbpgStore  *store = palloc(sizeof(TbpgStore));

		store->server = pstrdup(NameStr(*DatumGetName(server[i])));
		store->url = TextDatumGetCString(url[i]);
		info->stores = lappend(info->stores, store);
	}
}

bool
tbpg_dataset_find(const char *name, TbpgDatasetInfo *info)
{
	MemoryContext caller = CurrentMemoryContext;
	Oid			type = TEXTOID;
	Datum		value = CStringGetTextDatum(name);
	TbpgDatasetInfo found = {0};
	bool		any;

	SPI_connect();
	any = tbpg_catalog_run("SELECT owner, hash, samples, server, url, columns, tables, ref_tables, ref_columns, "
						   "ref_users, servers, urls FROM tensorbank.dataset WHERE name OPERATOR(pg_catalog.=) $1",
						   1, &type, &value, NULL, true) > 0;
	if (any)
	{
		TbpgDatasetInfo *copy;

		read_row(&found);
		found.name = pstrdup(name);
		copy = tbpg_dataset_copy(&found, caller);
		*info = *copy;
	}
	SPI_finish();
	return any;
}

TbpgDatasetInfo *
tbpg_dataset_copy(const TbpgDatasetInfo *info, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	TbpgDatasetInfo *copy = palloc(sizeof(TbpgDatasetInfo));
	ListCell   *cell;

	*copy = *info;
	copy->name = info->name != NULL ? pstrdup(info->name) : NULL;
	copy->columns = info->columns != NULL ? pstrdup(info->columns) : NULL;
	copy->place.server = info->place.server != NULL ? pstrdup(info->place.server) : NULL;
	copy->place.url = info->place.url != NULL ? pstrdup(info->place.url) : NULL;
	copy->rights = NIL;
	copy->stores = NIL;
	foreach(cell, info->rights)
	{
		TbpgRight  *right = palloc(sizeof(TbpgRight));

		*right = *(TbpgRight *) lfirst(cell);
		copy->rights = lappend(copy->rights, right);
	}
	foreach(cell, info->stores)
	{
		TbpgStore  *store = palloc(sizeof(TbpgStore));

		store->server = pstrdup(((TbpgStore *) lfirst(cell))->server);
		store->url = pstrdup(((TbpgStore *) lfirst(cell))->url);
		copy->stores = lappend(copy->stores, store);
	}
	MemoryContextSwitchTo(old);
	return copy;
}

/* ---- writing ---- */

static Datum
make_array(Datum *values, int n, Oid type)
{
	int16		len;
	bool		by_value;
	char		align;

	get_typlenbyvalalign(type, &len, &by_value, &align);
	return PointerGetDatum(construct_array(values, n, type, len, by_value, align));
}

static Datum
name_datum(const char *string)
{
	Name		name = palloc0(NAMEDATALEN);

	namestrcpy(name, string);
	return NameGetDatum(name);
}

/* The rights as four arrays: tables; tables, columns and users of refs. */
static void
write_rights(const TbpgDatasetInfo *info, Datum *out)
{
	int			n = list_length(info->rights);
	Datum	   *table = palloc(sizeof(Datum) * (size_t) (n + 1));
	Datum	   *ref_table = palloc(sizeof(Datum) * (size_t) (n + 1));
	Datum	   *ref_column = palloc(sizeof(Datum) * (size_t) (n + 1));
	Datum	   *ref_user = palloc(sizeof(Datum) * (size_t) (n + 1));
	int			n_tables = 0;
	int			n_refs = 0;
	ListCell   *cell;

	foreach(cell, info->rights)
	{
		const TbpgRight *right = lfirst(cell);

		if (right->attnum == 0)
		{
			table[n_tables++] = ObjectIdGetDatum(right->relid);
			continue;
		}
		ref_table[n_refs] = ObjectIdGetDatum(right->relid);
		ref_column[n_refs] = name_datum(get_attname(right->relid, right->attnum, false));
		ref_user[n_refs++] = ObjectIdGetDatum(right->user);
	}
	out[0] = make_array(table, n_tables, REGCLASSOID);
	out[1] = make_array(ref_table, n_refs, REGCLASSOID);
	out[2] = make_array(ref_column, n_refs, NAMEOID);
	out[3] = make_array(ref_user, n_refs, REGROLEOID);
}

static void
write_stores(const TbpgDatasetInfo *info, Datum *out)
{
	int			n = 0;
	Datum	   *server = palloc(sizeof(Datum) * (size_t) (list_length(info->stores) + 1));
	Datum	   *url = palloc(sizeof(Datum) * (size_t) (list_length(info->stores) + 1));
	ListCell   *cell;

	foreach(cell, info->stores)
	{
		const TbpgStore *store = lfirst(cell);

		server[n] = name_datum(store->server);
		url[n++] = CStringGetTextDatum(store->url);
	}
	out[0] = make_array(server, n, NAMEOID);
	out[1] = make_array(url, n, TEXTOID);
}

void
tbpg_dataset_insert(const TbpgDatasetInfo *info, const char *query, ArrayType *params)
{
	Oid			types[] = {TEXTOID, REGROLEOID, TEXTOID, INT8OID, NAMEOID, TEXTOID, TEXTOID, TEXTOID, TEXTARRAYOID,
		get_array_type(REGCLASSOID), get_array_type(REGCLASSOID), NAMEARRAYOID, get_array_type(REGROLEOID),
	NAMEARRAYOID, TEXTARRAYOID};
	Datum		values[lengthof(types)];
	char		nulls[lengthof(types) + 1];

	memset(nulls, ' ', sizeof(nulls));
	nulls[lengthof(types)] = '\0';
	values[0] = CStringGetTextDatum(info->name);
	values[1] = ObjectIdGetDatum(info->owner);
	values[2] = CStringGetTextDatum(info->hash);
	values[3] = Int64GetDatum(info->samples);
	values[4] = name_datum(info->place.server);
	values[5] = CStringGetTextDatum(info->place.url);
	values[6] = CStringGetTextDatum(info->columns);
	values[7] = CStringGetTextDatum(query);
	values[8] = PointerGetDatum(params);
	if (params == NULL)
		nulls[8] = 'n';
	write_rights(info, &values[9]);
	write_stores(info, &values[13]);
	SPI_connect();
	(void) tbpg_catalog_run("INSERT INTO tensorbank.dataset (name, owner, hash, samples, server, url, columns, query, "
							"params, tables, ref_tables, ref_columns, ref_users, servers, urls) VALUES ($1, $2, $3, "
							"$4, $5, $6, $7::pg_catalog.jsonb, $8, $9, $10, $11, $12, $13, $14, $15)",
							lengthof(types), types, values, nulls, false);
	SPI_finish();
}

/* ---- rights ---- */

static bool
is_granted(const char *name)
{
	Oid			types[] = {TEXTOID, OIDOID};
	Datum		values[] = {CStringGetTextDatum(name), ObjectIdGetDatum(GetUserId())};
	bool		granted;

	SPI_connect();
	granted = tbpg_catalog_run("SELECT 1 FROM tensorbank.dataset_grant WHERE name OPERATOR(pg_catalog.=) $1 AND "
							   "(grantee OPERATOR(pg_catalog.=) 0 OR pg_catalog.pg_has_role($2, grantee, 'USAGE'))",
							   2, types, values, NULL, true) > 0;
	SPI_finish();
	return granted;
}

static bool
may_read(const TbpgRight *right)
{
	if (pg_class_aclcheck(right->relid, right->user, ACL_SELECT) == ACLCHECK_OK)
		return true;
	if (right->attnum > 0)
		return pg_attribute_aclcheck(right->relid, right->attnum, right->user, ACL_SELECT) == ACLCHECK_OK;
	return pg_attribute_aclcheck_all(right->relid, right->user, ACL_SELECT, ACLMASK_ANY) == ACLCHECK_OK;
}

static void
check_right(const TbpgRight *right)
{
	char	   *table = get_rel_name(right->relid);
	char	   *role = GetUserNameFromId(right->user, true);

	if (table == NULL || (right->attnum > 0 && get_attname(right->relid, right->attnum, true) == NULL))
		ereport(ERROR,
				(errcode(table == NULL ? ERRCODE_UNDEFINED_TABLE : ERRCODE_UNDEFINED_COLUMN),
				 errmsg(table == NULL ? "a table of the dataset does not exist any more" :
						"a column of the dataset does not exist any more"),
				 errhint("Create the dataset anew.")));
	if (role == NULL || !may_read(right))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("the dataset's owner may not read its tables any more"),
				 errdetail("Role \"%s\", table \"%s\".", role != NULL ? role : "(dropped)", table),
				 errhint("GRANT SELECT on the table to that role.")));
}

void
tbpg_dataset_check(const TbpgDatasetInfo *info)
{
	ListCell   *cell;

	if (info->name != NULL && !has_privs_of_role(GetUserId(), info->owner) && !is_granted(info->name))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for dataset %s", info->name),
				 errhint("Ask its owner for tensorbank.grant_dataset().")));
	foreach(cell, info->rights)
		check_right(lfirst(cell));
}
