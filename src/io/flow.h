/*
 * Flow to one endpoint (scheme, host and port), shared by all stores of an engine there: how many requests in flight
 * pay, how many attempts may be repeated, which requests are late. Decides from times and counts that op.c tells;
 * pure arithmetic, so that tests drive it with a clock of their own.
 */
#ifndef TB_IO_FLOW_H
#define TB_IO_FLOW_H

#include "base/base.h"

#define TB_FLOW_FIRST 16		/* requests in flight to an endpoint that nothing is known of */

typedef struct TbFlow TbFlow;

extern TbFlow *tb_flow_new(int max_in_flight, int hedge_percent);	/* NULL when memory is gone */
extern void tb_flow_free(TbFlow *flow);

/* Requests in flight that are worth it now, 1 to max. */
extern int	tb_flow_window(const TbFlow *flow);
/* How long until the next may start: an endpoint that refuses all is left alone for a while. 0: at once. */
extern int64_t tb_flow_pause_ns(const TbFlow *flow, int64_t now_ns);
extern void tb_flow_started(TbFlow *flow, int64_t now_ns);
/* Bytes of an answer are coming. */
extern void tb_flow_heard(TbFlow *flow, int64_t now_ns);
/* A request has waited for waited_ns, others are queued. Where nothing is heard at all, that is latency. */
extern void tb_flow_silent(TbFlow *flow, int64_t now_ns, int64_t waited_ns);
/* An attempt was answered: first byte after first_ns, all of bytes after all_ns; in_flight when it ended, queued:
 * more were waiting. */
extern void tb_flow_answered(TbFlow *flow, int64_t now_ns, int64_t first_ns, int64_t all_ns, uint64_t bytes,
							 int in_flight, bool queued);
/* A request of another kind succeeded, whose times say nothing about reading. */
extern void tb_flow_done(TbFlow *flow);
/* 503 or 429: fewer from now on. */
extern void tb_flow_throttled(TbFlow *flow, int64_t now_ns);
/* The server failed to answer. When all do, it gets a rest. tb_flow_throttled includes this. */
extern void tb_flow_failed(TbFlow *flow, int64_t now_ns);

/* Retries: may one more attempt be made? Earned by requests that succeed, so that a dead endpoint gets few. Takes
 * the token. */
extern bool tb_flow_may_retry(TbFlow *flow) TB_MUST_CHECK;

/* Hedging: after how long without a first byte a request of so many bytes counts as late; INT64_MAX: nothing is
 * known yet. */
extern int64_t tb_flow_late_ns(const TbFlow *flow, uint64_t bytes);
/* Within hedge_percent of all requests, and a retry token. Takes the tokens. */
extern bool tb_flow_may_hedge(TbFlow *flow) TB_MUST_CHECK;

#endif
