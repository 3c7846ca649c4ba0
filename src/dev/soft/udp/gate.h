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
 * All state of a device is behind it, but it is opened around the system calls that move
 * packets: other threads can post, poll and receive while the kernel copies. What the kernel
 * works on meanwhile is busy (sender, receiver) and left alone by other threads.
 */
struct snt__udp_gate {
	pthread_mutex_t lock;
	pthread_cond_t idle; /* something is not busy any more */
	unsigned waiting;    /* threads that wait for that */
	atomic_uint waiters; /* for the lock, while another thread has it for long */
	unsigned visits;     /* how often a thread has taken the lock; wraps */
	uint64_t now;	     /* a time that the device may know of, if it was opened */
};

/* Returns 0 or a negative errno. */
int snt__udp_gate_init(struct snt__udp_gate *gate);
void snt__udp_gate_finish(struct snt__udp_gate *gate);

void snt__udp_gate_lock(struct snt__udp_gate *gate);
bool snt__udp_gate_trylock(struct snt__udp_gate *gate);
void snt__udp_gate_unlock(struct snt__udp_gate *gate);

/* Unlocks it for a while, in the middle of something. Returns what closing wants to know. */
unsigned snt__udp_gate_open(struct snt__udp_gate *gate);
/* Time must not go back: other threads may have told the device a later one meanwhile.
 * Returns `now`, or the time that it is. Keeps errno. */
uint64_t snt__udp_gate_close(struct snt__udp_gate *gate, unsigned visits, uint64_t now);

/* Waits until other threads have left something busy, and looks again. */
void snt__udp_gate_wait(struct snt__udp_gate *gate);
void snt__udp_gate_tell(struct snt__udp_gate *gate);

#endif
