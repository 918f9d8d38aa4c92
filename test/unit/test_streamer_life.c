/*
 * The streamer's life and its clients' deaths: whatever is killed, everything it had is freed and
 * nobody else is touched; hostile bytes end their own connection; memory has its limit.
 */
#include "stream_help.h"

#include <dirent.h>
#include <netinet/in.h>

/* A child process that redeems a token, takes a batch, says so, and waits to be killed. */
static pid_t
start_client(const Streamer *s, const char *token)
{
	int			ready[2];
	char		byte;
	pid_t		pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
	{
		Client		client = redeem(s, token);

		tb_json_free(ask(client.wire, "{\"op\":\"next\"}"));
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* kill -9 of a client ends its stream alone. */
static void
client_killed(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		first = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	Opened		second = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	pid_t		pid = start_client(s, first.token);
	Client		client = redeem(s, second.token);
	char		request[100];

	assert_int_equal(count_streams(control), 2);
	(void) kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	await_streams(control, 1);
	tb_json_free(ask(client.wire, "{\"op\":\"next\"}"));
	snprintf(request, sizeof(request), "{\"op\":\"next\",\"stream\":%lld}", (long long) first.id);
	expect_error(ask(control, request), "handle", "invalid handle");
	hang_up(&client);
	await_streams(control, 0);
	tb_wire_free(control);
}

/* The end of a session ends its streams and loads, also one that a client reads. */
static void
session_ends(void **state)
{
	Streamer   *s = *state;
	TbWire	   *watcher = dial_control(s);
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	Opened		idle = open_stream(s, control, "\"batch_size\":10,\"prefetch\":2");
	Client		client = redeem(s, opened.token);

	(void) idle;
	assert_int_equal(count_streams(watcher), 2);
	tb_wire_free(control);
	await_streams(watcher, 0);
	expect_error(ask(client.wire, "{\"op\":\"next\"}"), "canceled", "stream was closed");
	hang_up(&client);
	tb_wire_free(watcher);
}

static int
count_descriptors(pid_t pid)
{
	char		path[64];
	DIR		   *dir;
	int			n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

/* Clients that come and go in all ways leave no descriptor behind. */
static void
nothing_leaks(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	int			before = 0;

	for (int round = 0; round < 12; round++)
	{
		Opened		opened = open_stream(s, control, "\"batch_size\":20,\"prefetch\":3");
		Client		client = redeem(s, opened.token);

		if (round == 2)
			before = count_descriptors(s->pid);
		if (round % 3 != 0)
			tell(client.wire, "{\"op\":\"next\"}");
		if (round % 3 == 2)
			tb_json_free(hear(client.wire, NULL));
		if (round == 11)
			assert_true(count_descriptors(s->pid) <= before + 2);
		hang_up(&client);
		await_streams(control, 0);
	}
	tb_wire_free(control);
}

/* Bytes that are no protocol end the connection they came on, and no other. */
static void
hostile_bytes(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	static const struct
	{
		const char *bytes;
		size_t		len;
	}			bad[] = {
		{"\xff\xff\xff\xff", 4}, {"\x04\0\0\0null", 8}, {"\x02\0\0\0[]", 6}, {"\x02\0\0\0{]",
																			  6}, {"\0\0\0\0", 4},
		{"\x01\0\1\0", 4}, {"\x0b\0\0\0{\"op\":null}", 15}, {"\x08\0\0\0{\"op\":1}", 12},
	};

	for (int control_too = 0; control_too < 2; control_too++)
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		{
			int			fd = connect_to(control_too ? s->control : s->client);

			assert_true(fd >= 0);
			assert_int_equal(send(fd, bad[i].bytes, bad[i].len, MSG_NOSIGNAL), bad[i].len);
			close(fd);
		}
	expect_error(ask(control, "{\"op\":\"hello\",\"version\":2,\"pid\":1}"), "unsupported",
				 "versions");
	assert_int_equal(count_streams(control), 0);
	tb_wire_free(control);
	control = dial(s->control);
	expect_error(ask(control, "{\"op\":\"streams\"}"), "protocol", "hello");
	tb_wire_free(control);
	/*
	 * nobody reads, everybody asks: the streamer stops listening to that one and stays with the
	 * others
	 */
	control = dial(s->client);
	for (int i = 0; i < 3000; i++)
	{
		assert_int_equal(tb_wire_send(control, "{\"op\":\"next\"}", 13, -1, NULL), TB_OK);
		if (tb_wire_flush(control, NULL) != TB_OK)
			break;
	}
	tb_wire_free(control);
	control = dial_control(s);
	assert_int_equal(count_streams(control), 0);
	tb_wire_free(control);
}

/* Ring memory: who does not fit waits, gets it when another goes, or is told after its patience. */
static void
ring_limit(void **state)
{
	Streamer   *s = *state;
	static const char *const small[] = {"--ring-limit", "100000", "--ring-wait", "300", NULL};
	TbWire	   *control;
	TbWire	   *other;
	Opened		opened;
	char		request[100];
	TbJson	   *reply;

	stop_streamer(s);
	start_streamer(s, small);
	control = dial_control(s);
	other = dial_control(s);
	opened = open_stream(s, control, "\"batch_size\":50,\"prefetch\":6");
	reply = open_reply(s, other, s->hash, "\"batch_size\":50,\"prefetch\":6");
	assert_true(expect_error(reply, "no memory", "memory for batches").hint[0] != '\0');
	expect_error(open_reply(s, other, s->hash, "\"batch_size\":50,\"prefetch\":600"), "no memory",
				 "memory for batches");
	snprintf(request, sizeof(request), "{\"op\":\"close\",\"stream\":%lld}", (long long) opened.id);
	if (fork() == 0)
	{
		usleep(100000);
		tell(control, request);
		_exit(0);
	}
	opened = open_stream(s, other, "\"batch_size\":50,\"prefetch\":6");
	assert_int_equal(opened.batches, 2);
	(void) wait(NULL);
	tb_wire_free(control);
	tb_wire_free(other);
}

static void
sockets_gone(const Streamer *s)
{
	assert_int_equal(access(s->control, F_OK), -1);
	assert_int_equal(access(s->client, F_OK), -1);
}

/*
 * It ends when asked, when its lifeline is closed and when its parent dies, and takes its sockets
 * away.
 */
static void
ends(void **state)
{
	Streamer   *s = *state;
	struct stat st;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10");
	Client		client = redeem(s, opened.token);

	assert_int_equal(stat(s->client, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0777);
	assert_int_equal(stat(s->control, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	stop_streamer(s);
	sockets_gone(s);
	assert_null(hear(client.wire, NULL));
	hang_up(&client);
	tb_wire_free(control);
	start_streamer(s, NULL);
	close(s->lifeline);
	s->lifeline = open("/dev/null", O_RDONLY);
	assert_int_equal(await_end(s), 0);
	sockets_gone(s);
}

static void
parent_dies(void **state)
{
	Streamer   *s = *state;
	pid_t		parent;

	stop_streamer(s);
	parent = fork();
	if (parent == 0)
	{
		start_streamer(s, NULL);
		(void) kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(parent, NULL, 0), parent);
	for (int i = 0; i < 300 && (access(s->control, F_OK) == 0 || access(s->client, F_OK) == 0); i++)
		usleep(10000);
	sockets_gone(s);
	s->pid = 0;
}

/*
 * Sockets that a killed streamer left are replaced; those of a living one and other files are not.
 */
static void
stale_sockets(void **state)
{
	Streamer   *s = *state;
	Streamer	second = *s;
	const char *arguments[] = {program(), "--control", s->control, "--client", s->client, NULL};
	int			status;
	pid_t		pid = fork();

	if (pid == 0)
	{
		(void) freopen("/dev/null", "w", stderr);
		execv(arguments[0], (char *const *) arguments);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 1);
	tb_wire_free(dial_control(s));
	(void) kill(s->pid, SIGKILL);
	(void) await_end(s);
	assert_int_equal(access(s->control, F_OK), 0);
	start_streamer(s, NULL);
	tb_wire_free(dial_control(s));
	stop_streamer(s);
	put_file(s->root, "control", "precious", 8);
	pid = fork();
	if (pid == 0)
	{
		(void) freopen("/dev/null", "w", stderr);
		execv(arguments[0], (char *const *) arguments);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_int_equal(access(s->control, F_OK), 0);
	(void) second;
}

/* Handles and tokens of a life before mean nothing in the next one. */
static void
another_life(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	Opened		opened = open_stream(s, control, "\"batch_size\":10");
	char		request[300];
	char		handle[TB_HANDLE_TEXT];
	TbJson	   *batch;
	TbJson	   *tensors;
	TbWire	   *client;

	snprintf(request, sizeof(request), "{\"op\":\"next\",\"stream\":%lld}", (long long) opened.id);
	batch = ask(control, request);
	assert_true(tb_json_get(batch, "tensors", &tensors));
	text_of(tb_json_at(tensors, 0), "handle", handle, sizeof(handle));
	tb_json_free(batch);
	tb_wire_free(control);
	(void) kill(s->pid, SIGKILL);
	(void) await_end(s);
	start_streamer(s, NULL);
	control = dial_control(s);
	tb_json_free(open_reply(s, control, s->hash, "\"batch_size\":10"));
	tb_json_free(ask(control, "{\"op\":\"next\",\"stream\":1}"));
	snprintf(request, sizeof(request), "{\"op\":\"fetch\",\"handle\":\"%s\"}", handle);
	expect_error(ask(control, request), "handle", "invalid handle");
	client = dial(s->client);
	snprintf(request, sizeof(request), "{\"op\":\"redeem\",\"token\":\"%s\"}", opened.token);
	expect_error(ask(client, request), "denied", "invalid token");
	tb_wire_free(client);
	tb_wire_free(control);
}

/* A port that accepts and never says a word. */
static int
mute_server(char *url, size_t bytes)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t	len = sizeof(address);
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *) &address, len), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *) &address, &len), 0);
	snprintf(url, bytes, "http://127.0.0.1:%d/a", ntohs(address.sin_port));
	return fd;
}

/* A store that does not answer holds up nobody: its clients can die, others go on, the end is quick. */
static void
mute_store(void **state)
{
	Streamer   *s = *state;
	TbWire	   *control = dial_control(s);
	char		url[64];
	char		hash[65];
	char		request[800];
	int			fd = mute_server(url, sizeof(url));
	TbWire	   *loader = dial_control(s);
	Opened		good;
	Client		client;
	TbJson	   *reply;
	char		token[64];

	make_dataset_at(s->root, url, 20, hash);
	snprintf(request, sizeof(request), "{\"op\":\"open\",\"dataset\":{\"url\":\"file://%s\","
			 "\"key\":\".tensorbank/datasets/%s.tbd\",\"hash\":\"%s\"},"
			 "\"sources\":[{\"server\":\"s\",\"url\":\"%s\"}],\"batch_size\":4}", s->root, hash, hash, url);
	for (int round = 0; round < 2; round++)
	{
		reply = ask(control, request);
		text_of(reply, "token", token, sizeof(token));
		tb_json_free(reply);
		client = redeem(s, token);
		tell(client.wire, "{\"op\":\"next\"}");
		good = open_stream(s, control, "\"batch_size\":10");
		snprintf(token, sizeof(token), "{\"op\":\"next\",\"stream\":%lld}", (long long) good.id);
		tb_json_free(ask(control, token));
		if (round == 1)
			break;
		hang_up(&client);
		await_streams(control, 1);
	}
	snprintf(request, sizeof(request), "{\"op\":\"load\",\"source\":{\"url\":\"%s\"},\"array\":\"x\","
			 "\"start\":[0],\"count\":[1]}", url);
	tell(loader, request);
	stop_streamer(s);
	assert_null(hear(client.wire, NULL));
	assert_null(hear(loader, NULL));
	hang_up(&client);
	tb_wire_free(loader);
	tb_wire_free(control);
	close(fd);
}

int
main(void)
{
#define STREAMER_TEST(f) cmocka_unit_test_setup_teardown(f, streamer_setup, streamer_teardown)
	const struct CMUnitTest tests[] = {
		STREAMER_TEST(client_killed), STREAMER_TEST(session_ends), STREAMER_TEST(nothing_leaks),
		STREAMER_TEST(hostile_bytes), STREAMER_TEST(ring_limit), STREAMER_TEST(ends), STREAMER_TEST(parent_dies),
		STREAMER_TEST(stale_sockets), STREAMER_TEST(another_life),
		STREAMER_TEST(mute_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
