/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_LOOP_TCP_H
#define SENNIT_TESTS_LOOP_TCP_H

#include <stdint.h>

#include "loop/adapters/driver.h"

/* A TCP connection to itself: one socket sends numbers, the other sends them back. */
struct tcp {
	const struct driver *driver;
	int listener, client, server;
	void *watched[2];
	uint64_t next;
	unsigned rounds;
};

/* @tcp is zero. */
void tcp_open(struct tcp *tcp, const struct driver *driver);
void tcp_close(struct tcp *tcp);

#endif
