/* SPDX-License-Identifier: MIT */
#include "lib/test.h"

#include <poll.h>

#include "lib/loop_kit.h"

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)
#define ROUNDS 1000

static void open_loop_end(struct loop_pair *pair, struct loop_end *end)
{
	const struct loop_opts *opts = &pair->opts;
	struct snt_adopted adopted[LOOP_DEVICES_MAX];
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .adopted = adopted,
					 .adopted_count = opts->devices,
					 .clock = opts->clock };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts), .ops = opts->ops };
	struct snt_qp_opts qp_opts = opts->qp;

	for (unsigned i = 0; i < opts->devices; i++) {
		end->device[i] = scripted_device_create(pair->fabric, NULL);
		adopted[i] = scripted_adopted(end->device[i]);
		if (opts->instrument && end == pair->end)
			adopted[i].control = opts->instrument(&adopted[i]);
	}
	assert_success(snt_ctx_create(&ctx_opts, &end->ctx));
	assert_success(snt_loop_create(end->ctx, NULL, &end->loop));
	if (opts->events || opts->ops)
		cq_opts.loop = end->loop;
	end->buffer = calloc(1, LOOP_BUFFER);
	assert_success(snt_mem_register(end->ctx, end->buffer, LOOP_BUFFER, ACCESS,
					&end->mem));
	assert_success(snt_mem_token(end->mem, &end->token));
	assert_success(snt_cq_create(end->ctx, &cq_opts, &end->cq));
	qp_opts.cq = end->cq;
	assert_success(snt_qp_create(end->ctx, &qp_opts, &end->qp));
}

static void connect_loop_qps(struct snt_qp *const qp[2])
{
	struct snt_card card[2];

	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_card(qp[i], &card[i]));
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(qp[i], &card[!i]));
}

struct loop_pair *loop_pair_open(const struct loop_opts *opts)
{
	struct loop_pair *pair = calloc(1, sizeof(*pair));

	pair->opts = *opts;
	pair->opts.qp.size = sizeof(pair->opts.qp);
	if (!opts->devices)
		pair->opts.devices = 1;
	if (pair->opts.devices == 1 && !opts->qp.lanes)
		pair->opts.qp.flags |= SNT_QP_PASS_THROUGH;
	pair->fabric = scripted_fabric_create(1);
	for (int i = 0; i < 2; i++)
		open_loop_end(pair, &pair->end[i]);
	if (!opts->unconnected)
		connect_loop_qps(
			(struct snt_qp *const[]){ pair->end[0].qp, pair->end[1].qp });
	loop_done_reset();
	return pair;
}

struct loop_pair *loop_pair_simple(void)
{
	return loop_pair_open(&(struct loop_opts){ .ops = SNT_CQ_OPS_EVENTS });
}

struct loop_pair *loop_pair_lanes(enum snt_scheme scheme, uint32_t ops)
{
	struct loop_opts opts = { .devices = 2,
				  .ops = ops,
				  .events = !ops,
				  .qp = { .scheme = scheme,
					  .lanes = 4,
					  .fragment_size = 256,
					  .lane_depth = 4,
					  .send_depth = 64 } };

	return loop_pair_open(&opts);
}

void loop_pair_add(struct loop_pair *pair, const struct snt_qp_opts *opts,
		   struct snt_qp *qp_out[2])
{
	for (int i = 0; i < 2; i++) {
		struct snt_qp_opts with_cq = *opts;

		with_cq.cq = pair->end[i].cq;
		assert_success(snt_qp_create(pair->end[i].ctx, &with_cq, &qp_out[i]));
	}
	connect_loop_qps(qp_out);
}

/*
 * Closing
 */

static bool closed;

static void note_closed(struct snt_op *op)
{
	(void)op;
	closed = true;
}

