/*
 * Walking a hierarchy by listing it, where no consolidated metadata says what is there: a folder's
 * documents are read, groups (also those without a document) are descended into, arrays are not.
 */
#include "block/group.h"

#include <string.h>

#define MAX_DEPTH 32
#define MAX_FOLDERS 100000
#define MAX_PLAIN_FOLDERS 1000	/* without any Zarr among them: not a store */

static void
fail(TbGroup *group, TbStatus code, const char *message)
{
	TbError		error;
	TbStatus	status = tb_fail(&error, code, "%s", message);

	tb_error_detail(&error, "group \"%.200s\"", group->path);
	tb_group_settle(group, status, &error);
}

static bool
push_folder(TbGroup *group, const char *parent, const char *name, int depth)
{
	TbFolder   *folder = tb_calloc(1, sizeof(*folder));

	if (folder == NULL)
		return false;
	folder->path = tb_block_path_join(parent, name);
	folder->depth = depth;
	if (folder->path == NULL)
	{
		tb_free(folder);
		return false;
	}
	folder->next = group->folder;
	group->folder = folder;
	group->n_folders++;
	return true;
}

static bool
has_name(const TbStoreNames *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (!names->is_prefix[i] && strcmp(names->name[i], name) == 0)
			return true;
	return false;
}

static void
end_walker(TbWalker *walker)
{
	tb_docs_clear(&walker->docs);
	tb_job_free(walker->list);
	walker->list = NULL;
	walker->listed = false;
	tb_free(walker->path);
	walker->path = NULL;
	walker->group->walking--;
}

/* Parse what a folder has. *leaf: an array, nothing below is a node. */
static TbStatus
parse_folder(TbWalker *walker, bool *leaf, TbError *err)
{
	TbNodes    *nodes = &walker->group->nodes;
	const TbBuf *doc[4] = {NULL, NULL, NULL, NULL}; /* zarr.json, .zarray, .zgroup, .zattrs */
	int			at = 0;
	bool		consolidated;
	size_t		before = nodes->n;
	TbStatus	status = tb_docs_failure(&walker->docs, err);

	if (status != TB_OK)
		return status;
	if (walker->v3)
		doc[0] = tb_docs_bytes(&walker->docs, at++);
	if (walker->v2)
		for (int i = 1; i < 4; i++)
			doc[i] = tb_docs_bytes(&walker->docs, at++);
	if (doc[0] != NULL)
		status = tb_zarr_parse_v3(walker->path, doc[0], nodes, &consolidated, err);
	else if (doc[1] != NULL)
		status = tb_zarr_parse_v2_array(walker->path, doc[1], doc[3], nodes, err);
	else if (doc[2] != NULL)
		status = tb_zarr_parse_v2_group(walker->path, doc[2], doc[3], nodes, err);
	/* a stale consolidated copy further down: the folders themselves are the truth here */
	if (status == TB_OK && doc[0] != NULL)
		while (nodes->n > before + 1)
			tb_node_free(&nodes->node[--nodes->n]);
	*leaf = status == TB_OK && nodes->n > before && !nodes->node[before].is_group;
	return status;
}

/* A folder with unusable documents: an array in error, so that the caller can tell which and why.
 */
static void
keep_error(TbWalker *walker, TbStatus status, const TbError *error)
{
	TbNodes    *nodes = &walker->group->nodes;
	TbNode	   *node = tb_realloc_array(nodes->node, nodes->n + 1, sizeof(*node));

	if (node == NULL)
	{
		fail(walker->group, TB_E_NOMEM, "out of memory");
		return;
	}
	nodes->node = node;
	nodes->cap = nodes->n + 1;
	node = &nodes->node[nodes->n];
	memset(node, 0, sizeof(*node));
	node->path = tb_strdup(walker->path);
	if (node->path == NULL)
	{
		fail(walker->group, TB_E_NOMEM, "out of memory");
		return;
	}
	nodes->n++;
	node->status = status;
	node->error = *error;
}

/* The documents of a folder are here. Ends the walker. */
static void
folder_done(TbWalker *walker)
{
	TbGroup    *group = walker->group;
	const TbStoreNames *names;
	bool		leaf = false;
	TbError		error;
	TbStatus	status;

	tb_error_clear(&error);
	status = parse_folder(walker, &leaf, &error);
	if (status == TB_E_JSON || status == TB_E_JSON_DUPLICATE || status == TB_E_INVALID ||
		status == TB_E_LIMIT)
	{
		keep_error(walker, status, &error);
		leaf = true;
	}
	else if (status != TB_OK)
	{
		tb_group_settle(group, status, &error);
		return;					/* settling ended every walker */
	}
	names = tb_job_names(walker->list);
	/* a failure settles the group, and that frees the names: its status is looked at first */
	for (size_t i = 0; group->status == TB_AGAIN && !leaf && i < names->n; i++)
	{
		const char *name = names->name[i];

		if (!names->is_prefix[i] || name[0] == '.' || walker->depth >= MAX_DEPTH)
			continue;
		if (!push_folder(group, walker->path, name, walker->depth + 1))
			fail(group, TB_E_NOMEM, "out of memory");
	}
	if (walker->path != NULL)
		end_walker(walker);
}

