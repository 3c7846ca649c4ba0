/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_EVENT_H
#define SNT_DEV_SOFT_EVENT_H

#include <infiniband/verbs.h>
#include "util/list.h"

/*
 * What wakes programs: completion channels and async events, each an eventfd that is
 * readable while an event is pending. No queue needs memory: a CQ counts its events,
 * and every object has one bit for each kind of async event, delivered in the order of
 * their numbers.
 */

struct snt__soft_context;
struct snt__soft_device;

/* An fd that is made readable, or not; -1: none at the moment. */
struct snt__soft_bell {
	int fd;
	bool rung;
	unsigned forks; /* before it was opened */
};

int snt__soft_bell_open(struct snt__soft_bell *bell);
void snt__soft_bell_close(struct snt__soft_bell *bell);
void snt__soft_bell_ring(struct snt__soft_bell *bell);
void snt__soft_bell_quiet(struct snt__soft_bell *bell);
/* Without the lock. Returns 0 to look again, or a negative errno: -EAGAIN if the fd does
 * not block, -EIO if it is not ours. */
int snt__soft_bell_wait(struct snt__soft_device *device,
			const struct snt__soft_bell *bell);
/* In a child of the process: all existing bells stay with the parent, and are neither
 * rung nor quieted from here. */
void snt__soft_bells_disown(void);

/* Common to QPs, CQs, SRQs and contexts. `pending` has a bit for each enum
 * ibv_event_type that was not taken yet; the object is in its context's list of events
 * as long as one is set. It can be destroyed when it has no users and every event that
 * was taken has been acknowledged. */
struct snt__soft_object {
	struct snt__soft_device *device;
	struct snt__soft_context *context;
	struct snt__link events;
	uint32_t pending;
	unsigned taken;
	unsigned acked;
	unsigned users;
};

static inline bool snt__soft_object_busy(const struct snt__soft_object *object)
{
	return object->users || object->taken != object->acked;
}

void snt__soft_raise(struct snt__soft_object *object, enum ibv_event_type type);
/* Before an object is destroyed: drops its pending events. */
void snt__soft_forget(struct snt__soft_object *object);

int snt__soft_get_async_event(struct ibv_context *context,
			      struct ibv_async_event *event_out);
void snt__soft_ack_async_event(struct ibv_async_event *event);

#endif
