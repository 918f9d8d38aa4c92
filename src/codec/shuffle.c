/*
 * `shuffle` (numcodecs, and HDF5's filter in references): byte shuffling of the whole chunk as a
 * step of its own. The kernel is in unshuffle.c.
 */
#include "codec/inner.h"

#define DEFAULT_ELEMENT 4		/* numcodecs' */
#define MAX_ELEMENT 4096

typedef struct ShuffleState
{
	size_t		element_bytes;
} ShuffleState;

static TbStatus
shuffle_open(const TbJson *config, const TbCodecSpace *decoded, TbCodecSpace *encoded, void **state,
			 TbError *err)
{
	int64_t		element_bytes = DEFAULT_ELEMENT;
	TbJson	   *value;
	ShuffleState *shuffle;
	bool		valid = true;

	if (config != NULL && tb_json_get(config, "elementsize", &value))
		valid = tb_json_as_int(value, &element_bytes);
	if (!valid || element_bytes < 0 || element_bytes > MAX_ELEMENT)
	{
		tb_fail(err, TB_E_INVALID, "codec configuration is not valid");
		tb_error_detail(err, "codec \"shuffle\": \"elementsize\" is no number from 0 to %d",
						MAX_ELEMENT);
		return TB_E_INVALID;
	}
	if (element_bytes == 0)
		element_bytes = 1;		/* numcodecs: at most 1 means not shuffled */
	if (decoded->bytes != SIZE_MAX && decoded->bytes % (size_t) element_bytes != 0)
	{
		tb_fail(err, TB_E_INVALID, "codec configuration is not valid");
		tb_error_detail(err, "codec \"shuffle\": %zu bytes are no multiple of \"elementsize\" %d",
						decoded->bytes, (int) element_bytes);
		return TB_E_INVALID;
	}
	shuffle = tb_calloc(1, sizeof(*shuffle));
	if (shuffle == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	shuffle->element_bytes = (size_t) element_bytes;
	encoded->bytes = decoded->bytes;
	*state = shuffle;
	return TB_OK;
}

static bool
shuffle_is_identity(const void *state)
{
	return ((const ShuffleState *) state)->element_bytes == 1;
}

static TbStatus
shuffle_decode(const void *state, const uint8_t *src, size_t src_len, TbCodecOut *out, TbError *err)
{
	size_t		element_bytes = ((const ShuffleState *) state)->element_bytes;
	uint8_t    *dst;
	size_t		room;
	TbStatus	status = tb_out_begin(out, &dst, &room, err);

	if (status != TB_OK)
		return status;
	if (src_len > room || src_len % element_bytes != 0)
		return tb_codec_corrupt(err, "shuffle",
								"%zu bytes do not fit a chunk of %zu and elements of %zu", src_len,
								room, element_bytes);
	if (src_len > 0)
		tb_unshuffle(element_bytes, src_len, src, dst);
	return tb_out_end(out, src_len, "shuffle", err);
}

const TbCodec tb_codec_shuffle = {
	.v2_id = "shuffle",
	.kind = TB_BYTES_TO_BYTES,
	.open = shuffle_open,
	.close = tb_free,
	.decode_bytes = shuffle_decode,
	.is_identity = shuffle_is_identity,
};
