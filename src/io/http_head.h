/*
 * The head of an HTTP answer, line by line, pure. Only what proves an answer is kept.
 */
#ifndef TB_IO_HTTP_HEAD_H
#define TB_IO_HTTP_HEAD_H

#include "base/base.h"

#define TB_HEAD_MAX_BYTES ((size_t) 64 << 10)

typedef enum TbHeadField
{
	TB_FIELD_ABSENT,
	TB_FIELD_GOOD,
	TB_FIELD_BAD				/* malformed, or there twice */
} TbHeadField;

/* Checksums of a body that a server may send. */
typedef enum TbChecksum
{
	TB_CHECKSUM_CRC32, TB_CHECKSUM_CRC32C, TB_CHECKSUM_CRC64NVME, TB_CHECKSUM_SHA256, TB_CHECKSUM_MD5,
	TB_CHECKSUMS
} TbChecksum;

typedef struct TbHttpHead
{
	size_t		bytes;			/* all lines so far, also of heads before this one */
	int			status;			/* 0: no status line yet */
	bool		complete;		/* the empty line came */
	bool		chunked;
	bool		encoded;		/* a Content-Encoding that is not identity */
	TbHeadField length_field;	/* Content-Length */
	uint64_t	length;
	TbHeadField range_field;	/* Content-Range: bytes first-last/total */
	uint64_t	first;
	uint64_t	last;
	uint64_t	total;
	TbHeadField etag_field;
	char		etag[128];		/* with its quotes, W/ where weak */
	char		last_modified[40];	/* "" : not told */
	TbHeadField location_field;
	char		location[2048];
	int64_t		retry_after_ms; /* -1: not told */
	int64_t		date_s;			/* the server's clock, Unix time; -1: not told */
	char		request_id[128];	/* S3's, as it came; "" : not told, as the others */
	char		region[64];
	char		checksum[TB_CHECKSUMS][48]; /* base64, by TbChecksum */
} TbHttpHead;

extern void tb_head_reset(TbHttpHead *head);
/* One line with or without its end. false: more than TB_HEAD_MAX_BYTES in all. now_s: for dates,
 * Unix time. */
extern bool tb_head_line(TbHttpHead *head, const char *line, size_t len, int64_t now_s);
/* "first-last/total" behind the unit; first <= last < total. */
extern bool tb_head_parse_range(const char *text, size_t len, uint64_t *first, uint64_t *last, uint64_t *total);
/* Opaque version text: a strong ETag, else "size-date". size UINT64_MAX: not told. "" where nothing
 * is. */
extern void tb_head_version(const TbHttpHead *head, uint64_t size, char version[96]);
/* A strong ETag that is safe to send back. */
extern bool tb_head_is_strong(const char *version);

#endif
