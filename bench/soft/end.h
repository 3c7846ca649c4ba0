/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SOFT_END_H
#define BENCH_SOFT_END_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sennit/sennit.h>

/* One end of an RC connection between two processes: plain verbs on a soft device. */
struct end {
	struct snt_ctx *ctx;
	const struct snt_control *control;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	unsigned char *bytes;
	uint64_t peer_addr;
	uint32_t peer_key;
};

#define END_BYTES (4u << 20)
#define END_DEPTH 256

_Noreturn void die(const char *what);

/* Opens a device, and connects with who does the same at the other end of a socket. */
void end_open(struct end *end, int with);

void end_post_write(struct end *end, uint32_t length, unsigned count, bool notify);
void end_post_recv(struct end *end);
/* Spins until that many completions came; dies of an error. */
void end_wait(struct end *end, unsigned count);

#endif
