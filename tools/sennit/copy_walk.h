/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_WALK_H
#define SENNIT_TOOL_COPY_WALK_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "copy_frame.h"

/*
 * What is to be sent, in order: files, and folders before their contents. In folders
 * symbolic links are not followed, and only files and folders are sent: anything else
 * is a problem, which is reported, and the walk goes on.
 */

struct copy_source {
	int folder;	  /* in which it is; AT_FDCWD */
	const char *name; /* in that folder; "-": standard input, if `pipe` */
	const char *top;  /* the first name that the receiver sees; "": contents only */
	bool follow;	  /* it may be a symbolic link itself */
	bool pipe;
};

enum copy_found {
	COPY_FOUND_END,
	COPY_FOUND_FILE, /* open at entry.fd, which the caller owns */
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
