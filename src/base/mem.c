/*
 * The engine's allocator over malloc. The three counters below are the engine's only writable
 * globals: they count every thread's calls, so that a test can fail any of them and see that
 * nothing leaks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero */
#endif

#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int_least64_t live;		/* allocations not yet freed */
static atomic_uint_least64_t calls;		/* allocations since the last tb_mem_fail_after */
static atomic_uint_least64_t fail_in;	/* the call to fail, counted down; 0: off */

/* Count one allocation; true where the test hook wants it to fail. */
static bool
count_call(void)
{
	uint64_t	left;

	atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
	left = atomic_load_explicit(&fail_in, memory_order_relaxed);
	while (left > 0)
		if (atomic_compare_exchange_weak(&fail_in, &left, left - 1))
			return left == 1;
	return false;
}

static void *
count_live(void *pointer)
{
	if (pointer != NULL)
		atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
	return pointer;
}

/* bytes 0 gives a pointer too: NULL always means that memory is gone. */
void *
tb_malloc(size_t bytes)
{
	if (count_call())
		return NULL;
	return count_live(malloc(bytes > 0 ? bytes : 1));
}

/* Zeroed memory for n elements. */
void *
tb_calloc(size_t n, size_t size)
{
	size_t		bytes;

	if (count_call() || !tb_mul_size(n, size, &bytes))
		return NULL;
	return count_live(calloc(1, bytes > 0 ? bytes : 1));
}

/* As tb_malloc, aligned at TB_ALIGN bytes; freed by tb_free, not to be grown by tb_realloc. */
void *
tb_malloc_aligned(size_t bytes)
{
	void	   *pointer;

	if (count_call() || posix_memalign(&pointer, TB_ALIGN, bytes > 0 ? bytes : 1) != 0)
		return NULL;
	return count_live(pointer);
}

/* On failure the old memory stays as it is. */
void *
tb_realloc(void *pointer, size_t bytes)
{
	void	   *grown;

	if (count_call())
		return NULL;
	grown = realloc(pointer, bytes > 0 ? bytes : 1);
	return pointer == NULL ? count_live(grown) : grown;
}

void *
tb_realloc_array(void *pointer, size_t n, size_t size)
{
	size_t		bytes;

	if (!tb_mul_size(n, size, &bytes))
		return NULL;
	return tb_realloc(pointer, bytes);
}

char *
tb_strdup(const char *text)
{
	return tb_strndup(text, strlen(text));
}

/* At most bytes of text, ended by a NUL. */
char *
tb_strndup(const char *text, size_t bytes)
{
	size_t		len = strnlen(text, bytes);
	char	   *copy = tb_malloc(len + 1);

	if (copy == NULL)
		return NULL;
	memcpy(copy, text, len);
	copy[len] = '\0';
	return copy;
}

/* NULL allowed. */
void
tb_free(void *pointer)
{
	if (pointer == NULL)
		return;
	atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
	free(pointer);
}

void
tb_free_secret(char *text)
{
	if (text != NULL)
		explicit_bzero(text, strlen(text));
	tb_free(text);
}

char *
tb_asprintf(const char *format, ...)
{
	va_list		args;
	int			len;
	char	   *text;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len < 0)
		return NULL;
	text = tb_malloc((size_t) len + 1);
	if (text == NULL)
		return NULL;
	va_start(args, format);
	(void) vsnprintf(text, (size_t) len + 1, format, args);
	va_end(args);
	return text;
}

/* Arm or disarm the hook. It fails one call and is off again. */
uint64_t
tb_mem_fail_after(uint64_t n)
{
	uint64_t	made = atomic_exchange(&calls, 0);

	atomic_store(&fail_in, n);
	return made;
}

int64_t
tb_mem_live(void)
{
	return atomic_load(&live);
}
