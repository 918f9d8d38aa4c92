/*
 * What callers want: a read is checked, given to a request that will bring it, and gets its part of
 * what that request brings. How requests live is op.c's, what the cache on disk has to do with it want_cache.c's.
 */
#include "io/store.h"

#include <string.h>

#include "io/url.h"

static void
unlink_want(TbWant *want)
{
	if (want->prev != NULL)
		want->prev->next = want->next;
	else
		want->store->first_want = want->next;
	if (want->next != NULL)
		want->next->prev = want->prev;
	want->store->n_wants--;
}

static void
free_want(TbWant *want)
{
	unlink_want(want);
	tb_cached_free(want);
	tb_free(want->error);
	tb_free(want);
}

static void
leave_op(TbWant *want)
{
	if (want->op_prev != NULL)
		want->op_prev->op_next = want->op_next;
	else
		want->op->wants = want->op_next;
	if (want->op_next != NULL)
		want->op_next->op_prev = want->op_prev;
	want->op_prev = want->op_next = NULL;
	want->op = NULL;
}

/* The part of op's bytes that is the want's. NULL when memory is gone. */
static TbBuf *
part_of(TbOp *op, const TbWant *want)
{
	if (want->kind == op->kind && want->length == op->length && want->offset == op->offset)
		return tb_buf_ref(op->data);
	return tb_buf_slice(op->data, (size_t) (want->offset - op->offset), (size_t) want->length);
}

/* Copy op's outcome, with the want's part of the bytes. */
static void
take_outcome(TbWant *want, TbOp *op)
{
	TbRead	   *read = want->read;

	read->status = op->status;
	read->missing = op->status == TB_OK && op->missing;
	read->object_size = op->object_size;
	read->data = NULL;
	memcpy(read->version, op->version, sizeof(read->version));
	if (op->status != TB_OK)
	{
		read->error = op->error;
		return;
	}
	tb_error_clear(&read->error);
	if (op->missing)
		tb_store_count(op->store, missing, 1);
	if (op->missing || op->not_modified)
		return;
	read->data = part_of(op, want);
	if (read->data == NULL)
		read->status = tb_fail(&read->error, TB_E_NOMEM, "out of memory");
	else if (!op->store->ops->connects) /* those count as bytes come in */
		tb_store_count(op->store, bytes, read->data->len);
}

void
tb_want_done(TbWant *want)
{
	TbRead	   *read = want->read;
	TbNodeCounters *books = want->store->books;

	if (books != NULL)
	{
		tb_count(books->wait_ns, tb_now_ns() - want->asked_ns);
		if (read->status != TB_OK)
			tb_count(books->errors, 1);
	}
	read->impl = NULL;
	free_want(want);
	read->done(read);
}

/* Whether a merged request may have failed for the sake of one of its ranges, or of its length. */
static bool
is_for_each(const TbOp *op)
{
	return op->merged && (op->status == TB_E_CORRUPT || op->status == TB_E_CHANGED || op->status == TB_E_LIMIT ||
						  op->status == TB_E_PROTOCOL || op->status == TB_E_UNSUPPORTED || op->status == TB_E_NOMEM);
}

static void send_want(TbWant *want, bool alone);

void
tb_wants_ended(TbOp *op)
{
	TbWant	   *want;

	if (is_for_each(op))
	{
		while ((want = op->wants) != NULL)
		{
			leave_op(want);
			send_want(want, true);
		}
		return;
	}
	/* done may cancel those behind it, or close the store */
	while ((want = op->wants) != NULL)
	{
		leave_op(want);
		take_outcome(want, op);
		if (want->cached != NULL)
			tb_cached_ended(want, op);
		tb_want_done(want);
	}
}

/* A request that fails before it starts says so from the pump. */
static void
refused_runs(TbTask *task)
{
	TbWant	   *want = (TbWant *) ((char *) task - offsetof(TbWant, task));
	TbRead	   *read = want->read;

	read->status = want->status;
	if (want->error != NULL)
		read->error = *want->error;
	else
		(void) tb_fail(&read->error, want->status, "out of memory");
	tb_want_done(want);
}

static void
refuse(TbWant *want, TbStatus status, const TbError *error)
{
	want->status = status;
	want->error = tb_malloc(sizeof(*want->error));
	if (want->error != NULL)
		*want->error = *error;
	want->task.run = refused_runs;
	tb_loop_defer(want->store->io->loop, &want->task);
}

