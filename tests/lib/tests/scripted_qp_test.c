/* SPDX-License-Identifier: MIT */
/* The scripted device: posting rules and the state machine, as verbs have them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "lib/devices/scripted_pair.h"

static void posting_rules_by_state(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp *qp = here->qp[0];

	assert_int_equal(pair_to_state(p, qp, IBV_QPS_RESET), 0);
	assert_int_equal(pair_post_write(p, 0, 1), EINVAL);
	assert_int_equal(pair_post_recv(here, qp, 1, 4), EINVAL);
	assert_int_equal(pair_to_init(p, qp), 0);
	assert_int_equal(pair_post_write(p, 0, 1), EINVAL);
	assert_int_equal(pair_post_recv(here, qp, 1, 4), 0);
	assert_int_equal(pair_to_rtr(p, qp, p->side[1].qp[0]), 0);
	assert_int_equal(pair_post_write(p, 0, 1), EINVAL);
	assert_int_equal(pair_to_rts(p, qp), 0);
	assert_int_equal(pair_post_write(p, 0, 1), 0);
}

static void bad_wr_is_the_first_refused(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 4);
	struct ibv_send_wr wr[3], *bad = NULL;
	int i;

	for (i = 0; i < 3; i++) {
		wr[i] = pair_wr(p, &sge, i, IBV_WR_RDMA_WRITE);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].num_sge = 3;
	assert_int_equal(ibv_post_send(qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	assert_int_equal(scripted_pending(qp), 1);
	wr[0].opcode = IBV_WR_BIND_MW;
	assert_int_equal(ibv_post_send(qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[0]);
}

static void slots_come_back_with_polled_cqes(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	int i;

	for (i = 0; i < PAIR_DEPTH - 1; i++)
		pair_post_simple(p, qp, i, IBV_WR_RDMA_WRITE, 0);
	pair_post_write(p, 0, PAIR_DEPTH);
	assert_int_equal(pair_post_write(p, 0, 0), ENOMEM);
	for (i = 0; i < PAIR_DEPTH; i++)
		scripted_complete(qp, IBV_WC_SUCCESS);
	assert_int_equal(pair_post_write(p, 0, 0), ENOMEM);
	pair_expect_wc(&p->side[0], PAIR_DEPTH, IBV_WC_SUCCESS);
	for (i = 0; i < PAIR_DEPTH; i++)
		assert_int_equal(pair_post_write(p, 0, i), 0);
	assert_int_equal(pair_post_write(p, 0, 0), ENOMEM);
}

static void receive_queue_fills_up(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	int i;

	for (i = 0; i < PAIR_DEPTH; i++)
		assert_int_equal(pair_post_recv(there, there->qp[0], i, 16), 0);
	assert_int_equal(pair_post_recv(there, there->qp[0], i, 16), ENOMEM);
	pair_post_simple(p, p->side[0].qp[0], 1, IBV_WR_SEND, 0);
	scripted_land(p->side[0].qp[0]);
	assert_int_equal(pair_post_recv(there, there->qp[0], i, 16), ENOMEM);
	pair_expect_wc(there, 0, IBV_WC_SUCCESS);
	assert_int_equal(pair_post_recv(there, there->qp[0], i, 16), 0);
}

static void missing_attributes_are_refused(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	pair_to_state(p, qp, IBV_QPS_RESET);
	assert_int_equal(pair_to_state(p, qp, IBV_QPS_INIT), -EINVAL);
	assert_int_equal(pair_to_state(p, qp, IBV_QPS_RTS), -EINVAL);
	assert_int_equal(p->control->modify_qp(qp, &attr,
					       IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						       IBV_QP_PORT),
			 -EINVAL);
	assert_int_equal(pair_to_rtr(p, qp, qp), -EINVAL);
	assert_int_equal(pair_to_init(p, qp), 0);
	assert_int_equal(pair_to_state(p, qp, IBV_QPS_RTR), -EINVAL);
	assert_int_equal(qp->state, IBV_QPS_INIT);
}

/* QP 0 of a side back to RTR, with one attribute changed by @spoil. */
static int spoilt_rtr_of(struct pair *p, struct side *side,
			 void (*spoil)(struct ibv_qp_attr *))
{
	struct ibv_qp *qp = side->qp[0];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(p->control->query_qp(qp, &attr, 0, &init), 0);
	pair_to_state(p, qp, IBV_QPS_RESET);
	pair_to_init(p, qp);
	attr.qp_state = IBV_QPS_RTR;
	if (spoil)
		spoil(&attr);
	return p->control->modify_qp(qp, &attr,
				     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC |
					     IBV_QP_MIN_RNR_TIMER);
}

