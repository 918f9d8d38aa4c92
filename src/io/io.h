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
#include "io/node.h"

/* Shared by all stores of an engine: loop, pool, connections, counters. */
typedef struct TbIo TbIo;

typedef struct TbCache TbCache; /* io/cache.h: private to the room */

typedef struct TbIoOptions
{
	int			max_connections;		/* of the node where there is one, else per engine; 0: default 128 */
	int			max_requests_in_flight; /* likewise; 0: default 128. How many are used below it is found by measuring */
	size_t		io_memory_bytes;		/* likewise: of requests in flight; 0: default 256 MiB */
	int			connect_timeout_ms;		/* 0: default 10000 */
	int			first_byte_timeout_ms;	/* 0: default 30000 */
	int			low_speed_bytes;		/* bytes a second, 0: default 1000 */
	int			low_speed_seconds;		/* 0: default 20 */
	int			retries;				/* further attempts, -1: none, 0: default 5 */
	int			hedge_percent;			/* requests sent twice because the first is late; 0: default 5, -1: none */
	TbNode	   *node;					/* borrowed, outlives the io; NULL: limits and counters of this process alone */
	const char *cache_directory;		/* NULL or "": no cache on disk */
	uint64_t	cache_bytes;			/* its size; 0: default 1 GiB */
	/* objects cached without a known version are trusted so long; 0: default 60000 */
	int			cache_max_age_ms;
	bool		no_uring;				/* never use io_uring */
} TbIoOptions;

extern TbStatus tb_io_new(TbLoop *loop, TbPool *pool, const TbIoOptions *options, TbIo **io,
						  TbError *err) TB_MUST_CHECK;
extern void tb_io_free(TbIo *io);
/* Other limits and another age of what is cached, from now on; positive. More requests than at
 * first are not used at one endpoint. */
extern void tb_io_set_limits(TbIo *io, const TbNodeLimits *limits, int cache_max_age_ms);
/* Its cache is: a host that will not pump for long pumps until that has ended. */
extern bool tb_io_is_writing(const TbIo *io);
/* Why the cache on disk is off, where it is wanted; true once. For the host's log. */
extern bool tb_io_cache_trouble(TbIo *io, TbError *err);

/* Monotonic counters. */
typedef struct TbIoCounters
{
	uint64_t	requests;
	uint64_t	bytes;
	uint64_t	retries;
	uint64_t	missing;
	uint64_t	hedges;			/* requests sent twice; counted in requests too */
	uint64_t	merged;			/* reads that came with another's request */
	uint64_t	throttled;		/* answers that asked to slow down */
	uint64_t	cache_hits;		/* reads answered from the local cache, also after asking whether they are current */
	uint64_t	cache_bytes;	/* of them */
} TbIoCounters;

typedef enum TbAddressing
{
	/* bucket in the host name where the endpoint is AWS's and the name allows, else in the path */
	TB_ADDRESS_AUTO,
	TB_ADDRESS_PATH,
	TB_ADDRESS_VIRTUAL
} TbAddressing;

typedef struct TbStoreSpec
{
	/* file:///dir, http://, https://, s3://bucket/prefix; no query, no fragment, no userinfo */
	const char *url;
	const char *ca_file;		/* NULL: the system's */
	const char *user;			/* http basic authentication; NULL: none */
	const char *password;
	const char *name;			/* what its counters are kept under in the node's books; NULL: the url */

	/* which addresses a network store may lead to. Loopback, link-local (cloud metadata) and private ones are
	 * refused unless the url names the address or its host stands in allowed_hosts. */
	const char *allowed_hosts;	/* NULL, or host names and networks ("10.0.0.0/8"), comma-separated */
	bool		any_address;	/* no check at all: a superuser's server */

	/* s3:// */
	const char *region;			/* NULL: us-east-1, corrected by what the server says */
	const char *endpoint;		/* NULL: AWS's for the region; else http(s)://host[:port] */
	TbAddressing addressing;
	bool		anonymous;		/* requests are not signed */
	bool		requester_pays;
	const char *access_key_id;	/* NULL: none */
	const char *secret_access_key;
	const char *session_token;	/* NULL: none */
	const char *credentials;	/* NULL: those above; else where to get them: environment, profile, web_identity,
								 * container, instance; may be several, comma-separated, the first that has some */
	const char *profile;		/* NULL: AWS_PROFILE or "default" */
} TbStoreSpec;

