/*
 * `transpose`: a permutation of axes before `bytes`. Opening turns it into the fewest loops that do
 * the work (axes of one element dropped, axes that run on in both orders joined); decoding walks
 * the outer ones like an odometer and copies, for the two axes that are contiguous on either side,
 * tile by tile, so that a cache line fetched is used whole. source: Zarr v3 codecs,
 * "transpose" 1.0: encoded axis i is decoded axis order[i].
 */
#include "codec/inner.h"

#include <string.h>

typedef struct Axis
{
	size_t		extent;
	size_t		src_step;		/* elements of the encoded array */
	size_t		dst_step;		/* elements of the decoded array */
} Axis;

typedef struct TransposeState
{
	size_t		element_bytes;
	size_t		elements;
	int			n_axes;			/* 0: nothing to do */
	int across; /* the axis contiguous in src; the last axis is the one contiguous in dst */
	Axis		axis[TB_MAX_DIM];
} TransposeState;

static TbStatus
invalid_order(TbError *err, int ndim)
{
	tb_fail(err, TB_E_INVALID, "codec configuration is not valid");
	tb_error_detail(err, "codec \"transpose\": \"order\" is no permutation of %d axes", ndim);
	return TB_E_INVALID;
}

/* Read "order": a permutation, or "C" or "F" as drafts of the specification had it. errors:
 * INVALID. */
static TbStatus
parse_order(const TbJson *config, int ndim, int *order, TbError *err)
{
	bool		seen[TB_MAX_DIM] = {false};
	TbJson	   *value = NULL;
	const char *text;

	if (config == NULL || !tb_json_get(config, "order", &value))
		return invalid_order(err, ndim);
	if (tb_json_as_string(value, &text))
	{
		if (strcmp(text, "C") != 0 && strcmp(text, "F") != 0)
			return invalid_order(err, ndim);
		for (int i = 0; i < ndim; i++)
			order[i] = text[0] == 'C' ? i : ndim - 1 - i;
		return TB_OK;
	}
	if (tb_json_type(value) != TB_JSON_ARRAY || tb_json_length(value) != (size_t) ndim)
		return invalid_order(err, ndim);
	for (int i = 0; i < ndim; i++)
	{
		uint64_t	axis;

		if (!tb_json_as_uint(tb_json_at(value, (size_t) i), &axis) || axis >= (uint64_t) ndim ||
			seen[axis])
			return invalid_order(err, ndim);
		seen[axis] = true;
		order[i] = (int) axis;
	}
	return TB_OK;
}

/* Make the loops. order: encoded axis -> decoded axis. The product of the shape is known to fit. */
static void
plan_loops(TransposeState *plan, int ndim, const uint64_t *shape, const int *order)
{
	size_t		src_step[TB_MAX_DIM];
	size_t		step = 1;
	int			n = 0;

	for (int i = ndim - 1; i >= 0; i--)
	{
		src_step[order[i]] = step;
		step *= (size_t) shape[order[i]];
	}
	plan->elements = step;
	for (int d = 0; d < ndim; d++)
	{
		size_t		extent = (size_t) shape[d];
		Axis	   *before = n > 0 ? &plan->axis[n - 1] : NULL;

		if (extent == 1)
			continue;
		if (before != NULL && before->src_step == src_step[d] * extent)
		{
			before->extent *= extent;
			before->src_step = src_step[d];
			continue;
		}
		plan->axis[n++] = (Axis) {extent, src_step[d], 0};
	}
	step = 1;
	for (int i = n - 1; i >= 0; i--)
	{
		plan->axis[i].dst_step = step;
		step *= plan->axis[i].extent;
		if (plan->axis[i].src_step == 1)
			plan->across = i;
	}
	plan->n_axes = n <= 1 || plan->elements == 0 ? 0 : n;
}

static TbStatus
transpose_open(const TbJson *config, const TbCodecSpace *decoded, TbCodecSpace *encoded,
			   void **state, TbError *err)
{
	int			order[TB_MAX_DIM];
	TransposeState *plan;
	TbStatus	status = parse_order(config, decoded->ndim, order, err);

	if (status != TB_OK)
		return status;
	plan = tb_calloc(1, sizeof(*plan));
	if (plan == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	plan->element_bytes = tb_dtype_size(decoded->dtype);
	plan_loops(plan, decoded->ndim, decoded->shape, order);
	for (int i = 0; i < decoded->ndim; i++)
		encoded->shape[i] = decoded->shape[order[i]];
	*state = plan;
	return TB_OK;
}

static bool
transpose_is_identity(const void *state)
{
	return ((const TransposeState *) state)->n_axes == 0;
}

/* One plane, tile by tile; inlined for each element size, which makes the memcpy a load and a
 * store. */
static inline __attribute__((always_inline)) void
copy_plane(const Axis *across, const Axis *along, const uint8_t *src, uint8_t *dst,
		   const size_t size)
{
	const size_t tile = 64 / size < 16 ? 16 : 64 / size;

	for (size_t a0 = 0; a0 < across->extent; a0 += tile)
	{
		size_t		a1 = across->extent - a0 < tile ? across->extent : a0 + tile;

		for (size_t l0 = 0; l0 < along->extent; l0 += tile)
		{
			size_t		l1 = along->extent - l0 < tile ? along->extent : l0 + tile;

			for (size_t a = a0; a < a1; a++)
			{
				for (size_t l = l0; l < l1; l++)
					memcpy(dst + (a * across->dst_step + l) * size,
						   src + (a + l * along->src_step) * size, size);
			}
		}
	}
}

static void
copy_inner(const TransposeState *plan, const uint8_t *src, uint8_t *dst)
{
	const Axis *along = &plan->axis[plan->n_axes - 1];
	const Axis *across = &plan->axis[plan->across];

	if (across == along)
	{
		memcpy(dst, src, along->extent * plan->element_bytes);
		return;
	}
	switch (plan->element_bytes)
	{
		case 1:
			copy_plane(across, along, src, dst, 1);
			break;
		case 2:
			copy_plane(across, along, src, dst, 2);
			break;
		case 4:
			copy_plane(across, along, src, dst, 4);
			break;
		default:
			copy_plane(across, along, src, dst, 8);
			break;
	}
}

static TbStatus
transpose_decode(const void *state, const uint8_t *src, uint8_t *dst, TbError *err)
{
	const TransposeState *plan = state;
	size_t		at[TB_MAX_DIM] = {0};
	size_t		src_at = 0;
	size_t		dst_at = 0;
	int			i;

	if (plan->elements == 0)
		return TB_OK;
	if (plan->n_axes == 0)
	{
		memcpy(dst, src, plan->elements * plan->element_bytes);
		return TB_OK;
	}
	do
	{
		copy_inner(plan, src + src_at * plan->element_bytes, dst + dst_at * plan->element_bytes);
		for (i = plan->n_axes - 2; i >= 0; i--)
		{
			const Axis *axis = &plan->axis[i];

			if (i == plan->across)
				continue;
			src_at += axis->src_step;
			dst_at += axis->dst_step;
			if (++at[i] < axis->extent)
				break;
			src_at -= axis->src_step * axis->extent;
			dst_at -= axis->dst_step * axis->extent;
			at[i] = 0;
		}
	} while (i >= 0);
	return TB_OK;
}

const TbCodec tb_codec_transpose = {
	.name = "transpose",
	.kind = TB_ARRAY_TO_ARRAY,
	.open = transpose_open,
	.close = tb_free,
	.decode_array = transpose_decode,
	.is_identity = transpose_is_identity,
};
