/*
 * How many requests in flight, found by trying.
 *
 *   start   from TB_FLOW_FIRST. Silence longer than SILENCE_NS is latency, and so is a first byte that always
 *           takes as long: more requests cost nothing then, and the window grows with both. Without latency
 *           it doubles as long as that brings a good part of twice the work.
 *   steady  now and then one round with a larger or smaller window. A larger one stays where it brings work in
 *           proportion, a smaller one where it loses none: what only queues costs memory and patience.
 *   careful for a while after the endpoint asked to slow down: up by one a round, no trials.
 *
 * Work is bytes plus a fixed cost a request, so that small and large requests are measured alike. A round counts
 * only while more requests were waiting: what the caller did not ask for says nothing about the endpoint.
 */
#include "io/flow.h"

#include <math.h>
#include <string.h>

#define REQUEST_WORK 65536.0	/* a small request costs a connection about what so many bytes do */
#define WINDOW_MIN 8.0			/* trials do not go below it; throttling does */
#define START_NS (4 * TB_NS_PER_MS)	/* a shortest first byte of so much is latency, less may be work */
#define SILENCE_NS (8 * TB_NS_PER_MS)	/* so long comes nothing at all only where there is latency */
#define SILENCE_STEP 16.0		/* added for each */
#define UP 1.25					/* trials */
#define DOWN 0.85
#define WORTH 0.4				/* part of the larger window that more work must make up for */
#define LOSS 0.97				/* work that a smaller window must keep */
#define ROUND_NS (20 * TB_NS_PER_MS)	/* shortest round: shorter ones measure noise; */
#define BRIEF_NS (2 * TB_NS_PER_MS)	/* but there is no time to lose where latency is, and after throttling */
#define REST_ROUNDS 4			/* between trials at first; doubled by each that fails */
#define REST_ROUNDS_MAX 64
#define SLOWER 0.7
#define CAREFUL_NS (10000 * TB_NS_PER_MS)
#define CALM_NS (20 * TB_NS_PER_MS)	/* at least, between two decreases */
#define FAILURES 4				/* in a row, before an endpoint is left alone */
#define PAUSE_NS (50 * TB_NS_PER_MS)	/* at first; doubled */
#define PAUSES 2				/* doublings, at most: what fails for good must say so in seconds */

#define RETRIES_FIRST 24.0		/* a cold start may repeat so many: a burst of failures is survived */
#define RETRIES_MAX 48.0
#define RETRIES_EARNED 0.1		/* by a request that succeeds: a tenth more requests at most, in the long run */
#define RETRIES_PER_S 1.0		/* while requests are made: an outage is forgotten */
#define HEDGES_FIRST 2.0
#define HEDGES_MAX 16.0
#define LATE_MIN_NS (2 * TB_NS_PER_MS)
#define LATE_SAMPLES 16
#define STEPS 96				/* of the histogram, four to an octave */
#define FIRST_STEP_NS 16384.0
#define HALVE_AT 1024
#define LARGE_BYTES (256 << 10)

/* How long first bytes take. */
typedef struct Times
{
	uint32_t	n;
	uint32_t	step[STEPS];
	int64_t		late_ns;
} Times;

typedef enum Trial
{
	TRIAL_NONE, TRIAL_UP, TRIAL_DOWN
} Trial;

struct TbFlow
{
	int			max;
	double		hedge_share;
	double		window;
	bool		starting;
	bool		known;			/* something was answered */
	double		latency_ns;		/* of a whole request, smoothed */
	double		first_ns;		/* shortest to a first byte */
	double		least_ns;		/* shortest of a whole request, growing slowly */
	int64_t		grown_ns;		/* when silence last made it grow */
	int64_t		heard_ns;		/* when anything last came */

	/* the round */
	int64_t		since_ns;		/* answers before it count for none */
	int			skip;			/* answers to let pass before it begins */
	int			n;
	int			n_limited;
	double		work;
	double		sum_ns;

	/* trials */
	Trial		trial;
	Trial		next;
	double		before;			/* window and rate of the round before */
	double		before_rate;
	int			rest;			/* rounds until the next */
	int			rests;			/* its length when that one fails */

	/* throttling */
	int64_t		calm_ns;
	int64_t		careful_ns;		/* until then */
	double		ceiling;		/* window that was too much */
	int			failures;		/* in a row */
	int			pauses;
	int64_t		paused_ns;		/* until then */

