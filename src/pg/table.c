/*
 * What stands behind a foreign table: the role of each column, the grid of the arrays, the newest index.
 *
 * Roles come from column options, or where a column has none, from its name. Opening waits for metadata and
 * coordinates; an opened table is cached per (table, user) until its definition or server changes or its
 * metadata is older than tensorbank.metadata_max_age. Tables are counted: a scan pins the one it works on.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "pg/compat.h"
#include "pg/option.h"
#include "pg/table.h"
#include "pg/tbpg.h"

typedef struct TableKey
{
	Oid			relid;
	Oid			user;
} TableKey;

typedef struct TableEntry
{
	TableKey	key;
	TbpgTable  *table;			/* owned: one reference; NULL: to be opened */
	int64		opened_ns;
	bool		stale;
} TableEntry;

static HTAB *tables;

static void
forget_tables(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	hash_seq_init(&scan, tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (!OidIsValid(relid) || entry->key.relid == relid)
			entry->stale = true;
}

static void
forget_all_tables(Datum arg, int cacheid, uint32 hashvalue)
{
	forget_tables((Datum) 0, InvalidOid);
}

void
tbpg_forget_table(Oid relid)
{
	if (tables != NULL)
		forget_tables((Datum) 0, relid);
}

bool
tbpg_is_ours(Oid relid)
{
	return get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE &&
		GetForeignServer(GetForeignTable(relid)->serverid)->fdwid == get_foreign_data_wrapper_oid("tensorbank", true);
}

static void
table_release(void *object)
{
	tbpg_table_unpin(object);
}

void
tbpg_table_unpin(TbpgTable *table)
{
	if (table == NULL || --table->refs > 0)
		return;
	MemoryContextDelete(table->context);
}

void
tbpg_table_pin(TbpgTable *table, MemoryContext context)
{
	table->refs++;
	(void) tbpg_own(context, table, table_release);
}

static void
release_grid(void *object)
{
	tb_grid_unref(object);
}

static void
release_hsi(void *object)
{
	tb_hsi_unref(object);
}

/* Names gathered from the columns, turned into a TbGridSpec. */
typedef struct Draft
{
	const char *group;
	const char *array[MaxHeapAttributeNumber];
	int			mask_fill[MaxHeapAttributeNumber];
	int			n_arrays;
	const char *aux[MaxHeapAttributeNumber];
	int			n_aux;
	uint64_t	cell[TB_MAX_DIM];
	int			n_cell;
	const char *append_dim;
	/* per column: what the name of its coordinate is, until the grid is open */
	const char *coord[MaxHeapAttributeNumber];
} Draft;

static int
intern(const char **names, int *n, const char *name)
{
	for (int i = 0; i < *n; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	names[*n] = name;
	return (*n)++;
}

/* "t2m_max" with suffix "_max" -> "t2m"; NULL where it does not end so. */
static char *
without_suffix(const char *name, const char *suffix)
{
	size_t		n = strlen(name);
	size_t		s = strlen(suffix);

	if (n <= s + 1 || name[n - s - 1] != '_' || strcmp(name + n - s, suffix) != 0)
		return NULL;
	return pnstrdup(name, n - s - 1);
}

static void
column_error(const char *table, const char *column, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_COLUMN_NAME),
			 errmsg("the column stands for nothing in the store"),
			 errdetail("Column \"%s\" of foreign table \"%s\".", column, table),
			 errhint("%s", hint)));
}

/* Role of a column that has no options, by its name and type. */
static bool
role_by_name(Draft *draft, const char *name, Oid type, TbpgColumn *column, int attno)
{
	static const struct {const char *name; TbpgRole role;} blocks[] = {
		{"block", TBPG_BLOCK}, {"block_size", TBPG_BLOCK_SIZE}, {"block_state", TBPG_BLOCK_STATE}
	};

	for (size_t i = 0; i < lengthof(blocks); i++)
		if (strcmp(name, blocks[i].name) == 0)
		{
			column->role = blocks[i].role;
			return true;
		}
	if (type == tbpg_tensor_ref_oid())
	{
		column->role = TBPG_ARRAY;
		column->index = intern(draft->array, &draft->n_arrays, name);
		return true;
	}
	for (int s = 0; s < TB_N_STATS; s++)
	{
		char	   *array = without_suffix(name, tb_stat_name((TbStat) s));

		for (int a = 0; array != NULL && a < draft->n_arrays; a++)
			if (strcmp(draft->array[a], array) == 0)
			{
				column->role = TBPG_STAT;
				column->index = a;
				column->stat = (TbStat) s;
				return true;
			}
	}
	for (int b = 0; b < 2; b++)
	{
		char	   *dim = without_suffix(name, b ? "max" : "min");

		if (dim != NULL)
		{
			column->role = b ? TBPG_COORD_MAX : TBPG_COORD_MIN;
			draft->coord[attno] = dim;
			return true;
		}
	}
	return false;
}

