/* SPDX-License-Identifier: MIT */
/*
 * An MPI program for foreign.py: ping-pong of many sizes with blocking and nonblocking calls,
 * reductions, an exchange between all, and one-sided writes and atomics. Every result is checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS	    10
#define MESSAGE_MAX (4 << 20)
#define IN_FLIGHT   16

#define CHECK(condition)                                                          \
	do {                                                                      \
		if (!(condition)) {                                               \
			fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, \
				#condition);                                      \
			MPI_Abort(MPI_COMM_WORLD, 1);                             \
		}                                                                 \
	} while (0)

static int rank, ranks;

static unsigned char byte_of(int tag, int at)
{
	return (unsigned char)(tag * 31 + at + (at >> 8) * 7);
}

static void fill(unsigned char *data, int size, int tag)
{
	for (int i = 0; i < size; i++)
		data[i] = byte_of(tag, i);
}

static void compare(const unsigned char *data, int size, int tag)
{
	for (int i = 0; i < size; i++)
		CHECK(data[i] == byte_of(tag, i));
}

static void ping_pong(unsigned char *data, int size)
{
	int peer = rank ^ 1;

	for (int tag = 0; tag < ROUNDS; tag++) {
		if (rank == 0) {
			fill(data, size, tag);
			MPI_Send(data, size, MPI_BYTE, peer, tag, MPI_COMM_WORLD);
		}
		fill(data, size, ~tag);
		MPI_Recv(data, size, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		compare(data, size, tag);
		if (rank == 1)
			MPI_Send(data, size, MPI_BYTE, peer, tag, MPI_COMM_WORLD);
	}
}

/* Many at once in both directions, received in the reverse order. */
static void flood(unsigned char *data, int size)
{
	MPI_Request requests[2 * IN_FLIGHT];
	MPI_Status statuses[2 * IN_FLIGHT];
	unsigned char *in = data + IN_FLIGHT * size;
	int peer = rank ^ 1;

	for (int i = 0; i < IN_FLIGHT; i++) {
		int tag = IN_FLIGHT - 1 - i;

		MPI_Irecv(in + tag * size, size, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
			  &requests[i]);
	}
	for (int i = 0; i < IN_FLIGHT; i++) {
		fill(data + i * size, size, i);
		MPI_Isend(data + i * size, size, MPI_BYTE, peer, i, MPI_COMM_WORLD,
			  &requests[IN_FLIGHT + i]);
	}
	MPI_Waitall(2 * IN_FLIGHT, requests, statuses);
	for (int i = 0; i < IN_FLIGHT; i++)
		compare(in + i * size, size, i);
}

static void all_reduce(int count)
{
	long *in = calloc((size_t)count, sizeof(*in)),
	     *out = calloc((size_t)count, sizeof(*out));

	CHECK(in && out);
	for (int i = 0; i < count; i++)
		in[i] = (long)i * (rank + 1);
	MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		CHECK(out[i] == (long)i * ranks * (ranks + 1) / 2);
	MPI_Allreduce(in, out, count, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		CHECK(out[i] == (long)i * ranks);
	free(in);
	free(out);
}

static void all_to_all(unsigned char *data, int size)
{
	unsigned char *in = data + ranks * size;

	for (int i = 0; i < ranks; i++)
		fill(data + i * size, size, rank * ranks + i);
	MPI_Alltoall(data, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		compare(in + i * size, size, i * ranks + rank);
}

static void one_sided(int count)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	long *window = calloc((size_t)count + 1, sizeof(*window));
	long one = 1, found, *out = calloc((size_t)count, sizeof(*out));
	MPI_Win win;

	CHECK(window && out);
	/* Memory of its own: that of MPI_Win_allocate() may be shared by the ranks of a host. */
	MPI_Win_create(window, ((MPI_Aint)count + 1) * (MPI_Aint)sizeof(*window),
		       sizeof(*window), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (int i = 0; i < count; i++)
		out[i] = rank * 1000L + i;
	MPI_Win_fence(0, win);
	MPI_Put(out, count, MPI_LONG, next, 0, count, MPI_LONG, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < count; i++)
		CHECK(window[i] == before * 1000L + i);
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		MPI_Fetch_and_op(&one, &found, MPI_LONG, 0, count, MPI_SUM, win);
		MPI_Win_unlock(0, win);
		CHECK(found >= i && found < (long)ROUNDS * ranks);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(&found, 1, MPI_LONG, 0, count, 1, MPI_LONG, win);
	MPI_Win_unlock(0, win);
	CHECK(found == (long)ROUNDS * ranks);
	MPI_Win_free(&win);
	free(window);
	free(out);
}

int main(int argc, char **argv)
{
	static const int sizes[] = { 0, 1, 8, 1024, 8192, 65537, 1 << 20, MESSAGE_MAX };
	unsigned char *data;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	CHECK(ranks >= 2 && ranks % 2 == 0);
	data = malloc(2 * MESSAGE_MAX);
	CHECK(data);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		if (rank < 2)
			ping_pong(data, sizes[i]);
	flood(data, 1000);
	flood(data, 100000);
	for (int count = 1; count <= 1 << 18; count *= 64)
		all_reduce(count);
	all_to_all(data, 100);
	all_to_all(data, 300000);
	one_sided(1);
	one_sided(50000);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks, all is right\n", ranks);
	MPI_Finalize();
	return 0;
}
