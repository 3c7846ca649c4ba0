/* SPDX-License-Identifier: MIT */
/*
 * Reads a table out of a server's memory, over all lanes of all devices. The server's
 * program does not take part: its devices answer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ends.h"

#define RECORDS (1u << 21)

static uint64_t record(unsigned i)
{
	return i * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill_table(struct end *server)
{
	uint64_t *table = (uint64_t *)server->memory;

	for (unsigned i = 0; i < RECORDS; i++)
		table[i] = record(i);
}

static void read_table(struct end *client)
{
	struct snt_sge sge = { client->mem, client->memory,
			       RECORDS * sizeof(uint64_t) };
	const uint64_t *table = (const uint64_t *)client->memory;
	struct snt_op op = { 0 };
	unsigned wrong = 0;

	ends_check(snt_op_read(client->qp, &op, &sge, &client->peer, client->peer.addr),
		   "read");
	ends_await(&op, "read");
	for (unsigned i = 0; i < RECORDS; i++)
		wrong += table[i] != record(i);
	printf("%u records read over %u lanes, %u of them wrong\n", RECORDS,
	       snt_qp_lane_count(client->qp), wrong);
	if (wrong)
		exit(1);
}

int main(int argc, char **argv)
{
	const struct ends ends = {
		.name = "read",
		.length = RECORDS * sizeof(uint64_t),
		.access = SNT_ACCESS_REMOTE_READ,
		.clients = 1,
		.qp = { .lanes = 4, .fragment_size = 256 << 10 },
		.prepare = fill_table,
		.client = read_table,
	};

	return ends_main(argc, argv, &ends);
}
