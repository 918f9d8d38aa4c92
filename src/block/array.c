/*
 * Opening arrays: which documents to ask for, in what order, and what to make of them.
 *
 *   probe (zarr.json, .zarray, .zattrs; only those of the format seen before) -> found: done
 *     -> the other format's documents -> consolidated metadata of each group above, nearest first
 * -> NO_ARRAY
 *
 * A core holds what is known of an array; handles share it until it is too old. thread: the loop's.
 */
#include "block/internal.h"

#include <string.h>

static const char *const docs_v3[] = {"zarr.json", NULL};
static const char *const docs_v2[] = {".zarray", ".zattrs", NULL};
static const char *const docs_all[] = {"zarr.json", ".zarray", ".zattrs", NULL};
static const char *const docs_above[] = {"zarr.json", ".zmetadata", NULL};

void
tb_array_core_destroy(TbLruNode *node)
{
	TbArrayCore *core = (TbArrayCore *) node;

	tb_docs_clear(&core->docs);
	tb_free(core->above);
	tb_free(core->path);
	tb_free(core->error);
	tb_array_meta_free(core->meta);
	tb_chain_free(core->chain);
	tb_free(core);
}

static void
settle(TbArrayCore *core, TbStatus status, const TbError *error)
{
	core->stage = TB_ARRAY_SETTLED;
	core->status = status;
	if (status != TB_OK)
	{
		core->error = tb_malloc(sizeof(TbError));
		if (core->error != NULL)
			*core->error = *error;
	}
	tb_docs_clear(&core->docs);
	tb_free(core->above);
	core->above = NULL;
}

/* Names objects and arrays by what they are in the store. */
static void
settle_failed(TbArrayCore *core, TbStatus status, TbError *error)
{
	if (strstr(error->detail, "array ") == NULL)
		tb_error_detail(error, "array \"%.200s\"", core->path);
	settle(core, status, error);
}

/* The node was found: copy it, apply mask_fill, prepare its codecs. */
static void
take_node(TbArrayCore *core, const TbNode *node)
{
	TbError		error;
	TbStatus	status = node->status;

	tb_error_clear(&error);
	if (status != TB_OK)
	{
		error = node->error;
		settle_failed(core, status, &error);
		return;
	}
	core->meta = tb_array_meta_copy(node->array);
	if (core->meta == NULL)
		status = tb_fail(&error, TB_E_NOMEM, "out of memory");
	if (status == TB_OK && core->mask_fill >= 0)
		status = tb_packing_from(core->meta, core->mask_fill, &core->meta->packing, &error);
	if (status == TB_OK)
		status = tb_chain_open(core->meta->codecs, core->meta->dtype, core->meta->ndim,
							   core->meta->chunk, &core->chain, &error);
	if (status != TB_OK)
	{
		settle_failed(core, status, &error);
		return;
	}
	core->source->format = core->meta->zarr_format;
	settle(core, TB_OK, NULL);
}

/* Look for the array among parsed nodes. false: not there. */
static bool
take_from(TbArrayCore *core, const TbNodes *nodes)
{
	const TbNode *node = tb_nodes_find(nodes, core->path);
	TbError		error;

	if (node == NULL)
		return false;
	if (!node->is_group)
	{
		take_node(core, node);
		return true;
	}
	tb_fail(&error, TB_E_NO_ARRAY, "not an array");
	tb_error_detail(&error, "\"%.200s\" is a group", core->path);
	settle(core, TB_E_NO_ARRAY, &error);
	return true;
}

static const TbBuf *
doc_named(const TbDocs *docs, const char *name)
{
	size_t		name_len = strlen(name);

	for (int i = 0; i < docs->n; i++)
	{
		size_t		len = strlen(docs->doc[i].key);

		if (len >= name_len && strcmp(docs->doc[i].key + len - name_len, name) == 0)
			return tb_docs_bytes(docs, i);
	}
	return NULL;
}

