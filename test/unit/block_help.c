/* See block_help.h. */
#include "block_help.h"

uint32_t
sample_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

void
put_bytes(TbStore *store, const char *key, const void *bytes, size_t len)
{
	TbError		error;

	assert_ok(tb_store_put(store, key, bytes, len, false, &error), error);
}

void
put_text(TbStore *store, const char *key, const char *text)
{
	put_bytes(store, key, text, strlen(text));
}

/* ---- metadata ---- */

static void
add_list(TbBuf *buf, const uint64_t *v, int n)
{
	assert_int_equal(tb_buf_printf(buf, "["), TB_OK);
	for (int d = 0; d < n; d++)
		assert_int_equal(tb_buf_printf(buf, "%s%llu", d > 0 ? "," : "", (unsigned long long) v[d]),
						 TB_OK);
	assert_int_equal(tb_buf_printf(buf, "]"), TB_OK);
}

#define ADD(buf, ...) assert_int_equal(tb_buf_printf(buf, __VA_ARGS__), TB_OK)

static void
add_inner_codecs(const Sample *s, TbBuf *buf)
{
	ADD(buf, "[");
	if (s->f_order)
	{
		ADD(buf, "{\"name\":\"transpose\",\"configuration\":{\"order\":[");
		for (int d = s->ndim - 1; d >= 0; d--)
			ADD(buf, "%d%s", d, d > 0 ? "," : "");
		ADD(buf, "]}},");
	}
	ADD(buf, "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}");
	if (s->zstd)
		ADD(buf, ",{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":false}}");
	ADD(buf, "]");
}

