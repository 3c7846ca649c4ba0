/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_GATE_H
#define SNT_DEV_SOFT_UDP_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The lock of a device.
 *
 * It protects all state of a device, but it is released ("the gate is open") around the
 * system calls that move packets: other threads can post, poll and receive while the
 * kernel copies. What the kernel works on meanwhile is marked busy (sender, receiver),
 * and other threads leave it alone.
 */
struct snt__udp_gate {
	pthread_mutex_t lock;
	pthread_cond_t idle; /* something is no longer busy */
	unsigned waiting;    /* threads that wait for that */
	atomic_uint waiters; /* for the lock, while another thread has it for long */
	unsigned visits;     /* how often the lock was taken; wraps */
	uint64_t now;	     /* when it last closed after other threads had the lock
			      * meanwhile */
};

/* Returns 0 or a negative errno. */
int snt__udp_gate_init(struct snt__udp_gate *gate);
void snt__udp_gate_finish(struct snt__udp_gate *gate);

void snt__udp_gate_lock(struct snt__udp_gate *gate);
bool snt__udp_gate_trylock(struct snt__udp_gate *gate);
void snt__udp_gate_unlock(struct snt__udp_gate *gate);

/* Releases the lock for a while, in the middle of an operation. Returns the argument
 * for closing. */
unsigned snt__udp_gate_open(struct snt__udp_gate *gate);
/* Time must not go back: other threads may have given the device a later one meanwhile.
 * Returns `now`, or the current time in that case. Keeps errno. */
uint64_t snt__udp_gate_close(struct snt__udp_gate *gate, unsigned visits, uint64_t now);

/* Waits until another thread has finished with something busy; the caller checks
 * again. */
void snt__udp_gate_wait(struct snt__udp_gate *gate);
void snt__udp_gate_tell(struct snt__udp_gate *gate);

#endif
