/*
 * Private to the room: what a store is made of. A caller's read (TbRead) becomes a TbWant. Wants of near
 * ranges of one object travel together in a TbOp, one request to the store, which waits for its turn, is run
 * by the store's vtable once or, when it fails in a way that may pass, several times, and gives each want
 * its part. Writing and listing (job.h) make ops of their own.
 *
 *   tb_store_read -> want -> op -> queue -> ops->start ... tb_op_finish -> (back-off -> queue)* -> op->ended
 *                                                                            -> wants -> read->done
 *
 * All stores answer alike: a range wholly beyond the end is CHANGED (the object shrank), one that
 * the end cuts is CORRUPT, an object longer than a whole read allows is LIMIT.
 */
#ifndef TB_IO_STORE_H
#define TB_IO_STORE_H

#include <pthread.h>
#include "io/io.h"

#define TB_KEY_MAX_BYTES 2048
#define TB_RETRY_AFTER_MAX_MS 30000
#define TB_SPARE_BUFS 96		/* buffers kept for reuse */
#define TB_SPARE_BYTES ((size_t) 32 << 20)

typedef struct TbHttp TbHttp;	/* io/http.h */
typedef struct TbOp TbOp;
typedef struct TbWant TbWant;

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
	TbOp	   *op;				/* that will bring it; NULL: it waits in the loop to be refused */
	TbWant	   *op_next;		/* the op's list */
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
	const char *query;			/* NULL, or names and values, encoded, sorted by name */
	TbBuf	   *body;			/* a reference; NULL: none */
	bool		create_once;	/* PUT, POST: an object that exists is CHANGED */
	void	   *into;			/* borrowed; NULL, or where the only want has room for the bytes */
	size_t		into_bytes;

	/* whose it is. Called once with the outcome, from the pump; op is freed when it returns. */
	void		(*ended) (TbOp *op);
	void	   *arg;
	TbWant	   *wants;			/* READ: who wants a part of it; borrowed */

	/* the loop's thread alone */
	TbOp	   *prev;			/* the store's list */
	TbOp	   *next;
	TbOp	   *queue_next;
	TbOpState	state;
	int			attempt;		/* 1 = the first */
	bool		fresh;			/* the next attempt wants a new connection */
	bool		busy;			/* a pool thread has it; freed only when it comes back */
	bool		forgotten;		/* canceled while busy */
	TbTimer		timer;
	void	   *slot;			/* the vtable's while STARTED */
	TbTask		task;			/* the vtable's while STARTED */

	/* the outcome of an attempt: whoever runs it, then the loop's thread */
	TbStatus	status;
	bool		missing;
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

	/* Begin an attempt: the outcome is cleared before. Ends in tb_op_finish, from the pump and
	 * never from inside. */
	void		(*start) (TbOp *op);
	/* Stop an attempt: afterwards nothing calls tb_op_finish for it, unless op->busy is set. */
	void		(*stop) (TbOp *op);
	void		(*close) (TbStore *store);	/* frees the store; no op is left */
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
	int			limit;
} TbOpQueue;

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
	TbOpQueue	remote;
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

/* io.c */

/* An empty buffer with room for cap bytes, reused where one is free. NULL when memory is gone.
 * thread: any. */
extern TbBuf *tb_io_buf(TbIo *io, size_t cap);
/* Run op->task on a pool thread, which ends in tb_io_return. */
extern void tb_io_submit(TbIo *io, TbOp *op);
/* Give an op back to the loop's thread, where tb_op_finish takes it. thread: the pool's. */
extern void tb_io_return(TbIo *io, TbOp *op);
extern double tb_io_random(TbIo *io);	/* [0, 1) */

/* want.c */

/* Give every want of op its part of op's outcome, or its error. May close the store. */
extern void tb_wants_ended(TbOp *op);
extern void tb_want_cancel(TbWant *want);

/* op.c */

/* A request of the store, not yet queued; strings are copied. NULL when memory is gone. */
extern TbOp *tb_op_new(TbStore *store, TbVerb verb, const char *key, const char *if_version, const char *query);
/* Queue it; op->ended is set. It is started from the pump. */
extern void tb_op_submit(TbOp *op);
/* Forget it in whatever state; ended is not called. Never blocks. Also frees one not submitted. */
extern void tb_op_cancel(TbOp *op);
/* An attempt has ended: op's outcome is complete. May free op and its store. thread: the loop's. */
extern void tb_op_finish(TbOp *op);
/* A buffer for cap bytes of an attempt's answer: the want's own memory where it fits. NULL when memory is gone. */
extern TbBuf *tb_op_buf(TbOp *op, size_t cap);
/* Fail the attempt with out of memory. */
extern TbStatus tb_op_nomem(TbOp *op);
/* Record op->status and where it happened; returns the status. code is what err holds. */
extern TbStatus tb_op_fail(TbOp *op, TbStatus code, bool retryable, const char *message);
/* Have what may start started from the pump: what is asked for together is seen together. thread: the loop's. */
extern void tb_io_kick(TbIo *io);
/* Where a range of an object of size bytes lies, or why not. Fills *offset and *length. */
extern TbStatus tb_op_locate(TbOp *op, uint64_t size, uint64_t *offset, uint64_t *length);
/* Compare op->version with if_version. errors: CHANGED. */
extern TbStatus tb_op_check_version(TbOp *op);

/* store_retry.c */

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
