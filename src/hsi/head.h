/* Private to the room: the head of an index, the small document that says what is there. */
#ifndef TB_HSI_HEAD_H
#define TB_HSI_HEAD_H

#include "hsi/format.h"
#include "hsi/puts.h"

#define TB_HEAD_MAX_BYTES ((size_t) 16 << 20)
#define TB_HEAD_MAX_SERIAL 9999999999u
#define TB_BUILD_BYTES 33		/* 32 hexadecimal digits */

typedef struct TbHeadArray
{
	char	   *path;			/* owned; below the grid's group */
	char	   *packing;		/* owned; how elements become values, as text */
	TbDtype		stat;			/* type of the extremes */
} TbHeadArray;

typedef struct TbRun
{
	uint64_t	first;
	uint64_t	end;			/* one past the last */
} TbRun;

typedef struct TbHead
{
	uint64_t	serial;
	char		build[TB_BUILD_BYTES];
	bool		complete;		/* every part and the levels above are there */
	int			ndim;
	char	  **dim;			/* owned */
	uint64_t	shape[TB_MAX_DIM];	/* elements */
	uint64_t	cell[TB_MAX_DIM];
	uint64_t	blocks[TB_MAX_DIM];
	TbGeometry	geo;
	int			n_arrays;
	TbHeadArray *array;			/* owned */
	TbRun	   *run;			/* owned; parts done: sorted, apart */
	size_t		n_runs;
	size_t		cap_runs;
} TbHead;

extern void tb_head_free(TbHead *head);

/* errors: INDEX_CORRUPT (checksum, members, geometry), NOMEM. owns: *head is the caller's. */
extern TbStatus tb_head_parse(const void *text, size_t len, TbHead **head,
							  TbError *err) TB_MUST_CHECK;
/* Appends the canonical text. */
extern TbStatus tb_head_print(const TbHead *head, TbBuf *out) TB_MUST_CHECK;
/* A head for a grid and some of its arrays: no part done, serial 0. */
extern TbStatus tb_head_make(const TbGridInfo *info, const int *arrays, int n_arrays,
							 uint64_t part_blocks, TbHead **head, TbError *err) TB_MUST_CHECK;

/* The same dimensions, cell, order, and shape but for the length of the axis that grows. */
extern bool tb_head_fits(const TbHead *head, const TbGridInfo *info);
/* Where a grid's array is in the head, -1: not there, or decoded differently since. */
extern int	tb_head_find(const TbHead *head, const TbGridInfo *info, int array);

extern bool tb_head_has_part(const TbHead *head, uint64_t part);
extern bool tb_head_add_part(TbHead *head, uint64_t part);	/* false: no memory */
extern uint64_t tb_head_parts_done(const TbHead *head);

/* ---- finding the newest ---- */

/* "<key>/head-0000000001.json"; false: too long. */
extern bool tb_head_key(char *path, const char *key, uint64_t serial);

/* Look for the newest head below a key: by listing where the store can and lets us, else by asking for
 * serials. */
typedef struct TbFind TbFind;
extern TbStatus tb_find_open(TbSource *source, const char *key, TbFind **find,
							 TbError *err) TB_MUST_CHECK;
extern TbStatus tb_find_poll(TbFind *find, TbError *err) TB_MUST_CHECK;
/* After OK: its bytes (borrowed; NULL: there is none) and serial. */
extern const TbBuf *tb_find_result(const TbFind *find, uint64_t *serial);
extern void tb_find_free(TbFind *find);

/* Have puts delete heads that no reader looks for any more, after `serial` was published. Best effort. */
extern void tb_find_tidy(TbSource *source, const char *key, uint64_t serial, TbPuts *puts);

#endif
