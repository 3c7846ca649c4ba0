/* SPDX-License-Identifier: MIT */
/*
 * Memory windows. Each WR is posted by itself: devices read a window's key from the
 * window when they are given the WR, and each bind changes it.
 */
#include "vqp/mw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"
#include "vqp/check.h"
#include "vqp/passthrough.h"
#include "vqp/refusal.h"

#define TYPE_2 (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)
#define RIGHTS \
	(SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | SNT_ACCESS_REMOTE_ATOMIC)
#define FLAGS_KNOWN (SNT_SEND_SIGNALED | SNT_SEND_FENCE)

struct snt_mw {
	struct ibv_mw *mw;
	struct snt_ctx *ctx;
	struct snt_token token; /* as it was bound last */
	uint8_t device;
	bool bound; /* ever */
};

/*
 * Creating and destroying
 */

static int check_window_device(const struct snt_ctx *ctx, unsigned device)
{
	if (device >= ctx->device_count)
		return snt__fail(EINVAL, "a memory window on device %u of %u", device,
				 ctx->device_count);
	if (!(snt__port(ctx->device[device])->cap_flags & TYPE_2) ||
	    !ctx->device[device]->control.alloc_mw ||
	    !ctx->device[device]->control.dealloc_mw)
		return snt__fail(EOPNOTSUPP, "%s has no memory windows of type 2",
				 ctx->device[device]->name);
	return 0;
}

int snt_mw_alloc(struct snt_ctx *ctx, unsigned device, struct snt_mw **mw_out)
{
	struct snt_mw *mw;
	int ret = check_window_device(ctx, device);

	if (ret)
		return ret;
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return snt__fail(ENOMEM, "no memory for a memory window");
	ret = ctx->device[device]->control.alloc_mw(ctx->device[device]->pd, &mw->mw);
	if (ret) {
		free(mw);
		return snt__fail(-ret, "%s: no memory window: %s",
				 ctx->device[device]->name, strerror(-ret));
	}
	mw->ctx = ctx;
	mw->device = device;
	*mw_out = mw;
	return 0;
}

int snt_mw_free(struct snt_mw *mw)
{
	const struct snt_device *device;
	int ret;

	if (!mw)
		return 0;
	device = mw->ctx->device[mw->device];
	ret = device->control.dealloc_mw(mw->mw);
	if (ret)
		return snt__fail(-ret, "%s: a memory window cannot be freed: %s",
				 device->name, strerror(-ret));
	free(mw);
	return 0;
}

int snt_mw_token(const struct snt_mw *mw, struct snt_token *token_out)
{
	if (!mw->bound)
		return snt__fail(ENOENT, "the memory window was never bound");
	*token_out = mw->token;
	return 0;
}

/*
 * Posting
 */

static int check_window_qp(const struct snt_qp *qp)
{
	if (!qp->pass_through)
		return snt__fail(EINVAL,
				 "QP %u is not a pass-through lane, which memory "
				 "windows need; create it with SNT_QP_PASS_THROUGH",
				 qp->num);
	return qp->refusal ? snt__qp_refusal(qp, qp->refusal) : 0;
}

static int check_flags(const struct snt_qp *qp, unsigned flags)
{
	if (flags & ~FLAGS_KNOWN)
		return snt__fail(EINVAL, "QP %u: unknown flags 0x%x", qp->num,
				 flags & ~FLAGS_KNOWN);
	return 0;
}

static int check_mw(const struct snt_qp *qp, const struct snt_mw *mw, unsigned flags)
{
	int ret = check_window_qp(qp);

	if (ret)
		return ret;
	if (mw->ctx != qp->ctx || mw->device != qp->lane->device)
		return snt__fail(EINVAL,
				 "the memory window is on another device than QP %u",
				 qp->num);
	return check_flags(qp, flags);
}

static int check_window_range(const struct snt_qp *qp, const struct snt_sge *range,
			      unsigned access)
{
	const struct snt_mem *mem = range->mem;

	if (!mem || mem->ctx != qp->ctx)
		return snt__fail(EINVAL, "QP %u: the range to bind has %s", qp->num,
				 snt__foreign_mem_text(mem));
	if (!access || access & ~RIGHTS)
		return snt__fail(
			EINVAL,
			"QP %u: 0x%x is not a set of rights for a memory window",
			qp->num, access);
	if (!range->length ||
	    !snt__mem_holds(mem, (uintptr_t)range->addr, range->length))
		return snt__fail(ERANGE,
				 "QP %u: the range to bind (%llu bytes at %p) is %s",
				 qp->num, (unsigned long long)range->length,
				 range->addr,
				 range->length ? "outside of its memory" : "empty");
	if (!(mem->access & SNT_ACCESS_WINDOW))
		return snt__fail(EACCES,
				 "QP %u: the memory is registered without "
				 "SNT_ACCESS_WINDOW",
				 qp->num);
	if (access & ~SNT_ACCESS_REMOTE_READ && !(mem->access & SNT_ACCESS_LOCAL_WRITE))
		return snt__fail(
			EACCES,
			"QP %u: a window for writing needs memory registered with "
			"SNT_ACCESS_LOCAL_WRITE",
			qp->num);
	return 0;
}

