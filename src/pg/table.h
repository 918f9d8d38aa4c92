/* Counted use of an opened table, beyond the call that opened it. */
#ifndef TBPG_TABLE_H
#define TBPG_TABLE_H

#include "pg/tbpg.h"

/* Keep a table for as long as a memory context lives. */
extern void tbpg_table_pin(TbpgTable *table, MemoryContext context);
extern void tbpg_table_unpin(TbpgTable *table);

#endif
