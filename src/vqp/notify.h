/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_NOTIFY_H
#define SNT_VQP_NOTIFY_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/list.h"

struct snt_cq;
struct snt_ctx;
struct snt_device;
struct snt_loop;
struct snt__physical;

/* What virtual CQs know of the loop that they are in: the first member of a loop. */
struct snt__loop_base {
	struct snt_ctx *ctx;
	struct snt__link event_cqs;  /* those with events */
	struct snt__link polled_cqs; /* those with ops and without events */
	/* Its completion channel for a device, made on first use. */
	int (*channel)(struct snt_loop *loop, const struct snt_device *device,
		       struct ibv_comp_channel **channel_out);
	void (*cq_grown)(struct snt_cq *cq); /* by a physical CQ */
};

static inline struct snt__loop_base *snt__loop_base(struct snt_loop *loop)
{
	return (struct snt__loop_base *)loop;
}

/*
 * Arming and looking, for a virtual CQ whose thread sleeps. Its physical CQs have one
 * channel for each device, and each of them is armed, or not, on its own. The layer
 * above, which sleeps, keeps its own state here as well, because a CQ may be created
 * and destroyed without that layer.
 *
 * Always arm first and look afterwards: an event reports what comes after a CQ was
 * armed, so CQEs that came before must be looked for. A look takes a physical CQE if
 * there is one, since verbs cannot look without taking; it is held until the next poll.
 */
struct snt__notify {
	bool events; /* the physical CQs have channels */
	bool served; /* polled by the layer above, not by the program */
	bool has_held;
	uint32_t held_from; /* which physical CQ */
	struct ibv_wc held;
	struct snt__link all; /* in a list of its loop */

	/* Of the layer above. `idle` is set while that layer expects nothing but an
	 * event; called when this no longer holds. */
	void (*idle)(struct snt_cq *cq);
	bool stale;  /* a look may have found a CQE whose event is still to come */
	bool failed; /* it can no longer be polled */
	bool *gone;  /* set when the CQ is destroyed */
	struct snt__link pending;
	void (*ready)(void *arg, struct snt_cq *cq); /* of the program */
	void *ready_arg;
};

/* Arms all physical CQs that are not armed. 0, or the errno of the device. */
int snt__cq_arm(struct snt_cq *cq);

/* Is there anything to poll? 1, 0, or -EIO. */
int snt__cq_look(struct snt_cq *cq);

/* An event of this physical CQ has come. */
void snt__cq_take_event(struct snt__physical *physical);

/* Acknowledges all events that were taken, before the CQ is destroyed. */
void snt__cq_ack(struct snt__physical *physical);

/* As snt_cq_poll(), also for a CQ that the layer above serves. */
struct snt_wc;
int snt__cq_poll(struct snt_cq *cq, struct snt_wc *wc, int max);

#endif
