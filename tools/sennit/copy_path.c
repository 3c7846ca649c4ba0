/* SPDX-License-Identifier: MIT */
#include "copy_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "copy_frame.h"

bool copy_path_is_part(const char *name)
{
	size_t length = strlen(name), tail = strlen(COPY_PART_SUFFIX);

	return name[0] == '.' && length > tail &&
	       !strcmp(name + length - tail, COPY_PART_SUFFIX);
}

/* A name that would be too long with the suffix is cut, and made distinct by a hash of
 * all of it. */
void copy_path_part(const char *name, char part[NAME_MAX + 1])
{
	enum {
		KEPT = 180
	};
	uint64_t number = UINT64_C(0xcbf29ce484222325);

	if (strlen(name) + strlen(COPY_PART_SUFFIX) + 1 <= NAME_MAX) {
		snprintf(part, NAME_MAX + 1, ".%s" COPY_PART_SUFFIX, name);
		return;
	}
	for (const char *c = name; *c; c++)
		number = (number ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
	snprintf(part, NAME_MAX + 1, ".%.*s-%016llx" COPY_PART_SUFFIX, KEPT, name,
		 (unsigned long long)number);
}

static bool is_valid_part(const char *part, size_t length)
{
	char name[NAME_MAX + 1];

	if (!length || length > NAME_MAX)
		return false;
	memcpy(name, part, length);
	name[length] = '\0';
	return strcmp(name, ".") && strcmp(name, "..") && !copy_path_is_part(name);
}

int copy_path_check(const char *path)
{
	if (strlen(path) >= COPY_PATH_MAX)
		return -EINVAL;
	while (*path) {
		size_t length = strcspn(path, "/");

		if (!is_valid_part(path, length))
			return -EINVAL;
		path += length;
		if (*path && !*++path)
			return -EINVAL;
	}
	return 0;
}

static int open_folder_part(int folder, const char *path, size_t length)
{
	char name[NAME_MAX + 1];
	int fd;

	if (length > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, path, length);
	name[length] = '\0';
	fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int copy_path_parent(int root, const char *path, const char **name_out)
{
	int folder = fcntl(root, F_DUPFD_CLOEXEC, 0);

	if (folder < 0)
		return -errno;
	for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
		int next = open_folder_part(folder, path, (size_t)(slash - path));

		close(folder);
		if (next < 0)
			return next;
		folder = next;
	}
	*name_out = path;
	return folder;
}

int copy_path_folder(int root, const char *path)
{
	const char *name;
	int parent, folder;

	if (!*path) {
		folder = fcntl(root, F_DUPFD_CLOEXEC, 0);
		return folder < 0 ? -errno : folder;
	}
	parent = copy_path_parent(root, path, &name);
	if (parent < 0)
		return parent;
	folder = open_folder_part(parent, name, strlen(name));
	close(parent);
	return folder;
}
