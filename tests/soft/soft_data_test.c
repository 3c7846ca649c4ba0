/* SPDX-License-Identifier: MIT */
/* Soft devices: what every operation does when nothing goes wrong. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#define FAR   (256u << 10)
#define AREA  (256u << 10)
#define IMM   0x12345678u
#define SIDE  (512u << 10)
#define BELOW 64u /* a margin that must not be touched */

static const uint32_t sizes[] = { 0,	1,    3,    4,	  1023, 1024,
				  1025, 2047, 2048, 2049, 5000, 200000 };

static void clear(struct kit *kit)
{
	memset(kit->end[B].bytes, 0, KIT_BYTES);
	memset(kit->end[A].bytes + SIDE, 0, AREA);
}

static void check_far(struct kit *kit, uint32_t at, uint32_t length)
{
	kit_check(kit, B, at, length, 1);
	kit_check_zero(kit, B, at - BELOW, BELOW);
	kit_check_zero(kit, B, at + length, BELOW);
}

static void each_size(const struct kit_opts *opts,
		      void (*check)(struct kit *kit, uint32_t length))
{
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct kit *kit = kit_open(opts);

		kit_fill(kit, A, 0, AREA, 1);
		check(kit, sizes[i]);
		kit_expect_none(kit, A);
		kit_expect_none(kit, B);
		kit_expect_no_event(kit, A);
		kit_expect_no_event(kit, B);
		assert_int_equal(kit_stats(kit, A)->dropped, 0);
		assert_int_equal(kit_stats(kit, B)->dropped, 0);
		assert_int_equal(kit_stats(kit, A)->resent, 0);
		kit_close(kit);
	}
}

static void check_write(struct kit *kit, uint32_t length)
{
	kit_send(kit, A,
		 &(struct kit_send){ .id = 7,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .far = FAR,
				     .length = length });
	kit_run(kit);
	assert_int_equal(kit_expect(kit, A, 7, IBV_WC_SUCCESS).opcode,
			 IBV_WC_RDMA_WRITE);
	check_far(kit, FAR, length);
}

static void writes(void **state)
{
	(void)state;
	each_size(NULL, check_write);
	each_size(&(struct kit_opts){ .mtu = IBV_MTU_256 }, check_write);
	each_size(&(struct kit_opts){ .mtu = IBV_MTU_4096, .ipv6 = true }, check_write);
}

static void check_write_imm(struct kit *kit, uint32_t length)
{
	struct ibv_wc wc;

	kit_recv(kit, B, 70, 0, 16);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 7,
				     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				     .imm = IMM,
				     .far = FAR,
				     .length = length });
	kit_run(kit);
	kit_expect(kit, A, 7, IBV_WC_SUCCESS);
	wc = kit_expect(kit, B, 70, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, IMM);
	assert_int_equal(wc.byte_len, length);
	assert_int_equal(wc.qp_num, kit->end[B].qp->qp_num);
	assert_int_equal(wc.src_qp, kit->end[A].qp->qp_num);
	check_far(kit, FAR, length);
	kit_check_zero(kit, B, 0, 16);
}

static void writes_with_immediate(void **state)
{
	(void)state;
	each_size(NULL, check_write_imm);
}

static void send_and_check(struct kit *kit, uint32_t length, enum ibv_wr_opcode opcode)
{
	bool imm = opcode == IBV_WR_SEND_WITH_IMM;
	struct ibv_wc wc;

	kit_recv(kit, B, 70, FAR, AREA);
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 7, .opcode = opcode, .imm = IMM, .length = length });
	kit_run(kit);
	assert_int_equal(kit_expect(kit, A, 7, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
	wc = kit_expect(kit, B, 70, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, length);
	assert_int_equal(wc.wc_flags, imm ? IBV_WC_WITH_IMM : 0);
	assert_int_equal(wc.imm_data, imm ? IMM : 0);
	check_far(kit, FAR, length);
}

static void check_send(struct kit *kit, uint32_t length)
{
	send_and_check(kit, length, IBV_WR_SEND);
}

static void check_send_imm(struct kit *kit, uint32_t length)
{
	send_and_check(kit, length, IBV_WR_SEND_WITH_IMM);
}

static void sends(void **state)
{
	(void)state;
	each_size(NULL, check_send);
	each_size(&(struct kit_opts){ .srq_depth = 4 }, check_send);
	each_size(NULL, check_send_imm);
}

static void check_read(struct kit *kit, uint32_t length)
{
	struct ibv_wc wc;

	kit_fill(kit, B, FAR, length, 2);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 7,
				     .opcode = IBV_WR_RDMA_READ,
				     .at = SIDE,
				     .far = FAR,
				     .length = length });
	kit_run(kit);
	wc = kit_expect(kit, A, 7, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_int_equal(wc.byte_len, length);
	kit_check(kit, A, SIDE, length, 2);
	kit_check_zero(kit, A, SIDE - BELOW, BELOW);
	kit_check_zero(kit, A, SIDE + length, BELOW);
}

