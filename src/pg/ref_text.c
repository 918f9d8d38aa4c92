/*
 * The text form of a tensor_ref, always qualified, quoted where needed:
 *
 *	schema.table.column[start:stop,...] dtype [raw] [cast]
 *
 * dtype is what read() gives; "raw" means stored values without mask, scale and offset, "cast" that
 * dtype was chosen by as_type(). Names are resolved when text is read, so a dump restores and other
 * nodes understand it; nothing is asked of a store. A ref whose table is gone prints
 * "?"."OID"."column number" and reads no more.
 */
#include "postgres.h"

#include <errno.h>

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "lib/stringinfo.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "pg/ref.h"

/* ---- writing ---- */

static char *
column_name(Oid relid, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid), Int16GetDatum(attnum));
	char	   *name = NULL;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	if (!((Form_pg_attribute) GETSTRUCT(tuple))->attisdropped)
		name = pstrdup(NameStr(((Form_pg_attribute) GETSTRUCT(tuple))->attname));
	ReleaseSysCache(tuple);
	return name;
}

char *
tbpg_ref_print(const TbpgRef *ref)
{
	char	   *table = get_rel_name(ref->relid);
	char	   *schema = table != NULL ? get_namespace_name(get_rel_namespace(ref->relid)) : NULL;
	char	   *column = column_name(ref->relid, ref->attnum);
	StringInfoData out;

	initStringInfo(&out);
	if (schema != NULL)
		appendStringInfo(&out, "%s.%s.", quote_identifier(schema), quote_identifier(table));
	else
		appendStringInfo(&out, "\"?\".\"%u\".", ref->relid);
	if (column != NULL)
		appendStringInfoString(&out, quote_identifier(column));
	else
		appendStringInfo(&out, "\"%d\"", ref->attnum);
	appendStringInfoChar(&out, '[');
	for (int d = 0; d < ref->ndim; d++)
	{
		int64		start = tbpg_ref_start_of(ref)[d];

		appendStringInfo(&out, "%s" INT64_FORMAT ":" INT64_FORMAT, d > 0 ? "," : "", start,
						 start + tbpg_ref_count_of(ref)[d]);
	}
	appendStringInfo(&out, "] %s%s%s", tb_dtype_name((TbDtype) ref->dtype),
					 ref->flags & TBPG_REF_RAW ? " raw" : "", ref->cast != TB_NONE ? " cast" : "");
	return out.data;
}

/* ---- reading ---- */

typedef struct Scanner
{
	const char *literal;
	const char *at;
	char	   *name[3];		/* schema, table, column */
	int			ndim;
	int64		start[TBPG_REF_MAX_DIM];
	int64		count[TBPG_REF_MAX_DIM];
	TbDtype		dtype;
	bool		raw;
	bool		cast;
} Scanner;

static void malformed(const Scanner *scanner, const char *detail) pg_attribute_noreturn();

static void
malformed(const Scanner *scanner, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input syntax for type tensor_ref: \"%s\"", scanner->literal),
			 errdetail("%s", detail),
			 errhint("A tensor_ref is written as in schema.table.column[0:1,0:90] float32.")));
}

static void
skip_space(Scanner *scanner)
{
	while (scanner_isspace(*scanner->at))
		scanner->at++;
}

static bool
accept(Scanner *scanner, char c)
{
	skip_space(scanner);
	if (*scanner->at != c)
		return false;
	scanner->at++;
	return true;
}

static bool
is_name_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || IS_HIGHBIT_SET(c);
}

/* An identifier as SQL writes it: quoted, or folded to lower case. */
static char *
scan_name(Scanner *scanner)
{
	StringInfoData name;
	const char *begin;

	skip_space(scanner);
	if (accept(scanner, '"'))
	{
		initStringInfo(&name);
		for (; *scanner->at != '\0'; scanner->at++)
		{
			if (*scanner->at == '"' && *++scanner->at != '"')
			{
				truncate_identifier(name.data, name.len, false);
				return name.data;
			}
			appendStringInfoChar(&name, *scanner->at);
		}
		malformed(scanner, "A quoted name does not end.");
	}
	begin = scanner->at;
	if (!is_name_start(*begin))
		malformed(scanner, "A name is expected.");
	while (is_name_start(*scanner->at) || (*scanner->at >= '0' && *scanner->at <= '9') ||
		   *scanner->at == '$')
		scanner->at++;
	return downcase_truncate_identifier(begin, (int) (scanner->at - begin), false);
}

