/*
 * The codec list of a v3 array, taken apart: each sharding_indexed becomes a shard level, what is
 * inside the innermost is left as the list for the chunks. Whether those codecs are known is
 * decided by codec/.
 *
 * source: Zarr v3 core specification, "codecs"; sharding_indexed codec 1.0.
 */
#include "zarr/parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SHARDING "sharding_indexed"
#define INDEX_MAX_BYTES ((size_t) 256 << 20)	/* sixteen million entries in one shard */

static TbStatus TB_PRINTF(3, 4)
fail(TbError *err, TbStatus status, const char *format, ...)
{
	char		reason[256];
	va_list		args;

	va_start(args, format);
	(void) vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	tb_fail(err, status,
			status == TB_E_UNSUPPORTED ? "codec is not supported"
									   : "codec configuration is not valid");
	tb_error_detail(err, "%s", reason);
	return status;
}

/* Where the list has sharding_indexed, or its length. errors: INVALID. */
static TbStatus
find_sharding(const TbJson *codecs, size_t *at, TbJson **config, TbError *err)
{
	const char *name;

	if (tb_json_type(codecs) != TB_JSON_ARRAY)
		return fail(err, TB_E_INVALID, "\"codecs\" is no list");
	for (*at = 0; *at < tb_json_length(codecs); (*at)++)
	{
		if (!tb_extension(tb_json_at(codecs, *at), &name, config))
			return fail(err, TB_E_INVALID, "a codec has no name");
		if (strcmp(name, SHARDING) == 0)
			return TB_OK;
	}
	return TB_OK;
}

/* A shard must be the whole stored object, its axes those of the array. errors: UNSUPPORTED. */
static TbStatus
check_neighbours(const TbJson *codecs, size_t at, TbError *err)
{
	for (size_t i = 0; i < tb_json_length(codecs); i++)
	{
		TbJson	   *codec = tb_json_at(codecs, i);
		const char *name;
		TbJson	   *config;

		if (i == at || !tb_extension(codec, &name, &config) ||
			(tb_codec_find(name) == NULL && tb_may_ignore(codec)))
			continue;
		return fail(err, TB_E_UNSUPPORTED, "codec \"%.100s\" %s \"" SHARDING "\"", name,
					i < at ? "before" : "behind");
	}
	return TB_OK;
}

/* index_codecs: bytes, then perhaps crc32c; nothing else has a size that is known beforehand. */
static TbStatus
parse_index_codecs(const TbJson *codecs, TbShardLevel *level, TbError *err)
{
	size_t		n = tb_json_length(codecs);
	const char *name;
	const char *endian;
	TbJson	   *config;

	for (size_t i = 0; i < n; i++)
	{
		if (!tb_extension(tb_json_at(codecs, i), &name, &config))
			return fail(err, TB_E_INVALID, "a codec in \"index_codecs\" has no name");
		if (strcmp(name, i == 0 ? "bytes" : "crc32c") != 0 || i > 1)
			return fail(err, TB_E_UNSUPPORTED, "codec \"%.100s\" in \"index_codecs\" at place %zu",
						name, i);
		if (i == 1)
			level->index_crc = true;
		else if (!tb_json_get_string(config, "endian", &endian) ||
				 (strcmp(endian, "little") != 0 && strcmp(endian, "big") != 0))
			return fail(err, TB_E_INVALID, "codec \"bytes\" in \"index_codecs\" has no byte order");
		else
			level->index_big_endian = endian[0] == 'b';
	}
	if (n == 0)
		return fail(err, TB_E_INVALID, "\"index_codecs\" of \"" SHARDING "\" is no list of codecs");
	return TB_OK;
}

/* Entries of one shard and the bytes of its index. errors: INVALID, LIMIT. */
static TbStatus
count_entries(int ndim, TbShardLevel *level, TbError *err)
{
	uint64_t	entries = 1;

	for (int i = 0; i < ndim; i++)
	{
		if (level->shard[i] % level->inner[i] != 0)
			return fail(err, TB_E_INVALID,
						"\"" SHARDING "\": a shard of %llu on axis %d is no multiple of %llu",
						(unsigned long long) level->shard[i], i,
						(unsigned long long) level->inner[i]);
		if (!tb_mul_u64(entries, level->shard[i] / level->inner[i], &entries) ||
			entries > INDEX_MAX_BYTES / 16)
		{
			tb_fail(err, TB_E_LIMIT, "shards of the array have too many chunks");
			tb_error_detail(err, "at most %zu are allowed", INDEX_MAX_BYTES / 16);
			return TB_E_LIMIT;
		}
	}
	level->n_entries = entries;
	level->index_bytes = (size_t) entries * 16 + (level->index_crc ? 4 : 0);
	return TB_OK;
}

/* Read one sharding_indexed; *inner (borrowed): its codecs. */
static TbStatus
parse_level(const TbArrayMeta *meta, const TbJson *config, TbShardLevel *level, TbJson **inner,
			TbError *err)
{
	TbJson	   *member;
	const char *location = "end";
	int			ndim = meta->ndim;
	TbStatus	status;

	memcpy(level->shard, meta->chunk, sizeof(level->shard));
	if (!tb_json_get(config, "chunk_shape", &member))
		return fail(err, TB_E_INVALID, "\"" SHARDING "\" has no \"chunk_shape\"");
	status = tb_sizes_parse(member, "chunk_shape", 1, &ndim, level->inner, err);
	if (status != TB_OK)
		return status;
	if (tb_json_get(config, "index_location", &member) &&
		(!tb_json_as_string(member, &location) ||
		 (strcmp(location, "start") != 0 && strcmp(location, "end") != 0)))
		return fail(err, TB_E_INVALID,
					"\"index_location\" of \"" SHARDING "\" is neither \"start\" nor \"end\"");
	level->index_at_start = location[0] == 's';
	(void) tb_json_get(config, "index_codecs", &member);
	status = parse_index_codecs(member, level, err);
	if (status == TB_OK)
		status = count_entries(ndim, level, err);
	if (status == TB_OK && !tb_json_get(config, "codecs", inner))
		return fail(err, TB_E_INVALID, "\"" SHARDING "\" has no \"codecs\"");
	return status;
}

TbStatus
tb_v3_codecs(TbArrayMeta *meta, TbJson *codecs, TbError *err)
{
	memcpy(meta->chunk, meta->grid_chunk, sizeof(meta->chunk));
	for (;;)
	{
		TbShardLevel *level = &meta->shard[meta->n_shard_levels % TB_MAX_SHARD_LEVELS];
		TbJson	   *config = NULL;
		size_t		at = 0;
		TbStatus	status = find_sharding(codecs, &at, &config, err);

		if (status != TB_OK)
			return status;
		if (at == tb_json_length(codecs))
			break;
		status = check_neighbours(codecs, at, err);
		if (status == TB_OK && meta->n_shard_levels == TB_MAX_SHARD_LEVELS)
			status = fail(err, TB_E_UNSUPPORTED, "\"" SHARDING "\" nested more than %d times",
						  TB_MAX_SHARD_LEVELS);
		if (status == TB_OK)
			status = parse_level(meta, config, level, &codecs, err);
		if (status != TB_OK)
			return status;
		memcpy(meta->chunk, level->inner, sizeof(meta->chunk));
		meta->n_shard_levels++;
	}
	meta->codecs = tb_json_ref(codecs);
	return TB_OK;
}
