/*
 * Where credentials come from: each provider against files, the environment and a scripted service; sharing,
 * waiting, renewal, refusal; and that no secret shows in an error.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* memmem */
#endif

#include "http_help.h"

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/creds.h"
#include "io/creds_parts.h"

#define ID "AKIDEXAMPLE"
#define SECRET "canary/SECRET+key"
#define TOKEN "canary-TOKEN=="

static const char *const variables[] = {
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE",
	"AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_ENDPOINT_URL_STS",
	"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT",
	"AWS_EC2_METADATA_DISABLED", "AWS_CA_BUNDLE",
};

static char folder[64];

/* Services as the test wants them. */
typedef struct Script
{
	int			life_s;			/* of the keys */
	int			status;			/* of the last answer; 0: 200 */
	int			failures;		/* 500 before that */
	bool		hang;
	bool		rotate;			/* another key id with each answer */
	int			answers;
	char		seen[16384];	/* head and body of the last request */
	pthread_mutex_t mu;			/* of seen */
} Script;

static int
setup(void **state)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	(void) strcpy(folder, "/tmp/tb-creds.XXXXXX");
	assert_non_null(mkdtemp(folder));
	setenv("HOME", folder, 1);
	return 0;
}

static int
teardown(void **state)
{
	char		command[128];

	(void) snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

static const char *
write_file(const char *name, const char *text)
{
	static char path[128];
	FILE	   *file;

	(void) snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	return path;
}

static void
iso_time(char text[32], int from_now_s)
{
	time_t		at = time(NULL) + from_now_s;
	struct tm	tm;

	gmtime_r(&at, &tm);
	(void) strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static TbCreds *
open_creds(Rig *rig, const char *credentials, const char *profile)
{
	TbStoreSpec spec = {.url = "s3://bucket", .credentials = credentials, .profile = profile};
	TbCreds    *creds;
	TbError		err;

	assert_int_equal(tb_creds_new(rig->io, &spec, &creds, &err), TB_OK);
	return creds;
}

static void
count_wake(TbCredsWaiter *waiter)
{
	++*(int *) waiter->arg;
}

/* Ask until there is an answer, as a store does. */
static TbStatus
await(Rig *rig, TbCreds *creds, TbCredsNow *now, TbError *err)
{
	int64_t		start = tb_now_ns();
	TbStatus	status;

	while ((status = tb_creds_get(creds, now, err)) == TB_AGAIN)
	{
		int			woken = 0;
		TbCredsWaiter waiter = {.wake = count_wake, .arg = &woken};

		tb_creds_wait(creds, &waiter);
		while (woken == 0 && seconds_since(start) < 10)
			(void) tb_loop_pump(rig->loop, 100);
		assert_int_equal(woken, 1);
		assert_false(waiter.waiting);
	}
	if (status != TB_OK)
	{
		assert_null(strstr(err->message, "canary"));
		assert_null(strstr(err->detail, "canary"));
		assert_null(strstr(err->hint, "canary"));
		assert_true(err->hint[0] != '\0');
	}
	return status;
}

static void
assert_keys(const TbCredsNow *now, const char *id, const char *secret, const char *token)
{
	assert_string_equal(now->access_key_id, id);
	assert_string_equal(now->secret_access_key, secret);
	if (token == NULL)
		assert_null(now->session_token);
	else
		assert_string_equal(now->session_token, token);
}

/* One provider with what is set: found, or none with words in the detail. */
static void
expect(const char *provider, const char *profile, const char *id, const char *token, const char *words)
{
	Rig			rig;
	TbCreds    *creds;
	TbCredsNow	now;
	TbError		err;

	rig_open(&rig, 0, NULL);
	creds = open_creds(&rig, provider, profile);
	if (id != NULL)
	{
		assert_int_equal(await(&rig, creds, &now, &err), TB_OK);
		assert_keys(&now, id, SECRET, token);
	}
	else
	{
		assert_int_equal(await(&rig, creds, &now, &err), TB_E_AUTH);
		if (strstr(err.detail, words) == NULL)
			fail_msg("\"%s\" is not in \"%s\"", words, err.detail);
	}
	tb_creds_free(creds);
	rig_close(&rig);
}

/* ---- fixed ---- */

static void
test_fixed(void **state)
{
	Rig			rig;
	TbStoreSpec spec = {.url = "s3://b", .access_key_id = ID, .secret_access_key = SECRET};
	TbCreds    *creds;
	TbCredsNow	now;
	TbError		err;
	int			woken = 0;
	TbCredsWaiter waiter = {.wake = count_wake, .arg = &woken};
	uint64_t	first;

	rig_open(&rig, 0, NULL);
	assert_int_equal(tb_creds_new(rig.io, &spec, &creds, &err), TB_OK);
	assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	assert_keys(&now, ID, SECRET, NULL);
	first = now.serial;
	assert_false(tb_creds_refused(creds, first));
	/* those who wait are told when others are set, once, from the pump */
	tb_creds_wait(creds, &waiter);
	assert_int_equal(tb_creds_set(creds, "AKID2", "s2", TOKEN, &err), TB_OK);
	assert_int_equal(woken, 0);
	(void) tb_loop_pump(rig.loop, 0);
	(void) tb_loop_pump(rig.loop, 0);
	assert_int_equal(woken, 1);
	assert_true(tb_creds_refused(creds, first));
	assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	assert_keys(&now, "AKID2", "s2", TOKEN);
	assert_true(now.serial > first);
	/* what would begin another header is not taken, whoever says it, and the old ones stay */
	assert_int_equal(tb_creds_set(creds, "AKID\r\nX-Other: 1", "s3", NULL, &err), TB_E_INVALID);
	assert_int_equal(tb_creds_set(creds, "AKID", "s3", "a\nb", &err), TB_E_INVALID);
	assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	assert_keys(&now, "AKID2", "s2", TOKEN);
	/* one that waits when they go is forgotten */
	tb_creds_wait(creds, &waiter);
	tb_creds_free(creds);
	assert_false(waiter.waiting);

	spec.access_key_id = "AK ID";
	assert_int_equal(tb_creds_new(rig.io, &spec, &creds, &err), TB_E_INVALID);
	assert_null(creds);
	spec.access_key_id = NULL;
	assert_int_equal(tb_creds_new(rig.io, &spec, &creds, &err), TB_OK);
	assert_int_equal(await(&rig, creds, &now, &err), TB_E_AUTH);
	tb_creds_free(creds);
	spec.anonymous = true;
	assert_int_equal(tb_creds_new(rig.io, &spec, &creds, &err), TB_OK);
	assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	assert_null(now.access_key_id);
	tb_creds_free(creds);
	spec.anonymous = false;
	spec.credentials = "environment, magic";
	assert_int_equal(tb_creds_new(rig.io, &spec, &creds, &err), TB_E_INVALID);
	spec.credentials = "environment,";
	assert_int_equal(tb_creds_new(rig.io, &spec, &creds, &err), TB_E_INVALID);
	rig_close(&rig);
}

static void
scope_of(Rig *rig, const TbStoreSpec *spec, uint8_t scope[32])
{
	TbCreds    *creds;

	assert_int_equal(tb_creds_new(rig->io, spec, &creds, NULL), TB_OK);
	tb_creds_scope(creds, scope);
	tb_creds_free(creds);
}

static void
test_scope(void **state)
{
	Rig			rig;
	TbStoreSpec a = {.url = "s3://b", .access_key_id = ID, .secret_access_key = SECRET};
	TbStoreSpec session = a;
	TbStoreSpec thief = a;
	TbStoreSpec anonymous = {.url = "s3://b", .anonymous = true};
	TbStoreSpec instance = {.url = "s3://b", .credentials = "instance"};
	uint8_t		one[32];
	uint8_t		other[32];

	session.session_token = TOKEN;
	thief.secret_access_key = "guessed";
	rig_open(&rig, 0, NULL);
	scope_of(&rig, &a, one);
	scope_of(&rig, &session, other);
	assert_memory_equal(one, other, 32);
	/* who knows the key id alone does not get at what was cached with it */
	scope_of(&rig, &thief, other);
	assert_memory_not_equal(one, other, 32);
	scope_of(&rig, &anonymous, other);
	assert_memory_not_equal(one, other, 32);
	scope_of(&rig, &instance, one);
	assert_memory_not_equal(one, other, 32);
	instance.profile = "p";
	scope_of(&rig, &instance, other);
	assert_memory_not_equal(one, other, 32);
	rig_close(&rig);
}

/* ---- environment, files ---- */

static void
test_environment(void **state)
{
	expect("environment", NULL, NULL, NULL, "AWS_ACCESS_KEY_ID is not set");
	setenv("AWS_ACCESS_KEY_ID", ID, 1);
	expect("environment", NULL, NULL, NULL, "AWS_SECRET_ACCESS_KEY is not set");
	setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
	expect("environment", NULL, ID, NULL, NULL);
	setenv("AWS_SESSION_TOKEN", TOKEN, 1);
	expect("environment", NULL, ID, TOKEN, NULL);
	expect("profile,environment", NULL, ID, TOKEN, NULL);
}

static void
test_profile(void **state)
{
	char		aws[96];

	expect("profile", NULL, NULL, NULL, "credentials");
	setenv("AWS_SHARED_CREDENTIALS_FILE",
		   write_file("c", "# comment\n[other]\naws_access_key_id = X\n\n[default]\r\naws_access_key_id=" ID "\r\n"
					  "  nested = 1\naws_secret_access_key = " SECRET " \n[ two ]\naws_access_key_id = AKID2\n"
					  "aws_secret_access_key=" SECRET "\naws_session_token\t=\t" TOKEN "\n"
					  "[run]\ncredential_process = /bin/false\n"
					  "[half]\naws_access_key_id = X\n[broken\naws_secret_access_key = Y"), 1);
	expect("profile", NULL, ID, NULL, NULL);
	expect("profile", "default", ID, NULL, NULL);
	expect("profile", "two", "AKID2", TOKEN, NULL);
	setenv("AWS_PROFILE", "two", 1);
	expect("profile", NULL, "AKID2", TOKEN, NULL);
	expect("profile", "absent", NULL, NULL, "no such profile");
	expect("profile", "run", NULL, NULL, "no programs are run");
	expect("profile", "half", NULL, NULL, "no access key");
	expect("profile", "other", NULL, NULL, "no access key");
	setenv("AWS_CONFIG_FILE",
		   write_file("f", "[profile three]\naws_access_key_id = AKID3\naws_secret_access_key = " SECRET "\n"
					  "[four]\naws_access_key_id = AKID4\naws_secret_access_key = " SECRET "\n"
					  "[profile role]\nrole_arn = r\n"), 1);
	expect("profile", "three", "AKID3", NULL, NULL);
	expect("profile", "four", NULL, NULL, "no such profile");
	expect("profile", "role", NULL, NULL, "not followed");
	setenv("AWS_SHARED_CREDENTIALS_FILE", folder, 1);
	expect("profile", "two", NULL, NULL, "no file");
	/* without variables: below the home directory */
	unsetenv("AWS_SHARED_CREDENTIALS_FILE");
	unsetenv("AWS_CONFIG_FILE");
	(void) snprintf(aws, sizeof(aws), "%s/.aws", folder);
	assert_int_equal(mkdir(aws, 0700), 0);
	(void) write_file(".aws/credentials", "[two]\naws_access_key_id=AKID5\naws_secret_access_key=" SECRET "\n");
	expect("profile", NULL, "AKID5", NULL, NULL);
}

static void
test_profile_changes(void **state)
{
	Rig			rig;
	TbCreds    *creds;
	TbCreds    *other;
	TbCredsNow	now;
	TbError		err;
	uint64_t	first;

	setenv("AWS_SHARED_CREDENTIALS_FILE", write_file("c",
		"[default]\naws_access_key_id=A\naws_secret_access_key=B\n"), 1);
	rig_open(&rig, 0, NULL);
	creds = open_creds(&rig, "profile", NULL);
	assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	assert_keys(&now, "A", "B", NULL);
	first = now.serial;
	/* refused: the same file again is no answer */
	assert_false(tb_creds_refused(creds, first));
	/* but who was not refused goes on with it */
	other = open_creds(&rig, "profile", NULL);
	assert_int_equal(tb_creds_get(other, &now, &err), TB_OK);
	assert_keys(&now, "A", "B", NULL);
	tb_creds_free(other);
	(void) write_file("c", "[default]\naws_access_key_id=A2\naws_secret_access_key=B\n");
	usleep(1100000);
	assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	assert_keys(&now, "A2", "B", NULL);
	assert_true(now.serial > first);
	/* changed under one that works: seen within a second or so */
	(void) write_file("c", "[default]\naws_access_key_id=A33\naws_secret_access_key=B\n");
	usleep(1100000);
	assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	assert_keys(&now, "A33", "B", NULL);
	/* and one that cannot be read keeps what was read */
	(void) write_file("c", "nonsense");
	usleep(1100000);
	assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	assert_keys(&now, "A33", "B", NULL);
	tb_creds_free(creds);
	rig_close(&rig);
}

/* ---- services ---- */

static void
answer(HttpdConn *conn, Script *script, const char *type, const char *body)
{
	if (script->failures > 0)
	{
		script->failures--;
		httpd_status(conn, 500, "");
		return;
	}
	httpd_printf(conn, "HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
				 script->status != 0 ? script->status : 200, type, strlen(body), body);
}

static void
keys_json(HttpdConn *conn, Script *script)
{
	char		body[1024];
	char		at[32];

	iso_time(at, script->life_s);
	script->answers++;
	(void) snprintf(body, sizeof(body),
		"{\"Code\": \"Success\", \"AccessKeyId\": \"%s%.0d\", \"SecretAccessKey\": \"%s\","
					" \"Token\": \"%s\", \"Expiration\": \"%s\"}",
					ID, script->rotate ? script->answers : 0, SECRET, TOKEN, at);
	answer(conn, script, "application/json", body);
}

static void
service(HttpdConn *conn, const HttpdRequest *request, void *arg)
{
	Script	   *script = arg;
	char		body[2048];
	char		value[256];
	char		at[32];

	/* one that hangs gives no other thread an order to rely on */
	pthread_mutex_lock(&script->mu);
	(void) snprintf(script->seen, sizeof(script->seen), "%s%s", request->head,
					request->body != NULL ? (const char *) request->body : "");
	pthread_mutex_unlock(&script->mu);
	if (script->hang)
		httpd_hang(conn);
	else if (strcmp(request->path, "/latest/api/token") == 0 && strncmp(request->head, "PUT ", 4) == 0)
		answer(conn, script, "text/plain",
			"session-canary");
	else if (strncmp(request->path, "/latest/", 8) == 0 &&
			 (!httpd_header(request, "X-aws-ec2-metadata-token", value, sizeof(value)) ||
			  strcmp(value, "session-canary") != 0))
		httpd_status(conn, 401, "");
	else if (strcmp(request->path, "/latest/meta-data/iam/security-credentials/") == 0)
		answer(conn, script, "text/plain", "the-role\n");
	else if (strcmp(request->path, "/latest/meta-data/iam/security-credentials/the-role") == 0 ||
			 strcmp(request->path, "/agent") == 0)
		keys_json(conn, script);
	else if (strcmp(request->path, "/sts") == 0)
	{
		iso_time(at, script->life_s);
		script->answers++;
		(void) snprintf(body, sizeof(body), script->status == 0 ?
						"<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
						"<AssumeRoleWithWebIdentityResult><Credentials>"
						"<SessionToken>%s</SessionToken><SecretAccessKey>%s"
						"</SecretAccessKey><Expiration>%s</Expiration><AccessKeyId>%s</AccessKeyId></Credentials>"
						"</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>" :
						"<ErrorResponse><Error><Code>InvalidIdentityToken</Code>"
						"<Message>%s%s%s%s</Message></Error></ErrorResponse>",
						TOKEN, SECRET, at, ID);
		answer(conn, script, "text/xml", body);
	}
	else
		httpd_status(conn, 404, "");
}

static void
set_url(const char *variable, Httpd *httpd, const char *path)
{
	char		url[128];

	(void) snprintf(url, sizeof(url), "http://127.0.0.1:%d%s", httpd_port(httpd), path);
	setenv(variable, url, 1);
}

static void
test_web_identity(void **state)
{
	Script		script = {.mu = PTHREAD_MUTEX_INITIALIZER, .life_s = 3600};
	Httpd	   *httpd = httpd_start(service, &script);

	set_url("AWS_ENDPOINT_URL_STS", httpd, "/sts");
	expect("web_identity", NULL, NULL, NULL, "AWS_WEB_IDENTITY_TOKEN_FILE is not set");
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_file("token", "canary.jwt+token\n"), 1);
	expect("web_identity", NULL, NULL, NULL, "AWS_ROLE_ARN is not set");
	setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
	expect("web_identity", NULL, ID, TOKEN, NULL);
	assert_non_null(strstr(script.seen, "WebIdentityToken=canary.jwt%2Btoken"));
	assert_non_null(strstr(script.seen, "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr"));
	assert_non_null(strstr(script.seen, "RoleSessionName=tensorbank"));
	script.failures = 1;		/* trouble once is tried again */
	expect("web_identity", NULL, ID, TOKEN, NULL);
	script.status = 400;
	expect("web_identity", NULL, NULL, NULL, "400 InvalidIdentityToken");
	setenv("AWS_ENDPOINT_URL_STS", "http://sts.example.com/", 1);
	expect("web_identity", NULL, NULL, NULL, "no https:// url");
	setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1.example.com/", 1);
	expect("web_identity", NULL, NULL, NULL, "no https:// url");
	httpd_stop(httpd);
}

static void
test_container(void **state)
{
	static const char *const refused[] = {
		"http://example.com/agent", "http://10.0.0.1/agent", "http://127.0.0.1@example.com/", "http://127.example.com/",
		"http://169.254.170.2.example.com/", "http://169.254.169.254/", "ftp://127.0.0.1/",
		"http://localhost.example.com/"
	};
	Script		script = {.mu = PTHREAD_MUTEX_INITIALIZER, .life_s = 3600};
	Httpd	   *httpd = httpd_start(service, &script);

	expect("container", NULL, NULL, NULL, "are not set");
	set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", httpd, "/agent");
	expect("container", NULL, ID, TOKEN, NULL);
	assert_null(strstr(script.seen, "Authorization"));
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer canary", 1);
	expect("container", NULL, ID, TOKEN, NULL);
	assert_non_null(strstr(script.seen, "Authorization: Bearer canary\r\n"));
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write_file("auth", "from-file\n"), 1);
	expect("container", NULL, ID, TOKEN, NULL);
	assert_non_null(strstr(script.seen, "Authorization: from-file\r\n"));
	(void) write_file("auth", "x\r\nHost: evil");
	expect("container", NULL, NULL, NULL, "authorization token is none");
	unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	script.life_s = -5;
	expect("container", NULL, NULL, NULL, "have expired");
	script.status = 403;
	expect("container", NULL, NULL, NULL, "answered 403");
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
	{
		setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", refused[i], 1);
		expect("container", NULL, NULL, NULL, "not allowed");
	}
	httpd_stop(httpd);
}

