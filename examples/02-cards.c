/* SPDX-License-Identifier: MIT */
/*
 * Two processes that know nothing of each other but a socket, which could as well lead to
 * another host. They tell each other their cards, which is all that it takes to connect
 * two virtual QPs, and one writes into the memory of the other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <sennit/sennit.h>

struct end {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token peer;
	char memory[64];
};

static void check(ssize_t ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "cards: %s: %s\n", what, snt_err_text());
	exit(1);
}

/* A length and so many bytes, both ways. Both ends send first, so neither waits. */
static size_t swap(int fd, const void *ours, uint32_t length, void *theirs)
{
	uint32_t coming;

	if (send(fd, &length, sizeof(length), 0) != sizeof(length) ||
	    send(fd, ours, length, 0) != length ||
	    recv(fd, &coming, sizeof(coming), MSG_WAITALL) != sizeof(coming) ||
	    coming > SNT_CARD_PACKED_MAX ||
	    recv(fd, theirs, coming, MSG_WAITALL) != coming) {
		fprintf(stderr, "cards: the other process is gone\n");
		exit(1);
	}
	return coming;
}

static void connect_ends(struct end *end, int fd)
{
	char ours[SNT_CARD_PACKED_MAX], theirs[SNT_CARD_PACKED_MAX];
	struct snt_token token;
	ssize_t length;

	/* snt_card_to_json() makes text of it, which people can read. */
	check(length = snt_qp_card_pack(end->qp, ours, sizeof(ours)), "our card");
	length = swap(fd, ours, length, theirs);
	check(snt_qp_connect_packed(end->qp, theirs, length), "connect");

	check(snt_mem_token(end->mem, &token), "our token");
	check(length = snt_token_pack(&token, ours, sizeof(ours)), "our token");
	check(snt_token_unpack(theirs, swap(fd, ours, length, theirs), &end->peer),
	      "their token");
}

static void open_end(struct end *end, int fd)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 2);
	struct snt_recv_wr notification = { .wr_id = 1 };

	check(snt_ctx_create(NULL, &end->ctx), "open");
	check(snt_mem_register(end->ctx, end->memory, sizeof(end->memory), access,
			       &end->mem),
	      "memory");
	check(snt_qp_create_with_cq(end->ctx, NULL, &opts, &end->cq, &end->qp), "QP");
	check(snt_qp_post_recv(end->qp, &notification, 1), "receive");
	connect_ends(end, fd);
}

static void close_end(struct end *end)
{
	struct snt_wc wc = { 0 };

	check(snt_qp_close(end->qp, 0), "close");
	while (wc.opcode != SNT_OP_CLOSED)
		check(snt_cq_poll(end->cq, &wc, 1), "poll");
	check(snt_qp_destroy(end->qp), "destroy");
	check(snt_cq_destroy(end->cq), "destroy");
	check(snt_mem_release(end->mem), "release");
	check(snt_ctx_destroy(end->ctx), "close");
}

static int await(struct end *end)
{
	struct snt_wc wc;
	int n;

	do
		check(n = snt_cq_poll(end->cq, &wc, 1), "poll");
	while (!n);
	if (wc.status)
		fprintf(stderr, "cards: %s\n", snt_wc_text(end->cq, &wc));
	return wc.status;
}

static int speak(struct end *end)
{
	struct snt_sge sge = { end->mem, end->memory, sizeof("hello, peer") };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE_IMM,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &end->peer,
				  .remote_addr = end->peer.addr };

	memcpy(end->memory, "hello, peer", sge.length);
	check(snt_qp_post_send(end->qp, &wr, 1), "write");
	return await(end);
}

static int listen_to(struct end *end)
{
	int failed = await(end) || strcmp(end->memory, "hello, peer");

	printf("notified, and the peer wrote: %s\n", end->memory);
	return failed;
}

int main(void)
{
	int pair[2], status, failed;
	struct end end = { 0 };
	pid_t child;

	/* Devices are opened after the fork: contexts do not survive it. */
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || (child = fork()) < 0)
		return 1;
	open_end(&end, pair[!child]);
	failed = child ? listen_to(&end) : speak(&end);
	close_end(&end);
	return failed || (child && (waitpid(child, &status, 0) < 0 || status));
}
