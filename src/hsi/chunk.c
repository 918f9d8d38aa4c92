/*
 * Chunks of an index's arrays in memory: found by (level, array, statistic, number), loaded through
 * the block room as any array's chunk, decoded once into TbValue, kept under a bound in order of
 * last use. Several scans share them; what one of them waits for the others find.
 */
#include <stdio.h>
#include <string.h>

#include "hsi/index.h"

bool
tb_index_is_damage(TbStatus status)
{
	switch (status)
	{
		case TB_OK:
		case TB_AGAIN:
		case TB_E_NOMEM:
		case TB_E_CANCELED:
		case TB_E_IO:
		case TB_E_CONNECT:
		case TB_E_LOST:
		case TB_E_THROTTLED:
		case TB_E_AUTH:
		case TB_E_DENIED:
		case TB_E_INTERNAL:
			return false;
		default:
			return true;
	}
}

static size_t
hash_of(int level, int array, int stored, uint64_t number)
{
	return (size_t) tb_mix64(number ^ tb_mix64(((uint64_t) array << 16) ^ ((uint64_t) level << 8) ^
											   (uint64_t) stored));
}

static TbHsiChunk *
lookup(const TbHsi *hsi, int level, int array, TbStored stored, uint64_t number)
{
	TbHsiChunk *c;

	if (hsi->n_buckets == 0)
		return NULL;
	c = hsi->bucket[hash_of(level, array, (int) stored, number) & (hsi->n_buckets - 1)];
	while (c != NULL && (c->level != level || c->array != array || c->stored != stored ||
						 c->number != number))
		c = c->next;
	return c;
}

static bool
grow(TbHsi *hsi)
{
	size_t		n = hsi->n_buckets == 0 ? 256 : hsi->n_buckets * 2;
	TbHsiChunk **bucket = tb_calloc(n, sizeof(*bucket));

	if (bucket == NULL)
		return false;
	for (size_t i = 0; i < hsi->n_buckets; i++)
		for (TbHsiChunk *c = hsi->bucket[i], *next; c != NULL; c = next)
		{
			size_t		at = hash_of(c->level, c->array, c->stored, c->number) & (n - 1);

			next = c->next;
			c->next = bucket[at];
			bucket[at] = c;
		}
	tb_free(hsi->bucket);
	hsi->bucket = bucket;
	hsi->n_buckets = n;
	return true;
}

static void
unlink_unused(TbHsi *hsi, TbHsiChunk *c)
{
	if (c->newer != NULL)
		c->newer->older = c->older;
	else
		hsi->newest = c->older;
	if (c->older != NULL)
		c->older->newer = c->newer;
	else
		hsi->oldest = c->newer;
	c->newer = c->older = NULL;
}

static void
stop_loading(TbHsiChunk *c)
{
	tb_fetch_free(c->fetch);
	tb_array_unref(c->zarr);
	c->fetch = NULL;
	c->zarr = NULL;
}

/* Take an unused chunk out of the table and free it. */
static void
drop(TbHsi *hsi, TbHsiChunk *c)
{
	TbHsiChunk **at = &hsi->bucket[hash_of(c->level, c->array, c->stored, c->number) &
								   (hsi->n_buckets - 1)];

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	hsi->n_chunks--;
	hsi->bytes -= c->bytes;
	stop_loading(c);
	tb_free(c->value);
	tb_free(c);
}

static void
use(TbHsi *hsi, TbHsiChunk *c)
{
	if (c->refs++ == 0)
		unlink_unused(hsi, c);
}

TbHsiChunk *
tb_chunk_peek(TbHsi *hsi, int level, int array, TbStored stored, uint64_t number)
{
	TbHsiChunk *c = lookup(hsi, level, array, stored, number);

	if (c == NULL || c->state != TB_CHUNK_READY)
		return NULL;
	use(hsi, c);
	return c;
}

