/* SPDX-License-Identifier: MIT */
/*
 * Much, between two processes: so many MiB there, and as many back at the same time, on the
 * devices that there are. Each end hashes what it sends and what it gets, and tells the
 * other; the hashes must be the same.
 *
 *	stream_bulk [MIB]
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "lib/patience.h"

#define BLOCK (1u << 18)
#define LONG  ((int64_t)patience_ns(60))

struct where {
	char host[64];
	uint16_t port;
};

/* One direction. */
struct half {
	uint64_t done, hash;
	uint8_t bytes[BLOCK];
};

static struct half out, in;

static void check(long ret, const char *what)
{
	if (ret >= 0)
		return;
	printf("# %s: %s\nnot ok 1 - bytes\n", what, snt_err_text());
	fflush(stdout);
	_exit(1);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

/* Four sums at once, since each step waits for the one before. */
static uint64_t hash_block(uint64_t hash, const uint8_t *bytes)
{
	uint64_t sum[4] = { hash, 1, 2, 3 };

	for (size_t i = 0; i < BLOCK; i += 32) {
		uint64_t word[4];

		memcpy(word, bytes + i, sizeof(word));
		for (int j = 0; j < 4; j++)
			sum[j] = mix(sum[j], word[j]);
	}
	return mix(mix(mix(sum[0], sum[1]), sum[2]), sum[3]);
}

/* Every block is another one, in all of its words. */
static void make_block(uint8_t *bytes, uint64_t number, uint64_t salt)
{
	uint64_t key = mix(salt, number);

	for (size_t i = 0; i < BLOCK; i += 8) {
		uint64_t word = key + i * UINT64_C(0xd1342543de82ef95);

		memcpy(bytes + i, &word, sizeof(word));
	}
}

/* As much as goes, or nothing. */
static bool send_some(struct snt_stream *stream, uint64_t total, uint64_t salt)
{
	size_t at = out.done % BLOCK;
	ssize_t ret;

	if (out.done == total)
		return false;
	if (!at)
		make_block(out.bytes, out.done / BLOCK, salt);
	ret = snt_stream_write(stream, out.bytes + at, BLOCK - at);
	if (ret == -EAGAIN)
		return false;
	check(ret, "write");
	out.done += (uint64_t)ret;
	if (out.done % BLOCK == 0)
		out.hash = hash_block(out.hash, out.bytes);
	return true;
}

static bool receive_some(struct snt_stream *stream, uint64_t total)
{
	size_t at = in.done % BLOCK;
	ssize_t ret;

	if (in.done == total)
		return false;
	ret = snt_stream_read(stream, in.bytes + at, BLOCK - at);
	if (ret == -EAGAIN)
		return false;
	check(ret ? ret : -1, "read");
	in.done += (uint64_t)ret;
	if (in.done % BLOCK == 0)
		in.hash = hash_block(in.hash, in.bytes);
	return true;
}

static int exchange(struct snt_stream *stream, uint64_t total, uint64_t salt)
{
	struct snt_stream_info info = { .size = sizeof(info) };
	uint64_t theirs = 0;

	while (out.done < total || in.done < total) {
		unsigned events = (out.done < total ? SNT_STREAM_WRITABLE : 0) |
				  (in.done < total ? SNT_STREAM_READABLE : 0);
		bool moved = send_some(stream, total, salt);

		moved |= receive_some(stream, total);
		if (!moved)
			check(snt_stream_wait(stream, events, LONG), "wait");
	}
	check(snt_stream_write_all(stream, &out.hash, sizeof(out.hash), LONG), "write");
	if (snt_stream_read_all(stream, &theirs, sizeof(theirs), LONG) !=
	    sizeof(theirs))
		check(-1, "read");
	snt_stream_query(stream, &info);
	if (info.receives_most > info.receives_granted)
		check(-1, "more receives were used than granted");
	check(snt_stream_close(stream, LONG), "close");
	return theirs != in.hash;
}

static int serve(int tell, uint64_t total)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_stream_listener *listener;
	struct snt_stream *stream;
	struct where where = { .port = 0 };
	struct snt_loop *loop;
	struct snt_ctx *ctx;
	int best = INT32_MIN, ret;

	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	check(snt_stream_listener_create(loop, NULL, NULL, &listener), "listen");
	for (unsigned i = 0; !snt_device_query_gid(snt_ctx_device(ctx, 0), i, &gid);
	     i++)
		if (gid.score > best) {
			best = gid.score;
			memcpy(where.host, gid.text, sizeof(gid.text));
		}
	where.port = snt_stream_listener_port(listener);
	check(write(tell, &where, sizeof(where)), "pipe");
	check(snt_stream_listener_wait(listener, LONG, &stream), "accept");
	ret = exchange(stream, total, 2);
	check(snt_stream_listener_destroy(listener), "destroy");
	check(snt_loop_destroy(loop), "close");
	check(snt_ctx_destroy(ctx), "close");
	return ret;
}

static int ask(const struct where *where, uint64_t total)
{
	struct snt_endpoint endpoint = { .size = sizeof(endpoint),
					 .host = where->host,
					 .port = where->port };
	struct snt_stream *stream;
	struct snt_loop *loop;
	struct snt_ctx *ctx;
	int ret;

	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	check(snt_stream_connect(loop, &endpoint, NULL, &stream), "connect");
	ret = exchange(stream, total, 1);
	check(snt_loop_destroy(loop), "close");
	check(snt_ctx_destroy(ctx), "close");
	return ret;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	uint64_t total = (argc > 1 ? strtoull(argv[1], NULL, 0) : 64) << 20;
	struct where where;
	int told[2], status, ret;
	double begin;

	printf("1..1\n");
	fflush(stdout);
	check(pipe(told), "pipe");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(serve(told[1], total));
	}
	if (read(told[0], &where, sizeof(where)) != sizeof(where))
		return 1;
	begin = now();
	ret = ask(&where, total);
	if (wait(&status) < 0 || status || ret) {
		printf("not ok 1 - what came is not what was sent\n");
		return 1;
	}
	printf("ok 1 - %.3g MB each way, %.3g MB/s\n", (double)total / 1e6,
	       (double)total / 1e6 / (now() - begin));
	return 0;
}
