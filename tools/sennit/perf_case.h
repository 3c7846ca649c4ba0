/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_CASE_H
#define TOOL_PERF_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A case is one measurement: everything that both ends must agree on. The client makes
 * it from its options and sends it; the server does not trust it (perf_case_check()).
 * Both ends compute what follows from a case, such as how much memory it takes.
 */

enum perf_kind {
	PERF_BANDWIDTH = 1, /* many messages under way */
	PERF_LATENCY,	    /* one at a time */
	PERF_RATE,	    /* as bandwidth, posted in batches */
};

enum perf_op {
	PERF_WRITE = 1,
	PERF_WRITE_IMM,
	PERF_READ,
	PERF_SEND,
	PERF_FETCH_ADD,
	PERF_CMP_SWAP,
	PERF_STREAM, /* bytes, which messages are pieces of */
	PERF_OP_LAST = PERF_STREAM,
};

#define PERF_SIZE_MAX  (UINT64_C(1) << 28)
#define PERF_DEPTH_MAX 4096
#define PERF_BATCH_MAX 64
#define PERF_LANES_MAX 128
/* Of one end, at most: two slots of the longest message in each direction. */
#define PERF_MEMORY_MAX (4 * PERF_SIZE_MAX)

struct perf_case {
	uint8_t kind;	    /* enum perf_kind */
	uint8_t op;	    /* enum perf_op */
	uint8_t scheme;	    /* enum snt_scheme; 0: the library's default */
	uint8_t balance;    /* enum snt_balance; 0: the same */
	bool verify;	    /* every byte */
	bool events;	    /* sleep rather than spin */
	bool bidirectional; /* the server sends as the client does, at the same time */
	uint8_t timeout;    /* 4.096 us << timeout; 0: the library's default */
	uint32_t lanes;
	uint32_t depth; /* messages under way */
	uint32_t batch; /* posted in one call */
	uint32_t mtu;	/* 0: the ports' */
	uint64_t size;
	uint64_t fragment; /* 0: the library's default */
	uint64_t seed;	   /* of what is verified */
};

/* How a case uses memory: slots for outgoing messages, then as many for incoming
 * ones. */
struct perf_shape {
	uint64_t stride;   /* from one slot to the next */
	uint32_t slots;	   /* message k is in slot k modulo this */
	uint32_t window;   /* messages that the receiver has room for */
	uint32_t credit;   /* after so many the receiver reports room to the sender
			 * again */
	uint32_t signaled; /* one of so many messages asks for a completion */
	size_t memory;	   /* all of it */
};

/* Returns 0; -EINVAL, with a text that says which value is wrong (perf_error.h). */
int perf_case_check(const struct perf_case *c);
struct perf_shape perf_case_shape(const struct perf_case *c);

/* Does this end send messages, does it take part in receiving them? */
bool perf_case_sends(const struct perf_case *c, bool serves);
bool perf_case_takes(const struct perf_case *c, bool serves);

/* How the receiver takes part. Echo: it answers each message with another. Flow: it
 * counts messages and gives credit. Neither: it does not notice them. */
bool perf_case_echoes(const struct perf_case *c);
bool perf_case_flows(const struct perf_case *c);
bool perf_case_is_atomic(const struct perf_case *c);

const char *perf_kind_name(unsigned kind); /* "bw" */
const char *perf_op_name(unsigned op);	   /* "write-imm" */
const char *perf_scheme_name(unsigned scheme);

#endif
