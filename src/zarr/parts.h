/*
 * What the files of this room share; no other room includes it. Errors filled in here name codec,
 * type or member; the array's name is added once, where the node is made.
 */
#ifndef TB_ZARR_PARTS_H
#define TB_ZARR_PARTS_H

#include "zarr/zarr.h"

/* ---- node.c ---- */
#define TB_PATH_LABEL(path) ((path)[0] == '\0' ? "/" : (path))

/* Take node's contents over, also on failure. errors: NOMEM. */
extern TbStatus tb_nodes_add(TbNodes *nodes, TbNode *node, TbError *err) TB_MUST_CHECK;
extern void tb_nodes_cut(TbNodes *nodes, size_t n); /* free all from n on */

/*
 * base and relative joined by a slash, either may be empty; fresh memory, NULL when memory is gone.
 */
extern char *tb_path_join(const char *base, const char *relative);

/* False for what is no path of nodes: an empty segment, "." or "..". "" is the root. */
extern bool tb_path_valid(const char *path);

/*
 * Append the array at path: meta (taken over), or where reason's code is not OK a node that says
 * why. errors: NOMEM.
 */
extern TbStatus tb_nodes_add_array(TbNodes *nodes, const char *path, int zarr_format,
								   TbArrayMeta *meta, const TbError *reason,
								   TbError *err) TB_MUST_CHECK;
/* The same for a group; attributes are taken over. */
extern TbStatus tb_nodes_add_group(TbNodes *nodes, const char *path, int zarr_format,
								   TbJson *attributes, const TbError *reason,
								   TbError *err) TB_MUST_CHECK;

/* ---- meta.c ---- */
extern TbArrayMeta *tb_array_meta_new(const char *path, int zarr_format);

/*
 * A list of sizes. floor: the smallest that is right. ndim: the length wanted, or -1: set it.
 * errors: INVALID, RANGE (negative or 2^63 and more), LIMIT (more than TB_MAX_DIM).
 */
extern TbStatus tb_sizes_parse(const TbJson *list, const char *member, uint64_t floor, int *ndim,
							   uint64_t *sizes, TbError *err) TB_MUST_CHECK;

/* Name the dimensions: a list of texts or nulls, NULL: none has a name. errors: NOMEM. */
extern TbStatus tb_dims_name(TbArrayMeta *meta, const TbJson *names, TbError *err) TB_MUST_CHECK;

/* Hold attributes (an object, or NULL). errors: INVALID. */
extern TbStatus tb_attributes_take(TbJson **attributes, TbJson *value, TbError *err) TB_MUST_CHECK;

/* The last step: caps, codec chain, packing, time. errors: LIMIT, UNSUPPORTED, INVALID, NOMEM. */
extern TbStatus tb_array_finish(TbArrayMeta *meta, TbError *err) TB_MUST_CHECK;

/* ---- codecs of the two formats: set chunk, shard levels and codecs from grid_chunk ---- */
extern TbStatus tb_v3_codecs(TbArrayMeta *meta, TbJson *codecs, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_v2_codecs(TbArrayMeta *meta, const TbJson *zarray, bool big_endian,
							 TbError *err) TB_MUST_CHECK;

/*
 * A named extension, "name" or {"name": ..., "configuration": {...}}. config: NULL where there is
 * none.
 */
extern bool tb_extension(const TbJson *value, const char **name, TbJson **config);

/* True where the object says "must_understand": false. */
extern bool tb_may_ignore(const TbJson *value);

/* ---- fill.c ---- */
typedef enum TbElement
{
	TB_ELEMENT_OK,
	TB_ELEMENT_NO_VALUE,		/* no number at all */
	TB_ELEMENT_NO_FIT,			/* a number that the type does not hold */
	TB_ELEMENT_INFINITE			/* a finite number that became infinite; bits are set */
} TbElement;

/*
 * One element as metadata spell it: number, bool, "NaN", "Infinity", "-Infinity", hexadecimal bit
 * pattern, number as text, base64 (integers only where base64_integers). bits: the element's, in
 * the low bytes.
 */
extern TbElement tb_element_parse(TbDtype dtype, const TbJson *value, bool base64_integers,
								  uint64_t *bits);
/* In the machine's byte order. */
extern void tb_element_store(TbDtype dtype, uint64_t bits, void *element);
extern uint64_t tb_element_load(TbDtype dtype, const void *element);

/* fill and fill_is_null from "fill_value". errors: TEXT. */
extern TbStatus tb_fill_parse(TbArrayMeta *meta, const TbJson *value, TbError *err) TB_MUST_CHECK;

#endif
