/*
 * Opening a group for import: everything at and below a path.
 *
 *   own documents -> consolidated: all of it | an array: itself | listing possible: walk
 * (group_walk.c)
 *     -> a group alone | nothing: consolidated metadata above -> marks of other formats, folders of
 * others -> why not
 *
 * Documents are asked for anew: an import shows what is there now.
 */
#include "block/group.h"

#include <stdlib.h>
#include <string.h>

static const char *const docs_root[] = {"zarr.json", ".zmetadata", ".zarray",
										".zgroup",	 ".zattrs",	   NULL};
static const char *const docs_above[] = {"zarr.json", ".zmetadata", NULL};
static const char *const docs_marks[] = {"attributes.json", "repo", "refs/branch.main/ref.json",
										 NULL};

static int
by_path(const void *a, const void *b)
{
	return strcmp(((const TbNode *) a)->path, ((const TbNode *) b)->path);
}

void
tb_group_settle(TbGroup *group, TbStatus status, const TbError *error)
{
	if (group->stage == TB_GROUP_SETTLED)
		return;
	group->stage = TB_GROUP_SETTLED;
	group->status = status;
	if (error != NULL)
		group->error = *error;
	tb_group_walk_end(group);
	tb_job_free(group->folders);
	group->folders = NULL;
	tb_docs_clear(&group->docs);
	if (group->nodes.n > 1)
		qsort(group->nodes.node, group->nodes.n, sizeof(TbNode), by_path);
}

static void
settle_with(TbGroup *group, TbStatus code, const char *message, const char *hint)
{
	TbError		error;
	TbStatus	status = tb_fail(&error, code, "%s", message);

	tb_error_detail(&error, "\"%.300s\", path \"%.200s\"", tb_source_url(group->source),
					group->path);
	if (hint != NULL)
		tb_error_hint(&error, "%s", hint);
	tb_group_settle(group, status, &error);
}

/* Parse the node's own documents. *found: it is a node; *complete: and what is below is known too.
 */
static TbStatus
take_root(TbGroup *group, bool *found, bool *complete, TbError *err)
{
	const TbBuf *doc[5];
	bool		consolidated = false;
	TbStatus	status = TB_OK;

	for (int i = 0; i < 5; i++)
		doc[i] = tb_docs_bytes(&group->docs, i);
	*found = doc[0] != NULL || doc[1] != NULL || doc[2] != NULL || doc[3] != NULL;
	if (!*found)
		status = tb_docs_failure(&group->docs, err);
	else if (doc[0] != NULL)
		status = tb_zarr_parse_v3(group->path, doc[0], &group->nodes, &consolidated, err);
	else if (doc[2] != NULL)
		status = tb_zarr_parse_v2_array(group->path, doc[2], doc[4], &group->nodes, err);
	else if (doc[1] != NULL)
	{
		status = tb_zarr_parse_v2_consolidated(group->path, doc[1], &group->nodes, err);
		consolidated = true;
	}
	else
		status = tb_zarr_parse_v2_group(group->path, doc[3], doc[4], &group->nodes, err);
	*complete = consolidated || (group->nodes.n == 1 && !group->nodes.node[0].is_group);
	return status;
}

static bool
is_below(const char *path, const char *root)
{
	size_t		len = strlen(root);

	return len == 0 || (strncmp(path, root, len) == 0 && (path[len] == '\0' || path[len] == '/'));
}

/* Keep only nodes at and below the group's path. */
static void
keep_below(TbGroup *group)
{
	size_t		kept = 0;

	for (size_t i = 0; i < group->nodes.n; i++)
	{
		if (is_below(group->nodes.node[i].path, group->path))
			group->nodes.node[kept++] = group->nodes.node[i];
		else
			tb_node_free(&group->nodes.node[i]);
	}
	group->nodes.n = kept;
}

static void
forget_nodes(TbGroup *group)
{
	tb_nodes_free(&group->nodes);
	memset(&group->nodes, 0, sizeof(group->nodes));
}

/* Consolidated documents above are here: is the group in them? */
static bool
take_above(TbGroup *group)
{
	const TbBuf *doc[2] = {tb_docs_bytes(&group->docs, 0), tb_docs_bytes(&group->docs, 1)};

	for (int i = 0; i < 2; i++)
	{
		bool		consolidated;
		TbError		error;
		TbStatus	status;

		if (doc[i] == NULL)
			continue;
		forget_nodes(group);
		tb_error_clear(&error);
		status = i == 0
					 ? tb_zarr_parse_v3(group->above, doc[i], &group->nodes, &consolidated, &error)
					 : tb_zarr_parse_v2_consolidated(group->above, doc[i], &group->nodes, &error);
		if (status == TB_OK)
			keep_below(group);
		else
			forget_nodes(group);
		if (group->nodes.n > 0)
			return true;
	}
	return false;
}

static void
ask(TbGroup *group, const char *base, const char *const *names)
{
	TbError		error;
	TbStatus	status;

	tb_error_clear(&error);
	status = tb_docs_start(&group->docs, group->source, base, names, true, &error);
	if (status != TB_OK)
		tb_group_settle(group, status, &error);
}

/* The next group above, or on to the marks. */
static void
ask_above(TbGroup *group)
{
	const char *below = group->above != NULL ? group->above : group->path;
	char	   *above;

	if (below[0] == '\0')
	{
		group->stage = TB_GROUP_MARKS;
		ask(group, group->path, docs_marks);
		return;
	}
	above = tb_path_parent(below);
	if (above == NULL)
	{
		settle_with(group, TB_E_NOMEM, "out of memory", NULL);
		return;
	}
	tb_free(group->above);
	group->above = above;
	group->stage = TB_GROUP_ABOVE;
	ask(group, above, docs_above);
}

