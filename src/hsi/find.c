/*
 * Finding the newest head. Heads have serials 1, 2, 3...; each is written once, under a key of its
 * own.
 *
 * A store that can list is listed. Others, and those that refuse to, are asked for serials: double
 * from 1 until one is absent, then add smaller and smaller powers of two to the last one that was
 * there. Such a search only ever asks for powers of two and for serials whose binary digits are
 * those of the newest with the tail cut off, so those are kept when old ones are deleted: at most
 * two for each binary digit, besides the last few.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hsi/head.h"

#define KEEP 4					/* newest heads, for readers that have just looked */

struct TbFind
{
	TbSource   *source;			/* owned reference */
	char		key[TB_HSI_KEY_BYTES];
	TbJob	   *list;			/* owned; NULL: none under way */
	bool		listed;
	bool		refused;		/* listing was: then S3 says of what is not there that it is denied */
	uint64_t	found;			/* newest serial seen, 0: none */
	uint64_t	step;			/* power of two that is tried on top of found */
	bool		climbing;		/* still doubling */
	uint64_t	asking;			/* serial of the read in flight, 0: none */
	bool		done;
	TbStatus	status;
	TbError		error;
	TbBuf	   *head;			/* owned; bytes of `found` */
	char		path[TB_HSI_KEY_BYTES];
	TbRead		read;
	bool		in_flight;
};

bool
tb_head_key(char *path, const char *key, uint64_t serial)
{
	int			n = snprintf(path, TB_HSI_KEY_BYTES, "%s/head-%010" PRIu64 ".json", key, serial);

	return n > 0 && n < TB_HSI_KEY_BYTES;
}

static void ask(TbFind *find, uint64_t serial);

static void
finish(TbFind *find, TbStatus status)
{
	find->status = status;
	find->done = true;
}

/* The next serial to ask for; none: done. */
static void
advance(TbFind *find)
{
	if (find->listed || find->step == 0 || find->found + find->step > TB_HEAD_MAX_SERIAL)
		finish(find, TB_OK);
	else
		ask(find, find->found + find->step);
}

static void
answered(TbRead *read)
{
	TbFind	   *find = read->arg;

	find->in_flight = false;
	if (read->status != TB_OK && !(find->refused && read->status == TB_E_DENIED))
	{
		find->error = read->error;
		finish(find, read->status);
		return;
	}
	if (read->status == TB_OK && !read->missing)
	{
		tb_buf_unref(find->head);
		find->head = read->data;
		find->found = find->asking;
		if (find->climbing)
			find->step = find->found;
		else
			find->step /= 2;
	}
	else
	{
		find->climbing = false;
		find->step = find->found == 0 ? 0 : find->step / 2;
	}
	advance(find);
}

static void
ask(TbFind *find, uint64_t serial)
{
	if (!tb_head_key(find->path, find->key, serial))
	{
		finish(find, tb_fail(&find->error, TB_E_LIMIT, "key of the index is too long"));
		return;
	}
	find->asking = serial;
	find->read = (TbRead) {
		.key = find->path, .kind = TB_RANGE_WHOLE, .length = TB_HEAD_MAX_BYTES, .done = answered,
		.arg = find
	};
	find->in_flight = true;
	tb_store_read(tb_source_store(find->source), &find->read);
}

/* Serial in a name "head-0000000012.json", 0: another name. */
static uint64_t
serial_of(const char *name)
{
	uint64_t	serial = 0;

	if (strlen(name) != 20 || memcmp(name, "head-", 5) != 0 || strcmp(name + 15, ".json") != 0)
		return 0;
	for (int i = 5; i < 15; i++)
	{
		if (name[i] < '0' || name[i] > '9')
			return 0;
		serial = serial * 10 + (uint64_t) (name[i] - '0');
	}
	return serial;
}

/* The listing has ended: ask for the newest of it. */
static void
find_listed(TbFind *find, TbStatus status)
{
	const TbStoreNames *names = tb_job_names(find->list);
	uint64_t	newest = 0;

	for (size_t i = 0; status == TB_OK && i < names->n; i++)
	{
		uint64_t	serial = serial_of(names->name[i]);

		newest = serial > newest ? serial : newest;
	}
	tb_job_free(find->list);
	find->list = NULL;
	if (status == TB_E_DENIED)
	{
		find->refused = true;
		advance(find);
		return;
	}
	find->listed = true;
	if (status != TB_OK && status != TB_E_NOT_FOUND)
		finish(find, status);
	else if (newest == 0)
		finish(find, TB_OK);
	else
		ask(find, newest);
}

TbStatus
tb_find_open(TbSource *source, const char *key, TbFind **find, TbError *err)
{
	TbFind	   *made = tb_calloc(1, sizeof(*made));
	TbStatus	status = TB_OK;

	*find = NULL;
	if (made == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	made->source = tb_source_ref(source);
	snprintf(made->key, sizeof(made->key), "%s", key);
	made->climbing = true;
	made->step = 1;
	if (tb_store_can_list(tb_source_store(source)))
		status = tb_store_begin_list(tb_source_store(source), made->key, &made->list, err);
	else
		advance(made);
	if (status != TB_OK)
	{
		tb_find_free(made);
		return status;
	}
	*find = made;
	return TB_OK;
}

TbStatus
tb_find_poll(TbFind *find, TbError *err)
{
	if (find->list != NULL)
	{
		TbStatus	status = tb_job_poll(find->list, &find->error);

		if (status == TB_AGAIN)
			return status;
		find_listed(find, status);
	}
	if (!find->done)
		return TB_AGAIN;
	if (find->status != TB_OK && err != NULL)
		*err = find->error;
	return find->status;
}

const TbBuf *
tb_find_result(const TbFind *find, uint64_t *serial)
{
	*serial = find->found;
	return find->head;
}

void
tb_find_free(TbFind *find)
{
	if (find == NULL)
		return;
	tb_job_free(find->list);
	if (find->in_flight)
		tb_store_cancel(tb_source_store(find->source), &find->read);
	tb_buf_unref(find->head);
	tb_source_unref(find->source);
	tb_free(find);
}

/* Whether a search for `newest` asks for `serial`: a power of two, or its digits with the tail cut
 * off. */
static bool
is_asked(uint64_t serial, uint64_t newest)
{
	uint64_t	tail = serial & (~serial + 1);	/* its lowest digit that is set */

	return serial <= newest && (tail == serial || (newest & ~(tail - 1)) == serial);
}

void
tb_find_tidy(TbSource *source, const char *key, uint64_t serial, TbPuts *puts)
{
	char		path[TB_HSI_KEY_BYTES];
	uint64_t	old = serial > KEEP ? serial - KEEP : 0;

	/* What the search for `old` asked for and no search for a newer one does. */
	for (uint64_t cut = old; cut > 0; cut &= cut - 1)
	{
		bool		needed = false;

		for (uint64_t newer = old + 1; newer <= serial; newer++)
			needed = needed || is_asked(cut, newer);
		/* a head too many harms nobody */
		if (!needed && tb_head_key(path, key, cut))
			tb_puts_delete(puts, tb_source_store(source), path);
	}
}
