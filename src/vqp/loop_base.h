/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_LOOP_BASE_H
#define SNT_VQP_LOOP_BASE_H

#include <infiniband/verbs.h>

#include "util/list.h"

struct snt_cq;
struct snt_ctx;
struct snt_device;
struct snt_loop;

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

#endif
