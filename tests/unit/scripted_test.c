/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../devices/scripted.h"

#define BUFFER_SIZE 4096
#define DEPTH	    8
#define ACCESS_ALL \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* Two devices, each with a CQ, an MR and QPs; QP i of one is the peer of QP i of
 * the other. Most tests send from side 0. */
#define LANES 2

struct side {
	struct scripted_device *device;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[LANES];
	unsigned char buffer[BUFFER_SIZE] __attribute__((aligned(8)));
};

struct pair {
	struct scripted_fabric *fabric;
	const struct snt_control *control;
	struct side side[2];
};

/*
 * Making a pair
 */

static struct ibv_qp_init_attr init_attr(struct side *side)
{
	return (struct ibv_qp_init_attr){
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = DEPTH,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
	};
}

static int to_init(struct pair *p, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ACCESS_ALL,
	};

	return p->control->modify_qp(qp, &attr,
				     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct pair *p, struct ibv_qp *qp, struct ibv_qp *peer)
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
	return p->control->modify_qp(qp, &attr,
				     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC |
					     IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct pair *p, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 7,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	return p->control->modify_qp(qp, &attr,
				     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					     IBV_QP_MAX_QP_RD_ATOMIC);
}

static int to_state(struct pair *p, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return p->control->modify_qp(qp, &attr, IBV_QP_STATE);
}

static void connect_qp(struct pair *p, struct ibv_qp *qp, struct ibv_qp *peer)
{
	assert_int_equal(to_init(p, qp), 0);
	assert_int_equal(to_rtr(p, qp, peer), 0);
	assert_int_equal(to_rts(p, qp), 0);
}

static struct ibv_qp *make_qp(struct pair *p, struct side *side)
{
	struct ibv_qp_init_attr attr = init_attr(side);
	struct ibv_qp *qp;

	assert_int_equal(p->control->create_qp(side->pd, &attr, &qp), 0);
	return qp;
}

static void open_side(struct pair *p, struct side *side,
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
	assert_int_equal(p->control->reg_mr(side->pd, side->buffer, BUFFER_SIZE,
					    ACCESS_ALL, &side->mr),
			 0);
	for (i = 0; i < LANES; i++)
		side->qp[i] = make_qp(p, side);
}

static struct pair *pair_open(const struct scripted_device_opts *opts)
{
	struct pair *p = calloc(1, sizeof(*p));
	int i;

	assert_non_null(p);
	p->fabric = scripted_fabric_create(1);
	assert_non_null(p->fabric);
	open_side(p, &p->side[0], opts);
	open_side(p, &p->side[1], opts);
	for (i = 0; i < LANES; i++) {
		connect_qp(p, p->side[0].qp[i], p->side[1].qp[i]);
		connect_qp(p, p->side[1].qp[i], p->side[0].qp[i]);
	}
	for (i = 0; i < BUFFER_SIZE; i++)
		p->side[0].buffer[i] = i * 7 + 1;
	return p;
}

static int pair_close(struct pair *p)
{
	int s, i;

	for (s = 0; s < 2; s++) {
		struct side *side = &p->side[s];

		for (i = 0; i < LANES; i++) {
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

static int setup(void **state)
{
	*state = pair_open(NULL);
	return 0;
}

static int teardown(void **state)
{
	return pair_close(*state);
}

/*
 * Posting and polling
 */

static struct ibv_sge sge_of(struct side *side, size_t offset, uint32_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)side->buffer + offset,
		.length = length,
		.lkey = side->mr->lkey,
	};
}

/* A signalled WR from the beginning of side 0 to the beginning of side 1. */
static struct ibv_send_wr make_wr(struct pair *p, struct ibv_sge *sge, uint64_t wr_id,
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

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, wr, &bad);
}

static int post_simple(struct pair *p, struct ibv_qp *qp, uint64_t wr_id,
		       enum ibv_wr_opcode opcode, unsigned flags)
{
	struct ibv_sge sge = sge_of(&p->side[0], 0, 16);
	struct ibv_send_wr wr = make_wr(p, &sge, wr_id, opcode);

	wr.send_flags = flags;
	wr.imm_data = htobe32(0xabc);
	return post(qp, &wr);
}

static int post_write(struct pair *p, int lane, uint64_t wr_id)
{
	return post_simple(p, p->side[0].qp[lane], wr_id, IBV_WR_RDMA_WRITE,
			   IBV_SEND_SIGNALED);
}

