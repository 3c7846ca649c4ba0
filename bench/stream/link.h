/* SPDX-License-Identifier: MIT */
#ifndef BENCH_STREAM_LINK_H
#define BENCH_STREAM_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A connection to the other process, by TCP or by a stream, so that the same program runs
 * on both. Calls end the process if something goes wrong.
 */
struct link;

struct link_table {
	/* At least a byte, at most so many; waits for it, or keeps trying. */
	size_t (*read)(struct link *link, void *buffer, size_t length, bool spins);
	size_t (*write)(struct link *link, const void *buffer, size_t length,
			bool spins);
	/* 0 if there is nothing to be read, or no room. */
	size_t (*try_read)(struct link *link, void *buffer, size_t length);
	size_t (*try_write)(struct link *link, const void *buffer, size_t length);
	/* Before doing something else. */
	void (*flush)(struct link *link);
};

struct link {
	const struct link_table *table;
	int fd;
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_stream *stream;
};

/* One end tells the other by the control socket where it listens. */
void tcp_listen(struct link *link, int control);
void tcp_connect(struct link *link, int control);
void stream_listen(struct link *link, int control);
void stream_connect(struct link *link, int control);
/* The rings of streams to come. */
void stream_sizes(uint64_t size);

void link_read_all(struct link *link, void *buffer, size_t length, bool spins);
void link_write_all(struct link *link, const void *buffer, size_t length, bool spins);

/* Bytes that a stream takes beside its rings and its QP. */
double stream_memory(void);

void die(const char *what);

#endif