void
tb_group_restart(TbGroup *group)
{
	group->stage = TB_GROUP_ROOT;
	ask(group, group->path, docs_root);
}

static void
root_done(TbGroup *group)
{
	bool		found = false;
	bool		complete = false;
	TbError		error;
	TbStatus	status;

	tb_error_clear(&error);
	status = take_root(group, &found, &complete, &error);
	if (status != TB_OK)
		tb_group_settle(group, status, &error);
	else if (complete)
		tb_group_settle(group, TB_OK, NULL);
	else if (tb_store_can_list(group->source->store) && !group->no_list)
	{
		group->stage = TB_GROUP_WALK;
		tb_docs_clear(&group->docs);
		tb_group_walk_begin(group);
	}
	else if (found)
		tb_group_settle(group, TB_OK, NULL);
	else
		ask_above(group);
}

static void
settle_as_icechunk(TbGroup *group)
{
	settle_with(group, TB_E_UNSUPPORTED, "icechunk repositories are not supported",
				"Export the snapshot as a Zarr store.");
}

/* Nothing that we know is there. */
static void
settle_as_nothing(TbGroup *group)
{
	const char *hint = "A Zarr has zarr.json, .zgroup, .zarray or .zmetadata at its root; check "
					   "the url and the path.";

	if (group->has_names)
		settle_with(group, TB_E_NO_GROUP, "not a Zarr store", hint);
	else
		settle_with(group, TB_E_NOT_FOUND, "store does not exist", hint);
}

/* The path's folders: those of an icechunk repository of version 1? */
static void
folders_done(TbGroup *group, TbStatus status)
{
	const TbStoreNames *names = tb_job_names(group->folders);
	bool		refs = false;
	bool		snapshots = false;

	for (size_t i = 0; status == TB_OK && i < names->n; i++)
	{
		refs = refs || strcmp(names->name[i], "refs") == 0;
		snapshots = snapshots || strcmp(names->name[i], "snapshots") == 0;
	}
	if (refs && snapshots)
		settle_as_icechunk(group);
	else
		settle_as_nothing(group);
}

/* Nothing of Zarr is there: is there a mark of something else? */
static void
marks_done(TbGroup *group)
{
	TbStore    *store = group->source->store;
	TbError		error;

	if (tb_docs_bytes(&group->docs, 1) != NULL || tb_docs_bytes(&group->docs, 2) != NULL)
		settle_as_icechunk(group);
	else if (tb_docs_bytes(&group->docs, 0) != NULL)
		settle_with(group, TB_E_UNSUPPORTED, "N5 containers are not supported",
					"Convert the container to Zarr.");
	else if (!tb_store_can_list(store) || group->no_list)
		settle_as_nothing(group);
	else
	{
		group->stage = TB_GROUP_FOLDERS;
		if (tb_store_begin_list(store, group->path, &group->folders, &error) != TB_OK)
			tb_group_settle(group, error.code, &error);
	}
}

void
tb_group_advance(TbGroup *group)
{
	TbStatus	status;

	while (group->stage != TB_GROUP_SETTLED && group->docs.pending == 0)
	{
		switch (group->stage)
		{
			case TB_GROUP_ROOT:
				root_done(group);
				break;
			case TB_GROUP_WALK:
				if (tb_group_walk(group))
					return;
				tb_group_walk_end(group);
				if (group->nodes.n > 0)
					tb_group_settle(group, TB_OK, NULL);
				else if (group->stage == TB_GROUP_WALK)
					ask_above(group);
				break;
			case TB_GROUP_ABOVE:
				if (take_above(group))
					tb_group_settle(group, TB_OK, NULL);
				else
					ask_above(group);
				break;
			case TB_GROUP_MARKS:
				marks_done(group);
				break;
			case TB_GROUP_FOLDERS:
				status = tb_job_poll(group->folders, NULL);
				if (status == TB_AGAIN)
					return;
				folders_done(group, status);
				break;
			case TB_GROUP_SETTLED:
				break;
		}
	}
}

static void
docs_done(TbDocs *docs)
{
	tb_group_advance(docs->arg);
}

TbStatus
tb_group_open(TbSource *source, const char *path, TbGroup **out, TbError *err)
{
	TbGroup    *group = tb_calloc(1, sizeof(*group));
	TbStatus	status;

	if (group == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_path_clean(path, &group->path, err);
	if (status != TB_OK)
	{
		tb_free(group);
		return status;
	}
	group->source = tb_source_ref(source);
	group->status = TB_AGAIN;
	tb_error_clear(&group->error);
	group->docs.done = docs_done;
	group->docs.arg = group;
	ask(group, group->path, docs_root);
	tb_group_advance(group);
	*out = group;
	return TB_OK;
}

TbStatus
tb_group_poll(TbGroup *group, TbError *err)
{
	/* documents come to us; listings are asked for */
	if (group->status == TB_AGAIN)
	{
		for (int i = 0; i < TB_WALKERS; i++)
			tb_group_walk_look(&group->walker[i]);
		tb_group_advance(group);
	}
	if (group->status != TB_OK && group->status != TB_AGAIN && err != NULL)
		*err = group->error;
	return group->status;
}

bool
tb_group_was_listed(const TbGroup *group)
{
	return tb_store_can_list(group->source->store) && !group->no_list;
}

const TbNodes *
tb_group_nodes(const TbGroup *group)
{
	return &group->nodes;
}

void
tb_group_free(TbGroup *group)
{
	if (group == NULL)
		return;
	tb_group_walk_end(group);
	tb_job_free(group->folders);
	tb_docs_clear(&group->docs);
	tb_nodes_free(&group->nodes);
	tb_free(group->above);
	tb_free(group->path);
	tb_source_unref(group->source);
	tb_free(group);
}
