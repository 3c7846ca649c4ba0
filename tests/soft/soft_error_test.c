/* SPDX-License-Identifier: MIT */
/* Soft devices: requests that must fail, and what is left of the QPs. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#define FAR (256u << 10)
#define MS  UINT64_C(1000000)

/* Posts a WR after having bent it. */
static void send_bent(struct kit *kit, const struct kit_send *send,
		      void (*bend)(struct kit *kit, struct ibv_send_wr *wr))
{
	struct ibv_send_wr *bad;
	struct ibv_sge sge;
	struct ibv_send_wr wr = kit_wr(kit, A, send, &sge);

	bend(kit, &wr);
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), 0);
}

static bool is_atomic(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static void set_rkey(struct ibv_send_wr *wr, uint32_t rkey)
{
	if (is_atomic(wr))
		wr->wr.atomic.rkey = rkey;
	else
		wr->wr.rdma.rkey = rkey;
}

static void set_remote_addr(struct ibv_send_wr *wr, uint64_t addr)
{
	if (is_atomic(wr))
		wr->wr.atomic.remote_addr = addr;
	else
		wr->wr.rdma.remote_addr = addr;
}

static void expect_states(struct kit *kit, enum ibv_qp_state a, enum ibv_qp_state b)
{
	assert_int_equal(kit_state(kit, A), a);
	assert_int_equal(kit_state(kit, B), b);
}

/*
 * Rights of a peer
 */

static void wrong_rkey(struct kit *kit, struct ibv_send_wr *wr)
{
	set_rkey(wr, kit->end[B].mr->rkey ^ 0x5a0000);
}

static void lkey_as_rkey(struct kit *kit, struct ibv_send_wr *wr)
{
	set_rkey(wr, kit->end[B].mr->lkey);
}

static void slot_of_nothing(struct kit *kit, struct ibv_send_wr *wr)
{
	set_rkey(wr, kit->end[B].mr->rkey + 1);
}

static void key_zero(struct kit *kit, struct ibv_send_wr *wr)
{
	(void)kit;
	set_rkey(wr, 0);
}

static void beyond_the_end(struct kit *kit, struct ibv_send_wr *wr)
{
	set_remote_addr(wr, (uintptr_t)kit->end[B].bytes + KIT_BYTES -
				    (is_atomic(wr) ? 0 : wr->sg_list->length - 1));
}

static void before_the_begin(struct kit *kit, struct ibv_send_wr *wr)
{
	set_remote_addr(wr, (uintptr_t)kit->end[B].bytes - 8);
}

static void around_the_world(struct kit *kit, struct ibv_send_wr *wr)
{
	(void)kit;
	set_remote_addr(wr, -(uint64_t)8);
}

static const enum ibv_wr_opcode remote_opcodes[] = {
	IBV_WR_RDMA_WRITE,	     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
};

static bool opcode_is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* A good WR, the bad one and an unsignalled one behind it; receives on both ends. */
static void check_denied(enum ibv_wr_opcode opcode, uint32_t length,
			 void (*bend)(struct kit *kit, struct ibv_send_wr *wr))
{
	struct kit *kit = kit_open(NULL);

	kit_fill(kit, A, 0, 5000, 1);
	kit_recv(kit, A, 60, 0, 64);
	kit_recv(kit, B, 70, 0, 64);
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	send_bent(kit,
		  &(struct kit_send){
			  .id = 2, .opcode = opcode, .length = length, .far = FAR },
		  bend);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 3,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .length = 64,
				     .far = FAR,
				     .silent = true });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_REM_ACCESS_ERR);
	kit_expect(kit, A, 3, IBV_WC_WR_FLUSH_ERR);
	kit_expect(kit, A, 60, IBV_WC_WR_FLUSH_ERR);
	kit_expect(kit, B, 70, IBV_WC_WR_FLUSH_ERR);
	expect_states(kit, IBV_QPS_ERR, IBV_QPS_ERR);
	kit_expect_no_event(kit, A);
	kit_expect_event(kit, B, IBV_EVENT_QP_ACCESS_ERR);
	kit_expect_no_event(kit, B);
	kit_check_zero(kit, B, 0, KIT_BYTES);
	kit_check(kit, A, 0, 5000, 1);
	kit_close(kit);
}

