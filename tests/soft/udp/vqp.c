/* SPDX-License-Identifier: MIT */
/*
 * A virtual QP between two processes: messages of all sizes over four lanes, both ways at
 * once, each with its notification, and every byte compared.
 *
 *	udp_vqp [--a DEVICES] [--b DEVICES] [--scheme spray|dqplb] [--rounds N]
 *		[--timeout CODE] [--faults LOST,DOUBLED,LATE,FULL]
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/udp_faults.h"
#include "lib/udp_peer.h"

#define LANES	4
#define BYTES	(4u << 20)
#define PERIOD	16 /* messages that are on their way together */
#define SECONDS 120

struct end {
	struct peer peer;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	uint8_t *out, *in;
};

static void must(const struct end *end, int ret, const char *what)
{
	if (ret < 0)
		peer_fail(&end->peer, "%s: %s", what, snt_err_text());
}

static void open_end(struct end *end, const struct peer_opts *opts,
		     enum snt_scheme scheme)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .lanes = LANES,
				       .scheme = scheme,
				       .timeout = opts->timeout,
				       .fragment_size = 64 << 10 };
	struct snt_card ours, theirs;
	struct snt_token token;

	peer_open_ctx(&end->peer, opts);
	end->out = calloc(2, BYTES);
	end->in = end->out + BYTES;
	must(end,
	     snt_mem_register(end->peer.ctx, end->out, 2 * BYTES, access, &end->mem),
	     "memory");
	must(end,
	     snt_qp_create_with_cq(end->peer.ctx, NULL, &qp_opts, &end->cq, &end->qp),
	     "QP");
	must(end, snt_qp_card(end->qp, &ours), "card");
	must(end, snt_mem_token(end->mem, &token), "token");
	peer_swap(&end->peer, &ours, &theirs, sizeof(ours));
	peer_swap(&end->peer, &token, &end->token, sizeof(token));
	must(end, snt_qp_connect(end->qp, &theirs), "connect");
	peer_meet(&end->peer);
}

static void close_end(struct end *end)
{
	struct snt_wc wc = { 0 };

	must(end, snt_qp_close(end->qp, 0), "close");
	while (wc.opcode != SNT_OP_CLOSED)
		must(end, snt_cq_poll(end->cq, &wc, 1), "poll");
	must(end, snt_qp_destroy(end->qp), "destroy");
	must(end, snt_cq_destroy(end->cq), "destroy");
	must(end, snt_mem_release(end->mem), "release");
	must(end, snt_ctx_destroy(end->peer.ctx), "close");
	free(end->out);
}

static uint32_t length_of(unsigned message)
{
	return (message * 40503u) % (BYTES / PERIOD);
}

static void post(struct end *end, unsigned message)
{
	uint64_t at = (uint64_t)(message % PERIOD) * (BYTES / PERIOD);
	struct snt_sge sge = { end->mem, end->out + at, length_of(message) };
	struct snt_recv_wr recv = { .wr_id = message };
	struct snt_send_wr wr = { .wr_id = message,
				  .opcode = SNT_OP_WRITE_IMM,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .imm = message,
				  .remote = &end->token,
				  .remote_addr = end->token.addr + BYTES + at };

	must(end, snt_qp_post_recv(end->qp, &recv, 1) - 1, "receive");
	peer_fill(end->out + at, length_of(message), message);
	must(end, snt_qp_post_send(end->qp, &wr, 1) - 1, "send");
}

/* What one would want to know. */
static _Noreturn void explain(struct end *end, const struct snt_wc *wc)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };

	for (unsigned i = 0; !snt_qp_query_lane(end->qp, i, &lane); i++)
		fprintf(stderr,
			"# %s: lane %u on device %u: %s, %llu fragments, %u under way, "
			"%llu errors\n",
			end->peer.name, i, lane.device, lane.alive ? "alive" : "dead",
			(unsigned long long)lane.fragments, lane.under_way,
			(unsigned long long)lane.errors);
	peer_fail(&end->peer, "WR %llu, opcode %d: %s", (unsigned long long)wc->wr_id,
		  wc->opcode, snt_status_text(wc->status));
}

