/*
 * Runs a fuzz target over files, so that found inputs are ordinary tests without a fuzzer: each
 * argument is a file, or a folder of files. The same targets build with clang's -fsanitize=fuzzer
 * in place of this file.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Run one file, in memory of exactly its size. Returns files run, -1 where it cannot be read. */
static int
run_file(const char *path, size_t size)
{
	FILE	   *file = fopen(path, "rb");
	uint8_t    *data = malloc(size > 0 ? size : 1);
	int			ok = file != NULL && data != NULL && fread(data, 1, size, file) == size;

	if (file != NULL)
		fclose(file);
	if (ok)
		(void) LLVMFuzzerTestOneInput(data, size);
	else
		fprintf(stderr, "replay: cannot read %s\n", path);
	free(data);
	return ok ? 1 : -1;
}

static int
run_path(const char *path)
{
	struct stat st;
	DIR		   *dir;
	int			n = 0;

	if (stat(path, &st) != 0)
	{
		fprintf(stderr, "replay: cannot read %s\n", path);
		return -1;
	}
	if (!S_ISDIR(st.st_mode))
		return run_file(path, (size_t) st.st_size);
	dir = opendir(path);
	if (dir == NULL)
		return -1;
	for (struct dirent *entry = readdir(dir); n >= 0 && entry != NULL; entry = readdir(dir))
	{
		char		inner[4096];
		int			ran;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		ran = run_path(inner);
		n = ran < 0 ? -1 : n + ran;
	}
	closedir(dir);
	return n;
}

int
main(int argc, char **argv)
{
	int			n = 0;

	for (int i = 1; i < argc; i++)
	{
		int			ran = run_path(argv[i]);

		if (ran < 0)
			return 1;
		n += ran;
	}
	printf("%d inputs\n", n);
	return 0;
}