static void
test_instance(void **state)
{
	Script		script = {.mu = PTHREAD_MUTEX_INITIALIZER, .life_s = 3600};
	Httpd	   *httpd = httpd_start(service, &script);
	int64_t		start;

	set_url("AWS_EC2_METADATA_SERVICE_ENDPOINT", httpd, "/");
	expect("instance", NULL, ID, TOKEN, NULL);
	assert_int_equal(script.answers, 1);
	script.status = 404;
	expect("instance", NULL, NULL, NULL, "404");
	script.status = 0;
	script.hang = true;
	start = tb_now_ns();
	expect("instance", NULL, NULL, NULL, "no answer within 2 s");
	assert_true(seconds_since(start) < 2.5);
	/* the next in the list has some */
	setenv("AWS_ACCESS_KEY_ID", ID, 1);
	setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
	expect("instance,environment", NULL, ID, NULL, NULL);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	start = tb_now_ns();
	expect("instance", NULL, NULL, NULL, "DISABLED");
	assert_true(seconds_since(start) < 0.5);
	httpd_stop(httpd);
}

/* A hundred stores, one request; one that waits and goes is forgotten. */
static void
test_shared(void **state)
{
	Script		script = {.mu = PTHREAD_MUTEX_INITIALIZER, .life_s = 3600};
	Httpd	   *httpd = httpd_start(service, &script);
	Rig			rig;
	TbCreds    *creds[100];
	TbCredsWaiter waiter[100];
	TbCredsNow	now;
	TbError		err;
	int			woken = 0;

	set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", httpd, "/agent");
	rig_open(&rig, 0, NULL);
	for (int i = 0; i < 100; i++)
	{
		creds[i] = open_creds(&rig, "container", NULL);
		assert_int_equal(tb_creds_get(creds[i], &now, &err), TB_AGAIN);
		waiter[i] = (TbCredsWaiter) {.wake = count_wake, .arg = &woken};
		tb_creds_wait(creds[i], &waiter[i]);
	}
	tb_creds_free(creds[7]);
	tb_creds_leave(creds[8], &waiter[8]);
	pump_until(&rig, &woken, 98);
	for (int i = 0; i < 5; i++)
		(void) tb_loop_pump(rig.loop, 10);
	assert_int_equal(woken, 98);
	assert_int_equal(httpd_requests(httpd), 1);
	for (int i = 0; i < 100; i++)
		if (i != 7)
		{
			assert_int_equal(tb_creds_get(creds[i], &now, &err), TB_OK);
			assert_keys(&now, ID, SECRET, TOKEN);
			tb_creds_free(creds[i]);
		}
	/* the last one goes while its provider is being asked */
	creds[0] = open_creds(&rig, "container", NULL);
	assert_int_equal(tb_creds_get(creds[0], &now, &err), TB_AGAIN);
	tb_creds_free(creds[0]);
	rig_close(&rig);
	httpd_stop(httpd);
}