static void reads(void **state)
{
	(void)state;
	each_size(NULL, check_read);
	each_size(&(struct kit_opts){ .reads = 1, .dest_reads = 1 }, check_read);
	each_size(&(struct kit_opts){ .config = { .response_window = 1 } }, check_read);
}

/* PSNs go round in the middle of messages of every kind. */
static void numbers_wrap(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .psn = 0xfffff0 });

	(void)state;
	kit_fill(kit, A, 0, AREA, 1);
	for (uint64_t round = 0; round < 3; round++) {
		clear(kit);
		check_write(kit, 20000);
		clear(kit);
		check_send(kit, 20000);
		clear(kit);
		check_read(kit, 20000);
	}
	kit_close(kit);
}

static uint64_t *word(struct kit *kit, unsigned end, uint32_t at)
{
	return (uint64_t *)(void *)(kit->end[end].bytes + at);
}

static void atomics(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct ibv_wc wc;

	(void)state;
	*word(kit, B, FAR) = 40;
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1,
				     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				     .length = 8,
				     .far = FAR,
				     .compare_add = 2 });
	kit_send(kit, A,
		 &(struct kit_send){ .id = 2,
				     .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				     .at = 8,
				     .length = 8,
				     .far = FAR,
				     .compare_add = 42,
				     .swap = 0x1122334455667788 });
	kit_send(kit, A,
		 &(struct kit_send){ .id = 3,
				     .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				     .at = 16,
				     .length = 8,
				     .far = FAR,
				     .compare_add = 42,
				     .swap = 9 });
	kit_run(kit);
	wc = kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(wc.byte_len, 8);
	assert_int_equal(kit_expect(kit, A, 2, IBV_WC_SUCCESS).opcode,
			 IBV_WC_COMP_SWAP);
	kit_expect(kit, A, 3, IBV_WC_SUCCESS);
	assert_true(*word(kit, A, 0) == 40);
	assert_true(*word(kit, A, 8) == 42);
	assert_true(*word(kit, A, 16) == 0x1122334455667788);
	assert_true(*word(kit, B, FAR) == 0x1122334455667788);
	kit_close(kit);
}

static void post_sges(struct kit *kit, enum ibv_wr_opcode opcode,
		      const uint32_t (*pieces)[2])
{
	struct ibv_sge sge[KIT_SGES];
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr =
		kit_wr(kit, A,
		       &(struct kit_send){ .id = 7, .opcode = opcode, .far = FAR },
		       sge);

	for (unsigned i = 0; i < KIT_SGES; i++)
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)kit->end[A].bytes + pieces[i][0],
			.length = pieces[i][1],
			.lkey = pieces[i][1] ? kit->end[A].mr->lkey : 0xbad,
		};
	wr.num_sge = KIT_SGES;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), 0);
}

