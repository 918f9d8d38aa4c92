/*
 * Credentials that somebody else hands out: which provider has some, until when they hold, and who shares them.
 * All stores of a TbIo that name the same providers and profile use one source, so that a hundred stores make
 * one request to a metadata service.
 *
 *   get: held ones -> OK     none -> ask the list in order -> OK (files, environment) | AGAIN -> ended -> wake | AUTH
 *   timer, before they expire: ask again while the old ones are used
 *   refused: ask again at once; the same answer again is no answer for who was refused. The others go on with
 *            it: a server that does not know a key says nothing about the servers that do
 */
#include "io/creds_parts.h"

#include <string.h>

#define EARLY_S 300				/* renewed so long before the end ... */
#define EARLY_SHARE 5			/* ... but not before 4/5 of a life */
#define PATIENCE_NS TB_NS_PER_S	/* what failed is not asked again sooner */
#define LOOK_NS TB_NS_PER_S		/* files are looked at so often */
#define AGAIN_MAX_S 60			/* longest pause after renewals that failed */

struct TbCredsSource
{
	TbCredsSource *next;		/* of the TbIo */
	TbIo	   *io;				/* borrowed */
	char	   *credentials;	/* owned, as the others; NULL: not told */
	char	   *profile;
	char	   *region;
	const TbCredsProvider *chain[TB_CREDS_PROVIDERS];
	int			n_chain;
	TbCreds    *users;
	uint32_t	uses;

	TbKeys		keys;			/* owned; none before the first answer */
	uint64_t	serial;			/* of keys; 0: none yet */
	uint64_t	refused;		/* serial that a server refused, others are asked for; 0: none */
	uint64_t	vain;			/* serial that others were asked for in vain; 0: none */
	int			at;				/* who is asked, or who had them */
	uint64_t	stamp;			/* of the files they came from */
	int64_t		looked_ns;
	TbAsk		ask;
	bool		asking;
	bool		failed;			/* the last time */
	int			failures;		/* in a row */
	int64_t		ended_ns;		/* when it was asked last */
	TbError		error;			/* of failed */
	TbTimer		renew;
};

static const TbCredsProvider *const providers[] = {
	&tb_creds_environment, &tb_creds_profile, &tb_creds_web_identity, &tb_creds_container, &tb_creds_instance,
};

/* ---- the list of names ---- */

static const TbCredsProvider *
find_provider(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(providers) / sizeof(providers[0]); i++)
		if (strlen(providers[i]->name) == len && memcmp(providers[i]->name, name, len) == 0)
			return providers[i];
	return NULL;
}

static TbStatus
bad_list(TbError *err)
{
	tb_fail(err, TB_E_INVALID, "unknown way to get credentials");
	tb_error_hint(err, "Use a list of environment, profile, web_identity, container and instance.");
	return TB_E_INVALID;
}

/* "environment, profile" -> chain. errors: INVALID. */
static TbStatus
parse_list(TbCredsSource *source, TbError *err)
{
	const char *p = source->credentials;

	for (;;)
	{
		const TbCredsProvider *found;
		size_t		len;

		p += strspn(p, " ");
		len = strcspn(p, " ,");
		found = find_provider(p, len);
		if (found == NULL || source->n_chain == TB_CREDS_PROVIDERS)
			return bad_list(err);
		source->chain[source->n_chain++] = found;
		p += len;
		p += strspn(p, " ");
		if (*p == '\0')
			return TB_OK;
		if (*p++ != ',')
			return bad_list(err);
	}
}

/* ---- asking ---- */

static bool
same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Renew before they end, or after a failure. Without a timer they are renewed when they have expired. */
static void
arm(TbCredsSource *source, int64_t now_ns)
{
	int64_t		left_ns = source->keys.expires_ns - now_ns;
	int64_t		delay_ns;

	tb_loop_disarm(source->io->loop, &source->renew);
	if (source->serial == 0 || source->keys.expires_ns == INT64_MAX || left_ns <= 0)
		return;
	if (source->failed)
		delay_ns = (source->failures < 6 ? INT64_C(1) << source->failures : AGAIN_MAX_S) * TB_NS_PER_S;
	else if (left_ns / EARLY_SHARE > EARLY_S * TB_NS_PER_S)
		delay_ns = left_ns - EARLY_S * TB_NS_PER_S;
	else
		delay_ns = left_ns - left_ns / EARLY_SHARE;
	if (delay_ns < TB_NS_PER_S)
		delay_ns = TB_NS_PER_S;
	(void) !tb_loop_arm(source->io->loop, &source->renew, delay_ns);
}

