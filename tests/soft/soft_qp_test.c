/* SPDX-License-Identifier: MIT */
/* Soft devices: the state machine of QPs, posting in each state, flushing, limits. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#define FAR (256u << 10)

static struct kit *open_unconnected(void)
{
	return kit_open(&(struct kit_opts){ .unconnected = true });
}

/* On the way from RESET, up to there. */
static void bring_to(struct kit *kit, unsigned end, enum ibv_qp_state state)
{
	if (state == IBV_QPS_ERR) {
		bring_to(kit, end, IBV_QPS_RTS);
		assert_int_equal(kit_modify(kit, end, IBV_QPS_ERR), 0);
		return;
	}
	for (unsigned next = IBV_QPS_INIT; next <= (unsigned)state; next++)
		assert_int_equal(kit_modify(kit, end, next), 0);
}

static void transitions(void **state)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT,
						    IBV_QPS_RTR,   IBV_QPS_RTS,
						    IBV_QPS_SQD,   IBV_QPS_ERR };
	/* With the attributes that each has on its usual way. */
	static const bool legal[6][6] = {
		{ 1, 1, 0, 0, 0, 0 }, { 1, 1, 1, 0, 0, 1 }, { 1, 0, 0, 1, 0, 1 },
		{ 1, 0, 0, 0, 1, 1 }, { 1, 0, 0, 0, 0, 1 }, { 1, 0, 0, 0, 0, 1 },
	};

	(void)state;
	for (unsigned from = 0; from < 6; from++) {
		for (unsigned to = 0; to < 6; to++) {
			struct kit *kit = open_unconnected();

			bring_to(kit, A, states[from]);
			assert_int_equal(kit_modify(kit, A, states[to]),
					 legal[from][to] ? 0 : -EINVAL);
			assert_int_equal(kit_state(kit, A),
					 states[legal[from][to] ? to : from]);
			kit_close(kit);
		}
	}
}

static void every_attribute_is_required(void **state)
{
	struct kit *kit = open_unconnected();

	(void)state;
	for (unsigned to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
		struct ibv_qp_attr attr;
		int mask = kit_attr(kit, A, to, &attr);

		for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
			bool needed = (mask & bit) && bit != IBV_QP_STATE;

			if (needed)
				assert_int_equal(kit->control->modify_qp(kit->end[A].qp,
									 &attr,
									 mask & ~bit),
						 -EINVAL);
			/* One of another transition is one too many. */
			if (bit == IBV_QP_ALT_PATH || bit == IBV_QP_CAP ||
			    (bit == IBV_QP_QKEY))
				assert_int_equal(kit->control->modify_qp(kit->end[A].qp,
									 &attr,
									 mask | bit),
						 -EINVAL);
		}
		assert_int_equal(kit_modify(kit, A, to), 0);
	}
	kit_close(kit);
}

static void impossible_values(void **state)
{
	struct kit *kit = open_unconnected();
	struct ibv_qp_attr good, attr;
	int mask = kit_attr(kit, A, IBV_QPS_INIT, &good);

#define REFUSED(field, value)                                                          \
	do {                                                                           \
		attr = good;                                                           \
		attr.field = (value);                                                  \
		assert_int_equal(kit->control->modify_qp(kit->end[A].qp, &attr, mask), \
				 -EINVAL);                                             \
	} while (0)

	(void)state;
	REFUSED(port_num, 0);
	REFUSED(port_num, 2);
	REFUSED(pkey_index, 1);
	assert_int_equal(kit_modify(kit, A, IBV_QPS_INIT), 0);
	mask = kit_attr(kit, A, IBV_QPS_RTR, &good);
	REFUSED(path_mtu, 0);
	REFUSED(path_mtu, 6);
	REFUSED(ah_attr.is_global, 0);
	REFUSED(ah_attr.grh.sgid_index, 1);
	REFUSED(ah_attr.grh.sgid_index, 200);
	REFUSED(ah_attr.grh.dgid.raw[0], 0xfd); /* no longer IPv4 */
	REFUSED(max_dest_rd_atomic, 17);
	REFUSED(min_rnr_timer, 32);
	assert_int_equal(kit_modify(kit, A, IBV_QPS_RTR), 0);
	mask = kit_attr(kit, A, IBV_QPS_RTS, &good);
	REFUSED(max_rd_atomic, 17);
	REFUSED(timeout, 32);
	REFUSED(retry_cnt, 8);
	REFUSED(rnr_retry, 8);
	mask |= IBV_QP_CUR_STATE;
	good.cur_qp_state = IBV_QPS_RTR;
	REFUSED(cur_qp_state, IBV_QPS_INIT);
	assert_int_equal(kit->control->modify_qp(kit->end[A].qp, &good, mask), 0);
#undef REFUSED
	kit_close(kit);
}

