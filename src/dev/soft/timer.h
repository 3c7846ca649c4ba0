/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_TIMER_H
#define SNT_DEV_SOFT_TIMER_H

#include <stdint.h>

/*
 * Timers: a heap, lazily updated. Most timers are postponed again and again and never
 * expire, so that a later deadline is only noted in the timer itself. Its place in the
 * heap is corrected when it reaches the top, hence:
 *
 *	key <= deadline, of every timer in the heap
 *
 * A timer that was stopped stays until then as well, with a deadline of never.
 */
struct snt__soft_timer {
	uint64_t deadline;
	uint64_t key;
	uint32_t place; /* in the heap, from 1; 0: not there */
};

struct snt__soft_timers {
	struct snt__soft_timer **heap; /* from 1 */
	unsigned count;
};

/* Allocates room for that many timers. Returns 0 or -ENOMEM. */
int snt__soft_timers_init(struct snt__soft_timers *timers, unsigned max);
void snt__soft_timers_finish(struct snt__soft_timers *timers);

void snt__soft_timer_insert(struct snt__soft_timers *timers,
			    struct snt__soft_timer *timer, uint64_t deadline);
void snt__soft_timer_remove(struct snt__soft_timers *timers,
			    struct snt__soft_timer *timer);

static inline void snt__soft_timer_set(struct snt__soft_timers *timers,
				       struct snt__soft_timer *timer, uint64_t deadline)
{
	timer->deadline = deadline;
	if (!timer->place || deadline < timer->key)
		snt__soft_timer_insert(timers, timer, deadline);
}

static inline void snt__soft_timer_stop(struct snt__soft_timer *timer)
{
	timer->deadline = UINT64_MAX;
}

/* The earliest deadline, or UINT64_MAX. */
uint64_t snt__soft_timers_deadline(struct snt__soft_timers *timers);

/* Removes a timer whose deadline has come, or returns NULL. */
struct snt__soft_timer *snt__soft_timers_expired(struct snt__soft_timers *timers,
						 uint64_t now);

#endif
