/*
 * Reading JSON text into json-c values.
 *
 * json-c's own tokener is not used: it keeps the last of duplicate keys without a word, turns
 * integers beyond 64 bits into the nearest that fits, lets half surrogates pass and recurses with
 * the document. The grammar is small enough to be read once, here, with an explicit stack of at
 * most TB_JSON_MAX_DEPTH.
 *
 * source: RFC 8259; NaN, Infinity and -Infinity as Python's json module writes them. Strings must
 * be valid UTF-8 without U+0000, which no text of the database can hold. Strings are in
 * json_string.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* strtod_l */
#endif

#include "base/json.h"
#include "base/json_internal.h"

#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * What a value takes in memory, roughly, beside the text itself: a document of "{},{},..." becomes
 * some 250 times its size in json-c, plain metadata about 20 times. The cap holds whatever the
 * text is. It also bounds the time, some two seconds, in which no interrupt is served: 13 MB of
 * plain metadata, ten thousand arrays, pass.
 */
#define COST_VALUE 80
#define COST_ARRAY 128
#define COST_OBJECT 768
#define COST_MEMBER 128
#define MAX_COST (UINT64_C(1) << 28)

#define SMALL_ARRAY 4			/* slots of a new array; json-c would take 32 */

TbStatus
tb_json_reject(TbJsonReader *reader, const char *reason)
{
	tb_fail(reader->err, TB_E_JSON, "invalid JSON document");
	tb_error_detail(reader->err, "%s", reason);
	return tb_json_position(reader, TB_E_JSON);
}

/* Add the place where the reader stands to the detail. Returns status. */
TbStatus
tb_json_position(TbJsonReader *reader, TbStatus status)
{
	size_t		line = 1;
	const uint8_t *line_start = reader->start;

	for (const uint8_t *at = reader->start; at < reader->at; at++)
		if (*at == '\n')
		{
			line++;
			line_start = at + 1;
		}
	tb_error_detail(reader->err, "line %zu, column %zu, byte %zu", line,
					(size_t) (reader->at - line_start) + 1, (size_t) (reader->at - reader->start));
	return status;
}

static TbStatus
no_memory(TbJsonReader *reader)
{
	return tb_fail(reader->err, TB_E_NOMEM, "out of memory");
}

static TbStatus
charge(TbJsonReader *reader, uint64_t cost)
{
	reader->cost += cost;
	if (reader->cost <= MAX_COST)
		return TB_OK;
	tb_fail(reader->err, TB_E_LIMIT, "JSON document holds too many values");
	return tb_json_position(reader, TB_E_LIMIT);
}

static void
skip_space(TbJsonReader *reader)
{
	while (reader->at < reader->end)
	{
		uint8_t		c = *reader->at;

		if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
			return;
		reader->at++;
	}
}

static bool
accept_word(TbJsonReader *reader, const char *word)
{
	size_t		len = strlen(word);

	if ((size_t) (reader->end - reader->at) < len || memcmp(reader->at, word, len) != 0)
		return false;
	reader->at += len;
	return true;
}

/* --- values --- */

/*
 * Hand value (owned here) to the container that is open, under the key just read, or to the root.
 */
static TbStatus
attach(TbJsonReader *reader, TbJson *value)
{
	TbJson	   *parent;
	int			rc;

	if (reader->depth == 0)
	{
		reader->root = value;
		return TB_OK;
	}
	parent = reader->stack[reader->depth - 1];
	if (json_object_is_type(parent, json_type_array))
		rc = json_object_array_add(parent, value);
	else
		rc = json_object_object_add_ex(parent, (const char *) reader->key->data, value,
									   JSON_C_OBJECT_ADD_KEY_IS_NEW);
	if (rc == 0)
		return TB_OK;
	json_object_put(value);
	return no_memory(reader);
}

static TbStatus
attach_scalar(TbJsonReader *reader, TbJson *value)
{
	TbStatus	status = charge(reader, COST_VALUE);

	if (value == NULL)
		return no_memory(reader);
	if (status != TB_OK)
	{
		json_object_put(value);
		return status;
	}
	reader->state = TB_JSON_AFTER_VALUE;
	return attach(reader, value);
}

static size_t
digits(TbJsonReader *reader)
{
	const uint8_t *from = reader->at;

	while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
		reader->at++;
	return (size_t) (reader->at - from);
}