static int post_recv(struct side *side, struct ibv_qp *qp, uint64_t wr_id,
		     uint32_t length)
{
	struct ibv_sge sge = sge_of(side, 2048, length);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static struct ibv_wc poll_one(struct side *side)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(side->cq, 1, &wc), 1);
	return wc;
}

static void expect_wc(struct side *side, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = poll_one(side);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
}

static void expect_empty(struct side *side)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(side->cq, 1, &wc), 0);
}

static void expect_async(struct pair *p, struct side *side, enum ibv_event_type type)
{
	struct ibv_async_event event;

	assert_int_equal(p->control->get_async_event(side->context, &event), 0);
	assert_int_equal(event.event_type, type);
	p->control->ack_async_event(&event);
}

static bool readable(int fd)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, 0) == 1;
}

/*
 * The script
 */

static void write_lands_then_completes(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_wc wc;

	assert_int_equal(post_write(p, 0, 5), 0);
	assert_int_equal(p->side[1].buffer[0], 0);
	assert_int_equal(scripted_land(qp), 0);
	assert_memory_equal(p->side[1].buffer, p->side[0].buffer, 16);
	assert_int_equal(p->side[1].buffer[16], 0);
	expect_empty(&p->side[0]);
	assert_int_equal(scripted_land(qp), -ENOENT);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	wc = poll_one(&p->side[0]);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_int_equal(wc.qp_num, qp->qp_num);
	assert_int_equal(wc.byte_len, 16);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), -ENOENT);
}

static void complete_lands_first(void **state)
{
	struct pair *p = *state;

	post_write(p, 0, 1);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	assert_memory_equal(p->side[1].buffer, p->side[0].buffer, 16);
}

static void unsignalled_success_is_silent(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];

	post_simple(p, qp, 1, IBV_WR_RDMA_WRITE, 0);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	expect_empty(&p->side[0]);
}

static void send_consumes_a_receive(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_wc wc;

	post_simple(p, qp, 1, IBV_WR_SEND_WITH_IMM, 0);
	assert_int_equal(scripted_land(qp), -EAGAIN);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), -EAGAIN);
	assert_int_equal(scripted_pending(qp), 1);
	assert_int_equal(post_recv(there, there->qp[0], 77, 32), 0);
	assert_int_equal(scripted_land(qp), 0);
	wc = poll_one(there);
	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 16);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 0xabc);
	assert_memory_equal(there->buffer + 2048, p->side[0].buffer, 16);
}

static void write_imm_consumes_a_receive(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_wc wc;

	post_simple(p, qp, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
	assert_int_equal(scripted_land(qp), -EAGAIN);
	assert_int_equal(there->buffer[0], 0);
	post_recv(there, there->qp[0], 78, 0);
	assert_int_equal(scripted_land(qp), 0);
	wc = poll_one(there);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 16);
	assert_memory_equal(there->buffer, p->side[0].buffer, 16);
}

static void zero_length_needs_no_key(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_send_wr wr = make_wr(p, NULL, 1, IBV_WR_RDMA_WRITE_WITH_IMM);

	wr.num_sge = 0;
	wr.wr.rdma.rkey = 0;
	post_recv(there, there->qp[0], 2, 0);
	assert_int_equal(post(p->side[0].qp[0], &wr), 0);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	assert_int_equal(poll_one(there).byte_len, 0);
}

static void read_copies_back(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];

	memset(p->side[1].buffer, 0x5a, 16);
	post_simple(p, qp, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	assert_memory_equal(p->side[0].buffer, p->side[1].buffer, 16);
	assert_int_equal(poll_one(&p->side[0]).opcode, IBV_WC_RDMA_READ);
}

static void atomics_execute(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = sge_of(&p->side[0], 0, 8);
	uint64_t *here = (uint64_t *)p->side[0].buffer;
	uint64_t *there = (uint64_t *)p->side[1].buffer;
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_ATOMIC_FETCH_AND_ADD);

	*there = 40;
	wr.wr.atomic.compare_add = 2;
	post(p->side[0].qp[0], &wr);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_int_equal(*here, 40);
	assert_int_equal(*there, 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 9;
	post(p->side[0].qp[0], &wr);
	post(p->side[0].qp[0], &wr);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_int_equal(*here, 42);
	assert_int_equal(*there, 9);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_int_equal(*here, 9);
	assert_int_equal(*there, 9);
}

