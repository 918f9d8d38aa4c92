/*
 * The head of an index: making one, whether it fits a grid, which parts it covers. Its text form is
 * head_text.c; looking for the newest one is find.c.
 */
#include "hsi/head.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
tb_head_free(TbHead *head)
{
	if (head == NULL)
		return;
	for (int a = 0; head->dim != NULL && a < head->ndim; a++)
		tb_free(head->dim[a]);
	tb_free(head->dim);
	for (int i = 0; head->array != NULL && i < head->n_arrays; i++)
	{
		tb_free(head->array[i].path);
		tb_free(head->array[i].packing);
	}
	tb_free(head->array);
	tb_free(head->run);
	tb_free(head);
}

/* All that statistics depend on, as text; doubles by their bits. owns: the caller. */
static char *
packing_text(const TbPacking *packing)
{
	char		sentinels[TB_MAX_SENTINELS * 17 + 1] = "";
	size_t		at = 0;

	for (int i = 0; i < packing->n_sentinels && i < TB_MAX_SENTINELS; i++)
		at += (size_t) snprintf(sentinels + at, sizeof(sentinels) - at, " %" PRIx64,
								packing->sentinel[i]);
	if (!packing->scaled)
		return tb_asprintf("%s missing%s", tb_dtype_name(packing->packed), sentinels);
	return tb_asprintf("%s missing%s scale %a offset %a to %s", tb_dtype_name(packing->packed),
					   sentinels, packing->scale, packing->offset, tb_dtype_name(packing->decoded));
}

static bool
fill_arrays(TbHead *head, const TbGridInfo *info, const int *arrays)
{
	for (int i = 0; i < head->n_arrays; i++)
	{
		const TbPacking *packing = &tb_array_meta(info->array[arrays[i]])->packing;

		head->array[i].path = tb_strdup(tb_hsi_array_path(info, arrays[i]));
		head->array[i].packing = packing_text(packing);
		head->array[i].stat = packing->stat;
		if (head->array[i].path == NULL || head->array[i].packing == NULL)
			return false;
	}
	return true;
}

static bool
fill_dims(TbHead *head, const TbGridInfo *info)
{
	for (int a = 0; a < info->ndim; a++)
	{
		head->dim[a] = tb_strdup(info->dim_name[a]);
		if (head->dim[a] == NULL)
			return false;
	}
	return true;
}

TbStatus
tb_head_make(const TbGridInfo *info, const int *arrays, int n_arrays, uint64_t part_blocks,
			 TbHead **head, TbError *err)
{
	TbHead	   *made = tb_calloc(1, sizeof(*made));
	uint8_t		random[16];

	*head = NULL;
	if (made == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	made->ndim = info->ndim;
	made->n_arrays = n_arrays;
	made->dim = tb_calloc((size_t) info->ndim + 1, sizeof(char *));
	made->array = tb_calloc((size_t) n_arrays + 1, sizeof(TbHeadArray));
	if (made->dim == NULL || made->array == NULL || !fill_dims(made, info) ||
		!fill_arrays(made, info, arrays))
	{
		tb_head_free(made);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	memcpy(made->shape, info->shape, sizeof(made->shape));
	memcpy(made->cell, info->cell, sizeof(made->cell));
	memcpy(made->blocks, info->blocks, sizeof(made->blocks));
	tb_geometry_make(&made->geo, info, part_blocks);
	if (tb_random(random, sizeof(random), err) != TB_OK)
	{
		tb_head_free(made);
		return TB_E_IO;
	}
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(made->build + 2 * i, 3, "%02x", random[i]);
	*head = made;
	return TB_OK;
}

bool
tb_head_fits(const TbHead *head, const TbGridInfo *info)
{
	if (head->ndim != info->ndim)
		return false;
	for (int a = 0; a < info->ndim; a++)
	{
		if (strcmp(head->dim[a], info->dim_name[a]) != 0 || head->cell[a] != info->cell[a] ||
			head->geo.order[a] != info->order[a])
			return false;
		if (a != info->order[0] && head->shape[a] != info->shape[a])
			return false;
	}
	return true;
}

int
tb_head_find(const TbHead *head, const TbGridInfo *info, int array)
{
	const TbPacking *packing = &tb_array_meta(info->array[array])->packing;
	const char *path = tb_hsi_array_path(info, array);

	for (int i = 0; i < head->n_arrays; i++)
	{
		char	   *text;
		bool		same;

		if (strcmp(head->array[i].path, path) != 0)
			continue;
		text = packing_text(packing);
		same = text != NULL && strcmp(text, head->array[i].packing) == 0 &&
			head->array[i].stat == packing->stat;
		tb_free(text);
		return same ? i : -1;
	}
	return -1;
}

/* ---- parts done ---- */

/* First run that ends after part. */
static size_t
find_run(const TbHead *head, uint64_t part)
{
	size_t		lo = 0;
	size_t		hi = head->n_runs;

	while (lo < hi)
	{
		size_t		mid = lo + (hi - lo) / 2;

		if (head->run[mid].end > part)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

bool
tb_head_has_part(const TbHead *head, uint64_t part)
{
	size_t		i = find_run(head, part);

	return i < head->n_runs && head->run[i].first <= part;
}

uint64_t
tb_head_parts_done(const TbHead *head)
{
	uint64_t	n = 0;

	for (size_t i = 0; i < head->n_runs; i++)
		n += head->run[i].end - head->run[i].first;
	return n;
}

bool
tb_head_add_part(TbHead *head, uint64_t part)
{
	size_t		i = find_run(head, part);
	bool		before = i > 0 && head->run[i - 1].end == part;
	bool		after = i < head->n_runs && head->run[i].first == part + 1;

	if (tb_head_has_part(head, part))
		return true;
	if (before && after)
	{
		head->run[i - 1].end = head->run[i].end;
		memmove(head->run + i, head->run + i + 1, (head->n_runs - i - 1) * sizeof(TbRun));
		head->n_runs--;
	}
	else if (before)
		head->run[i - 1].end++;
	else if (after)
		head->run[i].first--;
	else
	{
		if (head->n_runs == head->cap_runs)
		{
			size_t		cap = head->cap_runs * 2 + 4;
			TbRun	   *grown = tb_realloc_array(head->run, cap, sizeof(TbRun));

			if (grown == NULL)
				return false;
			head->run = grown;
			head->cap_runs = cap;
		}
		memmove(head->run + i + 1, head->run + i, (head->n_runs - i) * sizeof(TbRun));
		head->run[i] = (TbRun) {.first = part, .end = part + 1};
		head->n_runs++;
	}
	return true;
}
