/* Rings, the memory under them, and budgets. */
#include "stream/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void
layout(void **state)
{
	size_t		sizes[3] = {100, 0, 7};
	TbRing		ring;

	assert_int_equal(tb_ring_init(&ring, sizes, 3, 10, 4, NULL), TB_OK);
	assert_int_equal(ring.columns[0].offset, 0);
	assert_int_equal(ring.columns[1].offset, 1024);
	assert_int_equal(ring.columns[2].offset, 1024);
	assert_int_equal(ring.slot_bytes % (size_t) sysconf(_SC_PAGESIZE), 0);
	assert_int_equal(tb_ring_bytes(&ring), 4 * ring.slot_bytes);
	assert_int_equal(tb_ring_offset(&ring, 2, 2, 3), 2 * ring.slot_bytes + 1024 + 21);
	tb_ring_free(&ring);
	assert_int_equal(tb_ring_init(&ring, NULL, 0, 10, 2, NULL), TB_OK);
	assert_true(ring.slot_bytes > 0);
	tb_ring_free(&ring);
}

static void
too_large(void **state)
{
	size_t		sizes[2] = {SIZE_MAX / 8, SIZE_MAX / 8};
	TbRing		ring;
	TbError		err;

	for (uint32_t batch = 1; batch < 100; batch += 7)
		for (uint32_t slots = 2; slots <= 1024; slots *= 8)
		{
			assert_int_equal(tb_ring_init(&ring, sizes, 2, batch, slots, &err), TB_E_LIMIT);
			tb_ring_free(&ring);
		}
}

static void
life_of_a_slot(void **state)
{
	size_t		size = 8;
	TbRing		ring;

	assert_int_equal(tb_ring_init(&ring, &size, 1, 1, 2, NULL), TB_OK);
	assert_int_equal(tb_ring_begin(&ring, 0), 0);
	assert_int_equal(tb_ring_begin(&ring, 1), 1);
	assert_int_equal(tb_ring_begin(&ring, 2), -1);
	assert_int_equal(tb_ring_find(&ring, 1), 1);
	tb_ring_ready(&ring, 0);
	assert_false(tb_ring_release(&ring, 0, 1));	/* not handed out yet */
	tb_ring_hand_out(&ring, 0);
	assert_int_equal(tb_ring_find(&ring, 0), -1);
	assert_int_equal(ring.n_held, 1);
	assert_true(tb_ring_holds(&ring, 0, 1));
	assert_false(tb_ring_release(&ring, 0, 0));
	assert_false(tb_ring_release(&ring, 0, 2));
	assert_false(tb_ring_release(&ring, 2, 1));
	assert_false(tb_ring_release(&ring, UINT32_MAX, 1));
	assert_true(tb_ring_release(&ring, 0, 1));
	assert_false(tb_ring_release(&ring, 0, 1));	/* twice */
	assert_int_equal(ring.n_held, 0);
	assert_int_equal(tb_ring_begin(&ring, 2), 0);
	assert_int_equal(ring.slots[0].generation, 2);
	tb_ring_free(&ring);
}

/* Size and seals cannot be changed by who holds the descriptor; memory begins zeroed. */
static void
memory_is_sealed(void **state)
{
	TbDevMem	mem;
	TbError		err;

	assert_int_equal(tb_dev_alloc("host", 1 << 20, &mem, &err), TB_OK);
	assert_int_equal(fcntl(mem.fd, F_GET_SEALS), F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	assert_int_not_equal(ftruncate(mem.fd, 0), 0);
	assert_int_not_equal(ftruncate(mem.fd, 2 << 20), 0);
	assert_int_not_equal(fcntl(mem.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	for (size_t i = 0; i < mem.bytes; i++)
		assert_int_equal(mem.host[i], 0);
	tb_dev_free(&mem);
	tb_dev_free(&mem);
	assert_int_equal(tb_dev_alloc("host", 0, &mem, &err), TB_E_INVALID);
}

static void
devices(void **state)
{
	const TbDevice *device;
	TbDevMem	mem;
	TbError		err;

	assert_int_equal(tb_device_find("host", &device, &err), TB_OK);
	assert_string_equal(device->name, "host");
	assert_int_equal(tb_device_find("GPU-1234", &device, &err), TB_E_UNSUPPORTED);
	assert_non_null(strstr(err.detail, "\"GPU-1234\""));
	assert_non_null(strstr(err.detail, "there are: host"));
	assert_int_equal(tb_dev_alloc("GPU-1234", 10, &mem, &err), TB_E_UNSUPPORTED);
	tb_dev_free(&mem);
}

static int	granted;
static int	refused;

static void
told(TbTicket *ticket, TbStatus status)
{
	if (status == TB_OK)
		granted++;
	else
		refused++;
}

static void
budgets(void **state)
{
	TbLoop	   *loop;
	TbBudget	budget;
	TbTicket	t[4] = {{.bytes = 0}};

	assert_int_equal(tb_loop_new(&loop, NULL), TB_OK);
	tb_budget_init(&budget, loop, 100, INT64_C(3600) * 1000000000);
	assert_int_equal(tb_ticket_take(&budget, &t[0], 101, told), TB_E_NOMEM);
	assert_int_equal(tb_ticket_take(&budget, &t[0], 60, told), TB_OK);
	assert_int_equal(tb_ticket_take(&budget, &t[1], 50, told), TB_AGAIN);
	/* it would fit, but it is not its turn: else large ones wait for ever */
	assert_int_equal(tb_ticket_take(&budget, &t[2], 30, told), TB_AGAIN);
	assert_int_equal(tb_ticket_take(&budget, &t[3], 40, told), TB_AGAIN);
	tb_ticket_drop(&t[3]);
	tb_ticket_drop(&t[0]);
	assert_int_equal(granted, 2);
	assert_int_equal(budget.used, 80);
	tb_ticket_drop(&t[1]);
	tb_ticket_drop(&t[2]);
	tb_ticket_drop(&t[2]);
	assert_int_equal(budget.used, 0);
	/* patience ends */
	budget.patience_ns = 1000000;
	assert_int_equal(tb_ticket_take(&budget, &t[0], 60, told), TB_OK);
	assert_int_equal(tb_ticket_take(&budget, &t[1], 50, told), TB_AGAIN);
	while (refused == 0)
		tb_loop_pump(loop, 100);
	assert_int_equal(t[1].state, TB_TICKET_NONE);
	tb_ticket_drop(&t[1]);
	tb_ticket_drop(&t[0]);
	assert_int_equal(budget.used, 0);
	tb_loop_free(loop);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout), cmocka_unit_test(too_large), cmocka_unit_test(life_of_a_slot),
		cmocka_unit_test(memory_is_sealed), cmocka_unit_test(devices), cmocka_unit_test(budgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
