/*
 * From the encoded chunks of a fetch to elements: placed into the region in C order
 * (tb_fetch_decode), or shown to a sink run by run (tb_fetch_visit). Pure: no I/O, any one thread,
 * everything it reads is held by the fetch.
 *
 * A chunk whose elements are contiguous in the region and need no treatment is decoded straight
 * into it; a chain that stores plain elements is copied straight from the bytes read; all else goes
 * through one buffer.
 */
#include "block/fetch.h"

#include <string.h>

#define FILL_RUN 1024			/* fill elements shown at a time */

typedef struct Decoding
{
	TbFetch    *fetch;			/* borrowed */
	TbUnpacker	unpacker;
	uint8_t    *dst;			/* borrowed; NULL when visiting */
	uint8_t		fill[8];		/* one treated element */
	TbBuf	   *buf;			/* owned; a decoded chunk, taken on first use */
	TbRunSink	sink;
	void	   *sink_arg;
} Decoding;

/* ---- elements of a chunk ---- */

/* Elements as they are stored, where the chain is the identity. errors: CORRUPT (size). */
static TbStatus
check_plain(const TbFetch *fetch, const TbBuf *bytes, const uint8_t **elements, TbError *err)
{
	size_t		want = tb_chain_decoded_bytes(fetch->chain);

	if (bytes->len != want)
	{
		tb_fail(err, TB_E_CORRUPT, "chunk has the wrong size");
		tb_error_detail(err, "codec bytes, %zu bytes instead of %zu", bytes->len, want);
		return TB_E_CORRUPT;
	}
	*elements = bytes->data;
	return TB_OK;
}

