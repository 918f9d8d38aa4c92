/*
 * Errors of S3:
 * <Error><Code>..</Code><Region>..</Region><Endpoint>..</Endpoint><RequestId>..</RequestId></Error>. Only
 * the children of the root count; a document type ends the reading.
 */
#include "io/s3_error.h"

#include <expat.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 16

typedef struct Reader
{
	XML_Parser	parser;			/* owned */
	TbS3Error  *error;
	int			depth;			/* elements that are open */
	char	   *text;			/* where the open element's text goes; NULL: nowhere */
	size_t		size;
	size_t		len;
} Reader;

static void XMLCALL
element_opens(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	Reader	   *r = arg;
	TbS3Error  *e = r->error;

	r->text = NULL;
	r->len = 0;
	if (++r->depth > DEPTH_MAX)
		(void) XML_StopParser(r->parser, XML_FALSE);
	else if (r->depth == 1)
		e->is_error = strcmp(name, "Error") == 0;
	else if (r->depth == 2 && e->is_error)
	{
		if (strcmp(name, "Code") == 0)
			r->text = e->code, r->size = sizeof(e->code);
		else if (strcmp(name, "Region") == 0)
			r->text = e->region, r->size = sizeof(e->region);
		else if (strcmp(name, "Endpoint") == 0)
			r->text = e->endpoint, r->size = sizeof(e->endpoint);
		else if (strcmp(name, "RequestId") == 0)
			r->text = e->request_id, r->size = sizeof(e->request_id);
	}
	if (r->text != NULL)
		r->text[0] = '\0';
}

static void XMLCALL
element_closes(void *arg, const XML_Char *name)
{
	Reader	   *r = arg;

	r->depth--;
	r->text = NULL;
}

static void XMLCALL
text_comes(void *arg, const XML_Char *text, int len)
{
	Reader	   *r = arg;

	for (int i = 0; r->text != NULL && i < len && r->len + 1 < r->size; i++)
	{
		r->text[r->len++] = text[i];
		r->text[r->len] = '\0';
	}
}

static void XMLCALL
doctype_opens(void *arg, const XML_Char *name, const XML_Char *system, const XML_Char *public, int internal)
{
	Reader	   *r = arg;

	(void) XML_StopParser(r->parser, XML_FALSE);
}

void
tb_s3_error_parse(const void *bytes, size_t len, TbS3Error *error)
{
	static const XML_Memory_Handling_Suite memory = {tb_malloc, tb_realloc, tb_free};
	Reader		r = {.error = error};

	memset(error, 0, sizeof(*error));
	if (len == 0)
		return;
	r.parser = XML_ParserCreate_MM("UTF-8", &memory, NULL);
	if (r.parser == NULL)
		return;
	XML_SetUserData(r.parser, &r);
	XML_SetElementHandler(r.parser, element_opens, element_closes);
	XML_SetCharacterDataHandler(r.parser, text_comes);
	XML_SetStartDoctypeDeclHandler(r.parser, doctype_opens);
	/* a body that is cut is read as far as it goes */
	(void) XML_Parse(r.parser, bytes, (int) (len < TB_S3_ERROR_MAX_BYTES ? len : TB_S3_ERROR_MAX_BYTES), 0);
	XML_ParserFree(r.parser);
}

#define CHECK_KEYS "Check the user mapping."
#define RENEW_KEYS "Renew the credentials of the user mapping."
#define SLOWER "Lower the number of concurrent requests."

