/* SPDX-License-Identifier: MIT */
/*
 * The yardstick: plain verbs on the null device, which does as little as a device
 * can. What sennit costs is measured on top of this.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sennit/sennit.h>

#include "lib/devices/null.h"
#include "lib/bench.h"

#define BATCH 64

static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_send_wr wr[BATCH];
static struct ibv_sge sge[BATCH];

static void post_one_by_one(void *arg, unsigned count)
{
	struct ibv_wc wc[32];

	(void)arg;
	for (unsigned done = 0; done < count; done += BATCH) {
		struct ibv_send_wr *bad;

		for (unsigned i = 0; i < BATCH; i++) {
			wr[i].next = NULL;
			ibv_post_send(qp, &wr[i], &bad);
		}
		while (ibv_poll_cq(cq, 32, wc) > 0)
			bench_use(wc);
	}
}

static void post_as_chain(void *arg, unsigned count)
{
	struct ibv_wc wc[32];

	(void)arg;
	for (unsigned done = 0; done < count; done += BATCH) {
		struct ibv_send_wr *bad;

		for (unsigned i = 0; i < BATCH; i++)
			wr[i].next = i + 1 < BATCH ? &wr[i + 1] : NULL;
		ibv_post_send(qp, wr, &bad);
		while (ibv_poll_cq(cq, 32, wc) > 0)
			bench_use(wc);
	}
}

static void poll_empty_null_cq(void *arg, unsigned count)
{
	struct ibv_wc wc[32];

	(void)arg;
	for (unsigned i = 0; i < count; i++)
		bench_use((void *)(long)ibv_poll_cq(cq, 32, wc));
}

static int set_up_null_qp(struct snt_device *device)
{
	const struct snt_control *control = snt_device_control(device);
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = BATCH, .max_recv_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	int ret = control->create_cq(snt_device_context(device), BATCH, NULL, NULL, 0,
				     &cq);

	if (ret)
		return ret;
	attr.send_cq = cq;
	attr.recv_cq = cq;
	for (unsigned i = 0; i < BATCH; i++)
		wr[i] = (struct ibv_send_wr){ .wr_id = i,
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .opcode = IBV_WR_RDMA_WRITE,
					      .send_flags = IBV_SEND_SIGNALED };
	return control->create_qp(snt_device_pd(device), &attr, &qp);
}

int main(int argc, char **argv)
{
	struct bench *bench = bench_begin("null", argc, argv);
	struct null_device *null = null_device_create("null0");
	struct snt_adopted adopted = null_adopted(null);
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };
	const struct snt_control *control;
	struct snt_ctx *ctx;
	int status;

	if (snt_ctx_create(&opts, &ctx) || set_up_null_qp(snt_ctx_device(ctx, 0))) {
		fprintf(stderr, "null: %s\n", snt_err_text());
		return 1;
	}
	control = snt_device_control(snt_ctx_device(ctx, 0));
	bench_case(bench, "write-one-by-one", post_one_by_one, NULL, 16 * BATCH, NULL);
	bench_case(bench, "write-chain", post_as_chain, NULL, 16 * BATCH,
		   "write-one-by-one");
	bench_case(bench, "empty-poll", poll_empty_null_cq, NULL, 1024, NULL);
	status = bench_end(bench);
	control->destroy_qp(qp);
	control->destroy_cq(cq);
	snt_ctx_destroy(ctx);
	null_device_destroy(null);
	return status;
}
