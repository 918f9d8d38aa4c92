/*
 * CF time. The instants of `by_cftime` were computed by cftime 1.6.6 (num2date and toordinal); the
 * rest are bounds worked out by hand.
 */
#include "zarr_help.h"

#include <math.h>
#include <stdio.h>

typedef struct Instant
{
	const char *units;
	const char *calendar;
	int64_t		value;
	int64_t		us;				/* since 1970-01-01 UTC */
} Instant;

static const Instant by_cftime[] = {
	{"days since 1900-01-01", "standard", 0, INT64_C(-2208988800000000)}, /* 1900-01-01T00:00:00 */
	{"days since 1900-01-01", "standard", 73371,
	 INT64_C(4130265600000000)}, /* 2100-11-19T00:00:00 */
	{"hours since 1900-01-01 00:00:0.0", "gregorian", 0,
	 INT64_C(-2208988800000000)}, /* 1900-01-01T00:00:00 */
	{"hours since 1900-01-01 00:00:0.0", "gregorian", 59223,
	 INT64_C(-1995786000000000)}, /* 1906-10-04T15:00:00 */
	{"days since 1-1-1 00:00:00", "standard", 0,
	 INT64_C(-62135769600000000)}, /* 0001-01-01T00:00:00 */
	{"days since 1-1-1 00:00:00", "standard", -24204,
	 INT64_C(-64226995200000000)}, /* -0067-09-26T00:00:00 */
	{"days since 0001-01-01", "proleptic_gregorian", 0,
	 INT64_C(-62135596800000000)}, /* 0001-01-01T00:00:00 */
	{"days since 0001-01-01", "proleptic_gregorian", 82560,
	 INT64_C(-55002412800000000)},										   /* 0227-01-17T00:00:00 */
	{"days since 1582-10-04", "standard", 0, INT64_C(-12219379200000000)}, /* 1582-10-04T00:00:00 */
	{"days since 1582-10-04", "standard", -12337,
	 INT64_C(-13285296000000000)},										   /* 1548-12-24T00:00:00 */
	{"days since 1582-10-15", "standard", 0, INT64_C(-12219292800000000)}, /* 1582-10-15T00:00:00 */
	{"days since 1582-10-15", "standard", 39768,
	 INT64_C(-8783337600000000)}, /* 1691-09-01T00:00:00 */
	{"days since 1582-10-10", "proleptic_gregorian", 0,
	 INT64_C(-12219724800000000)}, /* 1582-10-10T00:00:00 */
	{"days since 1582-10-10", "proleptic_gregorian", -11885,
	 INT64_C(-13246588800000000)},									   /* 1550-03-27T00:00:00 */
	{"seconds since 1970-01-01T00:00:00Z", "standard", 0, INT64_C(0)}, /* 1970-01-01T00:00:00 */
	{"seconds since 1970-01-01T00:00:00Z", "standard", -78046,
	 INT64_C(-78046000000)}, /* 1969-12-31T02:19:14 */
	{"minutes since 2000-02-29 12:34:56.789", "proleptic_gregorian", 0,
	 INT64_C(951827696789000)}, /* 2000-02-29T12:34:56.789000 */
	{"minutes since 2000-02-29 12:34:56.789", "proleptic_gregorian", 59375,
	 INT64_C(955390196789000)}, /* 2000-04-10T18:09:56.789000 */
	{"milliseconds since 1969-12-31 23:59:59.999", "standard", 0,
	 INT64_C(-1000)}, /* 1969-12-31T23:59:59.999000 */
	{"milliseconds since 1969-12-31 23:59:59.999", "standard", -81675,
	 INT64_C(-81676000)}, /* 1969-12-31T23:58:38.324000 */
	{"microseconds since 1980-1-6", "standard", 0,
	 INT64_C(315964800000000)}, /* 1980-01-06T00:00:00 */
	{"microseconds since 1980-1-6", "standard", -69256,
	 INT64_C(315964799930744)}, /* 1980-01-05T23:59:59.930744 */
	{"days since 0-1-1", "proleptic_gregorian", 0,
	 INT64_C(-62167219200000000)}, /* 0000-01-01T00:00:00 */
	{"days since 0-1-1", "proleptic_gregorian", -7806,
	 INT64_C(-62841657600000000)}, /* -0022-08-18T00:00:00 */
	{"hours since -1-3-1 6:00", "standard", 0,
	 INT64_C(-62162186400000000)}, /* -0001-03-01T06:00:00 */
	{"hours since -1-3-1 6:00", "standard", -24931,
	 INT64_C(-62251938000000000)}, /* -0004-04-27T11:00:00 */
	{"days since -4713-11-24", "proleptic_gregorian", 0,
	 INT64_C(-210866803200000000)}, /* -4713-11-24T00:00:00 */
	{"seconds since 1981-01-01 00:00:00 -06:00", "standard", 0,
	 INT64_C(347176800000000)}, /* 1981-01-01T06:00:00 */
	{"seconds since 1981-01-01 00:00:00 -06:00", "standard", -60809,
	 INT64_C(347115991000000)}, /* 1980-12-31T13:06:31 */
	{"hours since 1992-10-8 15:15:42.5 +05:30", "standard", 0,
	 INT64_C(718537542500000)}, /* 1992-10-08T09:45:42.500000 */
	{"hours since 1992-10-8 15:15:42.5 +05:30", "standard", 57742,
	 INT64_C(926408742500000)}, /* 1999-05-11T07:45:42.500000 */
	{"days since 800-1-1", "gregorian", 0, INT64_C(-36921312000000000)}, /* 0800-01-01T00:00:00 */
	{"days since 800-1-1", "gregorian", -68043,
	 INT64_C(-42800227200000000)},										   /* 0613-09-16T00:00:00 */
	{"days since 1500-02-29", "standard", 0, INT64_C(-14825894400000000)}, /* 1500-02-29T00:00:00 */
	{"days since 1500-02-29", "standard", -83925,
	 INT64_C(-22077014400000000)}, /* 1270-05-22T00:00:00 */
	{"secs since 1600-02-29 23:59:59", "standard", 0,
	 INT64_C(-11670912001000000)}, /* 1600-02-29T23:59:59 */
	{"secs since 1600-02-29 23:59:59", "standard", 65507,
	 INT64_C(-11670846494000000)},										 /* 1600-03-01T18:11:46 */
	{"d since 12000-06-01", "standard", 0, INT64_C(316529337600000000)}, /* 12000-06-01T00:00:00 */
	{"d since 12000-06-01", "standard", -86829,
	 INT64_C(309027312000000000)}, /* 11762-09-08T00:00:00 */
};

