/* SPDX-License-Identifier: MIT */
/* Peers that are not ready, not there, or of another mind. */
#include "kit.h"

/* About a millisecond each time. */
static const struct pair_opts impatient = {
	.cap = { .max_send_wr = 15,
		 .max_recv_wr = 15,
		 .max_send_sge = SGES_MAX,
		 .max_recv_sge = SGES_MAX },
	.access = ACCESS_ALL,
	.cqe = 64,
	.timeout = 9,
	.retry_cnt = 1,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.max_rd_atomic = 4,
};

static void rnr(struct scene *scene, enum ibv_wr_opcode opcode, uint8_t retry)
{
	struct pair_opts opts = PAIR_DEFAULTS;

	opts.rnr_retry = retry;
	if (!make_pair(scene, &opts))
		return;
	do_send(scene, A, opcode, 64);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_aftermath(scene, scene->kit->at_once ? 0 : 2, 0);
	/* So that nothing is left to complete in the background. */
	to_error(scene, A);
	gather_wcs(scene, A, (struct ibv_wc[WCS_MAX]){ 0 }, 0);
}

static void rnr_send(struct scene *scene)
{
	rnr(scene, IBV_WR_SEND, 0);
}

static void rnr_write_imm(struct scene *scene)
{
	rnr(scene, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
	say_data(scene, "memory", FAR, 64);
}

static void rnr_write_imm_64k(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;
	struct ibv_wc wcs[WCS_MAX];

	opts.rnr_retry = 0;
	if (!make_pair(scene, &opts))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE_WITH_IMM, 65536);
	say_all_wcs(scene, A, scene->kit->at_once ? 0 : 1);
	say(scene, "first byte %s",
	    scene->bytes[FAR] == CANARY ? "untouched" : "written");
	say(scene, "last byte %s",
	    scene->bytes[FAR + 65535] == CANARY ? "untouched" : "written");
	to_error(scene, A);
	gather_wcs(scene, A, wcs, 0);
}

static void rnr_some(struct scene *scene)
{
	rnr(scene, IBV_WR_SEND, 3);
}

static void nobody(struct scene *scene)
{
	if (!make_cq(scene, A, 16, NULL) || !make_qp(scene, A, A, NULL) ||
	    !connect_to(scene, A, &impatient, 0xabcdef))
		return;
	do_recv(scene, A, 64);
	do_send(scene, A, IBV_WR_SEND, 64);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_all_wcs(scene, A, 2);
	say(scene, "state %s", state_name(state_of(scene, A)));
	say_events(scene);
}

static void in_error(struct scene *scene)
{
	if (!make_pair(scene, &impatient))
		return;
	to_error(scene, B);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_aftermath(scene, 1, 0);
}

static void destroyed(struct scene *scene)
{
	if (!make_pair(scene, &impatient))
		return;
	drop_qp(scene, B);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_all_wcs(scene, A, 1);
}

static void not_ready(struct scene *scene)
{
	for (unsigned end = A; end < ENDS; end++)
		if (!make_cq(scene, end, 64, NULL) ||
		    !make_qp(scene, end, end, &impatient))
			return;
	if (!connect_to(scene, A, &impatient, scene->qp[B]->qp_num))
		return;
	go_to(scene, B, IBV_QPS_INIT, &impatient, 0);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_all_wcs(scene, A, scene->kit->at_once ? 0 : 1);
}

/* RTR is enough to answer. */
static void half_ready(struct scene *scene)
{
	for (unsigned end = A; end < ENDS; end++)
		if (!make_cq(scene, end, 64, NULL) || !make_qp(scene, end, end, NULL))
			return;
	if (!connect_to(scene, A, NULL, scene->qp[B]->qp_num))
		return;
	go_to(scene, B, IBV_QPS_INIT, NULL, 0);
	do_recv(scene, B, 64);
	go_to(scene, B, IBV_QPS_RTR, NULL, scene->qp[A]->qp_num);
	do_send(scene, A, IBV_WR_SEND, 64);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
	say_states(scene);
	say_events(scene);
}

static void psn(struct scene *scene, uint32_t sender, uint32_t receiver)
{
	struct pair_opts opts = impatient;

	for (unsigned end = A; end < ENDS; end++)
		if (!make_cq(scene, end, 64, NULL) || !make_qp(scene, end, end, &opts))
			return;
	opts.sq_psn = sender;
	if (!connect_to(scene, A, &opts, scene->qp[B]->qp_num))
		return;
	opts.rq_psn = receiver;
	if (!connect_to(scene, B, &opts, scene->qp[A]->qp_num))
		return;
	do_recv(scene, B, 64);
	do_send(scene, A, IBV_WR_SEND, 64);
	say_all_wcs(scene, A, 1);
	say_all_wcs(scene, B, 0);
	say_data(scene, "receive buffer", SIDE, 64);
}

static void psn_ahead(struct scene *scene)
{
	psn(scene, 1000, 900);
}

static void psn_behind(struct scene *scene)
{
	psn(scene, 900, 1000);
}

/* 64 KiB take 16 packets or more, across the wrap. */
static void psn_wrap(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;

	opts.sq_psn = opts.rq_psn = 0xfffffc;
	if (!make_pair(scene, &opts))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 65536);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 65536);
	say_wcs(scene, A, 2);
	say_data(scene, "data", FAR, 65536);
}

static void not_connected_back(struct scene *scene)
{
	for (unsigned end = A; end < ENDS; end++)
		if (!make_cq(scene, end, 64, NULL) ||
		    !make_qp(scene, end, end, &impatient))
			return;
	/* B thinks that its peer is some other QP of the same host. */
	if (!connect_to(scene, A, &impatient, scene->qp[B]->qp_num) ||
	    !connect_to(scene, B, &impatient, 0xabcdef))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_all_wcs(scene, A, 1);
	say_data(scene, "memory", FAR, 64);
}

const struct conformance_case cases_peer[] = {
	{ "rnr-send", "SEND and WRITE, no receive posted, rnr_retry 0", rnr_send },
	{ "rnr-write-imm", "WRITE_WITH_IMM and WRITE, no receive, rnr_retry 0",
	  rnr_write_imm },
	{ "rnr-write-imm-64k", "WRITE_WITH_IMM of 64 KiB, no receive, rnr_retry 0",
	  rnr_write_imm_64k },
	{ "rnr-3", "SEND and WRITE, no receive posted, rnr_retry 3", rnr_some },
	{ "peer-absent", "SEND and WRITE to a QP number that does not exist", nobody },
	{ "peer-error", "WRITE to a QP in ERR", in_error },
	{ "peer-destroyed", "WRITE to a QP that was destroyed", destroyed },
	{ "peer-init", "WRITE to a QP in INIT", not_ready },
	{ "peer-rtr", "SEND to a QP in RTR", half_ready },
	{ "peer-elsewhere", "WRITE to a QP that is connected with another",
	  not_connected_back },
	{ "psn-ahead", "SEND from PSN 1000, the receiver expects 900", psn_ahead },
	{ "psn-behind", "SEND from PSN 900, the receiver expects 1000", psn_behind },
	{ "psn-wrap", "2 WRITEs of 64 KiB from PSN 0xfffffc", psn_wrap },
	{ 0 },
};
