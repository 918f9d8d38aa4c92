/*
 * Gets and puts of the cache. See cache.h for what they promise, cache_parts.h for how things lie on the disk, and
 * docs/internals/cache.md for why.
 *
 *   get: slot -> read head and bytes in one go -> proof -> HIT or STALE;   nothing or no proof -> claim -> MISS
 *                                                 the claim is another's -> wait, look again every few ms
 *   put: space -> write head and bytes -> slot -> claim given back
 */
#include "io/cache_parts.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "io/store.h"

#define COPY_MAX_BYTES ((size_t) 64 << 10)	/* up to here one write of a copy is cheaper than two writes */
#define WRITES_MAX_BYTES ((size_t) 32 << 20)	/* under way: beyond it things are not kept */
#define WAIT_MAX_MS 10000
#define TICK_NS INT64_C(3000000)
#define RENEW_MS (TB_CACHE_LEASE_MS / 3)
#define OFF_MS 60000			/* after trouble */
#define FAILURES_MAX 3			/* of the disk, in a row */

/* What this process has claimed. */
typedef struct Claim
{
	struct Claim *next;
	TbCacheKey	key;
	uint64_t	tag;
	uint32_t	at;
	bool		held;			/* has a place in the table */
} Claim;

typedef enum GetState
{
	GET_TOLD,					/* the answer waits in the loop */
	GET_READING,
	GET_WAITING					/* for another who fetches */
} GetState;

typedef struct Get
{
	TbCache    *cache;			/* borrowed */
	TbCacheGet *get;			/* borrowed; NULL: canceled while READING */
	struct Get *prev;
	struct Get *next;
	uint64_t	tag;
	GetState	state;
	TbTask		task;
	int64_t		since_ms;		/* WAITING */
	bool		waited;
	bool		claimed;		/* others wait for what its owner brings */
	TbAioOp		op;
	TbBuf	   *buf;			/* owned; head and bytes */
	TbCachePlace place;
	uint32_t	slot;
	int64_t		seen_ms;
} Get;

typedef struct Put
{
	TbCache    *cache;			/* borrowed */
	struct Put *prev;
	struct Put *next;
	TbCacheKey	key;
	uint64_t	tag;
	TbCachePlace place;
	TbAioOp		op[2];
	int			left;			/* writes under way */
	bool		failed;
	TbBuf	   *head;			/* owned; the head, and a copy of the bytes where they are few */
	TbBuf	   *data;			/* owned; NULL where they were copied */
	size_t		len;
} Put;

struct TbCache
{
	TbLoop	   *loop;			/* borrowed */
	TbAio	   *aio;			/* borrowed */
	TbIo	   *io;				/* borrowed; whose buffers are used; NULL: own ones */
	TbCacheMap	map;
	TbCacheMover *mover;		/* owned */
	Get		   *gets;
	Put		   *puts;
	Claim	   *claims;
	size_t		writing;		/* bytes */
	int			n_waiting;
	TbTimer		tick;			/* armed while somebody waits */
	TbTimer		renew;			/* armed while there are claims */
	int			failures;
	int64_t		off_until_ms;	/* 0: on */
	TbError		trouble;
	bool		untold;
};

/* ---- trouble ---- */

static bool
is_off(TbCache *cache)
{
	if (cache->off_until_ms != 0 && tb_cache_now_ms() >= cache->off_until_ms)
	{
		cache->off_until_ms = 0;
		cache->failures = 0;
	}
	return cache->off_until_ms != 0;
}

static void
disk_failed(TbCache *cache, int sys_errno)
{
	bool		for_good = sys_errno == ENOSPC || sys_errno == EDQUOT || sys_errno == EROFS;

	if (!for_good && ++cache->failures < FAILURES_MAX)
		return;
	if (cache->off_until_ms == 0 && cache->trouble.code == TB_OK)
	{
		(void) tb_fail_errno(&cache->trouble, sys_errno, "use the local cache", cache->map.directory);
		tb_error_hint(&cache->trouble, "The cache is off in this process for a minute; reads go on without.");
		cache->untold = true;
	}
	cache->off_until_ms = tb_cache_now_ms() + OFF_MS;
}

bool
tb_cache_trouble(TbCache *cache, TbError *err)
{
	if (!cache->untold)
		return false;
	cache->untold = false;
	*err = cache->trouble;
	return true;
}

/* ---- claims ---- */

