/*
 * Fuzz target: a hostile page of a listing. Byte 0 is the length of the prefix that was asked for, which follows,
 * then the XML. Names that are believed are segments of keys below that prefix.
 */
#include "io/s3_list.h"

#include <stdlib.h>
#include <string.h>

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	TbStoreNames names = {0};
	size_t		room = 0;
	TbS3Page   *page;
	char		prefix[256];
	size_t		len;
	TbError		err;
	TbStatus	status;
	int64_t		live = tb_mem_live();

	if (size < 1 || size - 1 < data[0])
		return 0;
	len = data[0];
	memcpy(prefix, data + 1, len);
	prefix[len] = '\0';
	page = malloc(sizeof(*page));
	status = tb_s3_page_parse(data + 1 + len, size - 1 - len, prefix, &names, &room, page, &err);
	CHECK(status == TB_OK || status == TB_E_PROTOCOL);
	CHECK(status != TB_OK || !page->truncated || page->token[0] != '\0');
	for (size_t i = 0; i < names.n; i++)
	{
		const char *name = names.name[i];

		CHECK(name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
		CHECK(strlen(name) <= TB_KEY_MAX_BYTES);
	}
	tb_store_free_names(&names);
	CHECK(tb_mem_live() == live);
	free(page);
	return 0;
}
