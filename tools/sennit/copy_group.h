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
 * Files that have arrived, put in place together. Each is on disk before it takes its name,
 * and its name is on disk before the sender is told: all are synchronised, then all are
 * renamed, then the folders that have new names are synchronised. Many cost little more than
 * one, which waits for the file system's journal and for the disk's cache.
 */

/* A folder that files go to, shared by those that follow each other. */
struct copy_folder {
	unsigned user_count;
	int fd;
	size_t index; /* in a list of folders to be synchronised; see copy_group_place() */
	char path[COPY_PATH_MAX]; /* below the root; "": the root */
};

/* The folder that the last part of a sound path is in. `last` is returned again if it is the
 * same one; NULL: there was none. 0; -errno. */
int copy_folder_of(int root, const char *path, struct copy_folder *last,
		   struct copy_folder **folder_out);
/* NULL is legal. */
void copy_folder_release(struct copy_folder *folder);

/* A file or folder that the peer has proposed, and that is not yet judged. */
struct copy_incoming {
	uint32_t entry;
	int state;     /* of the receiver's; 0: unused */
	int fd;	       /* -1: not open, or a folder */
	bool in_place; /* it is the file itself, which may be the same already */
	int error;     /* why it cannot be put in place: an errno, or 0 */
	struct copy_folder *folder;
	char *path; /* as the peer says */
	char target[NAME_MAX + 1], part[NAME_MAX + 1];
	uint32_t mode;
	uint64_t size, mtime_ns;
	uint64_t at, have, resumed;
	struct copy_digest digest;
};

/* Two groups, of which one is gathered while the other is put in place, and what is proposed
 * ahead fit the window. */
#define COPY_GROUP_MAX 192

struct copy_group {
	struct copy_incoming *item[COPY_GROUP_MAX];
	size_t count, taken;
	uint64_t bytes;
	uint64_t since_ns; /* when the first was added */
};

/* Nothing more fits, or too many files are open in this process. */
bool copy_group_is_full(const struct copy_group *group);
/* Is it large or old enough? What is left of it is put in place when no more comes. */
bool copy_group_is_due(const struct copy_group *group);
/* The group is not due. A folder was made already; of a file rights and times are set. */
void copy_group_add(struct copy_group *group, struct copy_incoming *item);
/* Puts all in place, and says in copy_incoming::error which could not be. Waits for the disk;
 * may be called in another thread, while the group is left alone in this one. */
void copy_group_place(struct copy_group *group);
/* Takes the next one out; NULL: none is left, and it can be used again. */
struct copy_incoming *copy_group_take(struct copy_group *group);

#endif
