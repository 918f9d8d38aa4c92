/*
 * Table names of drafts: the group's path with '_', the store's name for the root; "_<dims>" where
 * a group has several grids; a number where names would still be equal. In the order of drafts,
 * which is that of paths.
 */
#include "block/drafts.h"

#include <string.h>

/* The group's path below root, '/' made '_'; the store's name for the root itself. owns: the
 * caller. */
static char *
group_name(const char *group, const char *root_path, const char *store_name)
{
	size_t		root_len;
	char	   *name;

	while (*root_path == '/')
		root_path++;
	root_len = strlen(root_path);
	while (root_len > 0 && root_path[root_len - 1] == '/')
		root_len--;
	if (root_len > 0 && strncmp(group, root_path, root_len) == 0 &&
		(group[root_len] == '/' || group[root_len] == '\0'))
		group += root_len + (group[root_len] == '/');
	else if (root_len > strlen(group))
		group = "";				/* the root is an array; its group lies above */
	if (group[0] == '\0')
		return tb_strdup(store_name);
	name = tb_strdup(group);
	for (char *at = name; at != NULL && *at != '\0'; at++)
		if (*at == '/')
			*at = '_';
	return name;
}

/* name_dim_dim; takes name over. NULL: no memory. */
static char *
with_dims(char *name, const TbArrayMeta *meta)
{
	for (int d = 0; d < meta->ndim && name != NULL; d++)
	{
		char	   *longer = tb_asprintf("%s_%s", name, meta->dim_name[d]);

		tb_free(name);
		name = longer;
	}
	return name;
}

static bool
is_taken(const TbGridDrafts *drafts, size_t before, const char *name)
{
	for (size_t i = 0; i < before; i++)
		if (strcmp(drafts->draft[i].table, name) == 0)
			return true;
	return false;
}

/* Number a name that an earlier draft has; takes name over. NULL: no memory. */
static char *
made_unique(const TbGridDrafts *drafts, size_t before, char *name)
{
	char	   *numbered;

	if (name == NULL || !is_taken(drafts, before, name))
		return name;
	for (unsigned n = 2;; n++)
	{
		numbered = tb_asprintf("%s_%u", name, n);
		if (numbered == NULL || !is_taken(drafts, before, numbered))
			break;
		tb_free(numbered);
	}
	tb_free(name);
	return numbered;
}

static size_t
grids_in_group(const TbGridDrafts *drafts, const char *group)
{
	size_t		n = 0;

	for (size_t i = 0; i < drafts->n; i++)
		n += strcmp(drafts->draft[i].group, group) == 0;
	return n;
}

TbStatus
tb_drafts_name(TbGridDrafts *drafts, const char *root_path, const char *store_name, TbError *err)
{
	for (size_t i = 0; i < drafts->n; i++)
	{
		TbGridDraft *draft = &drafts->draft[i];
		char	   *name = group_name(draft->group, root_path, store_name);

		if (name != NULL && grids_in_group(drafts, draft->group) > 1)
			name = with_dims(name, draft->array[0]->array);
		draft->table = made_unique(drafts, i, name);
		if (draft->table == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	return TB_OK;
}
