/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_LOOP_PIPE_H
#define SENNIT_TESTS_LOOP_PIPE_H

#include "loop/adapters/world.h"

/*
 * A stream between both ends of the world, on QPs of its own or by address. All that its
 * ends do, they do in their functions, which a case gives them. The usual ones: end 0
 * sends bytes that follow from their position, and shuts down; end 1 sends back what
 * comes.
 */

/* Less than what a pipe carries, so that both directions are full now and then. */
#define PIPE_RING (16u << 10)

struct pipe;

struct pipe_end {
	struct pipe *pipe;
	struct snt_stream *stream; /* NULL: destroyed, or not there yet */
	struct snt_qp *qp;	   /* NULL: by address */
	/* Reads and writes until it can go no further. */
	void (*work)(struct pipe_end *end);
	uint64_t sent, received;
	int status; /* when it was over */
};

struct pipe {
	struct world *world;
	struct pipe_end end[2];
	uint64_t bytes;	   /* that end 0 sends */
	unsigned over;	   /* ends whose last event has come, or that were destroyed */
	unsigned *all;	   /* the same of several pipes; may be NULL */
	unsigned moment;   /* of the case's own */
	unsigned progress; /* calls of functions */
};

/* Both ends, of which each works for the first time. work[i] NULL: the usual one. */
void pipe_open(struct pipe *pipe, struct world *world, uint64_t bytes,
	       void (*const work[2])(struct pipe_end *end));
/* By address, through a listener of end 1. */
void pipe_open_by_address(struct pipe *pipe, struct world *world, uint64_t bytes);
/* Ends that are over, or were destroyed. */
void pipe_close(struct pipe *pipe);

void pipe_send(struct pipe_end *end);	/* end 0's; compares what comes back */
void pipe_answer(struct pipe_end *end); /* end 1's */

/* The next bytes of a direction. False: none now, or none any more. */
bool pipe_write(struct pipe_end *end, uint64_t until);
bool pipe_read(struct pipe_end *end);

/* In its own function, or elsewhere. */
void pipe_destroy_end(struct pipe_end *end);

/* Both have ended, without an error, and everything came back. */
void pipe_expect_done(const struct pipe *pipe);

#endif
