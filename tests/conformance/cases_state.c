/* SPDX-License-Identifier: MIT */
/* The QP's state machine. */
#include <errno.h>
#include <string.h>

#include "kit.h"

static const struct {
	int bit;
	const char *name;
} attributes[] = {
	{ IBV_QP_PKEY_INDEX, "PKEY_INDEX" },
	{ IBV_QP_PORT, "PORT" },
	{ IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS" },
	{ IBV_QP_AV, "AV" },
	{ IBV_QP_PATH_MTU, "PATH_MTU" },
	{ IBV_QP_DEST_QPN, "DEST_QPN" },
	{ IBV_QP_RQ_PSN, "RQ_PSN" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC" },
	{ IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER" },
	{ IBV_QP_TIMEOUT, "TIMEOUT" },
	{ IBV_QP_RETRY_CNT, "RETRY_CNT" },
	{ IBV_QP_RNR_RETRY, "RNR_RETRY" },
	{ IBV_QP_SQ_PSN, "SQ_PSN" },
	{ IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC" },
};

static bool make_one(struct scene *scene)
{
	return make_cq(scene, A, 16, NULL) && make_qp(scene, A, A, NULL);
}

/* From RESET on the way to RTS, up to there. */
static void bring_to(struct scene *scene, enum ibv_qp_state state)
{
	for (unsigned next = IBV_QPS_INIT; next <= state; next++)
		go_to(scene, A, next, NULL, scene->qp[A]->qp_num);
}

static void transitions(struct scene *scene, enum ibv_qp_state from)
{
	static const enum ibv_qp_state to[] = { IBV_QPS_RESET, IBV_QPS_INIT,
						IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR };

	for (unsigned i = 0; i < ARRAY_SIZE(to); i++) {
		int ret;

		if (!make_one(scene))
			return;
		bring_to(scene, from == IBV_QPS_ERR ? IBV_QPS_RTS : from);
		if (from == IBV_QPS_ERR)
			to_error(scene, A);
		ret = go_to(scene, A, to[i], NULL, scene->qp[A]->qp_num);
		say(scene, "to %s %s", state_name(to[i]), control_name(ret));
		if (ret && state_of(scene, A) != from)
			say_more(scene, "and left it in %s",
				 state_name(state_of(scene, A)));
		drop_qp(scene, A);
		drop_cq(scene, A);
	}
}

static void from_reset(struct scene *scene)
{
	transitions(scene, IBV_QPS_RESET);
}

static void from_init(struct scene *scene)
{
	transitions(scene, IBV_QPS_INIT);
}

static void from_rtr(struct scene *scene)
{
	transitions(scene, IBV_QPS_RTR);
}

static void from_rts(struct scene *scene)
{
	transitions(scene, IBV_QPS_RTS);
}

static void from_err(struct scene *scene)
{
	transitions(scene, IBV_QPS_ERR);
}

/* Leaves out one required attribute after the other. */
static void missing(struct scene *scene, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr;
	unsigned accepted = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(attributes); i++) {
		int mask, ret;

		if (!make_one(scene))
			return;
		bring_to(scene, to - 1);
		mask = attrs_for(scene, to, NULL, scene->qp[A]->qp_num, &attr);
		if (mask & attributes[i].bit) {
			ret = scene->control->modify_qp(scene->qp[A], &attr,
							mask & ~attributes[i].bit);
			if (ret != -EINVAL) {
				say(scene, "without %s %s", attributes[i].name,
				    control_name(ret));
				accepted++;
			}
		}
		drop_qp(scene, A);
		drop_cq(scene, A);
	}
	if (!accepted)
		say(scene, "each missing attribute EINVAL");
}

static void missing_init(struct scene *scene)
{
	missing(scene, IBV_QPS_INIT);
}

static void missing_rtr(struct scene *scene)
{
	missing(scene, IBV_QPS_RTR);
}

static void missing_rts(struct scene *scene)
{
	missing(scene, IBV_QPS_RTS);
}

static void try_init(struct scene *scene, const char *what, struct ibv_qp_attr *attr,
		     int mask)
{
	int ret = scene->control->modify_qp(scene->qp[A], attr, mask);

	say(scene, "%s %s", what, control_name(ret));
	go_to(scene, A, IBV_QPS_RESET, NULL, 0);
}

static void bad_init(struct scene *scene)
{
	struct ibv_qp_attr attr;
	int mask;

	if (!make_one(scene))
		return;
	mask = attrs_for(scene, IBV_QPS_INIT, NULL, 0, &attr);
	try_init(scene, "with an attribute of RTR", &attr, mask | IBV_QP_PATH_MTU);
	attr.port_num = 0;
	try_init(scene, "port 0", &attr, mask);
	attr.port_num = 77;
	try_init(scene, "port 77", &attr, mask);
	attr.port_num = scene->kit->info.port;
	attr.pkey_index = 60000;
	try_init(scene, "P_Key index 60000", &attr, mask);
}

static void try_rtr(struct scene *scene, const char *what, struct ibv_qp_attr *attr,
		    int mask)
{
	int ret;

	bring_to(scene, IBV_QPS_INIT);
	ret = scene->control->modify_qp(scene->qp[A], attr, mask);
	say(scene, "%s %s", what, control_name(ret));
	go_to(scene, A, IBV_QPS_RESET, NULL, 0);
}

static void bad_rtr(struct scene *scene)
{
	struct ibv_qp_attr good, attr;
	int mask;

	if (!make_one(scene))
		return;
	mask = attrs_for(scene, IBV_QPS_RTR, NULL, scene->qp[A]->qp_num, &good);
	attr = good;
	attr.path_mtu = 0;
	try_rtr(scene, "MTU 0", &attr, mask);
	attr.path_mtu = 6;
	try_rtr(scene, "MTU 8192", &attr, mask);
	attr = good;
	attr.ah_attr.is_global = 0;
	try_rtr(scene, "no GRH", &attr, mask);
	attr = good;
	attr.ah_attr.grh.sgid_index = 200;
	try_rtr(scene, "empty GID slot", &attr, mask);
	attr = good;
	attr.max_dest_rd_atomic = 255;
	try_rtr(scene, "255 READs", &attr, mask);
	attr = good;
	attr.dest_qp_num = 1u << 24;
	try_rtr(scene, "QP number of 25 bits", &attr, mask);
	attr = good;
	attr.rq_psn = 1u << 24;
	try_rtr(scene, "PSN of 25 bits", &attr, mask);
}

static void query_states(struct scene *scene)
{
	if (!make_one(scene))
		return;
	say(scene, "%s", state_name(state_of(scene, A)));
	for (unsigned next = IBV_QPS_INIT; next <= IBV_QPS_RTS; next++) {
		go_to(scene, A, next, NULL, scene->qp[A]->qp_num);
		say(scene, "%s", state_name(state_of(scene, A)));
	}
	to_error(scene, A);
	say(scene, "%s", state_name(state_of(scene, A)));
	go_to(scene, A, IBV_QPS_RESET, NULL, 0);
	say(scene, "%s", state_name(state_of(scene, A)));
}

static void query_values(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;
	struct ibv_qp_init_attr init = { 0 };
	struct ibv_qp_attr set, got = { 0 };
	int ret;

	opts.sq_psn = 123;
	opts.rq_psn = 456;
	if (!make_one(scene) || !connect_to(scene, A, &opts, scene->qp[A]->qp_num))
		return;
	attrs_for(scene, IBV_QPS_RTS, &opts, scene->qp[A]->qp_num, &set);
	ret = scene->control->query_qp(scene->qp[A], &got, (1 << 20) - 1, &init);
	say(scene, "query_qp %s", control_name(ret));
#define SAME(member)                  \
	if (got.member != set.member) \
	say(scene, #member " not as set")
	SAME(qp_state);
	SAME(port_num);
	SAME(qp_access_flags);
	SAME(path_mtu);
	SAME(dest_qp_num);
	SAME(rq_psn);
	SAME(sq_psn);
	SAME(max_dest_rd_atomic);
	SAME(max_rd_atomic);
	SAME(min_rnr_timer);
	SAME(timeout);
	SAME(retry_cnt);
	SAME(rnr_retry);
	SAME(ah_attr.port_num);
	SAME(ah_attr.grh.sgid_index);
#undef SAME
	if (memcmp(&got.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, 16) != 0)
		say(scene, "dgid not as set");
	if (init.send_cq != scene->cq[A] || init.qp_type != IBV_QPT_RC)
		say(scene, "init attributes not as given");
	say(scene, "all others as set");
}

static void send_queue_drain(struct scene *scene)
{
	int ret;

	if (!make_pair(scene, NULL))
		return;
	ret = go_to(scene, A, IBV_QPS_SQD, NULL, 0);
	say(scene, "to SQD %s", control_name(ret));
	say(scene, "state %s", state_name(state_of(scene, A)));
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_all_wcs(scene, A, 0);
	ret = scene->control->modify_qp(scene->qp[A],
					&(struct ibv_qp_attr){ .qp_state =
								       IBV_QPS_RTS },
					IBV_QP_STATE);
	say(scene, "to RTS %s", control_name(ret));
	say_all_wcs(scene, A, 0);
	do_send(scene, A, IBV_WR_RDMA_READ, 64);
	say_all_wcs(scene, A, 1);
}

const struct conformance_case cases_state[] = {
	{ "from-reset", "modify_qp in RESET", from_reset },
	{ "from-init", "modify_qp in INIT", from_init },
	{ "from-rtr", "modify_qp in RTR", from_rtr },
	{ "from-rts", "modify_qp in RTS, with the attributes of each state", from_rts },
	{ "from-err", "modify_qp in ERR", from_err },
	{ "missing-init", "to INIT without one of the attributes", missing_init },
	{ "missing-rtr", "to RTR without one of the attributes", missing_rtr },
	{ "missing-rts", "to RTS without one of the attributes", missing_rts },
	{ "bad-init", "to INIT with impossible values", bad_init },
	{ "bad-rtr", "to RTR with impossible values", bad_rtr },
	{ "query-states", "query_qp on the way to RTS, ERR and RESET", query_states },
	{ "query-values", "query_qp in RTS: what was set", query_values },
	{ "sqd", "WRITE posted in SQD; then RTS, and a READ", send_queue_drain },
	{ 0 },
};
