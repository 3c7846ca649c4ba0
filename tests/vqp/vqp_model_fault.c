/* SPDX-License-Identifier: MIT */
#include "vqp_model.h"

#include <errno.h>
#include <stdio.h>

/* Of all links but those that have a raider: it has its own ways. */
static struct link *pick_link(struct world *world)
{
	struct link *link = &world->link[dice(world, world->links)];

	return link->hostile ? &world->link[0] : link;
}

static void expect_fault(struct link *link)
{
	link->faulty = true;
	link->other_faults++;
	link->only_status = 0;
}

static enum ibv_wc_status choose_status(struct world *world)
{
	static const enum ibv_wc_status statuses[] = {
		IBV_WC_RETRY_EXC_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR,
		IBV_WC_REM_OP_ERR,    IBV_WC_FATAL_ERR,
	};

	return statuses[dice(world, 5)];
}

static int fail_completion(struct link *link)
{
	struct world *world = link->world;
	enum ibv_wc_status status = choose_status(world);
	unsigned end = dice(world, 2), lane = dice(world, link->end[end].lanes);
	struct ibv_qp *qp = link->end[end].lane[lane];
	struct scripted_send send;
	int owner;

	while (chance(world, 50) && !scripted_land(qp))
		if (check_effects(world))
			return -1;
	if (scripted_peek(qp, 0, &send))
		return 0;
	owner = owner_of(link, end, &send);
	link->faulty = true;
	link->only_status = 0;
	link->injected++;
	/* What follows from it may be seen before it, on another CQ: receives that
	 * are flushed and, in DQPLB or of a notify lane, the peer ending others. */
	if (owner >= 0 && qp->send_cq == qp->recv_cq && !is_sequenced(link) &&
	    lane < link->end[end].opts.lanes)
		link->end[end].send[owner].injected = status;
	if (world->trace)
		printf("# link %u, end %u: WR %d is made to fail with %d\n",
		       link->index, end, owner, status);
	scripted_complete(qp, status);
	return 0;
}

/* The receive that is next on a lane; NULL: one that the library posted by itself. A
 * receive of the program lies on each lane of its class, in the order of posting. */
static struct recv *next_recv(struct link *link, struct end *here, unsigned lane)
{
	unsigned pending = scripted_recv_pending(here->lane[lane]);
	bool notifies = !link->pass && lane >= here->opts.lanes && !is_sequenced(link);
	bool data = !notifies;

	if (is_sequenced(link) && lane < here->opts.lanes)
		return NULL;
	if (!pending || pending > (unsigned)here->class_posted[data])
		return NULL;
	return &here->recv[here->class_order[data][here->class_posted[data] - pending]];
}

/* Do all its lanes report to one CQ, so that what comes first is seen first? */
static bool has_one_cq(const struct end *here)
{
	for (unsigned i = 0; i < here->lanes; i++)
		if (here->lane[i]->send_cq != here->lane[0]->send_cq ||
		    here->lane[i]->recv_cq != here->lane[0]->send_cq)
			return false;
	return true;
}

/* A receive fails, and with it its lane. */
static int fail_recv(struct link *link)
{
	struct world *world = link->world;
	enum ibv_wc_status status = choose_status(world);
	unsigned end = dice(world, 2);
	struct end *here = &link->end[end];
	unsigned lane = dice(world, here->lanes);
	struct recv *recv = next_recv(link, here, lane);

	if (scripted_fail_recv(here->lane[lane], status))
		return 0;
	link->only_status = link->faulty || !has_one_cq(here) ? 0 : (int)status;
	link->only_end = end;
	link->faulty = true;
	link->other_faults++;
	link->recvs_injected++;
	if (recv)
		recv->injected = status;
	if (world->trace)
		printf("# link %u, end %u: a receive of lane %u is made to fail with %d\n",
		       link->index, end, lane, status);
	return 0;
}

static int fail_post(struct world *world)
{
	static const int errors[] = { ENOMEM, EIO, EINVAL };
	unsigned index = dice(world, 2), device;
	struct host *host = &world->host[index];
	struct link *link = chance(world, 50) ? pick_link(world) : NULL;
	struct scripted_post_fault fault = {
		.kind = chance(world, 75) ? SCRIPTED_POST_SEND : SCRIPTED_POST_RECV,
		.nth = 1 + dice(world, 5),
		.error = errors[dice(world, 3)],
		.mode = dice(world, 4),
		.accept = dice(world, 4),
	};

	device = dice(world, host->devices);
	if (host->post_faults[device] == 6)
		return 0;
	host->post_faults[device]++;
	for (unsigned i = 0; i < world->links; i++)
		if (!link || link == &world->link[i]) {
			expect_fault(&world->link[i]);
			world->link[i].recvs_refused +=
				fault.kind == SCRIPTED_POST_RECV;
		}
	if (link)
		fault.qp = link->end[index].lane[dice(world, link->end[index].lanes)];
	if (world->trace)
		printf("# host %u: device %u fails %s of %s, mode %u\n", index, device,
		       fault.kind == SCRIPTED_POST_SEND ? "sends" : "receives",
		       link ? "one lane" : "all", fault.mode);
	scripted_fail_post(host->device[device], &fault);
	return 0;
}

/* A QP goes to ERR by itself, as when its peer or its port is gone. */
static int fail_lane(struct link *link)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	unsigned end = dice(link->world, 2);
	struct end *here = &link->end[end];

	expect_fault(link);
	if (link->world->trace)
		printf("# link %u, end %u: a lane goes to ERR\n", link->index, end);
	scripted_adopted(here->host->device[0])
		.control->modify_qp(here->lane[dice(link->world, here->lanes)], &attr,
				    IBV_QP_STATE);
	return 0;
}

int harm(struct world *world)
{
	uint32_t what = dice(world, 24);
	struct link *link = pick_link(world);

	if (what < 8)
		return fail_completion(link);
	if (what < 15)
		return fail_post(world);
	if (what < 17)
		return fail_lane(link);
	if (what < 21)
		return fail_recv(link);
	expect_fault(link);
	return end_close(link, dice(world, 2), link->faulty);
}

/*
 * Slow rather than broken: legal at any time
 */

static void hinder_cq(struct world *world, struct ibv_cq *cq, bool off)
{
	scripted_hold_cq(cq, !off && chance(world, 15));
	scripted_poll_limit(cq, off ? 0 : dice(world, 3));
}

static void hinder_end(struct world *world, struct end *end, bool off)
{
	for (unsigned i = 0; end->qp && i < end->lanes; i++) {
		hinder_cq(world, end->lane[i]->send_cq, off);
		hinder_cq(world, end->lane[i]->recv_cq, off);
	}
}

static void hinder_all(struct world *world, bool off)
{
	for (unsigned i = 0; i < world->links; i++)
		for (unsigned end = 0; end < 2; end++)
			hinder_end(world, &world->link[i].end[end], off);
}

/* All CQs a little, or one so much that it falls behind all others. */
void hinder(struct world *world, bool off)
{
	struct link *link = pick_link(world);
	struct end *end = &link->end[dice(world, 2)];
	struct ibv_qp *lane = end->lane[dice(world, end->lanes)];

	if (off || chance(world, 50)) {
		hinder_all(world, off);
		return;
	}
	hinder_all(world, true);
	scripted_hold_cq(chance(world, 70) ? lane->recv_cq : lane->send_cq, true);
}
