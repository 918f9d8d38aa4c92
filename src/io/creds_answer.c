/* What services answer: keys as JSON (container, instance) or XML (STS), and until when they hold. */
#include "io/creds_parts.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "io/s3_xml.h"

#define ID_MAX 256
#define SECRET_MAX 512
#define TOKEN_MAX 16384

static bool
digits(const char **at, int n, int *value)
{
	*value = 0;
	for (int i = 0; i < n; i++, (*at)++)
	{
		if (**at < '0' || **at > '9')
			return false;
		*value = *value * 10 + (**at - '0');
	}
	return true;
}

static bool
letter(const char **at, const char *one_of)
{
	if (**at == '\0' || strchr(one_of, **at) == NULL)
		return false;
	(*at)++;
	return true;
}

/* Days since 1970-01-01 of a date of the Gregorian calendar. */
static int64_t
days_of(int year, int month, int day)
{
	int64_t		y = month <= 2 ? year - 1 : year;
	int64_t		era = (y >= 0 ? y : y - 399) / 400;
	int64_t		yoe = y - era * 400;
	int64_t		doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

bool
tb_creds_time(const char *text, int64_t *seconds)
{
	int			year, month, day, hour, minute, second;
	int			offset_h = 0, offset_m = 0, sign = 0;

	if (!digits(&text, 4, &year) || !letter(&text, "-") || !digits(&text, 2, &month) || !letter(&text, "-") ||
		!digits(&text, 2, &day) || !letter(&text, "Tt ") || !digits(&text, 2, &hour) || !letter(&text, ":") ||
		!digits(&text, 2, &minute) || !letter(&text, ":") || !digits(&text, 2, &second))
		return false;
	if (letter(&text, "."))
		text += strspn(text, "0123456789");
	if (*text == '+' || *text == '-')
	{
		sign = *text++ == '-' ? -1 : 1;
		if (!digits(&text, 2, &offset_h) || !letter(&text, ":") || !digits(&text, 2, &offset_m))
			return false;
	}
	else if (!letter(&text, "Zz"))
		return false;
	if (*text != '\0' || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60)
		return false;
	*seconds = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second -
		sign * (offset_h * 3600 + offset_m * 60);
	return true;
}

/* Keys as they were answered. The token may be missing, the time too. */
static TbStatus
take(TbAsk *ask, const char *id, const char *secret, const char *token, const char *expiration)
{
	struct timespec now;
	int64_t		seconds;
	int64_t		left_s = INT64_MAX;

	if (!tb_keys_text_ok(id, ID_MAX) || !tb_keys_text_ok(secret, SECRET_MAX) ||
		(token != NULL && token[0] != '\0' && !tb_keys_text_ok(token, TOKEN_MAX)))
		return tb_ask_none(ask, "answer holds no credentials");
	if (expiration != NULL && expiration[0] != '\0')
	{
		if (!tb_creds_time(expiration, &seconds) || clock_gettime(CLOCK_REALTIME, &now) != 0)
			return tb_ask_none(ask, "answer does not say until when its credentials hold");
		left_s = seconds - now.tv_sec;
		if (left_s <= 0)
			return tb_ask_none(ask, "its credentials have expired");
	}
	if (tb_keys_copy(&ask->keys, id, secret, token) != TB_OK)
		return tb_ask_nomem(ask);
	if (left_s < INT64_MAX / TB_NS_PER_S / 2)
		ask->keys.expires_ns = tb_now_ns() + left_s * TB_NS_PER_S;
	return TB_OK;
}

TbStatus
tb_ask_take_json(TbAsk *ask, const TbBuf *body)
{
	const char *id = NULL;
	const char *secret = NULL;
	const char *token = NULL;
	const char *expiration = NULL;
	const char *code;
	TbJson	   *doc;
	TbStatus	status;

	if (tb_json_parse(body->data, body->len, &doc, NULL) != TB_OK)
		return tb_ask_none(ask, "answer is no JSON");
	(void) !tb_json_get_string(doc, "AccessKeyId", &id);
	(void) !tb_json_get_string(doc, "SecretAccessKey", &secret);
	(void) !tb_json_get_string(doc, "Token", &token);
	(void) !tb_json_get_string(doc, "Expiration", &expiration);
	if (tb_json_get_string(doc, "Code", &code) && strcmp(code, "Success") != 0)
		status = tb_ask_none(ask, "answer says that there are none");
	else
		status = take(ask, id, secret, token, expiration);
	tb_json_wipe(doc, "SecretAccessKey");
	tb_json_wipe(doc, "Token");
	tb_json_free(doc);
	return status;
}

/* ---- XML ---- */

typedef struct Sts
{
	char		id[ID_MAX + 2];
	char		secret[SECRET_MAX + 2];
	char		token[TOKEN_MAX + 2];
	char		expiration[64];
	char		code[64];
} Sts;

/* Longer texts are cut to one byte too many, and are then refused. */
static void
keep(char *to, size_t size, const char *text, size_t len)
{
	(void) snprintf(to, size, "%.*s", (int) (len < size ? len : size), text);
}

static bool
ends_with(const char *path, const char *end)
{
	size_t		n = strlen(path);
	size_t		m = strlen(end);

	return n >= m && strcmp(path + n - m, end) == 0;
}

static TbStatus
sts_text(void *arg, const char *path, const char *text, size_t len, TbError *err)
{
	Sts		   *sts = arg;

	if (ends_with(path, "/Credentials/AccessKeyId"))
		keep(sts->id, sizeof(sts->id), text, len);
	else if (ends_with(path, "/Credentials/SecretAccessKey"))
		keep(sts->secret, sizeof(sts->secret), text, len);
	else if (ends_with(path, "/Credentials/SessionToken"))
		keep(sts->token, sizeof(sts->token), text, len);
	else if (ends_with(path, "/Credentials/Expiration"))
		keep(sts->expiration, sizeof(sts->expiration), text, len);
	else if (ends_with(path, "Error/Code"))
		keep(sts->code, sizeof(sts->code), text, len);
	return TB_OK;
}

TbStatus
tb_ask_take_xml(TbAsk *ask, const TbBuf *body)
{
	Sts		   *sts = tb_calloc(1, sizeof(*sts));
	TbStatus	status;

	if (sts == NULL)
		return tb_ask_nomem(ask);
	if (tb_s3_xml_read(body->data, body->len, sts_text, sts, NULL) != TB_OK)
		status = tb_ask_none(ask, "answer is not understood");
	else
		status = take(ask, sts->id, sts->secret, sts->token, sts->expiration);
	for (volatile char *p = (volatile char *) sts, *last = p + sizeof(*sts); p < last; p++)
		*p = '\0';
	tb_free(sts);
	return status;
}

void
tb_ask_xml_code(const TbBuf *body, char *code, size_t size)
{
	Sts		   *sts = tb_calloc(1, sizeof(*sts));

	code[0] = '\0';
	if (sts != NULL && tb_s3_xml_read(body->data, body->len, sts_text, sts, NULL) == TB_OK &&
		tb_keys_text_ok(sts->code, sizeof(sts->code)))
		(void) snprintf(code, size, "%s", sts->code);
	tb_free(sts);
}
