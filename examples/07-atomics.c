/* SPDX-License-Identifier: MIT */
/*
 * Two things that several clients share in a server's memory: a counter, by
 * fetch-and-add, and a sum behind a lock, by compare-and-swap. Neither loses anything.
 */
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "ends.h"

#define CLIENTS 4
#define ROUNDS	50

/* What the server has, and, of a client, where results of its atomics go. */
struct shared {
	uint64_t counter;
	uint64_t lock; /* 0, or the number of its holder */
	uint64_t sum;
};

static uint64_t fetch_add(struct end *client, size_t at, uint64_t add)
{
	struct snt_sge old = { client->mem, client->memory + at, sizeof(uint64_t) };
	struct snt_send_wr wr = { .opcode = SNT_OP_FETCH_ADD,
				  .sge = &old,
				  .sge_count = 1,
				  .remote = &client->peer,
				  .remote_addr = client->peer.addr + at,
				  .compare_add = add };
	struct snt_op op = { 0 };

	ends_check(snt_op_post(client->qp, &op, &wr), "fetch and add");
	ends_await(&op, "fetch and add");
	return op.old;
}

static uint64_t compare_swap(struct end *client, size_t at, uint64_t from, uint64_t to)
{
	struct snt_sge old = { client->mem, client->memory + at, sizeof(uint64_t) };
	struct snt_send_wr wr = { .opcode = SNT_OP_CMP_SWAP,
				  .sge = &old,
				  .sge_count = 1,
				  .remote = &client->peer,
				  .remote_addr = client->peer.addr + at,
				  .compare_add = from,
				  .swap = to };
	struct snt_op op = { 0 };

	ends_check(snt_op_post(client->qp, &op, &wr), "compare and swap");
	ends_await(&op, "compare and swap");
	return op.old;
}

/* Read, add, write: what the lock is there for. An op that is over has taken effect, so
 * the next holder of the lock reads what this one wrote. */
static void add_to_sum(struct end *client, uint64_t add)
{
	struct shared *ours = (struct shared *)client->memory;
	struct snt_sge sge = { client->mem, &ours->sum, sizeof(ours->sum) };
	uint64_t sum_addr = client->peer.addr + offsetof(struct shared, sum);
	struct snt_op op = { 0 };

	ends_check(snt_op_read(client->qp, &op, &sge, &client->peer, sum_addr), "read");
	ends_await(&op, "read");
	ours->sum += add;
	ends_check(snt_op_write(client->qp, &op, &sge, &client->peer, sum_addr),
		   "write");
	ends_await(&op, "write");
}

static void work(struct end *client)
{
	const size_t lock = offsetof(struct shared, lock);
	const uint64_t me = (uint64_t)getpid();
	unsigned waited = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		fetch_add(client, offsetof(struct shared, counter), 1);
		while (compare_swap(client, lock, 0, me))
			waited++;
		add_to_sum(client, i);
		compare_swap(client, lock, me, 0);
	}
	printf("client %ld: %u rounds, found the lock held %u times\n", (long)getpid(),
	       ROUNDS, waited);
}

static bool judge(struct end *server)
{
	const struct shared *shared = (const struct shared *)server->memory;
	const uint64_t sum = CLIENTS * ROUNDS * (ROUNDS - 1) / 2;

	printf("counter %llu of %u, sum %llu of %llu\n",
	       (unsigned long long)shared->counter, CLIENTS * ROUNDS,
	       (unsigned long long)shared->sum, (unsigned long long)sum);
	return shared->counter == CLIENTS * ROUNDS && shared->sum == sum &&
	       !shared->lock;
}

int main(int argc, char **argv)
{
	const struct ends ends = {
		.name = "atomics",
		.length = sizeof(struct shared),
		.access = SNT_ACCESS_REMOTE_ATOMIC | SNT_ACCESS_REMOTE_READ |
			  SNT_ACCESS_REMOTE_WRITE,
		.clients = CLIENTS,
		.judge = judge,
		.client = work,
	};

	return ends_main(argc, argv, &ends);
}
