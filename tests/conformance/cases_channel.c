/* SPDX-License-Identifier: MIT */
/* Completion channels: when there is an event, and when not. */
#include "kit.h"

static bool make_pair_with_channel(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;

	if (!make_channel(scene, 0))
		return false;
	opts.channel = scene->channel[0];
	return make_pair(scene, &opts);
}

static void arm(struct scene *scene, unsigned slot, int solicited_only)
{
	int ret = ibv_req_notify_cq(scene->cq[slot], solicited_only);

	if (ret)
		say(scene, "req_notify_cq %s", verb_name(ret));
}

/* Polls what must be there without saying it. */
static void forget(struct scene *scene, unsigned slot, unsigned count)
{
	struct ibv_wc wcs[WCS_MAX];

	if (wait_wcs(scene, slot, wcs, count) != count)
		say(scene, "completions are missing");
}

static void armed(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	arm(scene, A, 0);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, true);
	forget(scene, A, 1);
}

static void not_armed(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, false);
	forget(scene, A, 1);
}

static void too_late(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	nap(scene, 300);
	arm(scene, A, 0);
	say_cq_event(scene, 0, false);
	forget(scene, A, 1);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, true);
	forget(scene, A, 1);
}

static void one_shot(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	arm(scene, A, 0);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, true);
	forget(scene, A, 1);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, false);
	arm(scene, A, 0);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, true);
	forget(scene, A, 2);
}

static void armed_twice(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	arm(scene, A, 0);
	arm(scene, A, 0);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, true);
	say_cq_event(scene, 0, false);
	forget(scene, A, 2);
}

static void solicited(struct scene *scene, enum ibv_wr_opcode opcode, unsigned flag)
{
	struct send send;

	if (!make_pair_with_channel(scene))
		return;
	do_recv(scene, B, 64);
	arm(scene, B, 1);
	send_init(scene, &send, opcode, 64);
	send.wr.send_flags |= flag;
	must_send(scene, A, &send);
	forget(scene, A, 1);
	say_cq_event(scene, 0, flag);
	forget(scene, B, 1);
}

static void plain_send(struct scene *scene)
{
	solicited(scene, IBV_WR_SEND, 0);
}

static void solicited_send(struct scene *scene)
{
	solicited(scene, IBV_WR_SEND, IBV_SEND_SOLICITED);
}

static void plain_write_imm(struct scene *scene)
{
	solicited(scene, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
}

static void solicited_write_imm(struct scene *scene)
{
	solicited(scene, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SOLICITED);
}

/* The sender's own completion is not solicited. */
static void sender_solicited(struct scene *scene)
{
	struct send send;

	if (!make_pair_with_channel(scene))
		return;
	do_recv(scene, B, 64);
	arm(scene, A, 1);
	send_init(scene, &send, IBV_WR_SEND, 64);
	send.wr.send_flags |= IBV_SEND_SOLICITED;
	must_send(scene, A, &send);
	say_cq_event(scene, 0, false);
	forget(scene, A, 1);
	forget(scene, B, 1);
}

static void solicited_error(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	do_recv(scene, B, 64);
	arm(scene, B, 1);
	to_error(scene, B);
	say_wcs(scene, B, 1);
	say_cq_event(scene, 0, false);
}

static void solicited_send_error(struct scene *scene)
{
	struct send send;

	if (!make_pair_with_channel(scene))
		return;
	arm(scene, A, 1);
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.wr.wr.rdma.rkey ^= 0x5a00;
	must_send(scene, A, &send);
	say_wcs(scene, A, 1);
	say_cq_event(scene, 0, false);
}

static void solicited_recv_error(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	do_recv(scene, B, 63);
	arm(scene, B, 1);
	do_send(scene, A, IBV_WR_SEND, 64);
	forget(scene, A, 1);
	say_wcs(scene, B, 1);
	say_cq_event(scene, 0, false);
}

/* Armed for solicited only, then for all: the wider one holds. */
static void widened(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	arm(scene, A, 1);
	arm(scene, A, 0);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, true);
	forget(scene, A, 1);
}

