/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_LOOP_WORLD_H
#define SENNIT_TESTS_LOOP_WORLD_H

#include <sennit/sennit.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/devices/scripted.h"
#include "loop/adapters/driver.h"

/*
 * Two contexts in one event loop, whose QPs are connected with each other, on any kind of
 * device. Whatever goes wrong ends the program with the name of the case.
 */

#define WORLD_QPS    16
#define WORLD_CQS    4
#define WORLD_BUFFER (1u << 20)
#define WORLD_DEPTH  64

enum device_kind {
	ON_SCRIPTED = 1 << 0,
	ON_SIM = 1 << 1,
	ON_SOFT = 1 << 2,  /* on UDP sockets, with threads of their own */
	ON_VERBS = 1 << 3, /* whatever libibverbs has */
};

struct snt__sim;

struct world_end {
	struct scripted_device *device; /* if it is one */
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_mem *mem;
	struct snt_token token;
	unsigned char *buffer;
	struct snt_cq *cq[WORLD_CQS];
	struct snt_qp *qp[WORLD_QPS]; /* i reports to CQ i % cqs */
	void *attached;
};

struct world {
	const struct driver *driver;
	enum device_kind kind;
	uint64_t random;
	struct scripted_fabric *fabric;
	struct snt__sim *sim;
	unsigned qps, cqs;
	struct world_end end[2];
};

/* 0: one of each. */
struct world_opts {
	unsigned qps, cqs;
	unsigned depth;	     /* of sends and receives, WORLD_DEPTH */
	unsigned lane_depth; /* the same */
	int budget;
	bool detached;	  /* neither end is put into the loop */
	bool watched;	  /* the last CQ, and its QPs, has events instead of ops */
	bool unconnected; /* the last QP */
	unsigned lanes;	  /* 0: one, which passes WRs on */
	/* What to use instead of the first end's control table. */
	const struct snt_control *(*instrument)(const struct snt_adopted *adopted);
};

/* The case that runs and its seed, for messages; and what it has to say for the table. */
extern const char *world_case;
extern uint64_t world_seed;
extern char world_words[64];

_Noreturn void world_fail(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

#define expect(good, ...)                        \
	do {                                     \
		if (!(good))                     \
			world_fail(__VA_ARGS__); \
	} while (0)

/* The call of the library did not fail. */
void must(int ret, const char *what);

void world_open(struct world *world, const struct world_opts *opts);
/* Closes and frees what is still there, the loop included, and expects nothing left. */
void world_close(struct world *world);

void world_attach(struct world *world, unsigned end, int budget);
void world_detach(struct world *world, unsigned end);
/* In the loop: until its callback has come. */
void world_close_qp(struct world *world, unsigned end, unsigned qp);

/* One thing happens on the devices; false: nothing can, or they move by themselves. */
bool world_step(struct world *world);
void world_settle(struct world *world);
/* Do they move only when told to? Then all that can come of it can be known. */
bool world_steps(const struct world *world);

/* Runs the loop until *count is @wanted. Where devices are told to move, it fails as soon
 * as the loop has nothing to do before that: a wake-up was lost. */
void world_until(struct world *world, const unsigned *count, unsigned wanted);
/* The same where something else than the devices is waited for. */
void world_until_other(struct world *world, const unsigned *count, unsigned wanted);
/* Turns without sleeping until none is left in which there was a dispatch. */
void world_until_idle(struct world *world);

/* How often the adapters have dispatched so far. */
extern unsigned long world_dispatches;

/*
 * Ops
 */

struct job {
	struct snt_op op;
	unsigned *count; /* of those that are over */
	void (*then)(struct job *job);
	void *arg;
	unsigned end, qp, index;
	uint64_t offset, length;
	bool is_posted;
};

/* Bytes of the end's buffer. */
struct snt_sge world_sge(const struct world *world, unsigned end, uint64_t offset,
			 uint64_t length);
/* The job says end, QP and bytes. A result other than 0 fails unless there is a `then`. */
void job_send(struct world *world, struct job *job);
void job_recv(struct world *world, struct job *job);
/* To the same offset of the other end. */
void job_write(struct world *world, struct job *job);

#endif
