/*
 * IMPORT FOREIGN SCHEMA: one foreign table for each grid of arrays below a path.
 *
 * What cannot be used (an unknown codec or type) is left out with a WARNING; the rest imports. Names follow from paths alone, so
 * importing again gives the same tables.
 */
#include "postgres.h"

#include "catalog/pg_foreign_server.h"
#include "commands/defrem.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "pg/fdw.h"
#include "pg/option.h"

/* PostgreSQL allows 1,600 columns; some are left for the user's own. */
#define MAX_COLUMNS 1500

typedef struct Import
{
	ImportForeignSchemaStmt *stmt;
	ForeignServer *server;
	TbSource   *source;			/* borrowed */
	const char *path;
	const char *append_dim;
	const char *cell_shape;
	bool		statistics;		/* asked for */
	List	   *commands;
	List	   *names;			/* table names given so far */
	int			warnings;
} Import;

static void
free_group(void *object)
{
	tb_group_free(object);
}

static void
free_grid(void *object)
{
	tb_grid_unref(object);
}

static void
free_hsi(void *object)
{
	tb_hsi_unref(object);
}

static void
free_drafts(void *object)
{
	tb_grid_drafts_free(object);
	tb_free(object);
}

static void
read_options(Import *import)
{
	static const char *const valid = "path, statistics, append_dim, cell_shape";
	ImportForeignSchemaStmt *stmt = import->stmt;
	ListCell   *lc;

	import->path = stmt->remote_schema;
	foreach(lc, stmt->options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, "path") == 0)
			import->path = defGetString(def);
		else if (strcmp(def->defname, "statistics") == 0)
			import->statistics = tbpg_option_bool("statistics", defGetString(def));
		else if (strcmp(def->defname, "append_dim") == 0)
			import->append_dim = defGetString(def);
		else if (strcmp(def->defname, "cell_shape") == 0)
			import->cell_shape = defGetString(def);
		else
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", def->defname),
					 errhint("Valid options in this context are: %s.", valid)));
	}
	/* An identifier of this length may have been cut, with a NOTICE only. */
	if (import->path == stmt->remote_schema && strlen(import->path) >= NAMEDATALEN - 1)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("the path may have been cut to the length of an identifier"),
				 errdetail("\"%s\"", import->path),
				 errhint("Give the whole path as OPTIONS (path '...').")));
	if (strcmp(import->path, ".") == 0)
		import->path = "";
}

/* Last part of a path or url without its extension: "s3://b/era5.zarr" -> "era5". */
static char *
store_name(const char *path)
{
	size_t		len = strlen(path);
	const char *start;
	const char *dot;

	while (len > 0 && path[len - 1] == '/')
		len--;
	for (start = path + len; start > path && start[-1] != '/';)
		start--;
	len -= (size_t) (start - path);
	dot = memchr(start, '.', len);
	if (dot != NULL && dot > start)
		len = (size_t) (dot - start);
	return len > 0 ? pnstrdup(start, len) : pstrdup("data");
}

/* An identifier: what is too long keeps its start and a hash of the whole. */
static char *
identifier(const char *name)
{
	size_t		len = strlen(name);

	if (len < NAMEDATALEN)
		return pstrdup(name);
	len = (size_t) pg_mbcliplen(name, (int) len, NAMEDATALEN - 10);
	return psprintf("%.*s_%08x", (int) len, name, (unsigned) (tb_hash64(name, strlen(name), 0) & 0xffffffff));
}

static void
warn_node(Import *import, const TbNode *node)
{
	import->warnings++;
	ereport(WARNING,
			(errcode(tbpg_sqlstate(node->status)),
			 errmsg("array is left out: %s", tbpg_clean_text(node->error.message)),
			 errdetail("Array \"%s\": %s", tbpg_clean_text(node->path),
					   node->error.detail[0] ? tbpg_clean_text(node->error.detail) : tb_status_name(node->status))));
}

/* Leave out what has no name in the database's encoding: file names may be any bytes, the catalog's may not. */
static int
keep_named(Import *import, const TbNode **list, int n)
{
	int			kept = 0;

	for (int i = 0; i < n; i++)
	{
		if (pg_verify_mbstr(GetDatabaseEncoding(), list[i]->path, (int) strlen(list[i]->path), true))
		{
			list[kept++] = list[i];
			continue;
		}
		import->warnings++;
		ereport(WARNING,
				(errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
				 errmsg("array is left out: its name is not valid in the database's encoding"),
				 errdetail("Array \"%s\".", tbpg_clean_text(list[i]->path))));
	}
	return kept;
}

