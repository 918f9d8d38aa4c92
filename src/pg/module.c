/*
 * Module entry: settings and hooks. Nothing starts here: no engine, thread, connection or file, since this
 * may run in the postmaster.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "pg/fdw.h"
#include "pg/supervisor.h"
#include "pg/tbpg.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	tbpg_define_settings();
	tbpg_supervisor_init();
	tbpg_lookahead_init();
}
