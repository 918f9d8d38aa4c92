/*
 * Private to the room: objects of an index on their way to the store, several at a time: at 20 ms an answer, one
 * after the other would be slow.
 */
#ifndef TB_HSI_PUTS_H
#define TB_HSI_PUTS_H

#include "base/base.h"
#include "io/io.h"

#define TB_PUTS_IN_FLIGHT 16
#define TB_PUTS_PLACES 48		/* the others are for deletes */

/* Zeroed memory is an empty one. */
typedef struct TbPuts
{
	TbJob	   *job[TB_PUTS_PLACES];	/* owned; NULL: free */
	size_t		bytes[TB_PUTS_PLACES];	/* that it writes */
	bool		quiet[TB_PUTS_PLACES];	/* how it ends does not matter */
	int			n;
	size_t		in_flight;		/* bytes of all */
	TbStatus	status;			/* the first failure, OK: none */
	TbError		error;
} TbPuts;

/* Whether another object has to wait. Looks at what has ended. */
extern bool tb_puts_full(TbPuts *puts);
/* Have bytes, which get a reference, written as key. errors: NOMEM, an earlier one's. */
extern TbStatus tb_puts_add(TbPuts *puts, TbStore *store, const char *key, TbBuf *bytes, TbError *err) TB_MUST_CHECK;
/* Have key deleted, best effort. */
extern void tb_puts_delete(TbPuts *puts, TbStore *store, const char *key);
/* AGAIN while anything is under way. The first failure ends the others. */
extern TbStatus tb_puts_wait(TbPuts *puts, TbError *err) TB_MUST_CHECK;
/* Forget all that is under way, and failures. */
extern void tb_puts_clear(TbPuts *puts);

#endif