static int spoilt_rtr(struct pair *p, void (*spoil)(struct ibv_qp_attr *))
{
	/* A refused change leaves the QP in INIT, with nothing to spoil. */
	pair_to_state(p, p->side[0].qp[0], IBV_QPS_RESET);
	pair_connect(p, p->side[0].qp[0], p->side[1].qp[0]);
	return spoilt_rtr_of(p, &p->side[0], spoil);
}

static void spoil_mtu(struct ibv_qp_attr *attr)
{
	attr->path_mtu = 0;
}

static void spoil_reads(struct ibv_qp_attr *attr)
{
	attr->max_dest_rd_atomic = 17;
}

static void spoil_timer(struct ibv_qp_attr *attr)
{
	attr->min_rnr_timer = 32;
}

static void spoil_route(struct ibv_qp_attr *attr)
{
	attr->ah_attr.is_global = 0;
}

static void spoil_gid(struct ibv_qp_attr *attr)
{
	attr->ah_attr.grh.sgid_index = 1;
}

static void attributes_out_of_range_are_refused(void **state)
{
	struct pair *p = *state;

	assert_int_equal(spoilt_rtr(p, NULL), 0);
	assert_int_equal(spoilt_rtr(p, spoil_mtu), -EINVAL);
	assert_int_equal(spoilt_rtr(p, spoil_reads), -EINVAL);
	assert_int_equal(spoilt_rtr(p, spoil_timer), -EINVAL);
	assert_int_equal(spoilt_rtr(p, spoil_route), -EINVAL);
	assert_int_equal(spoilt_rtr(p, spoil_gid), -EINVAL);
}

static void creation_is_checked(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp_init_attr attr = pair_init_attr(here);
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	attr.qp_type = IBV_QPT_UD;
	assert_int_equal(p->control->create_qp(here->pd, &attr, &qp), -EOPNOTSUPP);
	attr.qp_type = IBV_QPT_RC;
	attr.recv_cq = p->side[1].cq;
	assert_int_equal(p->control->create_qp(here->pd, &attr, &qp), -EINVAL);
	assert_int_equal(p->control->create_cq(here->context, 0, NULL, NULL, 0, &cq),
			 -EINVAL);
	assert_int_equal(p->control->create_cq(here->context, 1, NULL, NULL, 1, &cq),
			 -EINVAL);
	assert_int_equal(p->control->create_cq(here->context, 1, NULL,
					       p->side[1].channel, 0, &cq),
			 -EINVAL);
	assert_int_equal(p->control->dealloc_pd(here->pd), -EINVAL);
}

static void sq_sig_all_signals_all(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp_init_attr attr = pair_init_attr(here);

	attr.sq_sig_all = 1;
	p->control->destroy_qp(here->qp[0]);
	assert_int_equal(p->control->create_qp(here->pd, &attr, &here->qp[0]), 0);
	pair_connect(p, here->qp[0], p->side[1].qp[0]);
	pair_post_simple(p, here->qp[0], 3, IBV_WR_RDMA_WRITE, 0);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	pair_expect_wc(here, 3, IBV_WC_SUCCESS);
}

static void query_tells_what_was_set(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	pair_post_write(p, 0, 1);
	scripted_land(p->side[0].qp[0]);
	assert_int_equal(p->control->query_qp(p->side[0].qp[0], &attr, IBV_QP_STATE,
					      &init),
			 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.dest_qp_num, p->side[1].qp[0]->qp_num);
	assert_int_equal(attr.timeout, 14);
	assert_int_equal(attr.sq_psn, 8);
	assert_int_equal(init.cap.max_send_wr, PAIR_DEPTH);
	assert_ptr_equal(init.send_cq, p->side[0].cq);
}

static void reset_brings_a_dead_pair_back(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *here = p->side[0].qp[0], *there = p->side[1].qp[0];

	pair_post_write(p, 0, 1);
	scripted_land(here);
	scripted_complete(here, IBV_WC_RETRY_EXC_ERR);
	pair_to_state(p, here, IBV_QPS_RESET);
	pair_connect(p, here, there);
	/* The peer counts PSNs from the old connection, and does not listen. */
	assert_int_equal(pair_post_write(p, 0, 2), 0);
	assert_int_equal(scripted_land(here), -ENOTCONN);
	pair_to_state(p, there, IBV_QPS_RESET);
	assert_int_equal(scripted_land(here), -EAGAIN);
	pair_connect(p, there, here);
	assert_int_equal(scripted_complete(here, IBV_WC_SUCCESS), 0);
	/* The first error is still in the CQ, as rxe would leave it. */
	pair_expect_wc(&p->side[0], 1, IBV_WC_RETRY_EXC_ERR);
	pair_expect_wc(&p->side[0], 2, IBV_WC_SUCCESS);
}

