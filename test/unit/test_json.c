/* JSON: what is read, what is refused and where, and the view of values. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parse from memory of the exact size: a read beyond it is seen by the sanitizer. */
static TbStatus
parse_bytes(const void *text, size_t len, TbJson **doc, TbError *err)
{
	void	   *exact = malloc(len > 0 ? len : 1);
	TbStatus	status;

	memcpy(exact, text, len);
	status = tb_json_parse(exact, len, doc, err);
	free(exact);
	return status;
}

static TbJson *
good(const char *text)
{
	TbJson	   *doc;
	TbError		err;
	TbStatus	status = parse_bytes(text, strlen(text), &doc, &err);

	if (status != TB_OK)
		fail_msg("%s: %s", text, err.detail);
	return doc;
}

static void
test_values(void **state)
{
	TbJson	   *doc = good(" {\"a\":[1, -2 ,true,false,null,\"x\",1.5,{}],\"\":{\"b\":[]} }\r\n\t");
	TbJson	   *array;
	TbJson	   *member;
	int64_t		n;
	bool		flag;
	const char *text;
	double		d;

	assert_int_equal(tb_json_type(doc), TB_JSON_OBJECT);
	assert_true(tb_json_get(doc, "a", &array));
	assert_int_equal(tb_json_length(array), 8);
	assert_true(tb_json_as_int(tb_json_at(array, 0), &n) && n == 1);
	assert_true(tb_json_as_int(tb_json_at(array, 1), &n) && n == -2);
	assert_true(tb_json_as_bool(tb_json_at(array, 2), &flag) && flag);
	assert_true(tb_json_as_bool(tb_json_at(array, 3), &flag) && !flag);
	assert_int_equal(tb_json_type(tb_json_at(array, 4)), TB_JSON_NULL);
	assert_true(tb_json_as_string(tb_json_at(array, 5), &text));
	assert_string_equal(text, "x");
	assert_true(tb_json_as_double(tb_json_at(array, 6), &d) && d == 1.5);
	assert_int_equal(tb_json_type(tb_json_at(array, 7)), TB_JSON_OBJECT);
	assert_null(tb_json_at(array, 8));
	assert_true(tb_json_get(doc, "", &member));
	assert_true(tb_json_get(member, "b", &member));
	assert_int_equal(tb_json_type(member), TB_JSON_ARRAY);
	assert_false(tb_json_get(doc, "c", &member));
	assert_null(member);
	assert_false(tb_json_get(array, "a", &member));
	assert_false(tb_json_get(NULL, "a", &member));
	assert_int_equal(tb_json_length(doc), 0);
	assert_int_equal(tb_json_members(array), 0);
	assert_string_equal(tb_json_text(doc),
						"{\"a\":[1,-2,true,false,null,\"x\",1.5,{}],\"\":{\"b\":[]}}");
	assert_ptr_equal(tb_json_ref(doc), doc);
	tb_json_free(doc);
	assert_true(tb_json_get(doc, "a", &member));	/* one owner is left */
	tb_json_free(doc);
	tb_json_free(NULL);
}

static void
test_roots(void **state)
{
	TbJson	   *doc;

	assert_null(good("null"));
	assert_string_equal(tb_json_text(NULL), "null");
	doc = good(" \"x\" ");
	assert_int_equal(tb_json_type(doc), TB_JSON_STRING);
	tb_json_free(doc);
	doc = good("[]");
	assert_int_equal(tb_json_length(doc), 0);
	tb_json_free(doc);
}