static void query_tells_what_was_set(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .psn = 123456 });
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr set, got;

	(void)state;
	kit_attr(kit, A, IBV_QPS_RTS, &set);
	assert_int_equal(kit->control->query_qp(kit->end[A].qp, &got, 0, &init), 0);
	assert_int_equal(got.qp_state, IBV_QPS_RTS);
	assert_int_equal(got.cur_qp_state, IBV_QPS_RTS);
	assert_int_equal(got.qp_access_flags, set.qp_access_flags);
	assert_int_equal(got.path_mtu, set.path_mtu);
	assert_int_equal(got.dest_qp_num, set.dest_qp_num);
	assert_int_equal(got.sq_psn, 123456);
	assert_int_equal(got.rq_psn, 123456);
	assert_int_equal(got.max_rd_atomic, set.max_rd_atomic);
	assert_int_equal(got.max_dest_rd_atomic, set.max_dest_rd_atomic);
	assert_int_equal(got.min_rnr_timer, set.min_rnr_timer);
	assert_int_equal(got.timeout, set.timeout);
	assert_int_equal(got.retry_cnt, set.retry_cnt);
	assert_int_equal(got.rnr_retry, set.rnr_retry);
	assert_memory_equal(&got.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, 16);
	assert_int_equal(got.cap.max_send_wr, KIT_DEPTH);
	assert_int_equal(init.cap.max_inline_data, 64);
	assert_ptr_equal(init.send_cq, kit->end[A].cq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	kit_close(kit);
}

/*
 * Posting
 */

static void post_in_states(void **state)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT,
						    IBV_QPS_RTR };
	struct kit_send send = { .id = 1, .opcode = IBV_WR_RDMA_WRITE };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(states); i++) {
		struct kit *kit = open_unconnected();

		bring_to(kit, A, states[i]);
		assert_int_equal(kit_try_send(kit, A, &send), EINVAL);
		assert_int_equal(kit_try_recv(kit, A, 60, 0, 64),
				 states[i] == IBV_QPS_RESET ? EINVAL : 0);
		kit_run(kit);
		kit_expect_none(kit, A);
		assert_int_equal(kit->frames, 0);
		/* Refused is gone. */
		assert_int_equal(kit_modify(kit, A, IBV_QPS_RESET), 0);
		kit_connect(kit, A);
		kit_connect(kit, B);
		kit_send(kit, A, &(struct kit_send){ .opcode = IBV_WR_SEND, .id = 2 });
		kit_recv(kit, B, 70, 0, 64);
		kit_run(kit);
		kit_expect(kit, A, 2, IBV_WC_SUCCESS);
		kit_close(kit);
	}
}

static void receive_posted_in_init(void **state)
{
	struct kit *kit = open_unconnected();

	(void)state;
	bring_to(kit, B, IBV_QPS_INIT);
	kit_recv(kit, B, 70, FAR, 64);
	assert_int_equal(kit_modify(kit, B, IBV_QPS_RTR), 0);
	kit_connect(kit, A);
	kit_send(kit, A,
		 &(struct kit_send){ .opcode = IBV_WR_SEND, .id = 1, .length = 64 });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, B, 70, IBV_WC_SUCCESS);
	assert_int_equal(kit_state(kit, B), IBV_QPS_RTR);
	/* A server whose last handshake got lost has to be told; once. */
	kit_expect_event(kit, B, IBV_EVENT_COMM_EST);
	kit_send(kit, A, &(struct kit_send){ .opcode = IBV_WR_RDMA_WRITE, .id = 2 });
	kit_run(kit);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_expect_no_event(kit, B);
	kit_close(kit);
}