static void scatter_gather_is_in_order(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[2] = { sge_of(&p->side[0], 100, 3),
				  sge_of(&p->side[0], 200, 5) };
	struct ibv_send_wr wr = make_wr(p, sge, 1, IBV_WR_RDMA_WRITE);

	wr.num_sge = 2;
	assert_int_equal(post(p->side[0].qp[0], &wr), 0);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_memory_equal(p->side[1].buffer, p->side[0].buffer + 100, 3);
	assert_memory_equal(p->side[1].buffer + 3, p->side[0].buffer + 200, 5);
}

static void inline_is_copied_at_post(void **state)
{
	struct pair *p = *state;
	char text[] = "inline";
	struct ibv_sge sge = { .addr = (uintptr_t)text, .length = sizeof(text) };
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);
	struct scripted_send seen;

	wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(post(p->side[0].qp[0], &wr), 0);
	memset(text, 0, sizeof(text));
	assert_int_equal(scripted_peek(p->side[0].qp[0], 0, &seen), 0);
	assert_int_equal(seen.inline_length, sizeof(text));
	assert_memory_equal(seen.inline_bytes, "inline", sizeof(text));
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_string_equal((char *)p->side[1].buffer, "inline");
	sge.length = 65;
	assert_int_equal(post(p->side[0].qp[0], &wr), EINVAL);
}

static void order_across_qps_is_the_tests(void **state)
{
	struct pair *p = *state;

	post_write(p, 0, 1);
	post_write(p, 1, 2);
	scripted_complete(p->side[0].qp[1], IBV_WC_SUCCESS);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	expect_wc(&p->side[0], 2, IBV_WC_SUCCESS);
	expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
}

static void peek_shows_what_was_posted(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct scripted_send seen;
	struct scripted_recv seen_recv;

	post_write(p, 0, 1);
	post_simple(p, qp, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_FENCE);
	scripted_land(qp);
	assert_int_equal(scripted_pending(qp), 2);
	assert_int_equal(scripted_peek(qp, 0, &seen), 0);
	assert_true(seen.landed);
	assert_int_equal(scripted_peek(qp, 1, &seen), 0);
	assert_false(seen.landed);
	assert_int_equal(seen.wr.wr_id, 2);
	assert_int_equal(seen.wr.send_flags, IBV_SEND_FENCE);
	assert_int_equal(be32toh(seen.wr.imm_data), 0xabc);
	assert_int_equal(seen.wr.wr.rdma.rkey, p->side[1].mr->rkey);
	assert_int_equal(seen.wr.sg_list[0].length, 16);
	assert_int_equal(scripted_peek(qp, 2, &seen), -ENOENT);

	post_recv(&p->side[0], qp, 9, 4);
	assert_int_equal(scripted_recv_pending(qp), 1);
	assert_int_equal(scripted_peek_recv(qp, 0, &seen_recv), 0);
	assert_int_equal(seen_recv.wr.wr_id, 9);
	assert_int_equal(seen_recv.wr.sg_list[0].length, 4);
	assert_int_equal(scripted_peek_recv(qp, 1, &seen_recv), -ENOENT);
}

static void counters_count(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_sge sge = sge_of(&p->side[0], 0, 1);
	struct ibv_send_wr second = make_wr(p, &sge, 2, IBV_WR_RDMA_WRITE);
	struct ibv_send_wr first = second;
	struct scripted_counters qp_counters, device_counters;

	first.next = &second;
	assert_int_equal(post(qp, &first), 0);
	post_write(p, 1, 3);
	post_recv(&p->side[0], qp, 9, 4);
	scripted_complete(qp, IBV_WC_SUCCESS);
	qp_counters = scripted_qp_counters(qp);
	assert_int_equal(qp_counters.send_calls, 1);
	assert_int_equal(qp_counters.send_wrs, 2);
	assert_int_equal(qp_counters.recv_calls, 1);
	assert_int_equal(qp_counters.recv_wrs, 1);
	assert_int_equal(qp_counters.cqes, 1);
	device_counters = scripted_counters(p->side[0].device);
	assert_int_equal(device_counters.send_calls, 2);
	assert_int_equal(device_counters.send_wrs, 3);
	assert_int_equal(device_counters.polls, 0);
	assert_ptr_equal(scripted_qp_at(p->side[0].device, 1), p->side[0].qp[1]);
	assert_null(scripted_qp_at(p->side[0].device, LANES));
	assert_ptr_equal(scripted_cq_at(p->side[0].device, 0), p->side[0].cq);
}

/*
 * Errors
 */

