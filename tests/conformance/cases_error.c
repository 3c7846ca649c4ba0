/* SPDX-License-Identifier: MIT */
/* Requests that the local device or the peer refuses. */
#include "kit.h"

/* All that comes after one bad WR. */
static void fail(struct scene *scene, struct send *send)
{
	must_send(scene, A, send);
	say_aftermath(scene, 1, 0);
}

static void short_receive(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, B, 63);
	do_recv(scene, B, 64);
	do_send(scene, A, IBV_WR_SEND, 64);
	do_send(scene, A, IBV_WR_SEND, 64);
	say_aftermath(scene, 2, 1);
}

/* Too long only by its second packet. */
static void short_receive_later(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, B, scene->kit->info.mtu);
	do_send(scene, A, IBV_WR_SEND, scene->kit->info.mtu + 1);
	say_aftermath(scene, 1, 1);
}

static void bad_rkey(struct scene *scene, enum ibv_wr_opcode opcode)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, B, 64);
	send_init(scene, &send, opcode, 8);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		send.wr.wr.atomic.rkey ^= 0x5a00;
	else
		send.wr.wr.rdma.rkey ^= 0x5a00;
	fail(scene, &send);
}

static void bad_rkey_write(struct scene *scene)
{
	bad_rkey(scene, IBV_WR_RDMA_WRITE);
}

static void bad_rkey_write_imm(struct scene *scene)
{
	bad_rkey(scene, IBV_WR_RDMA_WRITE_WITH_IMM);
}

static void bad_rkey_read(struct scene *scene)
{
	bad_rkey(scene, IBV_WR_RDMA_READ);
}

static void bad_rkey_atomic(struct scene *scene)
{
	bad_rkey(scene, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

/* The last byte lies behind the region's end. */
static void beyond(struct scene *scene, enum ibv_wr_opcode opcode)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, opcode, 64);
	send.wr.wr.rdma.remote_addr = (uintptr_t)scene->bytes + BYTES - 63;
	fail(scene, &send);
}

static void beyond_write(struct scene *scene)
{
	beyond(scene, IBV_WR_RDMA_WRITE);
	say(scene, "last byte %s",
	    scene->bytes[BYTES - 1] == CANARY ? "untouched" : "written");
}

static void beyond_read(struct scene *scene)
{
	beyond(scene, IBV_WR_RDMA_READ);
}

/* The first packets of a message are inside, the last one is not. */
static void beyond_later(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 65536);
	send.wr.wr.rdma.remote_addr = (uintptr_t)scene->bytes + BYTES - 65535;
	fail(scene, &send);
	say(scene, "first byte %s",
	    scene->bytes[BYTES - 65535] == CANARY ? "untouched" : "written");
}

static void denied_by_mr(struct scene *scene, enum ibv_wr_opcode opcode,
			 unsigned access)
{
	struct send send;

	if (!make_pair(scene, NULL) ||
	    !make_mr(scene, 1, scene->bytes + FAR, 4096, access))
		return;
	send_init(scene, &send, opcode, 8);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		send.wr.wr.atomic.rkey = scene->mr[1]->rkey;
	else
		send.wr.wr.rdma.rkey = scene->mr[1]->rkey;
	fail(scene, &send);
}

static void mr_denies_write(struct scene *scene)
{
	denied_by_mr(scene, IBV_WR_RDMA_WRITE, ACCESS_ALL & ~IBV_ACCESS_REMOTE_WRITE);
}

static void mr_denies_read(struct scene *scene)
{
	denied_by_mr(scene, IBV_WR_RDMA_READ, ACCESS_ALL & ~IBV_ACCESS_REMOTE_READ);
}

static void mr_denies_atomic(struct scene *scene)
{
	denied_by_mr(scene, IBV_WR_ATOMIC_FETCH_AND_ADD,
		     ACCESS_ALL & ~IBV_ACCESS_REMOTE_ATOMIC);
}

static void denied_by_qp(struct scene *scene, enum ibv_wr_opcode opcode,
			 unsigned access)
{
	struct pair_opts opts = PAIR_DEFAULTS;
	struct send send;

	opts.access = ACCESS_ALL & ~access;
	if (!make_pair(scene, &opts))
		return;
	send_init(scene, &send, opcode, 8);
	fail(scene, &send);
}

static void qp_denies_write(struct scene *scene)
{
	denied_by_qp(scene, IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE);
}

