/*
 * preview(tensor): a small picture in characters for psql. The last two axes are shown (of the
 * others the first index), a cell of the picture is the mean of the elements under it, and the last
 * line tells the range.
 */
#include "postgres.h"

#include <math.h>

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "pg/tensor.h"

PG_FUNCTION_INFO_V1(tensorbank_preview);

#define MAX_ROWS 24
#define MAX_COLUMNS 72

/* From least to most ink; blank is NaN's. */
static const char shades[] = ".:-=+*#%@";
#define N_SHADES ((int) sizeof(shades) - 1)

typedef struct Picture
{
	uint64_t	height;			/* of the tensor */
	uint64_t	width;
	int			rows;			/* of the picture */
	int			columns;
	double		cell[MAX_ROWS][MAX_COLUMNS];	/* mean, NaN where there is none */
	double		min;			/* of the elements shown */
	double		max;
	uint64_t	finite;
	uint64_t	nan;
} Picture;

/* Mean of the elements under one cell. */
static double
cell_mean(const TbpgTensor *tensor, Picture *picture, int row, int column)
{
	uint64_t	top = picture->height * (uint64_t) row / (uint64_t) picture->rows;
	uint64_t	bottom = picture->height * (uint64_t) (row + 1) / (uint64_t) picture->rows;
	uint64_t	left = picture->width * (uint64_t) column / (uint64_t) picture->columns;
	uint64_t	right = picture->width * (uint64_t) (column + 1) / (uint64_t) picture->columns;
	size_t		bytes = tb_dtype_size(tensor->npy.dtype);
	double		sum = 0;
	uint64_t	n = 0;

	for (uint64_t y = top; y < bottom; y++)
		for (uint64_t x = left; x < right; x++)
		{
			double value = tb_element_double(tensor->npy.dtype,
											 tensor->data + (y * picture->width + x) * bytes);

			if (isnan(value))
			{
				picture->nan++;
				continue;
			}
			if (picture->finite + n == 0 || value < picture->min)
				picture->min = value;
			if (picture->finite + n == 0 || value > picture->max)
				picture->max = value;
			n++;
			sum += value;
		}
	picture->finite += n;
	return n > 0 ? sum / (double) n : NAN;
}

static char
shade(const Picture *picture, double value)
{
	double		span = picture->max - picture->min;
	double		part;

	if (isnan(value))
		return ' ';
	if (!(span > 0))
		return shades[N_SHADES / 2];
	part = isfinite(span) ? (value - picture->min) / span : value > 0 ? 1 : 0;
	return shades[Max(0, Min(N_SHADES - 1, (int) (part * N_SHADES)))];
}

Datum
tensorbank_preview(PG_FUNCTION_ARGS)
{
	TbpgTensor	tensor;
	Picture    *picture = palloc0(sizeof(Picture));
	StringInfoData out;
	int			ndim;
	int			times;

	tbpg_tensor_open(PG_GETARG_DATUM(0), &tensor);
	ndim = tensor.npy.ndim;
	initStringInfo(&out);
	if (tensor.npy.data_bytes > 0)
	{
		picture->height = ndim > 1 ? tensor.npy.shape[ndim - 2] : 1;
		picture->width = ndim > 0 ? tensor.npy.shape[ndim - 1] : 1;
		picture->rows = (int) Min(picture->height, MAX_ROWS);
		picture->columns = (int) Min(picture->width, MAX_COLUMNS);
	}
	for (int row = 0; row < picture->rows; row++)
		for (int column = 0; column < picture->columns; column++)
		{
			CHECK_FOR_INTERRUPTS();
			picture->cell[row][column] = cell_mean(&tensor, picture, row, column);
		}
	/* a character is about twice as high as it is wide */
	times = picture->rows > 1 && picture->columns <= MAX_COLUMNS / 2 ? 2 : 1;
	for (int row = 0; row < picture->rows; row++)
	{
		for (int column = 0; column < picture->columns; column++)
			appendStringInfoSpaces(&out, times);
		for (int column = 0; column < picture->columns * times; column++)
			out.data[out.len - picture->columns * times + column] =
				shade(picture, picture->cell[row][column / times]);
		appendStringInfoChar(&out, '\n');
	}
	appendStringInfo(&out, "%s[", tb_dtype_name(tensor.npy.dtype));
	for (int d = 0; d < ndim; d++)
		appendStringInfo(&out, d > 0 ? ",%llu" : "%llu", (unsigned long long) tensor.npy.shape[d]);
	appendStringInfoChar(&out, ']');
	if (picture->finite > 0)
		appendStringInfo(&out, "  %c = %.6g, %c = %.6g", shades[0], picture->min,
						 shades[N_SHADES - 1], picture->max);
	if (picture->nan > 0)
		appendStringInfo(&out, ", blank = NaN (%llu)", (unsigned long long) picture->nan);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
