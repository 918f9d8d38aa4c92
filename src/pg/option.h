/* Option values as the rest of the room reads them. */
#ifndef TBPG_OPTION_H
#define TBPG_OPTION_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "tb.h"

/* "1, 90,180" -> numbers; how many, at most TB_MAX_DIM. errors: HV024 with the option's name. */
extern int	tbpg_option_shape(const char *name, const char *text, uint64_t *shape);
/* tb_stat_name() of a statistic option, -1: unknown. */
extern int	tbpg_option_stat(const char *text);
/* true/false/on/off as PostgreSQL reads booleans. errors: HV024. */
extern bool tbpg_option_bool(const char *name, const char *text);
extern bool tbpg_url_is_file(const char *url);
extern bool tbpg_url_is_s3(const char *url);

/* option_rule.c: which options go together. errors: HV00D, HV024, HV002, each with the option's name and a hint. */
extern void tbpg_check_server_options(List *options);
extern void tbpg_check_mapping_options(List *options);
/* Options that only a superuser may set, for a role: errors: 2F003 (credentials), 42501 (allowed_hosts). */
extern void tbpg_check_superuser_options(List *options, Oid role, const char *server);

#endif
