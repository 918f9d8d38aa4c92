/*
 * Chunks that several regions share: bytes fetched once and decoded once, kept by the engine within
 * a budget. Used only where a region takes a part of a chunk; whole chunks have one reader and
 * would only push others out.
 *
 * thread: finding is the loop's; decoding may be any thread's. The first decoder of a chunk does
 * the work, others wait for it. The engine's mutex guards state and buffer, never the decoding
 * itself.
 */
#include "block/fetch.h"

#include <string.h>

typedef struct ChunkName
{
	uint64_t	array;			/* serial of what is known of the array: new metadata, new chunks */
	uint64_t	generation;
	uint64_t	version;		/* of the shard; 0 where the chunk is an object of its own */
	uint64_t	index[TB_MAX_DIM];
} ChunkName;

size_t
tb_chunk_limit(const TbChain *chain)
{
	size_t		limit = tb_chain_encoded_limit(chain);

	return limit < 2 * TB_CHUNK_MAX_BYTES ? limit : 2 * TB_CHUNK_MAX_BYTES;
}

bool
tb_chunk_is_shared(const TbFetch *fetch, const uint64_t *index)
{
	const TbArrayMeta *meta = fetch->meta;
	TbOverlap	overlap;

	if (fetch->share_all)
		return true;
	tb_overlap_of(&fetch->region, meta->chunk, index, &overlap);
	for (int d = 0; d < meta->ndim; d++)
	{
		uint64_t	left = meta->shape[d] - index[d] * meta->chunk[d];

		if (overlap.count[d] < (left < meta->chunk[d] ? left : meta->chunk[d]))
			return true;
	}
	return false;
}

TbStatus
tb_chunk_get(TbFetch *fetch, uint32_t number, TbLoad **load, bool *began, TbError *err)
{
	const TbPart *part = &fetch->part[number];
	TbLoadSpec	spec = {.source = fetch->array->source, .cache = &fetch->engine->chunks};
	ChunkName	name;

	memset(&name, 0, sizeof(name));
	name.array = fetch->array->core->serial;
	name.generation = fetch->array->source->generation;
	name.version = part->object != NULL ? part->object->version_hash : 0;
	tb_box_index(&fetch->chunks, number, name.index);
	spec.name = &name;
	spec.name_len = offsetof(ChunkName, index) + (size_t) fetch->meta->ndim * sizeof(uint64_t);
	spec.kind = TB_RANGE_WHOLE;
	spec.length = tb_chunk_limit(fetch->chain);
	if (part->object != NULL)
	{
		spec.object = part->object->key;
		spec.kind = TB_RANGE_AT;
		spec.offset = part->offset;
		spec.length = part->length;
		spec.if_version = part->object->version;
	}
	else
	{
		if (!tb_fetch_object_key(fetch, number, fetch->key))
			return tb_fail(err, TB_E_INTERNAL, "chunk key does not fit");
		spec.object = fetch->key;
	}
	spec.cost = tb_chain_decoded_bytes(fetch->chain);
	spec.max_age_ns = part->object == NULL && !fetch->share_all ? fetch->engine->chunk_max_age_ns
		: fetch->engine->max_age_ns;
	spec.shard_bytes = UINT64_MAX;
	spec.no_cache = fetch->again;
	return tb_load_get(&spec, load, began, err);
}

/* Decode into a fresh buffer. NULL: err says why. */
static TbBuf *
decode_fresh(TbLoad *load, const TbChain *chain, TbError *err)
{
	size_t		bytes = tb_chain_decoded_bytes(chain);
	TbScratch  *scratch = tb_scratch_mine();
	TbBuf	   *buf = scratch != NULL ? tb_engine_take_buf(load->engine, bytes) : NULL;

	if (buf == NULL)
	{
		(void) tb_fail(err, TB_E_NOMEM, "out of memory");
		return NULL;
	}
	if (tb_chain_decode(chain, load->bytes->data, load->bytes->len, buf->data, bytes, scratch,
						err) == TB_OK)
		return buf;
	tb_engine_give_buf(load->engine, buf);
	return NULL;
}

TbStatus
tb_chunk_decoded(TbLoad *load, const TbChain *chain, const uint8_t **bytes, TbError *err)
{
	TbEngine   *engine = load->engine;
	TbBuf	   *buf;

	pthread_mutex_lock(&engine->mu);
	while (load->decode_state == TB_DECODING)
		pthread_cond_wait(&engine->decoded, &engine->mu);
	if (load->decode_state == TB_UNDECODED)
	{
		load->decode_state = TB_DECODING;
		pthread_mutex_unlock(&engine->mu);
		buf = decode_fresh(load, chain, err);
		pthread_mutex_lock(&engine->mu);
		load->decoded = buf;
		load->decode_state = buf != NULL ? TB_DECODED : TB_UNDECODED;
		if (buf != NULL)
		{
			tb_buf_unref(load->bytes);
			load->bytes = NULL;
		}
		else
			__atomic_store_n(&load->damaged, true, __ATOMIC_RELAXED);
		pthread_cond_broadcast(&engine->decoded);
	}
	buf = load->decoded;
	pthread_mutex_unlock(&engine->mu);
	if (buf == NULL)
		return err != NULL ? err->code : TB_E_CORRUPT;
	*bytes = buf->data;
	return TB_OK;
}