static void keys_are_checked(void **state)
{
	static void (*const bends[])(struct kit * kit, struct ibv_send_wr * wr) = {
		wrong_rkey,	lkey_as_rkey,	  slot_of_nothing,  key_zero,
		beyond_the_end, before_the_begin, around_the_world,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(remote_opcodes); i++) {
		bool atomic = opcode_is_atomic(remote_opcodes[i]);

		for (size_t j = 0; j < ARRAY_SIZE(bends); j++) {
			check_denied(remote_opcodes[i], atomic ? 8 : 16, bends[j]);
			if (!atomic)
				check_denied(remote_opcodes[i], 5000, bends[j]);
		}
	}
}

/* Memory of B that A names; a case may make it worse. */
static uint32_t other_rkey;

static void other_region(struct kit *kit, struct ibv_send_wr *wr)
{
	(void)kit;
	set_rkey(wr, other_rkey);
}

static void region_rights(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(remote_opcodes); i++) {
		enum ibv_wr_opcode opcode = remote_opcodes[i];
		struct kit *kit = kit_open(NULL);
		unsigned access = KIT_ACCESS;
		struct ibv_mr *mr;

		access &= opcode == IBV_WR_RDMA_READ ? ~IBV_ACCESS_REMOTE_READ
			  : opcode_is_atomic(opcode) ? ~IBV_ACCESS_REMOTE_ATOMIC
						     : ~IBV_ACCESS_REMOTE_WRITE;
		assert_int_equal(kit->control->reg_mr(kit->end[B].pd, kit->end[B].bytes,
						      KIT_BYTES, access, &mr),
				 0);
		other_rkey = mr->rkey;
		kit_recv(kit, B, 70, 0, 64);
		send_bent(kit,
			  &(struct kit_send){ .id = 1, .opcode = opcode, .length = 8 },
			  other_region);
		kit_run(kit);
		kit_expect(kit, A, 1, IBV_WC_REM_ACCESS_ERR);
		kit_expect(kit, B, 70, IBV_WC_WR_FLUSH_ERR);
		kit_expect_event(kit, B, IBV_EVENT_QP_ACCESS_ERR);
		assert_int_equal(kit->control->dereg_mr(mr), 0);
		kit_close(kit);
	}
}

static void foreign_domain(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	(void)state;
	assert_int_equal(kit->control->alloc_pd(kit->end[B].context, &pd), 0);
	assert_int_equal(kit->control->reg_mr(pd, kit->end[B].bytes, KIT_BYTES,
					      KIT_ACCESS, &mr),
			 0);
	other_rkey = mr->rkey;
	send_bent(kit,
		  &(struct kit_send){
			  .id = 1, .opcode = IBV_WR_RDMA_WRITE, .length = 8 },
		  other_region);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_REM_ACCESS_ERR);
	kit_expect_event(kit, B, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(kit->control->dealloc_pd(pd), -EBUSY);
	assert_int_equal(kit->control->dereg_mr(mr), 0);
	assert_int_equal(kit->control->dealloc_pd(pd), 0);
	kit_close(kit);
}

