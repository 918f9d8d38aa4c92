/*
 * Looking through a segment before it is filled anew: entry by entry from its start, those that
 * were hit are written to the large ring. One thing is under way at a time; what comes too late or
 * goes wrong costs an entry, which is fetched again. At most half of a segment moves, so that room
 * is always made.
 */
#include "io/cache_parts.h"

#include <string.h>

struct TbCacheMover
{
	TbCacheMap *map;			/* borrowed */
	TbAio	   *aio;			/* borrowed */
	TbAioOp		op;
	TbBuf	   *buf;			/* owned */
	bool		busy;
	bool		whole;			/* an entry is being read, not a head alone */
	TbCachePlace from;			/* the entry in hand; units 0: its head is being read */
	uint32_t	end;			/* units of the segment */
	uint32_t	moved;			/* units */
	uint64_t	tag;
	int64_t		seen_ms;
	TbCachePlace to;
};

static void next_entry(TbCacheMover *m);

static void
submit(TbCacheMover *m, bool write, const TbCachePlace *place, size_t len, void (*done) (TbAioOp *op))
{
	m->op = (TbAioOp) {
		.fd = m->map->data_fd, .write = write, .offset = tb_cache_offset(m->map, place),
		.bytes = m->buf->data, .len = len,
		.done = done, .arg = m
	};
	tb_aio_submit(m->aio, &m->op);
}

static void
written(TbAioOp *op)
{
	TbCacheMover *m = op->arg;

	if (op->result == (int64_t) op->len && tb_cache_is_there(m->map, &m->to))
		tb_cache_publish(m->map, m->tag, &m->to, m->seen_ms);
	m->from.unit += m->from.units;
	next_entry(m);
}

/* An entry that was hit is in hand. */
static void
entry_read(TbAioOp *op)
{
	TbCacheMover *m = op->arg;
	const TbCacheHead *head = (const TbCacheHead *) (const void *) m->buf->data;
	uint32_t	ripe;
	TbCacheKey	key;

	memcpy(key.hash, head->key, sizeof(key.hash));
	/* the segment that this makes ripe is left to the next who makes one: no chain of moves */
	if (op->result == (int64_t) op->len && tb_cache_entry_ok(head, &key, m->buf->data + TB_CACHE_UNIT, m->from.units) &&
		tb_cache_is_there(m->map, &m->from) && tb_cache_reserve(m->map, true, m->from.units, &m->to, &ripe))
	{
		m->moved += m->from.units;
		submit(m, true, &m->to, op->len, written);
		return;
	}
	m->from.unit += m->from.units;
	next_entry(m);
}

static void
head_read(TbAioOp *op)
{
	TbCacheMover *m = op->arg;
	const TbCacheHead *head = (const TbCacheHead *) (const void *) m->buf->data;
	TbCachePlace place;
	TbCacheKey	key;
	uint32_t	slot;

	/* what is no head ends it: where the next one begins is not known */
	if (op->result < (int64_t) sizeof(*head) || !tb_cache_head_ok(head, m->end - m->from.unit) ||
		!tb_cache_is_there(m->map, &(TbCachePlace) {m->from.segment, 0, 1, m->from.generation}))
	{
		m->busy = false;
		return;
	}
	memcpy(key.hash, head->key, sizeof(key.hash));
	m->tag = tb_cache_tag(&key);
	m->from.units = tb_cache_units((size_t) head->len);
	if (!tb_cache_find(m->map, m->tag, &place, &slot, &m->seen_ms) || place.segment != m->from.segment ||
		place.unit != m->from.unit || tb_cache_hits(m->map, slot) == 0 || m->moved + m->from.units > m->end / 2)
	{
		m->from.unit += m->from.units;
		next_entry(m);
		return;
	}
	m->buf->len = 0;
	if (tb_buf_reserve(m->buf, (size_t) m->from.units * TB_CACHE_UNIT) != TB_OK)
	{
		m->busy = false;
		return;
	}
	submit(m, false, &m->from, (size_t) m->from.units * TB_CACHE_UNIT, entry_read);
}

static void
next_entry(TbCacheMover *m)
{
	m->from.units = 0;
	if (m->from.unit >= m->end)
	{
		m->busy = false;
		return;
	}
	submit(m, false, &m->from, TB_CACHE_UNIT, head_read);
}

void
tb_mover_look(TbCacheMover *m, uint32_t segment)
{
	if (m->busy || segment >= m->map->n_segments)
		return;
	m->from = (TbCachePlace) {
		.segment = segment, .generation = __atomic_load_n(&m->map->segment[segment].generation,
		__ATOMIC_RELAXED) & 0xffffff
	};
	m->end = __atomic_load_n(&m->map->segment[segment].filled, __ATOMIC_RELAXED);
	if (m->end > m->map->segment_bytes / TB_CACHE_UNIT)
		return;
	m->moved = 0;
	m->busy = m->end > 0;
	if (m->busy)
		next_entry(m);
}

TbCacheMover *
tb_mover_new(TbCacheMap *map, TbAio *aio)
{
	TbCacheMover *m = tb_calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->map = map;
	m->aio = aio;
	m->buf = tb_buf_new(TB_CACHE_UNIT);
	if (m->buf != NULL)
		return m;
	tb_free(m);
	return NULL;
}

void
tb_mover_free(TbCacheMover *m)
{
	if (m == NULL)
		return;
	tb_buf_unref(m->buf);
	tb_free(m);
}