TbHsiChunk *
tb_hsi_chunk_get(TbHsi *hsi, int level, int array, TbStored stored, uint64_t number)
{
	TbHsiChunk *c = lookup(hsi, level, array, stored, number);
	size_t		at;

	if (c != NULL)
	{
		use(hsi, c);
		return c;
	}
	if (hsi->n_chunks >= hsi->n_buckets && !grow(hsi))
		return NULL;
	c = tb_calloc(1, sizeof(*c));
	if (c == NULL)
		return NULL;
	c->level = (uint16_t) level;
	c->array = array;
	c->stored = (uint16_t) stored;
	c->number = number;
	c->refs = 1;
	tb_geometry_chunk_box(&hsi->head->geo, level, number, &c->box);
	at = hash_of(level, array, (int) stored, number) & (hsi->n_buckets - 1);
	c->next = hsi->bucket[at];
	hsi->bucket[at] = c;
	hsi->n_chunks++;
	return c;
}

void
tb_chunk_release(TbHsi *hsi, TbHsiChunk *c)
{
	if (c == NULL || --c->refs > 0)
		return;
	c->older = hsi->newest;
	if (hsi->newest != NULL)
		hsi->newest->newer = c;
	hsi->newest = c;
	if (hsi->oldest == NULL)
		hsi->oldest = c;
	/* Nobody waits for it any more: what is half loaded is not worth keeping. */
	if (c->state == TB_CHUNK_OPENING || c->state == TB_CHUNK_FETCHING)
	{
		unlink_unused(hsi, c);
		drop(hsi, c);
	}
	while (hsi->bytes > TB_HSI_CACHE_BYTES && hsi->oldest != NULL)
	{
		TbHsiChunk *old = hsi->oldest;

		unlink_unused(hsi, old);
		drop(hsi, old);
	}
}

void
tb_chunk_free_all(TbHsi *hsi)
{
	while (hsi->oldest != NULL)
	{
		TbHsiChunk *old = hsi->oldest;

		unlink_unused(hsi, old);
		drop(hsi, old);
	}
	tb_free(hsi->bucket);
	hsi->bucket = NULL;
	hsi->n_buckets = 0;
}

/* ---- loading ---- */

/* The array is what the head says: anything else is another index's, or damaged. */
static TbStatus
check_meta(const TbHsi *hsi, const TbHsiChunk *c, const TbArrayMeta *meta, TbError *err)
{
	const TbGeometry *geo = &hsi->head->geo;
	TbDtype		dtype = tb_stored_dtype((TbStored) c->stored, hsi->head->array[c->array].stat);
	bool		sharded = tb_geometry_sharded(geo, c->level);
	bool		same = meta->ndim == geo->ndim && meta->dtype == dtype &&
		meta->n_shard_levels == (sharded ? 1 : 0);

	for (int a = 0; same && a < geo->ndim; a++)
		same = meta->shape[a] == geo->shape[c->level][a] &&
			meta->chunk[a] == geo->chunk[c->level][a] &&
			meta->grid_chunk[a] == geo->shard[c->level][a];
	if (!same)
	{
		TbStatus status =
			tb_fail(err, TB_E_INDEX_CORRUPT, "array of the index is not as its head says");

		tb_error_detail(err, "array \"%s\"", meta->path);
		return status;
	}
	return TB_OK;
}

static TbStatus
open_zarr(TbHsi *hsi, TbHsiChunk *c, TbError *err)
{
	char		path[TB_HSI_KEY_BYTES];

	if (!tb_hsi_stored_path(path, hsi->root, c->level, hsi->head->array[c->array].path,
							(TbStored) c->stored))
		return tb_fail(err, TB_E_LIMIT, "key of the index is too long");
	return tb_array_open(hsi->where, path, 0, &c->zarr, err);
}