static int64
scan_index(Scanner *scanner)
{
	char	   *end;
	int64		value;

	skip_space(scanner);
	if (*scanner->at < '0' || *scanner->at > '9')
		malformed(scanner, "An index is expected.");
	errno = 0;
	value = strtoll(scanner->at, &end, 10);
	if (errno != 0)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("index of a tensor_ref is out of range")));
	scanner->at = end;
	return value;
}

static void
scan_extents(Scanner *scanner)
{
	if (!accept(scanner, '['))
		malformed(scanner, "The region in brackets is expected.");
	while (!accept(scanner, ']'))
	{
		int			d = scanner->ndim;

		if (d > 0 && !accept(scanner, ','))
			malformed(scanner, "A comma or the end of the region is expected.");
		if (d == TBPG_REF_MAX_DIM)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("tensor_ref has too many dimensions"),
					 errdetail("At most %d are supported.", TBPG_REF_MAX_DIM)));
		scanner->start[d] = scan_index(scanner);
		if (!accept(scanner, ':'))
			malformed(scanner, "A colon is expected.");
		scanner->count[d] = scan_index(scanner) - scanner->start[d];
		if (scanner->count[d] < 0)
			malformed(scanner, "A region stops before it starts.");
		scanner->ndim++;
	}
}

/* A lower-case word without quotes; empty at the end. */
static const char *
scan_word(Scanner *scanner, char *word, size_t size)
{
	size_t		len = 0;

	skip_space(scanner);
	while (len + 1 < size && ((*scanner->at >= 'a' && *scanner->at <= 'z') ||
							  (*scanner->at >= '0' && *scanner->at <= '9')))
		word[len++] = *scanner->at++;
	word[len] = '\0';
	return word;
}

static void
scan_treatment(Scanner *scanner)
{
	char		word[16];

	scanner->dtype = tb_dtype_parse(scan_word(scanner, word, sizeof(word)));
	if (scanner->dtype == TB_NONE)
		malformed(scanner, "An element type such as float32 is expected.");
	(void) scan_word(scanner, word, sizeof(word));
	if (strcmp(word, "raw") == 0)
	{
		scanner->raw = true;
		(void) scan_word(scanner, word, sizeof(word));
	}
	if (strcmp(word, "cast") == 0)
	{
		scanner->cast = true;
		(void) scan_word(scanner, word, sizeof(word));
	}
	skip_space(scanner);
	if (word[0] != '\0' || *scanner->at != '\0')
		malformed(scanner, "There is something behind the element type that is not known.");
}

/* Names to OIDs. The right to read is looked at when the ref is used; to name a table, USAGE on its
 * schema. */
static void
resolve_names(const Scanner *scanner, Oid *relid, AttrNumber *attnum)
{
	Oid			schema = LookupExplicitNamespace(scanner->name[0], true);

	*relid = OidIsValid(schema) ? get_relname_relid(scanner->name[1], schema) : InvalidOid;
	if (!OidIsValid(*relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s.%s\" does not exist", scanner->name[0], scanner->name[1]),
				 errhint("Make the tensor_ref anew from a table that exists.")));
	*attnum = get_attnum(*relid, scanner->name[2]);
	if (*attnum <= 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column \"%s\" of relation \"%s.%s\" does not exist",
							   scanner->name[2], scanner->name[0], scanner->name[1])));
	if (get_rel_relkind(*relid) != RELKIND_FOREIGN_TABLE ||
		get_atttype(*relid, *attnum) != tbpg_tensor_ref_oid())
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("column \"%s\" of relation \"%s.%s\" is no tensor_ref of a foreign table",
						scanner->name[2], scanner->name[0], scanner->name[1])));
}

TbpgRef *
tbpg_ref_scan(const char *literal)
{
	Scanner		scanner = {.literal = literal, .at = literal};
	TbpgRef    *ref;

	for (int i = 0; i < 3; i++)
	{
		if (i > 0 && !accept(&scanner, '.'))
			malformed(&scanner, "Schema, table and column are expected.");
		scanner.name[i] = scan_name(&scanner);
	}
	scan_extents(&scanner);
	scan_treatment(&scanner);
	ref = tbpg_ref_new(scanner.ndim);
	resolve_names(&scanner, &ref->relid, &ref->attnum);
	ref->flags = scanner.raw ? TBPG_REF_RAW : 0;
	ref->cast = scanner.cast ? (uint8) scanner.dtype : TB_NONE;
	ref->dtype = (uint8) scanner.dtype;
	memcpy(tbpg_ref_start(ref), scanner.start, sizeof(int64) * (size_t) scanner.ndim);
	memcpy(tbpg_ref_count(ref), scanner.count, sizeof(int64) * (size_t) scanner.ndim);
	return ref;
}
