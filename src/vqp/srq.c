/* SPDX-License-Identifier: MIT */
#include "vqp/srq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"
#include "util/lines.h"
#include "util/opts.h"
#include "vqp/cq.h"
#include "vqp/cq_physical.h"
#include "vqp/lane_set.h"
#include "vqp/marker.h"
#include "vqp/ready_list.h"
#include "vqp/recv_sges.h"

#define DEPTH_DEFAULT 1024

/*
 * Creating and destroying
 */

static int check_srq_opts(const struct snt_ctx *ctx, const struct snt_srq_opts *opts)
{
	if (!opts->cq || opts->cq->ctx != ctx)
		return snt__fail(EINVAL,
				 "snt_srq_opts.cq is NULL or of another context");
	if (opts->device >= ctx->device_count)
		return snt__fail(EINVAL,
				 "snt_srq_opts.device is %u; the context has %u",
				 opts->device, ctx->device_count);
	if (opts->depth > SNT_SRQ_DEPTH_MAX)
		return snt__fail(EINVAL,
				 "snt_srq_opts.depth is %u; it must be at most %u",
				 opts->depth, SNT_SRQ_DEPTH_MAX);
	if (opts->sge_max > SNT_SGES_MAX)
		return snt__fail(EINVAL,
				 "snt_srq_opts.sge_max is %u; it must be at most %d",
				 opts->sge_max, SNT_SGES_MAX);
	if (!ctx->device[opts->device]->control.create_srq ||
	    !ctx->device[opts->device]->control.destroy_srq)
		return snt__fail(EOPNOTSUPP, "%s cannot make shared receive queues",
				 ctx->device[opts->device]->name);
	return 0;
}

static int create_physical(struct snt_srq *srq)
{
	const struct snt_device *device = srq->ctx->device[srq->device];
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = srq->depth,
						    .max_sge = srq->sge_max } };
	int ret = device->control.create_srq(device->pd, &attr, &srq->srq);

	return ret ? snt__fail(-ret,
			       "%s: no shared receive queue for %u receives of %u "
			       "SGEs: %s",
			       device->name, srq->depth, srq->sge_max, strerror(-ret))
		   : 0;
}

static int set_up_srq(struct snt_srq *srq)
{
	int ret = snt__cq_reserve(srq->cq, srq->device, srq->depth, srq->depth, 0,
				  &srq->cq_index);

	if (ret)
		return ret;
	srq->slot = snt__lines_alloc(srq->depth, sizeof(*srq->slot));
	ret = srq->slot ? create_physical(srq)
			: snt__fail(ENOMEM, "no memory for %u receives", srq->depth);
	if (ret) {
		snt__cq_unreserve(srq->cq, srq->cq_index, srq->depth);
		free(srq->slot);
		return ret;
	}
	for (uint32_t i = srq->depth; i--;) {
		srq->slot[i].next = srq->free;
		srq->free = &srq->slot[i];
	}
	return 0;
}

int snt_srq_create(struct snt_ctx *ctx, const struct snt_srq_opts *user_opts,
		   struct snt_srq **srq_out)
{
	struct snt_srq_opts opts;
	struct snt_srq *srq;
	int ret = snt__ctx_check(ctx);

	if (!ret)
		ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				       "struct snt_srq_opts");
	if (!ret)
		ret = check_srq_opts(ctx, &opts);
	if (ret)
		return ret;
	srq = snt__lines_alloc(1, sizeof(*srq));
	if (!srq)
		return snt__fail(ENOMEM, "no memory for a shared receive queue");
	srq->ctx = ctx;
	srq->cq = opts.cq;
	srq->device = opts.device;
	srq->tag = snt__tag_fresh() | SNT__TAG_RECV;
	srq->depth = opts.depth ? opts.depth : DEPTH_DEFAULT;
	srq->sge_max = opts.sge_max ? opts.sge_max : 1;
	ret = set_up_srq(srq);
	if (ret) {
		free(srq);
		return ret;
	}
	snt__list_append(&srq->cq->srqs, &srq->all);
	*srq_out = srq;
	return 0;
}

