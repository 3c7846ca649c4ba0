/* SPDX-License-Identifier: MIT */
#ifndef BENCH_VQP_LOAD_H
#define BENCH_VQP_LOAD_H

#include <infiniband/verbs.h>
#include <sennit/sennit.h>

#include "lib/devices/null.h"
#include "lib/bench.h"

/* One null device, and what is posted to it: virtually, and by hand. */

#define LANES	 4
#define WRS	 64
#define SGES_MAX 8
#define FRAGMENT 4096
#define BUFFER	 (16 * FRAGMENT)
#define ROUNDS	 16

struct ground {
	struct snt_ctx *ctx;
	struct snt_device *device;
	struct snt_mem *mem;
	struct snt_token token;
	char buffer[BUFFER];
};

extern struct ground ground;

void ground_lay(void);
_Noreturn void die(const char *what);

/* WRs prepared once, and where they go. */
struct load {
	struct snt_cq *cq;
	struct snt_qp *qp;
	unsigned wrs;
	struct snt_sge sge[SGES_MAX];
	struct snt_send_wr wr[WRS];
};

struct load_opts {
	unsigned lanes;
	enum snt_scheme scheme;
	unsigned opcode;
	unsigned fragments; /* of a WR; several: only 16 WRs */
	unsigned sges;	    /* of a WR; 0: 1 */
	unsigned depth;	    /* of lanes, and half that of receives; 0: 128 */
	uint32_t flags;
};

void load_make(struct load *load, struct load_opts opts);

/* All WRs by one call, or one by one; then polled, 32 at a time. */
void load_run(void *arg, unsigned count);
void load_run_each(void *arg, unsigned count);
/* One WR in flight: what a program that waits for each pays. */
void load_run_single(void *arg, unsigned count);

/* The same physical WRs as a careful engineer posts them: one by one, fields
 * assigned, nothing cleared that is not read, and each polled. */
struct raw {
	struct ibv_cq *cq;
	struct ibv_qp *qp[LANES];
	unsigned lanes;
	unsigned wrs;
	unsigned fragments;
	unsigned notifies; /* writes with immediate that follow each WR */
	unsigned sges;
	enum ibv_wr_opcode opcode;
};

struct raw_opts {
	unsigned lanes, fragments, notifies, sges;
	enum ibv_wr_opcode opcode;
};

void raw_make(struct raw *raw, struct raw_opts opts);
void raw_run(void *arg, unsigned count);

/* What each file adds. */
void add_writes(struct bench *bench);
void add_dead(struct bench *bench);
void add_receives(struct bench *bench);
void add_polls(struct bench *bench);
void add_many(struct bench *bench);

#endif
