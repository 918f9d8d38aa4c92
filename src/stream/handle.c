/*
 * Handles in text: "stream.slot.tensor.generation@epoch", all hexadecimal. A handle grants nothing
 * by itself, and whatever is wrong with one, the answer is one text.
 */
#include "stream/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
tb_handle_print(const TbHandle *handle, char text[TB_HANDLE_TEXT])
{
	int			n = snprintf(text, TB_HANDLE_TEXT,
							 "%" PRIx64 ".%" PRIx32 ".%" PRIx32 ".%" PRIx64 "@",
							 handle->stream, handle->slot, handle->tensor, handle->generation);

	for (int i = 0; i < 16; i++)
		n += snprintf(text + n, TB_HANDLE_TEXT - (size_t) n, "%02x", handle->epoch[i]);
}

static int
digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One number up to `end`, at most max; *text is left behind the end. */
static bool
take_number(const char **text, char end, uint64_t max, uint64_t *value)
{
	uint64_t	v = 0;
	int			n = 0;

	for (; digit(**text) >= 0 && n < 16; n++)
		v = v << 4 | (uint64_t) digit(*(*text)++);
	if (n == 0 || **text != end || v > max)
		return false;
	(*text)++;
	*value = v;
	return true;
}

TbStatus
tb_handle_fail(TbError *err)
{
	tb_fail(err, TB_E_HANDLE, "invalid handle");
	tb_error_hint(err, "Load the tensor again, take the next batch, or open the stream again.");
	return TB_E_HANDLE;
}

TbStatus
tb_handle_parse(const char *text, TbHandle *handle, TbError *err)
{
	uint64_t	slot;
	uint64_t	tensor;

	memset(handle, 0, sizeof(*handle));
	if (!take_number(&text, '.', UINT64_MAX, &handle->stream) ||
		!take_number(&text, '.', UINT32_MAX, &slot) ||
		!take_number(&text, '.', UINT32_MAX, &tensor) ||
		!take_number(&text, '@', UINT64_MAX, &handle->generation) || strlen(text) != 32)
		return tb_handle_fail(err);
	for (int i = 0; i < 16; i++)
	{
		int			high = digit(text[2 * i]);
		int			low = digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return tb_handle_fail(err);
		handle->epoch[i] = (uint8_t) (high << 4 | low);
	}
	handle->slot = (uint32_t) slot;
	handle->tensor = (uint32_t) tensor;
	return TB_OK;
}