static TbStatus
open_fetch(TbHsi *hsi, TbHsiChunk *c, TbError *err)
{
	const TbGeometry *geo = &hsi->head->geo;
	TbRegion	region = {.ndim = geo->ndim};
	TbStatus	status = check_meta(hsi, c, tb_array_meta(c->zarr), err);

	if (status != TB_OK)
		return status;
	memcpy(region.start, c->box.start, sizeof(region.start));
	memcpy(region.count, c->box.count, sizeof(region.count));
	return tb_fetch_open(c->zarr, &region, &c->fetch, err);
}

static TbStatus
decode(TbHsi *hsi, TbHsiChunk *c, TbIndexCost *cost, TbError *err)
{
	TbDtype		dtype = tb_stored_dtype((TbStored) c->stored, hsi->head->array[c->array].stat);
	size_t		n = (size_t) tb_box_nodes(hsi->head->geo.ndim, &c->box);
	TbTreatment raw = {.raw = true, .cast = TB_NONE};
	void	   *packed;
	TbStatus	status;

	cost->requests += tb_fetch_requests(c->fetch);
	cost->bytes += tb_fetch_bytes(c->fetch);
	/* Every chunk of a part that is done is written: an absent one was lost. */
	if (tb_fetch_all_missing(c->fetch))
		return tb_fail(err, TB_E_INDEX_CORRUPT, "chunk of the index is missing");
	packed = tb_malloc(n * tb_dtype_size(dtype));
	c->value = tb_calloc(n, sizeof(TbValue));
	if (packed == NULL || c->value == NULL)
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else
		status = tb_fetch_decode(c->fetch, raw, packed, n * tb_dtype_size(dtype), err);
	if (status == TB_OK)
	{
		tb_stored_unpack(dtype, packed, n, c->value);
		c->bytes = n * sizeof(TbValue);
		hsi->bytes += c->bytes;
		c->state = TB_CHUNK_READY;
	}
	tb_free(packed);
	if (status == TB_E_CORRUPT && tb_fetch_again(c->fetch))
	{
		tb_free(c->value);
		c->value = NULL;
		status = TB_AGAIN;
	}
	return status;
}

static TbStatus
step(TbHsi *hsi, TbHsiChunk *c, TbIndexCost *cost, TbError *err)
{
	TbStatus	status = TB_OK;

	if (c->state == TB_CHUNK_OPENING)
	{
		if (c->zarr == NULL)
			status = open_zarr(hsi, c, err);
		if (status == TB_OK)
			status = tb_array_poll(c->zarr, err);
		if (status == TB_OK)
			status = open_fetch(hsi, c, err);
		if (status != TB_OK)
			return status;
		c->state = TB_CHUNK_FETCHING;
	}
	if (c->state == TB_CHUNK_FETCHING)
	{
		status = tb_fetch_poll(c->fetch, err);
		if (status == TB_OK)
			status = decode(hsi, c, cost, err);
	}
	return status;
}

static void
note_damage(TbHsi *hsi, const TbHsiChunk *c, const TbError *why)
{
	if (hsi->damage[0] == '\0')
		snprintf(hsi->damage, sizeof(hsi->damage), "%.120s (level %d, %s of array \"%.60s\")",
				 why->message, (int) c->level, tb_stored_info((TbStored) c->stored)->name,
				 hsi->head->array[c->array].path);
}

TbStatus
tb_chunk_poll(TbHsi *hsi, TbHsiChunk *c, TbIndexCost *cost, TbError *err)
{
	TbError		why = {0};
	TbStatus	status = step(hsi, c, cost, &why);

	if (status == TB_AGAIN)
		return TB_AGAIN;
	stop_loading(c);
	if (status == TB_OK)
		return TB_OK;
	tb_free(c->value);
	c->value = NULL;
	if (tb_index_is_damage(status))
	{
		note_damage(hsi, c, &why);
		c->state = TB_CHUNK_BAD;
		return TB_OK;
	}
	c->state = TB_CHUNK_OPENING;	/* the next to ask tries again */
	if (err != NULL)
		*err = why;
	return status;
}
