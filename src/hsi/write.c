/* Writing the objects of an index: metadata documents, shards, heads. Each is seen whole or not at
 * all. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hsi/writer.h"

static TbStatus
no_memory(TbError *err)
{
	return tb_fail(err, TB_E_NOMEM, "out of memory");
}

static TbStatus
too_long(TbError *err)
{
	return tb_fail(err, TB_E_LIMIT, "key of the index is too long");
}

TbStatus
tb_object_key(char *key, const TbGeometry *geo, int level, const TbBox *box, const char *path,
			  TbError *err)
{
	size_t		at = strlen(path);

	if (at + 3 > TB_HSI_KEY_BYTES)
		return too_long(err);
	memmove(key, path, at);
	memcpy(key + at, "/c", 3);
	at += 2;
	for (int a = 0; a < geo->ndim; a++)
	{
		int			n = snprintf(key + at, TB_HSI_KEY_BYTES - at, "/%" PRIu64,
								 box->start[a] / geo->shard[level][a]);

		if (n < 0 || (size_t) n >= TB_HSI_KEY_BYTES - at)
			return too_long(err);
		at += (size_t) n;
	}
	return TB_OK;
}

/* Put what was printed to text (status says how that went) at path/zarr.json. */
static TbStatus
put_json(TbHsiWriter *writer, const char *path, TbBuf *text, TbStatus status, TbError *err)
{
	char		key[TB_HSI_KEY_BYTES];
	int			n = snprintf(key, sizeof(key), "%s/zarr.json", path);

	if (status != TB_OK)
		return no_memory(err);
	if (n < 0 || (size_t) n >= sizeof(key))
		return too_long(err);
	return tb_puts_add(&writer->puts, tb_source_store(writer->where), key, text, err);
}

static TbStatus
put_group(TbHsiWriter *writer, const char *path, const char *attributes, TbError *err)
{
	TbBuf	   *text = tb_buf_new(0);
	TbStatus	status;

	if (text == NULL)
		return no_memory(err);
	status = put_json(writer, path, text, tb_hsi_group_json(attributes, text), err);
	tb_buf_unref(text);
	return status;
}

static TbStatus
put_root(TbHsiWriter *writer, TbError *err)
{
	char		attributes[64];

	snprintf(attributes, sizeof(attributes), "{\"tensorbank_hsi\":%d}", TB_HSI_FORMAT);
	return put_group(writer, writer->root, attributes, err);
}

/* Metadata of one stored array, TB_N_STORED: of their group. None where the level does not have it. */
static TbStatus
put_stored_json(TbHsiWriter *writer, int level, int array, TbStored stored, TbError *err)
{
	const TbHead *head = writer->head;
	char		path[TB_HSI_KEY_BYTES];
	TbBuf	   *text;
	TbDtype		dtype;
	TbStatus	status;

	if (!tb_hsi_stored_path(path, writer->root, level, head->array[array].path, stored))
		return too_long(err);
	if (stored == TB_N_STORED)
		return put_group(writer, path, "{}", err);
	if (!(level == 0 ? tb_stored_info(stored)->leaf : tb_stored_info(stored)->inner))
		return TB_OK;
	text = tb_buf_new(0);
	if (text == NULL)
		return no_memory(err);
	dtype = tb_stored_dtype(stored, head->array[array].stat);
	status = put_json(writer, path, text,
					  tb_hsi_array_json(&head->geo, level, dtype, tb_grid_info(writer->grid), text), err);
	tb_buf_unref(text);
	return status;
}

/* Items are: the root's (level 0 alone), the level's, then those of each array. */
TbStatus
tb_write_level_json(TbHsiWriter *writer, int level, uint64_t *item, TbError *err)
{
	uint64_t	per_array = TB_N_STORED + 1;
	uint64_t	n = 2 + (uint64_t) writer->head->n_arrays * per_array;
	char		path[TB_HSI_KEY_BYTES];

	for (; *item < n; ++*item)
	{
		TbStatus	status = TB_OK;

		if (tb_puts_full(&writer->puts))
			return TB_AGAIN;
		if (*item == 0 && level == 0)
			status = put_root(writer, err);
		else if (*item == 1 && !tb_hsi_stored_path(path, writer->root, level, NULL, TB_N_STORED))
			status = too_long(err);
		else if (*item == 1)
			status = put_group(writer, path, "{}", err);
		else if (*item > 1)
			status = put_stored_json(writer, level, (int) ((*item - 2) / per_array),
									 (TbStored) ((*item - 2) % per_array), err);
		if (status != TB_OK)
			return status;
	}
	return TB_OK;
}

TbStatus
tb_write_object(TbHsiWriter *writer, int array, TbStored stored, const TbShardData *data,
				TbError *err)
{
	const TbHead *head = writer->head;
	const char *name = head->array[array].path;
	char		key[TB_HSI_KEY_BYTES];
	TbBuf	   *object;
	TbStatus	status;

	if (!tb_hsi_stored_path(key, writer->root, data->level, name, stored))
		return too_long(err);
	status = tb_object_key(key, &head->geo, data->level, data->box, key, err);
	if (status != TB_OK)
		return status;
	object = tb_buf_new(0);
	if (object == NULL)
		return no_memory(err);
	status = tb_hsi_encode(&head->geo, data, object, err);
	if (status == TB_OK)
		status = tb_puts_add(&writer->puts, tb_source_store(writer->where), key, object, err);
	tb_buf_unref(object);
	return status;
}

static TbStatus
begin_head(TbHsiWriter *writer, TbError *err)
{
	TbHead	   *head = writer->head;
	char		key[TB_HSI_KEY_BYTES];
	TbBuf	   *text = tb_buf_new(0);
	TbStatus	status;

	head->serial++;
	if (text == NULL || tb_head_print(head, text) != TB_OK)
		status = no_memory(err);
	else if (!tb_head_key(key, writer->key, head->serial))
		status = too_long(err);
	else
		status = tb_store_begin_put(tb_source_store(writer->where), key, text, true, &writer->publishing, err);
	tb_buf_unref(text);
	if (status != TB_OK)
		head->serial--;
	return status;
}

/*
 * Heads are created, never replaced: of two builds that publish the same serial one loses and
 * learns of it.
 */
TbStatus
tb_write_head(TbHsiWriter *writer, TbError *err)
{
	TbHead	   *head = writer->head;
	TbStatus	status = TB_OK;

	if (writer->publishing == NULL && !writer->tidying)
		status = begin_head(writer, err);
	if (status == TB_OK && writer->publishing != NULL)
	{
		status = tb_job_poll(writer->publishing, err);
		if (status == TB_AGAIN)
			return status;
		tb_job_free(writer->publishing);
		writer->publishing = NULL;
		writer->tidying = status == TB_OK;
		if (status == TB_OK)
			tb_find_tidy(writer->where, writer->key, head->serial, &writer->puts);
		else
			head->serial--;
	}
	if (status == TB_E_CHANGED)
	{
		tb_fail(err, TB_E_CHANGED, "another build published this index meanwhile");
		tb_error_detail(err, "index \"%s\"", writer->key);
		tb_error_hint(err, "Run the build again: it continues from what is published.");
	}
	if (status == TB_OK)
		status = tb_puts_wait(&writer->puts, err);
	writer->tidying = status == TB_AGAIN;
	return status;
}
