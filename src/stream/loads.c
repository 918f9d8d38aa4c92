/*
 * Single loads: one region of one array, decoded into memory of its own that a handle names. Each
 * goes through array metadata, ring memory, fetch and decode, one after another.
 */
#include "stream/delivery.h"

#include <inttypes.h>
#include <string.h>

typedef enum Stage
{
	STAGE_ARRAY,				/* metadata is awaited */
	STAGE_MEMORY,				/* the ticket is awaited */
	STAGE_FETCH,
	STAGE_DECODE,				/* a decode thread has it */
	STAGE_READY,
	STAGE_FAILED
} Stage;

struct TbDelivery
{
	TbHub	   *hub;			/* borrowed */
	TbDelivery *next;
	uint64_t	id;
	TbListener	listener;
	TbTask		tell;
	bool		telling;
	bool		closing;

	Stage		stage;
	bool		begun;			/* type and shape are known */
	TbRegion	region;
	TbTreatment treatment;
	TbDtype		dtype;
	size_t		bytes;
	char	   *device;			/* owned */
	TbSourceEntry *source;		/* owned use */
	TbArray    *array;			/* owned reference */
	TbTicket	ticket;
	TbDevMem	mem;
	TbFetch    *fetch;			/* owned */

	/* the decode thread's in STAGE_DECODE */
	TbTask		decode;
	TbTask		back;
	TbStatus	status;
	TbError		error;
};

static void
run_tell(TbTask *task)
{
	TbDelivery *d = (TbDelivery *) ((char *) task - offsetof(TbDelivery, tell));

	d->telling = false;
	if (d->listener.changed != NULL)
		d->listener.changed(d->listener.arg);
}

/* The one place where the stage changes. */
static void
set_stage(TbDelivery *d, Stage stage)
{
	d->stage = stage;
	if (d->telling || d->closing)
		return;
	d->telling = true;
	d->tell.run = run_tell;
	tb_loop_defer(d->hub->loop, &d->tell);
}

/* d->error is set. */
static void
fail(TbDelivery *d, TbStatus status)
{
	d->status = status;
	tb_fetch_free(d->fetch);
	d->fetch = NULL;
	tb_dev_free(&d->mem);
	tb_ticket_drop(&d->ticket);
	set_stage(d, STAGE_FAILED);
}

static void
destroy(TbDelivery *d)
{
	tb_fetch_free(d->fetch);
	tb_dev_free(&d->mem);
	tb_ticket_drop(&d->ticket);
	tb_array_unref(d->array);
	tb_sources_close(d->source);
	tb_free(d->device);
	tb_free(d);
}

static void fetch_ready(void *arg);

static void
run_back(TbTask *task)
{
	TbDelivery *d = (TbDelivery *) ((char *) task - offsetof(TbDelivery, back));

	if (d->closing)
	{
		d->hub->n_dying--;
		destroy(d);
		return;
	}
	if (d->status == TB_E_CORRUPT && tb_fetch_again(d->fetch))
	{
		d->stage = STAGE_FETCH;
		tb_fetch_on_ready(d->fetch, fetch_ready, d);
		return;
	}
	if (d->status != TB_OK)
	{
		fail(d, d->status);
		return;
	}
	tb_fetch_free(d->fetch);
	d->fetch = NULL;
	set_stage(d, STAGE_READY);
}

/* thread: a decode thread. */
static void
run_decode(TbTask *task)
{
	TbDelivery *d = (TbDelivery *) ((char *) task - offsetof(TbDelivery, decode));

	d->status = tb_fetch_decode(d->fetch, d->treatment, d->mem.host, d->bytes, &d->error);
	tb_loop_post(d->hub->loop, &d->back);
}

static void
fetch_ready(void *arg)
{
	TbDelivery *d = arg;
	TbStatus	status = tb_fetch_poll(d->fetch, &d->error);

	if (status == TB_AGAIN)
		return;
	if (status != TB_OK)
	{
		fail(d, status);
		return;
	}
	d->decode.run = run_decode;
	d->back.run = run_back;
	d->stage = STAGE_DECODE;
	tb_pool_submit(d->hub->pool, &d->decode);
}

/* Memory is granted, or not. */
static void
run_memory(TbDelivery *d, TbStatus status)
{
	if (status != TB_OK)
	{
		tb_fail(&d->error, TB_E_NOMEM, "no memory for loads is left");
		tb_error_detail(&d->error, "%zu bytes asked for, %" PRIu64 " of %" PRIu64 " in use",
						d->bytes, d->hub->memory.used,
						d->hub->memory.limit);
		tb_error_hint(&d->error, "Release handles, close streams, or raise tensorbank.ring_limit.");
		fail(d, TB_E_NOMEM);
		return;
	}
	/* an empty region has a page of its own, so that every handle has memory to share */
	status = tb_dev_alloc(d->device, d->bytes > 0 ? d->bytes : 1, &d->mem, &d->error);
	if (status == TB_OK)
		status = tb_fetch_open_into(d->array, &d->region, d->treatment, d->mem.host, &d->fetch, &d->error);
	if (status != TB_OK)
	{
		fail(d, status);
		return;
	}
	d->stage = STAGE_FETCH;
	tb_fetch_on_ready(d->fetch, fetch_ready, d);
}

static void
ticket_done(TbTicket *ticket, TbStatus status)
{
	run_memory((TbDelivery *) ((char *) ticket - offsetof(TbDelivery, ticket)), status);
}

