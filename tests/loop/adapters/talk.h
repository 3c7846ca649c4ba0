/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_LOOP_TALK_H
#define SENNIT_TESTS_LOOP_TALK_H

#include "loop/adapters/world.h"

/*
 * An echo on one QP: end 0 sends messages, one after the other, and end 1 sends them
 * back. Every byte is compared. All of it happens in callbacks.
 */
struct talk {
	struct world *world;
	unsigned qp;
	unsigned wanted;
	unsigned rounds; /* so far */
	unsigned done;	 /* 1 when all of them were */
	unsigned callbacks;
	bool owes_echo;
	struct job send[2], recv[2];
};

/* wanted 0: until talk_end() */
void talk_begin(struct talk *talk, struct world *world, unsigned qp, unsigned wanted);
/* Not another round after this one. */
void talk_end(struct talk *talk);

#endif