typedef struct TbStore TbStore;
typedef struct TbRead TbRead;
typedef struct TbStoreOps TbStoreOps;	/* vtable, io/store.h: private to the room */

/* errors: INVALID (url form), UNSUPPORTED (scheme), NOT_FOUND (file:// directory missing), NOMEM. Makes no request. */
extern TbStatus tb_store_open(TbIo *io, const TbStoreSpec *spec, TbStore **store, TbError *err) TB_MUST_CHECK;
extern void tb_store_close(TbStore *store); /* cancels what is in flight first; NULL allowed */
/* Other credentials of the same place, for requests from now on, also those that wait after ExpiredToken. NULL: none.
 * user and password stand for access_key_id and secret_access_key of s3. errors: NOMEM. */
extern TbStatus tb_store_set_credentials(TbStore *store, const char *access_key_id, const char *secret_access_key,
										 const char *session_token, TbError *err) TB_MUST_CHECK;
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
	bool		no_cache;		/* ask the store itself: what came before was damaged */
	/* NULL, or where the caller wants the bytes, borrowed until done or cancel: a store that can
	 * lets them land there, and data->data is `into` then; else data is a buffer like any */
	void	   *into;
	size_t		into_bytes;
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

/*
 * Listing, writing, deleting: a job works in the background like a fetch. _begin never waits; tb_job_poll returns
 * AGAIN until it is done. On file:// and mem it is done at once. Where the store cannot: UNSUPPORTED from the poll.
 */
typedef struct TbJob TbJob;

/* Names directly below a prefix ("a/b", "" for the root): one level, sorted by bytes. */
typedef struct TbStoreNames
{
	char	  **name;
	bool	   *is_prefix;		/* a directory */
	size_t		n;
} TbStoreNames;

extern TbStatus tb_store_begin_list(TbStore *store, const char *prefix, TbJob **job, TbError *err) TB_MUST_CHECK;
/*
 * Write an object whole: seen complete or not at all, durable when done. create_once: an existing
 * object is CHANGED and stays (on s3, where the answer to an attempt can be lost, one with the same
 * bytes counts as written). bytes gets a reference of the job's own and is not written to any more;
 * what is large goes up in parts, several at a time.
 * errors: UNSUPPORTED, NO_SPACE, DENIED, AUTH, IO, CHANGED.
 */
extern TbStatus tb_store_begin_put(TbStore *store, const char *key, TbBuf *bytes, bool create_once, TbJob **job,
								   TbError *err) TB_MUST_CHECK;
extern TbStatus tb_store_begin_delete(TbStore *store, const char *key, TbJob **job, TbError *err) TB_MUST_CHECK;
/* AGAIN, or how it ended. A list of a prefix that is not there: NOT_FOUND on file://, no names elsewhere. */
extern TbStatus tb_job_poll(TbJob *job, TbError *err) TB_MUST_CHECK;
extern const TbStoreNames *tb_job_names(const TbJob *job);	/* of a list that ended OK; the job's */
/* cancels what is in flight; an unfinished multipart upload is aborted; NULL allowed */
extern void tb_job_free(TbJob *job);

/* The same in one call on file:// and mem, which never wait (elsewhere INTERNAL): tests and what runs there alone. */
extern TbStatus tb_store_list(TbStore *store, const char *prefix, TbStoreNames *names, TbError *err) TB_MUST_CHECK;
extern void tb_store_free_names(TbStoreNames *names);
extern TbStatus tb_store_put(TbStore *store, const char *key, const void *bytes, size_t len, bool create_once,
							 TbError *err) TB_MUST_CHECK;
extern TbStatus tb_store_delete(TbStore *store, const char *key, TbError *err) TB_MUST_CHECK;

#endif