static void
test_members_in_order(void **state)
{
	for (int n = 0; n <= 2000; n = n * 3 + 1)
	{
		TbBuf	   *buf = tb_buf_new(0);
		TbJson	   *doc;
		TbJson	   *value;
		char		name[20];

		assert_int_equal(tb_buf_printf(buf, "{"), TB_OK);
		for (int i = 0; i < n; i++)
			assert_int_equal(tb_buf_printf(buf, "%s\"k%d\":%d", i > 0 ? "," : "",
										   i * 7919 % 2003, i), TB_OK);
		assert_int_equal(tb_buf_printf(buf, "}"), TB_OK);
		assert_int_equal(tb_json_parse(buf->data, buf->len, &doc, NULL), TB_OK);
		assert_int_equal(tb_json_members(doc), n);
		for (int i = 0; i < n; i++)
		{
			int64_t		number;

			snprintf(name, sizeof(name), "k%d", i * 7919 % 2003);
			assert_string_equal(tb_json_member(doc, (size_t) i, &value), name);
			assert_true(tb_json_as_int(value, &number) && number == i);
			assert_true(tb_json_get_int(doc, name, &number) && number == i);
		}
		assert_null(tb_json_member(doc, (size_t) n, &value));
		assert_null(value);
		tb_json_free(doc);
		tb_buf_unref(buf);
	}
}

static void
test_typed_members(void **state)
{
	TbJson	   *doc = good("{\"s\":\"x\",\"i\":3,\"b\":true,\"d\":2.5,\"n\":null}");
	const char *text;
	int64_t		n;
	bool		flag;
	double		d;

	assert_true(tb_json_get_string(doc, "s", &text));
	assert_string_equal(text, "x");
	assert_true(tb_json_get_int(doc, "i", &n) && n == 3);
	assert_true(tb_json_get_bool(doc, "b", &flag) && flag);
	assert_true(tb_json_get_double(doc, "d", &d) && d == 2.5);
	assert_true(tb_json_get_double(doc, "i", &d) && d == 3);
	assert_false(tb_json_get_string(doc, "i", &text));
	assert_false(tb_json_get_int(doc, "s", &n));
	assert_false(tb_json_get_int(doc, "d", &n));
	assert_false(tb_json_get_int(doc, "b", &n));
	assert_false(tb_json_get_bool(doc, "i", &flag));
	assert_false(tb_json_get_double(doc, "n", &d));
	assert_false(tb_json_get_string(doc, "n", &text));
	assert_false(tb_json_get_string(doc, "absent", &text));
	tb_json_free(doc);
}

