/* Frames over a socket pair: cut anywhere, with descriptors, too long, garbage, and the end. */
#include "stream/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Pair
{
	TbWire	   *a;
	TbWire	   *b;
	int			raw;			/* of a, for tests that write by hand */
} Pair;

static int
setup(void **state)
{
	Pair	   *pair = calloc(1, sizeof(*pair));
	int			fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(tb_wire_new(fds[0], &pair->a, NULL), TB_OK);
	assert_int_equal(tb_wire_new(fds[1], &pair->b, NULL), TB_OK);
	pair->raw = fds[0];
	*state = pair;
	return 0;
}

static int
teardown(void **state)
{
	Pair	   *pair = *state;

	tb_wire_free(pair->a);
	tb_wire_free(pair->b);
	free(pair);
	return 0;
}

static void
expect_number(TbWire *wire, int64_t want, int *fd)
{
	TbJson	   *doc;
	TbError		err;
	int64_t		n;

	assert_int_equal(tb_wire_receive(wire, &doc, fd, &err), TB_OK);
	assert_true(tb_json_get_int(doc, "n", &n));
	assert_int_equal(n, want);
	tb_json_free(doc);
}

static void
send_number(TbWire *wire, int n, int fd)
{
	char		text[32];

	snprintf(text, sizeof(text), "{\"n\":%d}", n);
	assert_int_equal(tb_wire_send(wire, text, strlen(text), fd, NULL), TB_OK);
}

static void
many_frames(void **state)
{
	Pair	   *pair = *state;
	TbJson	   *doc;

	assert_int_equal(tb_wire_receive(pair->b, &doc, NULL, NULL), TB_AGAIN);
	for (int i = 0; i < 100; i++)
		send_number(pair->a, i, -1);
	assert_true(tb_wire_wants_write(pair->a));
	assert_int_equal(tb_wire_flush(pair->a, NULL), TB_OK);
	assert_false(tb_wire_wants_write(pair->a));
	for (int i = 0; i < 100; i++)
		expect_number(pair->b, i, NULL);
	assert_int_equal(tb_wire_receive(pair->b, &doc, NULL, NULL), TB_AGAIN);
}

/* A descriptor comes with its frame, however the frames around it were joined on the way. */
static void
descriptors(void **state)
{
	Pair	   *pair = *state;
	struct stat before[3];

	for (int round = 0; round < 3; round++)
	{
		int			fd = open(round == 0 ? "/dev/null" : round == 1 ? "/dev/zero" : "/dev/full",
							  O_RDONLY);

		assert_true(fd >= 0);
		assert_int_equal(fstat(fd, &before[round]), 0);
		send_number(pair->a, 3 * round, -1);
		send_number(pair->a, 3 * round + 1, fd);
		send_number(pair->a, 3 * round + 2, -1);
		close(fd);
	}
	assert_int_equal(tb_wire_flush(pair->a, NULL), TB_OK);
	for (int n = 0; n < 9; n++)
	{
		struct stat after;
		int			fd;

		expect_number(pair->b, n, &fd);
		assert_int_equal(fd >= 0, n % 3 == 1);
		if (fd < 0)
			continue;
		assert_int_equal(fstat(fd, &after), 0);
		assert_int_equal(after.st_rdev, before[n / 3].st_rdev);
		assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
		close(fd);
	}
}

/* Descriptors that nobody takes are closed with the wire; a flood of them ends it. */
static void
unwanted_descriptors(void **state)
{
	Pair	   *pair = *state;
	int			fd = open("/dev/null", O_RDONLY);
	TbJson	   *doc;
	TbError		err;

	send_number(pair->a, 1, fd);
	assert_int_equal(tb_wire_flush(pair->a, NULL), TB_OK);
	expect_number(pair->b, 1, NULL);
	for (int i = 0; i < 10; i++)
	{
		struct iovec iov = {"", 1};
		union
		{
			struct cmsghdr align;
			char		bytes[CMSG_SPACE(sizeof(int))];
		}			control;
		struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);

		iov.iov_base = i == 0 ? "\x20" : "\0";
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(int));
		assert_int_equal(sendmsg(pair->raw, &message, 0), 1);
	}
	assert_int_equal(tb_wire_receive(pair->b, &doc, NULL, &err), TB_E_PROTOCOL);
	close(fd);
}

