/*
 * A page of a listing, pure: the XML of ListObjectsV2 to names of one level.
 */
#ifndef TB_IO_S3_LIST_H
#define TB_IO_S3_LIST_H

#include "io/store.h"

#define TB_S3_TOKEN_BYTES 4096
#define TB_S3_PAGE_MAX_BYTES ((size_t) 16 << 20)

typedef struct TbS3Page
{
	bool		truncated;		/* there is more, after token */
	char		token[TB_S3_TOKEN_BYTES];
	size_t		seen;			/* names told, also those that no key can have */
} TbS3Page;

/* Add what a page tells to names, without the prefix that all keys share ("" or with its slash at the end). Names
 * that are no part of a key of ours are left out: "", ".", "..". errors: PROTOCOL, LIMIT, NOMEM. */
extern TbStatus tb_s3_page_parse(const void *bytes, size_t len, const char *prefix, TbStoreNames *names, size_t *room,
								 TbS3Page *page, TbError *err) TB_MUST_CHECK;

#endif
