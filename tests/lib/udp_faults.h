/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_UDP_FAULTS_H
#define SENNIT_TESTS_UDP_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A bad network, between a device and its socket: in programs that are linked statically
 * and with --wrap=snt__udp_sendmmsg. Messages are sent one datagram at a time, so that each has a
 * fate of its own.
 */
struct faults {
	uint64_t seed;
	/* Of 1000 datagrams so many are lost, doubled, or sent behind the next. */
	unsigned lost, doubled, late;
	/* Of 1000 calls so many find the socket full. */
	unsigned full;
	/* From now on every call fails with this. */
	int error;
	/* Messages of several datagrams are refused with this. */
	int segments_error;
	/* How many there were. */
	unsigned datagrams, lost_count, doubled_count, late_count, full_count;
};

/* From now on; counts begin at 0. */
void faults_set(struct faults new);
/* As it is, with what was counted. */
struct faults faults_get(void);

/* The next thread that sends on this socket stays in the kernel until it is released. */
void faults_detain(int fd);
/* Returns when it is there. */
void faults_await_detained(void);
void faults_release(void);

#endif
