/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_WALK_H
#define SENNIT_TOOL_COPY_WALK_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "copy_frame.h"

/*
 * What is to be sent, one after the other: files, and folders before what is in them. In
 * folders symbolic links are not followed, and neither they nor anything but files and
 * folders is sent: each is a problem, which is told, and the rest goes on.
 */

struct copy_source {
	int folder;	  /* in which it is; AT_FDCWD */
	const char *name; /* in that folder; "-": standard input, if `pipe` */
	const char *
		top; /* what the receiver sees as its first name; "": its contents only */
	bool follow; /* it may be a symbolic link itself */
	bool pipe;
};

enum copy_found {
	COPY_FOUND_END,
	COPY_FOUND_FILE, /* open at entry.fd, which is the caller's */
	COPY_FOUND_FOLDER,
	COPY_FOUND_PROBLEM,
};

struct copy_entry {
	int fd;
	struct stat stat;
	char path[COPY_PATH_MAX];
	int error; /* of a problem, with a sentence */
	char text[COPY_TEXT_MAX];
};

#define COPY_DEPTH_MAX 128

struct copy_walk {
	const struct copy_source *source;
	size_t source_count, source_next;
	struct {
		DIR *folder;
		size_t path_length;
	} level[COPY_DEPTH_MAX];
	size_t depth;
	char path[COPY_PATH_MAX];
};

void copy_walk_begin(struct copy_walk *walk, const struct copy_source *source,
		     size_t count);
enum copy_found copy_walk_next(struct copy_walk *walk, struct copy_entry *entry);
void copy_walk_end(struct copy_walk *walk);

#endif