/* Lists whose pieces end within packets, at their ends, and are empty. */
static void scattered(void **state)
{
	static const uint32_t pieces[KIT_SGES][2] = {
		{ 0, 1000 }, { 1000, 0 }, { 1000, 1048 }, { 2048, 3000 }
	};
	static const uint32_t landing[KIT_SGES][2] = {
		{ SIDE, 1000 }, { 0, 0 }, { SIDE + 1000, 1048 }, { SIDE + 2048, 3000 }
	};
	struct kit *kit = kit_open(NULL);
	struct ibv_recv_wr *bad;
	struct ibv_sge sge[3];
	struct ibv_recv_wr wr = { .wr_id = 70, .sg_list = sge, .num_sge = 3 };

	(void)state;
	kit_fill(kit, A, 0, AREA, 1);
	post_sges(kit, IBV_WR_RDMA_WRITE, pieces);
	kit_run(kit);
	kit_expect(kit, A, 7, IBV_WC_SUCCESS);
	check_far(kit, FAR, 5048);

	post_sges(kit, IBV_WR_RDMA_READ, landing);
	kit_run(kit);
	assert_int_equal(kit_expect(kit, A, 7, IBV_WC_SUCCESS).byte_len, 5048);
	kit_check(kit, A, SIDE, 5048, 1);

	clear(kit);
	for (unsigned i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)kit->end[B].bytes + FAR + i * 2000,
			.length = i < 2 ? 2000 : 4000,
			.lkey = kit->end[B].mr->lkey,
		};
	assert_int_equal(ibv_post_recv(kit->end[B].qp, &wr, &bad), 0);
	post_sges(kit, IBV_WR_SEND, pieces);
	kit_run(kit);
	kit_expect(kit, A, 7, IBV_WC_SUCCESS);
	assert_int_equal(kit_expect(kit, B, 70, IBV_WC_SUCCESS).byte_len, 5048);
	check_far(kit, FAR, 5048);
	kit_close(kit);
}

static void inline_is_copied(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_fill(kit, A, 0, 64, 1);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .far = FAR,
				     .length = 64,
				     .flags = IBV_SEND_INLINE });
	memset(kit->end[A].bytes, 0xff, 64);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	check_far(kit, FAR, 64);
	assert_int_equal(kit_try_send(kit, A,
				      &(struct kit_send){ .opcode = IBV_WR_RDMA_WRITE,
							  .length = 65,
							  .flags = IBV_SEND_INLINE }),
			 EINVAL);
	assert_int_equal(kit_try_send(kit, A,
				      &(struct kit_send){ .opcode = IBV_WR_RDMA_READ,
							  .length = 8,
							  .flags = IBV_SEND_INLINE }),
			 EINVAL);
	kit_close(kit);
}

/* rdma_xclient asks for no inline data and posts 16 bytes: real devices round up. */
static void inline_room_is_rounded_up(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .unconnected = true });
	struct kit_end *a = &kit->end[A];

	(void)state;
	for (uint32_t sges = 0; sges <= 5; sges++) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.send_cq = a->cq,
			.recv_cq = a->cq,
			.cap = { .max_send_wr = 1, .max_send_sge = sges },
		};
		struct ibv_qp *qp;

		assert_int_equal(kit->control->create_qp(a->pd, &init, &qp), 0);
		assert_int_equal(init.cap.max_inline_data, sges <= 4 ? 64 : 128);
		assert_int_equal(init.cap.max_send_sge, sges);
		assert_int_equal(kit->control->destroy_qp(qp), 0);
	}
	kit_close(kit);
}

static enum kit_fate drop_chosen(struct kit *kit, const struct kit_frame *frame)
{
	return frame->index == kit->chosen ? KIT_DROP : KIT_PASS;
}

/* Inline data of several packets, one of which is lost and sent again. */
static void inline_of_several_packets(void **state)
{
	(void)state;
	for (unsigned lost = 0; lost < 5; lost++) {
		struct kit *kit = kit_open(
			&(struct kit_opts){ .mtu = IBV_MTU_256,
					    .cap = { .max_inline_data = 1000 },
					    .config = { .inline_max = 1000 } });

		kit->fate = drop_chosen;
		kit->chosen = lost;
		kit_fill(kit, A, 0, 1000, 1);
		kit_send(kit, A,
			 &(struct kit_send){ .id = 1,
					     .opcode = IBV_WR_RDMA_WRITE,
					     .far = FAR,
					     .length = 1000,
					     .flags = IBV_SEND_INLINE });
		memset(kit->end[A].bytes, 0xff, 1000);
		kit_run(kit);
		kit_expect(kit, A, 1, IBV_WC_SUCCESS);
		check_far(kit, FAR, 1000);
		kit_close(kit);
	}
}

