/* SPDX-License-Identifier: MIT */
/*
 * Memory windows: what devices are asked for, on one that has none but notes it. On real
 * ones tests/vm/share_test.c looks at what becomes of it.
 */
#include "lib/test.h"

#include "lib/loop_kit.h"

#define ACCESS (SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_WINDOW)

static struct snt_control control, inner;
static int (*inner_post)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			 struct ibv_send_wr **bad);
static struct ibv_send_wr last;
static uint32_t key_at_post; /* of the window, when the device was given the WR */
static unsigned caps, windows;
static int alloc_error, dealloc_error;

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int ret = inner.query_device(context, attr);

	attr->device_cap_flags |= caps;
	return ret;
}

static int reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		  struct ibv_mr **mr_out)
{
	return inner.reg_mr(pd, addr, length, access & ~IBV_ACCESS_MW_BIND, mr_out);
}

static int alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw_out)
{
	struct ibv_mw *mw;

	if (alloc_error)
		return -alloc_error;
	mw = calloc(1, sizeof(*mw));
	mw->context = pd->context;
	mw->pd = pd;
	mw->rkey = 0x123400ff;
	mw->type = IBV_MW_TYPE_2;
	windows++;
	*mw_out = mw;
	return 0;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	int ret = -dealloc_error;

	dealloc_error = 0;
	if (ret)
		return ret;
	free(mw);
	windows--;
	return 0;
}

/* To the device it is something that it knows. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct ibv_send_wr known = *wr;

	if (wr->opcode != IBV_WR_BIND_MW && wr->opcode != IBV_WR_LOCAL_INV &&
	    wr->opcode != IBV_WR_SEND_WITH_INV)
		return inner_post(qp, wr, bad);
	assert_null(wr->next);
	last = *wr;
	if (wr->opcode == IBV_WR_BIND_MW)
		key_at_post = wr->bind_mw.mw->rkey;
	memset(&known.wr, 0, sizeof(known.wr));
	known.opcode =
		wr->opcode == IBV_WR_SEND_WITH_INV ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
	if (inner_post(qp, &known, bad)) {
		*bad = wr;
		return EINVAL;
	}
	return 0;
}

/* Receives say that a message invalidated this key, if it is not 0. */
static uint32_t told_key;

static int (*inner_poll)(struct ibv_cq *cq, int max, struct ibv_wc *wc);

static int poll_told(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int count = inner_poll(cq, max, wc);

	for (int i = 0; i < count; i++) {
		if (!told_key || wc[i].status || wc[i].opcode != IBV_WC_RECV)
			continue;
		wc[i].wc_flags = IBV_WC_WITH_INV;
		wc[i].invalidated_rkey = told_key;
	}
	return count;
}

static const struct snt_control *instrument(const struct snt_adopted *adopted)
{
	inner = control = *adopted->control;
	control.query_device = query_device;
	control.reg_mr = reg_mr;
	inner_post = adopted->context->ops.post_send;
	inner_poll = adopted->context->ops.poll_cq;
	adopted->context->ops.poll_cq = poll_told;
	adopted->context->ops.post_send = post_send;
	control.alloc_mw = alloc_mw;
	control.dealloc_mw = dealloc_mw;
	control.size = sizeof(control);
	return &control;
}

struct bound {
	struct loop_pair *pair;
	struct snt_mem *mem;
	struct snt_mw *mw;
};

static struct bound open_bound(const struct loop_opts *user_opts)
{
	struct loop_opts opts = *user_opts;
	struct bound bound;

	caps = IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
	opts.instrument = instrument;
	bound.pair = loop_pair_open(&opts);
	assert_success(snt_mem_register(bound.pair->end[0].ctx,
					bound.pair->end[0].buffer, 4096, ACCESS,
					&bound.mem));
	assert_success(snt_mw_alloc(bound.pair->end[0].ctx, 0, &bound.mw));
	return bound;
}

static void close_bound(struct bound *bound)
{
	assert_success(snt_mw_free(bound->mw));
	assert_int_equal(windows, 0);
	assert_success(snt_mem_release(bound->mem));
	loop_pair_close(bound->pair);
}

static struct snt_sge range_of(const struct bound *bound, uint64_t offset,
			       uint64_t length)
{
	return (struct snt_sge){ bound->mem, bound->pair->end[0].buffer + offset,
				 length };
}

static struct snt_wc poll_one(struct bound *bound)
{
	struct snt_wc wc = { 0 };

