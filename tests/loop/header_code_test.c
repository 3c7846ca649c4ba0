/* SPDX-License-Identifier: MIT */
/*
 * The code at the beginning of public headers, compiled and run. tests/check/headers.py
 * compares what stands here between "code of" and "end of code" with the headers.
 */
#include "lib/test.h"

#include <stdio.h>

#include <sennit/sennit.h>

#include "lib/devices/scripted.h"

#define LENGTH 4096
#define ACCESS (SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE)

/* One process is both ends. */
static struct {
	struct scripted_fabric *fabric;
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	char bytes[2 * LENGTH]; /* ours, then the peer's */
} peer;

static int check(int ret)
{
	assert_success(ret);
	return ret;
}

static int open_peer(void **state)
{
	struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 4);
	struct scripted_device *device;
	struct snt_adopted adopted;
	struct snt_ctx_opts ctx_opts =
		SNT_INIT(ctx_opts, .adopted = &adopted, .adopted_count = 1);

	(void)state;
	memset(&peer, 0, sizeof(peer));
	memset(peer.bytes, 'x', LENGTH);
	peer.fabric = scripted_fabric_create(1);
	scripted_eager(peer.fabric, true);
	device = scripted_device_create(peer.fabric, NULL);
	adopted = scripted_adopted(device);
	check(snt_ctx_create(&ctx_opts, &peer.ctx));
	check(snt_mem_register(peer.ctx, peer.bytes, sizeof(peer.bytes), ACCESS,
			       &peer.mem));
	check(snt_mem_token(peer.mem, &peer.token));
	check(snt_qp_create_with_cq(peer.ctx, NULL, &opts, &peer.cq, &peer.qp));
	return 0;
}

static int close_peer(void **state)
{
	struct snt_wc wc = { 0 };

	(void)state;
	if (!snt_qp_close(peer.qp, 0))
		while (wc.opcode != SNT_OP_CLOSED)
			check(snt_cq_poll(peer.cq, &wc, 1));
	check(snt_qp_destroy(peer.qp));
	check(snt_cq_destroy(peer.cq));
	check(snt_mem_release(peer.mem));
	check(snt_ctx_destroy(peer.ctx));
	assert_int_equal(scripted_fabric_destroy(peer.fabric), 0);
	return 0;
}

static void exchange(const struct snt_card *ours, struct snt_card *theirs,
		     struct snt_token *token)
{
	check(snt_qp_card(peer.qp, theirs));
	check(snt_qp_connect(peer.qp, ours));
	*token = peer.token;
}

static void connect_to_peer(struct snt_qp *qp, struct snt_token *token)
{
	struct snt_card ours, theirs;

	check(snt_qp_card(qp, &ours));
	exchange(&ours, &theirs, token);
	check(snt_qp_connect(qp, &theirs));
}

static void close_qp(struct snt_cq *cq, struct snt_qp *qp)
{
	struct snt_wc wc = { 0 };

	check(snt_qp_close(qp, 0));
	while (wc.opcode != SNT_OP_CLOSED)
		check(snt_cq_poll(cq, &wc, 1));
	check(snt_qp_destroy(qp));
}

static char shown[512];

static void show(const char *text)
{
	snprintf(shown, sizeof(shown), "%s", text);
}

/*
 * qp.h
 */

static void write_over_four_lanes(void **state)
{
	struct snt_ctx *ctx = peer.ctx;
	struct snt_mem *mem = peer.mem;
	uint64_t length = LENGTH;
	void *bytes = peer.bytes;
	struct snt_token token;
	struct snt_cq *cq;
	struct snt_qp *qp;

	(void)state;
	/* code of qp.h */
	struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 4);
	struct snt_sge sge = { mem, bytes, length };
	struct snt_card ours, theirs;
	struct snt_wc wc;

	check(snt_qp_create_with_cq(ctx, NULL, &opts, &cq, &qp));
	check(snt_qp_card(qp, &ours));
	exchange(&ours, &theirs, &token); // with the peer, by any means
	check(snt_qp_connect(qp, &theirs));

	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &token,
				  .remote_addr = token.addr + length };
	check(snt_qp_post_send(qp, &wr, 1));
	while (!check(snt_cq_poll(cq, &wc, 1)))
		;
	show(snt_wc_text(cq, &wc)); // "QP 2: WRITE succeeded"
	/* end of code */
	assert_non_null(strstr(shown, ": WRITE succeeded"));
	assert_memory_equal(peer.bytes, peer.bytes + LENGTH, LENGTH);
	close_qp(cq, qp);
	check(snt_cq_destroy(cq));
}

