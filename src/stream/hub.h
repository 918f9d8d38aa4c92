/*
 * The hub: what the streams and loads of one process share (engine, memory, sources, datasets),
 * and the calls that the streamer makes on them. Everything here belongs to the loop's thread.
 * What waits is polled: the calls that may say AGAIN are made again after a change, which the
 * object's listener is told.
 */
#ifndef TB_STREAM_HUB_H
#define TB_STREAM_HUB_H

#include "base/base.h"
#include "block/block.h"
#include "dataset/dataset.h"

typedef struct TbHub TbHub;
typedef struct TbStream TbStream;
typedef struct TbDelivery TbDelivery;
struct TbHandle;

typedef struct TbHubOptions
{
	int			threads;		/* decode threads */
	TbIoOptions io;
	uint64_t	ring_limit;		/* bytes of all rings and loads; 0: a quarter of the machine's memory */
	uint64_t	work_limit;		/* encoded bytes under way; 0: 56 MiB */
	int			patience_ms;	/* how long an open or a load waits for ring memory; 0: 5000 */
} TbHubOptions;

extern TbStatus tb_hub_new(const TbHubOptions *options, TbHub **hub, TbError *err) TB_MUST_CHECK;
extern void tb_hub_free(TbHub *hub);	/* streams and loads must be closed; waits for decode threads */
extern TbEngine *tb_hub_engine(TbHub *hub);
extern const uint8_t *tb_hub_epoch(const TbHub *hub);	/* 16 random bytes of this process's life */
/* To be called after every pump of the engine: moves on what only polling shows. */
extern void tb_hub_turn(TbHub *hub);

/* A store with the credentials for it. All texts are copied by whoever keeps them. */
typedef struct TbSourceSpec
{
	const char *server;			/* NULL allowed */
	TbStoreSpec store;
} TbSourceSpec;

/*
 * Told from the loop, never from inside a call on the same object, that polling may now say
 * something else.
 */
typedef struct TbListener
{
	void		(*changed) (void *arg);
	void	   *arg;
} TbListener;

/* ---- streams ---- */
typedef struct TbStreamSpec
{
	const char *dataset_url;	/* of the index root, with dataset_key; or NULL and dataset_file */
	const char *dataset_server; /* name of its server, where several have the url; NULL allowed */
	const char *dataset_key;
	const char *dataset_file;	/* a local path */
	const char *dataset_hash;
	const TbSourceSpec *sources;
	int			n_sources;
	uint32_t	batch_size;
	uint32_t	prefetch;		/* slots */
	uint32_t	rank;
	uint32_t	world_size;
	uint32_t	worker;			/* of the rank's batches, those with number % workers == worker */
	uint32_t	workers;
	TbShuffle	shuffle;
	TbTail		tail;
	uint64_t	seed;
	uint64_t	epoch;
	const char *device;
	const char *state;			/* NULL: from the beginning */
	int64_t		peer_uid;		/* who alone may redeem; -1: whoever has the token */
	int64_t		owner_pid;		/* for the list of streams */
	const char *owner_role;
} TbStreamSpec;

typedef struct TbBatch
{
	uint64_t	batch;			/* number in this run */
	uint32_t	slot;
	uint64_t	generation;
	uint32_t	samples;		/* with padded ones */
	uint32_t	padded;
	char		state[320];
} TbBatch;

typedef struct TbStreamInfo
{
	uint64_t	id;
	int64_t		owner_pid;
	const char *owner_role;		/* borrowed, as all texts here */
	const char *dataset;
	const char *device;
	const char *phase;
	uint32_t	rank;
	uint32_t	world_size;
	uint64_t	batches;
	uint64_t	done;			/* handed out */
	uint32_t	ready;
	uint32_t	slots;
	uint64_t	slot_bytes;
	uint64_t	ring_bytes;
	bool		redeemed;
	uint64_t	wait_store_ms;	/* time in which the client waited for bytes */
	uint64_t	wait_decode_ms; /* ... for decoding */
	uint64_t	wait_consumer_ms;	/* in which everything was ready and waited for the client */
} TbStreamInfo;

/*
 * Begin to open. owns: *stream is the caller's, tb_stream_close. errors: INVALID, UNSUPPORTED,
 * NOMEM; others by poll.
 */