/* Role of a column from its options. */
static bool
role_by_options(Draft *draft, List *options, TbpgColumn *column, int attno)
{
	const char *array = tbpg_option(options, "array");
	const char *dimension = tbpg_option(options, "dimension");
	const char *statistic = tbpg_option(options, "statistic");
	const char *bound = tbpg_option(options, "bound");
	const char *block = tbpg_option(options, "block");
	const char *mask = tbpg_option(options, "mask_fill");

	if (block != NULL)
		column->role = strcmp(block, "number") == 0 ? TBPG_BLOCK :
			strcmp(block, "size") == 0 ? TBPG_BLOCK_SIZE : TBPG_BLOCK_STATE;
	else if ((dimension != NULL || array != NULL) && bound != NULL)
	{
		column->role = strcmp(bound, "max") == 0 ? TBPG_COORD_MAX : TBPG_COORD_MIN;
		draft->coord[attno] = dimension != NULL ? dimension : array;
		if (dimension == NULL)
			(void) intern(draft->aux, &draft->n_aux, array);
	}
	else if (array != NULL)
	{
		column->role = statistic != NULL ? TBPG_STAT : TBPG_ARRAY;
		column->index = intern(draft->array, &draft->n_arrays, array);
		if (statistic != NULL)
			column->stat = (TbStat) tbpg_option_stat(statistic);
		if (mask != NULL)
			draft->mask_fill[column->index] = tbpg_option_bool("mask_fill", mask);
	}
	else
		return false;
	return true;
}

/* Two passes: refs and options first, so that names such as t2m_max find their array wherever it stands. */
static void
find_roles(Relation rel, TbpgTable *table, Draft *draft)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < MaxHeapAttributeNumber; i++)
		draft->mask_fill[i] = -1;
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < desc->natts; i++)
		{
			Form_pg_attribute attr = TupleDescAttr(desc, i);
			List	   *options;
			TbpgColumn *column = &table->column[i];

			if (attr->attisdropped || column->role != TBPG_UNUSED)
				continue;
			column->type = attr->atttypid;
			options = GetForeignColumnOptions(table->relid, attr->attnum);
			if (pass == 0 && options == NIL && attr->atttypid != tbpg_tensor_ref_oid())
				continue;
			if (!role_by_options(draft, options, column, i) &&
				!role_by_name(draft, NameStr(attr->attname), attr->atttypid, column, i))
				column_error(RelationGetRelationName(rel), NameStr(attr->attname),
							 "Set the column's options: array, array and statistic, dimension and bound, or block.");
		}
	if (draft->n_arrays == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_COLUMN_NAME_NOT_FOUND),
				 errmsg("the foreign table names no array"),
				 errdetail("Foreign table \"%s\".", RelationGetRelationName(rel)),
				 errhint("Give it a tensorbank.tensor_ref column with the option array, or IMPORT FOREIGN SCHEMA.")));
}

static void
resolve_coords(Relation rel, TbpgTable *table, const Draft *draft)
{
	for (int i = 0; i < table->natts; i++)
	{
		TbpgColumn *column = &table->column[i];
		const char *name = draft->coord[i];

		if (name == NULL)
			continue;
		column->index = -1;
		for (int c = 0; c < table->info->n_coords; c++)
			if (strcmp(table->info->coord[c].name, name) == 0)
				column->index = c;
		if (column->index < 0)
			column_error(RelationGetRelationName(rel), NameStr(TupleDescAttr(RelationGetDescr(rel), i)->attname),
						 "The arrays have no dimension and the group no coordinate of that name.");
	}
}

static void
check_types(Relation rel, const TbpgTable *table)
{
	for (int i = 0; i < table->natts; i++)
	{
		const TbpgColumn *column = &table->column[i];
		Oid			wanted;

		if (column->role == TBPG_UNUSED)
			continue;
		wanted = tbpg_column_type(table->info, *column);
		if (column->type != wanted)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_DATA_TYPE),
					 errmsg("the column's type does not suit what it stands for"),
					 errdetail("Column \"%s\" of foreign table \"%s\" is %s.",
							   NameStr(TupleDescAttr(RelationGetDescr(rel), i)->attname),
							   RelationGetRelationName(rel), format_type_be(column->type)),
					 errhint("Make it %s, or import the schema again.", format_type_be(wanted))));
	}
}