static void
test_integers(void **state)
{
	/* text, exact as int64?, as uint64? */
	static const struct
	{
		const char *text;
		bool		is_int;
		int64_t		i;
		bool		is_uint;
		uint64_t	u;
	}			cases[] = {
		{"0", true, 0, true, 0},
		{"-0", true, 0, true, 0},
		{"9223372036854775807", true, INT64_MAX, true, INT64_MAX},
		{"9223372036854775808", false, 0, true, UINT64_C(9223372036854775808)},
		{"18446744073709551615", false, 0, true, UINT64_MAX},
		{"18446744073709551616", false, 0, false, 0},
		{"100000000000000000000000000000000000000000", false, 0, false, 0},
		{"-1", true, -1, false, 0},
		{"-9223372036854775808", true, INT64_MIN, false, 0},
		{"-9223372036854775809", false, 0, false, 0},
		{"3.0", true, 3, true, 3},
		{"1e3", true, 1000, true, 1000},
		{"-2.0", true, -2, false, 0},
		{"1e18", true, INT64_C(1000000000000000000), true, UINT64_C(1000000000000000000)},
		{"1e19", false, 0, true, UINT64_C(10000000000000000000)},
		{"9223372036854775808.0", false, 0, true, UINT64_C(9223372036854775808)},
		{"18446744073709551616.0", false, 0, false, 0},
		{"0.5", false, 0, false, 0},
		{"NaN", false, 0, false, 0},
		{"Infinity", false, 0, false, 0},
		{"-Infinity", false, 0, false, 0},
		{"\"1\"", false, 0, false, 0},
		{"true", false, 0, false, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		TbJson	   *doc = good(cases[i].text);
		int64_t		n = 77;
		uint64_t	u = 77;

		if (tb_json_as_int(doc, &n) != cases[i].is_int || n != (cases[i].is_int ? cases[i].i : 77))
			fail_msg("int of %s", cases[i].text);
		if (tb_json_as_uint(doc, &u) != cases[i].is_uint ||
			u != (cases[i].is_uint ? cases[i].u : 77))
			fail_msg("uint of %s", cases[i].text);
		tb_json_free(doc);
	}
}

static double
double_of(const char *text)
{
	TbJson	   *doc = good(text);
	double		d = -77;

	assert_true(tb_json_as_double(doc, &d));
	tb_json_free(doc);
	return d;
}

static void
check_doubles(void)
{
	assert_true(double_of("0.1") == 0.1);
	assert_true(double_of("-1.5E+2") == -150);
	assert_true(double_of("5e-324") == 5e-324);
	assert_true(double_of("2.2250738585072011e-308") == 2.2250738585072011e-308);
	assert_true(double_of("1.7976931348623157e308") == 1.7976931348623157e308);
	/* the midpoint between 1 and its neighbour, and just above it */
	assert_true(double_of("1.00000000000000011102230246251565404236316680908203125") == 1.0);
	assert_true(double_of("1.00000000000000011102230246251565404236316680908203126") > 1.0);
	assert_true(double_of("18446744073709551616") == 18446744073709551616.0);
	assert_true(double_of("18446744073709551615") == 18446744073709551616.0);
	assert_true(double_of("-9223372036854775809") == -9223372036854775808.0);
	assert_true(double_of("1e999") == (double) INFINITY);
	assert_true(double_of("1e-999") == 0);
	assert_true(signbit(double_of("-0.0")) != 0);
	assert_true(isnan(double_of("NaN")));
	assert_true(double_of("Infinity") == (double) INFINITY);
	assert_true(double_of("-Infinity") == -(double) INFINITY);
}

static void
test_doubles(void **state)
{
	check_doubles();
}

/* Under a locale that writes a comma; where the machine has one. */
static void
test_doubles_in_any_locale(void **state)
{
	static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
	TbJson	   *doc;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		if (setlocale(LC_ALL, names[i]) == NULL)
			continue;
		assert_string_equal(localeconv()->decimal_point, ",");
		check_doubles();
		doc = good("[0.1,NaN]");
		assert_string_equal(tb_json_text(doc), "[0.1,NaN]");
		tb_json_free(doc);
		setlocale(LC_ALL, "C");
		return;
	}
	skip();
}

static void
test_text_keeps_numbers(void **state)
{
	static const char text[] = "[0.1,1e3,NaN,Infinity,-Infinity,1.50,18446744073709551615,"
		"123456789012345678901234567890,-5,\"/\\u0001\\\"\\\\\\n\xc3\xa9\"]";
	TbJson	   *doc = good(text);

	assert_string_equal(tb_json_text(doc), text);
	tb_json_free(doc);
}

static void
check_string(const char *json, const char *want)
{
	TbJson	   *doc = good(json);
	const char *text;

	assert_true(tb_json_as_string(doc, &text));
	assert_string_equal(text, want);
	tb_json_free(doc);
}

static void
test_strings(void **state)
{
	TbJson	   *doc;
	int64_t		n;

	check_string("\"\"", "");
	check_string("\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\"", "a\"\\/\b\f\n\r\tz");
	check_string("\"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\\uffff\\u0001\"",
				 "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbf\x01");
	check_string("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\x7f\"",
				 "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\x7f");
	doc = good("{\"\\u0061\\\"\":5}");
	assert_true(tb_json_get_int(doc, "a\"", &n) && n == 5);
	tb_json_free(doc);
}

typedef struct Refused
{
	const char *text;
	TbStatus	status;
	size_t		byte;			/* where */
} Refused;

