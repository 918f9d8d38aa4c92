/*
 * States, handles and errors in text: there and back, and everything else refused with its one
 * error.
 */
#include "stream/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void
state_round_trip(void **state)
{
	TbStreamState in = {.dataset = HASH, .seed = UINT64_MAX, .epoch = 3, .shuffle = TB_SHUFFLE_FULL,
	.position = UINT64_C(1) << 53 | 1, .batches = 12};
	TbStreamState out;
	char		text[320];
	TbError		err;

	assert_int_equal(tb_state_print(&in, text, sizeof(text)), TB_OK);
	assert_string_equal(text, "{\"dataset\":\"" HASH "\",\"seed\":18446744073709551615,\"epoch\":3,"
						"\"shuffle\":\"full\",\"position\":9007199254740993,\"done\":12}");
	assert_int_equal(tb_state_parse(text, &out, &err), TB_OK);
	assert_string_equal(out.dataset, in.dataset);
	assert_true(out.seed == in.seed && out.epoch == in.epoch && out.shuffle == in.shuffle);
	assert_true(out.position == in.position && out.batches == in.batches);
	assert_int_equal(tb_state_print(&in, text, 100), TB_E_LIMIT);
}

static void
bad_states(void **state)
{
	static const char *const texts[] = {
		"", "null", "[]", "{}", "{\"dataset\":\"" HASH "\"}",
		"{\"dataset\":\"xyz\",\"seed\":1,\"epoch\":1,\"shuffle\":\"full\",\"position\":1,\"done\":1}",
		"{\"dataset\":\"" HASH "\",\"seed\":-1,\"epoch\":1,\"shuffle\":\"full\",\"position\":1,\"done\":1}",
		"{\"dataset\":\"" HASH "\",\"seed\":1,\"epoch\":1,\"shuffle\":\"half\",\"position\":1,\"done\":1}",
		"{\"dataset\":\"" HASH "\",\"seed\":1,\"epoch\":1,\"shuffle\":\"none\",\"position\":1.5,\"done\":1}",
		"{\"dataset\":\"" HASH "\",\"seed\":1,\"epoch\":1,\"shuffle\":\"none\",\"position\":1,\"done\":\"1\"}",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
	{
		TbStreamState out;
		TbError		err;

		assert_int_equal(tb_state_parse(texts[i], &out, &err), TB_E_INVALID);
		assert_string_equal(err.message, "invalid stream state");
		assert_true(err.hint[0] != '\0');
	}
}

static void
handle_round_trip(void **state)
{
	TbHandle	in = {.stream = UINT64_MAX, .slot = UINT32_MAX, .tensor = UINT32_MAX,
					  .generation = UINT64_MAX};
	TbHandle	out;
	char		text[TB_HANDLE_TEXT];
	TbError		err;

	memset(in.epoch, 0xa5, sizeof(in.epoch));
	tb_handle_print(&in, text);
	assert_int_equal(tb_handle_parse(text, &out, &err), TB_OK);
	assert_memory_equal(&in, &out, sizeof(in));
	memset(&in, 0, sizeof(in));
	tb_handle_print(&in, text);
	assert_string_equal(text, "0.0.0.0@00000000000000000000000000000000");
	assert_int_equal(tb_handle_parse(text, &out, &err), TB_OK);
	assert_memory_equal(&in, &out, sizeof(in));
}

static void
bad_handles(void **state)
{
	static const char *const texts[] = {
		"", ".", "1.2.3", "1.2.3.4", "1.2.3.4@", "1.2.3.4@0", "1.2.3.4@0000000000000000000000000000000",
		"1.2.3.4@000000000000000000000000000000000", "1.2.3.4@0000000000000000000000000000000g",
		"1.2.3.4@0000000000000000000000000000000A", "1.100000000.3.4@00000000000000000000000000000000",
		"-1.2.3.4@00000000000000000000000000000000", "12345678901234567.2.3.4@00000000000000000000000000000000",
		" 1.2.3.4@00000000000000000000000000000000", "1.2..4@00000000000000000000000000000000",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
	{
		TbHandle	out;
		TbError		err;

		assert_int_equal(tb_handle_parse(texts[i], &out, &err), TB_E_HANDLE);
		assert_string_equal(err.message, "invalid handle");
		assert_string_equal(err.detail, "");
	}
}

static void
errors_cross(void **state)
{
	for (int code = TB_E_NOMEM; code <= TB_E_INTERNAL; code++)
	{
		TbBuf	   *buf = tb_buf_new(0);
		TbError		in;
		TbError		out;
		TbJson	   *doc;

		tb_fail(&in, (TbStatus) code, "cannot \"read\"");
		tb_error_detail(&in, "object \"a\\b\"");
		tb_error_hint(&in, "Try again.");
		in.http_status = 503;
		in.retryable = true;
		assert_int_equal(tb_error_to_json(&in, buf), TB_OK);
		assert_int_equal(tb_json_parse(buf->data, buf->len, &doc, &out), TB_OK);
		tb_error_from_json(doc, &out);
		assert_int_equal(out.code, in.code);
		assert_int_equal(out.http_status, 503);
		assert_true(out.retryable);
		assert_string_equal(out.message, in.message);
		assert_string_equal(out.detail, in.detail);
		assert_string_equal(out.hint, in.hint);
		tb_json_free(doc);
		tb_buf_unref(buf);
	}
}

/* What a broken or newer peer may send. */
static void
odd_errors(void **state)
{
	static const struct
	{
		const char *text;
		TbStatus	code;
	}			odd[] = {
		{"{\"code\":\"busy\",\"message\":\"m\"}", TB_E_STATE}, {"{\"code\":\"what\"}",
																TB_E_INTERNAL},
		{"{}", TB_E_PROTOCOL}, {"[]", TB_E_PROTOCOL}, {"{\"code\":7}",
													   TB_E_PROTOCOL}, {"{\"code\":\"ok\"}",
																		TB_E_INTERNAL},
	};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
	{
		TbError		out;
		TbJson	   *doc;

		assert_int_equal(tb_json_parse(odd[i].text, strlen(odd[i].text), &doc, &out), TB_OK);
		tb_error_from_json(doc, &out);
		assert_int_equal(out.code, odd[i].code);
		tb_json_free(doc);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(state_round_trip), cmocka_unit_test(bad_states), cmocka_unit_test(handle_round_trip),
		cmocka_unit_test(bad_handles), cmocka_unit_test(errors_cross), cmocka_unit_test(odd_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
