/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/devices/null.h"

#define DEPTH 4

struct bench {
	struct null_device *device;
	struct snt_adopted adopted;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct ibv_qp *make_null_qp(struct bench *b, uint32_t depth)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = b->cq,
		.recv_cq = b->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth },
	};
	struct ibv_qp *qp;

	assert_int_equal(b->adopted.control->create_qp(b->adopted.pd, &attr, &qp), 0);
	assert_int_equal(attr.cap.max_send_wr, DEPTH);
	return qp;
}

static int set_up_null_bench(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->device = null_device_create("null0");
	assert_non_null(b->device);
	b->adopted = null_adopted(b->device);
	assert_int_equal(b->adopted.control->create_cq(b->adopted.context, 16, NULL,
						       NULL, 0, &b->cq),
			 0);
	b->qp = make_null_qp(b, DEPTH);
	*state = b;
	return 0;
}

static int tear_down_null_bench(void **state)
{
	struct bench *b = *state;

	assert_int_equal(b->adopted.control->destroy_qp(b->qp), 0);
	assert_int_equal(b->adopted.control->destroy_cq(b->cq), 0);
	null_device_destroy(b->device);
	free(b);
	return 0;
}

static int post_send(struct ibv_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode,
		     unsigned flags)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcode,
		.send_flags = flags,
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, &wr, &bad);
}

static int post_null_recv(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static void signalled_sends_complete(void **state)
{
	struct bench *b = *state;
	struct ibv_wc wc[4];

	assert_int_equal(post_send(b->qp, 1, IBV_WR_RDMA_WRITE, 0), 0);
	assert_int_equal(post_send(b->qp, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED), 0);
	assert_int_equal(ibv_poll_cq(b->cq, 4, wc), 1);
	assert_int_equal(wc[0].wr_id, 2);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(wc[0].opcode, IBV_WC_RDMA_READ);
	assert_int_equal(wc[0].qp_num, b->qp->qp_num);
	assert_int_equal(wc[0].wc_flags, 0);
	assert_int_equal(ibv_poll_cq(b->cq, 4, wc), 0);
}

static void full_send_queue_is_refused(void **state)
{
	struct bench *b = *state;
	struct ibv_send_wr wr[DEPTH + 1] = { 0 };
	struct ibv_send_wr *bad = NULL;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < DEPTH; i++)
		wr[i].next = &wr[i + 1];
	wr[DEPTH - 1].send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(b->qp, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[DEPTH]);
	assert_int_equal(post_send(b->qp, 0, IBV_WR_SEND, 0), ENOMEM);
	assert_int_equal(ibv_poll_cq(b->cq, 1, &wc), 1);
	for (i = 0; i < DEPTH; i++)
		assert_int_equal(post_send(b->qp, 0, IBV_WR_SEND, 0), 0);
}

static void receives_complete_when_told(void **state)
{
	struct bench *b = *state;
	struct ibv_wc wc;
	int i;

	assert_int_equal(null_recv(b->qp, 0, 0), -ENOENT);
	for (i = 0; i < DEPTH; i++)
		assert_int_equal(post_null_recv(b->qp, 10 + i), 0);
	assert_int_equal(post_null_recv(b->qp, 0), ENOMEM);
	assert_int_equal(null_recv(b->qp, 0x1234, 99), 0);
	assert_int_equal(post_null_recv(b->qp, 14), ENOMEM);
	assert_int_equal(ibv_poll_cq(b->cq, 1, &wc), 1);
	assert_int_equal(post_null_recv(b->qp, 14), 0);
	assert_int_equal(wc.wr_id, 10);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.imm_data, 0x1234);
	assert_int_equal(wc.byte_len, 99);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
}

static void rings_wrap(void **state)
{
	struct bench *b = *state;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 100; i++) {
		assert_int_equal(post_send(b->qp, i, IBV_WR_SEND, IBV_SEND_SIGNALED),
				 0);
		assert_int_equal(post_null_recv(b->qp, i + 1000), 0);
		assert_int_equal(null_recv(b->qp, i, 0), 0);
		assert_int_equal(ibv_poll_cq(b->cq, 1, &wc), 1);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(ibv_poll_cq(b->cq, 1, &wc), 1);
		assert_int_equal(wc.wr_id, i + 1000);
	}
}

static void depths_are_rounded_up(void **state)
{
	struct bench *b = *state;
	struct ibv_qp *qp = make_null_qp(b, DEPTH - 1);

	assert_int_not_equal(qp->qp_num, b->qp->qp_num);
	assert_int_equal(b->adopted.control->destroy_qp(qp), 0);
}

static void cqes_go_with_their_qp(void **state)
{
	struct bench *b = *state;
	struct ibv_qp *qp = make_null_qp(b, DEPTH);
	struct ibv_wc wc[4];

	post_send(qp, 1, IBV_WR_SEND, IBV_SEND_SIGNALED);
	post_send(b->qp, 2, IBV_WR_SEND, IBV_SEND_SIGNALED);
	assert_int_equal(b->adopted.control->destroy_qp(qp), 0);
	assert_int_equal(ibv_poll_cq(b->cq, 4, wc), 1);
	assert_int_equal(wc[0].wr_id, 2);
}

static void control_table_answers(void **state)
{
	struct bench *b = *state;
	const struct snt_control *control = b->adopted.control;
	struct ibv_context *context = b->adopted.context;
	struct ibv_device_attr device;
	struct ibv_qp_init_attr init;
	struct ibv_gid_entry gid;
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	int node;

	assert_string_equal(b->adopted.name, "null0");
	assert_int_equal(control->query_device(context, &device), 0);
	assert_int_equal(control->query_port(context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(control->query_port(context, 2, &port), -EINVAL);
	assert_int_equal(control->query_gid(context, 1, 0, &gid), 0);
	assert_int_equal(gid.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(control->query_gid(context, 1, 1, &gid), -EINVAL);
	assert_int_equal(control->query_numa_node(context, &node), 0);
	assert_int_equal(node, -1);
	assert_int_equal(control->alloc_pd(context, &pd), 0);
	assert_int_equal(control->reg_mr(pd, &node, sizeof(node), 0, &mr), 0);
	assert_ptr_equal(mr->addr, &node);
	assert_int_equal(control->dereg_mr(mr), 0);
	assert_int_equal(control->dealloc_pd(pd), 0);
	assert_int_equal(control->modify_qp(b->qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(control->query_qp(b->qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(init.cap.max_send_wr, DEPTH);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	assert_null(control->create_channel);
}

#define WITH_BENCH(test) \
	cmocka_unit_test_setup_teardown(test, set_up_null_bench, tear_down_null_bench)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_BENCH(signalled_sends_complete),
		WITH_BENCH(full_send_queue_is_refused),
		WITH_BENCH(receives_complete_when_told),
		WITH_BENCH(rings_wrap),
		WITH_BENCH(depths_are_rounded_up),
		WITH_BENCH(cqes_go_with_their_qp),
		WITH_BENCH(control_table_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
