/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_H
#define SENNIT_TOOL_COPY_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "copy_digest.h"
#include "copy_disk.h"
#include "copy_frame.h"
#include "copy_group.h"
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

/* A file or folder that was proposed and is not yet judged. */
struct copy_outgoing {
	uint32_t entry;
	int state;
	bool is_folder;
	int fd;
	struct stat stat; /* when it was opened */
	char *path;	  /* NULL: out of memory, and not shown */
	uint64_t size;	  /* COPY_UNKNOWN */
	uint64_t at, resumed;
	uint64_t have;
	uint8_t have_digest[COPY_DIGEST];
};

struct copy_sender {
	struct copy_link *link;
	struct copy_report *report;
	uint32_t digest_kind;
	struct copy_walk walk;
	struct copy_entry found;
	struct copy_outgoing window[COPY_WINDOW]; /* each at its number, modulo */
	uint32_t next;	  /* number of the next to be proposed */
	uint32_t current; /* of the file that is sent, or the first one that can be */
	uint32_t unjudged;
	int state;
	struct copy_digest digest; /* of the current one */
	int pipe; /* the current file, if it has no bytes now and may have some later; or -1 */
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
	/* Another descriptor has locked the part, whose file this is. True: it is worth trying
	 * again later; false, or no function: it is refused. */
	bool (*locked)(void *arg, const struct stat *part);
	void *locked_arg;
	int state;
	struct copy_incoming window[COPY_WINDOW]; /* each at its number, modulo */
	uint32_t next;	  /* number of the next to be proposed */
	uint32_t waiting; /* files that the peer has yet to start */
	struct copy_incoming
		*current;	    /* the one that is hashed or written; NULL: none */
	struct copy_folder *folder; /* of the last one, for the next */
	/* Files that are whole: gathered in one, while the other is put in place. */
	struct copy_group group[2], *gathered;
	struct copy_placing placing;
	bool over;
};

/* The rest of the structure is zero, or set by the caller. */
void copy_receiver_begin(struct copy_receiver *receiver, struct copy_link *link,
			 struct copy_report *report, uint32_t digest_kind, int root);
int copy_receiver_step(struct copy_receiver *receiver);
/* Has it opened this file? */
bool copy_receiver_holds(const struct copy_receiver *receiver, const struct stat *file);
/* Does it wait for a file that another has locked? */
bool copy_receiver_is_locked(const struct copy_receiver *receiver);
/* Would it take what the peer says now? */
bool copy_receiver_listens(const struct copy_receiver *receiver);
void copy_receiver_end(struct copy_receiver *receiver);

#endif
