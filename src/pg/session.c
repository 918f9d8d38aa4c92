/*
 * What this session has in the streamer: streams, the batches that SQL handed out, loaded tensors. The books
 * decide whether a handle is one of this session and of this role, and what must be freed when:
 *
 *	- streams live until they are closed, the session ends or DISCARD ALL; transactions do not touch them;
 *	- a loaded tensor lives until it is released or the (sub)transaction that loaded it aborts;
 *	- a slot goes back when every tensor of its batch was released.
 *
 * The streamer keeps books of its own and trusts nothing of these.
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "pg/dataset.h"
#include "pg/link.h"

typedef struct LoadEntry
{
	TbHandle	handle;			/* key */
	Oid			role;
	SubTransactionId sub;		/* that loaded it; Invalid: committed */
} LoadEntry;

static List *streams;			/* of TbpgStream, in TopMemoryContext */
static HTAB *loads;
static uint8 epoch[16];			/* of the streamer that we are connected to */
static int	uncommitted;		/* loads with a subtransaction */
static ProcessUtility_hook_type next_utility;

void
tbpg_bad_handle(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_HANDLE),
			 errmsg("invalid handle"),
			 errhint("Load the tensor again, take the next batch, or open the stream again.")));
}

/* Does the current user have the rights of the role that made it? */
static bool
is_ours(Oid role)
{
	return has_privs_of_role(GetUserId(), role);
}

/* Equal in a time that does not tell how much of it was right. */
static bool
same_epoch(const uint8 *theirs)
{
	uint8		difference = 0;

	for (int i = 0; i < 16; i++)
		difference |= (uint8) (theirs[i] ^ epoch[i]);
	return difference == 0;
}

/* ---- streams ---- */

TbpgStream *
tbpg_session_add_stream(uint64 id, const TbpgDatasetInfo *dataset)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "tensorbank stream", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	TbpgStream *stream = palloc0(sizeof(TbpgStream));

	stream->context = context;
	stream->id = id;
	stream->role = GetUserId();
	stream->dataset = tbpg_dataset_copy(dataset, context);
	MemoryContextSwitchTo(TopMemoryContext);
	streams = lappend(streams, stream);
	MemoryContextSwitchTo(old);
	return stream;
}

TbpgStream *
tbpg_session_find_stream(uint64 id)
{
	ListCell   *cell;

	foreach(cell, streams)
		if (((TbpgStream *) lfirst(cell))->id == id)
			return lfirst(cell);
	return NULL;
}

TbpgStream *
tbpg_session_stream(int64 id)
{
	TbpgStream *stream = tbpg_link_alive() ? tbpg_session_find_stream((uint64) id) : NULL;

	if (stream == NULL || !is_ours(stream->role))
		tbpg_bad_handle();
	return stream;
}

static void
free_stream(TbpgStream *stream)
{
	tb_json_free(stream->parked);
	MemoryContextDelete(stream->context);
}

void
tbpg_session_drop_stream(TbpgStream *stream)
{
	streams = list_delete_ptr(streams, stream);
	free_stream(stream);
}

void
tbpg_session_add_batch(TbpgStream *stream, uint32 slot, uint64 generation, int n_tensors)
{
	MemoryContext old = MemoryContextSwitchTo(stream->context);
	TbpgBatch  *batch = palloc0(sizeof(TbpgBatch));

	batch->slot = slot;
	batch->generation = generation;
	batch->held = bms_add_range(NULL, 0, n_tensors - 1);
	stream->batches = lappend(stream->batches, batch);
	MemoryContextSwitchTo(old);
}

/* ---- handles ---- */

static TbpgBatch *
find_batch(const TbHandle *handle, TbpgStream **stream)
{
	ListCell   *cell;

	*stream = tbpg_session_find_stream(handle->stream);
	if (*stream == NULL || !is_ours((*stream)->role))
		return NULL;
	foreach(cell, (*stream)->batches)
	{
		TbpgBatch  *batch = lfirst(cell);

		if (batch->slot == handle->slot && batch->generation == handle->generation &&
			handle->tensor <= INT_MAX && bms_is_member((int) handle->tensor, batch->held))
			return batch;
	}
	return NULL;
}

static LoadEntry *
find_load(const TbHandle *handle)
{
	LoadEntry  *entry = loads != NULL ? hash_search(loads, handle, HASH_FIND, NULL) : NULL;

	return entry != NULL && is_ours(entry->role) ? entry : NULL;
}

void
tbpg_session_check(const TbHandle *handle)
{
	TbpgStream *stream;

	if (!tbpg_link_alive() || !same_epoch(handle->epoch) ||
		(find_load(handle) == NULL && find_batch(handle, &stream) == NULL))
		tbpg_bad_handle();
}

static void
forget_load(LoadEntry *entry)
{
	if (entry->sub != InvalidSubTransactionId)
		uncommitted--;
	(void) hash_search(loads, &entry->handle, HASH_REMOVE, NULL);
}

