/* SPDX-License-Identifier: MIT */
/*
 * Soft devices: whatever the wire does, everything completes, once, and byte by byte.
 *
 * A scene of all operations in both directions runs again and again, each time with
 * another packet that is lost, doubled or late.
 */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include "lib/seeds.h"

/* Each end's memory: what it sends, what is written and sent to it, where it reads to,
 * and the words for atomics. */
#define OUT   0u
#define IN    (128u << 10)
#define RECV  (256u << 10)
#define READ  (384u << 10)
#define WORDS (512u << 10)

#define MS     UINT64_C(1000000)
#define ROUNDS 4
#define WRITES 3000u /* bytes; not a multiple of the MTU */
#define SENDS  2500u
#define READS  5000u

static uint64_t *word(struct kit *kit, unsigned end, unsigned index)
{
	return (uint64_t *)(void *)(kit->end[end].bytes + WORDS) + index;
}

/* WRs of all kinds, with dependencies that a lost packet could break. */
static void post_round(struct kit *kit, unsigned end, unsigned round)
{
	uint64_t id = 100 * round;

	kit_send(kit, end,
		 &(struct kit_send){ .id = id,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .at = OUT,
				     .far = IN + round * WRITES,
				     .length = WRITES });
	kit_send(kit, end,
		 &(struct kit_send){ .id = id + 1,
				     .opcode = IBV_WR_SEND_WITH_IMM,
				     .imm = round,
				     .at = OUT,
				     .length = SENDS });
	kit_send(kit, end,
		 &(struct kit_send){ .id = id + 2,
				     .opcode = IBV_WR_RDMA_READ,
				     .at = READ + round * READS,
				     .far = OUT,
				     .length = READS });
	kit_send(kit, end,
		 &(struct kit_send){ .id = id + 3,
				     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				     .at = WORDS + 64 + 8 * round,
				     .far = WORDS,
				     .length = 8,
				     .compare_add = 1 });
	kit_send(kit, end,
		 &(struct kit_send){ .id = id + 4,
				     .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				     .at = WORDS + 128 + 8 * round,
				     .far = WORDS + 8,
				     .length = 8,
				     .compare_add = round,
				     .swap = round + 1 });
	kit_send(kit, end,
		 &(struct kit_send){ .id = id + 5,
				     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				     .imm = round,
				     .at = OUT,
				     .far = IN + round * WRITES,
				     .length = 10,
				     .flags = IBV_SEND_FENCE });
	kit_send(kit, end,
		 &(struct kit_send){ .id = id + 6,
				     .opcode = IBV_WR_RDMA_READ,
				     .at = READ + round * READS,
				     .far = OUT,
				     .length = 700 });
}

static void begin_end(struct kit *kit, unsigned end)
{
	kit_fill(kit, end, OUT, READS, end);
	for (unsigned i = 0; i < ROUNDS; i++) {
		kit_recv(kit, end, 1000 + 2 * i, RECV + i * SENDS, SENDS);
		kit_recv(kit, end, 1001 + 2 * i, 0, 0);
	}
}

/* Completions of both queues of an end, each in order. */
static void check_completions(struct kit *kit, unsigned end)
{
	uint64_t sends = 0, recvs = 1000;
	struct ibv_wc wc;

	while (ibv_poll_cq(kit->end[end].cq, 1, &wc) == 1) {
		uint64_t *next = wc.wr_id >= 1000 ? &recvs : &sends;

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, *next);
		++*next;
		if (next == &sends && *next % 100 == 7)
			*next += 93;
		if (next == &recvs)
			assert_int_equal(wc.imm_data, (wc.wr_id - 1000) / 2);
	}
	assert_int_equal(sends, 100 * ROUNDS);
	assert_int_equal(recvs, 1000 + 2 * ROUNDS);
}

