/* SPDX-License-Identifier: MIT */
/*
 * Plain verbs on sennit's devices and memory: on each device two queue pairs
 * are connected with each other, one half of a buffer is written into the other
 * with an immediate at the end, and every byte is compared.
 *
 * This is what a virtual queue pair spares its users.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sennit/sennit.h>

#define HALF	(1u << 20)
#define IMM	0x5e9917
#define SECONDS 20

struct pair {
	const struct snt_control *control;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
};

static char buffer[2 * HALF];

static int connect_qp(const struct pair *pair, int which,
		      const struct snt_device_info *info,
		      const struct snt_gid_info *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = info->port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};
	int ret;

	ret = pair->control->modify_qp(pair->qp[which], &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS);
	if (ret)
		return ret;
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = __builtin_ctz(info->mtu) - 7; /* 256 is 1, 4096 is 5 */
	attr.dest_qp_num = pair->qp[!which]->qp_num;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.port_num = info->port;
	attr.ah_attr.dlid = info->lid;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.sgid_index = gid->index;
	attr.ah_attr.grh.hop_limit = 64;
	memcpy(attr.ah_attr.grh.dgid.raw, gid->raw, sizeof(gid->raw));
	ret = pair->control->modify_qp(pair->qp[which], &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER);
	if (ret)
		return ret;
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 6;
	attr.rnr_retry = 6;
	attr.max_rd_atomic = 1;
	return pair->control->modify_qp(pair->qp[which], &attr,
					IBV_QP_STATE | IBV_QP_TIMEOUT |
						IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN |
						IBV_QP_MAX_QP_RD_ATOMIC);
}

static int create_pair(struct pair *pair, struct snt_device *device)
{
	int ret;

	pair->control = snt_device_control(device);
	ret = pair->control->create_cq(snt_device_context(device), 8, NULL, NULL, 0,
				       &pair->cq);
	for (int i = 0; !ret && i < 2; i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = pair->cq,
			.recv_cq = pair->cq,
			.cap = { .max_send_wr = 4,
				 .max_recv_wr = 4,
				 .max_send_sge = 1,
				 .max_recv_sge = 1 },
			.qp_type = IBV_QPT_RC,
		};

		ret = pair->control->create_qp(snt_device_pd(device), &attr,
					       &pair->qp[i]);
	}
	return ret;
}

static void destroy_pair(struct pair *pair)
{
	for (int i = 0; i < 2; i++)
		if (pair->qp[i])
			pair->control->destroy_qp(pair->qp[i]);
	if (pair->cq)
		pair->control->destroy_cq(pair->cq);
}

/* Both the sender's and the receiver's completion, in any order. */
static int await_both(struct pair *pair)
{
	time_t deadline = time(NULL) + SECONDS;
	int seen = 0;

	while (seen < 2 && time(NULL) < deadline) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(pair->cq, 1, &wc);

		if (n < 0)
			return -1;
		if (n && wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n",
				ibv_wc_status_str(wc.status));
			return -1;
		}
		if (n && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data != IMM)
			return -1;
		seen += n;
	}
	return seen == 2 ? 0 : -1;
}

static int write_across(struct pair *pair, const struct snt_mem *mem, unsigned index)
{
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .num_sge = 1, .imm_data = IMM };
	struct ibv_send_wr *bad_send;
	struct snt_token token;
	struct ibv_sge sge;

	send.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	send.send_flags = IBV_SEND_SIGNALED;
	send.sg_list = &sge;
	for (unsigned i = 0; i < HALF; i++)
		buffer[i] = i * 7 + i / 251 + index;
	memset(buffer + HALF, 0, HALF);
	if (snt_mem_token(mem, &token) || snt_mem_sge(mem, index, 0, HALF, &sge) ||
	    snt_token_target(&token, index, HALF, HALF, SNT_ACCESS_REMOTE_WRITE,
			     &send.wr.rdma.remote_addr, &send.wr.rdma.rkey))
		return -1;
	if (ibv_post_recv(pair->qp[1], &recv, &bad_recv) ||
	    ibv_post_send(pair->qp[0], &send, &bad_send))
		return -1;
	return await_both(pair) || memcmp(buffer, buffer + HALF, HALF) ? -1 : 0;
}

static int run_device(struct snt_device *device, const struct snt_mem *mem,
		      unsigned index)
{
	struct snt_device_info info = { .size = sizeof(info) };
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct pair pair = { 0 };
	struct timespec from, to;
	int ret;

	snt_device_query(device, &info);
	for (unsigned i = 0; !snt_device_query_gid(device, i, &gid); i++)
		if ((int32_t)gid.index == info.gid_index)
			break;
	ret = create_pair(&pair, device);
	if (!ret)
		ret = connect_qp(&pair, 0, &info, &gid);
	if (!ret)
		ret = connect_qp(&pair, 1, &info, &gid);
	clock_gettime(CLOCK_MONOTONIC, &from);
	if (!ret)
		ret = write_across(&pair, mem, index);
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%-10s port %u  MTU %4u  GID %-38s  1 MiB written in %6.2f ms: %s\n",
	       info.name, info.port, info.mtu, gid.text,
	       (to.tv_sec - from.tv_sec) * 1e3 + (to.tv_nsec - from.tv_nsec) / 1e6,
	       ret ? "FAILED" : "every byte as sent");
	destroy_pair(&pair);
	return ret;
}

int main(void)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	struct snt_ctx *ctx = NULL;
	struct snt_mem *mem = NULL;
	int failed = 0;

	if (snt_ctx_create(NULL, &ctx) ||
	    snt_mem_register(ctx, buffer, sizeof(buffer), access, &mem)) {
		fprintf(stderr, "plain-verbs: %s\n", snt_err_text());
		return 1;
	}
	for (unsigned i = 0; i < snt_ctx_device_count(ctx); i++)
		failed |= run_device(snt_ctx_device(ctx, i), mem, i);
	snt_mem_release(mem);
	return snt_ctx_destroy(ctx) || failed ? 1 : 0;
}
