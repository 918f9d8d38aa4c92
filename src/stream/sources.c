/*
 * Sources that streams and loads share while all of the spec is equal, so that metadata and
 * connections are used again. One that nobody uses stays for a minute (the next epoch wants it),
 * then it is closed and its credentials are wiped.
 */
#include "stream/session.h"

#include <string.h>

#define LINGER_NS (60 * INT64_C(1000000000))

struct TbSourceEntry
{
	TbSourceEntry *next;
	TbSources  *sources;		/* borrowed */
	TbSource   *source;			/* owned reference */
	TbStoreSpec spec;			/* its texts are owned copies */
	uint32_t	uses;
	int64_t		idle_ns;		/* since when nobody uses it */
};

/* Where in a spec its texts stand. All are wiped: it costs nothing and none is forgotten. */
static const size_t texts[] = {
	offsetof(TbStoreSpec, url), offsetof(TbStoreSpec, ca_file), offsetof(TbStoreSpec, user),
	offsetof(TbStoreSpec, password), offsetof(TbStoreSpec, name), offsetof(TbStoreSpec, allowed_hosts),
	offsetof(TbStoreSpec, region), offsetof(TbStoreSpec, endpoint), offsetof(TbStoreSpec, access_key_id),
	offsetof(TbStoreSpec, secret_access_key), offsetof(TbStoreSpec, session_token),
	offsetof(TbStoreSpec, credentials), offsetof(TbStoreSpec, profile),
};

#define N_TEXTS (sizeof(texts) / sizeof(texts[0]))

static const char *
text_of(const TbStoreSpec *spec, size_t i)
{
	return *(const char *const *) ((const char *) spec + texts[i]);
}

static const char **
text_at(TbStoreSpec *spec, size_t i)
{
	return (const char **) ((char *) spec + texts[i]);
}

static void
entry_free(TbSourceEntry *entry)
{
	tb_source_unref(entry->source);
	for (size_t i = 0; i < N_TEXTS; i++)
		tb_free_secret((char *) text_of(&entry->spec, i));
	tb_free(entry);
}

static bool
same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool
same_spec(const TbStoreSpec *a, const TbStoreSpec *b)
{
	for (size_t i = 0; i < N_TEXTS; i++)
		if (!same(text_of(a, i), text_of(b, i)))
			return false;
	return a->any_address == b->any_address && a->addressing == b->addressing && a->anonymous == b->anonymous &&
		a->requester_pays == b->requester_pays;
}

/* Copy a spec with its texts; false when memory is gone: what was copied is the copy's. */
static bool
copy_spec(TbStoreSpec *to, const TbStoreSpec *from)
{
	*to = *from;
	for (size_t i = 0; i < N_TEXTS; i++)
		*text_at(to, i) = NULL;
	for (size_t i = 0; i < N_TEXTS; i++)
		if (text_of(from, i) != NULL && (*text_at(to, i) = tb_strdup(text_of(from, i))) == NULL)
			return false;
	return true;
}

static TbStatus
entry_new(TbSources *sources, const TbStoreSpec *spec, TbSourceEntry **out, TbError *err)
{
	TbSourceEntry *entry = tb_calloc(1, sizeof(*entry));
	TbStatus	status;

	if (entry == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	entry->sources = sources;
	if (!copy_spec(&entry->spec, spec))
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else
		status = tb_source_open(sources->hub->engine, spec, &entry->source, err);
	if (status != TB_OK)
	{
		entry_free(entry);
		return status;
	}
	*out = entry;
	return TB_OK;
}

/* owns: a use is the caller's, tb_sources_close. errors: INVALID, UNSUPPORTED, NOT_FOUND, NOMEM. */
TbStatus
tb_sources_open(TbSources *sources, const TbStoreSpec *spec, TbSourceEntry **entry, TbError *err)
{
	TbStatus	status;

	*entry = NULL;
	for (TbSourceEntry *e = sources->first; e != NULL; e = e->next)
		if (same_spec(&e->spec, spec))
		{
			e->uses++;
			*entry = e;
			return TB_OK;
		}
	status = entry_new(sources, spec, entry, err);
	if (status != TB_OK)
		return status;
	(*entry)->uses = 1;
	(*entry)->next = sources->first;
	sources->first = *entry;
	return TB_OK;
}

TbSource *
tb_source_of(TbSourceEntry *entry)
{
	return entry->source;
}

/* Close what has been idle long enough; come again while anything is idle. */
static void
sweep(TbTimer *timer)
{
	TbSources  *sources = (TbSources *) ((char *) timer - offsetof(TbSources, sweep));
	TbSourceEntry **at = &sources->first;
	bool		idle = false;
	int64_t		now = tb_now_ns();

	while (*at != NULL)
	{
		TbSourceEntry *entry = *at;

		if (entry->uses == 0 && now - entry->idle_ns >= LINGER_NS)
		{
			*at = entry->next;
			entry_free(entry);
			continue;
		}
		idle |= entry->uses == 0;
		at = &entry->next;
	}
	/* without a timer an idle source stays until the next close arms one */
	if (idle)
		(void) !tb_loop_arm(sources->hub->loop, timer, LINGER_NS);
}

void
tb_sources_close(TbSourceEntry *entry)
{
	TbSources  *sources;

	if (entry == NULL || --entry->uses > 0)
		return;
	sources = entry->sources;
	entry->idle_ns = tb_now_ns();
	sources->sweep.fire = sweep;
	if (sources->sweep.heap_slot == 0)
		(void) !tb_loop_arm(sources->hub->loop, &sources->sweep, LINGER_NS);
}

/* At the end, when nobody uses any. */
void
tb_sources_free(TbSources *sources)
{
	if (sources->sweep.heap_slot != 0)
		tb_loop_disarm(sources->hub->loop, &sources->sweep);
	while (sources->first != NULL)
	{
		TbSourceEntry *entry = sources->first;

		sources->first = entry->next;
		entry_free(entry);
	}
}
