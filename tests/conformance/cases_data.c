/* SPDX-License-Identifier: MIT */
/* Bytes that arrive: each opcode, by itself. */
#include <string.h>

#include "kit.h"

static void send_bytes(struct scene *scene, uint32_t length)
{
	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, B, AREA);
	do_send(scene, A, IBV_WR_SEND, length);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
	say_data(scene, "data", SIDE, length);
	if (scene->bytes[SIDE + length] != CANARY)
		say(scene, "and more");
}

static void send_0(struct scene *scene)
{
	send_bytes(scene, 0);
}

static void send_1(struct scene *scene)
{
	send_bytes(scene, 1);
}

static void send_mtu(struct scene *scene)
{
	send_bytes(scene, scene->kit->info.mtu);
}

static void send_mtu_1(struct scene *scene)
{
	send_bytes(scene, scene->kit->info.mtu + 1);
}

static void send_64k(struct scene *scene)
{
	send_bytes(scene, 65536);
}

static void send_imm(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, B, 64);
	do_send(scene, A, IBV_WR_SEND_WITH_IMM, 64);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
	say_data(scene, "data", SIDE, 64);
}

/* Exactly as long as the message. */
static void send_fits(struct scene *scene)
{
	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, B, 5000);
	do_send(scene, A, IBV_WR_SEND, 5000);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
	say_data(scene, "data", SIDE, 5000);
}

static void empty_receive(struct scene *scene)
{
	struct recv recv;

	if (!make_pair(scene, NULL))
		return;
	recv_init(scene, &recv, 0);
	recv.wr.num_sge = 0;
	recv.wr.sg_list = NULL;
	must_recv(scene, B, &recv);
	do_send(scene, A, IBV_WR_SEND_WITH_IMM, 0);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
}

static void write_bytes(struct scene *scene, uint32_t length)
{
	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, B, 64);
	do_send(scene, A, IBV_WR_RDMA_WRITE, length);
	say_wcs(scene, A, 1);
	say_all_wcs(scene, B, 0);
	say_data(scene, "data", FAR, length);
	if (scene->bytes[FAR + length] != CANARY)
		say(scene, "and more");
}

static void write_0(struct scene *scene)
{
	write_bytes(scene, 0);
}

static void write_1(struct scene *scene)
{
	write_bytes(scene, 1);
}

static void write_64k(struct scene *scene)
{
	write_bytes(scene, 65536);
}

static void write_imm_bytes(struct scene *scene, uint32_t length)
{
	if (!make_pair(scene, NULL))
		return;
	do_recv(scene, B, 64);
	do_send(scene, A, IBV_WR_RDMA_WRITE_WITH_IMM, length);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
	say_data(scene, "data", FAR, length);
	if (scene->bytes[SIDE] != CANARY)
		say(scene, "receive buffer changed");
}

static void write_imm_0(struct scene *scene)
{
	write_imm_bytes(scene, 0);
}

static void write_imm_64k(struct scene *scene)
{
	write_imm_bytes(scene, 65536);
}

static void write_imm_empty_receive(struct scene *scene)
{
	struct recv recv;

	if (!make_pair(scene, NULL))
		return;
	recv_init(scene, &recv, 0);
	recv.wr.num_sge = 0;
	must_recv(scene, B, &recv);
	do_send(scene, A, IBV_WR_RDMA_WRITE_WITH_IMM, 5000);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
	say_data(scene, "data", FAR, 5000);
}

/* No byte is touched, so keys and addresses do not matter. */
static void zero_bad_key(struct scene *scene)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ };
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		send_init(scene, &send, opcodes[i], 0);
		send.wr.num_sge = 0;
		send.wr.wr.rdma.rkey = 0;
		send.wr.wr.rdma.remote_addr = 0;
		must_send(scene, A, &send);
	}
	say_all_wcs(scene, A, 2);
}