#define N_BY_CFTIME (sizeof(by_cftime) / sizeof(by_cftime[0]))

static void
agrees_with_cftime(void **state)
{
	for (size_t i = 0; i < N_BY_CFTIME; i++)
	{
		const Instant *row = &by_cftime[i];
		TbTimeUnits units = tb_time_units(row->units, row->calendar);
		int64_t		us;
		int64_t		lo;
		int64_t		hi;

		if (!units.is_time || !tb_time_instant_int(&units, row->value, &us) || us != row->us)
			fail_msg("%s, %s, %lld", row->units, row->calendar, (long long) row->value);
		assert_true(tb_time_instant(&units, (double) row->value, &lo, &hi));
		assert_int_equal(lo, row->us);
		assert_int_equal(hi, row->us);
	}
}

static void
reads_units(void **state)
{
	static const struct { const char *name; double us;
	} rows[] = {
		{"nanoseconds", 0.001},
		{"ns", 0.001},
		{"microseconds", 1},
		{"us", 1},
		{"ms", 1e3},
		{"msec", 1e3},
		{"milliseconds", 1e3},
		{"s", 1e6},
		{"sec", 1e6},
		{"Second", 1e6},
		{"SECONDS", 1e6},
		{"min", 6e7},
		{"mins", 6e7},
		{"minute", 6e7},
		{"h", 3.6e9},
		{"hr", 3.6e9},
		{"hrs", 3.6e9},
		{"hour", 3.6e9},
		{"d", 8.64e10},
		{"days", 8.64e10},
		{"week", 6.048e11},
		{"weeks", 6.048e11},
	};
	char		text[64];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		TbTimeUnits units;

		snprintf(text, sizeof(text), "%s since 1970-01-02", rows[i].name);
		units = tb_time_units(text, NULL);
		assert_true(units.is_time);
		assert_true(units.unit_us == rows[i].us);
		assert_int_equal(units.epoch_us, INT64_C(86400000000));
	}
}

