/*
 * The cache beside processes that die, stop or hold on to things: kills while entries are written,
 * one fetch among many processes, a lock whose holder is stopped, a kernel that refuses io_uring, a
 * disk that is really full, times that cannot be.
 */
#include "io_help.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/cache_parts.h"

#define CACHE_BYTES ((uint64_t) 16 << 20)
#define OBJECTS 400

typedef struct Box
{
	Rig			rig;
	TbAio	   *aio;
	TbCache    *cache;
} Box;

static char directory[64];

static void
new_directory(void)
{
	snprintf(directory, sizeof(directory), "/tmp/tb-crash-XXXXXX");
	assert_non_null(mkdtemp(directory));
}

static void
wipe_directory(void)
{
	char		command[100];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	assert_int_equal(system(command), 0);
}

static bool
box_open(Box *box, TbAioMethod method)
{
	TbError		err;

	rig_open(&box->rig, 2, NULL);
	assert_int_equal(tb_aio_new(box->rig.loop, box->rig.pool, method, &box->aio, NULL), TB_OK);
	return tb_cache_open(box->rig.loop, box->aio, directory, CACHE_BYTES, &box->cache, &err) == TB_OK;
}

static void
box_close(Box *box)
{
	tb_aio_free(box->aio);
	tb_cache_close(box->cache);
	rig_close(&box->rig);
}

static void
key_of(int object, TbCacheKey *key)
{
	uint8_t		scope[32] = {2};
	char		name[32];

	snprintf(name, sizeof(name), "object %d", object);
	tb_cache_key(scope, name, TB_RANGE_WHOLE, 0, 1000, key);
}

static void
fill(int object, int version, TbBuf *buf)
{
	buf->len = 1 + tb_mix64((uint64_t) object) % 60000;
	for (size_t i = 0; i < buf->len; i++)
		buf->data[i] = (uint8_t) (tb_mix64((uint64_t) object * 1000 + (uint64_t) version + i / 64) >> i % 8);
}

static TbBuf *
bytes_of(int object, int version)
{
	TbBuf	   *buf = tb_buf_new(60000);

	fill(object, version, buf);
	return buf;
}

static void
got(TbCacheGet *get)
{
	++*(int *) get->arg;
}

/* false: what was found is not what was put. For children, which cannot assert. */
static bool
ask(Box *box, int object, TbCacheFound *found)
{
	int			done = 0;
	bool		right = true;
	TbCacheGet	get = {.max_age_ms = 60000, .done = got, .arg = &done};

	key_of(object, &get.key);
	tb_cache_get(box->cache, &get);
	while (done == 0)
		(void) tb_loop_pump(box->rig.loop, 100);
	*found = get.found;
	if (get.found != TB_CACHE_MISS)
	{
		TbBuf	   *want = bytes_of(object, (int) strtol(get.version + 1, NULL, 10));

		right = get.object_size == 77 && get.data->len == want->len && memcmp(get.data->data,
			want->data, want->len) == 0;
		tb_buf_unref(want);
		tb_buf_unref(get.data);
	}
	return right;
}

static void
put(Box *box, int object, int version)
{
	char		name[16];
	TbBuf	   *data = bytes_of(object, version);
	TbCacheKey	key;

	snprintf(name, sizeof(name), "\"%d\"", version);
	key_of(object, &key);
	tb_cache_put(box->cache, &key, name, 77, data);
	tb_buf_unref(data);
}

static void
settle(Box *box)
{
	for (int i = 0; i < 200 && (i < 5 || tb_cache_is_writing(box->cache)); i++)
		(void) tb_loop_pump(box->rig.loop, 2);
}

static pid_t
start(void (*child) (int n), int n)
{
	pid_t		pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
	{
		child(n);
		_exit(0);
	}
	return pid;
}

static int
end_of(pid_t pid)
{
	int			how;

	assert_int_equal(waitpid(pid, &how, 0), pid);
	return WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
}

/* ---- kills ---- */

static void
reads_and_writes(int n)
{
	static const TbAioMethod methods[] = {TB_AIO_SYNC, TB_AIO_POOL, TB_AIO_URING};
	uint64_t	random = (uint64_t) n * 7919;
	TbCacheFound found;
	Box			box;

	if (!box_open(&box, methods[n % 3]))
		_exit(3);
	for (;;)
	{
		int			object = (int) (tb_mix64(random++) % OBJECTS);

		if (!ask(&box, object, &found))
			_exit(4);
		if (found == TB_CACHE_MISS)
			put(&box, object, (int) (tb_mix64(random++) % 3));
	}
}

/* 200 kills at any time, four processes at once: no wrong byte then or later, and the cache still
 * keeps what it is given. */
