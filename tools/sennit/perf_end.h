/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_END_H
#define TOOL_PERF_END_H

#include <stdbool.h>
#include <stdint.h>
#include <sennit/sennit.h>

#include "perf_case.h"
#include "perf_wire.h"

static inline uint64_t perf_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t perf_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * One end of a measurement: a context with a loop for all cases and, for each case, a
 * virtual QP with its memory. Both ends have the same structure; perf_flow.h and
 * perf_echo.h move messages between them. Calls return 0 or a negative errno with a
 * text (perf_error.h).
 */
struct perf_end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	int control; /* the socket to the other end */
	uint32_t peer_devices;
	bool serves;

	struct perf_case c;
	struct perf_shape shape;
	bool receives_data; /* of SENDs, into slots; else notifications */
	bool one_queue;	    /* a credit takes a receive of a message */
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	unsigned char *memory;
	bool connected;
	struct snt_token peer;

	/* Of streams (perf_stream.h). */
	struct snt_stream *stream;
	struct perf_offer {
		size_t length;
		unsigned char bytes[PERF_OFFER_MAX];
	} offer, peer_offer;
	size_t stream_at; /* bytes of the next message that have been read */

	/* Since the case began. Completions of announcements and credits, which are not
	 * messages, have the wr_id PERF_ASIDE. */
	uint64_t posted, done;
	uint64_t received, recv_posted;
	uint64_t credited; /* messages that the other end has room for */
	uint64_t announced;
	uint64_t told; /* how many of those received the other end was told of */
	uint64_t
		expected; /* how many the other end has sent; UINT64_MAX: not known yet */

	struct perf_use use; /* of this run */
	struct loss loss_begin;
	uint64_t cpu_begin_ns, wakeups_begin, begin_ns;
	uint64_t idle_polls, idle_since_ns;
};

#define PERF_ASIDE UINT64_MAX

void perf_end_hello(const struct perf_end *end, struct perf_hello *hello_out);

/* A case's QP and memory; then what the other end needs of them; then its own. */
int perf_end_make(struct perf_end *end, const struct perf_case *c, bool serves);
int perf_end_address(struct perf_end *end, struct perf_address *address_out);
int perf_end_connect(struct perf_end *end, const struct perf_address *peer);
/* Also for an end that was made in part. */
void perf_end_unmake(struct perf_end *end);

/* Slots: what goes out, what comes in, and where that is at the other end. */
unsigned char *perf_end_out(const struct perf_end *end, uint64_t message);
unsigned char *perf_end_in(const struct perf_end *end, uint64_t message);
uint64_t perf_end_remote_in(const struct perf_end *end, uint64_t message);
uint64_t perf_end_remote_out(const struct perf_end *end, uint64_t message);

int perf_end_post(struct perf_end *end, const struct snt_send_wr *wr, unsigned count);
/* An empty write with this immediate, after all that was posted before. */
int perf_end_tell(struct perf_end *end, uint32_t imm);
/* A receive for one more message; for one more credit. */
int perf_end_recv(struct perf_end *end);
int perf_end_recv_credit(struct perf_end *end);
/* Takes a message that the other end has sent during a run (perf_end_idle()): the
 * client's STOP, from which on `expected` is known, or an error. */
int perf_end_hear(struct perf_end *end);

/* Polls; without completions, and if the case has events, sleeps until there are some,
 * or the other end has sent a message, or some time has passed. -EIO, with a text, if
 * one failed. Returns how many. */
#define PERF_POLL_MAX 32
int perf_end_poll(struct perf_end *end, struct snt_wc *wc);

/* To be called after each poll, with its result. Returns 0; 1 if the other end has sent
 * a message, which is checked now and then while no completions come; -ETIMEDOUT if
 * neither has come for too long. */
int perf_end_idle(struct perf_end *end, int polled);

/* Compares a message that has arrived with what was expected, and counts it. */
void perf_end_verify(struct perf_end *end, const void *memory, uint64_t message);
/* For atomics: the other end has added 1 so many times. */
void perf_end_verify_counter(struct perf_end *end, uint64_t count);
/* Counts an error other than wrong bytes. */
void perf_end_wrong(struct perf_end *end, uint64_t message);

void perf_end_begin(struct perf_end *end);
void perf_end_finish(struct perf_end *end);

#endif