/* Without the fence the WRITE would carry what was there before the READ. */
static void fence_waits(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_fill(kit, B, FAR, 5000, 2);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1,
				     .opcode = IBV_WR_RDMA_READ,
				     .far = FAR,
				     .length = 5000 });
	kit_send(kit, A,
		 &(struct kit_send){ .id = 2,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .far = 0,
				     .length = 5000,
				     .flags = IBV_SEND_FENCE });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_check(kit, B, 0, 5000, 2);
	kit_close(kit);
}

static void unsignalled(void **state)
{
	struct kit *kit = kit_open(NULL), *all;

	(void)state;
	for (unsigned i = 0; i < 3 * KIT_DEPTH; i++) {
		kit_send(kit, A,
			 &(struct kit_send){ .id = i,
					     .opcode = IBV_WR_RDMA_WRITE,
					     .length = 64,
					     .silent = i % 4 != 3 });
		kit_run(kit);
		if (i % 4 == 3)
			kit_expect(kit, A, i, IBV_WC_SUCCESS);
		else
			kit_expect_none(kit, A);
	}
	kit_close(kit);

	all = kit_open(&(struct kit_opts){ .signal_all = true });
	kit_send(all, A,
		 &(struct kit_send){
			 .id = 1, .opcode = IBV_WR_RDMA_WRITE, .silent = true });
	kit_run(all);
	kit_expect(all, A, 1, IBV_WC_SUCCESS);
	kit_close(all);
}

/* No more READs are under way than the peer can remember. */
static void watch_reads(struct kit *kit, const struct kit_frame *frame)
{
	uint8_t opcode = frame->bytes[0];

	if (opcode == SNT__WIRE_READ_REQUEST || opcode == SNT__WIRE_FETCH_ADD) {
		kit->chosen++;
		assert_in_range(kit->chosen, 1, 2);
	}
	if (opcode == SNT__WIRE_READ_RESPONSE_LAST ||
	    opcode == SNT__WIRE_READ_RESPONSE_ONLY ||
	    opcode == SNT__WIRE_ATOMIC_ACKNOWLEDGE)
		kit->chosen--;
}

static void read_limit_is_kept(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .reads = 2, .dest_reads = 2 });

	(void)state;
	kit->watch = watch_reads;
	kit->batch = 1;
	for (unsigned i = 0; i < 20; i++)
		kit_send(kit, A,
			 &(struct kit_send){
				 .id = i,
				 .opcode = i % 3 ? IBV_WR_RDMA_READ
						 : IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .far = 8 * i,
				 .length = i % 3 ? 3000 : 8 });
	kit_run(kit);
	for (unsigned i = 0; i < 20; i++)
		kit_expect(kit, A, i, IBV_WC_SUCCESS);
	kit_close(kit);
}

/* Many acknowledgments become one, if packets come in batches. */
static void acks_coalesce(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	for (unsigned i = 0; i < KIT_DEPTH; i++)
		kit_send(kit, A,
			 &(struct kit_send){
				 .id = i, .opcode = IBV_WR_RDMA_WRITE, .length = 64 });
	kit_exchange(kit);
	kit_run(kit);
	assert_int_equal(kit->watched[SNT__WIRE_ACKNOWLEDGE], 1);
	for (unsigned i = 0; i < KIT_DEPTH; i++)
		kit_expect(kit, A, i, IBV_WC_SUCCESS);
	kit_close(kit);
}

/* The response of a READ is the acknowledgment of all before it. */
static void reads_acknowledge(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 2, .opcode = IBV_WR_RDMA_READ, .length = 8 });
	kit_exchange(kit);
	kit_run(kit);
	assert_int_equal(kit->watched[SNT__WIRE_ACKNOWLEDGE], 0);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_close(kit);
}

/* Lengths are of one message, not of those before it. */
static void lengths_start_anew(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_fill(kit, A, 0, AREA, 1);
	for (unsigned i = 0; i < 3; i++) {
		check_write_imm(kit, 3000);
		clear(kit);
		check_send(kit, 3000);
		clear(kit);
	}
	kit_close(kit);
}

