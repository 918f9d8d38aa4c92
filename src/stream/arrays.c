/*
 * The arrays that a stream's samples point into: opened when a sample first needs them (a dataset
 * over many stores may name thousands), checked against what was frozen.
 */
#include "stream/session.h"

#include <inttypes.h>
#include <string.h>

static void
array_failed(TbStreamArray *array, const TbError *error)
{
	array->phase = TB_ARRAY_FAILED;
	array->error = tb_malloc(sizeof(*array->error));
	if (array->error != NULL)
		*array->error = *error;
}

/* Urls are equal but for slashes at their ends. */
bool
tb_same_url(const char *a, const char *b)
{
	size_t		n = strlen(a);
	size_t		m = strlen(b);

	while (n > 0 && a[n - 1] == '/')
		n--;
	while (m > 0 && b[m - 1] == '/')
		m--;
	return n == m && memcmp(a, b, n) == 0;
}

/* By name and url, else by url alone: names of servers differ from node to node. NULL: none. */
static TbSource *
source_for(TbStream *stream, const TbDatasetArray *array)
{
	TbSource   *found = NULL;

	for (int i = 0; i < stream->n_sources; i++)
	{
		TbSource   *source = tb_source_of(stream->sources[i]);

		if (!tb_same_url(tb_source_url(source), array->url))
			continue;
		if (stream->servers[i] != NULL && strcmp(stream->servers[i], array->server) == 0)
			return source;
		if (found == NULL)
			found = source;
	}
	return found;
}

/* Begin to open an array unless that was done. */
void
tb_stream_want_array(TbStream *stream, uint32_t number)
{
	TbStreamArray *array = &stream->arrays[number];
	const TbDatasetArray *arrays;
	TbSource   *source;
	TbError		err;

	if (array->phase != TB_ARRAY_NONE)
		return;
	(void) tb_dataset_arrays(stream->dataset, &arrays);
	source = source_for(stream, &arrays[number]);
	if (source == NULL)
	{
		tb_fail(&err, TB_E_INVALID, "no source was given for an array of the dataset");
		tb_error_detail(&err, "array \"%.200s\" of server \"%.80s\"", arrays[number].path,
						arrays[number].server);
		array_failed(array, &err);
		return;
	}
	if (tb_array_open(source, arrays[number].path, arrays[number].mask_fill, &array->array,
					  &err) != TB_OK)
	{
		array->array = NULL;
		array_failed(array, &err);
		return;
	}
	array->phase = TB_ARRAY_OPENING;
	stream->opening[stream->n_opening++] = number;
}

/* An array may have grown since it was frozen, but it must not have become another one. */
static TbStatus
check_array(const TbArrayMeta *meta, const TbDatasetArray *frozen, TbError *err)
{
	bool		same = meta->dtype == frozen->stored && meta->ndim == frozen->ndim;

	for (int d = 0; d < meta->ndim && same; d++)
		same = meta->shape[d] >= frozen->shape[d];
	if (same)
		return TB_OK;
	tb_fail(err, TB_E_CHANGED, "array has changed since the dataset was frozen");
	tb_error_detail(err, "array \"%.200s\": its type, dimensions or shape differ", frozen->path);
	tb_error_hint(err, "Create the dataset anew.");
	return TB_E_CHANGED;
}

bool
tb_stream_poll_arrays(TbStream *stream)
{
	const TbDatasetArray *arrays;
	int			kept = 0;
	bool		news = false;

	(void) tb_dataset_arrays(stream->dataset, &arrays);
	for (int i = 0; i < stream->n_opening; i++)
	{
		uint32_t	number = stream->opening[i];
		TbStreamArray *array = &stream->arrays[number];
		TbError		err;
		TbStatus	status = tb_array_poll(array->array, &err);

		if (status == TB_AGAIN)
		{
			stream->opening[kept++] = number;
			continue;
		}
		news = true;
		if (status == TB_OK)
			status = check_array(tb_array_meta(array->array), &arrays[number], &err);
		if (status == TB_OK)
			array->phase = TB_ARRAY_READY;
		else
			array_failed(array, &err);
	}
	stream->n_opening = kept;
	return news;
}

/* Forget all: they are opened anew when needed. */
void
tb_stream_drop_arrays(TbStream *stream)
{
	for (int i = 0; i < stream->n_arrays && stream->arrays != NULL; i++)
	{
		tb_array_unref(stream->arrays[i].array);
		tb_free(stream->arrays[i].error);
		memset(&stream->arrays[i], 0, sizeof(stream->arrays[i]));
	}
	stream->n_opening = 0;
}
