/*
 * How many requests in flight: against a simulated endpoint with latency, a shared link, a cap on each connection
 * and a limit above which it throttles, driven by a clock of its own. Tokens, and what is late.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/flow.h"

#define MS INT64_C(1000000)
#define MAX 128

typedef struct Link
{
	double		latency_ms;
	double		bytes_per_s;	/* of all connections */
	double		cap;			/* of each; 0: none */
	double		jitter;			/* part of the latency */
	uint64_t	bytes;			/* of a request */
	int			most;			/* in flight; more are throttled. 0: any number */
} Link;

typedef struct Flight
{
	int64_t		start_ns;
	int64_t		first_ns;
	int64_t		end_ns;
	bool		refused;
} Flight;

typedef struct Sim
{
	const Link *link;
	TbFlow	   *flow;			/* NULL: a fixed window */
	int			fixed;
	int64_t		now_ns;
	double		link_free_ns;
	Flight		flight[MAX];
	int			n;
	int			n_served;		/* of them */
	uint64_t	answered;
	uint64_t	refused;
	unsigned	seed;
} Sim;

static double
uniform(Sim *sim)
{
	sim->seed = sim->seed * 1103515245u + 12345u;
	return (double) (sim->seed >> 8 & 0xFFFF) / 65536.0;
}

static void
begin(Sim *sim)
{
	const Link *link = sim->link;
	Flight	   *f = &sim->flight[sim->n++];
	double		wire_ns = (double) link->bytes / link->bytes_per_s * 1e9;
	double		first = (double) sim->now_ns + link->latency_ms * 1e6 * (1.0 + link->jitter * uniform(sim)) + 50e3;

	f->start_ns = sim->now_ns;
	f->refused = link->most > 0 && sim->n_served >= link->most;
	if (f->refused)
	{
		f->first_ns = f->end_ns = (int64_t) first;
		return;
	}
	sim->n_served++;
	if (first < sim->link_free_ns)
		first = sim->link_free_ns;
	sim->link_free_ns = first + wire_ns;
	f->first_ns = (int64_t) first;
	f->end_ns = (int64_t) (first + wire_ns);
	if (link->cap > 0.0 && f->end_ns < f->first_ns + (int64_t) ((double) link->bytes / link->cap * 1e9))
		f->end_ns = f->first_ns + (int64_t) ((double) link->bytes / link->cap * 1e9);
	if (sim->flow != NULL)
		tb_flow_started(sim->flow, sim->now_ns);
}

static void
end(Sim *sim, int which)
{
	Flight		f = sim->flight[which];

	sim->flight[which] = sim->flight[--sim->n];
	if (f.refused)
		sim->refused++;
	else
	{
		sim->answered++;
		sim->n_served--;
	}
	if (sim->flow == NULL)
		return;
	if (f.refused)
		tb_flow_throttled(sim->flow, sim->now_ns);
	else
		tb_flow_answered(sim->flow, sim->now_ns, f.first_ns - f.start_ns, f.end_ns - f.start_ns, sim->link->bytes,
						 sim->n, true);
}

/* As op_late.c tells it: bytes are coming, or nothing is. */
static void
tick(Sim *sim)
{
	int64_t		longest = 0;
	bool		heard = false;

	if (sim->flow == NULL)
		return;
	for (int i = 0; i < sim->n; i++)
	{
		if (sim->flight[i].first_ns <= sim->now_ns)
			heard = true;
		else if (sim->now_ns - sim->flight[i].start_ns > longest)
			longest = sim->now_ns - sim->flight[i].start_ns;
	}
	if (heard)
		tb_flow_heard(sim->flow, sim->now_ns);
	tb_flow_silent(sim->flow, sim->now_ns, longest);
}

