/*
 * Text form of a head: one JSON object whose last member is the CRC-32C of everything before it.
 * Whatever is wrong with one is INDEX_CORRUPT: a head decides what may be skipped, so nothing in it
 * is guessed.
 */
#include "hsi/head.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CRC_MEMBER ",\"crc32c\":\""

static TbStatus
corrupt(TbError *err, const char *what)
{
	TbStatus	status = tb_fail(err, TB_E_INDEX_CORRUPT, "head of the index is damaged");

	tb_error_detail(err, "%s", what);
	return status;
}

/* ---- printing ---- */

static TbStatus
print_list(TbBuf *out, const char *name, int n, const uint64_t *number)
{
	TbStatus	status = tb_buf_printf(out, ",\"%s\":[", name);

	for (int i = 0; i < n && status == TB_OK; i++)
		status = tb_buf_printf(out, "%s%" PRIu64, i > 0 ? "," : "", number[i]);
	return status != TB_OK ? status : tb_buf_printf(out, "]");
}

static TbStatus
print_grid(const TbHead *head, TbBuf *out)
{
	uint64_t	order[TB_MAX_DIM];
	TbStatus	status = tb_buf_printf(out, ",\"dims\":[");

	for (int a = 0; a < head->ndim && status == TB_OK; a++)
	{
		order[a] = (uint64_t) head->geo.order[a];
		if (a > 0)
			status = tb_buf_printf(out, ",");
		if (status == TB_OK)
			status = tb_json_quote(out, head->dim[a]);
	}
	if (status == TB_OK)
		status = tb_buf_printf(out, "]");
	if (status == TB_OK)
		status = print_list(out, "shape", head->ndim, head->shape);
	if (status == TB_OK)
		status = print_list(out, "cell", head->ndim, head->cell);
	if (status == TB_OK)
		status = print_list(out, "blocks", head->ndim, head->blocks);
	if (status == TB_OK)
		status = print_list(out, "order", head->ndim, order);
	if (status == TB_OK)
		status = print_list(out, "fan", head->ndim, head->geo.fan);
	if (status == TB_OK)
		status = print_list(out, "chunk", head->ndim, head->geo.chunk[0]);
	return status != TB_OK ? status : print_list(out, "part", head->ndim, head->geo.shard[0]);
}

static TbStatus
print_arrays(const TbHead *head, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out, ",\"arrays\":[");

	for (int i = 0; i < head->n_arrays && status == TB_OK; i++)
	{
		status = tb_buf_printf(out, "%s{\"path\":", i > 0 ? "," : "");
		if (status == TB_OK)
			status = tb_json_quote(out, head->array[i].path);
		if (status == TB_OK)
			status = tb_buf_printf(out, ",\"packing\":");
		if (status == TB_OK)
			status = tb_json_quote(out, head->array[i].packing);
		if (status == TB_OK)
			status = tb_buf_printf(out, ",\"type\":\"%s\"}", tb_dtype_name(head->array[i].stat));
	}
	return status != TB_OK ? status : tb_buf_printf(out, "]");
}

TbStatus
tb_head_print(const TbHead *head, TbBuf *out)
{
	size_t		start = out->len;
	TbStatus	status;

	status = tb_buf_printf(out,
						   "{\"tensorbank_hsi\":%d,\"serial\":%" PRIu64 ",\"build\":\"%s\","
						   "\"levels\":%d,\"complete\":%s",
						   TB_HSI_FORMAT, head->serial, head->build, head->geo.n_levels,
						   head->complete ? "true" : "false");
	if (status == TB_OK)
		status = print_grid(head, out);
	if (status == TB_OK)
		status = print_arrays(head, out);
	if (status == TB_OK)
		status = tb_buf_printf(out, ",\"parts_done\":[");
	for (size_t i = 0; i < head->n_runs && status == TB_OK; i++)
		status = tb_buf_printf(out, "%s[%" PRIu64 ",%" PRIu64 "]", i > 0 ? "," : "",
							   head->run[i].first, head->run[i].end);
	if (status == TB_OK)
		status = tb_buf_printf(out, "]");
	if (status != TB_OK)
		return status;
	return tb_buf_printf(out, CRC_MEMBER "%08x\"}\n",
						 tb_crc32c(0, out->data + start, out->len - start));
}

/* ---- parsing ---- */

