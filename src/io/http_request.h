/*
 * Requests over HTTP for the stores that make them: an attempt of an op is a slot, which asks, is answered,
 * and may ask again within the attempt where the answer told how (a redirect, another region). A kind of
 * store says what is asked (url, headers) and what refusals mean; how ranges and bodies are proved is
 * http_answer.h's.
 */
#ifndef TB_IO_HTTP_REQUEST_H
#define TB_IO_HTTP_REQUEST_H

#include "io/http.h"
#include "io/http_answer.h"
#include "io/http_peer.h"

#define TB_HTTP_HOPS_MAX 3

typedef struct TbHttpStore TbHttpStore;

typedef struct TbHttpSlot
{
	TbTransfer	transfer;
	TbHttpStore *store;			/* borrowed */
	struct TbHttpSlot *next;	/* idle ones */
	TbAnswer	answer;			/* answer.op: the op served */
	char	   *url;			/* owned; of the request in flight */
	struct curl_slist *headers; /* owned; likewise, wiped */
	TbVerb		verb;			/* that the handle is set for */
	bool		running;		/* the transfer is */
	bool		resent;			/* after a kept connection proved dead */
	int			hops;			/* redirects of this attempt */
	char		text[CURL_ERROR_SIZE];	/* curl's words for a failure */
} TbHttpSlot;

typedef struct TbHttpKind
{
	size_t		slot_bytes;		/* TbHttpSlot first */
	bool		keeps_errors;	/* answered looks at the bodies of refusals */
	/* A new attempt: fill slot->url. errors: NOMEM. */
	TbStatus	(*begin) (TbHttpSlot *slot);
	/* Add the headers of a request to slot->url, which the generic ones are not among. AGAIN: tb_http_send
	 * is called again, from the pump. Other errors: op's outcome is filled. */
	TbStatus	(*dress) (TbHttpSlot *slot);
	/* An answer came, its part of op's outcome is filled. AGAIN: slot->url is to be asked (anew). Else the
	 * outcome is complete. */
	TbStatus	(*answered) (TbHttpSlot *slot);
	/* Stop what dress waits for. NULL: never waits. */
	void		(*leave) (TbHttpSlot *slot);
} TbHttpKind;

struct TbHttpStore
{
	TbStore		base;
	const TbHttpKind *kind;
	char	   *ca_file;		/* owned; NULL: the system's */
	char	   *user;			/* owned; NULL: none. Basic authentication */
	char	   *password;		/* owned, wiped */
	TbPeers    *peers;			/* owned */
	TbHttpSlot *idle;			/* owned */
};

/* Fill the common part of a store, of which kind and base.ops are set, and which connects to server_url;
 * takes over url. On failure it is freed with all that it owns by tb_http_store_free. errors: INVALID, NOMEM. */
extern TbStatus tb_http_store_init(TbHttpStore *store, TbIo *io, char *url, const char *server_url,
								   const TbStoreSpec *spec, TbError *err) TB_MUST_CHECK;
extern void tb_http_store_free(TbHttpStore *store);

/* A hash over texts, each NULL or a text, told apart by their places, and where the store may connect to: what
 * it could not reach it must not find in a cache. */
extern void tb_http_scope(const TbHttpStore *store, const char *const *text, size_t n, uint8_t scope[32]);

/* For vtables. */
extern void tb_http_op_start(TbOp *op);
extern void tb_http_op_stop(TbOp *op);

/* For kinds: add a header line. false: memory is gone. */
extern bool tb_http_header(TbHttpSlot *slot, const char *format, ...) TB_PRINTF(2, 3);
/* The value of the Range header, "" where all is asked. */
extern void tb_http_range(const TbOp *op, char range[64]);
/* The versions that If-Match and If-None-Match can ask for; NULL: none. */
extern const char *tb_http_match(const TbOp *op);
extern const char *tb_http_none_match(const TbOp *op);
/* Ask slot->url, from dress on. Does not return a failure: that ends the op, from the pump. */
extern void tb_http_send(TbHttpSlot *slot);
/* Go to another url, taken over; counts as a redirect. errors: PROTOCOL (too many), then op's outcome is
 * filled; AGAIN: go. */
extern TbStatus tb_http_go(TbHttpSlot *slot, char *url);
/* Make the words of a refusal op's outcome. */
extern TbStatus tb_http_refuse(TbHttpSlot *slot, const TbError *why);

extern void tb_http_free_headers(struct curl_slist *headers);	/* wiped */

#endif
