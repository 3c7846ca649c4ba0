/* SPDX-License-Identifier: MIT */
#include "dev/soft/window.h"

#include <errno.h>

#include "dev/soft/core.h"
#include "dev/soft/qp.h"

#define RIGHTS \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct soft_mw {
	struct ibv_mw ibv;
	uint32_t slot;
};

/*
 * Creating and destroying
 */

int snt__soft_alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw_out)
{
	static const struct snt__soft_region unbound = {
		.kind = SNT__SOFT_REGION_WINDOW,
	};
	struct snt__soft_device *device = snt__soft_device_of(pd->context);
	struct soft_mw *mw = snt__soft_alloc(1, sizeof(*mw));
	int err;

	if (!mw)
		return -ENOMEM;
	mw->ibv.context = pd->context;
	mw->ibv.pd = pd;
	mw->ibv.type = IBV_MW_TYPE_2;
	snt__soft_lock(device);
	err = snt__soft_region_enter(device, &unbound, &mw->slot);
	if (!err) {
		mw->ibv.rkey = device->memory.regions[mw->slot].rkey;
		snt__soft_pd(pd)->users++;
	}
	snt__soft_unlock(device);
	if (err) {
		snt__soft_free(mw);
		return err;
	}
	*mw_out = &mw->ibv;
	return 0;
}

int snt__soft_alloc_mw_type(struct ibv_pd *pd, enum ibv_mw_type type,
			    struct ibv_mw **mw_out)
{
	return type == IBV_MW_TYPE_2 ? snt__soft_alloc_mw(pd, mw_out) : -EOPNOTSUPP;
}

static void unbind_window(struct snt__soft_device *device,
			  struct snt__soft_region *window)
{
	struct snt__soft_memory *memory = &device->memory;

	memory->regions[window->parent].windows--;
	snt__soft_qp_find(device, window->qpn)->windows--;
	window->pd = NULL;
	window->qpn = 0;
}

int snt__soft_dealloc_mw(struct ibv_mw *ibv_mw)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_mw->context);
	struct soft_mw *mw = snt__container(ibv_mw, struct soft_mw, ibv);
	struct snt__soft_region *window = &device->memory.regions[mw->slot];

	snt__soft_lock(device);
	if (window->pd)
		unbind_window(device, window);
	snt__soft_region_leave(device, mw->slot, ibv_mw->pd);
	snt__soft_unlock(device);
	snt__soft_free(mw);
	return 0;
}

void snt__soft_windows_unbind(struct snt__soft_qp *qp)
{
	struct snt__soft_memory *memory = &qp->device->memory;

	for (uint32_t slot = 0; qp->windows; slot++) {
		struct snt__soft_region *region = &memory->regions[slot];

		if (region->pd && region->qpn == qp->ibv.qp_num)
			unbind_window(qp->device, region);
	}
}

/*
 * Binding
 */

static bool is_window(const struct snt__soft_region *region, uint32_t rkey)
{
	return region->kind == SNT__SOFT_REGION_WINDOW &&
	       region->rkey >> SNT__SOFT_KEY_SHIFT == rkey >> SNT__SOFT_KEY_SHIFT;
}

bool snt__soft_bind_valid(const struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	const struct ibv_mw *mw = wr->bind_mw.mw;

	return mw && mw->type == IBV_MW_TYPE_2 && mw->pd == qp->pd && info->mr &&
	       info->mr->pd == qp->pd && !(info->mw_access_flags & ~RIGHTS) &&
	       wr->bind_mw.rkey >> SNT__SOFT_KEY_SHIFT ==
		       mw->rkey >> SNT__SOFT_KEY_SHIFT;
}

/* A window that is bound must be invalidated first, and the key must be another one: the
 * peer may know the last. */
bool snt__soft_window_bind(struct snt__soft_qp *qp, const struct snt__soft_send *send)
{
	struct snt__soft_memory *memory = &qp->device->memory;
	struct snt__soft_region *window = snt__soft_region_of(memory, send->rkey);
	unsigned needed = IBV_ACCESS_MW_BIND;
	uint8_t *bytes;

	if (send->bind.access & ~(unsigned)IBV_ACCESS_REMOTE_READ)
		needed |= IBV_ACCESS_LOCAL_WRITE;
	if (!is_window(window, send->rkey) || window->pd ||
	    window->rkey == send->rkey || !send->bind.length)
		return false;
	bytes = snt__soft_local(memory, qp->ibv.pd, send->bind.lkey, send->remote_addr,
				send->bind.length, needed);
	if (!bytes)
		return false;
	window->pd = qp->ibv.pd;
	window->addr = send->remote_addr;
	window->length = send->bind.length;
	window->bytes = bytes;
	window->rkey = send->rkey;
	window->access = send->bind.access;
	window->qpn = qp->ibv.qp_num;
	window->parent = send->bind.lkey >> SNT__SOFT_KEY_SHIFT & memory->mask;
	memory->regions[window->parent].windows++;
	qp->windows++;
	return true;
}

/* An MR belongs to no QP, so that it cannot be invalidated. */
bool snt__soft_window_bound(const struct snt__soft_qp *qp, uint32_t rkey)
{
	const struct snt__soft_region *window =
		snt__soft_region_of(&qp->device->memory, rkey);

	return window->rkey == rkey && window->pd == qp->ibv.pd &&
	       window->qpn == qp->ibv.qp_num;
}

bool snt__soft_window_invalidate(struct snt__soft_qp *qp, uint32_t rkey)
{
	if (!snt__soft_window_bound(qp, rkey))
		return false;
	unbind_window(qp->device, snt__soft_region_of(&qp->device->memory, rkey));
	return true;
}
