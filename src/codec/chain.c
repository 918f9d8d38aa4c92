/*
 * A chain: the codecs of one array, opened once and run backwards for each chunk.
 *
 * Opening walks the list in encoding order and works out what each step decodes to. Where a size is
 * not known beforehand (between two byte codecs) it gets a limit: what an encoder may add to
 * incompressible bytes.
 *
 * Decoding keeps a cursor on the current bytes. Most steps write somewhere else ("movers"), some
 * only narrow the cursor (checksums), some do nothing (native byte order), one works in place (byte
 * order). The last mover writes into the caller's target, so that [bytes, zstd] has no copy at all;
 * the others alternate between two scratch buffers.
 */
#include "codec/inner.h"

#include <string.h>

#define MAX_STEPS 32
#define SLACK_BYTES ((size_t) 64 << 10)

typedef struct Step
{
	const TbCodec *codec;
	void	   *state;			/* owned; the codec's */
	size_t		decoded_bytes;	/* SIZE_MAX: not known */
	size_t		encoded_bytes;	/* SIZE_MAX: not known */
	size_t		decoded_limit;	/* decoded_bytes, or the most it can be */
	bool		identity;
} Step;

struct TbChain
{
	int			n_steps;
	int			first_mover;	/* step that writes last, in decoding order; n_steps: none */
	bool		identity;
	size_t		decoded_bytes;
	size_t		encoded_limit;
	char	   *text;			/* owned */
	Step		step[MAX_STEPS];	/* in encoding order */
};

/* The bytes that a chunk has come to. */
typedef struct Cursor
{
	const uint8_t *data;		/* borrowed: input, scratch or target */
	size_t		len;
	uint8_t    *own;			/* data where it may be written, else NULL */
	int			slot;			/* scratch buffer to use next */
} Cursor;

/* One entry of the metadata's list. */
typedef struct Entry
{
	const char *name;			/* as written (borrowed) */
	const TbCodec *codec;		/* NULL: not known */
	TbJson	   *config;			/* borrowed */
	bool		must_understand;
} Entry;

static TbStatus
invalid_list(TbError *err, const char *reason)
{
	tb_fail(err, TB_E_INVALID, "list of codecs is not valid");
	tb_error_detail(err, "%s", reason);
	return TB_E_INVALID;
}

static TbStatus
parse_entry(const TbJson *value, Entry *entry, TbError *err)
{
	*entry = (Entry) {.must_understand = true};
	if (tb_json_as_string(value, &entry->name))		/* a bare name stands for {"name": ...} */
	{
		entry->codec = tb_codec_find(entry->name);
		return TB_OK;
	}
	if (tb_json_get_string(value, "v2_id", &entry->name))
		entry->codec = tb_codec_find_v2(entry->name);
	else if (tb_json_get_string(value, "name", &entry->name))
		entry->codec = tb_codec_find(entry->name);
	else
		return invalid_list(err, "a codec has no name");
	(void) tb_json_get_bool(value, "must_understand", &entry->must_understand);
	if (tb_json_get(value, "configuration", &entry->config) && entry->config != NULL &&
		tb_json_type(entry->config) != TB_JSON_OBJECT)
		return invalid_list(err, "the configuration of a codec is no object");
	return TB_OK;
}

/* Most bytes an encoder makes of `bytes`. */
static size_t
encoded_bound(size_t bytes)
{
	return bytes + bytes / 8 + SLACK_BYTES;
}

/* Open one step on what the one before encodes to; *space and *limit become what this one encodes
 * to. */
static TbStatus
open_step(TbChain *chain, const Entry *entry, TbCodecSpace *space, size_t *limit, TbError *err)
{
	Step	   *step = &chain->step[chain->n_steps];
	TbCodecSpace encoded = *space;

	step->codec = entry->codec;
	if (entry->codec->kind == TB_BYTES_TO_BYTES)
		encoded.bytes = SIZE_MAX;
	if (entry->codec->open != NULL)
	{
		TbStatus	status = entry->codec->open(entry->config, space, &encoded, &step->state, err);

		if (status != TB_OK)
			return status;
	}
	chain->n_steps++;
	step->decoded_bytes = space->bytes;
	step->encoded_bytes = encoded.bytes;
	step->decoded_limit = *limit;
	step->identity = step->codec->is_identity != NULL && step->codec->is_identity(step->state);
	*limit = encoded.bytes != SIZE_MAX ? encoded.bytes : encoded_bound(*limit);
	*space = encoded;
	return TB_OK;
}

