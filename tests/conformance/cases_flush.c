/* SPDX-License-Identifier: MIT */
/* QPs in ERR, and out of it. */
#include "kit.h"

/* Sends that wait for a receive, and receives that wait for a send. */
static bool make_waiting(struct scene *scene, unsigned sends, unsigned unsignalled)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return false;
	for (unsigned i = 0; i < sends; i++) {
		send_init(scene, &send, IBV_WR_SEND, 64);
		if (i + 1 == unsignalled)
			send.wr.send_flags = 0;
		must_send(scene, A, &send);
	}
	return true;
}

static void flush_receives(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	for (unsigned i = 0; i < 3; i++)
		do_recv(scene, A, 64);
	say(scene, "to ERR %s", control_name(to_error(scene, A)));
	say_aftermath(scene, 3, 0);
}

static void flush_sends(struct scene *scene)
{
	if (!make_waiting(scene, 3, 0))
		return;
	say(scene, "to ERR %s", control_name(to_error(scene, A)));
	say_aftermath(scene, 3, 0);
}

static void flush_unsignalled(struct scene *scene)
{
	if (!make_waiting(scene, 3, 2))
		return;
	say(scene, "to ERR %s", control_name(to_error(scene, A)));
	say_all_wcs(scene, A, 2);
}

/* Each queue in its order; what the order between them is may vary. */
static void flush_both(struct scene *scene)
{
	struct ibv_wc wcs[WCS_MAX];
	unsigned count, wrong = 0;
	uint64_t last_send = 0, last_recv = RECV_IDS;

	if (!make_waiting(scene, 3, 0))
		return;
	for (unsigned i = 0; i < 3; i++)
		do_recv(scene, A, 64);
	to_error(scene, A);
	count = gather_wcs(scene, A, wcs, 6);
	for (unsigned i = 0; i < count; i++) {
		uint64_t *last = wcs[i].wr_id > RECV_IDS ? &last_recv : &last_send;

		wrong += wcs[i].wr_id != *last + 1;
		wrong += wcs[i].status != IBV_WC_WR_FLUSH_ERR;
		*last = wcs[i].wr_id;
	}
	say(scene, "%u completions", count);
	say(scene, "%u of them out of order or not WR_FLUSH_ERR", wrong);
}

static void post_in_error(struct scene *scene)
{
	struct send send;
	struct recv recv;

	if (!make_pair(scene, NULL))
		return;
	to_error(scene, A);
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	say(scene, "signalled send %s", verb_name(post_send(scene, A, &send)));
	say_all_wcs(scene, A, 0);
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.wr.send_flags = 0;
	say(scene, "unsignalled send %s", verb_name(post_send(scene, A, &send)));
	say_all_wcs(scene, A, 0);
	recv_init(scene, &recv, 64);
	say(scene, "receive %s", verb_name(post_recv(scene, A, &recv)));
	say_all_wcs(scene, A, 0);
}

/* The same on a QP that failed by itself: is it in ERR in every respect? */
static void post_after_failure(struct scene *scene)
{
	struct send send;
	struct recv recv;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.wr.wr.rdma.rkey ^= 0x5a00;
	must_send(scene, A, &send);
	say_all_wcs(scene, A, 1);
	for (unsigned end = A; end < ENDS; end++) {
		send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
		say(scene, "send %s", verb_name(post_send(scene, end, &send)));
		recv_init(scene, &recv, 64);
		say(scene, "receive %s", verb_name(post_recv(scene, end, &recv)));
		say_all_wcs(scene, end, 0);
	}
}

/* Does ERR once more flush what was posted since? */
static void error_twice(struct scene *scene)
{
	struct recv recv;

	if (!make_pair(scene, NULL))
		return;
	to_error(scene, A);
	nap(scene, 50);
	recv_init(scene, &recv, 64);
	say(scene, "receive %s", verb_name(post_recv(scene, A, &recv)));
	say_all_wcs(scene, A, 0);
	say(scene, "to ERR %s", control_name(to_error(scene, A)));
	say_all_wcs(scene, A, 0);
}

