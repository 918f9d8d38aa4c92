/*
 * Objects in memory, for tests: the same answers as the other stores, without files or sockets. A
 * read shares the object's bytes where it wants all of them.
 */
#include "io/store.h"

#include <stdio.h>
#include <string.h>

typedef struct Object
{
	char	   *key;			/* owned */
	TbBuf	   *bytes;			/* owned */
	uint64_t	generation;
} Object;

typedef struct MemStore
{
	TbStore		base;
	Object	   *object;			/* owned; sorted by key */
	size_t		n;
	size_t		room;
	uint64_t	generation;		/* of the last put */
} MemStore;

/* Where key is, or would be. */
static size_t
find(const MemStore *store, const char *key, bool *found)
{
	size_t		low = 0;
	size_t		high = store->n;

	*found = false;
	while (low < high)
	{
		size_t		middle = (low + high) / 2;
		int			order = strcmp(store->object[middle].key, key);

		if (order == 0)
		{
			*found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void
attempt(TbOp *op)
{
	MemStore   *store = (MemStore *) op->store;
	bool		found;
	size_t		at = find(store, op->key, &found);
	const Object *object = &store->object[at];
	uint64_t	offset;
	uint64_t	length;

	op->missing = !found;
	if (!found)
		return;
	(void) snprintf(op->version, sizeof(op->version), "%zu-%llu", object->bytes->len,
					(unsigned long long) object->generation);
	if (tb_op_check_version(op) != TB_OK || tb_op_locate(op, object->bytes->len, &offset, &length) != TB_OK)
		return;
	if (length == object->bytes->len)
	{
		op->data = tb_buf_ref(object->bytes);
		return;
	}
	op->data = tb_op_buf(op, (size_t) length);
	if (op->data == NULL)
	{
		tb_op_nomem(op);
		return;
	}
	memcpy(op->data->data, object->bytes->data + offset, (size_t) length);
	op->data->len = (size_t) length;
}

static void
run(TbTask *task)
{
	TbOp	   *op = (TbOp *) ((char *) task - offsetof(TbOp, task));

	attempt(op);
	tb_op_finish(op);
}

static void
mem_start(TbOp *op)
{
	op->task.run = run;
	tb_loop_defer(op->store->io->loop, &op->task);
}

static void
mem_stop(TbOp *op)
{
	tb_loop_undefer(op->store->io->loop, &op->task);
}

static void
mem_close(TbStore *base)
{
	MemStore   *store = (MemStore *) base;

	for (size_t i = 0; i < store->n; i++)
	{
		tb_free(store->object[i].key);
		tb_buf_unref(store->object[i].bytes);
	}
	tb_free(store->object);
	tb_free(base->url);
	tb_free(store);
}

/* The first segment of what follows prefix, once each: sorted keys bring equal ones together, but
 * "a-b" lies between "a" and "a/c", so that all names so far are looked at. */
static TbStatus
add_once(TbStoreNames *names, size_t *room, const char *rest)
{
	size_t		len = strcspn(rest, "/");
	bool		is_prefix = rest[len] == '/';
	char	   *name;
	TbStatus	status;

	for (size_t i = 0; i < names->n; i++)
	{
		if (names->is_prefix[i] == is_prefix && strlen(names->name[i]) == len &&
			memcmp(names->name[i], rest, len) == 0)
			return TB_OK;
	}
	name = tb_strndup(rest, len);
	if (name == NULL)
		return TB_E_NOMEM;
	status = tb_store_names_add(names, room, name, is_prefix);
	tb_free(name);
	return status;
}

static TbStatus
mem_list(TbStore *base, const char *prefix, TbStoreNames *names, TbError *err)
{
	MemStore   *store = (MemStore *) base;
	size_t		len = strlen(prefix);
	size_t		room = 0;

	for (size_t i = 0; i < store->n; i++)
	{
		const char *key = store->object[i].key;
		TbStatus	status;

		if (strncmp(key, prefix, len) != 0 || (len > 0 && key[len] != '/'))
			continue;
		status = add_once(names, &room, key + len + (len > 0));
		if (status != TB_OK)
			return tb_fail(err, status, "out of memory");
	}
	return TB_OK;
}

/* Make room for one more object at `at`. */
static bool
open_gap(MemStore *store, size_t at)
{
	if (store->n == store->room)
	{
		size_t		room = store->room == 0 ? 16 : store->room * 2;
		Object	   *object = tb_realloc_array(store->object, room, sizeof(*object));

		if (object == NULL)
			return false;
		store->object = object;
		store->room = room;
	}
	memmove(&store->object[at + 1], &store->object[at], (store->n - at) * sizeof(Object));
	store->n++;
	return true;
}

static TbStatus
mem_put(TbStore *base, const char *key, const void *bytes, size_t len, bool create_once, TbError *err)
{
	MemStore   *store = (MemStore *) base;
	bool		found;
	size_t		at = find(store, key, &found);
	TbBuf	   *copy;
	char	   *own_key = NULL;

	if (found && create_once)
	{
		tb_fail(err, TB_E_CHANGED, "object exists already");
		tb_error_detail(err, "%s/%s", base->url, key);
		return TB_E_CHANGED;
	}
	copy = tb_buf_new(len);
	if (copy == NULL || tb_buf_append(copy, bytes, len, len) != TB_OK ||
		(!found && ((own_key = tb_strdup(key)) == NULL || !open_gap(store, at))))
	{
		tb_free(own_key);
		tb_buf_unref(copy);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	if (found)
		tb_buf_unref(store->object[at].bytes);
	else
		store->object[at].key = own_key;
	store->object[at].bytes = copy;
	store->object[at].generation = ++store->generation;
	return TB_OK;
}

static TbStatus
mem_remove(TbStore *base, const char *key, TbError *err)
{
	MemStore   *store = (MemStore *) base;
	bool		found;
	size_t		at = find(store, key, &found);

	if (!found)
		return TB_OK;
	tb_free(store->object[at].key);
	tb_buf_unref(store->object[at].bytes);
	store->n--;
	memmove(&store->object[at], &store->object[at + 1], (store->n - at) * sizeof(Object));
	return TB_OK;
}

static const TbStoreOps mem_ops = {
	.can_list = true,
	.can_write = true,
	.start = mem_start,
	.stop = mem_stop,
	.close = mem_close,
	.list = mem_list,
	.put = mem_put,
	.remove = mem_remove,
};

TbStatus
tb_store_open_mem(TbIo *io, TbStore **out, TbError *err)
{
	MemStore   *store = tb_calloc(1, sizeof(*store));
	char	   *url = tb_strdup("mem://");

	*out = NULL;
	if (store == NULL || url == NULL)
	{
		tb_free(store);
		tb_free(url);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	tb_store_init(&store->base, &mem_ops, io, url);
	*out = &store->base;
	return TB_OK;
}
