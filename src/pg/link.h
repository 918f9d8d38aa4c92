/*
 * The session's connection to the streamer, and what the session has there: streams, batches handed out by
 * SQL, loaded tensors. Requests: docs/internals/stream-protocol.md.
 */
#ifndef TBPG_LINK_H
#define TBPG_LINK_H

#include "pg/tbpg.h"

#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"

/* ---- request.c: building requests; text goes out in UTF-8 ---- */
extern void tbpg_request_begin(StringInfo request, const char *op); /* {"op":"..." */
extern void tbpg_request_text(StringInfo request, const char *name, const char *value);	/* NULL: null */
extern void tbpg_request_int(StringInfo request, const char *name, int64 value);
extern void tbpg_request_uint(StringInfo request, const char *name, uint64 value);
extern void tbpg_request_extents(StringInfo request, const char *name, int n, const uint64_t *values);
/* The members of a source's object, behind an opening brace. Secrets: wipe the request after use. */
extern void tbpg_request_place(StringInfo request, const TbpgPlace *place);
/* Members of replies. errors: 08P01 where one is missing. */
extern const char *tbpg_reply_text(const TbJson *reply, const char *name);	/* server encoding; borrowed or palloc'd */
extern int64 tbpg_reply_int(const TbJson *reply, const char *name);
extern char *tbpg_from_utf8(const char *text);	/* may be the argument itself */
extern void tbpg_bad_reply(const char *member) pg_attribute_noreturn();

/* ---- link.c: the connection ---- */
typedef enum TbpgLinkOp
{
	TBPG_LINK_HELLO, TBPG_LINK_OPEN, TBPG_LINK_NEXT, TBPG_LINK_CLOSE, TBPG_LINK_LOAD, TBPG_LINK_WAIT,
	TBPG_LINK_FETCH, TBPG_LINK_FREE, TBPG_LINK_STREAMS, TBPG_LINK_RENEW
} TbpgLinkOp;

/*
 * Have a connection: starts the streamer where none runs. errors: 55000 no worker slot, 57P03 no answer in
 * time. With start false nothing is started, and false is returned where there is no streamer.
 */
extern bool tbpg_link_open(bool start);
/* Read what came late. False: there is no connection (any more), and the session has nothing in the streamer. */
extern bool tbpg_link_alive(void);
/*
 * Send a request and wait for its reply, which lives in the current memory context. stream: of NEXT and CLOSE,
 * else 0. fd (NULL allowed): descriptor that came along, the caller's; -1: none. errors: what the streamer
 * says; 57P03 when it goes away. Cancelled: the late reply is read later and undone.
 */
extern TbJson *tbpg_link_call(TbpgLinkOp op, uint64 stream, StringInfo request, int *fd);
/* Reply to a NEXT of this stream: one that came late, one under way, or a new one. */
extern TbJson *tbpg_link_next(uint64 stream);
/* Send what has no reply. errors: 57P03. */
extern void tbpg_link_tell(StringInfo request);
/* Send and forget, from callbacks: never raises, never waits; closes the connection when it cannot be sent. */
extern void tbpg_link_post(TbpgLinkOp op, const TbBuf *request);
/* End everything that the session has in the streamer. */
extern void tbpg_link_close(void);
extern const char *tbpg_link_socket(void);	/* path of the client socket */

/* ---- session.c: what the session has in the streamer ---- */
typedef struct TbpgBatch
{
	uint32		slot;
	uint64		generation;
	Bitmapset  *held;			/* tensors not yet released */
} TbpgBatch;

typedef struct TbpgDatasetInfo TbpgDatasetInfo;

typedef struct TbpgStream
{
	MemoryContext context;		/* everything of it */
	uint64		id;
	Oid			role;			/* who opened it */
	TbpgDatasetInfo *dataset;
	uint64		sources;		/* tbpg_sources_hash of what the streamer was sent last */
	List	   *batches;		/* of TbpgBatch: handed out by SQL */
	TbJson	   *parked;			/* owned; NULL, or the reply to a cancelled NEXT */
} TbpgStream;

/* The one error for every handle and stream that is unknown, foreign, expired or malformed. */
extern void tbpg_bad_handle(void) pg_attribute_noreturn();

/* Called at each new connection: callbacks and hook, the streamer's epoch. */
extern void tbpg_session_begin(const char *epoch_hex);
/* The connection is gone, and all that hung on it. Never raises. */
extern void tbpg_session_forget(void);

extern TbpgStream *tbpg_session_add_stream(uint64 id, const TbpgDatasetInfo *dataset);
/* A stream of this session that the current user may use. errors: HV00B. */
extern TbpgStream *tbpg_session_stream(int64 id);
extern TbpgStream *tbpg_session_find_stream(uint64 id);	/* NULL: none; no check of rights */
extern void tbpg_session_drop_stream(TbpgStream *stream);
extern void tbpg_session_add_batch(TbpgStream *stream, uint32 slot, uint64 generation, int n_tensors);

extern void tbpg_session_add_load(const TbHandle *handle);
/* A handle of this session that the current user may use. errors: HV00B. */
extern void tbpg_session_check(const TbHandle *handle);
/* Take a handle out of the books. Gives true when its batch's slot is free to go back, or it was a load. */
extern bool tbpg_session_release(const TbHandle *handle);

/* ---- handle_type.c ---- */
typedef TbHandle *TbpgHandle;
#define PG_GETARG_TBHANDLE(n) ((TbHandle *) PG_GETARG_POINTER(n))

#endif