/* Keys of a short life are renewed before it ends, without anybody waiting. */
static void
test_renewed(void **state)
{
	Script		script = {.mu = PTHREAD_MUTEX_INITIALIZER, .life_s = 6, .rotate = true};
	Httpd	   *httpd = httpd_start(service, &script);
	Rig			rig;
	TbCreds    *creds;
	TbCredsNow	now;
	TbError		err;
	uint64_t	first;
	int64_t		start;

	set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", httpd, "/agent");
	rig_open(&rig, 0, NULL);
	creds = open_creds(&rig, "container", NULL);
	assert_int_equal(await(&rig, creds, &now, &err), TB_OK);
	first = now.serial;
	start = tb_now_ns();
	while (now.serial == first && seconds_since(start) < 8)
	{
		(void) tb_loop_pump(rig.loop, 50);
		/* never a moment without */
		assert_int_equal(tb_creds_get(creds, &now, &err), TB_OK);
	}
	assert_true(now.serial > first);
	assert_true(seconds_since(start) < 6);
	assert_keys(&now, ID "2", SECRET, TOKEN);
	/* refused: asked at once, and the others count */
	assert_true(tb_creds_refused(creds, now.serial));
	assert_int_equal(await(&rig, creds, &now, &err), TB_OK);
	assert_keys(&now, ID "3", SECRET, TOKEN);
	assert_true(tb_creds_refused(creds, first));
	assert_int_equal(script.answers, 3);
	/* the same again is no answer */
	script.rotate = false;
	assert_true(tb_creds_refused(creds, now.serial));
	assert_int_equal(await(&rig, creds, &now, &err), TB_OK);
	first = now.serial;
	assert_true(tb_creds_refused(creds, first));
	assert_int_equal(await(&rig, creds, &now, &err), TB_OK);
	assert_int_equal(now.serial, first);
	assert_false(tb_creds_refused(creds, first));
	tb_creds_free(creds);
	rig_close(&rig);
	httpd_stop(httpd);
}

