/*
 * Freezing: a query is run once, its rows are put in a total order and written as a dataset file.
 *
 * Rows come through a cursor, a thousand at a time, and go as sortable bytes (freeze_row.c) into a sort that
 * spills to disk over work_mem; the file is written from there. A query with ORDER BY keeps its own order.
 * Everything that would make the file wrong (NULL refs, shapes that differ) is counted to the end, so that
 * the error tells how much of it there is.
 *
 * The query runs as the current user and with XactReadOnly, so that functions in it cannot write; an error
 * resets that with the (sub)transaction, as PL functions rely on, too.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "pg/compat.h"
#include "pg/dataset.h"
#include "pg/link.h"

#define ROWS_AT_ONCE 1000

/* ---- columns ---- */

static TbScalarType
scalar_of(Oid type)
{
	switch (type)
	{
		case BOOLOID:
			return TB_SCALAR_BOOL;
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return TB_SCALAR_INT8;
		case FLOAT4OID:
		case FLOAT8OID:
			return TB_SCALAR_FLOAT8;
		default:
			return TB_SCALAR_TEXT;
	}
}

static void
check_names(const TbpgFreezer *f)
{
	bool		any = false;

	for (int i = 0; i < f->n_columns; i++)
	{
		any = any || f->column[i].is_ref;
		for (int j = 0; j < i; j++)
			if (strcmp(f->column[i].name, f->column[j].name) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("two columns of the query have the same name"),
						 errdetail("Both are named \"%s\".", f->column[i].name),
						 errhint("Name them with AS.")));
	}
	if (!any)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the query gives no tensor_ref column"),
				 errhint("Select the array's column of a foreign table itself, not read() of it.")));
}

static void
find_columns(TbpgFreezer *f, TupleDesc desc)
{
	Oid			ref = tbpg_tensor_ref_oid();

	f->n_columns = desc->natts;
	f->column = palloc0(sizeof(TbpgFreezeColumn) * (size_t) Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		TbpgFreezeColumn *column = &f->column[i];
		bool		varlena;

		column->name = pstrdup(NameStr(TupleDescAttr(desc, i)->attname));
		column->type = getBaseType(TupleDescAttr(desc, i)->atttypid);
		column->is_ref = column->type == ref;
		column->scalar = column->is_ref ? TB_SCALAR_NONE : scalar_of(column->type);
		if (get_element_type(column->type) == ref)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("columns of arrays of tensor_ref are not supported"),
					 errdetail("Column \"%s\".", column->name),
					 errhint("Select each tensor_ref as a column of its own.")));
		if (column->scalar == TB_SCALAR_TEXT)
			getTypeOutputInfo(column->type, &column->output, &varlena);
	}
	check_names(f);
}

/* ---- what is wrong with the rows ---- */

static void
raise_nulls(const TbpgFreezer *f)
{
	for (int i = 0; i < f->n_columns; i++)
		if (f->column[i].n_null > 0)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("the query gives rows whose tensor_ref is NULL"),
					 errdetail("Column \"%s\": %llu of %llu rows.", f->column[i].name,
							   (unsigned long long) f->column[i].n_null, (unsigned long long) f->n_rows),
					 errhint("Leave them out with WHERE ... IS NOT NULL.")));
}

static void
raise_shapes(const TbpgFreezer *f)
{
	for (int i = 0; i < f->n_columns; i++)
	{
		const TbpgFreezeColumn *c = &f->column[i];
		StringInfoData list;
		ListCell   *cell;

		if (c->n_others == 0)
			continue;
		initStringInfo(&list);
		appendStringInfo(&list, "%s[", tb_dtype_name(c->dtype));
		for (int d = 0; d < c->ndim; d++)
			appendStringInfo(&list, "%s%llu", d > 0 ? "," : "", (unsigned long long) c->shape[d]);
		appendStringInfo(&list, "]%s", c->treatment.raw ? " raw" : "");
		foreach(cell, c->others)
			appendStringInfo(&list, ", %s", (char *) lfirst(cell));
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("the query gives samples of different shapes"),
				 errdetail("Column \"%s\": %s; %llu of %llu rows differ from the first.", c->name, list.data,
						   (unsigned long long) c->n_others, (unsigned long long) f->n_rows),
				 errhint("Select one shape, by block_size or with tensorbank.region().")));
	}
}

/* ---- rows ---- */

