/* SPDX-License-Identifier: MIT */
/*
 * A device that refuses twice: first a call that makes, connects or resets a virtual
 * QP, then one of those that undo it. Each call fails in turn, with each later one or
 * all of them. The error is the first one's; the next attempt works, also while
 * something is left of the one before; in the end nothing is.
 */
#include "lib/vqp_kit.h"

#include <stdbool.h>
#include <sennit/control.h>

#define FIRST EMFILE
#define AGAIN EIO

/*
 * The table: that of the scripted devices, with calls that fail
 */

static const struct snt_control *real;

static struct {
	unsigned first; /* the call that fails */
	unsigned again; /* another one; 0: none */
	bool all;	/* and all behind it */
	bool armed;
	unsigned calls; /* while it was armed */
} plan;

static int refusal(void)
{
	if (!plan.armed || ++plan.calls < plan.first)
		return 0;
	if (plan.calls == plan.first)
		return -FIRST;
	return plan.all || plan.calls == plan.again ? -AGAIN : 0;
}

#define OR_REFUSE(call)                  \
	do {                             \
		int ret = refusal();     \
		return ret ? ret : call; \
	} while (0)

static int create_cq(struct ibv_context *context, int cqe, void *cq_context,
		     struct ibv_comp_channel *channel, int vector,
		     struct ibv_cq **cq_out)
{
	OR_REFUSE(real->create_cq(context, cqe, cq_context, channel, vector, cq_out));
}

static int destroy_cq(struct ibv_cq *cq)
{
	OR_REFUSE(real->destroy_cq(cq));
}

static int create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
		     struct ibv_qp **qp_out)
{
	OR_REFUSE(real->create_qp(pd, attr, qp_out));
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	OR_REFUSE(real->modify_qp(qp, attr, mask));
}

static int destroy_qp(struct ibv_qp *qp)
{
	OR_REFUSE(real->destroy_qp(qp));
}

static int reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		  struct ibv_mr **mr_out)
{
	OR_REFUSE(real->reg_mr(pd, addr, length, access, mr_out));
}

static int dereg_mr(struct ibv_mr *mr)
{
	OR_REFUSE(real->dereg_mr(mr));
}

static struct snt_control refusing;

static int make_table(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);

	(void)state;
	real = scripted_adopted(scripted_device_create(fabric, NULL)).control;
	refusing = *real;
	refusing.create_cq = create_cq;
	refusing.destroy_cq = destroy_cq;
	refusing.create_qp = create_qp;
	refusing.modify_qp = modify_qp;
	refusing.destroy_qp = destroy_qp;
	refusing.reg_mr = reg_mr;
	refusing.dereg_mr = dereg_mr;
	vqp_pair_control(&refusing);
	return scripted_fabric_destroy(fabric);
}

/*
 * The ends
 */

#define DEVICES 2

static const struct shape {
	uint32_t lanes;
	enum snt_scheme scheme;
	uint32_t flags;
} shapes[] = {
	{ 1, SNT_SCHEME_SPRAY, SNT_QP_PASS_THROUGH },
	{ 1, SNT_SCHEME_SPRAY, 0 },
	{ 3, SNT_SCHEME_SPRAY, SNT_QP_NOTIFY_LENGTH },
	{ 3, SNT_SCHEME_DQPLB, 0 },
};

static bool passes_on(const struct shape *shape)
{
	return shape->flags & SNT_QP_PASS_THROUGH;
}

static struct snt_qp_opts options(const struct shape *shape)
{
	return (struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
				     .lanes = shape->lanes,
				     .scheme = shape->scheme,
				     .flags = shape->flags,
				     .lane_depth = 4,
				     .recv_depth = 4,
				     .fragment_size = FRAGMENT };
}

static struct vqp_pair *make_pair(const struct shape *shape)
{
	const struct snt_qp_opts opts = options(shape);

	return vqp_pair_make((const unsigned[]){ DEVICES, DEVICES },
			     (const struct snt_qp_opts *const[]){ &opts, &opts });
}

