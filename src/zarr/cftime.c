/*
 * CF time: "<unit> since <instant>" and the instants of values. Calendars whose dates are not dates
 * of PostgreSQL (noleap, 360_day, julian...) and units without a fixed length (months, years) are
 * not time here: such values stay numbers.
 *
 * Dates before 1582-10-15 are Julian in the standard calendar, and there is no year 0 (year -1
 * comes before year 1); in proleptic_gregorian all are Gregorian and year 0 exists.
 *
 * source: CF 1.10, 4.4; UDUNITS-2; cftime and xarray for what is accepted.
 */
#include "zarr/zarr.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#define US_PER_SECOND INT64_C(1000000)
#define US_PER_MINUTE (60 * US_PER_SECOND)
#define US_PER_HOUR (60 * US_PER_MINUTE)
#define US_PER_DAY (24 * US_PER_HOUR)
#define MAX_UNIT_TEXT 16
#define MAX_YEAR_DIGITS 6

/*
 * PostgreSQL's first timestamptz, 4714-11-24 BC. Its last, in the year 294276, is beyond int64 from
 * 1970: the largest int64 is the end here.
 */
#define FIRST_US (INT64_C(-210866803200000000))

typedef __int128 Wide;

typedef struct Date
{
	int64_t		year;
	int			month;
	int			day;
	int64_t		us;				/* of the day, UTC; may be outside it by a time zone */
} Date;

typedef struct UnitRow
{
	const char *name;			/* in lower case */
	double		us;
} UnitRow;

static const UnitRow unit_rows[] = {
	{"nanoseconds", 0.001},
	{"nanosecond", 0.001},
	{"nanosec", 0.001},
	{"nsec", 0.001},
	{"ns", 0.001},
	{"microseconds", 1},
	{"microsecond", 1},
	{"microsecs", 1},
	{"microsec", 1},
	{"usec", 1},
	{"us", 1},
	{"\xc2\xb5s", 1},
	{"milliseconds", 1000},
	{"millisecond", 1000},
	{"millisecs", 1000},
	{"millisec", 1000},
	{"msecs", 1000},
	{"msec", 1000},
	{"ms", 1000},
	{"seconds", US_PER_SECOND},
	{"second", US_PER_SECOND},
	{"secs", US_PER_SECOND},
	{"sec", US_PER_SECOND},
	{"s", US_PER_SECOND},
	{"minutes", US_PER_MINUTE},
	{"minute", US_PER_MINUTE},
	{"mins", US_PER_MINUTE},
	{"min", US_PER_MINUTE},
	{"hours", US_PER_HOUR},
	{"hour", US_PER_HOUR},
	{"hrs", US_PER_HOUR},
	{"hr", US_PER_HOUR},
	{"h", US_PER_HOUR},
	{"days", US_PER_DAY},
	{"day", US_PER_DAY},
	{"d", US_PER_DAY},
	{"weeks", 7 * US_PER_DAY},
	{"week", 7 * US_PER_DAY},
};

#define UNIT_ROWS (sizeof(unit_rows) / sizeof(unit_rows[0]))

static const char *
skip_space(const char *at)
{
	while (isspace((unsigned char) *at))
		at++;
	return at;
}

/* Microseconds of the unit that text starts with, 0: not known. *at moves behind it. */
static double
read_unit(const char **at)
{
	char		name[MAX_UNIT_TEXT];
	size_t		len = strcspn(*at, " \t\r\n");

	if (len == 0 || len >= sizeof(name))
		return 0;
	memcpy(name, *at, len);
	name[len] = '\0';
	*at += len;
	for (size_t i = 0; i < UNIT_ROWS; i++)
		if (strcasecmp(name, unit_rows[i].name) == 0)
			return unit_rows[i].us;
	return 0;
}

/* Up to max_digits digits; false where there is none. */
static bool
read_digits(const char **at, int max_digits, int64_t *number)
{
	int			n = 0;

	*number = 0;
	for (; isdigit((unsigned char) **at) && n < max_digits; n++)
		*number = *number * 10 + (*(*at)++ - '0');
	return n > 0;
}