/* The node's own documents are here. false: it has none. */
static bool
take_own(TbArrayCore *core)
{
	const TbBuf *v3 = doc_named(&core->docs, "zarr.json");
	const TbBuf *v2 = doc_named(&core->docs, ".zarray");
	TbNodes		nodes = {0};
	TbError		error;
	TbStatus	status = TB_OK;
	bool		consolidated;
	bool		found = false;

	if (v3 == NULL && v2 == NULL)
		return false;
	tb_error_clear(&error);
	core->loaded_ns = tb_docs_age_ns(&core->docs);
	if (v3 != NULL)
		status = tb_zarr_parse_v3(core->path, v3, &nodes, &consolidated, &error);
	else
	{
		/* attributes that could not be read would silently change values (scale, masks) */
		status = tb_docs_failure(&core->docs, &error);
		if (status == TB_E_DENIED && doc_named(&core->docs, ".zattrs") != NULL)
			status = TB_OK;		/* only zarr.json was denied */
		if (status == TB_OK)
			status = tb_zarr_parse_v2_array(core->path, v2, doc_named(&core->docs, ".zattrs"),
											&nodes, &error);
	}
	if (status == TB_OK)
		found = take_from(core, &nodes);
	else
		settle_failed(core, status, &error);
	tb_nodes_free(&nodes);
	return found || status != TB_OK;
}

/* Consolidated documents of a group above are here. false: the array is not in them. */
static bool
take_above(TbArrayCore *core)
{
	const TbBuf *doc[2] = {doc_named(&core->docs, "zarr.json"),
						   doc_named(&core->docs, ".zmetadata")};
	bool		found = false;

	for (int i = 0; i < 2 && !found; i++)
	{
		TbNodes		nodes = {0};
		TbError		error;
		bool		consolidated;
		TbStatus	status;

		if (doc[i] == NULL)
			continue;
		tb_error_clear(&error);
		status = i == 0 ? tb_zarr_parse_v3(core->above, doc[i], &nodes, &consolidated, &error)
			: tb_zarr_parse_v2_consolidated(core->above, doc[i], &nodes, &error);
		core->loaded_ns = tb_docs_age_ns(&core->docs);
		/* a broken document above says nothing of this array */
		if (status == TB_OK)
			found = take_from(core, &nodes);
		tb_nodes_free(&nodes);
	}
	return found;
}

static void
settle_absent(TbArrayCore *core)
{
	TbError		error;

	tb_fail(&error, TB_E_NO_ARRAY, "array does not exist");
	tb_error_detail(&error, "array \"%.200s\" of \"%.200s\"", core->path,
					tb_source_url(core->source));
	tb_error_hint(&error, "Check the path; names are those of the store, '/' between groups.");
	settle(core, TB_E_NO_ARRAY, &error);
}

/* Ask for the documents of the current stage. */
static TbStatus
ask(TbArrayCore *core, TbError *err)
{
	const char *const *names = docs_all;

	if (core->stage == TB_ARRAY_ANCESTOR)
		return tb_docs_start(&core->docs, core->source, core->above, docs_above, false, err);
	if (core->stage == TB_ARRAY_PROBE && core->source->format != 0)
		names = core->source->format == 3 ? docs_v3 : docs_v2;
	return tb_docs_start(&core->docs, core->source, core->path, names, false, err);
}

/* Choose the next stage after one that found nothing. false: settled. */
static bool
next_stage(TbArrayCore *core)
{
	TbError		error;
	TbStatus	status;
	char	   *above;

	tb_error_clear(&error);
	status = tb_docs_failure(&core->docs, &error);
	if (core->stage != TB_ARRAY_ANCESTOR && status != TB_OK)
	{
		settle_failed(core, status, &error);
		return false;
	}
	if (core->stage == TB_ARRAY_PROBE && core->docs.n < 3)
	{
		core->stage = TB_ARRAY_PROBE_ALL;
		return true;
	}
	if (core->stage == TB_ARRAY_ANCESTOR ? core->above[0] == '\0' : core->path[0] == '\0')
	{
		settle_absent(core);
		return false;
	}
	above = tb_path_parent(core->stage == TB_ARRAY_ANCESTOR ? core->above : core->path);
	tb_free(core->above);
	core->above = above;
	core->stage = TB_ARRAY_ANCESTOR;
	if (above != NULL)
		return true;
	status = tb_fail(&error, TB_E_NOMEM, "out of memory");
	settle_failed(core, status, &error);
	return false;
}

