/* SPDX-License-Identifier: MIT */
/* Memory windows of type 2. None is invalidated twice, which rxe does not survive. */
#include <errno.h>

#include "kit.h"

/* At FAR, in an MR without remote rights. */
#define WINDOW 4096u
#define RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static bool make_window(struct scene *scene)
{
	int ret = scene->control->alloc_mw
			  ? scene->control->alloc_mw(scene->pd, &scene->mw)
			  : -EOPNOTSUPP;

	if (ret)
		say(scene, "alloc_mw %s", control_name(ret));
	return !ret && make_mr(scene, 1, scene->bytes + FAR, 2 * WINDOW,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
}

static void post_bind(struct scene *scene, unsigned slot, size_t at, uint64_t length,
		      unsigned access)
{
	uint32_t rkey = ibv_inc_rkey(scene->mw->rkey);
	struct send send;

	send_init(scene, &send, IBV_WR_BIND_MW, 0);
	send.wr.num_sge = 0;
	send.wr.imm_data = 0; /* rxe insists */
	send.wr.bind_mw.mw = scene->mw;
	send.wr.bind_mw.rkey = rkey;
	send.wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = scene->mr[1],
		.addr = (uintptr_t)scene->bytes + at,
		.length = length,
		.mw_access_flags = access,
	};
	must_send(scene, slot, &send);
	scene->mw->rkey = rkey;
}

static void post_invalidate(struct scene *scene, unsigned slot)
{
	struct send send;

	send_init(scene, &send, IBV_WR_LOCAL_INV, 0);
	send.wr.num_sge = 0;
	send.wr.invalidate_rkey = scene->mw->rkey;
	must_send(scene, slot, &send);
}

/* A pair, and a window that is bound for B's peer. */
static bool make_bound(struct scene *scene)
{
	if (!make_pair(scene, NULL) || !make_window(scene))
		return false;
	post_bind(scene, B, FAR, WINDOW, RIGHTS);
	say_wcs(scene, B, 1);
	return true;
}

static void use(struct scene *scene, enum ibv_wr_opcode opcode, size_t at,
		uint32_t length)
{
	struct send send;

	send_init(scene, &send, opcode, length);
	send.wr.wr.rdma.remote_addr = (uintptr_t)scene->bytes + at;
	send.wr.wr.rdma.rkey = scene->mw->rkey;
	must_send(scene, A, &send);
}

static void life(struct scene *scene)
{
	if (!make_bound(scene))
		return;
	use(scene, IBV_WR_RDMA_WRITE, FAR, 64);
	use(scene, IBV_WR_RDMA_READ, FAR, 64);
	say_wcs(scene, A, 2);
	say_data(scene, "memory", FAR, 64);
	post_invalidate(scene, B);
	post_bind(scene, B, FAR + 64, 64, RIGHTS);
	say_wcs(scene, B, 2);
	use(scene, IBV_WR_RDMA_WRITE, FAR + 64, 64);
	say_wcs(scene, A, 1);
}

static void stale(struct scene *scene)
{
	if (!make_bound(scene))
		return;
	post_invalidate(scene, B);
	say_wcs(scene, B, 1);
	use(scene, IBV_WR_RDMA_WRITE, FAR, 64);
	say_aftermath(scene, 1, 0);
	say_data(scene, "memory", FAR, 64);
}

static void edges(struct scene *scene)
{
	if (!make_bound(scene))
		return;
	use(scene, IBV_WR_RDMA_WRITE, FAR + WINDOW - 32, 64);
	say_aftermath(scene, 1, 0);
	say_data(scene, "memory", FAR + WINDOW - 32, 64);
}

static void rights(struct scene *scene)
{
	if (!make_pair(scene, NULL) || !make_window(scene))
		return;
	post_bind(scene, B, FAR, WINDOW, IBV_ACCESS_REMOTE_READ);
	say_wcs(scene, B, 1);
	use(scene, IBV_WR_RDMA_READ, FAR, 64);
	say_wcs(scene, A, 1);
	use(scene, IBV_WR_RDMA_WRITE, FAR, 64);
	say_aftermath(scene, 1, 0);
}

