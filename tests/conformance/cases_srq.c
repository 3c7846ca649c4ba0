/* SPDX-License-Identifier: MIT */
/* Shared receive queues. */
#include "kit.h"

static void give(struct scene *scene, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct recv recv;
		int ret;

		recv_init(scene, &recv, 64);
		ret = post_srq(scene, &recv);
		if (ret)
			say(scene, "post_srq_recv %s", verb_name(ret));
	}
}

static bool make_pair_with_srq(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;

	if (!make_srq(scene, 15))
		return false;
	opts.srq = scene->srq;
	opts.cap.max_recv_wr = 0;
	opts.cap.max_recv_sge = 0;
	return make_pair(scene, &opts);
}

static void depths(struct scene *scene)
{
	static const unsigned asked[] = { 1, 10, 15, 128 };

	for (unsigned i = 0; i < ARRAY_SIZE(asked); i++) {
		struct ibv_srq_init_attr init = {
			.attr = { .max_wr = asked[i], .max_sge = 1 },
		};
		struct ibv_srq_attr attr = { 0 };
		int ret;

		ret = scene->control->create_srq(scene->pd, &init, &scene->srq);
		if (ret) {
			say(scene, "%u: %s", asked[i], control_name(ret));
			continue;
		}
		scene->control->query_srq(scene->srq, &attr);
		say(scene, "%u: %u, queried %u", asked[i], init.attr.max_wr,
		    attr.max_wr);
		ret = scene->control->destroy_srq(scene->srq);
		if (!ret)
			scene->srq = NULL;
	}
}

/* Both ends take from it, in posting order. */
static void shared(struct scene *scene)
{
	if (!make_pair_with_srq(scene))
		return;
	give(scene, 4);
	for (unsigned i = 0; i < 4; i++) {
		do_send(scene, i % 2, IBV_WR_SEND_WITH_IMM, 64);
		say_wcs(scene, i % 2, 1);
		say_wcs(scene, !(i % 2), 1);
	}
}

static void full(struct scene *scene)
{
	struct ibv_srq_attr attr = { 0 };
	unsigned posted = 0;
	int ret = 0;

	if (!make_srq(scene, 7))
		return;
	scene->control->query_srq(scene->srq, &attr);
	for (; posted < 20 && !ret; posted += !ret) {
		struct recv recv;

		recv_init(scene, &recv, 64);
		ret = post_srq(scene, &recv);
	}
	say(scene, "%u fit", posted);
	say(scene, "then %s", verb_name(ret));
}

static void empty(struct scene *scene)
{
	if (!make_pair_with_srq(scene))
		return;
	do_send(scene, A, IBV_WR_SEND, 64);
	say_all_wcs(scene, A, 0);
	give(scene, 1);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
}

/* A SEND to an SRQ of another PD than the QPs', whose receive is in this MR. */
static void play_across(struct scene *scene, struct ibv_pd *pd, unsigned mr)
{
	struct ibv_pd *own = scene->pd;
	struct pair_opts opts = PAIR_DEFAULTS;
	struct recv recv;
	bool made;

	scene->pd = pd;
	made = make_srq(scene, 15) &&
	       make_mr(scene, 1, scene->bytes + SIDE, 4096, ACCESS_ALL);
	scene->pd = own;
	opts.srq = scene->srq;
	opts.cap.max_recv_wr = 0;
	opts.cap.max_recv_sge = 0;
	if (!made || !make_pair(scene, &opts))
		return;
	recv_init(scene, &recv, 64);
	recv.sge[0].lkey = scene->mr[mr]->lkey;
	say(scene, "post_srq_recv %s", verb_name(post_srq(scene, &recv)));
	do_send(scene, A, IBV_WR_SEND, 64);
	say_all_wcs(scene, A, 1);
	say_all_wcs(scene, B, 1);
	say_data(scene, "memory", SIDE, 64);
}

static void across(struct scene *scene, unsigned mr)
{
	const struct snt_control *control = scene->control;
	struct ibv_pd *pd;
	int ret = control->alloc_pd(scene->kit->context, &pd);

	if (ret) {
		say(scene, "alloc_pd %s", control_name(ret));
		return;
	}
	play_across(scene, pd, mr);
	drop_qp(scene, A);
	drop_qp(scene, B);
	ret = scene->srq ? control->destroy_srq(scene->srq) : 0;
	if (!ret)
		scene->srq = NULL;
	drop_mr(scene, 1);
	ret = control->dealloc_pd(pd);
	if (ret)
		say(scene, "dealloc_pd %s", control_name(ret));
}

