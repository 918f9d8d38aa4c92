/*
 * Private to the room: what a store is made of. A caller's read (TbRead) becomes a TbWant. Wants of near
 * ranges of one object travel together in a TbOp, one request to the store, which waits for its turn, is run
 * by the store's vtable once or, when it fails in a way that may pass, several times, and gives each want
 * its part. Writing and listing (job.h) make ops of their own.
 *
 *   tb_store_read -> want -> (cache) -> op -> queue -> ops->start ... tb_op_finish -> (back-off -> queue)*
 *                                                                            -> op->ended
 *                                                                            -> wants -> (cache) -> read->done
 *
 * All stores answer alike: a range wholly beyond the end is CHANGED (the object shrank), one that
 * the end cuts is CORRUPT, an object longer than a whole read allows is LIMIT.
 */
#ifndef TB_IO_STORE_H
#define TB_IO_STORE_H

#include <pthread.h>

#include "io/flow.h"
#include "io/io.h"

#define TB_KEY_MAX_BYTES 2048
#define TB_RETRY_AFTER_MAX_MS 30000
#define TB_SPARE_BUFS 96		/* buffers kept for reuse */
#define TB_SPARE_BYTES ((size_t) 32 << 20)

typedef struct TbHttp TbHttp;	/* io/http.h */
typedef struct TbOp TbOp;
typedef struct TbWant TbWant;
typedef struct TbIoFlow TbIoFlow;

typedef enum TbVerb
{
	TB_VERB_READ,				/* a range of an object; the only one of stores without jobs */
	TB_VERB_LIST,				/* GET of the store itself with a query; key "" */
	TB_VERB_PUT,
	TB_VERB_POST,
	TB_VERB_DELETE
} TbVerb;

typedef enum TbOpState
{
	TB_OP_QUEUED,				/* in a queue of TbIo */
	TB_OP_STARTED,				/* the store's vtable has it; holds a place in flight */
	TB_OP_BACKING_OFF,			/* the timer is armed */
	TB_OP_NEW,					/* not submitted */
	TB_OP_TWIN_LEFT,			/* its attempt failed, its twin's goes on */
	TB_OP_ENDED					/* ended is being called */
} TbOpState;

/* A read that a caller waits for. */
struct TbWant
{
	/* fixed; the strings lie behind the struct */
	TbStore    *store;			/* borrowed; counted in store->n_wants */
	const char *key;
	const char *if_version;		/* NULL: any */
	TbRangeKind kind;
	uint64_t	offset;
	uint64_t	length;

	TbRead	   *read;			/* borrowed */
	TbWant	   *prev;			/* the store's list */
	TbWant	   *next;
	TbOp	   *op;				/* that will bring it; NULL: the cache is asked, or it waits to be refused */
	TbWant	   *op_prev;		/* the op's list */
	TbWant	   *op_next;
	struct TbCached *cached;	/* owned; what the cache has to do with it; NULL: nothing (want_cache.c) */
	int64_t		asked_ns;
	TbTask		task;
	TbStatus	status;			/* of one that is refused */
	TbError    *error;			/* owned; of one that is refused */
};

struct TbOp
{
	/* the request, fixed once it has started; the strings lie behind the struct */
	TbStore    *store;			/* borrowed; counted in store->n_ops */
	TbVerb		verb;
	TbRangeKind kind;			/* READ: what of the object. The others: WHOLE */
	uint64_t	offset;
	uint64_t	length;			/* WHOLE: most bytes of an answer that are taken */
	const char *key;			/* below the store's url; "" for the store itself */
	const char *if_version;		/* NULL: any */
	const char *unless_version; /* NULL, or READ: a version that need not be sent again (If-None-Match); the want's */
	const char *query;			/* NULL, or names and values, encoded, sorted by name */
	TbBuf	   *body;			/* a reference; NULL: none */
	bool		create_once;	/* PUT, POST: an object that exists is CHANGED */
	void	   *into;			/* borrowed; NULL, or where the only want has room for the bytes */
	size_t		into_bytes;

	/* whose it is. Called once with the outcome, from the pump; op is freed when it returns. */
	void		(*ended) (TbOp *op);
	void	   *arg;
	TbWant	   *wants;			/* READ: who wants a part of it; borrowed */
	bool		alone;			/* no other wants may join (again) */