/* Go on until something must be waited for. */
static void
advance(TbArrayCore *core)
{
	while (core->stage != TB_ARRAY_SETTLED && core->docs.pending == 0)
	{
		bool		found = core->stage == TB_ARRAY_ANCESTOR ? take_above(core) : take_own(core);
		TbError		error;
		TbStatus	status;

		if (found || !next_stage(core))
			return;
		tb_error_clear(&error);
		status = ask(core, &error);
		if (status != TB_OK)
			settle_failed(core, status, &error);
	}
}

static void
docs_done(TbDocs *docs)
{
	advance(docs->arg);
}

static TbArrayCore *
new_core(TbSource *source, const char *path, int mask_fill, const char *name)
{
	TbArrayCore *core = tb_calloc(1, sizeof(*core));

	if (core == NULL)
		return NULL;
	core->source = source;
	core->serial = ++source->engine->next_id;
	core->mask_fill = mask_fill;
	core->status = TB_AGAIN;
	core->docs.done = docs_done;
	core->docs.arg = core;
	core->node.cost = 1;
	core->path = tb_strdup(path);
	if (core->path != NULL && tb_lru_insert(&source->arrays, &core->node, name, strlen(name)))
		return core;
	tb_array_core_destroy(&core->node);
	return NULL;
}

/* One in the table that may still be used, pinned. */
static TbArrayCore *
find_core(TbSource *source, const char *name)
{
	TbArrayCore *core = (TbArrayCore *) tb_lru_find(&source->arrays, name, strlen(name));

	if (core == NULL)
		return NULL;
	if (core->status == TB_AGAIN ||
		(core->status == TB_OK && tb_now_ns() - core->loaded_ns < source->engine->max_age_ns))
		return core;
	tb_lru_drop(&source->arrays, &core->node);
	tb_lru_unpin(&source->arrays, &core->node);
	return NULL;
}

/* Find or begin. errors: NOMEM. */
static TbStatus
get_core(TbSource *source, const char *path, int mask_fill, TbArrayCore **out, TbError *err)
{
	char	   *name = tb_asprintf("%d %s", mask_fill, path);
	TbArrayCore *core = name != NULL ? find_core(source, name) : NULL;
	TbStatus	status;

	*out = core;
	if (core == NULL && name != NULL)
	{
		core = new_core(source, path, mask_fill, name);
		*out = core;
		if (core != NULL)
		{
			TbError		error;

			tb_error_clear(&error);
			status = ask(core, &error);
			if (status != TB_OK)
				settle_failed(core, status, &error);
			advance(core);
		}
	}
	tb_free(name);
	return core != NULL ? TB_OK : tb_fail(err, TB_E_NOMEM, "out of memory");
}

TbStatus
tb_array_open(TbSource *source, const char *path, int mask_fill, TbArray **out, TbError *err)
{
	TbArray    *array = tb_calloc(1, sizeof(*array));
	char	   *clean = NULL;
	TbStatus	status;

	if (array == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_path_clean(path, &clean, err);
	if (status == TB_OK)
		status = get_core(source, clean, mask_fill, &array->core, err);
	tb_free(clean);
	if (status != TB_OK)
	{
		tb_free(array);
		return status;
	}
	array->refs = 1;
	array->source = tb_source_ref(source);
	*out = array;
	return TB_OK;
}

TbStatus
tb_array_poll(TbArray *array, TbError *err)
{
	const TbArrayCore *core = array->core;

	if (core->status == TB_OK || core->status == TB_AGAIN)
		return core->status;
	if (core->error == NULL)
		return tb_fail(err, core->status, "cannot open array");
	if (err != NULL)
		*err = *core->error;
	return core->status;
}

const TbArrayMeta *
tb_array_meta(const TbArray *array)
{
	return array->core->meta;
}

TbSource *
tb_array_source(const TbArray *array)
{
	return array->source;
}

const char *
tb_array_codecs(const TbArray *array)
{
	return tb_chain_describe(array->core->chain);
}

TbArray *
tb_array_ref(TbArray *array)
{
	array->refs++;
	return array;
}

void
tb_array_unref(TbArray *array)
{
	TbSource   *source;

	if (array == NULL || --array->refs > 0)
		return;
	source = array->source;
	tb_lru_unpin(&source->arrays, &array->core->node);
	tb_free(array);
	tb_source_unref(source);
}
