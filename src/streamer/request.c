/* Members of requests, checked for type and range. Texts are borrowed from the request. */
#include "streamer/server.h"

#include <string.h>

#define MAX_SOURCES 4096

TbStatus
tb_request_missing(const char *member, TbError *err)
{
	tb_fail(err, TB_E_PROTOCOL, "request lacks a member or has it of another type");
	tb_error_detail(err, "member \"%s\"", member);
	return TB_E_PROTOCOL;
}

/* An integer member in [0, max]; absent or null: as it is. */
static TbStatus
take_uint(const TbJson *request, const char *name, uint64_t max, uint64_t *value, TbError *err)
{
	TbJson	   *member;
	uint64_t	number;

	if (!tb_json_get(request, name, &member) || member == NULL)
		return TB_OK;
	if (!tb_json_as_uint(member, &number) || number > max)
		return tb_request_missing(name, err);
	*value = number;
	return TB_OK;
}

static TbStatus
take_u32(const TbJson *request, const char *name, uint32_t *value, TbError *err)
{
	uint64_t	number = *value;
	TbStatus	status = take_uint(request, name, UINT32_MAX, &number, err);

	*value = (uint32_t) number;
	return status;
}

/* Seeds and epochs may come as they are in SQL: signed. */
static TbStatus
take_bits(const TbJson *request, const char *name, uint64_t *value, TbError *err)
{
	TbJson	   *member;
	int64_t		number;

	if (!tb_json_get(request, name, &member) || member == NULL || tb_json_as_uint(member, value))
		return TB_OK;
	if (!tb_json_as_int(member, &number))
		return tb_request_missing(name, err);
	*value = (uint64_t) number;
	return TB_OK;
}

/* A text; absent or null: NULL. */
static const char *
take_text(const TbJson *request, const char *name)
{
	const char *text;

	return tb_json_get_string(request, name, &text) ? text : NULL;
}

/* A text that is one of a list: its index. Absent: as it is. */
static TbStatus
take_word(const TbJson *request, const char *name, const char *const *words, int n, int *value,
		  TbError *err)
{
	const char *text = take_text(request, name);

	if (text == NULL)
		return TB_OK;
	for (int i = 0; i < n; i++)
		if (strcmp(text, words[i]) == 0)
		{
			*value = i;
			return TB_OK;
		}
	tb_fail(err, TB_E_INVALID, "stream option is not known");
	tb_error_detail(err, "%s is \"%.80s\"", name, text);
	return TB_E_INVALID;
}

TbStatus
tb_request_stream(const TbJson *request, uint64_t *stream, TbError *err)
{
	TbJson	   *member;

	if (!tb_json_get(request, "stream", &member) || !tb_json_as_uint(member, stream))
		return tb_request_missing("stream", err);
	return TB_OK;
}

TbStatus
tb_request_source(const TbJson *object, TbSourceSpec *source, TbError *err)
{
	static const char *const addressing[] = {"auto", "path", "virtual"};
	int			word = TB_ADDRESS_AUTO;

	memset(source, 0, sizeof(*source));
	source->server = take_text(object, "server");
	source->store.name = take_text(object, "counters");
	source->store.url = take_text(object, "url");
	source->store.ca_file = take_text(object, "ca_file");
	source->store.user = take_text(object, "user");
	source->store.password = take_text(object, "password");
	source->store.allowed_hosts = take_text(object, "allowed_hosts");
	source->store.region = take_text(object, "region");
	source->store.endpoint = take_text(object, "endpoint");
	source->store.access_key_id = take_text(object, "access_key_id");
	source->store.secret_access_key = take_text(object, "secret_access_key");
	source->store.session_token = take_text(object, "session_token");
	source->store.credentials = take_text(object, "credentials");
	source->store.profile = take_text(object, "profile");
	(void) !tb_json_get_bool(object, "any_address", &source->store.any_address);
	(void) !tb_json_get_bool(object, "anonymous", &source->store.anonymous);
	(void) !tb_json_get_bool(object, "requester_pays", &source->store.requester_pays);
	if (take_word(object, "addressing", addressing, 3, &word, err) != TB_OK)
		return err->code;
	source->store.addressing = (TbAddressing) word;
	return source->store.url != NULL ? TB_OK : tb_request_missing("url", err);
}

