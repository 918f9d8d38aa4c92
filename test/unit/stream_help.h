/*
 * What the streamer's tests share: a small Zarr store with a dataset, the program, and both ends of
 * its sockets.
 */
#ifndef TB_TEST_STREAM_HELP_H
#define TB_TEST_STREAM_HELP_H

#include "stream/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELP static inline __attribute__((unused))

#define N_ROWS 100
#define X_ROWS 6
#define X_COLS 8
#define X_BYTES (X_ROWS * X_COLS * 4)
#define Y_COLS 5

/* ---- the store: x float32 [100,6,8] in chunks [1,6,8], y uint8 [100,5] in chunks [10,5] ---- */

HELP float
x_at(uint64_t row, int i)
{
	return (float) row * 1000 + (float) i;
}

HELP uint8_t
y_at(uint64_t row, int i)
{
	return (uint8_t) (row * 7 + (uint64_t) i);
}

HELP void
put_file(const char *root, const char *name, const void *bytes, size_t len)
{
	char		path[512];
	FILE	   *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = strchr(path + strlen(root) + 1,
							  '/'); slash != NULL; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		(void) mkdir(path, 0755);
		*slash = '/';
	}
	file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

#define META(shape, chunk, type, fill) "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":" shape \
	",\"data_type\":\"" type "\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":" chunk "}}," \
	"\"chunk_key_encoding\":{\"name\":\"default\",\"configuration\":{\"separator\":\"/\"}},\"fill_value\":" fill \
	",\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}],\"attributes\":{}}"

HELP void
make_store(const char *root)
{
	static const char x_meta[] = META("[100,6,8]", "[1,6,8]", "float32", "0.0");
	static const char y_meta[] = META("[100,5]", "[10,5]", "uint8", "0");
	float		x[X_ROWS * X_COLS];
	uint8_t		y[10 * Y_COLS];
	char		name[64];

	put_file(root, "x/zarr.json", x_meta, strlen(x_meta));
	put_file(root, "y/zarr.json", y_meta, strlen(y_meta));
	for (uint64_t row = 0; row < N_ROWS; row++)
	{
		for (int i = 0; i < X_ROWS * X_COLS; i++)
			x[i] = x_at(row, i);
		snprintf(name, sizeof(name), "x/c/%d/0/0", (int) row);
		put_file(root, name, x, sizeof(x));
		for (int i = 0; i < Y_COLS; i++)
			y[row % 10 * Y_COLS + (uint64_t) i] = y_at(row, i);
		snprintf(name, sizeof(name), "y/c/%d/0", (int) row / 10);
		if (row % 10 == 9)
			put_file(root, name, y, sizeof(y));
	}
}

/*
 * A dataset of the first n rows: x, y and three scalars; its arrays are at url, NULL: where it lies
 * itself. Gives its hash.
 */
HELP void
make_dataset_at(const char *root, const char *array_url, uint64_t n, char hash[65])
{
	const TbDatasetColumn columns[] = {
		{.name = (char *) "x", .dtype = TB_F32, .ndim = 3, .shape = {1, X_ROWS, X_COLS}},
		{.name = (char *) "label", .scalar = TB_SCALAR_INT8},
		{.name = (char *) "y", .dtype = TB_U8, .ndim = 2, .shape = {1, Y_COLS}},
		{.name = (char *) "w", .scalar = TB_SCALAR_FLOAT8},
		{.name = (char *) "name", .scalar = TB_SCALAR_TEXT},
	};
	char		url[300];
	char		key[128];
	TbDatasetArray x = {.server = (char *) "s", .url = url, .path = (char *) "x", .mask_fill = -1,
						.stored = TB_F32,
	.ndim = 3, .shape = {N_ROWS, X_ROWS, X_COLS}};
	TbDatasetArray y = {.server = (char *) "s", .url = url, .path = (char *) "y", .mask_fill = -1,
						.stored = TB_U8,
	.ndim = 2, .shape = {N_ROWS, Y_COLS}};
	TbDatasetWriter *writer;
	TbBuf	   *file;
	uint32_t	id;

	snprintf(url, sizeof(url), "%s%s", array_url != NULL ? array_url : "file://",
			 array_url != NULL ? "" : root);
	assert_int_equal(tb_dataset_writer_new(columns, 5, &writer, NULL), TB_OK);
	assert_int_equal(tb_dataset_writer_array(writer, &x, &id, NULL), TB_OK);
	assert_int_equal(tb_dataset_writer_array(writer, &y, &id, NULL), TB_OK);
	for (uint64_t row = 0; row < n; row++)
	{
		TbDatasetCell cells[5] = {{.array = 0, .start = {row}}, {.i64 = (int64_t) row - 50},
		{.array = 1, .start = {row}}, {.f64 = (double) row / 10,
									   .null = row == 3}, {.text = "ab\"c", .text_len = row % 5}};

		assert_int_equal(tb_dataset_writer_row(writer, cells, NULL), TB_OK);
	}
	assert_int_equal(tb_dataset_writer_finish(writer, "{}", &file, hash, NULL), TB_OK);
	tb_dataset_key(hash, key, sizeof(key));
	put_file(root, key, file->data, file->len);
	tb_buf_unref(file);
	tb_dataset_writer_free(writer);
}