static void full_queues(void **state)
{
	struct kit *kit = kit_open(
		&(struct kit_opts){ .cap = { .max_send_wr = 7, .max_recv_wr = 7 } });
	struct ibv_send_wr sends[10], *bad_send = NULL;
	struct ibv_recv_wr recvs[10], *bad_recv = NULL;
	struct ibv_sge sge;

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		sends[i] = kit_wr(kit, A,
				  &(struct kit_send){ .opcode = IBV_WR_SEND, .id = i },
				  &sge);
		sends[i].num_sge = 0;
		sends[i].next = i < 9 ? &sends[i + 1] : NULL;
		recvs[i] = (struct ibv_recv_wr){ .wr_id = 70 + i,
						 .next = i < 9 ? &recvs[i + 1] : NULL };
	}
	assert_int_equal(ibv_post_send(kit->end[A].qp, sends, &bad_send), ENOMEM);
	assert_ptr_equal(bad_send, &sends[7]);
	assert_int_equal(ibv_post_recv(kit->end[B].qp, recvs, &bad_recv), ENOMEM);
	assert_ptr_equal(bad_recv, &recvs[7]);
	kit_run(kit);
	for (unsigned i = 0; i < 7; i++) {
		kit_expect(kit, A, i, IBV_WC_SUCCESS);
		kit_expect(kit, B, 70 + i, IBV_WC_SUCCESS);
	}
	kit_close(kit);
}

static void refused_work(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct ibv_sge sge[KIT_SGES + 1] = { 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = sge }, *bad;
	struct ibv_recv_wr recv = { .sg_list = sge, .num_sge = KIT_SGES + 1 },
			   *bad_recv;

	(void)state;
	wr.num_sge = KIT_SGES + 1;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), EINVAL);
	wr.num_sge = -1;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	wr.opcode = IBV_WR_TSO;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_DRIVER1;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), EINVAL);
	assert_int_equal(ibv_post_recv(kit->end[A].qp, &recv, &bad_recv), EINVAL);
	recv.num_sge = -1;
	assert_int_equal(ibv_post_recv(kit->end[A].qp, &recv, &bad_recv), EINVAL);
	kit_run(kit);
	assert_int_equal(kit->frames, 0);
	kit_close(kit);
}

static void receive_beside_srq(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .srq_depth = 4 });
	struct ibv_recv_wr recv = { 0 }, *bad;

	(void)state;
	assert_int_equal(ibv_post_recv(kit->end[A].qp, &recv, &bad), EINVAL);
	kit_close(kit);
}

/*
 * Flushing
 */

static void flush_is_in_order(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		kit_send(kit, A,
			 &(struct kit_send){ .opcode = IBV_WR_SEND,
					     .id = i,
					     .length = 3000,
					     .silent = i % 2 });
		kit_recv(kit, A, 60 + i, 0, 64);
	}
	kit_exchange(kit); /* they are under way */
	assert_int_equal(kit_modify(kit, A, IBV_QPS_ERR), 0);
	for (unsigned i = 0; i < 6; i++)
		kit_expect(kit, A, i, IBV_WC_WR_FLUSH_ERR);
	for (unsigned i = 0; i < 6; i++)
		kit_expect(kit, A, 60 + i, IBV_WC_WR_FLUSH_ERR);
	kit_expect_none(kit, A);
	/* Nor does anything come later. */
	kit_run(kit);
	kit_expect_none(kit, A);
	assert_int_equal(kit_modify(kit, A, IBV_QPS_ERR), 0);
	kit_expect_none(kit, A);
	kit_close(kit);
}

static void post_in_error(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	assert_int_equal(kit_modify(kit, A, IBV_QPS_ERR), 0);
	for (unsigned i = 0; i < 3 * KIT_DEPTH; i++) {
		kit_send(kit, A,
			 &(struct kit_send){
				 .opcode = IBV_WR_SEND, .id = i, .silent = i % 2 });
		kit_recv(kit, A, 1000 + i, 0, 64);
		kit_expect(kit, A, i, IBV_WC_WR_FLUSH_ERR);
		kit_expect(kit, A, 1000 + i, IBV_WC_WR_FLUSH_ERR);
	}
	kit_close(kit);
}

/* Such a QP has never had an MTU. */
static void post_in_error_unconnected(void **state)
{
	struct kit *kit = open_unconnected();

	(void)state;
	assert_int_equal(kit_modify(kit, A, IBV_QPS_INIT), 0);
	assert_int_equal(kit_modify(kit, A, IBV_QPS_ERR), 0);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND, .length = 3000 });
	kit_expect(kit, A, 1, IBV_WC_WR_FLUSH_ERR);
	kit_close(kit);
}