/* Requests answered until then. */
static uint64_t
run(Sim *sim, int64_t until_ns)
{
	uint64_t	before = sim->answered;
	int64_t		next_tick_ns = sim->now_ns;

	while (sim->now_ns < until_ns)
	{
		int64_t		next_ns = next_tick_ns;

		for (int i = sim->n; i-- > 0;)
			if (sim->flight[i].end_ns <= sim->now_ns)
				end(sim, i);
		if (sim->now_ns >= next_tick_ns)
		{
			tick(sim);
			next_tick_ns = next_ns = sim->now_ns + 2 * MS;
		}
		while (sim->n < (sim->flow != NULL ? tb_flow_window(sim->flow) : sim->fixed) && sim->n < MAX &&
			   (sim->flow == NULL || tb_flow_pause_ns(sim->flow, sim->now_ns) == 0))
			begin(sim);
		for (int i = 0; i < sim->n; i++)
			if (sim->flight[i].end_ns < next_ns)
				next_ns = sim->flight[i].end_ns;
		sim->now_ns = next_ns > sim->now_ns ? next_ns : sim->now_ns + 1000;
	}
	return sim->answered - before;
}

static Sim
new_sim(const Link *link, TbFlow *flow, int fixed)
{
	return (Sim) {.link = link, .flow = flow, .fixed = fixed, .now_ns = 1000 * MS, .link_free_ns = 0.0, .seed = 7};
}

/* What the best fixed window brings in so many ms after the first second, and in the first. */
static void
best_fixed(const Link *link, int ms, uint64_t *later, uint64_t *first)
{
	*later = *first = 0;
	for (int window = 8; window <= MAX; window *= 2)
	{
		Sim			sim = new_sim(link, NULL, window);
		uint64_t	n = run(&sim, 2000 * MS);

		*first = n > *first ? n : *first;
		n = run(&sim, (2000 + ms) * MS);
		*later = n > *later ? n : *later;
	}
}

static void
window_is_found(void **state)
{
	static const Link links[] = {
		{0.0, 2.0e9, 0.0, 0.0, 1 << 20, 0},
		{0.0, 0.4e9, 0.0, 0.0, 16 << 10, 0},
		{1.0, 2.0e9, 0.0, 0.2, 1 << 20, 0},
		{20.0, 2.0e9, 0.0, 0.0, 1 << 20, 0},
		{20.0, 2.0e9, 80e6, 0.1, 1 << 20, 0},
		{20.0, 0.4e9, 0.0, 0.1, 16 << 10, 0},
		{25.0, 5.0e9, 90e6, 2.0, 4 << 20, 0},	/* as S3 in the same region: much jitter */
		{100.0, 2.0e9, 0.0, 0.1, 1 << 20, 0},
		{100.0, 0.2e9, 0.0, 0.1, 1 << 20, 0},
	};

	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
	{
		TbFlow	   *flow = tb_flow_new(MAX, 5);
		Sim			sim = new_sim(&links[i], flow, 0);
		uint64_t	later;
		uint64_t	first;
		uint64_t	own;

		best_fixed(&links[i], 3000, &later, &first);
		own = run(&sim, 2000 * MS);
		if ((double) own < 0.8 * (double) first)
			fail_msg("link %zu: %llu in the first second, best %llu", i, (unsigned long long) own,
					 (unsigned long long) first);
		own = run(&sim, 5000 * MS);
		if ((double) own < 0.95 * (double) later)
			fail_msg("link %zu: %llu then, best %llu, window %d", i, (unsigned long long) own,
					 (unsigned long long) later, tb_flow_window(flow));
		/* without latency a small window is as good, and holds less memory */
		if (links[i].latency_ms == 0.0 && tb_flow_window(flow) > 32)
			fail_msg("link %zu: window %d for nothing", i, tb_flow_window(flow));
		tb_flow_free(flow);
	}
}

