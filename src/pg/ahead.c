/*
 * Reading ahead: a scan begins to fetch what read() above it will ask for, read() finds the fetch
 * here.
 *
 * The registry belongs to the transaction and is keyed by table, column, region and the user whose
 * rights count; the treatment of values does not matter, since encoded bytes are fetched. A fetch
 * leaves it when it is taken, when the scan that began it ends, when the subtransaction that began
 * it is rolled back, and with the transaction. The sum of decoded sizes stays under
 * tensorbank.read_ahead.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "pg/ref.h"

typedef struct AheadKey
{
	Oid			user;
	Oid			relid;
	int16		attnum;
	int16		ndim;
	int64		extent[2 * TBPG_REF_MAX_DIM];	/* zero behind those in use */
} AheadKey;

typedef struct AheadEntry
{
	AheadKey	key;
	TbFetch    *fetch;			/* owned */
	const void *scan;			/* who began it; only compared */
	SubTransactionId subid;
	size_t		bytes;			/* decoded, counted against the budget */
	bool		waited;
} AheadEntry;

static HTAB *registry;			/* lives in the transaction's context; NULL: none yet */
static size_t bytes_ahead;
static uint64 waits;			/* fetches that were taken before they were complete */

/* Which entries to let go. */
typedef bool (*Chosen) (const AheadEntry *entry, const void *arg);

static void
forget(Chosen chosen, const void *arg)
{
	HASH_SEQ_STATUS seq;
	AheadEntry *entry;

	if (registry == NULL || hash_get_num_entries(registry) == 0)
		return;
	hash_seq_init(&seq, registry);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		TbFetch    *fetch = entry->fetch;

		if (!chosen(entry, arg))
			continue;
		bytes_ahead -= entry->bytes;
		/* removing the entry just returned is allowed during a sequential scan */
		(void) hash_search(registry, &entry->key, HASH_REMOVE, NULL);
		tb_fetch_free(fetch);
	}
}

static bool
is_any(const AheadEntry *entry, const void *arg)
{
	return true;
}

static bool
is_of_scan(const AheadEntry *entry, const void *arg)
{
	return entry->scan == arg;
}

static bool
is_of_subtransaction(const AheadEntry *entry, const void *arg)
{
	/* children have greater numbers, and all that are greater are its children */
	return entry->subid >= *(const SubTransactionId *) arg;
}

/* Before the transaction's contexts go: the registry lives there. */
static void
at_transaction_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			forget(is_any, NULL);
			registry = NULL;
			bytes_ahead = 0;
			break;
		default:
			break;
	}
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		forget(is_of_subtransaction, &mine);
}

