/*
 * What all kinds of stores have in common: opening by scheme, closing, listing and writing through
 * the vtable. Reading is in op.c.
 */
#include "io/store.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/url.h"

#define NAMES_MAX ((size_t) 16 << 20)

typedef struct Scheme
{
	const char *prefix;
	TbStatus	(*open) (TbIo *io, const TbStoreSpec *spec, TbStore **store, TbError *err);
} Scheme;

static const Scheme schemes[] = {
	{"file://", tb_store_open_file},
	{"http://", tb_store_open_http},
	{"https://", tb_store_open_http},
	{"s3://", tb_store_open_s3},
};

TbStatus
tb_store_open(TbIo *io, const TbStoreSpec *spec, TbStore **store, TbError *err)
{
	*store = NULL;
	if (spec->url == NULL || strstr(spec->url, "://") == NULL)
	{
		tb_fail(err, TB_E_INVALID, "invalid store url");
		tb_error_hint(err, "Use file:///directory, http(s)://host/path or s3://bucket/prefix.");
		return TB_E_INVALID;
	}
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
	{
		if (strncasecmp(spec->url, schemes[i].prefix, strlen(schemes[i].prefix)) == 0)
		{
			TbStatus	status = schemes[i].open(io, spec, store, err);

			if (status == TB_OK)
			{
				(*store)->books = tb_node_counters(io->node, spec->name != NULL ? spec->name : (*store)->url);
				(void) tb_retry_in_budget(*store, tb_now_ns()); /* counts from here */
			}
			return status;
		}
	}
	tb_fail(err, TB_E_UNSUPPORTED, "store url has an unknown scheme");
	tb_error_hint(err, "Use file:///directory, http(s)://host/path or s3://bucket/prefix.");
	return TB_E_UNSUPPORTED;
}

void
tb_store_init(TbStore *store, const TbStoreOps *ops, TbIo *io, char *url)
{
	store->ops = ops;
	store->io = io;
	store->url = url;
}

/* A request that can still be stopped. NULL: none. */
static TbOp *
stoppable_op(const TbStore *store)
{
	for (TbOp *op = store->first; op != NULL; op = op->next)
		if (!op->forgotten)
			return op;
	return NULL;
}

/*
 * Reads of local files that a pool thread is at end by themselves; the last one frees the store. Jobs are freed
 * before; what one has left behind (job.h) ends here.
 */
void
tb_store_close(TbStore *store)
{
	TbOp	   *op;

	if (store == NULL)
		return;
	while (store->first_want != NULL)
		tb_want_cancel(store->first_want);
	while ((op = stoppable_op(store)) != NULL)
		tb_op_cancel(op);
	store->closed = true;
	if (store->n_ops == 0)
		store->ops->close(store);
}

const char *
tb_store_url(const TbStore *store)
{
	return store->url;
}

TbStatus
tb_store_set_credentials(TbStore *store, const char *access_key_id, const char *secret_access_key,
						 const char *session_token, TbError *err)
{
	if (store->ops->set_credentials == NULL)
		return TB_OK;			/* needs none */
	return store->ops->set_credentials(store, access_key_id, secret_access_key, session_token, err);
}

TbIoCounters
tb_store_counters(const TbStore *store)
{
	return store->counters;
}

bool
tb_store_can_list(const TbStore *store)
{
	return store->ops->can_list;
}

bool
tb_store_can_write(const TbStore *store)
{
	return store->ops->can_write;
}

static TbStatus
unsupported(const TbStore *store, const char *what, TbError *err)
{
	tb_fail(err, TB_E_UNSUPPORTED, "store cannot be %s", what);
	tb_error_detail(err, "%s", store->url);
	return TB_E_UNSUPPORTED;
}

/* Here a call would have to wait: that is what jobs are for. */
static TbStatus
would_wait(const TbStore *store, TbError *err)
{
	tb_fail(err, TB_E_INTERNAL, "store can be listed and written to by jobs only");
	tb_error_detail(err, "%s", store->url);
	return TB_E_INTERNAL;
}

