/* SPDX-License-Identifier: MIT */
/* Feeds the files of a folder to a fuzz target, where there is no fuzzer: so the
 * corpora are tested by every compiler. Prints TAP. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int feed(const char *folder, const char *name)
{
	static uint8_t data[1 << 20];
	char path[4096];
	uint8_t *exact;
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "rb");
	if (!file)
		return -1;
	size = fread(data, 1, sizeof(data), file);
	fclose(file);
	/* An allocation of just that size, so that reading past it is seen. */
	exact = malloc(size ? size : 1);
	if (!exact)
		return -1;
	for (size_t i = 0; i < size; i++)
		exact[i] = data[i];
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned count = 0, unread = 0;
	struct dirent *entry;
	DIR *folder;

	if (argc != 2 || !(folder = opendir(argv[1]))) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		count++;
		unread += feed(argv[1], entry->d_name) != 0;
	}
	closedir(folder);
	printf("1..1\n%s 1 - %u inputs\n", count && !unread ? "ok" : "not ok", count);
	return count && !unread ? 0 : 1;
}