static void check_end(struct kit *kit, unsigned end)
{
	check_completions(kit, end);
	for (unsigned i = 0; i < ROUNDS; i++) {
		kit_check(kit, end, IN + i * WRITES, WRITES, !end);
		kit_check(kit, end, RECV + i * SENDS, SENDS, !end);
		kit_check(kit, end, READ + i * READS, READS, !end);
		assert_true(*word(kit, end, 8 + i) == i);
		assert_true(*word(kit, end, 16 + i) == i);
	}
	assert_true(*word(kit, end, 0) == ROUNDS);
	assert_true(*word(kit, end, 1) == ROUNDS);
	assert_int_equal(kit_state(kit, end), IBV_QPS_RTS);
	kit_expect_no_event(kit, end);
}

static struct kit *play(enum kit_fate (*fate)(struct kit *, const struct kit_frame *),
			unsigned chosen, uint64_t seed)
{
	struct kit *kit = kit_open(&(struct kit_opts){
		.psn = 0xffffff - (uint32_t)chosen % 64, .timeout = 12 });

	kit->fate = fate;
	kit->chosen = chosen;
	if (seed)
		kit->random = seed;
	begin_end(kit, A);
	begin_end(kit, B);
	for (unsigned i = 0; i < ROUNDS; i++) {
		post_round(kit, A, i);
		post_round(kit, B, i);
	}
	kit_run(kit);
	check_end(kit, A);
	check_end(kit, B);
	return kit;
}

static unsigned frames_of_a_play(void)
{
	struct kit *kit = play(NULL, 0, 0);
	unsigned frames = kit->frames;

	assert_int_equal(kit_stats(kit, A)->resent, 0);
	assert_int_equal(kit_stats(kit, B)->resent, 0);
	kit_close(kit);
	return frames;
}

static enum kit_fate drop_one(struct kit *kit, const struct kit_frame *frame)
{
	return frame->index == kit->chosen ? KIT_DROP : KIT_PASS;
}

/* For each packet that gets lost there is at most one rewind, on either side. */
static void each_lost(void **state)
{
	unsigned frames = frames_of_a_play();

	(void)state;
	for (unsigned i = 0; i < frames; i++) {
		struct kit *kit = play(drop_one, i, 0);

		assert_in_range(kit_stats(kit, A)->rewinds + kit_stats(kit, B)->rewinds,
				0, 1);
		kit_close(kit);
	}
}

static enum kit_fate drop_burst(struct kit *kit, const struct kit_frame *frame)
{
	return frame->index >= kit->chosen && frame->index < kit->chosen + 5 ? KIT_DROP
									     : KIT_PASS;
}

static void each_burst_lost(void **state)
{
	unsigned frames = frames_of_a_play();

	(void)state;
	for (unsigned i = 0; i < frames; i++)
		kit_close(play(drop_burst, i, 0));
}

/* What is sent again is lost again. */
static enum kit_fate drop_two_apart(struct kit *kit, const struct kit_frame *frame)
{
	unsigned first = kit->chosen % 256, second = first + 1 + kit->chosen / 256;

	return frame->index == first || frame->index == second ? KIT_DROP : KIT_PASS;
}

static void each_two_lost(void **state)
{
	unsigned frames = frames_of_a_play();

	(void)state;
	assert_in_range(frames, 0, 255);
	for (unsigned i = 0; i < frames; i += 3)
		for (unsigned apart = 0; apart < 60; apart += 1 + apart / 8)
			kit_close(play(drop_two_apart, i + 256 * apart, 0));
}

static enum kit_fate double_one(struct kit *kit, const struct kit_frame *frame)
{
	return frame->index == kit->chosen ? KIT_TWICE : KIT_PASS;
}

static void each_doubled(void **state)
{
	unsigned frames = frames_of_a_play();

	(void)state;
	for (unsigned i = 0; i < frames; i++) {
		struct kit *kit = play(double_one, i, 0);

		assert_int_equal(kit_stats(kit, A)->rewinds, 0);
		assert_int_equal(kit_stats(kit, B)->rewinds, 0);
		kit_close(kit);
	}
}

static enum kit_fate double_all(struct kit *kit, const struct kit_frame *frame)
{
	(void)kit;
	(void)frame;
	return KIT_TWICE;
}

static void all_doubled(void **state)
{
	(void)state;
	kit_close(play(double_all, 0, 0));
}

static enum kit_fate delay_one(struct kit *kit, const struct kit_frame *frame)
{
	return frame->index == kit->chosen ? KIT_LATE : KIT_PASS;
}

