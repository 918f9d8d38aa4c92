/* The program's command line. */
#ifndef TB_STREAMER_OPTIONS_H
#define TB_STREAMER_OPTIONS_H

#include "stream/stream.h"

typedef struct TbOptions
{
	TbHubOptions hub;
	int			control_fd;		/* listening, or one connection; -1: none */
	const char *control_path;	/* NULL: none */
	const char *client_path;
	const char *node_path;		/* file of the node's books; NULL: limits of this process alone */
	unsigned	client_mode;	/* permissions of the client socket */
	int			parent;			/* process that we must not outlive; 0: none */
	int			lifeline;		/* pipe whose end of file ends us; -1: none */
} TbOptions;

/* Texts are borrowed from argv. errors: INVALID, naming the option. */
extern TbStatus tb_options_parse(int argc, char **argv, TbOptions *options,
								 TbError *err) TB_MUST_CHECK;

#endif
