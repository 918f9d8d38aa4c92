/*
 * Near ranges of one object in one request. Decided when a request is about to start: what else is queued then may
 * travel with it. So whatever is asked for while all places are taken is merged as far as it goes. Only reads in order
 * wait for company, while enough others are in flight, and not for long.
 *
 * Bounds: bytes that nobody asked for are at most a tenth of those somebody did; a gap is at most what a request
 * costs a server and us in time for bytes; a merged request is at most about TB_MERGE_SPAN long, where its own cost
 * is lost among its bytes' and longer ones would only keep others waiting. As long as fewer than MERGE_PLACES
 * requests are in flight what is queued is spread over the free ones first: enough to keep a server, the wire and us
 * busy at once. But what takes less time than a request does is not torn apart for that.
 *
 * Queued reads lie in buckets by store, key, version and span of the object, sorted by offset there, so that
 * neighbours are found at once. Reads that come in order are appended; where sorting one in takes too many steps it
 * travels alone.
 */
#include "io/store.h"

#include <string.h>

#define TB_MERGE_SPAN ((uint64_t) 1 << 20)
#define MERGE_GAP ((uint64_t) 64 << 10)
#define MERGE_ALONE ((uint64_t) 256 << 10)	/* reads of so much gain nothing, and land where they are wanted */
#define MERGE_WASTE 10			/* one part in so many */
#define MERGE_PLACES 8
#define MERGE_ENOUGH ((uint64_t) 128 << 10)	/* for a request while half of the places are taken */
#define SORT_STEPS 64
#define PATIENCE_NS INT64_C(50000000)	/* longest wait for company */

static uint64_t
hash_object(const TbOp *op)
{
	uint64_t	hash = tb_hash64(op->key, strlen(op->key), (uint64_t) (uintptr_t) op->store);

	return op->if_version == NULL ? hash : tb_hash64(op->if_version, strlen(op->if_version), hash);
}

/* The trail that goes on at an offset; NULL: none. */
static TbTrail *
find_trail(TbIo *io, uint64_t object, uint64_t offset)
{
	for (int i = 0; i < TB_NEAR_TRAILS; i++)
	{
		TbTrail    *trail = &io->trail[i];

		if (trail->object == object && offset >= trail->end && offset - trail->end <= MERGE_GAP)
			return trail;
	}
	return NULL;
}

/* Bytes up to end have been asked for, from first on. */
static void
note_trail(TbIo *io, uint64_t object, uint64_t first, uint64_t end)
{
	TbTrail    *trail = find_trail(io, object, first);

	if (trail == NULL)
		trail = &io->trail[io->next_trail++ % TB_NEAR_TRAILS];
	*trail = (TbTrail) {object, end};
}

bool
tb_near_follows(const TbOp *op)
{
	TbIo	   *io = op->store->io;
	bool		busy = io->n_started >= MERGE_PLACES ||
		(io->n_started >= MERGE_PLACES / 2 && io->near_bytes < MERGE_ENOUGH);

	/* what is in flight may take for ever, and may be another endpoint's */
	return op->near && busy && find_trail(io, op->near_object, op->offset) != NULL &&
		tb_now_ns() - op->queued_ns < PATIENCE_NS;
}

/* Bytes that wait near each other count for how much one request takes. Jobs read for themselves: they have no
 * wants. */
void
tb_near_add(TbOp *op)
{
	TbIo	   *io = op->store->io;
	TbOp	   *after;
	size_t		at;

	if (!op->store->ops->merges || op->wants == NULL || op->kind != TB_RANGE_AT || op->alone || op->merged ||
		op->unless_version != NULL || op->attempt > 0 || op->length >= MERGE_ALONE)
		return;
	op->near_object = hash_object(op);
	op->near_hash = tb_mix64(op->near_object ^ (op->offset / TB_MERGE_SPAN));
	at = op->near_hash % TB_NEAR_BUCKETS;
	after = io->near_last[at];
	for (int i = 0; after != NULL && (after->near_hash > op->near_hash ||
									  (after->near_hash == op->near_hash && after->offset > op->offset)); i++)
	{
		if (i == SORT_STEPS)
			return;
		after = after->near_prev;
	}
	op->near = true;
	op->near_prev = after;
	op->near_next = after != NULL ? after->near_next : io->near_first[at];
	if (after != NULL)
		after->near_next = op;
	else
		io->near_first[at] = op;
	if (op->near_next != NULL)
		op->near_next->near_prev = op;
	else
		io->near_last[at] = op;
	io->near_bytes += op->length;
}

