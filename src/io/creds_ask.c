/* What providers share: words for having none, variables, small files. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* O_CLOEXEC */
#endif

#include "io/creds_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TbStatus
tb_ask_none(TbAsk *ask, const char *format, ...)
{
	char		text[sizeof(ask->error.message)];
	va_list		args;

	va_start(args, format);
	(void) vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return tb_fail(&ask->error, TB_E_AUTH, "%s", text);
}

TbStatus
tb_ask_nomem(TbAsk *ask)
{
	return tb_fail(&ask->error, TB_E_NOMEM, "out of memory");
}

const char *
tb_ask_env(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : NULL;
}

static TbStatus
read_all(int fd, size_t size, TbBuf *buf)
{
	while (buf->len < size)
	{
		ssize_t		n = read(fd, buf->data + buf->len, size - buf->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return TB_E_IO;
		if (n == 0)
			break;
		buf->len += (size_t) n;
	}
	buf->data[buf->len] = '\0';
	return TB_OK;
}

TbBuf *
tb_ask_file(TbAsk *ask, const char *path)
{
	struct stat st;
	int			fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	TbBuf	   *buf = NULL;

	if (fd < 0)
	{
		tb_fail_errno(&ask->error, errno, "read credentials file", path);
		return NULL;
	}
	if (fstat(fd, &st) != 0)
		tb_fail_errno(&ask->error, errno, "read credentials file", path);
	else if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t) st.st_size > TB_CREDS_FILE_MAX)
		tb_ask_none(ask, "credentials file is too large or no file");
	else if ((buf = tb_buf_new((size_t) st.st_size + 1)) == NULL)
		tb_ask_nomem(ask);
	else if (read_all(fd, (size_t) st.st_size, buf) != TB_OK)
	{
		tb_ask_none(ask, "credentials file cannot be read");
		tb_wipe_buf(buf);
		buf = NULL;
	}
	(void) close(fd);
	return buf;
}