/* Values that travel as text do so in one form, whatever the session's settings: they are part of the hash. */
static int
begin_text_settings(void)
{
	static const char *const setting[][2] = {
		{"datestyle", "ISO"}, {"timezone", "UTC"}, {"intervalstyle", "postgres"}, {"extra_float_digits", "1"},
		{"bytea_output", "hex"}
	};
	int			level = NewGUCNestLevel();

	for (size_t i = 0; i < lengthof(setting); i++)
		(void) set_config_option(setting[i][0], setting[i][1], PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
								 false);
	return level;
}

static void
take_rows(TbpgFreezer *f, Tuplesortstate *sort, MemoryContext row_context)
{
	TupleDesc	desc = SPI_tuptable->tupdesc;
	Datum	   *values = palloc(sizeof(Datum) * (size_t) desc->natts);
	bool	   *nulls = palloc((size_t) desc->natts);
	int			level = begin_text_settings();

	for (uint64 i = 0; i < SPI_processed; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(row_context);
		StringInfoData key;

		initStringInfo(&key);
		/* room for a varlena header in front of the key */
		appendStringInfoSpaces(&key, VARHDRSZ);
		heap_deform_tuple(SPI_tuptable->vals[i], desc, values, nulls);
		f->n_rows++;
		if (!tbpg_freeze_encode(f, values, nulls, &key))
			f->spoiled = true;
		if (!f->spoiled && sort == NULL)
			tbpg_freeze_write(f, key.data + VARHDRSZ, (size_t) key.len - VARHDRSZ);
		else if (!f->spoiled)
		{
			SET_VARSIZE(key.data, key.len);
			tuplesort_putdatum(sort, PointerGetDatum(key.data), false);
		}
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_context);
		CHECK_FOR_INTERRUPTS();
	}
	AtEOXact_GUC(true, level);
}

static void
write_sorted(TbpgFreezer *f, Tuplesortstate *sort, MemoryContext row_context)
{
	Datum		key;
	bool		null;

	tuplesort_performsort(sort);
	while (tbpg_tuplesort_getdatum(sort, &key, &null))
	{
		MemoryContext old = MemoryContextSwitchTo(row_context);
		struct varlena *bytes = PG_DETOAST_DATUM_PACKED(key);

		tbpg_freeze_write(f, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_context);
		pfree(DatumGetPointer(key));
		CHECK_FOR_INTERRUPTS();
	}
}

/* Run the query to its end; the file's rows are then written. */
static void
run_query(TbpgFreezer *f, const TbpgQuery *query)
{
	MemoryContext row_context = AllocSetContextCreate(f->context, "tensorbank row", ALLOCSET_DEFAULT_SIZES);
	Tuplesortstate *sort = NULL;
	bool		read_only = XactReadOnly;
	SPIPlanPtr	plan;
	Portal		portal;

	if (!query->ordered)
		sort = tuplesort_begin_datum(BYTEAOID, ByteaLessOperator, InvalidOid, false, work_mem, NULL, TUPLESORT_NONE);
	SPI_connect();
	plan = SPI_prepare(query->text, query->n_params, query->param_type);
	if (plan == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR), errmsg("the query of a dataset cannot be prepared"),
				 errdetail("%s.", SPI_result_code_string(SPI_result))));
	XactReadOnly = true;
	portal = SPI_cursor_open(NULL, plan, query->param, query->param_null, true);
	{
		MemoryContext old = MemoryContextSwitchTo(f->context);

		find_columns(f, portal->tupDesc);
		MemoryContextSwitchTo(old);
	}
	do
	{
		SPI_cursor_fetch(portal, true, ROWS_AT_ONCE);
		take_rows(f, sort, row_context);
		SPI_freetuptable(SPI_tuptable);
	} while (SPI_processed > 0);
	SPI_cursor_close(portal);
	XactReadOnly = read_only;
	SPI_finish();
	raise_nulls(f);
	raise_shapes(f);
	if (f->n_rows == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the query of the dataset gives no rows"),
				 errhint("Widen its WHERE: a dataset needs at least one sample.")));
	if (sort != NULL)
	{
		write_sorted(f, sort, row_context);
		tuplesort_end(sort);
	}
}

/* ---- what is kept beside the rows ---- */

