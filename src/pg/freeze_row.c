/*
 * Rows of a dataset on their way from the query to the file, as bytes: compared as bytes, they sort in the
 * dataset's order, and the file's cells can be read back from them. So one sort of byte strings is all that a
 * total order takes, with rows on disk where they are many.
 *
 * The order: by the tensor_ref columns from left to right, each by array (server, url, path) and then by start;
 * then by the other columns from left to right, NULL first. A key is, in this order:
 *
 *	ref:	server 0 url 0 path 0, number of the array (4 bytes), starts (8 bytes each, high byte first)
 *	scalar:	0 NULL or 1, then 8 bytes that sort like the number, or UTF-8 text and 0
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "foreign/foreign.h"
#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"

#include "pg/dataset.h"
#include "pg/option.h"
#include "pg/ref.h"

#define MAX_OTHERS 5			/* shapes named in an error */

typedef struct ArrayKey
{
	Oid			relid;
	Oid			user;
	int32		attnum;
} ArrayKey;

typedef struct ArrayEntry
{
	ArrayKey	key;
	int			number;
} ArrayEntry;

/* ---- numbers as bytes that sort ---- */

static void
put_u64(StringInfo out, uint64 value)
{
	uint64		big = pg_hton64(value);

	appendBinaryStringInfo(out, (const char *) &big, 8);
}

static uint64
take_u64(const char **at)
{
	uint64		big;

	memcpy(&big, *at, 8);
	*at += 8;
	return pg_ntoh64(big);
}

static uint64
sortable_double(double value)
{
	uint64		bits;

	memcpy(&bits, &value, 8);
	return bits >> 63 ? ~bits : bits | UINT64CONST(1) << 63;
}

static double
double_of_sortable(uint64 sortable)
{
	uint64		bits = sortable >> 63 ? sortable ^ (UINT64CONST(1) << 63) : ~sortable;
	double		value;

	memcpy(&value, &bits, 8);
	return value;
}

/* ---- arrays ---- */