/* Receives of a shared queue are of its own protection domain, whatever the QP's is. */
static void domain_of_a_shared_queue(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .unconnected = true });
	const struct snt_control *control = kit->control;
	struct kit_end *b = &kit->end[B];
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_mr *mr, *mr_of_qp = b->mr;
	struct ibv_pd *pd;

	(void)state;
	assert_int_equal(control->alloc_pd(b->context, &pd), 0);
	assert_int_equal(control->create_srq(pd, &attr, &b->srq), 0);
	assert_int_equal(control->reg_mr(pd, b->bytes, KIT_BYTES, KIT_ACCESS, &mr), 0);
	assert_int_equal(control->destroy_qp(b->qp), 0);
	kit_make_qp(kit, B);
	kit_connect(kit, A);
	kit_connect(kit, B);
	b->mr = mr;
	kit_recv(kit, B, 70, FAR, 64);
	b->mr = mr_of_qp;
	kit_recv(kit, B, 71, FAR, 64);
	kit_fill(kit, A, 0, 64, 1);
	for (unsigned i = 1; i < 3; i++)
		kit_send(kit, A,
			 &(struct kit_send){
				 .id = i, .opcode = IBV_WR_SEND, .length = 64 });
	kit_run(kit);
	kit_expect(kit, B, 70, IBV_WC_SUCCESS);
	kit_check(kit, B, FAR, 64, 1);
	kit_expect(kit, B, 71, IBV_WC_LOC_PROT_ERR);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_REM_OP_ERR);
	kit_expect_event(kit, B, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(control->destroy_qp(b->qp), 0);
	b->qp = NULL;
	assert_int_equal(control->destroy_srq(b->srq), 0);
	b->srq = NULL;
	assert_int_equal(control->dereg_mr(mr), 0);
	assert_int_equal(control->dealloc_pd(pd), 0);
	kit_close(kit);
}

/* A key that was given back stays dead, also when its slot is used again. */
static void stale_keys(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .config = { .mr_max = 2 } });
	const struct snt_control *control = kit->control;
	struct kit_end *b = &kit->end[B];
	uint32_t old[8];
	struct ibv_mr *mr;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(old); i++) {
		assert_int_equal(control->reg_mr(b->pd, b->bytes, 64, KIT_ACCESS, &mr),
				 0);
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(mr->rkey, old[j]);
		old[i] = mr->rkey;
		assert_int_equal(control->dereg_mr(mr), 0);
	}
	assert_int_equal(control->reg_mr(b->pd, b->bytes, 64, KIT_ACCESS, &mr), 0);
	other_rkey = old[7];
	send_bent(kit,
		  &(struct kit_send){
			  .id = 1, .opcode = IBV_WR_RDMA_WRITE, .length = 8 },
		  other_region);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_REM_ACCESS_ERR);
	kit_expect_event(kit, B, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(control->dereg_mr(mr), 0);
	kit_close(kit);
}

static void queue_rights(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(remote_opcodes); i++) {
		struct kit *kit = kit_open(&(struct kit_opts){ .access = -1 });

		kit_send(kit, A,
			 &(struct kit_send){
				 .id = 1, .opcode = remote_opcodes[i], .length = 8 });
		kit_run(kit);
		kit_expect(kit, A, 1, IBV_WC_REM_INV_REQ_ERR);
		expect_states(kit, IBV_QPS_ERR, IBV_QPS_ERR);
		kit_expect_event(kit, B, IBV_EVENT_QP_REQ_ERR);
		kit_expect_no_event(kit, B);
		kit_close(kit);
	}
}

/* What names no bytes needs no key. */
static void nothing_needs_no_key(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	send_bent(kit, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE },
		  key_zero);
	send_bent(kit, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_READ },
		  key_zero);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_close(kit);
}

static void misaligned(struct kit *kit, struct ibv_send_wr *wr)
{
	set_remote_addr(wr, (uintptr_t)kit->end[B].bytes + 4);
}

static void misaligned_atomic(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	send_bent(kit,
		  &(struct kit_send){ .id = 1,
				      .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				      .length = 8,
				      .compare_add = 1 },
		  misaligned);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_REM_INV_REQ_ERR);
	kit_expect_event(kit, B, IBV_EVENT_QP_REQ_ERR);
	kit_check_zero(kit, B, 0, 16);
	kit_close(kit);
}

