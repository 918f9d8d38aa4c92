/*
 * One battery that every store passes, over memory, files (inline and with pool threads) and HTTP; then what
 * only files have.
 */
#include "io_help.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "httpd.h"
#include "io/file_path.h"
#include "io/url.h"

#define BIG_BYTES ((size_t) 3 << 20)

typedef enum Kind
{
	KIND_MEM, KIND_FILE, KIND_FILE_POOL, KIND_HTTP
} Kind;

typedef struct Object
{
	const char *key;
	const uint8_t *bytes;
	size_t		len;
	char		etag[32];
} Object;

static uint8_t *big;
static const char *odd_key = "a b/%25/\xc3\xa4+&=?#;x";

static Object objects[] = {
	{"ten", (const uint8_t *) "0123456789", 10, "\"t1\""},
	{"empty", (const uint8_t *) "", 0, "\"e1\""},
	{"dir/c/0/1", (const uint8_t *) "chunk", 5, "\"c1\""},
	{"big", NULL, BIG_BYTES, "\"b1\""},
	{NULL, (const uint8_t *) "odd", 3, "\"o1\""},
};

#define N_OBJECTS (sizeof(objects) / sizeof(objects[0]))

typedef struct World
{
	Kind		kind;
	Rig			rig;
	Httpd	   *httpd;
	char		dir[64];
	TbStore    *store;
	pthread_mutex_t mu;			/* over objects[0].etag */
} World;

static int
hex(char c)
{
	return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

static void
serve_objects(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	World	   *world = arg;
	char		path[4096];
	char	   *to = path;

	for (const char *p = request->path; *p != '\0'; p++, to++)
	{
		*to = *p == '%' ? (char) (hex(p[1]) * 16 + hex(p[2])) : *p;
		p += *p == '%' ? 2 : 0;
	}
	*to = '\0';
	for (size_t i = 0; i < N_OBJECTS; i++)
	{
		HttpdObject object = {path, objects[i].bytes, objects[i].len, NULL, NULL};
		char		etag[32];

		if (strncmp(path, "/root/", 6) != 0 || strcmp(path + 6, objects[i].key) != 0)
			continue;
		pthread_mutex_lock(&world->mu);
		memcpy(etag, objects[i].etag, sizeof(etag));
		pthread_mutex_unlock(&world->mu);
		object.etag = etag;
		httpd_answer(conn, request, &object);
		return;
	}
	httpd_answer(conn, request, NULL);
}

static void
put_object(World *world, const Object *object)
{
	TbError		err;

	assert_int_equal(tb_store_put(world->store, object->key, object->bytes, object->len, false, &err), TB_OK);
}

static void
world_open(World *world, Kind kind)
{
	char		url[128];
	TbStoreSpec spec = {.url = url};
	TbError		err;

	memset(world, 0, sizeof(*world));
	world->kind = kind;
	pthread_mutex_init(&world->mu, NULL);
	rig_open(&world->rig, kind == KIND_FILE_POOL ? 2 : 0, NULL);
	(void) snprintf(world->dir, sizeof(world->dir), "/tmp/tb-store-XXXXXX");
	if (kind == KIND_MEM)
	{
		assert_int_equal(tb_store_open_mem(world->rig.io, &world->store, &err), TB_OK);
	}
	else
	{
		if (kind == KIND_HTTP)
		{
			world->httpd = httpd_start(serve_objects, world);
			(void) snprintf(url, sizeof(url), "http://127.0.0.1:%d/root/", httpd_port(world->httpd));
		}
		else
		{
			assert_non_null(mkdtemp(world->dir));
			(void) snprintf(url, sizeof(url), "file://%s/", world->dir);
		}
		assert_int_equal(tb_store_open(world->rig.io, &spec, &world->store, &err), TB_OK);
		url[strlen(url) - 1] = '\0';
		assert_string_equal(tb_store_url(world->store), url);
	}
	for (size_t i = 0; i < N_OBJECTS && kind != KIND_HTTP; i++)
		put_object(world, &objects[i]);
}

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void
world_close(World *world)
{
	tb_store_close(world->store);
	rig_close(&world->rig);
	if (world->httpd != NULL)
		httpd_stop(world->httpd);
	if (world->kind == KIND_FILE || world->kind == KIND_FILE_POOL)
		(void) nftw(world->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	pthread_mutex_destroy(&world->mu);
}

/* Give "ten" other bytes. */
static void
change_ten(World *world)
{
	pthread_mutex_lock(&world->mu);
	(void) snprintf(objects[0].etag, sizeof(objects[0].etag), "\"t%lld\"", (long long) tb_now_ns());
	pthread_mutex_unlock(&world->mu);
	if (world->kind != KIND_HTTP)
		put_object(world, &objects[0]);
}

static void
check_reads(World *world)
{
	Rig		   *rig = &world->rig;
	TbRead		r;

	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_WHOLE, 0, 10), TB_OK);
	assert_bytes(&r, "0123456789", 10);
	assert_int_equal(r.object_size, 10);
	assert_true(r.version[0] != '\0');
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_AT, 3, 4), TB_OK);
	assert_bytes(&r, "3456", 4);
	assert_int_equal(r.object_size, 10);
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_AT, 9, 1), TB_OK);
	assert_bytes(&r, "9", 1);
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_LAST, 0, 3), TB_OK);
	assert_bytes(&r, "789", 3);
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_LAST, 0, 10), TB_OK);
	assert_bytes(&r, "0123456789", 10);
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, "empty", TB_RANGE_WHOLE, 0, 100), TB_OK);
	assert_bytes(&r, "", 0);
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, "dir/c/0/1", TB_RANGE_WHOLE, 0, 100), TB_OK);
	assert_bytes(&r, "chunk", 5);
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, odd_key, TB_RANGE_WHOLE, 0, 100), TB_OK);
	assert_bytes(&r, "odd", 3);
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, "big", TB_RANGE_WHOLE, 0, BIG_BYTES), TB_OK);
	assert_bytes(&r, big, BIG_BYTES);
	drop(&r);
}