static void each_late(void **state)
{
	unsigned frames = frames_of_a_play();

	(void)state;
	for (unsigned i = 0; i < frames; i++)
		kit_close(play(delay_one, i, 0));
}

static enum kit_fate chaos(struct kit *kit, const struct kit_frame *frame)
{
	unsigned dice = random_below(&kit->random, 100);

	(void)frame;
	if (dice < kit->chosen)
		return KIT_DROP;
	if (dice < 2 * kit->chosen)
		return KIT_TWICE;
	return dice < 3 * kit->chosen ? KIT_LATE : KIT_PASS;
}

/* Percentages of each that still leave seven retries a chance. */
static void random_chaos(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++)
		kit_close(play(chaos, 1 + seed % 10, seed));
}

/* A message of many packets that loses one in twenty. */
static void long_messages(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND,
						      IBV_WR_RDMA_READ };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct kit *kit = kit_open(&(struct kit_opts){
			.mtu = IBV_MTU_256,
			.timeout = 12,
			.config = { .request_window = 12000, .run_bytes = 8 * 272 } });
		bool read = opcodes[i] == IBV_WR_RDMA_READ;

		kit->fate = chaos;
		kit->chosen = 5;
		kit->random = i + 1;
		kit_fill(kit, read ? B : A, 0, 300000, 3);
		kit_recv(kit, B, 70, 500000, 300000);
		kit_send(kit, A,
			 &(struct kit_send){ .id = 1,
					     .opcode = opcodes[i],
					     .at = read ? 500000 : 0,
					     .far = read ? 0 : 500000,
					     .length = 300000 });
		kit_run(kit);
		kit_expect(kit, A, 1, IBV_WC_SUCCESS);
		kit_check(kit, read ? A : B, 500000, 300000, 3);
		kit_close(kit);
	}
}

/* Loses one response of a READ, the third, and counts how often it is asked for. */
static enum kit_fate drop_third_response(struct kit *kit, const struct kit_frame *frame)
{
	if (frame->to != A || kit->chosen > 2)
		return KIT_PASS;
	return kit->chosen++ == 2 ? KIT_DROP : KIT_PASS;
}

static void lost_response_is_asked_for_once(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit->fate = drop_third_response;
	kit_fill(kit, B, 0, 50000, 3);
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = IBV_WR_RDMA_READ, .length = 50000 });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_check(kit, A, 0, 50000, 3);
	assert_int_equal(kit_stats(kit, A)->rewinds, 1);
	assert_int_equal(kit_stats(kit, A)->timeouts, 0);
	kit_close(kit);
}

/* READs that were lost are no longer under way, and take no room from others. */
static void lost_reads_give_back_their_room(void **state)
{
	struct kit *kit = kit_open(
		&(struct kit_opts){ .reads = 16,
				    .dest_reads = 16,
				    .config = { .response_window = 64 << 10 } });
	unsigned at_once;

	(void)state;
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = IBV_WR_RDMA_READ, .length = 300000 });
	at_once = kit_swallow(kit, A);
	assert_int_equal(at_once, 4);
	for (unsigned i = 0; i < 5; i++) {
		kit_time_out(kit, A);
		assert_int_equal(kit_swallow(kit, A), at_once);
	}
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_close(kit);
}

/* The same seed, the same packets. */
static void hash_frame(struct kit *kit, const struct kit_frame *frame)
{
	unsigned hash = kit->watched[0];

	for (size_t i = 0; i < frame->length; i++)
		hash = (hash ^ frame->bytes[i]) * 16777619u;
	kit->watched[0] = hash;
}

static unsigned hash_of_chaos(uint64_t seed)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .timeout = 12 });
	unsigned hash;

	/* Keys and addresses differ, so nothing that carries them is sent. */
	kit->fate = chaos;
	kit->watch = hash_frame;
	kit->chosen = 5;
	kit->random = seed;
	kit_fill(kit, A, 0, 20000, 1);
	kit_recv(kit, B, 70, 0, 20000);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND, .length = 20000 });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	hash = kit->watched[0];
	kit_close(kit);
	return hash;
}

