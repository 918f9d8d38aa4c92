/*
 * Header lines. Strict where a value proves something (Content-Range, Content-Length), opaque where
 * it is only compared (ETag, Last-Modified).
 */
#include "io/http_head.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct Text
{
	const char *at;				/* borrowed, no NUL at its end */
	size_t		len;
} Text;

void
tb_head_reset(TbHttpHead *head)
{
	memset(head, 0, sizeof(*head));
	head->retry_after_ms = -1;
	head->date_s = -1;
}

static Text
trim(const char *at, size_t len)
{
	while (len > 0 && (*at == ' ' || *at == '\t'))
	{
		at++;
		len--;
	}
	while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t' || at[len - 1] == '\r' || at[len - 1] == '\n'))
		len--;
	return (Text) {at, len};
}

static bool
is(Text text, const char *word)
{
	return text.len == strlen(word) && strncasecmp(text.at, word, text.len) == 0;
}

/* Digits only, at least one, below 2^63. Advances past them. */
static bool
take_number(Text *text, uint64_t *value)
{
	uint64_t	n = 0;
	size_t		i = 0;

	for (; i < text->len && text->at[i] >= '0' && text->at[i] <= '9'; i++)
	{
		if (n > (uint64_t) INT64_MAX / 10 - 1)
			return false;
		n = n * 10 + (uint64_t) (text->at[i] - '0');
	}
	text->at += i;
	text->len -= i;
	*value = n;
	return i > 0;
}

static bool
take_char(Text *text, char c)
{
	if (text->len == 0 || *text->at != c)
		return false;
	text->at++;
	text->len--;
	return true;
}

bool
tb_head_parse_range(const char *at, size_t len, uint64_t *first, uint64_t *last, uint64_t *total)
{
	Text		text = {at, len};

	return take_number(&text, first) && take_char(&text, '-') && take_number(&text, last) &&
		take_char(&text, '/') && take_number(&text, total) && text.len == 0 && *first <= *last &&
		*last < *total;
}

static void
read_range(TbHttpHead *head, Text value)
{
	bool		good = head->range_field == TB_FIELD_ABSENT && value.len > 6 &&
		strncasecmp(value.at, "bytes ", 6) == 0 &&
		tb_head_parse_range(value.at + 6, value.len - 6, &head->first, &head->last, &head->total);

	head->range_field = good ? TB_FIELD_GOOD : TB_FIELD_BAD;
}

static void
read_length(TbHttpHead *head, Text value)
{
	uint64_t	n;
	bool		good = take_number(&value, &n) && value.len == 0 &&
		(head->length_field == TB_FIELD_ABSENT || (head->length_field == TB_FIELD_GOOD && head->length == n));

	head->length = n;
	head->length_field = good ? TB_FIELD_GOOD : TB_FIELD_BAD;
}

/* Keep a text that may be there once and has to fit into size bytes. */
static void
read_text(TbHeadField *field, char *text, size_t size, Text value)
{
	bool		good = *field == TB_FIELD_ABSENT && value.len > 0 && value.len < size;

	*field = good ? TB_FIELD_GOOD : TB_FIELD_BAD;
	if (good)
	{
		memcpy(text, value.at, value.len);
		text[value.len] = '\0';
	}
}

static void
read_retry_after(TbHttpHead *head, Text value, int64_t now_s)
{
	char		date[64];
	uint64_t	seconds;
	int64_t		then_s;

	if (value.len == 0 || value.len >= sizeof(date))
		return;
	memcpy(date, value.at, value.len);
	date[value.len] = '\0';
	if (take_number(&value, &seconds))
	{
		if (value.len == 0)
			head->retry_after_ms = seconds < INT32_MAX ? (int64_t) seconds * 1000 : (int64_t) INT32_MAX * 1000;
		return;
	}
	then_s = (int64_t) curl_getdate(date, NULL);
	if (then_s >= 0)
		head->retry_after_ms = then_s > now_s ? (then_s - now_s) * 1000 : 0;
}

/* Keep a text where it fits; the last one counts. */
static void
keep_text(char *text, size_t size, Text value)
{
	if (value.len < size)
	{
		memcpy(text, value.at, value.len);
		text[value.len] = '\0';
	}
}

static void
read_date(TbHttpHead *head, Text value)
{
	char		date[64] = "";

	keep_text(date, sizeof(date), value);
	head->date_s = date[0] != '\0' ? (int64_t) curl_getdate(date, NULL) : -1;
}

