/* SPDX-License-Identifier: MIT */
/* Soft devices: the longest message that there is, 2 GiB, without as much memory; and
 * so many packets that their numbers come round. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include <sys/mman.h>
#include <unistd.h>

#define HUGE  (UINT64_C(1) << 31)
#define PIECE (UINT64_C(64) << 20)

/* The same file, mapped again and again. */
static uint8_t *map_huge(void)
{
	int fd = memfd_create("huge", 0);
	uint8_t *at = mmap(NULL, HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(ftruncate(fd, PIECE), 0);
	for (uint64_t offset = 0; offset < HUGE; offset += PIECE)
		assert_ptr_not_equal(mmap(at + offset, PIECE, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_FIXED, fd, 0),
				     MAP_FAILED);
	close(fd);
	return at;
}

/* Bytes tell where in a piece they are. */
static void fill(uint8_t *bytes, uint64_t seed)
{
	for (uint64_t i = 0; i < PIECE; i += 8)
		*(uint64_t *)(void *)(bytes + i) = (i + seed) * 0x9e3779b97f4a7c15u;
}

/* Without the kit's wire, which looks at every packet for too long. */
static unsigned shuttle(struct kit *kit, unsigned from)
{
	static struct snt__soft_packet packets[64];
	static uint8_t bytes[SNT__WIRE_HEADER_MAX + 4096];
	unsigned count = snt__soft_output(kit->end[from].device, packets, 64, kit->now);

	for (unsigned i = 0; i < count; i++) {
		const struct snt__soft_packet *packet = &packets[i];

		memcpy(bytes, packet->header, packet->header_length);
		if (packet->payload_count)
			memcpy(bytes + packet->header_length,
			       packet->payload[0].iov_base, packet->payload_length);
		assert_in_range(packet->payload_count, 0, 1);
		snt__soft_input(kit->end[!from].device, packet->path, bytes,
				packet->header_length + packet->payload_length,
				kit->now);
	}
	return count;
}

struct huge {
	struct kit *kit;
	uint8_t *bytes[ENDS];
	struct ibv_mr *mr[ENDS];
};

static void post(struct huge *huge, enum ibv_wr_opcode opcode)
{
	struct kit *kit = huge->kit;
	struct ibv_send_wr *bad, wr;
	struct ibv_sge sge[2];

	wr = kit_wr(kit, A, &(struct kit_send){ .id = 1, .opcode = opcode }, sge);
	sge[0] = (struct ibv_sge){ (uintptr_t)huge->bytes[A], (uint32_t)(HUGE - 4096),
				   huge->mr[A]->lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)huge->bytes[A] + HUGE - 4096, 4096,
				   huge->mr[A]->lkey };
	wr.num_sge = 2;
	wr.wr.rdma.remote_addr = (uintptr_t)huge->bytes[B];
	wr.wr.rdma.rkey = huge->mr[B]->rkey;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), 0);
}

static void transfer(struct huge *huge, enum ibv_wr_opcode opcode)
{
	struct kit *kit = huge->kit;

	post(huge, opcode);
	while (shuttle(kit, A) + shuttle(kit, B))
		;
	assert_int_equal(kit_expect(kit, A, 1, IBV_WC_SUCCESS).byte_len, HUGE);
	assert_int_equal(kit_stats(kit, A)->resent, 0);
	assert_memory_equal(huge->bytes[A], huge->bytes[B], PIECE);
}

static void there_and_back(void **state)
{
	struct huge huge = { .kit = kit_open(&(struct kit_opts){ .mtu = IBV_MTU_4096,
								 .psn = 0xfffff0 }) };
	struct kit *kit = huge.kit;

	(void)state;
	for (unsigned end = A; end < ENDS; end++) {
		huge.bytes[end] = map_huge();
		assert_int_equal(kit->control->reg_mr(kit->end[end].pd, huge.bytes[end],
						      HUGE, KIT_ACCESS, &huge.mr[end]),
				 0);
	}
	fill(huge.bytes[A], 1);
	transfer(&huge, IBV_WR_RDMA_WRITE);
	fill(huge.bytes[B], 2);
	transfer(&huge, IBV_WR_RDMA_READ);
	for (unsigned end = A; end < ENDS; end++) {
		assert_int_equal(kit->control->dereg_mr(huge.mr[end]), 0);
		munmap(huge.bytes[end], HUGE);
	}
	kit_close(kit);
}

/*
 * So many packets that their numbers come round.
 */

#define FAR    4096u
#define NUMBER (1u << 24)

static struct snt__wire_packet request(struct kit *kit, uint8_t opcode, uint32_t psn)
{
	return (struct snt__wire_packet){ .opcode = opcode,
					  .pkey = 0xffff,
					  .qpn = kit->end[B].qp->qp_num,
					  .psn = psn };
}

/* Empty WRITEs, with these numbers, to which no answer is wanted. */
static void write_up_to(struct kit *kit, uint32_t psn, uint32_t end)
{
	struct snt__wire_packet packet = request(kit, SNT__WIRE_WRITE_ONLY, 0);

	for (; psn != end; psn++) {
		packet.psn = psn % NUMBER;
		kit_inject(kit, B, &packet, NULL);
	}
	assert_int_equal(kit_swallow(kit, B), 0);
}

/* What B says to a request. */
static unsigned ask(struct kit *kit, const struct snt__wire_packet *packet,
		    struct snt__wire_packet *answer_out)
{
	struct snt__soft_packet out[8];
	unsigned count;

	kit_inject(kit, B, packet, NULL);
	count = snt__soft_output(kit->end[B].device, out, 8, 0);
	if (count)
		assert_int_equal(snt__wire_decode(out[0].header, out[0].header_length,
						  answer_out),
				 0);
	return count;
}

/* READs and atomics of a round ago do not answer those of now. */
static void numbers_come_round(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct snt__wire_packet add = request(kit, SNT__WIRE_FETCH_ADD, 0);
	struct snt__wire_packet read = request(kit, SNT__WIRE_READ_REQUEST, 2);
	struct snt__wire_packet write = request(kit, SNT__WIRE_WRITE_ONLY, 1);
	struct snt__wire_packet answer;

	(void)state;
	add.atomic.addr = read.reth.addr = (uintptr_t)kit->end[B].bytes + FAR;
	add.atomic.key = read.reth.key = kit->end[B].mr->rkey;
	add.atomic.swap_add = 5;
	read.reth.length = 6 * 1024;
	write.flags = SNT__WIRE_ACK_REQUEST;
	assert_int_equal(ask(kit, &add, &answer), 1);
	write_up_to(kit, 1, 2);
	assert_int_equal(ask(kit, &read, &answer), 6);
	write_up_to(kit, 8, NUMBER);
	/* The same number, but not the same. */
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(ask(kit, &add, &answer), 1);
		assert_int_equal(answer.ack.original, 5);
	}
	/* Nothing old is in the way of an ACK. */
	write_up_to(kit, NUMBER + 1, NUMBER + 6);
	assert_int_equal(ask(kit, &write, &answer), 1);
	assert_int_equal(answer.psn, 5);
	read.psn = 6;
	read.reth.length = 2 * 1024;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(ask(kit, &read, &answer), 2);
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(there_and_back),
					    cmocka_unit_test(numbers_come_round) };

	return cmocka_run_group_tests_name("soft_huge", tests, NULL, NULL);
}
