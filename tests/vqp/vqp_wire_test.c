/* SPDX-License-Identifier: MIT */
/*
 * Physical WRs, as the device gets them and as the peer sends them: which lane, which
 * bytes, which keys, which immediate. The sequence numbers of DQPLB are here.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <stdbool.h>

#include "lib/vqp_kit.h"
#include "vqp/dqplb.h"
#include "vqp/qp.h"

#define LAST	 (1u << 31)
#define FOLLOWED (1u << 30)
#define WRAP	 (1u << 24)

static struct scripted_send peek(struct vqp_pair *pair, unsigned lane, unsigned index)
{
	struct scripted_send sent;

	assert_int_equal(scripted_peek(lane_qp(pair, 0, lane), index, &sent), 0);
	return sent;
}

static unsigned pending(struct vqp_pair *pair, unsigned lane)
{
	return scripted_pending(lane_qp(pair, 0, lane));
}

static void complete(struct vqp_pair *pair, unsigned lane)
{
	struct snt_wc wc;

	assert_int_equal(scripted_complete(lane_qp(pair, 0, lane), IBV_WC_SUCCESS), 0);
	snt_cq_poll(pair->end[0].cq, &wc, 1);
}

/*
 * Which lane
 */

static struct vqp_pair *open_narrow(uint32_t lanes, uint32_t depth)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = lanes,
				    .lane_depth = depth,
				    .fragment_size = FRAGMENT };

	return vqp_pair_open(1, &opts);
}

/* In turn, as long as there is room; then those that were freed. */
static void lanes_are_taken_in_turn_while_they_have_room(void **state)
{
	struct vqp_pair *pair = open_narrow(4, 2);

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		send_wr(pair, SNT_OP_WRITE, i, 1);
		assert_int_equal(pending(pair, i % 4), 1 + i / 4);
	}
	send_wr(pair, SNT_OP_WRITE, 8, 1);
	send_wr(pair, SNT_OP_WRITE, 9, 1);
	for (unsigned lane = 0; lane < 4; lane++)
		assert_int_equal(pending(pair, lane), 2);
	for (unsigned lane = 2; lane < 4; lane++) {
		complete(pair, lane);
		assert_int_equal(pending(pair, lane), 2);
		assert_true(lane_info(pair, 0, lane).under_way == 2);
	}
	for (unsigned i = 0; i < 10; i++)
		expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
	for (unsigned lane = 0; lane < 4; lane++)
		assert_int_equal(lane_info(pair, 0, lane).fragments, 2 + lane / 2);
	vqp_pair_close(pair);
}

/* A depth is honoured to the one, and a freed place is used again. */
static void a_lane_is_never_deeper_than_agreed(void **state)
{
	struct vqp_pair *pair = open_narrow(2, 3);

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 100);
	for (unsigned left = 100, lane = 0; left; lane = !lane) {
		assert_int_equal(pending(pair, 0) + pending(pair, 1),
				 left < 6 ? left : 6);
		assert_in_range(pending(pair, lane), 0, 3);
		for (unsigned i = pending(pair, lane); i; i--, left--)
			complete(pair, lane);
	}
	vqp_pair_close(pair);
}

/*
 * Which bytes and keys
 */

