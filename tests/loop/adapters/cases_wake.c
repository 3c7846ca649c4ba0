/* SPDX-License-Identifier: MIT */
/*
 * No wake-up is lost. On scripted devices, where all that can happen is known: as soon
 * as nothing moves and the loop has nothing to do, everything must have been told.
 */
#include <infiniband/verbs.h>
#include <string.h>

#include "lib/seeds.h"
#include "loop/adapters/cases.h"

/*
 * What the first end's device is asked, and what happens just before and after that.
 */

enum moment {
	BEFORE_ARM,
	AFTER_ARM,
	BEFORE_POLL,
	AFTER_POLL,
	BEFORE_EVENT,
	AFTER_EVENT,
	MOMENTS
};

static struct {
	int (*poll_cq)(struct ibv_cq *cq, int max, struct ibv_wc *wc);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	struct snt_control own, control;
	void (*at)(void *arg, enum moment moment);
	void *arg;
} device;

static void happen(enum moment moment)
{
	if (device.at)
		device.at(device.arg, moment);
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int count;

	happen(BEFORE_POLL);
	count = device.poll_cq(cq, max, wc);
	happen(AFTER_POLL);
	return count;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	int ret;

	happen(BEFORE_ARM);
	ret = device.req_notify_cq(cq, solicited_only);
	happen(AFTER_ARM);
	return ret;
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			void **cq_context_out)
{
	int ret;

	happen(BEFORE_EVENT);
	ret = device.own.get_cq_event(channel, cq_out, cq_context_out);
	happen(AFTER_EVENT);
	return ret;
}

static const struct snt_control *instrument(const struct snt_adopted *adopted)
{
	struct ibv_context_ops *ops = &adopted->context->ops;

	device.poll_cq = ops->poll_cq;
	device.req_notify_cq = ops->req_notify_cq;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
	device.own = device.control = *adopted->control;
	device.control.get_cq_event = get_cq_event;
	device.at = NULL;
	return &device.control;
}

/*
 * One message, at each moment of a dispatch
 */

#define NTH_MAX 6

struct arrival {
	struct world *world;
	enum moment moment;
	unsigned nth;
	bool has_come;
};

static void let_in(struct arrival *arrival)
{
	arrival->has_come = true;
	world_settle(arrival->world);
}

static void arrive(void *arg, enum moment moment)
{
	struct arrival *arrival = arg;

	if (arrival->has_come || moment != arrival->moment || --arrival->nth)
		return;
	let_in(arrival);
}

/* A first message brings the loop to life; the second one comes while it is busy. */
static void arrive_at(struct world *world, enum moment moment, unsigned nth)
{
	struct arrival arrival = { .world = world, .moment = moment, .nth = nth };
	unsigned received = 0, sent = 0;
	struct job recv[2] = { 0 }, send[2] = { 0 };

	for (unsigned i = 0; i < 2; i++) {
		recv[i] = (struct job){ .count = &received, .length = 64 };
		send[i] = (struct job){ .count = &sent, .end = 1, .length = 64 };
		job_recv(world, &recv[i]);
	}
	world_until_idle(world);
	job_send(world, &send[0]);
	world_settle(world);
	job_send(world, &send[1]);
	device.arg = &arrival;
	device.at = arrive;
	world_until_idle(world);
	device.at = NULL;
	if (!arrival.has_come)
		let_in(&arrival);
	world_until_idle(world);
	expect(received == 2 && sent == 2,
	       "moment %d, time %u: of 2 messages %u were received, %u sent", moment,
	       nth, received, sent);
}

/* The race of arming: between a poll that finds nothing and going to sleep. */
static void arrival_at_any_moment(struct world *world)
{
	world_open(world, &(struct world_opts){ .instrument = instrument });
	for (int moment = 0; moment < MOMENTS; moment++)
		for (unsigned nth = 1; nth <= NTH_MAX; nth++)
			arrive_at(world, moment, nth);
	world_close(world);
}

/*
 * Bugs that others have had
 */

#define CQS 4

/* Four CQs of one channel have an event each, and there is one edge for all of them:
 * a program that takes one event for each edge sleeps on the other three. */
static void many_events_one_wake(struct world *world)
{
	for (int budget = 0; budget < 3; budget++) {
		unsigned received = 0, sent = 0;
		struct job recv[CQS], send[CQS];

		world_open(world, &(struct world_opts){
					  .qps = CQS, .cqs = CQS, .budget = budget });
		for (unsigned i = 0; i < CQS; i++) {
			recv[i] = (struct job){ .count = &received,
						.qp = i,
						.length = 64 };
			send[i] = (struct job){
				.count = &sent, .end = 1, .qp = i, .length = 64
			};
			job_recv(world, &recv[i]);
		}
		world_until_idle(world);
		for (unsigned i = 0; i < CQS; i++)
			job_send(world, &send[i]);
		world_settle(world);
		world_until(world, &received, CQS);
		world_until(world, &sent, CQS);
		world_close(world);
	}
}

#define BATCH 16

