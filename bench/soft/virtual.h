/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SOFT_VIRTUAL_H
#define BENCH_SOFT_VIRTUAL_H

#include <stdbool.h>
#include <sennit/sennit.h>

/* One end of a virtual QP between two processes, on the first soft device. */
struct virtual_end {
	int control; /* a socket to the other process */
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token peer;
	unsigned told; /* notifications that went out */
};

/* How many lanes ends have that are opened from now on. */
extern unsigned virtual_lanes;

/* Roles of the other process: does nothing, sends a notification for each one, or only
 * takes them. */
void virtual_be_written_to(int control);
void virtual_echo(int control);
void virtual_take(int control);

void virtual_open(struct virtual_end *end, int control);

/* Passes: 64-byte messages there and back, one at a time; 64-byte messages or plain
 * writes, up to 128 in flight. */
void virtual_warm_pings(void *arg);
void virtual_pings(void *arg, unsigned count);
void virtual_warm_notes(void *arg);
void virtual_notes(void *arg, unsigned count);
void virtual_writes(void *arg, unsigned count);

#endif