static const TbS3Meaning meanings[] = {
	{"AccessDenied", TB_S3_FAIL, TB_E_DENIED, false, "server denies access",
	"Check bucket policy and user mapping; without s3:ListBucket a missing object is denied too."},
	{"AllAccessDisabled", TB_S3_FAIL, TB_E_DENIED, false, "server denies access", "Check the bucket's policy."},
	{"AccountProblem", TB_S3_FAIL, TB_E_DENIED, false, "server denies access",
		"Ask the provider about the account."},
	{"InvalidPayer", TB_S3_FAIL, TB_E_DENIED, false, "server denies access", "Ask the provider about the account."},
	{"InvalidObjectState", TB_S3_FAIL, TB_E_UNSUPPORTED, false, "object is archived", "Restore the object first."},
	{"InvalidAccessKeyId", TB_S3_KEYS, TB_E_AUTH, false, "server does not know the access key", CHECK_KEYS},
	{"SignatureDoesNotMatch", TB_S3_FAIL, TB_E_AUTH, false, "server refuses the signature",
	"Check the secret access key of the user mapping."},
	{"InvalidSecurity", TB_S3_FAIL, TB_E_AUTH, false, "server refuses the credentials", CHECK_KEYS},
	{"NotSignedUp", TB_S3_FAIL, TB_E_AUTH, false, "server refuses the credentials", CHECK_KEYS},
	{"ExpiredToken", TB_S3_KEYS, TB_E_AUTH, true, "credentials have expired", RENEW_KEYS},
	{"ExpiredTokenException", TB_S3_KEYS, TB_E_AUTH, true, "credentials have expired", RENEW_KEYS},
	{"TokenRefreshRequired", TB_S3_KEYS, TB_E_AUTH, true, "credentials have expired", RENEW_KEYS},
	{"InvalidToken", TB_S3_KEYS, TB_E_AUTH, true, "server refuses the session token", RENEW_KEYS},
	{"RequestTimeTooSkewed", TB_S3_CLOCK, TB_E_AUTH, false, "clocks of server and client differ too much",
	"Set the clock of the database server."},
	{"RequestExpired", TB_S3_CLOCK, TB_E_AUTH, false, "clocks of server and client differ too much",
	"Set the clock of the database server."},
	{"SlowDown", TB_S3_FAIL, TB_E_THROTTLED, true, "server is throttling requests", SLOWER},
	{"ServiceUnavailable", TB_S3_FAIL, TB_E_THROTTLED, true, "server is throttling requests", SLOWER},
	{"TooManyRequests", TB_S3_FAIL, TB_E_THROTTLED, true, "server is throttling requests", SLOWER},
	{"RequestLimitExceeded", TB_S3_FAIL, TB_E_THROTTLED, true, "server is throttling requests", SLOWER},
	{"Throttling", TB_S3_FAIL, TB_E_THROTTLED, true, "server is throttling requests", SLOWER},
	{"ThrottlingException", TB_S3_FAIL, TB_E_THROTTLED, true, "server is throttling requests", SLOWER},
	{"BandwidthLimitExceeded", TB_S3_FAIL, TB_E_THROTTLED, true, "server is throttling requests", SLOWER},
	{"RequestTimeout", TB_S3_FAIL, TB_E_LOST, true, "server failed to answer", NULL},
	{"InternalError", TB_S3_FAIL, TB_E_LOST, true, "server failed to answer", NULL},
	{"OperationAborted", TB_S3_FAIL, TB_E_LOST, true, "server failed to answer", NULL},
	{"IncompleteBody", TB_S3_FAIL, TB_E_LOST, true, "upload was damaged on its way", NULL},
	{"BadDigest", TB_S3_FAIL, TB_E_LOST, true, "upload was damaged on its way", NULL},
	{"XAmzContentSHA256Mismatch", TB_S3_FAIL, TB_E_LOST, true, "upload was damaged on its way", NULL},
	{"NoSuchKey", TB_S3_MISSING, TB_OK, false, NULL, NULL},
	{"NoSuchVersion", TB_S3_MISSING, TB_OK, false, NULL, NULL},
	{"NoSuchUpload", TB_S3_MISSING, TB_OK, false, NULL, NULL},
	{"NoSuchBucket", TB_S3_FAIL, TB_E_NOT_FOUND, false, "bucket does not exist",
		"Check the bucket's name in the url."},
	{"InvalidBucketName", TB_S3_FAIL, TB_E_NOT_FOUND, false, "bucket does not exist",
	"Check the bucket's name in the url."},
	{"AuthorizationHeaderMalformed", TB_S3_REGION, TB_E_AUTH, false, "server refuses the signature",
	"Check the region of the server."},
	{"IllegalLocationConstraintException", TB_S3_REGION, TB_E_INVALID, false, "bucket lies in another region",
	"Check the region of the server."},
	{"PermanentRedirect", TB_S3_REGION, TB_E_PROTOCOL, false, "bucket lies elsewhere",
	"Check region and endpoint of the server."},
	{"TemporaryRedirect", TB_S3_REGION, TB_E_PROTOCOL, false, "bucket lies elsewhere",
	"Check region and endpoint of the server."},
	{"PreconditionFailed", TB_S3_FAIL, TB_E_CHANGED, false, "object has changed", NULL},
	{"ConditionalRequestConflict", TB_S3_FAIL, TB_E_CHANGED, true, "object is being written by another", NULL},
	{"EntityTooLarge", TB_S3_FAIL, TB_E_LIMIT, false, "object is larger than the server allows", NULL},
	{"QuotaExceeded", TB_S3_FAIL, TB_E_NO_SPACE, false, "no space left in the store",
		"Raise the quota of the bucket."},
	{"XMinioStorageFull", TB_S3_FAIL, TB_E_NO_SPACE, false, "no space left in the store",
		"Free space in the store."},
};

const TbS3Meaning *
tb_s3_error_meaning(const char *code)
{
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (strcmp(meanings[i].code, code) == 0)
			return &meanings[i];
	return NULL;
}

void
tb_s3_printable(const char *text, char *out, size_t size)
{
	size_t		n = 0;

	for (; *text != '\0'; text++)
	{
		bool		plain = *text >= 0x20 && *text < 0x7f && *text != '\\';
		size_t		needs = plain ? 1 : 4;

		if (n + needs >= size)
			break;
		if (plain)
			out[n] = *text;
		else
			(void) snprintf(out + n, size - n, "\\x%02x", (unsigned char) *text);
		n += needs;
	}
	out[n] = '\0';
}
