/* SPDX-License-Identifier: MIT */
/* Several WRs on one QP: which complete, and in what order. */
#include <string.h>

#include "kit.h"

static void unsignalled(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	for (unsigned i = 0; i < 4; i++) {
		send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
		if (i < 3)
			send.wr.send_flags = 0;
		must_send(scene, A, &send);
	}
	say_all_wcs(scene, A, 1);
}

static void sig_all(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;
	struct send send;

	opts.sig_all = true;
	if (!make_pair(scene, &opts))
		return;
	for (unsigned i = 0; i < 2; i++) {
		send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
		send.wr.send_flags = 0;
		must_send(scene, A, &send);
	}
	say_all_wcs(scene, A, 2);
}

static void mixed(struct scene *scene)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_READ,
		IBV_WR_RDMA_WRITE,
		IBV_WR_SEND,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_SEND,
	};
	struct send sends[ARRAY_SIZE(opcodes)];

	if (!make_pair(scene, NULL))
		return;
	for (unsigned i = 0; i < 3; i++)
		do_recv(scene, B, 64);
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		send_init(scene, &sends[i], opcodes[i], 8);
		if (i)
			sends[i - 1].wr.next = &sends[i].wr;
	}
	must_send(scene, A, &sends[0]);
	say_wcs(scene, A, ARRAY_SIZE(opcodes));
	say_wcs(scene, B, 3);
}

/* What the READ fetched is what the WRITE carries, because it waits. */
static void fence(struct scene *scene)
{
	struct send read, write;

	if (!make_pair(scene, NULL))
		return;
	memset(scene->bytes + FAR, 0x5a, 8000);
	send_init(scene, &read, IBV_WR_RDMA_READ, 8000);
	send_init(scene, &write, IBV_WR_RDMA_WRITE, 8000);
	write.wr.send_flags |= IBV_SEND_FENCE;
	write.wr.wr.rdma.remote_addr = (uintptr_t)scene->bytes + SIDE;
	read.wr.next = &write.wr;
	must_send(scene, A, &read);
	say_wcs(scene, A, 2);
	say(scene, "WRITE carried %s",
	    memcmp(scene->bytes + SIDE, scene->bytes + FAR, 8000)
		    ? "something else"
		    : "what the READ fetched");
}

static void many_reads(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;

	opts.max_rd_atomic = 1;
	if (!make_pair(scene, &opts))
		return;
	for (unsigned i = 0; i < 10; i++)
		do_send(scene, A, IBV_WR_RDMA_READ, 5000);
	say_wcs(scene, A, 10);
}

static void no_reads(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;

	opts.max_rd_atomic = 0;
	if (!make_pair(scene, &opts))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	do_send(scene, A, IBV_WR_RDMA_READ, 64);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_all_wcs(scene, A, 1);
	say_states(scene);
}

static void both_ways(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	for (unsigned end = A; end < ENDS; end++)
		do_recv(scene, end, 8192);
	for (unsigned end = A; end < ENDS; end++)
		do_send(scene, end, IBV_WR_SEND, 5000);
	/* Which of the two comes first is a matter of time. */
	for (unsigned end = A; end < ENDS; end++) {
		struct ibv_wc wcs[WCS_MAX];
		unsigned count = wait_wcs(scene, end, wcs, 2);

		say(scene, "%u completions", count);
		for (unsigned i = 0; i < count; i++)
			if (wcs[i].status != IBV_WC_SUCCESS)
				say(scene, "%s", status_name(wcs[i].status));
	}
	say_data(scene, "data", SIDE, 5000);
}

static void waits_for_receive(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	do_send(scene, A, IBV_WR_SEND, 64);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_all_wcs(scene, A, 0);
	do_recv(scene, B, 64);
	say_wcs(scene, A, 2);
	say_wcs(scene, B, 1);
}

static void self_loop(struct scene *scene)
{
	if (!make_cq(scene, A, 16, NULL) || !make_qp(scene, A, A, NULL) ||
	    !connect_to(scene, A, NULL, scene->qp[A]->qp_num))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_all_wcs(scene, A, 1);
	say_data(scene, "data", FAR, 64);
}

static void destroyed_qp(struct scene *scene)
{
	if (!make_armed_pair(scene))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	take_event(scene, 0, true);
	say(scene, "destroy_qp %s", control_name(drop_qp(scene, A)));
	say_all_wcs(scene, A, 0);
}

const struct conformance_case cases_order[] = {
	{ "unsignalled", "3 unsignalled WRITEs, then a signalled one", unsignalled },
	{ "sig-all", "2 unsignalled WRITEs on a QP with sq_sig_all", sig_all },
	{ "mixed-order", "8 WRs of all kinds in one chain", mixed },
	{ "fence", "READ, then a fenced WRITE from the same buffer", fence },
	{ "many-reads", "10 READs with max_rd_atomic 1", many_reads },
	{ "no-reads", "WRITE, READ and WRITE with max_rd_atomic 0", no_reads },
	{ "both-ways", "SENDs of 5000 bytes in both directions at once", both_ways },
	{ "send-waits", "SEND and WRITE; the receive is posted only later",
	  waits_for_receive },
	{ "self-loop", "WRITE on a QP that is connected with itself", self_loop },
	{ "destroyed-qp", "a QP is destroyed while its CQE is in the CQ",
	  destroyed_qp },
	{ 0 },
};