int snt_srq_destroy(struct snt_srq *srq)
{
	const struct snt_device *device;
	int ret;

	if (!srq)
		return 0;
	if (srq->qp_count)
		return snt__fail(EBUSY,
				 "%u QPs use this shared receive queue; destroy them "
				 "first",
				 srq->qp_count);
	device = srq->ctx->device[srq->device];
	/* QPs that could not be destroyed hold on to it. */
	snt__deferred_releases_try(srq->ctx, srq->cq);
	ret = device->control.destroy_srq(srq->srq);
	if (ret)
		return snt__fail(-ret,
				 "%s: a shared receive queue cannot be destroyed: %s",
				 device->name, strerror(-ret));
	for (uint32_t i = 0; srq->abandon && i < srq->depth; i++)
		if (srq->slot[i].used)
			srq->abandon(srq->slot[i].wr_id);
	snt__cq_unreserve(srq->cq, srq->cq_index, srq->depth);
	snt__unlink(&srq->all);
	free(srq->slot);
	free(srq);
	return 0;
}

struct snt_srq *snt__srq_find(const struct snt_cq *cq, const struct ibv_srq *physical)
{
	const struct snt__link *list = &cq->srqs;

	for (const struct snt__link *at = list->next; at != list; at = at->next) {
		struct snt_srq *srq = snt__container(at, struct snt_srq, all);

		if (srq->srq == physical)
			return srq;
	}
	return NULL;
}

int snt_srq_query(const struct snt_srq *srq, struct snt_srq_info *info_out)
{
	struct snt_srq_info info = {
		.device = srq->device,
		.depth = srq->depth,
		.sge_max = srq->sge_max,
		.posted = srq->used,
		.qps = srq->qp_count,
	};

	return snt__info_export(info_out, &info, sizeof(info), "struct snt_srq_info");
}

int snt_srq_arm(struct snt_srq *srq, uint32_t limit)
{
	const struct snt_device *device = srq->ctx->device[srq->device];
	struct ibv_srq_attr attr = { .srq_limit = limit };
	int ret;

	if (limit > srq->depth)
		return snt__fail(EINVAL, "a limit of %u receives, where there are %u",
				 limit, srq->depth);
	if (!device->control.modify_srq)
		return snt__fail(EOPNOTSUPP, "%s cannot tell when receives run low",
				 device->name);
	ret = device->control.modify_srq(srq->srq, &attr, IBV_SRQ_LIMIT);
	return ret ? snt__fail(-ret, "%s: a limit of %u receives is refused: %s",
			       device->name, limit, strerror(-ret))
		   : 0;
}

/*
 * Its QPs
 */

static int check_srq_qp(const struct snt_srq *srq, const struct snt_qp_opts *opts)
{
	if (!(opts->flags & SNT_QP_PASS_THROUGH) ||
	    __builtin_popcount(opts->devices) > 1)
		return snt__fail(EINVAL,
				 "a QP with a shared receive queue is a pass-through "
				 "lane: set SNT_QP_PASS_THROUGH, and one device");
	if (opts->adopted_count)
		return snt__fail(EINVAL, "adopted QPs have their own shared receive "
					 "queue, or none; snt_qp_opts.srq is not for "
					 "them");
	if (opts->devices != 1u << srq->device ||
	    (opts->lane_devices && *opts->lane_devices != srq->device))
		return snt__fail(EINVAL,
				 "the shared receive queue is on device %u of the "
				 "context, and the QP is to be on another",
				 srq->device);
	if (opts->recv_cq != srq->cq)
		return snt__fail(EINVAL, "snt_qp_opts.recv_cq is another one than that "
					 "of the shared receive queue");
	return 0;
}

int snt__srq_settle(const struct snt_ctx *ctx, struct snt_qp_opts *opts)
{
	const struct snt_srq *srq = opts->srq;

	if (!srq)
		return 0;
	if (srq->ctx != ctx)
		return snt__fail(EINVAL, "snt_qp_opts.srq is of another context");
	if (!opts->recv_cq)
		opts->recv_cq = srq->cq;
	if (!opts->devices)
		opts->devices = 1u << srq->device;
	return check_srq_qp(srq, opts);
}

/*
 * Receives
 */

