/*
 * What is inside a hub and a stream; private to the room. All of it belongs to the loop's thread,
 * but for items that are with a decode thread (see pipe.h).
 */
#ifndef TB_STREAM_SESSION_H
#define TB_STREAM_SESSION_H

#include "stream/ring.h"
#include "stream/stream.h"

typedef struct TbItem TbItem;
typedef struct TbSourceEntry TbSourceEntry;
typedef struct TbDatasetEntry TbDatasetEntry;

/* ---- sources, shared while their url and credentials are the same (sources.c) ---- */
typedef struct TbSources
{
	TbHub	   *hub;			/* borrowed */
	TbSourceEntry *first;		/* owned list */
	TbTimer		sweep;			/* drops what nobody used for a while */
} TbSources;
extern TbStatus tb_sources_open(TbSources *sources, const TbStoreSpec *spec, TbSourceEntry **entry,
								TbError *err) TB_MUST_CHECK;
extern TbSource *tb_source_of(TbSourceEntry *entry);	/* borrowed */
extern void tb_sources_close(TbSourceEntry *entry); /* NULL allowed */
extern void tb_sources_free(TbSources *sources);

/* ---- datasets, shared by hash (datasets.c) ---- */
extern TbStatus tb_datasets_open(TbHub *hub, const TbStreamSpec *spec, TbSource *where,
								 TbDatasetEntry **entry,
								 TbError *err) TB_MUST_CHECK;
extern TbStatus tb_datasets_poll(TbDatasetEntry *entry, TbDataset **dataset,
								 TbError *err) TB_MUST_CHECK;
extern void tb_datasets_close(TbDatasetEntry *entry);	/* NULL allowed */

struct TbHub
{
	TbEngine   *engine;			/* owned */
	TbLoop	   *loop;			/* borrowed from it */
	TbPool	   *pool;			/* borrowed from it */
	uint8_t		epoch[16];
	TbBudget	memory;			/* of rings and loads */

	uint64_t	work_limit;		/* bytes of fetches under way for slots, by estimate */
	uint64_t	work_bytes;
	uint32_t	work_items;
	/* the same for batches without a slot: what waits there takes nothing from others' slots */
	uint64_t	ahead_limit;
	uint64_t	ahead_bytes;

	TbSources	sources;
	TbDatasetEntry *datasets;	/* list; each entry is owned by those who use it */

	TbStream   *first;			/* list in order of opening */
	TbStream   *turn;			/* whose turn it is to start a fetch; NULL: the first's */
	uint64_t	last_id;
	uint32_t	n_dying;		/* streams and loads that are closed but still with a decode thread */
	uint32_t	n_parsing;		/* datasets with a pool thread */

	TbDelivery *deliveries;		/* list */
	uint64_t	last_delivery;

	TbTask		schedule;		/* deferred: start what can be started */
	bool		scheduled;
};

/* Number among the rank's batches of this stream's k-th one: DataLoader workers share them out. */
extern uint64_t tb_stream_number(const TbStream *stream, uint64_t k);

/* Room in the budget for one more fetch, for a slot or ahead of them. */
extern bool tb_hub_has_room(const TbHub *hub, bool ahead);
/* Start fetches soon: called wherever something became startable. */
extern void tb_hub_schedule(TbHub *hub);

/* ---- streams ---- */
typedef enum TbPhase
{
	TB_PHASE_IDLE,				/* made, nothing begun */
	TB_PHASE_OPENING,			/* the dataset, then ring memory, is awaited */
	TB_PHASE_RUNNING,			/* batches are begun */
	TB_PHASE_DRAINING,			/* the last batch is begun */
	TB_PHASE_DONE,				/* the last batch is handed out */
	TB_PHASE_FAILED
} TbPhase;

typedef enum TbArrayPhase
{
	TB_ARRAY_NONE, TB_ARRAY_OPENING, TB_ARRAY_READY, TB_ARRAY_FAILED
} TbArrayPhase;

/* An array of the dataset, opened when a sample first needs it. */
typedef struct TbStreamArray
{
	TbArrayPhase phase;
	TbArray    *array;			/* owned reference */
	TbError    *error;			/* owned; FAILED */
} TbStreamArray;