static TbStatus
failed(TbCredsSource *source, TbStatus status)
{
	source->failed = true;
	if (source->failures < 30)
		source->failures++;
	arm(source, source->ended_ns);
	return status;
}

/* Others were asked for after a refusal. Where there are none, those that are here stay for whom they serve. */
static void
end_refusal(TbCredsSource *source)
{
	if (source->refused == source->serial)
		source->vain = source->serial;
	source->refused = 0;
}

/* ask.keys are here: the source's from now on. */
static TbStatus
take(TbCredsSource *source)
{
	const TbCredsProvider *provider = source->chain[source->at];
	bool		known = source->serial > 0 && tb_keys_same(&source->ask.keys, &source->keys);

	source->ended_ns = tb_now_ns();
	source->stamp = provider->stamp != NULL ? provider->stamp(&source->ask) : 0;
	source->looked_ns = source->ended_ns;
	if (known)
		source->keys.expires_ns = source->ask.keys.expires_ns;
	else
	{
		tb_keys_wipe(&source->keys);
		source->keys = source->ask.keys;
		memset(&source->ask.keys, 0, sizeof(source->ask.keys));
		source->serial++;
	}
	tb_ask_clear(&source->ask);
	tb_keys_wipe(&source->ask.keys);
	end_refusal(source);
	source->failed = false;
	source->failures = 0;
	arm(source, source->ended_ns);
	return TB_OK;
}

static void
note_reason(TbCredsSource *source)
{
	const TbError *why = &source->ask.error;

	tb_error_detail(&source->error, "%s: %.120s%s%.160s", source->chain[source->at]->name, why->message,
					why->detail[0] != '\0' ? ", " : "", why->detail);
}

static void ask_ended(TbAsk *ask, TbStatus status);

/* Ask the list from source->at on. OK, AGAIN, or the last error. */
static TbStatus
ask_on(TbCredsSource *source)
{
	for (; source->at < source->n_chain; source->at++)
	{
		TbStatus	status;

		source->ask.io = source->io;
		source->ask.profile = source->profile;
		source->ask.region = source->region;
		source->ask.provider = source->chain[source->at];
		source->ask.ended = ask_ended;
		tb_error_clear(&source->ask.error);
		status = source->ask.provider->ask(&source->ask);
		source->asking = status == TB_AGAIN;
		if (status == TB_AGAIN)
			return status;
		if (status == TB_OK)
			return take(source);
		note_reason(source);
		tb_ask_clear(&source->ask);
		tb_keys_wipe(&source->ask.keys);
	}
	source->at = 0;
	source->ended_ns = tb_now_ns();
	end_refusal(source);
	return failed(source, TB_E_AUTH);
}

static TbStatus
ask_all(TbCredsSource *source)
{
	source->at = 0;
	tb_fail(&source->error, TB_E_AUTH, "no credentials could be found");
	tb_error_hint(&source->error,
		"Check the server's options credentials and profile, and the environment of the database server.");
	return ask_on(source);
}

/* One that was AGAIN has come to its end; the next in the list may have some. */
static void
ask_ended(TbAsk *ask, TbStatus status)
{
	TbCredsSource *source = (TbCredsSource *) ((char *) ask - offsetof(TbCredsSource, ask));

	source->asking = false;
	if (status == TB_OK)
		status = take(source);
	else
	{
		note_reason(source);
		tb_ask_clear(ask);
		tb_keys_wipe(&ask->keys);
		source->at++;
		status = ask_on(source);
	}
	if (status == TB_AGAIN)
		return;
	for (TbCreds *user = source->users; user != NULL; user = user->next)
		tb_creds_wake(user);
}

static void
renew_fired(TbTimer *timer)
{
	TbCredsSource *source = (TbCredsSource *) ((char *) timer - offsetof(TbCredsSource, renew));

	if (!source->asking)
		(void) ask_all(source);
}

/* ---- use ---- */

/* Whether the files have changed that the keys were read from. */
static bool
files_changed(TbCredsSource *source, int64_t now_ns)
{
	const TbCredsProvider *provider = source->chain[source->at];

	if (provider->stamp == NULL || source->asking || now_ns - source->looked_ns < LOOK_NS)
		return false;
	source->looked_ns = now_ns;
	source->ask.profile = source->profile;
	return provider->stamp(&source->ask) != source->stamp;
}