HELP void
make_dataset(const char *root, uint64_t n, char hash[65])
{
	make_dataset_at(root, NULL, n, hash);
}

/* ---- the program ---- */

typedef struct Streamer
{
	char		root[256];		/* folder of the store and the sockets */
	char		hash[65];
	char		control[300];
	char		client[300];
	pid_t		pid;
	int			lifeline;		/* write end */
} Streamer;

HELP int
connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path));
	if (connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

HELP const char *
program(void)
{
	static char path[600];
	const char *given = getenv("TB_STREAMER");
	ssize_t		n;

	if (given != NULL)
		return given;
	n = readlink("/proc/self/exe", path, 500);
	assert_true(n > 0);
	path[n] = '\0';
	*strrchr(path, '/') = '\0';
	*strrchr(path, '/') = '\0';
	strcat(path, "/tensorbank_streamer");
	return path;
}

/* Start it; extra options end with NULL. */
HELP void
start_streamer(Streamer *s, const char *const *extra)
{
	char		parent[16];
	char		lifeline[16];
	const char *arguments[32] = {program(), "--control", s->control, "--client", s->client,
								 "--mode", "0777",
	"--threads", "2", "--parent", parent, "--lifeline", lifeline};
	int			n = 13;
	int			pipe_fds[2];

	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	snprintf(parent, sizeof(parent), "%d", (int) getpid());
	snprintf(lifeline, sizeof(lifeline), "%d", pipe_fds[0]);
	while (extra != NULL && *extra != NULL)
		arguments[n++] = *extra++;
	arguments[n] = NULL;
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0)
	{
		(void) fcntl(pipe_fds[0], F_SETFD, 0);
		execv(arguments[0], (char *const *) arguments);
		_exit(127);
	}
	close(pipe_fds[0]);
	s->lifeline = pipe_fds[1];
	for (int i = 0; i < 1000; i++)
	{
		int			fd = connect_to(s->control);

		if (fd >= 0)
		{
			close(fd);
			return;
		}
		assert_int_equal(waitpid(s->pid, NULL, WNOHANG), 0);
		usleep(10000);
	}
	fail_msg("the streamer does not answer");
}

/* Wait for its end, at most ten seconds; gives the wait status. */
HELP int
await_end(Streamer *s)
{
	int			status = 0;

	for (int i = 0; i < 1000; i++)
	{
		if (waitpid(s->pid, &status, WNOHANG) == s->pid)
		{
			s->pid = 0;
			close(s->lifeline);
			return status;
		}
		usleep(10000);
	}
	(void) kill(s->pid, SIGKILL);
	fail_msg("the streamer does not end");
	return -1;
}

/* A clean end is part of every test: sanitizers report by it. */
HELP void
stop_streamer(Streamer *s)
{
	int			status;

	(void) kill(s->pid, SIGTERM);
	status = await_end(s);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

HELP void
new_root(Streamer *s)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->root, sizeof(s->root), "/tmp/tb-stream-XXXXXX");
	assert_non_null(mkdtemp(s->root));
	snprintf(s->control, sizeof(s->control), "%s/control", s->root);
	snprintf(s->client, sizeof(s->client), "%s/client", s->root);
	make_store(s->root);
	make_dataset(s->root, N_ROWS, s->hash);
}

HELP void
drop_root(Streamer *s)
{
	char		command[300];

	snprintf(command, sizeof(command), "rm -rf '%s'", s->root);
	assert_int_equal(system(command), 0);
}

/* ---- talking to it ---- */

HELP TbWire *
dial(const char *path)
{
	TbWire	   *wire;
	int			fd = connect_to(path);

	assert_true(fd >= 0);
	assert_int_equal(tb_wire_new(fd, &wire, NULL), TB_OK);
	return wire;
}