/* Year, month and day; month and day default to 1. Eight digits in a row are YYYYMMDD. */
static bool
read_date(const char **at, Date *date)
{
	bool		negative = **at == '-';
	int64_t		month = 1;
	int64_t		day = 1;

	if (negative || **at == '+')
		(*at)++;
	else if (strspn(*at, "0123456789") == 8)
	{
		int64_t		compact;

		(void) read_digits(at, 8, &compact);
		date->year = compact / 10000;
		date->month = (int) (compact / 100 % 100);
		date->day = (int) (compact % 100);
		return true;
	}
	if (!read_digits(at, MAX_YEAR_DIGITS, &date->year))
		return false;
	if (negative)
		date->year = -date->year;
	if (**at == '-')
	{
		(*at)++;
		if (!read_digits(at, 2, &month))
			return false;
		if (**at == '-')
		{
			(*at)++;
			if (!read_digits(at, 2, &day))
				return false;
		}
	}
	date->month = (int) month;
	date->day = (int) day;
	return true;
}

/* Digits behind the point as microseconds; what is finer is cut off, as cftime does. */
static int64_t
read_fraction(const char **at)
{
	int64_t		us = 0;
	int64_t		unit = US_PER_SECOND;

	for (; isdigit((unsigned char) **at); (*at)++)
	{
		unit /= 10;
		us += (**at - '0') * unit;
	}
	return us;
}

/* hh[:mm[:ss[.fraction]]] */
static bool
read_clock(const char **at, int64_t *us)
{
	int64_t		hour;
	int64_t		minute = 0;
	int64_t		second = 0;
	int64_t		fraction = 0;

	if (!read_digits(at, 2, &hour))
		return false;
	if (**at == ':')
	{
		(*at)++;
		if (!read_digits(at, 2, &minute))
			return false;
		if (**at == ':')
		{
			(*at)++;
			if (!read_digits(at, 2, &second))
				return false;
			if (**at == '.')
			{
				(*at)++;
				fraction = read_fraction(at);
			}
		}
	}
	*us = hour * US_PER_HOUR + minute * US_PER_MINUTE + second * US_PER_SECOND + fraction;
	return hour < 24 && minute < 60 && second < 60;
}

/* Z, UTC, GMT, +h, +hh, +hh:mm or +hhmm, or nothing. *us: east of Greenwich. */
static bool
read_zone(const char **at, int64_t *us)
{
	bool		west = **at == '-';
	const char *digits;
	int64_t		hour;
	int64_t		minute = 0;

	*us = 0;
	if (strncasecmp(*at, "UTC", 3) == 0 || strncasecmp(*at, "GMT", 3) == 0)
		*at += 3;
	else if (**at == 'Z' || **at == 'z')
		(*at)++;
	if (**at != '-' && **at != '+')
		return true;
	west = **at == '-';
	digits = ++(*at);
	if (!read_digits(at, 4, &hour))
		return false;
	if (*at - digits > 2)
	{
		minute = hour % 100;
		hour /= 100;
	}
	else if (**at == ':')
	{
		(*at)++;
		if (!read_digits(at, 2, &minute))
			return false;
	}
	*us = (hour * US_PER_HOUR + minute * US_PER_MINUTE) * (west ? -1 : 1);
	return hour < 24 && minute < 60;
}

/* The text behind "since", to its end. */
static bool
read_instant(const char *at, Date *date)
{
	int64_t		zone = 0;

	at = skip_space(at);
	date->us = 0;
	if (!read_date(&at, date))
		return false;
	if ((*at == 'T' || *at == 't' || isspace((unsigned char) *at)) &&
		isdigit((unsigned char) *skip_space(at + 1)))
	{
		at = skip_space(at + 1);
		if (!read_clock(&at, &date->us))
			return false;
	}
	at = skip_space(at);
	if (!read_zone(&at, &zone))
		return false;
	date->us -= zone;
	return *skip_space(at) == '\0';
}

/* floor(a / b) for b > 0. */
static int64_t
floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/*
 * Days since 1970-01-01 (Gregorian) of a date in the Gregorian or Julian calendar with a year 0.
 * False: no such day. Counted from 1 March, so that the leap day is the last of a year.
 */
static bool
days_from_date(const Date *date, bool julian, int64_t *days)
{
	static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int64_t		year = date->year;
	bool		leap = floor_div(year, 4) * 4 == year &&
		(julian || floor_div(year, 100) * 100 != year || floor_div(year, 400) * 400 == year);
	int			month_from_march = (date->month + 9) % 12;

	if (date->month < 1 || date->month > 12 || date->day < 1 ||
		date->day > month_days[date->month - 1] + (leap && date->month == 2))
		return false;
	if (date->month <= 2)
		year--;
	*days = year * 365 + floor_div(year, 4) + (month_from_march * 153 + 2) / 5 + date->day - 1;
	/* 1 March of year 0: 719468 days before 1970 in the Gregorian calendar, 719470 in the Julian */
	*days -= julian ? 719470 : 719468 + floor_div(year, 100) - floor_div(year, 400);
	return true;
}

