/* What the cache on disk has to do with a want: nothing where there is no cache. */
#include "io/store.h"

bool
tb_cached_ask(TbWant *want)
{
	return false;
}

bool
tb_cached_waits(const TbWant *want)
{
	return false;
}

const char *
tb_cached_version(const TbWant *want)
{
	return NULL;
}

void
tb_cached_ended(TbWant *want, const TbOp *op)
{
}

void
tb_cached_free(TbWant *want)
{
}
