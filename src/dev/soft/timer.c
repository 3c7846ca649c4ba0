/* SPDX-License-Identifier: MIT */
#include "dev/soft/timer.h"

#include <errno.h>
#include <stddef.h>

#include "dev/soft/alloc.h"
#include "util/assert.h"

int snt__soft_timers_init(struct snt__soft_timers *timers, unsigned max)
{
	timers->heap = snt__soft_alloc((size_t)max + 1, sizeof(*timers->heap));
	timers->count = 0;
	return timers->heap ? 0 : -ENOMEM;
}

void snt__soft_timers_finish(struct snt__soft_timers *timers)
{
	snt__soft_free(timers->heap);
}

static void put_timer(struct snt__soft_timers *timers, struct snt__soft_timer *timer,
		      uint32_t place)
{
	timers->heap[place] = timer;
	timer->place = place;
}

static void sift_up(struct snt__soft_timers *timers, struct snt__soft_timer *timer)
{
	uint32_t place = timer->place;

	while (place > 1 && timers->heap[place / 2]->key > timer->key) {
		put_timer(timers, timers->heap[place / 2], place);
		place /= 2;
	}
	put_timer(timers, timer, place);
}

static void sift_down(struct snt__soft_timers *timers, struct snt__soft_timer *timer)
{
	uint32_t place = timer->place;

	for (;;) {
		uint32_t child = 2 * place;

		if (child > timers->count)
			break;
		if (child < timers->count &&
		    timers->heap[child + 1]->key < timers->heap[child]->key)
			child++;
		if (timers->heap[child]->key >= timer->key)
			break;
		put_timer(timers, timers->heap[child], place);
		place = child;
	}
	put_timer(timers, timer, place);
}

void snt__soft_timer_insert(struct snt__soft_timers *timers,
			    struct snt__soft_timer *timer, uint64_t deadline)
{
	timer->deadline = deadline;
	timer->key = deadline;
	if (!timer->place)
		put_timer(timers, timer, ++timers->count);
	sift_up(timers, timer);
}

void snt__soft_timer_remove(struct snt__soft_timers *timers,
			    struct snt__soft_timer *timer)
{
	struct snt__soft_timer *last;
	uint32_t place = timer->place;

	snt__soft_timer_stop(timer);
	if (!place)
		return;
	timer->place = 0;
	last = timers->heap[timers->count--];
	if (last == timer)
		return;
	put_timer(timers, last, place);
	sift_up(timers, last);
	sift_down(timers, last);
}

/* The first timer, after stale keys have been corrected. */
static struct snt__soft_timer *first_timer(struct snt__soft_timers *timers)
{
	while (timers->count) {
		struct snt__soft_timer *timer = timers->heap[1];

		snt__assert(timer->key <= timer->deadline);
		if (timer->deadline == timer->key)
			return timer;
		if (timer->deadline == UINT64_MAX) {
			snt__soft_timer_remove(timers, timer);
			continue;
		}
		timer->key = timer->deadline;
		sift_down(timers, timer);
	}
	return NULL;
}

uint64_t snt__soft_timers_deadline(struct snt__soft_timers *timers)
{
	struct snt__soft_timer *timer = first_timer(timers);

	return timer ? timer->deadline : UINT64_MAX;
}

struct snt__soft_timer *snt__soft_timers_expired(struct snt__soft_timers *timers,
						 uint64_t now)
{
	struct snt__soft_timer *timer = first_timer(timers);

	if (!timer || timer->deadline > now)
		return NULL;
	snt__soft_timer_remove(timers, timer);
	return timer;
}
