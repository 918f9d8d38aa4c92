/* The words for a codec and its settings in a chain's description: what a reader of location()
 * wants to see. */
#include "codec/inner.h"

#include <string.h>

#define VALUE_CHARS 40			/* metadata may be hostile: longer values are cut */

/* Settings that say nothing to a reader: defaults, and what only steers a writer. */
static bool
is_dull(const char *key, const char *value)
{
	return strcmp(value, "false") == 0 || strcmp(key, "blocksize") == 0 ||
		   strcmp(key, "typesize") == 0 ||
		   (strcmp(key, "endian") == 0 && strcmp(value, "little") == 0);
}

TbStatus
tb_codec_describe(TbBuf *text, const char *name, const TbJson *config)
{
	size_t		members = config == NULL ? 0 : tb_json_members(config);
	const char *before = "(";

	if (tb_buf_printf(text, "%.*s", VALUE_CHARS, name) != TB_OK)
		return TB_E_NOMEM;
	for (size_t i = 0; i < members; i++)
	{
		TbJson	   *value = NULL;
		const char *key = tb_json_member(config, i, &value);
		const char *words;

		if (value == NULL || tb_json_type(value) == TB_JSON_OBJECT)
			continue;
		if (!tb_json_as_string(value, &words))
			words = tb_json_text(value);
		if (words == NULL || is_dull(key, words))
			continue;
		if (tb_buf_printf(text, "%s%.*s %.*s", before, VALUE_CHARS, key, VALUE_CHARS, words) !=
			TB_OK)
			return TB_E_NOMEM;
		before = ", ";
	}
	return before[0] == '(' ? TB_OK : tb_buf_printf(text, ")");
}