static void
test_refused(void **state)
{
	static const Refused cases[] = {
		{"", TB_E_JSON, 0}, {"  ", TB_E_JSON, 2}, {"{", TB_E_JSON, 1}, {"[", TB_E_JSON, 1},
		{"]", TB_E_JSON, 0}, {"[1", TB_E_JSON, 2}, {"[1,", TB_E_JSON, 3}, {"[1,]", TB_E_JSON, 3},
		{"[,1]", TB_E_JSON, 1}, {"[1 2]", TB_E_JSON, 3}, {"[1}", TB_E_JSON, 2},
		{"{\"a\":1]", TB_E_JSON, 6}, {"{\"a\"}", TB_E_JSON, 4}, {"{\"a\":}", TB_E_JSON, 5},
		{"{\"a\":1,}", TB_E_JSON, 7}, {"{a:1}", TB_E_JSON, 1}, {"{1:1}", TB_E_JSON, 1},
		{"{,}", TB_E_JSON, 1}, {"1 2", TB_E_JSON, 2}, {"{} x", TB_E_JSON, 3}, {"[]]", TB_E_JSON, 2},
		{"truex", TB_E_JSON, 4}, {"tru", TB_E_JSON, 0}, {"nan", TB_E_JSON, 0}, {"+1", TB_E_JSON, 0},
		{"-", TB_E_JSON, 1}, {"01", TB_E_JSON, 1}, {"1.", TB_E_JSON, 2}, {".5", TB_E_JSON, 0},
		{"1e", TB_E_JSON, 2}, {"1e+", TB_E_JSON, 3}, {"1e+-2", TB_E_JSON, 3},
		{"-NaN", TB_E_JSON, 1},
		{"+Infinity", TB_E_JSON, 0}, {"0x10", TB_E_JSON, 1}, {"'a'", TB_E_JSON, 0},
		{"// c\n1", TB_E_JSON, 0}, {"/* c */1", TB_E_JSON, 0}, {"\xef\xbb\xbf" "1", TB_E_JSON, 0},
		{"\"a", TB_E_JSON, 0}, {"\"a\\\"", TB_E_JSON, 0}, {"\"\\", TB_E_JSON, 2},
		{"\"\\x\"", TB_E_JSON, 2}, {"\"a\nb\"", TB_E_JSON, 2}, {"\"\x1f\"", TB_E_JSON, 1},
		{"\"\\u12\"", TB_E_JSON, 3}, {"\"\\u12g4\"", TB_E_JSON, 3}, {"\"\\u0000\"", TB_E_JSON, 7},
		{"{\"a\\u0000b\":1}", TB_E_JSON, 9},
		{"\"\\ud800\"", TB_E_JSON, 7}, {"\"\\udc00\"", TB_E_JSON, 7},
		{"\"\\ud800x\"", TB_E_JSON, 7},
		{"\"\\ud800\\n\"", TB_E_JSON, 7}, {"\"\\ud800\\ud800\"", TB_E_JSON, 13},
		{"\"\\ud800\\u0041\"", TB_E_JSON, 13}, {"\"\x80\"", TB_E_JSON, 1},
		{"\"a\xc3\"", TB_E_JSON, 2},
		{"\"\xc0\xaf\"", TB_E_JSON, 1}, {"\"\xe0\x80\xaf\"", TB_E_JSON, 1},
		{"\"\xed\xa0\x80\"", TB_E_JSON, 1}, {"\"\xf4\x90\x80\x80\"", TB_E_JSON, 1},
		{"\"\xf0\x8f\xbf\xbf\"", TB_E_JSON, 1}, {"\"\xff\"", TB_E_JSON, 1},
		{"\"\xf0\x9f\x98", TB_E_JSON, 1},
		{"{\"a\":1,\"a\":2}", TB_E_JSON_DUPLICATE, 7},
		{"{\"a\":1,\"b\":2,\"\\u0061\":3}", TB_E_JSON_DUPLICATE, 13},
		{"[{\"\":1,\"\":1}]", TB_E_JSON_DUPLICATE, 7},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		TbJson	   *doc = (TbJson *) &doc;
		TbError		err;
		char		place[40];
		TbStatus	status = parse_bytes(cases[i].text, strlen(cases[i].text), &doc, &err);

		snprintf(place, sizeof(place), "byte %zu", cases[i].byte);
		if (status != cases[i].status || err.code != status || doc != NULL ||
			strstr(err.detail, place) == NULL || strcmp(strstr(err.detail, place), place) != 0)
			fail_msg("%s: %s, %s", cases[i].text, tb_status_name(status), err.detail);
		assert_int_equal(parse_bytes(cases[i].text, strlen(cases[i].text), &doc, NULL), status);
	}
}