/* A receive that a message has begun to fill is the first to be flushed. */
static void half_a_message_is_flushed(void **state)
{
	struct kit *kit = kit_open(NULL), *shared;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		kit_recv(kit, B, 70 + i, FAR, 5000);
	kit_inject(kit, B,
		   &(struct snt__wire_packet){ .opcode = SNT__WIRE_SEND_FIRST,
					       .pkey = 0xffff,
					       .qpn = kit->end[B].qp->qp_num,
					       .payload_length = 1024 },
		   kit->end[A].bytes);
	assert_int_equal(kit_modify(kit, B, IBV_QPS_ERR), 0);
	for (unsigned i = 0; i < 3; i++)
		kit_expect(kit, B, 70 + i, IBV_WC_WR_FLUSH_ERR);
	kit_close(kit);

	shared = kit_open(&(struct kit_opts){ .srq_depth = 4 });
	for (unsigned i = 0; i < 3; i++)
		kit_recv(shared, B, 70 + i, FAR, 5000);
	kit_inject(shared, B,
		   &(struct snt__wire_packet){ .opcode = SNT__WIRE_SEND_FIRST,
					       .pkey = 0xffff,
					       .qpn = shared->end[B].qp->qp_num,
					       .payload_length = 1024 },
		   shared->end[A].bytes);
	assert_int_equal(kit_modify(shared, B, IBV_QPS_ERR), 0);
	kit_expect(shared, B, 70, IBV_WC_WR_FLUSH_ERR);
	kit_expect_none(shared, B);
	kit_expect_event(shared, B, IBV_EVENT_QP_LAST_WQE_REACHED);
	kit_close(shared);
}

static void reset_discards(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		kit_send(kit, A,
			 &(struct kit_send){
				 .opcode = IBV_WR_SEND, .id = i, .length = 3000 });
		kit_recv(kit, A, 60 + i, 0, 64);
	}
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 9, .opcode = IBV_WR_RDMA_READ, .length = 3000 });
	kit_exchange(kit);
	assert_int_equal(kit_modify(kit, A, IBV_QPS_RESET), 0);
	kit_run(kit);
	kit_expect_none(kit, A);
	/* And again, as if nothing had been. */
	assert_int_equal(kit_modify(kit, B, IBV_QPS_RESET), 0);
	kit_connect(kit, A);
	kit_connect(kit, B);
	kit_fill(kit, B, FAR, 5000, 2);
	kit_recv(kit, B, 70, 0, 64);
	kit_send(kit, A,
		 &(struct kit_send){ .opcode = IBV_WR_SEND, .id = 4, .length = 64 });
	kit_send(kit, A,
		 &(struct kit_send){ .id = 5,
				     .opcode = IBV_WR_RDMA_READ,
				     .far = FAR,
				     .length = 5000 });
	kit_run(kit);
	kit_expect(kit, A, 4, IBV_WC_SUCCESS);
	kit_expect(kit, A, 5, IBV_WC_SUCCESS);
	kit_expect(kit, B, 70, IBV_WC_SUCCESS);
	kit_check(kit, A, 0, 5000, 2);
	kit_close(kit);
}

static enum kit_fate drop_when_chosen(struct kit *kit, const struct kit_frame *frame)
{
	return kit->chosen && frame->to == kit->chosen - 1 && frame->index >= 12
		       ? KIT_DROP
		       : KIT_PASS;
}

/* A message that is cut off in its middle, on its way to that end, does not go on in
 * the next life of the QP. */