/*
 * Days of a date in the standard calendar. False: year 0, or one of the days that were left out in
 * 1582.
 */
static bool
days_from_mixed(Date date, int64_t *days)
{
	int64_t		number = date.year * 10000 + date.month * 100 + date.day;

	if (date.year == 0 || (number > 15821004 && number < 15821015))
		return false;
	if (date.year < 0)
	{
		date.year++;
		return days_from_date(&date, true, days);
	}
	return days_from_date(&date, number < 15821015, days);
}

TbTimeUnits
tb_time_units(const char *units, const char *calendar)
{
	TbTimeUnits out = {.is_time = false};
	const char *at = skip_space(units);
	double		unit_us = read_unit(&at);
	Date		date;
	int64_t		days;
	bool		valid;
	Wide		epoch;

	at = skip_space(at);
	if (unit_us == 0 || strncasecmp(at, "since", 5) != 0 || !isspace((unsigned char) at[5]) ||
		!read_instant(at + 5, &date))
		return out;
	if (calendar == NULL || strcasecmp(calendar, "standard") == 0 ||
		strcasecmp(calendar, "gregorian") == 0)
		valid = days_from_mixed(date, &days);
	else
		valid =
			strcasecmp(calendar, "proleptic_gregorian") == 0 && days_from_date(&date, false, &days);
	if (!valid)
		return out;
	epoch = (Wide) days * US_PER_DAY + date.us;
	if (epoch > INT64_MAX || epoch < INT64_MIN)
		return out;
	out.is_time = true;
	out.epoch_us = (int64_t) epoch;
	out.unit_us = unit_us;
	return out;
}

/* number / 2^shift, floor; *exact tells whether nothing was cut off. */
static Wide
shift_down(Wide number, int shift, bool *exact)
{
	Wide		floor_value;

	if (shift > 120)
		shift = 120;			/* |number| < 2^94: -1 or 0 all the same */
	floor_value = number >> shift;
	*exact = *exact && (Wide) ((unsigned __int128) floor_value << shift) == number;
	return floor_value;
}

static bool
in_range(Wide lo, Wide hi, int64_t *lo_us, int64_t *hi_us)
{
	if (lo < FIRST_US || hi > INT64_MAX)
		return false;
	*lo_us = (int64_t) lo;
	*hi_us = (int64_t) hi;
	return true;
}

/*
 * numerator / divisor microseconds behind the reference, floor and ceiling; exact: numerator is not
 * cut.
 */
static bool
bounds_of(const TbTimeUnits *units, Wide numerator, bool exact, int64_t *lo_us, int64_t *hi_us)
{
	Wide		divisor = units->unit_us < 1 ? llround(1 / units->unit_us) : 1;
	Wide		lo = numerator / divisor - (numerator % divisor < 0);

	exact = exact && lo * divisor == numerator;
	lo += units->epoch_us;
	return in_range(lo, lo + (exact ? 0 : 1), lo_us, hi_us);
}

/*
 * Exact: a double is mantissa * 2^exponent, and its product with the unit's microseconds (or its
 * quotient, for nanoseconds) fits 128 bits wherever it is in range at all.
 */
bool
tb_time_instant(const TbTimeUnits *units, double value, int64_t *lo_us, int64_t *hi_us)
{
	int			exponent;
	double		fraction;
	Wide		numerator;
	bool		exact = true;

	if (!units->is_time || !isfinite(value))
		return false;
	fraction = frexp(value, &exponent);
	numerator = (Wide) ldexp(fraction, 53) * (units->unit_us < 1 ? 1 : llround(units->unit_us));
	exponent -= 53;
	/* beyond 2^73 nanoseconds nothing is in range */
	if (exponent > 20)
		return false;
	if (exponent >= 0)
		numerator *= (Wide) 1 << exponent;
	else
		numerator = shift_down(numerator, -exponent, &exact);
	return bounds_of(units, numerator, exact, lo_us, hi_us);
}

bool
tb_time_instant_int_bounds(const TbTimeUnits *units, int64_t value, int64_t *lo_us, int64_t *hi_us)
{
	if (!units->is_time)
		return false;
	return bounds_of(units, (Wide) value * (units->unit_us < 1 ? 1 : llround(units->unit_us)), true,
					 lo_us, hi_us);
}

bool
tb_time_instant_int(const TbTimeUnits *units, int64_t value, int64_t *us)
{
	int64_t		hi;

	return tb_time_instant_int_bounds(units, value, us, &hi) && *us == hi;
}
