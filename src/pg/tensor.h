/*
 * Tensors as the C functions over them see them. The varlena holds an NPY file as base/npy.h writes
 * it, so its data starts four bytes behind a multiple of eight: elements are reached by memcpy,
 * never by a cast.
 */
#ifndef TBPG_TENSOR_H
#define TBPG_TENSOR_H

#include "pg/tbpg.h"

#include "utils/array.h"

/* A tensor taken apart. */
typedef struct TbpgTensor
{
	TbNpy		npy;
	struct varlena *value; /* borrowed, or in the current context where it had to be detoasted */
	const uint8_t *data;		/* into value: npy.data_bytes bytes, any alignment */
} TbpgTensor;

/* Take a tensor apart, detoasting it. errors: what damaged storage gives. */
extern void tbpg_tensor_open(Datum value, TbpgTensor *tensor);

/* Its header alone, without bringing in the data of a toasted one. */
extern void tbpg_tensor_header(Datum value, TbNpy *npy);

/* Some bytes of a tensor's varlena, without bringing in the others of a toasted one. */
extern struct varlena *tbpg_tensor_slice(Datum value, int32 start, int32 bytes);

/*
 * A new tensor in the current context; *data is where its elements go (uninitialised).
 * spare: further bytes behind the value that do not count. errors: 54000 over 1 GB - 1.
 */
extern struct varlena *
tbpg_tensor_new(TbDtype dtype, int ndim, const uint64_t *shape, size_t spare, uint8_t **data);

/*
 * A large value as an expanded object, so that sending it copies nothing: value was made in context, a child of the
 * one that the datum is for, and the context is the object's from now on. Wherever the server stores it, it
 * becomes flat.
 */
extern Datum tbpg_tensor_expanded(MemoryContext context, struct varlena *value);

/* A tensor from the bytes of an NPY file of any byte order and axis order. errors: 22023, 22P03,
 * 0A000, 54000. */
extern struct varlena *tbpg_tensor_from_npy(const uint8_t *bytes, size_t len);

/* Elements of a tensor, fits in size_t by construction. */
static inline size_t
tbpg_tensor_elements(const TbNpy *npy)
{
	return npy->data_bytes / tb_dtype_size(npy->dtype);
}

/* A dtype by name. errors: 22023 with the list in the hint. */
extern TbDtype tbpg_dtype(const char *name);

/* int8[] of lengths, and back: one value a dimension. errors: 22004 for NULLs, 2202E for another
 * number of them. */
extern ArrayType *tbpg_extents_array(int ndim, const uint64_t *extents);
extern void tbpg_extents_from_array(ArrayType *array, int ndim, const char *what, int64 *extents);

/* tensor_text.c: the text form. */
extern char *tbpg_tensor_print(const TbpgTensor *tensor);
extern struct varlena *tbpg_tensor_scan(const char *text);

#endif