/* Walk over a number; *integer tells that it has neither fraction nor exponent. */
static TbStatus
scan_number(TbJsonReader *reader, bool *integer)
{
	*integer = true;
	(void) accept_word(reader, "-");
	if (!accept_word(reader, "0") && digits(reader) == 0)
		return tb_json_reject(reader, "a digit is expected");
	if (accept_word(reader, "."))
	{
		*integer = false;
		if (digits(reader) == 0)
			return tb_json_reject(reader, "a digit is expected");
	}
	if (accept_word(reader, "e") || accept_word(reader, "E"))
	{
		*integer = false;
		if (!accept_word(reader, "+"))
			(void) accept_word(reader, "-");
		if (digits(reader) == 0)
			return tb_json_reject(reader, "a digit is expected");
	}
	return TB_OK;
}

/*
 * The integer at text, NULL where 64 bits do not hold it (or memory is gone: then the double fails
 * too).
 */
static TbJson *
new_integer(const uint8_t *text, const uint8_t *end)
{
	bool		negative = *text == '-';
	uint64_t	magnitude = 0;

	for (text += negative; text < end; text++)
		if (!tb_mul_u64(magnitude, 10, &magnitude) ||
			!tb_add_u64(magnitude, (uint64_t) (*text - '0'), &magnitude))
			return NULL;
	if (!negative)
		return magnitude <= INT64_MAX ? json_object_new_int64((int64_t) magnitude) :
			json_object_new_uint64(magnitude);
	if (magnitude > (uint64_t) INT64_MAX + 1)
		return NULL;
	return json_object_new_int64(magnitude > INT64_MAX ? INT64_MIN : -(int64_t) magnitude);
}

/*
 * A number. Integers of 64 bits, signed or not, stay exact; all else is the nearest double, and
 * keeps its text for printing. strtod reads in the C locale whatever the host has set.
 */
static TbStatus
read_number(TbJsonReader *reader)
{
	const uint8_t *from = reader->at;
	bool		integer;
	TbJson	   *value = NULL;
	TbStatus	status = scan_number(reader, &integer);
	const char *text;

	if (status != TB_OK)
		return status;
	if (integer)
		value = new_integer(from, reader->at);
	if (value == NULL)
	{
		reader->text->len = 0;
		if (tb_buf_append(reader->text, from, (size_t) (reader->at - from), SIZE_MAX) != TB_OK ||
			tb_buf_append(reader->text, "", 1, SIZE_MAX) != TB_OK)
			return no_memory(reader);
		text = (const char *) reader->text->data;
		value = json_object_new_double_s(strtod_l(text, NULL, reader->c_locale), text);
	}
	return attach_scalar(reader, value);
}

/* One of the bare words, or a number. */
static TbStatus
read_word(TbJsonReader *reader)
{
	if (accept_word(reader, "null"))
	{
		reader->state = TB_JSON_AFTER_VALUE;
		return charge(reader, COST_VALUE) == TB_OK ? attach(reader, NULL) : TB_E_LIMIT;
	}
	if (accept_word(reader, "true"))
		return attach_scalar(reader, json_object_new_boolean(1));
	if (accept_word(reader, "false"))
		return attach_scalar(reader, json_object_new_boolean(0));
	if (accept_word(reader, "NaN"))
		return attach_scalar(reader, json_object_new_double_s((double) NAN, "NaN"));
	if (accept_word(reader, "Infinity"))
		return attach_scalar(reader, json_object_new_double_s((double) INFINITY, "Infinity"));
	if (accept_word(reader, "-Infinity"))
		return attach_scalar(reader, json_object_new_double_s(-(double) INFINITY, "-Infinity"));
	if (*reader->at == '-' || (*reader->at >= '0' && *reader->at <= '9'))
		return read_number(reader);
	return tb_json_reject(reader, "a value is expected");
}

/* '{' or '[': attach the empty container at once, then fill it. */
static TbStatus
open_container(TbJsonReader *reader)
{
	bool		object = *reader->at == '{';
	TbJson	   *value;
	TbStatus	status = charge(reader, COST_VALUE + (object ? COST_OBJECT : COST_ARRAY));

	if (status != TB_OK)
		return status;
	if (reader->depth == TB_JSON_MAX_DEPTH)
	{
		tb_fail(reader->err, TB_E_LIMIT, "JSON document is nested too deeply");
		tb_error_detail(reader->err, "at most %d levels are allowed", TB_JSON_MAX_DEPTH);
		return tb_json_position(reader, TB_E_LIMIT);
	}
	value = object ? json_object_new_object() : json_object_new_array_ext(SMALL_ARRAY);
	if (value == NULL)
		return no_memory(reader);
	status = attach(reader, value);
	if (status != TB_OK)
		return status;
	reader->stack[reader->depth++] = value;
	reader->at++;
	reader->state = object ? TB_JSON_FIRST_KEY : TB_JSON_FIRST_ELEMENT;
	return TB_OK;
}