	/* the loop's thread alone */
	TbOp	   *prev;			/* the store's list */
	TbOp	   *next;
	TbOp	   *queue_prev;
	TbOp	   *queue_next;
	TbOp	   *near_prev;		/* the bucket of merge.c, while it is near */
	TbOp	   *near_next;
	uint64_t	near_object;	/* hash of store, key and version */
	uint64_t	near_hash;
	bool		near;
	bool		merged;			/* brings several wants */
	TbOp	   *started_prev;	/* TbIo's list of STARTED ones that connect */
	TbOp	   *started_next;
	TbOp	   *twin;			/* the same request sent again because this one is late, or the one it is sent for */
	bool		is_twin;
	bool		hedged;			/* this attempt has had its twin */
	int			auth_again;		/* attempts that were given for renewed credentials */
	uint64_t	taken;			/* bytes of the node's memory budget */
	int64_t		queued_ns;		/* first */
	int64_t		start_ns;
	int64_t		first_ns;		/* of the answer's first byte; 0: none yet */
	int64_t		waited_ns;		/* without a first byte, as far as the loop was pumped */
	TbOpState	state;
	int			attempt;		/* 1 = the first */
	int			wrong_answers;	/* among them */
	bool		fresh;			/* the next attempt wants a new connection */
	bool		busy;			/* a pool thread has it; freed only when it comes back */
	bool		forgotten;		/* canceled while busy */
	TbTimer		timer;
	void	   *slot;			/* the vtable's while STARTED */
	TbTask		task;			/* the vtable's while STARTED */

	/* the outcome of an attempt: whoever runs it, then the loop's thread */
	TbStatus	status;
	bool		missing;
	bool		not_modified;	/* the object has unless_version; no data */
	TbBuf	   *data;			/* owned until handed over */
	uint64_t	object_size;	/* UINT64_MAX: not told */
	char		version[96];
	TbError		error;

	/* between threads */
	int			canceled;		/* atomic */
	TbOp	   *done_next;		/* TbIo's list, guarded by its mu */
};

struct TbStoreOps
{
	bool		can_list;
	bool		can_write;
	bool		connects;		/* each request in flight needs a connection */
	bool		merges;			/* requests cost more than the bytes between near ranges */

	/* Begin an attempt: the outcome is cleared before. Ends in tb_op_finish, from the pump and
	 * never from inside. */
	void		(*start) (TbOp *op);
	/* Stop an attempt: afterwards nothing calls tb_op_finish for it, unless op->busy is set. */
	void		(*stop) (TbOp *op);
	void		(*close) (TbStore *store);	/* frees the store; no op is left */
	/* NULL: what it has is not cached on disk. Who may see it: a hash over endpoint, bucket and the credentials'
	 * owner. */
	void		(*scope) (TbStore *store, uint8_t scope[32]);
	/* NULL: has none. As tb_store_set_credentials. */
	TbStatus	(*set_credentials) (TbStore *store, const char *key_id, const char *secret, const char *token,
									TbError *err);
	TbStatus	(*list) (TbStore *store, const char *prefix, TbStoreNames *names, TbError *err);
	TbStatus	(*put) (TbStore *store, const char *key, const void *bytes, size_t len, bool create_once,
						TbError *err);
	TbStatus	(*remove) (TbStore *store, const char *key, TbError *err);
};

/* First member of every kind of store. */
struct TbStore
{
	const TbStoreOps *ops;
	TbIo	   *io;				/* borrowed */
	char	   *url;			/* owned */
	TbIoFlow   *lane;			/* borrowed, from tb_io_flow, when opened; NULL: it connects to nothing */
	TbNodeCounters *books;		/* borrowed; as counters, for all processes */
	uint64_t	seen_requests;	/* books some seconds ago (store_retry.c) */
	uint64_t	seen_retries;
	int64_t		seen_ns;
	uint64_t	whole_bytes;	/* of the last object read whole: a guess for the next */
	TbIoCounters counters;
	TbWant	   *first_want;		/* reads not yet done */
	size_t		n_wants;
	TbOp	   *first;			/* requests not yet done */
	size_t		n_ops;
	bool		proven;			/* has answered before: failures to connect are worth patience */
	bool		closed;			/* freed with its last op */
};

typedef struct TbOpQueue
{
	TbOp	   *head;
	TbOp	   *tail;
	int			active;			/* started from this queue */
} TbOpQueue;

/* One endpoint. */
struct TbIoFlow
{
	TbIoFlow   *next;
	TbFlow	   *flow;			/* owned */
	TbOpQueue	queue;			/* ops that wait for a place there */
	char		endpoint[];
};

#define TB_NEAR_BUCKETS 1024
#define TB_NEAR_TRAILS 32		/* of those being read in order that are known at a time */

