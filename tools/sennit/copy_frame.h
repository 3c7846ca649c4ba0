/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_FRAME_H
#define SENNIT_TOOL_COPY_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What `sennit cp` and `sennit serve` say to each other on a stream: frames of a type, a
 * length and fields, numbers in network order.
 *
 *	client                  server
 *	OPEN                    READY, or RESULT with an error
 *
 * Then one of them sends files, the client where it pushes and the server where it pulls,
 * and the other receives:
 *
 *	sender                  receiver
 *	DIRECTORY               JUDGED
 *	FILE                    HAVE: how much of it is there from before, and its digest
 *	START: from where on
 *	DATA...
 *	DONE: digest of all     JUDGED; if something is wrong, before DONE
 *	PROBLEM: something that cannot be sent
 *	END                     END
 *
 * Files and directories are numbered, from 0, in the order in which they are proposed, and
 * every frame about one has its number. The sender need not wait for an answer before it
 * proposes the next one, up to COPY_WINDOW that are not yet judged; but between START and DONE
 * of a file there is only its DATA. The receiver answers in any order.
 *
 * At any time a server may send PROBE to a client, which answers with ALIVE before anything else.
 *
 * RESULT is the only answer of version 1 that a client of any version must understand: a
 * server says with it that the versions differ.
 */

#define COPY_VERSION	 2
#define COPY_HEADER	 8
#define COPY_DIGEST	 32 /* bytes of the longest digest */
#define COPY_PATH_MAX	 4096
#define COPY_TEXT_MAX	 1024
#define COPY_CONTROL_MAX (COPY_PATH_MAX + 64) /* the longest frame but DATA */
#define COPY_DATA_MAX	 (256 << 10)
#define COPY_WINDOW	 512
#define COPY_UNKNOWN	 UINT64_MAX /* the size of what comes out of a pipe */

enum copy_type {
	COPY_OPEN = 1,
	COPY_READY,
	COPY_DIRECTORY,
	COPY_FILE,
	COPY_HAVE,
	COPY_START,
	COPY_DATA,
	COPY_DONE,
	COPY_RESULT,
	COPY_PROBLEM,
	COPY_END,
	COPY_JUDGED,
	COPY_PROBE,
	COPY_ALIVE,
	COPY_TYPES,
};

enum copy_open_flags {
	COPY_PULL = 1 << 0,  /* the server sends */
	COPY_INTO = 1 << 1,  /* the path must be a directory to put things into */
	COPY_TIMES = 1 << 2, /* files keep their modification times */
	COPY_ALONE = 1 << 3, /* a file, not a folder */
	COPY_FLAGS_ALL = 15,
};

enum copy_done {
	COPY_WHOLE,
	COPY_CHANGED,  /* the file changed while it was read */
	COPY_GIVEN_UP, /* the receiver had reported that it cannot use the file */
	COPY_UNREADABLE,
	COPY_DONES,
};

/* Any type of frame; each has its own fields, the rest are 0. */
struct copy_frame {
	enum copy_type type;
	uint32_t length;	     /* of DATA */
	uint32_t entry;		     /* DIRECTORY, FILE, HAVE, START, DONE, JUDGED */
	uint32_t version;	     /* OPEN */
	uint32_t flags;		     /* OPEN */
	uint32_t digests;	     /* OPEN: those known; READY: the one chosen */
	uint32_t mode;		     /* DIRECTORY, FILE */
	uint32_t error;		     /* RESULT, JUDGED, PROBLEM: an errno, or 0 */
	uint32_t done;		     /* DONE */
	uint64_t size;		     /* FILE */
	uint64_t mtime_ns;	     /* FILE */
	uint64_t offset;	     /* HAVE, START */
	uint8_t digest[COPY_DIGEST]; /* HAVE, DONE */
	/* OPEN, DIRECTORY, FILE: the path; RESULT, JUDGED, PROBLEM: a sentence. */
	char text[COPY_PATH_MAX];
};

/* Packs a frame with its header; for DATA the header only. Returns the number of bytes;
 * -ENOSPC. */
ssize_t copy_frame_pack(const struct copy_frame *frame, void *buffer, size_t size);

/* The length of the frame without its header, from the first COPY_HEADER bytes.
 * -EBADMSG if they are not a valid header, or it is too long. */
ssize_t copy_frame_length(const void *header);

/* Unpacks `length` bytes with the header; for DATA the header only. Trusts nothing. 0;
 * -EBADMSG. */
int copy_frame_unpack(const void *buffer, size_t length, struct copy_frame *frame_out);

#endif
