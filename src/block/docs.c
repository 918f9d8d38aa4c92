/*
 * Metadata documents: a few objects asked for together through the engine's document cache, so that
 * arrays opened at the same time share one request a document. Also paths of a hierarchy.
 */
#include "block/internal.h"

#include <string.h>

char *
tb_block_path_join(const char *group, const char *name)
{
	if (group[0] == '\0')
		return tb_strdup(name);
	if (name[0] == '\0')
		return tb_strdup(group);
	return tb_asprintf("%s/%s", group, name);
}

char *
tb_path_parent(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? tb_strdup("") : tb_strndup(path, (size_t) (slash - path));
}

/* "", "." and ".." name no node, and ".." would leave the store. */
static bool
part_is_bad(const char *part, size_t len)
{
	return len == 0 || (len == 1 && part[0] == '.') ||
		   (len == 2 && part[0] == '.' && part[1] == '.');
}

TbStatus
tb_path_clean(const char *path, char **clean, TbError *err)
{
	size_t		len;

	while (*path == '/')
		path++;
	len = strlen(path);
	while (len > 0 && path[len - 1] == '/')
		len--;
	for (size_t at = 0; at < len;)
	{
		size_t		part = 0;

		while (at + part < len && path[at + part] != '/')
			part++;
		if (part_is_bad(path + at, part))
		{
			tb_fail(err, TB_E_INVALID, "invalid path in a store");
			tb_error_detail(err, "path \"%.200s\"", path);
			tb_error_hint(err, "Give a path below the server's url, without \".\", \"..\" and empty parts.");
			return TB_E_INVALID;
		}
		at += part + 1;
	}
	*clean = tb_strndup(path, len);
	return *clean != NULL ? TB_OK : tb_fail(err, TB_E_NOMEM, "out of memory");
}

const TbNode *
tb_nodes_find(const TbNodes *nodes, const char *path)
{
	for (size_t i = 0; i < nodes->n; i++)
		if (strcmp(nodes->node[i].path, path) == 0)
			return &nodes->node[i];
	return NULL;
}

static void
doc_wake(TbWaiter *waiter)
{
	TbDocs	   *docs = waiter->arg;

	if (--docs->pending == 0)
		docs->done(docs);
}

/* Ask for one document. errors: NOMEM. */
static TbStatus
start_doc(TbDocs *docs, TbDoc *doc, TbSource *source, bool fresh, TbError *err)
{
	TbLoadSpec	spec = {.source = source, .cache = &source->engine->docs, .object = doc->key};
	char	   *name;
	bool		began;
	TbStatus	status;

	name = tb_asprintf("%llu %llu %s", (unsigned long long) source->id,
					   (unsigned long long) source->generation, doc->key);
	if (name == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	spec.name = name;
	spec.name_len = strlen(name);
	spec.kind = TB_RANGE_WHOLE;
	spec.length = TB_JSON_MAX_BYTES;
	spec.max_age_ns = fresh ? 0 : source->engine->max_age_ns;
	/* absence is not remembered: what is not there yet may be written the next moment */
	spec.missing_age_ns = 0;
	spec.shard_bytes = UINT64_MAX;
	status = tb_load_get(&spec, &doc->load, &began, err);
	tb_free(name);
	if (status != TB_OK)
		return status;
	if (doc->load->status == TB_AGAIN)
	{
		doc->waiter.wake = doc_wake;
		doc->waiter.arg = docs;
		tb_load_wait(doc->load, &doc->waiter);
		docs->pending++;
	}
	return TB_OK;
}

TbStatus
tb_docs_start(TbDocs *docs, TbSource *source, const char *base, const char *const *name, bool fresh,
			  TbError *err)
{
	TbStatus	status = TB_OK;

	tb_docs_clear(docs);
	for (int i = 0; name[i] != NULL && status == TB_OK; i++)
	{
		TbDoc	   *doc = &docs->doc[docs->n];

		doc->key = tb_block_path_join(base, name[i]);
		if (doc->key == NULL)
			status = tb_fail(err, TB_E_NOMEM, "out of memory");
		else
		{
			docs->n++;
			status = start_doc(docs, doc, source, fresh, err);
		}
	}
	if (status != TB_OK)
		tb_docs_clear(docs);
	return status;
}

void
tb_docs_clear(TbDocs *docs)
{
	for (int i = 0; i < docs->n; i++)
	{
		if (docs->doc[i].load != NULL)
			tb_load_release(docs->doc[i].load, &docs->doc[i].waiter);
		tb_free(docs->doc[i].key);
	}
	memset(docs->doc, 0, sizeof(docs->doc));
	docs->n = 0;
	docs->pending = 0;
}

const TbBuf *
tb_docs_bytes(const TbDocs *docs, int i)
{
	const TbLoad *load = docs->doc[i].load;

	return load->status == TB_OK && !load->missing ? load->bytes : NULL;
}

TbStatus
tb_docs_failure(const TbDocs *docs, TbError *err)
{
	for (int i = 0; i < docs->n; i++)
	{
		TbStatus	status = tb_load_status(docs->doc[i].load, err);

		if (status != TB_OK)
		{
			tb_error_detail(err, "object \"%.200s\"", docs->doc[i].key);
			return status;
		}
	}
	return TB_OK;
}

int64_t
tb_docs_age_ns(const TbDocs *docs)
{
	int64_t		oldest = INT64_MAX;

	for (int i = 0; i < docs->n; i++)
		if (docs->doc[i].load->loaded_ns < oldest)
			oldest = docs->doc[i].load->loaded_ns;
	return oldest;
}
