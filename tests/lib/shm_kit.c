/* SPDX-License-Identifier: MIT */
#include "lib/shm_kit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

struct snt__shm_stats shm_stats(struct side *side)
{
	struct snt__shm_stats stats;

	snt__udp_lock(side->device);
	stats = side->device->shm.stats;
	snt__udp_unlock(side->device);
	return stats;
}

unsigned count_lines(const char *path, const char *with)
{
	FILE *file = fopen(path, "r");
	char line[512];
	unsigned count = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += !!strstr(line, with);
	fclose(file);
	return count;
}

static struct rlimit before, file_size_before;

/* All below the lowest free one are taken. */
void fds_exhaust(void)
{
	int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	struct rlimit limit;

	assert_true(lowest >= 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void fds_restore(void)
{
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

void file_size_limit(void)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &file_size_before), 0);
	limit = file_size_before;
	limit.rlim_cur = 65536;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

void file_size_restore(void)
{
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &file_size_before), 0);
}