static void fragments_name_their_bytes_and_keys(void **state)
{
	struct vqp_pair *pair = open_pair(2, 4, SNT_SCHEME_SPRAY);
	struct snt_sge sge;
	struct snt_send_wr wr =
		vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 64, 7 * FRAGMENT + 100);

	(void)state;
	wr.flags = SNT_SEND_SIGNALED | SNT_SEND_SOLICITED;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	for (unsigned i = 0; i < 8; i++) {
		struct scripted_send sent = peek(pair, i % 4, i / 4);
		unsigned device = lane_info(pair, 0, i % 4).device;
		uint64_t at = 64 + (uint64_t)i * FRAGMENT;
		struct ibv_sge due;

		assert_success(snt_mem_sge(pair->end[0].mem, device, at,
					   i < 7 ? FRAGMENT : 100, &due));
		assert_int_equal(sent.wr.num_sge, 1);
		assert_true(sent.sge[0].addr == due.addr);
		assert_int_equal(sent.sge[0].length, due.length);
		assert_int_equal(sent.sge[0].lkey, due.lkey);
		assert_int_equal(sent.wr.opcode, IBV_WR_RDMA_WRITE);
		assert_true(sent.wr.wr.rdma.remote_addr ==
			    pair->end[1].token.addr + at);
		assert_int_equal(sent.wr.wr.rdma.rkey,
				 pair->end[1]
					 .token
					 .key[lane_info(pair, 0, i % 4).remote_device]);
		/* Only the last that went to a lane is signalled. */
		assert_int_equal(!!(sent.wr.send_flags & IBV_SEND_SIGNALED), i >= 4);
		assert_false(sent.wr.send_flags & (IBV_SEND_INLINE | IBV_SEND_FENCE));
	}
	vqp_pair_close(pair);
}

#define MANY 203

/* More for each lane than one post takes: in order on each, with few doorbells, and
 * each post ends with a signalled one. */
static void expect_chains(enum snt_scheme scheme)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 4,
				    .scheme = scheme,
				    .fragment_size = FRAGMENT };
	struct vqp_pair *pair = vqp_pair_open(2, &opts);

	for (unsigned i = 0; i < MANY * FRAGMENT; i++)
		pair->end[0].buffer[i] = i * 7 + (i >> 12);
	post_notify(pair, 1, 5);
	send_wr(pair, SNT_OP_WRITE_IMM, 0, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		struct scripted_send sent = peek(pair, i % 4, i / 4);
		bool ends =
			i / 4 % SNT__CHAIN_MAX == SNT__CHAIN_MAX - 1 || i + 4 >= MANY;

		assert_true(sent.wr.wr.rdma.remote_addr ==
			    pair->end[1].token.addr + (uint64_t)i * FRAGMENT);
		assert_int_equal(!!(sent.wr.send_flags & IBV_SEND_SIGNALED), ends);
		if (scheme == SNT_SCHEME_DQPLB)
			assert_int_equal(ntohl(sent.wr.imm_data),
					 i | (i + 1 == MANY ? LAST : 0));
	}
	for (unsigned lane = 0; lane < 4; lane++)
		assert_int_equal(lane_info(pair, 0, lane).doorbells, 4);
	expect(pair, 0, 0, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer, MANY * FRAGMENT);
	vqp_pair_close(pair);
}

static void a_lane_gets_many_fragments_in_few_posts(void **state)
{
	(void)state;
	expect_chains(SNT_SCHEME_SPRAY);
	expect_chains(SNT_SCHEME_DQPLB);
}

/* Many WRs of one call share chains, whatever their lengths: chains that are full when
 * the next one begins, single fragments on top, ends that are short. */
static void one_call_fills_chains_again_and_again(void **state)
{
	static const uint64_t lengths[] = { 64 * 256, 64 * 256 + 100, 130 * 256, 1 };
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 4,
				    .lane_depth = 256,
				    .fragment_size = 256 };

	(void)state;
	for (unsigned shape = 0; shape < 4; shape++) {
		struct vqp_pair *pair;
		struct snt_send_wr wr[84];
		struct snt_sge sge[84];
		uint64_t at = 0;

		opts.scheme = shape % 2 ? SNT_SCHEME_DQPLB : SNT_SCHEME_SPRAY;
		pair = vqp_pair_open(1, &opts);
		for (unsigned i = 0; i < 84; i++) {
			uint64_t length = i < 4 ? lengths[i] : 1 + i;

			post_notify(pair, 1, i);
			wr[i] = vqp_wr(pair, 0, &sge[i],
				       shape / 2 ? SNT_OP_WRITE_IMM : SNT_OP_WRITE, at,
				       length);
			wr[i].wr_id = i;
			at += length;
		}
		for (uint64_t i = 0; i < at; i++)
			pair->end[0].buffer[i] = i * 7 + (i >> 8);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, 84), 84);
		for (unsigned i = 0; i < 84; i++)
			expect(pair, 0, i, wr[i].opcode, SNT_WC_SUCCESS);
		assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer, at);
		vqp_pair_close(pair);
	}
}