static void
check_refusals(World *world)
{
	static const char *const bad_keys[] = {
		"", "/ten", "ten/", "a//b", ".", "..", "../ten", "dir/../ten", "./ten", "dir/.", "dir/.."
	};
	Rig		   *rig = &world->rig;
	TbRead		r;

	for (size_t i = 0; i < sizeof(bad_keys) / sizeof(bad_keys[0]); i++)
		assert_int_equal(fetch_range(rig, world->store, &r, bad_keys[i], TB_RANGE_WHOLE, 0, 10), TB_E_INVALID);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_WHOLE, 0, 9), TB_E_LIMIT);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_AT, 8, 3), TB_E_CORRUPT);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_AT, 10, 1), TB_E_CHANGED);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_LAST, 0, 11), TB_E_CORRUPT);
	assert_int_equal(fetch_range(rig, world->store, &r, "empty", TB_RANGE_LAST, 0, 1), TB_E_CORRUPT);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_AT, 3, 0), TB_E_INVALID);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_LAST, 0, 0), TB_E_INVALID);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_AT, UINT64_MAX, 2), TB_E_INVALID);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_AT, INT64_MAX, 2), TB_E_INVALID);
}

static void
check_missing(World *world)
{
	static const TbRangeKind kinds[] = {TB_RANGE_WHOLE, TB_RANGE_AT, TB_RANGE_LAST};
	static const char *const keys[] = {"no", "no/such/key", "ten/below", "dir/c", "ten%20"};
	uint64_t	before = tb_store_counters(world->store).missing;
	TbRead		r;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		for (size_t k = 0; k < 3; k++)
		{
			assert_int_equal(fetch_range(&world->rig, world->store, &r, keys[i], kinds[k], 0, 4), TB_OK);
			assert_true(r.missing);
			assert_null(r.data);
		}
	assert_int_equal(tb_store_counters(world->store).missing, before + 15);
}

static void
check_versions(World *world)
{
	Rig		   *rig = &world->rig;
	char		version[96];
	TbRead		r;

	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_WHOLE, 0, 10), TB_OK);
	drop(&r);
	memcpy(version, r.version, sizeof(version));
	for (int kind = TB_RANGE_WHOLE; kind <= TB_RANGE_LAST; kind++)
	{
		memset(&r, 0, sizeof(r));
		r.key = "ten";
		r.kind = (TbRangeKind) kind;
		r.length = 10;
		r.if_version = version;
		assert_int_equal(fetch(rig, world->store, &r), TB_OK);
		assert_string_equal(r.version, version);
		drop(&r);
	}
	change_ten(world);
	for (int kind = TB_RANGE_WHOLE; kind <= TB_RANGE_LAST; kind++)
	{
		memset(&r, 0, sizeof(r));
		r.key = "ten";
		r.kind = (TbRangeKind) kind;
		r.length = 10;
		r.if_version = version;
		assert_int_equal(fetch(rig, world->store, &r), TB_E_CHANGED);
	}
}