/* The peer allows fewer READs than the requester thinks. */
static void too_many_reads(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .reads = 4, .dest_reads = 2 });

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		kit_send(kit, A,
			 &(struct kit_send){ .id = i,
					     .opcode = IBV_WR_RDMA_READ,
					     .at = i * 5000,
					     .far = FAR,
					     .length = 5000 });
	kit_exchange(kit);
	kit_run(kit);
	kit_expect(kit, A, 0, IBV_WC_SUCCESS);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_REM_INV_REQ_ERR);
	kit_expect(kit, A, 3, IBV_WC_WR_FLUSH_ERR);
	kit_expect_event(kit, B, IBV_EVENT_QP_REQ_ERR);
	kit_close(kit);
}

/* What was accepted before a fatal request is answered. */
static void earlier_reads_are_answered(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_fill(kit, B, FAR, 60000, 2);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1,
				     .opcode = IBV_WR_RDMA_READ,
				     .far = FAR,
				     .length = 60000 });
	send_bent(kit,
		  &(struct kit_send){
			  .id = 2, .opcode = IBV_WR_RDMA_WRITE, .length = 8 },
		  wrong_rkey);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_REM_ACCESS_ERR);
	kit_check(kit, A, 0, 60000, 2);
	kit_expect_event(kit, B, IBV_EVENT_QP_ACCESS_ERR);
	kit_close(kit);
}

/* Memory that goes away in the middle of a message. */
static enum kit_fate dereg_at_chosen(struct kit *kit, const struct kit_frame *frame)
{
	if (frame->index == 5) {
		struct kit_end *end = &kit->end[kit->chosen];

		assert_int_equal(kit->control->dereg_mr(end->mr), 0);
		end->mr = NULL;
	}
	return KIT_PASS;
}

static void memory_vanishes(void **state)
{
	static const struct {
		unsigned whose;
		enum ibv_wr_opcode opcode;
		enum ibv_wc_status status;
	} cases[] = {
		{ B, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR },
		{ B, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR },
		{ B, IBV_WR_SEND, IBV_WC_REM_OP_ERR },
		{ A, IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR },
		{ A, IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR },
		{ A, IBV_WR_SEND, IBV_WC_LOC_PROT_ERR },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct kit *kit = kit_open(
			&(struct kit_opts){ .config = { .request_window = 4096,
							.response_window = 4096 } });

		kit->batch = 1;
		kit->fate = dereg_at_chosen;
		kit->chosen = cases[i].whose;
		kit_recv(kit, B, 70, FAR, 60000);
		kit_send(kit, A,
			 &(struct kit_send){ .id = 1,
					     .opcode = cases[i].opcode,
					     .far = FAR,
					     .length = 60000 });
		kit_run(kit);
		kit_expect(kit, A, 1, cases[i].status);
		assert_int_equal(kit_state(kit, A), IBV_QPS_ERR);
		kit_close(kit);
	}
}

/*
 * Receives
 */

static void short_receive(struct kit *kit, uint32_t room, uint32_t length)
{
	kit_recv(kit, B, 70, FAR, room);
	kit_recv(kit, B, 71, FAR, 64);
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = IBV_WR_SEND, .length = length });
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_SEND });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_REM_INV_REQ_ERR);
	kit_expect(kit, A, 2, IBV_WC_WR_FLUSH_ERR);
	kit_expect(kit, B, 70, IBV_WC_LOC_LEN_ERR);
	kit_expect_event(kit, B, IBV_EVENT_QP_REQ_ERR);
	expect_states(kit, IBV_QPS_ERR, IBV_QPS_ERR);
	kit_check_zero(kit, B, FAR + room, 64);
}

static void receives_too_short(void **state)
{
	static const uint32_t rooms[][2] = { { 63, 64 }, { 0, 1 }, { 1024, 1025 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rooms); i++) {
		struct kit *kit = kit_open(NULL);

		short_receive(kit, rooms[i][0], rooms[i][1]);
		kit_expect(kit, B, 71, IBV_WC_WR_FLUSH_ERR);
		kit_expect_no_event(kit, B);
		kit_close(kit);

		kit = kit_open(&(struct kit_opts){ .srq_depth = 4 });
		short_receive(kit, rooms[i][0], rooms[i][1]);
		kit_expect_none(kit, B);
		kit_expect_event(kit, B, IBV_EVENT_QP_LAST_WQE_REACHED);
		kit_expect_event(kit, A, IBV_EVENT_QP_LAST_WQE_REACHED);
		kit_close(kit);
	}
}

