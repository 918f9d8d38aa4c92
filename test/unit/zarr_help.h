/*
 * Metadata from text, for the tests of zarr/. Each file frees what it parsed and proves that
 * nothing is left.
 */
#ifndef TB_TEST_ZARR_HELP_H
#define TB_TEST_ZARR_HELP_H

#include "zarr/zarr.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static inline TbBuf *
text_buf(const char *text)
{
	TbBuf	   *buf = tb_buf_new(1);

	assert_non_null(buf);
	assert_int_equal(tb_buf_append(buf, text, strlen(text), SIZE_MAX), TB_OK);
	return buf;
}

static inline TbStatus
parse_v3(const char *path, const char *text, TbNodes *nodes, TbError *err)
{
	TbBuf	   *buf = text_buf(text);
	bool		consolidated;
	TbStatus	status = tb_zarr_parse_v3(path, buf, nodes, &consolidated, err);

	tb_buf_unref(buf);
	return status;
}

/* zattrs NULL: none. */
static inline TbStatus
parse_v2(const char *path, const char *zarray, const char *zattrs, TbNodes *nodes, TbError *err)
{
	TbBuf	   *main = text_buf(zarray);
	TbBuf	   *attributes = zattrs != NULL ? text_buf(zattrs) : NULL;
	TbStatus	status = tb_zarr_parse_v2_array(path, main, attributes, nodes, err);

	tb_buf_unref(main);
	tb_buf_unref(attributes);
	return status;
}

static inline void
assert_contains(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* The one node parsed is an array in error: status, and what its detail must name. */
static inline void
assert_array_error(TbNodes *nodes, TbStatus status, const char *part)
{
	assert_int_equal(nodes->n, 1);
	assert_false(nodes->node[0].is_group);
	assert_null(nodes->node[0].array);
	if (nodes->node[0].status != status)
		fail_msg("%s: %s", tb_status_name(nodes->node[0].status), nodes->node[0].error.detail);
	assert_int_equal(nodes->node[0].error.code, status);
	assert_contains(nodes->node[0].error.detail, part);
	assert_contains(nodes->node[0].error.detail, "array \"");
	tb_nodes_free(nodes);
}

/* The one array parsed, usable. */
static inline TbArrayMeta *
only_array(const TbNodes *nodes)
{
	assert_int_equal(nodes->n, 1);
	if (nodes->node[0].status != TB_OK)
		fail_msg("%s; %s", nodes->node[0].error.message, nodes->node[0].error.detail);
	assert_non_null(nodes->node[0].array);
	return nodes->node[0].array;
}

static inline void
assert_sizes(const uint64_t *sizes, int n, const uint64_t *want)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(sizes[i], want[i]);
}

static inline int
nothing_left(void **state)
{
	return tb_mem_live() == 0 ? 0 : -1;
}

#endif
