/*
 * Objects that are files below a directory. A read opens, looks, reads and looks again: an object
 * that changes under the read is noticed. It runs on a pool thread, or inline where there is none,
 * and touches only its TbOp, so that a canceled read can be left to end by itself. Writing is in
 * file_write.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* O_PATH */
#endif

#include "io/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file_path.h"
#include "io/url.h"

#define READ_FLAGS (O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

TbStatus
tb_file_fail(int code, const char *doing, const char *url, const char *key, TbError *err)
{
	char		object[512];
	TbStatus	status;

	(void) snprintf(object, sizeof(object), "%.200s/%.300s", url, key);
	switch (code)
	{
		case ELOOP:
		case EXDEV:
			status = tb_fail(err, TB_E_DENIED, "symbolic link in a store refused");
			break;
		case ENAMETOOLONG:
			status = tb_fail(err, TB_E_INVALID, "object key is too long");
			break;
		case EMFILE:
		case ENFILE:
			status = tb_fail(err, TB_E_THROTTLED, "too many open files");
			if (err != NULL)
				err->retryable = true;
			break;
		default:
			return tb_fail_errno(err, code, doing, object);
	}
	if (err != NULL)
		err->sys_errno = code;
	tb_error_detail(err, "%s", object);
	return status;
}

static void
stamp(TbOp *op, const struct stat *st)
{
	(void) snprintf(op->version, sizeof(op->version), "%" PRIdMAX "-%" PRIdMAX "%09ld-%" PRIuMAX,
					(intmax_t) st->st_size, (intmax_t) st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
					(uintmax_t) st->st_ino);
}

/* Fill op->data with [offset, offset + length). */
static TbStatus
read_bytes(TbOp *op, int fd, uint64_t offset, uint64_t length)
{
	size_t		got = 0;

	op->data = tb_io_buf(op->store->io, (size_t) length);
	if (op->data == NULL)
		return tb_op_nomem(op);
	while (got < length)
	{
		ssize_t		n = pread(fd, op->data->data + got, (size_t) length - got, (off_t) (offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return op->status = tb_file_fail(errno, "read", op->store->url, op->key, &op->error);
		if (n == 0)
			return tb_op_fail(op, TB_E_CHANGED, true, "object has changed");
		got += (size_t) n;
	}
	op->data->len = got;
	return TB_OK;
}

/* Read from an open file. */
static void
read_file(TbOp *op, int fd)
{
	struct stat before;
	struct stat after;
	uint64_t	offset;
	uint64_t	length;

	if (fstat(fd, &before) < 0)
	{
		op->status = tb_file_fail(errno, "look at", op->store->url, op->key, &op->error);
		return;
	}
	op->missing = S_ISDIR(before.st_mode);
	if (op->missing)
		return;
	if (!S_ISREG(before.st_mode))
	{
		tb_op_fail(op, TB_E_DENIED, false, "object is not a regular file");
		return;
	}
	stamp(op, &before);
	if (tb_op_check_version(op) != TB_OK ||
		tb_op_locate(op, (uint64_t) before.st_size, &offset, &length) != TB_OK ||
		read_bytes(op, fd, offset, length) != TB_OK)
		return;
	if (fstat(fd, &after) < 0 || after.st_size != before.st_size ||
		after.st_mtim.tv_sec != before.st_mtim.tv_sec || after.st_mtim.tv_nsec != before.st_mtim.tv_nsec)
		tb_op_fail(op, TB_E_CHANGED, true, "object has changed");
}

/* One attempt, start to end. thread: the pool's, or the loop's. */
static void
attempt(TbOp *op)
{
	TbFileStore *store = (TbFileStore *) op->store;
	int			fd = tb_beneath_open(store->root_fd, op->key, READ_FLAGS);

	if (fd == -ENOENT || fd == -ENOTDIR)
		op->missing = true;
	else if (fd == -ENXIO)
		tb_op_fail(op, TB_E_DENIED, false, "object is not a regular file");
	else if (fd < 0)
		op->status = tb_file_fail(-fd, "open", store->base.url, op->key, &op->error);
	else
	{
		read_file(op, fd);
		close(fd);
	}
}

static TbOp *
op_of(TbTask *task)
{
	return (TbOp *) ((char *) task - offsetof(TbOp, task));
}

static void
run_in_pool(TbTask *task)
{
	TbOp	   *op = op_of(task);

	if (!__atomic_load_n(&op->canceled, __ATOMIC_RELAXED))
		attempt(op);
	tb_io_return(op->store->io, op);
}

static void
run_inline(TbTask *task)
{
	attempt(op_of(task));
	tb_op_finish(op_of(task));
}

static void
file_start(TbOp *op)
{
	TbIo	   *io = op->store->io;

	if (io->pool != NULL && tb_pool_threads(io->pool) > 0)
	{
		op->task.run = run_in_pool;
		tb_io_submit(io, op);
		return;
	}
	op->task.run = run_inline;
	tb_loop_defer(io->loop, &op->task);
}

static void
file_stop(TbOp *op)
{
	tb_loop_undefer(op->store->io->loop, &op->task);
}

static void
file_close(TbStore *base)
{
	TbFileStore *store = (TbFileStore *) base;

	close(store->root_fd);
	tb_free(base->url);
	tb_free(store);
}

static const TbStoreOps file_ops = {
	.can_list = true,
	.can_write = true,
	.start = file_start,
	.stop = file_stop,
	.close = file_close,
	.list = tb_file_list,
	.put = tb_file_put,
	.remove = tb_file_remove,
};

/* The url without the slashes at its end, but the one that is the root directory. */
static char *
trim(const char *url)
{
	size_t		len = strlen(url);

	while (len > strlen("file:///") && url[len - 1] == '/')
		len--;
	return tb_strndup(url, len);
}

TbStatus
tb_store_open_file(TbIo *io, const TbStoreSpec *spec, TbStore **out, TbError *err)
{
	TbFileStore *store = NULL;
	char	   *path = NULL;
	char	   *url = NULL;
	int			fd;
	TbStatus	status = tb_url_file_path(spec->url, &path, err);

	if (status != TB_OK)
		return status;
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	tb_free(path);
	if (fd < 0 && errno == ENOTDIR)
	{
		tb_fail(err, TB_E_NOT_FOUND, "store is not a directory");
		tb_error_detail(err, "%s", spec->url);
		return TB_E_NOT_FOUND;
	}
	if (fd < 0)
	{
		status = tb_fail_errno(err, errno, "open the store", spec->url);
		tb_error_hint(err, "Check the url: the server's user must find the directory and may read it.");
		return status;
	}
	store = tb_calloc(1, sizeof(*store));
	url = trim(spec->url);
	if (store == NULL || url == NULL)
	{
		close(fd);
		tb_free(url);
		tb_free(store);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	store->root_fd = fd;
	tb_store_init(&store->base, &file_ops, io, url);
	*out = &store->base;
	return TB_OK;
}