static void
add_codecs(const Sample *s, int level, TbBuf *buf)
{
	if (level == s->n_levels)
	{
		add_inner_codecs(s, buf);
		return;
	}
	ADD(buf, "[{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":");
	add_list(buf, level + 1 < s->n_levels ? s->shard[level + 1] : s->chunk, s->ndim);
	ADD(buf, ",\"codecs\":");
	add_codecs(s, level + 1, buf);
	ADD(buf, ",\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}%s]",
		s->index_crc ? ",{\"name\":\"crc32c\"}" : "");
	ADD(buf, ",\"index_location\":\"%s\"}}]", s->index_at_start ? "start" : "end");
}

static void
put_metadata(const Sample *s, TbStore *store)
{
	TbBuf	   *buf = tb_buf_new(0);
	char		key[200];

	if (s->v2)
	{
		ADD(buf,
			"{\"zarr_format\":2,\"dtype\":\"<i4\",\"filters\":null,\"fill_value\":%d,\"order\":\"%"
			"c\",",
			SAMPLE_FILL, s->f_order ? 'F' : 'C');
		ADD(buf, "\"dimension_separator\":\"%c\",\"compressor\":%s,\"shape\":", s->separator,
			s->zstd ? "{\"id\":\"zstd\",\"level\":1}" : "null");
		add_list(buf, s->shape, s->ndim);
		ADD(buf, ",\"chunks\":");
		add_list(buf, s->chunk, s->ndim);
	}
	else
	{
		ADD(buf,
			"{\"zarr_format\":3,\"node_type\":\"array\",\"data_type\":\"int32\",\"fill_value\":%d,"
			"\"attributes\":{},",
			SAMPLE_FILL);
		ADD(buf,
			"\"chunk_key_encoding\":{\"name\":\"default\",\"configuration\":{\"separator\":\"%c\"}}"
			",\"shape\":",
			s->separator);
		add_list(buf, s->shape, s->ndim);
		ADD(buf, ",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":");
		add_list(buf, s->n_levels > 0 ? s->shard[0] : s->chunk, s->ndim);
		ADD(buf, "}},\"codecs\":");
		add_codecs(s, 0, buf);
	}
	ADD(buf, "}");
	snprintf(key, sizeof(key), "%s%s%s", s->path, s->path[0] != '\0' ? "/" : "",
			 s->v2 ? ".zarray" : "zarr.json");
	put_bytes(store, key, buf->data, buf->len);
	tb_buf_unref(buf);
}

/* ---- values ---- */

static size_t
position(const Sample *s, const uint64_t *index)
{
	size_t		at = 0;

	for (int d = 0; d < s->ndim; d++)
		at = at * s->shape[d] + index[d];
	return at;
}

int32_t
sample_at(const Sample *s, const uint64_t *index)
{
	return s->values[position(s, index)];
}

static bool
inside(const Sample *s, const uint64_t *index)
{
	for (int d = 0; d < s->ndim; d++)
		if (index[d] >= s->shape[d])
			return false;
	return true;
}

/* The index of element number i of a box of shape n, from origin. */
static void
unravel(int ndim, size_t i, const uint64_t *n, const uint64_t *origin, uint64_t *index)
{
	for (int d = ndim - 1; d >= 0; d--)
	{
		index[d] = origin[d] + i % n[d];
		i /= n[d];
	}
}

static size_t
volume(int ndim, const uint64_t *n)
{
	size_t		v = 1;

	for (int d = 0; d < ndim; d++)
		v *= n[d];
	return v;
}

/* Where element number i (C order) of a chunk stands in its bytes. */
static size_t
stored_position(const Sample *s, size_t i)
{
	uint64_t	index[4];
	uint64_t	zero[4] = {0};
	size_t		at = 0;

	if (!s->f_order)
		return i;
	unravel(s->ndim, i, s->chunk, zero, index);
	for (int d = s->ndim - 1; d >= 0; d--)
		at = at * s->chunk[d] + index[d];
	return at;
}

/* The encoded chunk at an origin; NULL: left out. Values of a chunk left out become the fill value.
 */
static TbBuf *
encode_chunk(Sample *s, const uint64_t *origin)
{
	size_t		n = volume(s->ndim, s->chunk);
	bool		missing = (int) (sample_random(&s->state) % 100) < s->missing_percent;
	int32_t    *plain = calloc(n, sizeof(int32_t));
	TbBuf	   *buf = tb_buf_new(0);
	bool		any = false;

	for (size_t i = 0; i < n; i++)
	{
		uint64_t	index[4];

		unravel(s->ndim, i, s->chunk, origin, index);
		plain[stored_position(s, i)] = 123456789;	/* padding that nobody must see */
		if (!inside(s, index))
			continue;
		any = true;
		s->values[position(s, index)] =
			missing ? SAMPLE_FILL : (int32_t) position(s, index) * 7 + s->add;
		plain[stored_position(s, i)] = s->values[position(s, index)];
	}
	if (missing || !any)
	{
		tb_buf_unref(buf);
		buf = NULL;
	}
	else if (s->zstd)
		assert_int_equal(tb_zstd_encode(plain, n * sizeof(int32_t), 1, buf, NULL), TB_OK);
	else
		assert_int_equal(tb_buf_append(buf, plain, n * sizeof(int32_t), SIZE_MAX), TB_OK);
	free(plain);
	return buf;
}

static void
put_u64(uint8_t *at, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t) (v >> (8 * i));
}

/* A shard of some level, or a chunk. NULL: nothing in it. */
static TbBuf *
encode(Sample *s, int level, const uint64_t *origin)
{
	const uint64_t *inner = level + 1 < s->n_levels ? s->shard[level + 1] : s->chunk;
	uint64_t	n[4];
	uint64_t	zero[4] = {0};
	TbBuf	   *buf;
	uint8_t    *index_bytes;
	size_t		n_entries;
	size_t		index_len;
	bool		any = false;

	if (level == s->n_levels)
		return encode_chunk(s, origin);
	for (int d = 0; d < s->ndim; d++)
		n[d] = s->shard[level][d] / inner[d];
	n_entries = volume(s->ndim, n);
	index_len = n_entries * 16 + (s->index_crc ? 4 : 0);
	index_bytes = malloc(index_len);
	buf = tb_buf_new(0);
	if (s->index_at_start)
	{
		memset(index_bytes, 0, index_len);
		assert_int_equal(tb_buf_append(buf, index_bytes, index_len, SIZE_MAX), TB_OK);
	}
	for (size_t e = 0; e < n_entries; e++)
	{
		uint64_t	at[4];
		TbBuf	   *part;

		unravel(s->ndim, e, n, zero, at);
		for (int d = 0; d < s->ndim; d++)
			at[d] = origin[d] + at[d] * inner[d];
		part = encode(s, level + 1, at);
		put_u64(index_bytes + 16 * e, part != NULL ? buf->len : UINT64_MAX);
		put_u64(index_bytes + 16 * e + 8, part != NULL ? part->len : UINT64_MAX);
		if (part == NULL)
			continue;
		any = true;
		assert_int_equal(tb_buf_append(buf, part->data, part->len, SIZE_MAX), TB_OK);
		tb_buf_unref(part);
	}
	if (s->index_crc)
	{
		uint32_t	crc = tb_crc32c(0, index_bytes, n_entries * 16);

		for (int i = 0; i < 4; i++)
			index_bytes[n_entries * 16 + (size_t) i] = (uint8_t) (crc >> (8 * i));
	}
	if (s->index_at_start)
		memcpy(buf->data, index_bytes, index_len);
	else
		assert_int_equal(tb_buf_append(buf, index_bytes, index_len, SIZE_MAX), TB_OK);
	free(index_bytes);
	/* a shard of nothing is usually not there at all, but may be */
	if (!any && sample_random(&s->state) % 2 == 0)
	{
		tb_buf_unref(buf);
		return NULL;
	}
	return buf;
}

static void
chunk_key(const Sample *s, const uint64_t *index, char *key, size_t len)
{
	size_t		at = (size_t) snprintf(key, len, "%s%s", s->path, s->path[0] != '\0' ? "/" : "");

	if (!s->v2)
		at += (size_t) snprintf(key + at, len - at, "c");
	else if (s->ndim == 0)
		at += (size_t) snprintf(key + at, len - at, "0");
	for (int d = 0; d < s->ndim; d++)
	{
		if (!s->v2 || d > 0)
			key[at++] = s->separator;
		at += (size_t) snprintf(key + at, len - at, "%llu", (unsigned long long) index[d]);
	}
}

void
sample_build(Sample *s, TbStore *store)
{
	const uint64_t *unit = s->n_levels > 0 ? s->shard[0] : s->chunk;
	uint64_t	n[4];
	uint64_t	zero[4] = {0};

	s->state = s->seed;
	s->n = volume(s->ndim, s->shape);
	free(s->values);
	s->values = calloc(s->n + 1, sizeof(int32_t));
	for (int d = 0; d < s->ndim; d++)
		n[d] = (s->shape[d] + unit[d] - 1) / unit[d];
	put_metadata(s, store);
	for (size_t i = 0; i < volume(s->ndim, n); i++)
	{
		uint64_t	index[4];
		uint64_t	origin[4];
		char		key[300];
		TbBuf	   *bytes;

		unravel(s->ndim, i, n, zero, index);
		for (int d = 0; d < s->ndim; d++)
			origin[d] = index[d] * unit[d];
		bytes = encode(s, 0, origin);
		chunk_key(s, index, key, sizeof(key));
		if (bytes != NULL)
			put_bytes(store, key, bytes->data, bytes->len);
		tb_buf_unref(bytes);
	}
}

void
sample_free(Sample *s)
{
	free(s->values);
	s->values = NULL;
}

int32_t *
sample_region(const Sample *s, const TbRegion *region, size_t *n)
{
	int32_t    *out;

	*n = volume(s->ndim, region->count);
	out = malloc((*n + 1) * sizeof(int32_t));
	for (size_t i = 0; i < *n; i++)
	{
		uint64_t	index[4];

		unravel(s->ndim, i, region->count, region->start, index);
		out[i] = sample_at(s, index);
	}
	return out;
}

void
sample_random_shape(Sample *s, uint32_t *state)
{
	memset(s, 0, sizeof(*s));
	s->path = "a/b";
	s->seed = sample_random(state);
	s->ndim = (int) (sample_random(state) % 5);
	s->v2 = sample_random(state) % 3 == 0;
	s->separator = sample_random(state) % 2 == 0 ? '.' : '/';
	s->f_order = s->ndim > 0 && sample_random(state) % 2 == 0;
	s->zstd = sample_random(state) % 2 == 0;
	s->missing_percent = (int) (sample_random(state) % 3) * 30;
	s->n_levels = s->v2 || s->ndim == 0 ? 0 : (int) (sample_random(state) % 4);
	s->index_crc = sample_random(state) % 2 == 0;
	s->index_at_start = sample_random(state) % 2 == 0;
	for (int d = 0; d < s->ndim; d++)
	{
		uint64_t	unit = 1 + sample_random(state) % 4;

		s->chunk[d] = unit;
		for (int level = s->n_levels - 1; level >= 0; level--)
		{
			unit *= 1 + sample_random(state) % 3;
			s->shard[level][d] = unit;
		}
		s->shape[d] = 1 + sample_random(state) % 13;
	}
}

void
sample_random_region(const Sample *s, uint32_t *state, TbRegion *region)
{
	region->ndim = s->ndim;
	for (int d = 0; d < s->ndim; d++)
	{
		region->start[d] = sample_random(state) % s->shape[d];
		region->count[d] = sample_random(state) % 8 == 0 ? s->shape[d] - region->start[d]
			: 1 + sample_random(state) % (s->shape[d] - region->start[d]);
		if (sample_random(state) % 40 == 0)
			region->count[d] = 0;
	}
}

/* ---- engine ---- */

TbEngine *
engine_open(int threads)
{
	TbEngineOptions options = {.threads = threads, .io = {.retries = -1}};
	TbEngine   *engine;
	TbError		error;

	assert_ok(tb_engine_new(&options, &engine, &error), error);
	return engine;
}

TbArray *
array_open(TbEngine *engine, TbSource *source, const char *path)
{
	TbArray    *array;
	TbError		error;
	TbStatus	status;

	assert_ok(tb_array_open(source, path, -1, &array, &error), error);
	WAIT(engine, status, tb_array_poll(array, &error));
	assert_ok(status, error);
	return array;
}

TbFetch *
fetch_open(TbEngine *engine, TbArray *array, const TbRegion *region)
{
	TbFetch    *fetch;
	TbError		error;
	TbStatus	status;

	assert_ok(tb_fetch_open(array, region, &fetch, &error), error);
	WAIT(engine, status, tb_fetch_poll(fetch, &error));
	assert_ok(status, error);
	return fetch;
}
