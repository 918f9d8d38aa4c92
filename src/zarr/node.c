/*
 * Nodes of a hierarchy, their list and their paths. What is in a node is parsed by v2.c and v3.c.
 */
#include "zarr/parts.h"

#include <string.h>

#define FIRST_NODES 16

/* Free the contents; node itself is the caller's. */
void
tb_node_free(TbNode *node)
{
	if (node == NULL)
		return;
	tb_free(node->path);
	tb_json_free(node->attributes);
	tb_array_meta_free(node->array);
	memset(node, 0, sizeof(*node));
}

void
tb_nodes_cut(TbNodes *nodes, size_t n)
{
	while (nodes->n > n)
		tb_node_free(&nodes->node[--nodes->n]);
}

/* Free the contents; the list may be used again. */
void
tb_nodes_free(TbNodes *nodes)
{
	if (nodes == NULL)
		return;
	tb_nodes_cut(nodes, 0);
	tb_free(nodes->node);
	memset(nodes, 0, sizeof(*nodes));
}

TbStatus
tb_nodes_add(TbNodes *nodes, TbNode *node, TbError *err)
{
	if (nodes->n == nodes->cap)
	{
		size_t		cap = nodes->cap == 0 ? FIRST_NODES : nodes->cap * 2;
		TbNode	   *grown = tb_realloc_array(nodes->node, cap, sizeof(*grown));

		if (grown == NULL)
		{
			tb_node_free(node);
			return tb_fail(err, TB_E_NOMEM, "out of memory");
		}
		nodes->node = grown;
		nodes->cap = cap;
	}
	nodes->node[nodes->n++] = *node;
	memset(node, 0, sizeof(*node));
	return TB_OK;
}

/* Fill what groups and arrays have in common. errors: NOMEM. */
static TbStatus
begin_node(TbNode *node, const char *path, int zarr_format, const TbError *reason, TbError *err)
{
	memset(node, 0, sizeof(*node));
	node->path = tb_strdup(path);
	if (node->path == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	node->zarr_format = zarr_format;
	node->status = reason->code;
	node->error = *reason;
	return TB_OK;
}

TbStatus
tb_nodes_add_array(TbNodes *nodes, const char *path, int zarr_format, TbArrayMeta *meta,
				   const TbError *reason, TbError *err)
{
	TbNode		node;

	if (begin_node(&node, path, zarr_format, reason, err) != TB_OK)
	{
		tb_array_meta_free(meta);
		return TB_E_NOMEM;
	}
	if (reason->code == TB_OK)
		node.array = meta;
	else
	{
		tb_array_meta_free(meta);
		tb_error_detail(&node.error, "array \"%.200s\"", TB_PATH_LABEL(path));
	}
	return tb_nodes_add(nodes, &node, err);
}

TbStatus
tb_nodes_add_group(TbNodes *nodes, const char *path, int zarr_format, TbJson *attributes,
				   const TbError *reason, TbError *err)
{
	TbNode		node;

	if (begin_node(&node, path, zarr_format, reason, err) != TB_OK)
	{
		tb_json_free(attributes);
		return TB_E_NOMEM;
	}
	node.is_group = true;
	node.attributes = attributes;
	if (reason->code != TB_OK)
		tb_error_detail(&node.error, "group \"%.200s\"", TB_PATH_LABEL(path));
	return tb_nodes_add(nodes, &node, err);
}

char *
tb_path_join(const char *base, const char *relative)
{
	bool		both = base[0] != '\0' && relative[0] != '\0';

	return tb_asprintf("%s%s%s", base, both ? "/" : "", relative);
}

bool
tb_path_valid(const char *path)
{
	if (path[0] == '\0')
		return true;
	for (;;)
	{
		size_t		len = strcspn(path, "/");

		if (len == 0 || (len == 1 && path[0] == '.') ||
			(len == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		if (path[len] == '\0')
			return true;
		path += len + 1;
	}
}
