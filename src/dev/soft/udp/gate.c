/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/gate.h"

#include <errno.h>

#include "dev/soft/udp/device.h"

/* About 20 us on current processors. */
#define SPINS  64
#define PAUSES 8

int snt__udp_gate_init(struct snt__udp_gate *gate)
{
	pthread_mutexattr_t attr;
	int error = pthread_mutexattr_init(&attr);

	if (error)
		return -error;
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	error = pthread_mutex_init(&gate->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	if (error)
		return -error;
	error = pthread_cond_init(&gate->idle, NULL);
	if (error)
		pthread_mutex_destroy(&gate->lock);
	return -error;
}

void snt__udp_gate_finish(struct snt__udp_gate *gate)
{
	/* In a child process, the threads that wait are the parent's. */
	if (!gate->waiting)
		pthread_cond_destroy(&gate->idle);
	pthread_mutex_destroy(&gate->lock);
}

static void relax_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* A thread that has the lock moves a batch, which takes microseconds: sleeping and
 * waking up costs both threads more. */
static bool spin_for_lock(struct snt__udp_gate *gate)
{
	for (unsigned i = 0; i < SPINS; i++) {
		if (!pthread_mutex_trylock(&gate->lock))
			return true;
		for (unsigned j = 0; j < PAUSES; j++)
			relax_cpu();
	}
	return false;
}

/* Kept out of the common path. */
__attribute__((noinline)) static void wait_for_lock(struct snt__udp_gate *gate)
{
	atomic_fetch_add(&gate->waiters, 1);
	if (!spin_for_lock(gate))
		pthread_mutex_lock(&gate->lock);
	atomic_fetch_sub(&gate->waiters, 1);
}

void snt__udp_gate_lock(struct snt__udp_gate *gate)
{
	if (pthread_mutex_trylock(&gate->lock))
		wait_for_lock(gate);
	gate->visits++;
}

bool snt__udp_gate_trylock(struct snt__udp_gate *gate)
{
	if (pthread_mutex_trylock(&gate->lock))
		return false;
	gate->visits++;
	return true;
}

void snt__udp_gate_unlock(struct snt__udp_gate *gate)
{
	pthread_mutex_unlock(&gate->lock);
}

unsigned snt__udp_gate_open(struct snt__udp_gate *gate)
{
	unsigned visits = gate->visits;

	snt__udp_gate_unlock(gate);
	return visits;
}

uint64_t snt__udp_gate_close(struct snt__udp_gate *gate, unsigned visits, uint64_t now)
{
	int error = errno;

	snt__udp_gate_lock(gate);
	if (gate->visits != visits + 1)
		gate->now = now = snt__udp_now();
	errno = error;
	return now;
}

/* Waiting on a condition is a cancellation point, but the caller must not be one. */
void snt__udp_gate_wait(struct snt__udp_gate *gate)
{
	int cancel_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	gate->waiting++;
	pthread_cond_wait(&gate->idle, &gate->lock);
	gate->waiting--;
	gate->visits++;
	pthread_setcancelstate(cancel_state, NULL);
}

void snt__udp_gate_tell(struct snt__udp_gate *gate)
{
	if (gate->waiting)
		pthread_cond_broadcast(&gate->idle);
}