/* Bound for A's peer, which is B; used by A. */
static void other_qp(struct scene *scene)
{
	if (!make_pair(scene, NULL) || !make_window(scene))
		return;
	post_bind(scene, A, FAR, WINDOW, RIGHTS);
	say_wcs(scene, A, 1);
	use(scene, IBV_WR_RDMA_WRITE, FAR, 64);
	say_aftermath(scene, 1, 0);
	say_data(scene, "memory", FAR, 64);
}

static void bad_bind(struct scene *scene, uint64_t length, unsigned access)
{
	if (!make_pair(scene, NULL) || !make_window(scene))
		return;
	post_bind(scene, B, FAR, length, access);
	say_aftermath(scene, 0, 1);
}

static void bind_beyond(struct scene *scene)
{
	bad_bind(scene, 2 * WINDOW + 1, RIGHTS);
}

static void bind_nothing(struct scene *scene)
{
	bad_bind(scene, 0, RIGHTS);
}

static void bound_twice(struct scene *scene)
{
	if (!make_bound(scene))
		return;
	post_bind(scene, B, FAR, 64, RIGHTS);
	say_aftermath(scene, 0, 1);
}

static void busy_mr(struct scene *scene)
{
	if (!make_bound(scene))
		return;
	say(scene, "dereg_mr %s", control_name(drop_mr(scene, 1)));
	post_invalidate(scene, B);
	say_wcs(scene, B, 1);
	say(scene, "then %s", control_name(drop_mr(scene, 1)));
}

static void send_inv(struct scene *scene, uint32_t rkey)
{
	struct send send;
	struct ibv_wc wc;

	do_recv(scene, B, 64);
	send_init(scene, &send, IBV_WR_SEND_WITH_INV, 64);
	send.wr.invalidate_rkey = rkey;
	must_send(scene, A, &send);
	say_wcs(scene, A, 1);
	if (wait_wcs(scene, B, &wc, 1) != 1)
		return;
	say_list(scene, "B", &wc, 1);
	if (wc.status == IBV_WC_SUCCESS)
		say_more(scene, wc.wc_flags & IBV_WC_WITH_INV ? "with the key"
							      : "without a key");
}

static void peer_invalidates(struct scene *scene)
{
	if (!make_bound(scene))
		return;
	send_inv(scene, scene->mw->rkey);
	use(scene, IBV_WR_RDMA_WRITE, FAR, 64);
	say_aftermath(scene, 1, 0);
}

static void peer_invalidates_mr(struct scene *scene)
{
	if (!make_bound(scene))
		return;
	send_inv(scene, scene->mr[0]->rkey);
	say_states(scene);
}

static void type_1(struct scene *scene)
{
	struct ibv_mw *mw = ibv_alloc_mw(scene->pd, IBV_MW_TYPE_1);

	say(scene, "alloc_mw %s", verb_name(mw ? 0 : errno));
	if (mw)
		ibv_dealloc_mw(mw);
}

const struct conformance_case cases_window[] = {
	{ "window", "binds, uses, invalidates and binds again", life },
	{ "window-stale", "WRITE by the key of an invalidated window", stale },
	{ "window-edges", "WRITE that ends 32 bytes behind the window", edges },
	{ "window-rights", "WRITE to a window for READs", rights },
	{ "window-other-qp", "WRITE to a window that is bound to another QP",
	  other_qp },
	{ "window-beyond", "binds to a byte more than the region has", bind_beyond },
	{ "window-empty", "binds to no bytes", bind_nothing },
	{ "window-bound-twice", "binds a window that is bound", bound_twice },
	{ "window-busy-mr", "deregisters a region to which a window is bound",
	  busy_mr },
	{ "window-send-inv", "SEND that invalidates the window, then WRITE to it",
	  peer_invalidates },
	{ "window-send-inv-mr", "SEND that invalidates a region's key",
	  peer_invalidates_mr },
	{ "window-type-1", "allocates a window of type 1", type_1 },
	{ 0 },
};
