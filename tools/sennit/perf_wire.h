/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_WIRE_H
#define TOOL_PERF_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sennit/card.h>
#include <sennit/stream.h>

#include "loss.h"
#include "perf_case.h"

/*
 * What the two ends of `sennit perf` tell each other on a socket, as bytes: frames of a
 * header (length of the rest, version, type) and a body, big endian. A server reads this
 * from any host, so that decoding trusts nothing and takes exactly what encoding makes.
 *
 *	client              server
 *	HELLO          ->
 *	               <-   HELLO
 *	CASE           ->               for each case
 *	               <-   READY       with the server's card and token
 *	CONNECT        ->               with the client's
 *	               <-   CONNECTED
 *	RUN            ->               for each run of it, with what ends it
 *	               <-   RUNNING
 *	RUNNING        ->               every second, if the server only looks on
 *	STOP           ->               the client has sent that many messages
 *	               <-   RESULT
 *	DONE           ->               no more runs
 *	OVER           <->  OVER        of streams, each when it is over at that end
 *	               <-   DONE
 *
 * Instead of any answer there may be FAILED, after which the case is over.
 */

#define PERF_VERSION   6
#define PERF_HEADER    8
#define PERF_BODY_MAX  4096
#define PERF_TEXT_MAX  256 /* with its NUL */
#define PERF_TOKEN_MAX SNT_TOKEN_PACKED_MAX
#define PERF_CARD_MAX  SNT_CARD_PACKED_MAX
#define PERF_OFFER_MAX SNT_STREAM_OFFER_MAX
/* Of one run. */
#define PERF_DURATION_MAX_NS UINT64_C(3600000000000)
#define PERF_PORT	     18515 /* perftest's */
#define PERF_PORT_TEXT	     "18515"

enum perf_type {
	PERF_HELLO = 1,
	PERF_CASE,
	PERF_READY,
	PERF_CONNECT,
	PERF_CONNECTED,
	PERF_RUN,
	PERF_RUNNING,
	PERF_STOP,
	PERF_RESULT,
	PERF_DONE,
	PERF_OVER,
	PERF_FAILED,
};

/* A description of the other end, for the user. */
struct perf_hello {
	uint32_t device_count; /* 1 to SNT_DEVICES_MAX */
	char version[PERF_TEXT_MAX];
	char host[PERF_TEXT_MAX];
	char kernel[PERF_TEXT_MAX];
	char cpu[PERF_TEXT_MAX];
	char devices[PERF_TEXT_MAX];
};

/* READY and CONNECT: what one end needs to reach the other. */
struct perf_address {
	size_t card_length, token_length, offer_length;
	unsigned char card[PERF_CARD_MAX];
	unsigned char token[PERF_TOKEN_MAX];
	unsigned char offer[PERF_OFFER_MAX]; /* of a stream, else empty */
};

/* The cost of a run for an end, and the server's findings. */
struct perf_use {
	uint64_t elapsed_ns;
	uint64_t cpu_ns;  /* of the whole process: threads, and system calls */
	uint64_t wakeups; /* how often a thread of it slept, and was woken */
	uint64_t messages;
	uint64_t checked_bytes;
	uint64_t wrong_bytes;
	uint64_t wrong_message, wrong_offset; /* the first of these */
	uint64_t sent;	/* messages, since the case began; the server's, if both send */
	uint32_t paths; /* of its data lanes: 1 << enum snt_path */
	struct loss loss;
};

/* RUN: the end of the run, for a server that sends. */
struct perf_limit {
	uint64_t messages; /* 0: by time */
	uint64_t duration_ns;
};

struct perf_message {
	uint16_t type; /* enum perf_type */
	union {
		struct perf_hello hello;
		struct perf_case c;
		struct perf_address address;
		uint64_t messages; /* STOP: posted since the case began */
		struct perf_use use;
		struct perf_limit limit;
		char text[PERF_TEXT_MAX]; /* FAILED */
	};
};

/* Returns the length of the frame, at most PERF_HEADER + PERF_BODY_MAX. */
size_t perf_encode(const struct perf_message *message, unsigned char *frame);

/* Decodes a header: the length of the body, or -EBADMSG, -EPROTONOSUPPORT with a
 * text. */
int perf_decode_header(const unsigned char *header, uint16_t *type_out);
/* Returns 0; -EBADMSG for a body that perf_encode() cannot have made. */
int perf_decode(uint16_t type, const unsigned char *body, size_t length,
		struct perf_message *message_out);

#endif