/* Many reads at once, more than may be in flight. */
static void
check_many(World *world)
{
	enum { N = 300 };
	TbRead	   *r = calloc(N, sizeof(*r));
	TbIoCounters before = tb_store_counters(world->store);
	TbIoCounters after;
	int			done = 0;

	for (int i = 0; i < N; i++)
	{
		r[i].key = "big";
		r[i].kind = TB_RANGE_AT;
		r[i].offset = (uint64_t) i * 7919;
		r[i].length = 70000;
		r[i].done = count_done;
		r[i].arg = &done;
		tb_store_read(world->store, &r[i]);
	}
	pump_until(&world->rig, &done, N);
	for (int i = 0; i < N; i++)
	{
		assert_int_equal(r[i].status, TB_OK);
		assert_bytes(&r[i], big + r[i].offset, 70000);
		drop(&r[i]);
	}
	after = tb_store_counters(world->store);
	/* some may have come together, and none of the bytes twice for that */
	assert_int_equal(after.requests - after.hedges + after.merged,
					 before.requests - before.hedges + before.merged + N);
	if (after.merged == before.merged && after.hedges == before.hedges)
		assert_int_equal(after.bytes, before.bytes + N * UINT64_C(70000));
	else
		assert_true(after.bytes <= before.bytes + (N + after.hedges) * UINT64_C(70000));
	assert_int_equal(after.retries, before.retries);
	free(r);
}

/* Cancel in every state; what is canceled is not called, what is not is. */
static void
check_cancel(World *world)
{
	enum { N = 200 };
	TbRead	   *r = calloc(N, sizeof(*r));
	int			done = 0;
	int			canceled = 0;

	for (int i = 0; i < N; i++)
	{
		r[i].key = i % 10 == 9 ? "../bad" : "big";
		r[i].kind = TB_RANGE_AT;
		r[i].offset = (uint64_t) i;
		r[i].length = 100000;
		r[i].done = count_done;
		r[i].arg = &done;
		tb_store_read(world->store, &r[i]);
	}
	for (int i = 0; i < N; i += 2)
	{
		if (i % 20 == 0)
			(void) tb_loop_pump(world->rig.loop, 1);
		canceled += r[i].impl != NULL;
		tb_store_cancel(world->store, &r[i]);
		tb_store_cancel(world->store, &r[i]);
	}
	pump_until(&world->rig, &done, N - canceled);
	assert_int_equal(done, N - canceled);
	for (int i = 0; i < N; i++)
	{
		if (r[i].data != NULL)
			assert_bytes(&r[i], big + i, 100000);
		drop(&r[i]);
	}
	free(r);
}

typedef struct Chain
{
	World	   *world;
	TbRead		read;
	TbRead		other;
	int			left;
	int			done;
	int			other_done;
} Chain;

static void
chain_done(TbRead *read)
{
	Chain	   *chain = read->arg;

	drop(read);
	chain->done++;
	tb_store_cancel(chain->world->store, &chain->other);
	drop(&chain->other);
	tb_store_cancel(chain->world->store, read);
	if (chain->left-- > 0)
	{
		tb_store_read(chain->world->store, read);
		tb_store_read(chain->world->store, &chain->other);
	}
}

/* done asks again for the same read, cancels another, cancels itself. */
static void
check_from_done(World *world)
{
	Chain		chain = {.world = world, .left = 20};

	chain.read = chain.other = (TbRead) {.key = "big", .kind = TB_RANGE_AT, .length = 1000};
	chain.read.done = chain_done;
	chain.read.arg = &chain;
	chain.other.done = count_done;
	chain.other.arg = &chain.other_done;
	chain.other.length = 2000000;
	tb_store_read(world->store, &chain.read);
	while (chain.done <= 20)
		(void) tb_loop_pump(world->rig.loop, 1000);
	tb_store_cancel(world->store, &chain.other);
	drop(&chain.other);
}