/* Fields that only S3 has. */
static void
read_amazon_field(TbHttpHead *head, Text name, Text value)
{
	static const char *const checksums[TB_CHECKSUMS] = {
		[TB_CHECKSUM_CRC32] = "x-amz-checksum-crc32",
		[TB_CHECKSUM_CRC32C] = "x-amz-checksum-crc32c",
		[TB_CHECKSUM_CRC64NVME] = "x-amz-checksum-crc64nvme",
		[TB_CHECKSUM_SHA256] = "x-amz-checksum-sha256",
	};

	if (is(name, "x-amz-request-id"))
		keep_text(head->request_id, sizeof(head->request_id), value);
	else if (is(name, "x-amz-bucket-region"))
		keep_text(head->region, sizeof(head->region), value);
	for (int i = 0; i < TB_CHECKSUMS; i++)
		if (checksums[i] != NULL && is(name, checksums[i]))
			keep_text(head->checksum[i], sizeof(head->checksum[i]), value);
}

static void
read_field(TbHttpHead *head, Text name, Text value, int64_t now_s)
{
	if (is(name, "content-range"))
		read_range(head, value);
	else if (is(name, "content-length"))
		read_length(head, value);
	else if (is(name, "transfer-encoding"))
		head->chunked = !is(value, "identity");
	else if (is(name, "content-encoding"))
		head->encoded = head->encoded || !is(value, "identity");
	else if (is(name, "etag"))
		read_text(&head->etag_field, head->etag, sizeof(head->etag), value);
	else if (is(name, "location"))
		read_text(&head->location_field, head->location, sizeof(head->location), value);
	else if (is(name, "retry-after"))
		read_retry_after(head, value, now_s);
	else if (is(name, "last-modified"))
		keep_text(head->last_modified, sizeof(head->last_modified), value);
	else if (is(name, "date"))
		read_date(head, value);
	else if (is(name, "content-md5"))
		keep_text(head->checksum[TB_CHECKSUM_MD5], sizeof(head->checksum[TB_CHECKSUM_MD5]), value);
	else if (name.len > 6 && strncasecmp(name.at, "x-amz-", 6) == 0)
		read_amazon_field(head, name, value);
}

/* A status line begins a head; one after a 1xx forgets the interim one. */
static bool
read_status(TbHttpHead *head, Text line)
{
	const char *space;
	size_t		bytes = head->bytes;

	if (line.len < 9 || strncasecmp(line.at, "HTTP/", 5) != 0)
		return false;
	space = memchr(line.at, ' ', line.len);
	if (space == NULL || line.at + line.len - space < 4)
		return false;
	tb_head_reset(head);
	head->bytes = bytes;
	for (int i = 1; i <= 3; i++)
		head->status = head->status * 10 + (space[i] >= '0' && space[i] <= '9' ? space[i] - '0' : 0);
	return true;
}

bool
tb_head_line(TbHttpHead *head, const char *line, size_t len, int64_t now_s)
{
	Text		text = trim(line, len);
	const char *colon;

	head->bytes += len;
	if (head->bytes > TB_HEAD_MAX_BYTES)
		return false;
	if (head->complete && head->status >= 200)
		return true;			/* trailers prove nothing */
	if (text.len == 0)
	{
		head->complete = head->status >= 200;
		return true;
	}
	if (read_status(head, text))
		return true;
	colon = memchr(text.at, ':', text.len);
	if (colon != NULL)
		read_field(head, (Text) {text.at, (size_t) (colon - text.at)},
				   trim(colon + 1, text.len - (size_t) (colon - text.at) - 1), now_s);
	return true;
}

bool
tb_head_is_strong(const char *version)
{
	size_t		len = strlen(version);

	if (len < 2 || version[0] != '"' || version[len - 1] != '"')
		return false;
	for (size_t i = 1; i < len - 1; i++)
		if ((unsigned char) version[i] <= 0x20 || version[i] == 0x7f || version[i] == '"')
			return false;
	return true;
}

void
tb_head_version(const TbHttpHead *head, uint64_t size, char version[96])
{
	bool		has_etag = head->etag_field == TB_FIELD_GOOD;
	bool		weak = has_etag && strncasecmp(head->etag, "W/", 2) == 0;

	if (has_etag && !weak && strlen(head->etag) < 96)
		(void) snprintf(version, 96, "%.95s", head->etag);
	else if (has_etag && !weak)	/* too long to keep: its hash is as good for comparing */
		(void) snprintf(version, 96, "etag-%016" PRIx64 "%016" PRIx64,
						tb_hash64(head->etag, strlen(head->etag), 1),
						tb_hash64(head->etag, strlen(head->etag), 2));
	else if (size != UINT64_MAX && head->last_modified[0] != '\0')
		(void) snprintf(version, 96, "%" PRIu64 "-%s", size, head->last_modified);
	else if (has_etag)
		(void) snprintf(version, 96, "%.95s", head->etag);
	else if (size != UINT64_MAX)
		(void) snprintf(version, 96, "%" PRIu64 "-", size);
	else
		version[0] = '\0';
}