/* Decode a private part into target. errors: CORRUPT, NOMEM. */
static TbStatus
decode_private(const TbFetch *fetch, const TbPart *part, uint8_t *target, TbError *err)
{
	TbScratch  *scratch;

	if (part->bytes->data == target)
	{
		const uint8_t *elements;

		return check_plain(fetch, part->bytes, &elements, err); /* they have landed there */
	}
	scratch = tb_scratch_mine();
	if (scratch == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	return tb_chain_decode(fetch->chain, part->bytes->data, part->bytes->len, target,
						   tb_chain_decoded_bytes(fetch->chain), scratch, err);
}

/* A pointer to all elements of a chunk, good until the next call. errors: CORRUPT, NOMEM. */
static TbStatus
chunk_elements(Decoding *decoding, const TbPart *part, const uint8_t **elements, TbError *err)
{
	TbFetch    *fetch = decoding->fetch;
	TbStatus	status;

	if (tb_chain_is_identity(fetch->chain))
	{
		status = check_plain(fetch, part->load != NULL ? part->load->bytes : part->bytes, elements,
						   err);
		if (status != TB_OK && part->load != NULL)
			__atomic_store_n(&part->load->damaged, true, __ATOMIC_RELAXED);
		return status;
	}
	if (part->load != NULL)
		return tb_chunk_decoded(part->load, fetch->chain, elements, err);
	if (decoding->buf == NULL)
		decoding->buf = tb_engine_take_buf(fetch->engine, tb_chain_decoded_bytes(fetch->chain));
	if (decoding->buf == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = decode_private(fetch, part, decoding->buf->data, err);
	*elements = decoding->buf->data;
	return status;
}

/* ---- runs ---- */

/* Go to the next run over dimensions from `from` on; false at the end. at[] counts, src and dst
 * follow. */
static bool
next_run(const TbRuns *runs, int from, size_t *at, size_t *src, size_t *dst)
{
	for (int d = from; d < runs->n; d++)
	{
		*src += runs->src_step[d];
		*dst += runs->dst_step[d];
		if (++at[d] < runs->count[d])
			return true;
		*src -= runs->src_step[d] * runs->count[d];
		*dst -= runs->dst_step[d] * runs->count[d];
		at[d] = 0;
	}
	return false;
}

/* Single elements a stride apart, copied without a call each. */
#define COPY_STRIDED(type) \
	for (size_t i = 0; i < count; i++) \
		memcpy(dst + i * dst_step * sizeof(type), src + i * src_step * sizeof(type), sizeof(type))

static void
copy_strided(const uint8_t *src, size_t src_step, uint8_t *dst, size_t dst_step, size_t count,
			 size_t bytes)
{
	switch (bytes)
	{
		case 1:
			COPY_STRIDED(uint8_t);
			break;
		case 2:
			COPY_STRIDED(uint16_t);
			break;
		case 4:
			COPY_STRIDED(uint32_t);
			break;
		default:
			COPY_STRIDED(uint64_t);
			break;
	}
}

/* Copy or unpack all runs of an overlap. errors: RANGE (cast). */
static TbStatus
place_elements(const Decoding *decoding, const uint8_t *elements, const TbRuns *runs, TbError *err)
{
	const TbUnpacker *unpacker = &decoding->unpacker;
	size_t		at[TB_MAX_DIM] = {0};
	size_t		src = runs->src;
	size_t		dst = runs->dst;
	bool		strided = unpacker->plain && runs->run == 1 && runs->n > 0;

	do
	{
		const uint8_t *from = elements + src * unpacker->src_bytes;
		uint8_t    *to = decoding->dst + dst * unpacker->dst_bytes;
		TbStatus	status = TB_OK;

		if (strided)
			copy_strided(from, runs->src_step[0], to, runs->dst_step[0], runs->count[0],
						 unpacker->src_bytes);
		else if (unpacker->plain)
			memcpy(to, from, runs->run * unpacker->src_bytes);
		else
			status = tb_unpacker_run(unpacker, from, runs->run, to, err);
		if (status != TB_OK)
			return status;
	}
	while (next_run(runs, strided ? 1 : 0, at, &src, &dst));
	return TB_OK;
}

static void
fill_run(uint8_t *dst, size_t n, const uint8_t *element, size_t bytes)
{
	bool		same = true;

	for (size_t i = 1; i < bytes; i++)
		same = same && element[i] == element[0];
	if (same)
	{
		memset(dst, element[0], n * bytes);
		return;
	}
	for (size_t i = 0; i < n; i++)
		memcpy(dst + i * bytes, element, bytes);
}

static void
place_fill(const Decoding *decoding, const TbRuns *runs)
{
	size_t		bytes = decoding->unpacker.dst_bytes;
	size_t		at[TB_MAX_DIM] = {0};
	size_t		src = runs->src;
	size_t		dst = runs->dst;

	do
		fill_run(decoding->dst + dst * bytes, runs->run, decoding->fill, bytes);
	while (next_run(runs, 0, at, &src, &dst));
}

/* ---- one part ---- */

/* True where the whole chunk, padding included, is one run of the region. */
static bool
is_one_run(const TbFetch *fetch, const TbRuns *runs)
{
	size_t		elements = tb_chain_decoded_bytes(fetch->chain) / tb_dtype_size(fetch->meta->dtype);

	return runs->n == 0 && runs->run == elements;
}

uint8_t *
tb_fetch_target(const TbFetch *fetch, const uint64_t *index)
{
	TbOverlap	overlap;
	TbRuns		runs;

	tb_overlap_of(&fetch->region, fetch->meta->chunk, index, &overlap);
	tb_runs_plan(&overlap, fetch->meta->chunk, fetch->region.count, &runs);
	return is_one_run(fetch, &runs) ? fetch->into + runs.dst * tb_dtype_size(fetch->meta->dtype) : NULL;
}

static TbStatus
decode_part(Decoding *decoding, uint32_t number, TbError *err)
{
	TbFetch    *fetch = decoding->fetch;
	const TbPart *part = &fetch->part[number];
	const uint8_t *elements = NULL;
	uint64_t	index[TB_MAX_DIM];
	TbOverlap	overlap;
	TbRuns		runs;
	TbStatus	status;

	tb_box_index(&fetch->chunks, number, index);
	tb_overlap_of(&fetch->region, fetch->meta->chunk, index, &overlap);
	tb_runs_plan(&overlap, fetch->meta->chunk, fetch->region.count, &runs);
	if (part->state == TB_PART_MISSING)
	{
		place_fill(decoding, &runs);
		return TB_OK;
	}
	if (part->load == NULL && decoding->unpacker.plain && is_one_run(fetch, &runs))
		return decode_private(fetch, part, decoding->dst + runs.dst * decoding->unpacker.dst_bytes,
							  err);
	status = chunk_elements(decoding, part, &elements, err);
	return status == TB_OK ? place_elements(decoding, elements, &runs, err) : status;
}

static void
visit_fill(const Decoding *decoding, const TbOverlap *overlap)
{
	size_t		bytes = tb_dtype_size(decoding->fetch->meta->dtype);
	uint64_t	run[FILL_RUN];
	uint64_t	left = 1;

	for (int d = 0; d < overlap->ndim; d++)
		left *= overlap->count[d];
	fill_run((uint8_t *) run, left < FILL_RUN ? (size_t) left : FILL_RUN,
			 decoding->fetch->meta->fill, bytes);
	for (size_t n; left > 0; left -= n)
	{
		n = left < FILL_RUN ? (size_t) left : FILL_RUN;
		decoding->sink(decoding->sink_arg, run, n);
	}
}

static TbStatus
visit_part(Decoding *decoding, uint32_t number, TbError *err)
{
	TbFetch    *fetch = decoding->fetch;
	const TbPart *part = &fetch->part[number];
	size_t		bytes = tb_dtype_size(fetch->meta->dtype);
	size_t		at[TB_MAX_DIM] = {0};
	const uint8_t *elements = NULL;
	uint64_t	index[TB_MAX_DIM];
	TbOverlap	overlap;
	TbRuns		runs;
	TbStatus	status;
	size_t		src;
	size_t		dst;

	tb_box_index(&fetch->chunks, number, index);
	tb_overlap_of(&fetch->region, fetch->meta->chunk, index, &overlap);
	if (part->state == TB_PART_MISSING)
	{
		visit_fill(decoding, &overlap);
		return TB_OK;
	}
	status = chunk_elements(decoding, part, &elements, err);
	if (status != TB_OK)
		return status;
	/* the overlap itself as target: runs in its own C order */
	memset(overlap.dst_start, 0, sizeof(overlap.dst_start));
	tb_runs_plan(&overlap, fetch->meta->chunk, overlap.count, &runs);
	src = runs.src;
	dst = runs.dst;
	do
		decoding->sink(decoding->sink_arg, elements + src * bytes, runs.run);
	while (next_run(&runs, 0, at, &src, &dst));
	return TB_OK;
}

/* ---- the whole fetch ---- */

static TbStatus
each_part(Decoding *decoding, TbStatus (*work) (Decoding *, uint32_t, TbError *), TbError *err)
{
	TbFetch    *fetch = decoding->fetch;
	TbStatus	status = TB_OK;
	TbError		error;

	tb_error_clear(&error);
	for (uint64_t i = 0; i < fetch->chunks.total && status == TB_OK; i++)
	{
		status = work(decoding, (uint32_t) i, &error);
		if (status != TB_OK)
			tb_fetch_error_detail(fetch, NULL, (uint32_t) i, &error);
	}
	tb_engine_give_buf(fetch->engine, decoding->buf);
	if (status != TB_OK && err != NULL)
		*err = error;
	return status;
}

static TbStatus
check_state(const TbFetch *fetch, TbError *err)
{
	if (fetch->status != TB_OK || fetch->locate_only)
		return tb_fail(err, TB_E_STATE, "fetch has no bytes to decode");
	return TB_OK;
}

TbStatus
tb_fetch_decode(TbFetch *fetch, TbTreatment treatment, void *dst, size_t dst_bytes, TbError *err)
{
	Decoding	decoding = {.fetch = fetch, .dst = dst};
	uint64_t	elements;
	size_t		want;
	TbStatus	status = check_state(fetch, err);

	if (status == TB_OK)
		status = tb_unpacker_init(&decoding.unpacker, &fetch->meta->packing, treatment, err);
	if (status != TB_OK)
		return status;
	if (!tb_region_elements(&fetch->region, &elements) ||
		!tb_mul_size((size_t) elements, decoding.unpacker.dst_bytes, &want) || want != dst_bytes)
		return tb_fail(err, TB_E_INTERNAL, "target has another size than the region");
	status = tb_unpacker_run(&decoding.unpacker, fetch->meta->fill, 1, decoding.fill, err);
	if (status == TB_E_RANGE)
	{
		/* only a part that is missing needs it: there it is an error */
		memset(decoding.fill, 0, sizeof(decoding.fill));
		for (uint64_t i = 0; i < fetch->chunks.total; i++)
			if (fetch->part[i].state == TB_PART_MISSING)
				return status;
		status = TB_OK;
	}
	return status == TB_OK ? each_part(&decoding, decode_part, err) : status;
}

TbStatus
tb_fetch_visit(TbFetch *fetch, TbRunSink sink, void *arg, TbError *err)
{
	Decoding	decoding = {.fetch = fetch, .sink = sink, .sink_arg = arg};
	TbStatus	status = check_state(fetch, err);

	return status == TB_OK ? each_part(&decoding, visit_part, err) : status;
}
