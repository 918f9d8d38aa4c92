/*
 * What the tests of blocks share: an engine, waiting, and a builder of stored arrays whose values
 * are known. The builder is written for plainness, not speed: it is the reference the engine is
 * compared with.
 */
#ifndef TB_TEST_BLOCK_HELP_H
#define TB_TEST_BLOCK_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "block/block.h"

#define SAMPLE_FILL (-77)

/* An int32 array to build. */
typedef struct Sample
{
	const char *path;
	bool		v2;
	bool		f_order;		/* v2 order F, v3 transpose to the reverse order */
	bool		zstd;
	bool		index_at_start;
	bool		index_crc;
	char		separator;
	int			ndim;
	uint64_t	shape[4];
	uint64_t	chunk[4];		/* innermost */
	int			n_levels;
	uint64_t	shard[3][4];	/* outermost first */
	int			missing_percent;
	uint32_t	seed;
	int32_t		add;			/* to every value */
	/* made */
	int32_t    *values;			/* C order, with fill where chunks are missing */
	size_t		n;
	uint32_t	state;
} Sample;

extern uint32_t sample_random(uint32_t *state);
/* Make the values and put metadata and chunks into the store. */
extern void sample_build(Sample *sample, TbStore *store);
extern void sample_free(Sample *sample);
extern int32_t sample_at(const Sample *sample, const uint64_t *index);
/* What a region must hold. owns: the caller, free(). */
extern int32_t *sample_region(const Sample *sample, const TbRegion *region, size_t *n);
extern void sample_random_shape(Sample *sample, uint32_t *state);
extern void sample_random_region(const Sample *sample, uint32_t *state, TbRegion *region);

extern void put_text(TbStore *store, const char *key, const char *text);
extern void put_bytes(TbStore *store, const char *key, const void *bytes, size_t len);

extern TbEngine *engine_open(int threads);
/* Pump until poll no longer says AGAIN; fails after 20 s. */
#define WAIT(engine, status, call) \
	do \
	{ \
		int64_t		wait_start_ = tb_now_ns(); \
		while (((status) = (call)) == TB_AGAIN) \
		{ \
			tb_engine_wait((engine), 100); \
			if (tb_now_ns() - wait_start_ > INT64_C(20000000000)) \
				fail_msg("nothing happens any more"); \
		} \
	} \
	while (0)

/* Open, wait, fail the test on error. */
extern TbArray *array_open(TbEngine *engine, TbSource *source, const char *path);
extern TbFetch *fetch_open(TbEngine *engine, TbArray *array, const TbRegion *region);

#define assert_ok(status, error) \
	do \
	{ \
		if ((status) != TB_OK) \
			fail_msg("%s: %s (%s)", tb_status_name(status), (error).message, (error).detail); \
	} \
	while (0)

#endif