/* As refused_runs, when there is no memory for a want. */
static void
no_memory_runs(TbTask *task)
{
	TbRead	   *read = (TbRead *) ((char *) task - offsetof(TbRead, task));

	read->done(read);
}

static TbStatus
check_request(const TbRead *read, TbError *err)
{
	uint64_t	end;
	TbStatus	status = tb_key_check(read->key, err);

	if (status != TB_OK)
		return status;
	if (read->kind == TB_RANGE_WHOLE)
		return TB_OK;
	if (read->length == 0 || !tb_add_u64(read->offset, read->length, &end) || end > INT64_MAX)
	{
		tb_fail(err, TB_E_INVALID, "invalid byte range");
		tb_error_detail(err, "%s: %llu bytes at %llu", read->key, (unsigned long long) read->length,
						(unsigned long long) read->offset);
		return TB_E_INVALID;
	}
	return TB_OK;
}

/* A want for read, linked into its store. NULL when memory is gone. */
static TbWant *
new_want(TbStore *store, TbRead *read)
{
	bool		any = read->if_version == NULL || read->if_version[0] == '\0';
	size_t		key_bytes = strlen(read->key) + 1;
	size_t		version_bytes = any ? 0 : strlen(read->if_version) + 1;
	TbWant	   *want = tb_calloc(1, sizeof(*want) + key_bytes + version_bytes);
	char	   *text;

	if (want == NULL)
		return NULL;
	text = (char *) (want + 1);
	memcpy(text, read->key, key_bytes);
	want->key = text;
	if (!any)
	{
		memcpy(text + key_bytes, read->if_version, version_bytes);
		want->if_version = text + key_bytes;
	}
	want->store = store;
	want->kind = read->kind;
	want->offset = read->kind == TB_RANGE_AT ? read->offset : 0;
	want->length = read->length;
	want->read = read;
	want->asked_ns = tb_now_ns();
	want->next = store->first_want;
	if (want->next != NULL)
		want->next->prev = want;
	store->first_want = want;
	store->n_wants++;
	return want;
}

/* Have a request bring it. alone: no other is to travel with it. */
static void
send_want(TbWant *want, bool alone)
{
	TbOp	   *op = tb_op_new(want->store, TB_VERB_READ, want->key, want->if_version, NULL);

	if (op == NULL)
	{
		TbError		error;
		TbStatus	status = tb_fail(&error, TB_E_NOMEM, "out of memory");

		refuse(want, status, &error);
		return;
	}
	op->kind = want->kind;
	op->offset = want->offset;
	op->length = want->length;
	op->into = want->read->into;
	op->into_bytes = want->read->into_bytes;
	op->unless_version = want->cached != NULL ? tb_cached_version(want) : NULL;
	op->alone = alone;
	op->ended = tb_wants_ended;
	op->wants = want;
	want->op = op;
	tb_op_submit(op);
}

void
tb_want_send(TbWant *want)
{
	send_want(want, false);
}

void
tb_store_read(TbStore *store, TbRead *read)
{
	TbWant	   *want = new_want(store, read);
	TbError		error;
	TbStatus	status;

	read->impl = want;
	read->data = NULL;
	read->missing = false;
	if (want == NULL)
	{
		read->status = tb_fail(&read->error, TB_E_NOMEM, "out of memory");
		read->task.run = no_memory_runs;
		tb_loop_defer(store->io->loop, &read->task);
		return;
	}
	status = check_request(read, &error);
	if (status != TB_OK)
		refuse(want, status, &error);
	else if (!tb_cached_ask(want))
		send_want(want, false);
}

void
tb_want_cancel(TbWant *want)
{
	TbOp	   *op = want->op;

	want->read->impl = NULL;
	if (op == NULL && !tb_cached_waits(want))
		tb_loop_undefer(want->store->io->loop, &want->task);
	else if (op != NULL)
		leave_op(want);
	free_want(want);
	if (op != NULL && op->wants == NULL)
		tb_op_cancel(op);
}

void
tb_store_cancel(TbStore *store, TbRead *read)
{
	if (read->impl == NULL)
		tb_loop_undefer(store->io->loop, &read->task);
	else
		tb_want_cancel(read->impl);
}
