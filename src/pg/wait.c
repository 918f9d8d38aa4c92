/*
 * The engine of this process and the only place that waits for it.
 *
 * The engine has one descriptor; a wait is one persistent WaitEventSet over the latch and that descriptor,
 * then interrupts, then the pump. No engine frame is on the stack while an interrupt is served.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "mb/pg_wchar.h"
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

#define SETTLE_TURNS 40
#define SETTLE_TURN_MS 2

static TbEngine *process_engine;	/* owned until the process ends */
static TbNode *process_node;	/* likewise, and longer than the engine */
static WaitEventSet *wait_set;

/* At the end of the process, when its transaction and with it every read is gone: what it had taken is free at once. */
static void
leave_node(int code, Datum arg)
{
	TbNode	   *node = process_node;

	process_node = NULL;
	tb_node_close(node);
}

TbNode *
tbpg_node(void)
{
	TbError		err;

	if (process_node != NULL)
		return process_node;
	if (tb_node_open(TBPG_NODE_FILE, &process_node, &err) != TB_OK)
	{
		ereport(LOG,
				(errcode(tbpg_sqlstate(err.code)),
				 errmsg("tensorbank limits and statistics count for this session alone: %s", err.message),
				 errdetail_log("%s", err.detail)));
		TBPG_CHECK(tb_node_open(NULL, &process_node, &err), &err);
	}
	on_proc_exit(leave_node, (Datum) 0);
	return process_node;
}

char *
tbpg_counters_name(const char *server)
{
	char	   *name = psprintf("%s.%s", get_database_name(MyDatabaseId), server);

	return pg_server_to_any(name, (int) strlen(name), PG_UTF8);
}

void
tbpg_node_limits(TbNodeLimits *limits)
{
	limits->connections = tbpg_settings.max_connections;
	limits->requests = tbpg_settings.max_requests_in_flight;
	limits->memory_bytes = (uint64_t) tbpg_settings.io_memory_mb << 20;
}

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
	options->io.io_memory_bytes = (size_t) tbpg_settings.io_memory_mb << 20;
	options->io.hedge_percent = tbpg_settings.hedge_percent == 0 ? -1 : tbpg_settings.hedge_percent;
	options->io.cache_directory = tbpg_settings.cache_directory;
	options->io.cache_bytes = (uint64_t) tbpg_settings.cache_size_mb << 20;
	options->io.cache_max_age_ms = Max(tbpg_settings.metadata_max_age_ms, 1);
	options->io.no_uring = tbpg_settings.io_method == TBPG_IO_SYNC;
	options->io.node = tbpg_node();
}

/* The cache never fails a query, so the log alone tells that it is off. */
static void
log_cache_trouble(TbEngine *engine)
{
	TbError		err;

	if (tb_io_cache_trouble(tb_engine_io(engine), &err))
		ereport(LOG,
				(errcode(tbpg_sqlstate(err.code)),
				 errmsg("tensorbank's cache is off in this process: %s", tbpg_clean_text(err.message)),
				 errdetail_log("%s", tbpg_clean_text(err.detail)),
				 err.hint[0] != '\0' ? errhint("Reads go on without it. %s", tbpg_clean_text(err.hint)) :
				 errhint("Reads go on without it. See tensorbank.cache_directory.")));
}

/*
 * What was put into the cache is found by others when its writes have ended, and they wait for it until then: a session that
 * becomes idle sees to that first. Writes go to the page cache; a disk that is slower than this has others wait for it.
 */
void
tbpg_settle(void)
{
	if (process_engine == NULL)
		return;
	for (int i = 0; i < SETTLE_TURNS && tb_io_is_writing(tb_engine_io(process_engine)); i++)
		tb_engine_wait(process_engine, SETTLE_TURN_MS);
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_COMMIT ||
		event == XACT_EVENT_PARALLEL_ABORT)
		tbpg_settle();
}

TbEngine *
tbpg_engine(void)
{
	TbEngineOptions options;
	TbEngine   *engine;
	TbError		err;

	if (process_engine != NULL)
	{
		TbNodeLimits limits;

		/* unlike the others these settings count from the moment they are set */
		tbpg_node_limits(&limits);
		tb_io_set_limits(tb_engine_io(process_engine), &limits, Max(tbpg_settings.metadata_max_age_ms, 1));
		tb_engine_set_max_age(process_engine, Max(tbpg_settings.metadata_max_age_ms, 1));
		return process_engine;
	}
	Assert(IsUnderPostmaster);
	engine_options(&options);
	TBPG_CHECK(tb_engine_new(&options, &engine, &err), &err);
	for (int i = 0; i < ENGINE_DESCRIPTORS; i++)
		ReserveExternalFD();
	log_cache_trouble(engine);
	wait_set = tbpg_create_wait_set(3);
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, tb_engine_fd(engine), NULL, NULL);
	process_engine = engine;
	RegisterXactCallback(at_transaction_end, NULL);
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
	log_cache_trouble(engine);
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
