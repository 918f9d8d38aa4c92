/*
 * The layout of the node's books, private to node*.c. All processes map the same bytes, so everything in here is
 * either written once before the file has its name, or touched by atomics alone.
 */
#ifndef TB_IO_NODE_PARTS_H
#define TB_IO_NODE_PARTS_H

#include "io/node.h"

#define TB_NODE_PLACES 1024
#define TB_NODE_ROWS 256		/* the last one is "(others)" */
#define TB_NODE_NAME 128

typedef struct TbNodeSuper
{
	char		magic[8];
	uint32_t	version;
	uint32_t	places;
	uint32_t	rows;
	uint32_t	row_bytes;
	uint32_t	places_used;	/* places at and above it were never taken */
	char		unused[4068];
} TbNodeSuper;

/* One process. What it has taken is kept here alone: no sum is written down that a death could make wrong. */
typedef struct TbNodePlace
{
	uint64_t	owner;			/* 0: free; else process id and when it started, see node_file.c */
	uint64_t	memory_bytes;
	uint64_t	requests;
	int64_t		taken_ns;		/* CLOCK_MONOTONIC of the latest request */
	char		unused[32];		/* a cache line of its own */
} TbNodePlace;

typedef struct TbNodeRow
{
	uint64_t	hash;			/* of the name; 0: free */
	uint64_t	ready;			/* 1: the name is written */
	uint64_t	name[TB_NODE_NAME / 8]; /* text, NUL-filled; in words so that they can be written atomically */
	TbNodeCounters counters;
	char		unused[24];
} TbNodeRow;

typedef struct TbNodeBooks
{
	TbNodeSuper super;
	TbNodePlace place[TB_NODE_PLACES];
	TbNodeRow	row[TB_NODE_ROWS];
} TbNodeBooks;

_Static_assert(sizeof(TbNodeSuper) == 4096, "places begin on a page");
_Static_assert(sizeof(TbNodePlace) == 64, "a place is a cache line");
_Static_assert(sizeof(TbNodeRow) == 256, "rows are whole cache lines");

/* Map the books at path, or private ones where it is NULL. errors: IO, DENIED, NO_SPACE, NOMEM. */
extern TbStatus tb_node_map(const char *path, TbNodeBooks **books, TbError *err) TB_MUST_CHECK;

/* What stands for this process in a place; 0 where /proc does not tell when it started. */
extern uint64_t tb_node_self(void);
/* The process of that owner has ended. */
extern bool tb_node_is_dead(uint64_t owner);

#endif
