/* SPDX-License-Identifier: MIT */
/*
 * A message over all lanes of all devices, with one notification at its end. Both
 * ends live in this process for the sake of brevity; between two hosts only the
 * exchange of cards and of the token would differ.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#define LENGTH (16u << 20)
#define LANES  4

struct end {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	unsigned char *buffer;
};

static void check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "virtual-qp: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void open_end(struct end *end)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	struct snt_qp_opts opts =
		SNT_INIT(opts, .lanes = LANES, .fragment_size = 256 << 10);

	end->buffer = calloc(1, LENGTH);
	check(snt_ctx_create(NULL, &end->ctx), "open");
	check(snt_mem_register(end->ctx, end->buffer, LENGTH, access, &end->mem),
	      "memory");
	check(snt_qp_create_with_cq(end->ctx, NULL, &opts, &end->cq, &end->qp), "QP");
}

static struct snt_wc await(struct end *here, struct end *there)
{
	struct snt_wc wc;

	/* Nothing moves by itself: both ends are polled. */
	while (!snt_cq_poll(here->cq, &wc, 1))
		if (snt_cq_poll(there->cq, &wc, 1))
			return wc;
	return wc;
}

static void close_end(struct end *end)
{
	struct snt_wc wc = { 0 };

	check(snt_qp_close(end->qp, 0), "close");
	while (wc.opcode != SNT_OP_CLOSED)
		check(snt_cq_poll(end->cq, &wc, 1), "poll");
	snt_qp_destroy(end->qp);
	snt_cq_destroy(end->cq);
	snt_mem_release(end->mem);
	snt_ctx_destroy(end->ctx);
	free(end->buffer);
}

static void show_lanes(const struct end *end)
{
	struct snt_lane_info lane = SNT_INIT(lane);
	struct snt_device_info device = SNT_INIT(device);

	for (unsigned i = 0; !snt_qp_query_lane(end->qp, i, &lane); i++) {
		snt_device_query(snt_ctx_device(end->ctx, lane.device), &device);
		printf("  lane %u on %-8s %4llu fragments %10llu bytes %4llu doorbells%s\n",
		       i, device.name, (unsigned long long)lane.fragments,
		       (unsigned long long)lane.bytes,
		       (unsigned long long)lane.doorbells,
		       i < snt_qp_lane_count(end->qp) ? "" : "  (notifications)");
	}
}

int main(void)
{
	struct end sender = { 0 }, receiver = { 0 };
	struct snt_card ours, theirs;
	struct snt_token token;
	struct snt_recv_wr recv = { .wr_id = 7 };
	struct snt_wc wc;
	int failed;

	open_end(&sender);
	open_end(&receiver);
	check(snt_qp_card(sender.qp, &ours), "card");
	check(snt_qp_card(receiver.qp, &theirs), "card");
	check(snt_qp_connect(sender.qp, &theirs), "connect");
	check(snt_qp_connect(receiver.qp, &ours), "connect");
	check(snt_mem_token(receiver.mem, &token), "token");
	for (unsigned i = 0; i < LENGTH; i++)
		sender.buffer[i] = i * 7 + i / 4093;

	struct snt_sge sge = { sender.mem, sender.buffer, LENGTH };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE_IMM,
				  .sge = &sge,
				  .sge_count = 1,
				  .imm = 2026,
				  .remote = &token,
				  .remote_addr = token.addr };

	check(snt_qp_post_recv(receiver.qp, &recv, 1), "receive");
	check(snt_qp_post_send(sender.qp, &wr, 1), "send");
	wc = await(&sender, &receiver);
	failed = wc.status || wc.imm != 2026 ||
		 memcmp(sender.buffer, receiver.buffer, LENGTH);
	printf("%u MiB over %u lanes, notified with %u, %s\n", LENGTH >> 20,
	       snt_qp_lane_count(sender.qp), wc.imm,
	       wc.status ? snt_wc_text(receiver.cq, &wc)
	       : failed	 ? "FAILED"
			 : "every byte as sent");
	show_lanes(&sender);
	close_end(&sender);
	close_end(&receiver);
	return failed;
}