/* Waiting for one op must not lose what was polled together with it. */
static void whole_batch_counts(struct world *world)
{
	unsigned received = 0, sent = 0;
	struct job recv[BATCH], send[BATCH];

	world_open(world, &(struct world_opts){ 0 });
	for (unsigned i = 0; i < BATCH; i++) {
		recv[i] = (struct job){ .count = &received, .length = 64 };
		send[i] = (struct job){ .count = &sent, .end = 1, .length = 64 };
		job_recv(world, &recv[i]);
	}
	for (unsigned i = 0; i < BATCH; i++)
		job_send(world, &send[i]);
	world_settle(world);
	must(snt_op_wait(&recv[2].op, 0), "wait for the third");
	world_until(world, &received, BATCH);
	world_until(world, &sent, BATCH);
	world_close(world);
}

/* What comes while the fd is not watched is reported when it is watched again. */
static void detach_and_attach(struct world *world)
{
	unsigned received = 0, sent = 0;

	world_open(world, &(struct world_opts){ 0 });
	for (unsigned i = 0; i < 4; i++) {
		struct job recv = { .count = &received, .length = 64 };
		struct job send = { .count = &sent, .end = 1, .length = 64 };

		job_recv(world, &recv);
		world_until_idle(world);
		if (i & 1)
			world_detach(world, 0);
		job_send(world, &send);
		world_settle(world);
		if (i & 2)
			world->driver->turn(false);
		if (!(i & 1))
			world_detach(world, 0);
		world->driver->turn(false);
		world_attach(world, 0, 0);
		world_until(world, &received, i + 1);
		world_until(world, &sent, i + 1);
	}
	world_close(world);
}

/*
 * Everything at once
 */

#define QPS	6
#define CREDIT	8
#define ACTIONS 300

/* One direction of one QP. Those of the last CQ are polled by the program. */
struct flow {
	unsigned sent, received; /* so far */
	unsigned posted;	 /* sends */
	unsigned recvs;
	struct job recv[CREDIT], send[CREDIT];
};

struct chaos {
	struct world *world;
	struct flow flow[QPS][2];
	bool is_held;
};

static bool is_watched(const struct world *world, unsigned qp)
{
	return qp % world->cqs == world->cqs - 1;
}

static uint32_t dice(struct world *world, uint32_t bound)
{
	return random_below(&world->random, bound);
}

static void step_at_random(void *arg, enum moment moment)
{
	struct world *world = arg;

	(void)moment;
	while (!dice(world, 3) && world_step(world))
		;
}

/* The receives of end @end, for what the other end sends. */
static void post_recv(struct chaos *chaos, unsigned qp, unsigned end)
{
	struct world *world = chaos->world;
	struct flow *flow = &chaos->flow[qp][!end];
	struct snt_sge sge = world_sge(world, end, 64 * qp, 64);
	struct snt_recv_wr wr = { .sge = &sge, .sge_count = 1 };
	struct job *job = &flow->recv[flow->recvs++ % CREDIT];

	if (is_watched(world, qp)) {
		must(snt_qp_post_recv(world->end[end].qp[qp], &wr, 1) - 1, "receive");
		return;
	}
	expect(!job->is_posted, "receives came out of order");
	*job = (struct job){ .count = &flow->received,
			     .end = end,
			     .qp = qp,
			     .offset = 64 * qp,
			     .length = 64 };
	job_recv(world, job);
}

static void post_send(struct chaos *chaos, unsigned qp, unsigned end)
{
	struct world *world = chaos->world;
	struct flow *flow = &chaos->flow[qp][end];
	struct snt_sge sge = world_sge(world, end, 4096 + 64 * qp, 64);
	struct snt_send_wr wr = { .opcode = SNT_OP_SEND,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1 };
	struct job *job = &flow->send[flow->posted % CREDIT];

	if (flow->posted - flow->received >= CREDIT ||
	    flow->posted - flow->sent >= CREDIT)
		return;
	post_recv(chaos, qp, !end);
	flow->posted++;
	if (is_watched(world, qp)) {
		must(snt_qp_post_send(world->end[end].qp[qp], &wr, 1) - 1, "send");
		return;
	}
	*job = (struct job){ .count = &flow->sent,
			     .end = end,
			     .qp = qp,
			     .offset = 4096 + 64 * qp,
			     .length = 64 };
	job_send(world, job);
}

static void take(struct chaos *chaos, unsigned end, const struct snt_wc *wc)
{
	struct world *world = chaos->world;

	expect(!wc->status, "%s", snt_status_text(wc->status));
	for (unsigned qp = 0; qp < QPS; qp++) {
		if (snt_qp_num(world->end[end].qp[qp]) != wc->qp_num)
			continue;
		if (wc->opcode == SNT_OP_RECV)
			chaos->flow[qp][!end].received++;
		else
			chaos->flow[qp][end].sent++;
	}
}

/* Sometimes not all of it is taken. */
static void poll_watched(struct chaos *chaos, unsigned end, struct snt_cq *cq)
{
	struct snt_wc wc[4];
	int max = 1 + (int)dice(chaos->world, 4);
	int count = snt_cq_poll(cq, wc, max);

	must(count, "poll");
	for (int i = 0; i < count; i++)
		take(chaos, end, &wc[i]);
}