static void reset_discards(struct scene *scene)
{
	if (!make_waiting(scene, 2, 0))
		return;
	do_recv(scene, A, 64);
	say(scene, "to RESET %s",
	    control_name(go_to(scene, A, IBV_QPS_RESET, NULL, 0)));
	say_all_wcs(scene, A, 0);
	say_states(scene);
}

/* Flushed, but not polled yet. */
static void reset_after_flush(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, A, 64);
	to_error(scene, A);
	nap(scene, 150);
	say(scene, "to RESET %s",
	    control_name(go_to(scene, A, IBV_QPS_RESET, NULL, 0)));
	say_all_wcs(scene, A, 0);
}

static void again(struct scene *scene, bool both)
{
	if (!make_waiting(scene, 2, 0))
		return;
	to_error(scene, A);
	gather_wcs(scene, A, (struct ibv_wc[WCS_MAX]){ 0 }, 2);
	go_to(scene, A, IBV_QPS_RESET, NULL, 0);
	if (both)
		go_to(scene, B, IBV_QPS_RESET, NULL, 0);
	if (!connect_to(scene, A, NULL, scene->qp[B]->qp_num) ||
	    (both && !connect_to(scene, B, NULL, scene->qp[A]->qp_num)))
		return;
	do_recv(scene, B, 64);
	do_send(scene, A, IBV_WR_SEND, 64);
	do_send(scene, A, IBV_WR_RDMA_READ, 64);
	say_wcs(scene, A, 2);
	say_wcs(scene, B, 1);
	say_states(scene);
}

static void reconnect(struct scene *scene)
{
	again(scene, true);
}

/* Both failed, by a bad key, before. */
static void reconnect_failed(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.wr.wr.rdma.rkey ^= 0x5a00;
	must_send(scene, A, &send);
	say_all_wcs(scene, A, 1);
	for (unsigned end = A; end < ENDS; end++) {
		int ret = go_to(scene, end, IBV_QPS_RESET, NULL, 0);

		if (ret)
			say(scene, "to RESET %s", control_name(ret));
	}
	for (unsigned end = A; end < ENDS; end++)
		if (!connect_to(scene, end, NULL, scene->qp[!end]->qp_num))
			return;
	do_recv(scene, B, 64);
	do_send(scene, A, IBV_WR_SEND, 64);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	say_wcs(scene, A, 2);
	say_wcs(scene, B, 1);
	say_states(scene);
}

/* The CQE comes before the flush, also if it was not polled. */
static void done_then_flushed(struct scene *scene)
{
	if (!make_armed_pair(scene))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	take_event(scene, 0, true);
	do_send(scene, A, IBV_WR_SEND, 64);
	to_error(scene, A);
	say_all_wcs(scene, A, 2);
}

const struct conformance_case cases_flush[] = {
	{ "flush-receives", "3 receives, then ERR", flush_receives },
	{ "flush-sends", "3 SENDs that wait for a receive, then ERR", flush_sends },
	{ "flush-unsignalled", "the same, the second unsignalled", flush_unsignalled },
	{ "flush-both", "3 SENDs that wait and 3 receives, then ERR", flush_both },
	{ "flush-after-done", "a finished WRITE and a waiting SEND, then ERR",
	  done_then_flushed },
	{ "post-in-err", "posts on a QP in ERR", post_in_error },
	{ "err-again", "receive posted in ERR, then to ERR once more", error_twice },
	{ "post-after-failure", "posts on A and B after a WRITE with a wrong rkey",
	  post_after_failure },
	{ "reset-discards", "2 SENDs that wait and a receive, then RESET",
	  reset_discards },
	{ "reset-after-flush", "a flushed receive, not polled, then RESET",
	  reset_after_flush },
	{ "reconnect", "ERR, RESET and connected again", reconnect },
	{ "reconnect-failed", "the same after a WRITE with a wrong rkey",
	  reconnect_failed },
	{ 0 },
};
