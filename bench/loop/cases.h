/* SPDX-License-Identifier: MIT */
#ifndef BENCH_LOOP_CASES_H
#define BENCH_LOOP_CASES_H

#include <sennit/sennit.h>

#include "lib/bench.h"

_Noreturn void die(const char *what);

/* Which system calls of the library's own were made; see syscalls.c. */
enum syscall_kind {
	SYSCALL_EPOLL_WAIT,
	SYSCALL_WRITE,
	SYSCALL_READ,
	SYSCALL_KINDS,
};

extern unsigned long syscall_counts[SYSCALL_KINDS];
extern bool syscall_counting;

/* What each file adds. */
void add_ops(struct bench *bench);
void add_bursts(struct bench *bench);
void add_answers(struct bench *bench);
void add_idle(struct bench *bench);
void add_latency(struct bench *bench);

#endif