static void reset_in_the_middle(enum ibv_wr_opcode opcode, unsigned lossy_to)
{
	struct kit *kit =
		kit_open(&(struct kit_opts){ .config = { .request_window = 4096 } });

	kit->fate = drop_when_chosen;
	kit->chosen = lossy_to + 1;
	kit_recv(kit, B, 70, FAR, 60000);
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = opcode, .far = FAR, .length = 60000 });
	kit_run_for(kit, 1000000);
	kit->chosen = 0;
	for (unsigned end = A; end < ENDS; end++)
		assert_int_equal(kit_modify(kit, end, IBV_QPS_RESET), 0);
	kit_connect(kit, A);
	kit_connect(kit, B);
	memset(kit->end[A].bytes, 0, KIT_BYTES);
	memset(kit->end[B].bytes, 0, KIT_BYTES);
	kit_fill(kit, A, 0, 20000, 1);
	kit_fill(kit, B, FAR, 20000, 2);
	kit_recv(kit, B, 71, FAR, 20000);
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 2, .opcode = opcode, .far = FAR, .length = 20000 });
	kit_run(kit);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	if (opcode == IBV_WR_RDMA_READ)
		kit_check(kit, A, 0, 20000, 2);
	else
		kit_check(kit, B, FAR, 20000, 1);
	kit_check_zero(kit, A, 20000, 60000);
	kit_check_zero(kit, B, FAR + 20000, 60000);
	kit_close(kit);
}

static void reset_in_the_middle_of_a_message(void **state)
{
	(void)state;
	reset_in_the_middle(IBV_WR_RDMA_WRITE, B);
	reset_in_the_middle(IBV_WR_SEND, B);
	reset_in_the_middle(IBV_WR_RDMA_READ, A);
}

/* An end that has its receive may leave at once: its peer is still told. */
static void last_answer_is_sent(void **state)
{
	(void)state;
	for (unsigned destroyed = 0; destroyed < 2; destroyed++) {
		struct kit *kit = kit_open(NULL);

		kit->eager = true;
		kit_recv(kit, B, 70, FAR, 64);
		kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND });
		kit_send(kit, A,
			 &(struct kit_send){ .id = 2,
					     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					     .far = FAR,
					     .length = 8 });
		kit_exchange(kit);
		kit_expect(kit, B, 70, IBV_WC_SUCCESS);
		if (destroyed) {
			assert_int_equal(kit->control->destroy_qp(kit->end[B].qp), 0);
			kit->end[B].qp = NULL;
		} else {
			assert_int_equal(kit_modify(kit, B, IBV_QPS_ERR), 0);
		}
		kit_pump(kit);
		kit_expect(kit, A, 1, IBV_WC_SUCCESS);
		kit_expect(kit, A, 2, IBV_WC_SUCCESS);
		kit_close(kit);
	}
}

static void completions_outlive_their_qp(void **state)
{
	struct kit *kit = kit_open(NULL);
	uint32_t number = kit->end[A].qp->qp_num;

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	assert_int_equal(kit->control->destroy_qp(kit->end[A].qp), 0);
	kit_make_qp(kit, A);
	assert_int_not_equal(kit->end[A].qp->qp_num, number);
	assert_int_equal(kit_expect(kit, A, 1, IBV_WC_SUCCESS).qp_num, number);
	kit_close(kit);
}

/* Not even the places in a table, which are the lower bits, follow each other. */
static void numbers_cannot_be_guessed(void **state)
{
	struct kit *kit = open_unconnected();
	uint32_t number = kit->end[A].qp->qp_num, key = kit->end[A].mr->rkey;
	unsigned next_numbers = 0, next_keys = 0;

	(void)state;
	for (unsigned i = 0; i < 64; i++) {
		struct kit_end *end = &kit->end[A];

		assert_int_equal(kit->control->destroy_qp(end->qp), 0);
		kit_make_qp(kit, A);
		next_numbers += (end->qp->qp_num - number) % 256 == 1;
		number = end->qp->qp_num;
		assert_int_equal(kit->control->dereg_mr(end->mr), 0);
		assert_int_equal(kit->control->reg_mr(end->pd, end->bytes, 64,
						      KIT_ACCESS, &end->mr),
				 0);
		next_keys += (end->mr->rkey - key) % 256 == 1;
		key = end->mr->rkey;
	}
	assert_true(next_numbers < 8 && next_keys < 8);
	kit_close(kit);
}

/* A QP that is destroyed in the middle of everything leaves nothing behind. */
static void destroyed_while_busy(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_send(kit, A,
		 &(struct kit_send){ .opcode = IBV_WR_SEND, .id = 1, .length = 30000 });
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 2, .opcode = IBV_WR_RDMA_READ, .length = 30000 });
	kit_exchange(kit);
	kit_send(kit, A, &(struct kit_send){ .id = 3, .opcode = IBV_WR_RDMA_WRITE });
	assert_int_equal(kit->control->destroy_qp(kit->end[A].qp), 0);
	kit->end[A].qp = NULL;
	kit_run(kit);
	kit_expect_none(kit, A);
	kit_close(kit);
}

