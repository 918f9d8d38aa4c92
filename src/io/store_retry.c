/*
 * The retry layer's rule, pure: whether a failed attempt is made again, and when. What may pass is
 * marked where the error is born (TbError.retryable); how often is decided here alone.
 *
 * Delays double from 100 ms to 10 s with jitter, so that many who failed together do not come back
 * together. A server's Retry-After is obeyed, up to a cap.
 */
#include "io/store.h"

#define FIRST_DELAY_MS 100.0
#define MAX_DELAY_MS 10000.0

int
tb_retry_attempts(const TbError *error, int retries, bool proven)
{
	int			most = retries;

	if (!error->retryable)
		return 1;
	switch (error->code)
	{
		case TB_E_PROTOCOL:
		case TB_E_CORRUPT:
		case TB_E_CHANGED:
			most = 1;			/* a wrong answer: once more, on another connection */
			break;
		case TB_E_CONNECT:
			if (!proven)
				most = 2;		/* likely a wrong address: say so soon */
			break;
		default:
			break;
	}
	return 1 + (most < retries ? most : retries);
}

int64_t
tb_retry_delay_ms(const TbError *error, int attempt, int retries, bool proven, double random)
{
	double		delay = FIRST_DELAY_MS;

	if (attempt >= tb_retry_attempts(error, retries, proven))
		return -1;
	if (error->retry_after_ms >= 0)
	{
		double		told = error->retry_after_ms < TB_RETRY_AFTER_MAX_MS ?
			(double) error->retry_after_ms : TB_RETRY_AFTER_MAX_MS;

		return (int64_t) (told + random * FIRST_DELAY_MS);
	}
	for (int i = 1; i < attempt && delay < MAX_DELAY_MS; i++)
		delay *= 2;
	if (delay > MAX_DELAY_MS)
		delay = MAX_DELAY_MS;
	return (int64_t) (delay * (0.5 + 0.5 * random));
}
