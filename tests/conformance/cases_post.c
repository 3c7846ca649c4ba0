/* SPDX-License-Identifier: MIT */
/* What can be posted when, and what cannot. */
#include "kit.h"

/* Posts a chain and says what the call returned, and with which bad_wr. */
static void say_post(struct scene *scene, struct send *sends, unsigned count)
{
	static struct ibv_send_wr unchanged;
	struct ibv_send_wr *bad = &unchanged;
	unsigned index = 0;
	int ret;

	for (unsigned i = 1; i < count; i++)
		sends[i - 1].wr.next = &sends[i].wr;
	ret = ibv_post_send(scene->qp[A], &sends[0].wr, &bad);
	say(scene, "post_send %s", verb_name(ret));
	if (!ret)
		return;
	for (unsigned i = 0; i < count; i++)
		if (bad == &sends[i].wr)
			index = i + 1;
	if (index)
		say(scene, "bad_wr is number %u", index);
	else if (!bad)
		say(scene, "bad_wr is NULL");
	else
		say(scene, "bad_wr %s", bad == &unchanged ? "not set" : "unknown");
}

/* Posts in a state before RTS; and what becomes of that later. */
static void send_before_rts(struct scene *scene, enum ibv_qp_state state)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_INIT, IBV_QPS_RTR,
						 IBV_QPS_RTS };
	struct send sends[2];
	unsigned i;

	for (unsigned end = A; end < ENDS; end++)
		if (!make_cq(scene, end, 64, NULL) || !make_qp(scene, end, end, NULL))
			return;
	if (!connect_to(scene, B, NULL, scene->qp[A]->qp_num))
		return;
	for (i = 0; i < ARRAY_SIZE(way) && way[i] <= state; i++)
		go_to(scene, A, way[i], NULL, scene->qp[B]->qp_num);
	send_init(scene, &sends[0], IBV_WR_RDMA_WRITE, 64);
	send_init(scene, &sends[1], IBV_WR_RDMA_WRITE, 64);
	say_post(scene, sends, ARRAY_SIZE(sends));
	say_all_wcs(scene, A, 0);
	for (; i < ARRAY_SIZE(way); i++)
		go_to(scene, A, way[i], NULL, scene->qp[B]->qp_num);
	say(scene, "then in %s", state_name(state_of(scene, A)));
	do_send(scene, A, IBV_WR_RDMA_READ, 64);
	say_all_wcs(scene, A, 1);
}

static void send_in_reset(struct scene *scene)
{
	send_before_rts(scene, IBV_QPS_RESET);
}

static void send_in_init(struct scene *scene)
{
	send_before_rts(scene, IBV_QPS_INIT);
}

static void send_in_rtr(struct scene *scene)
{
	send_before_rts(scene, IBV_QPS_RTR);
}

static void recv_in_reset(struct scene *scene)
{
	struct recv recv;

	for (unsigned end = A; end < ENDS; end++)
		if (!make_cq(scene, end, 64, NULL) || !make_qp(scene, end, end, NULL))
			return;
	recv_init(scene, &recv, 64);
	say(scene, "post_recv %s", verb_name(post_recv(scene, B, &recv)));
	if (!connect_to(scene, A, NULL, scene->qp[B]->qp_num) ||
	    !connect_to(scene, B, NULL, scene->qp[A]->qp_num))
		return;
	do_recv(scene, B, 64);
	do_send(scene, A, IBV_WR_SEND, 64);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
}

static void recv_in_init(struct scene *scene)
{
	struct recv recv;

	for (unsigned end = A; end < ENDS; end++)
		if (!make_cq(scene, end, 64, NULL) || !make_qp(scene, end, end, NULL))
			return;
	go_to(scene, B, IBV_QPS_INIT, NULL, 0);
	recv_init(scene, &recv, 64);
	say(scene, "post_recv %s", verb_name(post_recv(scene, B, &recv)));
	go_to(scene, B, IBV_QPS_RTR, NULL, scene->qp[A]->qp_num);
	if (!connect_to(scene, A, NULL, scene->qp[B]->qp_num))
		return;
	do_send(scene, A, IBV_WR_SEND, 64);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
}

