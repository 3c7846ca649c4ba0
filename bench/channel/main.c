/* SPDX-License-Identifier: MIT */
/*
 * Messages between two processes, by a channel on soft shared memory, beside the same by
 * TCP and by a stream. Values are times of one message, so that a ratio below 1 means that
 * the channel is faster. By TCP and by the stream a message is 64 bytes or 1 MiB, without
 * a header, which the receiver takes as many at a time as it can get.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "lib/bench.h"
#include "stream/link.h"

#define MIB    (1u << 20)
#define SMALL  64
#define OFFERS 4 /* in flight; each in memory of its own */
#define RING   (UINT64_C(8) << 20)

static unsigned char bytes[MIB];

/* What the other process is to receive. */
struct order {
	uint64_t count;
	uint32_t length;
	bool offered;
};

struct end {
	struct link link;
	int control;
	struct snt_channel *channel; /* NULL: bytes of the link */
	struct snt_mem *mem;
	unsigned char *memory;
	struct snt_offer offer[OFFERS];
	struct snt_fetch fetch[OFFERS];
	uint64_t done;
};

static void need_success(long ret, const char *what)
{
	if (ret < 0)
		die(what);
}

static void make_channel(struct end *end)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_READ;

	need_success(snt_channel_create(end->link.stream, NULL, &end->channel),
		     "channel");
	end->memory = malloc((size_t)OFFERS * MIB);
	memset(end->memory, 1, (size_t)OFFERS * MIB);
	need_success(snt_mem_register(end->link.ctx, end->memory, (size_t)OFFERS * MIB,
				      access, &end->mem),
		     "memory");
}

/*
 * The receiver
 */

static void sink_link_bytes(struct link *link, uint64_t length)
{
	while (length)
		length -= link->table->read(link, bytes,
					    length < MIB ? (size_t)length : MIB, true);
}

static void on_fetched(struct snt_fetch *fetch)
{
	struct end *end = fetch->arg;

	need_success(fetch->result, "fetch");
	end->done++;
}

/* 0, or -EAGAIN if nothing is offered or all memory is in use. */
static int begin_fetch(struct end *end, uint64_t begun)
{
	struct snt_fetch *fetch = &end->fetch[begun % OFFERS];

	if (begun - end->done == OFFERS)
		return -EAGAIN;
	*fetch = (struct snt_fetch){ .mem = end->mem,
				     .addr = end->memory + begun % OFFERS * MIB,
				     .size = MIB,
				     .done = on_fetched,
				     .arg = end };
	return snt_channel_fetch(end->channel, fetch);
}

static void sink_offers(struct end *end, uint64_t count)
{
	uint64_t begun = 0;

	end->done = 0;
	while (end->done < count) {
		int ret = begun < count ? begin_fetch(end, begun) : -EAGAIN;

		if (!ret)
			begun++;
		else if (ret == -EAGAIN)
			snt_loop_poll(end->link.loop, 0);
		else
			die("fetch");
	}
}

static void sink_messages(struct end *end, uint64_t count)
{
	while (count) {
		ssize_t ret = snt_channel_recv(end->channel, bytes, MIB);

		if (ret >= 0)
			count--;
		else if (ret == -EAGAIN)
			snt_loop_poll(end->link.loop, 0);
		else
			die("receive");
	}
}

static void send_answer(struct end *end)
{
	if (!end->channel) {
		link_write_all(&end->link, "!", 1, true);
		end->link.table->flush(&end->link);
		return;
	}
	need_success(snt_channel_send_wait(end->channel, "!", 1, -1), "answer");
	while (snt_channel_flush(end->channel) == -EAGAIN)
		snt_loop_poll(end->link.loop, 0);
}

static void serve_message_orders(struct end *end, int control)
{
	struct order order;

	while (read(control, &order, sizeof(order)) == sizeof(order)) {
		if (!end->channel)
			sink_link_bytes(&end->link, order.count * order.length);
		else if (order.offered)
			sink_offers(end, order.count);
		else
			sink_messages(end, order.count);
		send_answer(end);
	}
}

static void start_end(struct end *end, bool channel,
		      void (*listen)(struct link *link, int control),
		      void (*connect)(struct link *link, int control))
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		bench_other_core();
		listen(&end->link, pair[1]);
		if (channel)
			make_channel(end);
		serve_message_orders(end, pair[1]);
		_exit(0);
	}
	close(pair[1]);
	end->control = pair[0];
	connect(&end->link, pair[0]);
	if (channel)
		make_channel(end);
}

/*
 * The sender
 */

static void order_messages(const struct end *end, struct order order)
{
	if (write(end->control, &order, sizeof(order)) != sizeof(order))
		die("control");
}

static void await_answer(struct end *end)
{
	char text[1];

	if (!end->channel)
		link_read_all(&end->link, text, 1, true);
	else
		need_success(snt_channel_recv_wait(end->channel, text, 1, -1),
			     "answer");
}

static void send_message(struct end *end, size_t length)
{
	int ret;

	if (!end->channel) {
		link_write_all(&end->link, bytes, length, true);
		return;
	}
	while ((ret = snt_channel_send(end->channel, bytes, length)) == -EAGAIN)
		snt_loop_poll(end->link.loop, 0);
	need_success(ret, "send");
}

static void run_messages(struct end *end, unsigned count, uint32_t length)
{
	order_messages(end, (struct order){ count, length, false });
	for (unsigned i = 0; i < count; i++)
		send_message(end, length);
	await_answer(end);
}

static void run_small(void *arg, unsigned count)
{
	run_messages(arg, count, SMALL);
}

static void run_large(void *arg, unsigned count)
{
	run_messages(arg, count, MIB);
}

static void on_released(struct snt_offer *offer)
{
	struct end *end = offer->arg;

	need_success(offer->result, "offer");
	end->done++;
}

static void run_offers(void *arg, unsigned count)
{
	struct end *end = arg;
	uint64_t begun = 0;

	order_messages(end, (struct order){ count, MIB, true });
	end->done = 0;
	while (end->done < count) {
		struct snt_offer *offer = &end->offer[begun % OFFERS];

		if (begun == count || begun - end->done == OFFERS) {
			snt_loop_poll(end->link.loop, 0);
			continue;
		}
		*offer = (struct snt_offer){ .mem = end->mem,
					     .addr = end->memory + begun % OFFERS * MIB,
					     .length = MIB,
					     .released = on_released,
					     .arg = end };
		need_success(snt_channel_offer(end->channel, offer), "offer");
		begun++;
	}
	await_answer(end);
}

int main(int argc, char **argv)
{
	struct bench *bench = bench_begin("channel", argc, argv);
	static struct end tcp, stream, channel;

	/* Nothing of a device is in the processes that are forked. */
	stream_sizes(RING);
	start_end(&tcp, false, tcp_listen, tcp_connect);
	setenv("SENNIT_SOFT_SHM", "on", 0);
	start_end(&stream, false, stream_listen, stream_connect);
	start_end(&channel, true, stream_listen, stream_connect);
	bench_case(bench, "tcp-64b", run_small, &tcp, 20000, NULL);
	bench_case(bench, "stream-64b", run_small, &stream, 20000, "tcp-64b");
	bench_case(bench, "send-64b", run_small, &channel, 20000, "tcp-64b");
	bench_case(bench, "tcp-1m", run_large, &tcp, 32, NULL);
	bench_case(bench, "stream-1m", run_large, &stream, 32, "tcp-1m");
	bench_case(bench, "send-1m", run_large, &channel, 32, "stream-1m");
	bench_case(bench, "offer-1m", run_offers, &channel, 32, "stream-1m");
	return bench_end(bench);
}
