/* SPDX-License-Identifier: MIT */
/* Queues that are full, and when they no longer are. */
#include <string.h>

#include "kit.h"

#define DEPTH	 7 /* what every device grants exactly */
#define TOO_MANY (DEPTH + 3)

static struct pair_opts shallow(void)
{
	struct pair_opts opts = PAIR_DEFAULTS;

	opts.cap.max_send_wr = DEPTH;
	opts.cap.max_recv_wr = DEPTH;
	return opts;
}

static void full_send_queue(struct scene *scene)
{
	struct pair_opts opts = shallow();
	struct ibv_send_wr *bad = NULL;
	struct send sends[TOO_MANY];
	int ret, index = 0;

	if (!make_pair(scene, &opts))
		return;
	/* They wait for receives, so that none leaves the queue meanwhile. */
	for (unsigned i = 0; i < TOO_MANY; i++) {
		send_init(scene, &sends[i], IBV_WR_SEND, 64);
		if (i)
			sends[i - 1].wr.next = &sends[i].wr;
	}
	ret = ibv_post_send(scene->qp[A], &sends[0].wr, &bad);
	for (unsigned i = 0; i < TOO_MANY; i++)
		if (bad == &sends[i].wr)
			index = i + 1;
	say(scene, "post_send %s", verb_name(ret));
	say(scene, "bad_wr is number %d", index);
	for (unsigned i = 0; i < DEPTH; i++)
		do_recv(scene, B, 64);
	say_all_wcs(scene, A, DEPTH);
	say_all_wcs(scene, B, DEPTH);
}

static void full_recv_queue(struct scene *scene)
{
	struct pair_opts opts = shallow();
	struct ibv_recv_wr *bad = NULL;
	struct recv recvs[TOO_MANY];
	int ret, index = 0;

	if (!make_pair(scene, &opts))
		return;
	for (unsigned i = 0; i < TOO_MANY; i++) {
		recv_init(scene, &recvs[i], 64);
		if (i)
			recvs[i - 1].wr.next = &recvs[i].wr;
	}
	ret = ibv_post_recv(scene->qp[B], &recvs[0].wr, &bad);
	for (unsigned i = 0; i < TOO_MANY; i++)
		if (bad == &recvs[i].wr)
			index = i + 1;
	say(scene, "post_recv %s", verb_name(ret));
	say(scene, "bad_wr is number %d", index);
	to_error(scene, B);
	say_all_wcs(scene, B, DEPTH);
}

/* Do finished WRs take up room until a later CQE is polled? Portable programs
 * assume so. */
static void unsignalled_room(struct scene *scene)
{
	struct pair_opts opts = shallow();
	struct send send;
	unsigned posted;
	int ret = 0;

	if (!make_pair(scene, &opts))
		return;
	for (posted = 0; posted < 3 * DEPTH; posted++) {
		unsigned char *from = scene->bytes + NEAR, mark = posted + 1;

		*from = mark;
		send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
		send.wr.send_flags = 0;
		ret = post_send(scene, A, &send);
		if (ret)
			break;
		wait_byte(scene, FAR, mark);
		nap(scene, 5);
	}
	say(scene, "%u fit", posted);
	if (ret)
		say(scene, "then %s", verb_name(ret));
}

static void unpolled_room(struct scene *scene)
{
	struct pair_opts opts = shallow();
	struct send send;
	unsigned posted;
	int ret = 0;

	if (!make_pair(scene, &opts))
		return;
	for (posted = 0; posted < 3 * DEPTH; posted++) {
		unsigned char *from = scene->bytes + NEAR, mark = posted + 1;

		*from = mark;
		send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
		ret = post_send(scene, A, &send);
		if (ret)
			break;
		wait_byte(scene, FAR, mark);
		nap(scene, 5);
	}
	say(scene, "%u fit", posted);
	if (ret)
		say(scene, "then %s", verb_name(ret));
	say_all_wcs(scene, A, posted);
}

static void overrun(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;
	struct ibv_wc wcs[WCS_MAX];
	unsigned polled;

	opts.cqe = 3;
	if (!make_pair(scene, &opts))
		return;
	say(scene, "CQ of %d", scene->cq[A]->cqe);
	for (int i = 0; i < scene->cq[A]->cqe + 2; i++)
		do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	nap(scene, 200);
	say_events(scene);
	polled = gather_wcs(scene, A, wcs, 0);
	say(scene, "%u completions", polled);
	say_states(scene);
}

static void poll_in_pieces(struct scene *scene)
{
	struct ibv_wc wcs[4];
	int n;

	if (!make_pair(scene, NULL))
		return;
	for (unsigned i = 0; i < 5; i++)
		do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	nap(scene, 300);
	n = ibv_poll_cq(scene->cq[A], 0, wcs);
	say(scene, "0 asked %d", n);
	n = ibv_poll_cq(scene->cq[A], 2, wcs);
	say(scene, "2 asked %d", n);
	n = ibv_poll_cq(scene->cq[A], 4, wcs);
	say(scene, "4 asked %d", n);
	n = ibv_poll_cq(scene->cq[A], 4, wcs);
	say(scene, "4 asked %d", n);
}

const struct conformance_case cases_queue[] = {
	{ "full-send-queue", "chain of 10 SENDs that wait, depth 7", full_send_queue },
	{ "full-recv-queue", "chain of 10 receives, depth 7; then ERR",
	  full_recv_queue },
	{ "unsignalled-room", "unsignalled WRITEs one by one, depth 7, nothing polled",
	  unsignalled_room },
	{ "unpolled-room", "signalled WRITEs one by one, depth 7, nothing polled",
	  unpolled_room },
	{ "cq-overrun", "2 WRITEs more than the CQ has room for", overrun },
	{ "poll-in-pieces", "5 completions, polled in pieces", poll_in_pieces },
	{ 0 },
};