/* What a WRITE_IMM looks like: plain writes, or writes that carry a number. */
static void each_scheme_has_its_own_fragments(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(1, 4, scheme);
		bool sequenced = scheme == SNT_SCHEME_DQPLB;

		send_wr(pair, SNT_OP_WRITE_IMM, 0, 3);
		send_wr(pair, SNT_OP_READ, 1, 1);
		for (unsigned lane = 0; lane < 3; lane++) {
			struct scripted_send sent = peek(pair, lane, 0);

			assert_int_equal(sent.wr.opcode,
					 sequenced ? IBV_WR_RDMA_WRITE_WITH_IMM
						   : IBV_WR_RDMA_WRITE);
			if (sequenced)
				assert_int_equal(ntohl(sent.wr.imm_data),
						 lane | (lane == 2 ? LAST : 0));
		}
		assert_int_equal(peek(pair, 3, 0).wr.opcode, IBV_WR_RDMA_READ);
		vqp_pair_close(pair);
	}
}

/* RC does not wait for what a READ brings before it goes on: ordering points do. */
static void s1_an_ordering_point_waits_for_reads(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct vqp_pair *pair = open_pair(1, 1, SNT_SCHEME_SPRAY);
		unsigned opcode = i / 2 ? SNT_OP_FETCH_ADD : SNT_OP_SEND;
		bool reads = i % 2;
		struct snt_sge sge;
		struct snt_send_wr wr = vqp_wr(pair, 0, &sge, opcode, 0, 8);
		bool fenced;

		send_wr(pair, reads ? SNT_OP_READ : SNT_OP_WRITE, 1, 1);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		assert_int_equal(pending(pair, 0), 2);
		fenced = peek(pair, 0, 1).wr.send_flags & IBV_SEND_FENCE;
		assert_int_equal(fenced, reads);
		vqp_pair_close(pair);
	}
}

/* So many WRs after it. */
static void jump(struct snt_qp *qp, uint32_t count)
{
	qp->head += count;
	qp->ordered = qp->next = qp->tail = qp->head;
}

static bool is_fenced_after(struct vqp_pair *pair, unsigned opcode)
{
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_FETCH_ADD, 0, 8);
	bool fenced;

	send_wr(pair, opcode, 1, 1);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	fenced = peek(pair, 0, 1).wr.send_flags & IBV_SEND_FENCE;
	expect(pair, 0, 1, opcode, SNT_WC_SUCCESS);
	expect(pair, 0, 1, SNT_OP_FETCH_ADD, SNT_WC_SUCCESS);
	return fenced;
}

/* Positions wrap. A fence for a READ that was reported billions of WRs ago, or never
 * was, would only cost time. */
static void a_read_of_long_ago_needs_no_fence(void **state)
{
	static const uint32_t counts[] = { 0,
					   1,
					   (1u << 31) - 3,
					   (1u << 31) - 2,
					   1u << 31,
					   (1u << 31) + 9,
					   UINT32_MAX - 9 };

	(void)state;
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(counts); i++) {
		struct vqp_pair *pair = open_pair(1, 1, SNT_SCHEME_SPRAY);
		struct snt_qp *qp = pair->end[0].qp;

		if (i % 2) {
			send_wr(pair, SNT_OP_READ, 1, 1);
			expect(pair, 0, 1, SNT_OP_READ, SNT_WC_SUCCESS);
		}
		jump(qp, counts[i / 2]);
		assert_false(is_fenced_after(pair, SNT_OP_WRITE));
		assert_true(is_fenced_after(pair, SNT_OP_READ));
		assert_false(is_fenced_after(pair, SNT_OP_WRITE));
		jump(qp, 1u << 31);
		assert_false(is_fenced_after(pair, SNT_OP_WRITE));
		vqp_pair_close(pair);
	}
}