static void
test_position(void **state)
{
	TbJson	   *doc;
	TbError		err;

	assert_int_equal(parse_bytes("{\n  \"a\": 1,\n  \"a\": 2\n}", 22, &doc, &err),
					 TB_E_JSON_DUPLICATE);
	assert_string_equal(err.detail, "key \"a\"; line 3, column 3, byte 14");
	/* a NUL byte is no end of text */
	assert_int_equal(parse_bytes("1\0", 2, &doc, &err), TB_E_JSON);
	assert_int_equal(parse_bytes("\"\0\"", 3, &doc, &err), TB_E_JSON);
	assert_int_equal(parse_bytes("[1, \0]", 6, &doc, &err), TB_E_JSON);
	/* the same key in other objects is no duplicate */
	doc = good("{\"a\":{\"a\":1},\"b\":[{\"a\":1},{\"a\":2}]}");
	tb_json_free(doc);
}

static void
test_depth(void **state)
{
	static char text[2000001];
	static const char *const openers[] = {"[", "{\"a\":"};
	TbJson	   *doc;
	TbError		err;

	memset(text, '[', 64);
	memset(text + 64, ']', 64);
	assert_int_equal(parse_bytes(text, 128, &doc, &err), TB_OK);
	tb_json_free(doc);
	memset(text, '[', 65);
	memset(text + 65, ']', 65);
	assert_int_equal(parse_bytes(text, 130, &doc, &err), TB_E_LIMIT);
	assert_non_null(strstr(err.detail, "64"));
	for (int kind = 0; kind < 2; kind++)
	{
		size_t		n = strlen(openers[kind]);

		for (size_t at = 0; at + n < sizeof(text); at += n)
			memcpy(text + at, openers[kind], n);
		assert_int_equal(parse_bytes(text, sizeof(text) - 1, &doc, &err), TB_E_LIMIT);
		assert_null(doc);
	}
}

static void
test_size_limits(void **state)
{
	size_t		len = (size_t) TB_JSON_MAX_BYTES + 1;
	char	   *text = malloc(len);
	TbJson	   *doc;
	TbError		err;

	/* too long is told before the text is looked at */
	memset(text, 'x', len);
	assert_int_equal(tb_json_parse(text, len, &doc, &err), TB_E_LIMIT);

	/* short in bytes, but vast in memory */
	for (size_t i = 0; i + 3 <= len; i += 3)
		memcpy(text + i, "{},", 3);
	text[0] = '[';
	text[1] = ' ';
	text[2] = ' ';
	assert_int_equal(tb_json_parse(text, len - 1, &doc, &err), TB_E_LIMIT);
	assert_string_equal(err.message, "JSON document holds too many values");

	/* numbers: two million pass, four million would take a third of a gigabyte */
	for (size_t n = 2000000; n <= 4000000; n += 2000000)
	{
		for (size_t i = 0; i < n; i++)
			memcpy(text + 2 * i, "0,", 2);
		text[0] = '[';
		text[1] = ' ';
		memcpy(text + 2 * n, "0]", 2);
		assert_int_equal(tb_json_parse(text, 2 * n + 2, &doc, &err), n == 2000000 ? TB_OK : TB_E_LIMIT);
		tb_json_free(doc);
	}

	/* a long string is no trouble, nor is a long number */
	memset(text, 'a', len);
	text[0] = text[len - 2] = '"';
	assert_int_equal(tb_json_parse(text, len - 1, &doc, &err), TB_OK);
	tb_json_free(doc);
	memset(text, '7', 1000000);
	assert_int_equal(tb_json_parse(text, 1000000, &doc, &err), TB_OK);
	assert_int_equal(tb_json_type(doc), TB_JSON_DOUBLE);
	tb_json_free(doc);
	free(text);
}

