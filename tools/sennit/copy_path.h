/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_PATH_H
#define SENNIT_TOOL_COPY_PATH_H

#include <limits.h>
#include <stdbool.h>

/*
 * Paths sent by a peer, below a folder of ours. They have no "..", and each folder on
 * the way is opened by itself, from the one above and without following symbolic links,
 * so that no path leads outside.
 */

/* 0; -EINVAL: absolute, empty parts, "." or "..", too long, or a name reserved for
 * parts. An empty path, which is the folder itself, is sound. */
int copy_path_check(const char *path);

/* Opens the folder that contains the last part of a path, and returns where that part
 * begins. The path is sound and not empty. Returns a descriptor, or -errno. */
int copy_path_parent(int root, const char *path, const char **name_out);

/* Opens the folder itself. */
int copy_path_folder(int root, const char *path);

/* The name of a file while it is incomplete, derived from its name; always the same, so
 * that copying again finds it. */
#define COPY_PART_SUFFIX ".sennit-part"
void copy_path_part(const char *name, char part[NAME_MAX + 1]);
bool copy_path_is_part(const char *name);

#endif
