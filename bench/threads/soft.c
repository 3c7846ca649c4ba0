/* SPDX-License-Identifier: MIT */
/*
 * Writes over soft devices to another process. There each thread has a device of its own to write
 * to, whose thread answers, so that what threads share is the device that they write from, if
 * any, and the host.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/bench.h"
#include "threads/cpus.h"
#include "threads/kinds.h"

#define LENGTH	  65536
#define SMALL	  64
#define BATCH	  32
#define WINDOW	  128
#define LARGE_WRS 8
#define POLLS	  16
#define ACCESS	  (SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE)

#define DURATION_NS 20000000

/* By sockets, and through shared memory. */
enum way {
	UDP,
	SHM,
	WAYS
};
/* From one device for all threads, and from one for each. */
enum share {
	ONE,
	OWN,
	SHARES
};

static int peer[WAYS];

/* What the ends of a QP tell each other. */
struct hello {
	struct snt_card card;
	struct snt_token token;
};

struct place {
	struct snt_ctx *ctx;
	struct snt_mem *mem;
	unsigned char *bytes;
};

/* A window of writes, of which so many are posted at a time. */
struct writes {
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_sge sge;
	struct snt_token token;
	struct snt_send_wr wr[BATCH];
	unsigned batch, window;
	unsigned posted, done;
};

static void open_place(struct place *place)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts), .soft = SNT_SOFT_ONLY };

	place->bytes = take_memory(LENGTH);
	if (snt_ctx_create(&opts, &place->ctx) ||
	    snt_mem_register(place->ctx, place->bytes, LENGTH, ACCESS, &place->mem))
		die("no soft device");
}

static void make_place_qp(struct place *place, struct snt_cq **cq_out,
			  struct snt_qp **qp_out)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	/* Nothing gets lost, but the host may be busy. */
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .flags = SNT_QP_PASS_THROUGH,
				       .devices = 1,
				       .timeout = 19 };

	if (snt_qp_create_with_cq(place->ctx, &cq_opts, &qp_opts, cq_out, qp_out))
		die("no QP");
}

static void exchange_addresses(int with, struct place *place, struct snt_qp *qp,
			       struct snt_token *token_out)
{
	struct hello ours = { 0 }, theirs;

	if (snt_qp_card(qp, &ours.card) || snt_mem_token(place->mem, &ours.token))
		die("no card");
	if (send(with, &ours, sizeof(ours), 0) != sizeof(ours) ||
	    recv(with, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs))
		die("the other process is gone");
	if (snt_qp_connect(qp, &theirs.card))
		die("no connection");
	*token_out = theirs.token;
}

/*
 * The other process
 */

static _Noreturn void be_peer(int with)
{
	static struct place place[CREW_MAX];
	unsigned threads, qps;
	char never;

	if (recv(with, &threads, sizeof(threads), MSG_WAITALL) != sizeof(threads) ||
	    recv(with, &qps, sizeof(qps), MSG_WAITALL) != sizeof(qps))
		_exit(0); /* not wanted */
	for (unsigned i = 0; i < threads; i++)
		open_place(&place[i]);
	for (unsigned i = 0; i < qps; i++) {
		struct snt_token unused;
		struct snt_cq *cq;
		struct snt_qp *qp;

		make_place_qp(&place[i % threads], &cq, &qp);
		exchange_addresses(with, &place[i % threads], qp, &unused);
	}
	if (read(with, &never, 1) < 0)
		die("read");
	_exit(0);
}

static void choose_path(enum way way)
{
	setenv("SENNIT_SOFT_SHM", way == SHM ? "on" : "off", 1);
}

void start_peers(unsigned threads)
{
	for (enum way way = 0; way < WAYS; way++) {
		int pair[2];
		pid_t child;

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
			die("socketpair");
		child = fork();
		if (child < 0)
			die("fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (enum way i = 0; i < way; i++)
				close(peer[i]);
			close(pair[0]);
			cpus_leave(threads);
			choose_path(way);
			be_peer(pair[1]);
		}
		close(pair[1]);
		peer[way] = pair[0];
	}
}