static void qp_denies_read(struct scene *scene)
{
	denied_by_qp(scene, IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ);
}

static void qp_denies_atomic(struct scene *scene)
{
	denied_by_qp(scene, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC);
}

static void bad_lkey(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, A, 64);
	do_recv(scene, B, 64);
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.sge[0].lkey ^= 0x5a00;
	fail(scene, &send);
}

static void bad_lkey_later(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	send_init(scene, &send, IBV_WR_SEND, 64);
	send.sge[0].lkey ^= 0x5a00;
	must_send(scene, A, &send);
	say_aftermath(scene, 2, 0);
}

static void beyond_local(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.sge[0].addr = (uintptr_t)scene->bytes + BYTES - 63;
	fail(scene, &send);
}

/* READ needs to write locally. */
static void read_no_local_write(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL) || !make_mr(scene, 1, scene->bytes, 4096, 0))
		return;
	send_init(scene, &send, IBV_WR_RDMA_READ, 64);
	send.sge[0].lkey = scene->mr[1]->lkey;
	fail(scene, &send);
}

static void recv_no_local_write(struct scene *scene)
{
	struct recv recv;

	if (!make_pair(scene, NULL) || !make_mr(scene, 1, scene->bytes + SIDE, 4096, 0))
		return;
	recv_init(scene, &recv, 64);
	recv.sge[0].lkey = scene->mr[1]->lkey;
	must_recv(scene, B, &recv);
	do_send(scene, A, IBV_WR_SEND, 64);
	say_aftermath(scene, 1, 1);
}

static void recv_bad_lkey(struct scene *scene)
{
	struct recv recv;

	if (!make_pair(scene, NULL))
		return;
	recv_init(scene, &recv, 64);
	recv.sge[0].lkey ^= 0x5a00;
	must_recv(scene, B, &recv);
	do_send(scene, A, IBV_WR_SEND, 64);
	say_aftermath(scene, 1, 1);
}

/* A WRITE_WITH_IMM uses up the receive but not its memory. */
static void unused_bad_lkey(struct scene *scene)
{
	struct recv recv;

	if (!make_pair(scene, NULL))
		return;
	recv_init(scene, &recv, 64);
	recv.sge[0].lkey ^= 0x5a00;
	must_recv(scene, B, &recv);
	do_send(scene, A, IBV_WR_RDMA_WRITE_WITH_IMM, 64);
	say_all_wcs(scene, A, 1);
	say_all_wcs(scene, B, 1);
}

static void misaligned(struct scene *scene)
{
	struct send send;
	int ret;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	send.wr.wr.atomic.remote_addr += 4;
	ret = post_send(scene, A, &send);
	say(scene, "post_send %s", verb_name(ret));
	say_aftermath(scene, 0, 0);
}

static void atomic_length(struct scene *scene)
{
	struct send send;
	int ret;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_ATOMIC_FETCH_AND_ADD, 4);
	ret = post_send(scene, A, &send);
	say(scene, "post_send %s", verb_name(ret));
	say_aftermath(scene, 0, 0);
}

/* What was posted before the bad WR, and after. */
static void around(struct scene *scene)
{
	struct send sends[5];

	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, A, 64);
	do_recv(scene, B, 64);
	for (unsigned i = 0; i < ARRAY_SIZE(sends); i++) {
		send_init(scene, &sends[i], IBV_WR_RDMA_WRITE, 64);
		if (i)
			sends[i - 1].wr.next = &sends[i].wr;
	}
	sends[1].wr.wr.rdma.rkey ^= 0x5a00;
	sends[2].wr.send_flags = 0;
	sends[3].wr.wr.rdma.remote_addr = (uintptr_t)scene->bytes + SIDE;
	must_send(scene, A, &sends[0]);
	say_aftermath(scene, 5, 0);
	say_data(scene, "before the error", FAR, 64);
	say_data(scene, "after it", SIDE, 64);
}

/* An error completes also if success would not have been told. */
static void unsignalled_error(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.wr.send_flags = 0;
	must_send(scene, A, &send);
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 64);
	send.wr.send_flags = 0;
	send.wr.wr.rdma.rkey ^= 0x5a00;
	must_send(scene, A, &send);
	say_all_wcs(scene, A, 1);
}

