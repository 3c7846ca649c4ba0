/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include "lib/rc.h"
#include "scripted_pair.h"

struct ibv_qp_init_attr pair_init_attr(struct side *side)
{
	return (struct ibv_qp_init_attr){
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = PAIR_DEPTH,
			 .max_recv_wr = PAIR_DEPTH,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
	};
}

int pair_to_init(struct pair *p, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = PAIR_ACCESS,
	};

	return p->control->modify_qp(qp, &attr, rc_mask(IBV_QPS_INIT));
}

int pair_to_rtr(struct pair *p, struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.rq_psn = 7,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	struct ibv_gid_entry gid;

	assert_int_equal(p->control->query_gid(peer->context, 1, 0, &gid), 0);
	attr.ah_attr.grh.dgid = gid.gid;
	return p->control->modify_qp(qp, &attr, rc_mask(IBV_QPS_RTR));
}

int pair_to_rts(struct pair *p, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 7,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	return p->control->modify_qp(qp, &attr, rc_mask(IBV_QPS_RTS));
}

int pair_to_state(struct pair *p, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	/* There is no way from RESET to ERR. */
	if (state == IBV_QPS_ERR && qp->state == IBV_QPS_RESET)
		assert_int_equal(pair_to_init(p, qp), 0);
	return p->control->modify_qp(qp, &attr, IBV_QP_STATE);
}

void pair_connect(struct pair *p, struct ibv_qp *qp, struct ibv_qp *peer)
{
	assert_int_equal(pair_to_init(p, qp), 0);
	assert_int_equal(pair_to_rtr(p, qp, peer), 0);
	assert_int_equal(pair_to_rts(p, qp), 0);
}

struct ibv_qp *pair_make_qp(struct pair *p, struct side *side)
{
	struct ibv_qp_init_attr attr = pair_init_attr(side);
	struct ibv_qp *qp;

	assert_int_equal(p->control->create_qp(side->pd, &attr, &qp), 0);
	return qp;
}

void pair_open_side(struct pair *p, struct side *side,
		    const struct scripted_device_opts *opts)
{
	struct snt_adopted adopted;
	int i;

	side->device = scripted_device_create(p->fabric, opts);
	assert_non_null(side->device);
	adopted = scripted_adopted(side->device);
	p->control = adopted.control;
	side->context = adopted.context;
	side->pd = adopted.pd;
	assert_int_equal(p->control->create_channel(side->context, &side->channel), 0);
	fcntl(side->channel->fd, F_SETFL, O_NONBLOCK);
	fcntl(side->context->async_fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(p->control->create_cq(side->context, 64, side, side->channel,
					       0, &side->cq),
			 0);
	assert_int_equal(p->control->reg_mr(side->pd, side->buffer, PAIR_BUFFER_SIZE,
					    PAIR_ACCESS, &side->mr),
			 0);
	for (i = 0; i < PAIR_LANES; i++)
		side->qp[i] = pair_make_qp(p, side);
}

struct pair *pair_open(const struct scripted_device_opts *opts)
{
	struct pair *p = calloc(1, sizeof(*p));
	int i;

	assert_non_null(p);
	p->fabric = scripted_fabric_create(1);
	assert_non_null(p->fabric);
	pair_open_side(p, &p->side[0], opts);
	pair_open_side(p, &p->side[1], opts);
	for (i = 0; i < PAIR_LANES; i++) {
		pair_connect(p, p->side[0].qp[i], p->side[1].qp[i]);
		pair_connect(p, p->side[1].qp[i], p->side[0].qp[i]);
	}
	for (i = 0; i < PAIR_BUFFER_SIZE; i++)
		p->side[0].buffer[i] = i * 7 + 1;
	return p;
}

int pair_close(struct pair *p)
{
	int s, i;

	for (s = 0; s < 2; s++) {
		struct side *side = &p->side[s];

		for (i = 0; i < PAIR_LANES; i++) {
			if (side->qp[i])
				assert_int_equal(p->control->destroy_qp(side->qp[i]),
						 0);
		}
		assert_int_equal(p->control->dereg_mr(side->mr), 0);
		assert_int_equal(p->control->destroy_cq(side->cq), 0);
		assert_int_equal(p->control->destroy_channel(side->channel), 0);
	}
	assert_int_equal(scripted_fabric_destroy(p->fabric), 0);
	free(p);
	return 0;
}

/*
 * Posting and polling
 */

struct ibv_sge pair_sge(struct side *side, size_t offset, uint32_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)side->buffer + offset,
		.length = length,
		.lkey = side->mr->lkey,
	};
}

/* A signalled WR from the beginning of side 0 to the beginning of side 1. */
struct ibv_send_wr pair_wr(struct pair *p, struct ibv_sge *sge, uint64_t wr_id,
			   enum ibv_wr_opcode opcode)
{
	struct side *there = &p->side[1];
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)there->buffer;
		wr.wr.atomic.rkey = there->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)there->buffer;
		wr.wr.rdma.rkey = there->mr->rkey;
	}
	return wr;
}

int pair_post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, wr, &bad);
}

int pair_post_simple(struct pair *p, struct ibv_qp *qp, uint64_t wr_id,
		     enum ibv_wr_opcode opcode, unsigned flags)
{
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 16);
	struct ibv_send_wr wr = pair_wr(p, &sge, wr_id, opcode);

	wr.send_flags = flags;
	wr.imm_data = htobe32(0xabc);
	return pair_post(qp, &wr);
}

int pair_post_write(struct pair *p, int lane, uint64_t wr_id)
{
	return pair_post_simple(p, p->side[0].qp[lane], wr_id, IBV_WR_RDMA_WRITE,
				IBV_SEND_SIGNALED);
}

int pair_post_recv(struct side *side, struct ibv_qp *qp, uint64_t wr_id,
		   uint32_t length)
{
	struct ibv_sge sge = pair_sge(side, 2048, length);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

struct ibv_wc pair_poll_one(struct side *side)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(side->cq, 1, &wc), 1);
	return wc;
}

void pair_expect_wc(struct side *side, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = pair_poll_one(side);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
}

void pair_expect_empty(struct side *side)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(side->cq, 1, &wc), 0);
}

void pair_expect_async(struct pair *p, struct side *side, enum ibv_event_type type)
{
	struct ibv_async_event event;

	assert_int_equal(p->control->get_async_event(side->context, &event), 0);
	assert_int_equal(event.event_type, type);
	p->control->ack_async_event(&event);
}

bool pair_readable(int fd)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, 0) == 1;
}

void pair_expect_failure(struct pair *p, struct ibv_send_wr *wr,
			 enum ibv_wc_status status)
{
	struct ibv_qp *qp = p->side[0].qp[0];

	assert_int_equal(pair_post(qp, wr), 0);
	assert_int_equal(scripted_land(qp), status);
	assert_int_equal(scripted_land(qp), status);
	assert_int_equal(qp->state, IBV_QPS_RTS);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), status);
	assert_int_equal(qp->state, IBV_QPS_ERR);
	pair_expect_wc(&p->side[0], wr->wr_id, status);
}
