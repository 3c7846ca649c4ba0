/* SPDX-License-Identifier: MIT */
#include "lib/test.h"

#include "lib/devices/vqp_pair.h"

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)
#define ROUNDS 10000

static snt_clock_fn pair_clock;
static snt_log_fn pair_log;

void vqp_pair_log(snt_log_fn log)
{
	pair_log = log;
}

void vqp_pair_clock(snt_clock_fn clock)
{
	pair_clock = clock;
}

static const struct snt_control *pair_control;
static const struct snt_cq_opts *pair_cq;

void vqp_pair_control(const struct snt_control *control)
{
	pair_control = control;
}

void vqp_pair_cq(const struct snt_cq_opts *opts)
{
	pair_cq = opts;
}

static void open_vqp_end(struct vqp_pair *pair, struct vqp_end *end, unsigned devices,
			 const struct snt_qp_opts *given)
{
	struct snt_adopted adopted[VQP_DEVICES_MAX];
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .adopted = adopted,
					 .adopted_count = devices,
					 .clock = pair_clock,
					 .log = pair_log };
	struct scripted_device_opts device = { .sge_max = SCRIPTED_SGE_MAX };
	struct snt_qp_opts opts = { .size = sizeof(opts) };

	for (unsigned i = 0; i < devices; i++) {
		end->device[i] = scripted_device_create(pair->fabric, &device);
		adopted[i] = scripted_adopted(end->device[i]);
		if (pair_control && end == pair->end)
			adopted[i].control = pair_control;
	}
	assert_success(snt_ctx_create(&ctx_opts, &end->ctx));
	end->buffer = calloc(1, VQP_BUFFER);
	assert_success(
		snt_mem_register(end->ctx, end->buffer, VQP_BUFFER, ACCESS, &end->mem));
	assert_success(snt_mem_token(end->mem, &end->token));
	assert_success(snt_cq_create(end->ctx, pair_cq, &end->cq));
	if (given)
		opts = *given;
	opts.cq = end->cq;
	assert_success(snt_qp_create(end->ctx, &opts, &end->qp));
}

struct vqp_pair *vqp_pair_make(const unsigned devices[2],
			       const struct snt_qp_opts *const opts[2])
{
	struct vqp_pair *pair = calloc(1, sizeof(*pair));

	pair->fabric = scripted_fabric_create(1);
	for (int i = 0; i < 2; i++)
		open_vqp_end(pair, &pair->end[i], devices[i], opts[i]);
	return pair;
}

void vqp_pair_connect(struct vqp_pair *pair)
{
	struct snt_card card[2];

	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_card(pair->end[i].qp, &card[i]));
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(pair->end[i].qp, &card[!i]));
}

struct vqp_pair *vqp_pair_open(unsigned devices, const struct snt_qp_opts *opts)
{
	struct vqp_pair *pair =
		vqp_pair_make((const unsigned[]){ devices, devices },
			      (const struct snt_qp_opts *const[]){ opts, opts });

	vqp_pair_connect(pair);
	return pair;
}

void vqp_pair_run(struct vqp_pair *pair, uint64_t seed)
{
	scripted_run(pair->fabric, seed);
}

static void close_pair_qp(struct vqp_pair *pair, struct vqp_end *end)
{
	struct snt_wc wc = { 0 };
	int ret = snt_qp_close(end->qp, 77);

	if (ret != -EALREADY && ret != -ENOTCONN)
		assert_success(ret);
	for (int i = 0; ret != -ENOTCONN && i < ROUNDS; i++) {
		vqp_pair_run(pair, i);
		if (snt_cq_poll(end->cq, &wc, 1) == 1 && wc.opcode == SNT_OP_CLOSED)
			break;
	}
	if (ret == 0)
		assert_int_equal(wc.opcode, SNT_OP_CLOSED);
	assert_success(snt_qp_destroy(end->qp));
}

void vqp_pair_close(struct vqp_pair *pair)
{
	for (int i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];

		close_pair_qp(pair, end);
		assert_success(snt_cq_destroy(end->cq));
		assert_success(snt_mem_release(end->mem));
		assert_success(snt_ctx_destroy(end->ctx));
		free(end->buffer);
	}
	assert_int_equal(scripted_fabric_destroy(pair->fabric), 0);
	free(pair);
}

/* Both ends make progress only while they are polled. */
static void poll_both(struct vqp_pair *pair)
{
	for (int i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];
		int count;

		if (end->taken == end->stashed)
			end->taken = end->stashed = 0;
		assert_true(end->stashed < VQP_STASH);
		count = snt_cq_poll(end->cq, &end->stash[end->stashed],
				    VQP_STASH - end->stashed);
		assert_success(count);
		end->stashed += count;
	}
}

struct snt_wc vqp_poll(struct vqp_pair *pair, unsigned index)
{
	struct vqp_end *end = &pair->end[index];

	for (int i = 0; end->taken == end->stashed && i < ROUNDS; i++) {
		poll_both(pair);
		vqp_pair_run(pair, i);
	}
	if (end->taken == end->stashed)
		fail_msg("no completion");
	return end->stash[end->taken++];
}

void vqp_expect_none(struct vqp_pair *pair, unsigned end)
{
	for (int i = 0; i < 10; i++) {
		poll_both(pair);
		vqp_pair_run(pair, i);
		assert_int_equal(pair->end[end].taken, pair->end[end].stashed);
	}
}

struct snt_send_wr vqp_wr(struct vqp_pair *pair, unsigned end, struct snt_sge *sge,
			  unsigned opcode, uint64_t offset, uint64_t length)
{
	struct vqp_end *here = &pair->end[end], *there = &pair->end[!end];

	*sge = (struct snt_sge){ .mem = here->mem,
				 .addr = here->buffer + offset,
				 .length = length };
	return (struct snt_send_wr){ .wr_id = 1,
				     .opcode = opcode,
				     .flags = SNT_SEND_SIGNALED,
				     .sge_count = 1,
				     .sge = sge,
				     .remote = &there->token,
				     .remote_addr = there->token.addr + offset };
}
