/*
 * What an S3 server says when it refuses, pure: the XML of an error, and what its codes mean here. The XML
 * is read for a few words and believed in nothing that could do harm.
 */
#ifndef TB_IO_S3_ERROR_H
#define TB_IO_S3_ERROR_H

#include "base/base.h"

#define TB_S3_ERROR_MAX_BYTES ((size_t) 16 << 10)

typedef struct TbS3Error
{
	bool		is_error;		/* the document is <Error> */
	char		code[64];		/* "" where it is not told, as the others */
	char		region[64];
	char		endpoint[256];
	char		request_id[80];
} TbS3Error;

/* Read the first TB_S3_ERROR_MAX_BYTES of a body; what cannot be read is not there. */
extern void tb_s3_error_parse(const void *bytes, size_t len, TbS3Error *error);

typedef enum TbS3Act
{
	TB_S3_FAIL,					/* the request failed so */
	TB_S3_MISSING,				/* the object is not there */
	TB_S3_KEYS,					/* other credentials may help */
	TB_S3_CLOCK,				/* another time may help */
	TB_S3_REGION				/* another region or endpoint may help */
} TbS3Act;

typedef struct TbS3Meaning
{
	const char *code;
	TbS3Act		act;
	TbStatus	status;
	bool		retryable;
	const char *message;
	const char *hint;			/* NULL: none */
} TbS3Meaning;

/* NULL: not a code we know. */
extern const TbS3Meaning *tb_s3_error_meaning(const char *code);

/* Copy text for a message: printable ASCII, all else as \xhh, cut to size. */
extern void tb_s3_printable(const char *text, char *out, size_t size);

#endif