/* A lane has sent four billion fragments, and goes on; also in the middle of a
 * chain. */
static void a_lane_counts_over_2_32(void **state)
{
	(void)state;
	for (uint32_t before = 0; before < 8; before++) {
		struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
		struct snt_qp *qp = pair->end[0].qp;

		for (unsigned i = 0; i < 2; i++) {
			qp->lane[i].built = qp->lane[i].retired = 0 - before;
			qp->lane[i].run_head = qp->lane[i].run_tail = 0 - before;
		}
		post_notify(pair, 1, 0);
		send_wr(pair, SNT_OP_WRITE, 1, 7);
		send_wr(pair, SNT_OP_WRITE_IMM, 2, 3);
		send_wr(pair, SNT_OP_READ, 3, 1);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(peek(pair, 0, i).wr.wr_id & UINT32_MAX,
					 peek(pair, 0, i + 1).wr.wr_id & UINT32_MAX);
		expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
		expect(pair, 0, 2, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		expect(pair, 0, 3, SNT_OP_READ, SNT_WC_SUCCESS);
		vqp_pair_close(pair);
	}
}

/* Inline bytes are the device's from the post on, whatever becomes of the buffer. */
static void inline_bytes_go_with_the_wr(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	char text[] = "inline";
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, sizeof(text));
	struct scripted_send sent;

	(void)state;
	sge = (struct snt_sge){ NULL, text, sizeof(text) };
	wr.flags |= SNT_SEND_INLINE;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	memset(text, 0, sizeof(text));
	sent = peek(pair, 0, 0);
	assert_true(sent.wr.send_flags & IBV_SEND_INLINE);
	assert_int_equal(sent.inline_length, sizeof(text));
	assert_string_equal(sent.inline_bytes, "inline");
	vqp_pair_close(pair);
}

/*
 * Which number: sending
 */

/* All sequence numbers that are on their way, by number from the first. */
static void expect_numbers(struct vqp_pair *pair, uint32_t first, const char *kinds)
{
	for (unsigned i = 0; kinds[i]; i++) {
		struct scripted_send sent = peek(pair, i % 4, i / 4);
		uint32_t due = (first + i) % WRAP;

		if (kinds[i] == 'L')
			due |= LAST;
		assert_int_equal(sent.wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
		assert_int_equal(ntohl(sent.wr.imm_data), due);
	}
}

static void send_short(struct vqp_pair *pair, unsigned fragments)
{
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0,
				       (uint64_t)fragments * FRAGMENT);

	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
}

static void numbers_count_fragments_and_mark_the_last(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);

	(void)state;
	send_short(pair, 3);
	send_short(pair, 1);
	send_short(pair, 2);
	expect_numbers(pair, 0, "..LL.L");
	vqp_pair_close(pair);
}

/* 0xffffff is a number as any other, and 0 comes after it. */
static void numbers_wrap_at_2_24(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		snt__dqplb_init(pair->end[i].qp, WRAP - 3);
	for (unsigned i = 0; i < 3; i++)
		post_notify(pair, 1, i);
	send_short(pair, 2);
	send_short(pair, 3);
	send_short(pair, 1);
	expect_numbers(pair, WRAP - 3, ".L..LL");
	for (unsigned i = 0; i < 3; i++)
		expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	for (unsigned i = 0; i < 3; i++)
		expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* The immediate of the program, if there is one, comes behind on the same lane. */
static void a_raw_immediate_is_announced_and_follows(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);
	struct scripted_send sent;

	(void)state;
	send_wr(pair, SNT_OP_WRITE_IMM, 0xabcdef12, 2);
	assert_int_equal(ntohl(peek(pair, 0, 0).wr.imm_data), 0);
	assert_int_equal(ntohl(peek(pair, 1, 0).wr.imm_data), 1 | LAST | FOLLOWED);
	sent = peek(pair, 1, 1);
	assert_int_equal(ntohl(sent.wr.imm_data), 0xabcdef12);
	assert_int_equal(sent.wr.num_sge, 0);
	vqp_pair_close(pair);
}