static void error_flushes_everything(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp *qp = here->qp[0];

	post_recv(here, qp, 100, 4);
	post_write(p, 0, 1);
	post_simple(p, qp, 2, IBV_WR_RDMA_WRITE, 0);
	post_write(p, 0, 3);
	assert_int_equal(scripted_complete(qp, IBV_WC_RETRY_EXC_ERR), 0);
	assert_int_equal(p->side[1].buffer[0], 0);
	assert_int_equal(qp->state, IBV_QPS_ERR);
	expect_wc(here, 1, IBV_WC_RETRY_EXC_ERR);
	expect_wc(here, 2, IBV_WC_WR_FLUSH_ERR);
	expect_wc(here, 3, IBV_WC_WR_FLUSH_ERR);
	expect_wc(here, 100, IBV_WC_WR_FLUSH_ERR);
	expect_empty(here);
	/* What comes later is flushed as well. */
	assert_int_equal(post_simple(p, qp, 4, IBV_WR_RDMA_WRITE, 0), 0);
	expect_wc(here, 4, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(post_recv(here, qp, 101, 4), 0);
	expect_wc(here, 101, IBV_WC_WR_FLUSH_ERR);
}

static void lost_ack_landed_all_the_same(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];

	post_write(p, 0, 1);
	assert_int_equal(scripted_land(qp), 0);
	assert_int_equal(scripted_complete(qp, IBV_WC_RETRY_EXC_ERR), 0);
	assert_memory_equal(p->side[1].buffer, p->side[0].buffer, 16);
	expect_wc(&p->side[0], 1, IBV_WC_RETRY_EXC_ERR);
}

/* Zero, valid but wrong, and noise all come up, and never the same twice over. */
static void error_opcodes_are_garbage(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	unsigned zero = 0, recv = 0, noise = 0, i;
	uint32_t byte_len = 0, byte_len_changes = 0;

	assert_int_equal(to_state(p, here->qp[0], IBV_QPS_ERR), 0);
	for (i = 0; i < 200; i++) {
		struct ibv_wc wc;

		assert_int_equal(post_write(p, 0, i), 0);
		wc = poll_one(here);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.qp_num, here->qp[0]->qp_num);
		assert_int_equal(wc.vendor_err, 0xf9);
		zero += wc.opcode == 0;
		recv += wc.opcode == IBV_WC_RECV;
		noise += wc.opcode > IBV_WC_DRIVER3;
		byte_len_changes += wc.byte_len != byte_len;
		byte_len = wc.byte_len;
	}
	assert_true(zero > 20 && recv > 0 && noise > 20);
	assert_true(byte_len_changes > 190);
}

static uint32_t first_garbage(uint64_t seed)
{
	struct pair *p = calloc(1, sizeof(*p));
	struct side *side = &p->side[0];
	struct ibv_wc wc;
	int i;

	p->fabric = scripted_fabric_create(seed);
	open_side(p, side, NULL);
	assert_int_equal(to_state(p, side->qp[0], IBV_QPS_ERR), 0);
	assert_int_equal(post_recv(side, side->qp[0], 1, 0), 0);
	wc = poll_one(side);
	for (i = 0; i < LANES; i++)
		p->control->destroy_qp(side->qp[i]);
	/* CQ, channel and MR are left over, and counted. */
	assert_int_equal(scripted_fabric_destroy(p->fabric), 3);
	free(p);
	return wc.byte_len;
}

static void garbage_follows_the_seed(void **state)
{
	(void)state;
	assert_int_equal(first_garbage(3), first_garbage(3));
	assert_int_not_equal(first_garbage(3), first_garbage(4));
}

/* Posts one WR that ends with @status and checks that the QP died of it. */
static void expect_failure(struct pair *p, struct ibv_send_wr *wr,
			   enum ibv_wc_status status)
{
	struct ibv_qp *qp = p->side[0].qp[0];

	assert_int_equal(post(qp, wr), 0);
	assert_int_equal(scripted_land(qp), status);
	assert_int_equal(scripted_land(qp), status);
	assert_int_equal(qp->state, IBV_QPS_RTS);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), status);
	assert_int_equal(qp->state, IBV_QPS_ERR);
	expect_wc(&p->side[0], wr->wr_id, status);
}

