/*
 * What only s3 stores tell; private to the room.
 */
#ifndef TB_IO_STORE_S3_H
#define TB_IO_STORE_S3_H

#include "io/store.h"

/* The key that all keys of the store lie below, "" or without the slash that separates it from them; NULL:
 * no s3 store. Borrowed. */
extern const char *tb_s3_store_prefix(const TbStore *store);

#endif
