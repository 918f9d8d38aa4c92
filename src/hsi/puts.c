/*
 * A few jobs of a store that write or delete, and what became of them. Polled by its owner; nothing here waits.
 */
#include "hsi/puts.h"

#include <string.h>

#define IN_FLIGHT_BYTES ((size_t) 64 << 20)

static void
leave_place(TbPuts *puts, int i)
{
	tb_job_free(puts->job[i]);
	puts->job[i] = NULL;
	puts->in_flight -= puts->bytes[i];
	puts->n--;
}

/* Take leave of the jobs that have ended. */
static void
look(TbPuts *puts)
{
	for (int i = 0; i < TB_PUTS_PLACES; i++)
	{
		TbError		error;
		TbStatus	status;

		if (puts->job[i] == NULL)
			continue;
		status = tb_job_poll(puts->job[i], &error);
		if (status == TB_AGAIN)
			continue;
		if (status != TB_OK && !puts->quiet[i] && puts->status == TB_OK)
		{
			puts->status = status;
			puts->error = error;
		}
		leave_place(puts, i);
	}
}

static int
free_place(const TbPuts *puts)
{
	for (int i = 0; i < TB_PUTS_PLACES; i++)
		if (puts->job[i] == NULL)
			return i;
	return -1;
}

static void
take_place(TbPuts *puts, int i, size_t bytes, bool quiet)
{
	puts->bytes[i] = bytes;
	puts->quiet[i] = quiet;
	puts->in_flight += bytes;
	puts->n++;
	look(puts);
}

bool
tb_puts_full(TbPuts *puts)
{
	look(puts);
	/* after a failure nothing is worth waiting for: the next to be added tells of it */
	return puts->status == TB_OK && (puts->n >= TB_PUTS_IN_FLIGHT || puts->in_flight >= IN_FLIGHT_BYTES);
}

TbStatus
tb_puts_add(TbPuts *puts, TbStore *store, const char *key, TbBuf *bytes, TbError *err)
{
	int			i = free_place(puts);
	TbStatus	status = puts->status;

	if (status != TB_OK && err != NULL)
		*err = puts->error;
	if (status == TB_OK && i < 0)
		status = tb_fail(err, TB_E_INTERNAL, "too many objects are being written");
	if (status == TB_OK)
		status = tb_store_begin_put(store, key, bytes, false, &puts->job[i], err);
	if (status != TB_OK)
		return status;
	take_place(puts, i, bytes->len, false);
	if (puts->status != TB_OK && err != NULL)
		*err = puts->error;
	return puts->status;
}

void
tb_puts_delete(TbPuts *puts, TbStore *store, const char *key)
{
	int			i = free_place(puts);

	if (i >= 0 && tb_store_begin_delete(store, key, &puts->job[i], NULL) == TB_OK)
		take_place(puts, i, 0, true);
}

TbStatus
tb_puts_wait(TbPuts *puts, TbError *err)
{
	look(puts);
	if (puts->status != TB_OK)
	{
		TbStatus	status = puts->status;

		if (err != NULL)
			*err = puts->error;
		tb_puts_clear(puts);
		return status;
	}
	return puts->n > 0 ? TB_AGAIN : TB_OK;
}

void
tb_puts_clear(TbPuts *puts)
{
	for (int i = 0; i < TB_PUTS_PLACES; i++)
		if (puts->job[i] != NULL)
			leave_place(puts, i);
	puts->status = TB_OK;
}