/*
 * Writing
 */

static unsigned poll_writes(struct writes *writes)
{
	struct snt_wc wc[BATCH];
	int count = snt_cq_poll(writes->cq, wc, BATCH);

	if (count < 0)
		die("poll");
	for (int i = 0; i < count; i++)
		if (wc[i].status)
			die(snt_wc_text(writes->cq, &wc[i]));
	writes->done += count;
	return count;
}

static unsigned run_writes(void *arg)
{
	struct writes *writes = arg;
	unsigned done = 0;

	for (unsigned i = 0; i < POLLS; i++) {
		while (writes->posted - writes->done + writes->batch <=
		       writes->window) {
			if (snt_qp_post_send(writes->qp, writes->wr, writes->batch) !=
			    (int)writes->batch)
				die("post");
			writes->posted += writes->batch;
		}
		done += poll_writes(writes);
	}
	return done;
}

static void finish_writes(void *arg)
{
	struct writes *writes = arg;

	while (writes->done != writes->posted)
		poll_writes(writes);
}

static struct writes *make_writes(int with, struct place *place)
{
	struct writes *writes = take_memory(sizeof(*writes));

	make_place_qp(place, &writes->cq, &writes->qp);
	exchange_addresses(with, place, writes->qp, &writes->token);
	writes->sge = (struct snt_sge){ place->mem, place->bytes, SMALL };
	for (unsigned i = 0; i < BATCH; i++)
		writes->wr[i] =
			(struct snt_send_wr){ .opcode = SNT_OP_WRITE,
					      .flags = SNT_SEND_SIGNALED,
					      .sge_count = 1,
					      .sge = &writes->sge,
					      .remote = &writes->token,
					      .remote_addr = writes->token.addr };
	writes->batch = BATCH;
	writes->window = WINDOW;
	return writes;
}

static struct writes *make_large(const struct writes *small)
{
	struct writes *writes = take_memory(sizeof(*writes));

	*writes = *small;
	writes->sge.length = LENGTH;
	for (unsigned i = 0; i < BATCH; i++) {
		writes->wr[i].sge = &writes->sge;
		writes->wr[i].remote = &writes->token;
	}
	writes->batch = 1;
	writes->window = LARGE_WRS;
	return writes;
}

static struct kind kind_of(const char *name)
{
	return (struct kind){ .name = name,
			      .work = { run_writes, finish_writes },
			      .duration_ns = DURATION_NS,
			      .busy = 2 };
}

/* Small and large writes take turns on the same QPs. */
static unsigned add_way(struct kind *kind, enum way way, unsigned threads)
{
	static const char *const name[WAYS][SHARES][2] = {
		{ { "udp-one-device-64b", "udp-one-device-64k" },
		  { "udp-own-device-64b", "udp-own-device-64k" } },
		{ { "shm-one-device-64b", "shm-one-device-64k" },
		  { "shm-own-device-64b", "shm-own-device-64k" } },
	};
	static struct place place[WAYS][CREW_MAX];
	unsigned qps = SHARES * threads;

	choose_path(way);
	if (send(peer[way], &threads, sizeof(threads), 0) < 0 ||
	    send(peer[way], &qps, sizeof(qps), 0) < 0)
		die("the other process is gone");
	for (unsigned i = 0; i < threads; i++)
		open_place(&place[way][i]);
	for (enum share share = 0; share < SHARES; share++, kind += 2) {
		kind[0] = kind_of(name[way][share][0]);
		kind[1] = kind_of(name[way][share][1]);
		for (unsigned i = 0; i < threads; i++) {
			struct writes *small =
				make_writes(peer[way],
					    &place[way][share == OWN ? i : 0]);

			kind[0].load[i] = small;
			kind[1].load[i] = make_large(small);
		}
	}
	return SHARES * 2;
}

unsigned add_soft(struct kind *kind, unsigned threads)
{
	unsigned count = add_way(kind, UDP, threads);

	return count + add_way(kind + count, SHM, threads);
}
