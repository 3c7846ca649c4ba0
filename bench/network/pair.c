/* SPDX-License-Identifier: MIT */
#include "network/pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <sennit/control.h>

#include "lib/rc.h"
#include "lib/sim/device.h"

#define MBPS	10000
#define MTU	4096
#define RUN	65000 /* what sockets take at once */
#define DEPTH	32
#define LATE_NS 50000
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

struct pair_end {
	struct snt__sim_device *sim;
	const struct snt_control *control;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	unsigned char *bytes;
};

struct pair {
	const struct pair_opts *opts;
	struct snt__sim *sim;
	struct pair_end end[2];
	uint64_t completed;
	uint64_t completed_at;
	uint64_t silence_ns;
};

static void check_pair_call(int ret, const char *what)
{
	if (!ret)
		return;
	fprintf(stderr, "network: %s: %s\n", what, strerror(ret < 0 ? -ret : ret));
	exit(1);
}

static void open_pair_end(struct pair *pair, struct pair_end *end)
{
	/* The device waits for its cable; what happens to packets happens behind it. */
	const struct snt__sim_link_opts cable = { .mbps = MBPS }, path = {
		.delay_ns = pair->opts->delay_ns,
		.loss = pair->opts->loss,
		.reorder = pair->opts->reorder,
		.late_ns = LATE_NS,
	};
	const struct snt__sim_device_opts opts = {
		.out = &cable,
		.in = &path,
		.config = { .run_bytes = RUN, .nak_once = pair->opts->like_rxe },
	};
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct snt__sim_host *host;

	check_pair_call(snt__sim_host_create(pair->sim, &host), "a host");
	check_pair_call(snt__sim_device_create(host, &opts, &end->sim), "a device");
	end->control = end->sim->adopted->control;
	end->pd = end->sim->adopted->pd;
	end->bytes = calloc(1, pair->opts->message);
	check_pair_call(end->bytes ? 0 : ENOMEM, "memory");
	check_pair_call(end->control->reg_mr(end->pd, end->bytes, pair->opts->message,
					     ACCESS, &end->mr),
			"memory");
	check_pair_call(end->control->create_cq(end->sim->adopted->context, DEPTH, NULL,
						NULL, 0, &end->cq),
			"a CQ");
	init.send_cq = init.recv_cq = end->cq;
	init.cap = (struct ibv_qp_cap){ .max_send_wr = DEPTH, .max_send_sge = 1 };
	check_pair_call(end->control->create_qp(end->pd, &init, &end->qp), "a QP");
}

static void connect_pair_end(const struct pair_end *end, const struct pair_end *peer)
{
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 },
	};
	struct ibv_gid_entry gid;

	check_pair_call(peer->control->query_gid(peer->sim->adopted->context, 1, 0,
						 &gid),
			"a GID");
	attr.ah_attr.grh.dgid = gid.gid;
	for (attr.qp_state = IBV_QPS_INIT; attr.qp_state <= IBV_QPS_RTS;
	     attr.qp_state++)
		check_pair_call(end->control->modify_qp(end->qp, &attr,
							rc_mask(attr.qp_state)),
				"connecting");
}

static void post_pair_write(struct pair *pair)
{
	const struct pair_end *from = &pair->end[0], *to = &pair->end[1];
	struct ibv_sge sge = { .addr = (uintptr_t)from->bytes,
			       .length = pair->opts->message,
			       .lkey = from->mr->lkey };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = (uintptr_t)to->bytes,
			     .rkey = to->mr->rkey },
	};
	struct ibv_send_wr *bad;

	check_pair_call(ibv_post_send(from->qp, &wr, &bad), "posting");
}

/* A message that completes makes room for the next one. */
static void poll_pair_writes(struct pair *pair)
{
	uint64_t now = snt__sim_now(pair->sim);
	struct ibv_wc wc;

	while (ibv_poll_cq(pair->end[0].cq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "network: a WRITE: %s\n",
				ibv_wc_status_str(wc.status));
			exit(1);
		}
		if (now - pair->completed_at > pair->silence_ns)
			pair->silence_ns = now - pair->completed_at;
		pair->completed_at = now;
		pair->completed++;
		post_pair_write(pair);
	}
}

static void close_pair_end(struct pair_end *end)
{
	check_pair_call(end->control->destroy_qp(end->qp), "destroying a QP");
	check_pair_call(end->control->destroy_cq(end->cq), "destroying a CQ");
	check_pair_call(end->control->dereg_mr(end->mr), "deregistering");
	free(end->bytes);
}

/* How many packets, since messages are long. PSNs begin at 0 and do not wrap. */
static uint32_t count_received(const struct pair_end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	check_pair_call(end->control->query_qp(end->qp, &attr, IBV_QP_RQ_PSN, &init),
			"a query");
	return attr.rq_psn;
}

struct pair_result pair_run(const struct pair_opts *opts, uint64_t time_ns,
			    uint64_t messages)
{
	struct pair pair = { .opts = opts };
	struct pair_result result;

	check_pair_call(snt__sim_create(&(struct snt__sim_opts){ .seed = opts->seed },
					&pair.sim),
			"a simulation");
	for (unsigned i = 0; i < 2; i++)
		open_pair_end(&pair, &pair.end[i]);
	for (unsigned i = 0; i < 2; i++)
		connect_pair_end(&pair.end[i], &pair.end[!i]);
	for (unsigned i = 0; i < DEPTH; i++)
		post_pair_write(&pair);
	while ((!time_ns || snt__sim_now(pair.sim) < time_ns) &&
	       (!messages || pair.completed < messages) && snt__sim_step(pair.sim))
		poll_pair_writes(&pair);
	result.silence_ns = pair.silence_ns;
	result.share = (double)count_received(&pair.end[1]) * MTU * 8e3 / MBPS /
		       (double)snt__sim_now(pair.sim);
	for (unsigned i = 0; i < 2; i++)
		close_pair_end(&pair.end[i]);
	check_pair_call(snt__sim_destroy(pair.sim), "ending a simulation");
	return result;
}
