/* SPDX-License-Identifier: MIT */
/*
 * One write out of several places: header, body and trailer lie apart here, and in a row at
 * the server. Fragments take no notice of where one place ends and the next begins.
 */
#include <stdio.h>
#include <string.h>

#include "ends.h"

#define HEADER	24
#define BODY	(3u << 20)
#define TRAILER 8
#define APART	(4u << 20)
#define MESSAGE (HEADER + BODY + TRAILER)

static unsigned char byte_at(unsigned i)
{
	return i * 7 + i / 251;
}

static void gather(struct end *client)
{
	struct snt_sge sge[] = {
		{ client->mem, client->memory, HEADER },
		{ client->mem, client->memory + APART, BODY },
		{ client->mem, client->memory + 2 * APART, TRAILER },
	};
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .sge = sge,
				  .sge_count = 3,
				  .remote = &client->peer,
				  .remote_addr = client->peer.addr };
	struct snt_op op = { 0 };
	unsigned at = 0;

	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < sge[i].length; j++)
			((unsigned char *)sge[i].addr)[j] = byte_at(at++);
	ends_check(snt_op_post(client->qp, &op, &wr), "write");
	ends_await(&op, "write");
}

static bool judge(struct end *server)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < MESSAGE; i++)
		wrong += server->memory[i] != byte_at(i);
	printf("%u bytes from three places, %u of them wrong\n", MESSAGE, wrong);
	return !wrong;
}

int main(int argc, char **argv)
{
	const struct ends ends = {
		.name = "scatter-gather",
		.length = 2 * APART + TRAILER,
		.access = SNT_ACCESS_REMOTE_WRITE,
		.clients = 1,
		.qp = { .lanes = 4, .send_sge_max = 3, .fragment_size = 64 << 10 },
		.judge = judge,
		.client = gather,
	};

	return ends_main(argc, argv, &ends);
}
