/*
 * The streamer as a child program of the supervisor: its arguments, starting it with a clean slate, its log
 * lines, its end. When and how often it is started is supervisor.c's.
 *
 * The child inherits nothing of a PostgreSQL process but the environment: descriptors are closed, signals
 * reset, and shared memory goes with exec. It ends with its lifeline, a pipe whose write end only the
 * supervisor has; the kernel's parent-death signal is there for a child that no longer listens.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/postmaster.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"

#include "pg/supervisor.h"
#include "pg/tbpg.h"

#define LIFELINE_FD 3			/* in the child, behind stdin, stdout, stderr */
#define LOG_WINDOW_MS 10000
#define LOG_LINES_PER_WINDOW 100
#define STOP_PATIENCE_MS 1000

/* ---- arguments ---- */

/* The first directory of unix_socket_directories that is no abstract name, else the data directory. */
static char *
client_socket_path(void)
{
	char	   *raw = pstrdup(Unix_socket_directories != NULL ? Unix_socket_directories : "");
	List	   *directories = NIL;
	ListCell   *cell;
	const char *directory = DataDir;

	if (SplitDirectoriesString(raw, ',', &directories))
		foreach(cell, directories)
		{
			const char *candidate = lfirst(cell);

			if (candidate[0] != '\0' && candidate[0] != '@')
			{
				directory = candidate;
				break;
			}
		}
	return psprintf("%s/.s.tensorbank.%d", directory, PostPortNumber);
}

static void
add(char **arguments, int *n, const char *name, char *value)
{
	arguments[(*n)++] = pstrdup(name);
	arguments[(*n)++] = value;
}

char **
tbpg_child_arguments(void)
{
	const TbpgSettings *s = &tbpg_settings;
	char	  **arguments = palloc(sizeof(char *) * 64);
	int			n = 0;

	arguments[n++] = s->streamer_program != NULL && s->streamer_program[0] != '\0' ?
		pstrdup(s->streamer_program) : psprintf("%s/tensorbank_streamer", pkglib_path);
	add(arguments, &n, "--control", pstrdup(TBPG_CONTROL_SOCKET));
	add(arguments, &n, "--client", client_socket_path());
	add(arguments, &n, "--client-mode", psprintf("%04o", (unsigned) Unix_socket_permissions));
	add(arguments, &n, "--lifeline", psprintf("%d", LIFELINE_FD));
	add(arguments, &n, "--threads", psprintf("%d", s->streamer_threads));
	add(arguments, &n, "--ring-limit", psprintf("%llu", (unsigned long long) s->ring_limit_mb << 20));
	add(arguments, &n, "--max-connections", psprintf("%d", s->max_connections));
	add(arguments, &n, "--max-requests", psprintf("%d", s->max_requests_in_flight));
	add(arguments, &n, "--connect-timeout", psprintf("%d", s->connect_timeout_ms));
	add(arguments, &n, "--first-byte-timeout", psprintf("%d", s->first_byte_timeout_ms));
	add(arguments, &n, "--low-speed-bytes", psprintf("%d", s->low_speed_bytes));
	add(arguments, &n, "--low-speed-seconds", psprintf("%d", s->low_speed_seconds));
	add(arguments, &n, "--retries", psprintf("%d", s->retries == 0 ? -1 : s->retries));
	add(arguments, &n, "--io-memory", psprintf("%llu", (unsigned long long) s->io_memory_mb << 20));
	add(arguments, &n, "--hedge-percent", psprintf("%d", s->hedge_percent == 0 ? -1 : s->hedge_percent));
	add(arguments, &n, "--cache-directory", pstrdup(s->cache_directory != NULL ? s->cache_directory : ""));
	add(arguments, &n, "--cache-size", psprintf("%llu", (unsigned long long) s->cache_size_mb << 20));
	add(arguments, &n, "--cache-max-age", psprintf("%d", Max(s->metadata_max_age_ms, 1)));
	add(arguments, &n, "--no-uring", pstrdup(s->io_method == TBPG_IO_SYNC ? "1" : "0"));
	add(arguments, &n, "--node", pstrdup(TBPG_NODE_FILE));
	arguments[n] = NULL;
	return arguments;
}

/* ---- starting ---- */

static void
close_pair(int pair[2])
{
	for (int i = 0; i < 2; i++)
		if (pair[i] >= 0)
			close(pair[i]);
}

/* In the child, between fork and exec: system calls only. */
static void
become_streamer(char *const *arguments, int lifeline, int log, int null, pid_t supervisor)
{
	long		max_fd = sysconf(_SC_OPEN_MAX);
	struct sigaction standard = {.sa_handler = SIG_DFL};
	sigset_t	none;

	if (max_fd < 0 || max_fd > 65536)
		max_fd = 65536;
	/* Out of the way of the numbers that they are to have. */
	lifeline = fcntl(lifeline, F_DUPFD, 16);
	log = fcntl(log, F_DUPFD, 16);
	null = fcntl(null, F_DUPFD, 16);
	if (lifeline < 0 || log < 0 || null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 ||
		dup2(lifeline, LIFELINE_FD) < 0)
		_exit(126);
	for (int fd = LIFELINE_FD + 1; fd < max_fd; fd++)
		close(fd);
	for (int number = 1; number < NSIG; number++)
		(void) sigaction(number, &standard, NULL);
	/* not in the server's group: an immediate shutdown's SIGQUIT would leave a core file behind */
	(void) setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != supervisor)
		_exit(126);
	execv(arguments[0], arguments);
	{
		static const char words[] = "cannot execute the streamer program\n";

		(void) !write(2, words, sizeof(words) - 1);
	}
	_exit(127);
}