	for (int i = 0; i < 100; i++) {
		loop_pair_run(bound->pair);
		if (snt_cq_poll(bound->pair->end[0].cq, &wc, 1) == 1)
			return wc;
	}
	fail_msg("no completion");
	return wc;
}

static void a_bind_names_range_rights_and_a_new_key(void **state)
{
	struct bound bound = open_bound(&(struct loop_opts){ 0 });
	struct snt_qp *qp = bound.pair->end[0].qp;
	struct snt_sge range = range_of(&bound, 100, 200);
	struct snt_token token;

	(void)state;
	assert_error(snt_mw_token(bound.mw, &token), ENOENT, "never bound");
	assert_error(snt_mw_invalidate(qp, bound.mw, 1, 0), ENOENT, "never bound");
	assert_success(snt_mw_bind(qp, bound.mw, &range, SNT_ACCESS_REMOTE_WRITE, 5,
				   SNT_SEND_SIGNALED));
	assert_int_equal(last.opcode, IBV_WR_BIND_MW);
	/* The device knows the window by the key it has, and gives it another: only the
	 * lowest byte is ours to choose. */
	assert_int_equal(key_at_post, 0x123400ff);
	assert_int_equal(last.bind_mw.rkey, 0x12340000);
	assert_int_equal(last.bind_mw.mw->rkey, 0x12340000);
	assert_int_equal(last.bind_mw.bind_info.addr, (uintptr_t)range.addr);
	assert_int_equal(last.bind_mw.bind_info.length, 200);
	assert_int_equal(last.bind_mw.bind_info.mw_access_flags,
			 IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(last.bind_mw.bind_info.mr);
	assert_int_equal(poll_one(&bound).wr_id, 5);
	assert_success(snt_mw_token(bound.mw, &token));
	assert_int_equal(token.key[0], 0x12340000);
	assert_int_equal(token.addr, (uintptr_t)range.addr);
	assert_int_equal(token.length, 200);
	assert_int_equal(token.access, SNT_ACCESS_REMOTE_WRITE);
	assert_success(
		snt_mw_invalidate(qp, bound.mw, 6, SNT_SEND_SIGNALED | SNT_SEND_FENCE));
	assert_int_equal(last.opcode, IBV_WR_LOCAL_INV);
	assert_int_equal(last.invalidate_rkey, 0x12340000);
	assert_int_equal(last.send_flags, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	assert_int_equal(poll_one(&bound).wr_id, 6);
	assert_success(snt_mw_bind(qp, bound.mw, &range, SNT_ACCESS_REMOTE_READ, 7, 0));
	assert_int_equal(key_at_post, 0x12340000);
	assert_int_equal(last.bind_mw.rkey, 0x12340001);
	close_bound(&bound);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct bound bound = open_bound(&(struct loop_opts){ 0 });
	struct loop_end *end = &bound.pair->end[0];
	struct snt_sge range = range_of(&bound, 0, 64);
	struct snt_mem *read_only, *plain = end->mem;
	const unsigned write = SNT_ACCESS_REMOTE_WRITE;

	(void)state;
	last.opcode = IBV_WR_SEND;
	assert_int_equal(snt_mw_bind(end->qp, bound.mw, &range, 0, 1, 0), -EINVAL);
	assert_int_equal(snt_mw_bind(end->qp, bound.mw, &range, 1, 1, 0), -EINVAL);
	assert_int_equal(snt_mw_bind(end->qp, bound.mw, &range, write, 1,
				     SNT_SEND_INLINE),
			 -EINVAL);
	range.length = 0;
	assert_int_equal(snt_mw_bind(end->qp, bound.mw, &range, write, 1, 0), -ERANGE);
	range.length = 4097;
	assert_int_equal(snt_mw_bind(end->qp, bound.mw, &range, write, 1, 0), -ERANGE);
	range = (struct snt_sge){ plain, end->buffer, 64 };
	assert_int_equal(snt_mw_bind(end->qp, bound.mw, &range, write, 1, 0), -EACCES);
	assert_success(snt_mem_register(end->ctx, end->buffer, 64, SNT_ACCESS_WINDOW,
					&read_only));
	range.mem = read_only;
	assert_int_equal(snt_mw_bind(end->qp, bound.mw, &range, write, 1, 0), -EACCES);
	assert_int_equal(last.opcode, IBV_WR_SEND);
	assert_success(
		snt_mw_bind(end->qp, bound.mw, &range, SNT_ACCESS_REMOTE_READ, 1, 0));
	assert_success(snt_mem_release(read_only));
	close_bound(&bound);
}

static void many_lanes_have_no_windows(void **state)
{
	struct loop_opts opts = { .qp = { .lanes = 2 } };
	struct bound bound = open_bound(&opts);
	struct snt_sge range = range_of(&bound, 0, 64);
	struct snt_qp *qp = bound.pair->end[0].qp;

	(void)state;
	assert_error(snt_mw_bind(qp, bound.mw, &range, SNT_ACCESS_REMOTE_READ, 1, 0),
		     EINVAL, "SNT_QP_PASS_THROUGH");
	assert_error(snt_mw_send_inv(qp, &range, 1, &bound.pair->end[1].token, 1, 0),
		     EINVAL, "SNT_QP_PASS_THROUGH");
	close_bound(&bound);
}

static void another_device_is_refused(void **state)
{
	struct loop_opts opts = {
		.devices = 2, .qp = { .flags = SNT_QP_PASS_THROUGH, .devices = 2 }
	};
	struct bound bound = open_bound(&opts);
	struct snt_sge range = range_of(&bound, 0, 64);

	(void)state;
	assert_error(snt_mw_bind(bound.pair->end[0].qp, bound.mw, &range,
				 SNT_ACCESS_REMOTE_READ, 1, 0),
		     EINVAL, "another device");
	close_bound(&bound);
}

static void a_device_without_windows_says_so(void **state)
{
	struct bound bound = open_bound(&(struct loop_opts){ 0 });
	struct loop_end *other = &bound.pair->end[1];
	struct snt_sge sge = loop_sge(bound.pair, 1, 0, 8);
	struct snt_mw *mw;
	struct snt_mem *mem;

	(void)state;
	assert_error(snt_mw_alloc(other->ctx, 0, &mw), EOPNOTSUPP,
		     "scripted1 has no memory windows");
	assert_error(snt_mem_register(other->ctx, other->buffer, 64, ACCESS, &mem),
		     EOPNOTSUPP, "no memory windows");
	assert_error(snt_mw_send_inv(other->qp, &sge, 1, &other->token, 1, 0),
		     EOPNOTSUPP, "scripted1 cannot");
	assert_error(snt_mw_alloc(bound.pair->end[0].ctx, 1, &mw), EINVAL, "device 1");
	alloc_error = ENOMEM;
	assert_error(snt_mw_alloc(bound.pair->end[0].ctx, 0, &mw), ENOMEM,
		     "no memory window");
	alloc_error = 0;
	dealloc_error = EBUSY;
	assert_error(snt_mw_free(bound.mw), EBUSY, "cannot be freed");
	assert_success(snt_mw_free(NULL));
	close_bound(&bound);
}

static void a_message_invalidates_a_key_of_the_peer(void **state)
{
	struct bound bound = open_bound(&(struct loop_opts){ 0 });
	struct loop_end *end = bound.pair->end;
	struct snt_sge sge = range_of(&bound, 0, 16);
	struct snt_sge into = loop_sge(bound.pair, 1, 0, 64);
	struct snt_recv_wr recv = { .sge = &into, .sge_count = 1 };

	(void)state;
	assert_int_equal(snt_qp_post_recv(end[1].qp, &recv, 1), 1);
	assert_int_equal(snt_mw_send_inv(end[0].qp, &sge, 1, NULL, 8, 0), -EINVAL);
	assert_int_equal(snt_mw_send_inv(end[0].qp, &sge, 65537, &end[1].token, 8, 0),
			 -EINVAL);
	assert_int_equal(snt_mw_send_inv(end[0].qp, &sge, 1, &end[1].token, 8, 256),
			 -EINVAL);
	assert_success(snt_mw_send_inv(end[0].qp, &sge, 1, &end[1].token, 8,
				       SNT_SEND_SIGNALED));
	assert_int_equal(last.opcode, IBV_WR_SEND_WITH_INV);
	assert_int_equal(last.invalidate_rkey, end[1].token.key[0]);
	assert_int_equal(last.num_sge, 1);
	assert_int_equal(poll_one(&bound).wr_id, 8);
	close_bound(&bound);
}

static void the_receiver_is_told_which_key(void **state)
{
	struct bound bound = open_bound(&(struct loop_opts){ 0 });
	struct loop_end *end = bound.pair->end;
	struct snt_sge sge = loop_sge(bound.pair, 1, 0, 16);
	struct snt_sge into = range_of(&bound, 0, 64);
	struct snt_recv_wr recv = { .sge = &into, .sge_count = 1 };
	struct snt_send_wr send = { .opcode = SNT_OP_SEND,
				    .sge = &sge,
				    .sge_count = 1 };
	struct snt_wc wc;

	(void)state;
	told_key = 0x80001234;
	assert_int_equal(snt_qp_post_recv(end[0].qp, &recv, 1), 1);
	assert_int_equal(snt_qp_post_send(end[1].qp, &send, 1), 1);
	wc = poll_one(&bound);
	assert_int_equal(wc.opcode, SNT_OP_RECV);
	assert_int_equal(wc.flags, SNT_WC_WITH_INV);
	assert_int_equal(wc.imm, 0x80001234);
	told_key = 0;
	close_bound(&bound);
}

/* By the rules of a lane that passes WRs on: so many under way, and what the device
 * refuses ends the QP, which tells of it. */
static void binds_count_and_fail_like_others(void **state)
{
	struct loop_opts opts = { .qp = { .lane_depth = 2 } };
	struct bound bound = open_bound(&opts);
	struct loop_end *end = bound.pair->end;
	struct snt_sge range = range_of(&bound, 0, 64);
	struct scripted_post_fault fault = { .kind = SCRIPTED_POST_SEND,
					     .error = EINVAL };
	struct snt_wc wc;

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_success(snt_mw_bind(end->qp, bound.mw, &range,
					   SNT_ACCESS_REMOTE_READ, i,
					   SNT_SEND_SIGNALED));
	assert_int_equal(snt_mw_invalidate(end->qp, bound.mw, 2, 0), -EAGAIN);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(poll_one(&bound).wr_id, i);
	scripted_fail_post(end->device[0], &fault);
	assert_success(snt_mw_invalidate(end->qp, bound.mw, 9, SNT_SEND_SIGNALED));
	wc = poll_one(&bound);
	assert_int_equal(wc.wr_id, 9);
	assert_int_equal(wc.status, SNT_WC_FLUSHED);
	assert_int_equal(snt_mw_invalidate(end->qp, bound.mw, 9, 0), -ESHUTDOWN);
	close_bound(&bound);
}

static void windows_as_ops(void **state)
{
	struct bound bound =
		open_bound(&(struct loop_opts){ .ops = SNT_CQ_OPS_EVENTS });
	struct loop_end *end = bound.pair->end;
	struct snt_sge range = range_of(&bound, 0, 64);
	struct snt_sge into = loop_sge(bound.pair, 1, 0, 64);
	struct snt_op op[3] = { { .done = loop_done },
				{ .done = loop_done },
				{ .done = loop_done } };
	struct snt_op recv = { 0 };

	(void)state;
	assert_error(snt_mw_bind(end->qp, bound.mw, &range, SNT_ACCESS_REMOTE_READ, 1,
				 0),
		     EINVAL, "ops");
	assert_success(snt_op_recv(end[1].qp, &recv, &into));
	assert_success(snt_op_bind(end->qp, &op[0], bound.mw, &range,
				   SNT_ACCESS_REMOTE_READ, 0));
	assert_error(snt_op_invalidate(end->qp, &op[0], bound.mw, 0), EALREADY,
		     "in use");
	assert_success(snt_op_invalidate(end->qp, &op[1], bound.mw, 0));
	assert_success(snt_op_send_inv(end->qp, &op[2], &range, 1, &end[1].token, 0));
	loop_pair_settle(bound.pair);
	assert_int_equal(loop_done_count, 3);
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(loop_done_log[i], &op[i]);
		assert_int_equal(op[i].result, 0);
	}
	assert_int_equal(recv.result, 0);
	close_bound(&bound);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bind_names_range_rights_and_a_new_key),
		cmocka_unit_test(what_does_not_fit_is_refused),
		cmocka_unit_test(many_lanes_have_no_windows),
		cmocka_unit_test(another_device_is_refused),
		cmocka_unit_test(a_device_without_windows_says_so),
		cmocka_unit_test(a_message_invalidates_a_key_of_the_peer),
		cmocka_unit_test(the_receiver_is_told_which_key),
		cmocka_unit_test(binds_count_and_fail_like_others),
		cmocka_unit_test(windows_as_ops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
