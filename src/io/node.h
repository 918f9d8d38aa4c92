/*
 * The node's books: limits and counters that all processes of a server share, in one small mapped file. Each
 * process has a place in it, found to be free again when the process has died, however it died. Without a file
 * the same calls keep the books of this process alone.
 *
 * Fairness: a request is granted while the node has room, and while the process is below its share (the limit
 * divided by the processes that have requests) it is granted even then. So the sum may exceed the limit by what
 * processes held before others came, for the time of one request.
 *
 * thread: any; nothing here blocks; getpid apart no system calls but in open, close and looking after the dead. A
 * child that a process forks has no part in its parent's node: there everything is granted and nothing written.
 */
#ifndef TB_IO_NODE_H
#define TB_IO_NODE_H

#include "base/base.h"

typedef struct TbNode TbNode;

typedef struct TbNodeLimits
{
	int			connections;
	int			requests;
	uint64_t	memory_bytes;
} TbNodeLimits;

/* path: the mapped file, made with mode 0600 where it is missing, made anew where it is damaged or of another
 * version; NULL: none. errors: IO, DENIED, NO_SPACE, NOMEM. */
extern TbStatus tb_node_open(const char *path, TbNode **node, TbError *err) TB_MUST_CHECK;
extern void tb_node_close(TbNode *node);	/* gives back all that is taken; NULL allowed */
extern bool tb_node_is_shared(const TbNode *node);

/*
 * Take room for one request of so many bytes, under limits. false: there is none now; the caller has what waits
 * looked at again within TB_NODE_WAIT_MS (nobody calls it). A process with nothing taken is always granted one
 * request, whatever its size.
 */
#define TB_NODE_WAIT_MS 5
extern bool tb_node_take(TbNode *node, const TbNodeLimits *limits, uint64_t bytes) TB_MUST_CHECK;
extern void tb_node_give(TbNode *node, uint64_t bytes);
/* Most connections this process should hold now: its share of limits->connections among those with requests in the
 * last 10 s, at least 1. */
extern int	tb_node_connections(TbNode *node, const TbNodeLimits *limits);

/* Counters of a store, by name ("database.server"; cut at 127 bytes), monotonic since the books were made; never NULL:
 * when the table is full they go to a common last entry "(others)". Added to with tb_count. */
typedef struct TbNodeCounters
{
	uint64_t	requests;
	uint64_t	bytes;
	uint64_t	retries;
	uint64_t	missing;
	uint64_t	hedges;
	uint64_t	merged;
	uint64_t	throttled;
	uint64_t	errors;			/* reads that failed for good */
	uint64_t	cache_hits;
	uint64_t	cache_bytes;
	uint64_t	wait_ns;		/* reads from being asked for to their end, summed */
} TbNodeCounters;
extern TbNodeCounters *tb_node_counters(TbNode *node, const char *name);
#define tb_count(member, n) ((void) __atomic_add_fetch(&(member), (uint64_t) (n), __ATOMIC_RELAXED))

/* The i-th name and a copy of its counters; false at the end. name: borrowed from node. */
extern bool tb_node_each(TbNode *node, size_t i, const char **name, TbNodeCounters *counters);
/* What is taken now, by all processes. */
typedef struct TbNodeUse
{
	int			processes;		/* with a place */
	int			active;			/* with requests */
	int			requests;
	uint64_t	memory_bytes;
} TbNodeUse;
extern TbNodeUse tb_node_use(TbNode *node);

#endif
