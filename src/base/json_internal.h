/* What the three files of JSON share; no one else includes it. */
#ifndef TB_BASE_JSON_INTERNAL_H
#define TB_BASE_JSON_INTERNAL_H

#include "base/buf.h"
#include "base/json.h"

#include <locale.h>

/* What the reader expects next. */
typedef enum TbJsonState
{
	TB_JSON_VALUE,
	TB_JSON_FIRST_ELEMENT,		/* or ] */
	TB_JSON_FIRST_KEY,			/* or } */
	TB_JSON_KEY,
	TB_JSON_AFTER_VALUE			/* comma, or the container's end */
} TbJsonState;

typedef struct TbJsonReader
{
	const uint8_t *start;		/* borrowed: the text */
	const uint8_t *end;
	const uint8_t *at;
	TbJsonState state;
	TbJson	   *root;			/* owned; NULL also for null */
	TbJson	   *stack[TB_JSON_MAX_DEPTH];	/* borrowed from root: the open containers */
	int			depth;
	TbBuf	   *key;			/* owned: the last key, ended by a NUL */
	TbBuf	   *text;			/* owned: the last string or number */
	locale_t	c_locale;		/* owned */
	uint64_t	cost;			/* estimated memory of what was read */
	TbError    *err;			/* borrowed; may be NULL */
} TbJsonReader;

/* Fail with JSON: reason and position in the detail. */
extern TbStatus tb_json_reject(TbJsonReader *reader, const char *reason);

/* Add the position to the detail; returns status. */
extern TbStatus tb_json_position(TbJsonReader *reader, TbStatus status);

/* Read the string at reader->at (a quote) into text, unescaped. errors: JSON, NOMEM. */
extern TbStatus tb_json_read_string(TbJsonReader *reader, TbBuf *text);

/* Make the members of a large object reachable by index; false when memory is gone. */
extern bool tb_json_index_members(TbJson *value);

#endif
