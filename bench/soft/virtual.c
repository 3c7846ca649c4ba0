/* SPDX-License-Identifier: MIT */
#include "soft/virtual.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/end.h"

#define SMALL	  64
#define BATCH	  32
#define IN_FLIGHT (4 * BATCH)
#define RECVS	  512
#define BYTES	  4096
#define WARM	  50
#define ACCESS	  (SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE)

unsigned virtual_lanes = 1;

/* What one end tells the other. */
struct introduction {
	struct snt_card card;
	struct snt_token token;
};

static void expect_no_error(int ret, const char *what)
{
	if (ret < 0)
		die(what);
}

static void receive_introduction(int control, struct introduction *theirs)
{
	size_t have = 0;

	while (have < sizeof(*theirs)) {
		ssize_t got =
			read(control, (char *)theirs + have, sizeof(*theirs) - have);

		if (got <= 0)
			die("the other process is gone");
		have += got;
	}
}

void virtual_open(struct virtual_end *end, int control)
{
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = virtual_lanes == 1 ? SNT_QP_PASS_THROUGH
								: 0,
				    .lanes = virtual_lanes,
				    .devices = 1,
				    .lane_depth = 256,
				    .recv_depth = RECVS };
	static struct introduction ours, theirs;
	struct snt_ctx *ctx;

	*end = (struct virtual_end){ .control = control };
	expect_no_error(snt_ctx_create(&ctx_opts, &ctx), "open");
	expect_no_error(snt_mem_alloc(ctx, BYTES, ACCESS, &end->mem), "memory");
	expect_no_error(snt_mem_token(end->mem, &ours.token), "token");
	expect_no_error(snt_qp_create_with_cq(ctx, &cq_opts, &opts, &end->cq, &end->qp),
			"QP");
	expect_no_error(snt_qp_card(end->qp, &ours.card), "card");
	if (write(control, &ours, sizeof(ours)) != sizeof(ours))
		die("the other process is gone");
	receive_introduction(control, &theirs);
	expect_no_error(snt_qp_connect(end->qp, &theirs.card), "connect");
	end->peer = theirs.token;
}

/*
 * One end's steps
 */

static void post_notes(struct virtual_end *end, unsigned count)
{
	struct snt_recv_wr wr[BATCH] = { 0 };

	if (snt_qp_post_recv(end->qp, wr, count) != (int)count)
		die("post");
}

static void post_small(struct virtual_end *end, unsigned opcode, unsigned count,
		       bool signalled)
{
	struct snt_sge sge = { end->mem, (void *)(uintptr_t)snt_mem_addr(end->mem),
			       SMALL };
	struct snt_send_wr wr[BATCH];

	for (unsigned i = 0; i < count; i++)
		wr[i] = (struct snt_send_wr){ .opcode = opcode,
					      .flags = signalled && i + 1 == count
							       ? SNT_SEND_SIGNALED
							       : 0,
					      .sge_count = 1,
					      .sge = &sge,
					      .remote = &end->peer,
					      .remote_addr = end->peer.addr };
	if (snt_qp_post_send(end->qp, wr, count) != (int)count)
		die("post");
}

/* Polls once; returns how many notifications came, or how many sends completed, which
 * have another opcode where verbs' own is passed through. */
static unsigned poll_for(struct virtual_end *end, bool notifications)
{
	struct snt_wc wc[BATCH];
	int count = snt_cq_poll(end->cq, wc, BATCH);
	unsigned found = 0;

	expect_no_error(count, "poll");
	for (int i = 0; i < count; i++) {
		if (wc[i].status)
			die(snt_status_text(wc[i].status));
		found += (wc[i].opcode == SNT_OP_RECV_NOTIFY) == notifications;
	}
	return found;
}

/* One in BATCH is signalled. */
static void send_note(struct virtual_end *end)
{
	post_small(end, SNT_OP_WRITE_IMM, 1, ++end->told % BATCH == 0);
}

/*
 * The other process
 */

static bool has_word(int control)
{
	char word;

	return recv(control, &word, 1, MSG_DONTWAIT) == 1;
}

static void send_word(int control)
{
	if (write(control, "", 1) != 1)
		die("the other process is gone");
}

void virtual_be_written_to(int control)
{
	struct virtual_end end;
	char never;

	virtual_open(&end, control);
	if (read(control, &never, 1) < 0)
		die("read");
}

/* Spins from one word at the control socket to the next. */
static void serve_notes(int control, bool echoes)
{
	struct virtual_end end;
	unsigned taken = 0;
	char go;

	virtual_open(&end, control);
	for (unsigned i = 0; i < RECVS / BATCH; i++)
		post_notes(&end, BATCH);
	send_word(control);
	while (read(control, &go, 1) == 1)
		for (unsigned i = 1; i % 64 || !has_word(control); i++) {
			unsigned count = poll_for(&end, true);

			taken += count;
			for (; echoes && count; count--)
				send_note(&end);
			for (; taken >= BATCH; taken -= BATCH)
				post_notes(&end, BATCH);
		}
}

void virtual_echo(int control)
{
	serve_notes(control, true);
}

void virtual_take(int control)
{
	serve_notes(control, false);
}

/*
 * Passes
 */

static void ping_notes(struct virtual_end *end, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		post_notes(end, 1);
		send_note(end);
		while (!poll_for(end, true))
			;
	}
}

static void write_many(struct virtual_end *end, unsigned opcode, unsigned count)
{
	unsigned posted = 0, done = 0;

	while (done < count) {
		for (; posted < count && posted - done < IN_FLIGHT; posted += BATCH)
			post_small(end, opcode, BATCH, true);
		done += BATCH * poll_for(end, false);
	}
}

void virtual_warm_pings(void *arg)
{
	struct virtual_end *end = arg;

	send_word(end->control);
	ping_notes(end, WARM);
}

void virtual_pings(void *arg, unsigned count)
{
	struct virtual_end *end = arg;

	ping_notes(end, count);
	send_word(end->control);
}

void virtual_warm_notes(void *arg)
{
	struct virtual_end *end = arg;

	send_word(end->control);
	write_many(end, SNT_OP_WRITE_IMM, 2 * IN_FLIGHT);
}

void virtual_notes(void *arg, unsigned count)
{
	struct virtual_end *end = arg;

	write_many(end, SNT_OP_WRITE_IMM, count);
	send_word(end->control);
}

void virtual_writes(void *arg, unsigned count)
{
	write_many(arg, SNT_OP_WRITE, count);
}
