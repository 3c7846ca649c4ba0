/* SPDX-License-Identifier: MIT */
/*
 * Traffic: what programs do all day.
 */
#include <string.h>

#include "loop/adapters/cases.h"
#include "loop/adapters/talk.h"
#include "loop/adapters/tcp.h"
#include "loop/adapters/ticker.h"

static void run_talks(struct world *world, const struct world_opts *opts,
		      unsigned rounds)
{
	struct talk talk[WORLD_QPS];

	world_open(world, opts);
	for (unsigned i = 0; i < world->qps; i++)
		talk_begin(&talk[i], world, i, rounds);
	for (unsigned i = 0; i < world->qps; i++)
		world_until(world, &talk[i].done, 1);
	world_close(world);
}

static void echo(struct world *world)
{
	run_talks(world, &(struct world_opts){ 0 }, 1);
}

static void five_messages(struct world *world)
{
	run_talks(world, &(struct world_opts){ .lanes = 2 }, 5);
}

static void many_connections(struct world *world)
{
	run_talks(world, &(struct world_opts){ .qps = 12, .cqs = 3 }, 5);
}

/*
 * Every verb
 */

static void await_job(struct world *world, unsigned *count, int ret, const char *what)
{
	unsigned before = *count;

	must(ret, what);
	world_until(world, count, before + 1);
}

static void count_done(struct snt_op *op)
{
	expect(!op->result, "an op has failed: %s", strerror(-op->result));
	++*(unsigned *)op->arg;
}

static void atomics(struct world *world, struct snt_op *op, unsigned *count)
{
	const struct snt_token *there = &world->end[1].token;
	struct snt_sge eight = world_sge(world, 0, 128, 8);
	struct snt_qp *qp = world->end[0].qp[0];
	uint64_t *word = (uint64_t *)(world->end[1].buffer + 256);

	*word = 10;
	await_job(world, count,
		  snt_op_post(qp, op,
			      &(struct snt_send_wr){ .opcode = SNT_OP_FETCH_ADD,
						     .sge = &eight,
						     .sge_count = 1,
						     .remote = there,
						     .remote_addr = there->addr + 256,
						     .compare_add = 5 }),
		  "fetch_add");
	expect(op->old == 10 && *word == 15, "fetch_add: was %llu, is %llu",
	       (unsigned long long)op->old, (unsigned long long)*word);
	await_job(world, count,
		  snt_op_post(qp, op,
			      &(struct snt_send_wr){ .opcode = SNT_OP_CMP_SWAP,
						     .sge = &eight,
						     .sge_count = 1,
						     .remote = there,
						     .remote_addr = there->addr + 256,
						     .compare_add = 15,
						     .swap = 42 }),
		  "cmp_swap");
	expect(op->old == 15 && *word == 42, "cmp_swap: was %llu, is %llu",
	       (unsigned long long)op->old, (unsigned long long)*word);
	await_job(world, count,
		  snt_op_post(qp, op,
			      &(struct snt_send_wr){ .opcode = SNT_OP_CMP_SWAP,
						     .sge = &eight,
						     .sge_count = 1,
						     .remote = there,
						     .remote_addr = there->addr + 256,
						     .compare_add = 15,
						     .swap = 7 }),
		  "cmp_swap");
	expect(op->old == 42 && *word == 42, "cmp_swap that does not match");
}

static void receive_imm(struct world *world, unsigned imm,
			int (*post)(struct world *world, struct snt_op *op))
{
	unsigned sent = 0, received = 0;
	struct snt_op send = { .done = count_done, .arg = &sent };
	struct snt_op recv = { .done = count_done, .arg = &received };
	struct snt_sge in = world_sge(world, 1, 512, 64);

	must(snt_op_recv(world->end[1].qp[0], &recv, &in), "receive");
	must(post(world, &send), "post");
	world_until(world, &received, 1);
	world_until(world, &sent, 1);
	expect(recv.wc.imm == imm, "the immediate is %u, not %u", recv.wc.imm, imm);
}

static int post_send_imm(struct world *world, struct snt_op *op)
{
	struct snt_sge out = world_sge(world, 0, 0, 64);

	return snt_op_post(world->end[0].qp[0], op,
			   &(struct snt_send_wr){ .opcode = SNT_OP_SEND_IMM,
						  .imm = 77,
						  .sge = &out,
						  .sge_count = 1 });
}

static int post_write_imm(struct world *world, struct snt_op *op)
{
	const struct snt_token *there = &world->end[1].token;
	struct snt_sge out = world_sge(world, 0, 0, 64);

	return snt_op_post(world->end[0].qp[0], op,
			   &(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
						  .imm = 78,
						  .sge = &out,
						  .sge_count = 1,
						  .remote = there,
						  .remote_addr = there->addr + 1024 });
}

static void every_verb(struct world *world)
{
	unsigned count = 0;
	struct snt_op op = { .done = count_done, .arg = &count };
	struct snt_sge out, back;
	struct world_end *end = world->end;

	world_open(world, &(struct world_opts){ 0 });
	out = world_sge(world, 0, 0, 64);
	back = world_sge(world, 0, 64, 64);
	memset(end[0].buffer, 'x', 64);
	await_job(world, &count,
		  snt_op_write(end[0].qp[0], &op, &out, &end[1].token,
			       end[1].token.addr),
		  "write");
	await_job(world, &count,
		  snt_op_read(end[0].qp[0], &op, &back, &end[1].token,
			      end[1].token.addr),
		  "read");
	expect(!memcmp(end[0].buffer, end[0].buffer + 64, 64), "read other bytes");
	atomics(world, &op, &count);
	receive_imm(world, 77, post_send_imm);
	receive_imm(world, 78, post_write_imm);
	world_close(world);
}

/*
 * Beside others
 */

static void count_up(void *arg)
{
	++*(unsigned *)arg;
}

/* Neither ends before the other has had its turn: a loop that starves the others
 * hangs. */
static void beside_tcp_and_timer(struct world *world)
{
	struct talk talk;
	struct tcp tcp = { 0 };
	unsigned ticks = 0;
	void *ticker;

	world_open(world, &(struct world_opts){ 0 });
	tcp_open(&tcp, world->driver);
	ticker = ticker_start(world->driver, 1, count_up, &ticks);
	talk_begin(&talk, world, 0, 0);
	world_until_other(world, &talk.rounds, 50);
	world_until_other(world, &tcp.rounds, tcp.rounds + 50);
	world_until_other(world, &ticks, ticks + 3);
	world_until_other(world, &talk.rounds, talk.rounds + 50);
	talk_end(&talk);
	world_until_other(world, &talk.done, 1);
	ticker_stop(world->driver, ticker);
	tcp_close(&tcp);
	world_close(world);
}

const struct loop_case cases_talk[] = {
	{ "echo", ON_ALL, 0, echo },
	{ "five messages", ON_ALL, 0, five_messages },
	{ "many connections", ON_ALL, 0, many_connections },
	{ "every verb", ON_ALL, 0, every_verb },
	{ "beside TCP and a timer", ON_ALL, 0, beside_tcp_and_timer },
	{ 0 },
};
