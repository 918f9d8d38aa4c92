/*
 * Heads of indexes. The checksum would stop every mutation at the door, so it is put right first.
 * What parses must print as it was read, and its geometry must hold together for every part and
 * level.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hsi/head.h"

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char member[] = ",\"crc32c\":\"";

/* The input up to its last checksum (all of it, where there is none), and the right one. */
static TbBuf *
mend(const uint8_t *data, size_t size)
{
	TbBuf	   *text = tb_buf_new(size + 64);
	size_t		len = size;

	for (size_t i = size; i >= sizeof(member); i--)
		if (memcmp(data + i - sizeof(member) + 1, member, sizeof(member) - 1) == 0)
		{
			len = i - sizeof(member) + 1;
			break;
		}
	if (tb_buf_append(text, data, len, SIZE_MAX) != TB_OK ||
		tb_buf_printf(text, "%s%08x\"}\n", member, tb_crc32c(0, data, len)) != TB_OK)
		abort();
	return text;
}

static void
check(bool holds)
{
	if (!holds)
		abort();
}

static void
check_geometry(const TbGeometry *geo)
{
	check(geo->n_levels >= 1 && geo->n_levels <= TB_HSI_LEVELS);
	for (uint64_t i = 0; i < 3; i++)
	{
		uint64_t	part = i == 0 ? 0 : i == 1 ? geo->n_parts - 1 : geo->n_parts / 2;
		TbBox		box;

		tb_geometry_part_box(geo, part, &box);
		check(tb_box_nodes(geo->ndim, &box) >= 1);
		check(tb_box_nodes(geo->ndim, &box) <= TB_HSI_PART_LIMIT);
		check(tb_geometry_part_of(geo, box.start) == part);
	}
	for (int k = 0; k < geo->n_levels; k++)
	{
		uint64_t	last = 1;
		TbBox		box;

		for (int a = 0; a < geo->ndim; a++)
			last *= geo->chunks[k][a];
		tb_geometry_chunk_box(geo, k, last - 1, &box);
		for (int a = 0; a < geo->ndim; a++)
			check(box.count[a] > 0 && box.start[a] + box.count[a] == geo->shape[k][a]);
		check(k == 0 || geo->nodes[k] < geo->nodes[k - 1]);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	TbBuf	   *text = mend(data, size);
	TbHead	   *head = NULL;
	TbHead	   *again = NULL;

	if (tb_head_parse(text->data, text->len, &head, NULL) == TB_OK)
	{
		TbBuf	   *printed = tb_buf_new(0);

		check_geometry(&head->geo);
		check(!tb_head_has_part(head, head->geo.n_parts));
		check(tb_head_parts_done(head) <= head->geo.n_parts);
		check(tb_head_print(head, printed) == TB_OK);
		check(tb_head_parse(printed->data, printed->len, &again, NULL) == TB_OK);
		check(again->serial == head->serial && again->n_runs == head->n_runs);
		tb_buf_unref(printed);
	}
	tb_head_free(again);
	tb_head_free(head);
	tb_buf_unref(text);
	return 0;
}