/* The checksum is the last member: find it from the end and prove what stands before it. */
static bool
check_crc(const uint8_t *text, size_t len)
{
	size_t		member = strlen(CRC_MEMBER);
	char		wanted[16];
	size_t		start;

	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
		len--;
	if (len < member + 10 || memcmp(text + len - 2, "\"}", 2) != 0)
		return false;
	start = len - 10 - member;
	if (memcmp(text + start, CRC_MEMBER, member) != 0)
		return false;
	snprintf(wanted, sizeof(wanted), "%08x", tb_crc32c(0, text, start));
	return memcmp(text + len - 10, wanted, 8) == 0;
}

/* A member that is a list of exactly n numbers, each at most max. */
static bool
parse_list(const TbJson *doc, const char *name, int n, uint64_t max, uint64_t *number)
{
	TbJson	   *list;

	if (!tb_json_get(doc, name, &list) || tb_json_type(list) != TB_JSON_ARRAY ||
		tb_json_length(list) != (size_t) n)
		return false;
	for (int i = 0; i < n; i++)
		if (!tb_json_as_uint(tb_json_at(list, (size_t) i), &number[i]) || number[i] > max)
			return false;
	return true;
}

/* Parsers answer false also for this: it says nothing about the document. */
static bool
out_of_memory(bool *no_memory)
{
	*no_memory = true;
	return false;
}

static bool
parse_dims(const TbJson *doc, TbHead *head, bool *no_memory)
{
	TbJson	   *dims;
	size_t		n;

	if (!tb_json_get(doc, "dims", &dims) || tb_json_type(dims) != TB_JSON_ARRAY)
		return false;
	n = tb_json_length(dims);
	if (n > TB_MAX_DIM)
		return false;
	head->dim = tb_calloc(n + 1, sizeof(char *));
	if (head->dim == NULL)
		return out_of_memory(no_memory);
	head->ndim = head->geo.ndim = (int) n;
	for (size_t a = 0; a < n; a++)
	{
		const char *name;

		if (!tb_json_as_string(tb_json_at(dims, a), &name))
			return false;
		head->dim[a] = tb_strdup(name);
		if (head->dim[a] == NULL)
			return out_of_memory(no_memory);
	}
	return true;
}

static bool
parse_grid(const TbJson *doc, TbHead *head, bool *no_memory)
{
	uint64_t	order[TB_MAX_DIM];
	uint64_t	seen = 0;
	int			n;

	if (!parse_dims(doc, head, no_memory))
		return false;
	n = head->ndim;
	if (!parse_list(doc, "shape", n, INT64_MAX, head->shape) ||
		!parse_list(doc, "cell", n, INT64_MAX, head->cell) ||
		!parse_list(doc, "blocks", n, INT64_MAX, head->blocks) ||
		!parse_list(doc, "order", n, TB_MAX_DIM - 1, order) ||
		!parse_list(doc, "fan", n, TB_HSI_CHUNK_NODES, head->geo.fan) ||
		!parse_list(doc, "chunk", n, INT64_MAX, head->geo.chunk[0]) ||
		!parse_list(doc, "part", n, INT64_MAX, head->geo.shard[0]))
		return false;
	for (int a = 0; a < n; a++)
	{
		if (head->cell[a] == 0 || order[a] >= (uint64_t) n || (seen & (1ull << order[a])))
			return false;
		seen |= 1ull << order[a];
		head->geo.order[a] = (int) order[a];
		if (head->shape[a] / head->cell[a] + (head->shape[a] % head->cell[a] != 0) !=
			head->blocks[a])
			return false;
	}
	return tb_geometry_finish(&head->geo, head->blocks);
}

static bool
parse_arrays(const TbJson *doc, TbHead *head, bool *no_memory)
{
	TbJson	   *list;

	if (!tb_json_get(doc, "arrays", &list) || tb_json_type(list) != TB_JSON_ARRAY ||
		tb_json_length(list) == 0 || tb_json_length(list) > 1 << 20)
		return false;
	head->array = tb_calloc(tb_json_length(list), sizeof(TbHeadArray));
	if (head->array == NULL)
		return out_of_memory(no_memory);
	head->n_arrays = (int) tb_json_length(list);
	for (int i = 0; i < head->n_arrays; i++)
	{
		const TbJson *one = tb_json_at(list, (size_t) i);
		const char *path;
		const char *packing;
		const char *type;

		if (!tb_json_get_string(one, "path", &path) ||
			!tb_json_get_string(one, "packing", &packing) ||
			!tb_json_get_string(one, "type", &type) || path[0] == '\0')
			return false;
		head->array[i].path = tb_strdup(path);
		head->array[i].packing = tb_strdup(packing);
		head->array[i].stat = tb_dtype_parse(type);
		if (head->array[i].path == NULL || head->array[i].packing == NULL)
			return out_of_memory(no_memory);
		if (head->array[i].stat == TB_NONE)
			return false;
	}
	return true;
}