TbStatus
tb_request_sources(const TbJson *request, TbSourceSpec **sources, int *n, TbError *err)
{
	TbJson	   *list;
	TbStatus	status = TB_OK;
	size_t		length;

	*sources = NULL;
	*n = 0;
	if (!tb_json_get(request, "sources", &list) || tb_json_type(list) != TB_JSON_ARRAY)
		return tb_request_missing("sources", err);
	length = tb_json_length(list);
	if (length > MAX_SOURCES)
		return tb_fail(err, TB_E_LIMIT, "dataset is over too many servers");
	*sources = tb_calloc(length, sizeof(**sources));
	if (*sources == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	for (size_t i = 0; i < length && status == TB_OK; i++)
		status = tb_request_source(tb_json_at(list, i), &(*sources)[i], err);
	if (status == TB_OK)
		*n = (int) length;
	else
	{
		tb_free(*sources);
		*sources = NULL;
	}
	return status;
}

static TbStatus
take_dataset(const TbJson *request, TbStreamSpec *spec, TbError *err)
{
	TbJson	   *dataset;

	if (!tb_json_get(request, "dataset", &dataset) || tb_json_type(dataset) != TB_JSON_OBJECT)
		return tb_request_missing("dataset", err);
	spec->dataset_url = take_text(dataset, "url");
	spec->dataset_server = take_text(dataset, "server");
	spec->dataset_key = take_text(dataset, "key");
	spec->dataset_file = take_text(dataset, "file");
	spec->dataset_hash = take_text(dataset, "hash");
	return spec->dataset_hash != NULL ? TB_OK : tb_request_missing("hash", err);
}

/* All of "open" but the sources. */
TbStatus
tb_request_open(const TbJson *request, TbStreamSpec *spec, TbError *err)
{
	static const char *const shuffles[] = {"none", "full"};
	static const char *const tails[] = {"drop", "pad", "ragged"};
	uint64_t	uid = UINT64_MAX;
	int			shuffle = TB_SHUFFLE_NONE;
	int			tail = TB_TAIL_DROP;
	TbStatus	status = take_dataset(request, spec, err);

	spec->prefetch = 4;
	spec->world_size = 1;
	spec->workers = 1;
	spec->device = take_text(request, "device");
	if (spec->device == NULL)
		spec->device = "host";
	spec->state = take_text(request, "state");
	if (status == TB_OK)
		status = take_u32(request, "batch_size", &spec->batch_size, err);
	if (status == TB_OK)
		status = take_u32(request, "prefetch", &spec->prefetch, err);
	if (status == TB_OK)
		status = take_u32(request, "rank", &spec->rank, err);
	if (status == TB_OK)
		status = take_u32(request, "world_size", &spec->world_size, err);
	if (status == TB_OK)
		status = take_u32(request, "worker", &spec->worker, err);
	if (status == TB_OK)
		status = take_u32(request, "workers", &spec->workers, err);
	if (status == TB_OK)
		status = take_bits(request, "seed", &spec->seed, err);
	if (status == TB_OK)
		status = take_bits(request, "epoch", &spec->epoch, err);
	if (status == TB_OK)
		status = take_uint(request, "peer_uid", UINT32_MAX, &uid, err);
	if (status == TB_OK)
		status = take_word(request, "shuffle", shuffles, 2, &shuffle, err);
	if (status == TB_OK)
		status = take_word(request, "tail", tails, 3, &tail, err);
	spec->peer_uid = uid <= UINT32_MAX ? (int64_t) uid : -1;
	spec->shuffle = (TbShuffle) shuffle;
	spec->tail = (TbTail) tail;
	return status;
}

/* A list of extents; false where it is none or too long. */
static bool
take_extents(const TbJson *request, const char *name, uint64_t *extents, int *n)
{
	TbJson	   *list;
	size_t		length;

	if (!tb_json_get(request, name, &list) || tb_json_type(list) != TB_JSON_ARRAY)
		return false;
	length = tb_json_length(list);
	if (length > TB_MAX_DIM)
		return false;
	for (size_t i = 0; i < length; i++)
		if (!tb_json_as_uint(tb_json_at(list, i), &extents[i]))
			return false;
	*n = (int) length;
	return true;
}

TbStatus
tb_request_load(const TbJson *request, TbDeliverySpec *spec, TbError *err)
{
	TbJson	   *source;
	int64_t		mask_fill = -1;
	int			n_count;
	const char *cast = take_text(request, "cast");
	TbStatus	status;

	memset(spec, 0, sizeof(*spec));
	if (!tb_json_get(request, "source", &source))
		return tb_request_missing("source", err);
	status = tb_request_source(source, &spec->source, err);
	if (status != TB_OK)
		return status;
	spec->array = take_text(request, "array");
	spec->device = take_text(request, "device");
	if (spec->device == NULL)
		spec->device = "host";
	if (spec->array == NULL)
		return tb_request_missing("array", err);
	if (tb_json_get_int(request, "mask_fill", &mask_fill) && (mask_fill < -1 || mask_fill > 1))
		return tb_request_missing("mask_fill", err);
	spec->mask_fill = (int) mask_fill;
	if (!take_extents(request, "start", spec->region.start, &spec->region.ndim))
		return tb_request_missing("start", err);
	if (!take_extents(request, "count", spec->region.count, &n_count) ||
		n_count != spec->region.ndim)
		return tb_request_missing("count", err);
	(void) !tb_json_get_bool(request, "raw", &spec->treatment.raw);
	spec->treatment.cast = cast != NULL ? tb_dtype_parse(cast) : TB_NONE;
	if (cast != NULL && spec->treatment.cast == TB_NONE && strcmp(cast, "none") != 0)
		return tb_request_missing("cast", err);
	return TB_OK;
}

static void
wipe_source(const TbJson *object)
{
	tb_json_wipe(object, "user");
	tb_json_wipe(object, "password");
	tb_json_wipe(object, "access_key_id");
	tb_json_wipe(object, "secret_access_key");
	tb_json_wipe(object, "session_token");
}

void
tb_request_wipe(const TbJson *request)
{
	TbJson	   *member;

	tb_json_wipe(request, "token");
	if (tb_json_get(request, "source", &member))
		wipe_source(member);
	if (tb_json_get(request, "sources", &member))
		for (size_t i = 0; i < tb_json_length(member); i++)
			wipe_source(tb_json_at(member, i));
}
