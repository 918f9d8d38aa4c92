/*
 * Where the credentials of an s3 store come from, and when they are renewed. Private to the room.
 *
 * A TbCreds is the store's: fixed ones, or those of a provider (environment, profile, web identity, container,
 * instance), which are asked for when first needed, renewed in the background before they expire and at once
 * when the server says that they have. Several stores of an engine with equal specs share what a provider said
 * (a hundred stores, one request to the metadata service). Secrets are wiped when replaced and never enter a
 * TbError.
 *
 * No provider is asked unless the spec names it, so nothing waits for a metadata service that is not there; one
 * that is named and does not answer fails within 2 s.
 *
 * thread: the loop's.
 */
#ifndef TB_IO_CREDS_H
#define TB_IO_CREDS_H

#include "io/store.h"

typedef struct TbCreds TbCreds;

typedef struct TbCredsNow
{
	const char *access_key_id;	/* borrowed until the next call; NULL: anonymous */
	const char *secret_access_key;
	const char *session_token;	/* NULL: none */
	uint64_t	serial;			/* grows with each renewal */
} TbCredsNow;

/* errors: INVALID (unknown provider), NOMEM. Makes no request. */
extern TbStatus tb_creds_new(TbIo *io, const TbStoreSpec *spec, TbCreds **creds, TbError *err) TB_MUST_CHECK;
extern void tb_creds_free(TbCreds *creds);	/* waiters are forgotten, secrets wiped; NULL allowed */

/* OK with *now, AGAIN while a provider is asked (tb_creds_wait tells when), or AUTH: none to be had. */
extern TbStatus tb_creds_get(TbCreds *creds, TbCredsNow *now, TbError *err) TB_MUST_CHECK;
typedef struct TbCredsWaiter
{
	void		(*wake) (struct TbCredsWaiter *waiter); /* from the pump, once */
	void	   *arg;
	struct TbCredsWaiter *next;
	bool		waiting;
} TbCredsWaiter;
extern void tb_creds_wait(TbCreds *creds, TbCredsWaiter *waiter);
extern void tb_creds_leave(TbCreds *creds, TbCredsWaiter *waiter);

/* The server refused those of `serial` as expired or unknown. True: others are here or on their way (get
 * again); false: there are no others. */
extern bool tb_creds_refused(TbCreds *creds, uint64_t serial);
/* Replace fixed ones. errors: NOMEM. */
extern TbStatus tb_creds_set(TbCreds *creds, const char *access_key_id, const char *secret_access_key,
							 const char *session_token, TbError *err) TB_MUST_CHECK;
/* A hash over who they stand for (key id and, one way,
			its secret; or the provider and its settings; not the token): for the cache's
 * scope. Whoever knows only the key id of another shares nothing with them. */
extern void tb_creds_scope(const TbCreds *creds, uint8_t scope[32]);

#endif
