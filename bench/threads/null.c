/* SPDX-License-Identifier: MIT */
/*
 * Threads that have no reason to wait for each other: computing, plain verbs on the null device,
 * and sennit on it, polled and by ops in loops. All that the threads use is made by one thread,
 * one after the other, so that what is not kept apart lies side by side.
 */
#include <infiniband/verbs.h>
#include <stdio.h>

#include "lib/devices/null.h"
#include "lib/bench.h"
#include "threads/kinds.h"

#define LANES	 4
#define BATCH	 64
#define OP_BATCH 16
#define ROUNDS	 16
#define LENGTH	 4096
#define ACCESS	 (SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE)

#define DURATION_NS 5000000
#define LIMIT	    0.95

/*
 * Computing
 */

struct numbers {
	uint64_t number[4];
};

/* As many instructions at a time as a core can execute, so that what one core shares with
 * another, a clock or all of its units, shows. */
static unsigned compute_numbers(void *arg)
{
	struct numbers *numbers = arg;
	uint64_t a = numbers->number[0], b = numbers->number[1];
	uint64_t c = numbers->number[2], d = numbers->number[3];

	for (unsigned i = 0; i < 16384; i++) {
		a = a << 1 ^ i;
		b += i ^ 0x55;
		c = (c >> 1) + i;
		d -= i | 1;
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
	}
	*numbers = (struct numbers){ { a, b, c, d } };
	return 16384;
}

unsigned add_cpu(struct kind *kind, unsigned threads)
{
	*kind = (struct kind){ .name = "cpu",
			       .work.run = compute_numbers,
			       .duration_ns = DURATION_NS,
			       .busy = 1 };
	for (unsigned i = 0; i < threads; i++)
		kind->load[i] = take_memory(sizeof(struct numbers));
	return 1;
}

/*
 * Plain verbs
 */

struct raw {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_sge sge;
	struct ibv_send_wr wr[BATCH];
};

static unsigned run_raw_writes(void *arg)
{
	struct raw *raw = arg;
	struct ibv_send_wr *bad;
	struct ibv_wc wc[32];

	for (unsigned round = 0; round < ROUNDS; round++) {
		ibv_post_send(raw->qp, raw->wr, &bad);
		while (ibv_poll_cq(raw->cq, 32, wc) > 0)
			bench_use(wc);
	}
	return ROUNDS * BATCH;
}

static struct raw *make_raw(struct snt_device *device)
{
	const struct snt_control *control = snt_device_control(device);
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = BATCH, .max_recv_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct raw *raw = take_memory(sizeof(*raw));

	if (control->create_cq(snt_device_context(device), BATCH, NULL, NULL, 0,
			       &raw->cq))
		die("no CQ");
	attr.send_cq = attr.recv_cq = raw->cq;
	if (control->create_qp(snt_device_pd(device), &attr, &raw->qp))
		die("no QP");
	for (unsigned i = 0; i < BATCH; i++)
		raw->wr[i] = (struct ibv_send_wr){
			.next = i + 1 < BATCH ? &raw->wr[i + 1] : NULL,
			.sg_list = &raw->sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
		};
	return raw;
}

/*
 * Sennit, with one context for all threads and memory that they share
 */

static struct {
	struct snt_ctx *ctx;
	struct snt_mem *mem;
	struct snt_token token;
	char buffer[LENGTH];
} shared;

struct load {
	struct snt_loop *loop; /* NULL: the CQ is polled */
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_sge sge;
	struct snt_send_wr wr[BATCH];
	struct snt_op op[OP_BATCH];
	struct snt_op *ops[OP_BATCH];
	unsigned done;
};

static void count_null_op(struct snt_op *op)
{
	struct load *load = op->arg;

	load->done++;
}