extern TbStatus tb_stream_open(TbHub *hub, const TbStreamSpec *spec, TbListener listener,
							   TbStream **stream,
							   TbError *err) TB_MUST_CHECK;
/*
 * AGAIN while opening; OK when it runs. errors: NOT_FOUND, CORRUPT, INVALID (state), LIMIT, NOMEM
 * (ring memory)...
 */
extern TbStatus tb_stream_poll(TbStream *stream, TbError *err) TB_MUST_CHECK;
/* Ends it and frees everything, at the latest when decode threads let go. NULL allowed. */
extern void tb_stream_close(TbStream *stream);
extern void tb_stream_listen(TbStream *stream, TbListener listener);
extern TbStreamInfo tb_stream_info(TbStream *stream);
extern uint64_t tb_stream_id(const TbStream *stream);
/* 32 hex digits; empty once it was redeemed. */
extern const char *tb_stream_token(const TbStream *stream);
extern int	tb_stream_fd(const TbStream *stream);	/* of the ring; the stream's */
/* The stream of a token, which is used up. errors: DENIED, one text for every reason. */
extern TbStatus tb_hub_redeem(TbHub *hub, const char *token, int64_t uid, TbStream **stream,
							  TbError *err) TB_MUST_CHECK;
/*
 * Next batch: OK with *end true at the end, AGAIN, STATE (every slot is held; told apart by *busy),
 * or what failed it.
 */
extern TbStatus tb_stream_next(TbStream *stream, TbBatch *batch, bool *end, bool *busy,
							   TbError *err) TB_MUST_CHECK;
/* errors: HANDLE (not handed out, or not any more). */
extern TbStatus tb_stream_release(TbStream *stream, uint32_t slot, uint64_t generation,
								  TbError *err) TB_MUST_CHECK;
/* Go on with other credentials. errors: as open's. */
/* The store refused the stream's credentials: next fails with AUTH until they are renewed. */
extern bool tb_stream_wants_renewal(const TbStream *stream);
extern TbStatus tb_stream_renew(TbStream *stream, const TbSourceSpec *sources, int n_sources,
								TbError *err) TB_MUST_CHECK;
/* Walk over streams: NULL begins and ends. */
extern TbStream *tb_hub_next_stream(TbHub *hub, TbStream *stream);

/* JSON of a stream's columns, of a batch that was handed out. */
extern TbStatus tb_stream_print_columns(TbStream *stream, TbBuf *out) TB_MUST_CHECK;
extern TbStatus tb_stream_print_batch(TbStream *stream, const TbBatch *batch,
									  TbBuf *out) TB_MUST_CHECK;

/* Where a tensor lies that was handed out or loaded. */
typedef struct TbTensorPlace
{
	TbDtype		dtype;
	int			ndim;
	uint64_t	shape[TB_MAX_DIM + 1];
	uint64_t	offset;
	uint64_t	bytes;
	int			fd;				/* borrowed */
} TbTensorPlace;
extern TbStatus tb_stream_place(TbStream *stream, const struct TbHandle *handle,
								TbTensorPlace *place,
								TbError *err) TB_MUST_CHECK;

/* ---- deliveries: loads, one region of one array into memory of its own ---- */
typedef struct TbDeliverySpec
{
	TbSourceSpec source;
	const char *array;
	int			mask_fill;
	TbRegion	region;
	TbTreatment treatment;
	const char *device;
} TbDeliverySpec;

extern TbStatus tb_delivery_open(TbHub *hub, const TbDeliverySpec *spec, TbListener listener,
								 TbDelivery **delivery,
							 TbError *err) TB_MUST_CHECK;
/* AGAIN until type and shape are known: tb_delivery_place then gives all but the descriptor. */
extern TbStatus tb_delivery_begun(TbDelivery *delivery, TbError *err) TB_MUST_CHECK;
/* AGAIN until the bytes are there. */
extern TbStatus tb_delivery_poll(TbDelivery *delivery, TbError *err) TB_MUST_CHECK;
extern void tb_delivery_place(const TbDelivery *delivery, TbTensorPlace *place);
extern void tb_delivery_handle(const TbDelivery *delivery, struct TbHandle *handle);
extern void tb_delivery_close(TbDelivery *delivery);	/* NULL allowed */

#endif