static void
two_hundred_kills(void **state)
{
	pid_t		child[4] = {0};
	uint64_t	random = 5;
	Box			box;
	int			hits = 0;

	new_directory();
	for (int i = 0; i < 200 + 4; i++)
	{
		struct timespec nap = {.tv_nsec = (long) (tb_mix64(random++) % 12000000)};

		if (child[i % 4] != 0)
		{
			(void) kill(child[i % 4], SIGKILL);
			assert_int_equal(end_of(child[i % 4]), 1000 + SIGKILL);
		}
		child[i % 4] = i < 200 ? start(reads_and_writes, i) : 0;
		(void) nanosleep(&nap, NULL);
	}
	assert_true(box_open(&box, TB_AIO_URING));
	for (int round = 0; round < 2; round++)
		for (int object = hits = 0; object < OBJECTS / 2; object++)
		{
			TbCacheFound found;

			assert_true(ask(&box, object, &found));
			hits += found == TB_CACHE_HIT;
			if (found == TB_CACHE_MISS)
				put(&box, object, 1);
			settle(&box);
		}
	/* 200 objects of 30 kB fit: claims and space of the dead are in nobody's way */
	if (hits < OBJECTS / 2 * 9 / 10)
		fail_msg("%d hits of %d", hits, OBJECTS / 2);
	box_close(&box);
	wipe_directory();
}

/* ---- one fetch ---- */

static int *fetches;

static void
fetches_all(int n)
{
	TbCacheFound found;
	Box			box;

	if (!box_open(&box, n % 2 == 0 ? TB_AIO_URING : TB_AIO_POOL))
		_exit(3);
	for (int i = 0; i < 30; i++)
	{
		if (!ask(&box, i, &found))
			_exit(4);
		if (found != TB_CACHE_MISS)
			continue;
		__atomic_add_fetch(&fetches[i], 1, __ATOMIC_RELAXED);
		(void) tb_loop_pump(box.rig.loop, 5);
		put(&box, i, 1);
		settle(&box);
	}
	box_close(&box);
}

/* Six processes want the same things at the same time: each is fetched once, but for the odd claim
 * taken in the same instant. */
static void
fetched_once(void **state)
{
	pid_t		child[6];
	int			total = 0;

	new_directory();
	fetches = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(fetches != MAP_FAILED);
	for (int i = 0; i < 6; i++)
		child[i] = start(fetches_all, i);
	for (int i = 0; i < 6; i++)
		assert_int_equal(end_of(child[i]), 0);
	for (int i = 0; i < 30; i++)
	{
		assert_true(fetches[i] >= 1);
		total += fetches[i];
	}
	if (total > 33)
		fail_msg("%d fetches of 30 things", total);
	assert_int_equal(munmap(fetches, 4096), 0);
	wipe_directory();
}

/* What is stale and being asked about by another who never comes to an end is not waited for without end. */
static void
stale_waits_bounded(void **state)
{
	TbCacheGet	first = {.max_age_ms = 0};
	TbCacheGet	second = {.max_age_ms = 0};
	int			done[2] = {0};
	int64_t		begin;
	Box			box;

	new_directory();
	assert_true(box_open(&box, TB_AIO_SYNC));
	put(&box, 1, 1);
	settle(&box);
	key_of(1, &first.key);
	key_of(1, &second.key);
	first.done = second.done = got;
	first.arg = &done[0];
	second.arg = &done[1];
	tb_cache_get(box.cache, &first);
	pump_until(&box.rig, &done[0], 1);
	assert_int_equal(first.found, TB_CACHE_STALE);
	begin = tb_now_ns();
	tb_cache_get(box.cache, &second);
	pump_until(&box.rig, &done[1], 1);	/* fails after 20 s */
	assert_int_equal(second.found, TB_CACHE_STALE);
	assert_true(tb_now_ns() - begin > INT64_C(5000000000));
	tb_buf_unref(first.data);
	tb_buf_unref(second.data);
	tb_cache_abandon(box.cache, &first.key);
	box_close(&box);
	wipe_directory();
}

/* ---- what others hold ---- */

/* The lock is held by somebody who does not go on: nothing waits, things are not kept. */
static void
lock_is_held(void **state)
{
	char		path[100];
	TbCacheFound found;
	int64_t		begin;
	int			fd;
	Box			box;

	new_directory();
	assert_true(box_open(&box, TB_AIO_URING));
	put(&box, 1, 1);
	settle(&box);
	snprintf(path, sizeof(path), "%s/lock", directory);
	fd = open(path, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	begin = tb_now_ns();
	for (int object = 1; object < 100; object++)
	{
		assert_true(ask(&box, object, &found));
		assert_int_equal(found, object == 1 ? TB_CACHE_HIT : TB_CACHE_MISS);
		if (found == TB_CACHE_MISS)
			put(&box, object, 1);
	}
	assert_true(tb_now_ns() - begin < INT64_C(3000000000));
	assert_true(ask(&box, 50, &found));
	assert_int_equal(found, TB_CACHE_MISS);
	close(fd);
	put(&box, 50, 1);
	settle(&box);
	assert_true(ask(&box, 50, &found));
	assert_int_equal(found, TB_CACHE_HIT);
	box_close(&box);
	wipe_directory();
}

/* An index that says an entry was seen to be current in the future is not believed. */
static void
seen_in_the_future(void **state)
{
	TbCachePlace place;
	TbCacheFound found;
	TbCacheMap	map;
	TbCacheKey	key;
	int64_t		seen_ms;
	uint32_t	slot;
	Box			box;

	new_directory();
	assert_true(box_open(&box, TB_AIO_SYNC));
	put(&box, 1, 1);
	settle(&box);
	assert_true(ask(&box, 1, &found));
	assert_int_equal(found, TB_CACHE_HIT);
	assert_int_equal(tb_cache_map_open(directory, CACHE_BYTES, &map, NULL), TB_OK);
	key_of(1, &key);
	assert_true(tb_cache_find(&map, tb_cache_tag(&key), &place, &slot, &seen_ms));
	map.slot[slot].info ^= UINT64_C(1) << 60;	/* one bit */
	tb_cache_map_close(&map);
	assert_true(ask(&box, 1, &found));
	assert_int_equal(found, TB_CACHE_STALE);
	box_close(&box);
	wipe_directory();
}

/* ---- the kernel and the disk refuse ---- */

static void
refuse_uring(int with_errno)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned) with_errno),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(3);
}

