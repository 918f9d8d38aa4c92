/*
 * The cache on disk: never a wrong byte, whatever happens to its files; one fetch for many; what is
 * used survives a scan; killed writers.
 */
#include "io_help.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/cache_parts.h"

#define CACHE_BYTES ((uint64_t) 16 << 20)

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
	snprintf(directory, sizeof(directory), "/tmp/tb-cache-XXXXXX");
	assert_non_null(mkdtemp(directory));
}

static void
wipe_directory(void)
{
	char		command[100];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	assert_int_equal(system(command), 0);
}

static void
box_open(Box *box, TbAioMethod method)
{
	TbError		err;

	rig_open(&box->rig, method == TB_AIO_POOL ? 2 : 0, NULL);
	assert_int_equal(tb_aio_new(box->rig.loop, box->rig.pool, method, &box->aio, NULL), TB_OK);
	if (tb_cache_open(box->rig.loop, box->aio, directory, CACHE_BYTES, &box->cache, &err) != TB_OK)
		fail_msg("%s (%s)", err.message, err.detail);
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
	uint8_t		scope[32] = {1};
	char		name[32];

	snprintf(name, sizeof(name), "object %d", object);
	tb_cache_key(scope, name, TB_RANGE_WHOLE, 0, 1000, key);
}

static size_t
len_of(int object)
{
	return 1 + tb_mix64((uint64_t) object) % (object % 10 == 0 ? 250000 : 30000);
}

static TbBuf *
bytes_of(int object, int version)
{
	TbBuf	   *buf = tb_buf_new(len_of(object));

	buf->len = len_of(object);
	for (size_t i = 0; i < buf->len; i++)
		buf->data[i] = (uint8_t) (tb_mix64((uint64_t) object * 1000 + (uint64_t) version + i / 64) >> i % 8);
	return buf;
}

static void
got(TbCacheGet *get)
{
	++*(int *) get->arg;
}

