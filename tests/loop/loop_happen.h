/* SPDX-License-Identifier: MIT */
#ifndef LOOP_HAPPEN_H
#define LOOP_HAPPEN_H

#include <stdbool.h>
#include <stdint.h>

#include "loop/loop.h"
#include "lib/loop_kit.h"

/*
 * What can happen to a loop while it works: a completion, a timer that becomes due, a wake
 * from another thread, an asynchronous event of a device, an event of a connection. A run
 * has up to four of them, in an order that is given, each at a place that is given. Places
 * are before and after each call to the device or to the kernel, and wherever the program
 * has one.
 */

#define HAPPENINGS_MAX 4

enum happening {
	COMPLETION,
	TIMER,
	WAKE,
	EVENT,
	CONNECTION,
	HAPPENINGS,
};

struct happen {
	struct loop_pair *pair;
	struct snt_cq *cq[HAPPENINGS_MAX];
	struct snt_qp *qp[HAPPENINGS_MAX][2];
	struct ibv_qp *lane[HAPPENINGS_MAX];
	struct snt_op op[HAPPENINGS_MAX];
	struct snt_timer timer[HAPPENINGS_MAX];

	unsigned count;
	enum happening kind[HAPPENINGS_MAX];
	unsigned at[HAPPENINGS_MAX]; /* the place where each happens */
	bool slept[HAPPENINGS_MAX];  /* there was no such place: it happened in sleep */
	unsigned happened, places;
	bool exploring;

	unsigned done;	   /* callbacks that have come, wakes left out */
	bool wake_is_due;  /* since the last callback of a wake */
	unsigned progress; /* all callbacks */

	/* Time passes only when a timer is to become due. */
	uint64_t now_ns, read_ns; /* what it is, and what the loop saw last */
	uint64_t clock_fires_ns;  /* the timerfd; UINT64_MAX: not set */
	int clock_fd;

	/* Like that of the connections: its function calls none of the program, but starts
	 * a timer that is due, whose function does. */
	struct snt__source connection;
	int connection_end;
	struct snt_timer connection_work;
	unsigned connection_events;
};

extern struct happen happen;

/* Two ends, and a QP for each of that many completions; with a CQ each, or one for all. */
void happen_open(const struct loop_opts *opts, bool own_cqs, unsigned count);
void happen_close(void);

/* What is to happen in one run is posted and started. */
void happen_begin(void);

/* What is to happen here does. */
void happen_place(void);

/* The next one happens, because the program sleeps. */
void happen_in_sleep(void);

/* A callback of the program's own for completions. */
void happen_completed(void);

/* Nothing that has happened is still to be told of. */
bool happen_all_told(void);

#endif
