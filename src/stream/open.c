/*
 * Opening a stream: check what was asked for, read the dataset, go to the state's position, get
 * ring memory. Each step that waits is taken up again by tb_stream_step.
 */
#include "stream/pipe.h"

#include <inttypes.h>
#include <string.h>

#define MAX_BATCH (1u << 20)

static TbStatus
invalid(TbError *err, const char *what, uint64_t value)
{
	tb_fail(err, TB_E_INVALID, "stream option is out of range");
	tb_error_detail(err, "%s is %" PRIu64, what, value);
	return TB_E_INVALID;
}

static TbStatus
check_spec(const TbStreamSpec *spec, TbError *err)
{
	const TbDevice *device;

	if (spec->dataset_hash == NULL || strlen(spec->dataset_hash) != 64 ||
		strspn(spec->dataset_hash, "0123456789abcdef") != 64)
		return tb_fail(err, TB_E_INVALID, "hash of the dataset is none");
	if ((spec->dataset_file == NULL) == (spec->dataset_url == NULL || spec->dataset_key == NULL))
		return tb_fail(err, TB_E_INVALID, "place of the dataset is none");
	if (spec->batch_size == 0 || spec->batch_size > MAX_BATCH)
		return invalid(err, "batch_size", spec->batch_size);
	if (spec->prefetch == 0 || spec->prefetch > TB_RING_MAX_SLOTS)
		return invalid(err, "prefetch", spec->prefetch);
	if (spec->world_size == 0)
		return invalid(err, "world_size", spec->world_size);
	if (spec->workers == 0)
		return invalid(err, "workers", spec->workers);
	if (spec->worker >= spec->workers)
		return invalid(err, "worker", spec->worker);
	if (spec->rank >= spec->world_size)
		return invalid(err, "rank", spec->rank);
	return tb_device_find(spec->device, &device, err);
}

/* The state must be of the same dataset and order; batch_size and world_size may differ. */
static TbStatus
check_state(const TbStreamSpec *spec, TbStreamState *state, TbError *err)
{
	const char *differs = NULL;
	TbStatus	status;

	if (spec->state == NULL)
		return TB_OK;
	status = tb_state_parse(spec->state, state, err);
	if (status != TB_OK)
		return status;
	if (strcmp(state->dataset, spec->dataset_hash) != 0)
		differs = "dataset";
	else if (state->seed != spec->seed)
		differs = "seed";
	else if (state->epoch != spec->epoch)
		differs = "epoch";
	else if (state->shuffle != spec->shuffle)
		differs = "shuffle";
	if (differs == NULL)
		return TB_OK;
	tb_fail(err, TB_E_INVALID, "stream state is of another stream");
	tb_error_detail(err, "its %s differs", differs);
	tb_error_hint(err, "Open the stream with the dataset, seed, epoch and shuffle of the state.");
	return TB_E_INVALID;
}

/*
 * Open the request's sources into stream->sources. What was opened before an error stays the
 * stream's.
 */