static void orphaned_cqes_free_no_slots(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp *qp = here->qp[0];
	int i;

	pair_post_recv(here, qp, 100, 4);
	pair_post_write(p, 0, 1);
	pair_to_state(p, qp, IBV_QPS_ERR);
	pair_to_state(p, qp, IBV_QPS_RESET);
	pair_connect(p, qp, p->side[1].qp[0]);
	for (i = 0; i < PAIR_DEPTH; i++) {
		assert_int_equal(pair_post_write(p, 0, i), 0);
		assert_int_equal(pair_post_recv(here, qp, i, 4), 0);
	}
	pair_expect_wc(here, 1, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(pair_post_write(p, 0, i), ENOMEM);
	pair_expect_wc(here, 100, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(pair_post_recv(here, qp, i, 4), ENOMEM);
}

/* What a slot's last WR came to is not the next one's fate. */
static void slots_start_anew(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *here = p->side[0].qp[0], *there = p->side[1].qp[0];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	wr.wr.rdma.rkey = 0;
	pair_expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(scripted_land(here), -ENOENT);
	pair_to_state(p, here, IBV_QPS_RESET);
	pair_to_state(p, there, IBV_QPS_RESET);
	pair_connect(p, here, there);
	pair_connect(p, there, here);
	assert_int_equal(pair_post_write(p, 0, 2), 0);
	assert_int_equal(scripted_complete(here, IBV_WC_SUCCESS), 0);
}

static void peers_must_agree(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *here = p->side[0].qp[0];

	pair_to_state(p, here, IBV_QPS_RESET);
	pair_connect(p, here, p->side[1].qp[1]);
	pair_post_write(p, 0, 1);
	assert_int_equal(scripted_land(here), -ENOTCONN);
}

static void stale_cqes_survive_their_qp_and_its_number(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	uint32_t qp_num = here->qp[0]->qp_num;

	pair_post_write(p, 0, 1);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	assert_int_equal(p->control->destroy_qp(here->qp[0]), 0);
	here->qp[0] = pair_make_qp(p, here);
	assert_int_equal(here->qp[0]->qp_num, qp_num);
	assert_int_equal(pair_poll_one(here).qp_num, qp_num);
}

static void purging_devices_leave_no_stale_cqes(void **state)
{
	struct scripted_device_opts opts = { .purge_cqes = true };
	struct pair *p = pair_open(&opts);
	struct side *here = &p->side[0];

	(void)state;
	pair_post_write(p, 0, 1);
	pair_post_write(p, 1, 2);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	scripted_complete(here->qp[1], IBV_WC_SUCCESS);
	assert_int_equal(p->control->destroy_qp(here->qp[0]), 0);
	here->qp[0] = NULL;
	pair_expect_wc(here, 2, IBV_WC_SUCCESS);
	pair_expect_empty(here);
	pair_close(p);
}

static uint16_t lid_of_the_peer;

static void use_lid(struct ibv_qp_attr *attr)
{
	attr->ah_attr.is_global = 0;
	attr->ah_attr.dlid = lid_of_the_peer;
}

/* On InfiniBand a LID names the peer. */
static void infiniband_needs_no_gid(void **state)
{
	struct scripted_device_opts opts = { .link_layer = IBV_LINK_LAYER_INFINIBAND };
	struct pair *p = pair_open(&opts);
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct ibv_port_attr port;

		p->control->query_port(p->side[!i].context, 1, &port);
		lid_of_the_peer = port.lid;
		assert_int_equal(spoilt_rtr_of(p, &p->side[i], use_lid), 0);
		assert_int_equal(pair_to_rts(p, p->side[i].qp[0]), 0);
	}
	pair_post_write(p, 0, 1);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	pair_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(posting_rules_by_state),
		WITH_PAIR(bad_wr_is_the_first_refused),
		WITH_PAIR(slots_come_back_with_polled_cqes),
		WITH_PAIR(receive_queue_fills_up),
		WITH_PAIR(missing_attributes_are_refused),
		WITH_PAIR(attributes_out_of_range_are_refused),
		WITH_PAIR(creation_is_checked),
		WITH_PAIR(sq_sig_all_signals_all),
		WITH_PAIR(query_tells_what_was_set),
		WITH_PAIR(reset_brings_a_dead_pair_back),
		WITH_PAIR(orphaned_cqes_free_no_slots),
		WITH_PAIR(slots_start_anew),
		WITH_PAIR(peers_must_agree),
		WITH_PAIR(stale_cqes_survive_their_qp_and_its_number),
		cmocka_unit_test(purging_devices_leave_no_stale_cqes),
		cmocka_unit_test(infiniband_needs_no_gid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