static void close_ops(struct loop_pair *pair, struct loop_end *end)
{
	struct snt_op op = { .done = note_closed };
	int ret = snt_op_close(end->qp, &op);

	closed = ret == -ENOTCONN || ret == -EALREADY;
	if (!closed)
		assert_success(ret);
	for (int i = 0; !closed && i < ROUNDS; i++) {
		loop_pair_run(pair);
		assert_success(snt_loop_dispatch(end->loop, 0));
	}
	assert_true(closed);
}

static void close_polled(struct loop_pair *pair, struct loop_end *end)
{
	struct snt_wc wc = { 0 };
	int ret = snt_qp_close(end->qp, 77);

	if (ret != -ENOTCONN)
		assert_success(ret);
	for (int i = 0; !ret && i < ROUNDS && wc.opcode != SNT_OP_CLOSED; i++) {
		loop_pair_run(pair);
		assert_success(snt_cq_poll(end->cq, &wc, 1));
	}
	if (!ret)
		assert_int_equal(wc.opcode, SNT_OP_CLOSED);
}

static void close_loop_end(struct loop_pair *pair, struct loop_end *end)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	if (end->qp) {
		assert_success(snt_qp_query(end->qp, &info));
		if (info.state != SNT_QP_CLOSED && pair->opts.ops)
			close_ops(pair, end);
		else if (info.state != SNT_QP_CLOSED)
			close_polled(pair, end);
		assert_success(snt_qp_destroy(end->qp));
	}
	assert_success(snt_cq_destroy(end->cq));
	if (end->mem)
		assert_success(snt_mem_release(end->mem));
	assert_success(snt_loop_destroy(end->loop));
	assert_success(snt_ctx_destroy(end->ctx));
	free(end->buffer);
}

void loop_pair_close(struct loop_pair *pair)
{
	for (int i = 0; i < 2; i++) {
		unsigned faults = 0;

		close_loop_end(pair, &pair->end[i]);
		for (unsigned n = 0; n < pair->opts.devices; n++)
			faults |= scripted_faults(pair->end[i].device[n]);
		assert_int_equal(faults, 0);
	}
	assert_int_equal(scripted_fabric_destroy(pair->fabric), 0);
	free(pair);
}

/*
 * Moving
 */

void loop_pair_run(struct loop_pair *pair)
{
	scripted_run(pair->fabric, 1);
}

void loop_pair_settle(struct loop_pair *pair)
{
	for (int i = 0; i < ROUNDS; i++) {
		unsigned steps = scripted_run(pair->fabric, i);
		int count = 0;

		for (int n = 0; n < 2; n++) {
			int ret = snt_loop_dispatch(pair->end[n].loop, 0);

			assert_success(ret);
			count += ret;
		}
		if (!steps && !count)
			return;
	}
	fail_msg("it never ends");
}

bool loop_readable(struct snt_loop *loop)
{
	struct pollfd poller = { .fd = snt_loop_fd(loop), .events = POLLIN };

	assert_success(poller.fd);
	return poll(&poller, 1, 0) == 1;
}

struct snt_sge loop_sge(struct loop_pair *pair, unsigned end, uint64_t offset,
			uint64_t length)
{
	return (struct snt_sge){ .mem = pair->end[end].mem,
				 .addr = pair->end[end].buffer + offset,
				 .length = length };
}

int loop_write(struct loop_pair *pair, unsigned end, struct snt_op *op, uint64_t offset,
	       uint64_t length)
{
	struct snt_sge sge = loop_sge(pair, end, offset, length);
	const struct snt_token *token = &pair->end[!end].token;

	return snt_op_write(pair->end[end].qp, op, &sge, token, token->addr + offset);
}

unsigned loop_done_count;
struct snt_op *loop_done_log[LOOP_LOG];

void loop_done(struct snt_op *op)
{
	if (loop_done_count < LOOP_LOG)
		loop_done_log[loop_done_count] = op;
	loop_done_count++;
}

void loop_done_reset(void)
{
	loop_done_count = 0;
}
