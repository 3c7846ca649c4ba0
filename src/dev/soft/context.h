/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CONTEXT_H
#define SNT_DEV_SOFT_CONTEXT_H

#include <stdbool.h>
#include <infiniband/verbs.h>
#include "dev/soft/event.h"

/*
 * A device as one part of a program has opened it: under its own name, with the async
 * events of what was created there, and those of the port. Objects of different
 * contexts cannot be combined; packets, keys and QP numbers are the device's.
 */
struct snt__soft_context {
	struct snt__soft_device *device;
	struct snt__link all; /* in the device's list */
	bool opened;	/* by a program; the first context exists even if it is not */
	unsigned users; /* channels, CQs and PDs */
	struct snt__soft_object object; /* of port and device events */
	struct snt__link events;	/* objects with async events */
	struct snt__soft_bell async;

	/* The part that programs see. */
	struct verbs_context verbs;
	struct ibv_device ibv;
	/* Drivers keep their ops here: a driver that asks whether a device is its own
	 * reads this place. */
	const void *driver_ops;
};

static inline struct snt__soft_context *snt__soft_context_of(
	struct ibv_context *context)
{
	return snt__container(context, struct snt__soft_context, verbs.context);
}

/* Returns 0 or the errno of eventfd(2). */
int snt__soft_context_init(struct snt__soft_context *context,
			   struct snt__soft_device *device, const char *name);
void snt__soft_context_finish(struct snt__soft_context *context);

/* With the lock: the number of objects created there changes. */
void snt__soft_context_count(struct ibv_context *context, int change);

/* With the lock: raises an event of the port, or of the whole device, in all
 * contexts. */
void snt__soft_raise_all(struct snt__soft_device *device, enum ibv_event_type type);

/* In a child of the process: the data path of all contexts becomes that of `ops`. */
void snt__soft_contexts_replace(struct snt__soft_device *device,
				const struct ibv_context_ops *ops);

#endif
