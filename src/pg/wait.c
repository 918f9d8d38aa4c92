/*
 * The engine of this process and the only place that waits for it.
 *
 * The engine has one descriptor; a wait is one persistent WaitEventSet over the latch and that descriptor,
 * then interrupts, then the pump. No engine frame is on the stack while an interrupt is served.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "pg/compat.h"
#include "pg/tbpg.h"

/* epoll, timerfd, eventfd and the wait set's own: told to fd.c so that it leaves them to us */
#define ENGINE_DESCRIPTORS 5

static TbEngine *process_engine;	/* owned until the process ends */
static WaitEventSet *wait_set;

static void
engine_options(TbEngineOptions *options)
{
	memset(options, 0, sizeof(*options));
	options->metadata_max_age_ms = Max(tbpg_settings.metadata_max_age_ms, 1);
	/*
	 * Parts of one chunk come from one read of it, but an overwritten object must not be seen for long. A
	 * worker that builds an index lives for one part: it reads each chunk once, however long that takes.
	 */
	options->chunk_max_age_ms = IsParallelWorker() ? 0 : 1000;
	options->io.max_connections = tbpg_settings.max_connections;
	options->io.max_requests_in_flight = tbpg_settings.max_requests_in_flight;
	options->io.connect_timeout_ms = tbpg_settings.connect_timeout_ms;
	options->io.first_byte_timeout_ms = tbpg_settings.first_byte_timeout_ms;
	options->io.low_speed_bytes = tbpg_settings.low_speed_bytes;
	options->io.low_speed_seconds = tbpg_settings.low_speed_seconds;
	options->io.retries = tbpg_settings.retries == 0 ? -1 : tbpg_settings.retries;
}

TbEngine *
tbpg_engine(void)
{
	TbEngineOptions options;
	TbEngine   *engine;
	TbError		err;

	if (process_engine != NULL)
	{
		/* unlike the others this setting counts from the moment it is set */
		tb_engine_set_max_age(process_engine, Max(tbpg_settings.metadata_max_age_ms, 1));
		return process_engine;
	}
	Assert(IsUnderPostmaster);
	engine_options(&options);
	TBPG_CHECK(tb_engine_new(&options, &engine, &err), &err);
	for (int i = 0; i < ENGINE_DESCRIPTORS; i++)
		ReserveExternalFD();
	wait_set = tbpg_create_wait_set(3);
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, tb_engine_fd(engine), NULL, NULL);
	process_engine = engine;
	return engine;
}

void
tbpg_wait(void)
{
	TbEngine   *engine = tbpg_engine();
	WaitEvent	event;

	CHECK_FOR_INTERRUPTS();
	if (WaitEventSetWait(wait_set, -1, &event, 1, PG_WAIT_EXTENSION) > 0 && (event.events & WL_LATCH_SET))
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	tb_engine_pump(engine);
}

void
tbpg_wait_socket(int socket, int events, long timeout_ms)
{
	int			wake = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | events;
	int			rc;

	CHECK_FOR_INTERRUPTS();
	if (timeout_ms >= 0)
		wake |= WL_TIMEOUT;
	rc = WaitLatchOrSocket(MyLatch, wake, socket, timeout_ms, PG_WAIT_EXTENSION);
	if (rc & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}