static void receive_bad_key(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct kit_end *b = &kit->end[B];
	struct ibv_sge sge[2] = {
		{ .addr = (uintptr_t)b->bytes, .length = 32, .lkey = b->mr->lkey },
		{ .addr = (uintptr_t)b->bytes, .length = 32, .lkey = b->mr->rkey },
	};
	struct ibv_recv_wr wr = { .wr_id = 70, .sg_list = sge, .num_sge = 2 };
	struct ibv_recv_wr *bad;

	(void)state;
	kit_fill(kit, A, 0, 64, 1);
	for (wr.wr_id = 70; wr.wr_id < 73; wr.wr_id++)
		assert_int_equal(ibv_post_recv(b->qp, &wr, &bad), 0);
	/* A key that is not needed is not looked at. */
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND, .length = 32 });
	kit_send(kit, A,
		 &(struct kit_send){ .id = 2,
				     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				     .far = FAR,
				     .length = 64 });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_expect(kit, B, 70, IBV_WC_SUCCESS);
	kit_expect(kit, B, 71, IBV_WC_SUCCESS);
	memset(b->bytes, 0, 64);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 3, .opcode = IBV_WR_SEND, .length = 33 });
	kit_run(kit);
	kit_expect(kit, A, 3, IBV_WC_REM_OP_ERR);
	kit_expect(kit, B, 72, IBV_WC_LOC_PROT_ERR);
	kit_expect_no_event(kit, B);
	expect_states(kit, IBV_QPS_ERR, IBV_QPS_ERR);
	kit_check_zero(kit, B, 0, 64);
	kit_close(kit);
}

/*
 * Local errors
 */

static void bad_lkey(struct kit *kit, struct ibv_send_wr *wr)
{
	wr->sg_list->lkey = kit->end[A].mr->rkey;
}

static void behind_local_end(struct kit *kit, struct ibv_send_wr *wr)
{
	wr->sg_list->addr =
		(uintptr_t)kit->end[A].bytes + KIT_BYTES - wr->sg_list->length + 1;
}

static void check_local(enum ibv_wr_opcode opcode, uint32_t length,
			enum ibv_wc_status status,
			void (*bend)(struct kit *kit, struct ibv_send_wr *wr))
{
	struct kit *kit = kit_open(NULL);

	kit_recv(kit, A, 60, 0, 64);
	kit_recv(kit, B, 70, 0, 64);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .length = 3000,
				     .far = FAR });
	send_bent(kit,
		  &(struct kit_send){ .id = 2, .opcode = opcode, .length = length },
		  bend);
	kit_send(kit, A, &(struct kit_send){ .id = 3, .opcode = IBV_WR_SEND });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, status);
	kit_expect(kit, A, 3, IBV_WC_WR_FLUSH_ERR);
	kit_expect(kit, A, 60, IBV_WC_WR_FLUSH_ERR);
	kit_expect_none(kit, B);
	expect_states(kit, IBV_QPS_ERR, IBV_QPS_RTS);
	kit_expect_no_event(kit, A);
	kit_expect_no_event(kit, B);
	kit_close(kit);
}

static void not_at_all(struct kit *kit, struct ibv_send_wr *wr)
{
	(void)kit;
	(void)wr;
}

static void local_errors(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,	   IBV_WR_SEND_WITH_IMM,      IBV_WR_RDMA_READ,
		IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_CMP_AND_SWP,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		check_local(opcodes[i], 64, IBV_WC_LOC_PROT_ERR, bad_lkey);
		check_local(opcodes[i], 64, IBV_WC_LOC_PROT_ERR, behind_local_end);
		check_local(opcodes[i], 3000, IBV_WC_LOC_PROT_ERR, bad_lkey);
	}
	check_local(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, IBV_WC_LOC_LEN_ERR, not_at_all);
}