static int post_one(struct snt_srq *srq, const struct snt_recv_wr *wr)
{
	struct ibv_sge sge[SNT_SGES_MAX];
	struct snt__srq_slot *slot = srq->free;
	struct ibv_recv_wr physical = { .sg_list = sge, .num_sge = wr->sge_count };
	struct ibv_recv_wr *bad;
	int ret;

	if (srq->failed)
		return snt__fail(ESHUTDOWN,
				 "%s has refused a shared receive before; "
				 "destroy the queue",
				 srq->ctx->device[srq->device]->name);
	if (!slot)
		return snt__fail_later(EAGAIN,
				       "the shared receive queue is full (depth %u); "
				       "poll first",
				       srq->depth, 0);
	ret = snt__recv_fill_sges(srq->ctx, srq->device, srq->sge_max, wr, sge);
	if (ret)
		return ret;
	srq->free = slot->next;
	srq->used++;
	slot->wr_id = wr->wr_id;
	slot->used = true;
	physical.wr_id = snt__wr_id(srq->tag, slot - srq->slot);
	srq->failed = ibv_post_srq_recv(srq->srq, &physical, &bad) != 0;
	return 0;
}

int snt__srq_post_recv(struct snt_srq *srq, const struct snt_recv_wr *wr,
		       unsigned count)
{
	unsigned taken;
	int ret = 0;

	if (!count)
		return snt__fail(EINVAL, "a list of no receives");
	for (taken = 0; taken < count; taken++) {
		ret = post_one(srq, &wr[taken]);
		if (ret)
			break;
	}
	return taken ? (int)taken : ret;
}

int snt_srq_post_recv(struct snt_srq *srq, const struct snt_recv_wr *wr, unsigned count)
{
	if (srq->cq->notify.served)
		return snt__fail(EINVAL, "the shared receive queue reports to a CQ "
					 "with ops; post ops to it");
	return snt__srq_post_recv(srq, wr, count);
}

bool snt__srq_take(struct snt_srq *srq, uint64_t physical_id, uint64_t *wr_id_out)
{
	uint32_t index = snt__wr_id_sequence(physical_id);
	struct snt__srq_slot *slot;

	if (snt__wr_id_tag(physical_id) != srq->tag || index >= srq->depth)
		return false;
	slot = &srq->slot[index];
	if (!slot->used)
		return false;
	*wr_id_out = slot->wr_id;
	slot->used = false;
	slot->next = srq->free;
	srq->free = slot;
	srq->used--;
	return true;
}

/* The WR that it belonged to is no longer known. */
bool snt__srq_take_late(const struct snt_cq *cq, const struct ibv_wc *physical,
			struct snt_wc *wc)
{
	const struct snt__link *list = &cq->srqs;

	for (const struct snt__link *at = list->next; at != list; at = at->next) {
		struct snt_srq *srq = snt__container(at, struct snt_srq, all);
		uint64_t wr_id;

		if (!snt__srq_take(srq, physical->wr_id, &wr_id))
			continue;
		*wc = (struct snt_wc){ .wr_id = wr_id,
				       .status = SNT_WC_FLUSHED,
				       .device = srq->device };
		return true;
	}
	return false;
}

/*
 * Closing
 */

static struct snt__physical *recv_physical(const struct snt_qp *qp)
{
	return &qp->recv_cq->physical[qp->lane->recv_cq_index];
}

void snt__srq_drain(struct snt_qp *qp)
{
	struct snt__physical *physical = recv_physical(qp);

	if (!qp->lane->recv_marker_due || qp->draining)
		return;
	qp->draining = true;
	qp->draining_next = physical->draining;
	physical->draining = qp;
	/* So that the QP is visited by the next poll. */
	snt__cq_ready(qp->recv_cq, &qp->recv_ready);
}

void snt__srq_drained(struct snt__physical *physical)
{
	while (physical->draining) {
		struct snt_qp *qp = physical->draining;

		physical->draining = qp->draining_next;
		qp->draining = false;
		snt__qp_count_marker(qp, &qp->lane->recv_marker_due);
		snt__cq_ready(qp->cq, &qp->send_ready);
	}
}

void snt__srq_leave(struct snt_qp *qp)
{
	struct snt_qp **at;

	qp->srq->qp_count--;
	if (!qp->draining)
		return;
	at = &recv_physical(qp)->draining;
	while (*at != qp)
		at = &(*at)->draining_next;
	*at = qp->draining_next;
}
