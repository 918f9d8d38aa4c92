/* Provider "instance": the metadata service of a virtual machine, version 2: a session token, the role's name,
 * the role's keys. */
#include "io/creds_parts.h"

#include <string.h>

#define SERVICE "http://169.254.169.254"
#define ROLES "/latest/meta-data/iam/security-credentials/"

enum
{
	STEP_TOKEN, STEP_ROLE, STEP_KEYS
};

static TbStatus
request(TbAsk *ask, const char *method, const char *path, const char *more, const char *header)
{
	char	   *url = tb_asprintf("%s%s%s", ask->url, path, more);
	TbAskRequest told = {method, url, {header}, NULL};
	TbStatus	status;

	if (url == NULL)
		return tb_ask_nomem(ask);
	status = tb_ask_request(ask, &told);
	tb_free(url);
	return status;
}

static TbStatus
ask_service(TbAsk *ask)
{
	const char *told = tb_ask_env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *disabled = tb_ask_env("AWS_EC2_METADATA_DISABLED");
	size_t		n;

	if (disabled != NULL && strcmp(disabled, "true") == 0)
		return tb_ask_none(ask, "AWS_EC2_METADATA_DISABLED is true");
	if (told != NULL && strncmp(told, "http://", 7) != 0 && strncmp(told, "https://", 8) != 0)
		return tb_ask_none(ask, "AWS_EC2_METADATA_SERVICE_ENDPOINT is no url");
	tb_free(ask->url);
	ask->url = tb_strdup(told != NULL ? told : SERVICE);
	if (ask->url == NULL)
		return tb_ask_nomem(ask);
	n = strlen(ask->url);
	while (n > 0 && ask->url[n - 1] == '/')
		ask->url[--n] = '\0';
	ask->step = STEP_TOKEN;
	return request(ask, "PUT", "/latest/api/token", "", "X-aws-ec2-metadata-token-ttl-seconds: 21600");
}

/* The first line of an answer as text that may go into a header or a url. owns: the caller. NULL: it is none. */
static char *
first_line(const TbBuf *body)
{
	const char *text = (const char *) body->data;
	size_t		n = 0;
	char	   *line;

	while (n < body->len && text[n] != '\n' && text[n] != '\r')
		n++;
	line = tb_strndup(text, n);
	if (line != NULL && tb_keys_text_ok(line, 4096))
		return line;
	tb_free_secret(line);
	return NULL;
}

static TbStatus
answered(TbAsk *ask, long http_status, const TbBuf *body)
{
	char	   *line;
	TbStatus	status;

	if (http_status != 200)
		return tb_ask_none(ask, ask->step == STEP_ROLE && http_status == 404 ? "the instance has no role" :
						   "the metadata service answered %ld", http_status);
	if (ask->step == STEP_KEYS)
		return tb_ask_take_json(ask, body);
	line = first_line(body);
	if (line == NULL || (ask->step == STEP_ROLE && line[strspn(line,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
															  "0123456789+=,.@_-")] != '\0'))
	{
		tb_free_secret(line);
		return tb_ask_none(ask, "the metadata service's answer is not understood");
	}
	if (ask->step == STEP_TOKEN)
	{
		ask->secret = tb_asprintf("X-aws-ec2-metadata-token: %s", line);
		status = ask->secret == NULL ? tb_ask_nomem(ask) : request(ask, "GET", ROLES, "", ask->secret);
	}
	else
		status = request(ask, "GET", ROLES, line, ask->secret);
	ask->step++;
	tb_free_secret(line);
	return status;
}

const TbCredsProvider tb_creds_instance = {"instance", ask_service, answered, NULL};