static char *
print_columns(const TbpgFreezer *f)
{
	static const char *const scalar[] = {"", "bool", "int8", "float8", "text"};
	StringInfoData out;

	initStringInfo(&out);
	for (int i = 0; i < f->n_columns; i++)
	{
		const TbpgFreezeColumn *c = &f->column[i];

		appendStringInfoString(&out, i == 0 ? "[{\"name\":" : ",{\"name\":");
		escape_json(&out, c->name);
		if (c->is_ref)
		{
			appendStringInfo(&out, ",\"kind\":\"tensor\",\"dtype\":\"%s\"", tb_dtype_name(c->dtype));
			tbpg_request_extents(&out, "shape", c->ndim, c->shape);
			appendStringInfoChar(&out, '}');
		}
		else
			appendStringInfo(&out, ",\"kind\":\"scalar\",\"dtype\":\"%s\"}", scalar[c->scalar]);
	}
	appendStringInfoChar(&out, ']');
	return out.data;
}

static char *
print_meta(const TbpgQuery *query, ArrayType *params)
{
	StringInfoData out;

	tbpg_request_begin(&out, "dataset");
	tbpg_request_text(&out, "query", query->text);
	if (params != NULL)
	{
		Oid			output;
		bool		varlena;

		getTypeOutputInfo(TEXTARRAYOID, &output, &varlena);
		tbpg_request_text(&out, "params", OidOutputFunctionCall(output, PointerGetDatum(params)));
	}
	tbpg_request_text(&out, "user", GetUserNameFromId(GetUserId(), false));
	tbpg_request_text(&out, "created", timestamptz_to_str(GetCurrentTransactionStartTimestamp()));
	appendStringInfoChar(&out, '}');
	return out.data;
}

static void
note_stores(const TbpgFreezer *f, TbpgDatasetInfo *info)
{
	for (int i = 0; i < f->n_arrays; i++)
	{
		const TbpgFreezeArray *array = f->array[i];
		bool		known = false;
		ListCell   *cell;

		foreach(cell, info->stores)
		{
			const TbpgStore *store = lfirst(cell);

			known = known || (strcmp(store->server, array->array.server) == 0 &&
							  strcmp(store->url, array->array.url) == 0);
		}
		if (!known)
		{
			TbpgStore  *store = palloc(sizeof(TbpgStore));

			store->server = pstrdup(array->array.server);
			store->url = pstrdup(array->array.url);
			info->stores = lappend(info->stores, store);
		}
	}
}

static void
note_rights(const TbpgFreezer *f, const TbpgQuery *query, TbpgDatasetInfo *info)
{
	ListCell   *cell;

	foreach(cell, query->relations)
	{
		TbpgRight  *right = palloc0(sizeof(TbpgRight));

		right->relid = lfirst_oid(cell);
		right->user = info->owner;
		info->rights = lappend(info->rights, right);
	}
	for (int i = 0; i < f->n_arrays; i++)
	{
		TbpgRight  *right = palloc0(sizeof(TbpgRight));

		right->relid = f->array[i]->relid;
		right->attnum = f->array[i]->attnum;
		right->user = f->array[i]->user;
		info->rights = lappend(info->rights, right);
	}
}

static void
free_buf(void *object)
{
	tb_buf_unref(object);
}

/* Where the dataset goes: the server of the first tensor_ref column's first array. */
static Oid
first_server(const TbpgFreezer *f)
{
	return f->array[0]->server;
}

void
tbpg_freeze(const char *string, ArrayType *params, TbpgFrozen *frozen)
{
	TbpgFreezer *f;
	TbpgQuery	query;
	TbError		err;

	memset(frozen, 0, sizeof(*frozen));
	tbpg_query_check(string, params, &query);
	f = palloc0(sizeof(TbpgFreezer));
	f->context = AllocSetContextCreate(CurrentMemoryContext, "tensorbank freeze", ALLOCSET_DEFAULT_SIZES);
	run_query(f, &query);
	TBPG_CHECK(tb_dataset_writer_finish(f->writer, print_meta(&query, params), &frozen->file, frozen->info.hash, &err),
			   &err);
	(void) tbpg_own(CurrentMemoryContext, frozen->file, free_buf);
	frozen->info.owner = GetUserId();
	frozen->info.samples = (int64) f->n_rows;
	frozen->info.columns = print_columns(f);
	frozen->server = first_server(f);
	note_stores(f, &frozen->info);
	note_rights(f, &query, &frozen->info);
	MemoryContextDelete(f->context);
}