static void
check_close_in_flight(World *world)
{
	TbRead		r[150] = {0};
	int			done = 0;

	for (int i = 0; i < 150; i++)
	{
		r[i] = (TbRead) {.key = "big", .kind = TB_RANGE_WHOLE, .length = BIG_BYTES, .done = count_done,
			.arg = &done};
		tb_store_read(world->store, &r[i]);
	}
	(void) tb_loop_pump(world->rig.loop, 10);
	for (int i = 0; i < 150; i++)
		drop(&r[i]);
	tb_store_close(world->store);
	world->store = NULL;
	done = 0;
	for (int i = 0; i < 20; i++)
		(void) tb_loop_pump(world->rig.loop, 1);
	assert_int_equal(done, 0);
}

static void
battery(Kind kind)
{
	World		world;

	world_open(&world, kind);
	check_reads(&world);
	check_refusals(&world);
	check_missing(&world);
	check_versions(&world);
	check_many(&world);
	check_cancel(&world);
	check_from_done(&world);
	check_close_in_flight(&world);
	world_close(&world);
}

static void
battery_mem(void **state)
{
	battery(KIND_MEM);
}

static void
battery_file(void **state)
{
	battery(KIND_FILE);
}

static void
battery_file_pool(void **state)
{
	battery(KIND_FILE_POOL);
}

static void
battery_http(void **state)
{
	battery(KIND_HTTP);
}

static void
check_writes(World *world)
{
	Rig		   *rig = &world->rig;
	TbStoreNames names;
	TbError		err;
	TbRead		r;

	assert_true(tb_store_can_list(world->store) && tb_store_can_write(world->store));
	assert_int_equal(tb_store_put(world->store, "ten", "x", 1, true, &err), TB_E_CHANGED);
	assert_int_equal(fetch_range(rig, world->store, &r, "ten", TB_RANGE_WHOLE, 0, 10), TB_OK);
	assert_bytes(&r, "0123456789", 10);
	drop(&r);
	assert_int_equal(tb_store_put(world->store, "new/once", "one", 3, true, &err), TB_OK);
	assert_int_equal(tb_store_put(world->store, "new/once", "two", 3, true, &err), TB_E_CHANGED);
	assert_int_equal(tb_store_put(world->store, "new/a", "a", 1, false, &err), TB_OK);
	assert_int_equal(tb_store_put(world->store, "new/a", "bb", 2, false, &err), TB_OK);
	assert_int_equal(tb_store_put(world->store, "new/a-b", "", 0, false, &err), TB_OK);
	assert_int_equal(tb_store_put(world->store, "new/b/c", "c", 1, false, &err), TB_OK);
	assert_int_equal(tb_store_put(world->store, "new/b/d", "d", 1, false, &err), TB_OK);
	assert_int_equal(tb_store_put(world->store, "../out", "x", 1, false, &err), TB_E_INVALID);
	assert_int_equal(fetch_range(rig, world->store, &r, "new/once", TB_RANGE_WHOLE, 0, 10), TB_OK);
	assert_bytes(&r, "one", 3);
	drop(&r);
	assert_int_equal(fetch_range(rig, world->store, &r, "new/a", TB_RANGE_WHOLE, 0, 10), TB_OK);
	assert_bytes(&r, "bb", 2);
	drop(&r);

	assert_int_equal(tb_store_list(world->store, "new", &names, &err), TB_OK);
	assert_int_equal(names.n, 4);
	assert_string_equal(names.name[0], "a");
	assert_string_equal(names.name[1], "a-b");
	assert_string_equal(names.name[2], "b");
	assert_string_equal(names.name[3], "once");
	assert_true(names.is_prefix[2] && !names.is_prefix[0] && !names.is_prefix[1] && !names.is_prefix[3]);
	tb_store_free_names(&names);
	assert_int_equal(tb_store_list(world->store, "", &names, &err), TB_OK);
	assert_int_equal(names.n, 6);
	for (size_t i = 1; i < names.n; i++)
		assert_true(strcmp(names.name[i - 1], names.name[i]) < 0);
	tb_store_free_names(&names);
	assert_int_equal(tb_store_list(world->store, "nothing/here", &names, &err), TB_OK);
	assert_int_equal(names.n, 0);
	assert_int_equal(tb_store_list(world->store, "..", &names, &err), TB_E_INVALID);

	assert_int_equal(tb_store_delete(world->store, "new/a", &err), TB_OK);
	assert_int_equal(tb_store_delete(world->store, "new/a", &err), TB_OK);
	assert_int_equal(fetch_range(rig, world->store, &r, "new/a", TB_RANGE_WHOLE, 0, 10), TB_OK);
	assert_true(r.missing);
}

