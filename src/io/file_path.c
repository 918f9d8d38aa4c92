/*
 * Paths beneath a directory. openat2 lets the kernel refuse ways out; the walk does the same by
 * hand, one segment at a time with O_NOFOLLOW. Keys were checked before: no empty segment, no "."
 * and no "..".
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* O_PATH, syscall */
#endif

#include "io/file_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DIR_FLAGS (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define TRIES_ON_RACE 8			/* openat2 says EAGAIN when a rename happened meanwhile */

/* Copy the segment at key to name. Returns its length, 0: longer than a file name can be. */
static size_t
take_segment(const char *key, char name[NAME_MAX + 1])
{
	size_t		len = strcspn(key, "/");

	if (len > NAME_MAX)
		return 0;
	memcpy(name, key, len);
	name[len] = '\0';
	return len;
}

/* Open the directory name below at, making it first where create says so. Closes at. */
static int
step_down(int at, const char *name, bool create)
{
	int			fd = openat(at, name, DIR_FLAGS);
	int			saved = errno;

	if (fd < 0 && saved == ENOENT && create)
	{
		int			dir_fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (dir_fd >= 0 && (mkdirat(at, name, 0755) == 0 || errno == EEXIST))
		{
			(void) fsync(dir_fd);	/* the files inside are synced by themselves; best effort here */
			fd = openat(at, name, DIR_FLAGS);
		}
		saved = errno;
		if (dir_fd >= 0)
			close(dir_fd);
	}
	if (fd < 0 && saved == ENOTDIR)
	{
		struct stat st;

		/* O_NOFOLLOW with O_DIRECTORY says ENOTDIR of a link */
		if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
			saved = ELOOP;
	}
	close(at);
	return fd >= 0 ? fd : -saved;
}

int
tb_beneath_parent(int root_fd, const char *key, bool create, const char **leaf)
{
	char		name[NAME_MAX + 1];
	int			at = openat(root_fd, ".", DIR_FLAGS);

	if (at < 0)
		return -errno;
	while (strchr(key, '/') != NULL)
	{
		size_t		len = take_segment(key, name);

		if (len == 0)
		{
			close(at);
			return -ENAMETOOLONG;
		}
		at = step_down(at, name, create);
		if (at < 0)
			return at;
		key += len + 1;
	}
	*leaf = key;
	return at;
}

int
tb_beneath_walk(int root_fd, const char *key, int flags)
{
	const char *leaf;
	int			parent = tb_beneath_parent(root_fd, key, false, &leaf);
	int			fd;

	if (parent < 0)
		return parent;
	fd = openat(parent, leaf, flags | O_NOFOLLOW);
	if (fd < 0)
		fd = -errno;
	close(parent);
	return fd;
}

int
tb_beneath_open(int root_fd, const char *key, int flags)
{
	struct open_how how = {
		.flags = (uint64_t) (flags | O_NOFOLLOW),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	for (int i = 0; i < TRIES_ON_RACE; i++)
	{
		long		fd = syscall(SYS_openat2, root_fd, key, &how, sizeof(how));

		if (fd >= 0)
			return (int) fd;
		if (errno == ENOSYS || errno == EPERM)
			return tb_beneath_walk(root_fd, key, flags);
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}
