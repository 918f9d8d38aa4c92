/*
 * The cache's files, and finding things in the index. Slots are read and written without a lock:
 * three words that may come from different hands are proved wrong by the entry they lead to.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* fallocate */
#endif

#include "io/cache_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FORMAT 1
#define SUPER_BYTES 4096u
#define SEGMENT_MIN ((uint64_t) 1 << 20)
#define SEGMENT_MAX ((uint64_t) 64 << 20)
#define SEGMENTS 64u			/* wanted */
#define SEGMENTS_MIN 8u
#define SLOT_PER_BYTES ((uint64_t) 32 << 10)	/* an index of less than a thousandth */
#define LOCK_TRIES 400			/* of 5 ms, while the files are made */

static const char magic[8] = {'T', 'B', 'c', 'a', 'c', 'h', 'e', '1'};

int64_t
tb_cache_now_ms(void)
{
	struct timespec t;

	(void) clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

uint64_t
tb_cache_tag(const TbCacheKey *key)
{
	uint64_t	tag;

	memcpy(&tag, key->hash, sizeof(tag));
	return tag != 0 ? tag : 1;
}

/* ---- geometry ---- */

static TbStatus
lay_out(TbCacheMap *map, uint64_t bytes, TbError *err)
{
	uint64_t	segment = bytes / SEGMENTS / SEGMENT_MIN * SEGMENT_MIN;
	uint64_t	slots = 1024;

	segment = segment < SEGMENT_MIN ? SEGMENT_MIN : segment > SEGMENT_MAX ? SEGMENT_MAX : segment;
	if (bytes / segment < SEGMENTS_MIN || bytes / segment > UINT16_MAX)
	{
		tb_fail(err, TB_E_INVALID, "size of the cache is out of range");
		tb_error_detail(err, "%llu bytes", (unsigned long long) bytes);
		tb_error_hint(err, "Set tensorbank.cache_size to at least 8 MB.");
		return TB_E_INVALID;
	}
	map->segment_bytes = segment;
	map->n_segments = (uint32_t) (bytes / segment);
	map->n_small = map->n_segments / 10 > 2 ? map->n_segments / 10 : 2;
	while (slots < bytes / SLOT_PER_BYTES)
		slots *= 2;
	map->n_slots = (uint32_t) slots;
	map->bytes = SUPER_BYTES + sizeof(TbCacheClaim) * TB_CACHE_CLAIMS + sizeof(TbCacheSegment) * map->n_segments +
		sizeof(TbCacheSlot) * map->n_slots;
	map->bytes = (map->bytes + SUPER_BYTES - 1) / SUPER_BYTES * SUPER_BYTES;
	return TB_OK;
}

static bool
read_boot_id(char id[40])
{
	int			fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t		n = fd < 0 ? -1 : read(fd, id, 36);

	if (fd >= 0)
		close(fd);
	if (n != 36)
		return false;
	id[36] = '\0';
	return true;
}

static bool
super_fits(const TbCacheMap *map)
{
	const TbCacheSuper *s = map->super;

	return memcmp(s->magic, magic, sizeof(magic)) == 0 && s->format == FORMAT && s->n_segments == map->n_segments &&
		s->n_small == map->n_small && s->n_slots == map->n_slots && s->segment_bytes == map->segment_bytes;
}

static void
fill_super(TbCacheMap *map)
{
	TbCacheSuper *s = map->super;

	memcpy(s->magic, magic, sizeof(magic));
	s->format = FORMAT;
	s->n_segments = map->n_segments;
	s->n_small = map->n_small;
	s->n_slots = map->n_slots;
	s->segment_bytes = map->segment_bytes;
	s->at[1] = map->n_small;
	for (uint32_t i = 0; i < map->n_segments; i++)
		map->segment[i].generation = 1;
}

/* ---- files ---- */

static TbStatus
file_failed(TbCacheMap *map, const char *doing, TbError *err)
{
	TbStatus	status = tb_fail_errno(err, errno, doing, map->directory);

	tb_cache_map_close(map);
	return status;
}

static TbStatus
open_directory(TbCacheMap *map, TbError *err)
{
	struct stat st;

	map->directory_fd = open(map->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (map->directory_fd < 0 || fstat(map->directory_fd, &st) != 0)
		return file_failed(map, "open the cache directory", err);
	if (st.st_uid == geteuid() && (st.st_mode & 077) == 0)
		return TB_OK;
	tb_fail(err, TB_E_INVALID, "cache directory is not the server's alone");
	tb_error_detail(err, "%s", map->directory);
	tb_error_hint(err, "Make it owned by the server's user, with mode 0700.");
	tb_cache_map_close(map);
	return TB_E_INVALID;
}

static TbStatus
lock_files(TbCacheMap *map, TbError *err)
{
	struct timespec nap = {.tv_nsec = 5000000};

	map->lock_fd = openat(map->directory_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (map->lock_fd < 0)
		return file_failed(map, "open the cache's lock", err);
	for (int i = 0; i < LOCK_TRIES; i++)
	{
		if (flock(map->lock_fd, LOCK_EX | LOCK_NB) == 0)
			return TB_OK;
		if (errno != EWOULDBLOCK && errno != EINTR)
			break;
		(void) nanosleep(&nap, NULL);
	}
	return file_failed(map, "lock the cache", err);
}

static bool
map_index(TbCacheMap *map, int fd)
{
	uint8_t    *at = mmap(NULL, map->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return false;
	map->super = (TbCacheSuper *) (void *) at;
	at += SUPER_BYTES;
	map->claim = (TbCacheClaim *) (void *) at;
	at += sizeof(TbCacheClaim) * TB_CACHE_CLAIMS;
	map->slot = (TbCacheSlot *) (void *) at;
	at += sizeof(TbCacheSlot) * map->n_slots;
	map->segment = (TbCacheSegment *) (void *) at;
	return true;
}

static void
unmap_index(TbCacheMap *map)
{
	if (map->super != NULL)
		(void) munmap(map->super, map->bytes);
	map->super = NULL;
}

/* Use what is there. false: there is nothing, or nothing that fits. */
static bool
open_old(TbCacheMap *map)
{
	struct stat st;
	int			fd = openat(map->directory_fd, "index", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	bool		ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (size_t) st.st_size == map->bytes &&
		map_index(map, fd);

	if (fd >= 0)
		close(fd);
	if (ok && super_fits(map))
	{
		map->data_fd = openat(map->directory_fd, "data", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		if (map->data_fd >= 0)
			return true;
	}
	unmap_index(map);
	return false;
}

/* Make both files beside the old ones, which stay for whoever has them open, and put them in their place. */
static bool
make_new(TbCacheMap *map)
{
	int			fd;
	bool		ok;

	(void) unlinkat(map->directory_fd, "index.new", 0);
	(void) unlinkat(map->directory_fd, "data.new", 0);
	map->data_fd = openat(map->directory_fd, "data.new", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	fd = openat(map->directory_fd, "index.new", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	/* the whole index takes its place on the disk now: a store to a mapping without one would kill the process */
	ok = map->data_fd >= 0 && fd >= 0 &&
		ftruncate(map->data_fd, (off_t) (map->segment_bytes * map->n_segments)) == 0 &&
		(errno = posix_fallocate(fd, 0, (off_t) map->bytes)) == 0 && map_index(map, fd);
	if (ok)
	{
		fill_super(map);
		ok = renameat(map->directory_fd, "data.new", map->directory_fd, "data") == 0 &&
			renameat(map->directory_fd, "index.new", map->directory_fd, "index") == 0;
	}
	if (fd >= 0)
	{
		int			saved = errno;

		close(fd);
		errno = saved;
	}
	return ok;
}

/* Times of another boot say nothing: everything is as old as can be. */
static void
check_boot(TbCacheMap *map)
{
	char		id[40] = "";

	if (read_boot_id(id) && memcmp(map->super->boot_id, id, 37) == 0)
		return;
	for (uint32_t i = 0; i < map->n_slots; i++)
		map->slot[i].info &= (UINT64_C(1) << 26) - 1;
	memset(map->claim, 0, sizeof(TbCacheClaim) * TB_CACHE_CLAIMS);
	memcpy(map->super->boot_id, id, sizeof(id));
}

TbStatus
tb_cache_map_open(const char *directory, uint64_t bytes, TbCacheMap *map, TbError *err)
{
	TbStatus	status;

	memset(map, 0, sizeof(*map));
	map->directory_fd = map->data_fd = map->lock_fd = -1;
	status = lay_out(map, bytes, err);
	if (status != TB_OK)
		return status;
	map->directory = tb_strdup(directory);
	if (map->directory == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_random(&map->owner, sizeof(map->owner), err);
	map->owner = (map->owner << 32) | (uint32_t) getpid();
	if (status == TB_OK)
		status = open_directory(map, err);
	if (status == TB_OK)
		status = lock_files(map, err);
	if (status != TB_OK)
		return status;
	if (!open_old(map) && !make_new(map))
		return file_failed(map, "make the cache's files", err);
	check_boot(map);
	(void) flock(map->lock_fd, LOCK_UN);
	return TB_OK;
}

void
tb_cache_map_close(TbCacheMap *map)
{
	int			saved = errno;

	unmap_index(map);
	if (map->data_fd >= 0)
		close(map->data_fd);
	if (map->lock_fd >= 0)
		close(map->lock_fd);
	if (map->directory_fd >= 0)
		close(map->directory_fd);
	map->data_fd = map->lock_fd = map->directory_fd = -1;
	tb_free(map->directory);
	map->directory = NULL;
	errno = saved;
}