/* Bytes of a chunk; INVALID and LIMIT as for tb_chain_open. */
static TbStatus
chunk_space(TbDtype dtype, int ndim, const uint64_t *shape, TbCodecSpace *space, TbError *err)
{
	*space = (TbCodecSpace) {.dtype = dtype, .ndim = ndim, .bytes = tb_dtype_size(dtype)};
	if (space->bytes == 0 || ndim < 0 || ndim > TB_MAX_DIM)
	{
		tb_fail(err, TB_E_INVALID, "chunk has no valid type or shape");
		tb_error_detail(err, "%d dimensions of type %s", ndim, tb_dtype_name(dtype));
		return TB_E_INVALID;
	}
	for (int i = 0; i < ndim; i++)
	{
		if (shape[i] > SIZE_MAX || !tb_mul_size(space->bytes, (size_t) shape[i], &space->bytes))
			space->bytes = SIZE_MAX;
		if (space->bytes > TB_CHUNK_MAX_BYTES)
		{
			tb_fail(err, TB_E_LIMIT, "chunk is too large");
			tb_error_detail(err, "a decoded chunk has more than %zu bytes", TB_CHUNK_MAX_BYTES);
			return TB_E_LIMIT;
		}
		space->shape[i] = shape[i];
	}
	return TB_OK;
}

/* The list must be array-to-array codecs, one array-to-bytes codec, byte codecs. seen: kind of the
 * last one. */
static TbStatus
check_kind(TbCodecKind kind, int *seen, TbError *err)
{
	if ((int) kind < *seen)
		return invalid_list(err, "a codec for arrays stands behind one that makes bytes");
	if (kind == TB_ARRAY_TO_BYTES && *seen == TB_ARRAY_TO_BYTES)
		return invalid_list(err, "more than one codec makes bytes of the array");
	if (kind == TB_BYTES_TO_BYTES && *seen < TB_ARRAY_TO_BYTES)
		return invalid_list(err, "no codec makes bytes of the array before it is compressed");
	*seen = kind;
	return TB_OK;
}

