/* The command line as a table: a name, where it goes, and how large it may be. */
#include "streamer/options.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum Kind
{
	KIND_TEXT, KIND_INT, KIND_BOOL, KIND_OCTAL, KIND_BYTES
} Kind;

typedef struct Row
{
	const char *name;
	Kind		kind;
	size_t		offset;			/* in TbOptions */
	int64_t		min;
	int64_t		max;
} Row;

static const Row rows[] = {
	{"--control", KIND_TEXT, offsetof(TbOptions, control_path), 0, 0},
	{"--control-fd", KIND_INT, offsetof(TbOptions, control_fd), 0, INT_MAX},
	{"--client", KIND_TEXT, offsetof(TbOptions, client_path), 0, 0},
	{"--client-mode", KIND_OCTAL, offsetof(TbOptions, client_mode), 0, 0777},
	{"--mode", KIND_OCTAL, offsetof(TbOptions, client_mode), 0, 0777},
	{"--parent", KIND_INT, offsetof(TbOptions, parent), 1, INT_MAX},
	{"--lifeline", KIND_INT, offsetof(TbOptions, lifeline), 0, INT_MAX},
	{"--threads", KIND_INT, offsetof(TbOptions, hub.threads), 0, 1024},
	{"--ring-limit", KIND_BYTES, offsetof(TbOptions, hub.ring_limit), 0, INT64_MAX},
	{"--work-limit", KIND_BYTES, offsetof(TbOptions, hub.work_limit), 0, INT64_MAX},
	{"--ring-wait", KIND_INT, offsetof(TbOptions, hub.patience_ms), 0, INT_MAX},
	{"--max-connections", KIND_INT, offsetof(TbOptions, hub.io.max_connections), 0, 65536},
	{"--max-requests", KIND_INT, offsetof(TbOptions, hub.io.max_requests_in_flight), 0, 65536},
	{"--connect-timeout", KIND_INT, offsetof(TbOptions, hub.io.connect_timeout_ms), 0, INT_MAX},
	{"--first-byte-timeout", KIND_INT, offsetof(TbOptions, hub.io.first_byte_timeout_ms), 0,
	 INT_MAX},
	{"--low-speed-bytes", KIND_INT, offsetof(TbOptions, hub.io.low_speed_bytes), 0, INT_MAX},
	{"--low-speed-seconds", KIND_INT, offsetof(TbOptions, hub.io.low_speed_seconds), 0, INT_MAX},
	{"--retries", KIND_INT, offsetof(TbOptions, hub.io.retries), -1, 1000},
	{"--io-memory", KIND_BYTES, offsetof(TbOptions, hub.io.io_memory_bytes), 0, INT64_MAX},
	{"--hedge-percent", KIND_INT, offsetof(TbOptions, hub.io.hedge_percent), -1, 100},
	{"--cache-directory", KIND_TEXT, offsetof(TbOptions, hub.io.cache_directory), 0, 0},
	{"--cache-size", KIND_BYTES, offsetof(TbOptions, hub.io.cache_bytes), 0, INT64_MAX},
	{"--cache-max-age", KIND_INT, offsetof(TbOptions, hub.io.cache_max_age_ms), 0, INT_MAX},
	{"--no-uring", KIND_BOOL, offsetof(TbOptions, hub.io.no_uring), 0, 1},
	{"--node", KIND_TEXT, offsetof(TbOptions, node_path), 0, 0},
};

static TbStatus
bad_option(TbError *err, const char *name, const char *what)
{
	tb_fail(err, TB_E_INVALID, "invalid option");
	tb_error_detail(err, "%s: %s", name, what);
	return TB_E_INVALID;
}

static TbStatus
take_value(const Row *row, const char *text, TbOptions *options, TbError *err)
{
	char	   *field = (char *) options + row->offset;
	char	   *end;
	long long	number;

	if (row->kind == KIND_TEXT)
	{
		memcpy(field, &text, sizeof(text));
		return TB_OK;
	}
	errno = 0;
	number = strtoll(text, &end, row->kind == KIND_OCTAL ? 8 : 10);
	if (errno != 0 || end == text || *end != '\0' || number < row->min || number > row->max)
		return bad_option(err, row->name, "value is out of range or no number");
	if (row->kind == KIND_BYTES)
	{
		uint64_t	bytes = (uint64_t) number;

		memcpy(field, &bytes, sizeof(bytes));
	}
	else if (row->kind == KIND_BOOL)
	{
		bool		value = number != 0;

		memcpy(field, &value, sizeof(value));
	}
	else
	{
		int			value = (int) number;

		memcpy(field, &value, sizeof(value));
	}
	return TB_OK;
}

static const Row *
find_row(const char *name)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	return NULL;
}

/* Decode threads by default: one a processor. */
static int
processors(void)
{
	long		n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > 64 ? 64 : (int) n;
}

TbStatus
tb_options_parse(int argc, char **argv, TbOptions *options, TbError *err)
{
	memset(options, 0, sizeof(*options));
	options->control_fd = -1;
	options->lifeline = -1;
	options->client_mode = 0777;
	for (int i = 1; i < argc; i += 2)
	{
		const Row  *row = find_row(argv[i]);
		TbStatus	status;

		if (row == NULL)
			return bad_option(err, argv[i], "not known");
		if (i + 1 == argc)
			return bad_option(err, argv[i], "value is missing");
		status = take_value(row, argv[i + 1], options, err);
		if (status != TB_OK)
			return status;
	}
	if ((options->control_fd < 0) == (options->control_path == NULL))
		return bad_option(err, "--control", "either it or --control-fd is required");
	if (options->client_path == NULL)
		return bad_option(err, "--client", "is required");
	if (options->hub.threads == 0)
		options->hub.threads = processors();
	return TB_OK;
}
