/*
 * Devices: memory that batches are decoded into and that clients map. A device kind is one file
 * with one const TbDevice and one line in table.c. Memory of a device is never handed to another
 * client: each allocation begins zeroed and is freed, not reused.
 */
#ifndef TB_DEV_H
#define TB_DEV_H

#include "base/base.h"

typedef struct TbDevice TbDevice;

/* One allocation. */
typedef struct TbDevMem
{
	const TbDevice *device;		/* NULL: none */
	uint8_t    *host;			/* where the CPU writes it: the memory itself on `host` */
	size_t		bytes;
	int			fd;				/* descriptor that shares it, the allocation's; -1: none */
	void	   *impl;			/* the device's own */
} TbDevMem;

struct TbDevice
{
	const char *name;

	/* True where this kind serves the device a client asked for: "host", "cuda:0", a GPU's UUID. */
	bool		(*serves) (const char *wanted);

	/* Zeroed memory, shareable, its size sealed. errors: NOMEM, IO. */
	TbStatus	(*alloc) (const char *wanted, size_t bytes, TbDevMem *mem, TbError *err);
	void		(*free) (TbDevMem *mem);

	/*
	 * Bring [offset, offset + bytes) of host to the device; NULL where host is the device's own
	 * memory.
	 */
	TbStatus	(*copy) (TbDevMem *mem, size_t offset, size_t bytes, TbError *err);
};

/* errors: UNSUPPORTED, listing the devices there are. */
extern TbStatus tb_device_find(const char *wanted, const TbDevice **device,
							   TbError *err) TB_MUST_CHECK;

extern TbStatus tb_dev_alloc(const char *wanted, size_t bytes, TbDevMem *mem,
							 TbError *err) TB_MUST_CHECK;
extern void tb_dev_free(TbDevMem *mem);	/* no-op on none */

/*
 * A budget of bytes. What asks for more than is left waits in line, first come first served, for
 * at most the budget's patience. All of it belongs to the loop's thread.
 */
typedef struct TbBudget
{
	TbLoop	   *loop;			/* borrowed */
	uint64_t	limit;
	uint64_t	used;
	int64_t		patience_ns;
	struct TbTicket *head;		/* waiting */
	struct TbTicket *tail;
} TbBudget;

typedef enum TbTicketState
{
	TB_TICKET_NONE, TB_TICKET_WAITING, TB_TICKET_HELD
} TbTicketState;

/* Embed it; zero it before first use. */
typedef struct TbTicket
{
	TbTimer		timer;			/* first: the loop gives it back */
	TbBudget   *budget;
	uint64_t	bytes;
	TbTicketState state;
	struct TbTicket *next;
	void		(*done) (struct TbTicket *ticket, TbStatus status); /* OK or NOMEM, from the loop */
} TbTicket;

extern void tb_budget_init(TbBudget *budget, TbLoop *loop, uint64_t limit, int64_t patience_ns);
/* OK: held at once. AGAIN: `done` will be called. NOMEM: more than the whole budget. */
extern TbStatus tb_ticket_take(TbBudget *budget, TbTicket *ticket, uint64_t bytes,
							   void (*done) (TbTicket *ticket, TbStatus status)) TB_MUST_CHECK;
/* Give back what is held, or leave the line; no-op on none. */
extern void tb_ticket_drop(TbTicket *ticket);

#endif
