/* SPDX-License-Identifier: MIT */
/*
 * Random sequences of operations on two virtual QPs, judged by the contract in
 * qp.h. Even seeds run without faults: there everything has to succeed. In odd
 * ones lanes fail, devices refuse posts, CQs are held back and ends are closed.
 */
#include "vqp_model.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Polls may take in a lot before they have something to report. */
#define ROUNDS_IDLE 200
#define SECONDS_MAX 20 /* for one seed; it takes less than a millisecond */

/*
 * Polls and steps
 */

struct sink {
	struct world *world;
	unsigned end;
	int ret;
};

static void sink_one(void *arg, const struct snt_wc *wc)
{
	struct sink *sink = arg;

	if (!sink->ret)
		sink->ret = check_completion(sink->world, sink->end, wc);
}

/* Returns how many there were, or -1. */
static int poll_end(struct world *world, unsigned end)
{
	struct end *here = &world->end[end];
	struct snt_cq *cq =
		here->recv_cq && chance(world, 50) ? here->recv_cq : here->cq;
	int width = 1 + dice(world, WIDTH_MAX), count;
	struct sink sink = { world, end, 0 };
	struct snt_wc wc[WIDTH_MAX];
	uint32_t kind = dice(world, 8);

	if (kind == 0) {
		count = snt_cq_poll_each(cq, width, sink_one, &sink);
		if (sink.ret)
			return -1;
	} else if (kind == 1) {
		count = snt_cq_poll_index(cq, dice(world, snt_cq_count(cq)), wc, width);
	} else {
		count = snt_cq_poll(cq, wc, width);
	}
	if (world->trace)
		printf("# end %u: poll %s kind %u width %d: %d\n", end,
		       cq == here->cq ? "cq" : "recv_cq", kind, width, count);
	if (count < 0 || count > width)
		return wrong(world, "end %u: a poll of %d returned %d", end, width,
			     count);
	for (int i = 0; kind && i < count; i++)
		if (check_completion(world, end, &wc[i]))
			return -1;
	return count;
}

/* Returns how many steps there were, or -1. */
static int step(struct world *world, unsigned most)
{
	unsigned count = 0;

	while (count < most && scripted_step(world->fabric, &world->random)) {
		count++;
		if (check_effects(world))
			return -1;
	}
	return count;
}

/*
 * Faults
 */

static struct ibv_qp *pick_lane(struct world *world, unsigned *end)
{
	*end = dice(world, 2);
	return world->end[*end].lane[dice(world, world->end[*end].lanes)];
}

static int fail_completion(struct world *world)
{
	static const enum ibv_wc_status statuses[] = {
		IBV_WC_RETRY_EXC_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR,
		IBV_WC_REM_OP_ERR,    IBV_WC_FATAL_ERR,
	};
	enum ibv_wc_status status = statuses[dice(world, 5)];
	struct scripted_send send;
	unsigned end;
	struct ibv_qp *qp = pick_lane(world, &end);
	int owner;

	while (chance(world, 50) && !scripted_land(qp))
		if (check_effects(world))
			return -1;
	if (scripted_peek(qp, 0, &send))
		return 0;
	owner = owner_of(world, end, &send);
	world->faulty = true;
	world->injected++;
	/* What follows from it may be seen before it, on another CQ: receives that
	 * are flushed and, in DQPLB, the peer breaking as well. */
	if (owner >= 0 && qp->send_cq == qp->recv_cq && world->scheme == SNT_SPRAY)
		world->end[end].send[owner].injected = status;
	if (world->trace)
		printf("# end %u: WR %d is made to fail with %d\n", end, owner, status);
	scripted_complete(qp, status);
	return 0;
}

static int fail_post(struct world *world)
{
	static const int errors[] = { ENOMEM, EIO, EINVAL };
	unsigned index = dice(world, 2), device;
	struct end *end = &world->end[index];
	struct scripted_post_fault fault = {
		.kind = chance(world, 75) ? SCRIPTED_POST_SEND : SCRIPTED_POST_RECV,
		.nth = 1 + dice(world, 5),
		.error = errors[dice(world, 3)],
		.mode = dice(world, 4),
		.accept = dice(world, 4),
	};

	device = dice(world, end->devices);
	if (end->post_faults[device] == 6)
		return 0;
	end->post_faults[device]++;
	world->faulty = true;
	world->other_faults++;
	if (chance(world, 50))
		fault.qp = end->lane[dice(world, end->lanes)];
	if (world->trace)
		printf("# end %u: device %u fails %s, mode %u\n", index, device,
		       fault.kind == SCRIPTED_POST_SEND ? "sends" : "receives",
		       fault.mode);
	scripted_fail_post(end->device[device], &fault);
	return 0;
}

/* A QP goes to ERR by itself, as when its peer or its port is gone. */
static int fail_lane(struct world *world)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	unsigned end;
	struct ibv_qp *qp = pick_lane(world, &end);

	world->faulty = true;
	world->other_faults++;
	if (world->trace)
		printf("# end %u: a lane goes to ERR\n", end);
	scripted_adopted(world->end[end].device[0])
		.control->modify_qp(qp, &attr, IBV_QP_STATE);
	return 0;
}

static int close_end(struct world *world, unsigned end)
{
	struct end *here = &world->end[end];
	bool again = here->closing;
	int ret = snt_qp_close(here->qp, CLOSE_ID + end);

	here->closing = true;
	if (world->trace)
		printf("# end %u: close: %d\n", end, ret);
	if (ret != (again ? -EALREADY : 0))
		return wrong(world, "end %u: close: %d", end, ret);
	return 0;
}