/*
 * SQD
 */

static void drained(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	(void)state;
	kit->batch = 1;
	kit_recv(kit, B, 70, FAR, 5000);
	kit_recv(kit, B, 71, FAR, 5000);
	kit_send(kit, A,
		 &(struct kit_send){ .opcode = IBV_WR_SEND, .id = 1, .length = 5000 });
	kit_send(kit, A,
		 &(struct kit_send){ .opcode = IBV_WR_SEND, .id = 2, .length = 5000 });
	assert_int_equal(kit_swallow(kit, A), 10); /* both are begun, and lost */
	assert_int_equal(kit->control->modify_qp(kit->end[A].qp, &attr,
						 IBV_QP_STATE |
							 IBV_QP_EN_SQD_ASYNC_NOTIFY),
			 0);
	kit_send(kit, A, &(struct kit_send){ .id = 3, .opcode = IBV_WR_RDMA_WRITE });
	kit_pump(kit);
	kit_expect_no_event(kit, A);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_expect_none(kit, A);
	kit_expect_event(kit, A, IBV_EVENT_SQ_DRAINED);
	assert_int_equal(kit_modify(kit, A, IBV_QPS_SQD), -EINVAL);
	assert_int_equal(kit->control->modify_qp(kit->end[A].qp,
						 &(struct ibv_qp_attr){
							 .qp_state = IBV_QPS_RTS },
						 IBV_QP_STATE),
			 0);
	kit_run(kit);
	kit_expect(kit, A, 3, IBV_WC_SUCCESS);
	kit_close(kit);
}

/*
 * Limits
 */

static void limits_are_kept(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){
		.config = { .qp_max = 2, .cq_max = 2, .mr_max = 2, .srq_max = 1 } });
	struct kit_end *a = &kit->end[A];
	const struct snt_control *control = kit->control;
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = a->cq,
					 .recv_cq = a->cq };
	struct ibv_srq *srq, *no_srq;
	struct ibv_qp *qp, *no_qp;
	struct ibv_cq *cq, *no_cq;
	struct ibv_mr *mr, *no_mr;

	(void)state;
	assert_int_equal(control->create_qp(a->pd, &attr, &qp), 0);
	assert_int_equal(control->create_qp(a->pd, &attr, &no_qp), -ENOMEM);
	assert_int_equal(control->create_cq(a->context, 1, NULL, NULL, 0, &cq), 0);
	assert_int_equal(control->create_cq(a->context, 1, NULL, NULL, 0, &no_cq),
			 -ENOMEM);
	assert_int_equal(control->reg_mr(a->pd, a->bytes, 1, 0, &mr), 0);
	assert_int_equal(control->reg_mr(a->pd, a->bytes, 1, 0, &no_mr), -ENOMEM);
	assert_int_equal(control->create_srq(a->pd, &srq_attr, &srq), 0);
	assert_int_equal(control->create_srq(a->pd, &srq_attr, &no_srq), -ENOMEM);
	assert_int_equal(snt__soft_device_destroy(a->device), -EBUSY);
	assert_int_equal(control->destroy_srq(srq), 0);
	assert_int_equal(control->dereg_mr(mr), 0);
	assert_int_equal(control->destroy_cq(cq), 0);
	assert_int_equal(control->destroy_qp(qp), 0);
	kit_close(kit);
}