static struct ibv_mr *read_only;

static void into_read_only(struct kit *kit, struct ibv_send_wr *wr)
{
	(void)kit;
	wr->sg_list->lkey = read_only->lkey;
}

static void read_needs_local_write(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	assert_int_equal(kit->control->reg_mr(kit->end[A].pd, kit->end[A].bytes,
					      KIT_BYTES, 0, &read_only),
			 0);
	send_bent(kit,
		  &(struct kit_send){
			  .id = 1, .opcode = IBV_WR_RDMA_WRITE, .length = 64 },
		  into_read_only);
	send_bent(kit,
		  &(struct kit_send){
			  .id = 2, .opcode = IBV_WR_RDMA_READ, .length = 64 },
		  into_read_only);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(kit->watched[SNT__WIRE_READ_REQUEST], 0);
	assert_int_equal(kit->control->dereg_mr(read_only), 0);
	kit_close(kit);
}

static void no_reads_allowed(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .reads = -1 });

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_READ });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_LOC_QP_OP_ERR);
	kit_close(kit);
}

static void beyond_two_gigabytes(struct kit *kit, struct ibv_send_wr *wr)
{
	(void)kit;
	wr->sg_list->length = (1u << 31) + 1;
}

static void message_too_long(void **state)
{
	(void)state;
	check_local(IBV_WR_RDMA_WRITE, 0, IBV_WC_LOC_LEN_ERR, beyond_two_gigabytes);
	check_local(IBV_WR_RDMA_READ, 0, IBV_WC_LOC_LEN_ERR, beyond_two_gigabytes);
}

/*
 * Receivers that are not ready
 */

static void not_ready(int retries, unsigned naks)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .rnr_retries = retries });

	kit_send(kit, A,
		 &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND, .length = 3000 });
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	kit_expect(kit, A, 2, IBV_WC_WR_FLUSH_ERR);
	expect_states(kit, IBV_QPS_ERR, IBV_QPS_RTS);
	assert_int_equal(kit_stats(kit, B)->rnr_out, naks);
	/* Code 12 is 640 us. */
	assert_true(kit->now == (naks - 1) * UINT64_C(640000));
	assert_int_equal(kit_stats(kit, A)->timeouts, 0);
	kit_expect_no_event(kit, A);
	kit_expect_no_event(kit, B);
	kit_close(kit);
}

static void rnr_retries_run_out(void **state)
{
	(void)state;
	not_ready(-1, 1);
	not_ready(1, 2);
	not_ready(6, 7);
}

static void rnr_forever(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND, .length = 3000 });
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_WRITE });
	kit_run_for(kit, 100 * MS);
	kit_expect_none(kit, A);
	assert_in_range(kit_stats(kit, B)->rnr_out, 100, 200);
	kit_recv(kit, B, 70, FAR, 3000);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_expect(kit, B, 70, IBV_WC_SUCCESS);
	kit_close(kit);
}

/* Retries count from the last progress. */
static void rnr_counter_comes_back(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .rnr_retries = 2 });

	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		kit_send(kit, A, &(struct kit_send){ .id = i, .opcode = IBV_WR_SEND });
		kit_run_for(kit, MS);
		kit_expect_none(kit, A);
		kit_recv(kit, B, 70 + i, FAR, 64);
		kit_run(kit);
		kit_expect(kit, A, i, IBV_WC_SUCCESS);
		kit_expect(kit, B, 70 + i, IBV_WC_SUCCESS);
	}
	kit_close(kit);
}

/* A peer that says it is not ready is there: losses between two such answers do not
 * add up. */
static enum kit_fate drop_every_second(struct kit *kit, const struct kit_frame *frame)
{
	return frame->to == B && kit->chosen++ % 2 ? KIT_DROP : KIT_PASS;
}

