/*
 * Host memory: a memfd that a client maps by its descriptor. Its size is sealed, so nobody who
 * holds the descriptor can take pages away under a thread that writes them. It is mapped
 * read-write on both sides.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* memfd_create, F_ADD_SEALS */
#endif

#include "dev/device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool
host_serves(const char *wanted)
{
	return strcmp(wanted, "host") == 0 || strcmp(wanted, "cpu") == 0;
}

static void
host_free(TbDevMem *mem)
{
	if (mem->host != NULL)
		(void) munmap(mem->host, mem->bytes);
	if (mem->fd >= 0)
		(void) close(mem->fd);
}

static TbStatus
host_alloc(const char *wanted, size_t bytes, TbDevMem *mem, TbError *err)
{
	void	   *map;

	mem->fd = memfd_create("tensorbank", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (mem->fd < 0)
		return tb_fail_errno(err, errno, "create memory for batches", NULL);
	if (ftruncate(mem->fd, (off_t) bytes) != 0 ||
		fcntl(mem->fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
		return tb_fail_errno(err, errno, "size memory for batches", NULL);
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mem->fd, 0);
	if (map == MAP_FAILED)
		return tb_fail_errno(err, errno, "map memory for batches", NULL);
	/* fewer first touches where the kernel allows it for shared memory; of no matter where not */
	(void) madvise(map, bytes, MADV_HUGEPAGE);
	mem->host = map;
	return TB_OK;
}

const TbDevice tb_device_host = {
	.name = "host",
	.serves = host_serves,
	.alloc = host_alloc,
	.free = host_free,
	.copy = NULL,
};
