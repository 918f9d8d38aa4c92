/*
 * Log lines. A line is one write of less than a pipe's atomic size, printable ASCII; where the
 * pipe is full it is dropped, because the loop must not wait for whoever reads it.
 */
#include "streamer/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINE 900

void
tb_log(const char *format, ...)
{
	char		line[MAX_LINE + 2];
	struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
	va_list		args;
	int			n;

	va_start(args, format);
	n = vsnprintf(line, MAX_LINE, format, args);
	va_end(args);
	if (n < 0)
		return;
	n = n < MAX_LINE ? n : MAX_LINE - 1;
	for (int i = 0; i < n; i++)
		if (line[i] < 0x20 || line[i] > 0x7e)
			line[i] = '?';
	line[n++] = '\n';
	/* a pipe that has room has it for a whole line: see pipe(7), PIPE_BUF */
	if (poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0)
		while (write(STDERR_FILENO, line, (size_t) n) < 0 && errno == EINTR)
			;
}

void
tb_log_error(const char *doing, const TbError *error)
{
	if (error->detail[0] != '\0')
		tb_log("%s: %s (%s)", doing, error->message, error->detail);
	else
		tb_log("%s: %s", doing, error->message);
}
