/* The supervisor: the background worker that starts, watches and restarts the streamer. */
#ifndef TBPG_SUPERVISOR_H
#define TBPG_SUPERVISOR_H

#include <sys/types.h>

/* Names below the data directory, which is everybody's working directory. */
#define TBPG_CONTROL_SOCKET "tensorbank.control"
#define TBPG_CONTROL_LOCK "tensorbank.control.lock"
/* Where anonymous datasets lie until the streamer has read them: PID.N.tbd */
#define TBPG_TEMP_DIRECTORY "tensorbank_tmp"

/* ---- supervisor.c ---- */
/* Under shared_preload_libraries: have the postmaster run a supervisor. Called once, from _PG_init. */
extern void tbpg_supervisor_init(void);
/*
 * Have a supervisor run, if none does: the caller then tries to connect until the streamer answers.
 * errors: 55000 when no worker slot is free.
 */
extern void tbpg_supervisor_ensure(void);

/* ---- supervisor_child.c: the streamer as a child program ---- */
typedef struct TbpgChild
{
	pid_t		pid;			/* 0: none */
	int			lifeline;		/* write end; the child ends when it is closed; -1: none */
	int			log;			/* read end of its stdout and stderr; -1: none */
	char		line[1024];		/* of its log, not yet whole */
	int			line_len;
	int			lines;			/* logged since window_start */
	int			dropped;
	long		window_start_ms;
} TbpgChild;

/* Arguments by the settings in force; palloc'd, NULL-terminated; [0] is the program. */
extern char **tbpg_child_arguments(void);
/* false with a LOG message when it cannot be started. */
extern bool tbpg_child_start(TbpgChild *child, char *const *arguments);
/* Log what it wrote; closes the pipe at its end. */
extern void tbpg_child_read_log(TbpgChild *child, long now_ms);
/* Has it ended? Then its resources are freed and why it ended is logged. */
extern bool tbpg_child_ended(TbpgChild *child, long now_ms);
/* Ask it to end, wait a moment, kill it. */
extern void tbpg_child_stop(TbpgChild *child);

#endif
