/*
 * The one place where an engine error becomes a PostgreSQL error.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"

#include "pg/tbpg.h"

int
tbpg_sqlstate(TbStatus status)
{
	switch (status)
	{
		case TB_E_NOMEM:
			return ERRCODE_OUT_OF_MEMORY;
		case TB_E_CANCELED:
			return ERRCODE_QUERY_CANCELED;
		case TB_E_IO:
			return ERRCODE_IO_ERROR;
		case TB_E_NO_SPACE:
			return ERRCODE_DISK_FULL;
		case TB_E_CONNECT:
			return ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION;
		case TB_E_LOST:
			return ERRCODE_CONNECTION_FAILURE;
		case TB_E_PROTOCOL:
			return ERRCODE_PROTOCOL_VIOLATION;
		case TB_E_THROTTLED:
			return ERRCODE_INSUFFICIENT_RESOURCES;
		case TB_E_AUTH:
			return ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION;
		case TB_E_DENIED:
			return ERRCODE_INSUFFICIENT_PRIVILEGE;
		case TB_E_NOT_FOUND:
			return ERRCODE_FDW_TABLE_NOT_FOUND;
		case TB_E_NO_GROUP:
			return ERRCODE_FDW_SCHEMA_NOT_FOUND;
		case TB_E_NO_ARRAY:
			return ERRCODE_FDW_COLUMN_NAME_NOT_FOUND;
		case TB_E_CHANGED:
			return ERRCODE_T_R_SERIALIZATION_FAILURE;
		case TB_E_CORRUPT:
			return ERRCODE_DATA_CORRUPTED;
		case TB_E_INDEX_CORRUPT:
			return ERRCODE_INDEX_CORRUPTED;
		case TB_E_UNSUPPORTED:
			return ERRCODE_FEATURE_NOT_SUPPORTED;
		case TB_E_INVALID:
			return ERRCODE_INVALID_PARAMETER_VALUE;
		case TB_E_JSON:
			return ERRCODE_INVALID_JSON_TEXT;
		case TB_E_JSON_DUPLICATE:
			return ERRCODE_DUPLICATE_JSON_OBJECT_KEY_VALUE;
		case TB_E_TEXT:
			return ERRCODE_INVALID_TEXT_REPRESENTATION;
		case TB_E_RANGE:
			return ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE;
		case TB_E_LIMIT:
			return ERRCODE_PROGRAM_LIMIT_EXCEEDED;
		case TB_E_HANDLE:
			return ERRCODE_FDW_INVALID_HANDLE;
		case TB_E_UNAVAILABLE:
			return ERRCODE_CANNOT_CONNECT_NOW;
		case TB_E_SHAPE:
			return ERRCODE_ARRAY_SUBSCRIPT_ERROR;
		case TB_E_NULL:
			return ERRCODE_NULL_VALUE_NOT_ALLOWED;
		case TB_E_STATE:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		case TB_OK:
		case TB_AGAIN:
		case TB_E_INTERNAL:
			break;
	}
	return ERRCODE_INTERNAL_ERROR;
}

/* Text of the engine may hold bytes that a store sent: make it valid in the database's encoding. */
char *
tbpg_clean_text(const char *text)
{
	size_t		len = strlen(text);
	char	   *copy;

	if (pg_verify_mbstr(GetDatabaseEncoding(), text, (int) len, true))
		return pstrdup(text);
	copy = pstrdup(text);
	for (size_t i = 0; i < len; i++)
		if (IS_HIGHBIT_SET(copy[i]))
			copy[i] = '?';
	return copy;
}

static void
report(const TbError *err, int level)
{
	/* A cancel that the engine noticed is PostgreSQL's to raise. */
	if (err->code == TB_E_CANCELED)
		CHECK_FOR_INTERRUPTS();
	ereport(level,
			(errcode(tbpg_sqlstate(err->code)),
			 errmsg_internal("%s", err->message[0] ? tbpg_clean_text(err->message) : tb_status_name(err->code)),
			 err->detail[0] ? errdetail_internal("%s", tbpg_clean_text(err->detail)) : 0,
			 err->hint[0] ? errhint("%s", tbpg_clean_text(err->hint)) : 0));
}

void
tbpg_raise(const TbError *err)
{
	report(err, ERROR);
	pg_unreachable();
}

void
tbpg_warn(const TbError *err)
{
	report(err, WARNING);
}