static void
open_registry(void)
{
	static bool registered = false;
	HASHCTL		ctl = {
		.keysize = sizeof(AheadKey), .entrysize = sizeof(AheadEntry), .hcxt = TopTransactionContext
	};

	if (!registered)
	{
		RegisterXactCallback(at_transaction_end, NULL);
		RegisterSubXactCallback(at_subtransaction_end, NULL);
		registered = true;
	}
	registry = hash_create("tensorbank reading ahead", 64, &ctl,
						   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	bytes_ahead = 0;
}

static void
make_key(const TbpgRef *ref, AheadKey *key)
{
	memset(key, 0, sizeof(*key));
	key->user = tbpg_ref_user(ref);
	key->relid = ref->relid;
	key->attnum = ref->attnum;
	key->ndim = ref->ndim;
	memcpy(key->extent, ref->extent, sizeof(int64) * 2 * (size_t) ref->ndim);
}

/* Whether a region's decoded bytes fit beside what is ahead already. */
static bool
within_budget(const TbpgRef *ref, const TbRegion *region, size_t *bytes)
{
	size_t		budget = (size_t) tbpg_settings.read_ahead_mb << 20;
	uint64_t	elements;

	return tb_region_elements(region, &elements) &&
		tb_mul_size((size_t) elements, tb_dtype_size((TbDtype) ref->dtype), bytes) &&
		*bytes <= budget && bytes_ahead <= budget - *bytes;
}

bool
tbpg_ahead_begin_for(const void *scan, const TbpgRef *ref, TbArray *array, const TbRegion *region)
{
	AheadKey	key;
	AheadEntry *entry;
	TbError		err;
	TbFetch    *fetch;
	size_t		bytes;
	bool		found;

	if (!within_budget(ref, region, &bytes))
		return false;
	if (registry == NULL)
		open_registry();
	make_key(ref, &key);
	entry = hash_search(registry, &key, HASH_ENTER, &found);
	if (found)
		return true;
	/* an entry without a fetch must not stay: nothing that could raise comes before it is filled or
	 * gone */
	if (tb_fetch_open(array, region, &fetch, &err) != TB_OK)
	{
		/* read() will meet the same trouble and say so */
		(void) hash_search(registry, &key, HASH_REMOVE, NULL);
		return false;
	}
	entry->fetch = fetch;
	entry->scan = scan;
	entry->subid = GetCurrentSubTransactionId();
	entry->bytes = bytes;
	entry->waited = false;
	bytes_ahead += bytes;
	return true;
}

bool
tbpg_ahead_begin(const TbpgRef *ref, TbArray *array, const TbRegion *region)
{
	return tbpg_ahead_begin_for(NULL, ref, array, region);
}

bool
tbpg_ahead_begin_ref(const void *scan, const TbpgRef *ref)
{
	TbpgTable  *table;
	TbRegion	region;

	/* whoever has no right to read it will be told so by read() */
	if (!tbpg_ref_is_live(ref))
		return true;
	table = tbpg_table(ref->relid, ref->stamp_user);
	if (ref->attnum > table->natts || table->column[ref->attnum - 1].role != TBPG_ARRAY)
		return true;
	region.ndim = ref->ndim;
	for (int d = 0; d < ref->ndim; d++)
	{
		region.start[d] = (uint64_t) tbpg_ref_start_of(ref)[d];
		region.count[d] = (uint64_t) tbpg_ref_count_of(ref)[d];
	}
	return tbpg_ahead_begin_for(scan, ref, table->info->array[table->column[ref->attnum - 1].index], &region);
}

void
tbpg_ahead_kick(void)
{
	if (registry != NULL && hash_get_num_entries(registry) > 0)
		tb_engine_pump(tbpg_engine());
}

bool
tbpg_ahead_ready(const TbpgRef *ref)
{
	AheadKey	key;
	AheadEntry *entry;
	TbError		err;

	if (registry == NULL || hash_get_num_entries(registry) == 0)
		return true;
	make_key(ref, &key);
	entry = hash_search(registry, &key, HASH_FIND, NULL);
	if (entry == NULL || tb_fetch_poll(entry->fetch, &err) != TB_AGAIN)
		return true;
	/* counted once, not each time somebody looks */
	waits += !entry->waited;
	entry->waited = true;
	return false;
}

TbFetch *
tbpg_ahead_take(const TbpgRef *ref)
{
	AheadKey	key;
	AheadEntry *entry;
	TbFetch    *fetch;
	TbError		err;

	if (registry == NULL || hash_get_num_entries(registry) == 0)
		return NULL;
	make_key(ref, &key);
	entry = hash_search(registry, &key, HASH_FIND, NULL);
	if (entry == NULL)
		return NULL;
	fetch = entry->fetch;
	bytes_ahead -= entry->bytes;
	(void) hash_search(registry, &key, HASH_REMOVE, NULL);
	waits += tb_fetch_poll(fetch, &err) == TB_AGAIN;
	return fetch;
}

uint64
tbpg_ahead_waits(void)
{
	return waits;
}

void
tbpg_ahead_forget(const void *scan)
{
	forget(is_of_scan, scan);
}

void
tbpg_ahead_forget_all(void)
{
	forget(is_any, NULL);
}
