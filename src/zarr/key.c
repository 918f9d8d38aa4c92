/*
 * Keys of stored objects. source: Zarr v3 core specification, "chunk key encoding"; Zarr v2,
 * "chunks".
 */
#include "zarr/zarr.h"

#include <stdarg.h>
#include <stdio.h>

/* Append to key; false where it does not fit. */
static bool TB_PRINTF(4, 5)
append(char *key, size_t key_bytes, size_t *used, const char *format, ...)
{
	va_list		args;
	int			n;

	va_start(args, format);
	n = vsnprintf(key + *used, key_bytes - *used, format, args);
	va_end(args);
	if (n < 0 || (size_t) n >= key_bytes - *used)
		return false;
	*used += (size_t) n;
	return true;
}

/* "path/c/1/2", "path/1.2"; without dimensions "path/c" and "path/0". */
bool
tb_chunk_key(const TbArrayMeta *meta, const uint64_t *index, char *key, size_t key_bytes)
{
	size_t		used = 0;
	bool		fits = key_bytes > 0;

	if (fits && meta->path[0] != '\0')
		fits = append(key, key_bytes, &used, "%s/", meta->path);
	if (fits && !meta->key_v2)
		fits = append(key, key_bytes, &used, "c");
	else if (fits && meta->ndim == 0)
		fits = append(key, key_bytes, &used, "0");
	for (int i = 0; fits && i < meta->ndim; i++)
	{
		if (i > 0 || !meta->key_v2)
			fits = append(key, key_bytes, &used, "%c", meta->separator);
		fits = fits && append(key, key_bytes, &used, "%llu", (unsigned long long) index[i]);
	}
	return fits;
}
