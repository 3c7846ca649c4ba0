/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_LOOP_SLOT_H
#define SENNIT_TESTS_LOOP_SLOT_H

#include <stdbool.h>

/*
 * What a loop without a library knows of an fd: it is an adapter's or the program's own.
 * A slot that is given up in a callback is freed when the turn is over.
 */
struct slot {
	struct slot *next;
	bool is_gone;
	int fd;
	void *adapter; /* NULL: the program's */
	void (*ready)(void *arg);
	void *arg;
	unsigned pending; /* what still refers to it */
};

struct slot *slot_add(struct slot **slots);

/* Frees those that are gone and that nothing refers to. */
void slot_sweep(struct slot **slots);

#endif