static TbStatus
close_container(TbJsonReader *reader)
{
	reader->at++;
	reader->depth--;
	reader->state = TB_JSON_AFTER_VALUE;
	if (!tb_json_index_members(reader->stack[reader->depth]))
		return no_memory(reader);
	return TB_OK;
}

static TbStatus
read_value(TbJsonReader *reader)
{
	TbStatus	status;

	if (*reader->at == '{' || *reader->at == '[')
		return open_container(reader);
	if (*reader->at != '"')
		return read_word(reader);
	status = tb_json_read_string(reader, reader->text);
	if (status != TB_OK)
		return status;
	return attach_scalar(reader, json_object_new_string_len((const char *) reader->text->data,
															(int) reader->text->len));
}

/* A key with its colon. json-c's table, whose hash is seeded at random, tells duplicates. */
static TbStatus
read_key(TbJsonReader *reader)
{
	const uint8_t *from = reader->at;
	const char *key;
	TbStatus	status;

	if (*reader->at != '"')
		return tb_json_reject(reader, "a key in quotes is expected");
	status = tb_json_read_string(reader, reader->key);
	if (status == TB_OK)
		status = charge(reader, COST_MEMBER);
	if (status != TB_OK)
		return status;
	if (tb_buf_append(reader->key, "", 1, SIZE_MAX) != TB_OK)
		return no_memory(reader);
	key = (const char *) reader->key->data;
	if (json_object_object_get_ex(reader->stack[reader->depth - 1], key, NULL))
	{
		reader->at = from;
		tb_fail(reader->err, TB_E_JSON_DUPLICATE, "duplicate key in JSON object");
		tb_error_detail(reader->err, "key \"%.200s\"", key);
		return tb_json_position(reader, TB_E_JSON_DUPLICATE);
	}
	skip_space(reader);
	if (!accept_word(reader, ":"))
		return tb_json_reject(reader, "a colon is expected");
	reader->state = TB_JSON_VALUE;
	return TB_OK;
}

/* What stands behind a value inside a container. */
static TbStatus
after_value(TbJsonReader *reader)
{
	bool		object = json_object_is_type(reader->stack[reader->depth - 1], json_type_object);

	if (*reader->at == (object ? '}' : ']'))
		return close_container(reader);
	if (!accept_word(reader, ","))
		return tb_json_reject(reader, object ?
							  "a comma or } is expected" : "a comma or ] is expected");
	reader->state = object ? TB_JSON_KEY : TB_JSON_VALUE;
	return TB_OK;
}

static TbStatus
step(TbJsonReader *reader)
{
	switch (reader->state)
	{
		case TB_JSON_FIRST_KEY:
			return *reader->at == '}' ? close_container(reader) : read_key(reader);
		case TB_JSON_KEY:
			return read_key(reader);
		case TB_JSON_FIRST_ELEMENT:
			return *reader->at == ']' ? close_container(reader) : read_value(reader);
		case TB_JSON_VALUE:
			return read_value(reader);
		case TB_JSON_AFTER_VALUE:
			return after_value(reader);
	}
	return TB_E_INTERNAL;
}

static TbStatus
read_document(TbJsonReader *reader)
{
	do
	{
		TbStatus	status;

		skip_space(reader);
		if (reader->at == reader->end)
			return tb_json_reject(reader, "the document ends too early");
		status = step(reader);
		if (status != TB_OK)
			return status;
	} while (reader->depth > 0 || reader->state != TB_JSON_AFTER_VALUE);
	skip_space(reader);
	if (reader->at < reader->end)
		return tb_json_reject(reader, "there is text behind the document");
	return TB_OK;
}

TbStatus
tb_json_parse(const void *text, size_t len, TbJson **doc, TbError *err)
{
	TbJsonReader reader = {.start = text, .at = text, .state = TB_JSON_VALUE, .err = err};
	TbStatus	status;

	*doc = NULL;
	if (len > TB_JSON_MAX_BYTES)
	{
		tb_fail(err, TB_E_LIMIT, "JSON document is too large");
		tb_error_detail(err, "%zu bytes, at most %u are allowed", len, TB_JSON_MAX_BYTES);
		return TB_E_LIMIT;
	}
	reader.end = len > 0 ? reader.start + len : reader.start;
	reader.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t) 0);
	reader.key = tb_buf_new(256);
	reader.text = tb_buf_new(256);
	if (reader.c_locale == (locale_t) 0 || reader.key == NULL || reader.text == NULL)
		status = no_memory(&reader);
	else
		status = read_document(&reader);
	tb_buf_unref(reader.key);
	tb_buf_unref(reader.text);
	if (reader.c_locale != (locale_t) 0)
		freelocale(reader.c_locale);
	if (status == TB_OK)
		*doc = reader.root;
	else
		json_object_put(reader.root);
	return status;
}
