/*
 * Arithmetic of regions: which cells of a grid a region touches, what of a chunk lies in it, and
 * the runs that copy it. Pure; regions were checked against the array's shape before.
 */
#include "block/internal.h"

#include <string.h>

bool
tb_region_elements(const TbRegion *region, uint64_t *elements)
{
	uint64_t	n = 1;

	for (int d = 0; d < region->ndim; d++)
		if (region->count[d] == 0)
		{
			*elements = 0;
			return true;
		}
	for (int d = 0; d < region->ndim; d++)
		if (!tb_mul_u64(n, region->count[d], &n))
			return false;
	*elements = n;
	return true;
}

TbDtype
tb_treated_dtype(const TbArrayMeta *meta, TbTreatment treatment)
{
	if (treatment.cast != TB_NONE)
		return treatment.cast;
	return treatment.raw ? meta->packing.stored : meta->packing.decoded;
}

TbStatus
tb_region_check(const TbArrayMeta *meta, const TbRegion *region, TbError *err)
{
	if (region->ndim != meta->ndim)
	{
		tb_fail(err, TB_E_INVALID, "region has another number of dimensions than its array");
		tb_error_detail(err, "array \"%.200s\" has %d, the region %d", meta->path, meta->ndim,
						region->ndim);
		return TB_E_INVALID;
	}
	for (int d = 0; d < region->ndim; d++)
	{
		uint64_t	end;

		if (tb_add_u64(region->start[d], region->count[d], &end) && end <= meta->shape[d])
			continue;
		tb_fail(err, TB_E_RANGE, "region is outside the array");
		tb_error_detail(err,
						"array \"%.200s\", dimension \"%.100s\" of length %llu, region from %llu "
						"with %llu elements",
						meta->path, meta->dim_name[d], (unsigned long long) meta->shape[d],
						(unsigned long long) region->start[d],
						(unsigned long long) region->count[d]);
		return TB_E_RANGE;
	}
	return TB_OK;
}

bool
tb_box_of(const TbRegion *region, const uint64_t *unit, TbBox *box)
{
	box->ndim = region->ndim;
	box->total = 1;
	for (int d = 0; d < region->ndim; d++)
	{
		if (region->count[d] == 0)
		{
			box->first[d] = box->n[d] = 0;
			box->total = 0;
			continue;
		}
		box->first[d] = region->start[d] / unit[d];
		box->n[d] = (region->start[d] + region->count[d] - 1) / unit[d] - box->first[d] + 1;
		if (!tb_mul_u64(box->total, box->n[d], &box->total))
			return false;
	}
	return true;
}

void
tb_box_index(const TbBox *box, uint64_t number, uint64_t *index)
{
	for (int d = box->ndim - 1; d >= 0; d--)
	{
		index[d] = box->first[d] + number % box->n[d];
		number /= box->n[d];
	}
}

uint64_t
tb_box_number(const TbBox *box, const uint64_t *index)
{
	uint64_t	number = 0;

	for (int d = 0; d < box->ndim; d++)
		number = number * box->n[d] + (index[d] - box->first[d]);
	return number;
}

bool
tb_box_clip(const TbBox *box, const uint64_t *first, const uint64_t *n, TbBox *out)
{
	out->ndim = box->ndim;
	out->total = 1;
	for (int d = 0; d < box->ndim; d++)
	{
		uint64_t	low = box->first[d] > first[d] ? box->first[d] : first[d];
		uint64_t	box_end = box->first[d] + box->n[d];
		uint64_t	end = first[d] + n[d] < box_end ? first[d] + n[d] : box_end;

		if (end <= low)
			return false;
		out->first[d] = low;
		out->n[d] = end - low;
		out->total *= out->n[d];	/* a part of box, whose total fits */
	}
	return true;
}

void
tb_overlap_of(const TbRegion *region, const uint64_t *chunk, const uint64_t *index,
			  TbOverlap *overlap)
{
	overlap->ndim = region->ndim;
	for (int d = 0; d < region->ndim; d++)
	{
		uint64_t	chunk_start = index[d] * chunk[d];
		uint64_t	region_end = region->start[d] + region->count[d];
		uint64_t	low = chunk_start > region->start[d] ? chunk_start : region->start[d];
		uint64_t	left = region_end - low;

		/* counted from low, as the end of the last chunk may lie beyond 2^64 */
		overlap->src_start[d] = low - chunk_start;
		overlap->dst_start[d] = low - region->start[d];
		overlap->count[d] =
			chunk[d] - overlap->src_start[d] < left ? chunk[d] - overlap->src_start[d] : left;
	}
}

/* Add one dimension (slower than those before), merged where it continues them in both arrays. */
static void
add_dimension(TbRuns *runs, size_t count, size_t src_step, size_t dst_step)
{
	if (count == 1)
		return;
	if (runs->n == 0 && src_step == runs->run && dst_step == runs->run)
	{
		runs->run *= count;
		return;
	}
	if (runs->n > 0)
	{
		int			last = runs->n - 1;

		if (runs->src_step[last] * runs->count[last] == src_step &&
			runs->dst_step[last] * runs->count[last] == dst_step)
		{
			runs->count[last] *= count;
			return;
		}
	}
	runs->count[runs->n] = count;
	runs->src_step[runs->n] = src_step;
	runs->dst_step[runs->n] = dst_step;
	runs->n++;
}

void
tb_runs_plan(const TbOverlap *overlap, const uint64_t *src_shape, const uint64_t *dst_shape,
			 TbRuns *runs)
{
	size_t		src_stride = 1;
	size_t		dst_stride = 1;

	runs->run = 1;
	runs->n = 0;
	runs->src = runs->dst = 0;
	for (int d = overlap->ndim - 1; d >= 0; d--)
	{
		runs->src += overlap->src_start[d] * src_stride;
		runs->dst += overlap->dst_start[d] * dst_stride;
		add_dimension(runs, overlap->count[d], src_stride, dst_stride);
		src_stride *= src_shape[d];
		dst_stride *= dst_shape[d];
	}
}