static void same_seed_same_packets(void **state)
{
	(void)state;
	assert_int_equal(hash_of_chaos(1), hash_of_chaos(1));
	assert_int_not_equal(hash_of_chaos(1), hash_of_chaos(2));
}

/* Each packet takes its time. */
static enum kit_fate slow(struct kit *kit, const struct kit_frame *frame)
{
	(void)frame;
	kit->now += 3000000;
	for (unsigned end = A; end < ENDS; end++)
		snt__soft_timer(kit->end[end].device, kit->now);
	return KIT_PASS;
}

/* A message that takes many times as long as a timeout: as long as there is progress no
 * QP gives up. */
static void progress_is_no_timeout(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct kit *kit = kit_open(
			&(struct kit_opts){ .config = { .request_window = 8192,
							.response_window = 8192 } });

		kit->fate = slow;
		kit_send(kit, A,
			 &(struct kit_send){
				 .id = 1, .opcode = opcodes[i], .length = 200000 });
		kit_run(kit);
		kit_expect(kit, A, 1, IBV_WC_SUCCESS);
		assert_true(kit->now > 500000000);
		assert_int_equal(kit_stats(kit, A)->timeouts, 0);
		assert_int_equal(kit_stats(kit, A)->resent, 0);
		kit_close(kit);
	}
}

/*
 * Recovery without waiting
 */

#define PACKETS 16u

/* Two QPs that know how long an answer takes. */
static struct kit *open_measured(const struct kit_opts *opts)
{
	struct kit *kit = kit_open(opts);

	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_fill(kit, A, 0, PACKETS * 1024, 3);
	return kit;
}

/* Sends a message of which packets get lost, and returns how long it takes. */
static uint64_t send_over(struct kit *kit,
			  enum kit_fate (*fate)(struct kit *, const struct kit_frame *))
{
	uint64_t begin = kit->now;

	kit->fate = fate;
	kit->chosen = 0;
	kit_send(kit, A,
		 &(struct kit_send){ .id = 2,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .far = 500000,
				     .length = PACKETS * 1024 });
	kit_run(kit);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_check(kit, B, 500000, PACKETS * 1024, 3);
	assert_int_equal(kit_stats(kit, A)->timeouts, 0);
	return kit->now - begin;
}

static unsigned psn_of(const struct kit_frame *frame)
{
	return frame->bytes[9] << 16 | frame->bytes[10] << 8 | frame->bytes[11];
}

/* The fourth packet of the second message, three times. */
static enum kit_fate drop_fourth_and_resent(struct kit *kit,
					    const struct kit_frame *frame)
{
	if (frame->to != B || psn_of(frame) != 1 + 3)
		return KIT_PASS;
	return kit->chosen++ < 3 ? KIT_DROP : KIT_PASS;
}

/* The receiver sees that the sender has begun again, and asks again. */
static void lost_resend_is_asked_for_again(void **state)
{
	struct kit *kit = open_measured(NULL);

	(void)state;
	assert_true(send_over(kit, drop_fourth_and_resent) == 0);
	assert_int_equal(kit_stats(kit, B)->naks_out, 3);
	assert_int_equal(kit_stats(kit, A)->probes, 0);
	kit_close(kit);
}

/* A peer that asks only once, as rxe does, is probed. */
static void lost_resend_is_probed(void **state)
{
	struct kit *kit =
		open_measured(&(struct kit_opts){ .config = { .nak_once = true } });

	(void)state;
	assert_in_range(send_over(kit, drop_fourth_and_resent), MS, 4 * MS);
	assert_int_equal(kit_stats(kit, B)->naks_out, 2);
	kit_close(kit);
}

static enum kit_fate drop_fourth_and_naks(struct kit *kit,
					  const struct kit_frame *frame)
{
	if (frame->to == B && psn_of(frame) == 1 + 3 && !(kit->chosen & 1)) {
		kit->chosen |= 1;
		return KIT_DROP;
	}
	if (frame->to == A && frame->bytes[12] == SNT__SYNDROME_NAK_SEQUENCE &&
	    kit->chosen < 4) {
		kit->chosen += 2;
		return KIT_DROP;
	}
	return KIT_PASS;
}

