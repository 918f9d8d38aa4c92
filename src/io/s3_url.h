/*
 * Where an s3 store lies, pure: bucket, prefix, endpoint, region, and the URLs made of them.
 *
 * The url's path is a key prefix as S3 knows it, taken literally: '%', spaces and empty segments ("s3://b/a//c",
 * "s3://b//a") stand for themselves; one slash at the end separates the prefix from keys. "." and ".." are
 * refused, because gateways fold them, and '?' and '#', because they look like something else.
 */
#ifndef TB_IO_S3_URL_H
#define TB_IO_S3_URL_H

#include "io/sigv4.h"
#include "io/store.h"

typedef struct TbS3Place
{
	char	   *bucket;			/* owned, as the others */
	char	   *prefix;			/* "" or as in the url, without the slash that separates it from keys */
	char	   *endpoint;		/* host[:port]; a port only where it is not the scheme's own */
	char	   *domain;			/* host that redirects must lie at or below; NULL: AWS's, told by names */
	bool		tls;
	bool		follows_region; /* the endpoint is AWS's own for the region */
	bool		bucket_in_host;
	char		region[TB_SIGV4_REGION_BYTES];
} TbS3Place;

/* errors: INVALID, NOMEM; then there is nothing to free. */
extern TbStatus tb_s3_place_init(TbS3Place *place, const TbStoreSpec *spec, TbError *err) TB_MUST_CHECK;
extern void tb_s3_place_free(TbS3Place *place);
extern bool tb_s3_region_ok(const char *region);
/* From now on in another region, which is good. errors: NOMEM. */
extern TbStatus tb_s3_place_move(TbS3Place *place, const char *region) TB_MUST_CHECK;

/* The endpoint alone, as a URL. owns: the caller. NULL when memory is gone; likewise below. */
extern char *tb_s3_endpoint_url(const TbS3Place *place);
/* Of an object, or of the bucket (key ""); query: NULL or encoded. */
extern char *tb_s3_object_url(const TbS3Place *place, const char *key, const char *query);
/* Take an http URL apart for signing; query NULL: none. All are owned by *text, tb_free. */
extern bool tb_s3_split_url(const char *url, char **text, const char **host, const char **path, const char **query);

/* Where a redirect of the server leads: as tb_url_redirect, and only to the same service. */
extern TbStatus tb_s3_redirect(const TbS3Place *place, const char *from, const char *location, char **target,
							   TbError *err) TB_MUST_CHECK;

#endif
