/* The state text of a stream: what a client keeps to go on from, on this server or another. */
#include "stream/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const shuffles[] = {[TB_SHUFFLE_NONE] = "none", [TB_SHUFFLE_FULL] = "full"};

/* errors: LIMIT (the buffer is too small; 320 bytes always do). */
TbStatus
tb_state_print(const TbStreamState *state, char *text, size_t text_bytes)
{
	int			n = snprintf(text, text_bytes,
							 "{\"dataset\":\"%s\",\"seed\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"shuffle\":\"%s\","
							 "\"position\":%" PRIu64 ",\"done\":%" PRIu64 "}",
							 state->dataset, state->seed, state->epoch, shuffles[state->shuffle],
							 state->position, state->batches);

	return n > 0 && (size_t) n < text_bytes ? TB_OK : TB_E_LIMIT;
}

static bool
is_hash(const char *text)
{
	return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static bool
get_uint(const TbJson *doc, const char *name, uint64_t *value)
{
	TbJson	   *member;

	return tb_json_get(doc, name, &member) && tb_json_as_uint(member, value);
}

static bool
take_members(const TbJson *doc, TbStreamState *state)
{
	const char *hash;
	const char *shuffle;

	if (!tb_json_get_string(doc, "dataset", &hash) || !is_hash(hash) ||
		!tb_json_get_string(doc, "shuffle", &shuffle))
		return false;
	memcpy(state->dataset, hash, sizeof(state->dataset));
	if (strcmp(shuffle, shuffles[TB_SHUFFLE_FULL]) == 0)
		state->shuffle = TB_SHUFFLE_FULL;
	else if (strcmp(shuffle, shuffles[TB_SHUFFLE_NONE]) != 0)
		return false;
	return get_uint(doc, "seed", &state->seed) && get_uint(doc, "epoch", &state->epoch) &&
		get_uint(doc, "position", &state->position) && get_uint(doc, "done", &state->batches);
}

/* errors: INVALID for all that is no state. */
TbStatus
tb_state_parse(const char *text, TbStreamState *state, TbError *err)
{
	TbJson	   *doc;
	TbStatus	status = tb_json_parse(text, strlen(text), &doc, err);

	memset(state, 0, sizeof(*state));
	if (status == TB_E_NOMEM)
		return status;
	if (status == TB_OK)
	{
		if (!take_members(doc, state))
			status = TB_E_INVALID;
		tb_json_free(doc);
	}
	if (status == TB_OK)
		return TB_OK;
	tb_fail(err, TB_E_INVALID, "invalid stream state");
	tb_error_hint(err, "Pass the state that came with a batch as it is.");
	return TB_E_INVALID;
}