/* An endpoint that allows 40 in flight: most of that is used, and few requests are refused. */
static void
throttling_is_heeded(void **state)
{
	static const Link link = {20.0, 5.0e9, 0.0, 0.1, 64 << 10, 40};
	TbFlow	   *flow = tb_flow_new(MAX, 5);
	Sim			sim = new_sim(&link, flow, 0);
	uint64_t	n;

	(void) run(&sim, 2000 * MS);
	sim.refused = 0;
	n = run(&sim, 7000 * MS);
	assert_true(n > 40 * 250 * 6 / 10);	/* 250 rounds of 20 ms */
	assert_true(sim.refused * 20 < n);
	assert_true(tb_flow_window(flow) <= 44);
	tb_flow_free(flow);
}

/* Decreases come once a round trip, however many are refused in it; an endpoint that refuses all is left alone. */
static void
decrease_once(void **state)
{
	TbFlow	   *flow = tb_flow_new(MAX, 5);
	int64_t		now_ns = 1000 * MS;

	assert_int_equal(tb_flow_window(flow), TB_FLOW_FIRST);
	for (int i = 0; i < 16; i++)
		tb_flow_throttled(flow, now_ns + i * 1000);
	assert_true(tb_flow_window(flow) >= TB_FLOW_FIRST / 2);
	assert_true(tb_flow_window(flow) < TB_FLOW_FIRST);
	assert_true(tb_flow_pause_ns(flow, now_ns + 20000) > 10 * MS);
	for (int i = 1; i < 100; i++)
		tb_flow_throttled(flow, now_ns + i * 1000 * MS);
	assert_int_equal(tb_flow_window(flow), 1);
	assert_true(tb_flow_pause_ns(flow, now_ns + 99001 * MS) < 10000 * MS);
	tb_flow_answered(flow, now_ns + 100000 * MS, MS, 2 * MS, 1000, 0, false);
	assert_int_equal(tb_flow_pause_ns(flow, now_ns + 100000 * MS), 0);
	tb_flow_free(flow);
}

static void
tokens(void **state)
{
	TbFlow	   *flow = tb_flow_new(MAX, 5);
	int			n = 0;

	while (tb_flow_may_retry(flow))
		n++;
	assert_true(n >= 10 && n <= 30);
	for (int i = 0; i < 1000; i++)
		tb_flow_done(flow);
	n = 0;
	while (tb_flow_may_retry(flow))
		n++;
	assert_true(n >= 10 && n <= 100);
	for (int i = 0; i < 100; i++)
		tb_flow_done(flow);
	n = 0;
	while (tb_flow_may_retry(flow))
		n++;
	assert_true(n >= 9 && n <= 11);
	tb_flow_free(flow);
}

static void
hedges_are_few(void **state)
{
	TbFlow	   *flow = tb_flow_new(MAX, 5);
	TbFlow	   *none = tb_flow_new(MAX, 0);
	int			n = 0;

	assert_int_equal(tb_flow_late_ns(flow, 1000), INT64_MAX);
	for (int i = 0; i < 10000; i++)
	{
		int64_t		first_ns = (5 + i % 7) * MS;	/* nine of ten within 11 ms */

		tb_flow_started(flow, i * MS);
		tb_flow_answered(flow, i * MS, first_ns, first_ns + MS, 1000, 15, true);
		tb_flow_started(none, i * MS);
		tb_flow_answered(none, i * MS, first_ns, first_ns + MS, 1000, 15, true);
		n += i >= 100 && tb_flow_may_hedge(flow);
	}
	assert_true(n >= 400 && n <= 520);
	assert_true(tb_flow_late_ns(flow, 1000) > 15 * MS && tb_flow_late_ns(flow, 1000) < 40 * MS);
	assert_int_equal(tb_flow_late_ns(flow, 1 << 20), INT64_MAX);	/* of large ones nothing is known */
	assert_int_equal(tb_flow_late_ns(none, 1000), INT64_MAX);
	assert_false(tb_flow_may_hedge(none));
	tb_flow_free(flow);
	tb_flow_free(none);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(window_is_found),
		cmocka_unit_test(throttling_is_heeded),
		cmocka_unit_test(decrease_once),
		cmocka_unit_test(tokens),
		cmocka_unit_test(hedges_are_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