static void
renew_claims(TbTimer *timer)
{
	TbCache    *cache = (TbCache *) ((char *) timer - offsetof(TbCache, renew));

	for (Claim *claim = cache->claims; claim != NULL; claim = claim->next)
		if (claim->held)
			tb_claim_renew(&cache->map, claim->at);
	if (cache->claims != NULL)
		(void) !tb_loop_arm(cache->loop, timer, RENEW_MS * TB_NS_PER_MS);
}

static Claim *
find_claim(TbCache *cache, uint64_t tag)
{
	Claim	   *claim = cache->claims;

	while (claim != NULL && claim->tag != tag)
		claim = claim->next;
	return claim;
}

/* Become the one who fetches a key. false: another does. */
static bool
take_claim(TbCache *cache, const TbCacheKey *key, uint64_t tag)
{
	Claim	   *claim;

	if (find_claim(cache, tag) != NULL)
		return false;
	claim = tb_calloc(1, sizeof(*claim));
	if (claim == NULL)
		return true;			/* without others' knowing */
	switch (tb_claim_take(&cache->map, tag, &claim->at))
	{
		case TB_CLAIM_OTHERS:
			tb_free(claim);
			return false;
		case TB_CLAIM_OURS:
			claim->held = true;
			break;
		case TB_CLAIM_NONE:
			break;
	}
	claim->key = *key;
	claim->tag = tag;
	claim->next = cache->claims;
	cache->claims = claim;
	if (cache->renew.heap_slot == 0)
		(void) !tb_loop_arm(cache->loop, &cache->renew, RENEW_MS * TB_NS_PER_MS);
	return true;
}

static void wait_on(TbCache *cache, int64_t delay_ns);

static void
give_claim(TbCache *cache, uint64_t tag)
{
	for (Claim **at = &cache->claims; *at != NULL; at = &(*at)->next)
		if ((*at)->tag == tag)
		{
			Claim	   *claim = *at;

			*at = claim->next;
			if (claim->held)
				tb_claim_give(&cache->map, claim->at);
			tb_free(claim);
			break;
		}
	if (cache->n_waiting > 0)
		wait_on(cache, 0);
}

void
tb_cache_abandon(TbCache *cache, const TbCacheKey *key)
{
	give_claim(cache, tb_cache_tag(key));
}

/* ---- gets ---- */

static void
free_get(Get *g)
{
	if (g->prev != NULL)
		g->prev->next = g->next;
	else
		g->cache->gets = g->next;
	if (g->next != NULL)
		g->next->prev = g->prev;
	tb_buf_unref(g->buf);
	tb_free(g);
}

/* The answer; g is gone then. */
static void
answer(Get *g)
{
	TbCacheGet *get = g->get;

	get->impl = NULL;
	free_get(g);
	get->done(get);
}

static void
told(TbTask *task)
{
	answer((Get *) ((char *) task - offsetof(Get, task)));
}

/* Answer from the pump. */
static void
tell(Get *g, TbCacheFound found)
{
	g->get->found = found;
	g->state = GET_TOLD;
	g->task.run = told;
	tb_loop_defer(g->cache->loop, &g->task);
}

/* As tell, within the pump. */
static void
tell_now(Get *g, TbCacheFound found)
{
	g->get->found = found;
	answer(g);
}

static void
start_waiting(Get *g)
{
	g->state = GET_WAITING;
	if (!g->waited)
		g->since_ms = tb_cache_now_ms();
	g->waited = true;
	g->cache->n_waiting++;
	wait_on(g->cache, TICK_NS);
}

/* May it wait for another who fetches? Also a fetcher that lives may never come to an end. */
static bool
is_patient(const Get *g)
{
	return !g->waited || tb_cache_now_ms() - g->since_ms < WAIT_MAX_MS;
}

/* Nothing is here that counts: fetch it, or wait for who does. */
static void
not_found(Get *g, bool within)
{
	TbCache    *cache = g->cache;

	g->claimed = take_claim(cache, &g->get->key, g->tag);
	if (!g->claimed && is_patient(g))
		start_waiting(g);
	else if (within)
		tell_now(g, TB_CACHE_MISS);
	else
		tell(g, TB_CACHE_MISS);
}