static void
writes_mem(void **state)
{
	World		world;

	world_open(&world, KIND_MEM);
	check_writes(&world);
	world_close(&world);
}

static void
writes_file(void **state)
{
	World		world;

	world_open(&world, KIND_FILE);
	check_writes(&world);
	world_close(&world);
}

static void
http_does_not_write(void **state)
{
	World		world;
	TbStoreNames names;
	TbError		err;

	world_open(&world, KIND_HTTP);
	assert_false(tb_store_can_list(world.store) || tb_store_can_write(world.store));
	assert_int_equal(tb_store_list(world.store, "", &names, &err), TB_E_UNSUPPORTED);
	assert_int_equal(tb_store_put(world.store, "k", "v", 1, false, &err), TB_E_UNSUPPORTED);
	assert_int_equal(tb_store_delete(world.store, "k", &err), TB_E_UNSUPPORTED);
	world_close(&world);
}

/* Nothing but regular files below the directory, and never blocking. */
static void
file_refuses(void **state)
{
	World		world;
	char		path[256];
	char		long_key[512];
	TbRead		r;
	TbError		err;
	int			root;

	world_open(&world, KIND_FILE);
	(void) snprintf(path, sizeof(path), "%s/fifo", world.dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	(void) snprintf(path, sizeof(path), "%s/link", world.dir);
	assert_int_equal(symlink("ten", path), 0);
	(void) snprintf(path, sizeof(path), "%s/outside", world.dir);
	assert_int_equal(symlink("/etc", path), 0);
	(void) snprintf(path, sizeof(path), "%s/zero", world.dir);
	assert_int_equal(symlink("/dev/zero", path), 0);

	assert_int_equal(fetch_range(&world.rig, world.store, &r, "fifo", TB_RANGE_WHOLE, 0, 9), TB_E_DENIED);
	assert_int_equal(fetch_range(&world.rig, world.store, &r, "link", TB_RANGE_WHOLE, 0, 99), TB_E_DENIED);
	assert_int_equal(fetch_range(&world.rig, world.store, &r, "zero", TB_RANGE_WHOLE, 0, 9), TB_E_DENIED);
	assert_int_equal(fetch_range(&world.rig, world.store, &r, "outside/passwd", TB_RANGE_WHOLE, 0, 99999),
					 TB_E_DENIED);
	assert_int_equal(tb_store_put(world.store, "outside/x", "x", 1, false, &err), TB_E_DENIED);
	memset(long_key, 'k', sizeof(long_key));
	long_key[300] = '\0';
	assert_int_equal(fetch_range(&world.rig, world.store, &r, long_key, TB_RANGE_WHOLE, 0, 9), TB_E_INVALID);

	/* the walk that stands in for openat2 answers the same */
	root = open(world.dir, O_PATH | O_DIRECTORY);
	assert_true(root >= 0);
	assert_int_equal(tb_beneath_walk(root, "link", O_RDONLY), -ELOOP);
	assert_int_equal(tb_beneath_walk(root, "outside/passwd", O_RDONLY), -ELOOP);
	assert_int_equal(tb_beneath_walk(root, "no/such", O_RDONLY), -ENOENT);
	assert_int_equal(tb_beneath_walk(root, "ten/below", O_RDONLY), -ENOTDIR);
	assert_int_equal(tb_beneath_open(root, "link", O_RDONLY), -ELOOP);
	assert_int_equal(tb_beneath_open(root, "outside/passwd", O_RDONLY), -ELOOP);
	close(tb_beneath_walk(root, "dir/c/0/1", O_RDONLY));
	close(root);
	world_close(&world);
}

static TbStatus
open_status(const char *url)
{
	Rig			rig;
	TbStore    *store = NULL;
	TbStoreSpec spec = {.url = url};
	TbError		err;
	TbStatus	status;

	rig_open(&rig, 0, NULL);
	status = tb_store_open(rig.io, &spec, &store, &err);
	tb_store_close(store);
	rig_close(&rig);
	return status;
}

static void
urls(void **state)
{
	static const char *const bad[] = {
		"", "relative/path", "http://", "http:///path", "http://u@h/x", "http://u:p@h/x", "http://h/x?q=1",
		"http://h/x#f", "http://h/a b", "http://h/\r\nX: y", "http://h/%00", "http://h/%zz", "http://h/../x",
		"http://h/%2e%2E/x", "http://h/./x", "http://h\\@evil/x", "file://host/dir", "file:///a/../etc",
		"file:///a%2fb", "file:///a%00b", "file:///a?b", "file://", "http://h:99999999/x", "http://[::1/x"
	};
	static const char *const unsupported[] = {"ftp://h/x", "gopher://h/", "dict://h:1/"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (open_status(bad[i]) != TB_E_INVALID)
			fail_msg("accepted: %s", bad[i]);
	for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++)
		assert_int_equal(open_status(unsupported[i]), TB_E_UNSUPPORTED);
	assert_int_equal(open_status("file:///no/such/directory"), TB_E_NOT_FOUND);
	assert_int_equal(open_status("file:///etc/passwd"), TB_E_NOT_FOUND);
	assert_int_equal(open_status("file:///"), TB_OK);
	assert_int_equal(open_status("file://localhost/tmp"), TB_OK);
	assert_int_equal(open_status("FILE:///%74mp//"), TB_OK);
	assert_int_equal(open_status("HTTPS://example.org/a%20b/"), TB_OK);
	assert_int_equal(open_status("http://[::1]:80"), TB_OK);
}

static void
key_encoding(void **state)
{
	char	   *url = tb_url_append("http://h/a%20b", "x y/\xc3\xa4/%41/a+b&c=d~e-f_g.h");

	assert_string_equal(url, "http://h/a%20b/x%20y/%C3%A4/%2541/a%2Bb%26c%3Dd~e-f_g.h");
	tb_free(url);
}

static void
redirects(void **state)
{
	static const struct
	{
		const char *from;
		const char *to;
		TbStatus	status;
	}			cases[] = {
		{"http://h/a", "http://h/b", TB_OK},
		{"http://h/a", "http://H:80/b#frag", TB_OK},
		{"http://h/a", "https://h/b", TB_OK},
		{"https://h/a", "https://h:443/b", TB_OK},
		{"https://h/a", "http://h/b", TB_E_DENIED},
		{"http://h/a", "http://other/b", TB_E_DENIED},
		{"http://h/a", "http://h.other/b", TB_E_DENIED},
		{"http://h/a", "http://h:81/b", TB_E_DENIED},
		{"http://h/a", "http://u:p@h/b", TB_E_DENIED},
		{"http://h/a", "ftp://h/b", TB_E_DENIED},
		{"http://h/a", "file:///etc/passwd", TB_E_DENIED},
		{"http://h:8080/a", "https://h/b", TB_E_DENIED},
		{"http://h/a", "http://[bad", TB_E_PROTOCOL},
		{"http://h/a/b", "../c?d=e", TB_OK},
		{"http://h/a/b", "//h/c", TB_OK},
		{"http://h/a/b", "//other/c", TB_E_DENIED},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		char	   *target = NULL;
		TbError		err;

		if (tb_url_redirect(cases[i].from, cases[i].to, NULL, NULL, &target, &err) != cases[i].status)
			fail_msg("%s to %s", cases[i].from, cases[i].to);
		assert_true((target != NULL) == (cases[i].status == TB_OK));
		assert_true(target == NULL || strchr(target, '#') == NULL);
		tb_free(target);
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(battery_mem),
		cmocka_unit_test(battery_file),
		cmocka_unit_test(battery_file_pool),
		cmocka_unit_test(battery_http),
		cmocka_unit_test(writes_mem),
		cmocka_unit_test(writes_file),
		cmocka_unit_test(http_does_not_write),
		cmocka_unit_test(file_refuses),
		cmocka_unit_test(urls),
		cmocka_unit_test(key_encoding),
		cmocka_unit_test(redirects),
	};

	big = malloc(BIG_BYTES);
	for (size_t i = 0; i < BIG_BYTES; i++)
		big[i] = (uint8_t) (tb_mix64(i / 8) >> (i % 8 * 8));
	objects[3].bytes = big;
	objects[4].key = odd_key;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
