/* Private to the room: parts of an older build taken over into a new one after the grid has grown.
 */
#ifndef TB_HSI_CARRY_H
#define TB_HSI_CARRY_H

#include "hsi/writer.h"

typedef struct TbCarry TbCarry;

/* Start a build for the grown grid with the cutting of an older head, and copying what of it still
 * holds. Takes old. */
extern TbStatus tb_carry_open(TbHsiWriter *writer, TbHead *old, TbError *err) TB_MUST_CHECK;
/* AGAIN, then OK: the new head covers what was carried over, and is published if that is anything.
 */
extern TbStatus tb_carry_poll(TbHsiWriter *writer, TbError *err) TB_MUST_CHECK;
extern void tb_carry_free(TbCarry *carry);

#endif
