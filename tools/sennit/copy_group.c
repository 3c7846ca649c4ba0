/* SPDX-License-Identifier: MIT */
#include "copy_group.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "copy_path.h"

/* Files that have arrived wait no longer than this for more, and for no more than
 * this. */
#define AGE_MAX	  UINT64_C(200000000)
#define BYTES_MAX (UINT64_C(64) << 20)
/* Fewer are synchronised one by one. syncfs(2) may have to write what other programs wrote. */
#define TOGETHER_MIN 8

static unsigned open_here; /* files and folders in all groups of this process */

/*
 * Folders
 */

int copy_folder_of(int root, const char *path, struct copy_folder *last,
		   struct copy_folder **folder_out)
{
	const char *slash = strrchr(path, '/'), *name;
	size_t length = slash ? (size_t)(slash - path) : 0;
	struct copy_folder *folder;

	if (last && strlen(last->path) == length && !memcmp(last->path, path, length)) {
		last->user_count++;
		*folder_out = last;
		return 0;
	}
	folder = calloc(1, sizeof(*folder));
	if (!folder)
		return -ENOMEM;
	folder->fd = copy_path_parent(root, path, &name);
	if (folder->fd < 0) {
		int error = folder->fd;

		free(folder);
		return error;
	}
	folder->user_count = 1;
	memcpy(folder->path, path, length);
	*folder_out = folder;
	return 0;
}

void copy_folder_release(struct copy_folder *folder)
{
	if (!folder || --folder->user_count)
		return;
	close(folder->fd);
	free(folder);
}

/*
 * The group
 */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* An eighth of the limit on open files: each item may have two descriptors, and files that are
 * proposed ahead have some as well. */
static unsigned open_max(void)
{
	static unsigned max;
	struct rlimit limit;

	if (!max)
		max = getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > 1 << 20
			      ? 1 << 17
			      : (unsigned)(limit.rlim_cur / 8 + 1);
	return max;
}

bool copy_group_is_full(const struct copy_group *group)
{
	return group->count &&
	       (group->count == COPY_GROUP_MAX || open_here >= open_max());
}

bool copy_group_is_due(const struct copy_group *group)
{
	return copy_group_is_full(group) ||
	       (group->count &&
		(group->bytes >= BYTES_MAX || now_ns() - group->since_ns >= AGE_MAX));
}

void copy_group_add(struct copy_group *group, struct copy_incoming *item)
{
	assert(group->count < COPY_GROUP_MAX);
	if (!group->count) {
		group->since_ns = now_ns();
		group->bytes = 0;
	}
	group->item[group->count++] = item;
	group->bytes += item->at;
	open_here++;
}

/*
 * On disk
 */

struct unsynced {
	int fd;
	int error; /* an errno, or 0 */
	dev_t device;
	bool is_done;
};

static void sync_each(struct unsynced *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		/* Some file systems have nothing to synchronise in a folder. */
		if (!list[i].is_done && fsync(list[i].fd) && errno != EINVAL)
			list[i].error = errno;
}

/* All files of one file system, with one wait for its journal and the disk's cache. An
 * error may be of another program's file: then each file is synchronised by itself.
 * Before Linux 5.8 syncfs(2) reports no errors, and those of data are found at the
 * file. */
static void sync_together(struct unsynced *list, size_t count,
			  const struct unsynced *one)
{
	if (syncfs(one->fd))
		return;
	for (size_t i = 0; i < count; i++) {
		if (list[i].device != one->device)
			continue;
		if (!sync_file_range(list[i].fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) ||
		    errno == ESPIPE || errno == EINVAL)
			list[i].is_done = true;
	}
}

static void sync_all(struct unsynced *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct stat stat;

		if (!fstat(list[i].fd, &stat))
			list[i].device = stat.st_dev;
		/* Starts writing; a failure does not matter. */
		sync_file_range(list[i].fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	}
	if (count >= TOGETHER_MIN)
		for (size_t i = 0; i < count; i++)
			if (!i || list[i].device != list[i - 1].device)
				sync_together(list, count, &list[i]);
	sync_each(list, count);
}

static void sync_files(struct copy_group *group)
{
	struct unsynced list[COPY_GROUP_MAX];
	size_t count = 0;

	for (size_t i = 0; i < group->count; i++)
		if (group->item[i]->fd >= 0)
			list[count++] = (struct unsynced){ .fd = group->item[i]->fd };
	sync_all(list, count);
	count = 0;
	for (size_t i = 0; i < group->count; i++)
		if (group->item[i]->fd >= 0)
			group->item[i]->error = list[count++].error;
}

static void sync_folders(struct copy_group *group)
{
	struct unsynced list[COPY_GROUP_MAX];
	const struct copy_folder *listed[COPY_GROUP_MAX];
	size_t count = 0;

	for (size_t i = 0; i < group->count; i++) {
		struct copy_folder *folder = group->item[i]->folder;

		if (group->item[i]->error ||
		    (folder->index < count && listed[folder->index] == folder))
			continue;
		folder->index = count;
		listed[count] = folder;
		list[count++] = (struct unsynced){ .fd = folder->fd };
	}
	sync_all(list, count);
	for (size_t i = 0; i < group->count; i++)
		if (!group->item[i]->error)
			group->item[i]->error =
				list[group->item[i]->folder->index].error;
}

static void give_name(struct copy_incoming *item)
{
	const struct copy_folder *folder = item->folder;

	if (!item->error && item->fd >= 0 &&
	    renameat(folder->fd, item->part, folder->fd, item->target))
		item->error = errno;
}

void copy_group_place(struct copy_group *group)
{
	sync_files(group);
	for (size_t i = 0; i < group->count; i++)
		give_name(group->item[i]);
	sync_folders(group);
}

struct copy_incoming *copy_group_take(struct copy_group *group)
{
	if (group->taken == group->count) {
		group->taken = group->count = 0;
		return NULL;
	}
	open_here--;
	return group->item[group->taken++];
}
