/*
 * Building an index: parts are written as they come, each followed by a head that covers it, so
 * that a build that dies leaves what it has published. A new writer reads the newest head: where it
 * describes the same grid and arrays the build goes on with its parts. Merging upwards at the end
 * is finish.c.
 *
 * Every build writes below a name of its own; nothing that a published head points at is written
 * again.
 */
#include "hsi/writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hsi/carry.h"

static TbStatus
no_memory(TbError *err)
{
	return tb_fail(err, TB_E_NOMEM, "out of memory");
}

/* Two paths may differ only in '/' and '.', which are one on disk. */
static TbStatus
check_names(const TbHsiWriter *writer, TbError *err)
{
	const TbGridInfo *info = tb_grid_info(writer->grid);

	for (int i = 0; i < writer->n_arrays; i++)
		for (int j = 0; j < i; j++)
		{
			const char *a = tb_hsi_array_path(info, writer->array[i]);
			const char *b = tb_hsi_array_path(info, writer->array[j]);

			while (*a != '\0' && (*a == *b || (strchr("/.", *a) && *b != '\0' && strchr("/.", *b))))
			{
				a++;
				b++;
			}
			if (*a == '\0' && *b == '\0')
			{
				TbStatus	status = tb_fail(err, TB_E_INVALID,
											 "two arrays cannot be told apart in an index");

				tb_error_detail(err, "array \"%s\"", tb_hsi_array_path(info, writer->array[i]));
				return status;
			}
		}
	return TB_OK;
}

static TbStatus
check_spec(const TbHsiWriter *writer, TbError *err)
{
	TbStatus	status;

	if (tb_grid_info(writer->grid)->n_blocks == 0)
		return tb_fail(err, TB_E_STATE, "there are no blocks to index");
	if (writer->n_arrays == 0)
		return tb_fail(err, TB_E_INVALID, "there are no arrays to index");
	if (!tb_store_can_write(tb_source_store(writer->where)))
	{
		status = tb_fail(err, TB_E_STATE, "an index cannot be written to this store");
		tb_error_detail(err, "%s", tb_source_url(writer->where));
		tb_error_hint(err, "Set the server option index_url to a place that can be written.");
		return status;
	}
	return check_names(writer, err);
}

TbStatus
tb_hsi_writer_open(const TbHsiWriterSpec *spec, TbHsiWriter **writer, TbError *err)
{
	TbHsiWriter *made = tb_calloc(1, sizeof(*made));
	TbStatus	status;

	*writer = NULL;
	if (made == NULL)
		return no_memory(err);
	made->grid = tb_grid_ref(spec->grid);
	made->where = tb_source_ref(spec->where);
	made->n_arrays = spec->n_arrays;
	made->part_blocks = spec->part_blocks;
	made->rebuild = spec->rebuild;
	made->status = TB_AGAIN;
	made->array = tb_calloc((size_t) spec->n_arrays + 1, sizeof(int));
	made->place = tb_calloc((size_t) spec->n_arrays + 1, sizeof(int));
	if (made->array == NULL || made->place == NULL)
		status = no_memory(err);
	else
	{
		memcpy(made->array, spec->arrays, (size_t) spec->n_arrays * sizeof(int));
		status = check_spec(made, err);
	}
	if (status == TB_OK)
		status = tb_hsi_key(tb_grid_info(made->grid), tb_hsi_of(made->where, tb_grid_source(made->grid)),
							made->key, sizeof(made->key), err);
	if (status == TB_OK)
		status = tb_find_open(made->where, made->key, &made->find, err);
	if (status != TB_OK)
	{
		tb_hsi_writer_free(made);
		return status;
	}
	*writer = made;
	return TB_OK;
}

/* Every array is in the head as it is today, and no other: where each is, in place. */
static bool
same_arrays(TbHsiWriter *writer, const TbHead *head)
{
	if (head->n_arrays != writer->n_arrays)
		return false;
	for (int i = 0; i < writer->n_arrays; i++)
	{
		writer->place[i] = tb_head_find(head, tb_grid_info(writer->grid), writer->array[i]);
		if (writer->place[i] < 0)
			return false;
	}
	return true;
}

static TbStatus
set_root(TbHsiWriter *writer, TbError *err)
{
	int n = snprintf(writer->root, sizeof(writer->root), "%s/%s", writer->key, writer->head->build);

	if (n < 0 || (size_t) n >= sizeof(writer->root))
		return tb_fail(err, TB_E_LIMIT, "key of the index is too long");
	return TB_OK;
}