/* For end 0 to get, and nothing but this. */
static void post_receives(struct vqp_pair *pair, const struct shape *shape)
{
	post_data(pair, 0, 10, 0, 64);
	/* Of a pass-through lane there is one queue. */
	if (passes_on(shape))
		post_data(pair, 0, 11, 0, 64);
	else
		post_notify(pair, 0, 11);
}

static void send_from(struct vqp_pair *pair, unsigned end, unsigned opcode,
		      uint64_t wr_id, uint64_t length)
{
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, end, &sge, opcode, 1024, length);

	wr.wr_id = wr_id;
	wr.imm = 5;
	assert_int_equal(snt_qp_post_send(pair->end[end].qp, &wr, 1), 1);
	assert_int_equal(vqp_poll(pair, end).status, SNT_WC_SUCCESS);
}

/* Both directions, over all lanes; the receives of end 0 are there already. */
static void expect_traffic(struct vqp_pair *pair, const struct shape *shape)
{
	struct snt_wc wc;

	for (unsigned i = 0; i < 2 * FRAGMENT; i++)
		pair->end[1].buffer[1024 + i] = i * 13 + (i >> 8);
	send_from(pair, 1, SNT_OP_SEND, 1, 60);
	expect(pair, 0, 10, SNT_OP_RECV, SNT_WC_SUCCESS);
	assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer + 1024, 60);
	send_from(pair, 1, SNT_OP_WRITE_IMM, 2, 2 * FRAGMENT);
	wc = expect(pair, 0, 11, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	assert_int_equal(wc.imm, 5);
	assert_int_equal(!(wc.flags & SNT_WC_LENGTH_UNKNOWN),
			 shape->flags || shape->scheme != SNT_SCHEME_SPRAY);
	assert_memory_equal(pair->end[0].buffer + 1024, pair->end[1].buffer + 1024,
			    2 * FRAGMENT);
	memset(pair->end[1].buffer + 1024, 0, 2 * FRAGMENT);
	send_from(pair, 0, SNT_OP_WRITE, 3, 2 * FRAGMENT);
	assert_memory_equal(pair->end[0].buffer + 1024, pair->end[1].buffer + 1024,
			    2 * FRAGMENT);
	vqp_expect_none(pair, 0);
}

/*
 * Faults
 */

static void arm(void)
{
	plan.calls = 0;
	plan.armed = true;
}

/* What was tried has failed, and for the first reason, if the fault was met. */
static bool disarm(int ret)
{
	plan.armed = false;
	if (plan.calls < plan.first)
		assert_success(ret);
	else
		assert_error(ret, FIRST, strerror(FIRST));
	return ret != 0;
}

/* What can be tried: whether the first fault was met. */
typedef bool (*attempt_fn)(const struct shape *shape);

static void fail_each(const struct shape *shape, attempt_fn attempt)
{
	for (unsigned first = 1;; first++) {
		plan.first = first;
		plan.again = 0;
		plan.all = true;
		if (!attempt(shape))
			break;
		plan.all = false;
		plan.again = first;
		do {
			plan.again++;
			attempt(shape);
		} while (plan.calls >= plan.again);
	}
	assert_true(plan.first > shape->lanes);
}

static void fail_each_of_all(attempt_fn attempt)
{
	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++)
		fail_each(&shapes[i], attempt);
}

/* End 0 begins without QP and CQ. */
static struct vqp_pair *make_pair_without(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair(shape);
	struct vqp_end *end = &pair->end[0];

	assert_success(snt_qp_destroy(end->qp));
	assert_success(snt_cq_destroy(end->cq));
	end->qp = NULL;
	end->cq = NULL;
	return pair;
}

static void finish(struct vqp_pair *pair, const struct shape *shape)
{
	post_receives(pair, shape);
	vqp_pair_connect(pair);
	expect_traffic(pair, shape);
	vqp_pair_close(pair);
}

