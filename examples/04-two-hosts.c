/* SPDX-License-Identifier: MIT */
/*
 * Messages from one host to another over all lanes of all devices, every byte checked.
 *
 *	04-two-hosts serve PORT         on one host
 *	04-two-hosts send HOST PORT     on the other
 *	04-two-hosts local              both ends on this host, as two processes
 *
 * A TCP connection carries what the ends must know of each other: a card and a token.
 * After that the sender writes into the receiver's memory, which it sees as SLOTS slots,
 * and the receiver says with an empty write in return which slot it has read.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <sennit/sennit.h>

#define SLOTS	 4u
#define SLOT	 ((size_t)16 << 20)
#define MESSAGES 64u

struct end {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token peer;
	unsigned char *memory;
};

static void check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "two-hosts: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void expect(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

/* Both ends send first and read then, so neither waits for the other. */
static size_t exchange(int tcp, const void *ours, uint32_t length, void *theirs)
{
	uint32_t of_peer;

	expect(write(tcp, &length, sizeof(length)) == sizeof(length) &&
		       write(tcp, ours, length) == length,
	       "telling the peer");
	expect(recv(tcp, &of_peer, sizeof(of_peer), MSG_WAITALL) == sizeof(of_peer) &&
		       of_peer <= SNT_CARD_PACKED_MAX &&
		       recv(tcp, theirs, of_peer, MSG_WAITALL) == of_peer,
	       "what the peer tells");
	return of_peer;
}

static void connect_ends(struct end *end, int tcp)
{
	unsigned char ours[SNT_CARD_PACKED_MAX], theirs[SNT_CARD_PACKED_MAX];
	struct snt_card card;
	struct snt_token token;
	ssize_t length;

	check(snt_qp_card(end->qp, &card), "card");
	check(length = snt_card_pack(&card, ours, sizeof(ours)), "card");
	check(snt_card_unpack(theirs, exchange(tcp, ours, length, theirs), &card),
	      "the peer's card");
	check(snt_qp_connect(end->qp, &card), "connect");
	check(snt_mem_token(end->mem, &token), "token");
	check(length = snt_token_pack(&token, ours, sizeof(ours)), "token");
	check(snt_token_unpack(theirs, exchange(tcp, ours, length, theirs), &end->peer),
	      "the peer's token");
}

static void post_receives(struct end *end, unsigned count)
{
	struct snt_recv_wr wr = { 0 };

	while (count--)
		check(snt_qp_post_recv(end->qp, &wr, 1), "receive");
}

static void open_end(struct end *end, int tcp)
{
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 4 };

	expect(!!(end->memory = aligned_alloc(4096, SLOTS * SLOT)), "memory");
	check(snt_ctx_open(NULL, &end->ctx), "open");
	check(snt_mem_register(end->ctx, end->memory, SLOTS * SLOT,
			       SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
			       &end->mem),
	      "register");
	check(snt_qp_create_with_cq(end->ctx, NULL, &opts, &end->cq, &end->qp), "QP");
	post_receives(end, SLOTS); /* before the peer can send */
	connect_ends(end, tcp);
}

static void close_end(struct end *end)
{
	struct snt_wc wc = { 0 };

	check(snt_qp_close(end->qp, 0), "close");
	while (wc.opcode != SNT_CLOSED)
		check(snt_cq_poll(end->cq, &wc, 1), "poll");
	check(snt_qp_destroy(end->qp), "destroy");
	check(snt_cq_destroy(end->cq), "destroy");
	check(snt_mem_release(end->mem), "release");
	check(snt_ctx_close(end->ctx), "close");
	free(end->memory);
}

/* The immediate of the next notification. */
static unsigned await(struct end *end)
{
	struct snt_wc wc = { 0 };

	do {
		check(snt_cq_poll(end->cq, &wc, 1), "poll");
		if (wc.status) {
			fprintf(stderr, "two-hosts: %s\n", snt_status_text(wc.status));
			exit(1);
		}
	} while (wc.opcode != SNT_RECV_NOTIFY);
	post_receives(end, 1);
	return wc.imm;
}

static void notify(struct end *end, unsigned message, size_t length)
{
	size_t at = message % SLOTS * SLOT;
	struct snt_sge sge = { end->mem, end->memory + at, length };
	struct snt_send_wr wr = { .opcode = SNT_WRITE_IMM,
				  .flags = SNT_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .imm = message,
				  .remote = &end->peer,
				  .remote_addr = end->peer.addr + at };

	check(snt_qp_post_send(end->qp, &wr, 1), "send");
}

