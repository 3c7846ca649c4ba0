/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_GROUP_H
#define SENNIT_TOOL_COPY_GROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy_digest.h"
#include "copy_frame.h"

/*
 * Files that have arrived, put in place together. Each is on disk before it takes its
 * name, and its name is on disk before the sender is told: all are synchronised, then
 * all are renamed, then the folders that have new names are synchronised. Many cost
 * little more than one, which waits for the file system's journal and for the disk's
 * cache.
 */

/* A folder that files are put into, shared by consecutive ones. */
struct copy_folder {
	unsigned user_count;
	int fd;
	size_t index; /* in a list of folders to be synchronised; see copy_group_place() */
	char path[COPY_PATH_MAX]; /* below the root; "": the root */
};

/* The folder that contains the last part of a sound path. `last` is returned again if
 * it is the same one; NULL: there was none. 0; -errno. */
int copy_folder_of(int root, const char *path, struct copy_folder *last,
		   struct copy_folder **folder_out);
/* NULL is legal. */
void copy_folder_release(struct copy_folder *folder);

/* A file or folder that the peer has proposed, and that is not yet judged. */
struct copy_incoming {
	uint32_t entry;
	int state;     /* of the receiver's; 0: unused */
	int fd;	       /* -1: not open, or a folder */
	bool in_place; /* opened as the file itself, which may have the right contents
		        * already */
	int error;     /* why it cannot be put in place: an errno, or 0 */
	struct copy_folder *folder;
	char *path; /* as the peer says */
	char target[NAME_MAX + 1], part[NAME_MAX + 1];
	uint32_t mode;
	uint64_t size, mtime_ns;
	uint64_t at, have, resumed;
	struct copy_digest digest;
};

/* Two groups, one being gathered and one being put in place, fit the window together
 * with files proposed ahead. */
#define COPY_GROUP_MAX 192

struct copy_group {
	struct copy_incoming *item[COPY_GROUP_MAX];
	size_t count, taken;
	uint64_t bytes;
	uint64_t since_ns; /* when the first was added */
};

/* It is full, or too many files are open in this process. */
bool copy_group_is_full(const struct copy_group *group);
/* Is it large or old enough? The rest is put in place when no more comes. */
bool copy_group_is_due(const struct copy_group *group);
/* The group must not be due. A folder exists already; a file has its mode and times. */
void copy_group_add(struct copy_group *group, struct copy_incoming *item);
/* Puts everything in place, and sets copy_incoming::error where that failed. Waits for
 * the disk; may be called in another thread, while this one leaves the group alone. */
void copy_group_place(struct copy_group *group);
/* Takes the next item out; NULL: none is left, and the group can be reused. */
struct copy_incoming *copy_group_take(struct copy_group *group);

#endif
