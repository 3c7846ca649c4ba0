/* SPDX-License-Identifier: MIT */
#include "soft/end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* What one end tells the other. */
struct card {
	uint8_t gid[16];
	uint64_t addr;
	uint32_t key, qpn;
};

_Noreturn void die(const char *what)
{
	fprintf(stderr, "soft: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void check_verb(int ret, const char *what)
{
	if (ret)
		die(what);
}

static struct card card_of(const struct end *end)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct card card = { .addr = (uintptr_t)end->bytes,
			     .key = end->mr->rkey,
			     .qpn = end->qp->qp_num };

	check_verb(snt_device_query_gid(end->device, 0, &gid), "gid");
	memcpy(card.gid, gid.raw, sizeof(card.gid));
	return card;
}

static void connect_end_qp(struct end *end, const struct card *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.timeout = 17, /* nothing gets lost, but the machine may be busy */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 },
	};

	memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
	check_verb(end->control->modify_qp(end->qp, &attr,
					   IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						   IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		   "INIT");
	attr.qp_state = IBV_QPS_RTR;
	check_verb(end->control->modify_qp(end->qp, &attr,
					   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						   IBV_QP_MAX_DEST_RD_ATOMIC |
						   IBV_QP_MIN_RNR_TIMER),
		   "RTR");
	attr.qp_state = IBV_QPS_RTS;
	check_verb(end->control->modify_qp(end->qp, &attr,
					   IBV_QP_STATE | IBV_QP_TIMEOUT |
						   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						   IBV_QP_SQ_PSN |
						   IBV_QP_MAX_QP_RD_ATOMIC),
		   "RTS");
	end->peer_addr = peer->addr;
	end->peer_key = peer->key;
}

void end_make(struct end *end, struct snt_device *device, unsigned qps, void *bytes)
{
	end->device = device;
	end->told = end->heard = 0;
	end->control = snt_device_control(device);
	end->bytes = bytes;
	if (!end->bytes)
		die("memory");
	memset(end->bytes, 1, END_BYTES);
	check_verb(end->control->create_cq(snt_device_context(device),
					   2 * END_DEPTH * qps, NULL, NULL, 0,
					   &end->cq),
		   "CQ");
	check_verb(end->control->reg_mr(snt_device_pd(device), end->bytes, END_BYTES,
					ACCESS, &end->mr),
		   "MR");
}

void end_add_qp(struct end *end, uint32_t depth)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { depth, depth, 1, 1, 64 },
		.send_cq = end->cq,
		.recv_cq = end->cq,
	};

	check_verb(end->control->create_qp(snt_device_pd(end->device), &init, &end->qp),
		   "QP");
}

void end_meet(struct end *end, int with)
{
	struct card ours = card_of(end), theirs;

	if (write(with, &ours, sizeof(ours)) != sizeof(ours) ||
	    read(with, &theirs, sizeof(theirs)) != sizeof(theirs))
		die("the other process is gone");
	connect_end_qp(end, &theirs);
}

void end_pair(struct end *one, struct end *other)
{
	struct card of_one = card_of(one), of_other = card_of(other);

	connect_end_qp(one, &of_other);
	connect_end_qp(other, &of_one);
}

static void open_with(struct end *end, int with, bool made)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts), .soft = SNT_SOFT_ONLY };
	struct snt_mem *mem = NULL;
	struct snt_ctx *ctx;

	check_verb(snt_ctx_create(&opts, &ctx), "open");
	if (made)
		check_verb(snt_mem_alloc(ctx, END_BYTES, SNT_ACCESS_LOCAL_WRITE, &mem),
			   "memory");
	end_make(end, snt_ctx_device(ctx, 0), 1,
		 made ? (void *)(uintptr_t)snt_mem_addr(mem)
		      : aligned_alloc(4096, END_BYTES));
	end_add_qp(end, END_DEPTH);
	end_meet(end, with);
}

void end_open(struct end *end, int with)
{
	open_with(end, with, false);
}

void end_open_made(struct end *end, int with)
{
	open_with(end, with, true);
}

static void post_write(struct end *end, uint32_t length, unsigned count,
		       enum ibv_wr_opcode opcode, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)end->bytes, length, end->mr->lkey };
	struct ibv_send_wr wr[END_BATCH], *bad;

	for (unsigned i = 0; i < count; i++) {
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = i + 1 < count ? 0 : flags,
		};
		wr[i].wr.rdma.remote_addr = end->peer_addr;
		wr[i].wr.rdma.rkey = end->peer_key;
	}
	if (ibv_post_send(end->qp, wr, &bad))
		die("post");
}

void end_post_write(struct end *end, uint32_t length, unsigned count)
{
	post_write(end, length, count, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
}

static void check_completion(const struct ibv_wc *wc)
{
	if (wc->status)
		die(ibv_wc_status_str(wc->status));
}

bool end_poll(struct end *end)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(end->cq, 1, &wc) != 1)
		return false;
	check_completion(&wc);
	return true;
}

void end_wait(struct end *end, unsigned count)
{
	while (count)
		count -= end_poll(end);
}

static void post_recvs(struct end *end, unsigned count)
{
	struct ibv_recv_wr wr[END_BATCH], *bad;

	for (unsigned i = 0; i < count; i++)
		wr[i] = (struct ibv_recv_wr){ .next = i + 1 < count ? &wr[i + 1]
								    : NULL };
	if (ibv_post_recv(end->qp, wr, &bad))
		die("post");
}

void end_expect(struct end *end)
{
	for (unsigned i = 0; i < END_DEPTH / END_BATCH; i++)
		post_recvs(end, END_BATCH);
}

void end_notify(struct end *end, uint32_t length)
{
	bool signals = ++end->told % END_BATCH == 0;

	post_write(end, length, 1, IBV_WR_RDMA_WRITE_WITH_IMM,
		   signals ? IBV_SEND_SIGNALED : 0);
}

bool end_notified(struct end *end)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(end->cq, 1, &wc) != 1)
		return false;
	check_completion(&wc);
	if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
		return false;
	if (++end->heard % END_BATCH == 0)
		post_recvs(end, END_BATCH);
	return true;
}
