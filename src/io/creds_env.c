/* Provider "environment": AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN of this process. */
#include "io/creds_parts.h"

static TbStatus
ask(TbAsk *a)
{
	const char *id = tb_ask_env("AWS_ACCESS_KEY_ID");
	const char *secret = tb_ask_env("AWS_SECRET_ACCESS_KEY");

	if (id == NULL)
		return tb_ask_none(a, "AWS_ACCESS_KEY_ID is not set");
	if (secret == NULL)
		return tb_ask_none(a, "AWS_SECRET_ACCESS_KEY is not set");
	switch (tb_keys_copy(&a->keys, id, secret, tb_ask_env("AWS_SESSION_TOKEN")))
	{
		case TB_OK:
			return TB_OK;
		case TB_E_NOMEM:
			return tb_ask_nomem(a);
		default:
			return tb_ask_none(a, "AWS_ACCESS_KEY_ID or AWS_SESSION_TOKEN holds spaces or line ends");
	}
}

const TbCredsProvider tb_creds_environment = {"environment", ask, NULL, NULL};
