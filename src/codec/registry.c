/*
 * The table of codecs: one line for each file. Names that writers use for the same format are
 * aliases here and nowhere else.
 */
#include "codec/inner.h"

#include <string.h>

static const TbCodec *const codecs[] = {
	&tb_codec_blosc,
	&tb_codec_bytes,
	&tb_codec_crc32c,
	&tb_codec_gzip,
	&tb_codec_lz4,
	&tb_codec_shuffle,
	&tb_codec_transpose,
	&tb_codec_zlib,
	&tb_codec_zstd,
};

#define N_CODECS (sizeof(codecs) / sizeof(codecs[0]))
#define NUMCODECS                                                                                  \
	"numcodecs." /* zarr-python writes numcodecs' own ids into v3 metadata with this prefix */

/* Codec of a numcodecs id. NULL: not known. */
const TbCodec *
tb_codec_find_v2(const char *id)
{
	for (size_t i = 0; i < N_CODECS; i++)
	{
		if (codecs[i]->v2_id != NULL && strcmp(codecs[i]->v2_id, id) == 0)
			return codecs[i];
	}
	return NULL;
}

/* Codec of a v3 name or alias. NULL: not known. */
const TbCodec *
tb_codec_find(const char *v3_name)
{
	if (strncmp(v3_name, NUMCODECS, strlen(NUMCODECS)) == 0)
		return tb_codec_find_v2(v3_name + strlen(NUMCODECS));
	if (strcmp(v3_name, "endian") == 0) /* what `bytes` was called in drafts of the specification */
		return &tb_codec_bytes;
	for (size_t i = 0; i < N_CODECS; i++)
	{
		if (codecs[i]->name != NULL && strcmp(codecs[i]->name, v3_name) == 0)
			return codecs[i];
	}
	return NULL;
}
