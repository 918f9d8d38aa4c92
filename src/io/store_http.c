/*
 * Objects behind http(s) URLs, perhaps with basic authentication. What a request goes through is
 * http_request.c's.
 */
#include <string.h>

#include "io/http_request.h"
#include "io/url.h"

typedef struct HttpStore
{
	TbHttpStore http;
	char	   *root;			/* owned; url as requests use it */
} HttpStore;

static TbStatus
http_begin(TbHttpSlot *slot)
{
	slot->url = tb_url_append(((HttpStore *) slot->store)->root, slot->answer.op->key);
	return slot->url != NULL ? TB_OK : TB_E_NOMEM;
}

static TbStatus
http_dress(TbHttpSlot *slot)
{
	TbOp	   *op = slot->answer.op;
	const char *match = tb_http_match(op);
	const char *none_match = tb_http_none_match(op);
	char		range[64];

	tb_http_range(op, range);
	if ((range[0] != '\0' && !tb_http_header(slot, "Range: %s", range)) ||
		(match != NULL && !tb_http_header(slot, "If-Match: %s", match)) ||
		(none_match != NULL && !tb_http_header(slot, "If-None-Match: %s", none_match)))
		return tb_op_nomem(op);
	return TB_OK;
}

/* Follow a redirect, where that is allowed. */
static TbStatus
http_answered(TbHttpSlot *slot)
{
	const TbHttpHead *head = &slot->answer.head;
	char	   *target;
	TbError		why;
	TbStatus	status;

	if (!slot->answer.redirect)
		return TB_OK;
	if (head->location_field != TB_FIELD_GOOD)
		status = tb_fail(&why, TB_E_PROTOCOL, "redirect without a location");
	else
		status = tb_url_redirect(slot->url, head->location, NULL, NULL, &target, &why);
	return status == TB_OK ? tb_http_go(slot, target) : tb_http_refuse(slot, &why);
}

static const TbHttpKind http_kind = {
	.slot_bytes = sizeof(TbHttpSlot),
	.begin = http_begin,
	.dress = http_dress,
	.answered = http_answered,
};

static void
http_close(TbStore *base)
{
	HttpStore  *store = (HttpStore *) base;

	tb_free(store->root);
	tb_http_store_free(&store->http);
}

/* Basic authentication; what is in flight keeps what it has. */
static TbStatus
http_set_credentials(TbStore *base, const char *user, const char *password, const char *token, TbError *err)
{
	TbHttpStore *store = (TbHttpStore *) base;
	char	   *new_user = user != NULL ? tb_strdup(user) : NULL;
	char	   *new_password = password != NULL ? tb_strdup(password) : NULL;

	if ((user != NULL && new_user == NULL) || (password != NULL && new_password == NULL))
	{
		tb_free(new_user);
		tb_free_secret(new_password);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	tb_free(store->user);
	tb_free_secret(store->password);
	store->user = new_user;
	store->password = new_password;
	return TB_OK;
}

static void
http_scope(TbStore *base, uint8_t scope[32])
{
	const HttpStore *store = (const HttpStore *) base;
	const char *text[] = {store->root, store->http.ca_file, store->http.user, store->http.password};

	tb_http_scope(&store->http, text, sizeof(text) / sizeof(text[0]), scope);
}

static const TbStoreOps http_ops = {
	.connects = true,
	.merges = true,
	.scope = http_scope,
	.start = tb_http_op_start,
	.stop = tb_http_op_stop,
	.close = http_close,
	.set_credentials = http_set_credentials,
};

TbStatus
tb_store_open_http(TbIo *io, const TbStoreSpec *spec, TbStore **out, TbError *err)
{
	HttpStore  *store;
	char	   *root;
	char	   *url;
	size_t		len = strlen(spec->url);
	TbStatus	status = tb_url_check_http(spec->url, &root, err);

	if (status != TB_OK)
		return status;
	while (len > 0 && spec->url[len - 1] == '/')
		len--;
	store = tb_calloc(1, sizeof(*store));
	url = tb_strndup(spec->url, len);
	if (store == NULL || url == NULL)
	{
		tb_free(root);
		tb_free(url);
		tb_free(store);
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	}
	store->root = root;
	store->http.kind = &http_kind;
	store->http.base.ops = &http_ops;
	status = tb_http_store_init(&store->http, io, url, root, spec, err);
	if (status == TB_OK)
		status = http_set_credentials(&store->http.base, spec->user, spec->password, NULL, err);
	if (status != TB_OK)
	{
		http_close(&store->http.base);
		return status;
	}
	*out = &store->http.base;
	return TB_OK;
}