static void
cut_frames(void **state)
{
	static const char bytes[] = "\x09\0\0\0{\"n\": 42}\x07\0\0\0{\"n\":7}";
	Pair	   *pair = *state;
	TbJson	   *doc;
	size_t		total = sizeof(bytes) - 1;

	for (size_t i = 0; i < total; i++)
	{
		assert_int_equal(send(pair->raw, bytes + i, 1, 0), 1);
		if (i == 12)
			expect_number(pair->b, 42, NULL);
		else if (i == total - 1)
			expect_number(pair->b, 7, NULL);
		else
			assert_int_equal(tb_wire_receive(pair->b, &doc, NULL, NULL), TB_AGAIN);
	}
}

/* Larger than any socket buffer: both sides take turns. */
static void
large_frame(void **state)
{
	Pair	   *pair = *state;
	size_t		len = 6u << 20;
	char	   *text = malloc(len);
	TbJson	   *doc = NULL;
	const char *pad;
	TbStatus	status = TB_AGAIN;

	memset(text, 'x', len);
	memcpy(text, "{\"pad\":\"", 8);
	memcpy(text + len - 2, "\"}", 2);
	assert_int_equal(tb_wire_send(pair->a, text, len, -1, NULL), TB_OK);
	for (int i = 0; i < 10000 && status == TB_AGAIN; i++)
	{
		assert_int_not_equal(tb_wire_flush(pair->a, NULL), TB_E_LOST);
		status = tb_wire_receive(pair->b, &doc, NULL, NULL);
	}
	assert_int_equal(status, TB_OK);
	assert_true(tb_json_get_string(doc, "pad", &pad));
	assert_int_equal(strlen(pad), len - 10);
	tb_json_free(doc);
	free(text);
}

static void
too_long(void **state)
{
	Pair	   *pair = *state;
	TbJson	   *doc;
	TbError		err;

	tb_wire_limit(pair->b, 100);
	assert_int_equal(send(pair->raw, "\x65\0\0\0", 4, 0), 4);
	assert_int_equal(tb_wire_receive(pair->b, &doc, NULL, &err), TB_E_PROTOCOL);
	assert_int_equal(tb_wire_send(pair->a, "", (size_t) TB_WIRE_MAX_FRAME + 1, -1, &err),
					 TB_E_LIMIT);
}

static void
garbage(void **state)
{
	Pair	   *pair = *state;
	TbJson	   *doc;
	TbError		err;

	assert_int_equal(send(pair->raw, "\x03\0\0\0{n}", 7, 0), 7);
	assert_int_equal(tb_wire_receive(pair->b, &doc, NULL, &err), TB_E_PROTOCOL);
	assert_null(doc);
}

/* Frames that came before the end are still given; half a frame is not. */
static void
the_end(void **state)
{
	Pair	   *pair = *state;
	TbJson	   *doc;

	assert_int_equal(send(pair->raw, "\x07\0\0\0{\"n\":1}\x07\0\0", 14, 0), 14);
	tb_wire_free(pair->a);
	pair->a = NULL;
	expect_number(pair->b, 1, NULL);
	assert_int_equal(tb_wire_receive(pair->b, &doc, NULL, NULL), TB_E_LOST);
	assert_int_equal(tb_wire_receive(pair->b, &doc, NULL, NULL), TB_E_LOST);
	send_number(pair->b, 1, -1);
	assert_int_equal(tb_wire_flush(pair->b, NULL), TB_E_LOST);
}

int
main(void)
{
#define WIRE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		WIRE_TEST(many_frames), WIRE_TEST(descriptors), WIRE_TEST(unwanted_descriptors), WIRE_TEST(cut_frames),
		WIRE_TEST(large_frame), WIRE_TEST(too_long), WIRE_TEST(garbage), WIRE_TEST(the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
