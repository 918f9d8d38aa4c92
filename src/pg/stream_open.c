/*
 * Opening a stream: arguments, and the dataset behind it. A named dataset is found in the catalog and lies in a
 * store; a query is frozen into a file of the data directory, which the streamer reads before it answers and
 * which is then removed.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foreign/foreign.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"

#include "pg/stream_open.h"
#include "pg/supervisor.h"

#define MAX_PREFETCH 1024

/* ---- arguments ---- */

static void
refuse(const char *argument, const char *expected)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\" of open_stream is not valid", argument),
			 errhint("It is %s.", expected)));
}

enum
{
	ARG_DATASET, ARG_QUERY, ARG_PARAMS, ARG_BATCH_SIZE, ARG_SHUFFLE, ARG_SEED, ARG_EPOCH, ARG_RANK, ARG_WORLD_SIZE,
	ARG_DEVICE, ARG_PREFETCH, ARG_TAIL, ARG_STATE, ARG_WORKER, ARG_WORKERS, N_ARGS
};

static const char *const arg_name[N_ARGS] = {
	"dataset", "query", "params", "batch_size", "shuffle", "seed", "epoch", "rank", "world_size", "device", "prefetch",
	"tail", "state", "worker", "workers"
};

static char *
text_or_null(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

static void
check_arguments(const TbpgOpen *open)
{
	if ((open->dataset == NULL) == (open->query == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("open_stream needs either a dataset or a query"),
				 errhint("Give dataset => 'name' or query => 'SELECT ...'.")));
	if (open->dataset != NULL && open->params != NULL)
		refuse("params", "for a query only");
	if (open->batch_size < 1)
		refuse("batch_size", "at least 1");
	if (open->world_size < 1)
		refuse("world_size", "at least 1");
	if (open->rank < 0 || open->rank >= open->world_size)
		refuse("rank", "from 0 to world_size - 1");
	if (open->workers < 1)
		refuse("workers", "at least 1");
	if (open->worker < 0 || open->worker >= open->workers)
		refuse("worker", "from 0 to workers - 1");
	if (open->prefetch < 1 || open->prefetch > MAX_PREFETCH)
		refuse("prefetch", "from 1 to 1024");
	if (strcmp(open->shuffle, "near") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("shuffle \"near\" is not supported yet"), errhint("Use shuffle => 'full'.")));
	if (strcmp(open->shuffle, "none") != 0 && strcmp(open->shuffle, "full") != 0)
		refuse("shuffle", "none or full");
	if (strcmp(open->tail, "drop") != 0 && strcmp(open->tail, "pad") != 0 && strcmp(open->tail, "ragged") != 0)
		refuse("tail", "drop, pad or ragged");
	if (open->query != NULL && (open->world_size > 1 || open->workers > 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("several ranks or workers need a named dataset"),
				 errdetail("Each would freeze the query by itself and might see other rows."),
				 errhint("Freeze it with tensorbank.create_dataset(), then open dataset => 'name' on each.")));
}

/* Who resumes goes on with the state's own order, whatever seed, epoch and shuffle are by default. */
static void
resume(TbpgOpen *open)
{
	TbStreamState state;
	TbError		err;

	if (open->state == NULL)
		return;
	TBPG_CHECK(tb_state_parse(open->state, &state, &err), &err);
	open->seed = (int64) state.seed;
	open->epoch = (int64) state.epoch;
	open->shuffle = pstrdup(state.shuffle == TB_SHUFFLE_FULL ? "full" : "none");
}

void
tbpg_open_arguments(FunctionCallInfo fcinfo, TbpgOpen *open)
{
	for (int i = ARG_BATCH_SIZE; i < N_ARGS; i++)
		if (i != ARG_STATE && PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" of open_stream must not be NULL", arg_name[i])));
	open->dataset = text_or_null(fcinfo, ARG_DATASET);
	open->query = text_or_null(fcinfo, ARG_QUERY);
	open->params = PG_ARGISNULL(ARG_PARAMS) ? NULL : PG_GETARG_ARRAYTYPE_P(ARG_PARAMS);
	open->batch_size = PG_GETARG_INT32(ARG_BATCH_SIZE);
	open->shuffle = text_or_null(fcinfo, ARG_SHUFFLE);
	open->seed = PG_GETARG_INT64(ARG_SEED);
	open->epoch = PG_GETARG_INT64(ARG_EPOCH);
	open->rank = PG_GETARG_INT32(ARG_RANK);
	open->world_size = PG_GETARG_INT32(ARG_WORLD_SIZE);
	open->device = text_or_null(fcinfo, ARG_DEVICE);
	open->prefetch = PG_GETARG_INT32(ARG_PREFETCH);
	open->tail = text_or_null(fcinfo, ARG_TAIL);
	open->state = text_or_null(fcinfo, ARG_STATE);
	open->worker = PG_GETARG_INT32(ARG_WORKER);
	open->workers = PG_GETARG_INT32(ARG_WORKERS);
	check_arguments(open);
	resume(open);
}

/* ---- the dataset ---- */

static void
remove_file(void *object)
{
	(void) unlink(object);
}