static uint64_t word_of(unsigned message, size_t index)
{
	return (message + 1) * UINT64_C(0x9e3779b97f4a7c15) + index;
}

static void fill(struct end *end, unsigned message)
{
	uint64_t *word = (uint64_t *)(end->memory + message % SLOTS * SLOT);

	for (size_t i = 0; i < SLOT / sizeof(*word); i++)
		word[i] = word_of(message, i);
}

static size_t wrong_words(const struct end *end, unsigned message)
{
	const uint64_t *word = (const uint64_t *)(end->memory + message % SLOTS * SLOT);
	size_t wrong = 0;

	for (size_t i = 0; i < SLOT / sizeof(*word); i++)
		wrong += word[i] != word_of(message, i);
	return wrong;
}

static void show_lanes(const struct end *end)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };
	struct snt_device_info device = { .size = sizeof(device) };

	for (unsigned i = 0; !snt_qp_lane(end->qp, i, &lane); i++) {
		check(snt_device_query(snt_ctx_device(end->ctx, lane.device), &device),
		      "device");
		printf("  lane %u  %-10s %6llu fragments %8.1f MiB%s\n", i, device.name,
		       (unsigned long long)lane.fragments, lane.bytes / 1048576.0,
		       i < snt_qp_lanes(end->qp) ? "" : "  (notifications)");
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static int send_all(int tcp)
{
	struct end end = { 0 };
	double begin;

	open_end(&end, tcp);
	begin = seconds();
	for (unsigned message = 0; message < MESSAGES; message++) {
		if (message >= SLOTS)
			await(&end);
		fill(&end, message);
		notify(&end, message, SLOT);
	}
	for (unsigned message = 0; message < SLOTS; message++)
		await(&end);
	printf("sent %u messages of %zu MiB over %u lanes on %u devices, %.0f MiB/s with "
	       "filling and checking:\n",
	       MESSAGES, SLOT >> 20, snt_qp_lanes(end.qp),
	       snt_ctx_device_count(end.ctx),
	       MESSAGES * (SLOT >> 20) / (seconds() - begin));
	show_lanes(&end);
	expect(write(tcp, "", 1) == 1, "saying goodbye");
	close_end(&end);
	return 0;
}

static int receive_all(int tcp)
{
	struct end end = { 0 };
	size_t wrong = 0;
	char goodbye;

	open_end(&end, tcp);
	for (unsigned message = 0; message < MESSAGES; message++) {
		wrong += await(&end) != message;
		wrong += wrong_words(&end, message);
		notify(&end, message, 0);
	}
	/* An end that closes takes its lanes away: not before the peer has all it needs. */
	expect(recv(tcp, &goodbye, 1, 0) == 1, "waiting for the peer's end");
	printf("received %u messages in order, each byte compared: %s\n", MESSAGES,
	       wrong ? "WRONG" : "all as sent");
	close_end(&end);
	return !!wrong;
}

static int local(void)
{
	int pair[2], status;
	pid_t child;

	expect(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	child = fork();
	expect(child >= 0, "fork");
	close(pair[!!child]);
	if (!child)
		return receive_all(pair[1]);
	status = send_all(pair[0]);
	close(pair[0]);
	expect(waitpid(child, &child, 0) > 0, "waitpid");
	return status || child;
}

static int tcp_socket(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = host ? 0 : AI_PASSIVE };
	struct addrinfo *found;
	int one = 1, fd, error = getaddrinfo(host, port, &hints, &found);

	if (error) {
		fprintf(stderr, "two-hosts: %s: %s\n", host ? host : port,
			gai_strerror(error));
		exit(1);
	}
	fd = socket(found->ai_family, SOCK_STREAM, 0);
	expect(fd >= 0, "socket");
	if (host) {
		expect(!connect(fd, found->ai_addr, found->ai_addrlen), host);
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		expect(!bind(fd, found->ai_addr, found->ai_addrlen) && !listen(fd, 1) &&
			       (fd = accept(fd, NULL, NULL)) >= 0,
		       port);
	}
	freeaddrinfo(found);
	return fd;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "local"))
		return local();
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return receive_all(tcp_socket(NULL, argv[2]));
	if (argc == 4 && !strcmp(argv[1], "send"))
		return send_all(tcp_socket(argv[2], argv[3]));
	fprintf(stderr, "usage: %s serve PORT | send HOST PORT | local\n", argv[0]);
	return 2;
}
