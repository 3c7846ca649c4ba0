/* SPDX-License-Identifier: MIT */
#ifndef SNT_TESTS_FDS_H
#define SNT_TESTS_FDS_H

#include <dirent.h>
#include <stdlib.h>

/* How many file descriptors the process has open, and always the same number more: to be
 * compared with what it was before. */
static inline unsigned count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	unsigned count = 0;

	if (!fds)
		abort();
	while (readdir(fds))
		count++;
	closedir(fds);
	return count;
}

#endif
