/*
 * The retry layer's rule: whether a failed attempt is made again, and when. What may pass is
 * marked where the error is born (TbError.retryable); how often is decided here alone.
 *
 * Many processes that fail together must not make it worse: beside the tokens of each (flow.h) the node's books say
 * how many retries all of them have made of late.
 *
 * Delays double from 100 ms to 10 s with jitter, so that many who failed together do not come back
 * together. A server's Retry-After is obeyed, up to a cap.
 */
#include "io/store.h"

#define FIRST_DELAY_MS 100.0
#define MAX_DELAY_MS 10000.0
#define BUDGET_NS INT64_C(10000000000)
#define BUDGET_FIRST 20			/* in BUDGET_NS, by all processes, */
#define BUDGET_PART 12			/* and one for so many requests */

bool
tb_retry_is_wrong(TbStatus code)
{
	return code == TB_E_PROTOCOL || code == TB_E_CORRUPT || code == TB_E_CHANGED;
}

int
tb_retry_attempts(const TbError *error, int retries, bool proven)
{
	int			most = retries;

	if (!error->retryable)
		return 1;
	if (tb_retry_is_wrong(error->code))
		most = 1;				/* once more, on another connection */
	else if (error->code == TB_E_CONNECT && !proven)
		most = 2;				/* likely a wrong address: say so soon */
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

bool
tb_retry_in_budget(TbStore *store, int64_t now_ns)
{
	uint64_t	requests;
	uint64_t	retries;

	if (store->books == NULL)
		return true;
	requests = __atomic_load_n(&store->books->requests, __ATOMIC_RELAXED);
	retries = __atomic_load_n(&store->books->retries, __ATOMIC_RELAXED);
	if (now_ns - store->seen_ns > BUDGET_NS)
	{
		store->seen_ns = now_ns;
		store->seen_requests = requests;
		store->seen_retries = retries;
	}
	return retries - store->seen_retries < BUDGET_FIRST + (requests - store->seen_requests) / BUDGET_PART;
}
