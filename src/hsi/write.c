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
	return tb_store_put(tb_source_store(writer->where), key, text->data, text->len, false, err);
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

TbStatus
tb_write_root(TbHsiWriter *writer, TbError *err)
{
	char		attributes[64];

	snprintf(attributes, sizeof(attributes), "{\"tensorbank_hsi\":%d}", TB_HSI_FORMAT);
	return put_group(writer, writer->root, attributes, err);
}

TbStatus
tb_write_level_json(TbHsiWriter *writer, int level, TbError *err)
{
	const TbHead *head = writer->head;
	char		path[TB_HSI_KEY_BYTES];
	TbStatus	status;

	if (!tb_hsi_stored_path(path, writer->root, level, NULL, TB_N_STORED))
		return too_long(err);
	status = put_group(writer, path, "{}", err);
	for (int i = 0; i < head->n_arrays && status == TB_OK; i++)
		for (int s = 0; s <= TB_N_STORED && status == TB_OK; s++)
		{
			TbBuf	   *text;
			TbDtype		dtype;

			if (!tb_hsi_stored_path(path, writer->root, level, head->array[i].path, (TbStored) s))
				return too_long(err);
			if (s == TB_N_STORED)
			{
				status = put_group(writer, path, "{}", err);
				break;
			}
			if (!(level == 0 ? tb_stored_info((TbStored) s)->leaf
							 : tb_stored_info((TbStored) s)->inner))
				continue;
			text = tb_buf_new(0);
			if (text == NULL)
				return no_memory(err);
			dtype = tb_stored_dtype((TbStored) s, head->array[i].stat);
			status = put_json(
				writer, path, text,
				tb_hsi_array_json(&head->geo, level, dtype, tb_grid_info(writer->grid), text), err);
			tb_buf_unref(text);
		}
	return status;
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
		status = tb_store_put(tb_source_store(writer->where), key, object->data, object->len,
							  false, err);
	tb_buf_unref(object);
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
	char		key[TB_HSI_KEY_BYTES];
	TbBuf	   *text = tb_buf_new(0);
	TbStatus	status;

	head->serial++;
	if (text == NULL || tb_head_print(head, text) != TB_OK)
		status = no_memory(err);
	else if (!tb_head_key(key, writer->key, head->serial))
		status = too_long(err);
	else
		status =
			tb_store_put(tb_source_store(writer->where), key, text->data, text->len, true, err);
	tb_buf_unref(text);
	if (status == TB_OK)
	{
		tb_find_tidy(writer->where, writer->key, head->serial);
		return TB_OK;
	}
	head->serial--;
	if (status == TB_E_CHANGED)
	{
		tb_fail(err, TB_E_CHANGED, "another build published this index meanwhile");
		tb_error_detail(err, "index \"%s\"", writer->key);
		tb_error_hint(err, "Run the build again: it continues from what is published.");
	}
	return status;
}