/* The freezer's record of a ref's array; the rights to it were checked when it was resolved. */
static int
array_number(TbpgFreezer *f, const TbpgRef *ref, const TbpgResolved *resolved)
{
	ArrayKey	key = {.relid = ref->relid, .user = resolved->user, .attnum = ref->attnum};
	ArrayEntry *entry;
	bool		found;
	MemoryContext old = MemoryContextSwitchTo(f->context);

	if (f->array_index == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(ArrayKey), .entrysize = sizeof(ArrayEntry), .hcxt = f->context};

		f->array_index = hash_create("tensorbank arrays", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = hash_search(f->array_index, &key, HASH_ENTER, &found);
	if (!found)
	{
		const TbArrayMeta *meta = tb_array_meta(resolved->array);
		TbpgFreezeArray *array = palloc0(sizeof(TbpgFreezeArray));
		const char *mask = tbpg_option(GetForeignColumnOptions(ref->relid, ref->attnum), "mask_fill");

		array->relid = ref->relid;
		array->attnum = ref->attnum;
		array->user = resolved->user;
		array->server = resolved->table->server;
		array->array.server = pstrdup(GetForeignServer(array->server)->servername);
		array->array.url = pstrdup(tb_source_url(tb_array_source(resolved->array)));
		array->array.path = pstrdup(meta->path);
		array->array.mask_fill = mask == NULL ? -1 : tbpg_option_bool("mask_fill", mask);
		array->array.stored = meta->dtype;
		array->array.ndim = meta->ndim;
		memcpy(array->array.shape, meta->shape, sizeof(array->array.shape));
		if (f->n_arrays == f->max_arrays)
		{
			f->max_arrays = Max(16, f->max_arrays * 2);
			f->array = f->array == NULL ? palloc(sizeof(*f->array) * (size_t) f->max_arrays) :
				repalloc(f->array, sizeof(*f->array) * (size_t) f->max_arrays);
		}
		f->array[f->n_arrays] = array;
		entry->number = f->n_arrays++;
	}
	MemoryContextSwitchTo(old);
	return entry->number;
}

/* ---- shapes ---- */

static char *
describe_shape(const TbpgResolved *resolved)
{
	StringInfoData out;

	initStringInfo(&out);
	appendStringInfo(&out, "%s[", tb_dtype_name(resolved->dtype));
	for (int d = 0; d < resolved->region.ndim; d++)
		appendStringInfo(&out, "%s%llu", d > 0 ? "," : "", (unsigned long long) resolved->region.count[d]);
	appendStringInfo(&out, "]%s", resolved->treatment.raw ? " raw" : "");
	return out.data;
}

/* The first row's shape counts; another is noted for the error. */
static bool
check_shape(TbpgFreezer *f, TbpgFreezeColumn *column, const TbpgResolved *resolved)
{
	const TbRegion *region = &resolved->region;
	MemoryContext old;
	char	   *description;
	ListCell   *cell;

	if (!column->seen)
	{
		column->seen = true;
		column->treatment = resolved->treatment;
		column->dtype = resolved->dtype;
		column->ndim = region->ndim;
		memcpy(column->shape, region->count, sizeof(uint64_t) * (size_t) region->ndim);
		return true;
	}
	if (column->dtype == resolved->dtype && column->ndim == region->ndim &&
		column->treatment.raw == resolved->treatment.raw && column->treatment.cast == resolved->treatment.cast &&
		memcmp(column->shape, region->count, sizeof(uint64_t) * (size_t) region->ndim) == 0)
		return true;
	column->n_others++;
	description = describe_shape(resolved);
	foreach(cell, column->others)
		if (strcmp(lfirst(cell), description) == 0)
			return false;
	if (list_length(column->others) < MAX_OTHERS)
	{
		old = MemoryContextSwitchTo(f->context);
		column->others = lappend(column->others, pstrdup(description));
		MemoryContextSwitchTo(old);
	}
	return false;
}

/* ---- encoding ---- */

static bool
encode_ref(TbpgFreezer *f, TbpgFreezeColumn *column, Datum value, StringInfo key)
{
	TbpgRef    *ref = (TbpgRef *) PG_DETOAST_DATUM(value);
	TbpgResolved resolved;
	const TbDatasetArray *array;
	int			number;
	uint32		big;

	tbpg_ref_resolve(ref, &resolved);
	number = array_number(f, ref, &resolved);
	if (!check_shape(f, column, &resolved))
		return false;
	array = &f->array[number]->array;
	appendBinaryStringInfo(key, array->server, (int) strlen(array->server) + 1);
	appendBinaryStringInfo(key, array->url, (int) strlen(array->url) + 1);
	appendBinaryStringInfo(key, array->path, (int) strlen(array->path) + 1);
	big = pg_hton32((uint32) number);
	appendBinaryStringInfo(key, (const char *) &big, 4);
	for (int d = 0; d < resolved.region.ndim; d++)
		put_u64(key, resolved.region.start[d]);
	return true;
}

static int64
integer_of(Datum value, Oid type)
{
	switch (type)
	{
		case BOOLOID:
			return DatumGetBool(value);
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		default:
			return DatumGetInt64(value);
	}
}

static void
encode_scalar(const TbpgFreezeColumn *column, Datum value, bool null, StringInfo key)
{
	char	   *string;

	appendStringInfoChar(key, null ? 0 : 1);
	if (null)
		return;
	switch (column->scalar)
	{
		case TB_SCALAR_BOOL:
		case TB_SCALAR_INT8:
			put_u64(key, (uint64) integer_of(value, column->type) ^ UINT64CONST(1) << 63);
			break;
		case TB_SCALAR_FLOAT8:
			put_u64(key, sortable_double(column->type == FLOAT4OID ? DatumGetFloat4(value) : DatumGetFloat8(value)));
			break;
		default:
			string = OidOutputFunctionCall(column->output, value);
			string = pg_server_to_any(string, (int) strlen(string), PG_UTF8);
			appendBinaryStringInfo(key, string, (int) strlen(string) + 1);
	}
}

bool
tbpg_freeze_encode(TbpgFreezer *f, const Datum *value, const bool *null, StringInfo key)
{
	bool		good = true;

	for (int i = 0; i < f->n_columns; i++)
	{
		TbpgFreezeColumn *column = &f->column[i];

		if (!column->is_ref)
			continue;
		if (null[i])
			column->n_null++;
		if (null[i] || !encode_ref(f, column, value[i], key))
			good = false;
	}
	for (int i = 0; good && i < f->n_columns; i++)
		if (!f->column[i].is_ref)
			encode_scalar(&f->column[i], value[i], null[i], key);
	return good;
}

/* ---- writing ---- */

static void
free_writer(void *object)
{
	tb_dataset_writer_free(object);
}

static char *
to_utf8(const char *string)
{
	return pg_server_to_any(string, (int) strlen(string), PG_UTF8);
}

static void
begin_file(TbpgFreezer *f)
{
	TbDatasetColumn *columns = palloc0(sizeof(TbDatasetColumn) * (size_t) f->n_columns);
	TbError		err;

	for (int i = 0; i < f->n_columns; i++)
	{
		const TbpgFreezeColumn *column = &f->column[i];

		columns[i].name = to_utf8(column->name);
		columns[i].scalar = column->scalar;
		columns[i].treatment = column->treatment;
		columns[i].dtype = column->dtype;
		columns[i].ndim = column->ndim;
		memcpy(columns[i].shape, column->shape, sizeof(columns[i].shape));
	}
	TBPG_CHECK(tb_dataset_writer_new(columns, f->n_columns, &f->writer, &err), &err);
	(void) tbpg_own(f->context, f->writer, free_writer);
	f->cell = MemoryContextAllocZero(f->context, sizeof(TbDatasetCell) * (size_t) f->n_columns);
}

/* Number of an array in the file: given in the order of first use, so that equal rows make equal files. */
static uint32
file_array(TbpgFreezer *f, TbpgFreezeArray *array)
{
	TbDatasetArray utf8 = array->array;
	TbError		err;

	if (array->written)
		return array->id;
	utf8.server = to_utf8(utf8.server);
	utf8.url = to_utf8(utf8.url);
	utf8.path = to_utf8(utf8.path);
	/* two columns or users may share an array */
	for (int i = 0; i < f->n_arrays; i++)
	{
		const TbpgFreezeArray *other = f->array[i];

		if (other->written && strcmp(other->array.server, array->array.server) == 0 &&
			strcmp(other->array.url, array->array.url) == 0 && strcmp(other->array.path, array->array.path) == 0 &&
			other->array.mask_fill == array->array.mask_fill)
		{
			array->written = true;
			return array->id = other->id;
		}
	}
	TBPG_CHECK(tb_dataset_writer_array(f->writer, &utf8, &array->id, &err), &err);
	array->written = true;
	return array->id;
}

static void
decode_ref(TbpgFreezer *f, const TbpgFreezeColumn *column, TbDatasetCell *cell, const char **at)
{
	uint32		big;

	for (int i = 0; i < 3; i++)
		*at += strlen(*at) + 1;
	memcpy(&big, *at, 4);
	*at += 4;
	cell->array = file_array(f, f->array[pg_ntoh32(big)]);
	for (int d = 0; d < column->ndim; d++)
		cell->start[d] = take_u64(at);
}

static void
decode_scalar(const TbpgFreezeColumn *column, TbDatasetCell *cell, const char **at)
{
	cell->null = *(*at)++ == 0;
	if (cell->null)
		return;
	switch (column->scalar)
	{
		case TB_SCALAR_BOOL:
		case TB_SCALAR_INT8:
			cell->i64 = (int64_t) (take_u64(at) ^ UINT64CONST(1) << 63);
			break;
		case TB_SCALAR_FLOAT8:
			cell->f64 = double_of_sortable(take_u64(at));
			break;
		default:
			cell->text = *at;
			cell->text_len = strlen(*at);
			*at += cell->text_len + 1;
	}
}

void
tbpg_freeze_write(TbpgFreezer *f, const char *key, size_t len)
{
	const char *at = key;
	TbError		err;

	if (f->writer == NULL)
		begin_file(f);
	for (int i = 0; i < f->n_columns; i++)
		if (f->column[i].is_ref)
			decode_ref(f, &f->column[i], &f->cell[i], &at);
	for (int i = 0; i < f->n_columns; i++)
		if (!f->column[i].is_ref)
			decode_scalar(&f->column[i], &f->cell[i], &at);
	Assert(at == key + len);
	TBPG_CHECK(tb_dataset_writer_row(f->writer, f->cell, &err), &err);
}
