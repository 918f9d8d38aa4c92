/* What the tests of the index share: a small archive in memory, its grid, statistics of every
 * block. */
#ifndef TB_TEST_HSI_HELP_H
#define TB_TEST_HSI_HELP_H

#include "block_help.h"
#include "hsi/head.h"
#include "hsi/pred.h"
#include "hsi/stat.h"

#define TEST_Y 32
#define TEST_X 32
#define TEST_ARRAYS 4			/* t: packed int16; f: float32 with gaps; k: int64; u: uint64 */

typedef struct Archive
{
	TbEngine   *engine;
	TbSource   *source;
	TbGrid	   *grid;
	const TbGridInfo *info;
	uint64_t	steps;
	TbLeaf	   *leaf;			/* owned; block-major, TEST_ARRAYS each */
	uint64_t   *version;		/* owned; per block */
} Archive;

extern uint64_t hsi_random(uint64_t *state);
/* time x lat x lon with cells 1 x 2 x 2: steps * 256 blocks. */
extern void archive_open(Archive *archive, uint64_t steps);
extern void archive_grow(Archive *archive, uint64_t steps);
extern void archive_reopen(Archive *archive);	/* the grid, after metadata has changed */
extern void archive_close(Archive *archive);
/* Metadata of array t; scale may differ from what archive_open wrote. */
extern void archive_put_t(Archive *archive, double scale);

/* Statistics of every block by leaf jobs. */
extern void archive_collect(Archive *archive);
extern TbHsi *archive_hsi(Archive *archive);
extern TbHsiWriter *archive_writer(Archive *archive, uint64_t part_blocks, bool rebuild);
/* Put parts [first, end) that are not there; finish: and complete it. */
extern void archive_build(Archive *archive, TbHsiWriter *writer, uint64_t first, uint64_t end,
						  bool finish);

/* A random predicate whose constants are near what is there. */
extern TbPred *archive_pred(const Archive *archive, uint64_t *state, int depth);
/* Whether a block's row can satisfy it, from the collected statistics. */
extern bool archive_matches(const Archive *archive, const TbPred *pred, uint64_t block);

/* Every key below a prefix. owns: the caller, keys_free. */
typedef struct Keys
{
	char	  **key;
	size_t		n;
} Keys;
extern void keys_list(TbStore *store, const char *prefix, Keys *keys);
extern void keys_free(Keys *keys);
extern TbBuf *object_read(Archive *archive, const char *key);

#endif