TbStatus
tb_store_list(TbStore *store, const char *prefix, TbStoreNames *names, TbError *err)
{
	TbStatus	status;

	memset(names, 0, sizeof(*names));
	if (!store->ops->can_list)
		return unsupported(store, "listed", err);
	if (store->ops->list == NULL)
		return would_wait(store, err);
	status = prefix[0] == '\0' ? TB_OK : tb_key_check(prefix, err);
	if (status == TB_OK)
		status = store->ops->list(store, prefix, names, err);
	if (status == TB_OK)
		tb_store_names_sort(names);
	else
		tb_store_free_names(names);
	return status;
}

TbStatus
tb_store_put(TbStore *store, const char *key, const void *bytes, size_t len, bool create_once, TbError *err)
{
	TbStatus	status;

	if (!store->ops->can_write)
		return unsupported(store, "written to", err);
	if (store->ops->put == NULL)
		return would_wait(store, err);
	status = tb_key_check(key, err);
	return status == TB_OK ? store->ops->put(store, key, bytes, len, create_once, err) : status;
}

TbStatus
tb_store_delete(TbStore *store, const char *key, TbError *err)
{
	TbStatus	status;

	if (!store->ops->can_write)
		return unsupported(store, "written to", err);
	if (store->ops->remove == NULL)
		return would_wait(store, err);
	status = tb_key_check(key, err);
	return status == TB_OK ? store->ops->remove(store, key, err) : status;
}

/* errors: NOMEM, LIMIT. */
TbStatus
tb_store_names_add(TbStoreNames *names, size_t *room, const char *name, bool is_prefix)
{
	if (names->n >= NAMES_MAX)
		return TB_E_LIMIT;
	if (names->n == *room)
	{
		size_t		more = *room == 0 ? 64 : *room * 2;
		char	  **name_array = tb_realloc_array(names->name, more, sizeof(*name_array));
		bool	   *flag_array;

		if (name_array == NULL)
			return TB_E_NOMEM;
		names->name = name_array;
		flag_array = tb_realloc_array(names->is_prefix, more, sizeof(*flag_array));
		if (flag_array == NULL)
			return TB_E_NOMEM;
		names->is_prefix = flag_array;
		*room = more;
	}
	names->name[names->n] = tb_strdup(name);
	if (names->name[names->n] == NULL)
		return TB_E_NOMEM;
	names->is_prefix[names->n++] = is_prefix;
	return TB_OK;
}

static void
swap(TbStoreNames *names, size_t a, size_t b)
{
	char	   *name = names->name[a];
	bool		flag = names->is_prefix[a];

	names->name[a] = names->name[b];
	names->is_prefix[a] = names->is_prefix[b];
	names->name[b] = name;
	names->is_prefix[b] = flag;
}

static bool
before(const TbStoreNames *names, size_t a, size_t b)
{
	int			order = strcmp(names->name[a], names->name[b]);

	return order != 0 ? order < 0 : names->is_prefix[a] < names->is_prefix[b];
}

/* Let the name at root sink to its place in the heap of n names. */
static void
sift(TbStoreNames *names, size_t root, size_t n)
{
	for (;;)
	{
		size_t		child = 2 * root + 1;

		if (child >= n)
			return;
		if (child + 1 < n && before(names, child, child + 1))
			child++;
		if (!before(names, root, child))
			return;
		swap(names, root, child);
		root = child;
	}
}

/* By bytes. A heap sort, because two arrays are sorted as one and in place. */
void
tb_store_names_sort(TbStoreNames *names)
{
	for (size_t i = names->n / 2; i-- > 0;)
		sift(names, i, names->n);
	for (size_t n = names->n; n-- > 1;)
	{
		swap(names, 0, n);
		sift(names, 0, n);
	}
}

void
tb_store_free_names(TbStoreNames *names)
{
	for (size_t i = 0; i < names->n; i++)
		tb_free(names->name[i]);
	tb_free(names->name);
	tb_free(names->is_prefix);
	memset(names, 0, sizeof(*names));
}
