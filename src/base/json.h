/*
 * TbJson: read-only view of a parsed document over json-c, with the caps that hostile input needs:
 * size, depth 64, duplicate keys refused, UTF-8 checked. NaN, Infinity and -Infinity are accepted
 * as bare words (Zarr v2 attributes hold them). Values are borrowed from the document that
 * tb_json_parse returned.
 */
#ifndef TB_BASE_JSON_H
#define TB_BASE_JSON_H

#include "base/mem.h"

typedef struct json_object TbJson;	/* NULL stands for JSON null, as in json-c */

typedef enum TbJsonType
{
	TB_JSON_NULL, TB_JSON_BOOL, TB_JSON_INT, TB_JSON_DOUBLE, TB_JSON_STRING, TB_JSON_ARRAY,
	TB_JSON_OBJECT
} TbJsonType;

#define TB_JSON_MAX_BYTES (64u << 20)
#define TB_JSON_MAX_DEPTH 64

/*
 * owns: *doc is the caller's, tb_json_free. errors: JSON (with position), JSON_DUPLICATE, LIMIT,
 * NOMEM.
 */
extern TbStatus tb_json_parse(const void *text, size_t len, TbJson **doc, TbError *err)
	TB_MUST_CHECK;
extern void tb_json_free(TbJson *doc);
extern TbJson *tb_json_ref(TbJson *doc);	/* one more owner */

extern TbJsonType tb_json_type(const TbJson *value);

/*
 * Member of an object; false where there is none (or value is no object). *member may be NULL for
 * null.
 */
extern bool tb_json_get(const TbJson *object, const char *name, TbJson **member);

/* Member as a type; false where absent or of another type. Strings are borrowed. */
extern bool tb_json_get_string(const TbJson *object, const char *name, const char **value);
extern bool tb_json_get_int(const TbJson *object, const char *name, int64_t *value);
extern bool tb_json_get_bool(const TbJson *object, const char *name, bool *value);
extern bool tb_json_get_double(const TbJson *object, const char *name, double *value); /* int too */
/* Overwrite the text of a member, of a document that is the caller's alone and is freed next. */
extern void tb_json_wipe(const TbJson *object, const char *name);

/* Value itself. as_int/as_uint: exact or false (a double with an integral value counts). */
extern bool tb_json_as_string(const TbJson *value, const char **text);
extern bool tb_json_as_int(const TbJson *value, int64_t *number);
extern bool tb_json_as_uint(const TbJson *value, uint64_t *number);
extern bool tb_json_as_double(const TbJson *value, double *number);
extern bool tb_json_as_bool(const TbJson *value, bool *flag);

/* Arrays. */
extern size_t tb_json_length(const TbJson *array);	/* 0 for what is no array */
extern TbJson *tb_json_at(const TbJson *array, size_t index);

/* Objects: members in document order. NULL name at the end. */
extern size_t tb_json_members(const TbJson *object);
extern const char *tb_json_member(const TbJson *object, size_t index, TbJson **value);

/* Text form, borrowed until the value is freed or printed again. */
extern const char *tb_json_text(TbJson *value);

/* Append a quoted, escaped JSON string to a buffer: how documents are written. */
struct TbBuf;
extern TbStatus tb_json_quote(struct TbBuf *buf, const char *text) TB_MUST_CHECK;

#endif
