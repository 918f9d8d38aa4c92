/*
 * What credentials are made of; private to creds*.c. A provider is one file with one const TbCredsProvider and
 * a line in creds_source.c. It is asked: it fills ask->keys at once, or makes HTTP requests one after another
 * and fills them from the answers. Files and environment are read on the spot: they are small and local.
 */
#ifndef TB_IO_CREDS_PARTS_H
#define TB_IO_CREDS_PARTS_H

#include "io/creds.h"
#include "io/http.h"

#define TB_CREDS_FILE_MAX ((size_t) 1 << 20)	/* most bytes of a file */
#define TB_CREDS_ANSWER_MAX ((size_t) 64 << 10)	/* most bytes of an answer */
#define TB_CREDS_REQUEST_MS 2000
#define TB_CREDS_PROVIDERS 8	/* most in a list */

/* ---- keys (creds_keys.c) ---- */
typedef struct TbKeys
{
	char	   *access_key_id;	/* owned, wiped, as the others; NULL: none */
	char	   *secret_access_key;
	char	   *session_token;
	int64_t		expires_ns;		/* monotonic; INT64_MAX: not told */
} TbKeys;

extern void tb_keys_wipe(TbKeys *keys); /* to none */
extern bool tb_keys_same(const TbKeys *a, const TbKeys *b); /* the secrets, not when they expire */
/* Replaces what keys holds. Empty texts count as NULL. errors: NOMEM, INVALID (id or token), then keys are none. */
extern TbStatus tb_keys_copy(TbKeys *keys, const char *access_key_id, const char *secret_access_key,
							 const char *session_token) TB_MUST_CHECK;
/* Whether a text may go into a header: printable, no line ends, not empty, at most max bytes. */
extern bool tb_keys_text_ok(const char *text, size_t max);
extern void tb_wipe_buf(TbBuf *buf);	/* wipes and drops the only reference; NULL allowed */

/* ---- asking a provider ---- */
typedef struct TbCredsProvider TbCredsProvider;
typedef struct TbAsk TbAsk;

/* One request (creds_http.c). */
typedef struct TbAskHttp
{
	TbTransfer	transfer;
	TbTimer		timer;
	bool		running;
	bool		late;			/* the time is over but for what has come already */
	int			attempt;
	struct curl_slist *headers; /* owned, wiped */
	TbBuf	   *post;			/* owned, wiped; NULL: no body */
	TbBuf	   *body;			/* owned, wiped; of the answer */
} TbAskHttp;

struct TbAsk
{
	TbIo	   *io;				/* borrowed */
	const char *profile;		/* borrowed; NULL: not told */
	const char *region;			/* borrowed; NULL: not told */
	const TbCredsProvider *provider;
	void		(*ended) (TbAsk *ask, TbStatus status); /* from the pump, of one that was AGAIN */

	TbKeys		keys;			/* owned; found when OK */
	TbError		error;			/* why there are none */

	/* the provider's */
	int			step;
	char	   *secret;			/* owned, wiped: a token that later requests need */
	char	   *url;			/* owned: what later requests extend */
	TbAskHttp	http;
};

struct TbCredsProvider
{
	const char *name;
	/* OK: keys are filled. AGAIN: a request is under way. Else none are to be had here and error says why. */
	TbStatus	(*ask) (TbAsk *ask);
	/* A request was answered; as ask. NULL: makes none. */
	TbStatus	(*answered) (TbAsk *ask, long http_status, const TbBuf *body);
	/* A number that changes when the files that it reads do; 0: none. NULL: reads none. */
	uint64_t	(*stamp) (const TbAsk *ask);
};

extern const TbCredsProvider tb_creds_environment;
extern const TbCredsProvider tb_creds_profile;
extern const TbCredsProvider tb_creds_web_identity;
extern const TbCredsProvider tb_creds_container;
extern const TbCredsProvider tb_creds_instance;

/* Fill ask->error: this provider has none. Returns AUTH. */
extern TbStatus tb_ask_none(TbAsk *ask, const char *format, ...) TB_PRINTF(2, 3);
extern TbStatus tb_ask_nomem(TbAsk *ask);
/* A variable of the environment; NULL where it is empty or not set. */
extern const char *tb_ask_env(const char *name);
/* A small file, whole; NUL behind its end. NULL: ask->error says why. owns: the caller, tb_wipe_buf. */
extern TbBuf *tb_ask_file(TbAsk *ask, const char *path);

typedef struct TbAskRequest
{
	const char *method;			/* GET, PUT, POST */
	const char *url;
	const char *header[3];		/* whole lines; NULL: none */
	TbBuf	   *post;			/* taken over; NULL: no body */
} TbAskRequest;
/* Begin a request: AGAIN, or why not. The answer goes to provider->answered; no answer within the time ends the ask. */
extern TbStatus tb_ask_request(TbAsk *ask, const TbAskRequest *request) TB_MUST_CHECK;
/* Stop what is under way and forget all but keys and error. */
extern void tb_ask_clear(TbAsk *ask);

/* Answers (creds_answer.c). All fill ask->keys: OK, or ask->error says what is wrong. */
extern TbStatus tb_ask_take_json(TbAsk *ask, const TbBuf *body);
extern TbStatus tb_ask_take_xml(TbAsk *ask, const TbBuf *body);
/* "2026-12-01T03:00:00Z" as seconds since 1970; false: it is none. */
extern bool tb_creds_time(const char *text, int64_t *seconds);
/* The Code of an XML error, printable; "" where there is none. */
extern void tb_ask_xml_code(const TbBuf *body, char *code, size_t size);

/* ---- what stores with equal specs share (creds_source.c) ---- */
typedef struct TbCredsSource TbCredsSource;

/* errors: INVALID (unknown provider), NOMEM. owns: a use of the caller's, tb_creds_source_close. */
extern TbStatus tb_creds_source_open(TbIo *io, const TbStoreSpec *spec, TbCreds *user, TbCredsSource **source,
			TbError *err);
extern void tb_creds_source_close(TbCredsSource *source, TbCreds *user);
extern TbStatus tb_creds_source_get(TbCredsSource *source, const TbKeys **keys, uint64_t *serial, TbError *err);
extern bool tb_creds_source_refused(TbCredsSource *source, uint64_t serial);
/* Feed what tells its settings from others' to a hash. */
extern void tb_creds_source_hash(const TbCredsSource *source, TbSha256 *sha);

/* ---- of one store (creds.c) ---- */
struct TbCreds
{
	TbIo	   *io;				/* borrowed */
	bool		anonymous;
	TbKeys		keys;			/* owned; fixed ones */
	uint64_t	serial;
	TbCredsSource *source;		/* owned use; NULL: fixed ones */
	TbCreds    *next;			/* of the source's users */
	TbCredsWaiter *waiters;
	TbCredsWaiter *waking;		/* whose turn has come */
	TbTask		task;			/* wakes them */
	bool		deferred;
	bool		inside;			/* a wake is running */
	bool		freed;			/* by it: the memory goes when it returns */
};

extern void tb_creds_wake(TbCreds *creds);	/* all who wait now, from the next pump */

#endif