/* Write a frozen dataset where the streamer finds it. The name begins with our process: see supervisor.c. */
static TbpgOwned *
write_file(const TbBuf *file, char **path)
{
	static uint32 counter;
	TbpgOwned  *owned;
	size_t		done = 0;
	int			fd;

	if (mkdir(TBPG_TEMP_DIRECTORY, 0700) != 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create directory \"%s\": %m", TBPG_TEMP_DIRECTORY)));
	*path = psprintf("%s/%d.%u.tbd", TBPG_TEMP_DIRECTORY, MyProcPid, ++counter);
	fd = OpenTransientFilePerm(*path, O_RDWR | O_CREAT | O_TRUNC | PG_BINARY, 0600);
	if (fd < 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not create file \"%s\": %m", *path)));
	owned = tbpg_own(CurrentMemoryContext, *path, remove_file);
	while (done < file->len)
	{
		ssize_t		n = write(fd, file->data + done, file->len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
		{
			errno = n == 0 ? ENOSPC : errno;
			ereport(ERROR, (errcode_for_file_access(), errmsg("could not write file \"%s\": %m", *path)));
		}
		done += (size_t) n;
	}
	CloseTransientFile(fd);
	return owned;
}

void
tbpg_open_dataset(const TbpgOpen *open, TbpgOpenDataset *dataset)
{
	TbpgFrozen	frozen;

	memset(dataset, 0, sizeof(*dataset));
	if (open->dataset != NULL)
	{
		if (!tbpg_dataset_find(open->dataset, &dataset->info))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("dataset \"%s\" does not exist", open->dataset),
					 errhint("Freeze it with tensorbank.create_dataset().")));
		tbpg_dataset_check(&dataset->info);
		return;
	}
	tbpg_freeze(open->query, open->params, &frozen);
	dataset->info = frozen.info;
	/* the supervisor, when it starts, sweeps the directory: have it started before */
	(void) tbpg_link_open(true);
	dataset->file = write_file(frozen.file, &dataset->info.place.url);
}

void
tbpg_open_done(TbpgOpenDataset *dataset)
{
	if (dataset->file != NULL)
		tbpg_owned_set(dataset->file, NULL);
}

/* ---- what the streamer is told of it ---- */

/* The url of a place as the engine names it. */
static char *
without_slash(const char *url)
{
	char	   *copy = pstrdup(url);
	size_t		n = strlen(copy);

	while (n > 0 && copy[n - 1] == '/' && !(n >= 3 && strcmp(copy + n - 3, "://") == 0))
		copy[--n] = '\0';
	return copy;
}

/* One source, with the current user's credentials. The server must still name the place that was frozen. */
static void
request_source(StringInfo request, const TbpgStore *store, bool index)
{
	ForeignServer *server = GetForeignServerByName(store->server, true);
	TbpgPlace	place;

	if (server == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("a foreign server of the dataset does not exist any more"),
				 errdetail("Server \"%s\".", store->server),
				 errhint("Create the dataset anew.")));
	tbpg_place(server->serverid, GetUserId(), index, &place);
	if (strcmp(without_slash(place.url), without_slash(store->url)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a foreign server of the dataset names another place than when it was frozen"),
				 errdetail("Server \"%s\".", store->server),
				 errhint("Create the dataset anew, or set the server's url back.")));
	appendStringInfoChar(request, '{');
	tbpg_request_place(request, &place);
	tbpg_place_wipe(&place);
	appendStringInfoChar(request, '}');
}

void
tbpg_request_sources(StringInfo request, const TbpgDatasetInfo *dataset)
{
	const TbpgStore *place = dataset->place.server != NULL ? &dataset->place : NULL;
	ListCell   *cell;
	int			n = 0;

	appendStringInfoString(request, ",\"sources\":[");
	foreach(cell, dataset->stores)
	{
		const TbpgStore *store = lfirst(cell);

		if (n++ > 0)
			appendStringInfoChar(request, ',');
		request_source(request, store, false);
		if (place != NULL && strcmp(place->server, store->server) == 0 && strcmp(place->url, store->url) == 0)
			place = NULL;
	}
	if (place != NULL)
	{
		if (n > 0)
			appendStringInfoChar(request, ',');
		request_source(request, place, true);
	}
	appendStringInfoChar(request, ']');
}

/* With a seed of this process's own: it tells nothing about the secrets that went in. */
uint64
tbpg_sources_hash(const TbpgDatasetInfo *dataset)
{
	static uint64 seed;
	StringInfoData sources;
	uint64		hash;
	TbError		err;

	if (seed == 0)
		TBPG_CHECK(tb_random(&seed, sizeof(seed), &err), &err);
	initStringInfo(&sources);
	tbpg_request_sources(&sources, dataset);
	hash = tb_hash64(sources.data, (size_t) sources.len, seed);
	explicit_bzero(sources.data, (size_t) sources.len);
	pfree(sources.data);
	return hash;
}

void
tbpg_request_dataset(StringInfo request, const TbpgDatasetInfo *dataset)
{
	if (dataset->place.server != NULL)
	{
		char		key[128];

		tb_dataset_key(dataset->hash, key, sizeof(key));
		appendStringInfo(request, ",\"dataset\":{\"key\":\"%s\"", key);
		tbpg_request_text(request, "server", dataset->place.server);
		tbpg_request_text(request, "url", without_slash(dataset->place.url));
		tbpg_request_text(request, "hash", dataset->hash);
		appendStringInfoChar(request, '}');
	}
	else
	{
		appendStringInfo(request, ",\"dataset\":{\"file\":\"%s\"", dataset->place.url);
		tbpg_request_text(request, "hash", dataset->hash);
		appendStringInfoChar(request, '}');
	}
	tbpg_request_sources(request, dataset);
}
