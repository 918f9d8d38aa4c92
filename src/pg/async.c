/*
 * Several scans below one Append wait together: each says whether it has a row without waiting, and if not,
 * the Append sleeps for all of them.
 *
 * All scans of a process share one engine and so one descriptor; the same descriptor cannot be registered
 * twice, so each scan registers a copy. An event on it tells that the engine has something to do, not for
 * whom: who is told pumps, and looks at its own row.
 */
#include "postgres.h"

#include <unistd.h>

#include "executor/execAsync.h"
#include "executor/executor.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "pg/fdw.h"

/* The Append of PostgreSQL 15 sleeps without its latch: this often it looks for interrupts. */
#define TICK_NS INT64CONST(100000000)

struct TbpgAsync
{
	int			fd;				/* owned; -1: none */
	TbLoop	   *loop;			/* borrowed */
	TbTimer		tick;
	MemoryContextCallback callback;
};

bool
tbpg_async_capable(ForeignPath *path)
{
	return true;
}

static void
tick(TbTimer *timer)
{
	/* waking up was all */
}

static void
release(void *arg)
{
	TbpgAsync  *async = arg;

	tb_loop_disarm(async->loop, &async->tick);
	if (async->fd >= 0)
	{
		close(async->fd);
		ReleaseExternalFD();
	}
	async->fd = -1;
}

/* The scan's own copy of the descriptor, closed with the scan. */
static TbpgAsync *
async_of(TbpgScanState *state)
{
	TbpgAsync  *async = state->async;

	if (async != NULL)
		return async;
	async = MemoryContextAllocZero(state->context, sizeof(TbpgAsync));
	async->fd = -1;
	async->loop = tb_engine_loop(tbpg_engine());
	async->tick.fire = tick;
	async->callback.func = release;
	async->callback.arg = async;
	MemoryContextRegisterResetCallback(state->context, &async->callback);
	if (!AcquireExternalFD())
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not reserve a file descriptor: %m")));
	async->fd = dup(tb_engine_fd(tbpg_engine()));
	if (async->fd < 0)
	{
		int			saved = errno;

		ReleaseExternalFD();
		errno = saved;
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not duplicate a file descriptor: %m")));
	}
	state->async = async;
	return async;
}

/* The next row of the node if it can be had without waiting, the end, or neither. */
static void
produce(AsyncRequest *request)
{
	TbpgScanState *state = ((ForeignScanState *) request->requestee)->fdw_state;
	TupleTableSlot *slot;

	state->nonblocking = true;
	state->would_wait = false;
	slot = request->requestee->ExecProcNodeReal(request->requestee);
	state->nonblocking = false;
	if (TupIsNull(slot) && state->would_wait)
		ExecAsyncRequestPending(request);
	else
		ExecAsyncRequestDone(request, TupIsNull(slot) ? NULL : slot);
}

void
tbpg_async_request(AsyncRequest *request)
{
	produce(request);
}

/*
 * Before the Append sleeps. Whoever pumped since the request was made may have brought what it waits for: then
 * there will be no event, and the Append must not sleep.
 */
void
tbpg_async_configure(AsyncRequest *request)
{
	TbpgScanState *state = ((ForeignScanState *) request->requestee)->fdw_state;
	AppendState *append = (AppendState *) request->requestor;
	TbpgAsync  *async = async_of(state);

	request->callback_pending = false;
	produce(request);
	if (request->request_complete)
	{
		ExecAsyncResponse(request);
		if (request->requestee->instrument)
			InstrUpdateTupleCount(request->requestee->instrument, TupIsNull(request->result) ? 0.0 : 1.0);
	}
	if (tb_loop_arm(async->loop, &async->tick, request->request_complete ? 0 : TICK_NS) != TB_OK)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	AddWaitEventToSet(append->as_eventset, WL_SOCKET_READABLE, async->fd, NULL, request);
}

void
tbpg_async_notify(AsyncRequest *request)
{
	tb_engine_pump(tbpg_engine());
	produce(request);
}
