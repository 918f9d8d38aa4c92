/* Drafts of grids: what drafts.c and draft_names.c share. */
#ifndef TB_BLOCK_DRAFTS_H
#define TB_BLOCK_DRAFTS_H

#include "block/internal.h"

/* Give every draft its table name, all different. errors: NOMEM. */
extern TbStatus tb_drafts_name(TbGridDrafts *drafts, const char *root_path, const char *store_name,
							   TbError *err) TB_MUST_CHECK;

#endif
