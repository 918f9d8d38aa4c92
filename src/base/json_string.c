/*
 * JSON strings, both ways: unescaping what is read, with every check on the characters, and
 * quoting what is written.
 */
#include "base/json_internal.h"
#include "base/utf8.h"

#include <string.h>

static TbStatus
append(TbJsonReader *reader, TbBuf *text, const void *bytes, size_t n)
{
	if (tb_buf_append(text, bytes, n, SIZE_MAX) != TB_OK)
		return tb_fail(reader->err, TB_E_NOMEM, "out of memory");
	return TB_OK;
}

static TbStatus
append_code_point(TbJsonReader *reader, TbBuf *text, uint32_t code)
{
	uint8_t		bytes[4];
	size_t		n;

	if (code < 0x80)
	{
		bytes[0] = (uint8_t) code;
		n = 1;
	}
	else if (code < 0x800)
	{
		bytes[0] = (uint8_t) (0xc0 | code >> 6);
		n = 2;
	}
	else if (code < 0x10000)
	{
		bytes[0] = (uint8_t) (0xe0 | code >> 12);
		n = 3;
	}
	else
	{
		bytes[0] = (uint8_t) (0xf0 | code >> 18);
		n = 4;
	}
	for (size_t i = 1; i < n; i++)
		bytes[i] = (uint8_t) (0x80 | (code >> 6 * (n - 1 - i) & 0x3f));
	return append(reader, text, bytes, n);
}

/* Four hexadecimal digits at reader->at. */
static bool
read_hex4(TbJsonReader *reader, uint32_t *code)
{
	uint32_t	value = 0;

	if (reader->end - reader->at < 4)
		return false;
	for (int i = 0; i < 4; i++)
	{
		uint8_t		c = reader->at[i];

		if (c >= '0' && c <= '9')
			value = value << 4 | (uint32_t) (c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = value << 4 | (uint32_t) ((c | 0x20) - 'a' + 10);
		else
			return false;
	}
	reader->at += 4;
	*code = value;
	return true;
}

/* Behind "\u": one code point, of one escape or of a pair. */
static TbStatus
read_unicode_escape(TbJsonReader *reader, TbBuf *text)
{
	uint32_t	code;
	uint32_t	low;

	if (!read_hex4(reader, &code))
		return tb_json_reject(reader, "four hexadecimal digits are expected");
	if (code == 0)
		return tb_json_reject(reader, "the character U+0000 is not supported");
	if (code >= 0xdc00 && code <= 0xdfff)
		return tb_json_reject(reader, "low surrogate without a high one");
	if (code >= 0xd800 && code <= 0xdbff)
	{
		if (reader->end - reader->at < 2 || memcmp(reader->at, "\\u", 2) != 0)
			return tb_json_reject(reader, "high surrogate without a low one");
		reader->at += 2;
		if (!read_hex4(reader, &low))
			return tb_json_reject(reader, "four hexadecimal digits are expected");
		if (low < 0xdc00 || low > 0xdfff)
			return tb_json_reject(reader, "high surrogate without a low one");
		code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
	}
	return append_code_point(reader, text, code);
}

static TbStatus
read_escape(TbJsonReader *reader, TbBuf *text)
{
	static const char escapes[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	const char *found;
	uint8_t		c;

	reader->at++;
	if (reader->at == reader->end)
		return tb_json_reject(reader, "a string is not ended");
	c = *reader->at;
	if (c == 'u')
	{
		reader->at++;
		return read_unicode_escape(reader, text);
	}
	found = c != '\0' ? strchr(escapes, c) : NULL;
	if (found == NULL)
		return tb_json_reject(reader, "unknown escape");
	reader->at++;
	return append(reader, text, meanings + (found - escapes), 1);
}

TbStatus
tb_json_read_string(TbJsonReader *reader, TbBuf *text)
{
	const uint8_t *quote = reader->at;

	text->len = 0;
	reader->at++;
	while (reader->at < reader->end && *reader->at != '"')
	{
		const uint8_t *run = reader->at;
		TbStatus	status = TB_OK;

		while (reader->at < reader->end && *reader->at != '"' && *reader->at != '\\')
		{
			size_t		n = tb_utf8_step(reader->at, (size_t) (reader->end - reader->at));

			if (n == 0)
				return tb_json_reject(reader, "invalid UTF-8");
			if (*reader->at < 0x20)
				return tb_json_reject(reader, "control character in a string");
			reader->at += n;
		}
		if (reader->at > run)
			status = append(reader, text, run, (size_t) (reader->at - run));
		else
			status = read_escape(reader, text);
		if (status != TB_OK)
			return status;
	}
	if (reader->at == reader->end)
	{
		reader->at = quote;
		return tb_json_reject(reader, "a string is not ended");
	}
	reader->at++;
	return TB_OK;
}

/* text is UTF-8. errors: NOMEM. */
TbStatus
tb_json_quote(TbBuf *buf, const char *text)
{
	static const char hex[] = "0123456789abcdef";
	TbStatus	status = tb_buf_append(buf, "\"", 1, SIZE_MAX);

	while (status == TB_OK && *text != '\0')
	{
		uint8_t		c = (uint8_t) *text;
		char		escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
		size_t		run = 0;

		while ((uint8_t) text[run] >= 0x20 && text[run] != '"' && text[run] != '\\')
			run++;
		if (run > 0)
			status = tb_buf_append(buf, text, run, SIZE_MAX);
		else if (c < 0x20)
			status = tb_buf_append(buf, escape, sizeof(escape), SIZE_MAX);
		else
		{
			escape[1] = *text;
			status = tb_buf_append(buf, escape, 2, SIZE_MAX);
		}
		text += run > 0 ? run : 1;
	}
	return status == TB_OK ? tb_buf_append(buf, "\"", 1, SIZE_MAX) : status;
}