/* What was read is this key's. Fill the answer; false where memory is gone. */
static bool
fill_answer(Get *g, const TbCacheHead *head)
{
	TbCacheGet *get = g->get;

	get->data = tb_buf_slice(g->buf, TB_CACHE_UNIT, (size_t) head->len);
	get->object_size = head->object_size;
	memcpy(get->version, head->version, sizeof(get->version));
	return get->data != NULL;
}

static void
judge(Get *g)
{
	TbCache    *cache = g->cache;
	TbCacheGet *get = g->get;
	const TbCacheHead *head = (const TbCacheHead *) (const void *) g->buf->data;
	bool		ok = g->op.result == (int64_t) g->op.len &&
		tb_cache_entry_ok(head, &get->key, g->buf->data + TB_CACHE_UNIT, g->place.units);
	bool		same = ok && (get->if_version == NULL || strcmp(get->if_version, head->version) == 0);
	int64_t		age_ms;

	if (g->op.result < 0)
		disk_failed(cache, (int) -g->op.result);
	if (!same)
		tb_cache_drop(&cache->map, g->slot, &g->place);
	if (!same || !fill_answer(g, head))
	{
		not_found(g, true);
		return;
	}
	cache->failures = 0;
	tb_cache_hit(&cache->map, g->slot, g->tag);
	age_ms = tb_cache_now_ms() - g->seen_ms;
	/* a time that is still to come is damage, or it would count for ever */
	if (get->if_version != NULL || (age_ms >= 0 && age_ms < get->max_age_ms))
		tell_now(g, TB_CACHE_HIT);
	else if (take_claim(cache, &get->key, g->tag) || !is_patient(g))
		tell_now(g, TB_CACHE_STALE);
	else
	{
		tb_buf_unref(get->data);
		get->data = NULL;
		start_waiting(g);
	}
}

static void
read_ended(TbAioOp *op)
{
	Get		   *g = op->arg;

	if (g->get == NULL)
		free_get(g);
	else
		judge(g);
}

/* Memory for an entry: the kernel's own where it fits, else the engine's spare buffers. */
static TbBuf *
buffer(TbCache *cache, size_t len)
{
	TbBuf	   *buf = len <= TB_AIO_FIXED_BYTES ? tb_aio_fixed(cache->aio) : NULL;

	if (buf == NULL)
		buf = cache->io != NULL ? tb_io_buf(cache->io, len) : tb_buf_new(len);
	return buf;
}

static void
look(Get *g, bool within)
{
	TbCache    *cache = g->cache;
	size_t		len;

	if (is_off(cache))
	{
		if (within)
			tell_now(g, TB_CACHE_MISS);
		else
			tell(g, TB_CACHE_MISS);
		return;
	}
	if (!tb_cache_find(&cache->map, g->tag, &g->place, &g->slot, &g->seen_ms))
	{
		not_found(g, within);
		return;
	}
	len = (size_t) g->place.units * TB_CACHE_UNIT;
	tb_buf_unref(g->buf);
	g->buf = buffer(cache, len);
	if (g->buf == NULL)
	{
		not_found(g, within);
		return;
	}
	g->state = GET_READING;
	g->op = (TbAioOp) {
		.fd = cache->map.data_fd, .offset = tb_cache_offset(&cache->map, &g->place), .bytes = g->buf->data, .len = len,
		.done = read_ended, .arg = g
	};
	tb_aio_submit(cache->aio, &g->op);
}

/* Look again for those who wait. */
static void
ticked(TbTimer *timer)
{
	TbCache    *cache = (TbCache *) ((char *) timer - offsetof(TbCache, tick));
	Get		   *next;

	/* looking calls nobody: answers come from the loop */
	for (Get *g = cache->gets; g != NULL; g = next)
	{
		next = g->next;
		if (g->state != GET_WAITING)
			continue;
		cache->n_waiting--;
		look(g, false);
	}
	if (cache->n_waiting > 0)
		wait_on(cache, TICK_NS);
}

static void
wait_on(TbCache *cache, int64_t delay_ns)
{
	if (cache->tick.heap_slot != 0 && delay_ns > 0)
		return;
	if (cache->tick.heap_slot != 0)
		tb_loop_disarm(cache->loop, &cache->tick);
	(void) !tb_loop_arm(cache->loop, &cache->tick, delay_ns);
}

/* There is no memory to look: as if nothing were here. */
static void
no_memory(TbTask *task)
{
	TbCacheGet *get = (TbCacheGet *) ((char *) task - offsetof(TbCacheGet, task));

	get->done(get);
}