/* How far an object has been asked for; there may be several in one: shards often hold their chunks in Z-order. */
typedef struct TbTrail
{
	uint64_t	object;			/* hash of store, key and version */
	uint64_t	end;
} TbTrail;

struct TbIo
{
	/* fixed */
	TbLoop	   *loop;			/* borrowed */
	TbPool	   *pool;			/* borrowed; NULL: no threads */
	TbIoOptions options;		/* defaults filled in */

	/* the loop's thread */
	TbHttp	   *http;			/* owned; made with the first http store */
	struct TbCredsSource *creds;	/* list; each is owned by the stores that use it (creds_source.c) */
	TbOpQueue	local;			/* ops of stores that connect to nothing */
	int			n_started;		/* ops that connect and are STARTED */
	uint64_t	near_bytes;		/* of queued reads that others may join */
	TbTrail		trail[TB_NEAR_TRAILS];
	uint32_t	next_trail;		/* to be forgotten for a new one */
	TbIoFlow   *flows;			/* owned list */
	TbIoFlow   *turn;			/* in it; which is asked first; NULL: the first */
	TbNode	   *node;			/* options.node, or own_node */
	TbNode	   *own_node;		/* owned */
	TbNodeLimits limits;
	TbTimer		tick;			/* armed while something that connects is in flight (op_late.c) */
	int64_t		ticked_ns;
	TbOp	   *started;		/* list of ops that connect and are STARTED */
	TbTimer		room;			/* armed while the node has no room for what is queued */
	TbOp	   *near_first[TB_NEAR_BUCKETS];	/* queued reads that others may join (merge.c) */
	TbOp	   *near_last[TB_NEAR_BUCKETS];
	struct TbAio *aio;			/* owned; NULL: no cache */
	TbCache    *cache;			/* owned; NULL: none */
	TbError		cache_error;	/* why it could not be opened; told once by tb_io_cache_trouble */
	uint64_t	random;			/* state of the jitter */
	TbWatch		watch;			/* returned.fd */
	TbTask		kick;			/* starts what is queued */
	bool		kicked;			/* it waits in the loop */

	/* guarded by mu */
	pthread_mutex_t mu;
	pthread_cond_t idle;
	int			busy;			/* ops in pool threads */
	TbOp	   *returned;		/* ops that pool threads are done with */
	TbBuf	   *spare[TB_SPARE_BUFS];	/* one reference each; free for reuse when it is the only one */
	size_t		spare_at;		/* where the next newcomer goes */
	size_t		spare_bytes;
};

/* Count for this store and in the node's books. */
#define tb_store_count(store, member, n) \
	do { \
		(store)->counters.member += (uint64_t) (n); \
		if ((store)->books != NULL) \
			tb_count((store)->books->member, n); \
	} while (0)

/* io.c */

/* An endpoint ("https://host:port"), shared by all stores there; the io's. NULL when memory is gone. */
extern TbIoFlow *tb_io_flow(TbIo *io, const char *endpoint);

/* An empty buffer with room for cap bytes, reused where one is free. NULL when memory is gone.
 * thread: any. */
extern TbBuf *tb_io_buf(TbIo *io, size_t cap);
/* Run op->task on a pool thread, which ends in tb_io_return. */
extern void tb_io_submit(TbIo *io, TbOp *op);
/* Give an op back to the loop's thread, where tb_op_finish takes it. thread: the pool's. */
extern void tb_io_return(TbIo *io, TbOp *op);
extern double tb_io_random(TbIo *io);	/* [0, 1) */

/* want.c */

/* Give every want of op its part of op's outcome, or its error. May close the store. A merged request that failed
 * in a way that may be one want's alone is asked for each of them instead. */
extern void tb_wants_ended(TbOp *op);
extern void tb_want_cancel(TbWant *want);
extern void tb_want_send(TbWant *want); /* have a request bring it */
extern void tb_want_done(TbWant *want); /* tell the reader; its read is filled. The want is gone then */

/* want_cache.c: what the cache on disk has to do with a want */

/* Ask the cache. false: not for this one. Else it goes on from the pump: done, or sent. */
extern bool tb_cached_ask(TbWant *want);
extern bool tb_cached_waits(const TbWant *want);	/* the cache has not answered yet */
extern const char *tb_cached_version(const TbWant *want);	/* of what may be out of date; NULL: there is none */
/* op has ended, want->read is filled with its outcome: keep it, or put what is current in its place. */
extern void tb_cached_ended(TbWant *want, const TbOp *op);
extern void tb_cached_free(TbWant *want);	/* no-op without */

/* op.c */

