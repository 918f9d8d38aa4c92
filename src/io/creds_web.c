/*
 * Provider "web_identity": a token in a file (Kubernetes renews it) is exchanged for keys at STS, by
 * AssumeRoleWithWebIdentity. The file is read anew each time.
 */
#include "io/creds_parts.h"

#include <string.h>

#include "io/s3_xml.h"

/* Of a region that looks like one: it becomes part of a host name. */
static bool
region_ok(const char *region)
{
	return region != NULL && strlen(region) <= 32 &&
		strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(region);
}

/* http only to this machine: the token travels in the request. */
static bool
endpoint_ok(const char *url)
{
	static const char *const local[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};

	if (strncmp(url, "https://", 8) == 0)
		return true;
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
	{
		size_t		n = strlen(local[i]);

		if (strncmp(url, local[i], n) == 0 && (url[n] == ':' || url[n] == '/' || url[n] == '\0'))
			return true;
	}
	return false;
}

/* owns: the caller; NULL when memory is gone. */
static char *
endpoint(const TbAsk *ask)
{
	const char *told = tb_ask_env("AWS_ENDPOINT_URL_STS");
	const char *region = tb_ask_env("AWS_REGION");

	if (told != NULL)
		return tb_strdup(told);
	if (region == NULL)
		region = tb_ask_env("AWS_DEFAULT_REGION");
	if (region == NULL)
		region = ask->region;
	if (!region_ok(region))
		return tb_strdup("https://sts.amazonaws.com/");
	return tb_asprintf("https://sts.%s.amazonaws.com%s/", region, strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
}

/* The form that is posted. NULL when memory is gone. */
static TbBuf *
form(const char *role, const char *session, const char *token)
{
	TbBuf	   *out = tb_buf_new(strlen(token) * 3 + 4096);	/* does not move: no copy of the token stays behind */
	TbStatus	status = TB_E_NOMEM;

	if (out != NULL)
		status = tb_buf_printf(out, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=");
	if (status == TB_OK)
		status = tb_s3_query_escape(out, role);
	if (status == TB_OK)
		status = tb_buf_printf(out, "&RoleSessionName=");
	if (status == TB_OK)
		status = tb_s3_query_escape(out, session);
	if (status == TB_OK)
		status = tb_buf_printf(out, "&WebIdentityToken=");
	if (status == TB_OK)
		status = tb_s3_query_escape(out, token);
	if (status == TB_OK)
		return out;
	tb_wipe_buf(out);
	return NULL;
}

static TbStatus
ask_sts(TbAsk *ask)
{
	const char *path = tb_ask_env("AWS_WEB_IDENTITY_TOKEN_FILE");
	const char *role = tb_ask_env("AWS_ROLE_ARN");
	const char *session = tb_ask_env("AWS_ROLE_SESSION_NAME");
	TbAskRequest request = {"POST", NULL, {"Content-Type: application/x-www-form-urlencoded",
		"Accept: text/xml"}, NULL};
	TbBuf	   *file;

	if (path == NULL)
		return tb_ask_none(ask, "AWS_WEB_IDENTITY_TOKEN_FILE is not set");
	if (role == NULL || strlen(role) > 2048)
		return tb_ask_none(ask, "AWS_ROLE_ARN is not set");
	file = tb_ask_file(ask, path);
	if (file == NULL)
		return ask->error.code;
	while (file->len > 0 && strchr(" \t\r\n", (char) file->data[file->len - 1]) != NULL)
		file->data[--file->len] = '\0';
	tb_free(ask->url);
	ask->url = endpoint(ask);
	if (tb_keys_text_ok((char *) file->data, 65536) && ask->url != NULL && endpoint_ok(ask->url))
		request.post = form(role, session != NULL ? session : "tensorbank", (char *) file->data);
	else
	{
		bool		nomem = ask->url == NULL;
		bool		url_bad = !nomem && !endpoint_ok(ask->url);

		tb_wipe_buf(file);
		if (nomem)
			return tb_ask_nomem(ask);
		return tb_ask_none(ask, url_bad ? "AWS_ENDPOINT_URL_STS is no https:// url" : "the token file holds no token");
	}
	tb_wipe_buf(file);
	if (request.post == NULL)
		return tb_ask_nomem(ask);
	request.url = ask->url;
	return tb_ask_request(ask, &request);
}

static TbStatus
answered(TbAsk *ask, long http_status, const TbBuf *body)
{
	char		code[64];

	if (http_status == 200)
		return tb_ask_take_xml(ask, body);
	tb_ask_xml_code(body, code, sizeof(code));
	return tb_ask_none(ask, "STS answered %ld %s", http_status, code);
}

const TbCredsProvider tb_creds_web_identity = {"web_identity", ask_sts, answered, NULL};