static unsigned run_polled(void *arg)
{
	struct load *load = arg;
	struct snt_wc wc[32];

	for (unsigned round = 0; round < ROUNDS; round++) {
		snt_qp_post_send(load->qp, load->wr, BATCH);
		for (unsigned left = BATCH; left;) {
			left -= snt_cq_poll(load->cq, wc, 32);
			bench_use(wc);
		}
	}
	return ROUNDS * BATCH;
}

static unsigned run_ops(void *arg)
{
	struct load *load = arg;

	for (unsigned round = 0; round < ROUNDS; round++) {
		snt_op_post_batch(load->qp, load->ops, load->wr, OP_BATCH);
		for (load->done = 0; load->done < OP_BATCH;)
			snt_loop_poll(load->loop, 0);
	}
	return ROUNDS * OP_BATCH;
}

static struct load *make_load(unsigned device, bool with_ops)
{
	struct load *load = take_memory(sizeof(*load));
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .lanes = LANES,
				       .devices = 1u << device };
	struct snt_card card;

	if (with_ops) {
		if (snt_loop_create(shared.ctx, NULL, &load->loop))
			die("no loop");
		cq_opts.loop = load->loop;
		cq_opts.ops = SNT_CQ_OPS_POLLED;
	}
	if (snt_qp_create_with_cq(shared.ctx, &cq_opts, &qp_opts, &load->cq,
				  &load->qp) ||
	    snt_qp_card(load->qp, &card) || snt_qp_connect(load->qp, &card))
		die("no QP");
	load->sge = (struct snt_sge){ shared.mem, shared.buffer, LENGTH };
	for (unsigned i = 0; i < BATCH; i++)
		load->wr[i] = (struct snt_send_wr){ .wr_id = i,
						    .opcode = SNT_OP_WRITE,
						    .flags = SNT_SEND_SIGNALED,
						    .sge_count = 1,
						    .sge = &load->sge,
						    .remote = &shared.token,
						    .remote_addr = shared.token.addr };
	for (unsigned i = 0; i < OP_BATCH; i++) {
		load->op[i].done = count_null_op;
		load->op[i].arg = load;
		load->ops[i] = &load->op[i];
	}
	return load;
}

static void open_null_devices(unsigned count)
{
	struct snt_adopted adopted[SNT_DEVICES_MAX];
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = adopted,
				     .adopted_count = count };

	for (unsigned i = 0; i < count; i++) {
		struct null_device *null;
		char name[16];

		snprintf(name, sizeof(name), "null%u", i);
		null = null_device_create(name);
		if (!null)
			die("no memory");
		adopted[i] = null_adopted(null);
	}
	if (snt_ctx_create(&opts, &shared.ctx) ||
	    snt_mem_register(shared.ctx, shared.buffer, LENGTH, ACCESS, &shared.mem) ||
	    snt_mem_token(shared.mem, &shared.token))
		die("no context");
}

unsigned add_null(struct kind *kind, unsigned threads)
{
	static const struct {
		const char *name[2];
		work_fn run;
		double at_least;
	} row[] = {
		{ { "raw-one-device", "raw-own-device" }, run_raw_writes, 0 },
		{ { "null-one-device", "null-own-device" }, run_polled, LIMIT },
		{ { "ops-one-device", "ops-own-device" }, run_ops, LIMIT },
	};
	const unsigned rows = sizeof(row) / sizeof(row[0]);

	open_null_devices(threads);
	for (unsigned i = 0; i < 2 * rows; i++, kind++) {
		bool own = i % 2;

		*kind = (struct kind){ .name = row[i / 2].name[own],
				       .work.run = row[i / 2].run,
				       .duration_ns = DURATION_NS,
				       .busy = 1,
				       .at_least = row[i / 2].at_least };
		for (unsigned j = 0; j < threads; j++) {
			unsigned device = own ? j : 0;

			kind->load[j] =
				kind->work.run == run_raw_writes
					? (void *)make_raw(
						  snt_ctx_device(shared.ctx, device))
					: make_load(device, kind->work.run == run_ops);
		}
	}
	return 2 * rows;
}