/* A build of its own, after the newest serial that was seen. */
static TbStatus
start_new(TbHsiWriter *writer, uint64_t serial, TbError *err)
{
	TbStatus	status = tb_head_make(tb_grid_info(writer->grid), writer->array, writer->n_arrays,
									  writer->part_blocks, &writer->head, err);

	if (status != TB_OK)
		return status;
	writer->head->serial = serial;
	for (int i = 0; i < writer->n_arrays; i++)
		writer->place[i] = i;
	return set_root(writer, err);
}

/*
 * What to do with the newest head: go on with it, carry its full parts into a new build where the
 * grid has grown, or start anew. A damaged head is no reason not to build.
 */
static TbStatus
take_head(TbHsiWriter *writer, TbError *err)
{
	const TbGridInfo *info = tb_grid_info(writer->grid);
	uint64_t	serial;
	const TbBuf *text = tb_find_result(writer->find, &serial);
	TbHead	   *head = NULL;
	TbStatus	status = text == NULL ? TB_OK : tb_head_parse(text->data, text->len, &head, err);

	if (status == TB_E_NOMEM)
		return status;
	if (head != NULL && (writer->rebuild || head->serial != serial || !tb_head_fits(head, info) ||
						 !same_arrays(writer, head)))
	{
		tb_head_free(head);
		head = NULL;
	}
	if (head == NULL)
		return start_new(writer, serial, err);
	if (memcmp(head->shape, info->shape, sizeof(uint64_t) * (size_t) info->ndim) == 0)
	{
		writer->head = head;
		writer->described = true;
		return set_root(writer, err);
	}
	return tb_carry_open(writer, head, err);
}

TbStatus
tb_hsi_writer_poll(TbHsiWriter *writer, TbError *err)
{
	if (writer->status == TB_AGAIN && writer->find != NULL)
	{
		TbStatus	status = tb_find_poll(writer->find, &writer->error);

		if (status == TB_AGAIN)
			return TB_AGAIN;
		if (status == TB_OK)
			status = take_head(writer, &writer->error);
		tb_find_free(writer->find);
		writer->find = NULL;
		if (status != TB_OK || writer->carry == NULL)
			writer->status = status;
	}
	if (writer->status == TB_AGAIN)
		writer->status = tb_carry_poll(writer, &writer->error);
	if (writer->status != TB_OK && writer->status != TB_AGAIN && err != NULL)
		*err = writer->error;
	return writer->status;
}

/* ---- parts ---- */

uint64_t
tb_hsi_writer_parts(const TbHsiWriter *writer)
{
	return writer->head->geo.n_parts;
}

bool
tb_hsi_writer_has(const TbHsiWriter *writer, uint64_t part)
{
	return tb_head_has_part(writer->head, part);
}

uint64_t
tb_hsi_writer_part_blocks(const TbHsiWriter *writer, uint64_t part)
{
	TbBox		box;

	tb_geometry_part_box(&writer->head->geo, part, &box);
	return tb_box_nodes(writer->head->ndim, &box);
}

/* Blocks of a part come in the order of their numbers. */
uint64_t
tb_hsi_writer_part_block(const TbHsiWriter *writer, uint64_t part, uint64_t i)
{
	const TbGeometry *geo = &writer->head->geo;
	uint64_t	index[TB_MAX_DIM] = {0};
	TbBox		box;

	tb_geometry_part_box(geo, part, &box);
	for (int k = geo->ndim - 1; k >= 0; k--)
	{
		int			a = geo->order[k];

		index[a] = box.start[a] + i % box.count[a];
		i /= box.count[a];
	}
	return tb_grid_block_number(tb_grid_info(writer->grid), index);
}

/* For each node of a part's box in C order, its place in block-number order. */
static void
fill_places(const TbGeometry *geo, const TbBox *box, uint32_t *place)
{
	uint64_t	stride[TB_MAX_DIM];
	uint64_t	index[TB_MAX_DIM] = {0};
	uint64_t	n = tb_box_nodes(geo->ndim, box);
	uint64_t	step = 1;

	for (int k = geo->ndim - 1; k >= 0; k--)
	{
		stride[geo->order[k]] = step;
		step *= box->count[geo->order[k]];
	}
	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	at = 0;

		for (int a = 0; a < geo->ndim; a++)
			at += index[a] * stride[a];
		place[i] = (uint32_t) at;
		for (int a = geo->ndim - 1; a >= 0 && ++index[a] == box->count[a]; a--)
			index[a] = 0;
	}
}