/* One column; a name that is taken is refused: two columns for one thing would be a guess. */
static void
add_column(StringInfo sql, List **names, const char *name, const char *type, const char *options)
{
	char	   *column = identifier(name);
	ListCell   *lc;

	foreach(lc, *names)
		if (strcmp(lfirst(lc), column) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_COLUMN_NAME),
					 errmsg("two columns would have the same name"),
					 errdetail("Column \"%s\".", column),
					 errhint("Write the CREATE FOREIGN TABLE by hand, naming the columns with the option array or dimension.")));
	*names = lappend(*names, column);
	appendStringInfo(sql, "%s\n  %s %s OPTIONS (%s)", list_length(*names) > 1 ? "," : "", quote_identifier(column),
					 type, options);
}

static char *
option_text(const char *name, const char *value)
{
	return psprintf("%s %s", name, quote_literal_cstr(value));
}

static const char *
below(const char *path, const char *group)
{
	size_t		len = strlen(group);

	if (len > 0 && strncmp(path, group, len) == 0 && path[len] == '/')
		return path + len + 1;
	return path;
}

static const char *
last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static void
add_coords(StringInfo sql, List **names, const TbGridInfo *info)
{
	for (int c = 0; c < info->n_coords; c++)
	{
		const TbCoord *coord = &info->coord[c];

		for (int b = 0; b < 2; b++)
		{
			const char *bound = b ? "max" : "min";

			add_column(sql, names, psprintf("%s_%s", last_part(coord->name), bound), tbpg_type_of_coord(coord->kind),
					   psprintf("%s, %s", option_text(coord->is_dim ? "dimension" : "array", coord->name),
								option_text("bound", bound)));
		}
	}
}

static void
add_arrays(StringInfo sql, List **names, const TbGridDraft *draft, int first, int n, const bool *statistics)
{
	for (int a = first; a < first + n; a++)
	{
		const char *path = below(draft->array[a]->path, draft->group);

		add_column(sql, names, last_part(path), "tensorbank.tensor_ref", option_text("array", path));
	}
	for (int a = first; a < first + n; a++)
	{
		const char *path = below(draft->array[a]->path, draft->group);

		for (int s = 0; statistics[a] && s < TB_N_STATS; s++)
			add_column(sql, names, psprintf("%s_%s", last_part(path), tb_stat_name((TbStat) s)),
					   tbpg_type_of_stat(draft->array[a]->array, (TbStat) s),
					   psprintf("%s, %s", option_text("array", path), option_text("statistic", tb_stat_name((TbStat) s))));
	}
}

/* The grid behind a draft, opened for the kinds of its coordinates. Owned by the current context. */
static TbGrid *
open_draft(Import *import, const TbGridDraft *draft)
{
	const char **arrays = palloc(sizeof(char *) * (size_t) draft->n_arrays);
	const char **aux = palloc(sizeof(char *) * (size_t) Max(draft->n_aux, 1));
	uint64_t	cell[TB_MAX_DIM];
	TbGridSpec	spec = {.group = draft->group, .n_arrays = draft->n_arrays, .array = arrays,
	.n_aux = draft->n_aux, .aux = aux, .cell = cell, .append_dim = import->append_dim};
	TbGrid	   *grid;
	TbError		err;

	for (int i = 0; i < draft->n_arrays; i++)
		arrays[i] = below(draft->array[i]->path, draft->group);
	for (int i = 0; i < draft->n_aux; i++)
		aux[i] = below(draft->aux[i]->path, draft->group);
	if (import->cell_shape != NULL)
		spec.n_cell = tbpg_option_shape("cell_shape", import->cell_shape, cell);
	TBPG_CHECK(tb_grid_open(import->source, &spec, &grid, &err), &err);
	(void) tbpg_own(CurrentMemoryContext, grid, free_grid);
	TBPG_AWAIT(tb_grid_poll(grid, &err), &err);
	return grid;
}

/* Which arrays get statistics columns: all where asked for, else those that an index has. */
static void
find_statistics(Import *import, const TbGridDraft *draft, TbGrid *grid, bool *statistics)
{
	TbSource   *where = tbpg_index_source(import->server->serverid, GetUserId(), false);
	TbHsi	   *hsi;
	TbError		err;
	TbStatus	status;

	for (int a = 0; a < draft->n_arrays; a++)
		statistics[a] = import->statistics;
	if (import->statistics || where == NULL)
		return;
	status = tb_hsi_open(where, grid, &hsi, &err);
	if (status == TB_OK)
	{
		(void) tbpg_own(CurrentMemoryContext, hsi, free_hsi);
		while ((status = tb_hsi_poll(hsi, &err)) == TB_AGAIN)
			tbpg_wait();
	}
	if (status != TB_OK)
		tbpg_warn(&err);
	for (int a = 0; status == TB_OK && tb_hsi_exists(hsi) && a < draft->n_arrays; a++)
		statistics[a] = tb_hsi_has_array(hsi, draft->array[a]->path);
}

