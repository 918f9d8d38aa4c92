/*
 * Provider "container": the service that a container's agent offers (ECS, EKS). A full url may lead to any host
 * by https, by http only to this machine and to the agents' own addresses.
 */
#include "io/creds_parts.h"

#include <string.h>

#define AGENT "http://169.254.170.2"

static bool
url_ok(const char *url)
{
	static const char *const plain[] = {
		"http://127.", "http://localhost", "http://[::1]", AGENT, "http://169.254.170.23", "http://[fd00:ec2::23]"
	};
	size_t		n = strlen("http://");
	const char *host_end;

	for (const char *p = url; *p != '\0'; p++)
		if ((unsigned char) *p <= ' ' || (unsigned char) *p >= 0x7f)
			return false;
	if (strncmp(url, "https://", 8) == 0)
		return true;
	if (strncmp(url, "http://", n) != 0)
		return false;
	host_end = url[n] == '[' ? strchr(url, ']') : url + n + strcspn(url + n, ":/?#");
	if (host_end == NULL || memchr(url, '@', n + strcspn(url + n, "/?#")) != NULL)
		return false;
	if (*host_end == ']')
		host_end++;
	/* 127.x.y.z: digits and dots, so that no name begins like it */
	if (strncmp(url, plain[0], strlen(plain[0])) == 0)
		return url + n + strspn(url + n, "0123456789.") == host_end;
	for (size_t i = 1; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (strlen(plain[i]) == (size_t) (host_end - url) && memcmp(url, plain[i], strlen(plain[i])) == 0)
			return true;
	return false;
}

/* "Authorization: ..." of the variable or the file; *line NULL: none is wanted. owns: the caller, tb_free_secret. */
static TbStatus
authorization(TbAsk *ask, char **line)
{
	const char *path = tb_ask_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *token = tb_ask_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	TbBuf	   *file = NULL;
	TbStatus	status = TB_OK;

	*line = NULL;
	if (path != NULL)
	{
		file = tb_ask_file(ask, path);
		if (file == NULL)
			return ask->error.code;
		token = (char *) file->data;
		while (file->len > 0 && strchr("\r\n", (char) file->data[file->len - 1]) != NULL)
			file->data[--file->len] = '\0';
	}
	if (token != NULL)
	{
		/* "Bearer x" has a space; line ends would be headers of somebody else's */
		if (token[strcspn(token, "\r\n")] != '\0' || strlen(token) > 16384)
			status = tb_ask_none(ask, "the authorization token is none");
		else if ((*line = tb_asprintf("Authorization: %s", token)) == NULL)
			status = tb_ask_nomem(ask);
	}
	tb_wipe_buf(file);
	return status;
}

static TbStatus
ask_agent(TbAsk *ask)
{
	const char *relative = tb_ask_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = tb_ask_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	TbAskRequest request = {"GET", NULL, {"Accept: application/json"}, NULL};
	char	   *line;
	TbStatus	status;

	if (relative == NULL && full == NULL)
		return tb_ask_none(ask, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and _FULL_URI are not set");
	tb_free(ask->url);
	ask->url = relative != NULL ? tb_asprintf(AGENT "%s%s", relative[0] == '/' ? "" : "/", relative) : tb_strdup(full);
	if (ask->url == NULL)
		return tb_ask_nomem(ask);
	if (!url_ok(ask->url))
		return tb_ask_none(ask, "AWS_CONTAINER_CREDENTIALS_FULL_URI leads to a host that is not allowed");
	status = authorization(ask, &line);
	if (status != TB_OK)
		return status;
	request.url = ask->url;
	request.header[1] = line;
	status = tb_ask_request(ask, &request);
	tb_free_secret(line);
	return status;
}

static TbStatus
answered(TbAsk *ask, long http_status, const TbBuf *body)
{
	if (http_status == 200)
		return tb_ask_take_json(ask, body);
	return tb_ask_none(ask, "the agent answered %ld", http_status);
}

const TbCredsProvider tb_creds_container = {"container", ask_agent, answered, NULL};