/*
 * cq.h
 */

static struct snt_qp *posted_qp;
static struct snt_token posted_token;

static int post_writes(struct snt_cq *cq)
{
	struct snt_qp_opts opts = SNT_INIT(opts, .cq = cq, .lanes = 2);
	struct snt_sge sge = { peer.mem, peer.bytes, LENGTH };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &posted_token };

	check(snt_qp_create(peer.ctx, &opts, &posted_qp));
	connect_to_peer(posted_qp, &posted_token);
	wr.remote_addr = posted_token.addr + LENGTH;
	for (int i = 0; i < 40; i++)
		check(snt_qp_post_send(posted_qp, &wr, 1));
	return 40;
}

static void poll_a_cq(void **state)
{
	struct snt_ctx *ctx = peer.ctx;
	struct snt_cq *cq;

	(void)state;
	/* code of cq.h */
	struct snt_cq_opts opts = SNT_INIT(opts, .depth = 1024);
	struct snt_wc wc[16];
	int count, left;

	check(snt_cq_create(ctx, &opts, &cq));
	left = post_writes(cq); // to QPs with snt_qp_opts.cq = cq
	while (left > 0) {
		count = check(snt_cq_poll(cq, wc, 16));
		for (int i = 0; i < count; i++)
			if (wc[i].status != SNT_WC_SUCCESS)
				show(snt_wc_text(cq, &wc[i]));
		left -= count;
	}
	/* end of code */
	assert_int_equal(left, 0);
	close_qp(cq, posted_qp);
	check(snt_cq_destroy(cq));
}

/*
 * op.h
 */

/* code of op.h */
static void written(struct snt_op *op)
{
	show(snt_op_text(op)); // "QP 2: WRITE succeeded", or why not
}

/* end of code */

static void write_by_an_op(void **state)
{
	struct snt_ctx *ctx = peer.ctx;
	struct snt_mem *mem = peer.mem;
	uint64_t length = LENGTH;
	void *bytes = peer.bytes;
	struct snt_token token;
	struct snt_op close_op = { 0 };
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp;

	(void)state;
	check(snt_loop_create(ctx, NULL, &loop));
	/* code of op.h */
	struct snt_cq_opts cq_opts =
		SNT_INIT(cq_opts, .loop = loop, .ops = SNT_CQ_OPS_EVENTS);
	struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 4);
	struct snt_sge sge = { mem, bytes, length };
	struct snt_op op = { .done = written };

	check(snt_qp_create_with_cq(ctx, &cq_opts, &opts, &cq, &qp));
	connect_to_peer(qp, &token); // by cards (qp.h) or by address (conn.h)
	check(snt_op_write(qp, &op, &sge, &token, token.addr + length));
	check(snt_op_timeout(&op, 1000000000, SNT_CANCEL_ABORT));
	while (snt_op_pending(&op))
		check(snt_loop_wait(loop, -1)); // calls written(&op)
	/* end of code */
	assert_int_equal(op.result, 0);
	assert_non_null(strstr(shown, ": WRITE succeeded"));
	check(snt_op_close(qp, &close_op));
	check(snt_op_wait(&close_op, -1));
	check(snt_qp_destroy(qp));
	check(snt_cq_destroy(cq));
	check(snt_loop_destroy(loop));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_peer, close_peer)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(write_over_four_lanes),
		TEST(poll_a_cq),
		TEST(write_by_an_op),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