	double		retries;		/* tokens */
	int64_t		trickled_ns;	/* when some came with time */
	double		hedges;
	Times		times[2];		/* of small requests, of large ones */
};

TbFlow *
tb_flow_new(int max_in_flight, int hedge_percent)
{
	TbFlow	   *flow = tb_calloc(1, sizeof(*flow));

	if (flow == NULL)
		return NULL;
	flow->max = max_in_flight > 0 ? max_in_flight : 1;
	flow->hedge_share = hedge_percent > 0 ? hedge_percent / 100.0 : 0.0;
	flow->window = flow->max < TB_FLOW_FIRST ? flow->max : TB_FLOW_FIRST;
	flow->starting = true;
	flow->skip = (int) flow->window;	/* the first requests connect */
	flow->next = TRIAL_UP;
	flow->rest = flow->rests = REST_ROUNDS;
	flow->retries = RETRIES_FIRST;
	flow->hedges = hedge_percent > 0 ? HEDGES_FIRST : 0.0;
	flow->times[0].late_ns = flow->times[1].late_ns = INT64_MAX;
	return flow;
}

void
tb_flow_free(TbFlow *flow)
{
	tb_free(flow);
}

int
tb_flow_window(const TbFlow *flow)
{
	return flow->window < 1.0 ? 1 : (int) flow->window;
}

int64_t
tb_flow_pause_ns(const TbFlow *flow, int64_t now_ns)
{
	/* without tokens a failure is final: then waiting would save nothing */
	return flow->paused_ns > now_ns && flow->retries >= 1.0 ? flow->paused_ns - now_ns : 0;
}

/* ---- what is late ---- */

static int
step_of(double ns)
{
	int			step = ns <= FIRST_STEP_NS ? 0 : (int) (4.0 * log2(ns / FIRST_STEP_NS));

	return step < STEPS ? step : STEPS - 1;
}

/* The time that a part of all stay below. */
static double
quantile(const Times *times, double part)
{
	double		below = 0.0;

	for (int i = 0; i < STEPS; i++)
	{
		below += times->step[i];
		if (below >= part * times->n)
			return FIRST_STEP_NS * exp2((i + 1) / 4.0);
	}
	return FIRST_STEP_NS * exp2(STEPS / 4.0);
}

/* Late is what takes twice as long as nine of ten, and three times as long as half of them. */
static void
note_first(Times *times, int64_t first_ns)
{
	times->step[step_of((double) first_ns)]++;
	times->n++;
	if (times->n >= HALVE_AT)
	{
		times->n = 0;
		for (int i = 0; i < STEPS; i++)
			times->n += times->step[i] /= 2;
	}
	if (times->n < LATE_SAMPLES || times->n % LATE_SAMPLES != 0)
		return;
	times->late_ns = (int64_t) fmax(fmax(2.0 * quantile(times, 0.9), 3.0 * quantile(times, 0.5)),
									(double) LATE_MIN_NS);
}

/* ---- the window ---- */

static void
new_round(TbFlow *flow, int64_t now_ns)
{
	flow->since_ns = now_ns;
	flow->n = flow->n_limited = 0;
	flow->work = flow->sum_ns = 0.0;
}

/* Another window: what is in flight was started under the old one, so its answers pass first. */
static void
set_window(TbFlow *flow, double window, int64_t now_ns)
{
	double		least = flow->max < WINDOW_MIN ? flow->max : WINDOW_MIN;

	flow->skip = (int) flow->window;
	flow->window = window < least ? least : window > flow->max ? flow->max : window;
	new_round(flow, now_ns);
}

static void
end_start(TbFlow *flow, double window, int64_t now_ns)
{
	flow->starting = false;
	set_window(flow, window, now_ns);
}

/* Grow without a measured round: latency alone says that it costs nothing. */
static void
grow(TbFlow *flow, double by, double limit, int64_t now_ns)
{
	if (flow->window >= limit)
		return;
	flow->window = flow->window + by < limit ? flow->window + by : limit;
	flow->before_rate = 0.0;
	new_round(flow, now_ns);
	if (flow->window >= flow->max)
		end_start(flow, flow->max, now_ns);
}

