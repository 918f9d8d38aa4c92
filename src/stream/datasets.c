/*
 * Datasets that streams share by their hash: the ranks of one node keep one copy, and only the
 * first reads the file. Parsing is left to a decode thread; it proves the hash, so sharing by hash
 * is safe.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* O_CLOEXEC */
#endif

#include "stream/session.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE_BYTES (UINT64_C(1) << 32)

struct TbDatasetEntry
{
	TbTask		parse;			/* run by the pool */
	TbTask		back;			/* posted to the loop */
	TbDatasetEntry *next;
	TbHub	   *hub;			/* borrowed */
	char		hash[65];
	char	   *name;			/* owned; key or path */
	TbSource   *where;			/* owned reference; NULL: a local file */
	TbRead		read;
	bool		reading;
	bool		parsing;		/* a decode thread has it */
	uint32_t	uses;

	/* the decode thread's while parsing, then fixed */
	TbBuf	   *file;			/* owned */
	TbDataset  *dataset;		/* owned reference */
	TbStatus	status;
	TbError		error;
};

static void
entry_free(TbDatasetEntry *entry)
{
	TbDatasetEntry **at = &entry->hub->datasets;

	while (*at != NULL && *at != entry)
		at = &(*at)->next;
	if (*at == entry)
		*at = entry->next;
	tb_dataset_unref(entry->dataset);
	tb_buf_unref(entry->file);
	tb_source_unref(entry->where);
	tb_free(entry->name);
	tb_free(entry);
}

/* The whole local file. thread: a decode thread. */
static TbStatus
read_local(const char *path, TbBuf **file, TbError *err)
{
	struct stat st;
	int			fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	TbStatus	status = TB_OK;
	TbBuf	   *buf = NULL;

	if (fd < 0)
		return tb_fail_errno(err, errno, "open dataset file", path);
	if (fstat(fd, &st) != 0)
		status = tb_fail_errno(err, errno, "read dataset file", path);
	else if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size > MAX_FILE_BYTES)
		status = tb_fail(err, TB_E_LIMIT, "dataset file is too large or no file");
	else if ((buf = tb_buf_new((size_t) st.st_size)) == NULL)
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	while (status == TB_OK && buf->len < (size_t) st.st_size)
	{
		ssize_t		n = read(fd, buf->data + buf->len, (size_t) st.st_size - buf->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			status = tb_fail_errno(err, errno, "read dataset file", path);
		if (n <= 0)
			break;
		buf->len += (size_t) n;
	}
	(void) close(fd);
	if (status != TB_OK)
		tb_buf_unref(buf);
	else
		*file = buf;
	return status;
}

static void
run_parse(TbTask *task)
{
	TbDatasetEntry *entry = (TbDatasetEntry *) ((char *) task - offsetof(TbDatasetEntry, parse));

	entry->status = TB_OK;
	if (entry->where == NULL)
		entry->status = read_local(entry->name, &entry->file, &entry->error);
	if (entry->status == TB_OK)
		entry->status = tb_dataset_parse(entry->file->data, entry->file->len, &entry->dataset,
										 &entry->error);
	if (entry->status == TB_OK && strcmp(tb_dataset_hash(entry->dataset), entry->hash) != 0)
	{
		entry->status = tb_fail(&entry->error, TB_E_CORRUPT,
								"dataset file has the content of another dataset");
		tb_dataset_unref(entry->dataset);
		entry->dataset = NULL;
	}
	if (entry->status != TB_OK)
		tb_error_detail(&entry->error, "dataset \"%s\"", entry->name);
	tb_buf_unref(entry->file);
	entry->file = NULL;
	tb_loop_post(entry->hub->loop, &entry->back);
}

static void
run_back(TbTask *task)
{
	TbDatasetEntry *entry = (TbDatasetEntry *) ((char *) task - offsetof(TbDatasetEntry, back));

	entry->parsing = false;
	entry->hub->n_parsing--;
	if (entry->uses == 0)
		entry_free(entry);
}

static void
begin_parse(TbDatasetEntry *entry)
{
	entry->parse.run = run_parse;
	entry->back.run = run_back;
	entry->parsing = true;
	entry->hub->n_parsing++;
	tb_pool_submit(entry->hub->pool, &entry->parse);
}

static void
read_done(TbRead *read)
{
	TbDatasetEntry *entry = read->arg;

	entry->reading = false;
	entry->status = read->status;
	if (read->status != TB_OK)
		entry->error = read->error;
	else if (read->missing)
	{
		entry->status = tb_fail(&entry->error, TB_E_NOT_FOUND, "dataset does not exist");
		tb_error_hint(&entry->error, "Create the dataset anew.");
	}
	if (entry->status != TB_OK)
	{
		tb_error_detail(&entry->error, "object \"%s/%s\"", tb_source_url(entry->where),
						entry->name);
		return;
	}
	entry->file = read->data;
	read->data = NULL;
	begin_parse(entry);
}

static TbStatus
entry_new(TbHub *hub, const TbStreamSpec *spec, TbSource *where, TbDatasetEntry **out, TbError *err)
{
	TbDatasetEntry *entry = tb_calloc(1, sizeof(*entry));

	if (entry != NULL)
		entry->name = tb_strdup(where != NULL ? spec->dataset_key : spec->dataset_file);
	if (entry == NULL || entry->name == NULL)
	{
		tb_free(entry);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	entry->hub = hub;
	memcpy(entry->hash, spec->dataset_hash, sizeof(entry->hash));
	entry->uses = 1;
	entry->status = TB_AGAIN;
	entry->next = hub->datasets;
	hub->datasets = entry;
	*out = entry;
	return TB_OK;
}

/*
 * Use a dataset, reading it if no stream has it. where NULL: spec->dataset_file. owns: a use is
 * the caller's, tb_datasets_close. errors: NOMEM; the others by poll.
 */
TbStatus
tb_datasets_open(TbHub *hub, const TbStreamSpec *spec, TbSource *where, TbDatasetEntry **entry,
				 TbError *err)
{
	TbDatasetEntry *e;
	TbStatus	status;

	for (e = hub->datasets; e != NULL; e = e->next)
		if (strcmp(e->hash, spec->dataset_hash) == 0 && (e->parsing || e->reading ||
														 e->status == TB_OK))
		{
			e->uses++;
			*entry = e;
			return TB_OK;
		}
	status = entry_new(hub, spec, where, entry, err);
	if (status != TB_OK)
		return status;
	e = *entry;
	if (where == NULL)
	{
		begin_parse(e);
		return TB_OK;
	}
	e->where = tb_source_ref(where);
	e->read.key = e->name;
	e->read.kind = TB_RANGE_WHOLE;
	e->read.length = MAX_FILE_BYTES;
	e->read.done = read_done;
	e->read.arg = e;
	e->reading = true;
	tb_store_read(tb_source_store(where), &e->read);
	return TB_OK;
}

/* owns: *dataset is borrowed from the entry. */
TbStatus
tb_datasets_poll(TbDatasetEntry *entry, TbDataset **dataset, TbError *err)
{
	if (entry->reading || entry->parsing)
		return TB_AGAIN;
	if (entry->status == TB_OK)
		*dataset = entry->dataset;
	else if (err != NULL)
		*err = entry->error;
	return entry->status;
}

void
tb_datasets_close(TbDatasetEntry *entry)
{
	if (entry == NULL || --entry->uses > 0)
		return;
	if (entry->reading)
	{
		tb_store_cancel(tb_source_store(entry->where), &entry->read);
		entry->reading = false;
	}
	if (!entry->parsing)
		entry_free(entry);
}
