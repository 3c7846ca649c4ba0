/* SPDX-License-Identifier: MIT */
/*
 * A program whose files are opened for the first time while another of its threads is in the
 * middle of dlopen(): the library that it loads (loaded.c) does not come to an end before
 * that. With the preload library nothing may wait there that would not wait without.
 *
 * usage: loading LIBRARY
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/patience.h"

static void *load(void *path)
{
	if (!dlopen(path, RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		_exit(2);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int begun[2], go_on[2], fd;
	char numbers[32], byte;
	struct stat stat_out;
	pthread_t thread;

	if (argc != 2 || pipe(begun) || pipe(go_on))
		return 2;
	snprintf(numbers, sizeof(numbers), "%d %d", begun[1], go_on[0]);
	setenv("LOADED_PIPES", numbers, 1);
	if (pthread_create(&thread, NULL, load, argv[1]) ||
	    read(begun[0], &byte, 1) != 1)
		return 2;
	alarm(patience_s(20)); /* ends it, if one waits for the other */
	fd = open("/dev/null", O_RDONLY);
	if (fd < 0 || stat("/", &stat_out) || access("/", F_OK))
		return 1;
	if (write(go_on[1], "", 1) != 1 || pthread_join(thread, NULL))
		return 2;
	return 0;
}