/* What goes out comes as runs that differ in nothing but their numbers. */
static void middle_packets_run(void **state)
{
	static struct snt__soft_packet packets[40];
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = IBV_WR_RDMA_WRITE, .length = 40 << 10 });
	assert_int_equal(snt__soft_output(kit->end[A].device, packets, 40, 0), 40);
	for (unsigned i = 2; i < 39; i++) {
		assert_int_equal(packets[i].header[0], SNT__WIRE_WRITE_MIDDLE);
		assert_ptr_equal(packets[i].path, packets[1].path);
		assert_int_equal(packets[i].header_length, packets[1].header_length);
		assert_int_equal(packets[i].payload_length, packets[1].payload_length);
		assert_int_equal(packets[i].payload_count, 1);
	}
	assert_int_equal(packets[39].header[0], SNT__WIRE_WRITE_LAST);
	kit_close(kit);
}

/* As if the peer had got all up to that packet. */
static void acknowledge(struct kit *kit, uint32_t psn)
{
	struct snt__wire_packet packet = {
		.opcode = SNT__WIRE_ACKNOWLEDGE,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = kit->end[A].qp->qp_num,
		.psn = psn,
		.ack = { .syndrome = SNT__SYNDROME_ACK_UNLIMITED },
	};

	kit_inject(kit, A, &packet, NULL);
}

/* A message that is longer than the window stops at the end of a run, of which the
 * first begins behind two packets. One that ends within the window does not. */
static void windows_open_by_runs(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){
		.config = { .request_window = 16 * 1024, .run_bytes = 4 * 1040 } });

	(void)state;
	kit_send(kit, A,
		 &(struct kit_send){ .opcode = IBV_WR_RDMA_WRITE,
				     .far = FAR,
				     .length = 23 * 1024 });
	assert_int_equal(kit_swallow(kit, A), 2 + 3 * 4);
	/* Room for three packets, and for four. */
	acknowledge(kit, 0);
	assert_int_equal(kit_swallow(kit, A), 0);
	acknowledge(kit, 1);
	assert_int_equal(kit_swallow(kit, A), 4);
	acknowledge(kit, 2);
	assert_int_equal(kit_swallow(kit, A), 0);
	/* The end is in reach. */
	acknowledge(kit, 6);
	assert_int_equal(kit_swallow(kit, A), 5);
	kit_close(kit);
}

/* The QP with most to send does not get more than the others. */
static void turns_are_fair(void **state)
{
	enum {
		QPS = 4,
		EACH = 64
	};
	static struct snt__soft_packet packets[QPS * EACH];
	struct kit *kit = kit_open(NULL);
	struct ibv_qp *qps[QPS];
	unsigned counts[QPS] = { 0 };

	(void)state;
	for (unsigned i = 0; i < QPS; i++) {
		qps[i] = kit->end[A].qp;
		kit_send(kit, A,
			 &(struct kit_send){ .id = i,
					     .opcode = IBV_WR_RDMA_WRITE,
					     .length = 200000 + i * 10000 });
		kit_make_qp(kit, A);
		kit_connect(kit, A);
	}
	for (unsigned at = 0; at < QPS * EACH; at += 16)
		assert_int_equal(snt__soft_output(kit->end[A].device, packets + at, 16,
						  0),
				 16);
	/* Each QP has a path of its own, and the first four turns are theirs. */
	for (unsigned i = 0; i < QPS * EACH; i++)
		for (unsigned j = 0; j < QPS; j++)
			counts[j] += packets[i].path == packets[16 * j].path;
	for (unsigned i = 0; i < QPS; i++) {
		assert_int_equal(counts[i], EACH);
		assert_int_equal(kit->control->destroy_qp(qps[i]), 0);
	}
	kit_close(kit);
}

/* An end that is read from without end gets to send, from the same QP, within two
 * turns. */
static void answers_leave_room_for_requests(void **state)
{
	static struct snt__soft_packet packets[96];
	struct kit *kit = kit_open(NULL);
	unsigned requests = 0, answers = 0, count;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		kit_send(kit, B,
			 &(struct kit_send){ .id = i,
					     .opcode = IBV_WR_RDMA_READ,
					     .far = FAR,
					     .length = 60000 });
	kit_exchange(kit);
	kit_send(kit, A, &(struct kit_send){ .id = 9, .opcode = IBV_WR_RDMA_WRITE });
	for (unsigned i = 0; i < 96; i += count) {
		count = snt__soft_output(kit->end[A].device, packets, 32, 0);
		assert_int_equal(count, 32);
		for (unsigned j = 0; j < count; j++)
			if (packets[j].header[0] == SNT__WIRE_WRITE_ONLY)
				requests++;
			else if (!requests)
				answers++;
	}
	assert_int_equal(requests, 1);
	assert_in_range(answers, 32, 64);
	kit_close(kit);
}