static void narrowed(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	arm(scene, A, 0);
	arm(scene, A, 1);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, false);
	forget(scene, A, 1);
}

static void two_cqs(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	arm(scene, A, 0);
	arm(scene, B, 0);
	do_send(scene, B, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, true);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_cq_event(scene, 0, true);
	forget(scene, A, 1);
	forget(scene, B, 1);
}

static void nothing_there(struct scene *scene)
{
	struct ibv_cq *cq;
	void *context;
	int ret;

	if (!make_pair_with_channel(scene))
		return;
	ret = scene->control->get_cq_event(scene->channel[0], &cq, &context);
	say(scene, "get_cq_event %s", control_name(ret));
}

/* Events may be acknowledged together; destruction waits for all of them. */
static void acknowledged_at_once(struct scene *scene)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	unsigned taken = 0;

	if (!make_pair_with_channel(scene))
		return;
	for (unsigned i = 0; i < 3; i++) {
		arm(scene, A, 0);
		do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
		forget(scene, A, 1);
		nap(scene, 20);
		taken +=
			!scene->control->get_cq_event(scene->channel[0], &cq, &context);
	}
	say(scene, "%u events", taken);
	if (taken)
		scene->control->ack_cq_events(scene->cq[A], taken);
	drop_qp(scene, A);
	say(scene, "destroy_cq %s", control_name(drop_cq(scene, A)));
}

static void untaken(struct scene *scene)
{
	if (!make_pair_with_channel(scene))
		return;
	arm(scene, A, 0);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	forget(scene, A, 1);
	nap(scene, 20);
	drop_qp(scene, A);
	say(scene, "destroy_cq %s", control_name(drop_cq(scene, A)));
	say_cq_event(scene, 0, false);
}

static void no_channel(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	say(scene, "req_notify_cq %s", verb_name(ibv_req_notify_cq(scene->cq[A], 0)));
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_wcs(scene, A, 1);
}

const struct conformance_case cases_channel[] = {
	{ "event-armed", "armed, then a completion", armed },
	{ "event-not-armed", "a completion, never armed", not_armed },
	{ "event-too-late", "completion, then armed; another completion", too_late },
	{ "event-one-shot", "armed, 2 completions; armed again, another", one_shot },
	{ "event-armed-twice", "armed twice, 2 completions", armed_twice },
	{ "event-plain-send", "armed for solicited; SEND without the flag",
	  plain_send },
	{ "event-solicited-send", "armed for solicited; SEND with the flag",
	  solicited_send },
	{ "event-plain-write-imm", "armed for solicited; WRITE_WITH_IMM without",
	  plain_write_imm },
	{ "event-solicited-write-imm", "armed for solicited; WRITE_WITH_IMM with it",
	  solicited_write_imm },
	{ "event-sender", "sender armed for solicited; SEND with the flag",
	  sender_solicited },
	{ "event-solicited-flush", "armed for solicited; a flushed receive",
	  solicited_error },
	{ "event-solicited-error", "armed for solicited; a failed WRITE",
	  solicited_send_error },
	{ "event-solicited-recv-error",
	  "armed for solicited; SEND longer than the receive", solicited_recv_error },
	{ "event-widened", "armed for solicited, then for all; a WRITE", widened },
	{ "event-narrowed", "armed for all, then for solicited; a WRITE", narrowed },
	{ "event-two-cqs", "two CQs on a channel, completions on B, then A", two_cqs },
	{ "event-none", "get_cq_event on a channel that does not block",
	  nothing_there },
	{ "event-ack", "3 events, acknowledged at once; CQ destroyed",
	  acknowledged_at_once },
	{ "event-untaken", "CQ destroyed before its event was taken", untaken },
	{ "event-no-channel", "arming a CQ without a channel", no_channel },
	{ 0 },
};
