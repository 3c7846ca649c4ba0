/* SPDX-License-Identifier: MIT */
/*
 * There and back between two processes over soft devices, 64 bytes each way: waiting
 * with open eyes only, for a while before sleeping, as long as it pays off, and not at
 * all. The other process spins. Values are ns for the way there and back.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/cases.h"

#define BYTES 64
#define COUNT 20
#define DEPTH 16

struct end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	char buffer[4096];
};

static void open_latency_end(struct end *end, uint32_t ops, int with)
{
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts), .ops = ops };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .flags = SNT_QP_PASS_THROUGH,
				       .devices = 1 };
	struct snt_card ours, theirs;

	if (snt_ctx_create(&ctx_opts, &end->ctx) ||
	    snt_loop_create(end->ctx, NULL, &end->loop))
		die("no context");
	if (ops)
		cq_opts.loop = end->loop;
	if (snt_mem_register(end->ctx, end->buffer, sizeof(end->buffer),
			     SNT_ACCESS_LOCAL_WRITE, &end->mem) ||
	    snt_qp_create_with_cq(end->ctx, &cq_opts, &qp_opts, &end->cq, &end->qp) ||
	    snt_qp_card(end->qp, &ours))
		die("no end");
	if (send(with, &ours, sizeof(ours), 0) != sizeof(ours) ||
	    recv(with, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs) ||
	    snt_qp_connect(end->qp, &theirs))
		die("no connection");
}

/*
 * The other process
 */

static bool is_told_to_stop(int control)
{
	char word;

	return recv(control, &word, 1, MSG_DONTWAIT) == 1;
}

static void post_one_recv(struct end *end)
{
	struct snt_sge sge = { end->mem, end->buffer, BYTES };
	struct snt_recv_wr wr = { .sge = &sge, .sge_count = 1 };

	if (snt_qp_post_recv(end->qp, &wr, 1) != 1)
		die("no receive");
}

static void answer_message(struct end *end, const struct snt_wc *wc)
{
	struct snt_sge sge = { end->mem, end->buffer + 2048, BYTES };
	struct snt_send_wr wr = { .opcode = SNT_OP_SEND,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge };

	if (wc->opcode != SNT_OP_RECV)
		return;
	post_one_recv(end);
	if (snt_qp_post_send(end->qp, &wr, 1) != 1)
		die("no answer");
}

/* Spins from one word at the control socket to the next. */
static void echo_until_told(int control)
{
	static struct end end;
	char go;

	open_latency_end(&end, 0, control);
	for (int i = 0; i < DEPTH; i++)
		post_one_recv(&end);
	send(control, "", 1, 0);
	while (recv(control, &go, 1, 0) == 1)
		for (unsigned i = 1; i % 64 || !is_told_to_stop(control); i++) {
			struct snt_wc wc[4];
			int count = snt_cq_poll(end.cq, wc, 4);

			for (int n = 0; n < count; n++)
				answer_message(&end, &wc[n]);
		}
}

static int start_echo_process(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		bench_other_core();
		echo_until_told(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	return pair[0];
}

/*
 * This one
 */

static struct end here;
static int control;

struct way {
	int64_t spin_ns;
};

static void release_echo_process(void *arg)
{
	(void)arg;
	if (send(control, "", 1, 0) != 1)
		die("the other process is gone");
}

static void there_and_back(void *arg, unsigned count)
{
	const struct way *way = arg;
	static struct snt_op send_op, recv_op;
	struct snt_sge from = { here.mem, here.buffer, BYTES };
	struct snt_sge to = { here.mem, here.buffer + 2048, BYTES };

	snt_loop_set_spin(here.loop, way->spin_ns);
	for (unsigned i = 0; i < count; i++) {
		if (snt_op_recv(here.qp, &recv_op, &to) ||
		    snt_op_send(here.qp, &send_op, &from) ||
		    snt_op_wait(&recv_op, -1) || snt_op_wait(&send_op, -1))
			die("no answer");
	}
	release_echo_process(NULL);
}

void add_latency(struct bench *bench)
{
	static struct way spinning = { 1000000000 }, hybrid = { 200000 };
	static struct way adaptive = { SNT_SPIN_AUTO }, asleep = { 0 };
	char ready;

	control = start_echo_process();
	open_latency_end(&here, SNT_CQ_OPS_EVENTS, control);
	if (recv(control, &ready, 1, 0) != 1 || snt_loop_fd(here.loop) < 0)
		die("the other process is gone");
	bench_prepared_case(bench, "wait-spinning", release_echo_process,
			    there_and_back, &spinning, COUNT, NULL);
	bench_prepared_case(bench, "wait-hybrid", release_echo_process, there_and_back,
			    &hybrid, COUNT, "wait-spinning");
	bench_prepared_case(bench, "wait-adaptive", release_echo_process,
			    there_and_back, &adaptive, COUNT, "wait-spinning");
	bench_prepared_case(bench, "wait-asleep", release_echo_process, there_and_back,
			    &asleep, COUNT, "wait-spinning");
}