HELP void
tell(TbWire *wire, const char *request)
{
	assert_int_equal(tb_wire_send(wire, request, strlen(request), -1, NULL), TB_OK);
	while (tb_wire_flush(wire, NULL) == TB_AGAIN)
		usleep(1000);
}

/* Next reply, or NULL at the end of the connection. */
HELP TbJson *
hear(TbWire *wire, int *fd)
{
	TbJson	   *reply;
	TbStatus	status;

	while ((status = tb_wire_receive(wire, &reply, fd, NULL)) == TB_AGAIN)
	{
		struct pollfd poll_fd = {.fd = tb_wire_fd(wire), .events = POLLIN};

		assert_int_equal(poll(&poll_fd, 1, 20000), 1);
	}
	return status == TB_OK ? reply : NULL;
}

HELP TbJson *
ask(TbWire *wire, const char *request)
{
	tell(wire, request);
	return hear(wire, NULL);
}

HELP void
expect_ok(TbJson *reply)
{
	bool		ok = false;

	if (reply == NULL || !tb_json_get_bool(reply, "ok", &ok) || !ok)
		fail_msg("not ok: %s", reply != NULL ? tb_json_text(reply) : "end of connection");
	tb_json_free(reply);
}

/* The error in a reply, which is freed; code and a part of message or detail must be these. */
HELP TbError
expect_error(TbJson *reply, const char *code, const char *part)
{
	TbJson	   *object;
	const char *got;
	TbError		error;

	assert_non_null(reply);
	if (!tb_json_get(reply, "error", &object) || !tb_json_get_string(object, "code", &got))
		fail_msg("no error: %s", tb_json_text(reply));
	tb_error_from_json(object, &error);
	if (strcmp(got, code) != 0 || (strstr(error.message, part) == NULL &&
								   strstr(error.detail, part) == NULL))
		fail_msg("another error: %s", tb_json_text(reply));
	tb_json_free(reply);
	return error;
}

HELP int64_t
int_of(const TbJson *reply, const char *name)
{
	int64_t		number = -1;

	if (!tb_json_get_int(reply, name, &number))
		fail_msg("no \"%s\": %s", name, tb_json_text((TbJson *) reply));
	return number;
}

HELP void
text_of(const TbJson *reply, const char *name, char *text, size_t bytes)
{
	const char *found = NULL;

	if (!tb_json_get_string(reply, name, &found))
		fail_msg("no \"%s\": %s", name, tb_json_text((TbJson *) reply));
	snprintf(text, bytes, "%s", found);
}

HELP TbWire *
dial_control(const Streamer *s)
{
	TbWire	   *wire = dial(s->control);
	char		hello[160];

	snprintf(hello, sizeof(hello),
			 "{\"op\":\"hello\",\"version\":1,\"pid\":%d,\"role\":\"me\",\"user\":10,\"database\":\"d\"}",
			 (int) getpid());
	expect_ok(ask(wire, hello));
	return wire;
}

/* "open" with options such as "\"batch_size\":4"; the reply is the caller's. */
HELP TbJson *
open_reply(const Streamer *s, TbWire *control, const char *hash, const char *options)
{
	char		request[2000];

	snprintf(request, sizeof(request),
			 "{\"op\":\"open\",\"dataset\":{\"url\":\"file://%s\","
			 "\"key\":\".tensorbank/datasets/%s.tbd\",\"hash\":\"%s\"},"
			 "\"sources\":[{\"server\":\"s\",\"url\":\"file://%s\"}],%s}", s->root, hash, hash, s->root, options);
	return ask(control, request);
}

typedef struct Opened
{
	int64_t		id;
	char		token[64];
	int64_t		batches;
} Opened;

HELP Opened
open_stream(const Streamer *s, TbWire *control, const char *options)
{
	TbJson	   *reply = open_reply(s, control, s->hash, options);
	Opened		opened;

	assert_non_null(reply);
	opened.id = int_of(reply, "stream");
	opened.batches = int_of(reply, "batches");
	text_of(reply, "token", opened.token, sizeof(opened.token));
	assert_int_equal(strlen(opened.token), 32);
	tb_json_free(reply);
	return opened;
}

/* A client that redeemed a token. */
typedef struct Client
{
	TbWire	   *wire;
	uint8_t    *ring;
	size_t		bytes;
	int64_t		slots;
	int64_t		batches;
	int			fd;
} Client;