/* One kick for all that is posted before anybody looks. */
static void kicks_are_few(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit->kicks = 0;
	for (unsigned i = 0; i < 5; i++)
		kit_send(kit, A,
			 &(struct kit_send){ .id = i, .opcode = IBV_WR_RDMA_WRITE });
	assert_int_equal(kit->kicks, 1);
	kit_run(kit);
	kit_recv(kit, A, 60, 0, 64);
	assert_int_equal(kit->kicks, 1);
	kit_send(kit, A, &(struct kit_send){ .id = 5, .opcode = IBV_WR_RDMA_WRITE });
	assert_int_equal(kit->kicks, 2);
	kit_close(kit);
}

/* What B has to send because it posted. Returns how many packets; their opcodes are in
 * `opcodes`. */
static unsigned take_posted(struct kit *kit, uint8_t opcodes[4])
{
	struct snt__soft_packet packets[4];
	unsigned count =
		snt__soft_output_posted(kit->end[B].device, packets, 4, kit->now);

	for (unsigned i = 0; i < count; i++)
		opcodes[i] = packets[i].header[0];
	return count;
}

static void ask(struct kit *kit, unsigned end, enum ibv_wr_opcode opcode)
{
	kit_send(kit, end,
		 &(struct kit_send){
			 .id = 7, .opcode = opcode, .far = FAR, .length = 100 });
}

/* An acknowledgment can wait for the next output; nothing else can. */
static void posted_goes_without_acknowledgment(void **state)
{
	static const struct {
		enum ibv_wr_opcode asked;
		unsigned answers; /* that go along */
		uint8_t answer;
	} cases[] = {
		{ IBV_WR_RDMA_WRITE, 0, 0 },
		{ IBV_WR_RDMA_READ, 1, SNT__WIRE_READ_RESPONSE_ONLY },
		{ IBV_WR_SEND, 1, SNT__WIRE_ACKNOWLEDGE }, /* RNR */
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct kit *kit = kit_open(NULL);
		struct snt__soft_packet packet;
		uint8_t opcodes[4];

		ask(kit, A, cases[i].asked);
		kit_exchange(kit);
		ask(kit, B, IBV_WR_RDMA_WRITE);
		assert_int_equal(take_posted(kit, opcodes), 1 + cases[i].answers);
		if (cases[i].answers)
			assert_int_equal(opcodes[0], cases[i].answer);
		assert_int_equal(opcodes[cases[i].answers], SNT__WIRE_WRITE_ONLY);
		assert_int_equal(take_posted(kit, opcodes), 0);
		assert_int_equal(snt__soft_output(kit->end[B].device, &packet, 1,
						  kit->now),
				 !cases[i].answers);
		if (!cases[i].answers)
			assert_int_equal(packet.header[0], SNT__WIRE_ACKNOWLEDGE);
		kit_close(kit);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes),
		cmocka_unit_test(writes_with_immediate),
		cmocka_unit_test(sends),
		cmocka_unit_test(reads),
		cmocka_unit_test(numbers_wrap),
		cmocka_unit_test(atomics),
		cmocka_unit_test(scattered),
		cmocka_unit_test(inline_is_copied),
		cmocka_unit_test(inline_room_is_rounded_up),
		cmocka_unit_test(inline_of_several_packets),
		cmocka_unit_test(fence_waits),
		cmocka_unit_test(unsignalled),
		cmocka_unit_test(read_limit_is_kept),
		cmocka_unit_test(acks_coalesce),
		cmocka_unit_test(reads_acknowledge),
		cmocka_unit_test(lengths_start_anew),
		cmocka_unit_test(middle_packets_run),
		cmocka_unit_test(windows_open_by_runs),
		cmocka_unit_test(turns_are_fair),
		cmocka_unit_test(answers_leave_room_for_requests),
		cmocka_unit_test(kicks_are_few),
		cmocka_unit_test(posted_goes_without_acknowledgment),
	};

	return cmocka_run_group_tests_name("soft_data", tests, NULL, NULL);
}