/* A QP that grants just what is asked for, or says what it grants. */
static bool make_narrow(struct scene *scene, struct ibv_qp_cap *granted_out)
{
	struct pair_opts opts = PAIR_DEFAULTS;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	opts.cap.max_send_sge = 2;
	opts.cap.max_recv_sge = 2;
	opts.cap.max_inline_data = 32;
	if (!make_pair(scene, &opts))
		return false;
	if (scene->control->query_qp(scene->qp[A], &attr, IBV_QP_CAP, &init))
		return false;
	*granted_out = init.cap;
	return true;
}

static void too_many_sges(struct scene *scene)
{
	struct ibv_qp_cap granted;
	struct ibv_sge sges[64];
	struct send send;
	struct recv recv;

	if (!make_narrow(scene, &granted))
		return;
	say(scene, "granted %u and %u for 2", granted.max_send_sge,
	    granted.max_recv_sge);
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(sges); i++)
		sges[i] = send.sge[0];
	send.wr.sg_list = sges;
	send.wr.num_sge = granted.max_send_sge + 1;
	say(scene, "send %s", verb_name(post_send(scene, A, &send)));
	recv_init(scene, &recv, 1);
	recv.wr.sg_list = sges;
	recv.wr.num_sge = granted.max_recv_sge + 1;
	say(scene, "receive %s", verb_name(post_recv(scene, A, &recv)));
	say_all_wcs(scene, A, 0);
	say_states(scene);
}

static void inline_too_long(struct scene *scene)
{
	struct ibv_qp_cap granted;
	struct send send;

	if (!make_narrow(scene, &granted))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, granted.max_inline_data + 1);
	send.wr.send_flags |= IBV_SEND_INLINE;
	say(scene, "one more than granted %s", verb_name(post_send(scene, A, &send)));
	say_all_wcs(scene, A, 0);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_wcs(scene, A, 1);
}

static void inline_read(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_READ, 8);
	send.wr.send_flags |= IBV_SEND_INLINE;
	say(scene, "post_send %s", verb_name(post_send(scene, A, &send)));
	say_aftermath(scene, 0, 0);
}

/* TSO is for other kinds of QP. */
static void bad_opcode(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_TSO, 8);
	say(scene, "post_send %s", verb_name(post_send(scene, A, &send)));
	say_aftermath(scene, 0, 0);
}

/* The WR in the middle is one that a check at the post could find. */
static void bad_in_chain(struct scene *scene)
{
	struct ibv_qp_cap granted;
	struct send sends[3];

	if (!make_narrow(scene, &granted))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(sends); i++)
		send_init(scene, &sends[i], IBV_WR_RDMA_WRITE, 1);
	sends[1].sge[0].length = granted.max_inline_data + 1;
	sends[1].wr.send_flags |= IBV_SEND_INLINE;
	say_post(scene, sends, ARRAY_SIZE(sends));
	say_all_wcs(scene, A, 0);
}

const struct conformance_case cases_post[] = {
	{ "send-in-reset", "2 WRITEs posted in RESET; READ in RTS", send_in_reset },
	{ "send-in-init", "2 WRITEs posted in INIT; READ in RTS", send_in_init },
	{ "send-in-rtr", "2 WRITEs posted in RTR; READ in RTS", send_in_rtr },
	{ "recv-in-reset", "receive posted in RESET, another in RTS; SEND",
	  recv_in_reset },
	{ "recv-in-init", "receive posted in INIT; SEND", recv_in_init },
	{ "too-many-sges", "one SGE more than granted", too_many_sges },
	{ "inline-too-long", "inline byte more than granted, then a good WRITE",
	  inline_too_long },
	{ "inline-read", "READ with the inline flag", inline_read },
	{ "bad-opcode", "TSO on an RC QP", bad_opcode },
	{ "bad-in-chain", "chain of 3, the second with too much inline", bad_in_chain },
	{ 0 },
};
