/* The device kinds, for table.c; nothing outside this room includes this file. */
#ifndef TB_DEV_DEVICE_H
#define TB_DEV_DEVICE_H

#include "dev/dev.h"

extern const TbDevice tb_device_host;

#endif
