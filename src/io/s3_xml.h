/*
 * The XML of S3's answers, pure: each element that holds text is told with where it stands. Document types (and so
 * entities of their own), deep nesting and long texts end the reading: no answer of a server needs them.
 */
#ifndef TB_IO_S3_XML_H
#define TB_IO_S3_XML_H

#include "base/base.h"

/* path: names from the root, as "ListBucketResult/Contents/Key". An error ends the reading and is passed on. */
typedef TbStatus (*TbS3XmlText) (void *arg, const char *path, const char *text, size_t len, TbError *err);

/* errors: PROTOCOL (not well-formed, cut, hostile), NOMEM, text's own. */
extern TbStatus tb_s3_xml_read(const void *bytes, size_t len, TbS3XmlText text, void *arg, TbError *err) TB_MUST_CHECK;

/* Append text with '<', '>', '&' and '"' escaped; errors: NOMEM. */
extern TbStatus tb_s3_xml_escape(TbBuf *out, const char *text) TB_MUST_CHECK;
/* Append text as the value of a query: all but unreserved bytes as %XX. errors: NOMEM. */
extern TbStatus tb_s3_query_escape(TbBuf *out, const char *text) TB_MUST_CHECK;

#endif
