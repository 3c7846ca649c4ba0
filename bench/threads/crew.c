/* SPDX-License-Identifier: MIT */
#include "threads/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "threads/cpus.h"

#define SPINS_BEFORE_YIELD 100000

/* What threads write while they work shares no cache line with anything, nor a pair of lines,
 * which processors may fetch together. */
#define APART _Alignas(128)

struct member {
	APART unsigned number;
	pthread_t thread;
	struct crew_result result;
};

static struct member member[CREW_MAX];

static struct {
	pthread_mutex_t lock;
	pthread_cond_t begin, end;
	unsigned turn; /* of work, counted */
	unsigned working;
	unsigned threads;
	const struct work *work;
	void *const *load;
	uint64_t duration_ns;
} crew = { .lock = PTHREAD_MUTEX_INITIALIZER,
	   .begin = PTHREAD_COND_INITIALIZER,
	   .end = PTHREAD_COND_INITIALIZER };

static APART atomic_uint arrived;

static uint64_t time_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

/* A thread that slept until the work began would begin it with a slow clock. */
static void wait_for_others(unsigned threads)
{
	atomic_fetch_add(&arrived, 1);
	for (unsigned i = 0; atomic_load(&arrived) < threads; i++)
		if (i >= SPINS_BEFORE_YIELD)
			sched_yield();
}

static struct crew_result do_work(const struct work *work, void *load,
				  uint64_t duration_ns)
{
	uint64_t cpu_begin = time_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t begin = time_ns(CLOCK_MONOTONIC), elapsed, cpu, operations = 0;

	do {
		operations += work->run(load);
		elapsed = time_ns(CLOCK_MONOTONIC) - begin;
	} while (elapsed < duration_ns);
	cpu = time_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_begin;
	if (work->finish)
		work->finish(load);
	return (struct crew_result){ .rate = operations * 1e9 / elapsed,
				     .share = (double)cpu / elapsed };
}

static void take_part(struct member *self)
{
	const struct work *work = crew.work;
	void *load = crew.load[self->number];
	uint64_t duration_ns = crew.duration_ns;
	unsigned threads = crew.threads;

	if (threads <= cpus_count())
		cpus_pin(self->number);
	else
		cpus_unpin();
	wait_for_others(threads);
	self->result = do_work(work, load, duration_ns);
}

static void *run_member(void *arg)
{
	struct member *self = arg;
	unsigned turn = 0;

	for (;;) {
		pthread_mutex_lock(&crew.lock);
		while (crew.turn == turn || self->number >= crew.threads)
			pthread_cond_wait(&crew.begin, &crew.lock);
		turn = crew.turn;
		pthread_mutex_unlock(&crew.lock);
		take_part(self);
		pthread_mutex_lock(&crew.lock);
		if (!--crew.working)
			pthread_cond_signal(&crew.end);
		pthread_mutex_unlock(&crew.lock);
	}
	return NULL;
}

void crew_start(unsigned threads)
{
	for (unsigned i = 0; i < threads; i++) {
		member[i].number = i;
		if (pthread_create(&member[i].thread, NULL, run_member, &member[i])) {
			fprintf(stderr, "threads: no thread can be started\n");
			exit(1);
		}
	}
}

struct crew_result crew_run(unsigned threads, const struct work *work,
			    void *const *load, uint64_t duration_ns)
{
	struct crew_result all = { .share = 1 };

	pthread_mutex_lock(&crew.lock);
	atomic_store(&arrived, 0);
	crew.work = work;
	crew.load = load;
	crew.duration_ns = duration_ns;
	crew.threads = crew.working = threads;
	crew.turn++;
	pthread_cond_broadcast(&crew.begin);
	while (crew.working)
		pthread_cond_wait(&crew.end, &crew.lock);
	pthread_mutex_unlock(&crew.lock);
	for (unsigned i = 0; i < threads; i++) {
		const struct crew_result *one = &member[i].result;

		all.rate += one->rate / threads;
		all.share = one->share < all.share ? one->share : all.share;
	}
	return all;
}
