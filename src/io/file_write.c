/*
 * Listing, writing and removing files. An object is written aside, synced, then given its name in
 * one step and the directory synced: after a crash it is there whole or not at all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* renameat2 */
#endif

#include "io/store_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file_path.h"

#define LIST_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)
#define TEMP_NAME_BYTES (sizeof(TB_TEMP_PREFIX) + 16)

/* Add an entry where it is a file or a directory; links and the rest are no objects. */
static TbStatus
add_entry(int dir_fd, const struct dirent *entry, TbStoreNames *names, size_t *room)
{
	int			type = entry->d_type;
	struct stat st;

	if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
		strncmp(entry->d_name, TB_TEMP_PREFIX, strlen(TB_TEMP_PREFIX)) == 0)
		return TB_OK;
	if (type == DT_UNKNOWN && fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		type = IFTODT(st.st_mode);
	if (type != DT_REG && type != DT_DIR)
		return TB_OK;
	return tb_store_names_add(names, room, entry->d_name, type == DT_DIR);
}

/* A prefix that is not there has no names. */
TbStatus
tb_file_list(TbStore *base, const char *prefix, TbStoreNames *names, TbError *err)
{
	TbFileStore *store = (TbFileStore *) base;
	int			fd = prefix[0] == '\0' ? openat(store->root_fd, ".", LIST_FLAGS) :
		tb_beneath_open(store->root_fd, prefix, LIST_FLAGS);
	int			code = prefix[0] == '\0' ? errno : -fd;
	TbStatus	status = TB_OK;
	size_t		room = 0;
	DIR		   *dir;
	struct dirent *entry;

	if (fd < 0 && (code == ENOENT || code == ENOTDIR))
		return TB_OK;
	if (fd < 0)
		return tb_file_fail(code, "list", base->url, prefix, err);
	dir = fdopendir(fd);
	if (dir == NULL)
	{
		close(fd);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	while (status == TB_OK && (errno = 0, entry = readdir(dir)) != NULL)
		status = add_entry(fd, entry, names, &room);
	code = errno;
	if (status != TB_OK)
		tb_fail(err, status, status == TB_E_LIMIT ? "too many names in a directory" : "out of memory");
	else if (code != 0)
		status = tb_file_fail(code, "list", base->url, prefix, err);
	closedir(dir);
	return status;
}

/* Make a file for len bytes with a name of its own in dir_fd. Returns 0 or an errno. */
static int
write_aside(int dir_fd, const char *name, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;
	int			fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	int			code = 0;

	if (fd < 0)
		return errno;
	while (len > 0 && code == 0)
	{
		ssize_t		n = write(fd, at, len);

		if (n >= 0)
		{
			at += n;
			len -= (size_t) n;
		}
		else if (errno != EINTR)
			code = errno;
	}
	if (code == 0 && fsync(fd) < 0)
		code = errno;
	if (close(fd) < 0 && code == 0)
		code = errno;
	return code;
}

/* Give the file its name. Returns 0 or an errno; EEXIST: create_once, and there is one. */
static int
give_name(int dir_fd, const char *temp, const char *leaf, bool create_once)
{
	if (!create_once)
		return renameat(dir_fd, temp, dir_fd, leaf) < 0 ? errno : 0;
	if (linkat(dir_fd, temp, dir_fd, leaf, 0) == 0)
	{
		(void) unlinkat(dir_fd, temp, 0);
		return 0;
	}
	/* file systems without hard links */
	if (errno == EPERM || errno == EOPNOTSUPP || errno == EMLINK)
		return renameat2(dir_fd, temp, dir_fd, leaf, RENAME_NOREPLACE) < 0 ? errno : 0;
	return errno;
}

static int
sync_directory(int dir_fd)
{
	int			fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int			code = fd < 0 || fsync(fd) < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	return code;
}

TbStatus
tb_file_put(TbStore *base, const char *key, const void *bytes, size_t len, bool create_once, TbError *err)
{
	TbFileStore *store = (TbFileStore *) base;
	char		temp[TEMP_NAME_BYTES];
	const char *leaf;
	uint64_t	number;
	int			dir_fd;
	int			code;
	TbStatus	status = tb_random(&number, sizeof(number), err);

	if (status != TB_OK)
		return status;
	(void) snprintf(temp, sizeof(temp), TB_TEMP_PREFIX "%016llx", (unsigned long long) number);
	dir_fd = tb_beneath_parent(store->root_fd, key, true, &leaf);
	if (dir_fd < 0)
		return tb_file_fail(-dir_fd, "make the directory of", base->url, key, err);
	code = write_aside(dir_fd, temp, bytes, len);
	if (code == 0)
		code = give_name(dir_fd, temp, leaf, create_once);
	if (code == 0)
		code = sync_directory(dir_fd);
	else
		(void) unlinkat(dir_fd, temp, 0);
	close(dir_fd);
	if (code == EEXIST && create_once)
	{
		tb_fail(err, TB_E_CHANGED, "object exists already");
		tb_error_detail(err, "%s/%s", base->url, key);
		return TB_E_CHANGED;
	}
	return code == 0 ? TB_OK : tb_file_fail(code, "write", base->url, key, err);
}

/* Removing what is not there is no error. */
TbStatus
tb_file_remove(TbStore *base, const char *key, TbError *err)
{
	TbFileStore *store = (TbFileStore *) base;
	const char *leaf;
	int			dir_fd = tb_beneath_parent(store->root_fd, key, false, &leaf);
	int			code = 0;

	if (dir_fd == -ENOENT || dir_fd == -ENOTDIR)
		return TB_OK;
	if (dir_fd < 0)
		return tb_file_fail(-dir_fd, "remove", base->url, key, err);
	if (unlinkat(dir_fd, leaf, 0) < 0)
		code = errno == ENOENT ? 0 : errno;
	else
		code = sync_directory(dir_fd);
	close(dir_fd);
	return code == 0 ? TB_OK : tb_file_fail(code, "remove", base->url, key, err);
}
