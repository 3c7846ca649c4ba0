/* SPDX-License-Identifier: MIT */
#include "copy_part.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

void copy_part_close(struct copy_incoming *item)
{
	if (item->fd >= 0)
		close(item->fd);
	item->fd = -1;
}

bool copy_part_is_named(const struct copy_incoming *item, const struct stat *opened)
{
	struct stat named;

	return !fstatat(item->folder->fd, item->part, &named, AT_SYMLINK_NOFOLLOW) &&
	       named.st_dev == opened->st_dev && named.st_ino == opened->st_ino;
}

bool copy_part_open_whole(struct copy_incoming *item)
{
	struct stat stat;
	int fd = openat(item->folder->fd, item->target,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (fstat(fd, &stat) || !S_ISREG(stat.st_mode) ||
	    (uint64_t)stat.st_size != item->size || !stat.st_size) {
		close(fd);
		return false;
	}
	item->fd = fd;
	item->have = (uint64_t)stat.st_size;
	item->in_place = true;
	return true;
}

static mode_t mask_now(void)
{
	mode_t mask = umask(077);

	umask(mask);
	return mask;
}

/* Times before 1970 are negative. */
static struct timespec time_of(uint64_t ns)
{
	int64_t second = (int64_t)ns / 1000000000, rest = (int64_t)ns % 1000000000;

	if (rest < 0) {
		rest += 1000000000;
		second--;
	}
	return (struct timespec){ .tv_sec = second, .tv_nsec = rest };
}

int copy_part_set_attributes(const struct copy_incoming *item, bool keeps_times)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
				     time_of(item->mtime_ns) };

	if (fchmod(item->fd, item->mode & ~mask_now()) ||
	    (keeps_times && futimens(item->fd, times)))
		return -errno;
	return 0;
}