static void
without_uring(int with_errno)
{
	TbCacheFound found;
	TbAio	   *alone;
	Box			box;

	refuse_uring(with_errno);
	if (!box_open(&box, TB_AIO_URING))
		_exit(4);
	if (tb_aio_method(box.aio) != TB_AIO_POOL || tb_aio_why_not_uring(box.aio) != with_errno ||
		tb_aio_fixed(box.aio) != NULL)
		_exit(5);
	put(&box, 1, 1);
	settle(&box);
	if (!ask(&box, 1, &found) || found != TB_CACHE_HIT)
		_exit(6);
	/* and no threads either */
	if (tb_aio_new(box.rig.loop, NULL, TB_AIO_URING, &alone, NULL) != TB_OK || tb_aio_method(alone) != TB_AIO_SYNC)
		_exit(7);
	tb_aio_free(alone);
	box_close(&box);
}

/* P11: the kernel refuses io_uring, in each of the ways it does. */
static void
uring_is_refused(void **state)
{
	static const int errnos[] = {EPERM, ENOSYS, ENOMEM};

	for (int i = 0; i < 3; i++)
	{
		new_directory();
		assert_int_equal(end_of(start(without_uring, errnos[i])), 0);
		wipe_directory();
	}
}

static void
piece_ended(TbAioOp *op)
{
	++*(int *) op->arg;
}

/* P11: a transfer that comes in pieces, and one the kernel puts off, come to their end. A pipe gives both. */
static void
in_pieces(void **state)
{
	char		bytes[3000];
	int			done = 0;
	int			pipes[2];
	TbAioOp		op;
	TbAio	   *aio;
	Rig			rig;

	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_aio_new(rig.loop, NULL, TB_AIO_URING, &aio, NULL), TB_OK);
	if (tb_aio_method(aio) == TB_AIO_URING)
	{
		assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
		op = (TbAioOp) {.fd = pipes[0], .bytes = bytes, .len = sizeof(bytes), .done = piece_ended, .arg = &done};
		tb_aio_submit(aio, &op);
		for (int i = 0; i < 3; i++)
		{
			char		piece[1000];

			memset(piece, 'a' + i, sizeof(piece));
			for (int k = 0; k < 5; k++)
				(void) tb_loop_pump(rig.loop, 1);
			assert_int_equal(done, 0);
			assert_int_equal(write(pipes[1], piece, sizeof(piece)), sizeof(piece));
		}
		pump_until(&rig, &done, 1);
		assert_int_equal(op.result, 3000);
		for (int i = 0; i < 3000; i++)
			assert_int_equal(bytes[i], 'a' + i / 1000);
		close(pipes[0]);
		close(pipes[1]);
	}
	tb_aio_free(aio);
	rig_close(&rig);
}

/* In a mount namespace of its own: the directory is a file system of 1 MB. 77: may not mount. */
static void
on_a_small_disk(int unused)
{
	TbCacheFound found;
	TbError		err;
	Box			box;

	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		mount("tmpfs", directory, "tmpfs", 0, "size=1m,mode=0700") != 0)
		_exit(77);
	if (!box_open(&box, TB_AIO_POOL))
		_exit(3);
	for (int object = 0; object < 100; object++)
	{
		if (!ask(&box, object, &found) || found != TB_CACHE_MISS)
			_exit(4);
		put(&box, object, 1);
		settle(&box);
	}
	if (!tb_cache_trouble(box.cache, &err) || err.hint[0] == '\0' || tb_cache_trouble(box.cache, &err))
		_exit(5);
	box_close(&box);
}

/* P9: a disk that is full. */
static void
disk_is_full(void **state)
{
	int			end;

	new_directory();
	end = end_of(start(on_a_small_disk, 0));
	wipe_directory();
	if (end == 77)
		skip();
	assert_int_equal(end, 0);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_hundred_kills),
		cmocka_unit_test(fetched_once),
		cmocka_unit_test(stale_waits_bounded),
		cmocka_unit_test(lock_is_held),
		cmocka_unit_test(seen_in_the_future),
		cmocka_unit_test(uring_is_refused),
		cmocka_unit_test(in_pieces),
		cmocka_unit_test(disk_is_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
