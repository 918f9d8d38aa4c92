/*
 * Reading S3's XML with expat, text by text; and the two ways in which text is written into what is sent.
 */
#include "io/s3_xml.h"

#include <expat.h>
#include <limits.h>
#include <string.h>

#define DEPTH_MAX 8
#define PATH_MAX_BYTES 256
#define TEXT_MAX_BYTES 8192		/* a key of 1,024 bytes, each as %XX, and a continuation token */

typedef struct Reader
{
	XML_Parser	parser;			/* owned */
	TbS3XmlText text;
	void	   *arg;
	TbStatus	status;
	TbError    *err;			/* may be NULL */
	char		path[PATH_MAX_BYTES];
	size_t		path_len;
	int			depth;
	bool		leaf;			/* the last tag opened an element */
	size_t		len;
	char		bytes[TEXT_MAX_BYTES + 1];
} Reader;

static void
stop(Reader *r, TbStatus status, const char *message)
{
	if (r->status == TB_OK)
		r->status = message != NULL ? tb_fail(r->err, status, "%s", message) : status;
	(void) XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL
element_opens(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	Reader	   *r = arg;
	size_t		len = strlen(name);

	if (++r->depth > DEPTH_MAX || r->path_len + len + 2 > sizeof(r->path))
	{
		stop(r, TB_E_PROTOCOL, "server answers with XML that is too deep");
		return;
	}
	if (r->path_len > 0)
		r->path[r->path_len++] = '/';
	memcpy(r->path + r->path_len, name, len + 1);
	r->path_len += len;
	r->leaf = true;
	r->len = 0;
}

static void XMLCALL
element_closes(void *arg, const XML_Char *name)
{
	Reader	   *r = arg;
	char	   *slash;

	if (r->status != TB_OK)
		return;
	if (r->leaf)
	{
		TbStatus	status;

		r->bytes[r->len] = '\0';
		status = r->text(r->arg, r->path, r->bytes, r->len, r->err);
		if (status != TB_OK)
		{
			stop(r, status, NULL);
			return;
		}
	}
	r->leaf = false;
	r->depth--;
	slash = strrchr(r->path, '/');
	r->path_len = slash != NULL ? (size_t) (slash - r->path) : 0;
	r->path[r->path_len] = '\0';
}

static void XMLCALL
text_comes(void *arg, const XML_Char *text, int len)
{
	Reader	   *r = arg;

	if (!r->leaf || r->status != TB_OK)
		return;
	if ((size_t) len > TEXT_MAX_BYTES - r->len)
	{
		stop(r, TB_E_PROTOCOL, "server answers with a name that is too long");
		return;
	}
	memcpy(r->bytes + r->len, text, (size_t) len);
	r->len += (size_t) len;
}

static void XMLCALL
doctype_opens(void *arg, const XML_Char *name, const XML_Char *system, const XML_Char *public, int internal)
{
	stop(arg, TB_E_PROTOCOL, "server answers with a document type");
}

TbStatus
tb_s3_xml_read(const void *bytes, size_t len, TbS3XmlText text, void *arg, TbError *err)
{
	static const XML_Memory_Handling_Suite memory = {tb_malloc, tb_realloc, tb_free};
	Reader	   *r;
	TbStatus	status;

	if (len > INT_MAX)
		return tb_fail(err, TB_E_PROTOCOL, "server answers with too much XML");
	r = tb_calloc(1, sizeof(*r));
	if (r == NULL)
		return tb_fail(err, TB_E_NOMEM, "out of memory");
	r->text = text;
	r->arg = arg;
	r->err = err;
	r->parser = XML_ParserCreate_MM("UTF-8", &memory, NULL);
	if (r->parser == NULL)
		r->status = tb_fail(err, TB_E_NOMEM, "out of memory");
	else
	{
		XML_SetUserData(r->parser, r);
		XML_SetElementHandler(r->parser, element_opens, element_closes);
		XML_SetCharacterDataHandler(r->parser, text_comes);
		XML_SetStartDoctypeDeclHandler(r->parser, doctype_opens);
		if (XML_Parse(r->parser, bytes, (int) len, 1) != XML_STATUS_OK && r->status == TB_OK)
			r->status = XML_GetErrorCode(r->parser) == XML_ERROR_NO_MEMORY ?
				tb_fail(err, TB_E_NOMEM, "out of memory") :
				tb_fail(err, TB_E_PROTOCOL, "server answers with broken XML");
		XML_ParserFree(r->parser);
	}
	status = r->status;
	tb_free(r);
	return status;
}

TbStatus
tb_s3_xml_escape(TbBuf *out, const char *text)
{
	TbStatus	status = TB_OK;

	for (; *text != '\0' && status == TB_OK; text++)
	{
		const char *as = *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '&' ? "&amp;" :
			*text == '"' ? "&quot;" : NULL;

		status = as != NULL ? tb_buf_append(out, as, strlen(as), SIZE_MAX) : tb_buf_append(out, text, 1, SIZE_MAX);
	}
	return status;
}

TbStatus
tb_s3_query_escape(TbBuf *out, const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	TbStatus	status = TB_OK;

	for (; *text != '\0' && status == TB_OK; text++)
	{
		unsigned char c = (unsigned char) *text;
		char		as[3] = {'%', hex[c >> 4], hex[c & 15]};
		bool		plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			c == '-' || c == '_' || c == '.' || c == '~';

		status = plain ? tb_buf_append(out, text, 1, SIZE_MAX) : tb_buf_append(out, as, 3, SIZE_MAX);
	}
	return status;
}