/* Ask; what is found is right. */
static TbCacheFound
ask(Box *box, int object, int version, int64_t max_age_ms)
{
	char		name[16];
	int			done = 0;
	TbCacheGet	get = {.max_age_ms = max_age_ms, .done = got, .arg = &done};

	snprintf(name, sizeof(name), "\"%d\"", version);
	get.if_version = version >= 0 ? name : NULL;
	key_of(object, &get.key);
	tb_cache_get(box->cache, &get);
	assert_int_equal(done, 0);
	pump_until(&box->rig, &done, 1);
	if (get.found != TB_CACHE_MISS)
	{
		int			found_version = (int) strtol(get.version + 1, NULL, 10);
		TbBuf	   *want = bytes_of(object, found_version);

		assert_true(version < 0 || version == found_version);
		assert_int_equal(get.object_size, 77);
		assert_int_equal(get.data->len, want->len);
		assert_memory_equal(get.data->data, want->data, want->len);
		tb_buf_unref(want);
		tb_buf_unref(get.data);
	}
	else
		assert_null(get.data);
	return get.found;
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
abandon(Box *box, int object)
{
	TbCacheKey	key;

	key_of(object, &key);
	tb_cache_abandon(box->cache, &key);
}

/* Let writes come to their end. */
static void
settle(Box *box)
{
	for (int i = 0; i < 20; i++)
		(void) tb_loop_pump(box->rig.loop, 2);
}

/* ask, and fetch what is not there */
static bool
use(Box *box, int object, int version)
{
	TbCacheFound found = ask(box, object, version, 0);

	if (found == TB_CACHE_MISS)
		put(box, object, version);
	else if (found == TB_CACHE_STALE)
		abandon(box, object);
	return found != TB_CACHE_MISS;
}

static void
random_use(void **state)
{
	static const TbAioMethod methods[] = {TB_AIO_SYNC, TB_AIO_POOL, TB_AIO_URING};

	for (size_t m = 0; m < 3; m++)
	{
		Box			box;
		int			hits = 0;

		new_directory();
		box_open(&box, methods[m]);
		for (int i = 0; i < 3000; i++)
		{
			/* 100 are asked for often and 2000 now and then; their sizes together are more than twice the cache's */
			uint64_t	random = tb_mix64((uint64_t) i);
			int			object = random % 2 == 0 ? (int) (random / 2 % 100) : (int) (random / 2 % 2000);
			int			version = i / 1000;

			hits += use(&box, object, random % 7 == 0 ? -1 : version);
			if (i % 10 == 0)
				(void) tb_loop_pump(box.rig.loop, 0);
		}
		settle(&box);
		assert_true(hits > 600);
		/* another process, later: the same entries */
		box_close(&box);
		box_open(&box, methods[m]);
		hits = 0;
		for (int object = 0; object < 100; object++)
			hits += use(&box, object, 2);
		assert_true(hits > 50);
		box_close(&box);
		wipe_directory();
	}
}

static void
ages_and_versions(void **state)
{
	Box			box;

	new_directory();
	box_open(&box, TB_AIO_URING);
	assert_int_equal(ask(&box, 1, 5, 0), TB_CACHE_MISS);
	put(&box, 1, 5);
	settle(&box);
	assert_int_equal(ask(&box, 1, 5, 0), TB_CACHE_HIT);
	assert_int_equal(ask(&box, 1, -1, 60000), TB_CACHE_HIT);
	assert_int_equal(ask(&box, 1, -1, 0), TB_CACHE_STALE);
	{
		TbCacheKey	key;

		key_of(1, &key);
		tb_cache_touch(box.cache, &key);
	}
	assert_int_equal(ask(&box, 1, -1, 60000), TB_CACHE_HIT);
	/* another version: what was there is gone */
	assert_int_equal(ask(&box, 1, 6, 0), TB_CACHE_MISS);
	put(&box, 1, 6);
	settle(&box);
	assert_int_equal(ask(&box, 1, 6, 0), TB_CACHE_HIT);
	assert_int_equal(ask(&box, 1, 5, 0), TB_CACHE_MISS);
	abandon(&box, 1);
	/* what has no version is not kept */
	{
		TbBuf	   *data = bytes_of(2, 0);
		TbCacheKey	key;

		key_of(2, &key);
		assert_int_equal(ask(&box, 2, -1, 60000), TB_CACHE_MISS);
		tb_cache_put(box.cache, &key, "", 77, data);
		tb_buf_unref(data);
		settle(&box);
		assert_int_equal(ask(&box, 2, -1, 60000), TB_CACHE_MISS);
		abandon(&box, 2);
	}
	box_close(&box);
	wipe_directory();
}

/* What is used again and again stays while thousands pass by once. */
static void
scans_pass(void **state)
{
	Box			box;
	int			hits = 0;
	int			passed = 100000;

	new_directory();
	box_open(&box, TB_AIO_SYNC);
	for (int round = 0; round < 60; round++)
	{
		for (int object = 1; object <= 60; object++)
			hits += use(&box, object * 10 + 1, 0) && round >= 30;
		for (int i = 0; i < 100; i++)
			use(&box, passed++ * 10 + 1, 0);
		settle(&box);
	}
	/* 90 MB went through a cache of 16; the 60 that are used take 1 MB */
	if (hits < 30 * 60 * 9 / 10)
		fail_msg("%d hits of %d", hits, 30 * 60);
	box_close(&box);
	wipe_directory();
}

/* P10: any bit of an entry or of the index turned over is a miss, never a wrong byte. */
static void
tampered(void **state)
{
	char		path[100];
	uint64_t	random = 3;

	for (int round = 0; round < 150; round++)
	{
		Box			box;
		int			fd;
		off_t		at;
		uint8_t		byte;
		bool		index = round % 3 == 2;

		new_directory();
		box_open(&box, TB_AIO_SYNC);
		for (int object = 0; object < 10; object++)
			use(&box, object, 1);
		settle(&box);
		for (int flips = 0; flips < 20; flips++)
		{
			snprintf(path, sizeof(path), "%s/%s", directory, index ? "index" : "data");
			fd = open(path, O_RDWR);
			at = (off_t) (tb_mix64(random++) % (index ? 20000 : 300000));
			if (round % 3 == 1)
				at = at / 512 * 512 + (off_t) (tb_mix64(random++) % 160);	/* heads */
			assert_int_equal(pread(fd, &byte, 1, at), 1);
			byte ^= (uint8_t) (1 << tb_mix64(random++) % 8);
			assert_int_equal(pwrite(fd, &byte, 1, at), 1);
			close(fd);
		}
		for (int object = 0; object < 10; object++)
			(void) use(&box, object, 1);
		settle(&box);
		for (int object = 0; object < 10; object++)
			(void) use(&box, object, 1);
		box_close(&box);
		box_open(&box, TB_AIO_SYNC);
		for (int object = 0; object < 10; object++)
			(void) use(&box, object, 1);
		box_close(&box);
		wipe_directory();
	}
}

/* P9, P10: the files cut, swapped, gone. */
static void
maltreated(void **state)
{
	char		command[300];
	Box			box;

	new_directory();
	box_open(&box, TB_AIO_URING);
	for (int object = 0; object < 50; object++)
		use(&box, object, 1);
	settle(&box);
	box_close(&box);
	snprintf(command, sizeof(command), "truncate -s 100000 %s/data", directory);
	assert_int_equal(system(command), 0);
	box_open(&box, TB_AIO_URING);
	for (int object = 0; object < 50; object++)
		(void) use(&box, object, 1);
	settle(&box);
	box_close(&box);
	snprintf(command, sizeof(command), "truncate -s 5000 %s/index", directory);
	assert_int_equal(system(command), 0);
	box_open(&box, TB_AIO_URING);
	for (int object = 0; object < 50; object++)
		(void) use(&box, object, 1);
	/* gone while it is used */
	wipe_directory();
	settle(&box);
	for (int object = 0; object < 50; object++)
		(void) use(&box, object, 1);
	box_close(&box);
}

/* Threat 17: a directory that is not ours alone is not used. */
static void
not_ours(void **state)
{
	Rig			rig;
	TbAio	   *aio;
	TbCache    *cache;
	TbError		err;

	new_directory();
	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_aio_new(rig.loop, rig.pool, TB_AIO_SYNC, &aio, NULL), TB_OK);
	assert_int_equal(chmod(directory, 0750), 0);
	assert_int_equal(tb_cache_open(rig.loop, aio, directory, CACHE_BYTES, &cache, &err), TB_E_INVALID);
	assert_true(err.hint[0] != '\0');
	assert_int_equal(chmod(directory, 0700), 0);
	assert_int_equal(tb_cache_open(rig.loop, aio, directory, 1000, &cache, &err), TB_E_INVALID);
	assert_int_equal(tb_cache_open(rig.loop, aio, "/nonexistent/x", CACHE_BYTES, &cache, &err), TB_E_NOT_FOUND);
	tb_aio_free(aio);
	rig_close(&rig);
	wipe_directory();
}

