/* Deliveries, as the hub sees them; private to the room. */
#ifndef TB_STREAM_DELIVERY_H
#define TB_STREAM_DELIVERY_H

#include "stream/session.h"

extern void tb_delivery_step(TbDelivery *delivery); /* move on what only polling shows */
extern TbDelivery *tb_delivery_next(TbDelivery *delivery);	/* in the hub's list */

#endif
