/*
 * The view of a parsed document: types, members, numbers. Reading text is in json_parse.c. A
 * document is not changed after parsing, so that any number of threads may look at it (taking and
 * giving up owners, and tb_json_text, belong to one thread at a time).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1			/* explicit_bzero */
#endif

#include "base/json_internal.h"

#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <string.h>

#define FEW_MEMBERS 8			/* up to here walking the list costs less than an index */

#define TWO_63 9223372036854775808.0
#define TWO_64 18446744073709551616.0

/* json-c's getters take no const, though they change nothing. */
static TbJson *
as_mutable(const TbJson *value)
{
	return (TbJson *) (uintptr_t) value;
}

void
tb_json_free(TbJson *doc)
{
	json_object_put(doc);
}

TbJson *
tb_json_ref(TbJson *doc)
{
	return json_object_get(doc);
}

TbJsonType
tb_json_type(const TbJson *value)
{
	switch (json_object_get_type(value))
	{
		case json_type_null:
			return TB_JSON_NULL;
		case json_type_boolean:
			return TB_JSON_BOOL;
		case json_type_double:
			return TB_JSON_DOUBLE;
		case json_type_int:
			return TB_JSON_INT;
		case json_type_object:
			return TB_JSON_OBJECT;
		case json_type_array:
			return TB_JSON_ARRAY;
		case json_type_string:
			return TB_JSON_STRING;
	}
	return TB_JSON_NULL;
}

bool
tb_json_get(const TbJson *object, const char *name, TbJson **member)
{
	*member = NULL;
	if (tb_json_type(object) != TB_JSON_OBJECT)
		return false;
	return json_object_object_get_ex(object, name, member);
}

bool
tb_json_get_string(const TbJson *object, const char *name, const char **value)
{
	TbJson	   *member;

	return tb_json_get(object, name, &member) && tb_json_as_string(member, value);
}

bool
tb_json_get_int(const TbJson *object, const char *name, int64_t *value)
{
	TbJson	   *member;

	return tb_json_get(object, name, &member) && tb_json_as_int(member, value);
}

bool
tb_json_get_bool(const TbJson *object, const char *name, bool *value)
{
	TbJson	   *member;

	return tb_json_get(object, name, &member) && tb_json_as_bool(member, value);
}

bool
tb_json_get_double(const TbJson *object, const char *name, double *value)
{
	TbJson	   *member;

	return tb_json_get(object, name, &member) && tb_json_as_double(member, value);
}

void
tb_json_wipe(const TbJson *object, const char *name)
{
	const char *text;

	if (tb_json_get_string(object, name, &text))
		explicit_bzero((char *) (uintptr_t) text, strlen(text));
}

/* Borrowed, as long as the document. */
bool
tb_json_as_string(const TbJson *value, const char **text)
{
	if (tb_json_type(value) != TB_JSON_STRING)
		return false;
	*text = json_object_get_string(as_mutable(value));
	return true;
}

/*
 * A double counts where it is integral and inside the range. The lower end itself does not count:
 * a text just below it rounds to it.
 */
bool
tb_json_as_int(const TbJson *value, int64_t *number)
{
	if (tb_json_type(value) == TB_JSON_INT)
	{
		int64_t		n = json_object_get_int64(value);

		/* json-c gives the largest int64 for all above it */
		if (n == INT64_MAX && json_object_get_uint64(value) > INT64_MAX)
			return false;
		*number = n;
		return true;
	}
	if (tb_json_type(value) == TB_JSON_DOUBLE)
	{
		double		d = json_object_get_double(value);

		if (!(d > -TWO_63 && d < TWO_63) || (double) (int64_t) d != d)
			return false;
		*number = (int64_t) d;
		return true;
	}
	return false;
}

bool
tb_json_as_uint(const TbJson *value, uint64_t *number)
{
	if (tb_json_type(value) == TB_JSON_INT)
	{
		if (json_object_get_int64(value) < 0)
			return false;
		*number = json_object_get_uint64(value);
		return true;
	}
	if (tb_json_type(value) == TB_JSON_DOUBLE)
	{
		double		d = json_object_get_double(value);

		if (!(d >= 0 && d < TWO_64) || (double) (uint64_t) d != d)
			return false;
		*number = (uint64_t) d;
		return true;
	}
	return false;
}

/* Integers too, rounded to the nearest double. */
bool
tb_json_as_double(const TbJson *value, double *number)
{
	int64_t		n;

	if (tb_json_type(value) == TB_JSON_DOUBLE)
	{
		*number = json_object_get_double(value);
		return true;
	}
	if (tb_json_type(value) != TB_JSON_INT)
		return false;
	*number = tb_json_as_int(value, &n) ? (double) n : (double) json_object_get_uint64(value);
	return true;
}

bool
tb_json_as_bool(const TbJson *value, bool *flag)
{
	if (tb_json_type(value) != TB_JSON_BOOL)
		return false;
	*flag = json_object_get_boolean(value) != 0;
	return true;
}

size_t
tb_json_length(const TbJson *array)
{
	return tb_json_type(array) == TB_JSON_ARRAY ? json_object_array_length(array) : 0;
}

/* NULL beyond the end (and for null). */
TbJson *
tb_json_at(const TbJson *array, size_t index)
{
	return index < tb_json_length(array) ? json_object_array_get_idx(array, index) : NULL;
}

size_t
tb_json_members(const TbJson *object)
{
	return tb_json_type(object) == TB_JSON_OBJECT ? (size_t) json_object_object_length(object) : 0;
}

static void
free_index(TbJson *value, void *index)
{
	tb_free(index);
}

/*
 * json-c lists members in order, but finds the n-th only by walking. A large object gets an array
 * of its entries; they stay where they are, since nothing is added any more.
 */
bool
tb_json_index_members(TbJson *value)
{
	size_t		n = tb_json_members(value);
	struct lh_entry **index;
	size_t		i = 0;

	if (n <= FEW_MEMBERS)
		return true;
	index = tb_calloc(n, sizeof(*index));
	if (index == NULL)
		return false;
	for (struct lh_entry *entry = json_object_get_object(value)->head; entry != NULL && i < n;
		 entry = entry->next)
		index[i++] = entry;
	json_object_set_userdata(value, index, free_index);
	return true;
}

const char *
tb_json_member(const TbJson *object, size_t index, TbJson **value)
{
	struct lh_entry *entry;
	struct lh_entry **entries;

	*value = NULL;
	if (index >= tb_json_members(object))
		return NULL;
	entries = json_object_get_userdata(as_mutable(object));
	if (entries != NULL)
		entry = entries[index];
	else
		for (entry = json_object_get_object(object)->head; index > 0; index--)
			entry = entry->next;
	*value = (TbJson *) (uintptr_t) entry->v;
	return (const char *) entry->k;
}

/* "null" for NULL; NULL when memory is gone. */
const char *
tb_json_text(TbJson *value)
{
	return json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN |
										  JSON_C_TO_STRING_NOSLASHESCAPE);
}