/* A request of the store, not yet queued; strings are copied. NULL when memory is gone. */
extern TbOp *tb_op_new(TbStore *store, TbVerb verb, const char *key, const char *if_version, const char *query);
/* Queue it; op->ended is set. It is started from the pump. */
extern void tb_op_submit(TbOp *op);
/* Forget it in whatever state; ended is not called. Never blocks. Also frees one not submitted. */
extern void tb_op_cancel(TbOp *op);
/* An attempt has ended: op's outcome is complete. May free op and its store. thread: the loop's. */
extern void tb_op_finish(TbOp *op);
/* The first byte of an attempt's answer came; more often does no harm. thread: the loop's. */
extern void tb_op_first_byte(TbOp *op);
/* A buffer for cap bytes of an attempt's answer: the want's own memory where it fits. NULL when memory is gone. */
extern TbBuf *tb_op_buf(TbOp *op, size_t cap);
/* As if the attempt had not been answered: it asks again. */
extern void tb_op_forget_outcome(TbOp *op);
/* Fail the attempt with out of memory. */
extern TbStatus tb_op_nomem(TbOp *op);
/* Record op->status and where it happened; returns the status. code is what err holds. */
extern TbStatus tb_op_fail(TbOp *op, TbStatus code, bool retryable, const char *message);
/* Free one that was dequeued and whose wants went elsewhere. */
extern void tb_op_absorbed(TbOp *op);
/* Take the node's room for a request and begin an attempt. false: there is none now. */
extern bool tb_op_begin(TbOp *op);
/* The attempt of a STARTED op is over: its room is free. */
extern void tb_op_release(TbOp *op);
/* op's outcome is what counts: end it or arrange another attempt. May free op and its store. */
extern void tb_op_settle(TbOp *op);
/* Where a range of an object of size bytes lies, or why not. Fills *offset and *length. */
extern TbStatus tb_op_locate(TbOp *op, uint64_t size, uint64_t *offset, uint64_t *length);
/* Compare op->version with if_version. errors: CHANGED. */
extern TbStatus tb_op_check_version(TbOp *op);

/* op_queue.c */

extern TbOpQueue *tb_op_queue(TbOp *op);	/* where it waits or was started from */
extern void tb_op_enqueue(TbOp *op, bool at_head);
extern void tb_op_dequeue(TbOp *op);
/* Have what may start started from the pump: what is asked for together is seen together. thread: the loop's. */
extern void tb_io_kick(TbIo *io);

/* merge.c */

/* A queued read that others may join, or may no longer. */
extern void tb_near_add(TbOp *op);
extern void tb_near_remove(TbOp *op);
/* op is about to start: take in queued reads of near ranges. */
extern void tb_near_absorb(TbOp *op);
/* It goes on where requests in flight end: better to let more of its kind come and to send them together. */
extern bool tb_near_follows(const TbOp *op);

/* op_late.c */

/* See to it that what is late is noticed while something is in flight. */
extern void tb_late_watch(TbIo *io);
/* An attempt of op or of its twin has ended. false: nothing is to be done now (op may be gone). *winner: whose
 * outcome counts. */
extern bool tb_twin_ended(TbOp *op, TbOp **winner);
extern void tb_twin_cancel(TbOp *op);	/* no-op without one */

/* store_retry.c */

/* Whether all processes together have retries left with this store. */
extern bool tb_retry_in_budget(TbStore *store, int64_t now_ns);

/* The server answered, but not what was asked. */
extern bool tb_retry_is_wrong(TbStatus code);
/* Attempts in all that this kind of failure is worth. */
extern int	tb_retry_attempts(const TbError *error, int retries, bool proven);
/* Milliseconds until another attempt, -1: give up. attempt: how many were made. */
extern int64_t tb_retry_delay_ms(const TbError *error, int attempt, int retries, bool proven, double random);

/* store.c: fill the common part. Takes over url; ops->close frees it. */
extern void tb_store_init(TbStore *store, const TbStoreOps *ops, TbIo *io, char *url);
extern TbStatus tb_store_names_add(TbStoreNames *names, size_t *room, const char *name, bool is_prefix);
extern void tb_store_names_sort(TbStoreNames *names);

/* One opener per kind. */
extern TbStatus tb_store_open_file(TbIo *io, const TbStoreSpec *spec, TbStore **store, TbError *err);
extern TbStatus tb_store_open_http(TbIo *io, const TbStoreSpec *spec, TbStore **store, TbError *err);
extern TbStatus tb_store_open_s3(TbIo *io, const TbStoreSpec *spec, TbStore **store, TbError *err);

#endif