static void
docs_done(TbDocs *docs)
{
	TbWalker   *walker = docs->arg;
	TbGroup    *group = walker->group;

	folder_done(walker);
	tb_group_advance(group);
}

/* Ask for the documents that the listing shows. */
static TbStatus
ask(TbWalker *walker, TbError *err)
{
	const TbStoreNames *there = tb_job_names(walker->list);
	const char *names[5];
	int			n = 0;

	walker->v3 = has_name(there, "zarr.json");
	walker->v2 = has_name(there, ".zarray") || has_name(there, ".zgroup");
	if (walker->v3)
		names[n++] = "zarr.json";
	if (walker->v2)
	{
		names[n++] = ".zarray";
		names[n++] = ".zgroup";
		names[n++] = ".zattrs";
	}
	names[n] = NULL;
	return tb_docs_start(&walker->docs, walker->group->source, walker->path, names, true, err);
}

/* Listing is refused: go on as with a store that cannot be listed, from the start. */
static void
give_up_listing(TbGroup *group)
{
	tb_group_walk_end(group);
	group->no_list = true;
	tb_group_restart(group);
}

/* What is in the folder is known, or why not: ask for its documents. */
static void
folder_listed(TbWalker *walker, TbStatus status, const TbError *why)
{
	TbGroup    *group = walker->group;
	TbError		error = *why;

	walker->listed = true;
	if (status == TB_E_NOT_FOUND && walker->depth > 0)
	{
		end_walker(walker);
		return;
	}
	if (status == TB_E_DENIED && walker->depth == 0)
	{
		give_up_listing(group);
		return;
	}
	if (status == TB_OK)
	{
		group->has_names = group->has_names || tb_job_names(walker->list)->n > 0;
		tb_error_clear(&error);
		status = ask(walker, &error);
	}
	if (status != TB_OK)
		tb_group_settle(group, status, &error);
	else if (walker->docs.pending == 0)
		folder_done(walker);
}

/* Begin with a folder: list it. */
static void
start_walker(TbWalker *walker, TbFolder *folder)
{
	TbGroup    *group = walker->group;
	TbError		error;
	TbStatus	status;

	walker->path = folder->path;
	walker->depth = folder->depth;
	tb_free(folder);
	walker->docs.done = docs_done;
	walker->docs.arg = walker;
	group->walking++;
	status = tb_store_begin_list(group->source->store, walker->path, &walker->list, &error);
	if (status != TB_OK)
		tb_group_settle(group, status, &error);
	else
		tb_group_walk_look(walker);
}

void
tb_group_walk_look(TbWalker *walker)
{
	TbError		error;
	TbStatus	status;

	if (walker->list == NULL || walker->listed)
		return;
	status = tb_job_poll(walker->list, &error);
	if (status != TB_AGAIN)
		folder_listed(walker, status, &error);
}

void
tb_group_walk_begin(TbGroup *group)
{
	tb_nodes_free(&group->nodes);
	memset(&group->nodes, 0, sizeof(group->nodes));
	for (int i = 0; i < TB_WALKERS; i++)
		group->walker[i].group = group;
	if (!push_folder(group, group->path, "", 0))
		fail(group, TB_E_NOMEM, "out of memory");
}

static TbWalker *
idle_walker(TbGroup *group)
{
	for (int i = 0; i < TB_WALKERS; i++)
		if (group->walker[i].path == NULL)
			return &group->walker[i];
	return NULL;
}

bool
tb_group_walk(TbGroup *group)
{
	while (group->status == TB_AGAIN && group->folder != NULL)
	{
		TbWalker   *walker = idle_walker(group);
		TbFolder   *folder = group->folder;

		if (walker == NULL)
			return true;
		if (group->n_folders > MAX_FOLDERS)
			fail(group, TB_E_LIMIT, "store has too many folders to list");
		else if (group->nodes.n == 0 && group->n_folders > MAX_PLAIN_FOLDERS && group->walking == 0)
			return false;
		else
		{
			group->folder = folder->next;
			start_walker(walker, folder);
		}
	}
	return group->status == TB_AGAIN && group->walking > 0;
}

void
tb_group_walk_end(TbGroup *group)
{
	for (int i = 0; i < TB_WALKERS; i++)
		if (group->walker[i].path != NULL)
			end_walker(&group->walker[i]);
	while (group->folder != NULL)
	{
		TbFolder   *folder = group->folder;

		group->folder = folder->next;
		tb_free(folder->path);
		tb_free(folder);
	}
}
