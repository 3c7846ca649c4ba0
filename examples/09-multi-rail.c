/* SPDX-License-Identifier: MIT */
/*
 * Many writes over two lanes of each device, balanced by time: a device that is slower, or
 * whose network is busy, gets less. Then what each lane has done, and how it was chosen.
 */
#include <stdio.h>

#include "ends.h"

#define WRITES 256u
#define LENGTH (256u << 10)
#define DEPTH  16u

static void show_lanes(const struct end *end)
{
	struct snt_lane_info lane = SNT_INIT(lane);
	struct snt_device_info device = SNT_INIT(device);

	for (unsigned i = 0; i < snt_qp_lane_count(end->qp); i++) {
		ends_check(snt_qp_query_lane(end->qp, i, &lane), "lane");
		snt_device_query(snt_ctx_device(end->ctx, lane.device), &device);
		printf("lane %u on %-8s %5llu fragments %10llu bytes\n", i, device.name,
		       (unsigned long long)lane.fragments,
		       (unsigned long long)lane.bytes);
	}
}

/* Keeps DEPTH ops under way, each with a place of its own: it is posted again when it is
 * over. */
static void write_all(struct end *client)
{
	struct snt_op op[DEPTH] = { 0 };
	char text[4096];

	for (unsigned i = 0; i < WRITES + DEPTH; i++) {
		struct snt_op *next = &op[i % DEPTH];
		size_t at = i % DEPTH * LENGTH;
		struct snt_sge sge = { client->mem, client->memory + at, LENGTH };

		if (i >= DEPTH)
			ends_await(next, "write");
		if (i < WRITES)
			ends_check(snt_op_write(client->qp, next, &sge, &client->peer,
						client->peer.addr + at),
				   "write");
	}
	snt_conn_explain(client->conn[0], text, sizeof(text));
	fputs(text, stdout);
	show_lanes(client);
}

int main(int argc, char **argv)
{
	const struct ends ends = {
		.name = "multi-rail",
		.length = DEPTH * LENGTH,
		.access = SNT_ACCESS_REMOTE_WRITE,
		.clients = 1,
		.qp = { .lanes = 4,
			.fragment_size = 32 << 10,
			.balance = SNT_BALANCE_BY_TIME },
		.client = write_all,
	};

	return ends_main(argc, argv, &ends);
}
