/*
 * Which tables an import makes: arrays of a group that share dimensions and shape form a grid.
 *
 * Left out of grids: 1-D arrays named as their dimension (coordinates), arrays that some
 * `coordinates` attribute names and whose dimensions are some of a grid's (auxiliary coordinates),
 * scalars. In a store that has nothing else, coordinates, then scalars, do form grids, so that no
 * readable store looks empty. Pure and deterministic: the order of nodes does not matter. Table
 * names are in draft_names.c.
 */
#include "block/drafts.h"

#include <stdlib.h>
#include <string.h>

static int
by_path(const void *a, const void *b)
{
	return strcmp((*(const TbNode *const *) a)->path, (*(const TbNode *const *) b)->path);
}

/* Length of the group's part of a path. */
static size_t
group_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? 0 : (size_t) (slash - path);
}

static const char *
last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

static bool
same_group(const char *a, const char *b)
{
	return group_len(a) == group_len(b) && strncmp(a, b, group_len(a)) == 0;
}

static bool
same_frame(const TbArrayMeta *a, const TbArrayMeta *b)
{
	if (a->ndim != b->ndim)
		return false;
	for (int d = 0; d < a->ndim; d++)
		if (a->shape[d] != b->shape[d] || strcmp(a->dim_name[d], b->dim_name[d]) != 0)
			return false;
	return true;
}

/* Are the dimensions of a among those of b, with the same lengths? */
static bool
is_within(const TbArrayMeta *a, const TbArrayMeta *b)
{
	for (int i = 0; i < a->ndim; i++)
	{
		bool		found = false;

		for (int j = 0; j < b->ndim && !found; j++)
			found = a->shape[i] == b->shape[j] && strcmp(a->dim_name[i], b->dim_name[j]) == 0;
		if (!found)
			return false;
	}
	return true;
}

static bool
is_dim_coord(const TbNode *node)
{
	return node->array->ndim == 1 && node->array->has_dim_names &&
		strcmp(last_part(node->path), node->array->dim_name[0]) == 0;
}

/* Does a list of names parted by blanks hold name? */
static bool
list_has(const char *list, const char *name)
{
	size_t		len = strlen(name);

	while (*list != '\0')
	{
		size_t		part = strcspn(list, " \t\n");

		if (part == len && strncmp(list, name, len) == 0)
			return true;
		list += part;
		list += strspn(list, " \t\n");
	}
	return false;
}

static bool
attribute_names(const TbJson *attributes, const char *name)
{
	const char *list;

	return attributes != NULL && tb_json_get_string(attributes, "coordinates", &list) &&
		   list_has(list, name);
}

/* ---- sorting nodes ---- */

typedef struct Sorter
{
	const TbNodes *nodes;
	const TbNode **array;		/* owned; usable arrays by path */
	const TbJson **above;		/* owned; attributes of the group of each; NULL: none */
	uint8_t    *role;			/* owned; Role of each */
	size_t		n;
	bool		refused;		/* some array cannot be used: it may have been the data */
} Sorter;

typedef enum Role
{
	ROLE_DATA, ROLE_DIM, ROLE_AUX, ROLE_SCALAR
} Role;

static const TbJson *
group_attributes(const TbNodes *nodes, const char *path)
{
	for (size_t i = 0; i < nodes->n; i++)
	{
		const TbNode *node = &nodes->node[i];

		if (node->is_group && strlen(node->path) == group_len(path) &&
			strncmp(node->path, path, group_len(path)) == 0)
			return node->attributes;
	}
	return NULL;
}

/* Is array i an auxiliary coordinate of array j (of the same group)? */
static bool
is_aux_of(const Sorter *sorter, size_t i, size_t j)
{
	const TbNode *aux = sorter->array[i];
	const TbNode *data = sorter->array[j];
	const char *name = last_part(aux->path);

	if (i == j || aux->array->ndim == 0 || !aux->array->has_dim_names ||
		!same_group(aux->path, data->path) || !is_within(aux->array, data->array) ||
		attribute_names(aux->array->attributes, last_part(data->path)))
		return false;
	return attribute_names(data->array->attributes, name) ||
		attribute_names(sorter->above[i], name);
}

static void
set_roles(Sorter *sorter)
{
	for (size_t i = 0; i < sorter->n; i++)
	{
		const TbNode *node = sorter->array[i];

		sorter->above[i] = i > 0 && same_group(node->path, sorter->array[i - 1]->path)
							   ? sorter->above[i - 1]
							   : group_attributes(sorter->nodes, node->path);
		sorter->role[i] = is_dim_coord(node)	   ? ROLE_DIM
						  : node->array->ndim == 0 ? ROLE_SCALAR
												   : ROLE_DATA;
	}
	for (size_t i = 0; i < sorter->n; i++)
	{
		if (sorter->role[i] != ROLE_DATA)
			continue;
		for (size_t j = 0; j < sorter->n && sorter->role[i] == ROLE_DATA; j++)
			if ((sorter->role[j] == ROLE_DATA || sorter->role[j] == ROLE_AUX) &&
				is_aux_of(sorter, i, j))
				sorter->role[i] = ROLE_AUX;
	}
}

