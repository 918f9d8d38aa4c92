/*
 * Opening files beneath a directory: nothing that a key says leads out of it, and no symbolic link
 * is followed on the way. All return a descriptor (or 0), or a negative errno; ELOOP and EXDEV mean
 * refused.
 */
#ifndef TB_IO_FILE_PATH_H
#define TB_IO_FILE_PATH_H

#include "base/base.h"

/* Open key with openat2, or without it where the kernel or a sandbox has none. thread: any. */
extern int	tb_beneath_open(int root_fd, const char *key, int flags);
/* The same by walking down; what tb_beneath_open falls back to. thread: any. */
extern int	tb_beneath_walk(int root_fd, const char *key, int flags);
/* The directory that holds key, made where it is missing and create says so; *leaf points into key. */
extern int	tb_beneath_parent(int root_fd, const char *key, bool create, const char **leaf);

#endif
