/* Private to the room: what leaf jobs tell scans beside their public face. */
#ifndef TB_HSI_JOB_H
#define TB_HSI_JOB_H

#include "hsi/hsi.h"

extern uint64_t tb_leaf_job_requests(const TbLeafJob *job); /* after tb_leaf_job_result */

#endif