bool
tbpg_session_release(const TbHandle *handle)
{
	TbpgStream *stream;
	TbpgBatch  *batch;
	LoadEntry  *load;

	tbpg_session_check(handle);
	load = find_load(handle);
	if (load != NULL)
	{
		forget_load(load);
		return true;
	}
	batch = find_batch(handle, &stream);
	batch->held = bms_del_member(batch->held, (int) handle->tensor);
	if (!bms_is_empty(batch->held))
		return false;
	stream->batches = list_delete_ptr(stream->batches, batch);
	bms_free(batch->held);
	pfree(batch);
	return true;
}

void
tbpg_session_add_load(const TbHandle *handle)
{
	LoadEntry  *entry;
	bool		found;

	if (loads == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(TbHandle), .entrysize = sizeof(LoadEntry), .hcxt = TopMemoryContext};

		loads = hash_create("tensorbank loads", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = hash_search(loads, handle, HASH_ENTER, &found);
	entry->role = GetUserId();
	entry->sub = GetCurrentSubTransactionId();
	uncommitted++;
}

void
tbpg_session_forget(void)
{
	ListCell   *cell;

	foreach(cell, streams)
		free_stream(lfirst(cell));
	list_free(streams);
	streams = NIL;
	if (loads != NULL)
		hash_destroy(loads);
	loads = NULL;
	uncommitted = 0;
}

/* ---- ends of transactions ---- */

/* Free the loads of a subtransaction, or of all that are not committed. Never raises. */
static void
free_aborted(SubTransactionId sub)
{
	HASH_SEQ_STATUS scan;
	LoadEntry  *entry;
	TbBuf	   *request = tb_buf_new(1024);
	bool		ok = request != NULL && tb_buf_printf(request, "{\"op\":\"free\",\"handles\":[") == TB_OK;
	int			n = 0;

	hash_seq_init(&scan, loads);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		char		string[TB_HANDLE_TEXT];

		if (entry->sub == InvalidSubTransactionId || (sub != InvalidSubTransactionId && entry->sub != sub))
			continue;
		tb_handle_print(&entry->handle, string);
		ok = ok && tb_buf_printf(request, "%s\"%s\"", n++ > 0 ? "," : "", string) == TB_OK;
		forget_load(entry);
	}
	ok = ok && tb_buf_printf(request, "]}") == TB_OK;
	if (!ok)
		tbpg_link_close();
	else if (n > 0)
		tbpg_link_post(TBPG_LINK_FREE, request);
	tb_buf_unref(request);
}

/* Give the loads of a subtransaction to its parent, or all to the session. */
static void
hand_over(SubTransactionId from, SubTransactionId to)
{
	HASH_SEQ_STATUS scan;
	LoadEntry  *entry;

	hash_seq_init(&scan, loads);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (entry->sub != InvalidSubTransactionId && (from == InvalidSubTransactionId || entry->sub == from))
		{
			entry->sub = to;
			if (to == InvalidSubTransactionId)
				uncommitted--;
		}
}

static void
end_transaction(XactEvent event, void *arg)
{
	if (uncommitted == 0)
		return;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			hand_over(InvalidSubTransactionId, InvalidSubTransactionId);
			break;
		case XACT_EVENT_ABORT:
			free_aborted(InvalidSubTransactionId);
			break;
		case XACT_EVENT_PRE_PREPARE:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has loaded tensors"),
					 errhint("Release their handles first, or COMMIT.")));
			break;
		default:
			break;
	}
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId sub, SubTransactionId parent, void *arg)
{
	if (uncommitted == 0)
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		hand_over(sub, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		free_aborted(sub);
}

/* DISCARD ALL ends what the session has in the streamer: that is the next user's connection in a pool. */
static void
watch_utility(PlannedStmt *statement, const char *source, bool read_only_tree, ProcessUtilityContext context,
			  ParamListInfo params, QueryEnvironment *environment, DestReceiver *destination,
			  QueryCompletion *completion)
{
	bool		discard = IsA(statement->utilityStmt, DiscardStmt) &&
		((DiscardStmt *) statement->utilityStmt)->target == DISCARD_ALL;

	if (next_utility != NULL)
		next_utility(statement, source, read_only_tree, context, params, environment, destination, completion);
	else
		standard_ProcessUtility(statement, source, read_only_tree, context, params, environment, destination,
								completion);
	if (discard)
		tbpg_link_close();
}

void
tbpg_session_begin(const char *epoch_hex)
{
	static bool registered;
	bool		ok = strlen(epoch_hex) == 32;

	for (int i = 0; i < 16 && ok; i++)
	{
		unsigned	byte;

		ok = sscanf(epoch_hex + 2 * i, "%2x", &byte) == 1;
		epoch[i] = (uint8) byte;
	}
	if (!ok)
		tbpg_bad_reply("epoch");
	if (registered)
		return;
	RegisterXactCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = watch_utility;
	registered = true;
}