/* Only one key is of use: that of the window's device. */
static struct snt_token token_of(const struct snt_mw *mw, const struct snt_sge *range,
				 unsigned access, uint32_t key)
{
	struct snt_token token = { .addr = (uintptr_t)range->addr,
				   .length = range->length,
				   .access = access,
				   .key_count = mw->ctx->device_count };

	token.key[mw->device] = key;
	return token;
}

/* The lowest byte of a key is chosen by the consumer. */
static uint32_t next_key(uint32_t key)
{
	return (key & ~0xffu) | ((key + 1) & 0xff);
}

int snt__mw_bind(struct snt_qp *qp, struct snt_mw *mw, const struct snt_sge *range,
		 unsigned access, uint64_t wr_id, unsigned flags)
{
	uint32_t key = next_key(mw->mw->rkey);
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = flags,
		.bind_mw = { .mw = mw->mw, .rkey = key },
	};
	int ret = check_mw(qp, mw, flags);

	if (!ret)
		ret = check_window_range(qp, range, access);
	if (ret)
		return ret;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = range->mem->mr[mw->device],
		.addr = (uintptr_t)range->addr,
		.length = range->length,
		.mw_access_flags = access,
	};
	ret = snt__passthrough_post_one(qp, &wr);
	if (ret)
		return ret;
	mw->mw->rkey = key;
	mw->token = token_of(mw, range, access, key);
	mw->bound = true;
	return 0;
}

int snt__mw_invalidate(struct snt_qp *qp, struct snt_mw *mw, uint64_t wr_id,
		       unsigned flags)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = flags,
		.invalidate_rkey = mw->mw->rkey,
	};
	int ret = check_mw(qp, mw, flags);

	if (!ret && !mw->bound)
		ret = snt__fail(ENOENT, "the memory window was never bound");
	return ret ? ret : snt__passthrough_post_one(qp, &wr);
}

static int check_send(const struct snt_qp *qp, const struct snt_token *window)
{
	const struct snt_device *device = qp->ctx->device[qp->lane->device];
	int ret = check_window_qp(qp);

	if (ret)
		return ret;
	if (!(snt__port(device)->cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS))
		return snt__fail(EOPNOTSUPP,
				 "%s cannot send messages that invalidate a key",
				 device->name);
	return snt__token_fault(qp, window);
}

int snt__mw_send_inv(struct snt_qp *qp, const struct snt_sge *sge, unsigned sge_count,
		     const struct snt_token *window, uint64_t wr_id, unsigned flags)
{
	struct snt_send_wr send = { .wr_id = wr_id,
				    .opcode = SNT_OP_SEND,
				    .flags = flags,
				    .sge_count = sge_count,
				    .sge = sge };
	struct ibv_sge sges[SNT_SGES_MAX];
	struct ibv_send_wr wr = { .sg_list = sges };
	int ret = check_send(qp, window);

	/* Values too large for the WR's fields would be truncated silently. */
	if (!ret && (sge_count > UINT16_MAX || flags > UINT8_MAX))
		ret = snt__fail(EINVAL, "QP %u: %u SGEs or flags 0x%x", qp->num,
				sge_count, flags);
	if (!ret)
		ret = snt__passthrough_build(qp, &send, &wr);
	if (ret)
		return ret;
	wr.wr_id = wr_id;
	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.invalidate_rkey = window->key[qp->lane->remote_device];
	return snt__passthrough_post_one(qp, &wr);
}

int snt_mw_bind(struct snt_qp *qp, struct snt_mw *mw, const struct snt_sge *range,
		unsigned access, uint64_t wr_id, unsigned flags)
{
	return qp->send_served ? snt__qp_wants_ops(qp)
			       : snt__mw_bind(qp, mw, range, access, wr_id, flags);
}

int snt_mw_invalidate(struct snt_qp *qp, struct snt_mw *mw, uint64_t wr_id,
		      unsigned flags)
{
	return qp->send_served ? snt__qp_wants_ops(qp)
			       : snt__mw_invalidate(qp, mw, wr_id, flags);
}

int snt_mw_send_inv(struct snt_qp *qp, const struct snt_sge *sge, unsigned sge_count,
		    const struct snt_token *window, uint64_t wr_id, unsigned flags)
{
	return qp->send_served
		       ? snt__qp_wants_ops(qp)
		       : snt__mw_send_inv(qp, sge, sge_count, window, wr_id, flags);
}
