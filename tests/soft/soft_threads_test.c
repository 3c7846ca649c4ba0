/* SPDX-License-Identifier: MIT */
/*
 * Soft devices whose packets move in a thread of their own, while the program posts,
 * polls and sleeps in another: all that is between them is the driver's lock.
 */
#include "lib/test.h"

#include "lib/rc.h"
#include "lib/soft_mover.h"

#define ROUNDS 2000
#define LENGTH 5000u
#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

enum {
	A,
	B,
	ENDS
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t bytes[2 * LENGTH];
};

struct world {
	struct soft_mover mover;
	struct end end[ENDS];
};

static const struct snt_control *control;

static void open_end(struct world *world, unsigned which)
{
	struct end *end = &world->end[which];
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 16, 16, 1, 1, 0 } };

	end->context = snt__soft_device_context(world->mover.device[which]);
	assert_int_equal(control->alloc_pd(end->context, &end->pd), 0);
	assert_int_equal(control->create_channel(end->context, &end->channel), 0);
	assert_int_equal(control->create_cq(end->context, 64, NULL, end->channel, 0,
					    &end->cq),
			 0);
	assert_int_equal(control->reg_mr(end->pd, end->bytes, sizeof(end->bytes),
					 ACCESS, &end->mr),
			 0);
	init.send_cq = init.recv_cq = end->cq;
	assert_int_equal(control->create_qp(end->pd, &init, &end->qp), 0);
}

static void connect_end(struct world *world, unsigned which)
{
	struct ibv_qp *qp = world->end[which].qp;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = world->end[!which].qp->qp_num,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.timeout = 20,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1,
			     .grh.dgid.raw = { [10] = 0xff,
					       0xff,
					       10,
					       0,
					       0,
					       !which + 1 } },
	};

	assert_int_equal(control->modify_qp(qp, &attr, rc_mask(IBV_QPS_INIT)), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(control->modify_qp(qp, &attr, rc_mask(IBV_QPS_RTR)), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(control->modify_qp(qp, &attr, rc_mask(IBV_QPS_RTS)), 0);
}

static void post(struct world *world, unsigned round)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_RDMA_WRITE };
	struct end *a = &world->end[A], *b = &world->end[B];
	struct ibv_sge sge = { (uintptr_t)a->bytes, LENGTH, a->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = round,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcodes[round % 3],
		.send_flags = IBV_SEND_SIGNALED,
	};

	wr.wr.rdma.remote_addr = (uintptr_t)b->bytes + LENGTH;
	wr.wr.rdma.rkey = b->mr->rkey;
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
}

/* Polls, and sleeps on the channel when there is nothing. */
static struct ibv_wc wait_for_one(struct end *end)
{
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc;

	for (;;) {
		if (ibv_poll_cq(end->cq, 1, &wc) == 1)
			return wc;
		assert_int_equal(ibv_req_notify_cq(end->cq, 0), 0);
		if (ibv_poll_cq(end->cq, 1, &wc) == 1)
			return wc;
		assert_int_equal(control->get_cq_event(end->channel, &cq, &context), 0);
		assert_ptr_equal(cq, end->cq);
		control->ack_cq_events(cq, 1);
	}
}

static void close_end(struct end *end)
{
	assert_int_equal(control->destroy_qp(end->qp), 0);
	assert_int_equal(control->destroy_cq(end->cq), 0);
	assert_int_equal(control->destroy_channel(end->channel), 0);
	assert_int_equal(control->dereg_mr(end->mr), 0);
	assert_int_equal(control->dealloc_pd(end->pd), 0);
}

static void packets_move_elsewhere(void **state)
{
	static struct world world;

	(void)state;
	control = snt__soft_control();
	/* Nothing is lost, so that time need not pass. */
	soft_mover_open(&world.mover, NULL);
	open_end(&world, A);
	open_end(&world, B);
	soft_mover_start(&world.mover);
	connect_end(&world, A);
	connect_end(&world, B);
	for (unsigned round = 0; round < ROUNDS; round += 4) {
		for (unsigned i = 0; i < 4; i++)
			post(&world, round + i);
		for (unsigned i = 0; i < 4; i++) {
			struct ibv_wc wc = wait_for_one(&world.end[A]);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, round + i);
		}
	}
	soft_mover_stop(&world.mover);
	close_end(&world.end[A]);
	close_end(&world.end[B]);
	soft_mover_close(&world.mover);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(packets_move_elsewhere) };

	return cmocka_run_group_tests_name("soft_threads", tests, NULL, NULL);
}