/* A round while starting: twice the window for a good part of twice the work. */
static void
start_round(TbFlow *flow, double rate, int64_t now_ns)
{
	if (flow->before_rate > 0.0 && rate < flow->before_rate * (1.0 + WORTH * (flow->window / flow->before - 1.0)))
	{
		end_start(flow, flow->before, now_ns);
		return;
	}
	if (flow->window >= flow->max)
	{
		end_start(flow, flow->max, now_ns);
		return;
	}
	flow->before = flow->window;
	flow->before_rate = rate;
	set_window(flow, flow->window * 2.0, now_ns);
}

static void
careful_round(TbFlow *flow, int64_t now_ns)
{
	double		up = flow->window < flow->ceiling / 2.0 ? flow->window / 2.0 : 1.0;

	flow->window += up < 1.0 ? 1.0 : up;
	if (flow->window > flow->max)
		flow->window = flow->max;
	new_round(flow, now_ns);
}

static void
judge_trial(TbFlow *flow, double rate, int64_t now_ns)
{
	double		ratio = flow->window / flow->before;
	bool		good = flow->trial == TRIAL_UP ? rate >= flow->before_rate * (1.0 + WORTH * (ratio - 1.0)) :
		rate >= flow->before_rate * LOSS;

	if (good)
	{
		flow->rest = 1;			/* go on this way */
		flow->rests = REST_ROUNDS;
		flow->next = flow->trial;
		flow->trial = TRIAL_NONE;
		new_round(flow, now_ns);
		return;
	}
	flow->rests = flow->rests * 2 > REST_ROUNDS_MAX ? REST_ROUNDS_MAX : flow->rests * 2;
	flow->rest = flow->rests;
	flow->next = flow->trial == TRIAL_UP ? TRIAL_DOWN : TRIAL_UP;
	flow->trial = TRIAL_NONE;
	set_window(flow, flow->before, now_ns);
}

/* Begin a trial, where one can teach something. */
static void
begin_trial(TbFlow *flow, double rate, double mean_ns, int64_t now_ns)
{
	bool		can_up = flow->window < flow->max;
	bool		can_down = flow->window > WINDOW_MIN && mean_ns > 1.5 * flow->least_ns;	/* else nothing queues */

	if ((flow->next == TRIAL_UP && !can_up) || (flow->next == TRIAL_DOWN && !can_down))
		flow->next = flow->next == TRIAL_UP ? TRIAL_DOWN : TRIAL_UP;
	if (flow->next == TRIAL_UP ? !can_up : !can_down)
	{
		new_round(flow, now_ns);
		return;
	}
	flow->trial = flow->next;
	flow->before = flow->window;
	flow->before_rate = rate;
	set_window(flow, flow->window * (flow->trial == TRIAL_UP ? UP : DOWN), now_ns);
}

static void
end_round(TbFlow *flow, int64_t now_ns)
{
	double		seconds = (double) (now_ns - flow->since_ns) / 1e9;
	double		rate = seconds > 0.0 ? flow->work / seconds : 0.0;
	double		mean_ns = flow->sum_ns / flow->n;

	flow->least_ns *= 1.02;		/* what was the shortest long ago may be so no more */
	if (flow->n_limited * 5 < flow->n * 4 || rate <= 0.0)
	{
		if (flow->trial != TRIAL_NONE)
			set_window(flow, flow->before, now_ns);
		flow->trial = TRIAL_NONE;
		new_round(flow, now_ns);
	}
	else if (flow->starting)
		start_round(flow, rate, now_ns);
	else if (now_ns < flow->careful_ns)
		careful_round(flow, now_ns);
	else if (flow->trial != TRIAL_NONE)
		judge_trial(flow, rate, now_ns);
	else if (--flow->rest > 0)
		new_round(flow, now_ns);
	else
		begin_trial(flow, rate, mean_ns, now_ns);
}

static bool
round_is_over(const TbFlow *flow, int64_t now_ns)
{
	bool		brief = now_ns < flow->careful_ns || (flow->starting && flow->first_ns >= (double) START_NS);
	double		needed = brief ? flow->window : 2.0 * flow->window;

	return flow->n >= 8 && flow->n >= needed && now_ns - flow->since_ns >= (brief ? BRIEF_NS : ROUND_NS);
}

void
tb_flow_heard(TbFlow *flow, int64_t now_ns)
{
	flow->heard_ns = now_ns;
}