static void attributes_beyond_the_limits_are_refused(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct kit_end *a = &kit->end[A];
	const struct snt_control *control = kit->control;
	struct ibv_device_attr device;
	struct ibv_qp_init_attr good = { .qp_type = IBV_QPT_RC,
					 .send_cq = a->cq,
					 .recv_cq = a->cq },
				attr;
	struct ibv_srq_init_attr srq_attr = { 0 };
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_cq *cq;

#define REFUSED(field, value, error)                                               \
	do {                                                                       \
		attr = good;                                                       \
		attr.field = (value);                                              \
		assert_int_equal(control->create_qp(a->pd, &attr, &qp), -(error)); \
	} while (0)

	(void)state;
	assert_int_equal(control->query_device(a->context, &device), 0);
	REFUSED(cap.max_send_wr, device.max_qp_wr + 1, EINVAL);
	REFUSED(cap.max_recv_wr, device.max_qp_wr + 1, EINVAL);
	REFUSED(cap.max_send_sge, device.max_sge + 1, EINVAL);
	REFUSED(cap.max_recv_sge, device.max_sge + 1, EINVAL);
	REFUSED(cap.max_inline_data, 513, EINVAL);
	REFUSED(send_cq, NULL, EINVAL);
	REFUSED(recv_cq, kit->end[B].cq, EINVAL);
	REFUSED(qp_type, IBV_QPT_UC, EOPNOTSUPP);
#undef REFUSED
	assert_int_equal(control->create_cq(a->context, device.max_cqe + 1, NULL, NULL,
					    0, &cq),
			 -EINVAL);
	assert_int_equal(control->create_cq(a->context, 0, NULL, NULL, 0, &cq),
			 -EINVAL);
	assert_int_equal(control->create_cq(a->context, 1, NULL, NULL, 1, &cq),
			 -EINVAL);
	srq_attr.attr.max_wr = device.max_srq_wr + 1;
	assert_int_equal(control->create_srq(a->pd, &srq_attr, &srq), -EINVAL);
	srq_attr.attr.max_wr = 1;
	srq_attr.attr.max_sge = device.max_srq_sge + 1;
	assert_int_equal(control->create_srq(a->pd, &srq_attr, &srq), -EINVAL);
	kit_close(kit);
}

/* QPs with no room at all, which verbs allow. */
static void empty_queues(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct kit_end *a = &kit->end[A];
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = a->cq,
					 .recv_cq = a->cq };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr recv = { 0 }, *bad_recv;
	struct ibv_qp *qp;

	(void)state;
	assert_int_equal(kit->control->destroy_qp(a->qp), 0);
	assert_int_equal(kit->control->create_qp(a->pd, &attr, &qp), 0);
	a->qp = qp;
	kit_connect(kit, A);
	assert_int_equal(ibv_post_send(qp, &send, &bad_send), ENOMEM);
	assert_int_equal(ibv_post_recv(qp, &recv, &bad_recv), ENOMEM);
	kit_close(kit);
}

/* What inline verbs see behind our objects. */
static void objects_are_genuine(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct ibv_device_attr_ex device;
	struct ibv_port_attr port;

	(void)state;
	assert_null(ibv_qp_to_qp_ex(kit->end[A].qp));
	assert_int_equal(ibv_query_port(kit->end[A].context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.max_msg_sz, 1u << 31);
	assert_int_equal(ibv_query_port(kit->end[A].context, 2, &port), EINVAL);
	assert_int_equal(ibv_query_device_ex(kit->end[A].context, NULL, &device), 0);
	assert_int_equal(device.orig_attr.phys_port_cnt, 1);
	assert_int_equal(device.orig_attr.atomic_cap, IBV_ATOMIC_GLOB);
	assert_null(ibv_create_cq_ex(kit->end[A].context,
				     &(struct ibv_cq_init_attr_ex){ .cqe = 1 }));
	assert_int_equal(errno, EOPNOTSUPP);
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(transitions),
		cmocka_unit_test(every_attribute_is_required),
		cmocka_unit_test(impossible_values),
		cmocka_unit_test(query_tells_what_was_set),
		cmocka_unit_test(post_in_states),
		cmocka_unit_test(receive_posted_in_init),
		cmocka_unit_test(full_queues),
		cmocka_unit_test(refused_work),
		cmocka_unit_test(receive_beside_srq),
		cmocka_unit_test(flush_is_in_order),
		cmocka_unit_test(post_in_error),
		cmocka_unit_test(post_in_error_unconnected),
		cmocka_unit_test(half_a_message_is_flushed),
		cmocka_unit_test(reset_discards),
		cmocka_unit_test(reset_in_the_middle_of_a_message),
		cmocka_unit_test(last_answer_is_sent),
		cmocka_unit_test(completions_outlive_their_qp),
		cmocka_unit_test(numbers_cannot_be_guessed),
		cmocka_unit_test(destroyed_while_busy),
		cmocka_unit_test(drained),
		cmocka_unit_test(limits_are_kept),
		cmocka_unit_test(attributes_beyond_the_limits_are_refused),
		cmocka_unit_test(empty_queues),
		cmocka_unit_test(objects_are_genuine),
	};

	return cmocka_run_group_tests_name("soft_qp", tests, NULL, NULL);
}
