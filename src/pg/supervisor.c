/*
 * The supervisor: a background worker that keeps one streamer running. It has no database connection and
 * does no work of its own: start, watch, restart with growing pauses, stop. One in a cluster: it holds a
 * lock on a file in the data directory, and whoever does not get it leaves quietly.
 *
 * Preloaded, the postmaster runs it from the start; otherwise the first session that needs the streamer
 * registers it. The child itself is supervisor_child.c's.
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "pg/supervisor.h"
#include "pg/tbpg.h"

#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 5000
#define STABLE_MS 10000			/* a child that ran so long is restarted as if it was the first */

PGDLLEXPORT void tensorbank_supervisor_main(Datum arg);

static bool preloaded;

static void
describe(BackgroundWorker *worker)
{
	memset(worker, 0, sizeof(*worker));
	strlcpy(worker->bgw_name, "tensorbank supervisor", BGW_MAXLEN);
	strlcpy(worker->bgw_type, "tensorbank supervisor", BGW_MAXLEN);
	strlcpy(worker->bgw_library_name, "$libdir/tensorbank", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, "tensorbank_supervisor_main", BGW_MAXLEN);
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = 1;
}

void
tbpg_supervisor_init(void)
{
	BackgroundWorker worker;

	if (!process_shared_preload_libraries_in_progress)
		return;
	preloaded = true;
	describe(&worker);
	RegisterBackgroundWorker(&worker);
}

/* The lock of the running supervisor: a descriptor, or -1: another process has it. */
static int
take_lock(void)
{
	int			fd = open(TBPG_CONTROL_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not open file \"%s\": %m", TBPG_CONTROL_LOCK)));
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	close(fd);
	return -1;
}

void
tbpg_supervisor_ensure(void)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;
	pid_t		pid;
	int			lock;

	if (preloaded)
		return;					/* the postmaster sees to it */
	lock = take_lock();
	if (lock < 0)
		return;
	close(lock);
	describe(&worker);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no background worker is free for the tensorbank supervisor"),
				 errhint("Raise max_worker_processes, or add tensorbank to shared_preload_libraries.")));
	(void) WaitForBackgroundWorkerStartup(handle, &pid);
}

/* ---- the worker ---- */

static long
now_ms(void)
{
	return (long) (tb_now_ns() / 1000000);
}

/* SIGCHLD: have a look. */
static void
wake(SIGNAL_ARGS)
{
	int			save_errno = errno;

	SetLatch(MyLatch);
	errno = save_errno;
}

/* The directory of anonymous datasets, without what sessions left behind that are gone. */
static void
prepare_temp_directory(void)
{
	DIR		   *directory;
	struct dirent *entry;

	if (mkdir(TBPG_TEMP_DIRECTORY, 0700) != 0 && errno != EEXIST)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not create directory \"%s\": %m", TBPG_TEMP_DIRECTORY)));
	directory = AllocateDir(TBPG_TEMP_DIRECTORY);
	while ((entry = ReadDirExtended(directory, TBPG_TEMP_DIRECTORY, LOG)) != NULL)
	{
		char		path[MAXPGPATH];
		long		pid = strtol(entry->d_name, NULL, 10);

		if (entry->d_name[0] == '.' || (pid > 0 && (kill((pid_t) pid, 0) == 0 || errno != ESRCH)))
			continue;
		snprintf(path, sizeof(path), "%s/%s", TBPG_TEMP_DIRECTORY, entry->d_name);
		(void) unlink(path);
	}
	if (directory != NULL)
		FreeDir(directory);
}

static bool
same_arguments(char *const *a, char *const *b)
{
	int			i = 0;

	while (a[i] != NULL && b[i] != NULL && strcmp(a[i], b[i]) == 0)
		i++;
	return a[i] == NULL && b[i] == NULL;
}

typedef struct Supervisor
{
	TbpgChild	child;
	MemoryContext context;		/* of arguments */
	char	  **arguments;
	long		started_ms;
	long		pause_ms;		/* before the next start */
	long		next_start_ms;
} Supervisor;

/* SIGHUP: a child that would be started otherwise today is started anew. */
static void
reload(Supervisor *s)
{
	MemoryContext old = MemoryContextSwitchTo(s->context);
	char	  **arguments;

	ProcessConfigFile(PGC_SIGHUP);
	arguments = tbpg_child_arguments();
	if (!same_arguments(arguments, s->arguments))
	{
		tbpg_child_stop(&s->child);
		s->next_start_ms = now_ms();
		s->pause_ms = PAUSE_MIN_MS;
	}
	s->arguments = arguments;	/* the old ones are a few hundred bytes a reload */
	MemoryContextSwitchTo(old);
}

/* Start the child when it is time; after an end, wait longer each time. */
static void
tend(Supervisor *s)
{
	long		now = now_ms();
	bool		was_running = s->child.pid != 0;

	tbpg_child_read_log(&s->child, now);
	if (!tbpg_child_ended(&s->child, now))
		return;
	if (was_running)
	{
		s->pause_ms = now - s->started_ms >= STABLE_MS ? PAUSE_MIN_MS : s->pause_ms;
		s->next_start_ms = now + s->pause_ms;
		s->pause_ms = Min(s->pause_ms * 2, PAUSE_MAX_MS);
	}
	if (now < s->next_start_ms)
		return;
	s->started_ms = now;
	if (!tbpg_child_start(&s->child, s->arguments))
	{
		s->next_start_ms = now + s->pause_ms;
		s->pause_ms = Min(s->pause_ms * 2, PAUSE_MAX_MS);
	}
}

static void
sleep_until_something(Supervisor *s)
{
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
	long		timeout = -1;

	if (s->child.pid == 0)
	{
		timeout = Max(s->next_start_ms - now_ms(), 1);
		events |= WL_TIMEOUT;
	}
	if (s->child.log >= 0)
		events |= WL_SOCKET_READABLE;
	(void) WaitLatchOrSocket(MyLatch, events, s->child.log >= 0 ? s->child.log : PGINVALID_SOCKET, timeout,
							 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
}

void
tensorbank_supervisor_main(Datum arg)
{
	Supervisor *s;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGCHLD, wake);
	BackgroundWorkerUnblockSignals();
	if (take_lock() < 0)
		proc_exit(0);
	prepare_temp_directory();
	s = MemoryContextAllocZero(TopMemoryContext, sizeof(Supervisor));
	s->context = TopMemoryContext;
	s->child.lifeline = s->child.log = -1;
	s->pause_ms = PAUSE_MIN_MS;
	MemoryContextSwitchTo(TopMemoryContext);
	s->arguments = tbpg_child_arguments();
	while (!ShutdownRequestPending)
	{
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			reload(s);
		}
		tend(s);
		sleep_until_something(s);
	}
	tbpg_child_stop(&s->child);
	/* 1: started again in a second, unless the whole server shuts down */
	proc_exit(1);
}