static void
add_table(Import *import, const TbGridDraft *draft, const TbGridInfo *info, const char *name, int first, int n,
		  const bool *statistics)
{
	StringInfoData sql;
	List	   *columns = NIL;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE FOREIGN TABLE %s.%s (", quote_identifier(import->stmt->local_schema),
					 quote_identifier(name));
	add_column(&sql, &columns, "block", "bigint", "block 'number'");
	add_coords(&sql, &columns, info);
	add_arrays(&sql, &columns, draft, first, n, statistics);
	add_column(&sql, &columns, "block_size", "bigint", "block 'size'");
	add_column(&sql, &columns, "block_state", "text", "block 'state'");
	appendStringInfo(&sql, "\n) SERVER %s OPTIONS (%s", quote_identifier(import->server->servername),
					 option_text("path", draft->group));
	if (import->append_dim != NULL)
		appendStringInfo(&sql, ", %s", option_text("append_dim", import->append_dim));
	if (import->cell_shape != NULL)
		appendStringInfo(&sql, ", %s", option_text("cell_shape", import->cell_shape));
	appendStringInfoString(&sql, ")");
	import->commands = lappend(import->commands, sql.data);
}

static void
import_draft(Import *import, TbGridDraft *draft)
{
	char	   *name;
	TbGrid	   *grid;
	const TbGridInfo *info;
	bool	   *statistics;
	int			fixed;
	int			first = 0;
	int			part = 1;

	draft->n_arrays = keep_named(import, draft->array, draft->n_arrays);
	draft->n_aux = keep_named(import, draft->aux, draft->n_aux);
	if (draft->n_arrays == 0)
		return;
	name = identifier(draft->table);
	if (!IsImportableForeignTable(name, import->stmt))
		return;
	grid = open_draft(import, draft);
	info = tb_grid_info(grid);
	statistics = palloc0(sizeof(bool) * (size_t) draft->n_arrays);
	find_statistics(import, draft, grid, statistics);
	fixed = 3 + 2 * info->n_coords;
	while (first < draft->n_arrays)
	{
		int			columns = fixed;
		int			n = 0;
		char	   *table = part == 1 ? name : identifier(psprintf("%s_%d", name, part));

		while (first + n < draft->n_arrays)
		{
			int			more = 1 + (statistics[first + n] ? TB_N_STATS : 0);

			if (columns + more > MAX_COLUMNS && n > 0)
				break;
			columns += more;
			n++;
		}
		add_table(import, draft, info, table, first, n, statistics);
		if (part > 1)
			ereport(NOTICE, (errmsg("\"%s\" has too many arrays for one table: %d more are in \"%s\"", name, n, table)));
		first += n;
		part++;
	}
}

List *
tbpg_import_schema(ImportForeignSchemaStmt *stmt, Oid server)
{
	Import		import = {.stmt = stmt, .server = GetForeignServer(server)};
	TbGroup    *group;
	TbGridDrafts *drafts;
	const TbNodes *nodes;
	TbError		err;

	read_options(&import);
	import.source = tbpg_source(server, GetUserId());
	/* columns outlive the cache: they are made from the store as it is, not as it was a minute ago */
	tb_source_forget(import.source);
	TBPG_CHECK(tb_group_open(import.source, import.path, &group, &err), &err);
	(void) tbpg_own(CurrentMemoryContext, group, free_group);
	TBPG_AWAIT(tb_group_poll(group, &err), &err);
	nodes = tb_group_nodes(group);
	for (size_t i = 0; i < nodes->n; i++)
		if (nodes->node[i].status != TB_OK)
			warn_node(&import, &nodes->node[i]);
	drafts = tb_calloc(1, sizeof(TbGridDrafts));
	if (drafts == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	(void) tbpg_own(CurrentMemoryContext, drafts, free_drafts);
	TBPG_CHECK(tb_grid_drafts(nodes, import.path, store_name(import.path[0] ? import.path : tb_source_url(import.source)),
							  drafts, &err), &err);
	for (size_t i = 0; i < drafts->n; i++)
		import_draft(&import, &drafts->draft[i]);
	if (drafts->n == 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("no arrays to import"),
				 errdetail("%zu nodes below \"%s\", %d of them not usable.", nodes->n, import.path, import.warnings),
				 tb_group_was_listed(group) ? 0 :
				 errhint("The store cannot be listed: consolidate its metadata (zarr.consolidate_metadata), or import the path of an array.")));
	return import.commands;
}
