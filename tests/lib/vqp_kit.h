/* SPDX-License-Identifier: MIT */
#ifndef VQP_KIT_H
#define VQP_KIT_H

/* Words that tests of the virtual QP share: post, expect, look at a lane. End 0
 * sends, end 1 receives. */
#include "lib/test.h"

#include "lib/devices/vqp_pair.h"

#define FRAGMENT 4096

/* Without express messages, of which qp_express_test.c is: data go on data lanes. */
static inline struct vqp_pair *open_pair(unsigned devices, uint32_t lanes,
					 enum snt_scheme scheme)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = lanes,
				    .scheme = scheme,
				    .lane_depth = 8,
				    .fragment_size = FRAGMENT,
				    .inline_max = 64,
				    .express_max = SNT_EXPRESS_OFF };

	return vqp_pair_open(devices, &opts);
}

static inline struct snt_lane_info lane_info(struct vqp_pair *pair, unsigned end,
					     unsigned lane)
{
	struct snt_lane_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query_lane(pair->end[end].qp, lane, &info));
	return info;
}

static inline struct ibv_qp *lane_qp(struct vqp_pair *pair, unsigned end, unsigned lane)
{
	return lane_info(pair, end, lane).qp;
}

/* From end 0. What the post returned. */
static inline int try_send(struct vqp_pair *pair, unsigned opcode, uint64_t wr_id,
			   uint64_t fragments)
{
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, opcode, 0, fragments * FRAGMENT);

	wr.wr_id = wr_id;
	wr.imm = wr_id;
	return snt_qp_post_send(pair->end[0].qp, &wr, 1);
}

static inline void send_wr(struct vqp_pair *pair, unsigned opcode, uint64_t wr_id,
			   uint64_t fragments)
{
	assert_int_equal(try_send(pair, opcode, wr_id, fragments), 1);
}

static inline void post_notify(struct vqp_pair *pair, unsigned end, uint64_t wr_id)
{
	struct snt_recv_wr recv = { .wr_id = wr_id };

	assert_int_equal(snt_qp_post_recv(pair->end[end].qp, &recv, 1), 1);
}

static inline void post_data(struct vqp_pair *pair, unsigned end, uint64_t wr_id,
			     uint64_t offset, uint64_t length)
{
	struct vqp_end *at = &pair->end[end];
	struct snt_sge sge = { at->mem, at->buffer + offset, length };
	struct snt_recv_wr recv = { .wr_id = wr_id, .sge = &sge, .sge_count = 1 };

	assert_int_equal(snt_qp_post_recv(at->qp, &recv, 1), 1);
}

static inline struct snt_wc expect(struct vqp_pair *pair, unsigned end, uint64_t wr_id,
				   unsigned opcode, unsigned status)
{
	struct snt_wc wc = vqp_poll(pair, end);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.qp_num, snt_qp_num(pair->end[end].qp));
	return wc;
}

#endif