static void lost_naks_are_not_waited_for(void **state)
{
	struct kit *kit = open_measured(NULL);

	(void)state;
	assert_in_range(send_over(kit, drop_fourth_and_naks), MS, 4 * MS);
	kit_close(kit);
}

static enum kit_fate drop_last(struct kit *kit, const struct kit_frame *frame)
{
	return frame->to == B && psn_of(frame) == PACKETS && !kit->chosen++ ? KIT_DROP
									    : KIT_PASS;
}

static enum kit_fate drop_first_answer(struct kit *kit, const struct kit_frame *frame)
{
	return frame->to == A && !kit->chosen++ ? KIT_DROP : KIT_PASS;
}

/* One probe, and no more than it is sent again. */
static void lost_ends_are_probed(void **state)
{
	enum kit_fate (*const fates[])(struct kit *, const struct kit_frame *) = {
		drop_last, drop_first_answer
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(fates); i++) {
		struct kit *kit = open_measured(NULL);

		assert_in_range(send_over(kit, fates[i]), MS / 2, 2 * MS);
		assert_int_equal(kit_stats(kit, A)->probes, 1);
		assert_int_equal(kit_stats(kit, A)->resent, 0);
		assert_int_equal(kit_stats(kit, A)->rewinds, 0);
		kit_close(kit);
	}
}

/* Does what is sent last before the window ends ask for an ACK? */
static void watch_asking(struct kit *kit, const struct kit_frame *frame)
{
	if (frame->to == B)
		kit->watched[0] = frame->bytes[8] >> 7;
	kit->watched[1] += frame->to == B;
}

static void window_end_asks_for_an_ack(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){
		.psn = 3, .config = { .request_window = 12 << 10 } });

	(void)state;
	kit->watch = watch_asking;
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = IBV_WR_RDMA_WRITE, .length = 40 << 10 });
	kit_exchange(kit);
	assert_int_equal(kit->watched[1], 12);
	assert_int_equal(kit->watched[0], 1);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_close(kit);
}

/* Each packet takes 20 ms, which is longer than anything is waited for at first. */
static enum kit_fate take_long(struct kit *kit, const struct kit_frame *frame)
{
	(void)frame;
	for (unsigned i = 0; i < 20; i++) {
		kit->now += MS;
		snt__soft_timer(kit->end[A].device, kit->now);
	}
	return KIT_PASS;
}

/* A long path is found to be long, whatever was assumed before. */
static void slow_peer_is_not_probed_for_ever(void **state)
{
	struct kit *kit = kit_open(NULL);
	uint64_t probes;

	(void)state;
	kit->fate = take_long;
	for (unsigned i = 0; i < 20; i++) {
		kit_send(kit, A, &(struct kit_send){ .opcode = IBV_WR_RDMA_WRITE });
		kit_run(kit);
		kit_expect(kit, A, 0, IBV_WC_SUCCESS);
		if (i == 10)
			probes = kit_stats(kit, A)->probes;
	}
	assert_int_equal(kit_stats(kit, A)->probes, probes);
	assert_int_equal(kit_stats(kit, A)->timeouts, 0);
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_lost),
		cmocka_unit_test(each_burst_lost),
		cmocka_unit_test(each_two_lost),
		cmocka_unit_test(each_doubled),
		cmocka_unit_test(all_doubled),
		cmocka_unit_test(each_late),
		cmocka_unit_test(random_chaos),
		cmocka_unit_test(long_messages),
		cmocka_unit_test(lost_response_is_asked_for_once),
		cmocka_unit_test(lost_reads_give_back_their_room),
		cmocka_unit_test(progress_is_no_timeout),
		cmocka_unit_test(lost_resend_is_asked_for_again),
		cmocka_unit_test(lost_resend_is_probed),
		cmocka_unit_test(lost_naks_are_not_waited_for),
		cmocka_unit_test(lost_ends_are_probed),
		cmocka_unit_test(window_end_asks_for_an_ack),
		cmocka_unit_test(slow_peer_is_not_probed_for_ever),
		cmocka_unit_test(same_seed_same_packets),
	};

	return cmocka_run_group_tests_name("soft_loss", tests, NULL, NULL);
}