/* A tensor column of the dataset. */
typedef struct TbStreamColumn
{
	int			column;			/* in the dataset */
	size_t		sample_bytes;
	uint64_t	guess;			/* bytes that the next fetch may take while it is under way */
} TbStreamColumn;

/* Work on a batch. The first are the ring's slots; behind them are places for batches that wait for a slot. */
typedef struct TbWork
{
	uint64_t	batch;
	bool		waits;			/* in use, without a slot */
	uint64_t   *rows;			/* owned; dataset row of each sample */
	uint32_t	samples;
	uint32_t	padded;
	TbItem	   *items;			/* owned; batch_size times tensor columns */
	uint32_t	n_items;
	uint32_t	next_item;		/* the next to start */
	uint32_t	pending;		/* not finished, started or not */
	uint32_t	fetching;
	TbError    *error;			/* owned; of the first sample that failed */
	uint32_t	error_item;
} TbWork;

struct TbStream
{
	/* fixed once open */
	TbHub	   *hub;			/* borrowed */
	uint64_t	id;
	TbStreamSpec spec;			/* dataset texts, sources and state are not kept; device and role are owned copies */
	char		dataset_hash[65];
	TbStreamState state;		/* to go on from */
	TbDatasetCell *cells;		/* owned; scratch for one row */
	TbDataset  *dataset;		/* borrowed from the entry */
	TbDeal		deal;
	TbOrder		order;
	uint64_t	batches;
	TbStreamColumn *tensors;	/* owned */
	int			n_tensors;

	TbPhase		phase;
	TbError		error;			/* of FAILED */
	char		token[33];
	bool		redeemed;
	TbListener	listener;
	TbTask		tell;			/* deferred: the listener */
	bool		telling;

	TbDatasetEntry *entry;		/* owned use */
	TbSourceEntry **sources;	/* owned uses; as in the request */
	char	  **servers;		/* owned; their names, NULL entries allowed */
	int			n_sources;
	TbSourceEntry *index;		/* owned use; where the dataset lies */
	TbStreamArray *arrays;		/* owned; as in the dataset */
	int			n_arrays;
	uint32_t   *opening;		/* owned; the arrays that are being opened */
	int			n_opening;

	TbTicket	ticket;			/* of ring memory */
	TbRing		ring;
	TbWork	   *work;			/* owned; n_work of them */
	uint32_t	n_work;			/* the ring's slots and places ahead of them */
	uint64_t	begun;			/* batches */
	uint64_t	done;			/* handed out */
	uint64_t	stop;			/* batches from here on are not begun: one before failed */
	uint32_t	decoding;		/* items with a decode thread */

	/* credentials were refused: nothing is started until they are renewed; then what failed is started again */
	TbError    *refused;		/* owned; why; NULL: they were not */
	uint32_t	renewals;
	bool		accepted;		/* the present ones have brought something */
	bool		closing;

	bool		waiting;		/* a next waits */
	int64_t		since_ns;		/* shares are counted up to here */
	uint64_t	wait_store_ns;
	uint64_t	wait_decode_ns;
	uint64_t	wait_consumer_ns;

	TbStream   *next;			/* in the hub's list */
};

extern void tb_stream_set_phase(TbStream *stream, TbPhase phase);
extern void tb_stream_fail(TbStream *stream, const TbError *error);
extern void tb_stream_tell(TbStream *stream);	/* the listener, soon */
extern void tb_stream_account(TbStream *stream);	/* before anything changes that the shares depend on */
extern void tb_stream_destroy(TbStream *stream);	/* once no thread has anything of it */
extern const char *tb_phase_name(TbPhase phase);

/* Opening (open.c): move on as far as it goes. */
extern void tb_stream_step(TbStream *stream);
extern TbStatus tb_stream_take_sources(TbStream *stream, const TbSourceSpec *sources, int n,
									   TbError *err) TB_MUST_CHECK;
extern void tb_stream_drop_sources(TbStream *stream);

/* Arrays (arrays.c). */
extern void tb_stream_want_array(TbStream *stream, uint32_t array);	/* open it if it is not */
extern bool tb_stream_poll_arrays(TbStream *stream);	/* true: one has come or failed */
extern void tb_stream_drop_arrays(TbStream *stream);
extern bool tb_same_url(const char *a, const char *b);

#endif