/* Who asks for what another fetches waits for it; who is canceled or abandons leaves it to the next. */
static void
one_fetch(void **state)
{
	Box			box;
	int			done = 0;
	TbCacheGet	get[5];

	new_directory();
	box_open(&box, TB_AIO_URING);
	for (int i = 0; i < 5; i++)
	{
		get[i] = (TbCacheGet) {.max_age_ms = 60000, .done = got, .arg = &done};
		key_of(3, &get[i].key);
		tb_cache_get(box.cache, &get[i]);
	}
	pump_until(&box.rig, &done, 1);
	settle(&box);
	assert_int_equal(done, 1);
	assert_int_equal(get[0].found, TB_CACHE_MISS);
	abandon(&box, 3);			/* its fetch failed */
	pump_until(&box.rig, &done, 2);
	settle(&box);
	assert_int_equal(done, 2);
	for (int i = 1; i < 5; i++)
		if (get[i].impl != NULL)
		{
			tb_cache_cancel(box.cache, &get[i]);	/* one that waits */
			break;
		}
	put(&box, 3, 1);
	pump_until(&box.rig, &done, 4);
	for (int i = 0, hits = 0; i < 5; i++)
	{
		hits += get[i].found == TB_CACHE_HIT;
		assert_true(i < 4 || hits == 2);
		tb_buf_unref(get[i].data);
	}
	/* canceled before it was told that it is the fetcher */
	key_of(4, &get[0].key);
	tb_cache_get(box.cache, &get[0]);
	tb_cache_cancel(box.cache, &get[0]);
	assert_int_equal(ask(&box, 4, 1, 0), TB_CACHE_MISS);
	box_close(&box);
	wipe_directory();
}