/* Usable arrays by path, with roles. errors: NOMEM. */
static TbStatus
sort_nodes(Sorter *sorter, const TbNodes *nodes, TbError *err)
{
	sorter->nodes = nodes;
	sorter->array = tb_calloc(nodes->n + 1, sizeof(*sorter->array));
	sorter->role = tb_calloc(nodes->n + 1, 1);
	sorter->above = tb_calloc(nodes->n + 1, sizeof(*sorter->above));
	if (sorter->array == NULL || sorter->above == NULL || sorter->role == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (size_t i = 0; i < nodes->n; i++)
	{
		const TbNode *node = &nodes->node[i];

		if (!node->is_group && node->status == TB_OK && node->array != NULL)
			sorter->array[sorter->n++] = node;
		else if (node->status != TB_OK)
			sorter->refused = true;
	}
	if (sorter->n > 1)
		qsort(sorter->array, sorter->n, sizeof(*sorter->array), by_path);
	set_roles(sorter);
	return TB_OK;
}

/* ---- making drafts ---- */

/* The coordinate array of a dimension: same group, else the nearest above that has one. */
static const TbNode *
find_coord(const Sorter *sorter, const char *path, const char *dim, uint64_t length)
{
	size_t		len = group_len(path);

	for (;;)
	{
		for (size_t i = 0; i < sorter->n; i++)
		{
			const TbNode *node = sorter->array[i];

			if (group_len(node->path) == len && strncmp(node->path, path, len) == 0 &&
				is_dim_coord(node) && strcmp(node->array->dim_name[0], dim) == 0 &&
				node->array->shape[0] == length)
				return node;
		}
		if (len == 0)
			return NULL;
		while (len > 0 && path[--len] != '/')
			;
	}
}

static TbGridDraft *
find_draft(TbGridDrafts *drafts, const TbNode *node)
{
	for (size_t i = 0; i < drafts->n; i++)
		if (same_group(drafts->draft[i].array[0]->path, node->path) &&
			same_frame(drafts->draft[i].array[0]->array, node->array))
			return &drafts->draft[i];
	return NULL;
}

/* errors: NOMEM. */
static TbStatus
new_draft(const Sorter *sorter, TbGridDrafts *drafts, const TbNode *node, TbGridDraft **out,
		  TbError *err)
{
	TbGridDraft *draft = tb_realloc_array(drafts->draft, drafts->n + 1, sizeof(*draft));

	if (draft == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	drafts->draft = draft;
	draft = &drafts->draft[drafts->n++];
	memset(draft, 0, sizeof(*draft));
	draft->group = tb_strndup(node->path, group_len(node->path));
	draft->array = tb_calloc(sorter->n, sizeof(*draft->array));
	draft->aux = tb_calloc(sorter->n, sizeof(*draft->aux));
	if (draft->group == NULL || draft->array == NULL || draft->aux == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	draft->ndim = node->array->ndim;
	for (int d = 0; d < draft->ndim && node->array->has_dim_names; d++)
		draft->coord[d] =
			find_coord(sorter, node->path, node->array->dim_name[d], node->array->shape[d]);
	*out = draft;
	return TB_OK;
}

static TbStatus
add_arrays(const Sorter *sorter, Role role, TbGridDrafts *drafts, TbError *err)
{
	for (size_t i = 0; i < sorter->n; i++)
	{
		const TbNode *node = sorter->array[i];
		TbGridDraft *draft;
		TbStatus	status;

		if (sorter->role[i] != role)
			continue;
		draft = find_draft(drafts, node);
		if (draft == NULL)
		{
			status = new_draft(sorter, drafts, node, &draft, err);
			if (status != TB_OK)
				return status;
		}
		draft->array[draft->n_arrays++] = node;
	}
	return TB_OK;
}

static size_t
position_of(const Sorter *sorter, const TbNode *node)
{
	size_t		i = 0;

	while (sorter->array[i] != node)
		i++;
	return i;
}

/* Auxiliary coordinates that the arrays of a draft, or their group, name. */
static void
add_aux(const Sorter *sorter, TbGridDraft *draft)
{
	for (size_t i = 0; i < sorter->n; i++)
	{
		bool		named = false;

		if (sorter->role[i] != ROLE_AUX)
			continue;
		for (int k = 0; k < draft->n_arrays && !named; k++)
			named = is_aux_of(sorter, i, position_of(sorter, draft->array[k]));
		if (named)
			draft->aux[draft->n_aux++] = sorter->array[i];
	}
}

TbStatus
tb_grid_drafts(const TbNodes *nodes, const char *root_path, const char *store_name,
			   TbGridDrafts *drafts, TbError *err)
{
	static const Role fallback[] = {ROLE_DATA, ROLE_DIM, ROLE_AUX, ROLE_SCALAR};
	Sorter		sorter = {0};
	TbStatus	status;

	memset(drafts, 0, sizeof(*drafts));
	status = sort_nodes(&sorter, nodes, err);
	for (size_t i = 0; i < (sorter.refused ? 1 : 4) && status == TB_OK && drafts->n == 0; i++)
		status = add_arrays(&sorter, fallback[i], drafts, err);
	for (size_t i = 0; i < drafts->n && status == TB_OK; i++)
		add_aux(&sorter, &drafts->draft[i]);
	if (status == TB_OK)
		status = tb_drafts_name(drafts, root_path, store_name, err);
	tb_free(sorter.array);
	tb_free(sorter.above);
	tb_free(sorter.role);
	if (status != TB_OK)
		tb_grid_drafts_free(drafts);
	return status;
}

void
tb_grid_drafts_free(TbGridDrafts *drafts)
{
	if (drafts == NULL)
		return;
	for (size_t i = 0; i < drafts->n; i++)
	{
		tb_free(drafts->draft[i].group);
		tb_free(drafts->draft[i].table);
		tb_free(drafts->draft[i].array);
		tb_free(drafts->draft[i].aux);
	}
	tb_free(drafts->draft);
	memset(drafts, 0, sizeof(*drafts));
}