static bool
parse_parts(const TbJson *doc, TbHead *head, bool *no_memory)
{
	TbJson	   *list;
	uint64_t	last = 0;
	size_t		n;

	if (!tb_json_get(doc, "parts_done", &list) || tb_json_type(list) != TB_JSON_ARRAY)
		return false;
	n = tb_json_length(list);
	head->run = tb_calloc(n + 1, sizeof(TbRun));
	if (head->run == NULL)
		return out_of_memory(no_memory);
	head->cap_runs = n + 1;
	for (size_t i = 0; i < n; i++)
	{
		const TbJson *pair = tb_json_at(list, i);
		TbRun	   *run = &head->run[i];

		if (tb_json_length(pair) != 2 || !tb_json_as_uint(tb_json_at(pair, 0), &run->first) ||
			!tb_json_as_uint(tb_json_at(pair, 1), &run->end))
			return false;
		if (run->first >= run->end || run->end > head->geo.n_parts || (i > 0 && run->first <= last))
			return false;
		last = run->end;
		head->n_runs++;
	}
	return true;
}

/* The build is part of keys: digits of our own making, nothing else. */
static bool
parse_build(const TbJson *doc, TbHead *head)
{
	const char *build;

	if (!tb_json_get_string(doc, "build", &build) || strlen(build) != TB_BUILD_BYTES - 1 ||
		strspn(build, "0123456789abcdef") != TB_BUILD_BYTES - 1)
		return false;
	memcpy(head->build, build, TB_BUILD_BYTES);
	return true;
}

static TbStatus
parse_head(const TbJson *doc, TbHead *head, TbError *err)
{
	bool		no_memory = false;
	int64_t		number;

	if (!tb_json_get_int(doc, "tensorbank_hsi", &number))
		return corrupt(err, "it is not the head of an index");
	if (number != TB_HSI_FORMAT)
		return corrupt(err, "its version of the format is not known");
	if (!tb_json_get_int(doc, "serial", &number) || number < 1 ||
		number > (int64_t) TB_HEAD_MAX_SERIAL)
		return corrupt(err, "serial");
	head->serial = (uint64_t) number;
	if (!parse_build(doc, head))
		return corrupt(err, "build");
	if (!tb_json_get_bool(doc, "complete", &head->complete))
		return corrupt(err, "complete");
	if (!parse_grid(doc, head, &no_memory))
		return no_memory ? tb_fail(err, TB_E_NOMEM, "out of memory") : corrupt(err, "grid");
	if (!tb_json_get_int(doc, "levels", &number) || number != head->geo.n_levels)
		return corrupt(err, "levels");
	if (!parse_arrays(doc, head, &no_memory))
		return no_memory ? tb_fail(err, TB_E_NOMEM, "out of memory") : corrupt(err, "arrays");
	if (!parse_parts(doc, head, &no_memory))
		return no_memory ? tb_fail(err, TB_E_NOMEM, "out of memory") : corrupt(err, "parts_done");
	if (head->complete && tb_head_parts_done(head) != head->geo.n_parts)
		return corrupt(err, "complete, but parts are lacking");
	return TB_OK;
}

TbStatus
tb_head_parse(const void *text, size_t len, TbHead **head, TbError *err)
{
	TbJson	   *doc = NULL;
	TbHead	   *made;
	TbError		why;
	TbStatus	status;

	*head = NULL;
	if (len > TB_HEAD_MAX_BYTES || !check_crc(text, len))
		return corrupt(err, "checksum");
	status = tb_json_parse(text, len, &doc, &why);
	if (status == TB_E_NOMEM)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	if (status != TB_OK)
		return corrupt(err, why.message);
	made = tb_calloc(1, sizeof(*made));
	if (made == NULL)
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else
		status = parse_head(doc, made, err);
	tb_json_free(doc);
	if (status != TB_OK)
	{
		tb_head_free(made);
		return status;
	}
	*head = made;
	return TB_OK;
}