static void read_bytes(struct scene *scene, uint32_t length)
{
	if (!make_pair(scene, NULL))
		return;
	memset(scene->bytes + FAR, 0x5a, length);
	do_send(scene, A, IBV_WR_RDMA_READ, length);
	say_wcs(scene, A, 1);
	say(scene, "data %s",
	    memcmp(scene->bytes + NEAR, scene->bytes + FAR, length) ? "wrong"
								    : "as read");
}

static void read_0(struct scene *scene)
{
	read_bytes(scene, 0);
}

static void read_1(struct scene *scene)
{
	read_bytes(scene, 1);
}

static void read_64k(struct scene *scene)
{
	read_bytes(scene, 65536);
}

/* Verbs define it for READs and atomics too. */
static void byte_len(struct scene *scene)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	static const uint32_t lengths[] = { 5000, 8 };
	struct ibv_wc wcs[WCS_MAX];

	if (!make_pair(scene, NULL))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		do_send(scene, A, opcodes[i], lengths[i]);
		if (wait_wcs(scene, A, wcs, 1) == 1)
			say(scene, "%s of %u: %s", opcode_name(wcs[0].opcode),
			    lengths[i],
			    wcs[0].byte_len == lengths[i] ? "as asked" : "not set");
	}
}

static uint64_t *word(struct scene *scene, size_t at)
{
	return (uint64_t *)(scene->bytes + at);
}

static void fetch_add(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	*word(scene, FAR) = 40;
	send_init(scene, &send, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	send.wr.wr.atomic.compare_add = 2;
	must_send(scene, A, &send);
	say_wcs(scene, A, 1);
	say(scene, "40 became %lu", (unsigned long)*word(scene, FAR));
	say(scene, "returned %lu", (unsigned long)*word(scene, NEAR));
}

static void swap(struct scene *scene, uint64_t compare)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	*word(scene, FAR) = 40;
	send_init(scene, &send, IBV_WR_ATOMIC_CMP_AND_SWP, 8);
	send.wr.wr.atomic.compare_add = compare;
	send.wr.wr.atomic.swap = 7;
	must_send(scene, A, &send);
	say_wcs(scene, A, 1);
	say(scene, "40 became %lu", (unsigned long)*word(scene, FAR));
	say(scene, "returned %lu", (unsigned long)*word(scene, NEAR));
}

static void swap_hit(struct scene *scene)
{
	swap(scene, 40);
}

static void swap_miss(struct scene *scene)
{
	swap(scene, 41);
}

/* Four pieces of NEAR in a row, as four SGEs that lie in reverse in memory of
 * the receive. */
static void split(struct ibv_sge *sges, uint32_t lkey)
{
	const uint64_t addr = sges[0].addr;
	static const uint32_t lengths[SGES_MAX] = { 1, 4999, 0, 3000 };
	uint64_t at = 0;

	for (unsigned i = 0; i < SGES_MAX; i++) {
		sges[i].addr = addr + at;
		sges[i].length = lengths[i];
		sges[i].lkey = lkey;
		at += lengths[i];
	}
}

static void gather_scatter(struct scene *scene)
{
	struct send send;
	struct recv recv;

	if (!make_pair(scene, NULL))
		return;
	recv_init(scene, &recv, 0);
	split(recv.sge, scene->mr[0]->lkey);
	recv.wr.num_sge = SGES_MAX;
	must_recv(scene, B, &recv);
	send_init(scene, &send, IBV_WR_SEND, 0);
	split(send.sge, scene->mr[0]->lkey);
	/* Other cuts than the receive has. */
	send.sge[0].length = 2500;
	send.sge[1].addr = send.sge[0].addr + 2500;
	send.sge[1].length = 2500;
	send.wr.num_sge = SGES_MAX;
	must_send(scene, A, &send);
	say_wcs(scene, A, 1);
	say_wcs(scene, B, 1);
	say_data(scene, "data", SIDE, 8000);
}

static void gather_write(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 0);
	split(send.sge, scene->mr[0]->lkey);
	send.wr.num_sge = SGES_MAX;
	must_send(scene, A, &send);
	say_wcs(scene, A, 1);
	say_data(scene, "data", FAR, 8000);
}