void
tb_cache_get(TbCache *cache, TbCacheGet *get)
{
	Get		   *g = tb_calloc(1, sizeof(*g));

	get->data = NULL;
	get->found = TB_CACHE_MISS;
	get->version[0] = '\0';
	get->object_size = UINT64_MAX;
	get->impl = g;
	if (g == NULL)
	{
		get->task.run = no_memory;
		tb_loop_defer(cache->loop, &get->task);
		return;
	}
	g->cache = cache;
	g->get = get;
	g->tag = tb_cache_tag(&get->key);
	g->next = cache->gets;
	if (g->next != NULL)
		g->next->prev = g;
	cache->gets = g;
	look(g, false);
}

void
tb_cache_cancel(TbCache *cache, TbCacheGet *get)
{
	Get		   *g = get->impl;

	if (g == NULL)
	{
		tb_loop_undefer(cache->loop, &get->task);
		return;
	}
	get->impl = NULL;
	switch (g->state)
	{
		case GET_READING:
			g->get = NULL;		/* the kernel writes to its buffer */
			return;
		case GET_WAITING:
			cache->n_waiting--;
			break;
		case GET_TOLD:
			tb_loop_undefer(cache->loop, &g->task);
			if (g->claimed)
				give_claim(cache, g->tag);
			tb_buf_unref(get->data);
			get->data = NULL;
			break;
	}
	free_get(g);
}

/* ---- puts ---- */

static void
free_put(Put *put)
{
	TbCache    *cache = put->cache;

	if (put->prev != NULL)
		put->prev->next = put->next;
	else
		cache->puts = put->next;
	if (put->next != NULL)
		put->next->prev = put->prev;
	cache->writing -= put->len;
	tb_buf_unref(put->head);
	tb_buf_unref(put->data);
	tb_free(put);
}

static void
write_ended(TbAioOp *op)
{
	Put		   *put = op->arg;
	TbCache    *cache = put->cache;
	uint64_t	tag = put->tag;

	if (op->result != (int64_t) op->len)
	{
		put->failed = true;
		disk_failed(cache, op->result < 0 ? (int) -op->result : EIO);
	}
	if (--put->left > 0)
		return;
	/* a ring that went round meanwhile has given the space to others */
	if (!put->failed && tb_cache_is_there(&cache->map, &put->place))
		tb_cache_publish(&cache->map, tag, &put->place, tb_cache_now_ms());
	free_put(put);
	give_claim(cache, tag);
}

/* Bytes as they are to be written, in put->head and put->data. The caller's memory may be anybody's
 * soon where it only lent it. */
static bool
prepare(Put *put, const TbCachePut *what)
{
	TbBuf	   *data = what->data;
	bool		lent = data->borrowed || (data->whole != NULL && data->whole->borrowed);
	bool		copy = lent || data->len <= COPY_MAX_BYTES;
	size_t		len = TB_CACHE_UNIT + (copy ? data->len : 0);

	put->head = buffer(put->cache, len);
	if (put->head == NULL)
		return false;
	memset(put->head->data, 0, TB_CACHE_UNIT);
	tb_cache_head_make((TbCacheHead *) (void *) put->head->data, what->key, what->version,
		what->object_size, data->data, data->len);
	if (copy)
		memcpy(put->head->data + TB_CACHE_UNIT, data->data, data->len);
	else
		put->data = tb_buf_ref(data);
	put->head->len = len;
	return true;
}

static void
submit(Put *put, int i, TbBuf *buf, uint64_t offset)
{
	put->op[i] = (TbAioOp) {
		.fd = put->cache->map.data_fd, .write = true, .offset = offset, .bytes = buf->data,
		.len = buf->len, .done = write_ended, .arg = put
	};
	tb_aio_submit(put->cache->aio, &put->op[i]);
}