/* One lane hangs, and the others could go on for ever: not beyond the window. When it
 * moves again everything is in order. */
static void a_sender_keeps_within_the_window(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_DQPLB);
	unsigned sent = 0, notified = 0;
	uint32_t highest = 0;
	struct snt_card card;
	struct snt_wc wc[8];

	(void)state;
	assert_success(snt_qp_card(pair->end[1].qp, &card));
	for (unsigned i = 0; i < 100; i++)
		post_notify(pair, 1, i);
	for (unsigned round = 0; round < 200; round++) {
		if (sent < 100 && try_send(pair, SNT_OP_WRITE_IMM, 0, 1) == 1)
			sent++;
		for (unsigned i = pending(pair, 1); i; i--) {
			highest = ntohl(peek(pair, 1, 0).wr.imm_data) & (WRAP - 1);
			complete(pair, 1);
		}
		assert_int_equal(snt_cq_poll(pair->end[1].cq, wc, 8), 0);
	}
	assert_int_equal(sent, 100);
	assert_in_range(highest, card.window / 2, card.window - 1);
	while (notified < 100) {
		struct snt_wc got = vqp_poll(pair, 1);

		assert_int_equal(got.status, SNT_WC_SUCCESS);
		assert_int_equal(got.wr_id, notified++);
	}
	vqp_pair_close(pair);
}

/*
 * Which number: receiving
 */

/* A fragment as a sender has it, straight to a lane; and what the receiver reports. */
static int receive(struct vqp_pair *pair, unsigned lane, uint32_t number,
		   struct snt_wc *wc)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				  .imm_data = htonl(number),
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(lane_qp(pair, 0, lane), &wr, &bad), 0);
	vqp_pair_run(pair, 1);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, wc, 8), 0);
	return snt_cq_poll(pair->end[1].cq, wc, 8);
}

struct arrival {
	uint32_t number; /* from the first; LAST may be set */
	int notified;	 /* so many messages are complete by it */
};

static void expect_arrivals(uint32_t first, const struct arrival *arrival,
			    unsigned count)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);
	unsigned next = 0;

	snt__dqplb_init(pair->end[1].qp, first);
	for (unsigned i = 0; i < 8; i++)
		post_notify(pair, 1, i);
	for (unsigned i = 0; i < count; i++) {
		uint32_t number = ((first + (arrival[i].number & ~LAST)) % WRAP) |
				  (arrival[i].number & LAST);
		struct snt_wc wc[8];
		int notified = receive(pair, i % 4, number, wc);

		assert_int_equal(notified, arrival[i].notified);
		for (int j = 0; j < notified; j++) {
			assert_int_equal(wc[j].status, SNT_WC_SUCCESS);
			assert_int_equal(wc[j].wr_id, next++);
		}
	}
	vqp_pair_close(pair);
}

#define EXPECT_ARRIVALS(first, ...)                                     \
	expect_arrivals(first, (const struct arrival[]){ __VA_ARGS__ }, \
			ARRAY_SIZE(((const struct arrival[]){ __VA_ARGS__ })))

static void in_order_without_an_end(void **state)
{
	(void)state;
	EXPECT_ARRIVALS(0, { 0, 0 }, { 1, 0 }, { 2, 0 });
}

static void in_order_with_ends(void **state)
{
	(void)state;
	EXPECT_ARRIVALS(0, { 0 | LAST, 1 }, { 1, 0 }, { 2 | LAST, 1 });
}

static void in_reversed_order(void **state)
{
	(void)state;
	EXPECT_ARRIVALS(0, { 2 | LAST, 0 }, { 1, 0 }, { 0, 1 });
}

