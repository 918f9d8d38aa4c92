/*
 * Planning: how many blocks a predicate leaves, without waiting for anything. The walk goes down
 * while nodes can be told apart by coordinates or by chunks that happen to be in memory, up to a
 * bound on the work; what is not decided by then counts whole.
 */
#include <string.h>

#include "hsi/pred.h"
#include "hsi/prune.h"

#define MAX_JUDGED 20000		/* nodes: about a millisecond or two */

typedef struct Estimate
{
	TbProbe		probe;
	TbBundle	bundle;
	const TbNeeds *needs;
	uint64_t	judged;
	double		blocks;
} Estimate;

/* Whether a node can be ruled out with what is at hand. */
static bool
is_out(Estimate *estimate, int level, const uint64_t *node)
{
	TbProbe    *probe = &estimate->probe;
	TbSubject	subject = {.probe = probe, .level = level, .node = node};
	int			set;

	estimate->judged++;
	if (!probe->uses_stats || level >= probe->n_levels_stored ||
		!tb_probe_trusts(probe, level, node))
		return !(tb_subject_judge(&subject) & TB_CAN_TRUE);
	estimate->bundle.needs = level == 0 ? &probe->leaf : &probe->inner;
	tb_bundle_peek(&estimate->bundle, probe, level, node);
	if (!estimate->bundle.none)
	{
		subject.bundle = &estimate->bundle;
		subject.slot = tb_bundle_slot(&estimate->bundle, probe->info->ndim, node);
	}
	set = tb_subject_judge(&subject);
	tb_bundle_close(&estimate->bundle, probe->hsi);
	return !(set & TB_CAN_TRUE);
}

/* Nothing below can be told apart: no coordinates asked for, and no statistics loaded. */
static bool
is_blind(const Estimate *estimate)
{
	const TbProbe *probe = &estimate->probe;

	return !probe->uses_coords && (probe->hsi == NULL || probe->hsi->bytes == 0);
}

static void
visit(Estimate *estimate, int level, const uint64_t *node)
{
	const TbGeometry *geo = estimate->probe.geo;
	uint64_t	child[TB_MAX_DIM] = {0};
	TbBox		box;
	int			a;

	if (estimate->judged < MAX_JUDGED && is_out(estimate, level, node))
		return;
	if (level == 0 || estimate->judged >= MAX_JUDGED || is_blind(estimate))
	{
		tb_probe_blocks(&estimate->probe, level, node, &box);
		estimate->blocks += (double) tb_box_nodes(geo->ndim, &box);
		return;
	}
	for (a = 0; a < geo->ndim; a++)
		child[a] = node[a] * geo->fan[a];
	do
	{
		visit(estimate, level - 1, child);
		for (a = geo->ndim - 1; a >= 0; a--)
		{
			if (++child[a] < (node[a] + 1) * geo->fan[a] && child[a] < geo->shape[level - 1][a])
				break;
			child[a] = node[a] * geo->fan[a];
		}
	} while (a >= 0);
}

static void
visit_top(Estimate *estimate)
{
	const TbGeometry *geo = estimate->probe.geo;
	uint64_t	node[TB_MAX_DIM] = {0};
	int			top = geo->n_levels - 1;
	int			a;

	do
	{
		visit(estimate, top, node);
		for (a = geo->ndim - 1; a >= 0; a--)
		{
			if (++node[a] < geo->shape[top][a])
				break;
			node[a] = 0;
		}
	} while (a >= 0);
}

double
tb_hsi_estimate(TbGrid *grid, TbHsi *hsi, const TbPred *pred)
{
	const TbGridInfo *info = tb_grid_info(grid);
	TbScanSpec	spec = {.grid = grid, .hsi = hsi, .pred = pred};
	Estimate	estimate;
	double		all = (double) info->n_blocks;

	if (pred == NULL || info->n_blocks == 0)
		return all;
	memset(&estimate, 0, sizeof(estimate));
	if (tb_probe_init(&estimate.probe, &spec, NULL) != TB_OK)
		return all;
	/* One bundle for both kinds of level: as long as the longer list. */
	if (tb_bundle_init(&estimate.bundle, estimate.probe.leaf.n > estimate.probe.inner.n ?
					   &estimate.probe.leaf : &estimate.probe.inner, NULL) == TB_OK)
	{
		visit_top(&estimate);
		tb_bundle_clear(&estimate.bundle, estimate.probe.hsi);
		all = estimate.blocks;
	}
	tb_probe_clear(&estimate.probe);
	return all;
}