static bool
usable(const TbCredsSource *source, int64_t now_ns)
{
	return source->serial > 0 && source->serial != source->refused && now_ns < source->keys.expires_ns;
}

TbStatus
tb_creds_source_get(TbCredsSource *source, const TbKeys **keys, uint64_t *serial, TbError *err)
{
	int64_t		now_ns = tb_now_ns();

	/* what can be read no more leaves what was read before */
	if (usable(source, now_ns) && files_changed(source, now_ns))
		(void) ask_all(source);
	if (!usable(source, now_ns))
	{
		TbStatus	status = source->asking ? TB_AGAIN : TB_E_AUTH;

		if (!source->asking && (!source->failed || now_ns - source->ended_ns >= PATIENCE_NS))
			status = ask_all(source);
		if (status == TB_AGAIN)
			return status;
		if (status != TB_OK)
		{
			if (err != NULL)
				*err = source->error;
			return status;
		}
	}
	*keys = &source->keys;
	*serial = source->serial;
	return TB_OK;
}

bool
tb_creds_source_refused(TbCredsSource *source, uint64_t serial)
{
	if (serial < source->serial)
		return true;
	if (source->vain == serial && tb_now_ns() - source->ended_ns < PATIENCE_NS)
		return false;
	source->refused = serial;
	if (source->asking)
		return true;
	switch (ask_all(source))
	{
		case TB_OK:
			return source->serial > serial;
		case TB_AGAIN:
			return true;
		default:
			return false;
	}
}

void
tb_creds_source_hash(const TbCredsSource *source, TbSha256 *sha)
{
	static const char *const settings[] = {
		"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
			"AWS_ROLE_ARN",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT",
	};
	const char *profile = source->profile != NULL ? source->profile : "";

	tb_sha256_add(sha, "provider", sizeof("provider"));
	tb_sha256_add(sha, source->credentials, strlen(source->credentials) + 1);
	tb_sha256_add(sha, profile, strlen(profile) + 1);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
	{
		const char *value = tb_ask_env(settings[i]);

		if (value == NULL)
			value = "";
		tb_sha256_add(sha, value, strlen(value) + 1);
	}
}

/* ---- opening, closing ---- */

static void
source_free(TbCredsSource *source)
{
	tb_loop_disarm(source->io->loop, &source->renew);
	tb_ask_clear(&source->ask);
	tb_keys_wipe(&source->ask.keys);
	tb_keys_wipe(&source->keys);
	tb_free(source->credentials);
	tb_free(source->profile);
	tb_free(source->region);
	tb_free(source);
}

static TbStatus
source_new(TbIo *io, const TbStoreSpec *spec, TbCredsSource **source, TbError *err)
{
	TbCredsSource *new = tb_calloc(1, sizeof(*new));
	TbStatus	status;

	if (new == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	new->io = io;
	new->renew.fire = renew_fired;
	new->credentials = tb_strdup(spec->credentials);
	new->profile = spec->profile != NULL ? tb_strdup(spec->profile) : NULL;
	new->region = spec->region != NULL ? tb_strdup(spec->region) : NULL;
	if (new->credentials == NULL || (spec->profile != NULL && new->profile == NULL) ||
		(spec->region != NULL && new->region == NULL))
		status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else
		status = parse_list(new, err);
	if (status != TB_OK)
	{
		source_free(new);
		return status;
	}
	*source = new;
	return TB_OK;
}

TbStatus
tb_creds_source_open(TbIo *io, const TbStoreSpec *spec, TbCreds *user, TbCredsSource **source, TbError *err)
{
	TbCredsSource *found = io->creds;

	while (found != NULL && !(same(found->credentials, spec->credentials) && same(found->profile, spec->profile) &&
							  same(found->region, spec->region)))
		found = found->next;
	if (found == NULL)
	{
		TbStatus	status = source_new(io, spec, &found, err);

		if (status != TB_OK)
			return status;
		found->next = io->creds;
		io->creds = found;
	}
	found->uses++;
	user->next = found->users;
	found->users = user;
	*source = found;
	return TB_OK;
}

void
tb_creds_source_close(TbCredsSource *source, TbCreds *user)
{
	TbCreds   **at = &source->users;
	TbCredsSource **in_io = &source->io->creds;

	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
	if (--source->uses > 0)
		return;
	while (*in_io != source)
		in_io = &(*in_io)->next;
	*in_io = source->next;
	source_free(source);
}
