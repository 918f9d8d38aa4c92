/*
 * Filling error records. Texts are made safe here, once for all: whatever a server or a file put
 * into an argument, a record holds valid UTF-8 without control characters, cut at a whole
 * character. Raising errors and SQLSTATEs are left to the host.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* one known form of strerror_r, whatever the build's flags */
#endif

#include "base/error.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Copy text to dst (size bytes with the NUL); a byte that is no plain text becomes '?'. */
static void
copy_clean(char *dst, size_t size, const char *text)
{
	const uint8_t *src = (const uint8_t *) text;
	size_t		left = strlen(text);
	size_t		used = 0;

	while (left > 0)
	{
		size_t		n = tb_utf8_step(src, left);
		bool		bad = n == 0 || *src < 0x20 || *src == 0x7f;

		if (bad)
			n = 1;
		if (used + n >= size)
			break;
		if (bad)
			dst[used] = '?';
		else
			memcpy(dst + used, src, n);
		used += n;
		src += n;
		left -= n;
	}
	dst[used] = '\0';
}

/*
 * Format into dst. The text is built aside, because an argument may point into the record that is
 * filled; a character cut in half at the end is dropped, not shown as '?'.
 */
static void
format_clean(char *dst, size_t size, const char *format, va_list args)
{
	char		text[sizeof(((TbError *) NULL)->detail)];
	int			wanted = vsnprintf(text, sizeof(text), format, args);

	if (wanted < 0)
		text[0] = '\0';
	else if ((size_t) wanted >= sizeof(text))
	{
		size_t		end = sizeof(text) - 1;
		size_t		start = end;

		/* step back to the start of the last character, at most three bytes */
		while (start > end - 3 && ((uint8_t) text[start - 1] & 0xc0) == 0x80)
			start--;
		if ((uint8_t) text[start - 1] >= 0xc0 &&
			tb_utf8_step((const uint8_t *) text + start - 1, end - (start - 1)) == 0)
			text[start - 1] = '\0';
	}
	copy_clean(dst, size, text);
}

/* Fill err anew. err may be NULL. */
TbStatus
tb_fail(TbError *err, TbStatus code, const char *format, ...)
{
	char		message[sizeof(err->message)];
	va_list		args;

	if (err == NULL)
		return code;
	va_start(args, format);
	format_clean(message, sizeof(message), format, args);
	va_end(args);
	tb_error_clear(err);
	err->code = code;
	memcpy(err->message, message, sizeof(message));
	return code;
}

/* Append a part to the detail; what does not fit is cut. */
void
tb_error_detail(TbError *err, const char *format, ...)
{
	char		part[sizeof(err->detail)];
	size_t		used;
	va_list		args;

	if (err == NULL)
		return;
	va_start(args, format);
	format_clean(part, sizeof(part), format, args);
	va_end(args);
	used = strlen(err->detail);
	if (used > 0 && used + 2 < sizeof(err->detail))
	{
		memcpy(err->detail + used, "; ", 3);
		used += 2;
	}
	copy_clean(err->detail + used, sizeof(err->detail) - used, part);
}

/* Set the hint. */
void
tb_error_hint(TbError *err, const char *format, ...)
{
	char		hint[sizeof(err->hint)];
	va_list		args;

	if (err == NULL)
		return;
	va_start(args, format);
	format_clean(hint, sizeof(hint), format, args);
	va_end(args);
	memcpy(err->hint, hint, sizeof(hint));
}

static TbStatus
status_of_errno(int sys_errno)
{
	switch (sys_errno)
	{
		case ENOSPC:
		case EDQUOT:
			return TB_E_NO_SPACE;
		case EACCES:
		case EPERM:
			return TB_E_DENIED;
		case ENOENT:
			return TB_E_NOT_FOUND;
		case ENOMEM:
			return TB_E_NOMEM;
		default:
			return TB_E_IO;
	}
}

/* Fill err from errno: "could not <doing>", the detail "<object>: <the system's words>". */
TbStatus
tb_fail_errno(TbError *err, int sys_errno, const char *doing, const char *object)
{
	TbStatus	status = status_of_errno(sys_errno);
	char		buffer[128];
	const char *words = strerror_r(sys_errno, buffer, sizeof(buffer));

	tb_fail(err, status, "could not %s", doing);
	if (err == NULL)
		return status;
	err->sys_errno = sys_errno;
	if (object != NULL)
		tb_error_detail(err, "%s: %s", object, words);
	else
		tb_error_detail(err, "%s", words);
	return status;
}

/* Make err say nothing. */
void
tb_error_clear(TbError *err)
{
	if (err == NULL)
		return;
	memset(err, 0, sizeof(*err));
	err->retry_after_ms = -1;
}

/* The short word for a status. */
const char *
tb_status_name(TbStatus status)
{
	static const char *const names[] = {
		[TB_OK] = "ok",
		[TB_AGAIN] = "again",
		[TB_E_NOMEM] = "no memory",
		[TB_E_CANCELED] = "canceled",
		[TB_E_IO] = "io",
		[TB_E_NO_SPACE] = "no space",
		[TB_E_CONNECT] = "connect",
		[TB_E_LOST] = "lost",
		[TB_E_PROTOCOL] = "protocol",
		[TB_E_THROTTLED] = "throttled",
		[TB_E_AUTH] = "auth",
		[TB_E_DENIED] = "denied",
		[TB_E_NOT_FOUND] = "not found",
		[TB_E_NO_GROUP] = "no group",
		[TB_E_NO_ARRAY] = "no array",
		[TB_E_CHANGED] = "changed",
		[TB_E_CORRUPT] = "corrupt",
		[TB_E_INDEX_CORRUPT] = "index corrupt",
		[TB_E_UNSUPPORTED] = "unsupported",
		[TB_E_INVALID] = "invalid",
		[TB_E_JSON] = "json",
		[TB_E_JSON_DUPLICATE] = "json duplicate",
		[TB_E_TEXT] = "text",
		[TB_E_RANGE] = "range",
		[TB_E_LIMIT] = "limit",
		[TB_E_HANDLE] = "handle",
		[TB_E_UNAVAILABLE] = "unavailable",
		[TB_E_SHAPE] = "shape",
		[TB_E_NULL] = "null",
		[TB_E_STATE] = "state",
		[TB_E_INTERNAL] = "internal",
	};

	if ((unsigned int) status >= sizeof(names) / sizeof(names[0]) || names[status] == NULL)
		return "unknown";
	return names[status];
}
