/*
 * NPY: the form a tensor has in a varlena, on the wire and in files. Version 1.0, C order,
 * little-endian. source: NumPy, "A simple file format for NumPy arrays" (NEP 1).
 */
#ifndef TB_BASE_NPY_H
#define TB_BASE_NPY_H

#include "base/dtype.h"

typedef struct TbNpy
{
	TbDtype		dtype;
	int			ndim;
	uint64_t	shape[TB_MAX_DIM];
	size_t		header_bytes;	/* where the data starts; a multiple of 64 */
	size_t		data_bytes;		/* product of shape times element size */
} TbNpy;

/* Bytes of header for this dtype and shape, and of data; false if sizes overflow. Fills out. */
extern bool tb_npy_layout(TbDtype dtype, int ndim, const uint64_t *shape, TbNpy *out);

/* Write the header (npy->header_bytes bytes) to dst. */
extern void tb_npy_write_header(const TbNpy *npy, uint8_t *dst);

/*
 * Parse a header. Accepts versions 1 to 3, both byte orders ('>' reported by *swapped), C order
 * or, told by *fortran, F order. Never pickles, never structured. errors: INVALID, UNSUPPORTED,
 * LIMIT.
 */
extern TbStatus tb_npy_parse(const uint8_t *bytes, size_t len, TbNpy *out, bool *swapped,
							 bool *fortran, TbError *err) TB_MUST_CHECK;

#endif