/* false: it is not kept. */
static bool
keep(TbCache *cache, const TbCachePut *what)
{
	uint64_t	tag = tb_cache_tag(what->key);
	TbCachePlace place;
	TbCachePlace old;
	uint32_t	ripe;
	uint32_t	slot;
	int64_t		seen_ms;
	uint64_t	offset;
	bool		again;
	Put		   *put;

	if (is_off(cache) || what->version[0] == '\0' || what->data->len > cache->map.segment_bytes / 4 ||
		cache->writing + what->data->len > WRITES_MAX_BYTES)
		return false;
	again = tb_cache_find(&cache->map, tag, &old, &slot, &seen_ms) || tb_cache_was_there(&cache->map, tag);
	put = tb_calloc(1, sizeof(*put));
	if (put == NULL)
		return false;
	put->cache = cache;
	if (!tb_cache_reserve(&cache->map, again, tb_cache_units(what->data->len), &place, &ripe) || !prepare(put, what))
	{
		tb_buf_unref(put->head);
		tb_free(put);
		return false;
	}
	put->key = *what->key;
	put->tag = tag;
	put->place = place;
	put->len = what->data->len;
	cache->writing += put->len;
	put->next = cache->puts;
	if (put->next != NULL)
		put->next->prev = put;
	cache->puts = put;
	put->left = put->data != NULL ? 2 : 1;
	offset = tb_cache_offset(&cache->map, &place);
	submit(put, 0, put->head, offset);
	if (put->data != NULL)
		submit(put, 1, put->data, offset + TB_CACHE_UNIT);
	if (ripe != UINT32_MAX && cache->mover != NULL)
		tb_mover_look(cache->mover, ripe);
	return true;
}

void
tb_cache_put(TbCache *cache, const TbCacheKey *key, const char *version, uint64_t object_size, TbBuf *data)
{
	TbCachePut	what = {.key = key, .version = version, .object_size = object_size, .data = data};

	if (!keep(cache, &what))
		give_claim(cache, tb_cache_tag(key));
}

bool
tb_cache_is_writing(const TbCache *cache)
{
	return cache->puts != NULL;
}

void
tb_cache_touch(TbCache *cache, const TbCacheKey *key)
{
	uint64_t	tag = tb_cache_tag(key);
	TbCachePlace place;
	uint32_t	slot;
	int64_t		seen_ms;

	if (tb_cache_find(&cache->map, tag, &place, &slot, &seen_ms))
		tb_cache_seen(&cache->map, slot, tag);
	give_claim(cache, tag);
}

/* ---- the cache ---- */

void
tb_cache_key(const uint8_t scope[32], const char *object, TbRangeKind kind, uint64_t offset,
			   uint64_t length, TbCacheKey *key)
{
	uint64_t	range[3] = {kind, offset, length};
	EVP_MD_CTX *context = EVP_MD_CTX_new();

	if (context == NULL || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 ||
		EVP_DigestUpdate(context, scope, 32) != 1 || EVP_DigestUpdate(context, range, sizeof(range)) != 1 ||
		EVP_DigestUpdate(context, object, strlen(object)) != 1 || EVP_DigestFinal_ex(context, key->hash, NULL) != 1)
		(void) !tb_random(key->hash, sizeof(key->hash), NULL);	/* nobody finds it again */
	EVP_MD_CTX_free(context);
}

TbStatus
tb_cache_open(TbLoop *loop, TbAio *aio, const char *directory, uint64_t bytes, TbCache **out, TbError *err)
{
	TbCache    *cache = tb_calloc(1, sizeof(*cache));
	TbStatus	status;

	*out = NULL;
	if (cache == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	cache->loop = loop;
	cache->aio = aio;
	cache->tick.fire = ticked;
	cache->renew.fire = renew_claims;
	tb_error_clear(&cache->trouble);
	status = tb_cache_map_open(directory, bytes, &cache->map, err);
	if (status != TB_OK)
	{
		tb_cache_map_close(&cache->map);
		tb_free(cache);
		return status;
	}
	cache->mover = tb_mover_new(&cache->map, aio);
	*out = cache;
	return TB_OK;
}

void
tb_cache_use_buffers(TbCache *cache, TbIo *io)
{
	cache->io = io;
}

/* Its aio is freed before: nothing is with the kernel, and nobody will be called. */
void
tb_cache_close(TbCache *cache)
{
	if (cache == NULL)
		return;
	tb_loop_disarm(cache->loop, &cache->tick);
	tb_loop_disarm(cache->loop, &cache->renew);
	while (cache->gets != NULL)
		free_get(cache->gets);
	while (cache->puts != NULL)
		free_put(cache->puts);
	cache->n_waiting = 0;
	while (cache->claims != NULL)
		give_claim(cache, cache->claims->tag);
	tb_mover_free(cache->mover);
	tb_cache_map_close(&cache->map);
	tb_free(cache);
}
