/* SPDX-License-Identifier: MIT */
#include "vqp/load.h"

#include <stdio.h>
#include <stdlib.h>

struct ground ground;

_Noreturn void die(const char *what)
{
	fprintf(stderr, "vqp: %s: %s\n", what, snt_err_text());
	exit(1);
}

void ground_lay(void)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	struct snt_adopted adopted = null_adopted(null_device_create("null0"));
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };

	if (snt_ctx_create(&opts, &ground.ctx) ||
	    snt_mem_register(ground.ctx, ground.buffer, BUFFER, access, &ground.mem) ||
	    snt_mem_token(ground.mem, &ground.token))
		die("cannot begin");
	ground.device = snt_ctx_device(ground.ctx, 0);
}

static void prepare_wrs(struct load *load, const struct load_opts *opts)
{
	uint64_t length = (uint64_t)opts->fragments * FRAGMENT / opts->sges;

	for (unsigned i = 0; i < opts->sges; i++)
		load->sge[i] = (struct snt_sge){ ground.mem, ground.buffer, length };
	for (unsigned i = 0; i < load->wrs; i++)
		load->wr[i] = (struct snt_send_wr){ .wr_id = i,
						    .opcode = opts->opcode,
						    .flags = SNT_SEND_SIGNALED,
						    .sge_count = opts->sges,
						    .imm = i + 1,
						    .sge = load->sge,
						    .remote = &ground.token,
						    .remote_addr = ground.token.addr };
}

void load_make(struct load *load, struct load_opts opts)
{
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .lanes = opts.lanes,
				       .flags = opts.flags,
				       .scheme = opts.scheme,
				       .fragment_size = FRAGMENT,
				       .send_sge_max = opts.sges,
				       .lane_depth = opts.depth ? opts.depth : 128,
				       .recv_depth = 2 * opts.depth };
	/* One physical CQ, as the baseline has. */
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts), .depth = 16384 };
	struct snt_card card;

	opts.sges += !opts.sges;
	load->wrs = opts.fragments == 1 ? WRS : WRS / 4;
	prepare_wrs(load, &opts);
	if (snt_qp_create_with_cq(ground.ctx, &cq_opts, &qp_opts, &load->cq,
				  &load->qp) ||
	    snt_qp_card(load->qp, &card) || snt_qp_connect(load->qp, &card))
		die("cannot make a QP");
}

static inline void poll_all(struct load *load)
{
	struct snt_wc wc[32];

	for (unsigned left = load->wrs; left;) {
		left -= snt_cq_poll(load->cq, wc, 32);
		bench_use(wc);
	}
}

void load_run(void *arg, unsigned count)
{
	struct load *load = arg;

	for (unsigned done = 0; done < count; done += load->wrs) {
		snt_qp_post_send(load->qp, load->wr, load->wrs);
		poll_all(load);
	}
}

void load_run_each(void *arg, unsigned count)
{
	struct load *load = arg;

	for (unsigned done = 0; done < count; done += load->wrs) {
		for (unsigned i = 0; i < load->wrs; i++)
			snt_qp_post_send(load->qp, &load->wr[i], 1);
		poll_all(load);
	}
}

void load_run_single(void *arg, unsigned count)
{
	struct load *load = arg;
	struct snt_wc wc;

	for (unsigned i = 0; i < count; i++) {
		snt_qp_post_send(load->qp, load->wr, 1);
		while (!snt_cq_poll(load->cq, &wc, 1))
			;
		bench_use(&wc);
	}
}

void raw_make(struct raw *raw, struct raw_opts opts)
{
	const struct snt_control *control = snt_device_control(ground.device);
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 512, .max_recv_wr = 512, .max_send_sge = 8 },
		.qp_type = IBV_QPT_RC,
	};

	*raw = (struct raw){ .lanes = opts.lanes,
			     .fragments = opts.fragments,
			     .notifies = opts.notifies,
			     .sges = opts.sges ? opts.sges : 1,
			     .wrs = opts.fragments == 1 ? WRS : WRS / 4,
			     .opcode = opts.opcode };
	if (control->create_cq(snt_device_context(ground.device), 8192, NULL, NULL, 0,
			       &raw->cq))
		die("no CQ");
	attr.send_cq = attr.recv_cq = raw->cq;
	for (unsigned i = 0; i < opts.lanes; i++) {
		struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT };
		struct ibv_recv_wr recv = { .wr_id = i }, *bad;

		if (control->create_qp(snt_device_pd(ground.device), &attr,
				       &raw->qp[i]))
			die("no QP");
		control->modify_qp(raw->qp[i], &init, IBV_QP_STATE);
		for (int j = 0; j < 512; j++)
			ibv_post_recv(raw->qp[i], &recv, &bad);
	}
}

void raw_run(void *arg, unsigned count)
{
	const struct raw *raw = arg;
	const unsigned posts = raw->wrs * (raw->fragments + raw->notifies);
	struct ibv_wc wc[32];

	for (unsigned done = 0; done < count; done += raw->wrs) {
		unsigned turn = 0;

		for (unsigned i = 0; i < posts; i++) {
			struct ibv_send_wr wr, *bad;
			struct ibv_sge sge[SGES_MAX];

			for (unsigned j = 0; j < raw->sges; j++) {
				sge[j].addr =
					(uintptr_t)ground.buffer + i % 16 * FRAGMENT;
				sge[j].length = FRAGMENT;
				sge[j].lkey = 1;
			}
			wr.wr_id = i;
			wr.next = NULL;
			wr.sg_list = sge;
			wr.num_sge = raw->sges;
			wr.opcode = raw->opcode;
			wr.send_flags = IBV_SEND_SIGNALED;
			wr.imm_data = i;
			wr.wr.rdma.remote_addr = (uintptr_t)ground.buffer;
			wr.wr.rdma.rkey = 2;
			ibv_post_send(raw->qp[turn], &wr, &bad);
			turn = turn + 1 == raw->lanes ? 0 : turn + 1;
		}
		while (ibv_poll_cq(raw->cq, 32, wc) > 0)
			bench_use(wc);
	}
}