/* The last to come completes two at once. */
static void in_mixed_order(void **state)
{
	(void)state;
	EXPECT_ARRIVALS(0, { 3 | LAST, 0 }, { 1, 0 }, { 0 | LAST, 1 }, { 2 | LAST, 2 });
}

static void over_the_wrap_in_order(void **state)
{
	(void)state;
	EXPECT_ARRIVALS(WRAP - 2, { 0, 0 }, { 1 | LAST, 1 }, { 2 | LAST, 1 }, { 3, 0 },
			{ 4 | LAST, 1 });
}

static void over_the_wrap_out_of_order(void **state)
{
	(void)state;
	EXPECT_ARRIVALS(WRAP - 2, { 3 | LAST, 0 }, { 2, 0 }, { 1 | LAST, 0 }, { 0, 2 });
}

/* It was early, so it could not be judged. */
static void an_early_fragment_is_checked_in_its_turn(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_DQPLB);
	struct snt_recv_wr notify = { .wr_id = 9 };
	struct snt_wc wc[8];

	(void)state;
	assert_int_equal(receive(pair, 0, 40, wc), 0);
	assert_int_equal(receive(pair, 0, 41 | FOLLOWED, wc), 0);
	for (unsigned i = 0; i < 9; i++)
		assert_int_equal(receive(pair, 1, i, wc), 0);
	assert_true(lane_info(pair, 1, 0).alive);
	receive(pair, 1, 9, wc);
	assert_false(lane_info(pair, 1, 0).alive);
	assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &notify, 1), -ESHUTDOWN);
	vqp_pair_close(pair);
}

/* Windows are as wide as they need to be, and never so wide that behind could be
 * taken for ahead. */
static void a_window_has_its_limits(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 4,
				    .scheme = SNT_SCHEME_DQPLB,
				    .lane_depth = 2,
				    .fragment_size = FRAGMENT };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct snt_card card;

	(void)state;
	assert_success(snt_qp_card(pair->end[0].qp, &card));
	assert_in_range(card.window, 8, 64);
	vqp_pair_close(pair);
	opts.lane_depth = 2048;
	pair = vqp_pair_open(1, &opts);
	assert_success(snt_qp_card(pair->end[0].qp, &card));
	assert_in_range(card.window, 2, 1 << 23);
	assert_true((uint64_t)card.window * opts.lane_depth < 1 << 23);
	post_notify(pair, 1, 5);
	send_wr(pair, SNT_OP_WRITE_IMM, 1, MANY);
	expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lanes_are_taken_in_turn_while_they_have_room),
		cmocka_unit_test(a_lane_is_never_deeper_than_agreed),
		cmocka_unit_test(fragments_name_their_bytes_and_keys),
		cmocka_unit_test(a_lane_gets_many_fragments_in_few_posts),
		cmocka_unit_test(one_call_fills_chains_again_and_again),
		cmocka_unit_test(each_scheme_has_its_own_fragments),
		cmocka_unit_test(s1_an_ordering_point_waits_for_reads),
		cmocka_unit_test(a_read_of_long_ago_needs_no_fence),
		cmocka_unit_test(a_lane_counts_over_2_32),
		cmocka_unit_test(inline_bytes_go_with_the_wr),
		cmocka_unit_test(numbers_count_fragments_and_mark_the_last),
		cmocka_unit_test(numbers_wrap_at_2_24),
		cmocka_unit_test(a_raw_immediate_is_announced_and_follows),
		cmocka_unit_test(a_sender_keeps_within_the_window),
		cmocka_unit_test(in_order_without_an_end),
		cmocka_unit_test(in_order_with_ends),
		cmocka_unit_test(in_reversed_order),
		cmocka_unit_test(in_mixed_order),
		cmocka_unit_test(over_the_wrap_in_order),
		cmocka_unit_test(over_the_wrap_out_of_order),
		cmocka_unit_test(an_early_fragment_is_checked_in_its_turn),
		cmocka_unit_test(a_window_has_its_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