static TbStatus
put_stored(TbHsiWriter *writer, const TbBuilt *all, int i, TbStored stored, TbError *err)
{
	TbPartPut  *put = &writer->put;
	TbDtype		dtype = tb_stored_dtype(stored, writer->head->array[writer->place[i]].stat);
	bool		extreme = stored == TB_STORED_MIN || stored == TB_STORED_MAX;
	TbShardData data = {.level = 0, .box = &put->box, .value = put->value};

	for (uint64_t b = 0; b < put->n; b++)
	{
		const TbBuilt *built = &all[(uint64_t) put->place[b] * (uint64_t) writer->n_arrays + (uint64_t) i];

		put->value[b] = tb_built_value(built, stored);
		/* No valid element: NaN where the type has it, so that a plain reader sees a gap. */
		if (extreme && built->leaf.valid == 0)
			put->value[b] = tb_dtype_is_float(dtype) ? (TbValue) {.f64 = NAN} : (TbValue) {0};
	}
	data.dtype = dtype;
	return tb_write_object(writer, writer->place[i], stored, &data, err);
}

/* All objects of the part but the head, handed over and written. */
static TbStatus
put_data(TbHsiWriter *writer, const TbBuilt *built, TbError *err)
{
	TbPartPut  *put = &writer->put;
	TbStatus	status = TB_OK;

	if (!writer->described)
		status = tb_write_level_json(writer, 0, &put->item, err);
	for (; status == TB_OK && put->next < (uint64_t) writer->n_arrays * TB_N_STORED; put->next++)
	{
		TbStored	stored = (TbStored) (put->next % TB_N_STORED);

		if (!tb_stored_info(stored)->leaf)
			continue;
		if (tb_puts_full(&writer->puts))
			return TB_AGAIN;
		status = put_stored(writer, built, (int) (put->next / TB_N_STORED), stored, err);
		if (status != TB_OK)
			return status;
	}
	if (status == TB_OK)
		status = tb_puts_wait(&writer->puts, err);
	writer->described = writer->described || status == TB_OK;
	return status;
}

static TbStatus
begin_part(TbHsiWriter *writer, uint64_t part, TbError *err)
{
	TbPartPut  *put = &writer->put;

	memset(put, 0, sizeof(*put));
	put->begun = true;
	put->part = part;
	tb_geometry_part_box(&writer->head->geo, part, &put->box);
	put->n = tb_box_nodes(writer->head->ndim, &put->box);
	put->place = tb_calloc(put->n, sizeof(*put->place));
	put->value = tb_calloc(put->n, sizeof(*put->value));
	if (put->place == NULL || put->value == NULL)
		return no_memory(err);
	fill_places(&writer->head->geo, &put->box, put->place);
	return TB_OK;
}

static void
end_part(TbHsiWriter *writer)
{
	tb_free(writer->put.place);
	tb_free(writer->put.value);
	memset(&writer->put, 0, sizeof(writer->put));
}

TbStatus
tb_hsi_writer_put(TbHsiWriter *writer, uint64_t part, const TbBuilt *built, TbError *err)
{
	TbPartPut  *put = &writer->put;
	TbStatus	status = TB_OK;

	if (part >= writer->head->geo.n_parts)
		return tb_fail(err, TB_E_RANGE, "part is outside of the grid");
	if (!put->begun && tb_head_has_part(writer->head, part))
		return TB_OK;
	if (put->begun && put->part != part)
		return tb_fail(err, TB_E_INTERNAL, "another part is being written");
	if (!put->begun)
		status = begin_part(writer, part, err);
	if (status == TB_OK && !put->covered)
	{
		status = put_data(writer, built, err);
		if (status == TB_OK && !tb_head_add_part(writer->head, part))
			status = no_memory(err);
		put->covered = status == TB_OK;
	}
	if (status == TB_OK)
		status = tb_write_head(writer, err);
	if (status == TB_AGAIN)
		return status;
	if (status != TB_OK)
		tb_puts_clear(&writer->puts);
	end_part(writer);
	return status;
}

void
tb_hsi_writer_free(TbHsiWriter *writer)
{
	if (writer == NULL)
		return;
	tb_puts_clear(&writer->puts);
	tb_job_free(writer->publishing);
	end_part(writer);
	tb_find_free(writer->find);
	tb_carry_free(writer->carry);
	for (int s = 0; s < TB_LEAF_STORED; s++)
	{
		for (int p = 0; p < TB_PARTS_AHEAD; p++)
			tb_fetch_free(writer->finish.fetch[p][s]);
		tb_array_unref(writer->finish.zarr[s]);
	}
	tb_free(writer->finish.node);
	tb_head_free(writer->head);
	tb_free(writer->array);
	tb_free(writer->place);
	tb_source_unref(writer->where);
	tb_grid_unref(writer->grid);
	tb_free(writer);
}
