/*
 * Socket files. The new socket is bound beside its place, gets its permissions, and is renamed
 * onto it: nobody ever finds no file, or one with other permissions.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* SOCK_CLOEXEC */
#endif

#include "streamer/listen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 256

static bool
make_address(const char *path, const char *suffix, struct sockaddr_un *address)
{
	int			n;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	n = snprintf(address->sun_path, sizeof(address->sun_path), "%s%s", path, suffix);
	return n > 0 && (size_t) n < sizeof(address->sun_path);
}

/* What lies at the path already: nothing or a dead socket is fine. */
static TbStatus
check_place(const char *path, TbError *err)
{
	struct sockaddr_un address;
	struct stat st;
	int			fd;
	bool		alive;

	if (lstat(path, &st) != 0)
		return errno == ENOENT ? TB_OK : tb_fail_errno(err, errno, "look at socket", path);
	if (!S_ISSOCK(st.st_mode))
	{
		tb_fail(err, TB_E_STATE, "place of a socket is taken by another file");
		tb_error_detail(err, "\"%s\"", path);
		return TB_E_STATE;
	}
	if (!make_address(path, "", &address))
		return tb_fail(err, TB_E_INVALID, "path of a socket is too long");
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return tb_fail_errno(err, errno, "make a socket", NULL);
	alive = connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0 || errno == EAGAIN;
	(void) close(fd);
	if (!alive)
		return TB_OK;
	tb_fail(err, TB_E_STATE, "another streamer listens at the socket");
	tb_error_detail(err, "\"%s\"", path);
	return TB_E_STATE;
}

/* Bind beside the place and move there. */
static TbStatus
bind_at(int fd, const char *path, unsigned mode, TbError *err)
{
	struct sockaddr_un beside;

	if (!make_address(path, ".new", &beside))
	{
		tb_fail(err, TB_E_INVALID, "path of a socket is too long");
		tb_error_detail(err, "\"%s\"", path);
		return TB_E_INVALID;
	}
	(void) unlink(beside.sun_path);
	if (bind(fd, (struct sockaddr *) &beside, sizeof(beside)) != 0)
		return tb_fail_errno(err, errno, "bind socket", path);
	if (chmod(beside.sun_path, (mode_t) mode) != 0 || listen(fd, BACKLOG) != 0 ||
		rename(beside.sun_path, path) != 0)
	{
		TbStatus	status = tb_fail_errno(err, errno, "listen at socket", path);

		(void) unlink(beside.sun_path);
		return status;
	}
	return TB_OK;
}

/* errors: STATE (the place is taken), INVALID, DENIED, IO. */
TbStatus
tb_socket_listen(const char *path, unsigned mode, TbSocketFile *file, TbError *err)
{
	TbStatus	status = check_place(path, err);
	mode_t		mask;
	struct stat st;
	int			fd;

	file->fd = -1;
	if (status != TB_OK)
		return status;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return tb_fail_errno(err, errno, "make a socket", NULL);
	mask = umask(0177);
	status = bind_at(fd, path, mode, err);
	(void) umask(mask);
	if (status == TB_OK && lstat(path, &st) != 0)
		status = tb_fail_errno(err, errno, "look at socket", path);
	if (status != TB_OK)
	{
		(void) close(fd);
		return status;
	}
	file->fd = fd;
	file->path = path;
	file->device = st.st_dev;
	file->inode = st.st_ino;
	return TB_OK;
}

void
tb_socket_close(TbSocketFile *file)
{
	struct stat st;

	if (file->fd < 0)
		return;
	if (file->path != NULL && lstat(file->path, &st) == 0 && st.st_dev == file->device &&
		st.st_ino == file->inode)
		(void) unlink(file->path);
	(void) close(file->fd);
	file->fd = -1;
}
