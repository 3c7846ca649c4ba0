/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SOFT_END_H
#define BENCH_SOFT_END_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sennit/sennit.h>

/* One end of an RC connection between two processes: plain verbs on a soft device. */
struct end {
	struct snt_device *device;
	const struct snt_control *control;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	unsigned char *bytes;
	uint64_t peer_addr;
	uint32_t peer_key;
	unsigned told, heard; /* notifications that went out and came in */
};

#define END_BYTES (1u << 20)
#define END_DEPTH 256
#define END_BATCH 32

_Noreturn void die(const char *what);

/* Opens a context, and an end on its first device, connected with that of the
 * process at the other end of a socket, which does the same. */
void end_open(struct end *end, int with);
/* The same, with memory of snt_mem_alloc(). */
void end_open_made(struct end *end, int with);

/* In steps: END_BYTES of memory and a CQ for so many QPs; a QP, of which an end may get
 * many, one after the other; and the connection, with another process or in this
 * one. */
void end_make(struct end *end, struct snt_device *device, unsigned qps, void *bytes);
void end_add_qp(struct end *end, uint32_t depth);
void end_meet(struct end *end, int with);
void end_pair(struct end *one, struct end *other);

void end_post_write(struct end *end, uint32_t length, unsigned count);
/* Has a completion come? Dies of an error. */
bool end_poll(struct end *end);
/* Spins until that many have. */
void end_wait(struct end *end, unsigned count);

/* Writes with immediate, as programs do it that mind latency: one in END_BATCH is
 * signalled, and so many receives are replaced at once. */
void end_expect(struct end *end);
void end_notify(struct end *end, uint32_t length);
/* Polls once. Has a notification come? */
bool end_notified(struct end *end);

#endif
