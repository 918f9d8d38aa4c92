/*
 * Listing a level of an S3 bucket: ListObjectsV2 page by page. Names come percent-encoded, since XML cannot hold
 * every byte of a key; whether a server does so it says anywhere in the page, so names are decoded at its end.
 */
#include "io/s3_list.h"

#include <string.h>

#include "io/job.h"
#include "io/s3_xml.h"
#include "io/store_s3.h"

#define PAGES_MAX 100000		/* a server that never comes to an end */
#define NAME_BYTES_MAX ((size_t) 512 << 20)	/* of one listing */

typedef struct Page
{
	TbS3Page   *page;
	TbStoreNames raw;			/* owned; as the server writes them, prefix and all */
	size_t		room;
	bool		encoded;
	bool		listing;		/* the root is what was asked for */
} Page;

static TbStatus
take_text(void *arg, const char *path, const char *text, size_t len, TbError *err)
{
	static const char root[] = "ListBucketResult/";
	Page	   *p = arg;
	const char *name = path + sizeof(root) - 1;
	bool		is_prefix;

	if (strncmp(path, root, sizeof(root) - 1) != 0)
	{
		p->listing = p->listing || strcmp(path, "ListBucketResult") == 0;
		return TB_OK;
	}
	p->listing = true;
	is_prefix = strcmp(name, "CommonPrefixes/Prefix") == 0;
	if (is_prefix || strcmp(name, "Contents/Key") == 0)
	{
		TbStatus	status = tb_store_names_add(&p->raw, &p->room, text, is_prefix);

		if (status != TB_OK)
			return tb_fail(err, status, status == TB_E_LIMIT ? "too many names in a directory" : "out of memory");
	}
	else if (strcmp(name, "IsTruncated") == 0)
		p->page->truncated = strcmp(text, "true") == 0;
	else if (strcmp(name, "EncodingType") == 0)
		p->encoded = strcmp(text, "url") == 0;
	else if (strcmp(name, "NextContinuationToken") == 0)
	{
		if (len >= sizeof(p->page->token))
			return tb_fail(err, TB_E_PROTOCOL, "server's continuation token is too long");
		memcpy(p->page->token, text, len + 1);
	}
	return TB_OK;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decode in place; '+' is a blank, as S3 writes it. false: not an encoding, or a NUL. */
static bool
decode(char *text)
{
	char	   *to = text;

	for (; *text != '\0'; text++)
	{
		int			high;
		int			low;

		if (*text != '%')
		{
			*to++ = *text == '+' ? ' ' : *text;
			continue;
		}
		high = hex_digit(text[1]);
		low = high < 0 ? -1 : hex_digit(text[2]);
		if (low < 0 || (high == 0 && low == 0))
			return false;
		*to++ = (char) (high * 16 + low);
		text += 2;
	}
	*to = '\0';
	return true;
}

/* Add one name of a page, decoded. */
static TbStatus
add_name(const char *key, bool is_prefix, const char *prefix, TbStoreNames *names, size_t *room, TbError *err)
{
	size_t		at = strlen(prefix);
	size_t		len = strlen(key);
	char	   *name;
	TbStatus	status;

	if (strncmp(key, prefix, at) != 0)
		return tb_fail(err, TB_E_PROTOCOL, "server lists what was not asked for");
	key += at;
	len -= at;
	if (is_prefix && len > 0 && key[len - 1] == '/')
		len--;
	/* a marker of the directory itself, or nothing that a key of ours can name */
	if (len == 0 || len > TB_KEY_MAX_BYTES || memchr(key, '/', len) != NULL || (len == 1 && key[0] == '.') ||
		(len == 2 && key[0] == '.' && key[1] == '.'))
		return TB_OK;
	name = tb_strndup(key, len);
	if (name == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_store_names_add(names, room, name, is_prefix);
	tb_free(name);
	if (status != TB_OK)
		return tb_fail(err, status, status == TB_E_LIMIT ? "too many names in a directory" : "out of memory");
	return TB_OK;
}

TbStatus
tb_s3_page_parse(const void *bytes, size_t len, const char *prefix, TbStoreNames *names, size_t *room, TbS3Page *page,
				 TbError *err)
{
	Page		p = {.page = page};
	TbStatus	status;

	memset(page, 0, sizeof(*page));
	status = tb_s3_xml_read(bytes, len, take_text, &p, err);
	if (status == TB_OK && !p.listing)
		status = tb_fail(err, TB_E_PROTOCOL, "server answers with something that is no listing");
	page->seen = p.raw.n;
	for (size_t i = 0; i < p.raw.n && status == TB_OK; i++)
	{
		if (p.encoded && !decode(p.raw.name[i]))
			status = tb_fail(err, TB_E_PROTOCOL, "server lists a key that is badly encoded");
		else
			status = add_name(p.raw.name[i], p.raw.is_prefix[i], prefix, names, room, err);
	}
	tb_store_free_names(&p.raw);
	if (status == TB_OK && page->truncated && page->token[0] == '\0')
		status = tb_fail(err, TB_E_PROTOCOL, "server breaks off a listing without saying where");
	return status;
}

/* ---- the job ---- */

typedef struct List
{
	char	   *prefix;			/* owned; that keys share in the bucket, "" or ending in '/' */
	TbOp	   *op;				/* in flight; NULL: none */
	int			pages;
	size_t		bytes;			/* of all pages */
	char		token[TB_S3_TOKEN_BYTES];	/* that the last page was asked with */
} List;

static void
free_list(TbJob *job)
{
	List	   *list = job->work;

	if (list->op != NULL)
		tb_op_cancel(list->op);
	tb_free(list->prefix);
	tb_free(list);
}

/* Names and values sorted by name. */
static TbStatus
print_query(TbBuf *out, const List *list)
{
	TbStatus	status = TB_OK;

	if (list->token[0] != '\0')
	{
		status = tb_buf_printf(out, "continuation-token=");
		if (status == TB_OK)
			status = tb_s3_query_escape(out, list->token);
		if (status == TB_OK)
			status = tb_buf_printf(out, "&");
	}
	if (status == TB_OK)
		status = tb_buf_printf(out, "delimiter=%%2F&encoding-type=url&list-type=2&prefix=");
	if (status == TB_OK)
		status = tb_s3_query_escape(out, list->prefix);
	return status == TB_OK ? tb_buf_append(out, "", 1, SIZE_MAX) : status;
}

static void page_ended(TbOp *op);

static void
ask_page(TbJob *job)
{
	List	   *list = job->work;
	TbBuf	   *query = tb_buf_new(256);

	if (query != NULL && print_query(query, list) == TB_OK)
		list->op = tb_op_new(job->store, TB_VERB_LIST, "", NULL, (const char *) query->data);
	tb_buf_unref(query);
	if (list->op == NULL)
	{
		tb_job_nomem(job);
		return;
	}
	list->op->length = TB_S3_PAGE_MAX_BYTES;
	list->op->ended = page_ended;
	list->op->arg = job;
	list->pages++;
	tb_op_submit(list->op);
}

/* A name that is told twice, on two pages, counts once. */
static void
drop_doubles(TbStoreNames *names)
{
	size_t		kept = 0;

	for (size_t i = 0; i < names->n; i++)
	{
		if (kept > 0 && names->is_prefix[kept - 1] == names->is_prefix[i] &&
			strcmp(names->name[kept - 1], names->name[i]) == 0)
		{
			tb_free(names->name[i]);
			continue;
		}
		names->name[kept] = names->name[i];
		names->is_prefix[kept++] = names->is_prefix[i];
	}
	names->n = kept;
}

static void
take_page(TbJob *job, const TbBuf *data)
{
	List	   *list = job->work;
	TbS3Page   *page = tb_malloc(sizeof(*page));
	TbStatus	status;

	if (page == NULL)
	{
		tb_job_nomem(job);
		return;
	}
	list->bytes += data->len;
	status = tb_s3_page_parse(data->data, data->len, list->prefix, &job->names, &job->room, page, &job->error);
	if (status == TB_OK && page->truncated && strcmp(page->token, list->token) == 0)
		status = tb_fail(&job->error, TB_E_PROTOCOL, "server's listing goes round in circles");
	if (status == TB_OK && page->truncated && (list->pages >= PAGES_MAX || list->bytes > NAME_BYTES_MAX))
		status = tb_fail(&job->error, TB_E_LIMIT, "too many names in a directory");
	if (status != TB_OK)
	{
		tb_error_detail(&job->error, "%.200s, prefix \"%.300s\"", job->store->url, list->prefix);
		tb_job_end(job, status, NULL);
	}
	else if (page->truncated)
	{
		memcpy(list->token, page->token, sizeof(list->token));
		ask_page(job);
	}
	else
	{
		tb_store_names_sort(&job->names);
		drop_doubles(&job->names);
		tb_job_end(job, TB_OK, NULL);
	}
	tb_free(page);
}

static void
page_ended(TbOp *op)
{
	TbJob	   *job = op->arg;
	List	   *list = job->work;
	const char *root = tb_s3_store_prefix(job->store);
	size_t		told = root != NULL && root[0] != '\0' ? strlen(root) + 1 : 0;	/* by the url */

	list->op = NULL;
	if (op->status != TB_OK)
		tb_job_end(job, op->status, &op->error);
	else if (op->missing || op->data == NULL)
		tb_job_fail(job, TB_E_NOT_FOUND, "store does not exist", list->prefix + told);
	else
		take_page(job, op->data);
}

void
tb_s3_list_begin(TbJob *job, const char *prefix)
{
	List	   *list = tb_calloc(1, sizeof(*list));
	const char *root = tb_s3_store_prefix(job->store);

	if (list == NULL)
	{
		tb_job_nomem(job);
		return;
	}
	job->work = list;
	job->free_work = free_list;
	root = root != NULL ? root : "";
	list->prefix = tb_asprintf("%s%s%s%s", root, root[0] != '\0' ? "/" : "", prefix, prefix[0] != '\0' ? "/" : "");
	if (list->prefix == NULL)
		tb_job_nomem(job);
	else
		ask_page(job);
}
