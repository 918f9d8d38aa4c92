/*
 * What EXPLAIN tells of a scan: the predicate that prunes, what there is, and with ANALYZE what was skipped
 * where and what it cost.
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "pg/compat.h"
#include "pg/fdw.h"

static char *
predicate_text(const TbpgScanState *state)
{
	TbPred	   *pred = state->pred;
	TbBuf	   *text = tb_buf_new(256);
	char	   *copy = NULL;

	/* before the first row: what constants say, parameters left open */
	if (pred == NULL)
		pred = tbpg_qual_bind(state->qual, NULL);
	if (text != NULL && pred != NULL && tb_pred_print(pred, state->table->info, text) == TB_OK)
		copy = pnstrdup((const char *) text->data, text->len);
	tb_buf_unref(text);
	if (state->pred == NULL)
		tb_pred_free(pred);
	return copy;
}

/* Decoded bytes that read() above the scan would make of the rows expected. */
static double
estimated_bytes(const TbpgScanState *state, double rows)
{
	const TbGridInfo *info = state->table->info;
	double		elements = 1;
	double		bytes = 0;

	for (int d = 0; d < info->ndim; d++)
		elements *= (double) Min(info->cell[d], info->shape[d]);
	for (int i = 0; i < state->n_read; i++)
	{
		const TbpgColumn *column = &state->table->column[state->read_attr[i] - 1];

		if (column->role == TBPG_ARRAY)
			bytes += (double) tb_dtype_size(tb_array_meta(info->array[column->index])->packing.decoded);
	}
	return rows * elements * bytes;
}

static void
explain_static(const TbpgScanState *state, double rows, ExplainState *es)
{
	char	   *text = tbpg_qual_useful(state->qual) ? predicate_text(state) : NULL;
	TbHsiInfo	info = {0};

	if (text != NULL)
		ExplainPropertyText("Pushed", text, es);
	ExplainPropertyInteger("Blocks", NULL, (int64) state->table->info->n_blocks, es);
	if (state->table->hsi != NULL)
		info = tb_hsi_info(state->table->hsi);
	ExplainPropertyInteger("Index Levels", NULL, info.levels, es);
	if (es->costs && state->n_read > 0)
		ExplainPropertyFloat("Estimated Bytes", NULL, estimated_bytes(state, rows), 0, es);
	if (state->table->hsi != NULL && info.n_covered < info.n_blocks)
		ExplainPropertyInteger("Unindexed Blocks", NULL, (int64) (info.n_blocks - info.n_covered), es);
}

/* What happened to the scan's reads beyond being answered: only where it did. */
static void
explain_store(const TbIoCounters *now, const TbIoCounters *before, ExplainState *es)
{
	const struct {const char *label; uint64_t now; uint64_t before;} rows[] = {
		{"Retries", now->retries, before->retries},
		{"Hedges", now->hedges, before->hedges},
		{"Merged Reads", now->merged, before->merged},
		{"Throttled", now->throttled, before->throttled},
		{"Cache Hits", now->cache_hits, before->cache_hits},
		{"Cache Bytes", now->cache_bytes, before->cache_bytes},
	};

	for (size_t i = 0; i < lengthof(rows); i++)
		if (rows[i].now > rows[i].before)
			ExplainPropertyInteger(rows[i].label, NULL, (int64) (rows[i].now - rows[i].before), es);
}

static void
explain_counters(const TbpgScanState *state, ExplainState *es)
{
	TbScanCounters c = tbpg_scan_totals(state);
	TbIoCounters io = tb_store_counters(tb_source_store(tb_grid_source(state->table->grid)));

	ExplainPropertyInteger("Pruned by Coordinates", NULL, (int64) c.pruned_coords, es);
	for (int level = 15; level >= 0; level--)
		if (c.nodes_visited[level] > 0 || c.pruned_level[level] > 0)
		{
			char		label[64];

			snprintf(label, sizeof(label), "Pruned at Level %d", level);
			ExplainPropertyInteger(label, NULL, (int64) c.pruned_level[level], es);
		}
	if (c.computed > 0)
		ExplainPropertyInteger("Blocks Read for Statistics", NULL, (int64) c.computed, es);
	if (c.excluded > 0)
		ExplainPropertyInteger("Blocks Left Out", NULL, (int64) c.excluded, es);
	ExplainPropertyInteger("Index Requests", NULL, (int64) c.index_requests, es);
	ExplainPropertyInteger("Index Bytes", NULL, (int64) c.index_bytes, es);
	ExplainPropertyInteger("Store Requests", NULL, (int64) (io.requests - state->io_before.requests), es);
	ExplainPropertyInteger("Store Bytes", NULL, (int64) (io.bytes - state->io_before.bytes), es);
	explain_store(&io, &state->io_before, es);
}

void
tbpg_explain_scan(ForeignScanState *node, ExplainState *es)
{
	TbpgScanState *state = node->fdw_state;

	explain_static(state, node->ss.ps.plan->plan_rows, es);
	if (es->analyze)
		explain_counters(state, es);
}
