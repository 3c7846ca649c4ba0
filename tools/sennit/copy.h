/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_H
#define SENNIT_TOOL_COPY_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "copy_digest.h"
#include "copy_frame.h"
#include "copy_link.h"
#include "copy_walk.h"

/*
 * The two ends of copying. Each is a machine that does a little with each step, as much as
 * can be done without waiting for the peer, so that a server has many and a client shows
 * progress. Step returns 1 if something was done, 0 if there is nothing to do until the loop
 * has run, or the link's error; then, or when `over` is set, there is nothing left to do.
 */

/* What has been done so far. */
struct copy_report {
	uint64_t files, folders;
	uint64_t bytes;	  /* of files that are there as a whole */
	uint64_t resumed; /* of these, not sent because they were there */
	uint64_t moved;	  /* that went over the link */
	uint64_t problems;
	uint64_t damaged; /* of the problems, those with a wrong digest */
	/* What is under way. */
	char path[COPY_PATH_MAX];
	uint64_t at, size; /* COPY_UNKNOWN */
	void (*problem)(void *arg, const char *text);
	void *arg;
};

struct copy_sender {
	struct copy_link *link;
	struct copy_report *report;
	uint32_t digest_kind;
	struct copy_walk walk;
	struct copy_entry entry; /* the file under way, if its fd is not -1 */
	int state;
	uint64_t at, size, resumed;
	struct copy_frame have;
	struct copy_digest digest;
	bool over;
};

void copy_sender_begin(struct copy_sender *sender, struct copy_link *link,
		       struct copy_report *report, uint32_t digest_kind,
		       const struct copy_source *source, size_t count);
int copy_sender_step(struct copy_sender *sender);
void copy_sender_end(struct copy_sender *sender);

struct copy_receiver {
	struct copy_link *link;
	struct copy_report *report;
	uint32_t digest_kind;
	int root; /* the folder below which everything stays; to be closed */
	char name
		[COPY_PATH_MAX]; /* instead of the peer's first name; "": as the peer says */
	char top[COPY_PATH_MAX]; /* the only first name that the peer may say; "": any */
	bool keep_times;
	bool to_stdout;
	int state;
	/* The file under way. */
	int fd, parent;
	bool in_place; /* it is the file itself, which may be the same already */
	char target[NAME_MAX + 1], part[NAME_MAX + 1];
	struct copy_frame file;
	uint64_t at, have, resumed;
	struct copy_digest digest;
	bool over;
};

/* The rest of the structure is zero, or set by the caller. */
void copy_receiver_begin(struct copy_receiver *receiver, struct copy_link *link,
			 struct copy_report *report, uint32_t digest_kind, int root);
int copy_receiver_step(struct copy_receiver *receiver);
void copy_receiver_end(struct copy_receiver *receiver);

#endif