static void
reads_references(void **state)
{
	static const struct { const char *text; int64_t seconds;
	} rows[] = {
		{"s since 1970", 0},
		{"s since 1970-1", 0},
		{"s since 1970-01-01", 0},
		{"s since 19700102", 86400},
		{"  s   since   1970-01-01  ", 0},
		{"s SINCE +1970-01-01", 0},
		{"s since 1970-01-01T01", 3600},
		{"s since 1970-01-01 1:2", 3720},
		{"s since 1970-01-01t01:02:03", 3723},
		{"s since 1970-01-01 01:02:03.000Z", 3723},
		{"s since 1970-01-01 01:02:03 UTC", 3723},
		{"s since 1970-01-01 00:00:00 GMT", 0},
		{"s since 1970-01-01 UTC", 0},
		{"s since 1970-01-01 00:00 +01:00", -3600},
		{"s since 1970-01-01 00:00:00+0130", -5400},
		{"s since 1970-01-01 00:00:00 -6:00", 21600},
		{"s since 1970-01-01 00:00:00 -06", 21600},
		{"s since 1970-01-01 00:00:00 UTC+2", -7200},
		{"s since 1970-01-01 +01:00", -3600},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		TbTimeUnits units = tb_time_units(rows[i].text, "proleptic_gregorian");

		if (!units.is_time || units.epoch_us != rows[i].seconds * 1000000)
			fail_msg("%s: %lld", rows[i].text, (long long) units.epoch_us);
	}
}

