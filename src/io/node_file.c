/*
 * The file of the node's books: made, checked, made anew where it is not what it should be, mapped; and who a
 * process is.
 *
 * Whoever opens holds a lock (flock) on the file meanwhile. A bad file is not repaired, because others may have it
 * mapped: a new one is renamed over it, and those who waited for the lock of the old one see that and look again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* MAP_ANONYMOUS, O_CLOEXEC */
#endif

#include "io/node_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NODE_MAGIC "TBnode1\n"
#define NODE_VERSION 1

#define LOCK_TRIES 200			/* of LOCK_PAUSE_NS: the lock is held for microseconds */
#define LOCK_PAUSE_NS 5000000
#define OPEN_TRIES 10			/* a file may be replaced while we wait for its lock */

#define START_BITS 42			/* clock ticks since boot: more than a thousand years; the rest holds a process id */

/* ---- making ---- */

static void
fill_super(TbNodeSuper *super)
{
	memset(super, 0, sizeof(*super));
	memcpy(super->magic, NODE_MAGIC, sizeof(super->magic));
	super->version = NODE_VERSION;
	super->places = TB_NODE_PLACES;
	super->rows = TB_NODE_ROWS;
	super->row_bytes = sizeof(TbNodeRow);
}

/* All bytes of the file get their room on the disk: a write through the mapping must not fail later. */
static int
make_books(int fd)
{
	TbNodeSuper super;
	int			rc = posix_fallocate(fd, 0, sizeof(TbNodeBooks));

	if (rc != 0)
		return rc;
	fill_super(&super);
	if (pwrite(fd, &super, sizeof(super), 0) != (ssize_t) sizeof(super))
		return errno != 0 ? errno : EIO;
	return 0;
}

/* Put new books in the place of a bad file whose lock the caller holds. Returns an errno. */
static int
replace_books(const char *path)
{
	char		temp[4096];
	int			n = snprintf(temp, sizeof(temp), "%s.%ld", path, (long) getpid());
	int			fd;
	int			rc;

	if (n < 0 || (size_t) n >= sizeof(temp))
		return ENAMETOOLONG;
	if (unlink(temp) != 0 && errno != ENOENT)
		return errno;
	fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errno;
	rc = make_books(fd);
	if (rc == 0 && rename(temp, path) != 0)
		rc = errno;
	if (rc != 0)
		(void) unlink(temp);
	close(fd);
	return rc;
}

/* ---- opening ---- */

/* A process that was stopped while it held the lock must not stop the others: bounded. */
static int
lock_file(int fd)
{
	const struct timespec pause = {.tv_sec = 0, .tv_nsec = LOCK_PAUSE_NS};

	for (int i = 0; i < LOCK_TRIES; i++)
	{
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return errno;
		(void) nanosleep(&pause, NULL);
	}
	return ETIMEDOUT;
}

static bool
is_good(int fd, off_t size)
{
	TbNodeSuper good;
	TbNodeSuper super;

	if (size != (off_t) sizeof(TbNodeBooks) || pread(fd, &super, sizeof(super), 0) != (ssize_t) sizeof(super))
		return false;
	fill_super(&good);
	return memcmp(&super, &good, offsetof(TbNodeSuper, places_used)) == 0 && super.places_used <= TB_NODE_PLACES;
}

/*
 * Open and lock the file, and see that it is the one under that name. Returns a descriptor or a negative errno;
 * EAGAIN: the file was replaced or made anew, look again.
 */
static int
open_books(const char *path)
{
	struct stat st;
	struct stat named;
	int			fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int			rc;

	if (fd < 0)
		return -errno;
	rc = lock_file(fd);
	if (rc == 0 && fstat(fd, &st) != 0)
		rc = errno;
	if (rc == 0 && (stat(path, &named) != 0 || named.st_ino != st.st_ino || named.st_dev != st.st_dev))
		rc = EAGAIN;
	if (rc == 0 && (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0))
		rc = EPERM;
	if (rc == 0 && st.st_size == 0)
		rc = make_books(fd);
	else if (rc == 0 && !is_good(fd, st.st_size))
	{
		rc = replace_books(path);
		if (rc == 0)
			rc = EAGAIN;
	}
	else if (rc == 0)
		rc = posix_fallocate(fd, 0, sizeof(TbNodeBooks));	/* no-op but for a file with holes */
	if (rc == 0)
		return fd;
	close(fd);
	return -rc;
}

TbStatus
tb_node_map(const char *path, TbNodeBooks **books, TbError *err)
{
	int			flags = path != NULL ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	int			fd = -1;
	void	   *map;

	*books = NULL;
	if (path != NULL)
	{
		for (int i = 0; i < OPEN_TRIES && (fd = open_books(path)) == -EAGAIN; i++)
			;
		if (fd < 0)
		{
			TbStatus	status = tb_fail_errno(err, -fd, "open", path);

			/* the directory is missing: a matter of the host's, like any other failure here */
			if (status == TB_E_NOT_FOUND && err != NULL)
				err->code = TB_E_IO;
			return status == TB_E_NOT_FOUND ? TB_E_IO : status;
		}
	}
	map = mmap(NULL, sizeof(TbNodeBooks), PROT_READ | PROT_WRITE, flags, fd, 0);
	if (fd >= 0)
	{
		(void) flock(fd, LOCK_UN);	/* by hand: the mapping keeps the open file, and with it the lock */
		close(fd);
	}
	if (map == MAP_FAILED)
		return tb_fail_errno(err, errno, "map", path != NULL ? path : "memory");
	*books = map;
	return TB_OK;
}

/* ---- who a process is ---- */

/* When a process started, in clock ticks since boot, and what it is doing ('Z': ended, nobody asked yet). */
static bool
read_start(pid_t pid, char *state, uint64_t *start)
{
	char		path[64];
	char		text[1024];
	const char *at;
	ssize_t		n;
	int			fd;

	(void) snprintf(path, sizeof(path), "/proc/%ld/stat", (long) pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	at = strrchr(text, ')');	/* the name in brackets before it may hold anything */
	if (at == NULL || at[1] != ' ')
		return false;
	at += 2;
	*state = *at;
	for (int field = 3; field < 22; field++)
	{
		at = strchr(at, ' ');
		if (at == NULL)
			return false;
		at++;
	}
	*start = strtoull(at, NULL, 10);
	return true;
}

static uint64_t
owner_of(pid_t pid, uint64_t start)
{
	return (uint64_t) pid << START_BITS | (start & ((UINT64_C(1) << START_BITS) - 1));
}

uint64_t
tb_node_self(void)
{
	uint64_t	start = 0;
	char		state;

	(void) read_start(getpid(), &state, &start);
	return owner_of(getpid(), start);
}

bool
tb_node_is_dead(uint64_t owner)
{
	pid_t		pid = (pid_t) (owner >> START_BITS);
	uint64_t	start;
	char		state;

	if (pid <= 0)
		return true;
	if (kill(pid, 0) != 0)
		return errno == ESRCH;
	if (!read_start(pid, &state, &start))
		return false;			/* it is there; /proc is not, or it ended just now: next time */
	return state == 'Z' || state == 'X' || owner_of(pid, start) != owner;
}
