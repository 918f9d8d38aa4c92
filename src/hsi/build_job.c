/*
 * Statistics of one block: bring the block's region of each array, then collect while decoding.
 * Builders run many of these at once; scans run a few for blocks that no index describes.
 */
#include "hsi/job.h"

struct TbLeafJob
{
	TbGrid	   *grid;			/* owned reference */
	int			n_arrays;
	int		   *array;			/* owned */
	TbFetch   **fetch;			/* owned list of owned fetches */
	uint64_t	requests;
};

typedef struct Sink
{
	TbLeaf	   *leaf;
	const TbPacking *packing;
} Sink;

static void
add_run(void *arg, const void *packed, size_t elements)
{
	Sink	   *sink = arg;

	tb_leaf_add(sink->leaf, sink->packing, packed, elements);
}

TbStatus
tb_leaf_job_open(TbGrid *grid, const int *arrays, int n_arrays, uint64_t block, TbLeafJob **job,
				 TbError *err)
{
	const TbGridInfo *info = tb_grid_info(grid);
	TbLeafJob  *made = tb_calloc(1, sizeof(*made));
	uint64_t	index[TB_MAX_DIM];
	TbRegion	region = {0};
	TbStatus	status = TB_OK;

	*job = NULL;
	if (made == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	made->grid = tb_grid_ref(grid);
	made->n_arrays = n_arrays;
	made->array = tb_calloc((size_t) n_arrays + 1, sizeof(int));
	made->fetch = tb_calloc((size_t) n_arrays + 1, sizeof(TbFetch *));
	if (made->array == NULL || made->fetch == NULL)
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else if (block >= info->n_blocks)
		status = tb_fail(err, TB_E_RANGE, "block is outside of the grid");
	else
	{
		tb_grid_block_index(info, block, index);
		tb_grid_block_region(info, index, &region);
	}
	for (int i = 0; i < n_arrays && status == TB_OK; i++)
	{
		made->array[i] = arrays[i];
		status = tb_fetch_open(info->array[arrays[i]], &region, &made->fetch[i], err);
	}
	if (status != TB_OK)
	{
		tb_leaf_job_free(made);
		return status;
	}
	*job = made;
	return TB_OK;
}

TbStatus
tb_leaf_job_poll(TbLeafJob *job, TbError *err)
{
	bool		waiting = false;

	for (int i = 0; i < job->n_arrays; i++)
	{
		TbStatus	status = tb_fetch_poll(job->fetch[i], err);

		if (status != TB_OK && status != TB_AGAIN)
			return status;
		waiting = waiting || status == TB_AGAIN;
	}
	return waiting ? TB_AGAIN : TB_OK;
}

TbStatus
tb_leaf_job_result(TbLeafJob *job, TbLeaf *leaves, uint64_t *version, bool *missing,
				   uint64_t *bytes, TbError *err)
{
	const TbGridInfo *info = tb_grid_info(job->grid);

	*version = 0;
	*missing = true;
	*bytes = 0;
	job->requests = 0;
	for (int i = 0; i < job->n_arrays; i++)
	{
		const TbPacking *packing = &tb_array_meta(info->array[job->array[i]])->packing;
		Sink		sink = {.leaf = &leaves[i], .packing = packing};
		TbStatus	status;

		tb_leaf_begin(&leaves[i]);
		status = tb_fetch_visit(job->fetch[i], add_run, &sink, err);
		if (status == TB_E_CORRUPT && tb_fetch_again(job->fetch[i]))
			return TB_AGAIN;
		if (status != TB_OK)
			return status;
		*bytes += tb_fetch_bytes(job->fetch[i]);
		job->requests += tb_fetch_requests(job->fetch[i]);
		if (tb_fetch_all_missing(job->fetch[i]))
			continue;
		/* 0 means "nothing stored": never the version of what is. */
		*missing = false;
		*version = tb_mix64(*version ^ tb_fetch_version(job->fetch[i]));
		*version = *version == 0 ? 1 : *version;
	}
	return TB_OK;
}

uint64_t
tb_leaf_job_requests(const TbLeafJob *job)
{
	return job->requests;
}

void
tb_leaf_job_free(TbLeafJob *job)
{
	if (job == NULL)
		return;
	for (int i = 0; job->fetch != NULL && i < job->n_arrays; i++)
		tb_fetch_free(job->fetch[i]);
	tb_free(job->fetch);
	tb_free(job->array);
	tb_grid_unref(job->grid);
	tb_free(job);
}