void
tb_flow_silent(TbFlow *flow, int64_t now_ns, int64_t waited_ns)
{
	if (!flow->starting || waited_ns < SILENCE_NS || now_ns - flow->grown_ns < SILENCE_NS ||
		now_ns - flow->heard_ns < SILENCE_NS)
		return;
	flow->grown_ns = now_ns;
	grow(flow, SILENCE_STEP, flow->known ? flow->max : flow->max / 2.0, now_ns);
}

static void
count_answer(TbFlow *flow, int64_t now_ns, int64_t all_ns, uint64_t bytes, bool limited)
{
	if (flow->skip > 0)
	{
		if (--flow->skip == 0)
			new_round(flow, now_ns);
		return;
	}
	flow->n++;
	flow->n_limited += limited;
	flow->work += (double) bytes + REQUEST_WORK;
	flow->sum_ns += (double) all_ns;
	if (round_is_over(flow, now_ns))
		end_round(flow, now_ns);
}

void
tb_flow_done(TbFlow *flow)
{
	flow->failures = flow->pauses = 0;
	flow->paused_ns = 0;
	flow->retries = fmin(flow->retries + RETRIES_EARNED, RETRIES_MAX);
}

void
tb_flow_answered(TbFlow *flow, int64_t now_ns, int64_t first_ns, int64_t all_ns, uint64_t bytes, int in_flight,
				 bool queued)
{
	double		first = (double) (first_ns > 1 ? first_ns : 1);
	double		all = (double) (all_ns > first_ns ? all_ns : first_ns > 1 ? first_ns : 1);

	tb_flow_done(flow);
	flow->heard_ns = now_ns;
	note_first(&flow->times[bytes >= LARGE_BYTES], first_ns);
	flow->latency_ns = flow->known ? flow->latency_ns + (all - flow->latency_ns) / 16.0 : all;
	flow->first_ns = flow->known ? fmin(flow->first_ns, first) : first;
	flow->least_ns = flow->known ? fmin(flow->least_ns, all) : all;
	flow->known = true;
	if (flow->starting && queued && flow->first_ns >= START_NS && first < 2.0 * flow->first_ns)
		grow(flow, 2.0, flow->max, now_ns);
	count_answer(flow, now_ns, all_ns, bytes, queued && in_flight + 1 >= tb_flow_window(flow));
}

void
tb_flow_failed(TbFlow *flow, int64_t now_ns)
{
	if (++flow->failures < FAILURES || now_ns < flow->paused_ns)
		return;
	flow->paused_ns = now_ns + (PAUSE_NS << flow->pauses);
	if (flow->pauses < PAUSES)
		flow->pauses++;
}

void
tb_flow_throttled(TbFlow *flow, int64_t now_ns)
{
	tb_flow_failed(flow, now_ns);
	flow->careful_ns = now_ns + CAREFUL_NS;
	flow->starting = false;
	flow->trial = TRIAL_NONE;
	if (now_ns < flow->calm_ns)
		return;
	flow->calm_ns = now_ns + (flow->latency_ns > (double) CALM_NS ? (int64_t) flow->latency_ns : CALM_NS);
	flow->ceiling = flow->window;
	flow->window = fmax(flow->window * SLOWER, 1.0);
	new_round(flow, now_ns);
}

/* ---- tokens ---- */

bool
tb_flow_may_retry(TbFlow *flow)
{
	if (flow->retries < 1.0)
		return false;
	flow->retries -= 1.0;
	return true;
}

bool
tb_flow_may_hedge(TbFlow *flow)
{
	if (flow->hedges < 1.0 || flow->retries < 1.0)
		return false;
	flow->hedges -= 1.0;
	flow->retries -= 1.0;
	return true;
}

void
tb_flow_started(TbFlow *flow, int64_t now_ns)
{
	if (flow->trickled_ns != 0 && flow->retries < RETRIES_FIRST)
		flow->retries += RETRIES_PER_S * (double) (now_ns - flow->trickled_ns) / 1e9;
	flow->trickled_ns = now_ns;
	flow->retries = fmin(flow->retries, RETRIES_MAX);
	flow->hedges = fmin(flow->hedges + flow->hedge_share, HEDGES_MAX);
}

int64_t
tb_flow_late_ns(const TbFlow *flow, uint64_t bytes)
{
	int64_t		late_ns = flow->times[bytes >= LARGE_BYTES].late_ns;

	return flow->hedge_share > 0.0 ? late_ns : INT64_MAX;
}
