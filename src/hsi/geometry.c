/*
 * Cutting a block grid: the fan of each axis, the levels, the parts in which level 0 is built and
 * published, and the chunks that are read. Pure arithmetic, bounded for whatever a file says.
 */
#include <string.h>

#include "hsi/format.h"

static uint64_t
ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static uint64_t
product(int ndim, const uint64_t *n)
{
	uint64_t	all = 1;

	for (int a = 0; a < ndim; a++)
		if (!tb_mul_u64(all, n[a], &all))
			return UINT64_MAX;
	return all;
}

uint64_t
tb_box_nodes(int ndim, const TbBox *box)
{
	return product(ndim, box->count);
}

/*
 * Children of a node: about 64, shared evenly by the axes that have more than one block, at most
 * six of them. The axis that grows always counts as such, so that growth does not change the shape
 * of the tree.
 */
static void
choose_fan(TbGeometry *geo, const TbGridInfo *info)
{
	static const uint64_t by_axes[] = {1, 64, 8, 4, 3, 2, 2};
	int			wide[6];
	int			n = 0;

	for (int i = 0; i < info->ndim; i++)
	{
		geo->fan[i] = 1;
		if (n < 6 && (i == 0 || info->blocks[info->order[i]] > 1))
			wide[n++] = info->order[i];
	}
	for (int i = 0; i < n; i++)
		geo->fan[wide[i]] = by_axes[n];
}

/* Nodes of a level in a box of this size at its start: less than the product where an axis is
 * shorter. */
static uint64_t
nodes_in(int ndim, const uint64_t *size, const uint64_t *shape)
{
	uint64_t	clipped[TB_MAX_DIM];

	for (int a = 0; a < ndim; a++)
		clipped[a] = size[a] < shape[a] ? size[a] : shape[a];
	return product(ndim, clipped);
}

/* Chunks start as one fan box and double along their shortest axis. */
static void
choose_chunk(TbGeometry *geo, int level, uint64_t limit)
{
	const uint64_t *shape = geo->shape[level];
	uint64_t   *chunk = geo->chunk[level];

	memcpy(chunk, geo->fan, sizeof(geo->fan));
	for (;;)
	{
		int			shortest = -1;

		for (int a = 0; a < geo->ndim; a++)
			if (geo->fan[a] > 1 && chunk[a] < shape[a] &&
				(shortest < 0 || chunk[a] < chunk[shortest]))
				shortest = a;
		if (shortest < 0 || product(geo->ndim, chunk) * 2 > limit)
			break;
		chunk[shortest] *= 2;
	}
}

/*
 * Chunk and shard of a level. Shards take whole axes from the fastest in block order on, cut the
 * first that does not fit, and take single chunks of the rest.
 */
static void
choose_boxes(TbGeometry *geo, int level, uint64_t wanted)
{
	const uint64_t *shape = geo->shape[level];
	const uint64_t *chunk = geo->chunk[level];
	uint64_t   *shard = geo->shard[level];

	choose_chunk(geo, level, wanted < TB_HSI_CHUNK_NODES ? wanted : TB_HSI_CHUNK_NODES);
	memcpy(shard, chunk, sizeof(geo->fan));
	for (int i = geo->ndim - 1; i >= 0; i--)
	{
		int			a = geo->order[i];
		uint64_t	n = ceil_div(shape[a], chunk[a]);
		uint64_t	now = nodes_in(geo->ndim, shard, shape);
		uint64_t	fits = now == 0 ? 0 : wanted / now;	/* 0: a grid without blocks */

		/* an axis without blocks has a place in the cutting all the same */
		shard[a] = chunk[a] * (n > 0 ? n : 1);
		if (nodes_in(geo->ndim, shard, shape) <= wanted &&
			product(geo->ndim, shard) <= TB_HSI_PART_LIMIT)
			continue;
		shard[a] = chunk[a] * (fits == 0 ? 1 : fits < n ? fits : n);
		if (product(geo->ndim, shard) > TB_HSI_PART_LIMIT)
			shard[a] = chunk[a];
		break;
	}
}

