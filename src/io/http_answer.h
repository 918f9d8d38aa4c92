/*
 * The proof of an answer: what a server sends is judged as it comes, against what was asked. Knows
 * the op and the answer's bytes, not the network, so that tests feed it by hand.
 */
#ifndef TB_IO_HTTP_ANSWER_H
#define TB_IO_HTTP_ANSWER_H

#include "io/http_head.h"
#include "io/store.h"

typedef struct TbAnswer
{
	TbOp	   *op;				/* borrowed */
	TbHttpHead	head;
	bool		judged;			/* the head is complete and was looked at */
	bool		redirect;		/* the answer sends us elsewhere */
	bool		discard;		/* the body is of no interest */
	bool		keep_errors;	/* set after tb_answer_begin: what would be discarded goes to refusal */
	TbBuf	   *refusal;		/* owned; the beginning of the body of an error; NULL: none */
	bool		grow;			/* its length is not told: kept whole, cut at the end */
	uint64_t	skip;			/* bytes before the wanted ones */
	uint64_t	want;			/* bytes that land in op->data */
	uint64_t	expected;		/* of the body; UINT64_MAX: not told */
	uint64_t	received;
} TbAnswer;

extern void tb_answer_begin(TbAnswer *answer, TbOp *op);
extern void tb_answer_clear(TbAnswer *answer);	/* frees what it owns */
/* A header line; a piece of the body. false: no use to go on (op's outcome says why). */
extern bool tb_answer_header(TbAnswer *answer, const char *line, size_t len);
extern bool tb_answer_body(TbAnswer *answer, const uint8_t *bytes, size_t len);
/* The answer came to its end, as the transport says. Completes op's outcome. */
extern void tb_answer_end(TbAnswer *answer);

#endif