static void
test_quote(void **state)
{
	TbBuf	   *buf = tb_buf_new(0);
	char		all[128];
	TbJson	   *doc;
	const char *text;

	assert_int_equal(tb_json_quote(buf, ""), TB_OK);
	assert_int_equal(tb_json_quote(buf, "a\"b\\c\n\x1f/\xc3\xa9"), TB_OK);
	assert_int_equal(tb_buf_append(buf, "", 1, SIZE_MAX), TB_OK);
	assert_string_equal((const char *) buf->data, "\"\"\"a\\\"b\\\\c\\u000a\\u001f/\xc3\xa9\"");

	for (int c = 1; c < 128; c++)
		all[c - 1] = (char) c;
	all[127] = '\0';
	buf->len = 0;
	assert_int_equal(tb_json_quote(buf, all), TB_OK);
	assert_int_equal(tb_json_parse(buf->data, buf->len, &doc, NULL), TB_OK);
	assert_true(tb_json_as_string(doc, &text));
	assert_string_equal(text, all);
	tb_json_free(doc);
	tb_buf_unref(buf);
}

/* Each allocation of ours fails once: the document comes whole or not at all. */
static void
test_no_memory(void **state)
{
	static const char text[] = "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,"
		"\"f\":6,\"g\":7,\"h\":8,\"i\":9}";
	int64_t		live = tb_mem_live();
	uint64_t	n = 0;
	TbStatus	status;
	TbJson	   *doc;

	do
	{
		(void) tb_mem_fail_after(++n);
		status = tb_json_parse(text, sizeof(text) - 1, &doc, NULL);
		(void) tb_mem_fail_after(0);
		assert_true(status == TB_OK || (status == TB_E_NOMEM && doc == NULL));
		tb_json_free(doc);
		assert_int_equal(tb_mem_live(), live);
	} while (status != TB_OK);
	assert_true(n > 4);
}

/* Any one byte of a document changed, or any prefix, gives a clean answer. */
static void
test_bytes_changed(void **state)
{
	static const char text[] = "{\"a\":[1,-2.5e3,NaN,"
		"\"\\u00e9\\ud83d\\ude00x\xc3\xa9\"],\"b\":{\"c\":null}}";
	int			refused = 0;
	TbJson	   *doc;

	for (size_t at = 0; at < sizeof(text) - 1; at++)
	{
		assert_int_equal(parse_bytes(text, at, &doc, NULL), TB_E_JSON);
		for (int value = 0; value < 256; value++)
		{
			char		bytes[sizeof(text)];
			TbStatus	status;

			memcpy(bytes, text, sizeof(text));
			bytes[at] = (char) value;
			status = parse_bytes(bytes, sizeof(text) - 1, &doc, NULL);
			/* "b" may become a second "a" */
			assert_true(status == TB_OK || status == TB_E_JSON || status == TB_E_JSON_DUPLICATE);
			refused += status != TB_OK;
			tb_json_free(doc);
		}
	}
	assert_true(refused > 5000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_roots),
		cmocka_unit_test(test_members_in_order),
		cmocka_unit_test(test_typed_members),
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_doubles),
		cmocka_unit_test(test_doubles_in_any_locale),
		cmocka_unit_test(test_text_keeps_numbers),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_position),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_size_limits),
		cmocka_unit_test(test_quote),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_bytes_changed),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
