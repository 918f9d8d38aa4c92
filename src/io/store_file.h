/* What store_file.c and file_write.c share; no one else includes it. */
#ifndef TB_IO_STORE_FILE_H
#define TB_IO_STORE_FILE_H

#include "io/store.h"

#define TB_TEMP_PREFIX ".tb-tmp-"	/* files being written: never listed */

typedef struct TbFileStore
{
	TbStore		base;
	int			root_fd;		/* owned; O_PATH */
} TbFileStore;

/* Fill err from an errno, with what paths beneath a directory add to its meaning. Returns the
 * status. */
extern TbStatus tb_file_fail(int code, const char *doing, const char *url, const char *key, TbError *err);

extern TbStatus tb_file_list(TbStore *base, const char *prefix, TbStoreNames *names, TbError *err);
extern TbStatus tb_file_put(TbStore *base, const char *key, const void *bytes, size_t len, bool create_once,
							TbError *err);
extern TbStatus tb_file_remove(TbStore *base, const char *key, TbError *err);

#endif