static void
refuses(void **state)
{
	static const struct { const char *units; const char *calendar;
	} rows[] = {
		{"", NULL},
		{"days", NULL},
		{"K", NULL},
		{"days since", NULL},
		{"days since ", NULL},
		{"since 1970-01-01", NULL},
		{"days since tomorrow", NULL},
		{"days after 1970-01-01", NULL},
		{"months since 1970-01-01", NULL},
		{"years since 1970-01-01", NULL},
		{"fortnights since 1970-01-01", NULL},
		{"days sinc 1970-01-01", NULL},
		{"days since 1970-01-01 25:00", NULL},
		{"days since 1970-01-01 00:60", NULL},
		{"days since 1970-01-01 00:00:60", NULL},
		{"days since 1970-02-30", NULL},
		{"days since 1970-13-01", NULL},
		{"days since 1970-00-01", NULL},
		{"days since 1970-01-00", NULL},
		{"days since 1900-02-29", NULL},
		{"days since 1970-01-01 noon", NULL},
		{"days since 1970-01-01T", NULL},
		{"days since 1970-", NULL},
		{"days since 1970-01-01 00:00:00 +25", NULL},
		{"days since 0-1-1", "standard"},
		{"days since 1582-10-05", "standard"},
		{"days since 1582-10-14", "gregorian"},
		{"days since 1500-02-29", "proleptic_gregorian"},
		{"days since 1970-01-01", "noleap"},
		{"days since 1970-01-01", "365_day"},
		{"days since 1970-01-01", "all_leap"},
		{"days since 1970-01-01", "360_day"},
		{"days since 1970-01-01", "julian"},
		{"days since 1970-01-01", "none"},
		{"days since 1970-01-01", ""},
		{"days since 999999-01-01", "standard"},
		{"days since 9999999-01-01", "standard"},
		{"microsecondsmicroseconds since 1970-01-01", NULL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		TbTimeUnits units = tb_time_units(rows[i].units, rows[i].calendar);
		int64_t		lo;
		int64_t		hi;

		if (units.is_time)
			fail_msg("\"%s\" is taken", rows[i].units);
		assert_false(tb_time_instant(&units, 0, &lo, &hi));
		assert_false(tb_time_instant_int(&units, 0, &lo));
	}
}

/* Bounds hold the exact instant, and are one where it is a whole microsecond. */
static void
rounds_outward(void **state)
{
	static const struct { const char *units; double value; int64_t lo; int64_t hi; } rows[] = {
		{"s since 1970-01-01", 0.5, 500000, 500000},
		{"s since 1970-01-01", 0.1, 100000, 100001},	/* the double is a little more */
		{"s since 1970-01-01", -0.1, -100001, -100000},
		{"us since 1970-01-01", 0.25, 0, 1},
		{"us since 1970-01-01", -0.25, -1, 0},
		{"us since 1970-01-01", 5e-324, 0, 1},
		{"us since 1970-01-01", -5e-324, -1, 0},
		{"us since 1970-01-01", -0.0, 0, 0},
		{"days since 1970-01-01", 1.0 / 3, INT64_C(28799999999), INT64_C(28800000000)},
		{"ns since 1970-01-01", 1000, 1, 1},
		{"ns since 1970-01-01", 1001, 1, 2},
		{"ns since 1970-01-01", -1, -1, 0},
		{"ns since 1970-01-01", 999.9999999999999, 0, 1},
		{"ns since 1970-01-01", 0x1p62, INT64_C(4611686018427387), INT64_C(4611686018427388)},
		{"days since 1970-01-01", 0x1p-1074, 0, 1},
		{"us since 1970-01-01", 0x1p52 + 1, INT64_C(4503599627370497), INT64_C(4503599627370497)},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		TbTimeUnits units = tb_time_units(rows[i].units, NULL);
		int64_t		lo;
		int64_t		hi;

		assert_true(tb_time_instant(&units, rows[i].value, &lo, &hi));
		if (lo != rows[i].lo || hi != rows[i].hi)
			fail_msg("%s, %g: %lld, %lld", rows[i].units, rows[i].value, (long long) lo,
					 (long long) hi);
	}
}

static void
keeps_integers_exact(void **state)
{
	TbTimeUnits ns = tb_time_units("nanoseconds since 1970-01-01", "proleptic_gregorian");
	TbTimeUnits us = tb_time_units("microseconds since 1970-01-01 00:00:00.000001", NULL);
	int64_t		lo;
	int64_t		hi;

	/* beyond what a double holds */
	assert_true(tb_time_instant_int(&ns, INT64_C(1700000000123457000), &lo));
	assert_int_equal(lo, INT64_C(1700000000123457));
	assert_false(tb_time_instant_int(&ns, INT64_C(1700000000123457001), &lo));
	assert_true(tb_time_instant_int_bounds(&ns, INT64_C(1700000000123457001), &lo, &hi));
	assert_int_equal(lo, INT64_C(1700000000123457));
	assert_int_equal(hi, INT64_C(1700000000123458));
	assert_true(tb_time_instant_int_bounds(&ns, INT64_C(-1700000000123457001), &lo, &hi));
	assert_int_equal(lo, INT64_C(-1700000000123458));
	assert_int_equal(hi, INT64_C(-1700000000123457));
	assert_true(tb_time_instant_int(&us, INT64_C(9007199254740993), &lo));
	assert_int_equal(lo, INT64_C(9007199254740994));
}

static void
knows_the_range(void **state)
{
	TbTimeUnits us = tb_time_units("us since 1970-01-01", NULL);
	TbTimeUnits days = tb_time_units("days since 1970-01-01", NULL);
	TbTimeUnits weeks = tb_time_units("weeks since 12000-01-01", NULL);
	static const double out[] = {1e300, -1e300, 1e20, -1e20, 0x1p63, 0x1p72, 0x1p73};
	int64_t		lo;
	int64_t		hi;

	assert_true(tb_time_instant_int(&us, INT64_C(-210866803200000000), &lo));
	assert_false(tb_time_instant_int(&us, INT64_C(-210866803200000001), &lo));
	assert_true(tb_time_instant_int(&us, INT64_MAX, &lo));
	assert_true(tb_time_instant_int(&days, INT64_C(106751991), &lo));
	assert_false(tb_time_instant_int(&days, INT64_C(106751992), &lo));
	assert_false(tb_time_instant_int(&days, INT64_MAX, &lo));
	assert_false(tb_time_instant_int(&days, INT64_MIN, &lo));
	assert_false(tb_time_instant_int(&weeks, INT64_MIN, &lo));
	for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++)
	{
		assert_false(tb_time_instant(&us, out[i], &lo, &hi));
		assert_false(tb_time_instant(&days, out[i], &lo, &hi));
		assert_false(tb_time_instant(&weeks, out[i], &lo, &hi));
	}
	assert_false(tb_time_instant(&us, (double) NAN, &lo, &hi));
	assert_false(tb_time_instant(&us, (double) INFINITY, &lo, &hi));
	assert_false(tb_time_instant(&us, -(double) INFINITY, &lo, &hi));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_cftime),
		cmocka_unit_test(reads_units),
		cmocka_unit_test(reads_references),
		cmocka_unit_test(refuses),
		cmocka_unit_test(rounds_outward),
		cmocka_unit_test(keeps_integers_exact),
		cmocka_unit_test(knows_the_range),
	};

	return cmocka_run_group_tests_name("zarr time", tests, NULL, NULL);
}