static void scatter_read(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	memset(scene->bytes + FAR, 0x5a, 8000);
	send_init(scene, &send, IBV_WR_RDMA_READ, 0);
	split(send.sge, scene->mr[0]->lkey);
	send.wr.num_sge = SGES_MAX;
	must_send(scene, A, &send);
	say_wcs(scene, A, 1);
	say(scene, "data %s",
	    memcmp(scene->bytes + NEAR, scene->bytes + FAR, 8000) ? "wrong"
								  : "as read");
}

/* The buffer is the program's again when the call returns; no key is needed. */
static void inline_send(struct scene *scene, enum ibv_wr_opcode opcode, size_t at)
{
	unsigned char message[64];
	struct send send;

	if (!make_pair(scene, NULL))
		return;
	memcpy(message, scene->bytes + NEAR, sizeof(message));
	do_recv(scene, B, 64);
	send_init(scene, &send, opcode, sizeof(message));
	send.wr.send_flags |= IBV_SEND_INLINE;
	send.sge[0].addr = (uintptr_t)message;
	send.sge[0].lkey = 0;
	must_send(scene, A, &send);
	memset(message, 0, sizeof(message));
	say_wcs(scene, A, 1);
	if (opcode == IBV_WR_SEND)
		say_wcs(scene, B, 1);
	say_data(scene, "data", at, sizeof(message));
}

static void inline_send_reuse(struct scene *scene)
{
	inline_send(scene, IBV_WR_SEND, SIDE);
}

static void inline_write_reuse(struct scene *scene)
{
	inline_send(scene, IBV_WR_RDMA_WRITE, FAR);
}

const struct conformance_case cases_data[] = {
	{ "send-0", "SEND of 0 bytes", send_0 },
	{ "send-1", "SEND of 1 byte", send_1 },
	{ "send-mtu", "SEND of one MTU", send_mtu },
	{ "send-mtu+1", "SEND of one MTU and a byte", send_mtu_1 },
	{ "send-64k", "SEND of 64 KiB", send_64k },
	{ "send-imm", "SEND_WITH_IMM of 64 bytes", send_imm },
	{ "send-fits", "SEND of 5000 bytes to a receive of 5000", send_fits },
	{ "send-no-sge", "SEND_WITH_IMM of 0 bytes to a receive without SGE",
	  empty_receive },
	{ "write-0", "WRITE of 0 bytes, with a receive posted", write_0 },
	{ "write-1", "WRITE of 1 byte, with a receive posted", write_1 },
	{ "write-64k", "WRITE of 64 KiB, with a receive posted", write_64k },
	{ "write-imm-0", "WRITE_WITH_IMM of 0 bytes", write_imm_0 },
	{ "write-imm-64k", "WRITE_WITH_IMM of 64 KiB", write_imm_64k },
	{ "write-imm-no-sge", "WRITE_WITH_IMM of 5000 bytes, receive without SGE",
	  write_imm_empty_receive },
	{ "zero-any-key", "WRITE and READ of 0 bytes with address and rkey 0",
	  zero_bad_key },
	{ "read-0", "READ of 0 bytes", read_0 },
	{ "read-1", "READ of 1 byte", read_1 },
	{ "read-64k", "READ of 64 KiB", read_64k },
	{ "read-byte-len", "byte_len of a READ and an atomic", byte_len },
	{ "fetch-add", "adds 2 to 40", fetch_add },
	{ "swap-hit", "compares 40 with 40, swaps in 7", swap_hit },
	{ "swap-miss", "compares 40 with 41", swap_miss },
	{ "sge-send", "SEND from 4 SGEs into 4 others", gather_scatter },
	{ "sge-write", "WRITE from 4 SGEs, one of them empty", gather_write },
	{ "sge-read", "READ into 4 SGEs, one of them empty", scatter_read },
	{ "inline-send", "inline SEND, buffer overwritten after the post",
	  inline_send_reuse },
	{ "inline-write", "inline WRITE, buffer overwritten after the post",
	  inline_write_reuse },
	{ 0 },
};
