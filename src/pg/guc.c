/*
 * Settings (tensorbank.*), defined once and read from tbpg_settings. What bounds a node's use of memory,
 * connections or files is the superuser's; the rest is anyone's.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "pg/tbpg.h"

TbpgSettings tbpg_settings;

static const struct config_enum_entry unindexed_values[] = {
	{"compute", TB_UNINDEXED_COMPUTE, false},
	{"error", TB_UNINDEXED_ERROR, false},
	{"exclude", TB_UNINDEXED_EXCLUDE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry io_method_values[] = {
	{"auto", TBPG_IO_AUTO, false},
	{"sync", TBPG_IO_SYNC, false},
	{NULL, 0, false}
};

typedef struct IntSetting
{
	const char *name;
	const char *text;
	int		   *value;
	int			boot;
	int			min;
	int			max;
	GucContext	context;
	int			flags;
} IntSetting;

static const IntSetting int_settings[] = {
	{"tensorbank.compute_limit", "Most data a query may read to compute statistics of blocks without an index.",
	&tbpg_settings.compute_limit_mb, 1024, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MB},
	{"tensorbank.metadata_max_age", "Time after which metadata, coordinates and the newest index are asked for again.",
	&tbpg_settings.metadata_max_age_ms, 60000, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MS},
	{"tensorbank.max_connections", "Most connections to stores of all sessions and the streamer together.",
	&tbpg_settings.max_connections, 128, 1, 65536, PGC_SUSET, 0},
	{"tensorbank.max_requests_in_flight", "Most requests under way of all sessions and the streamer together.",
	&tbpg_settings.max_requests_in_flight, 128, 1, 65536, PGC_SUSET, 0},
	{"tensorbank.io_memory", "Most memory of requests under way of all sessions and the streamer together.",
	&tbpg_settings.io_memory_mb, 256, 1, INT_MAX, PGC_SUSET, GUC_UNIT_MB},
	{"tensorbank.hedge_percent", "Most requests sent a second time because the first is late, in percent of all.",
	&tbpg_settings.hedge_percent, 5, 0, 100, PGC_SUSET, 0},
	{"tensorbank.cache_size", "Most disk space of the cache.",
	&tbpg_settings.cache_size_mb, 1024, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB},
	{"tensorbank.connect_timeout", "Time limit for connecting to a store.",
	&tbpg_settings.connect_timeout_ms, 10000, 1, INT_MAX, PGC_USERSET, GUC_UNIT_MS},
	{"tensorbank.first_byte_timeout", "Time limit for the first byte of an answer.",
	&tbpg_settings.first_byte_timeout_ms, 30000, 1, INT_MAX, PGC_USERSET, GUC_UNIT_MS},
	{"tensorbank.low_speed_limit", "Bytes a second below which a transfer counts as stalled.",
	&tbpg_settings.low_speed_bytes, 1000, 1, INT_MAX, PGC_USERSET, 0},
	{"tensorbank.low_speed_time", "How long a transfer may be stalled.",
	&tbpg_settings.low_speed_seconds, 20, 1, 3600, PGC_USERSET, GUC_UNIT_S},
	{"tensorbank.retries", "Further attempts after a request failed in a way that may pass.",
	&tbpg_settings.retries, 5, 0, 100, PGC_USERSET, 0},
	{"tensorbank.read_ahead", "Data that a scan may fetch ahead for read() in the same query.",
	&tbpg_settings.read_ahead_mb, 64, 0, 16384, PGC_USERSET, GUC_UNIT_MB},
	{"tensorbank.build_workers", "Parallel workers of build_index.",
	&tbpg_settings.build_workers, 2, 0, 64, PGC_USERSET, 0},
	{"tensorbank.streamer_threads", "Decode threads of the streamer, 0: one a processor.",
	&tbpg_settings.streamer_threads, 0, 0, 256, PGC_SIGHUP, 0},
	{"tensorbank.ring_limit", "Most memory of all stream rings and loads together, 0: a quarter of the machine's.",
	&tbpg_settings.ring_limit_mb, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB},
};

/* Also said of a file name that would be relative to the data directory. */
static bool
check_directory(char **value, void **extra, GucSource source)
{
	if (*value == NULL || **value == '\0' || is_absolute_path(*value))
		return true;
	GUC_check_errdetail("It must be empty or an absolute path.");
	return false;
}

void
tbpg_define_settings(void)
{
	DefineCustomEnumVariable("tensorbank.unindexed",
							 "What a query does about blocks whose statistics it needs and no index has.",
							 NULL, &tbpg_settings.unindexed, TB_UNINDEXED_COMPUTE, unindexed_values,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	for (size_t i = 0; i < lengthof(int_settings); i++)
	{
		const IntSetting *s = &int_settings[i];

		DefineCustomIntVariable(s->name, s->text, NULL, s->value, s->boot, s->min, s->max, s->context, s->flags,
								NULL, NULL, NULL);
	}
	DefineCustomStringVariable("tensorbank.streamer_program",
							   "Path of the streamer program, empty: the one installed with the module.",
							   NULL, &tbpg_settings.streamer_program, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("tensorbank.cache_directory",
							   "Directory of the cache of stored bytes, empty: no cache.",
							   NULL, &tbpg_settings.cache_directory, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_directory, NULL, NULL);
	DefineCustomEnumVariable("tensorbank.io_method",
							 "How the cache's files are read and written: auto (io_uring where the kernel has it) or sync.",
							 NULL, &tbpg_settings.io_method, TBPG_IO_AUTO, io_method_values,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("tensorbank");
}
