/*
 * The node's books: several processes at random, limits, shares, the death of one with its hands full, forked children,
 * counters by name, and files that are not what they should be.
 */
#include "io/node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 8
#define LIMIT 16
#define MEMORY 1000000

static const TbNodeLimits limits = {.connections = 12, .requests = LIMIT, .memory_bytes = MEMORY};

static char folder[64];
static char path[80];

static int
make_folder(void **state)
{
	(void) snprintf(folder, sizeof(folder), "/tmp/test_node.XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	(void) snprintf(path, sizeof(path), "%s/node", folder);
	return 0;
}

static int
drop_folder(void **state)
{
	(void) unlink(path);
	return rmdir(folder);		/* nothing else was left in it */
}

static TbNode *
open_node(const char *at)
{
	TbNode	   *node;
	TbError		err;

	if (tb_node_open(at, &node, &err) != TB_OK)
		fail_msg("%s: %s", err.message, err.detail);
	return node;
}

static void
pause_ms(long ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	while (nanosleep(&t, &t) != 0)
		;
}

static int
take_all(TbNode *node, uint64_t bytes)
{
	int			n = 0;

	while (n < 100000 && tb_node_take(node, &limits, bytes))
		n++;
	return n;
}

static void
give_all(TbNode *node, int n, uint64_t bytes)
{
	while (n-- > 0)
		tb_node_give(node, bytes);
}

static void
test_limits(void **state)
{
	for (int shared = 0; shared < 2; shared++)
	{
		TbNode	   *node = open_node(shared ? path : NULL);
		TbNodeUse	use;

		assert_int_equal(tb_node_is_shared(node), shared);
		assert_int_equal(tb_node_connections(node, &limits), 12);
		assert_int_equal(take_all(node, 10), LIMIT);
		use = tb_node_use(node);
		assert_int_equal(use.processes, 1);
		assert_int_equal(use.active, 1);
		assert_int_equal(use.requests, LIMIT);
		assert_int_equal(use.memory_bytes, LIMIT * 10);
		tb_node_give(node, 10);
		assert_int_equal(take_all(node, 10), 1);
		give_all(node, LIMIT, 10);
		/* memory ends it; what is larger than all of it is granted to him who has nothing */
		assert_int_equal(take_all(node, MEMORY / 3), 3);
		give_all(node, 3, MEMORY / 3);
		assert_int_equal(take_all(node, UINT64_MAX / 2), 1);
		/* more given than was taken does not make room */
		give_all(node, 5, UINT64_MAX);
		assert_int_equal(tb_node_use(node).memory_bytes, 0);
		assert_int_equal(take_all(node, 10), LIMIT);
		tb_node_close(node);
	}
	tb_node_close(NULL);
}

static void
test_shares(void **state)
{
	TbNode	   *a = open_node(path);
	TbNode	   *b = open_node(path);
	TbNode	   *c = open_node(path);

	assert_int_equal(take_all(a, 1), LIMIT);
	/* who comes later gets its share at once, and the first one nothing more before the sum fits again */
	assert_int_equal(take_all(b, 1), LIMIT / 2);
	assert_int_equal(take_all(c, 1), LIMIT / 3);
	give_all(a, LIMIT - LIMIT / 3, 1);
	assert_int_equal(take_all(a, 1), 0);
	give_all(b, LIMIT / 2, 1);
	assert_int_equal(take_all(a, 1), LIMIT - LIMIT / 3 - LIMIT / 3);
	assert_int_equal(tb_node_connections(a, &limits), 4);	/* b had requests a moment ago */
	tb_node_close(b);
	assert_int_equal(tb_node_connections(a, &limits), 6);
	/* memory likewise */
	tb_node_close(c);
	give_all(a, LIMIT, 1);
	b = open_node(path);
	assert_int_equal(take_all(a, MEMORY / 10), 10);
	assert_int_equal(take_all(b, MEMORY / 10), 5);
	tb_node_close(a);
	tb_node_close(b);
}

/* ---- many processes ---- */

typedef struct Shared
{
	int			in_flight;		/* granted and not yet given back, over all processes */
	int			max_in_flight;
	int			late_max;		/* of the time when everyone had started */
	int			started;
	uint64_t	grants[PROCESSES];
} Shared;

static void
note_max(int *max, int value)
{
	int			old = __atomic_load_n(max, __ATOMIC_SEQ_CST);

	while (old < value &&
		   !__atomic_compare_exchange_n(max, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* Take as much as there is, hold each for a moment, give back: for ever. */
static void
be_greedy(Shared *shared, int number)
{
	TbNode	   *node = open_node(path);
	TbNodeCounters *counters = tb_node_counters(node, "db.server");
	unsigned	seed = (unsigned) number + 1;
	int			held = 0;

	for (int i = 0;; i++)
	{
		if (held < 40 && rand_r(&seed) % 3 != 0 && tb_node_take(node, &limits, 100))
		{
			int			now = __atomic_add_fetch(&shared->in_flight, 1, __ATOMIC_SEQ_CST);

			note_max(&shared->max_in_flight, now);
			if (__atomic_load_n(&shared->started, __ATOMIC_SEQ_CST) == 2)
				note_max(&shared->late_max, now);
			__atomic_add_fetch(&shared->grants[number], 1, __ATOMIC_SEQ_CST);
			tb_count(counters->requests, 1);
			held++;
		}
		else if (held > 0)
		{
			__atomic_sub_fetch(&shared->in_flight, 1, __ATOMIC_SEQ_CST);
			tb_node_give(node, 100);
			held--;
		}
		if (i % 16 == 0)
			pause_ms(1);
	}
}

static uint64_t
counted(TbNode *node, const char *wanted)
{
	TbNodeCounters counters;
	const char *name;

	for (size_t i = 0; tb_node_each(node, i, &name, &counters); i++)
		if (strcmp(name, wanted) == 0)
			return counters.requests;
	return 0;
}

static void
test_many(void **state)
{
	Shared	   *shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t		pid[PROCESSES];
	TbNode	   *node = open_node(path);
	uint64_t	sum = 0;
	double		harmonic = 0;

	assert_ptr_not_equal(shared, MAP_FAILED);
	for (int i = 0; i < PROCESSES; i++)
	{
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (pid[i] == 0)
			be_greedy(shared, i);
		harmonic += 1.0 / (i + 1);
	}
	pause_ms(700);
	__atomic_store_n(&shared->started, 2, __ATOMIC_SEQ_CST);
	pause_ms(1300);
	/* no death may happen between a grant and its count: all of them stand still first */
	for (int i = 0; i < PROCESSES; i++)
		(void) kill(pid[i], SIGSTOP);
	pause_ms(50);
	for (int i = 0; i < PROCESSES; i++)
	{
		assert_true(shared->grants[i] > 50);
		sum += shared->grants[i];
	}
	/* several processes below their share that come and go: no more than the sum of what each could hold in turn */
	assert_true(shared->max_in_flight <= (int) (LIMIT * harmonic) + PROCESSES);
	assert_true(shared->max_in_flight >= LIMIT / 2);
	assert_true(shared->late_max <= (int) (LIMIT * harmonic) + PROCESSES);
	assert_int_equal(tb_node_use(node).processes, PROCESSES + 1);
	for (int i = 0; i < PROCESSES; i++)
	{
		(void) kill(pid[i], SIGKILL);
		assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
	}
	/* counted one by one; the process that stood between grant and count is one of them at most */
	assert_true(counted(node, "db.server") <= sum && counted(node, "db.server") + PROCESSES >= sum);
	/* what the dead held comes back by itself */
	pause_ms(1100);
	(void) tb_node_use(node);
	assert_int_equal(tb_node_use(node).processes, 1);
	assert_int_equal(tb_node_use(node).requests, 0);
	assert_int_equal(tb_node_use(node).memory_bytes, 0);
	assert_int_equal(take_all(node, 1), LIMIT);
	tb_node_close(node);
	(void) munmap(shared, sizeof(Shared));
}

/* One killed with all the room in its hands, asked for by one who only ever calls tb_node_take. */
static void
test_dead_holder(void **state)
{
	TbNode	   *node = open_node(path);
	int			pair[2];
	char		byte;
	pid_t		pid;
	int			got = 0;

	assert_int_equal(pipe(pair), 0);
	pid = fork();
	if (pid == 0)
	{
		TbNode	   *mine = open_node(path);
		int			n = take_all(mine, 1);

		(void) !write(pair[1], "x", n == LIMIT);
		for (;;)
			(void) pause();
	}
	assert_int_equal(read(pair[0], &byte, 1), 1);
	assert_true(tb_node_take(node, &limits, MEMORY));	/* the one that is always granted */
	(void) kill(pid, SIGKILL);
	/* not waited for: a zombie holds nothing either */
	for (int i = 0; i < 600 && got < LIMIT - 1; i++)
	{
		got += tb_node_take(node, &limits, 0);
		pause_ms(got > LIMIT / 2 ? 0 : TB_NODE_WAIT_MS);
	}
	assert_int_equal(got, LIMIT - 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	tb_node_close(node);
	(void) close(pair[0]);
	(void) close(pair[1]);
}

/* A forked child cannot give away what its parent holds, nor close its place. */
static void
test_fork(void **state)
{
	TbNode	   *node = open_node(path);
	pid_t		pid;
	int			status;

	assert_int_equal(take_all(node, 1), LIMIT);
	pid = fork();
	if (pid == 0)
	{
		bool		took = tb_node_take(node, &limits, 1);

		tb_node_give(node, 1);
		tb_node_close(node);
		_exit(took ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(tb_node_use(node).requests, LIMIT);
	assert_int_equal(tb_node_use(node).processes, 1);
	tb_node_close(node);
}

/* ---- threads ---- */

typedef struct Worker
{
	TbNode	   *node;
	TbNodeCounters *counters;
	pthread_t	thread;
} Worker;

static void *
take_and_give(void *arg)
{
	Worker	   *worker = arg;

	for (int i = 0; i < 5000; i++)
	{
		if (tb_node_take(worker->node, &limits, 7))
			tb_node_give(worker->node, 7);
		tb_count(worker->counters->bytes, 3);
		(void) tb_node_connections(worker->node, &limits);
		if (i % 100 == 0)
			(void) tb_node_counters(worker->node, i % 200 == 0 ? "a" : "b");
	}
	return NULL;
}

static void
test_threads(void **state)
{
	Worker		worker[4];
	TbNode	   *node = open_node(path);
	TbNodeCounters counters;
	const char *name;

	for (int i = 0; i < 4; i++)
	{
		worker[i].node = node;
		worker[i].counters = tb_node_counters(node, "threads");
		assert_int_equal(pthread_create(&worker[i].thread, NULL, take_and_give, &worker[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(worker[i].thread, NULL), 0);
	assert_int_equal(tb_node_use(node).requests, 0);
	assert_int_equal(tb_node_use(node).memory_bytes, 0);
	assert_true(tb_node_each(node, 0, &name, &counters));
	assert_string_equal(name, "threads");
	assert_int_equal(counters.bytes, 4 * 5000 * 3);
	assert_true(tb_node_each(node, 2, &name, &counters));
	assert_false(tb_node_each(node, 3, &name, &counters));
	tb_node_close(node);
}

/* ---- counters ---- */

static void
test_names(void **state)
{
	TbNode	   *node = open_node(path);
	TbNode	   *other = open_node(path);
	TbNodeCounters counters;
	const char *name;
	char		text[300];
	size_t		n = 0;

	assert_false(tb_node_each(node, 0, &name, &counters));
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_ptr_equal(tb_node_counters(node, text), tb_node_counters(node, text));
	assert_true(tb_node_each(other, 0, &name, &counters));
	assert_int_equal(strlen(name), 127);
	tb_count(tb_node_counters(node, "db.a")->retries, 2);
	tb_count(tb_node_counters(other, "db.a")->retries, 3);
	assert_true(tb_node_each(node, 1, &name, &counters));
	assert_string_equal(name, "db.a");
	assert_int_equal(counters.retries, 5);
	for (int i = 0; i < 400; i++)
	{
		(void) snprintf(text, sizeof(text), "db.server%d", i);
		tb_count(tb_node_counters(i % 2 ? node : other, text)->errors, 1);
	}
	while (tb_node_each(node, n, &name, &counters))
		n++;
	assert_int_equal(n, 256);
	assert_true(tb_node_each(other, 255, &name, &counters));
	assert_string_equal(name, "(others)");
	assert_int_equal(counters.errors, 400 - 253);
	tb_node_close(other);
	tb_node_close(node);
	/* kept for those who come later */
	node = open_node(path);
	assert_true(tb_node_each(node, 1, &name, &counters));
	assert_int_equal(counters.retries, 5);
	tb_node_close(node);
}

/* ---- places ---- */

static void
test_places_full(void **state)
{
	static TbNode *node[1030];

	for (int i = 0; i < 1030; i++)
		node[i] = open_node(path);
	assert_int_equal(tb_node_use(node[0]).processes, 1024);
	/* those without a place keep to what they see of the others and of themselves */
	assert_int_equal(take_all(node[0], 1), LIMIT);
	assert_int_equal(take_all(node[1029], 1), LIMIT / 2);
	assert_int_equal(tb_node_use(node[0]).requests, LIMIT);
	for (int i = 0; i < 1030; i++)
		tb_node_close(node[i]);
	node[0] = open_node(path);
	assert_int_equal(tb_node_use(node[0]).processes, 1);
	tb_node_close(node[0]);
}

/* ---- files ---- */

static void
write_file(const void *bytes, size_t len, off_t at)
{
	int			fd = open(path, O_RDWR | O_CREAT, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, at), len);
	assert_int_equal(close(fd), 0);
}

static void
test_damaged(void **state)
{
	TbNode	   *old;
	TbNode	   *node;
	struct stat st;

	/* not one of ours */
	write_file("hello", 5, 0);
	node = open_node(path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_true(st.st_size > 100000 && st.st_blocks * 512 >= st.st_size);
	assert_int_equal(take_all(node, 1), LIMIT);
	tb_count(tb_node_counters(node, "x")->requests, 1);
	/* another version, while somebody uses it: he keeps his, the others get a new one */
	old = node;
	write_file("\x63", 1, 8);
	node = open_node(path);
	assert_int_equal(take_all(node, 1), LIMIT);
	assert_int_equal(counted(node, "x"), 0);
	assert_int_equal(counted(old, "x"), 1);
	give_all(old, LIMIT, 1);
	tb_node_close(old);
	assert_int_equal(tb_node_use(node).requests, LIMIT);
	tb_node_close(node);
	/* cut short */
	assert_int_equal(truncate(path, 5000), 0);
	node = open_node(path);
	assert_int_equal(take_all(node, 1), LIMIT);
	tb_node_close(node);
}

static void
test_refused(void **state)
{
	TbNode	   *node = NULL;
	TbError		err;
	char		missing[100];

	(void) snprintf(missing, sizeof(missing), "%s/no/such", folder);
	assert_int_equal(tb_node_open(missing, &node, &err), TB_E_IO);
	assert_int_equal(err.code, TB_E_IO);
	assert_null(node);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_not_equal(tb_node_open(path, &node, &err), TB_OK);
	assert_int_equal(unlink(path), 0);
	write_file("", 0, 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(tb_node_open(path, &node, &err), TB_E_DENIED);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(tb_node_open(path, &node, &err), TB_E_IO);
	assert_int_equal(rmdir(path), 0);
	assert_null(node);
}

/* Many make it at once: all end up with the same books. */
static void
test_made_once(void **state)
{
	int			pair[2];
	char		byte;

	assert_int_equal(pipe(pair), 0);
	write_file("damaged", 7, 0);
	for (int i = 0; i < 16; i++)
		if (fork() == 0)
		{
			TbNode	   *mine;

			(void) close(pair[1]);
			if (read(pair[0], &byte, 1) != 0)	/* until the parent closes its end */
				_exit(1);
			mine = open_node(path);
			tb_count(tb_node_counters(mine, "x")->requests, 1);
			_exit(0);			/* without closing */
		}
		else if (i == 15)
			(void) close(pair[1]);
		else
			continue;
	for (int i = 0; i < 16; i++)
	{
		int			status;

		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	{
		TbNode	   *node = open_node(path);

		assert_int_equal(counted(node, "x"), 16);
		assert_int_equal(tb_node_use(node).processes, 1);
		tb_node_close(node);
	}
	(void) close(pair[0]);
}

int
main(void)
{
#define each(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)
	const struct CMUnitTest tests[] = {
		each(test_limits), each(test_shares), each(test_many), each(test_dead_holder), each(test_fork),
		each(test_threads), each(test_names), each(test_places_full), each(test_damaged), each(test_refused),
		each(test_made_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