/* The same between processes; a fetcher that is killed is waited for no longer than its lease. */
static void
one_fetch_of_all(void **state)
{
	Box			box;
	int			pipes[2];
	pid_t		child;
	char		byte;
	int64_t		start;

	new_directory();
	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (child == 0)
	{
		box_open(&box, TB_AIO_SYNC);
		if (ask(&box, 9, 1, 0) != TB_CACHE_MISS || write(pipes[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			(void) tb_loop_pump(box.rig.loop, 100);
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	box_open(&box, TB_AIO_SYNC);
	{
		int			done = 0;
		TbCacheGet	get = {.done = got, .arg = &done, .max_age_ms = 60000};

		key_of(9, &get.key);
		tb_cache_get(box.cache, &get);
		for (int i = 0; i < 40; i++)
			(void) tb_loop_pump(box.rig.loop, 10);
		assert_int_equal(done, 0);	/* the other fetches */
		start = tb_now_ns();
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		pump_until(&box.rig, &done, 1);
		assert_int_equal(get.found, TB_CACHE_MISS);
		assert_true(tb_now_ns() - start < INT64_C(1000000) * TB_CACHE_LEASE_MS);
		abandon(&box, 9);
	}
	box_close(&box);
	close(pipes[0]);
	close(pipes[1]);
	wipe_directory();
}

static void
hammer(uint64_t random)
{
	Box			box;

	box_open(&box, random % 2 == 0 ? TB_AIO_SYNC : TB_AIO_URING);
	for (;;)
	{
		int			object = (int) (tb_mix64(random++) % 600);

		(void) use(&box, object, (int) (tb_mix64(random++) % 2));
	}
}

/* Processes that use one cache are killed at any time: what is found afterwards, and by the others,
 * is right (use checks). */
static void
killed(void **state)
{
	pid_t		children[4] = {0};
	uint64_t	random = 11;
	Box			box;
	int			hits = 0;

	new_directory();
	for (int round = 0; round < 120; round++)
	{
		int			i = round % 4;
		int			how;
		struct timespec nap = {.tv_nsec = (long) (tb_mix64(random++) % 15000000)};

		if (children[i] != 0)
		{
			assert_int_equal(kill(children[i], SIGKILL), 0);
			assert_int_equal(waitpid(children[i], &how, 0), children[i]);
			assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);	/* not by a failed check */
		}
		children[i] = fork();
		if (children[i] == 0)
			hammer(random + (uint64_t) round * 1000);
		(void) nanosleep(&nap, NULL);
	}
	for (int i = 0; i < 4; i++)
	{
		assert_int_equal(kill(children[i], SIGKILL), 0);
		(void) waitpid(children[i], NULL, 0);
	}
	box_open(&box, TB_AIO_SYNC);
	for (int object = 0; object < 600; object++)
		hits += use(&box, object, -1);
	assert_true(hits > 50);
	box_close(&box);
	wipe_directory();
}

/* P9: a disk that is full turns the cache off, once, and nothing else happens. */
static void
full_disk(void **state)
{
	Box			box;
	struct rlimit limit;
	struct rlimit old;
	TbError		err;

	new_directory();
	box_open(&box, TB_AIO_SYNC);
	use(&box, 1, 1);
	settle(&box);
	assert_false(tb_cache_trouble(box.cache, &err));
	(void) signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = old;
	limit.rlim_cur = 8192;		/* writes beyond fail with EFBIG */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int object = 2; object < 40; object++)
		(void) use(&box, object, 1);
	settle(&box);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(tb_cache_trouble(box.cache, &err));
	assert_true(err.hint[0] != '\0');
	assert_false(tb_cache_trouble(box.cache, &err));
	assert_int_equal(ask(&box, 1, 1, 0), TB_CACHE_MISS);	/* off */
	box_close(&box);
	wipe_directory();
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_use),
		cmocka_unit_test(ages_and_versions),
		cmocka_unit_test(scans_pass),
		cmocka_unit_test(tampered),
		cmocka_unit_test(maltreated),
		cmocka_unit_test(not_ours),
		cmocka_unit_test(one_fetch),
		cmocka_unit_test(one_fetch_of_all),
		cmocka_unit_test(killed),
		cmocka_unit_test(full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