static void memory_of_its_pd(struct scene *scene)
{
	across(scene, 1);
}

static void memory_of_the_qps_pd(struct scene *scene)
{
	across(scene, 0);
}

static void own_receive(struct scene *scene)
{
	struct recv recv;

	if (!make_pair_with_srq(scene))
		return;
	recv_init(scene, &recv, 64);
	say(scene, "post_recv %s", verb_name(post_recv(scene, A, &recv)));
}

static int set_limit(struct scene *scene, unsigned limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	return scene->control->modify_srq(scene->srq, &attr, IBV_SRQ_LIMIT);
}

static void take(struct scene *scene)
{
	do_send(scene, A, IBV_WR_SEND, 64);
	if (wait_wcs(scene, A, (struct ibv_wc[WCS_MAX]){ 0 }, 1) != 1 ||
	    wait_wcs(scene, B, (struct ibv_wc[WCS_MAX]){ 0 }, 1) != 1)
		say(scene, "completions are missing");
}

static void limit(struct scene *scene)
{
	struct ibv_srq_attr attr = { 0 };

	if (!make_pair_with_srq(scene))
		return;
	give(scene, 4);
	say(scene, "limit 3 %s", control_name(set_limit(scene, 3)));
	for (unsigned left = 3; left > 0; left--) {
		take(scene);
		say(scene, "%u left", left);
		say_events(scene);
	}
	scene->control->query_srq(scene->srq, &attr);
	say(scene, "limit is %u", attr.srq_limit);
}

/* Is there an event if there are too few receives already? */
static void limit_at_once(struct scene *scene)
{
	if (!make_pair_with_srq(scene))
		return;
	give(scene, 2);
	say(scene, "limit 5 with 2 left %s", control_name(set_limit(scene, 5)));
	say_events(scene);
	take(scene);
	say(scene, "1 left");
	say_events(scene);
}

static void bad_limit(struct scene *scene)
{
	struct ibv_srq_attr attr = { 0 };

	if (!make_srq(scene, 15))
		return;
	scene->control->query_srq(scene->srq, &attr);
	say(scene, "limit over depth %s",
	    control_name(set_limit(scene, attr.max_wr + 1)));
}

/* The receives are everybody's, so ERR takes none of them. */
static void error(struct scene *scene)
{
	if (!make_pair_with_srq(scene))
		return;
	give(scene, 2);
	to_error(scene, B);
	say_all_wcs(scene, B, 0);
	say_events(scene);
}

static void survives(struct scene *scene)
{
	struct send send;

	if (!make_pair_with_srq(scene))
		return;
	give(scene, 1);
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.wr.wr.rdma.rkey ^= 0x5a00;
	must_send(scene, A, &send);
	say_aftermath(scene, 1, 0);
	for (unsigned end = A; end < ENDS; end++)
		go_to(scene, end, IBV_QPS_RESET, NULL, 0);
	for (unsigned end = A; end < ENDS; end++)
		if (!connect_to(scene, end, NULL, scene->qp[!end]->qp_num))
			return;
	do_send(scene, A, IBV_WR_SEND, 64);
	say(scene, "connected again");
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
}

static void too_short(struct scene *scene)
{
	if (!make_pair_with_srq(scene))
		return;
	give(scene, 2);
	do_send(scene, A, IBV_WR_SEND, 65);
	say_aftermath(scene, 1, 1);
}

const struct conformance_case cases_srq[] = {
	{ "srq-depths", "SRQ depth asked for: granted, and queried later", depths },
	{ "srq-shared", "both ends take from one SRQ, in turn", shared },
	{ "srq-full", "receives until the SRQ of 7 is full", full },
	{ "srq-empty", "SEND; the receive is posted only later", empty },
	{ "srq-own-receive", "post_recv on a QP that has an SRQ", own_receive },
	{ "srq-pd", "SRQ of another PD than the QPs', receive in memory of the SRQ's",
	  memory_of_its_pd },
	{ "srq-pd-qp", "the same, receive in memory of the QPs' PD",
	  memory_of_the_qps_pd },
	{ "srq-limit", "limit 3 on 4 receives, taken one by one", limit },
	{ "srq-limit-late", "limit 5 on 2 receives, then one is taken", limit_at_once },
	{ "srq-bad-limit", "limit greater than the depth", bad_limit },
	{ "srq-err", "a QP with an SRQ goes to ERR", error },
	{ "srq-survives", "WRITE with a wrong rkey; then connected again", survives },
	{ "srq-short", "SEND of 65 bytes to receives of 64", too_short },
	{ 0 },
};