/* The region inside the array, and its size. */
static TbStatus
measure(TbDelivery *d, TbError *err)
{
	const TbArrayMeta *meta = tb_array_meta(d->array);
	uint64_t	elements;

	if (d->region.ndim != meta->ndim)
	{
		tb_fail(err, TB_E_INVALID, "region has another number of dimensions than its array");
		tb_error_detail(err, "%d, not %d", d->region.ndim, meta->ndim);
		return TB_E_INVALID;
	}
	for (int i = 0; i < meta->ndim; i++)
		if (d->region.start[i] > meta->shape[i] ||
			d->region.count[i] > meta->shape[i] - d->region.start[i])
		{
			tb_fail(err, TB_E_RANGE, "region lies outside its array");
			tb_error_detail(err, "array \"%.200s\", dimension %d", meta->path, i);
			return TB_E_RANGE;
		}
	d->dtype = tb_treated_dtype(meta, d->treatment);
	if (!tb_region_elements(&d->region, &elements) ||
		!tb_mul_size((size_t) elements, tb_dtype_size(d->dtype),
					 &d->bytes) || d->bytes > PTRDIFF_MAX)
		return tb_fail(err, TB_E_RANGE, "region is too large");
	return TB_OK;
}

void
tb_delivery_step(TbDelivery *d)
{
	TbStatus	status;

	if (d->stage != STAGE_ARRAY)
		return;
	status = tb_array_poll(d->array, &d->error);
	if (status == TB_AGAIN)
		return;
	if (status == TB_OK)
		status = measure(d, &d->error);
	if (status != TB_OK)
	{
		fail(d, status);
		return;
	}
	d->begun = true;
	set_stage(d, STAGE_MEMORY);
	status = tb_ticket_take(&d->hub->memory, &d->ticket, d->bytes, ticket_done);
	if (status != TB_AGAIN)
		run_memory(d, status);
}

TbDelivery *
tb_delivery_next(TbDelivery *delivery)
{
	return delivery->next;
}

static void
unlink_delivery(TbDelivery *d)
{
	TbDelivery **at = &d->hub->deliveries;

	while (*at != NULL && *at != d)
		at = &(*at)->next;
	if (*at == d)
		*at = d->next;
}

/*
 * owns: the caller, tb_delivery_close. errors: INVALID, UNSUPPORTED, NOT_FOUND, NOMEM; the others
 * by poll.
 */
TbStatus
tb_delivery_open(TbHub *hub, const TbDeliverySpec *spec, TbListener listener, TbDelivery **delivery,
				 TbError *err)
{
	const TbDevice *device;
	TbStatus	status = tb_device_find(spec->device, &device, err);
	TbDelivery *d;

	*delivery = NULL;
	if (status != TB_OK)
		return status;
	d = tb_calloc(1, sizeof(*d));
	if (d == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	d->hub = hub;
	d->id = ++hub->last_delivery;
	d->mem.fd = -1;
	d->region = spec->region;
	d->treatment = spec->treatment;
	d->listener = listener;
	d->device = tb_strdup(spec->device);
	if (d->device == NULL)
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	if (status == TB_OK)
		status = tb_sources_open(&hub->sources, &spec->source.store, &d->source, err);
	if (status == TB_OK)
		status = tb_array_open(tb_source_of(d->source), spec->array, spec->mask_fill, &d->array,
							   err);
	if (status != TB_OK)
	{
		destroy(d);
		return status;
	}
	d->next = hub->deliveries;
	hub->deliveries = d;
	*delivery = d;
	return TB_OK;
}

static TbStatus
failure(const TbDelivery *d, TbError *err)
{
	if (err != NULL)
		*err = d->error;
	return d->status;
}

TbStatus
tb_delivery_begun(TbDelivery *delivery, TbError *err)
{
	if (delivery->begun)
		return TB_OK;
	return delivery->stage == STAGE_FAILED ? failure(delivery, err) : TB_AGAIN;
}

TbStatus
tb_delivery_poll(TbDelivery *delivery, TbError *err)
{
	if (delivery->stage == STAGE_READY)
		return TB_OK;
	return delivery->stage == STAGE_FAILED ? failure(delivery, err) : TB_AGAIN;
}

/* After begun said OK. */
void
tb_delivery_place(const TbDelivery *delivery, TbTensorPlace *place)
{
	memset(place, 0, sizeof(*place));
	place->dtype = delivery->dtype;
	place->ndim = delivery->region.ndim;
	memcpy(place->shape, delivery->region.count, sizeof(delivery->region.count));
	place->bytes = delivery->bytes;
	place->fd = delivery->mem.fd;
}

void
tb_delivery_handle(const TbDelivery *delivery, TbHandle *handle)
{
	memset(handle, 0, sizeof(*handle));
	memcpy(handle->epoch, delivery->hub->epoch, sizeof(handle->epoch));
	handle->generation = delivery->id;
}

/* Freed at once, or when the decode thread lets go of it. */
void
tb_delivery_close(TbDelivery *delivery)
{
	if (delivery == NULL)
		return;
	unlink_delivery(delivery);
	if (delivery->telling)
		tb_loop_undefer(delivery->hub->loop, &delivery->tell);
	delivery->closing = true;
	if (delivery->stage == STAGE_DECODE)
		delivery->hub->n_dying++;
	else
		destroy(delivery);
}