/* Levels above 0 from the fan: until few nodes are left or nothing shrinks. */
static void
stack_levels(TbGeometry *geo)
{
	int			k = 0;

	geo->nodes[0] = product(geo->ndim, geo->shape[0]);
	while (geo->nodes[k] > TB_HSI_TOP_NODES && k + 1 < TB_HSI_LEVELS)
	{
		for (int a = 0; a < geo->ndim; a++)
			geo->shape[k + 1][a] = ceil_div(geo->shape[k][a], geo->fan[a]);
		geo->nodes[k + 1] = product(geo->ndim, geo->shape[k + 1]);
		if (geo->nodes[k + 1] == geo->nodes[k])
			break;
		k++;
		choose_boxes(geo, k, TB_HSI_PART_MAX);
	}
	geo->n_levels = k + 1;
	for (k = 0; k < geo->n_levels; k++)
		for (int a = 0; a < geo->ndim; a++)
			geo->chunks[k][a] = ceil_div(geo->shape[k][a], geo->chunk[k][a]);
	for (int a = 0; a < geo->ndim; a++)
		geo->parts[a] = ceil_div(geo->shape[0][a], geo->shard[0][a]);
	geo->n_parts = product(geo->ndim, geo->parts);
}

void
tb_geometry_make(TbGeometry *geo, const TbGridInfo *info, uint64_t part_blocks)
{
	memset(geo, 0, sizeof(*geo));
	geo->ndim = info->ndim;
	memcpy(geo->order, info->order, sizeof(geo->order));
	memcpy(geo->shape[0], info->blocks, sizeof(info->blocks));
	choose_fan(geo, info);
	if (part_blocks == 0)
	{
		part_blocks = info->n_blocks / TB_HSI_PARTS;
		part_blocks = part_blocks < TB_HSI_PART_MIN ? TB_HSI_PART_MIN : part_blocks;
	}
	choose_boxes(geo, 0, part_blocks > TB_HSI_PART_MAX ? TB_HSI_PART_MAX : part_blocks);
	stack_levels(geo);
}

bool
tb_geometry_finish(TbGeometry *geo, const uint64_t *blocks)
{
	uint64_t	chunk_nodes = product(geo->ndim, geo->chunk[0]);
	uint64_t	part_nodes = product(geo->ndim, geo->shard[0]);

	if (chunk_nodes == 0 || chunk_nodes > TB_HSI_PART_LIMIT || part_nodes > TB_HSI_PART_LIMIT)
		return false;
	for (int a = 0; a < geo->ndim; a++)
	{
		if (geo->fan[a] == 0 || geo->fan[a] > TB_HSI_CHUNK_NODES || blocks[a] == 0)
			return false;
		if (geo->chunk[0][a] % geo->fan[a] != 0 || geo->shard[0][a] == 0 ||
			geo->shard[0][a] % geo->chunk[0][a] != 0)
			return false;
		geo->shape[0][a] = blocks[a];
	}
	if (product(geo->ndim, geo->fan) > TB_HSI_CHUNK_NODES ||
		product(geo->ndim, blocks) == UINT64_MAX)
		return false;
	stack_levels(geo);
	return true;
}

/* Parts are numbered like blocks: the axis that grows is the slowest. */
uint64_t
tb_geometry_part_of(const TbGeometry *geo, const uint64_t *block_index)
{
	uint64_t	part = 0;

	for (int i = 0; i < geo->ndim; i++)
	{
		int			a = geo->order[i];

		part = part * geo->parts[a] + block_index[a] / geo->shard[0][a];
	}
	return part;
}

static void
clip_box(const TbGeometry *geo, int level, const uint64_t *size, TbBox *box)
{
	for (int a = 0; a < geo->ndim; a++)
	{
		uint64_t	rest = geo->shape[level][a] - box->start[a];

		box->count[a] = size[a] < rest ? size[a] : rest;
	}
}

void
tb_geometry_part_box(const TbGeometry *geo, uint64_t part, TbBox *box)
{
	for (int i = geo->ndim - 1; i >= 0; i--)
	{
		int			a = geo->order[i];

		box->start[a] = part % geo->parts[a] * geo->shard[0][a];
		part /= geo->parts[a];
	}
	clip_box(geo, 0, geo->shard[0], box);
}

void
tb_geometry_chunk_box(const TbGeometry *geo, int level, uint64_t chunk, TbBox *box)
{
	for (int a = geo->ndim - 1; a >= 0; a--)
	{
		box->start[a] = chunk % geo->chunks[level][a] * geo->chunk[level][a];
		chunk /= geo->chunks[level][a];
	}
	clip_box(geo, level, geo->chunk[level], box);
}

/* Level 0 always is; above, what fits into one chunk is stored as one. */
bool
tb_geometry_sharded(const TbGeometry *geo, int level)
{
	return level == 0 ||
		memcmp(geo->chunk[level], geo->shard[level], (size_t) geo->ndim * sizeof(uint64_t)) != 0;
}
