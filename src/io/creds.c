/*
 * The credentials of one store: fixed ones, none, or what a shared source says (creds_source.c). Those who wait
 * hang on it, so that they go with their store.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero */
#endif

#include "io/creds_parts.h"

#include <string.h>

/* Fixed keys, as given from above. */
static TbStatus
take_keys(TbKeys *keys, const char *access_key_id, const char *secret_access_key, const char *session_token,
		  TbError *err)
{
	TbStatus	status = tb_keys_copy(keys, access_key_id, secret_access_key, session_token);

	if (status == TB_E_NOMEM)
		return tb_fail(err, status, "out of memory");
	if (status != TB_OK)
	{
		tb_fail(err, status, "invalid access key id or session token");
		tb_error_hint(err, "They are printable characters without spaces; check the user mapping.");
	}
	return status;
}

TbStatus
tb_creds_new(TbIo *io, const TbStoreSpec *spec, TbCreds **creds, TbError *err)
{
	TbCreds    *new = tb_calloc(1, sizeof(*new));
	TbStatus	status = TB_OK;

	*creds = NULL;
	if (new == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	new->io = io;
	new->anonymous = spec->anonymous;
	new->serial = 1;
	if (!spec->anonymous && spec->credentials != NULL && spec->credentials[0] != '\0')
		status = tb_creds_source_open(io, spec, new, &new->source, err);
	else if (!spec->anonymous)
		status = take_keys(&new->keys, spec->access_key_id, spec->secret_access_key, spec->session_token, err);
	if (status != TB_OK)
	{
		tb_creds_free(new);
		return status;
	}
	*creds = new;
	return TB_OK;
}

void
tb_creds_free(TbCreds *creds)
{
	if (creds == NULL)
		return;
	for (TbCredsWaiter *w = creds->waiters; w != NULL; w = w->next)
		w->waiting = false;
	for (TbCredsWaiter *w = creds->waking; w != NULL; w = w->next)
		w->waiting = false;
	if (creds->deferred)
		tb_loop_undefer(creds->io->loop, &creds->task);
	if (creds->source != NULL)
		tb_creds_source_close(creds->source, creds);
	tb_keys_wipe(&creds->keys);
	creds->waiters = creds->waking = NULL;
	creds->freed = true;
	if (!creds->inside)
		tb_free(creds);
}

TbStatus
tb_creds_get(TbCreds *creds, TbCredsNow *now, TbError *err)
{
	const TbKeys *keys = &creds->keys;
	uint64_t	serial = creds->serial;

	memset(now, 0, sizeof(*now));
	if (creds->source != NULL)
	{
		TbStatus	status = tb_creds_source_get(creds->source, &keys, &serial, err);

		if (status != TB_OK)
			return status;
	}
	else if (!creds->anonymous && (keys->access_key_id == NULL || keys->secret_access_key == NULL))
	{
		tb_fail(err, TB_E_AUTH, "no credentials for the store");
		tb_error_hint(err,
			"Set access_key_id and secret_access_key in the user mapping, or the server's option anonymous.");
		return TB_E_AUTH;
	}
	now->access_key_id = keys->access_key_id;
	now->secret_access_key = keys->secret_access_key;
	now->session_token = keys->session_token;
	now->serial = serial;
	return TB_OK;
}

/* ---- waiting ---- */

void
tb_creds_wait(TbCreds *creds, TbCredsWaiter *waiter)
{
	waiter->waiting = true;
	waiter->next = creds->waiters;
	creds->waiters = waiter;
}

static bool
unlink_waiter(TbCredsWaiter **list, TbCredsWaiter *waiter)
{
	for (; *list != NULL; list = &(*list)->next)
		if (*list == waiter)
		{
			*list = waiter->next;
			return true;
		}
	return false;
}

void
tb_creds_leave(TbCreds *creds, TbCredsWaiter *waiter)
{
	if (!waiter->waiting)
		return;
	waiter->waiting = false;
	if (!unlink_waiter(&creds->waiters, waiter))
		(void) unlink_waiter(&creds->waking, waiter);
}

/* From the pump. A wake may free creds, and with it all who wait. */
static void
run_wake(TbTask *task)
{
	TbCreds    *creds = (TbCreds *) ((char *) task - offsetof(TbCreds, task));

	creds->deferred = false;
	creds->inside = true;
	while (creds->waking != NULL)
	{
		TbCredsWaiter *waiter = creds->waking;

		creds->waking = waiter->next;
		waiter->waiting = false;
		waiter->wake(waiter);
	}
	creds->inside = false;
	if (creds->freed)
		tb_free(creds);
}

void
tb_creds_wake(TbCreds *creds)
{
	TbCredsWaiter **end = &creds->waking;

	while (*end != NULL)
		end = &(*end)->next;
	*end = creds->waiters;
	creds->waiters = NULL;
	if (creds->waking == NULL || creds->deferred)
		return;
	creds->deferred = true;
	creds->task.run = run_wake;
	tb_loop_defer(creds->io->loop, &creds->task);
}

/* ---- change ---- */

bool
tb_creds_refused(TbCreds *creds, uint64_t serial)
{
	if (creds->source != NULL)
		return tb_creds_source_refused(creds->source, serial);
	return serial < creds->serial;
}

TbStatus
tb_creds_set(TbCreds *creds, const char *access_key_id, const char *secret_access_key, const char *session_token,
			 TbError *err)
{
	TbKeys		new = {.expires_ns = INT64_MAX};
	TbStatus	status;

	if (creds->source != NULL || creds->anonymous)
		return TB_OK;			/* nothing that is given replaces what a provider says */
	status = take_keys(&new, access_key_id, secret_access_key, session_token, err);
	if (status != TB_OK)
		return status;
	if (tb_keys_same(&new, &creds->keys))
	{
		tb_keys_wipe(&new);
		return TB_OK;
	}
	tb_keys_wipe(&creds->keys);
	creds->keys = new;
	creds->serial++;
	tb_creds_wake(creds);
	return TB_OK;
}

/* ---- scope ---- */

static int
hex_digit(char c)
{
	return c <= '9' ? c - '0' : c - 'a' + 10;
}

/*
 * The secret goes in, one way: who knows no more than a key id of somebody else's is not to share what was read
 * with it. (Keys are rotated together with their ids, so nothing is lost by that.) The token does not: sessions
 * come and go.
 */
void
tb_creds_scope(const TbCreds *creds, uint8_t scope[32])
{
	TbSha256   *sha = tb_sha256_new();
	char		hex[65];

	memset(scope, 0, 32);
	if (sha == NULL)
	{
		/* no memory: a scope that nobody shares */
		(void) !tb_random(scope, 32, NULL);
		return;
	}
	if (creds->anonymous)
		tb_sha256_add(sha, "anonymous", sizeof("anonymous"));
	else if (creds->source != NULL)
		tb_creds_source_hash(creds->source, sha);
	else
	{
		const char *id = creds->keys.access_key_id != NULL ? creds->keys.access_key_id : "";
		const char *secret = creds->keys.secret_access_key != NULL ? creds->keys.secret_access_key : "";

		tb_sha256_add(sha, "key", sizeof("key"));
		tb_sha256_add(sha, id, strlen(id) + 1);
		tb_sha256_add(sha, secret, strlen(secret) + 1);
	}
	tb_sha256_finish(sha, hex);
	if (hex[0] == '\0')
	{
		(void) !tb_random(scope, 32, NULL);
		return;
	}
	for (int i = 0; i < 32; i++)
		scope[i] = (uint8_t) (hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
}