static void rnr_is_an_answer(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .retries = 1, .timeout = 1 });

	(void)state;
	kit->fate = drop_every_second;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND });
	kit_run_for(kit, 100 * MS);
	kit_expect_none(kit, A);
	assert_in_range(kit_stats(kit, A)->timeouts, 50, 200);
	kit_recv(kit, B, 70, FAR, 64);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_close(kit);
}

/* All but the packet that needs the receive is executed. */
static void rnr_of_write_with_immediate(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .rnr_retries = -1 });

	(void)state;
	kit_fill(kit, A, 0, 5000, 1);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1,
				     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				     .far = FAR,
				     .length = 5000 });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	kit_check(kit, B, FAR, 4096, 1);
	kit_check_zero(kit, B, FAR + 4096, 904);
	kit_close(kit);
}

/*
 * Peers that are gone
 */

static enum kit_fate drop_all(struct kit *kit, const struct kit_frame *frame)
{
	(void)kit;
	(void)frame;
	return KIT_DROP;
}

/* Counts as InfiniBand does: seven is seven. Timeouts double, but for a factor of four
 * at most. Probes, of the first and the last request, change nothing in that. */
static void retries_run_out(void **state)
{
	const uint64_t timeout = UINT64_C(4096) << 14;

	(void)state;
	for (int retries = 0; retries <= 7; retries++) {
		struct kit *kit = kit_open(
			&(struct kit_opts){ .retries = retries ? retries : -1 });
		uint64_t time = timeout;

		for (int i = 0; i < retries; i++)
			time += timeout << (i < 1 ? 1 : 2);
		kit->fate = drop_all;
		kit_recv(kit, A, 60, 0, 64);
		kit_send(kit, A,
			 &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
		kit_send(kit, A,
			 &(struct kit_send){
				 .id = 2, .opcode = IBV_WR_RDMA_READ, .silent = true });
		kit_run(kit);
		kit_expect(kit, A, 1, IBV_WC_RETRY_EXC_ERR);
		kit_expect(kit, A, 2, IBV_WC_WR_FLUSH_ERR);
		kit_expect(kit, A, 60, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(kit_stats(kit, A)->timeouts, retries + 1);
		assert_true(kit_stats(kit, A)->probes > 0);
		assert_int_equal(kit->frames,
				 2 * (retries + 1 + kit_stats(kit, A)->probes));
		assert_true(kit->now == time);
		expect_states(kit, IBV_QPS_ERR, IBV_QPS_RTS);
		kit_close(kit);
	}
}

/* Progress ends the back-off. */
static enum kit_fate drop_first_two(struct kit *kit, const struct kit_frame *frame)
{
	(void)frame;
	return kit->chosen++ < 2 ? KIT_DROP : KIT_PASS;
}

static void backoff_ends(void **state)
{
	const uint64_t timeout = UINT64_C(4096) << 7; /* too short for probes */
	struct kit *kit = kit_open(&(struct kit_opts){ .timeout = 7 });
	uint64_t before;

	(void)state;
	kit->fate = drop_first_two;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	assert_true(kit->now == 3 * timeout);
	before = kit->now;
	kit->chosen = 1;
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	assert_true(kit->now == before + timeout);
	kit_close(kit);
}

static void timeout_zero_waits_forever(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .timeout = -1 });

	(void)state;
	kit->fate = drop_all;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	kit_expect_none(kit, A);
	assert_int_equal(kit->frames, 1);
	kit_close(kit);
}

static void timeout_has_a_floor(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){
		.timeout = 1, .retries = -1, .config = { .ack_timeout_min = MS } });

	(void)state;
	kit->fate = drop_all;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_RETRY_EXC_ERR);
	assert_true(kit->now == MS);
	kit_close(kit);
}

