/* SPDX-License-Identifier: MIT */
/* Creating and destroying virtual CQs. */
#include "vqp/cq_create.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "dev/ctx.h"
#include "util/err.h"
#include "util/lines.h"
#include "util/opts.h"
#include "vqp/cq_physical.h"
#include "vqp/cq_poll.h"
#include "vqp/loop_base.h"

#define DEPTH_DEFAULT	   4096
#define PER_DEVICE_DEFAULT 16

static atomic_uint cqs_made;

static int check_cq_depth(struct snt_cq *cq, const struct snt_cq_opts *opts)
{
	cq->depth = opts->depth ? opts->depth : DEPTH_DEFAULT;
	for (unsigned i = 0; i < cq->ctx->device_count; i++) {
		const struct snt_device_info *info =
			&snt__port(cq->ctx->device[i])->info;

		if (!info->cq_depth_max || cq->depth <= info->cq_depth_max)
			continue;
		if (opts->depth)
			return snt__fail(EINVAL,
					 "%s: CQs have at most %u entries, not %u",
					 cq->ctx->device[i]->name, info->cq_depth_max,
					 opts->depth);
		cq->depth = info->cq_depth_max;
	}
	return 0;
}

/* A number of 0 is not known. */
static int check_vector(struct snt_cq *cq, const struct snt_cq_opts *opts)
{
	cq->comp_vector = opts->comp_vector;
	for (unsigned i = 0; i < cq->ctx->device_count; i++) {
		uint32_t count = snt__port(cq->ctx->device[i])->info.comp_vector_count;

		if (opts->comp_vector > INT_MAX ||
		    (count && opts->comp_vector >= count))
			return snt__fail(
				EINVAL,
				"%s: snt_cq_opts.comp_vector is %u; the device "
				"has %u, numbered from 0",
				cq->ctx->device[i]->name, opts->comp_vector, count);
	}
	return 0;
}

static int check_notify(struct snt_cq *cq, const struct snt_cq_opts *opts)
{
	if (opts->ops > SNT_CQ_OPS_POLLED)
		return snt__fail(EINVAL,
				 "snt_cq_opts.ops is %u, which is not one of its "
				 "values",
				 opts->ops);
	if (opts->ops && !opts->loop)
		return snt__fail(EINVAL, "a CQ with ops (snt_cq_opts.ops) needs a "
					 "loop (snt_cq_opts.loop)");
	if (opts->loop && snt__loop_base(opts->loop)->ctx != cq->ctx)
		return snt__fail(EINVAL, "snt_cq_opts.loop is of another context");
	cq->loop = opts->loop;
	cq->notify.events = opts->loop && opts->ops != SNT_CQ_OPS_POLLED;
	cq->notify.served = opts->ops;
	if (cq->notify.events && opts->adopted)
		return snt__fail(EINVAL, "adopted CQs cannot wake a loop: they have "
					 "channels of their own, or none");
	return 0;
}

static int set_up_cq(struct snt_cq *cq, const struct snt_cq_opts *opts)
{
	uint32_t per_device = opts->per_device ? opts->per_device : PER_DEVICE_DEFAULT;
	int ret = check_cq_depth(cq, opts);

	if (!ret)
		ret = check_vector(cq, opts);
	if (!ret)
		ret = check_notify(cq, opts);
	if (ret)
		return ret;
	if (per_device > SNT_CQ_PER_DEVICE_MAX)
		return snt__fail(EINVAL,
				 "snt_cq_opts.per_device is %u; it must be at most %d",
				 per_device, SNT_CQ_PER_DEVICE_MAX);
	cq->adopted = opts->adopted != NULL;
	cq->physical_max = per_device * cq->ctx->device_count;
	cq->physical = snt__lines_alloc(cq->physical_max, sizeof(*cq->physical));
	if (!cq->physical)
		return snt__fail(ENOMEM, "no memory for a virtual CQ");
	for (unsigned i = 0; opts->adopted && i < cq->ctx->device_count; i++) {
		if (!opts->adopted[i])
			return snt__fail(EINVAL, "%s: its adopted CQ is NULL",
					 cq->ctx->device[i]->name);
		ret = snt__cq_add_physical(cq, i, opts->adopted[i]);
		if (ret)
			return ret;
	}
	return snt__route_init(&cq->route);
}

int snt_cq_create(struct snt_ctx *ctx, const struct snt_cq_opts *user_opts,
		  struct snt_cq **cq_out)
{
	struct snt_cq_opts opts;
	struct snt_cq *cq;
	int ret = snt__ctx_check(ctx);

	if (!ret)
		ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				       "struct snt_cq_opts");
	if (ret)
		return ret;
	cq = snt__lines_alloc(1, sizeof(*cq));
	if (!cq)
		return snt__fail(ENOMEM, "no memory for a virtual CQ");
	cq->ctx = ctx;
	cq->num = 1 + atomic_fetch_add(&cqs_made, 1);
	cq->front.batch = cq->batch;
	cq->front.batch_max = SNT__BATCH;
	cq->front.take = snt__cq_take_first;
	cq->front.poll_all = snt__cq_poll_slowly;
	cq->ready_end = &cq->front.ready;
	snt__list_init(&cq->srqs);
	ret = set_up_cq(cq, &opts);
	if (ret) {
		snt__cq_free_physical(cq);
		free(cq);
		return ret;
	}
	if (cq->loop)
		snt__list_append(cq->notify.events
					 ? &snt__loop_base(cq->loop)->event_cqs
					 : &snt__loop_base(cq->loop)->polled_cqs,
				 &cq->notify.all);
	snt__ctx_add(ctx, SNT__CTX_CQS, 1);
	*cq_out = cq;
	return 0;
}

static int finish_cq(struct snt_cq *cq)
{
	int ret = snt__cq_free_physical(cq);

	if (ret)
		return ret;
	snt__unlink(&cq->notify.all);
	snt__unlink(&cq->notify.pending);
	if (cq->notify.gone)
		*cq->notify.gone = true;
	snt__route_finish(&cq->route);
	snt__ctx_add(cq->ctx, SNT__CTX_CQS, -1);
	free(cq);
	return 0;
}

int snt_cq_destroy(struct snt_cq *cq)
{
	if (!cq)
		return 0;
	if (cq->qp_count)
		return snt__fail(EBUSY, "%u %s to this CQ; destroy %s first",
				 cq->qp_count,
				 cq->qp_count == 1 ? "QP reports" : "QPs report",
				 cq->qp_count == 1 ? "it" : "them");
	if (!snt__list_empty(&cq->srqs))
		return snt__fail(EBUSY, "shared receive queues report to this CQ; "
					"destroy them first");
	/* Lanes that could not be destroyed hold on to their physical CQs. */
	snt__deferred_releases_try(cq->ctx, cq);
	return finish_cq(cq);
}

static int release_deferred_cq(void *owner)
{
	return finish_cq(owner);
}

void snt__cq_abandon(struct snt_cq *cq)
{
	struct snt__err_kept kept;
	struct snt_ctx *ctx = cq->ctx;

	snt__err_keep(&kept);
	cq->deferred.home[0] = cq->loop;
	if (snt_cq_destroy(cq))
		snt__deferred_release_add(ctx, &cq->deferred, release_deferred_cq, cq);
	snt__err_restore(&kept);
}