/* Open all codecs of the list; their words go to text. */
static TbStatus
open_steps(TbChain *chain, const TbJson *codecs, TbCodecSpace *space, TbBuf *text, TbError *err)
{
	size_t		n = tb_json_length(codecs);
	int			seen = TB_ARRAY_TO_ARRAY;

	chain->encoded_limit = space->bytes;
	for (size_t i = 0; i < n; i++)
	{
		Entry		entry;
		TbStatus	status = parse_entry(tb_json_at(codecs, i), &entry, err);

		if (status != TB_OK)
			return status;
		if (entry.codec == NULL && !entry.must_understand)
			continue;
		if (entry.codec == NULL)
		{
			tb_fail(err, TB_E_UNSUPPORTED, "codec is not supported");
			tb_error_detail(err, "codec \"%.100s\"", entry.name);
			return TB_E_UNSUPPORTED;
		}
		if (chain->n_steps == MAX_STEPS)
			return tb_fail(err, TB_E_LIMIT, "too many codecs for one array");
		status = check_kind(entry.codec->kind, &seen, err);
		if (status == TB_OK)
			status = open_step(chain, &entry, space, &chain->encoded_limit, err);
		if (status != TB_OK)
			return status;
		if ((chain->n_steps > 1 && tb_buf_printf(text, ", ") != TB_OK) ||
			tb_codec_describe(text, entry.name, entry.config) != TB_OK)
			return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	if (seen < TB_ARRAY_TO_BYTES)
		return invalid_list(err, "no codec makes bytes of the array");
	return TB_OK;
}

/* True where the step writes its bytes anew, at another place. */
static bool
is_mover(const Step *step)
{
	return !step->identity && step->codec->decode_view == NULL && !step->codec->in_place;
}

TbStatus
tb_chain_open(const TbJson *codecs, TbDtype dtype, int ndim, const uint64_t *shape, TbChain **chain,
			  TbError *err)
{
	TbChain    *made;
	TbCodecSpace space;
	TbBuf	   *text;
	TbStatus	status = chunk_space(dtype, ndim, shape, &space, err);

	*chain = NULL;
	if (status != TB_OK)
		return status;
	made = tb_calloc(1, sizeof(*made));
	text = tb_buf_new(64);
	if (made == NULL || text == NULL)
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else
	{
		made->decoded_bytes = space.bytes;
		status = open_steps(made, codecs, &space, text, err);
	}
	if (status == TB_OK)
	{
		made->text = tb_strndup((const char *) text->data, text->len);
		if (made->text == NULL)
			status = tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	tb_buf_unref(text);
	if (status != TB_OK)
	{
		tb_chain_free(made);
		return status;
	}
	made->identity = true;
	made->first_mover = made->n_steps;
	for (int i = made->n_steps - 1; i >= 0; i--)
	{
		made->identity = made->identity && made->step[i].identity;
		if (is_mover(&made->step[i]))
			made->first_mover = i;
	}
	*chain = made;
	return TB_OK;
}

void
tb_chain_free(TbChain *chain)
{
	if (chain == NULL)
		return;
	for (int i = 0; i < chain->n_steps; i++)
	{
		if (chain->step[i].codec->close != NULL)
			chain->step[i].codec->close(chain->step[i].state);
	}
	tb_free(chain->text);
	tb_free(chain);
}

size_t
tb_chain_decoded_bytes(const TbChain *chain)
{
	return chain->decoded_bytes;
}

bool
tb_chain_is_identity(const TbChain *chain)
{
	return chain->identity;
}

size_t
tb_chain_encoded_limit(const TbChain *chain)
{
	return chain->encoded_limit;
}

const char *
tb_chain_describe(const TbChain *chain)
{
	return chain->text;
}

/* The scratch buffer whose turn it is, with room for `bytes`. errors: NOMEM. */
static TbStatus
take_slot(Cursor *cursor, TbScratch *scratch, size_t bytes, TbBuf **buf, TbError *err)
{
	TbStatus	status = tb_scratch_reserve(&scratch->step[cursor->slot], bytes, err);

	*buf = scratch->step[cursor->slot];
	cursor->slot ^= 1;
	return status;
}

/* target: where the result belongs, NULL: not the last to write. */
static TbStatus
decode_array_step(const Step *step, Cursor *cursor, uint8_t *target, TbScratch *scratch,
				  TbError *err)
{
	TbBuf	   *buf;
	TbStatus	status;

	if (target == NULL && step->codec->in_place)
		target = cursor->own;
	if (target == NULL)
	{
		status = take_slot(cursor, scratch, step->decoded_bytes, &buf, err);
		if (status != TB_OK)
			return status;
		target = buf->data;
	}
	status = step->codec->decode_array(step->state, cursor->data, target, err);
	cursor->data = cursor->own = target;
	cursor->len = step->decoded_bytes;
	return status;
}

static TbStatus
decode_byte_step(const Step *step, Cursor *cursor, uint8_t *target, TbScratch *scratch,
				 TbError *err)
{
	TbCodecOut	out = {.data = target, .len = step->decoded_bytes, .scratch = scratch};
	TbStatus	status;

	if (target == NULL)
	{
		TbBuf	   *buf;

		status = take_slot(cursor, scratch, step->decoded_limit, &buf, err);
		if (status != TB_OK)
			return status;
		if (step->decoded_bytes == SIZE_MAX)
		{
			out.grow = buf;
			out.limit = step->decoded_limit;
		}
		else
			out.data = buf->data;
		target = buf->data;
	}
	status = step->codec->decode_bytes(step->state, cursor->data, cursor->len, &out, err);
	if (status != TB_OK)
		return status;
	cursor->data = cursor->own = target;
	cursor->len = out.grow != NULL ? out.grow->len : out.len;
	return TB_OK;
}

/* Run step i on the cursor. errors: CORRUPT, NOMEM. */
static TbStatus
decode_step(const TbChain *chain, int i, Cursor *cursor, uint8_t *dst, TbScratch *scratch,
			TbError *err)
{
	const Step *step = &chain->step[i];
	uint8_t *target =
		i <= chain->first_mover && step->decoded_bytes == chain->decoded_bytes ? dst : NULL;
	const char *name = step->codec->name != NULL ? step->codec->name : step->codec->v2_id;

	if (step->encoded_bytes != SIZE_MAX && cursor->len != step->encoded_bytes)
		return tb_codec_corrupt(err, name, "%zu bytes where %zu are needed", cursor->len,
								step->encoded_bytes);
	if (step->identity)
		return TB_OK;
	if (step->codec->decode_view != NULL)
	{
		size_t		offset;
		TbStatus status = step->codec->decode_view(step->state, cursor->data, cursor->len, &offset,
												   &cursor->len, err);

		if (status != TB_OK)
			return status;
		cursor->data += offset;
		cursor->own = cursor->own != NULL ? cursor->own + offset : NULL;
		return TB_OK;
	}
	if (step->codec->kind == TB_BYTES_TO_BYTES)
		return decode_byte_step(step, cursor, target, scratch, err);
	return decode_array_step(step, cursor, target, scratch, err);
}

TbStatus
tb_chain_decode(const TbChain *chain, const uint8_t *src, size_t src_len, uint8_t *dst,
				size_t dst_len, TbScratch *scratch, TbError *err)
{
	Cursor		cursor = {.data = src, .len = src_len};
	TbStatus	status = TB_OK;

	if (dst_len != chain->decoded_bytes)
		return tb_fail(err, TB_E_INTERNAL, "target and chunk differ in size");
	if (scratch == NULL)
		scratch = tb_scratch_mine();
	if (scratch == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (int i = chain->n_steps - 1; status == TB_OK && i >= 0; i--)
		status = decode_step(chain, i, &cursor, dst, scratch, err);
	if (status == TB_OK && cursor.data != dst && dst_len > 0)
		memcpy(dst, cursor.data, dst_len);
	tb_scratch_trim(scratch);
	return status;
}
