/*
 * Errors are data until their owner raises them.
 *
 * Every engine function that can fail returns a TbStatus and, where the caller wants the words,
 * fills a TbError: a plain record of fixed size that may cross threads and the socket. Only
 * src/pg/error.c turns one into an ereport. Secrets never enter a TbError.
 */
#ifndef TB_BASE_ERROR_H
#define TB_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum TbStatus
{
	TB_OK = 0,
	TB_AGAIN,				/* not an error: waiting for I/O; pump the engine and call again */
	TB_E_NOMEM,				/* 53200 */
	TB_E_CANCELED,			/* 57014 */
	TB_E_IO,				/* 58030 local file system */
	TB_E_NO_SPACE,			/* 53100 */
	TB_E_CONNECT,			/* HV00N name resolution, TCP, TLS */
	TB_E_LOST,				/* 08006 lost, stalled or short after retries; time limit */
	TB_E_PROTOCOL,			/* 08P01 the server breaks the rules of HTTP or the socket */
	TB_E_THROTTLED,			/* 53000 */
	TB_E_AUTH,				/* 28000 */
	TB_E_DENIED,			/* 42501 */
	TB_E_NOT_FOUND,			/* HV00R store or object */
	TB_E_NO_GROUP,			/* HV00Q */
	TB_E_NO_ARRAY,			/* HV005 */
	TB_E_CHANGED,			/* 40001 object changed under the statement */
	TB_E_CORRUPT,			/* XX001 chunk, shard, metadata contradicts itself */
	TB_E_INDEX_CORRUPT,		/* XX002 */
	TB_E_UNSUPPORTED,		/* 0A000 codec, dtype, feature */
	TB_E_INVALID,			/* 22023 parameter or metadata value */
	TB_E_JSON,				/* 22032 */
	TB_E_JSON_DUPLICATE,	/* 22030 */
	TB_E_TEXT,				/* 22P02 text that is no value of its type (fill value...) */
	TB_E_RANGE,				/* 22003 number does not fit */
	TB_E_LIMIT,				/* 54000 a cap of ours */
	TB_E_HANDLE,			/* HV00B unknown, foreign, expired: one text */
	TB_E_UNAVAILABLE,		/* 57P03 streamer down or starting */
	TB_E_SHAPE,				/* 2202E shapes differ */
	TB_E_NULL,				/* 22004 */
	TB_E_STATE,				/* 55000 object not in the state needed (no index_url...) */
	TB_E_INTERNAL			/* XX000 a bug of ours */
} TbStatus;

typedef struct TbError
{
	TbStatus	code;
	bool		retryable;		/* set where the error is born, acted on by the retry layer alone */
	int			http_status;	/* 0: none */
	int			sys_errno;		/* 0: none */
	int64_t		retry_after_ms; /* -1: not told */
	char		message[192];	/* primary: lower case, no full stop, no varying numbers */
	char		detail[640];	/* object, range, block, status */
	char		hint[256];		/* one action */
} TbError;

#define TB_MUST_CHECK __attribute__((warn_unused_result))
#define TB_PRINTF(f, a) __attribute__((format(printf, f, a)))

/*
 * Fill err (NULL allowed) anew with code and message; returns code, so "return tb_fail(...)" reads
 * well.
 */
extern TbStatus tb_fail(TbError *err, TbStatus code, const char *format, ...) TB_PRINTF(3, 4);

/* Append to the detail ("; " between parts) or set the hint. err may be NULL. */
extern void tb_error_detail(TbError *err, const char *format, ...) TB_PRINTF(2, 3);
extern void tb_error_hint(TbError *err, const char *format, ...) TB_PRINTF(2, 3);

/*
 * Fill err from errno: ENOSPC, EDQUOT -> NO_SPACE; EACCES, EPERM -> DENIED; ENOENT -> NOT_FOUND;
 * ENOMEM; else IO.
 */
extern TbStatus tb_fail_errno(TbError *err, int sys_errno, const char *doing, const char *object);

extern void tb_error_clear(TbError *err);

/* The engine's own short word for a status ("corrupt"), for logs and tests; never NULL. */
extern const char *tb_status_name(TbStatus status);

#endif
