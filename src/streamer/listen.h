/* Listening Unix sockets. */
#ifndef TB_STREAMER_LISTEN_H
#define TB_STREAMER_LISTEN_H

#include "base/base.h"

#include <sys/types.h>

typedef struct TbSocketFile
{
	int			fd;				/* listening; -1: none */
	const char *path;			/* borrowed; NULL: the descriptor was given */
	dev_t		device;			/* of the file we made */
	ino_t		inode;
} TbSocketFile;

/*
 * Listen at a path. A file that a dead process left is replaced at once and as a whole; a live
 * one's is not.
 */
extern TbStatus tb_socket_listen(const char *path, unsigned mode, TbSocketFile *file,
								 TbError *err) TB_MUST_CHECK;
/* Take away the file if it is still ours, and close. */
extern void tb_socket_close(TbSocketFile *file);

#endif