HELP Client
redeem(const Streamer *s, const char *token)
{
	Client		client = {.wire = dial(s->client)};
	char		request[128];
	struct stat st;
	TbJson	   *reply;

	snprintf(request, sizeof(request), "{\"op\":\"redeem\",\"token\":\"%s\"}", token);
	tell(client.wire, request);
	reply = hear(client.wire, &client.fd);
	assert_non_null(reply);
	assert_true(client.fd >= 0);
	client.slots = int_of(reply, "slots");
	client.batches = int_of(reply, "batches");
	assert_int_equal(fstat(client.fd, &st), 0);
	client.bytes = (size_t) st.st_size;
	assert_int_equal(client.bytes, client.slots * int_of(reply, "slot_bytes"));
	client.ring = mmap(NULL, client.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, client.fd, 0);
	assert_true(client.ring != MAP_FAILED);
	tb_json_free(reply);
	return client;
}

HELP void
hang_up(Client *client)
{
	(void) munmap(client->ring, client->bytes);
	close(client->fd);
	tb_wire_free(client->wire);
}

HELP void
give_slot(TbWire *wire, int64_t stream, int64_t slot, int64_t generation)
{
	char		request[128];

	snprintf(request, sizeof(request),
			 "{\"op\":\"release\",\"stream\":%lld,\"slot\":%lld,\"generation\":%lld}", (long long) stream,
			 (long long) slot, (long long) generation);
	tell(wire, request);
}

/* Bytes, shape and scalars of a batch in a mapped ring are those of these dataset rows. */
HELP void
check_batch(const TbJson *batch, const uint8_t *ring, const uint64_t *rows, uint32_t n)
{
	TbJson	   *tensors;
	TbJson	   *scalars;
	TbJson	   *labels;
	TbJson	   *weights;

	assert_int_equal(int_of(batch, "samples"), n);
	assert_true(tb_json_get(batch, "tensors", &tensors) && tb_json_get(batch, "scalars", &scalars));
	assert_int_equal(tb_json_length(tensors), 2);
	assert_true(tb_json_get(scalars, "label", &labels) && tb_json_get(scalars, "w", &weights));
	for (int t = 0; t < 2; t++)
	{
		const TbJson *tensor = tb_json_at(tensors, (size_t) t);
		const uint8_t *at = ring + int_of(tensor, "offset");
		size_t		sample = t == 0 ? X_BYTES : Y_COLS;
		TbJson	   *shape;
		int64_t		extent;

		assert_int_equal(int_of(tensor, "offset") % 64, 0);
		assert_int_equal(int_of(tensor, "bytes"), n * sample);
		assert_true(tb_json_get(tensor, "shape", &shape) && tb_json_as_int(tb_json_at(shape, 0),
																		   &extent));
		assert_int_equal(extent, n);
		assert_int_equal(tb_json_length(shape), t == 0 ? 4 : 3);
		for (uint32_t i = 0; i < n; i++)
			for (int e = 0; e < (t == 0 ? X_ROWS * X_COLS : Y_COLS); e++)
			{
				float		x;

				if (t == 1)
				{
					assert_int_equal(at[i * sample + (size_t) e], y_at(rows[i], e));
					continue;
				}
				memcpy(&x, at + i * sample + (size_t) e * 4, 4);
				assert_true(x == x_at(rows[i], e));
			}
	}
	for (uint32_t i = 0; i < n; i++)
	{
		int64_t		label;
		double		weight;

		assert_true(tb_json_as_int(tb_json_at(labels, i), &label));
		assert_int_equal(label, (int64_t) rows[i] - 50);
		if (rows[i] == 3)
			assert_int_equal(tb_json_type(tb_json_at(weights, i)), TB_JSON_NULL);
		else
		{
			assert_true(tb_json_as_double(tb_json_at(weights, i), &weight));
			assert_true(weight == (double) rows[i] / 10);
		}
	}
}

/* How many streams the streamer has. */
HELP size_t
count_streams(TbWire *control)
{
	TbJson	   *reply = ask(control, "{\"op\":\"streams\"}");
	TbJson	   *list;
	size_t		n;

	assert_true(tb_json_get(reply, "streams", &list));
	n = tb_json_length(list);
	tb_json_free(reply);
	return n;
}

HELP void
await_streams(TbWire *control, size_t n)
{
	for (int i = 0; i < 1000 && count_streams(control) != n; i++)
		usleep(5000);
	assert_int_equal(count_streams(control), n);
}

/* One streamer for a test. */
HELP int
streamer_setup(void **state)
{
	Streamer   *s = malloc(sizeof(*s));

	new_root(s);
	start_streamer(s, NULL);
	*state = s;
	return 0;
}

HELP int
streamer_teardown(void **state)
{
	Streamer   *s = *state;

	if (s->pid != 0)
		stop_streamer(s);
	drop_root(s);
	free(s);
	return 0;
}

#endif