static bool try_create(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair_without(shape);
	struct vqp_end *end = &pair->end[0];
	struct snt_qp_opts opts = options(shape);
	bool hit;

	assert_success(snt_cq_create(end->ctx, NULL, &end->cq));
	opts.cq = end->cq;
	arm();
	hit = disarm(snt_qp_create(end->ctx, &opts, &end->qp));
	if (hit) {
		assert_null(end->qp);
		assert_success(snt_qp_create(end->ctx, &opts, &end->qp));
	}
	finish(pair, shape);
	return hit;
}

static void making_a_qp_is_undone(void **state)
{
	(void)state;
	fail_each_of_all(try_create);
}

/* Receives have a CQ of their own, which goes first. */
static bool try_create_apart(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair(shape);
	struct vqp_end *end = &pair->end[0];
	struct snt_qp_opts opts = options(shape);
	struct snt_cq *cq[2];
	struct snt_qp *qp = NULL;
	bool hit;

	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_cq_create(end->ctx, NULL, &cq[i]));
	opts.cq = cq[0];
	opts.recv_cq = cq[1];
	arm();
	hit = disarm(snt_qp_create(end->ctx, &opts, &qp));
	assert_true(hit == !qp);
	assert_success(snt_qp_destroy(qp));
	assert_success(snt_cq_destroy(cq[1]));
	assert_success(snt_cq_destroy(cq[0]));
	finish(pair, shape);
	return hit;
}

static void making_a_qp_with_two_cqs_is_undone(void **state)
{
	(void)state;
	fail_each_of_all(try_create_apart);
}

static bool try_create_with_cq(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair_without(shape);
	struct vqp_end *end = &pair->end[0];
	const struct snt_qp_opts opts = options(shape);
	bool hit;

	arm();
	hit = disarm(snt_qp_create_with_cq(end->ctx, NULL, &opts, &end->cq, &end->qp));
	if (hit) {
		assert_null(end->cq);
		assert_null(end->qp);
		assert_success(snt_qp_create_with_cq(end->ctx, NULL, &opts, &end->cq,
						     &end->qp));
	}
	finish(pair, shape);
	return hit;
}

static void making_a_qp_and_its_cq_is_undone(void **state)
{
	(void)state;
	fail_each_of_all(try_create_with_cq);
}

/* Neither end was connected. */
static void close_unconnected(struct vqp_pair *pair)
{
	for (unsigned i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];

		assert_success(snt_qp_destroy(end->qp));
		assert_success(snt_cq_destroy(end->cq));
		assert_success(snt_mem_release(end->mem));
		assert_success(snt_ctx_destroy(end->ctx));
		free(end->buffer);
	}
	assert_int_equal(scripted_fabric_destroy(pair->fabric), 0);
	free(pair);
}

/* A program that does not try again can close the context. */
static bool try_create_once(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair_without(shape);
	struct vqp_end *end = &pair->end[0];
	const struct snt_qp_opts opts = options(shape);
	bool hit;

	arm();
	hit = disarm(snt_qp_create_with_cq(end->ctx, NULL, &opts, &end->cq, &end->qp));
	close_unconnected(pair);
	return hit;
}

static void a_context_closes_over_what_is_left(void **state)
{
	(void)state;
	fail_each_of_all(try_create_once);
}

static bool try_connect(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair(shape);
	struct snt_card card[2];
	bool hit;

	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_card(pair->end[i].qp, &card[i]));
	assert_success(snt_qp_connect(pair->end[1].qp, &card[0]));
	post_receives(pair, shape);
	arm();
	hit = disarm(snt_qp_connect(pair->end[0].qp, &card[1]));
	if (hit)
		assert_success(snt_qp_connect(pair->end[0].qp, &card[1]));
	if (hit && passes_on(shape))
		post_receives(pair, shape);
	expect_traffic(pair, shape);
	vqp_pair_close(pair);
	return hit;
}

static void connecting_is_undone(void **state)
{
	(void)state;
	fail_each_of_all(try_connect);
}