static void take(struct end *end, const struct snt_wc *wc)
{
	unsigned message = wc->imm;
	uint64_t at = (uint64_t)(message % PERIOD) * (BYTES / PERIOD);

	if (wc->status)
		explain(end, wc);
	if (wc->opcode != SNT_OP_RECV_NOTIFY)
		return;
	if (!peer_filled(end->in + at, length_of(message), message))
		peer_fail(&end->peer, "message %u is not as sent", message);
}

/* What comes next is written by threads of devices, and what keeps it apart from what was
 * read here is a socket to another process: only a verb, which takes each device's lock,
 * lets ThreadSanitizer see that. */
static void let_sanitizer_see(struct end *end)
{
	struct snt_mem *mem;
	char byte;

	must(end, snt_mem_register(end->peer.ctx, &byte, 1, 0, &mem), "register");
	must(end, snt_mem_release(mem), "release");
}

/* All of a period are there and acknowledged before the next begins. */
static void play(struct end *end, unsigned rounds)
{
	const unsigned patience = patience_s(SECONDS);
	time_t begin = time(NULL);

	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < PERIOD; i++)
			post(end, round * PERIOD + i);
		for (unsigned left = 2 * PERIOD; left;) {
			struct snt_wc wc;
			int got = snt_cq_poll(end->cq, &wc, 1);

			must(end, got, "poll");
			if (got)
				take(end, &wc);
			left -= got;
			if (time(NULL) - begin > patience)
				peer_fail(&end->peer, "not done after %u s", patience);
		}
		let_sanitizer_see(end);
		peer_meet(&end->peer);
	}
}

static int play_part(char *device, enum snt_scheme scheme, unsigned rounds,
		     uint8_t timeout, int with, const char *name)
{
	struct end end = { .peer = { .name = name, .with = with } };
	struct peer_opts opts = { .timeout = timeout };

	peer_parse(device, &opts);
	open_end(&end, &opts, scheme);
	play(&end, rounds);
	close_end(&end);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "a", required_argument, NULL, 'a' },
		{ "b", required_argument, NULL, 'b' },
		{ "scheme", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "timeout", required_argument, NULL, 't' },
		{ "faults", required_argument, NULL, 'f' },
		{ 0 },
	};
	char soft_a[] = "soft", soft_b[] = "soft";
	char *a = soft_a, *b = soft_b;
	enum snt_scheme scheme = SNT_SCHEME_SPRAY;
	struct faults faults = { .seed = 1 };
	unsigned rounds = 20;
	uint8_t timeout = 0;
	int option, pair[2], status, ret;
	pid_t child;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'a')
			a = optarg;
		else if (option == 'b')
			b = optarg;
		else if (option == 's')
			scheme = strcmp(optarg, "dqplb") ? SNT_SCHEME_SPRAY
							 : SNT_SCHEME_DQPLB;
		else if (option == 'r')
			rounds = strtoul(optarg, NULL, 10);
		else if (option == 't')
			timeout = atoi(optarg);
		else if (option != 'f' ||
			 sscanf(optarg, "%u,%u,%u,%u", &faults.lost, &faults.doubled,
				&faults.late, &faults.full) < 1)
			return 2;
	}
	/* A segment that is sent by itself is not as the ICRC says, and rxe minds. */
	if ((faults.lost || faults.doubled || faults.late) && !strncmp(b, "verbs", 5))
		faults.segments_error = EIO;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return 1;
	faults_set(faults);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		exit(play_part(b, scheme, rounds, timeout, pair[1], "b"));
	}
	close(pair[1]);
	ret = play_part(a, scheme, rounds, timeout, pair[0], "a");
	if (waitpid(child, &status, 0) != child || status)
		ret = 1;
	printf("%s 1 - %u messages over %u lanes, both ways\n1..1\n",
	       ret ? "not ok" : "ok", rounds * PERIOD, LANES);
	return ret;
}