static void peer_in(enum ibv_qp_state state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .unconnected = true });

	kit_connect(kit, A);
	if (state != IBV_QPS_RESET)
		assert_int_equal(kit_modify(kit, B, IBV_QPS_INIT), 0);
	if (state == IBV_QPS_ERR)
		assert_int_equal(kit_modify(kit, B, IBV_QPS_ERR), 0);
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = IBV_WR_RDMA_WRITE, .length = 8 });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(kit_state(kit, B), state);
	kit_close(kit);
}

static void peer_does_not_listen(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	peer_in(IBV_QPS_RESET);
	peer_in(IBV_QPS_INIT);
	peer_in(IBV_QPS_ERR);
	assert_int_equal(kit->control->destroy_qp(kit->end[B].qp), 0);
	kit->end[B].qp = NULL;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(kit_stats(kit, B)->dropped, 8 + kit_stats(kit, A)->probes);
	kit_close(kit);
}

static void port_is_down(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	snt__soft_device_set_port(kit->end[A].device, false);
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_run_for(kit, 100 * MS);
	assert_int_equal(kit->frames, 0);
	snt__soft_device_set_port(kit->end[A].device, true);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	snt__soft_device_set_port(kit->end[B].device, false);
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	kit_expect(kit, A, 2, IBV_WC_RETRY_EXC_ERR);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ACTIVE);
	kit_expect_no_event(kit, A);
	kit_expect_event(kit, B, IBV_EVENT_PORT_ERR);
	kit_close(kit);
}

static void device_dies(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct ibv_mr *mr;
	struct ibv_pd *pd;

	(void)state;
	kit_recv(kit, A, 60, 0, 64);
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	snt__soft_device_kill(kit->end[A].device);
	kit_run(kit);
	assert_int_equal(kit->frames, 0);
	kit_expect(kit, A, 1, IBV_WC_WR_FLUSH_ERR);
	kit_expect(kit, A, 60, IBV_WC_WR_FLUSH_ERR);
	kit_expect_event(kit, A, IBV_EVENT_DEVICE_FATAL);
	assert_int_equal(kit_state(kit, A), IBV_QPS_ERR);
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_WRITE });
	kit_expect(kit, A, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(kit_modify(kit, A, IBV_QPS_RESET), 0);
	assert_int_equal(kit_modify(kit, A, IBV_QPS_INIT), -EIO);
	assert_int_equal(kit->control->reg_mr(kit->end[A].pd, kit->end[A].bytes, 64, 0,
					      &mr),
			 -EIO);
	assert_int_equal(kit->control->alloc_pd(kit->end[A].context, &pd), -EIO);
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_checked),
		cmocka_unit_test(region_rights),
		cmocka_unit_test(foreign_domain),
		cmocka_unit_test(domain_of_a_shared_queue),
		cmocka_unit_test(stale_keys),
		cmocka_unit_test(queue_rights),
		cmocka_unit_test(nothing_needs_no_key),
		cmocka_unit_test(misaligned_atomic),
		cmocka_unit_test(too_many_reads),
		cmocka_unit_test(earlier_reads_are_answered),
		cmocka_unit_test(memory_vanishes),
		cmocka_unit_test(receives_too_short),
		cmocka_unit_test(receive_bad_key),
		cmocka_unit_test(local_errors),
		cmocka_unit_test(read_needs_local_write),
		cmocka_unit_test(no_reads_allowed),
		cmocka_unit_test(message_too_long),
		cmocka_unit_test(rnr_retries_run_out),
		cmocka_unit_test(rnr_forever),
		cmocka_unit_test(rnr_counter_comes_back),
		cmocka_unit_test(rnr_is_an_answer),
		cmocka_unit_test(rnr_of_write_with_immediate),
		cmocka_unit_test(retries_run_out),
		cmocka_unit_test(backoff_ends),
		cmocka_unit_test(timeout_zero_waits_forever),
		cmocka_unit_test(timeout_has_a_floor),
		cmocka_unit_test(peer_does_not_listen),
		cmocka_unit_test(port_is_down),
		cmocka_unit_test(device_dies),
	};

	return cmocka_run_group_tests_name("soft_error", tests, NULL, NULL);
}