/* A program that does not try again can destroy it. */
static bool try_connect_once(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair(shape);
	struct snt_card card;
	bool hit;

	assert_success(snt_qp_card(pair->end[1].qp, &card));
	post_receives(pair, shape);
	arm();
	hit = disarm(snt_qp_connect(pair->end[0].qp, &card));
	if (hit)
		assert_error(snt_qp_close(pair->end[0].qp, 1), ENOTCONN, "destroy it");
	vqp_pair_close(pair);
	return hit;
}

static void half_connected_qps_can_be_destroyed(void **state)
{
	(void)state;
	fail_each_of_all(try_connect_once);
}

/* Of a pass-through lane it is unknown whether it still has its receives, so that it
 * takes no others before that is settled. */
static void an_undone_lane_has_no_old_receives(void **state)
{
	const struct shape *shape = &shapes[0];
	struct vqp_pair *pair = make_pair(shape);
	struct snt_recv_wr recv = { .wr_id = 1 };
	struct snt_card card[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_card(pair->end[i].qp, &card[i]));
	assert_success(snt_qp_connect(pair->end[1].qp, &card[0]));
	post_receives(pair, shape);
	plan.first = 1;
	plan.all = true;
	arm();
	disarm(snt_qp_connect(pair->end[0].qp, &card[1]));
	assert_int_equal(snt_qp_post_recv(pair->end[0].qp, &recv, 1), -ENOTCONN);
	/* Not even RESET is possible. */
	arm();
	disarm(snt_qp_connect(pair->end[0].qp, &card[1]));
	assert_int_equal(snt_qp_post_recv(pair->end[0].qp, &recv, 1), -ENOTCONN);
	assert_success(snt_qp_connect(pair->end[0].qp, &card[1]));
	assert_int_equal(scripted_recv_pending(lane_qp(pair, 0, 0)), 0);
	post_receives(pair, shape);
	expect_traffic(pair, shape);
	vqp_pair_close(pair);
}

static void close_qp(struct vqp_pair *pair, unsigned end)
{
	assert_success(snt_qp_close(pair->end[end].qp, 50));
	expect(pair, end, 50, SNT_OP_CLOSED, SNT_WC_SUCCESS);
}

static bool try_reset(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair(shape);
	bool hit;

	vqp_pair_connect(pair);
	for (unsigned i = 0; i < 2; i++)
		close_qp(pair, i);
	arm();
	hit = disarm(snt_qp_reset(pair->end[0].qp));
	if (hit)
		assert_success(snt_qp_reset(pair->end[0].qp));
	assert_success(snt_qp_reset(pair->end[1].qp));
	finish(pair, shape);
	return hit;
}

/* One that was never connected can be connected all the same. */
static bool try_reset_unconnected(const struct shape *shape)
{
	struct vqp_pair *pair = make_pair(shape);
	struct snt_card card[2];
	bool hit;

	post_data(pair, 0, 1, 0, 64);
	arm();
	hit = disarm(snt_qp_reset(pair->end[0].qp));
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_card(pair->end[i].qp, &card[i]));
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_connect(pair->end[i].qp, &card[!i]));
	vqp_pair_close(pair);
	return hit;
}

static void resetting_can_be_repeated(void **state)
{
	(void)state;
	fail_each_of_all(try_reset);
	fail_each_of_all(try_reset_unconnected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(making_a_qp_is_undone),
		cmocka_unit_test(making_a_qp_with_two_cqs_is_undone),
		cmocka_unit_test(making_a_qp_and_its_cq_is_undone),
		cmocka_unit_test(a_context_closes_over_what_is_left),
		cmocka_unit_test(connecting_is_undone),
		cmocka_unit_test(half_connected_qps_can_be_destroyed),
		cmocka_unit_test(an_undone_lane_has_no_old_receives),
		cmocka_unit_test(resetting_can_be_repeated),
	};

	return cmocka_run_group_tests(tests, make_table, NULL);
}