void
tb_near_remove(TbOp *op)
{
	TbIo	   *io = op->store->io;
	size_t		at = op->near_hash % TB_NEAR_BUCKETS;

	if (!op->near)
		return;
	if (op->near_prev != NULL)
		op->near_prev->near_next = op->near_next;
	else
		io->near_first[at] = op->near_next;
	if (op->near_next != NULL)
		op->near_next->near_prev = op->near_prev;
	else
		io->near_last[at] = op->near_prev;
	op->near_prev = op->near_next = NULL;
	op->near = false;
	io->near_bytes -= op->length;
}

static bool
same_object(const TbOp *a, const TbOp *b)
{
	if (a->near_hash != b->near_hash || a->store != b->store || strcmp(a->key, b->key) != 0)
		return false;
	if (a->if_version == NULL || b->if_version == NULL)
		return a->if_version == b->if_version;
	return strcmp(a->if_version, b->if_version) == 0;
}

/* What a request covers, and how many bytes of it are wanted. */
typedef struct Cover
{
	uint64_t	first;
	uint64_t	end;
	uint64_t	needed;
} Cover;

/* Whether a read may join: then *cover includes it. target: bytes that are enough. */
static bool
join(Cover *cover, const TbOp *op, uint64_t target)
{
	uint64_t	end = op->offset + op->length;
	uint64_t	gap = op->offset > cover->end ? op->offset - cover->end : end < cover->first ? cover->first - end : 0;
	Cover		both = {.first = op->offset < cover->first ? op->offset : cover->first,
	.end = end > cover->end ? end : cover->end};
	uint64_t	more = both.end - both.first - (cover->end - cover->first) - gap;

	both.needed = cover->needed + more;
	if (more == 0 && gap == 0)
		return true;			/* it is there already */
	if (gap > MERGE_GAP || both.needed > target || both.end - both.first - both.needed > both.needed / MERGE_WASTE)
		return false;
	*cover = both;
	return true;
}

/* Give what other brings to op. */
static void
take_in(TbOp *op, TbOp *other)
{
	TbWant	   *last = other->wants;

	for (TbWant *want = other->wants; want != NULL; want = want->op_next)
	{
		want->op = op;
		last = want;
		tb_store_count(op->store, merged, 1);
	}
	last->op_next = op->wants;
	if (op->wants != NULL)
		op->wants->op_prev = last;
	op->wants = other->wants;
	other->wants = NULL;
	op->merged = true;
	tb_op_dequeue(other);
	tb_op_absorbed(other);
}

void
tb_near_absorb(TbOp *op)
{
	TbIo	   *io = op->store->io;
	int			places = MERGE_PLACES - io->n_started;
	uint64_t	target = io->near_bytes / (places > 1 ? (uint64_t) places : 1);
	Cover		cover = {.first = op->offset, .end = op->offset + op->length, .needed = op->length};
	TbOp	   *after;
	TbOp	   *before;

	if (!op->near)
		return;
	if (target < MERGE_GAP)
		target = MERGE_GAP;		/* less is not worth a request of its own */
	after = op->near_next;
	before = op->near_prev;
	tb_near_remove(op);
	while (after != NULL && same_object(op, after) && join(&cover, after, target))
	{
		TbOp	   *next = after->near_next;

		take_in(op, after);
		after = next;
	}
	while (before != NULL && same_object(op, before) && join(&cover, before, target))
	{
		TbOp	   *next = before->near_prev;

		take_in(op, before);
		before = next;
	}
	note_trail(io, op->near_object, cover.first, cover.end);
	if (!op->merged)
		return;
	op->offset = cover.first;
	op->length = cover.end - cover.first;
	op->into = NULL;
	op->into_bytes = 0;
}
