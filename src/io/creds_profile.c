/*
 * Provider "profile": keys of a section of the shared credentials file, else of the shared config file. Programs
 * (credential_process), roles and single sign-on are not followed: no program is run in the database server.
 */
#include "io/creds_parts.h"

#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 8192

/* ~/.aws/NAME of the user that the process runs as, or what a variable says. NULL: none. owns: the caller. */
static char *
file_path(const char *variable, const char *name)
{
	const char *value = tb_ask_env(variable);
	const char *home = tb_ask_env("HOME");
	char		room[2048];
	struct passwd entry;
	struct passwd *found = NULL;

	if (value != NULL)
		return tb_strdup(value);
	if (home == NULL && getpwuid_r(geteuid(), &entry, room, sizeof(room), &found) == 0 && found != NULL)
		home = entry.pw_dir;
	return home != NULL && home[0] == '/' ? tb_asprintf("%s/.aws/%s", home, name) : NULL;
}

static const char *
profile_of(const TbAsk *ask)
{
	const char *name = ask->profile != NULL && ask->profile[0] != '\0' ? ask->profile : tb_ask_env("AWS_PROFILE");

	return name != NULL ? name : "default";
}

typedef struct Section
{
	const char *id;				/* borrowed from the file's bytes, as the others */
	const char *secret;
	const char *token;
	bool		found;
	bool		process;
	bool		role;
} Section;

static char *
trim(char *text)
{
	size_t		n;

	text += strspn(text, " \t");
	n = strlen(text);
	while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t' || text[n - 1] == '\r'))
		text[--n] = '\0';
	return text;
}

/* Whether a section's name stands for the profile; in the config file they are called "profile NAME". */
static bool
is_section(char *name, const char *profile, bool config)
{
	name = trim(name);
	if (config && strncmp(name, "profile", 7) == 0 && (name[7] == ' ' || name[7] == '\t'))
		return strcmp(trim(name + 7), profile) == 0;
	return (!config || strcmp(profile, "default") == 0) && strcmp(name, profile) == 0;
}

static void
take_setting(Section *section, const char *name, const char *value)
{
	if (strcmp(name, "aws_access_key_id") == 0)
		section->id = value;
	else if (strcmp(name, "aws_secret_access_key") == 0)
		section->secret = value;
	else if (strcmp(name, "aws_session_token") == 0)
		section->token = value;
	else if (strcmp(name, "credential_process") == 0)
		section->process = true;
	else if (strcmp(name, "role_arn") == 0 || strncmp(name, "sso_", 4) == 0)
		section->role = true;
}

/* Cuts the text into lines in place. */
static void
parse(char *text, const char *profile, bool config, Section *section)
{
	bool		inside = false;

	for (char *line = text, *next; line != NULL; line = next)
	{
		char	   *equals;
		char	   *close;

		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		if (line[0] == ' ' || line[0] == '\t' || line[0] == '#' || line[0] == ';' || strlen(line) > LINE_MAX_BYTES)
			continue;			/* indented lines belong to nested settings, none of which is ours */
		if (line[0] == '[')
		{
			close = strchr(line, ']');
			if (close != NULL)
				*close = '\0';
			inside = close != NULL && is_section(line + 1, profile, config);
			section->found |= inside;
			continue;
		}
		equals = strchr(line, '=');
		if (!inside || equals == NULL)
			continue;
		*equals = '\0';
		take_setting(section, trim(line), trim(equals + 1));
	}
}

/* Keys of one file. AUTH: it has none; *seen: it has the profile. */
static TbStatus
from_file(TbAsk *ask, const char *path, bool config, bool *seen)
{
	Section		section = {.id = NULL};
	TbBuf	   *file = path != NULL ? tb_ask_file(ask, path) : NULL;
	TbStatus	status;

	if (file == NULL)
		return path != NULL ? ask->error.code : tb_ask_none(ask, "no home directory");
	parse((char *) file->data, profile_of(ask), config, &section);
	*seen |= section.found;
	if (!section.found)
		status = tb_ask_none(ask, "no such profile");
	else if (tb_keys_text_ok(section.id, 256) && tb_keys_text_ok(section.secret, 512))
	{
		if (section.token != NULL && !tb_keys_text_ok(section.token, LINE_MAX_BYTES))
			section.token = NULL;
		status = tb_keys_copy(&ask->keys, section.id, section.secret, section.token) == TB_OK ? TB_OK :
			tb_ask_nomem(ask);
	}
	else if (section.process)
		status = tb_ask_none(ask, "the profile names a credential_process, and no programs are run");
	else if (section.role)
		status = tb_ask_none(ask, "the profile names a role or single sign-on, which are not followed");
	else
		status = tb_ask_none(ask, "the profile has no access key");
	tb_wipe_buf(file);
	return status;
}

static TbStatus
ask_profile(TbAsk *ask)
{
	char	   *path = file_path("AWS_SHARED_CREDENTIALS_FILE", "credentials");
	bool		seen = false;
	TbStatus	status = from_file(ask, path, false, &seen);
	TbError		first = ask->error;

	tb_free(path);
	if (status != TB_OK)
	{
		path = file_path("AWS_CONFIG_FILE", "config");
		status = from_file(ask, path, true, &seen);
		tb_free(path);
		/* the first file's word counts where the second one has nothing to say */
		if (status != TB_OK && (status == TB_E_NOT_FOUND || !seen))
			ask->error = first;
	}
	return status;
}

static uint64_t
mix(uint64_t stamp, const char *variable, const char *name)
{
	char	   *path = file_path(variable, name);
	struct stat st;

	if (path != NULL && stat(path, &st) == 0)
	{
		uint64_t	told[4] = {(uint64_t) st.st_ino, (uint64_t) st.st_size, (uint64_t) st.st_mtim.tv_sec,
			(uint64_t) st.st_mtim.tv_nsec};

		stamp = tb_hash64(told, sizeof(told), stamp + 1);
	}
	tb_free(path);
	return stamp;
}

static uint64_t
stamp(const TbAsk *ask)
{
	return mix(mix(0, "AWS_SHARED_CREDENTIALS_FILE", "credentials"), "AWS_CONFIG_FILE", "config");
}

const TbCredsProvider tb_creds_profile = {"profile", ask_profile, NULL, stamp};