static int harm(struct world *world)
{
	uint32_t what = dice(world, 20);

	if (what < 8)
		return fail_completion(world);
	if (what < 15)
		return fail_post(world);
	if (what < 17)
		return fail_lane(world);
	world->faulty = true;
	world->other_faults++;
	return close_end(world, dice(world, 2));
}

/* Slow rather than broken: legal at any time. */
static void hinder_cq(struct world *world, struct ibv_cq *cq, bool off)
{
	scripted_hold_cq(cq, !off && chance(world, 15));
	scripted_poll_limit(cq, off ? 0 : dice(world, 3));
}

static void hinder(struct world *world, bool off)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned j = 0; j < world->end[i].lanes; j++) {
			hinder_cq(world, world->end[i].lane[j]->send_cq, off);
			hinder_cq(world, world->end[i].lane[j]->recv_cq, off);
		}
}

/*
 * One sequence
 */

static int connect_ends(struct world *world)
{
	struct snt_card card[2];

	for (unsigned i = 0; i < 2; i++) {
		for (unsigned j = dice(world, 4); j; j--)
			if (post_recv(world, i, dice(world, 2)))
				return -1;
		if (snt_qp_card(world->end[i].qp, &card[i]))
			return wrong(world, "card: %s", snt_err_text());
	}
	for (unsigned i = 0; i < 2; i++)
		if (snt_qp_connect(world->end[i].qp, &card[!i]))
			return wrong(world, "connect: %s", snt_err_text());
	return 0;
}

static int operate(struct world *world)
{
	unsigned end = dice(world, 2);
	uint32_t what = dice(world, 100);
	int ret = 0;

	if (what < 30)
		ret = post_sends(world, end);
	else if (what < 50)
		ret = post_recv(world, end, dice(world, 2));
	else if (what < 75)
		ret = step(world, 1 + dice(world, 8));
	else if (what < 96 || !world->may_fail)
		ret = poll_end(world, end);
	else
		ret = harm(world);
	if (ret >= 0 && chance(world, 15))
		ret = check_pending(world, end);
	if (chance(world, 2))
		hinder(world, false);
	return ret;
}

/* Gives the peer's WRs the receives that they wait for. */
static int feed(struct world *world, unsigned end)
{
	struct end *here = &world->end[end], *there = &world->end[!end];

	if (here->class_posted[0] < there->notifies && post_recv(world, end, false))
		return -1;
	if (here->class_posted[1] < there->messages && post_recv(world, end, true))
		return -1;
	return 0;
}

/* Lets everything come to rest. */
static int settle(struct world *world, bool fed)
{
	for (unsigned idle = 0; idle < ROUNDS_IDLE; idle++) {
		int moved = 0, ret;

		for (unsigned end = 0; end < 2; end++) {
			if (fed && feed(world, end))
				return -1;
			ret = poll_end(world, end);
			if (ret < 0)
				return -1;
			moved += ret;
		}
		ret = step(world, 1 + dice(world, 64));
		if (ret < 0)
			return -1;
		if (moved || ret)
			idle = 0;
		if (world->end[0].closed && world->end[1].closed)
			break;
	}
	return 0;
}

/* Nothing moves any more: is there a good reason for what has not retired? */
static int check_rest(struct world *world, unsigned end)
{
	const struct end *here = &world->end[end];
	unsigned least, most, pending = 0;

	for (unsigned i = 0; i < here->lanes; i++)
		pending += scripted_pending(here->lane[i]);
	ring_bounds(here, &least, &most);
	if (least && (!pending || !world->faulty))
		return wrong(world,
			     "end %u: WR %d of %d hangs, %u physical WRs under way",
			     end, here->sends - (int)least, here->sends, pending);
	if (here->closing && !here->closed)
		return wrong(world, "end %u: SNT_CLOSED does not come", end);
	return 0;
}

static int sequence(struct world *world)
{
	unsigned count = 20 + dice(world, 80);

	if (world_open(world) || connect_ends(world))
		return -1;
	for (unsigned i = 0; i < count; i++)
		if (operate(world) < 0)
			return -1;
	hinder(world, true);
	if (settle(world, true) || check_rest(world, 0) || check_rest(world, 1) ||
	    check_pending(world, 0) || check_pending(world, 1))
		return -1;
	for (unsigned end = 0; end < 2; end++)
		if (!world->end[end].closing && close_end(world, end))
			return -1;
	if (settle(world, false) || check_rest(world, 0) || check_rest(world, 1) ||
	    check_memory(world))
		return -1;
	return world_close(world);
}

static uint64_t seed_running;

/* A call that never returns: all that can be done is to say which seed it was. */
static void on_alarm(int number)
{
	char text[96];
	int length =
		snprintf(text, sizeof(text), "not ok 1 - seed %llu hangs in one call\n",
			 (unsigned long long)seed_running);

	(void)number;
	if (write(STDOUT_FILENO, text, length) < 0)
		_exit(2);
	_exit(1);
}

static int run(uint64_t seed)
{
	static struct world world;
	int ret;

	seed_running = seed;
	alarm(SECONDS_MAX);
	memset(&world, 0, sizeof(world));
	world.seed = seed;
	world.random = seed;
	world.may_fail = seed & 1;
	if (getenv("VQP_MODEL_FAULTS"))
		world.may_fail = atoi(getenv("VQP_MODEL_FAULTS"));
	world.trace = getenv("VQP_MODEL_TRACE") != NULL;
	world.scheme = chance(&world, 50) ? SNT_SPRAY : SNT_DQPLB;
	ret = sequence(&world);
	world_free(&world);
	return ret;
}

int main(int argc, char **argv)
{
	signal(SIGALRM, on_alarm);
	return seeds_main(argc, argv, 1000, run);
}