static void ready_0(void *arg, struct snt_cq *cq)
{
	poll_watched(arg, 0, cq);
}

static void ready_1(void *arg, struct snt_cq *cq)
{
	poll_watched(arg, 1, cq);
}

/* What comes from now on is late; what was there before has to be taken first, since
 * its event may have been. */
static void hold(struct chaos *chaos, bool is_held)
{
	struct world *world = chaos->world;

	if (is_held)
		world_until_idle(world);
	for (unsigned i = 0; i < world->cqs; i++)
		scripted_hold_cq(scripted_cq_at(world->end[0].device, i), is_held);
	chaos->is_held = is_held;
}

/* A program that polls by itself arms before it leaves things to the loop. */
static void poll_by_itself(struct world *world, unsigned end)
{
	struct snt_loop *loop = world->end[end].loop;
	int ret;

	must(snt_loop_poll(loop, (int)dice(world, 4)), "poll");
	do {
		ret = snt_loop_arm(loop);
		must(ret, "arm");
		if (ret)
			must(snt_loop_poll(loop, 0), "poll");
	} while (ret && dice(world, 4));
	if (ret)
		must(snt_loop_dispatch(loop, 1 + (int)dice(world, 3)), "dispatch");
}

static void check_all_told(struct chaos *chaos)
{
	struct world *world = chaos->world;

	hold(chaos, false);
	world_settle(world);
	device.at = NULL;
	world_until_idle(world);
	/* What the loop does may let more move. */
	while (world_step(world))
		world_until_idle(world);
	for (unsigned qp = 0; qp < QPS; qp++)
		for (unsigned end = 0; end < 2; end++) {
			const struct flow *flow = &chaos->flow[qp][end];

			expect(flow->sent == flow->posted &&
				       flow->received == flow->posted,
			       "QP %u from end %u: %u posted, %u sent, %u received, and "
			       "nothing wakes the loop",
			       qp, end, flow->posted, flow->sent, flow->received);
		}
	device.at = step_at_random;
}

static void act(struct chaos *chaos)
{
	struct world *world = chaos->world;
	unsigned end = dice(world, 2);

	switch (dice(world, 12)) {
	case 0:
		poll_by_itself(world, end);
		break;
	case 1:
		world_detach(world, end);
		world_attach(world, end, (int)dice(world, 4));
		break;
	case 2:
		hold(chaos, !chaos->is_held);
		break;
	case 3:
		must(snt_loop_wake(world->end[end].loop), "wake");
		break;
	case 4:
		check_all_told(chaos);
		break;
	case 5:
	case 6:
	case 7:
		world->driver->turn(false);
		break;
	case 8:
		step_at_random(world, 0);
		break;
	default:
		post_send(chaos, dice(world, QPS), end);
	}
}

static void random_interleavings(struct world *world)
{
	struct chaos *chaos = &(struct chaos){ .world = world };

	world_open(world, &(struct world_opts){ .qps = QPS,
						.cqs = 3,
						.watched = true,
						.instrument = instrument });
	must(snt_cq_set_ready_handler(world->end[0].cq[2], ready_0, chaos), "watch");
	must(snt_cq_set_ready_handler(world->end[1].cq[2], ready_1, chaos), "watch");
	device.arg = world;
	device.at = step_at_random;
	for (unsigned i = 0; i < ACTIONS; i++)
		act(chaos);
	check_all_told(chaos);
	device.at = NULL;
	for (unsigned end = 0; end < 2; end++)
		must(snt_cq_set_ready_handler(world->end[end].cq[2], NULL, NULL),
		     "watch");
	world_close(world);
}

/*
 * Events of devices
 */

static void note_event(void *arg, const struct snt_event *event)
{
	expect(event->type == SNT_EVENT_PORT_DOWN && event->port == 1 &&
		       event->device_name,
	       "another event: %s", event->text);
	++*(unsigned *)arg;
}

static void events_of_devices(struct world *world)
{
	unsigned events = 0;

	world_open(world, &(struct world_opts){ 0 });
	must(snt_loop_set_event_handler(world->end[0].loop, note_event, &events),
	     "events");
	world_until_idle(world);
	scripted_set_port_state(world->end[0].device, IBV_PORT_DOWN);
	world_until(world, &events, 1);
	must(snt_loop_set_event_handler(world->end[0].loop, NULL, NULL), "events");
	scripted_set_port_state(world->end[0].device, IBV_PORT_ACTIVE);
	world_close(world);
}

const struct loop_case cases_wake[] = {
	{ "arrival at any moment", ON_SCRIPTED, 0, arrival_at_any_moment },
	{ "many events, one wake", ON_SCRIPTED, 0, many_events_one_wake },
	{ "a whole batch counts", ON_SCRIPTED, 0, whole_batch_counts },
	{ "random interleavings", ON_SCRIPTED, CASE_SEEDS, random_interleavings },
	{ "detach and attach", ON_SCRIPTED, 0, detach_and_attach },
	{ "events of devices", ON_SCRIPTED, 0, events_of_devices },
	{ 0 },
};
