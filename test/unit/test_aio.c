/* Disk I/O by each method: random transfers against memory, short reads, errors, buffers known
 * beforehand, ending with work under way. */
#include "io_help.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "io/aio.h"

#define FILE_BYTES (1 << 20)

static void
ended(TbAioOp *op)
{
	++*(int *) op->arg;
}

static void
pump_ops(Rig *rig, const int *done, int n)
{
	pump_until(rig, done, n);
}

static int
temp_file(void)
{
	char		path[] = "/tmp/tb-aio-XXXXXX";
	int			fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	return fd;
}

static void
random_transfers(TbAioMethod method, int threads)
{
	Rig			rig;
	TbAio	   *aio;
	int			fd = temp_file();
	uint8_t    *want = calloc(1, FILE_BYTES);
	uint64_t	random = 7;

	rig_open(&rig, threads, NULL);
	assert_int_equal(tb_aio_new(rig.loop, rig.pool, method, &aio, NULL), TB_OK);
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	for (int round = 0; round < 40; round++)
	{
		TbAioOp		ops[100];
		uint8_t    *bytes[100];
		int			done = 0;
		int			n = 1 + (int) (tb_mix64(random++) % 100);
		bool		write = round % 2 == 0;

		for (int i = 0; i < n; i++)
		{
			size_t		slice = FILE_BYTES / 100;
			size_t		len = 1 + tb_mix64(random++) % slice;

			bytes[i] = malloc(len);
			for (size_t k = 0; k < len; k++)
				bytes[i][k] = (uint8_t) tb_mix64(random + k);
			ops[i] = (TbAioOp) {
				.fd = fd, .write = write, .offset = (uint64_t) i * slice, .bytes = bytes[i], .len = len,
				.done = ended, .arg = &done
			};
			if (write)
				memcpy(want + (size_t) i * slice, bytes[i], len);
			tb_aio_submit(aio, &ops[i]);
		}
		pump_ops(&rig, &done, n);
		for (int i = 0; i < n; i++)
		{
			assert_int_equal(ops[i].result, ops[i].len);
			assert_memory_equal(bytes[i], want + ops[i].offset, ops[i].len);
			free(bytes[i]);
		}
	}
	tb_aio_free(aio);
	rig_close(&rig);
	close(fd);
	free(want);
}

static void
methods(void **state)
{
	random_transfers(TB_AIO_SYNC, 0);
	random_transfers(TB_AIO_POOL, 3);
	random_transfers(TB_AIO_URING, 0);
	random_transfers(TB_AIO_URING, 2);
}

/* P11: what cannot be had is done without. */
static void
falls_back(void **state)
{
	Rig			rig;
	TbAio	   *aio;

	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_aio_new(rig.loop, rig.pool, TB_AIO_POOL, &aio, NULL), TB_OK);
	assert_int_equal(tb_aio_method(aio), TB_AIO_SYNC);	/* a pool without threads is none */
	assert_null(tb_aio_fixed(aio));
	tb_aio_free(aio);
	assert_int_equal(tb_aio_new(rig.loop, rig.pool, TB_AIO_URING, &aio, NULL), TB_OK);
	if (tb_aio_method(aio) != TB_AIO_URING)
		assert_int_not_equal(tb_aio_why_not_uring(aio), 0);
	tb_aio_free(aio);
	rig_close(&rig);
}

