/* SPDX-License-Identifier: MIT */
/*
 * Packets wake a program that sleeps in an event loop of its own: the fds at which they
 * arrive are in the loop's epoll instance, so that no thread of a device is in between.
 *
 * A device is lent from the end of a dispatch, or of snt_loop_arm(), until packets have
 * come. The program may compute before it sleeps: then the device's thread takes them,
 * and is not lent again for a while. Its fds are watched only while the program may
 * borrow it, since they report packets that are another thread's as well.
 */
#include <sys/epoll.h>

#include "loop/loop.h"

/* Bells stay in their fd until the program sleeps again; messages may stay in a socket
 * for longer. */
static const uint32_t rx_events[SNT__RX_FDS] = { EPOLLIN | EPOLLET, EPOLLIN };

static void unwatch_device(const struct snt_loop *loop, struct snt__rx *rx)
{
	for (unsigned i = 0; i < rx->count; i++) {
		snt__loop_unwatch(loop, &rx->source[i]);
		snt__unlink(&rx->source[i].readable);
	}
	rx->count = 0;
}

static bool watch_device(const struct snt_loop *loop, struct snt__rx *rx,
			 const int fds[SNT__RX_FDS], unsigned count)
{
	for (; rx->count < count; rx->count++) {
		struct snt__source *source = &rx->source[rx->count];

		*source = (struct snt__source){ .fd = fds[rx->count],
						.type = SNT__SOURCE_RX };
		if (snt__loop_watch(loop, source, rx_events[rx->count]))
			return false;
	}
	return true;
}

/* Which of a device's fds were readable, as a set of bits; forgets it. */
static unsigned take_readable(struct snt__rx *rx)
{
	unsigned readable = 0;

	for (unsigned i = 0; i < rx->count; i++) {
		readable |= (unsigned)snt__linked(&rx->source[i].readable) << i;
		snt__unlink(&rx->source[i].readable);
	}
	return readable;
}

static void return_device(struct snt_loop *loop, unsigned index, unsigned readable)
{
	loop->rx[index].lent = false;
	loop->rx_lent--;
	snt__channel_rx_return(loop, loop->base.ctx->device[index], readable);
}

static void lend_device(struct snt_loop *loop, unsigned index)
{
	const struct snt_device *device = loop->base.ctx->device[index];
	struct snt__rx *rx = &loop->rx[index];
	unsigned readable = take_readable(rx), count;
	int fds[SNT__RX_FDS];

	count = snt__device_rx_watch(device, fds, readable);
	if (!count) {
		unwatch_device(loop, rx);
		return;
	}
	rx->lent = true;
	loop->rx_lent++;
	if (watch_device(loop, rx, fds, count))
		return;
	return_device(loop, index, 0);
	unwatch_device(loop, rx);
}

/* Devices for which the loop has no CQ are left to other threads. A loop that was rung
 * does not sleep. */
void snt__rx_lend(struct snt_loop *loop)
{
	bool simulated = loop->sleep;

	if (simulated || !snt__loop_has_fd(loop) || atomic_load(&loop->rung))
		return;
	for (unsigned i = 0; i < loop->base.ctx->device_count; i++)
		if (!loop->rx[i].lent && loop->channel[i].device)
			lend_device(loop, i);
}

/* Was the fd readable because of packets that another thread has taken since? */
static bool is_woken_in_vain(const struct snt_loop *loop)
{
	return snt__list_empty(&loop->arrivals) && snt__list_empty(&loop->signalled) &&
	       snt__list_empty(&loop->readable);
}

/* A device whose packets are taken by another thread is returned as well: it may no
 * longer leave them to this loop. Edges of one that is not lent wait until it is. */
void snt__rx_take(struct snt_loop *loop)
{
	bool found = false, in_vain;

	if (!loop->rx_lent)
		return;
	in_vain = is_woken_in_vain(loop);
	for (unsigned i = 0; i < loop->base.ctx->device_count; i++) {
		struct snt__rx *rx = &loop->rx[i];
		bool signalled = snt__linked(&loop->channel[i].source.readable);
		unsigned readable = rx->lent ? take_readable(rx) : 0;

		if (!rx->lent || !(readable || signalled || in_vain))
			continue;
		return_device(loop, i, readable);
		found |= readable;
	}
	if (found)
		snt__serve_list_later(&loop->base.event_cqs);
}

void snt__rx_return_all(struct snt_loop *loop)
{
	for (unsigned i = 0; loop->rx_lent && i < loop->base.ctx->device_count; i++)
		if (loop->rx[i].lent)
			return_device(loop, i, take_readable(&loop->rx[i]));
}

void snt__rx_suspect_all(struct snt_loop *loop)
{
	for (unsigned i = 0; i < loop->base.ctx->device_count; i++) {
		struct snt__rx *rx = &loop->rx[i];

		for (unsigned n = 0; n < rx->count; n++)
			if (!snt__linked(&rx->source[n].readable))
				snt__list_append(&loop->arrivals,
						 &rx->source[n].readable);
	}
}

void snt__rx_stop(struct snt_loop *loop)
{
	snt__rx_return_all(loop);
	for (unsigned i = 0; i < loop->base.ctx->device_count; i++)
		unwatch_device(loop, &loop->rx[i]);
}