bool
tbpg_child_start(TbpgChild *child, char *const *arguments)
{
	int			lifeline[2] = {-1, -1};
	int			log[2] = {-1, -1};
	int			null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t		self = getpid();
	pid_t		pid;

	if (null < 0 || pipe2(lifeline, O_CLOEXEC) != 0 || pipe2(log, O_CLOEXEC) != 0 || (pid = fork()) < 0)
	{
		ereport(LOG, (errcode_for_file_access(), errmsg("could not start the tensorbank streamer: %m")));
		close_pair(lifeline);
		close_pair(log);
		if (null >= 0)
			close(null);
		return false;
	}
	if (pid == 0)
		become_streamer(arguments, lifeline[0], log[1], null, self);
	close(null);
	close(lifeline[0]);
	close(log[1]);
	(void) fcntl(log[0], F_SETFL, O_NONBLOCK);
	child->pid = pid;
	child->lifeline = lifeline[1];
	child->log = log[0];
	child->line_len = 0;
	ereport(LOG, (errmsg("tensorbank streamer started, process %d", (int) pid)));
	return true;
}

/* ---- its log ---- */

/* One line of what may be anything: printable ASCII as it is, the rest as '?'; no more than a few a second. */
static void
log_line(TbpgChild *child, long now_ms)
{
	child->line[child->line_len] = '\0';
	for (int i = 0; i < child->line_len; i++)
		if (child->line[i] < 32 || child->line[i] > 126)
			child->line[i] = '?';
	child->line_len = 0;
	if (now_ms - child->window_start_ms >= LOG_WINDOW_MS)
	{
		if (child->dropped > 0)
			ereport(LOG, (errmsg("tensorbank streamer: %d log lines dropped", child->dropped)));
		child->window_start_ms = now_ms;
		child->lines = 0;
		child->dropped = 0;
	}
	if (child->line[0] == '\0')
		return;
	if (++child->lines > LOG_LINES_PER_WINDOW)
		child->dropped++;
	else
		ereport(LOG, (errmsg_internal("tensorbank streamer: %s", child->line)));
}

void
tbpg_child_read_log(TbpgChild *child, long now_ms)
{
	char		bytes[4096];
	ssize_t		n;

	if (child->log < 0)
		return;
	while ((n = read(child->log, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < n; i++)
		{
			bool		end = bytes[i] == '\n';

			if (!end)
				child->line[child->line_len++] = bytes[i];
			if (end || child->line_len == (int) sizeof(child->line) - 1)
				log_line(child, now_ms);
		}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (child->line_len > 0)
		log_line(child, now_ms);
	close(child->log);
	child->log = -1;
}

/* ---- its end ---- */

static void
log_end(pid_t pid, int status)
{
	if (WIFSIGNALED(status))
		ereport(LOG, (errmsg("tensorbank streamer was ended by a signal, process %d", (int) pid),
					  errdetail("Signal %d: %s.", WTERMSIG(status), pg_strsignal(WTERMSIG(status)))));
	else
		ereport(LOG, (errmsg("tensorbank streamer ended, process %d", (int) pid),
					  errdetail("Exit status %d.", WEXITSTATUS(status))));
}

bool
tbpg_child_ended(TbpgChild *child, long now_ms)
{
	int			status;
	pid_t		pid;

	if (child->pid == 0)
		return true;
	pid = waitpid(child->pid, &status, WNOHANG);
	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	tbpg_child_read_log(child, now_ms);
	if (pid > 0)
		log_end(pid, status);
	child->pid = 0;
	if (child->lifeline >= 0)
		close(child->lifeline);
	if (child->log >= 0)
		close(child->log);
	child->lifeline = -1;
	child->log = -1;
	return true;
}

void
tbpg_child_stop(TbpgChild *child)
{
	int			waited = 0;

	if (child->pid == 0)
		return;
	(void) kill(child->pid, SIGTERM);
	while (waitpid(child->pid, NULL, WNOHANG) == 0 && waited < STOP_PATIENCE_MS)
	{
		/* The latch may be set for other reasons: time alone counts here. */
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
		waited += 10;
	}
	if (waited >= STOP_PATIENCE_MS && kill(child->pid, SIGKILL) == 0)
		(void) waitpid(child->pid, NULL, 0);
	child->pid = 0;
	if (child->lifeline >= 0)
		close(child->lifeline);
	if (child->log >= 0)
		close(child->log);
	child->lifeline = -1;
	child->log = -1;
}
