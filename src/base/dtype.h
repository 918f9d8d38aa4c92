/*
 * Element types. In memory every element is in the machine's byte order; a bool is one byte, 0 or
 * 1.
 */
#ifndef TB_BASE_DTYPE_H
#define TB_BASE_DTYPE_H

#include "base/error.h"

#define TB_MAX_DIM 32

typedef enum TbDtype
{
	TB_NONE = 0,
	TB_BOOL, TB_I8, TB_I16, TB_I32, TB_I64, TB_U8, TB_U16, TB_U32, TB_U64, TB_F16, TB_F32, TB_F64
} TbDtype;

extern size_t tb_dtype_size(TbDtype dtype);	/* bytes; 0 for TB_NONE */
extern const char *tb_dtype_name(TbDtype dtype); /* Zarr v3 name: "int16", "float32", "bool" */
extern TbDtype tb_dtype_parse(const char *name); /* TB_NONE: not known */
extern const char *tb_dtype_npy(TbDtype dtype); /* "<f4", "|b1": as NPY headers write it */

static inline bool tb_dtype_is_float(TbDtype d) { return d >= TB_F16; }
static inline bool tb_dtype_is_unsigned(TbDtype d) { return d >= TB_U8 && d <= TB_U64; }
static inline bool tb_dtype_is_integer(TbDtype d) { return d >= TB_I8 && d <= TB_U64; }

extern float tb_half_to_float(uint16_t half);
extern uint16_t tb_float_to_half(float value);	/* round to nearest even */

/* One element as a double (exact for all but 64-bit integers), or as the exact integer. */
extern double tb_element_double(TbDtype dtype, const void *element);

#endif