static void
ends_and_errors(void **state)
{
	static const TbAioMethod all[] = {TB_AIO_SYNC, TB_AIO_POOL, TB_AIO_URING};

	for (size_t m = 0; m < 3; m++)
	{
		Rig			rig;
		TbAio	   *aio;
		int			fd = temp_file();
		int			done = 0;
		char		bytes[100] = "";
		TbAioOp		at_end = {
			.fd = fd, .offset = 10, .bytes = bytes, .len = sizeof(bytes), .done = ended, .arg = &done
		};
		TbAioOp		bad = {.fd = -1, .bytes = bytes, .len = 5, .done = ended, .arg = &done};
		TbAioOp		closed = {.write = true, .bytes = bytes, .len = 5, .done = ended, .arg = &done};
		int			read_only = open("/proc/self/stat", O_RDONLY);

		closed.fd = read_only;
		rig_open(&rig, 2, NULL);
		assert_int_equal(write(fd, "0123456789abcdef", 16), 16);
		assert_int_equal(tb_aio_new(rig.loop, rig.pool, all[m], &aio, NULL), TB_OK);
		tb_aio_submit(aio, &at_end);
		tb_aio_submit(aio, &bad);
		tb_aio_submit(aio, &closed);
		assert_int_equal(done, 0);
		pump_ops(&rig, &done, 3);
		assert_int_equal(at_end.result, 6);
		assert_memory_equal(bytes, "abcdef", 6);
		assert_int_equal(bad.result, -EBADF);
		assert_true(closed.result < 0);
		tb_aio_free(aio);
		rig_close(&rig);
		close(fd);
		close(read_only);
	}
}

static void
fixed_buffers(void **state)
{
	Rig			rig;
	TbAio	   *aio;
	TbBuf	   *bufs[TB_AIO_FIXED_COUNT + 1];
	int			fd = temp_file();
	int			n = 0;

	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_aio_new(rig.loop, rig.pool, TB_AIO_URING, &aio, NULL), TB_OK);
	while ((bufs[n] = tb_aio_fixed(aio)) != NULL)
		n++;
	assert_true(n == 0 || n == TB_AIO_FIXED_COUNT);
	if (n > 0)
	{
		int			done = 0;
		TbAioOp		write = {
			.fd = fd, .write = true, .bytes = bufs[0]->data + 100, .len = 5000, .done = ended, .arg = &done
		};
		TbAioOp		read = {.fd = fd, .bytes = bufs[1]->data, .len = 5000, .done = ended, .arg = &done};

		memset(bufs[0]->data, 'x', TB_AIO_FIXED_BYTES);
		tb_aio_submit(aio, &write);
		pump_ops(&rig, &done, 1);
		tb_aio_submit(aio, &read);
		pump_ops(&rig, &done, 2);
		assert_int_equal(read.result, 5000);
		assert_memory_equal(bufs[0]->data, bufs[1]->data, 5000);
		tb_buf_unref(bufs[0]);
		bufs[0] = tb_aio_fixed(aio);	/* the one given back */
		assert_non_null(bufs[0]);
	}
	tb_aio_free(aio);
	while (n > 0)
		tb_buf_unref(bufs[--n]);
	rig_close(&rig);
	close(fd);
}

/* Freed with work under way: it is over then, and nobody is called. */
static void
freed_early(void **state)
{
	static const TbAioMethod all[] = {TB_AIO_SYNC, TB_AIO_POOL, TB_AIO_URING};

	for (size_t m = 0; m < 3; m++)
	{
		Rig			rig;
		TbAio	   *aio;
		int			fd = temp_file();
		int			done = 0;
		TbAioOp		ops[200];
		char	   *bytes = calloc(200, 4096);

		rig_open(&rig, 2, NULL);
		assert_int_equal(tb_aio_new(rig.loop, rig.pool, all[m], &aio, NULL), TB_OK);
		for (size_t i = 0; i < 200; i++)
		{
			ops[i] = (TbAioOp) {
				.fd = fd, .write = true, .offset = i * 4096, .bytes = bytes + i * 4096, .len = 4096,
				.done = ended, .arg = &done
			};
			tb_aio_submit(aio, &ops[i]);
			if (i == 100)
				(void) tb_loop_pump(rig.loop, 0);
		}
		done = 0;
		tb_aio_free(aio);
		free(bytes);
		assert_int_equal(done, 0);
		rig_close(&rig);
		close(fd);
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(methods),
		cmocka_unit_test(falls_back),
		cmocka_unit_test(ends_and_errors),
		cmocka_unit_test(fixed_buffers),
		cmocka_unit_test(freed_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
