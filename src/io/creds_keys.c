/* Keys: copies that are wiped, and what a text of one may hold. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero */
#endif

#include "io/creds_parts.h"

#include <string.h>

#define HEADER_TEXT_MAX 65536

void
tb_wipe_buf(TbBuf *buf)
{
	if (buf != NULL && buf->cap > 0)
		explicit_bzero(buf->data, buf->cap);
	tb_buf_unref(buf);
}

void
tb_keys_wipe(TbKeys *keys)
{
	tb_free_secret(keys->access_key_id);
	tb_free_secret(keys->secret_access_key);
	tb_free_secret(keys->session_token);
	memset(keys, 0, sizeof(*keys));
}

static bool
same_text(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

bool
tb_keys_same(const TbKeys *a, const TbKeys *b)
{
	return same_text(a->access_key_id, b->access_key_id) && same_text(a->secret_access_key, b->secret_access_key) &&
		same_text(a->session_token, b->session_token);
}

/* Copy a text that may be NULL; false when memory is gone. */
static bool
copy_text(char **to, const char *from)
{
	if (from == NULL || from[0] == '\0')
		return true;
	*to = tb_strdup(from);
	return *to != NULL;
}

/* What goes into a header: no line ends, which would begin another one, nor spaces. */
static bool
header_text_ok(const char *text)
{
	return text == NULL || text[0] == '\0' || tb_keys_text_ok(text, HEADER_TEXT_MAX);
}

TbStatus
tb_keys_copy(TbKeys *keys, const char *access_key_id, const char *secret_access_key, const char *session_token)
{
	TbKeys		new = {.expires_ns = INT64_MAX};
	bool		ok = copy_text(&new.access_key_id, access_key_id) &&
		copy_text(&new.secret_access_key, secret_access_key) && copy_text(&new.session_token, session_token);

	tb_keys_wipe(keys);
	if (!ok || !header_text_ok(access_key_id) || !header_text_ok(session_token))
	{
		tb_keys_wipe(&new);
		return ok ? TB_E_INVALID : TB_E_NOMEM;
	}
	*keys = new;
	return TB_OK;
}

bool
tb_keys_text_ok(const char *text, size_t max)
{
	size_t		n = 0;

	if (text == NULL)
		return false;
	for (; text[n] != '\0'; n++)
		if (n >= max || (unsigned char) text[n] <= ' ' || (unsigned char) text[n] >= 0x7f)
			return false;
	return n > 0;
}
