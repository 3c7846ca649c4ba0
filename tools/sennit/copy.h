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
 * The two ends of copying. Each is a state machine whose step does as much as it can
 * without waiting for the peer, so that a server can have many and a client can show
 * progress. Step returns 1 if something was done, 0 if there is nothing to do until the
 * loop has run, or the link's error; then, or when `over` is set, nothing is left to
 * do.
 */

/* What has been done so far. */
struct copy_report {
	uint64_t files, folders;
	uint64_t bytes;	  /* of files that have arrived completely */
	uint64_t resumed; /* of these, not sent because the receiver had them */
	uint64_t moved;	  /* sent over the link */
	uint64_t problems;
	uint64_t damaged; /* problems because of a wrong digest */
	/* The current file or folder. */
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
	int pipe; /* the current file, if it has no data now but may have later; or
		   * -1 */
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
	char name[COPY_PATH_MAX]; /* replaces the peer's first name; "": use the
				  * peer's */
	char top[COPY_PATH_MAX];  /* the only first name that the peer may use; "":
				  * any */
	bool keep_times;
	bool to_stdout;
	/* Another descriptor has locked the part; `part` is its file. True: try again
	 * later; false, or no function: it is refused. */
	bool (*locked)(void *arg, const struct stat *part);
	void *locked_arg;
	int state;
	struct copy_incoming window[COPY_WINDOW]; /* each at its number, modulo */
	uint32_t next;	  /* number of the next to be proposed */
	uint32_t waiting; /* files that the peer has yet to start */
	struct copy_incoming
		*current;	    /* the file being hashed or written; NULL: none */
	struct copy_folder *folder; /* of the last file, for the next */
	/* Files that are complete: gathered in one group, while the other is put in
	 * place. */
	struct copy_group group[2], *gathered;
	struct copy_placing placing;
	bool over;
};

/* The rest of the structure is zero, or set by the caller. */
void copy_receiver_begin(struct copy_receiver *receiver, struct copy_link *link,
			 struct copy_report *report, uint32_t digest_kind, int root);
int copy_receiver_step(struct copy_receiver *receiver);
/* Does it have this file open? */
bool copy_receiver_holds(const struct copy_receiver *receiver, const struct stat *file);
/* Does it wait for a file that another descriptor has locked? */
bool copy_receiver_is_locked(const struct copy_receiver *receiver);
/* Would it take frames of the peer now? */
bool copy_receiver_listens(const struct copy_receiver *receiver);
void copy_receiver_end(struct copy_receiver *receiver);

#endif
