/*
 * Which SQL type a column of a foreign table has, by what it stands for, and the OIDs of our own types.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/syscache.h"

#include "pg/tbpg.h"

/* Looked up by name each time: CREATE EXTENSION may happen again in one session; the syscache makes it cheap. */
static Oid
extension_type(const char *name)
{
	Oid			space = get_namespace_oid("tensorbank", false);
	Oid			oid = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum(name), ObjectIdGetDatum(space));

	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("type \"tensorbank.%s\" does not exist", name),
				 errhint("Run CREATE EXTENSION tensorbank.")));
	return oid;
}

Oid
tbpg_tensor_oid(void)
{
	return extension_type("tensor");
}

Oid
tbpg_tensor_ref_oid(void)
{
	return extension_type("tensor_ref");
}

Oid
tbpg_extension_owner(void)
{
	Oid			space = get_namespace_oid("tensorbank", false);
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(space));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for namespace %u", space);
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	return owner;
}

Oid
tbpg_read_function(void)
{
	Oid			args[1] = {tbpg_tensor_ref_oid()};
	List	   *name = list_make2(makeString("tensorbank"), makeString("read"));

	return LookupFuncName(name, 1, args, true);
}

const char *
tbpg_type_of_stat(const TbArrayMeta *meta, TbStat stat)
{
	if (stat == TB_STAT_MEAN || stat == TB_STAT_STD)
		return "double precision";
	if (stat != TB_STAT_MIN && stat != TB_STAT_MAX)
		return "bigint";
	if (meta->packing.stat == TB_BOOL)
		return "boolean";
	switch (tb_stat_class(meta))
	{
		case TB_CLASS_F64:
			return "double precision";
		case TB_CLASS_I64:
			return "bigint";
		case TB_CLASS_U64:
			return "numeric";
	}
	pg_unreachable();
}

const char *
tbpg_type_of_coord(TbCoordKind kind)
{
	switch (kind)
	{
		case TB_COORD_TIME:
			return "timestamp with time zone";
		case TB_COORD_FLOAT:
			return "double precision";
		case TB_COORD_INT:
		case TB_COORD_INDEX:
			return "bigint";
	}
	pg_unreachable();
}

static Oid
type_by_name(const char *name)
{
	static const struct {const char *name; Oid oid;} types[] = {
		{"double precision", FLOAT8OID}, {"bigint", INT8OID}, {"numeric", NUMERICOID},
		{"boolean", BOOLOID}, {"timestamp with time zone", TIMESTAMPTZOID}
	};

	for (size_t i = 0; i < lengthof(types); i++)
		if (strcmp(types[i].name, name) == 0)
			return types[i].oid;
	pg_unreachable();
}

Oid
tbpg_column_type(const TbGridInfo *info, TbpgColumn column)
{
	switch (column.role)
	{
		case TBPG_BLOCK:
		case TBPG_BLOCK_SIZE:
			return INT8OID;
		case TBPG_BLOCK_STATE:
			return TEXTOID;
		case TBPG_COORD_MIN:
		case TBPG_COORD_MAX:
			return type_by_name(tbpg_type_of_coord(info->coord[column.index].kind));
		case TBPG_ARRAY:
			return tbpg_tensor_ref_oid();
		case TBPG_STAT:
			return type_by_name(tbpg_type_of_stat(tb_array_meta(info->array[column.index]), column.stat));
		case TBPG_UNUSED:
			break;
	}
	return InvalidOid;
}