/* The opcodes of a failed READ, a flushed WRITE and a flushed receive. */
static bool fail_once(struct scene *scene, int opcodes[3])
{
	struct ibv_wc wcs[WCS_MAX];
	struct send send;

	scene->send_id = scene->recv_id = 0;
	if (!make_pair(scene, NULL))
		return false;
	do_recv(scene, A, 64);
	send_init(scene, &send, IBV_WR_RDMA_READ, 64);
	send.wr.wr.rdma.rkey ^= 0x5a00;
	must_send(scene, A, &send);
	do_send(scene, A, IBV_WR_RDMA_WRITE, 64);
	if (wait_wcs(scene, A, wcs, 3) != 3)
		return false;
	for (unsigned i = 0; i < 3; i++)
		opcodes[wcs[i].wr_id > RECV_IDS ? 2 : wcs[i].wr_id - 1] = wcs[i].opcode;
	for (unsigned end = A; end < ENDS; end++)
		if (drop_qp(scene, end) || drop_cq(scene, end))
			return false;
	return true;
}

/* Programs must not look at it; this says why. */
static void error_opcode(struct scene *scene)
{
	static const char *const names[3] = { "READ", "flushed WRITE",
					      "flushed receive" };
	int first[3], next[3];
	bool varies[3] = { false };

	if (!fail_once(scene, first))
		return;
	for (unsigned again = 0; again < 12; again++) {
		if (!fail_once(scene, next))
			return;
		for (unsigned i = 0; i < 3; i++)
			varies[i] |= next[i] != first[i];
	}
	for (unsigned i = 0; i < 3; i++)
		if (varies[i])
			say(scene, "%s varies", names[i]);
		else
			say(scene, "%s %d", names[i], first[i]);
}

const struct conformance_case cases_error[] = {
	{ "short-receive", "2 SENDs of 64 bytes to receives of 63 and 64",
	  short_receive },
	{ "short-receive-mtu", "SEND of MTU + 1 bytes to a receive of one MTU",
	  short_receive_later },
	{ "bad-rkey-write", "WRITE with a wrong rkey; B has a receive",
	  bad_rkey_write },
	{ "bad-rkey-write-imm", "WRITE_WITH_IMM with a wrong rkey; B has a receive",
	  bad_rkey_write_imm },
	{ "bad-rkey-read", "READ with a wrong rkey; B has a receive", bad_rkey_read },
	{ "bad-rkey-atomic", "atomic with a wrong rkey; B has a receive",
	  bad_rkey_atomic },
	{ "beyond-write", "WRITE whose last byte is behind the region", beyond_write },
	{ "beyond-read", "READ whose last byte is behind the region", beyond_read },
	{ "beyond-64k", "the same with 64 KiB", beyond_later },
	{ "mr-denies-write", "WRITE to a region without remote write",
	  mr_denies_write },
	{ "mr-denies-read", "READ of a region without remote read", mr_denies_read },
	{ "mr-denies-atomic", "atomic on a region without remote atomic",
	  mr_denies_atomic },
	{ "qp-denies-write", "WRITE to a QP without remote write", qp_denies_write },
	{ "qp-denies-read", "READ from a QP without remote read", qp_denies_read },
	{ "qp-denies-atomic", "atomic on a QP without remote atomic",
	  qp_denies_atomic },
	{ "bad-lkey", "WRITE with a wrong lkey; both have a receive", bad_lkey },
	{ "bad-lkey-later", "good WRITE, then SEND with a wrong lkey", bad_lkey_later },
	{ "beyond-local", "WRITE from behind the end of the local region",
	  beyond_local },
	{ "read-no-local-write", "READ into a region without local write",
	  read_no_local_write },
	{ "recv-no-local-write", "receive into a region without local write",
	  recv_no_local_write },
	{ "recv-bad-lkey", "SEND to a receive with a wrong lkey", recv_bad_lkey },
	{ "recv-unused-lkey", "WRITE_WITH_IMM to a receive with a wrong lkey",
	  unused_bad_lkey },
	{ "atomic-misaligned", "fetch-and-add at an address that is 4 mod 8",
	  misaligned },
	{ "atomic-4-bytes", "fetch-and-add with an SGE of 4 bytes", atomic_length },
	{ "around-error", "5 WRITEs, 2 with a wrong rkey, 3 unsignalled", around },
	{ "unsignalled-error", "unsignalled WRITEs, the second with a wrong rkey",
	  unsignalled_error },
	{ "error-opcode", "the opcode in completions with an error", error_opcode },
	{ 0 },
};