static void
open_grid(TbpgTable *table, const Draft *draft, TbSource *source)
{
	TbGridSpec	spec = {
		.group = draft->group, .n_arrays = draft->n_arrays, .array = draft->array, .mask_fill = draft->mask_fill,
		.n_aux = draft->n_aux, .aux = draft->aux, .n_cell = draft->n_cell, .cell = draft->cell,
		.append_dim = draft->append_dim
	};
	TbError		err;

	TBPG_CHECK(tb_grid_open(source, &spec, &table->grid, &err), &err);
	(void) tbpg_own(table->context, table->grid, release_grid);
	TBPG_AWAIT(tb_grid_poll(table->grid, &err), &err);
	table->info = tb_grid_info(table->grid);
}

/* The newest index, or none: a broken one costs speed, not answers. */
static void
open_index(TbpgTable *table)
{
	TbSource   *where = tbpg_index_source(table->server, table->user, false);
	TbHsi	   *hsi;
	TbError		err;
	TbStatus	status;

	if (where == NULL)
		return;
	status = tb_hsi_open(where, table->grid, &hsi, &err);
	if (status == TB_OK)
	{
		(void) tbpg_own(table->context, hsi, release_hsi);
		while ((status = tb_hsi_poll(hsi, &err)) == TB_AGAIN)
			tbpg_wait();
	}
	if (status != TB_OK)
		tbpg_warn(&err);
	else if (tb_hsi_exists(hsi))
		table->hsi = hsi;
}

static TbpgTable *
open_table(Oid relid, Oid user)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "tensorbank table", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	TbpgTable  *table = palloc0(sizeof(TbpgTable));
	Draft	   *draft = palloc0(sizeof(Draft));
	ForeignTable *foreign = GetForeignTable(relid);
	Relation	rel = relation_open(relid, AccessShareLock);
	const char *cell = tbpg_option(foreign->options, "cell_shape");
	const char *path = tbpg_option(foreign->options, "path");

	table->context = context;
	table->refs = 1;
	table->relid = relid;
	table->server = foreign->serverid;
	table->user = user;
	table->group = pstrdup(path == NULL || strcmp(path, ".") == 0 ? "" : path);
	table->natts = RelationGetDescr(rel)->natts;
	table->column = palloc0(sizeof(TbpgColumn) * (size_t) Max(table->natts, 1));
	draft->group = table->group;
	draft->append_dim = tbpg_option(foreign->options, "append_dim");
	if (cell != NULL)
		draft->n_cell = tbpg_option_shape("cell_shape", cell, draft->cell);
	find_roles(rel, table, draft);
	open_grid(table, draft, tbpg_source(table->server, user));
	resolve_coords(rel, table, draft);
	check_types(rel, table);
	open_index(table);
	relation_close(rel, AccessShareLock);
	MemoryContextSwitchTo(old);
	return table;
}

/* Tables that changed or are gone leave the cache; whoever pinned one keeps it. */
static void
drop_stale(void)
{
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	hash_seq_init(&scan, tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (entry->stale)
		{
			TbpgTable  *table = entry->table;

			/* removing the entry just returned is allowed during a sequential scan */
			(void) hash_search(tables, &entry->key, HASH_REMOVE, NULL);
			tbpg_table_unpin(table);
		}
}

TbpgTable *
tbpg_table(Oid relid, Oid user)
{
	TableKey	key = {.relid = relid, .user = user};
	TableEntry *entry;
	TbpgTable  *table;
	bool		found;

	if (tables == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(TableKey), .entrysize = sizeof(TableEntry), .hcxt = TopMemoryContext};

		tables = hash_create("tensorbank tables", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterRelcacheCallback(forget_tables, (Datum) 0);
		CacheRegisterSyscacheCallback(FOREIGNSERVEROID, forget_all_tables, (Datum) 0);
		CacheRegisterSyscacheCallback(USERMAPPINGOID, forget_all_tables, (Datum) 0);
	}
	entry = hash_search(tables, &key, HASH_FIND, NULL);
	if (entry != NULL && entry->table != NULL && !entry->stale &&
		tb_now_ns() - entry->opened_ns < (int64) tbpg_settings.metadata_max_age_ms * 1000000)
	{
		/* rights of the server's owner are looked at every time */
		(void) tbpg_source(entry->table->server, user);
		return entry->table;
	}
	drop_stale();
	table = open_table(relid, user);
	MemoryContextSetParent(table->context, CacheMemoryContext);
	entry = hash_search(tables, &key, HASH_ENTER, &found);
	if (found)
		tbpg_table_unpin(entry->table);
	entry->table = table;
	entry->opened_ns = tb_now_ns();
	entry->stale = false;
	return table;
}
