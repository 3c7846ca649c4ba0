/* SPDX-License-Identifier: MIT */
/*
 * How evenly the QPs of one virtual CQ are served: two processes, 64 QPs between them through
 * shared memory, and a number of ops on each at all times. A value is what the least served
 * QP had of the most served one's, in percent.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "lib/bench.h"

#define QPS	  64
#define DEPTH_MAX 64
#define LENGTH	  64
#define RUN_NS	  UINT64_C(300000000)
#define ACCESS	  (SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE)

/* What one process tells the other. */
struct cards {
	struct snt_card card[QPS];
	struct snt_token token;
};

struct busy_qp {
	struct snt_qp *qp;
	struct snt_op op[DEPTH_MAX];
	uint64_t served;
};

static struct {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_mem *mem;
	struct busy_qp qp[QPS];
	struct cards peer;
	unsigned char bytes[LENGTH];
	unsigned in_flight;
	bool ending;
} end;

static void check_call(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "fair: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void open_fair_end(int with)
{
	static struct cards ours;
	struct snt_ctx_opts opts = { .size = sizeof(opts), .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .flags = SNT_QP_PASS_THROUGH,
				       .retry_count = 7 };

	check_call(snt_ctx_create(&opts, &end.ctx), "a context");
	check_call(snt_loop_create(end.ctx, NULL, &end.loop), "a loop");
	cq_opts.loop = end.loop;
	check_call(snt_cq_create(end.ctx, &cq_opts, &qp_opts.cq), "a CQ");
	check_call(snt_mem_register(end.ctx, end.bytes, sizeof(end.bytes), ACCESS,
				    &end.mem),
		   "memory");
	check_call(snt_mem_token(end.mem, &ours.token), "a token");
	for (unsigned i = 0; i < QPS; i++) {
		check_call(snt_qp_create(end.ctx, &qp_opts, &end.qp[i].qp), "a QP");
		check_call(snt_qp_card(end.qp[i].qp, &ours.card[i]), "a card");
	}
	if (send(with, &ours, sizeof(ours), 0) != sizeof(ours) ||
	    recv(with, &end.peer, sizeof(end.peer), MSG_WAITALL) != sizeof(end.peer)) {
		fprintf(stderr, "fair: the other process is gone\n");
		exit(1);
	}
	for (unsigned i = 0; i < QPS; i++)
		check_call(snt_qp_connect(end.qp[i].qp, &end.peer.card[i]),
			   "connecting");
}

static void post_busy_write(struct busy_qp *qp, struct snt_op *op)
{
	struct snt_sge sge = { end.mem, end.bytes, LENGTH };

	check_call(snt_op_write(qp->qp, op, &sge, &end.peer.token, end.peer.token.addr),
		   "a write");
	end.in_flight++;
}

static void write_done(struct snt_op *op)
{
	struct busy_qp *qp = op->arg;

	check_call(op->result, "an op");
	end.in_flight--;
	qp->served++;
	if (!end.ending)
		post_busy_write(qp, op);
}

/* Returns the least served QP's share. */
static double run_depth(unsigned depth)
{
	uint64_t begin = snt_loop_now(end.loop), least = UINT64_MAX, most = 1;

	end.ending = false;
	for (unsigned i = 0; i < QPS; i++) {
		end.qp[i].served = 0;
		for (unsigned n = 0; n < depth; n++) {
			end.qp[i].op[n].done = write_done;
			end.qp[i].op[n].arg = &end.qp[i];
			post_busy_write(&end.qp[i], &end.qp[i].op[n]);
		}
	}
	while (snt_loop_now(end.loop) - begin < RUN_NS)
		check_call(snt_loop_wait(end.loop, 1000000), "the loop");
	for (unsigned i = 0; i < QPS; i++) {
		least = end.qp[i].served < least ? end.qp[i].served : least;
		most = end.qp[i].served > most ? end.qp[i].served : most;
	}
	end.ending = true;
	while (end.in_flight)
		check_call(snt_loop_wait(end.loop, 1000000), "the loop");
	return 100.0 * (double)least / (double)most;
}

/* The other process: its device does all the work. */
static _Noreturn void serve_other_process(int with)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bench_other_core();
	open_fair_end(with);
	recv(with, &byte, 1, 0);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const char *const cases[] = { "depth-1", "depth-2",  "depth-4",
					     "depth-8", "depth-16", "depth-32",
					     "depth-64" };
	struct bench *bench = bench_begin("fair", argc, argv);
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) {
		perror("fair: socketpair");
		return 1;
	}
	if (!fork()) {
		close(sockets[0]);
		serve_other_process(sockets[1]);
	}
	close(sockets[1]);
	open_fair_end(sockets[0]);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (bench_wants(bench, cases[i]))
			bench_value(bench, cases[i], run_depth(1u << i), "%", NULL);
	return bench_end(bench);
}
