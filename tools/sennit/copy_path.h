/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_PATH_H
#define SENNIT_TOOL_COPY_PATH_H

#include <limits.h>
#include <stdbool.h>

/*
 * Paths that a peer says, below a folder of ours. They have no "..", and each folder on the
 * way is opened by itself, from the one above and without following symbolic links, so that
 * nothing leads out.
 */

/* 0; -EINVAL: absolute, empty parts, "." or "..", too long, or a name that is ours. An empty
 * path, which is the folder itself, is sound. */
int copy_path_check(const char *path);

/* Opens the folder that the last part of a path is in, and says where that part begins. The
 * path is sound and not empty. Returns a descriptor, or -errno. */
int copy_path_parent(int root, const char *path, const char **name_out);

/* Opens the folder itself. */
int copy_path_folder(int root, const char *path);

/* What a file is called while it is not yet whole, for a name; the same each time, so that
 * copying again finds it. */
#define COPY_PART_SUFFIX ".sennit-part"
void copy_path_part(const char *name, char part[NAME_MAX + 1]);
bool copy_path_is_part(const char *name);

#endif
