/*
 * Stores: named objects read by byte range. One asynchronous core; nothing here blocks but local files in
 * a process without pool threads.
 *
 * A read is proved before it completes OK: status, Content-Range, length. Only a definite absence (404, ENOENT)
 * is `missing`; that is a state, not an error.
 */
#ifndef TB_IO_H
#define TB_IO_H

#include "base/base.h"

/* Shared by all stores of an engine: loop, pool, connections, counters. */
typedef struct TbIo TbIo;

typedef struct TbIoOptions
{
	int			max_connections;		/* per engine, 0: default 32 */
	int			max_requests_in_flight; /* per engine, 0: default 64; more are queued */
	int			connect_timeout_ms;		/* 0: default 10000 */
	int			first_byte_timeout_ms;	/* 0: default 30000 */
	int			low_speed_bytes;		/* bytes a second, 0: default 1000 */
	int			low_speed_seconds;		/* 0: default 20 */
	int			retries;				/* further attempts, -1: none, 0: default 5 */
} TbIoOptions;

extern TbStatus tb_io_new(TbLoop *loop, TbPool *pool, const TbIoOptions *options, TbIo **io,
						  TbError *err) TB_MUST_CHECK;
extern void tb_io_free(TbIo *io);

/* Monotonic counters. */
typedef struct TbIoCounters
{
	uint64_t	requests;
	uint64_t	bytes;
	uint64_t	retries;
	uint64_t	missing;
} TbIoCounters;

typedef struct TbStoreSpec
{
	const char *url;			/* file:///dir, http://, https://; no query, no fragment, no userinfo */
	const char *ca_file;		/* NULL: the system's */
	const char *user;			/* http basic authentication; NULL: none */
	const char *password;
} TbStoreSpec;

typedef struct TbStore TbStore;
typedef struct TbRead TbRead;
typedef struct TbStoreOps TbStoreOps;	/* vtable, io/store.h: private to the room */

/* errors: INVALID (url form), UNSUPPORTED (scheme), NOT_FOUND (file:// directory missing), NOMEM. Makes no request. */
extern TbStatus tb_store_open(TbIo *io, const TbStoreSpec *spec, TbStore **store, TbError *err) TB_MUST_CHECK;
extern void tb_store_close(TbStore *store); /* cancels what is in flight first; NULL allowed */
extern const char *tb_store_url(const TbStore *store);	/* as given, without secrets, no trailing slash */
extern TbIoCounters tb_store_counters(const TbStore *store);
extern bool tb_store_can_list(const TbStore *store);
extern bool tb_store_can_write(const TbStore *store);

/* An in-memory store for tests: objects are put with tb_store_put. */
extern TbStatus tb_store_open_mem(TbIo *io, TbStore **store, TbError *err) TB_MUST_CHECK;

typedef enum TbRangeKind
{
	TB_RANGE_WHOLE,				/* up to `length` bytes, more is LIMIT */
	TB_RANGE_AT,				/* exactly [offset, offset + length) */
	TB_RANGE_LAST				/* the last `length` bytes; a shorter object is CORRUPT */
} TbRangeKind;

/* A request, owned by the caller until `done` was called or tb_store_cancel returned. */
struct TbRead
{
	/* set by the caller, untouched by the store */
	const char *key;			/* below the store's url, '/'-separated, no leading '/'; borrowed */
	TbRangeKind kind;
	uint64_t	offset;
	uint64_t	length;
	const char *if_version;		/* NULL or a version seen before: another one is CHANGED; borrowed */
	void		(*done) (TbRead *read); /* from the pump, never from inside tb_store_read */
	void	   *arg;

	/* results, valid in and after done */
	TbStatus	status;			/* OK also when missing */
	bool		missing;
	TbBuf	   *data;			/* the caller's to unref; NULL unless OK and not missing */
	uint64_t	object_size;	/* of the whole object; UINT64_MAX: not told */
	char		version[96];	/* ETag, else "size-mtime"; opaque */
	TbError		error;

	void	   *impl;			/* the store's while in flight */
	TbTask		task;
};

extern void tb_store_read(TbStore *store, TbRead *read);
/* Forget a read in flight: done will not be called. No-op when it is done. */
extern void tb_store_cancel(TbStore *store, TbRead *read);

/* Names directly below a prefix ("a/b", "" for the root): one level, sorted; file:// and mem only (else
 * UNSUPPORTED). Synchronous. owns: names[] and each name, tb_store_free_names. */
typedef struct TbStoreNames
{
	char	  **name;
	bool	   *is_prefix;		/* a directory */
	size_t		n;
} TbStoreNames;
extern TbStatus tb_store_list(TbStore *store, const char *prefix, TbStoreNames *names, TbError *err) TB_MUST_CHECK;
extern void tb_store_free_names(TbStoreNames *names);

/* Write an object whole: seen complete or not at all, durable on return. create_once: an existing object is
 * CHANGED and stays. Synchronous on file:// and mem; errors: UNSUPPORTED elsewhere, NO_SPACE, DENIED, IO. */
extern TbStatus tb_store_put(TbStore *store, const char *key, const void *bytes, size_t len, bool create_once,
							 TbError *err) TB_MUST_CHECK;
extern TbStatus tb_store_delete(TbStore *store, const char *key, TbError *err) TB_MUST_CHECK;

#endif
