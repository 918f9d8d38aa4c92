/*
 * The engine's allocator: malloc with checked sizes, a byte count and a hook that fails the n-th
 * call for the torture tests. Engine memory is never palloc'd and palloc'd memory is never freed
 * here.
 */
#ifndef TB_BASE_MEM_H
#define TB_BASE_MEM_H

#include "base/error.h"

#define TB_ALIGN 64				/* a cache line, a vector register */

/*
 * All return NULL when memory is gone; n * size is checked. owns: the caller, tb_free. thread: any.
 */
extern void *tb_malloc(size_t bytes) __attribute__((malloc));
extern void *tb_calloc(size_t n, size_t size) __attribute__((malloc));
extern void *tb_malloc_aligned(size_t bytes) __attribute__((malloc));	/* at TB_ALIGN bytes */
extern void *tb_realloc(void *pointer, size_t bytes) TB_MUST_CHECK;
extern void *tb_realloc_array(void *pointer, size_t n, size_t size) TB_MUST_CHECK;
extern char *tb_strdup(const char *text);
extern char *tb_strndup(const char *text, size_t bytes);
extern void tb_free(void *pointer);
extern void tb_free_secret(char *text); /* overwritten first; NULL allowed */

/* printf into fresh memory, NULL when memory is gone. */
extern char *tb_asprintf(const char *format, ...) TB_PRINTF(1, 2);

/*
 * Test hook: fail the n-th allocation from now (1 = the next), 0 = off. Returns allocations since
 * last call.
 */
extern uint64_t tb_mem_fail_after(uint64_t n);

/* Live allocations, for leak checks in tests. */
extern int64_t tb_mem_live(void);

/* Checked arithmetic for every size that comes from a file: false on overflow, *out untouched. */
static inline bool
tb_mul_size(size_t a, size_t b, size_t *out)
{
	size_t		r;

	if (__builtin_mul_overflow(a, b, &r))
		return false;
	*out = r;
	return true;
}

static inline bool
tb_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	uint64_t	r;

	if (__builtin_mul_overflow(a, b, &r))
		return false;
	*out = r;
	return true;
}

static inline bool
tb_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	uint64_t	r;

	if (__builtin_add_overflow(a, b, &r))
		return false;
	*out = r;
	return true;
}

#endif