static void local_range_is_exact(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = sge_of(&p->side[0], BUFFER_SIZE - 8, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	post(p->side[0].qp[0], &wr);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
	sge.length = 9;
	expect_failure(p, &wr, IBV_WC_LOC_PROT_ERR);
	/* The peer never heard of it. */
	assert_int_equal(p->side[1].qp[0]->state, IBV_QPS_RTS);
}

static void read_needs_local_write(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_sge sge = sge_of(here, 0, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_RDMA_READ);
	struct ibv_mr *mr;

	p->control->reg_mr(here->pd, here->buffer, BUFFER_SIZE, 0, &mr);
	sge.lkey = mr->lkey;
	expect_failure(p, &wr, IBV_WC_LOC_PROT_ERR);
	p->control->dereg_mr(mr);
}

static void remote_range_is_exact(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = sge_of(&p->side[0], 0, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	post_recv(there, there->qp[0], 50, 4);
	wr.wr.rdma.remote_addr += BUFFER_SIZE - 8;
	post(p->side[0].qp[0], &wr);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
	wr.wr.rdma.remote_addr++;
	expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(there->qp[0]->state, IBV_QPS_ERR);
	expect_wc(there, 50, IBV_WC_WR_FLUSH_ERR);
	expect_async(p, there, IBV_EVENT_QP_ACCESS_ERR);
}

static void access_rights_are_checked(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = sge_of(&p->side[0], 0, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);
	struct ibv_mr *mr;

	p->control->reg_mr(there->pd, there->buffer, BUFFER_SIZE,
			   IBV_ACCESS_REMOTE_READ, &mr);
	wr.wr.rdma.rkey = mr->rkey;
	expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
	p->control->dereg_mr(mr);
}

static void stale_rkey_fails_though_its_slot_is_reused(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = sge_of(&p->side[0], 0, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	p->control->dereg_mr(there->mr);
	p->control->reg_mr(there->pd, there->buffer, BUFFER_SIZE, ACCESS_ALL,
			   &there->mr);
	assert_int_not_equal(there->mr->rkey, wr.wr.rdma.rkey);
	expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
}

static void lkey_is_no_rkey(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = sge_of(&p->side[0], 0, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	assert_int_not_equal(p->side[0].mr->lkey, p->side[1].mr->lkey);
	wr.wr.rdma.rkey = p->side[1].mr->lkey;
	expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
}

static void short_receive_fails_both_ends(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = sge_of(&p->side[0], 0, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_SEND);

	post_recv(there, there->qp[0], 60, 7);
	post_recv(there, there->qp[0], 61, 7);
	expect_failure(p, &wr, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(there, 60, IBV_WC_LOC_LEN_ERR);
	expect_wc(there, 61, IBV_WC_WR_FLUSH_ERR);
	expect_async(p, there, IBV_EVENT_QP_REQ_ERR);
}

static void bad_receive_key_fails_both_ends(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = sge_of(&p->side[0], 0, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_SEND);
	uint32_t lkey = there->mr->lkey;

	there->mr->lkey ^= 1;
	post_recv(there, there->qp[0], 60, 8);
	there->mr->lkey = lkey;
	expect_failure(p, &wr, IBV_WC_REM_OP_ERR);
	expect_wc(there, 60, IBV_WC_LOC_PROT_ERR);
}

static void misaligned_atomic_fails(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = sge_of(&p->side[0], 0, 8);
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_ATOMIC_FETCH_AND_ADD);

	wr.wr.atomic.remote_addr += 4;
	expect_failure(p, &wr, IBV_WC_REM_INV_REQ_ERR);
}

static void huge_lengths_are_seen_and_limited(void **state)
{
	struct scripted_device_opts opts = { .move_no_bytes = true };
	struct pair *p = pair_open(&opts);
	struct ibv_qp *qp = p->side[0].qp[0];
	size_t length = (size_t)3 << 30;
	void *huge = mmap(NULL, length, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *mr[2];
	struct ibv_sge sge = { .addr = (uintptr_t)huge, .length = 1u << 30 };
	struct ibv_send_wr wr = make_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);
	struct scripted_send seen;
	int i;

	(void)state;
	assert_ptr_not_equal(huge, MAP_FAILED);
	for (i = 0; i < 2; i++)
		assert_int_equal(p->control->reg_mr(p->side[i].pd, huge, length,
						    ACCESS_ALL, &mr[i]),
				 0);
	sge.lkey = mr[0]->lkey;
	wr.wr.rdma.rkey = mr[1]->rkey;
	wr.wr.rdma.remote_addr = sge.addr;
	assert_int_equal(post(qp, &wr), 0);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	assert_int_equal(poll_one(&p->side[0]).byte_len, 1u << 30);
	sge.length = 3u << 30;
	assert_int_equal(post(qp, &wr), 0);
	assert_int_equal(scripted_peek(qp, 0, &seen), 0);
	assert_int_equal(seen.sge[0].length, 3u << 30);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), IBV_WC_LOC_LEN_ERR);
	for (i = 0; i < 2; i++)
		p->control->dereg_mr(mr[i]);
	munmap(huge, length);
	pair_close(p);
}

/*
 * Posting rules
 */

static void posting_rules_by_state(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp *qp = here->qp[0];

	assert_int_equal(to_state(p, qp, IBV_QPS_RESET), 0);
	assert_int_equal(post_write(p, 0, 1), EINVAL);
	assert_int_equal(post_recv(here, qp, 1, 4), EINVAL);
	assert_int_equal(to_init(p, qp), 0);
	assert_int_equal(post_write(p, 0, 1), EINVAL);
	assert_int_equal(post_recv(here, qp, 1, 4), 0);
	assert_int_equal(to_rtr(p, qp, p->side[1].qp[0]), 0);
	assert_int_equal(post_write(p, 0, 1), EINVAL);
	assert_int_equal(to_rts(p, qp), 0);
	assert_int_equal(post_write(p, 0, 1), 0);
}

static void bad_wr_is_the_first_refused(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_sge sge = sge_of(&p->side[0], 0, 4);
	struct ibv_send_wr wr[3], *bad = NULL;
	int i;

	for (i = 0; i < 3; i++) {
		wr[i] = make_wr(p, &sge, i, IBV_WR_RDMA_WRITE);
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

	for (i = 0; i < DEPTH - 1; i++)
		post_simple(p, qp, i, IBV_WR_RDMA_WRITE, 0);
	post_write(p, 0, DEPTH);
	assert_int_equal(post_write(p, 0, 0), ENOMEM);
	for (i = 0; i < DEPTH; i++)
		scripted_complete(qp, IBV_WC_SUCCESS);
	assert_int_equal(post_write(p, 0, 0), ENOMEM);
	expect_wc(&p->side[0], DEPTH, IBV_WC_SUCCESS);
	for (i = 0; i < DEPTH; i++)
		assert_int_equal(post_write(p, 0, i), 0);
	assert_int_equal(post_write(p, 0, 0), ENOMEM);
}

static void receive_queue_fills_up(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	int i;

	for (i = 0; i < DEPTH; i++)
		assert_int_equal(post_recv(there, there->qp[0], i, 16), 0);
	assert_int_equal(post_recv(there, there->qp[0], i, 16), ENOMEM);
	post_simple(p, p->side[0].qp[0], 1, IBV_WR_SEND, 0);
	scripted_land(p->side[0].qp[0]);
	assert_int_equal(post_recv(there, there->qp[0], i, 16), ENOMEM);
	expect_wc(there, 0, IBV_WC_SUCCESS);
	assert_int_equal(post_recv(there, there->qp[0], i, 16), 0);
}

/*
 * State machine
 */

static void missing_attributes_are_refused(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	to_state(p, qp, IBV_QPS_RESET);
	assert_int_equal(to_state(p, qp, IBV_QPS_INIT), -EINVAL);
	assert_int_equal(to_state(p, qp, IBV_QPS_RTS), -EINVAL);
	assert_int_equal(p->control->modify_qp(qp, &attr,
					       IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						       IBV_QP_PORT),
			 -EINVAL);
	assert_int_equal(to_rtr(p, qp, qp), -EINVAL);
	assert_int_equal(to_init(p, qp), 0);
	assert_int_equal(to_state(p, qp, IBV_QPS_RTR), -EINVAL);
	assert_int_equal(qp->state, IBV_QPS_INIT);
}

static void query_tells_what_was_set(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	post_write(p, 0, 1);
	scripted_land(p->side[0].qp[0]);
	assert_int_equal(p->control->query_qp(p->side[0].qp[0], &attr, IBV_QP_STATE,
					      &init),
			 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.dest_qp_num, p->side[1].qp[0]->qp_num);
	assert_int_equal(attr.timeout, 14);
	assert_int_equal(attr.sq_psn, 8);
	assert_int_equal(init.cap.max_send_wr, DEPTH);
	assert_ptr_equal(init.send_cq, p->side[0].cq);
}

static void reset_brings_a_dead_pair_back(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *here = p->side[0].qp[0], *there = p->side[1].qp[0];

	post_write(p, 0, 1);
	scripted_land(here);
	scripted_complete(here, IBV_WC_RETRY_EXC_ERR);
	to_state(p, here, IBV_QPS_RESET);
	connect_qp(p, here, there);
	/* The peer counts PSNs from the old connection, and does not listen. */
	assert_int_equal(post_write(p, 0, 2), 0);
	assert_int_equal(scripted_land(here), -ENOTCONN);
	to_state(p, there, IBV_QPS_RESET);
	assert_int_equal(scripted_land(here), -EAGAIN);
	connect_qp(p, there, here);
	assert_int_equal(scripted_complete(here, IBV_WC_SUCCESS), 0);
	/* The first error is still in the CQ, as rxe would leave it. */
	expect_wc(&p->side[0], 1, IBV_WC_RETRY_EXC_ERR);
	expect_wc(&p->side[0], 2, IBV_WC_SUCCESS);
}

static void peers_must_agree(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *here = p->side[0].qp[0];

	to_state(p, here, IBV_QPS_RESET);
	connect_qp(p, here, p->side[1].qp[1]);
	post_write(p, 0, 1);
	assert_int_equal(scripted_land(here), -ENOTCONN);
}

static void stale_cqes_survive_their_qp_and_its_number(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	uint32_t qp_num = here->qp[0]->qp_num;

	post_write(p, 0, 1);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	assert_int_equal(p->control->destroy_qp(here->qp[0]), 0);
	here->qp[0] = make_qp(p, here);
	assert_int_equal(here->qp[0]->qp_num, qp_num);
	assert_int_equal(poll_one(here).qp_num, qp_num);
}

static void purging_devices_leave_no_stale_cqes(void **state)
{
	struct scripted_device_opts opts = { .purge_cqes = true };
	struct pair *p = pair_open(&opts);
	struct side *here = &p->side[0];

	(void)state;
	post_write(p, 0, 1);
	post_write(p, 1, 2);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	scripted_complete(here->qp[1], IBV_WC_SUCCESS);
	assert_int_equal(p->control->destroy_qp(here->qp[0]), 0);
	here->qp[0] = NULL;
	expect_wc(here, 2, IBV_WC_SUCCESS);
	expect_empty(here);
	pair_close(p);
}

/*
 * Completion queues and events
 */

static void held_cqs_show_nothing(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];

	ibv_req_notify_cq(here->cq, 0);
	scripted_hold_cq(here->cq, true);
	post_write(p, 0, 1);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	expect_empty(here);
	assert_false(readable(here->channel->fd));
	scripted_hold_cq(here->cq, false);
	assert_true(readable(here->channel->fd));
	expect_wc(here, 1, IBV_WC_SUCCESS);
}

static void polls_can_be_limited_and_fail(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_wc wc[4];
	int i;

	for (i = 0; i < 4; i++) {
		post_write(p, 0, i);
		scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	}
	scripted_poll_limit(here->cq, 1);
	assert_int_equal(ibv_poll_cq(here->cq, 4, wc), 1);
	scripted_fail_poll(here->cq, 2);
	assert_int_equal(ibv_poll_cq(here->cq, 4, wc), 1);
	assert_true(ibv_poll_cq(here->cq, 4, wc) < 0);
	scripted_poll_limit(here->cq, 0);
	assert_int_equal(ibv_poll_cq(here->cq, 4, wc), 2);
}

static void overrun_is_sticky_and_raises_an_event(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp_init_attr attr = init_attr(here);
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int i;

	p->control->create_cq(here->context, 2, NULL, NULL, 0, &cq);
	attr.send_cq = attr.recv_cq = cq;
	p->control->create_qp(here->pd, &attr, &qp);
	to_state(p, qp, IBV_QPS_ERR);
	for (i = 0; i < 4; i++)
		post_recv(here, qp, i, 4);
	assert_int_equal(scripted_cq_overruns(cq), 2);
	assert_int_equal(scripted_faults(here->device), SCRIPTED_FAULT_CQ_OVERRUN);
	expect_async(p, here, IBV_EVENT_CQ_ERR);
	assert_false(readable(here->context->async_fd));
	p->control->destroy_qp(qp);
	p->control->destroy_cq(cq);
}

static void notification_is_one_shot(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_cq *cq;
	void *cq_context;
	int i;

	ibv_req_notify_cq(here->cq, 0);
	for (i = 0; i < 2; i++) {
		post_write(p, 0, i);
		scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	}
	assert_true(readable(here->channel->fd));
	assert_int_equal(p->control->get_cq_event(here->channel, &cq, &cq_context), 0);
	assert_ptr_equal(cq, here->cq);
	assert_ptr_equal(cq_context, here);
	assert_int_equal(p->control->get_cq_event(here->channel, &cq, &cq_context),
			 -EAGAIN);
	/* Arming does not look back. */
	ibv_req_notify_cq(here->cq, 0);
	assert_false(readable(here->channel->fd));
	p->control->ack_cq_events(here->cq, 1);
	p->control->ack_cq_events(here->cq, 1);
	assert_int_equal(scripted_faults(here->device), SCRIPTED_FAULT_ACK_EXCESS);
}

static void blocking_for_ever_is_an_error(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *cq_context;

	fcntl(here->channel->fd, F_SETFL, 0);
	fcntl(here->context->async_fd, F_SETFL, 0);
	assert_int_equal(p->control->get_cq_event(here->channel, &cq, &cq_context),
			 -EDEADLK);
	assert_int_equal(p->control->get_async_event(here->context, &event), -EDEADLK);
}

static void solicited_only_waits_for_it(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_qp *qp = p->side[0].qp[0];

	post_recv(there, there->qp[0], 1, 16);
	post_recv(there, there->qp[0], 2, 16);
	ibv_req_notify_cq(there->cq, 1);
	post_simple(p, qp, 1, IBV_WR_SEND, 0);
	post_simple(p, qp, 2, IBV_WR_SEND, IBV_SEND_SOLICITED);
	scripted_land(qp);
	assert_false(readable(there->channel->fd));
	scripted_land(qp);
	assert_true(readable(there->channel->fd));
}

static void errors_count_as_solicited(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];

	ibv_req_notify_cq(here->cq, 1);
	post_write(p, 0, 1);
	post_write(p, 0, 2);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	assert_false(readable(here->channel->fd));
	scripted_complete(here->qp[0], IBV_WC_GENERAL_ERR);
	assert_true(readable(here->channel->fd));
}

static void unacknowledged_events_hold_up_destruction(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_async_event event = {
		.element.qp = here->qp[0],
		.event_type = IBV_EVENT_QP_FATAL,
	};
	struct ibv_cq *cq;
	void *cq_context;

	ibv_req_notify_cq(here->cq, 0);
	to_state(p, here->qp[1], IBV_QPS_ERR);
	post_recv(here, here->qp[1], 1, 4);
	p->control->get_cq_event(here->channel, &cq, &cq_context);
	p->control->destroy_qp(here->qp[1]);
	here->qp[1] = NULL;

	scripted_raise(here->device, event);
	assert_int_equal(p->control->get_async_event(here->context, &event), 0);
	assert_int_equal(p->control->destroy_qp(here->qp[0]), -EBUSY);
	p->control->ack_async_event(&event);
	/* An event that nobody took goes with its object. */
	scripted_raise(here->device, event);
	assert_int_equal(p->control->destroy_qp(here->qp[0]), 0);
	here->qp[0] = NULL;
	assert_false(readable(here->context->async_fd));

	assert_int_equal(p->control->destroy_cq(here->cq), -EBUSY);
	p->control->ack_cq_events(here->cq, 1);
	assert_int_equal(scripted_faults(here->device), SCRIPTED_FAULT_DESTROY_BUSY);
}

static void used_objects_are_not_destroyed(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	assert_int_equal(p->control->destroy_cq(here->cq), -EBUSY);
	assert_int_equal(p->control->destroy_channel(here->channel), -EBUSY);
	assert_int_equal(p->control->alloc_pd(here->context, &pd), 0);
	assert_int_equal(p->control->reg_mr(pd, here->buffer, 8, 0, &mr), 0);
	assert_int_equal(scripted_live(here->device, SCRIPTED_PD), 1);
	assert_int_equal(scripted_live(here->device, SCRIPTED_MR), 2);
	assert_int_equal(scripted_live(here->device, SCRIPTED_QP), LANES);
	assert_int_equal(p->control->dealloc_pd(pd), -EBUSY);
	assert_int_equal(p->control->dereg_mr(mr), 0);
	assert_int_equal(p->control->dealloc_pd(pd), 0);
	assert_int_equal(scripted_live(here->device, SCRIPTED_PD), 0);
	assert_int_equal(scripted_faults(here->device), SCRIPTED_FAULT_DESTROY_BUSY);
}
