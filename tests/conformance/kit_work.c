/* SPDX-License-Identifier: MIT */
/* Work requests, and waiting for what comes of them. */
#include <string.h>
#include <time.h>

#include "kit.h"

#define MUST_COME_MS 5000
#define QUIET_MS     120

void send_init(struct scene *scene, struct send *send, enum ibv_wr_opcode opcode,
	       uint32_t length)
{
	uint64_t far = (uintptr_t)scene->bytes + FAR;

	memset(send, 0, sizeof(*send));
	send->wr.wr_id = ++scene->send_id;
	send->wr.opcode = opcode;
	send->wr.send_flags = IBV_SEND_SIGNALED;
	send->wr.imm_data = IMM;
	send->wr.sg_list = send->sge;
	send->wr.num_sge = 1;
	send->sge[0].addr = (uintptr_t)scene->bytes + NEAR;
	send->sge[0].length = length;
	send->sge[0].lkey = scene->mr[0]->lkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	    opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		send->wr.wr.atomic.remote_addr = far;
		send->wr.wr.atomic.rkey = scene->mr[0]->rkey;
	} else {
		send->wr.wr.rdma.remote_addr = far;
		send->wr.wr.rdma.rkey = scene->mr[0]->rkey;
	}
}

void recv_init(struct scene *scene, struct recv *recv, uint32_t length)
{
	memset(recv, 0, sizeof(*recv));
	recv->wr.wr_id = RECV_IDS + ++scene->recv_id;
	recv->wr.sg_list = recv->sge;
	recv->wr.num_sge = 1;
	recv->sge[0].addr = (uintptr_t)scene->bytes + SIDE;
	recv->sge[0].length = length;
	recv->sge[0].lkey = scene->mr[0]->lkey;
}

int post_send(struct scene *scene, unsigned slot, struct send *send)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(scene->qp[slot], &send->wr, &bad);
}

int post_recv(struct scene *scene, unsigned slot, struct recv *recv)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(scene->qp[slot], &recv->wr, &bad);
}

int post_srq(struct scene *scene, struct recv *recv)
{
	struct ibv_recv_wr *bad;

	return ibv_post_srq_recv(scene->srq, &recv->wr, &bad);
}

void must_send(struct scene *scene, unsigned slot, struct send *send)
{
	int ret = post_send(scene, slot, send);

	if (ret)
		say(scene, "post_send %s", verb_name(ret));
}

void must_recv(struct scene *scene, unsigned slot, struct recv *recv)
{
	int ret = post_recv(scene, slot, recv);

	if (ret)
		say(scene, "post_recv %s", verb_name(ret));
}

void do_send(struct scene *scene, unsigned slot, enum ibv_wr_opcode opcode,
	     uint32_t length)
{
	struct send send;

	send_init(scene, &send, opcode, length);
	must_send(scene, slot, &send);
}

void do_recv(struct scene *scene, unsigned slot, uint32_t length)
{
	struct recv recv;

	recv_init(scene, &recv, length);
	must_recv(scene, slot, &recv);
}

static uint64_t now_ms(const struct scene *scene)
{
	const struct kit *kit = scene->kit;
	struct timespec now;

	if (kit->now_ns)
		return kit->now_ns(kit->time_arg) / 1000000;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

void nap(const struct scene *scene, unsigned ms)
{
	const struct timespec time = { .tv_nsec = ms * 1000000l };
	const struct kit *kit = scene->kit;

	if (kit->pass)
		kit->pass(kit->time_arg, ms);
	else if (!kit->at_once)
		nanosleep(&time, NULL);
}

/* Polls until there are @count or the time is up. */
static unsigned poll_until(struct scene *scene, unsigned slot, struct ibv_wc *wcs,
			   unsigned have, unsigned count, unsigned ms)
{
	uint64_t deadline = now_ms(scene) + (scene->kit->at_once ? 0 : ms);

	for (;;) {
		bool late = now_ms(scene) >= deadline;
		int n = ibv_poll_cq(scene->cq[slot], WCS_MAX - have, wcs + have);

		if (n < 0) {
			say(scene, "poll_cq %d", n);
			return have;
		}
		have += n;
		if (have >= count || late)
			return have;
		nap(scene, 1);
	}
}

unsigned wait_wcs(struct scene *scene, unsigned slot, struct ibv_wc *wcs,
		  unsigned count)
{
	return poll_until(scene, slot, wcs, 0, count, MUST_COME_MS);
}

unsigned gather_wcs(struct scene *scene, unsigned slot, struct ibv_wc *wcs,
		    unsigned count)
{
	unsigned have = wait_wcs(scene, slot, wcs, count);
	unsigned before;

	do {
		before = have;
		have = poll_until(scene, slot, wcs, have, have + 1, QUIET_MS);
	} while (have > before && have < WCS_MAX);
	return have;
}

static const char *end_name(unsigned slot)
{
	static const char *const names[] = { "A", "B", "C", "D" };

	return names[slot];
}

void say_wcs(struct scene *scene, unsigned slot, unsigned count)
{
	struct ibv_wc wcs[WCS_MAX];

	say_list(scene, end_name(slot), wcs, wait_wcs(scene, slot, wcs, count));
}

void say_all_wcs(struct scene *scene, unsigned slot, unsigned count)
{
	struct ibv_wc wcs[WCS_MAX];

	say_list(scene, end_name(slot), wcs, gather_wcs(scene, slot, wcs, count));
}

void say_aftermath(struct scene *scene, unsigned a, unsigned b)
{
	say_all_wcs(scene, A, a);
	say_all_wcs(scene, B, b);
	say_states(scene);
	say_events(scene);
}

/* The one place that looks at memory while a device may write there, as programs do
 * that wait for a WRITE: a race by nature, and nothing to warn of. */
__attribute__((no_sanitize("thread"))) bool wait_byte(struct scene *scene, size_t at,
						      unsigned char value)
{
	const volatile unsigned char *byte = scene->bytes + at;
	uint64_t deadline = now_ms(scene) + MUST_COME_MS;

	while (*byte != value) {
		if (scene->kit->at_once || now_ms(scene) >= deadline)
			return false;
		nap(scene, 1);
	}
	return true;
}
