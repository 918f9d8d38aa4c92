/* Log lines for the supervisor: whole lines on standard error, never waiting for a reader. */
#ifndef TB_STREAMER_LOG_H
#define TB_STREAMER_LOG_H

#include "base/base.h"

extern void tb_log(const char *format, ...) TB_PRINTF(1, 2);
extern void tb_log_error(const char *doing, const TbError *error);

#endif
