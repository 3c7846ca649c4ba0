/* SPDX-License-Identifier: MIT */
#ifndef QP_LENGTH_KIT_H
#define QP_LENGTH_KIT_H

/* Words that tests of SNT_QP_NOTIFY_LENGTH share. */
#include "vqp_kit.h"

#define ASKS SNT_QP_NOTIFY_LENGTH

/* Without express messages, of which qp_express_test.c is. */
static inline struct snt_qp_opts options(uint32_t flags)
{
	return (struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
				     .lanes = 4,
				     .lane_depth = 8,
				     .flags = flags,
				     .fragment_size = FRAGMENT,
				     .send_sge_max = 2,
				     .express_max = SNT_EXPRESS_OFF };
}

/* End 0 sends, end 1 receives. */
static inline struct vqp_pair *make_pair(unsigned devices, struct snt_qp_opts sends,
					 struct snt_qp_opts receives)
{
	return vqp_pair_make((const unsigned[]){ devices, devices },
			     (const struct snt_qp_opts *const[]){ &sends, &receives });
}

static inline struct vqp_pair *open_asking(unsigned devices, uint32_t inline_max)
{
	struct snt_qp_opts sends = options(0), receives = options(ASKS);
	struct vqp_pair *pair;

	sends.inline_max = inline_max;
	pair = make_pair(devices, sends, receives);
	vqp_pair_connect(pair);
	return pair;
}

static inline void write_from(struct vqp_pair *pair, unsigned from, uint64_t wr_id,
			      uint64_t length)
{
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, from, &sge, SNT_OP_WRITE_IMM, 0, length);

	wr.wr_id = wr_id;
	wr.imm = wr_id;
	assert_int_equal(snt_qp_post_send(pair->end[from].qp, &wr, 1), 1);
}

static inline void expect_length(struct vqp_pair *pair, unsigned end, uint64_t wr_id,
				 uint64_t length)
{
	struct snt_wc wc = expect(pair, end, wr_id, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);

	assert_int_equal(wc.flags, SNT_WC_WITH_IMM);
	assert_true(wc.length == length);
}

static inline void expect_no_length(struct vqp_pair *pair, unsigned end, uint64_t wr_id)
{
	struct snt_wc wc = expect(pair, end, wr_id, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);

	assert_int_equal(wc.flags, SNT_WC_WITH_IMM | SNT_WC_LENGTH_UNKNOWN);
	assert_true(wc.length == 0);
}

static inline unsigned regions(struct vqp_pair *pair, unsigned end)
{
	return scripted_live(pair->end[end].device[0], SCRIPTED_MR);
}

static inline struct ibv_qp *first_notify_lane(struct vqp_pair *pair, unsigned end)
{
	return lane_qp(pair, end, snt_qp_lane_count(pair->end[end].qp));
}

#endif