static void
test_time(void **state)
{
	int64_t		seconds;

	assert_true(tb_creds_time("1970-01-01T00:00:00Z", &seconds));
	assert_int_equal(seconds, 0);
	assert_true(tb_creds_time("2026-12-01T03:00:00.123Z", &seconds));
	assert_int_equal(seconds, 1796094000);
	assert_true(tb_creds_time("2024-02-29T23:59:59+01:30", &seconds));
	assert_int_equal(seconds, 1709245799);
	assert_false(tb_creds_time("2024-02-29", &seconds));
	assert_false(tb_creds_time("2024-13-01T00:00:00Z", &seconds));
	assert_false(tb_creds_time("2024-12-01T00:00:00Zx", &seconds));
	assert_false(tb_creds_time("", &seconds));
}

/* Memory that runs out anywhere: an error or none, and nothing is left. */
static void
test_torture(void **state)
{
	Script		script = {.mu = PTHREAD_MUTEX_INITIALIZER, .life_s = 3600};
	Httpd	   *httpd = httpd_start(service, &script);
	bool		succeeded = false;

	set_url("AWS_EC2_METADATA_SERVICE_ENDPOINT", httpd, "");
	for (uint64_t n = 1; n < 200 && !succeeded; n++)
	{
		TbStoreSpec spec = {.url = "s3://b", .credentials = "instance", .profile = "p"};
		Rig			rig;
		TbCreds    *creds;
		TbCredsNow	now;
		TbError		err;

		rig_open(&rig, 0, NULL);
		(void) tb_mem_fail_after(n);
		if (tb_creds_new(rig.io, &spec, &creds, &err) == TB_OK)
		{
			TbStatus	status = await(&rig, creds, &now, &err);

			assert_true(status == TB_OK || status == TB_E_AUTH || status == TB_E_NOMEM);
			succeeded = status == TB_OK && n > 20;
		}
		(void) tb_mem_fail_after(0);
		tb_creds_free(creds);
		rig_close(&rig);
	}
	assert_true(succeeded);
	httpd_stop(httpd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_fixed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scope, setup, teardown),
		cmocka_unit_test_setup_teardown(test_environment, setup, teardown),
		cmocka_unit_test_setup_teardown(test_profile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_profile_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_web_identity, setup, teardown),
		cmocka_unit_test_setup_teardown(test_container, setup, teardown),
		cmocka_unit_test_setup_teardown(test_instance, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shared, setup, teardown),
		cmocka_unit_test_setup_teardown(test_renewed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_torture, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
