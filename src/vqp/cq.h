/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CQ_H
#define SNT_VQP_CQ_H

#include <infiniband/verbs.h>
#include <sennit/cq.h>

#include "dev/deferred_release.h"
#include "util/list.h"
#include "vqp/ready.h"
#include "vqp/route.h"

struct snt_ctx;
struct snt_loop;

/* One physical CQ and the CQEs that lanes have reserved in it. */
struct snt__physical {
	struct ibv_cq *cq;
	uint32_t device;
	uint32_t depth;
	uint32_t reserved;
	uint32_t due_rest; /* of its turns: less than one CQE, times reserved_max */
	bool adopted;
	bool armed;		 /* and no event taken since */
	uint32_t unacked;	 /* events that were taken */
	struct snt_qp *draining; /* QPs that wait until it has been found empty */
	struct snt_cq *owner;
};

/* Completions that the layer above has polled and is about to pass on. */
struct snt__passing {
	const struct snt_wc *next, *end;
	void (*forget_qp)(const struct snt_wc *wc); /* its QP goes */
};

/* What a CQ keeps for the thread that sleeps until it has something: notify.h. */
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
	const struct snt__passing *passing; /* NULL: nothing */
	struct snt__link pending;
	void (*ready)(void *arg, struct snt_cq *cq); /* of the program */
	void *ready_arg;
};

/* Physical CQEs that are taken at once. */
#define SNT__BATCH 32

struct snt_cq {
	struct snt__cq_front front; /* first: programs' inline polls read it */
	struct snt__physical *physical;
	uint32_t physical_count;
	uint32_t turn;	       /* the physical CQ that is polled next */
	uint32_t turn_left;    /* CQEs left to it before the next one's turn */
	uint32_t reserved_max; /* of all physical CQs */
	struct snt__ready **ready_end;
	struct snt__route route;
	struct snt_ctx *ctx;
	struct snt_loop *loop; /* NULL: none */
	uint32_t physical_max;
	uint32_t depth;
	uint32_t comp_vector;
	uint32_t num;
	uint32_t qp_count;
	struct snt__link srqs; /* that report to it */
	uint64_t stray_count;
	void (*stray)(void *arg, unsigned device, const struct ibv_wc *wc);
	void *stray_arg;
	bool adopted;
	bool unpollable; /* a poll of a physical CQ has failed */
	struct snt__notify notify;
	struct snt__deferred_release deferred;
	struct ibv_wc batch[SNT__BATCH];
};

/* Is there one physical CQ, and nothing else to look at? */
static inline void snt__cq_find_only(struct snt_cq *cq)
{
	struct ibv_cq *only = cq->physical->cq;
	bool alone =
		cq->physical_count == 1 && !cq->notify.served && !cq->notify.has_held;

	cq->front.only = only;
	cq->front.poll = alone ? &only->context->ops.poll_cq : NULL;
}

#endif
