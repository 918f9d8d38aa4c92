/* Budgets: who asks for too much waits in line until others give back or its patience ends. */
#include "dev/dev.h"

#include <string.h>

void
tb_budget_init(TbBudget *budget, TbLoop *loop, uint64_t limit, int64_t patience_ns)
{
	memset(budget, 0, sizeof(*budget));
	budget->loop = loop;
	budget->limit = limit;
	budget->patience_ns = patience_ns;
}

static void
unlink_ticket(TbBudget *budget, TbTicket *ticket)
{
	TbTicket  **at = &budget->head;
	TbTicket   *before = NULL;

	while (*at != NULL && *at != ticket)
	{
		before = *at;
		at = &(*at)->next;
	}
	if (*at == NULL)
		return;
	*at = ticket->next;
	if (budget->tail == ticket)
		budget->tail = before;
	ticket->next = NULL;
}

/* Patience has ended. */
static void
give_up(TbTimer *timer)
{
	TbTicket   *ticket = (TbTicket *) timer;

	unlink_ticket(ticket->budget, ticket);
	ticket->state = TB_TICKET_NONE;
	ticket->done(ticket, TB_E_NOMEM);
}

/* Serve the line from its head as far as the budget goes. */
static void
serve(TbBudget *budget)
{
	while (budget->head != NULL && budget->head->bytes <= budget->limit - budget->used)
	{
		TbTicket   *ticket = budget->head;

		unlink_ticket(budget, ticket);
		tb_loop_disarm(budget->loop, &ticket->timer);
		budget->used += ticket->bytes;
		ticket->state = TB_TICKET_HELD;
		ticket->done(ticket, TB_OK);
	}
}

TbStatus
tb_ticket_take(TbBudget *budget, TbTicket *ticket, uint64_t bytes,
			   void (*done) (TbTicket *ticket, TbStatus status))
{
	TbStatus	status;

	ticket->budget = budget;
	ticket->bytes = bytes;
	ticket->done = done;
	ticket->next = NULL;
	if (bytes > budget->limit)
		return TB_E_NOMEM;
	if (budget->head == NULL && bytes <= budget->limit - budget->used)
	{
		budget->used += bytes;
		ticket->state = TB_TICKET_HELD;
		return TB_OK;
	}
	ticket->timer.fire = give_up;
	status = tb_loop_arm(budget->loop, &ticket->timer, budget->patience_ns);
	if (status != TB_OK)
		return status;
	ticket->state = TB_TICKET_WAITING;
	if (budget->tail != NULL)
		budget->tail->next = ticket;
	else
		budget->head = ticket;
	budget->tail = ticket;
	return TB_AGAIN;
}

void
tb_ticket_drop(TbTicket *ticket)
{
	TbBudget   *budget = ticket->budget;

	if (ticket->state == TB_TICKET_NONE)
		return;
	if (ticket->state == TB_TICKET_WAITING)
	{
		tb_loop_disarm(budget->loop, &ticket->timer);
		unlink_ticket(budget, ticket);
	}
	else
		budget->used -= ticket->bytes;
	ticket->state = TB_TICKET_NONE;
	serve(budget);
}
