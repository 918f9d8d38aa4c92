/* Errors as JSON objects and back: how a TbError crosses the socket. */
#include "stream/stream.h"

#include <stdio.h>
#include <string.h>

#define LAST_STATUS TB_E_INTERNAL

static TbStatus
member(TbBuf *out, const char *name, const char *text)
{
	TbStatus	status = tb_buf_printf(out, ",\"%s\":", name);

	return status == TB_OK ? tb_json_quote(out, text) : status;
}

/* Append {"code":..,"message":..,...}; parts that are empty are left out. errors: NOMEM. */
TbStatus
tb_error_to_json(const TbError *error, TbBuf *out)
{
	TbStatus	status = tb_buf_printf(out, "{\"code\":\"%s\"", tb_status_name(error->code));

	if (status == TB_OK)
		status = member(out, "message", error->message);
	if (status == TB_OK && error->detail[0] != '\0')
		status = member(out, "detail", error->detail);
	if (status == TB_OK && error->hint[0] != '\0')
		status = member(out, "hint", error->hint);
	if (status == TB_OK && error->http_status != 0)
		status = tb_buf_printf(out, ",\"http\":%d", error->http_status);
	if (status == TB_OK && error->retryable)
		status = tb_buf_printf(out, ",\"retryable\":true");
	return status == TB_OK ? tb_buf_printf(out, "}") : status;
}

/* "busy" is a state of a stream that clients act on, so it has a code of its own on the socket. */
static TbStatus
status_named(const char *name)
{
	if (strcmp(name, "busy") == 0)
		return TB_E_STATE;
	for (int s = TB_E_NOMEM; s <= LAST_STATUS; s++)
		if (strcmp(name, tb_status_name((TbStatus) s)) == 0)
			return (TbStatus) s;
	return TB_E_INTERNAL;
}

/* Never fails: what is no error object becomes PROTOCOL, a code that is not known INTERNAL. */
void
tb_error_from_json(const TbJson *object, TbError *error)
{
	const char *code;
	const char *text;
	int64_t		http;
	bool		retryable;

	if (!tb_json_get_string(object, "code", &code))
	{
		tb_fail(error, TB_E_PROTOCOL, "message on the socket is malformed");
		return;
	}
	if (!tb_json_get_string(object, "message", &text))
		text = "";
	tb_fail(error, status_named(code), "%s", text);
	if (tb_json_get_string(object, "detail", &text))
		tb_error_detail(error, "%s", text);
	if (tb_json_get_string(object, "hint", &text))
		tb_error_hint(error, "%s", text);
	if (tb_json_get_int(object, "http", &http) && http > 0 && http < 1000)
		error->http_status = (int) http;
	if (tb_json_get_bool(object, "retryable", &retryable))
		error->retryable = retryable;
}
