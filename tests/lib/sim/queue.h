/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_QUEUE_H
#define SNT_DEV_SOFT_SIM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What is going to happen: a heap, ordered by time and, at the same time, by when
 * it was added, so that a run never depends on how the heap is laid out. It grows
 * by doubling and never shrinks; in a steady state nothing allocates.
 */

enum snt__sim_kind {
	SNT__SIM_PACKET, /* a packet has passed a link */
	SNT__SIM_SEND,	 /* a device may send */
	SNT__SIM_TIMER,	 /* a device asked to be woken */
	SNT__SIM_CALL,	 /* a function of the test */
};

struct snt__sim_event {
	uint64_t time;
	uint64_t order; /* and the kind, in the lowest two bits */
	void *subject;
};

struct snt__sim_queue {
	struct snt__sim_event *heap;
	size_t count, room;
	uint64_t added;
};

static inline enum snt__sim_kind snt__sim_event_kind(const struct snt__sim_event *event)
{
	return (enum snt__sim_kind)(event->order & 3);
}

/* UINT64_MAX: nothing will. */
static inline uint64_t snt__sim_queue_next(const struct snt__sim_queue *queue)
{
	return queue->count ? queue->heap[0].time : UINT64_MAX;
}

/* 0 or -ENOMEM. */
int snt__sim_queue_add(struct snt__sim_queue *queue, uint64_t time,
		       enum snt__sim_kind kind, void *subject);

/* The earliest; false: there is none. */
bool snt__sim_queue_take(struct snt__sim_queue *queue,
			 struct snt__sim_event *event_out);

void snt__sim_queue_free(struct snt__sim_queue *queue);

#endif
