/* SPDX-License-Identifier: MIT */
#include "loop/adapters/talk.h"

#include <string.h>

/* Each QP has a part of the buffers: what comes in, then what goes out. */
#define PART   (WORLD_BUFFER / WORLD_QPS)
#define LENGTH (PART / 2)

static uint64_t length_of(const struct talk *talk)
{
	return 1 + (talk->rounds * 4099u + talk->qp * 17u) % (LENGTH - 1);
}

static unsigned char byte_of(const struct talk *talk, uint64_t index)
{
	return (unsigned char)(talk->rounds * 31 + talk->qp * 7 + index * 13 + 1);
}

static void ask(struct talk *talk)
{
	struct world *world = talk->world;
	struct job *send = &talk->send[0];
	unsigned char *out = world->end[0].buffer + send->offset;

	send->length = length_of(talk);
	for (uint64_t i = 0; i < send->length; i++)
		out[i] = byte_of(talk, i);
	job_recv(world, &talk->recv[0]);
	job_send(world, send);
}

/* A round is over when the answer is there and our own buffer is ours again. */
static void client_then(struct job *job)
{
	struct talk *talk = job->arg;
	const struct world *world = talk->world;
	const unsigned char *in = world->end[0].buffer + talk->recv[0].offset;
	uint64_t length = length_of(talk);

	expect(!job->op.result, "QP %u: %s", talk->qp, strerror(-job->op.result));
	if (talk->recv[0].is_posted || talk->send[0].is_posted)
		return;
	expect(talk->recv[0].op.wc.length == length, "%llu bytes came back of %llu",
	       (unsigned long long)talk->recv[0].op.wc.length,
	       (unsigned long long)length);
	for (uint64_t i = 0; i < length; i++)
		expect(in[i] == byte_of(talk, i),
		       "byte %llu of round %u came back wrong", (unsigned long long)i,
		       talk->rounds);
	talk->rounds++;
	if (talk->wanted && talk->rounds >= talk->wanted)
		talk->done = 1;
	else
		ask(talk);
}

static void echo(struct talk *talk)
{
	struct world_end *end = &talk->world->end[1];
	struct job *send = &talk->send[1], *recv = &talk->recv[1];

	send->length = recv->op.wc.length;
	memcpy(end->buffer + send->offset, end->buffer + recv->offset, send->length);
	talk->owes_echo = false;
	job_recv(talk->world, recv);
	job_send(talk->world, send);
}

static void server_then(struct job *job)
{
	struct talk *talk = job->arg;

	/* The receive that is left over is flushed with its QP. */
	if (talk->done && job->op.result)
		return;
	expect(!job->op.result, "QP %u: %s", talk->qp, strerror(-job->op.result));
	if (job == &talk->recv[1])
		talk->owes_echo = true;
	if (talk->owes_echo && !talk->send[1].is_posted)
		echo(talk);
}

void talk_begin(struct talk *talk, struct world *world, unsigned qp, unsigned wanted)
{
	*talk = (struct talk){ .world = world, .qp = qp, .wanted = wanted };
	for (unsigned end = 0; end < 2; end++) {
		struct job job = { .count = &talk->callbacks,
				   .then = end ? server_then : client_then,
				   .arg = talk,
				   .end = end,
				   .qp = qp,
				   .offset = (uint64_t)qp * PART,
				   .length = LENGTH };

		talk->recv[end] = job;
		job.offset += LENGTH;
		talk->send[end] = job;
	}
	job_recv(world, &talk->recv[1]);
	ask(talk);
}

void talk_end(struct talk *talk)
{
	talk->wanted = 1;
}
