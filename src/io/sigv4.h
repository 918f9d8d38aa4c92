/*
 * AWS Signature Version 4 in the Authorization header, pure: from a request to the header's value. Knows no
 * clock, no network and no store. The path is taken as it is sent (S3 encodes it once).
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 */
#ifndef TB_IO_SIGV4_H
#define TB_IO_SIGV4_H

#include "base/base.h"

#define TB_SIGV4_STAMP_BYTES 17 /* "20130524T000000Z" and its NUL */
#define TB_SIGV4_HASH_BYTES 65	/* hex and its NUL */
#define TB_SIGV4_HEADERS_MAX 24
#define TB_SIGV4_QUERY_MAX 32
#define TB_SIGV4_REGION_BYTES 64

typedef struct TbSigv4Header
{
	const char *name;			/* lower case; borrowed, as value */
	const char *value;
} TbSigv4Header;

typedef struct TbSigv4Request
{
	const char *method;			/* all borrowed */
	const char *path;			/* encoded, from its first slash */
	const char *query;			/* encoded, in any order; NULL: none */
	const TbSigv4Header *header;	/* those that are signed, host and x-amz-date among them, in any order */
	size_t		n_headers;
	const char *body_hash;		/* as in x-amz-content-sha256 */
	const char *stamp;			/* as in x-amz-date */
	const char *region;
	const char *service;		/* "s3" */
} TbSigv4Request;

typedef struct TbSigv4Who
{
	const char *access_key_id;
	const char *secret_access_key;
} TbSigv4Who;

/* The key derived from a secret, a day and a region: kept, because it costs more than all the rest. Zero it before
 * first use and wipe it in the end. */
typedef struct TbSigv4Key
{
	uint8_t		key[32];
	uint8_t		from[32];		/* a hash of what it was made from */
	bool		valid;
} TbSigv4Key;

extern void tb_sigv4_stamp(int64_t unix_s, char stamp[TB_SIGV4_STAMP_BYTES]);
/* SHA-256 of a body in hex. bytes may be NULL where len is 0. */
extern void tb_sigv4_body_hash(const void *bytes, size_t len, char hex[TB_SIGV4_HASH_BYTES]);

/* Append the canonical request; and the names of the signed headers ("host;range"). errors: NOMEM, LIMIT
 * (too many headers or query parameters). */
extern TbStatus tb_sigv4_canonical(const TbSigv4Request *request, TbBuf *canonical, TbBuf *names) TB_MUST_CHECK;
/* Append the value of the Authorization header. errors: as tb_sigv4_canonical. */
extern TbStatus tb_sigv4_sign(TbSigv4Key *key, const TbSigv4Who *who, const TbSigv4Request *request,
							  TbBuf *authorization) TB_MUST_CHECK;

#endif
