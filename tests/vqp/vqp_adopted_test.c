/* SPDX-License-Identifier: MIT */
/* Physical QPs of the program's own, on CQs that it shares with the library. */
#include "lib/vqp_kit.h"

#define DEPTH	 4
#define MARKERS	 2
#define CQ_DEPTH 64

/* The bystanders are a pair of default QPs, which the others have their CQs from. */
static struct snt_cq *make_cq(struct vqp_end *end)
{
	struct snt_cq_opts opts = { .size = sizeof(opts), .depth = CQ_DEPTH };
	struct snt_cq *cq;

	assert_success(snt_cq_create(end->ctx, &opts, &cq));
	return cq;
}

static struct ibv_qp *make_qp(struct vqp_end *end, struct ibv_cq *cq, uint32_t depth)
{
	struct snt_adopted device = scripted_adopted(end->device[0]);
	struct ibv_qp_init_attr attr = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { depth, depth, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp;

	assert_success(device.control->create_qp(device.pd, &attr, &qp));
	assert_success(device.control->modify_qp(qp, &init,
						 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
							 IBV_QP_PORT |
							 IBV_QP_ACCESS_FLAGS));
	return qp;
}

static int adopt(struct vqp_end *end, struct snt_cq *cq, struct ibv_qp *const *own,
		 struct snt_qp **qp_out)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .cq = cq,
				    .flags = SNT_QP_PASS_THROUGH,
				    .lane_depth = DEPTH,
				    .recv_depth = DEPTH,
				    .adopted = own,
				    .adopted_devices = (const unsigned[]){ 0 },
				    .adopted_count = 1 };

	return snt_qp_create(end->ctx, &opts, qp_out);
}

static void destroy_own(struct vqp_end *end, struct ibv_qp *qp)
{
	assert_success(scripted_adopted(end->device[0]).control->destroy_qp(qp));
}

/* Room is reserved where the QP reports to, and nowhere else. */
static void an_adopted_qp_reserves_room_in_its_own_cq(void **state)
{
	const struct snt_qp_opts bystander = { .size = sizeof(bystander),
					       .flags = SNT_QP_PASS_THROUGH };
	struct vqp_pair *pair = vqp_pair_open(1, &bystander);
	struct vqp_end *end = pair->end;
	struct ibv_cq *cq = snt_cq_physical(end->cq, 0, NULL);
	unsigned room, count = 0, before = snt_cq_count(end->cq);
	struct ibv_qp *own[CQ_DEPTH * 8];
	struct snt_qp *qp[CQ_DEPTH * 8];
	int ret = 0;

	(void)state;
	/* What the bystander, of 128 and 128, has left. */
	room = (cq->cqe - 2 * (128 + MARKERS)) / (2 * (DEPTH + MARKERS));
	assert_in_range(room, 1, ARRAY_SIZE(own) - 1);
	for (; count <= room; count++) {
		own[count] = make_qp(end, cq, DEPTH + MARKERS);
		ret = adopt(end, end->cq, &own[count], &qp[count]);
		if (ret)
			break;
	}
	assert_error(ret, ENOSPC, "completions");
	assert_int_equal(count, room);
	assert_int_equal(snt_cq_count(end->cq), before);
	for (unsigned i = 0; i < count; i++)
		assert_success(snt_qp_destroy(qp[i]));
	for (unsigned i = 0; i <= count; i++)
		destroy_own(end, own[i]);
	vqp_pair_close(pair);
}

static void an_adopted_qp_must_report_to_its_virtual_cq(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	struct vqp_end *end = pair->end;
	struct snt_cq *other = make_cq(end);
	struct ibv_qp *own =
		make_qp(end, snt_cq_physical(end->cq, 0, NULL), DEPTH + MARKERS);
	struct ibv_qp *foreign =
		make_qp(&pair->end[1], snt_cq_physical(pair->end[1].cq, 0, NULL),
			DEPTH + MARKERS);
	struct snt_qp *qp = NULL;

	(void)state;
	assert_error(adopt(end, other, &own, &qp), EINVAL,
		     "reports to a CQ that does not belong to its virtual CQ");
	assert_error(adopt(end, end->cq, &foreign, &qp), EINVAL, "is not of scripted0");
	assert_null(qp);
	destroy_own(end, own);
	destroy_own(&pair->end[1], foreign);
	assert_success(snt_cq_destroy(other));
	vqp_pair_close(pair);
}

/* Else it could not be closed while all its receives are posted. */
static void an_adopted_qp_has_room_for_markers(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	struct vqp_end *end = pair->end;
	struct ibv_qp *own = make_qp(end, snt_cq_physical(end->cq, 0, NULL), DEPTH);
	struct snt_qp *qp = NULL;

	(void)state;
	assert_error(adopt(end, end->cq, &own, &qp), EINVAL,
		     "has room for 4 sends and 4 receives, and needs 6 and 6");
	destroy_own(end, own);
	own = make_qp(end, snt_cq_physical(end->cq, 0, NULL), DEPTH + MARKERS);
	assert_success(adopt(end, end->cq, &own, &qp));
	assert_success(snt_qp_destroy(qp));
	destroy_own(end, own);
	vqp_pair_close(pair);
}

/* Two ends that are adopted, of which end 0 has one receive too many. */
static void a_receive_of_the_program_s_own_is_a_stray(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	struct ibv_recv_wr early = { .wr_id = 1000 }, *bad;
	struct snt_qp_info info = { .size = sizeof(info) };
	struct ibv_qp *own[2];
	struct snt_qp *qp[2];
	struct snt_card card[2];
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 1, &sge, SNT_OP_WRITE_IMM, 0, 64);
	struct snt_recv_wr recv[DEPTH] = { { 0 } };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];

		own[i] = make_qp(end, snt_cq_physical(end->cq, 0, NULL),
				 DEPTH + MARKERS);
		if (!i)
			assert_int_equal(ibv_post_recv(own[0], &early, &bad), 0);
		assert_success(adopt(end, end->cq, &own[i], &qp[i]));
		assert_success(snt_qp_card(qp[i], &card[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_connect(qp[i], &card[!i]));
	assert_int_equal(snt_qp_post_send(qp[1], &wr, 1), 1);
	vqp_poll(pair, 1);
	vqp_expect_none(pair, 0);
	assert_int_equal(snt_cq_stray_count(pair->end[0].cq), 1);
	assert_success(snt_qp_query(qp[0], &info));
	assert_int_equal(info.recvs, 0);
	assert_int_equal(snt_qp_post_recv(qp[0], recv, DEPTH), DEPTH);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_qp_close(qp[i], 3));
		while (vqp_poll(pair, i).opcode != SNT_OP_CLOSED)
			;
		assert_success(snt_qp_destroy(qp[i]));
		destroy_own(&pair->end[i], own[i]);
	}
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_adopted_qp_reserves_room_in_its_own_cq),
		cmocka_unit_test(an_adopted_qp_must_report_to_its_virtual_cq),
		cmocka_unit_test(an_adopted_qp_has_room_for_markers),
		cmocka_unit_test(a_receive_of_the_program_s_own_is_a_stray),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
