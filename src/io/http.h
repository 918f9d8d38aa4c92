/*
 * libcurl's multi interface on the engine's loop: transfers are started, stopped and watched here.
 * What is asked and what an answer means is left to store_http.c and http_answer.c.
 */
#ifndef TB_IO_HTTP_H
#define TB_IO_HTTP_H

#include <curl/curl.h>

#include "io/store.h"

struct TbPeers;					/* io/http_peer.h */

typedef struct TbTransfer
{
	/* its owner's */
	CURL	   *easy;			/* owned; tb_http_easy, curl_easy_cleanup */
	void		(*done) (struct TbTransfer *transfer, CURLcode code);	/* from the pump; no longer running */
	bool		answered;		/* the first byte of an answer came */
	uint64_t	bytes;			/* of its body, so far */
	bool		sends;			/* it has a body to send: what was sent counts as progress */
	const struct TbPeers *peers;	/* borrowed; where it may connect to. NULL: anywhere */

	/* http.c's */
	TbHttp	   *http;			/* borrowed */
	struct TbTransfer *prev;
	struct TbTransfer *next;
	bool		stalled;		/* ended by our time limits */
	bool		no_sockets;		/* the process has no descriptor left */
	bool		no_memory;
	bool		refused;		/* an address was not allowed, */
	bool		permitted;		/* another was */
	bool		excess;			/* its connection had bytes that nobody asked for: nothing was sent */
	uint64_t	sent;			/* bytes of the body it sends, at the last look */
	int64_t		waited_ns;		/* for the first byte */
	int64_t		window_ns;		/* of the speed that is being measured */
	uint64_t	window_bytes;	/* bytes at its start */
} TbTransfer;

extern TbStatus tb_http_new(TbLoop *loop, const TbIoOptions *options, TbHttp **http, TbError *err);
extern void tb_http_free(TbHttp *http); /* no transfer is running; NULL allowed */

/* Make transfer->easy, with everything set that all requests share. errors: NOMEM. */
extern TbStatus tb_http_easy(TbHttp *http, TbTransfer *transfer);
extern TbStatus tb_http_start(TbHttp *http, TbTransfer *transfer) TB_MUST_CHECK;
extern void tb_http_stop(TbHttp *http, TbTransfer *transfer);	/* done is not called; never blocks */

/* What went wrong below HTTP. Fills op's status and error. text: curl's own words, may be empty. */
extern void tb_http_failure(const TbTransfer *transfer, CURLcode code, const char *text, TbOp *op);

#endif
