/*
 * Fuzz target: a chunk of hostile bytes through a chain. Byte 0 chooses the chain, bytes 1 and 2
 * the size of the chunk in elements, the rest is the chunk. Whatever comes, it decodes or is
 * corrupt, and the same bytes give the same answer again.
 */
#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PLAIN "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"little\"}}"
#define BIG "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"big\"}}"
#define TURNED "{\"name\": \"transpose\", \"configuration\": {\"order\": [1, 0]}}"
#define SHUFFLE "{\"v2_id\": \"shuffle\", \"configuration\": {\"elementsize\": 4}}"

static const char *const lists[] = {
	"[" PLAIN ", \"blosc\"]",
	"[" BIG ", \"blosc\"]",
	"[" PLAIN ", \"zstd\"]",
	"[" PLAIN ", \"gzip\"]",
	"[" PLAIN ", {\"v2_id\": \"zlib\"}]",
	"[" PLAIN ", {\"v2_id\": \"lz4\"}]",
	"[" PLAIN ", " SHUFFLE ", {\"v2_id\": \"zlib\"}]",
	"[" TURNED ", " BIG ", \"zstd\"]",
	"[" PLAIN ", \"crc32c\"]",
	"[" PLAIN ", \"zstd\", \"gzip\"]",
	"[" PLAIN ", {\"v2_id\": \"lz4\"}, " SHUFFLE ", \"blosc\"]",
	"[" BIG ", \"blosc\", \"blosc\"]",
};

#define N_LISTS (sizeof(lists) / sizeof(lists[0]))

/* A chain for `elements` in two dimensions, where that comes out even. */
static TbChain *
open_chain(const char *list, size_t elements)
{
	uint64_t	shape[] = {elements % 3 == 0 ? 3 : 1, elements % 3 == 0 ? elements / 3 : elements};
	TbJson	   *doc = NULL;
	TbChain    *chain = NULL;
	TbError		err;

	if (tb_json_parse(list, strlen(list), &doc, &err) != TB_OK ||
		tb_chain_open(doc, TB_F32, 2, shape, &chain, &err) != TB_OK)
		abort();
	tb_json_free(doc);
	return chain;
}

/* Decode to memory of exactly the chunk's size; caller frees *out. */
static TbStatus
decode(const TbChain *chain, const uint8_t *data, size_t size, uint8_t **out)
{
	size_t		want = tb_chain_decoded_bytes(chain);
	TbError		err = {0};
	TbStatus	status;

	*out = malloc(want > 0 ? want : 1);
	if (*out == NULL)
		abort();
	memset(*out, 0x5a, want);
	status = tb_chain_decode(chain, data, size, *out, want, NULL, &err);
	if (status != TB_OK && (status != TB_E_CORRUPT || err.code != status || err.detail[0] == '\0'))
		abort();
	return status;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	TbChain    *chain;
	uint8_t    *first;
	uint8_t    *again;
	TbStatus	status;

	if (size < 3)
		return 0;
	chain = open_chain(lists[data[0] % N_LISTS], (size_t) data[1] << 8 | data[2]);
	status = decode(chain, data + 3, size - 3, &first);
	if (decode(chain, data + 3, size - 3, &again) != status ||
		(status == TB_OK && memcmp(first, again, tb_chain_decoded_bytes(chain)) != 0))
		abort();
	free(first);
	free(again);
	tb_chain_free(chain);
	return 0;
}