TbStatus
tb_stream_take_sources(TbStream *stream, const TbSourceSpec *sources, int n, TbError *err)
{
	stream->sources = tb_calloc((size_t) n, sizeof(*stream->sources));
	stream->servers = tb_calloc((size_t) n, sizeof(*stream->servers));
	if (stream->sources == NULL || stream->servers == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (int i = 0; i < n; i++)
	{
		TbStatus	status = tb_sources_open(&stream->hub->sources, &sources[i].store,
											 &stream->sources[i], err);

		if (status != TB_OK)
			return status;
		stream->n_sources = i + 1;
		if (sources[i].server == NULL)
			continue;
		stream->servers[i] = tb_strdup(sources[i].server);
		if (stream->servers[i] == NULL)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	return TB_OK;
}

void
tb_stream_drop_sources(TbStream *stream)
{
	for (int i = 0; i < stream->n_sources; i++)
	{
		tb_sources_close(stream->sources[i]);
		tb_free(stream->servers[i]);
	}
	tb_free(stream->sources);
	tb_free(stream->servers);
	stream->sources = NULL;
	stream->servers = NULL;
	stream->n_sources = 0;
}

/* The dataset's place: one of the sources where the url is the same, else without credentials. */
static TbStatus
open_dataset(TbStream *stream, const TbStreamSpec *spec, TbError *err)
{
	TbStoreSpec plain = {.url = spec->dataset_url};
	const TbStoreSpec *where = &plain;
	TbStatus	status;

	if (spec->dataset_file != NULL)
		return tb_datasets_open(stream->hub, spec, NULL, &stream->entry, err);
	for (int i = 0; i < spec->n_sources; i++)
	{
		const TbSourceSpec *source = &spec->sources[i];
		bool		named = source->server != NULL && spec->dataset_server != NULL &&
			strcmp(source->server, spec->dataset_server) == 0;

		if (tb_same_url(source->store.url, spec->dataset_url) && (where == &plain || named))
			where = &source->store;
	}
	status = tb_sources_open(&stream->hub->sources, where, &stream->index, err);
	if (status != TB_OK)
		return status;
	return tb_datasets_open(stream->hub, spec, tb_source_of(stream->index), &stream->entry, err);
}

static TbStatus
make_token(TbStream *stream, TbError *err)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t		bytes[16];
	TbStatus	status = tb_random(bytes, sizeof(bytes), err);

	for (int i = 0; i < 16; i++)
	{
		stream->token[2 * i] = digits[bytes[i] >> 4];
		stream->token[2 * i + 1] = digits[bytes[i] & 15];
	}
	stream->token[32] = '\0';
	explicit_bzero(bytes, sizeof(bytes));
	return status;
}

/* Keep of the spec what outlives the call. */
static TbStatus
keep_spec(TbStream *stream, const TbStreamSpec *spec, TbError *err)
{
	stream->spec = *spec;
	stream->spec.dataset_url = stream->spec.dataset_key = stream->spec.dataset_file = NULL;
	stream->spec.dataset_server = NULL;
	stream->spec.dataset_hash = stream->spec.state = NULL;
	stream->spec.sources = NULL;
	stream->spec.n_sources = 0;
	memcpy(stream->dataset_hash, spec->dataset_hash, sizeof(stream->dataset_hash));
	stream->spec.device = tb_strdup(spec->device);
	stream->spec.owner_role = tb_strdup(spec->owner_role != NULL ? spec->owner_role : "");
	if (stream->spec.device == NULL || stream->spec.owner_role == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	return make_token(stream, err);
}

TbStatus
tb_stream_open(TbHub *hub, const TbStreamSpec *spec, TbListener listener, TbStream **stream,
			   TbError *err)
{
	TbStreamState state = {.position = 0};
	TbStatus	status = check_spec(spec, err);
	TbStream  **at = &hub->first;
	TbStream   *s;

	*stream = NULL;
	if (status == TB_OK)
		status = check_state(spec, &state, err);
	if (status != TB_OK)
		return status;
	s = tb_calloc(1, sizeof(*s));
	if (s == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	s->hub = hub;
	s->id = ++hub->last_id;
	s->state = state;
	s->ring.mem.fd = -1;
	s->stop = UINT64_MAX;
	s->since_ns = tb_now_ns();
	while (*at != NULL)
		at = &(*at)->next;
	*at = s;
	status = keep_spec(s, spec, err);
	if (status == TB_OK)
		status = tb_stream_take_sources(s, spec->sources, spec->n_sources, err);
	if (status == TB_OK)
		status = open_dataset(s, spec, err);
	if (status != TB_OK)
	{
		tb_stream_close(s);
		return status;
	}
	s->listener = listener;
	tb_stream_set_phase(s, TB_PHASE_OPENING);
	*stream = s;
	return TB_OK;
}

/* Bytes of one sample of each tensor column. */
static TbStatus
take_columns(TbStream *stream, TbError *err)
{
	const TbDatasetColumn *columns;
	int			n = tb_dataset_columns(stream->dataset, &columns);

	stream->tensors = tb_calloc((size_t) n, sizeof(*stream->tensors));
	stream->cells = tb_calloc((size_t) n, sizeof(*stream->cells));
	if (stream->tensors == NULL || stream->cells == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (int i = 0; i < n; i++)
	{
		TbStreamColumn *tensor = &stream->tensors[stream->n_tensors];
		size_t		bytes = tb_dtype_size(columns[i].dtype);

		if (columns[i].scalar != TB_SCALAR_NONE)
			continue;
		for (int d = 0; d < columns[i].ndim; d++)
			if (!tb_mul_size(bytes, (size_t) columns[i].shape[d], &bytes))
				return tb_fail(err, TB_E_LIMIT, "sample is too large");
		tensor->column = i;
		tensor->sample_bytes = bytes;
		tensor->guess = bytes;
		stream->n_tensors++;
	}
	return TB_OK;
}

static TbStatus
lay_out_ring(TbStream *stream, TbError *err)
{
	size_t	   *sizes = tb_calloc((size_t) stream->n_tensors, sizeof(*sizes));
	TbStatus	status;

	if (sizes == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (int i = 0; i < stream->n_tensors; i++)
		sizes[i] = stream->tensors[i].sample_bytes;
	/* a stream without a batch holds no memory that others may want */
	status = tb_ring_init(&stream->ring, sizes, stream->n_tensors,
						  stream->batches > 0 ? stream->spec.batch_size : 1,
						  stream->batches > 0 ? stream->spec.prefetch : 1, err);
	tb_free(sizes);
	return status == TB_OK ? tb_pipe_init(stream, err) : status;
}

/* The dataset is there: what it says decides on the order, the batches and the memory. */
static TbStatus
prepare(TbStream *stream, TbError *err)
{
	const TbDatasetArray *arrays;
	const TbStreamSpec *spec = &stream->spec;
	uint64_t	n = tb_dataset_count(stream->dataset);
	uint64_t	all;

	if (stream->state.position > n)
	{
		tb_fail(err, TB_E_INVALID, "stream state is of another stream");
		tb_error_detail(err, "its position lies behind the end of the dataset");
		return TB_E_INVALID;
	}
	stream->deal = (TbDeal) {.n = n, .batch_size = spec->batch_size, .rank = spec->rank,
	.world_size = spec->world_size, .tail = spec->tail, .first = stream->state.position};
	all = tb_deal_batches(&stream->deal);
	stream->batches = all > spec->worker ? (all - spec->worker - 1) / spec->workers + 1 : 0;
	tb_order_init(&stream->order, n, spec->shuffle, spec->seed, spec->epoch);
	stream->n_arrays = tb_dataset_arrays(stream->dataset, &arrays);
	stream->arrays = tb_calloc((size_t) stream->n_arrays, sizeof(*stream->arrays));
	stream->opening = tb_calloc((size_t) stream->n_arrays, sizeof(*stream->opening));
	if (stream->arrays == NULL || stream->opening == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (take_columns(stream, err) != TB_OK)
		return err->code;
	return lay_out_ring(stream, err);
}

static TbStatus
no_ring_memory(TbStream *stream, TbError *err)
{
	tb_fail(err, TB_E_NOMEM, "no memory for batches is left");
	tb_error_detail(err, "%zu bytes asked for, %" PRIu64 " of %" PRIu64 " in use",
					tb_ring_bytes(&stream->ring),
					stream->hub->memory.used, stream->hub->memory.limit);
	tb_error_hint(err,
				  "Close streams, use a smaller batch_size or prefetch, or raise tensorbank.ring_limit.");
	return TB_E_NOMEM;
}

/* Ring memory is granted, or not. */
static void
run_ring(TbStream *stream, TbStatus status)
{
	TbError		err;

	if (status != TB_OK)
		no_ring_memory(stream, &err);
	else
		status = tb_ring_open(&stream->ring, stream->spec.device, &err);
	if (status != TB_OK)
	{
		tb_ticket_drop(&stream->ticket);
		tb_stream_fail(stream, &err);
	}
	else
		tb_stream_set_phase(stream, stream->batches > 0 ? TB_PHASE_RUNNING : TB_PHASE_DONE);
}

static void
ticket_done(TbTicket *ticket, TbStatus status)
{
	run_ring((TbStream *) ((char *) ticket - offsetof(TbStream, ticket)), status);
}

void
tb_stream_step(TbStream *stream)
{
	TbError		err;
	TbStatus	status;

	if (stream->phase != TB_PHASE_OPENING || stream->dataset != NULL)
		return;
	status = tb_datasets_poll(stream->entry, &stream->dataset, &err);
	if (status == TB_AGAIN)
		return;
	if (status == TB_OK)
		status = prepare(stream, &err);
	if (status != TB_OK)
	{
		tb_stream_fail(stream, &err);
		return;
	}
	status = tb_ticket_take(&stream->hub->memory, &stream->ticket, tb_ring_bytes(&stream->ring),
							ticket_done);
	if (status != TB_AGAIN)
		run_ring(stream, status);
}
