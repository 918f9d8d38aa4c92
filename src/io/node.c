/*
 * The node's books: taking and giving, places of processes, counters by name. The file behind them is node_file.c's.
 *
 * A taker writes what it wants into its own place first and then adds up all places; when that is too much it
 * takes it back. So of two that come at once at least one sees the other, and the limit holds without a lock.
 * Both may be refused where one would have fit; they look again within TB_NODE_WAIT_MS.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "io/node_parts.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_NS INT64_C(1000000000) /* between looks after the dead by one process */
#define ACTIVE_NS INT64_C(10000000000)	/* a process counts so long as one with connections */
#define OTHERS "(others)"

#define load(member) __atomic_load_n(&(member), __ATOMIC_SEQ_CST)
#define store(member, value) __atomic_store_n(&(member), (value), __ATOMIC_SEQ_CST)
#define swap(member, old, new) \
	__atomic_compare_exchange_n(&(member), (old), (new), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

struct TbNode
{
	TbNodeBooks *books;			/* owned mapping */
	TbNodePlace *place;			/* in books, or own where all of them are taken */
	TbNodePlace own;
	uint64_t	owner;
	pid_t		pid;			/* of the process that opened: a forked child has no part in it */
	bool		shared;
	int64_t		looked_ns;
};

/* ---- places ---- */

/* Free the places of processes that have ended; what they had taken is thereby given back. */
static void
look_after_dead(TbNode *node, int64_t now)
{
	uint32_t	n = load(node->books->super.places_used);

	store(node->looked_ns, now);
	for (uint32_t i = 0; i < n && i < TB_NODE_PLACES; i++)
	{
		uint64_t	owner = load(node->books->place[i].owner);

		if (owner != 0 && owner != node->owner && tb_node_is_dead(owner))
			(void) swap(node->books->place[i].owner, &owner, 0);
	}
}

static void
look_now_and_then(TbNode *node)
{
	int64_t		now = tb_now_ns();

	if (node->shared && now - load(node->looked_ns) >= LOOK_NS)
		look_after_dead(node, now);
}

static bool
claim_place(TbNode *node)
{
	for (uint32_t i = 0; i < TB_NODE_PLACES; i++)
	{
		TbNodePlace *place = &node->books->place[i];
		uint64_t	none = 0;
		uint32_t	used = load(node->books->super.places_used);

		if (!swap(place->owner, &none, node->owner))
			continue;
		/* what the one before left behind; until here it counts as ours, which only makes others wait */
		store(place->requests, 0);
		store(place->memory_bytes, 0);
		store(place->taken_ns, 0);
		while (used < i + 1 && !swap(node->books->super.places_used, &used, i + 1))
			;
		node->place = place;
		return true;
	}
	return false;
}

TbStatus
tb_node_open(const char *path, TbNode **node, TbError *err)
{
	TbNode	   *made = tb_calloc(1, sizeof(*made));
	TbStatus	status;

	*node = NULL;
	if (made == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	status = tb_node_map(path, &made->books, err);
	if (status != TB_OK)
	{
		tb_free(made);
		return status;
	}
	made->shared = path != NULL;
	made->pid = getpid();
	made->owner = tb_node_self();
	if (made->shared)
		look_after_dead(made, tb_now_ns());
	/* with all places taken we see the others and they do not see us: better than no reads */
	if (!claim_place(made))
		made->place = &made->own;
	*node = made;
	return TB_OK;
}

/* In a child forked by the one who opened: the books are the parent's. */
static bool
is_ours(const TbNode *node)
{
	return getpid() == node->pid;
}

void
tb_node_close(TbNode *node)
{
	if (node == NULL)
		return;
	if (is_ours(node))
	{
		store(node->place->requests, 0);
		store(node->place->memory_bytes, 0);
		store(node->place->owner, 0);
	}
	(void) munmap(node->books, sizeof(*node->books));
	tb_free(node);
}

bool
tb_node_is_shared(const TbNode *node)
{
	return node->shared;
}

/* ---- taking and giving ---- */

typedef struct Sum
{
	uint64_t	requests;
	uint64_t	memory;
	int			active;			/* with requests */
	int			connected;		/* with requests, or some not long ago */
	int			processes;
} Sum;

static uint64_t
add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void
add_place(Sum *sum, TbNodePlace *place, int64_t now)
{
	uint64_t	requests = load(place->requests);
	int64_t		taken_ns = load(place->taken_ns);

	sum->processes++;
	sum->requests = add(sum->requests, requests);
	sum->memory = add(sum->memory, load(place->memory_bytes));
	sum->active += requests > 0;
	sum->connected += requests > 0 || (taken_ns != 0 && now - taken_ns < ACTIVE_NS);
}

static Sum
add_up(TbNode *node, int64_t now)
{
	Sum			sum = {0};
	uint32_t	n = load(node->books->super.places_used);

	for (uint32_t i = 0; i < n && i < TB_NODE_PLACES; i++)
		if (load(node->books->place[i].owner) != 0)
			add_place(&sum, &node->books->place[i], now);
	if (node->place == &node->own)
		add_place(&sum, &node->own, now);
	return sum;
}

/* Subtract, but not below nothing: the books may have been made anew under us. */
static void
subtract(uint64_t *member, uint64_t n)
{
	uint64_t	old = load(*member);

	while (!swap(*member, &old, old > n ? old - n : 0))
		;
}

static bool
has_room(const Sum *sum, const TbNodeLimits *limits, uint64_t requests, uint64_t memory)
{
	uint64_t	most_requests = limits->requests > 0 ? (uint64_t) limits->requests : 1;
	uint64_t	active = sum->active > 0 ? (uint64_t) sum->active : 1;

	if (requests <= 1)
		return true;
	if (sum->requests > most_requests && requests > most_requests / active)
		return false;
	return sum->memory <= limits->memory_bytes || memory <= limits->memory_bytes / active;
}

bool
tb_node_take(TbNode *node, const TbNodeLimits *limits, uint64_t bytes)
{
	TbNodePlace *place = node->place;
	int64_t		now = tb_now_ns();
	uint64_t	requests;
	uint64_t	memory;
	Sum			sum;

	if (!is_ours(node))
		return true;
	memory = __atomic_add_fetch(&place->memory_bytes, bytes, __ATOMIC_SEQ_CST);
	requests = __atomic_add_fetch(&place->requests, 1, __ATOMIC_SEQ_CST);
	sum = add_up(node, now);
	if (has_room(&sum, limits, requests, memory))
	{
		store(place->taken_ns, now);
		return true;
	}
	subtract(&place->requests, 1);
	subtract(&place->memory_bytes, bytes);
	look_now_and_then(node);
	return false;
}

void
tb_node_give(TbNode *node, uint64_t bytes)
{
	if (!is_ours(node))
		return;
	subtract(&node->place->requests, 1);
	subtract(&node->place->memory_bytes, bytes);
}

int
tb_node_connections(TbNode *node, const TbNodeLimits *limits)
{
	int64_t		now = tb_now_ns();
	Sum			sum = add_up(node, now);
	int64_t		taken_ns = load(node->place->taken_ns);
	int			share;

	/* we are about to be one of them */
	if (load(node->place->requests) == 0 && (taken_ns == 0 || now - taken_ns >= ACTIVE_NS))
		sum.connected++;
	share = limits->connections / (sum.connected > 0 ? sum.connected : 1);
	return share > 0 ? share : 1;
}

TbNodeUse
tb_node_use(TbNode *node)
{
	TbNodeUse	use;
	Sum			sum;

	look_now_and_then(node);
	sum = add_up(node, tb_now_ns());
	use.processes = sum.processes;
	use.active = sum.active;
	use.requests = sum.requests > INT32_MAX ? INT32_MAX : (int) sum.requests;
	use.memory_bytes = sum.memory;
	return use;
}

/* ---- counters ---- */

/* Every one who asks for a name writes the same words of it, so that a death in the middle leaves no half name. */
static TbNodeCounters *
name_row(TbNodeRow *row, const uint64_t *words)
{
	if (load(row->ready) == 0)
	{
		for (size_t i = 0; i < TB_NODE_NAME / 8; i++)
			__atomic_store_n(&row->name[i], words[i], __ATOMIC_RELAXED);
		store(row->ready, 1);
	}
	return &row->counters;
}

static bool
has_name(TbNodeRow *row, const uint64_t *words)
{
	for (size_t i = 0; i < TB_NODE_NAME / 8; i++)
		if (__atomic_load_n(&row->name[i], __ATOMIC_RELAXED) != words[i])
			return false;
	return true;
}

TbNodeCounters *
tb_node_counters(TbNode *node, const char *name)
{
	uint64_t	words[TB_NODE_NAME / 8] = {0};
	size_t		len = strnlen(name, TB_NODE_NAME - 1);
	uint64_t	hash = tb_hash64(name, len, 0);
	TbNodeRow  *rows = node->books->row;

	memcpy(words, name, len);
	if (hash == 0)
		hash = 1;
	for (size_t i = 0; i < TB_NODE_ROWS - 1; i++)
	{
		uint64_t	there = 0;

		if (swap(rows[i].hash, &there, hash))
			return name_row(&rows[i], words);
		/* an equal hash of another name is somebody's trick: no row is shared by it */
		if (there == hash && (load(rows[i].ready) == 0 || has_name(&rows[i], words)))
			return name_row(&rows[i], words);
	}
	memset(words, 0, sizeof(words));
	memcpy(words, OTHERS, sizeof(OTHERS));
	return name_row(&rows[TB_NODE_ROWS - 1], words);
}

static void
copy_counters(TbNodeCounters *copy, TbNodeCounters *counters)
{
	uint64_t   *to = (uint64_t *) copy;
	uint64_t   *from = (uint64_t *) counters;

	for (size_t i = 0; i < sizeof(*copy) / sizeof(uint64_t); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

bool
tb_node_each(TbNode *node, size_t i, const char **name, TbNodeCounters *counters)
{
	for (size_t r = 0; r < TB_NODE_ROWS; r++)
	{
		TbNodeRow  *row = &node->books->row[r];
		const char *text = (const char *) row->name;

		if (load(row->ready) != 1 || memchr(text, '\0', TB_NODE_NAME) == NULL)
			continue;
		if (i-- > 0)
			continue;
		*name = text;
		copy_counters(counters, &row->counters);
		return true;
	}
	return false;
}
